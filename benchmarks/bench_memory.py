"""Memory: the most present of N (M1), one reinforcement, and what it leaves in the file.

    python benchmarks/bench_memory.py [--quick]

The floor of a ranking is a list that is kept in the order of a key which does not depend on the
time. The floor of a reinforcement is by hand in SQLite: one event with its hash, one narrow row,
one transaction. Beside them stand the usual way, which fades every node and sorts, and, if it is
installed, `polypack-db`, which has the same ideas and a compiled core.
"""

from __future__ import annotations

import hashlib
import heapq
import importlib
import json
import math
import os
import sqlite3
import sys
import tempfile
import time
from bisect import insort
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from graphstate.adaptogen import Adaptogen

SIZES = (1_000, 10_000, 100_000)
TOP = 8
DAY = 86_400_000
KINDS = ("fact", "episode", "instruction", "entity", "state")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Ordered:
    """The floor of a ranking: rows in the order of log2(score) + anchor / half-life."""

    def __init__(self, size: int) -> None:
        random, self.now = Random(1), now_ms()
        self.rows: list[tuple[float, str, float, int]] = []
        for number in range(size):
            self.reinforce(f"n{number}", random.random(), self.now - random.randrange(DAY))
        self.rows.sort()

    def reinforce(self, id: str, score: float, at: int) -> None:
        self.rows.append((-math.log2(score) - at / DAY, id, score, at))

    def top(self) -> list[tuple[str, float]]:
        now = now_ms()
        return [(node, score * 0.5 ** ((now - at) / DAY)) for _, node, score, at in self.rows[:TOP]]

    def usual(self) -> list[tuple[float, str]]:
        """Fade every node, and take the best."""
        now = now_ms()
        return heapq.nlargest(
            TOP, ((score * 0.5 ** ((now - at) / DAY), node) for _, node, score, at in self.rows)
        )

    def touch(self, place: int) -> None:
        _, node, score, at = self.rows.pop(place)
        now = now_ms()
        value = score * 0.5 ** ((now - at) / DAY) + 0.1
        insort(self.rows, (-math.log2(value) - now / DAY, node, value, now))


class ByHand:
    """The floor of a durable reinforcement."""

    def __init__(self, path: str, size: int) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA wal_autocheckpoint=4000")
        self._db.execute(
            "CREATE TABLE event (seq INTEGER PRIMARY KEY, at INTEGER, type TEXT, body TEXT, hash BLOB)"
        )
        self._db.execute(
            "CREATE TABLE activation (id TEXT PRIMARY KEY, rank_key REAL, score REAL, anchor INTEGER)"
        )
        self._db.execute("CREATE INDEX activation_rank ON activation (rank_key DESC)")
        self._seq, self._hash = 0, bytes(32)
        self._db.execute("BEGIN")
        rows = ((f"n{number}", 0.5, 0.5, 0) for number in range(size))
        self._db.executemany("INSERT INTO activation VALUES (?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def reinforce(self, id: str, amount: float) -> None:
        at, self._seq = now_ms(), self._seq + 1
        body = json.dumps({"amount": amount, "at": at, "id": id}, separators=(",", ":"))
        head = f"{self._seq} memory.reinforced {at} "
        self._hash = hashlib.sha256(self._hash + head.encode() + body.encode()).digest()
        self._db.execute("BEGIN IMMEDIATE")
        score, anchor = self._db.execute(
            "SELECT score, anchor FROM activation WHERE id = ?", (id,)
        ).fetchone()
        value = score * 0.5 ** ((at - anchor) / DAY) + amount
        values = (self._seq, at, "memory.reinforced", body, self._hash)
        self._db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", values)
        row = (math.log2(value) + at / DAY, value, at, id)
        self._db.execute("UPDATE activation SET rank_key = ?, score = ?, anchor = ? WHERE id = ?", row)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


def memories(size: int, path: str = ":memory:") -> Adaptogen:
    """A graph of nodes of every memory class, each reinforced once."""
    random, graph = Random(1), Adaptogen.open(path, seed=False)
    graph.set_tunable("snapshotInterval", 0).unwrap()
    with graph.unit():
        for number in range(size):
            graph.remember(f"n{number}", kind=KINDS[number % len(KINDS)]).unwrap()
            graph.reinforce(f"n{number}", random.random()).unwrap()
    return graph


def peer(size: int) -> Any:
    """The same in polypack-db, None if it is not installed."""
    try:
        package = importlib.import_module("polypack")
    except ImportError:
        return None
    random, graph, at = Random(1), package.PolyGraph(), now_ms()
    for number in range(size):
        node = {
            "id": f"n{number}",
            "type": KINDS[number % len(KINDS)],
            "data": {},
            "insertedAt": at,
            "updatedAt": at,
        }
        graph.add_node(node)
        graph.reinforce_node(f"n{number}", random.random())
    return graph


def times(n: int, call: Callable[[int], object]) -> Callable[[], None]:
    """A work that makes n calls, each with a number that no call before had."""
    count = iter(range(10**9))

    def work() -> None:
        for _ in range(n):
            call(next(count))

    return work


def ranking(quick: bool) -> None:
    n = 200 if quick else 2_000
    sizes = SIZES[:2] if quick else SIZES
    graphs, floors = {size: memories(size) for size in sizes}, {size: Ordered(size) for size in sizes}
    works: dict[str, Callable[[], object]] = {}
    slow: dict[str, Callable[[], object]] = {}
    few = min(n, 8)
    others = {size: found for size in sizes[:2] if (found := peer(size)) is not None}
    for size in sizes:
        works[f"{size}"] = times(n, asking(graphs[size]))
        works[f"floor {size}"] = times(n, asking_floor(floors[size]))
        works[f"changed {size}"] = times(n // 4, changing(graphs[size], size))
        works[f"changed floor {size}"] = times(n // 4, changing_floor(floors[size]))
        slow[f"{size}"] = times(few, fading(floors[size]))
        if size in others:
            slow[f"peer {size}"] = times(few, asking_peer(others[size]))
    us, slow_us = harness.measure(works, n=n), harness.measure(slow, n=few, rounds=3)
    flat = us[f"{max(sizes)}"] / us[f"{min(sizes)}"]
    for size in sizes:
        ours = us[f"{size}"]
        peers = {"fade every node": slow_us[f"{size}"]}
        if size in others:
            peers["polypack-db"] = slow_us[f"peer {size}"]
        harness.report(
            "M1", f"the {TOP} most present of {size:,}", ours, "us", floor=us[f"floor {size}"], n=n,
            must=harness.bar("<= 5 ms", ours <= 5_000),
            moonshot=harness.bar("<= 50 us at any size", ours <= 50 and flat <= 1.3),
            largest_over_smallest=flat, peers_us=peers,
            after_a_reinforcement_us=us[f"changed {size}"] * 4, the_same_floor_us=us[f"changed floor {size}"] * 4,
        )  # fmt: skip
    for graph in graphs.values():
        graph.close()


def asking(graph: Adaptogen) -> Callable[[int], object]:
    return lambda _: graph.top_activated(limit=TOP)


def asking_floor(floor: Ordered) -> Callable[[int], object]:
    return lambda _: floor.top()


def asking_peer(other: Any) -> Callable[[int], object]:
    return lambda _: other.top_activated(TOP)


def fading(floor: Ordered) -> Callable[[int], object]:
    return lambda _: floor.usual()


def changing(graph: Adaptogen, size: int) -> Callable[[int], object]:
    """A reinforcement, and the ranking that follows it."""

    def work(number: int) -> None:
        graph.reinforce(f"n{number % size}", 0.1)
        graph.top_activated(limit=TOP)

    return work


def changing_floor(floor: Ordered) -> Callable[[int], object]:
    def work(number: int) -> None:
        floor.touch(number % len(floor.rows))
        floor.top()

    return work


def reinforcing(quick: bool, place: str) -> None:
    n, size = (300, 1_000) if quick else (2_000, 10_000)
    graph, floor = (
        memories(size, os.path.join(place, "graph.db")),
        ByHand(os.path.join(place, "floor.db"), size),
    )
    works: dict[str, Callable[[], object]] = {
        "ours": times(n, lambda i: graph.reinforce(f"n{i * 7 % size}", 0.1)),
        "floor": times(n, lambda i: floor.reinforce(f"n{i * 7 % size}", 0.1)),
        "context": times(n, lambda i: graph.reinforce(f"n{i * 7 % size}", 0.1, context="here")),
        "suppress": times(n, lambda i: graph.suppress(f"n{i * 7 % size}", 0.1)),
    }
    us = harness.measure(works, n=n, clock="wall", pick="median")
    cpu = harness.measure({name: works[name] for name in ("ours", "floor")}, n=n)
    harness.report(
        "M1", f"one reinforcement, durable at NORMAL, {size:,} memories", us["ours"], "us", floor=us["floor"], n=n,
        must=harness.bar("<= 200 us", us["ours"] <= 200), moonshot=harness.bar("<= 2x the floor", us["ours"] <= 2 * us["floor"]),
        in_a_context_us=us["context"], suppress_us=us["suppress"], cpu_us=cpu["ours"], floor_cpu_us=cpu["floor"],
    )  # fmt: skip
    graph.close()
    floor.close()


def appended(quick: bool, place: str) -> None:
    n, path = 2_000 if quick else 20_000, os.path.join(place, "bytes.db")
    graph = memories(1_000, path)
    graph.close()
    before = os.path.getsize(path)
    graph = Adaptogen.open(path, seed=False)
    with graph.unit():
        for i in range(n):
            graph.reinforce(f"n{i % 1_000}", 0.1).unwrap()
    bodies = sum(len(row.body) for row in graph.store.read("graph", after=graph.store.head().seq - n)) / n
    graph.close()
    grown = (os.path.getsize(path) - before) / n
    harness.report(
        "M1", "what one reinforcement adds to the file", grown, "bytes", floor=bodies + 32, n=n,
        must=harness.bar("<= 300 bytes", grown <= 300), moonshot=harness.bar("<= 150 bytes", grown <= 150),
        body_bytes=bodies,
    )  # fmt: skip


def main() -> None:
    quick = harness.quick()
    ranking(quick)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
        reinforcing(quick, place)
        appended(quick, place)


if __name__ == "__main__":
    main()
