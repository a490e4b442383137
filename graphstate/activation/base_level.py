"""How well something is remembered by how often, how recently and over how long it was used.

The logarithm of a sum over all uses, each fading by a power of its age. Unlike a score that halves
in a fixed time, what was used ten times over a month outlasts what was used ten times in an hour.
Three numbers stand for the history: the newest use counts exactly, the others as if they were
spread evenly between it and the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ("base_level", "base_level_of", "retention")

# Younger than this counts as this: the power has no value at 0.
_YOUNGEST_MS = 1_000


def base_level_of(ages_ms: Iterable[float], *, fading: float = 0.5) -> float:
    """Return the exact base level of uses so long ago, -inf if there is none."""
    total = math.fsum((max(age, _YOUNGEST_MS) / 1000) ** -fading for age in ages_ms)
    return math.log(total) if total else -math.inf


def base_level(uses: int, *, first_ms: float, last_ms: float, fading: float = 0.5) -> float:
    """Return about the base level of ``uses`` uses, the first and the last of them so long ago.

    Args:
        fading: The power, between 0 and 1.
    """
    if uses < 1:
        return -math.inf
    last = max(last_ms, _YOUNGEST_MS) / 1000
    first = max(first_ms / 1000, last)
    newest = last**-fading
    if uses == 1:
        return math.log(newest)
    if first - last < 1e-3 * last:
        return math.log(uses * newest)
    keep = 1 - fading
    return math.log(newest + (uses - 1) * (first**keep - last**keep) / (keep * (first - last)))


def retention(level: float, *, threshold: float = -6.0, scale: float = 1.0) -> float:
    """Return a base level as a signal from 0 to 1: a half at the threshold.

    The default threshold is one use some 45 hours ago.
    """
    exponent = (threshold - level) / scale
    return 0.0 if exponent > 700 else 1 / (1 + math.exp(exponent))
