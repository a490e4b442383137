"""Does it learn? The order of work that a graph finds, and what a memory is worth.

    python benchmarks/bench_learning.py [--quick] [--docs] [orders|memory|feedback|speed|tune]

Everything but ``speed`` is the same on every machine: tasks, streams and questions are made from
seeds, runs are scripted but real, time is the stream's own. Intervals are the middle 95 % of a
seeded bootstrap over the seeds. ``--docs`` also draws the pictures and writes the tables of
docs/explanation/does-it-learn.md. ``tune`` shows how the second setting of the orders was chosen.
The package that ``memory`` and ``speed`` compare with comes with the extra ``bench``, as does what
draws; without it that part of the figures is left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from benchmarks.learning import memory_report, order_report, regret, speed

DOCS = Path(__file__).parents[1] / "docs"
IMAGES = DOCS / "images"
PAGE = DOCS / "explanation" / "does-it-learn.md"


def put(name: str, table: str) -> None:
    """Write a table between its marks in the page."""
    page = PAGE.read_text("utf-8")
    marks = re.compile(f"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not marks.search(page):
        raise SystemExit(f"{PAGE} has no marks for the table {name!r}")
    PAGE.write_text(marks.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", page), "utf-8")


def orders(*, docs: bool) -> None:
    trials = order_report.run(quick=harness.quick())
    if docs:
        order_report.draw(trials, IMAGES / "orders.png")
        put("orders", order_report.table(trials))


def memory(*, docs: bool) -> None:
    trials = memory_report.run(quick=harness.quick())
    if docs:
        memory_report.draw(trials, IMAGES / "memory.png", IMAGES / "memory-tokens.png")
        put("memory", memory_report.table(trials))
        put("kinds", memory_report.kinds_table(trials))
        put("ranking", memory_report.ranking_table(trials))


def feedback(*, docs: bool) -> None:
    found = regret.run(quick=harness.quick())
    if docs:
        regret.draw(found, IMAGES / "feedback.png")
        put("feedback", regret.table(found))


def beside(*, docs: bool) -> None:
    found = speed.run(quick=harness.quick())
    if docs:
        put("speed", speed.table(found))


PARTS: Mapping[str, Callable[..., None]] = {
    "orders": orders,
    "memory": memory,
    "feedback": feedback,
    "speed": beside,
}


def main() -> None:
    docs = "--docs" in sys.argv[1:]
    if docs and harness.quick():
        raise SystemExit("--docs and --quick together would write figures of a few seeds into the docs")
    asked = [word for word in sys.argv[1:] if not word.startswith("--")]
    if unknown := set(asked) - {*PARTS, "tune"}:
        raise SystemExit(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)} and tune")
    for name, part in PARTS.items():
        if name in asked or not asked:
            part(docs=docs)
    if "tune" in asked:
        order_report.tune()


if __name__ == "__main__":
    main()
