"""What the memory is measured against: floors by hand, the usual ways, and a published package."""

from __future__ import annotations

import hashlib
import heapq
import importlib
import json
import math
import os
import sqlite3
import time
from bisect import insort
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

__all__ = ("DAY", "KINDS", "TOP", "ByHand", "Indexed", "Ordered", "Peer", "now_ms")

TOP = 8
DAY = 86_400_000
KINDS = ("fact", "episode", "instruction", "entity", "state")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Ordered:
    """The least a ranking can take: a list that is kept in the order of log2(score) + anchor / half-life.

    And the usual ways, which fade every node: in Python, and in numpy.
    """

    def __init__(self, size: int) -> None:
        random, now = Random(1), now_ms()
        self.rows: list[tuple[float, str, float, int]] = []
        for number in range(size):
            score, at = random.random(), now - random.randrange(DAY)
            self.rows.append((-math.log2(score) - at / DAY, f"n{number}", score, at))
        self.rows.sort()
        self._scores = np.array([score for _, _, score, _ in self.rows])
        self._anchors = np.array([at for _, _, _, at in self.rows], np.float64)

    def top(self) -> list[tuple[str, float]]:
        now = now_ms()
        return [(node, score * 0.5 ** ((now - at) / DAY)) for _, node, score, at in self.rows[:TOP]]

    def faded(self) -> list[tuple[float, str]]:
        now = now_ms()
        return heapq.nlargest(
            TOP, ((score * 0.5 ** ((now - at) / DAY), node) for _, node, score, at in self.rows)
        )

    def faded_by_numpy(self) -> list[tuple[str, float]]:
        faded = self._scores * np.exp2((self._anchors - now_ms()) / DAY)
        best = np.argpartition(faded, -TOP)[-TOP:]
        return [(self.rows[place][1], float(faded[place])) for place in best[np.argsort(-faded[best])]]

    def touch(self, place: int) -> None:
        _, node, score, at = self.rows.pop(place)
        now = now_ms()
        value = score * 0.5 ** ((now - at) / DAY) + 0.1
        insort(self.rows, (-math.log2(value) - now / DAY, node, value, now))


class Indexed:
    """The floor of a ranking in a file: one table of narrow rows, and an index of the key."""

    def __init__(self, size: int, path: str = ":memory:") -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute(
            "CREATE TABLE activation (id TEXT PRIMARY KEY, rank_key REAL, score REAL, anchor INTEGER)"
        )
        self.db.execute("CREATE INDEX activation_rank ON activation (rank_key DESC)")
        random, now = Random(1), now_ms()
        self.db.execute("BEGIN")
        for number in range(size):
            score, at = random.random(), now - random.randrange(DAY)
            row = (f"n{number}", math.log2(score) + at / DAY, score, at)
            self.db.execute("INSERT INTO activation VALUES (?, ?, ?, ?)", row)
        self.db.execute("COMMIT")

    def top(self) -> list[tuple[str, float]]:
        now = now_ms()
        rows = self.db.execute(
            "SELECT id, score, anchor FROM activation ORDER BY rank_key DESC LIMIT ?", (TOP,)
        )
        return [(node, score * 0.5 ** ((now - at) / DAY)) for node, score, at in rows]

    def add(self, id: str, amount: float, at: int) -> None:
        score, anchor = self.db.execute("SELECT score, anchor FROM activation WHERE id = ?", (id,)).fetchone()
        value = score * 0.5 ** ((at - anchor) / DAY) + amount
        row = (math.log2(value) + at / DAY, value, at, id)
        self.db.execute("UPDATE activation SET rank_key = ?, score = ?, anchor = ? WHERE id = ?", row)

    def close(self) -> None:
        self.db.close()


class ByHand(Indexed):
    """The floor of a durable reinforcement: one event with its hash, one row, one transaction."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(size, path)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.execute("PRAGMA wal_autocheckpoint=4000")
        self.db.execute(
            "CREATE TABLE event (seq INTEGER PRIMARY KEY, at INTEGER, type TEXT, body TEXT, hash BLOB)"
        )
        self._seq, self._hash = 0, bytes(32)

    def reinforce(self, id: str, amount: float) -> None:
        at, self._seq = now_ms(), self._seq + 1
        body = json.dumps({"amount": amount, "at": at, "id": id}, separators=(",", ":"))
        head = f"{self._seq} memory.reinforced {at} "
        self._hash = hashlib.sha256(self._hash + head.encode() + body.encode()).digest()
        self.db.execute("BEGIN IMMEDIATE")
        values = (self._seq, at, "memory.reinforced", body, self._hash)
        self.db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", values)
        self.add(id, amount, at)
        self.db.execute("COMMIT")


class Peer:
    """polypack-db, which has the same notions and a compiled core; in the extra ``bench``.

    It keeps its graph in memory. With a folder, each reinforcement is written to its own log there.

    Raises:
        ImportError: It is not installed.
    """

    def __init__(
        self, size: int, folder: str | None = None, *, vectors: Sequence[Sequence[float]] | None = None
    ) -> None:
        package = importlib.import_module("polypack")
        random, at = Random(1), now_ms()
        self._graph: Any = package.PolyGraph()
        self._folder = folder
        if folder is not None:
            self._graph.open_store(folder)
        for number in range(size):
            node = {
                "id": f"n{number}",
                "type": KINDS[number % len(KINDS)],
                "data": {},
                "insertedAt": at,
                "updatedAt": at,
            }
            self._graph.add_node(node if vectors is None else node | {"vector": vectors[number]})
            self._graph.reinforce_node(f"n{number}", random.random())
        self.engine: Any = package.ActivationEngine(self._graph)
        self.save()

    def save(self) -> None:
        if self._folder is not None:
            self._graph.save()

    def top(self) -> object:
        return self._graph.top_activated(TOP)

    def reinforce(self, id: str, amount: float) -> None:
        self._graph.reinforce_node(id, amount)
        self.save()

    def bytes(self) -> int:
        """Return what its files take."""
        assert self._folder is not None
        return sum(entry.stat().st_size for entry in os.scandir(self._folder))

    def close(self) -> None:
        self.engine.dispose()
        if self._folder is not None:
            self._graph.close_store()
