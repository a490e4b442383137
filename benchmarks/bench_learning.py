"""Does it learn? The order of work that a graph finds, and what a memory is worth.

    python benchmarks/bench_learning.py [--quick] [--docs] [orders|tune]

Everything but speed is the same on every machine: tasks, streams and questions are made from
seeds, runs are scripted but real, time is the stream's own. Intervals are the middle 95 % of a
seeded bootstrap over the seeds. ``--docs`` also draws the pictures and writes the tables of
docs/explanation/does-it-learn.md. ``tune`` shows how the second setting of the orders was chosen.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from benchmarks.learning import order_report

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "explanation" / "does-it-learn.md"
PARTS = ("orders",)


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
        order_report.draw(trials, DOCS / "images" / "orders.png")
        put("orders", order_report.table(trials))


def main() -> None:
    docs = "--docs" in sys.argv[1:]
    if docs and harness.quick():
        raise SystemExit("--docs and --quick together would write figures of a few seeds into the docs")
    asked = [word for word in sys.argv[1:] if not word.startswith("--")]
    if unknown := set(asked) - {*PARTS, "tune"}:
        raise SystemExit(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)} and tune")
    parts = asked or list(PARTS)
    if "orders" in parts:
        orders(docs=docs)
    if "tune" in parts:
        order_report.tune()


if __name__ == "__main__":
    main()
