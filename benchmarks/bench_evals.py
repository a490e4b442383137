"""Evals: a hundred scripted cases in this process (E1), and as a whole command (E2).

    python benchmarks/bench_evals.py [--quick]

A case is one answer and three graders, its replay among them. The floor of E1 is the records of
the hundred runs, made and read back by hand with the standard library: every entry written as JSON,
hashed and kept, then hashed again, compared and read. Nothing is decided, run or graded. E2 is the
CPU time of a process of its own, and its floor the start of Python with what every run imports.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import anyio

from agentloop import (
    EvalCase,
    EvalSuite,
    MemoryLedgerStore,
    RunLedger,
    ends_as,
    output_contains,
    replays_exactly,
    run_suite,
)
from benchmarks import harness

ROOT = Path(__file__).parents[1]

SUITE = """
from agentloop import EvalCase, EvalSuite, ends_as, output_contains, replays_exactly

suite = EvalSuite(
    id="bench",
    cases=[
        EvalCase(
            id=f"case-{number}",
            goal="answer",
            script=[{"say": "the answer"}],
            graders=[ends_as("completed"), output_contains("answer"), replays_exactly()],
        )
        for number in range(100)
    ],
)
"""


def suite(n: int) -> EvalSuite:
    graders = [ends_as("completed"), output_contains("answer"), replays_exactly()]
    cases = [
        EvalCase(id=f"case-{number}", goal="answer", script=[{"say": "the answer"}], graders=graders)
        for number in range(n)
    ]
    return EvalSuite(id="bench", cases=cases)


Entry = tuple[int, int, str, Any]
Kept = tuple[bytes, bytes, bytes]


def keep(record: list[Entry]) -> Iterator[Kept]:
    chained = bytes(32)
    for seq, at, kind, data in record:
        head = json.dumps([seq, at, kind]).encode()
        body = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
        chained = hashlib.sha256(chained + head + b"\n" + body).digest()
        yield head, body, chained


def follow(record: list[Kept]) -> None:
    chained = bytes(32)
    for head, body, hashed in record:
        chained = hashlib.sha256(chained + head + b"\n" + body).digest()
        assert chained == hashed
        assert json.loads(body) is not None


def in_process(n: int) -> None:
    cases, store = suite(n), MemoryLedgerStore()

    async def ours() -> None:
        assert (await run_suite(cases)).passed == n

    async def record() -> None:
        assert (await run_suite(cases, store=store)).passed == n

    def floor() -> None:
        kept = [[*keep(record)] for record in records]
        for record in kept:
            follow(record)

    anyio.run(record)
    records = [
        [
            (entry.seq, entry.at, entry.kind, entry.data)
            for entry in RunLedger(store, f"run-{case.id}").entries()
        ]
        for case in cases.cases
    ]
    ms = harness.measure({"ours": harness.timed(ours), "floor": floor}, n=1, scale=1e3)
    value = ms["ours"] * 100 / n
    harness.report(
        "E1", "a hundred scripted cases, in process", value, "ms", floor=ms["floor"] * 100 / n, n=n,
        must=harness.bar("<= 8x floor", ms["ours"] <= 8 * ms["floor"]),
        moonshot=harness.bar("<= 4x floor", ms["ours"] <= 4 * ms["floor"]),
    )  # fmt: skip


def cpu_of(command: list[str]) -> Callable[[], float]:
    def run() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


def as_command() -> None:
    eval_run = [sys.executable, "-m", "agentloop.cli", "eval", "run", "--suite"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.py"
        path.write_text(SUITE)
        works = {
            "hundred": cpu_of([*eval_run, str(path)]),
            "ours": cpu_of([*eval_run, "tests/evals/suite.py"]),
            "floor": cpu_of(
                [sys.executable, "-c", "import asyncio, anyio, anyio._backends._asyncio, msgspec"]
            ),
        }
        ms = harness.measure(works, n=1, scale=1e3)
    for what, figure, n, most, aim in (
        ("a hundred scripted cases", "hundred", 100, 600, 250),
        ("our own sixteen cases", "ours", 16, 500, 250),
    ):
        harness.report(
            "E2", f"{what}, as a command", ms[figure], "ms", floor=ms["floor"], n=n,
            must=harness.bar(f"<= {most} ms", ms[figure] <= most),
            moonshot=harness.bar(f"<= {aim} ms", ms[figure] <= aim),
        )  # fmt: skip


def main() -> None:
    in_process(20 if harness.quick() else 100)
    as_command()


if __name__ == "__main__":
    main()
