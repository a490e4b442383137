"""A writer is killed at random moments; what it acknowledged is there afterwards.

200 kills, 1,000 with `RELIABILITY=full`, at both levels of durability, with and without an
exclusive lock, several in a row on one file, some while it opens and recovers. `KILL_SEED`
repeats a failing run.
"""

from __future__ import annotations

import os
import random
import selectors
import sqlite3
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from graphstate import GRAPH, Adaptogen
from tests.integration.graph_writer import RUN, UNIT_NODES
from tests.tally import tally

ROOT = Path(__file__).parents[2]
KILLS = 1_000 if os.environ.get("RELIABILITY") == "full" else 200
KILLS_A_FILE = 5
#: Seconds that a writer has after its first acknowledgement, and at most before it.
LONGEST_LIFE, LONGEST_BIRTH = 0.05, 0.01

Lock = Literal["shared", "exclusive"]


class Nursery:
    """The process that forks writers, and the lines they say."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.graph_writer"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._out = self._process.stdin, self._process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._rest, self._said = b"", deque[str]()

    def order(self, *words: object) -> None:
        self._stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._stdin.flush()

    def lines(self, *, seconds: float) -> Iterator[str]:
        """Yield what is said within a time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._said:
                yield self._said.popleft()
            elif self._selector.select(left):
                data = os.read(self._out, 65_536)
                assert data, "the writers' parent ended"
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._said.extend(line.decode() for line in whole)

    def kill(self) -> list[str]:
        """Kill the writer and return what it had still said."""
        self.order("kill")
        said: list[str] = []
        for line in self.lines(seconds=30):
            if line == "dead":
                return said
            said.append(line)
        raise AssertionError("the writer did not die")

    def close(self) -> None:
        self._stdin.close()
        self._process.wait(timeout=30)
        self._selector.close()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


def abandoned(path: Path) -> set[bytes]:
    """Hashes of the events that rollbacks set aside."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return {digest for (digest,) in db.execute("SELECT hash FROM event_abandoned")}
    finally:
        db.close()


def check(path: Path, said: list[str], before: set[bytes]) -> set[bytes]:
    """Open the file after a kill, demand everything acknowledged, and return it."""
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.recovery.trimmed == 0
        report = graph.verify_integrity(deep=True)
        assert report.ok, report
        rows = list(graph.store.read(GRAPH))
        kept = {row.hash for row in rows}
        assert len(kept) == len(rows)
        aside = abandoned(path)
        acknowledged, last, run, rolling = set(before), b"", 0, False
        for line in said:
            word, *words = line.split()
            assert word in ("ack", "rolling"), line
            rolling = word == "rolling"
            if word == "ack":
                last = bytes.fromhex(words[0].partition(":")[2])
                acknowledged.add(last)
                run = int(words[1])
        assert acknowledged <= kept | aside
        assert rolling or not last or last in kept
        assert graph.store.head(RUN).seq >= run
        assert len({str(node and node.payload) for node in map(graph.get_node, UNIT_NODES)}) == 1
        assert graph.remember("afterwards", payload={"acknowledged": len(acknowledged)}).ok
        assert graph.step().ok or graph.set_cursor(["afterwards"]).ok
    return acknowledged


@pytest.mark.timeout(1_200 if KILLS > 200 else 240)
def test_a_killed_writer_loses_nothing_that_was_acknowledged(nursery: Nursery, tmp_path: Path) -> None:
    seed = int(os.environ.get("KILL_SEED", time.time_ns() % 1_000_000_000))
    sys.stdout.write(f"KILL_SEED={seed}\n")
    rng = random.Random(seed)
    acknowledged: set[bytes] = set()
    total = early = 0
    for number in range(KILLS):
        path = tmp_path / f"graph-{number // KILLS_A_FILE}.db"
        if number % KILLS_A_FILE == 0:
            acknowledged = set()
        durability = "power" if number % 2 else "process"
        lock: Lock = "exclusive" if rng.random() < 0.25 else "shared"
        nursery.order("start", path, rng.random(), durability, lock)
        # One kill in five comes while the file is being made, opened or recovered.
        said = [] if rng.random() < 0.2 else [next(nursery.lines(seconds=30))]
        said += nursery.lines(seconds=rng.random() * (LONGEST_LIFE if said else LONGEST_BIRTH))
        said += nursery.kill()
        early += not said
        total += sum(line.startswith("ack") for line in said)
        acknowledged = check(path, said, acknowledged)
    sys.stdout.write(f"{KILLS} kills, {early} before the first verb, {total} acknowledged, 0 lost\n")
    tally("writer kills", KILLS)
    assert early
    assert total > 10 * KILLS
