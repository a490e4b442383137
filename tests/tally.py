"""What the reliability tests counted: kills, generated cases, files and strings of the corpora.

Each counts what it really tried; the test run closes with the sums. A run of everything that
reaches less than a floor has skipped something, and fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

__all__ = ("FLOORS", "TALLY", "missing", "tally")

TALLY: Counter[str] = Counter()

#: What a run of all tests counts at least.
FLOORS: Mapping[str, int] = {
    "JSON files read": 8 * 318,
    "JSON files as verdicts": 6 * 318,
    "JSON files as tool arguments": 2 * 318,
    "number texts": 100_000,
    "schema answers": 1_150,
    "naughty strings": 15 * 515,
    "lone surrogates": 16 * 2_048,
    "searches": 515,
    "numbers as arguments": 1_200,
    "generated runs": 400,
    "random verdict texts": 10_000,
    "writer kills": 200,
    "run kills": 120,
    "faults between statements": 150,
}


def tally(what: str, count: int = 1) -> None:
    """Add to a sum."""
    TALLY[what] += count


def missing() -> list[str]:
    """Return what stayed below its floor."""
    return [f"{what}: {TALLY[what]:,} of {floor:,}" for what, floor in FLOORS.items() if TALLY[what] < floor]
