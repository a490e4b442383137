"""One way to measure: a figure and its floor in the same process, alternating, one JSON line each.

Machines are noisy, so only ratios taken in one run count. What computes is timed in CPU
seconds of the process, what waits for a disk or a child by the wall.

    quick = harness.quick()
    us = harness.measure({"ours": ours, "floor": floor}, n=10_000)      # microseconds a unit
    harness.report("S1", "frame through a buffer", us["ours"], "us", floor=us["floor"], n=10_000,
                   must=harness.bar("<= 2.5 us", us["ours"] <= 2.5),
                   moonshot=harness.bar("<= 0.8 us", us["ours"] <= 0.8))
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple

import anyio
import anyio.lowlevel

__all__ = ("CLOCKS", "Bar", "Clock", "bar", "measure", "quick", "report", "timed")

Clock = Literal["cpu", "wall"]

CLOCKS: Mapping[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}


class Bar(NamedTuple):
    """What a figure has to reach, in words, and whether it did."""

    text: str
    met: bool


def bar(text: str, met: bool) -> Bar:
    return Bar(text, bool(met))


def quick() -> bool:
    """True if the command line has ``--quick``: fewer units and rounds, for a smoke test."""
    return "--quick" in sys.argv[1:]


def timed(work: Callable[[], Awaitable[object]], *, clock: Clock = "cpu") -> Callable[[], float]:
    """Return a work for `measure` that runs a coroutine function and leaves out the loop's start."""

    async def main() -> float:
        await anyio.lowlevel.checkpoint()
        started = CLOCKS[clock]()
        await work()
        return CLOCKS[clock]() - started

    return lambda: anyio.run(main)


def measure(
    works: Mapping[str, Callable[[], object]],
    *,
    n: int,
    clock: Clock = "cpu",
    rounds: int = 7,
    pick: Literal["best", "median"] = "best",
    scale: float = 1e6,
) -> dict[str, float]:
    """Return the time one unit takes, for each work, in microseconds unless ``scale`` says else.

    The works take turns, so that a slow spell of the machine meets all of them. One unmeasured
    round goes first.

    Args:
        works: Each does ``n`` units a call. One that returns a float timed itself, in seconds.
        n: Units a call.
        clock: ``cpu`` for what computes, ``wall`` for what waits.
        rounds: How often each work is measured; three with ``--quick``.
        pick: ``best`` for pure computation, ``median`` for what shares a disk.
        scale: 1e6 for microseconds, 1e3 for milliseconds.
    """
    now = CLOCKS[clock]
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(1 + (min(rounds, 3) if quick() else rounds)):
        for name, work in works.items():
            gc.collect()
            started = now()
            own = work()
            elapsed = own if isinstance(own, float) else now() - started
            if turn:
                taken[name].append(elapsed)
    choose = min if pick == "best" else statistics.median
    return {name: choose(values) / n * scale for name, values in taken.items()}


def report(
    figure: str,
    what: str,
    value: float,
    unit: str,
    *,
    floor: float | None = None,
    must: Bar | None = None,
    moonshot: Bar | None = None,
    n: int | None = None,
    **more: Any,
) -> None:
    """Print the figure as one JSON line; ``more`` (peers, counts) is added as it stands."""
    line = {
        "figure": figure,
        "what": what,
        "value": _short(value),
        "unit": unit,
        "floor": _short(floor),
        "ratio": _short(value / floor) if floor else None,
        "must": must and must.text,
        "moonshot": moonshot and moonshot.text,
        "must_met": must and must.met,
        "moonshot_met": moonshot and moonshot.met,
        "n": n,
    } | {key: _short(item) for key, item in more.items()}
    print(json.dumps(line), flush=True)


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return value
