"""The graph's hot paths: one suggest and transition (C6), one remember (C7), flat in the size.

    python benchmarks/bench_graph.py [--quick]

A ring of N nodes with four transition edges each, as in the published benchmark. The floor is a
projection in dictionaries that does the same arithmetic and writes the same event (JSON,
SHA-256, one INSERT in its own transaction) into SQLite in memory, by hand.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from graphstate.adaptogen import Adaptogen

SIZES = (1_000, 4_000, 16_000, 100_000)
EDGES_EACH = 4
REWARD_EVERY = 50


class Floor:
    """The least that keeps a ring, its statistics and its log."""

    def __init__(self, size: int) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.execute(
            "CREATE TABLE event (seq INTEGER PRIMARY KEY, at INTEGER, type TEXT, body TEXT, hash BLOB)"
        )
        self._seq, self._hash = 0, bytes(32)
        self.status = {f"n{i}": "active" for i in range(size)}
        self.payload: dict[str, object] = {f"n{i}": {"i": i} for i in range(size)}
        self.out = {
            f"n{i}": [(f"e{i}-{k}", f"n{(i + k) % size}", 1.0) for k in range(1, EDGES_EACH + 1)]
            for i in range(size)
        }
        self.visits: dict[str, int] = {}
        self.ema: dict[str, tuple[float, int]] = {}
        self.cursor, self.moves = "n0", 0

    def record(self, type: str, body: dict[str, object]) -> None:
        self._seq += 1
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        at = time.time_ns() // 1_000_000
        self._hash = hashlib.sha256(
            self._hash + f"{self._seq} {type} {at} ".encode() + text.encode()
        ).digest()
        self._write((self._seq, at, type, text, self._hash))

    def _write(self, values: tuple[object, ...]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", values)
        self._db.execute("COMMIT")

    def suggest(self) -> list[tuple[float, str, str]]:
        moves = [(edge, to, w) for edge, to, w in self.out[self.cursor] if self.status[to] == "active"]
        total = sum(self.visits.get(edge, 0) for edge, _, _ in moves)
        ranked = []
        for edge, to, weight in moves:
            visits = self.visits.get(edge, 0)
            ema, age = self.ema.get(edge, (0.0, 0))
            faded = ema * 0.5 ** ((self.moves - age) / 200)
            explore = 1.4 * math.sqrt(math.log(total + 1) / (visits + 1))
            ranked.append((faded + math.log(max(1e-9, weight)) + explore, edge, to))
        ranked.sort(key=lambda move: (-move[0], move[1]))
        return ranked

    def transition(self, edge: str, to: str) -> None:
        self.record("TransitionTaken", {"edgeId": edge, "from": self.cursor, "to": to, "clean": True})
        self.visits[edge] = self.visits.get(edge, 0) + 1
        self.visits[to] = self.visits.get(to, 0) + 1
        self.cursor, self.moves = to, self.moves + 1

    def reward(self, value: float, edge: str) -> None:
        self.record("RewardApplied", {"value": value, "alpha": 0.3, "scopes": [{"kind": "edge", "id": edge}]})
        ema = self.ema.get(edge, (0.0, 0))[0]
        self.ema[edge] = (ema + 0.3 * (value - ema), self.moves)

    def remember(self, id: str, payload: dict[str, object]) -> None:
        body = {"id": id, "kind": "state", "label": id, "payload": payload, "tags": [], "status": "active"}
        self.record("NodeUpserted", body | {"embedding": None})
        self.status[id] = "active"
        self.payload[id] = payload


def ring(size: int, path: str = ":memory:") -> Adaptogen:
    graph = Adaptogen.open(path, seed=False)
    graph.set_tunable("snapshotInterval", 0).unwrap()
    with graph.unit():
        for i in range(size):
            graph.remember(f"n{i}", payload={"i": i})
        for i in range(size):
            for k in range(1, EDGES_EACH + 1):
                graph.link(f"n{i}", f"n{(i + k) % size}", id=f"e{i}-{k}").unwrap()
        graph.set_cursor(["n0"]).unwrap()
    return graph


def walk(graph: Adaptogen, n: int) -> Callable[[], None]:
    def work() -> None:
        for i in range(n):
            best = graph.suggest()[0]
            assert graph.transition(best.to, edge_id=best.edge_id).unwrap().applied
            if i % REWARD_EVERY == 0:
                graph.reward(1, edge_id=best.edge_id).unwrap()

    return work


def walk_floor(graph: Floor, n: int) -> Callable[[], None]:
    def work() -> None:
        for i in range(n):
            _, edge, to = graph.suggest()[0]
            graph.transition(edge, to)
            if i % REWARD_EVERY == 0:
                graph.reward(1, edge)

    return work


def fresh(remember: Callable[..., object], n: int) -> Callable[[], None]:
    count = iter(range(10**9))

    def work() -> None:
        for _ in range(n):
            i = next(count)
            remember(f"m{i}", payload={"i": i})

    return work


def main() -> None:
    quick = harness.quick()
    n = 300 if quick else 2_000
    graphs = {size: ring(size) for size in (SIZES[:2] if quick else SIZES)}
    floors = {size: Floor(size) for size in graphs}
    works: dict[str, Callable[[], object]] = {}
    for size in graphs:
        works[f"step {size}"] = walk(graphs[size], n)
        works[f"step floor {size}"] = walk_floor(floors[size], n)
    us = harness.measure(works, n=n)
    flat = us[f"step {max(graphs)}"] / us[f"step {min(graphs)}"]
    for size in graphs:
        ours, floor = us[f"step {size}"], us[f"step floor {size}"]
        harness.report(
            "C6",
            f"suggest and transition, in memory, {size:,} nodes / {size * EDGES_EACH:,} edges",
            ours,
            "us",
            floor=floor,
            n=n,
            must=harness.bar("<= 3x the floor", ours <= 3 * floor),
            moonshot=harness.bar("<= 1.5x the floor, flat in the size", ours <= 1.5 * floor and flat <= 1.3),
            largest_over_smallest=flat,
        )
    works = {}
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
        for size in graphs:
            works[f"node {size}"] = fresh(graphs[size].remember, n)
            works[f"node floor {size}"] = fresh(floors[size].remember, n)
        on_disk = ring(min(graphs), os.path.join(place, "graph.db"))
        works["durable"] = fresh(on_disk.remember, n)
        us = harness.measure(works, n=n)
        on_disk.close()
    flat = us[f"node {max(graphs)}"] / us[f"node {min(graphs)}"]
    for size in graphs:
        ours = us[f"node {size}"]
        harness.report(
            "C7",
            f"remember one node, in memory, {size:,} nodes before",
            ours,
            "us",
            floor=us[f"node floor {size}"],
            n=n,
            must=harness.bar("<= 200 us, flat in the size", ours <= 200 and flat <= 1.3),
            moonshot=harness.bar("<= 60 us on disk", us["durable"] <= 60),
            largest_over_smallest=flat,
            on_disk_us=us["durable"],
        )
    for graph in graphs.values():
        graph.close()


if __name__ == "__main__":
    main()
