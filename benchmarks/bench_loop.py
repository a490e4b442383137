"""The loop: what a cycle costs in memory and on disk, how that grows, and how fast it starts.

    python -m benchmarks.bench_loop [--quick] [memory] [disk] [resume] [start]

Figures L1 to L9 and I1. The work of a cycle and its floors are in `cycle_work`.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import anyio

from adapters.graph import GraphLedgerStore
from agentloop import MemoryLedgerStore, create_default_evaluator_parser, resume
from benchmarks import cycle_work as work
from benchmarks import harness
from graphstate import Adaptogen, Store

ROOT = Path(__file__).resolve().parent.parent


def in_memory() -> None:
    n = 100 if harness.quick() else 1_000
    us = harness.measure(
        {
            "tasks": harness.timed(work.with_tasks(n)),
            "in line": harness.timed(work.in_line(n)),
            "naive": harness.timed(work.naive(n)),
            "plain": harness.timed(work.plain(n)),
        },
        n=n,
    )
    floor = us["naive"]
    harness.report(
        "L1",
        "in-memory cycle, adapters with tasks of their own, CPU",
        us["tasks"],
        "us",
        floor=floor,
        must=harness.bar("<= 1.0x naive duplex", us["tasks"] <= floor),
        moonshot=harness.bar("<= 0.4x", us["tasks"] <= 0.4 * floor),
        n=n,
        plain_us=us["plain"],
    )
    harness.report(
        "L1",
        "in-memory cycle, adapters that never suspend, CPU",
        us["in line"],
        "us",
        floor=floor,
        must=harness.bar("<= 1.0x naive duplex", us["in line"] <= floor),
        moonshot=harness.bar("<= 0.25x", us["in line"] <= 0.25 * floor),
        n=n,
    )


# ------------------------------------------------------------------------------------ counts


def counts(make: Callable[[int], Callable[[], Any]]) -> tuple[float, float]:
    """Return Python calls and event-loop callbacks a cycle, by two runs of different length."""

    def count(cycles: int) -> tuple[int, int]:
        calls = handles = 0
        handle = asyncio.Handle._run.__code__

        def profile(frame: Any, event: str, argument: object) -> None:
            nonlocal calls, handles
            if event == "call":
                calls += 1
                handles += frame.f_code is handle

        async def main() -> None:
            sys.setprofile(profile)
            try:
                await make(cycles)()
            finally:
                sys.setprofile(None)

        anyio.run(main)
        return calls, handles

    (few_calls, few_handles), (many_calls, many_handles) = count(50), count(150)
    return (many_calls - few_calls) / 100, (many_handles - few_handles) / 100


def report_counts() -> None:
    naive_calls, naive_callbacks = counts(work.naive)
    for name, make, moonshot in (
        ("adapters with tasks", work.with_tasks, (350, 8)),
        ("adapters in line", work.in_line, (200, 5)),
    ):
        calls, callbacks = counts(make)
        harness.report(
            "L2",
            f"counts a cycle, {name}",
            calls,
            "Python calls",
            floor=naive_calls,
            must=harness.bar("<= 800 calls, 16 callbacks", calls <= 800 and callbacks <= 16),
            moonshot=harness.bar(
                f"<= {moonshot[0]} calls, {moonshot[1]} callbacks",
                calls <= moonshot[0] and callbacks <= moonshot[1],
            ),
            callbacks=callbacks,
            naive_callbacks=naive_callbacks,
        )


# ----------------------------------------------------------------------------------- durable


class _Raw:
    """The floor on disk: three hashed events a cycle, one transaction, by the standard library."""

    def __init__(self, path: Path, *, full: bool) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
        self.connection.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, body BLOB, hash BLOB)")

    def commit(self, book: work.HandLedger) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO log (body, hash) VALUES (?, ?)", book.rows)
        self.connection.execute("COMMIT")
        book.rows.clear()

    def close(self) -> None:
        self.connection.close()


def _file_bytes(path: Path) -> int:
    """Size of a database once its write-ahead log is folded in."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def _durable(folder: Path, cycles: int, *, full: bool, commit: str) -> Callable[[], float]:
    numbers = iter(range(1_000_000))

    def run() -> float:
        durability: Literal["power", "process"] = "power" if full else "process"
        store = Store.open(folder / f"ours-{full}-{commit}-{next(numbers)}.db", durability=durability)
        try:
            loop = work.in_line(cycles, ledger=GraphLedgerStore(store), commit=commit, durability=durability)
            return harness.timed(loop, clock="wall")()
        finally:
            store.close()

    return run


def _by_hand(folder: Path, cycles: int, *, full: bool) -> Callable[[], float]:
    numbers = iter(range(1_000_000))

    def run() -> float:
        with closing(_Raw(folder / f"raw-{full}-{next(numbers)}.db", full=full)) as raw:
            return harness.timed(work.plain_recorded(cycles, raw.commit), clock="wall")()

    return run


def on_disk(folder: Path) -> None:
    n = 50 if harness.quick() else 400
    for figure, full, must, moonshot in (("L3", False, 3.0, 1.5), ("L4", True, 1.5, 1.1)):
        us = harness.measure(
            {
                "cycle": _durable(folder, n, full=full, commit="cycle"),
                "turn": _durable(folder, n, full=full, commit="turn"),
                "floor": _by_hand(folder, n, full=full),
            },
            n=n,
            clock="wall",
            rounds=5,
            pick="median",
        )
        level = "FULL" if full else "NORMAL"
        ratio = us["cycle"] / us["floor"]
        harness.report(
            figure,
            f"durable cycle, WAL + {level}, one commit, wall",
            us["cycle"],
            "us",
            floor=us["floor"],
            must=harness.bar(f"<= {must}x hand-written ledger", ratio <= must),
            moonshot=harness.bar(f"<= {moonshot}x", ratio <= moonshot),
            n=n,
            commit_turn_us=us["turn"],
        )


def disk_size(folder: Path) -> None:
    for n in (1_000,) if harness.quick() else (1_000, 10_000):
        store = Store.open(folder / f"size-{n}.db")
        loop = work.in_line(n, ledger=GraphLedgerStore(store), commit="cycle", durability="process")
        anyio.run(loop)
        store.close()
        with closing(_Raw(folder / f"size-raw-{n}.db", full=False)) as raw:
            anyio.run(work.plain_recorded(n, raw.commit))
        ours = _file_bytes(folder / f"size-{n}.db") / n
        floor = _file_bytes(folder / f"size-raw-{n}.db") / n
        harness.report(
            "L6",
            f"disk a cycle at {n} cycles",
            ours,
            "B",
            floor=floor,
            must=harness.bar("<= 2x hand-written ledger", ours <= 2 * floor),
            moonshot=harness.bar("<= 1.3x", ours <= 1.3 * floor),
            n=n,
        )


# ------------------------------------------------------------------------------------ growth


def growth() -> None:
    cycles = 1_000 if harness.quick() else 10_000
    slice_ = cycles // 10
    stamps: list[float] = []

    def note(kind: str, data: dict[str, Any]) -> None:
        if kind.endswith("node_retry") and data["retry_count"] % slice_ == 0:
            stamps.append(time.process_time())

    best = float("inf")
    for _ in range(3):
        stamps.clear()
        gc.collect()
        stamps.append(time.process_time())
        anyio.run(work.in_line(cycles, on_progress=note))
        early, late = stamps[2] - stamps[1], stamps[-1] - stamps[-2]
        best = min(best, late / early)
    harness.report(
        "L5",
        f"late cycles over early cycles at {cycles} cycles",
        best,
        "x",
        floor=1.0,
        must=harness.bar("<= 1.3", best <= 1.3),
        moonshot=harness.bar("<= 1.1", best <= 1.1),
        n=cycles,
    )


def memory() -> None:
    def held(cycles: int, ledger: MemoryLedgerStore | None) -> int:
        async def main() -> int:
            gc.collect()
            tracemalloc.start()
            loop = work.make_loop(work.agent_turn, work.evaluator_turn, cycles, ledger=ledger)
            await loop.run()
            gc.collect()
            size = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert loop.result is not None
            return size

        return anyio.run(main)

    few, many = 200, 1_200
    kib = (held(many, None) - held(few, None)) / (many - few) / 1024
    ledger = (held(many, MemoryLedgerStore()) - held(few, MemoryLedgerStore())) / (many - few) / 1024
    harness.report(
        "L7",
        "memory a cycle, history kept",
        kib,
        "KiB",
        floor=0.5,
        must=harness.bar("<= 2 KiB", kib <= 2),
        moonshot=harness.bar("<= 0.75 KiB", kib <= 0.75),
        n=many - few,
        with_ledger_in_memory_kib=ledger,
    )


# ------------------------------------------------------------------------------------- start


def _cpu_of(code: str) -> float:
    """CPU seconds of a fresh interpreter that runs the code, the best of several; compiled before."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    best = float("inf")
    with tempfile.TemporaryDirectory() as cache:
        environment["PYTHONPYCACHEPREFIX"] = cache
        for _ in range(2 if harness.quick() else 12):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-c", code],
                check=True,
                env=environment,
                timeout=60,
                stdout=subprocess.DEVNULL,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            best = min(best, spent)
    return best


def start() -> None:
    nothing = _cpu_of("pass")
    naive, ours = (
        _cpu_of((ROOT / "benchmarks" / name).read_text("utf-8"))
        for name in ("naive_start.py", "our_start.py")
    )
    harness.report(
        "L9",
        "fresh interpreter to the end of the first cycle, CPU",
        ours * 1e3,
        "ms",
        floor=naive * 1e3,
        must=harness.bar("<= 1.3x naive duplex", ours <= 1.3 * naive),
        moonshot=harness.bar("<= 1.05x", ours <= 1.05 * naive),
        interpreter_ms=nothing * 1e3,
    )
    backend = "import anyio, anyio._backends._asyncio"
    standard = "import sqlite3, dataclasses, json, hashlib"
    for what, code, floor_code, must, moonshot in (
        ("import agentloop", "import agentloop", backend, 1.3, 1.1),
        ("import graphstate", "import graphstate", standard, 2.0, 1.2),
        ("import graphstate's facade", "from graphstate import Adaptogen", standard, 2.0, 1.2),
    ):
        value, floor = _cpu_of(code), _cpu_of(floor_code)
        harness.report(
            "I1",
            what,
            value * 1e3,
            "ms",
            floor=floor * 1e3,
            must=harness.bar(f"<= {must}x '{floor_code}'", value <= must * floor),
            moonshot=harness.bar(f"<= {moonshot}x", value <= moonshot * floor),
            interpreter_ms=nothing * 1e3,
        )
    command_line()


def command_line() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = f"{name}/graph.db"
        Adaptogen.open(path).close()
        code = f"from graphstate.cli import main; main(['status', '--db', {path!r}])"
        value, facade = _cpu_of(code), _cpu_of("from graphstate import Adaptogen")
    what = "`adaptogen status` on a small file, the whole command"
    harness.report("I1", what, value * 1e3, "ms", floor=facade * 1e3)


def durable() -> None:
    with tempfile.TemporaryDirectory() as name:
        on_disk(Path(name))
        disk_size(Path(name))


# ---------------------------------------------------------------------------------- resuming


def _reopened_by_hand(path: Path) -> int:
    """The floor: every row read by the standard library, its hash followed, its body decoded and folded."""
    head, folded = bytes(32), 0
    with closing(sqlite3.connect(path)) as connection:
        for body, digest in connection.execute("SELECT body, hash FROM log ORDER BY seq"):
            head = hashlib.sha256(head + body).digest()
            if head != digest:
                raise ValueError("the chain is broken")
            folded += json.loads(body)["cycle"]
    return folded


def resuming() -> None:
    n = 100 if harness.quick() else 1_000
    with tempfile.TemporaryDirectory() as name:
        path, by_hand = Path(name) / "ours.db", Path(name) / "raw.db"
        with closing(Store.open(path)) as store:
            ledger = GraphLedgerStore(store)
            anyio.run(work.in_line(n, ledger=ledger, commit="cycle", durability="process"))
            run = next(ledger.runs()).run
            entries = ledger.store.head(f"run:{run}").seq
        with closing(_Raw(by_hand, full=False)) as raw:
            anyio.run(work.plain_recorded(n, raw.commit))

        def ours() -> float:
            began = time.process_time()
            with closing(Store.open(path)) as store:
                resume(
                    GraphLedgerStore(store), run, agent_adapter=work.agent_turn, evaluator_adapter=work.evaluator_turn,
                    build_agent_prompt=str, build_evaluator_prompt=str,
                    parse_evaluator_output=create_default_evaluator_parser(),
                    deterministic_checks=work.failing_check, checks_list=["exit_code:0"],
                )  # fmt: skip
            return time.process_time() - began

        def floor() -> float:
            began = time.process_time()
            _reopened_by_hand(by_hand)
            return time.process_time() - began

        us = harness.measure({"ours": ours, "floor": floor}, n=1)
    ms = us["ours"] / 1e3
    harness.report(
        "L8",
        f"open a run of {n} cycles, verify it and stand where it ended, CPU",
        ms,
        "ms",
        floor=us["floor"] / 1e3,
        must=harness.bar("<= 10 ms", ms <= 10),
        moonshot=harness.bar("<= 3 ms", ms <= 3),
        n=n,
        entries_a_second=entries / (us["ours"] / 1e6),
    )


PARTS = {
    "memory": (in_memory, report_counts, growth, memory),
    "disk": (durable,),
    "resume": (resuming,),
    "start": (start,),
}


def main() -> None:
    named = [word for word in sys.argv[1:] if not word.startswith("-")] or list(PARTS)
    for name in named:
        for part in PARTS[name]:
            part()


if __name__ == "__main__":
    main()
