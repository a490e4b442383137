"""Guards: evaluating usual ones (G1), the dearest that a budget allows (G2), compiling (G3).

    python benchmarks/bench_guards.py [--quick]

The floor of G1 is the same condition as a lambda, written by hand for a context that is known
to be complete: no missing path, no check of a kind, no count of the work. G2 and
G3 have a bar instead: an evaluation of at most 5,000 units stays under 1 ms whatever the context
holds, and a compilation of at most 2,000 characters under 10 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from graphstate.guards import compile_guard
from graphstate.guards.parser import parse

Context = Mapping[str, Any]

CONTEXT: Context = {
    "from": {"topic": "caches"},
    "toTags": ["draft", "ready", "safe"],
    "stat": {"visits": 5, "failures": 0},
    "vars": {"ok": True, "owner": "ann"},
}

USUAL: Mapping[str, Callable[[Context], bool]] = {
    "stat.visits >= 5": lambda c: c["stat"]["visits"] >= 5,
    "toTags has 'ready'": lambda c: "ready" in c["toTags"],
    "vars.owner in ['ann', 'bob']": lambda c: c["vars"]["owner"] in ["ann", "bob"],
    "stat.failures == 0 && vars.ok == true": lambda c: c["stat"]["failures"] == 0 and c["vars"]["ok"] is True,
    "!exists vars.by || vars.by != 'me' && from.topic has 'cache'": lambda c: (
        "by" not in c["vars"] or (c["vars"]["by"] != "me" and "cache" in c["from"]["topic"])
    ),
}

#: A context made to cost the most for each unit of work.
DEAR: Context = {
    "n": [1] * 4_900,
    "f": [1.5] * 2_400,
    "g": [1.5] * 2_400,
    "o": {str(i): i for i in range(1_200)},
    "p": {str(i): i for i in range(1_200)},
    "long": "c" * 100,
    "longs": ["b" * 100] * 6_000,
    "part": ["r"],
    "parts": [["q"]] * 5_000,
    "hay": "a" * 29_000,
    "needle": "a" * 49 + "b" + "a" * 49,
    "book": "a" * 260_000,
    "digits": 10**900,
    "numbers": [10**900 + 1] * 5_000,
    "mixed": [1, "a", None, 2.5] * 1_200,
}

DEAREST = (
    "7 in n", "null in n", "f == g", "o == p", "long in longs", "part in parts", "hay has needle", "book has 'ab'",
    "digits in numbers", "'z' in mixed", " || ".join(["7 in n"] * 190),
)  # fmt: skip

LONG = (
    "||".join(["a"] * 600), f"[{','.join(['a'] * 999)}]", "'a'=='b'||" * 190 + "true", "((((((((((((a))))))))))))||" * 60 + "a",
    "a==[1,'b']||" * 150 + "a", "!" * 61 + "a", "(" * 2_000, "a." * 999 + "a",
)  # fmt: skip


def repeated(work: Callable[[], object], n: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(n):
            work()

    return run


def evaluation(text: str, context: Context) -> Callable[[], object]:
    guard = compile_guard(text)
    return lambda: guard.evaluate(context)


def compilation(text: str) -> Callable[[], object]:
    def run() -> None:
        with suppress(ValueError):
            parse(text)

    return run


def usual(n: int) -> None:
    for text, by_hand in USUAL.items():
        assert compile_guard(text).evaluate(CONTEXT).passed is by_hand(CONTEXT) is True
        works = {
            "guard": repeated(evaluation(text, CONTEXT), n),
            "floor": repeated(lambda by_hand=by_hand: by_hand(CONTEXT), n),  # type: ignore[misc]
        }
        us = harness.measure(works, n=n)
        harness.report(
            "G1", f"evaluate {text}", us["guard"], "us", floor=us["floor"], n=n,
            must=harness.bar("<= 5 us", us["guard"] <= 5),
            moonshot=harness.bar("<= 5x the lambda", us["guard"] <= 5 * us["floor"]),
        )  # fmt: skip


def dearest(n: int) -> None:
    us = harness.measure({text: repeated(evaluation(text, DEAR), n) for text in DEAREST}, n=n)
    worst = max(us, key=lambda text: us[text])
    harness.report(
        "G2", "the dearest evaluation within the budget", us[worst], "us", n=n,
        must=harness.bar("<= 1,000 us", us[worst] <= 1_000), moonshot=harness.bar("<= 500 us", us[worst] <= 500),
        guard=worst[:40], units=compile_guard(worst).evaluate(DEAR).units,
    )  # fmt: skip


def compiling(n: int) -> None:
    us = harness.measure({text: repeated(compilation(text), n) for text in LONG}, n=n)
    worst = max(us, key=lambda text: us[text])
    harness.report(
        "G3", "compiling the dearest 2,000 characters", us[worst], "us", n=n,
        must=harness.bar("<= 10,000 us", us[worst] <= 10_000), moonshot=harness.bar("<= 3,000 us", us[worst] <= 3_000),
        guard=worst[:40],
    )  # fmt: skip


def main() -> None:
    quick = harness.quick()
    usual(2_000 if quick else 50_000)
    dearest(2 if quick else 20)
    compiling(2 if quick else 20)


if __name__ == "__main__":
    main()
