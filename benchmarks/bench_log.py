"""The hash-chained log: durable appends (C1, C2, C3), and opening a long file.

    python benchmarks/bench_log.py [--quick]

The floor is what one would write by hand with the standard library alone: `json.dumps`, a
SHA-256 chain, one INSERT, one transaction. `bare_us` is the same without JSON and hash. Both
sides write the same values; both are the same file system and the same process.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from graphstate._canonical import encode
from graphstate.events import Draft, Row, row_hash
from graphstate.store import Store

BODY = {
    "turn": 3,
    "role": "agent",
    "finish_reason": "stop",
    "usage": {"input_tokens": 1204, "output_tokens": 310},
    "text": "the second test fails because the order of the items is not kept",
}


class Raw:
    """A log by hand on the standard library's SQLite."""

    def __init__(self, path: Path, synchronous: str, *, bare: bool = False) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.execute(
            "CREATE TABLE event (seq INTEGER PRIMARY KEY, at INTEGER, id TEXT, type TEXT, actor TEXT,"
            " trust TEXT, cause TEXT, body TEXT, hash BLOB)"
        )
        self._seq, self._hash, self._bare = 0, bytes(32), bare
        self._text = json.dumps(BODY, sort_keys=True, separators=(",", ":"))

    def _row(self) -> tuple[object, ...]:
        self._seq += 1
        at, text = time.time_ns() // 1_000_000, self._text
        if not self._bare:
            text = json.dumps(BODY | {"n": self._seq}, sort_keys=True, separators=(",", ":"))
            header = json.dumps(["run:a", self._seq, at, None, "fact.turn_ended", None, None, None])
            self._hash = hashlib.sha256(self._hash + header.encode() + text.encode()).digest()
        return self._seq, at, None, "fact.turn_ended", None, None, None, text, self._hash

    def append(self, batch: int) -> None:
        rows = [self._row() for _ in range(batch)]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")


class Ours:
    """The store's stream of a run, as the ledger writes it."""

    def __init__(self, path: Path, durability: Literal["process", "power"]) -> None:
        self.store = Store.open(path, durability=durability)
        assert self.store.durability == durability
        self._seq, self._hash = 0, bytes(32)

    def append(self, batch: int) -> None:
        rows = []
        for _ in range(batch):
            self._seq += 1
            head = (self._seq, time.time_ns() // 1_000_000, None, "fact.turn_ended", None, None, None)
            body = encode(BODY | {"n": self._seq})
            self._hash = row_hash(self._hash, "run:a", *head, body)
            rows.append(Row(*head, body, self._hash))
        self.store.append("run:a", rows, expected=self._seq - batch)


def repeat(append: Callable[[int], None], n: int, batch: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(n // batch):
            append(batch)

    return work


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on the disk of the working directory: a memory disk would flush nothing."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        yield Path(name)


def appends(
    figure: str,
    what: str,
    durability: Literal["process", "power"],
    *,
    n: int,
    batch: int,
    moonshot: float,
) -> None:
    synchronous = "FULL" if durability == "power" else "NORMAL"
    with folder() as place:
        ours = Ours(place / "ours.db", durability)
        us = harness.measure(
            {
                "ours": repeat(ours.append, n, batch),
                "floor": repeat(Raw(place / "floor.db", synchronous).append, n, batch),
                "bare": repeat(Raw(place / "bare.db", synchronous, bare=True).append, n, batch),
            },
            n=n,
            clock="wall",
            pick="median",
            rounds=9,
        )
        report = ours.store.verify(deep=True)
        ours.store.close()
    assert report.ok, report.detail
    rate = us["floor"] / us["ours"]
    harness.report(
        figure,
        what,
        us["ours"],
        "us",
        floor=us["floor"],
        n=n,
        must=harness.bar(">= 0.85x the raw rate", rate >= 0.85),
        moonshot=harness.bar(f">= {moonshot}x the raw rate", rate >= moonshot),
        rate_ratio=rate,
        bare_us=us["bare"],
        per_second=1e6 / us["ours"],
    )


def opening(events: int) -> None:
    """Open a long file whose projection is current; the floor opens it raw and reads its head."""
    with folder() as place:
        path = place / "long.db"
        store = Store.open(path)
        for start in range(0, events, 1_000):
            with store.unit():
                for i in range(start, min(start + 1_000, events)):
                    body: dict[str, Any] = {
                        "id": f"n{i % 1_000}", "kind": "fact", "label": f"n{i % 1_000}", "payload": {"i": i},
                        "tags": [], "status": "active", "embedding": None,
                    }  # fmt: skip
                    store.record([Draft("NodeUpserted", body)], actor="bench", trust="developer")
        head = store.head()
        store.close()

        def ours() -> None:
            again = Store.open(path)
            assert again.head() == head
            again.close()

        def floor() -> None:
            db = sqlite3.connect(path)
            db.execute("PRAGMA journal_mode=WAL")
            assert db.execute("SELECT max(no) & 0xFFFFFFFFFF FROM event").fetchone() == (head.seq,)
            db.close()

        ms = harness.measure(
            {"ours": ours, "floor": floor}, n=1, clock="wall", pick="median", rounds=15, scale=1e3
        )
    harness.report(
        "open",
        f"open a file of {events:,} events whose projection is current",
        ms["ours"],
        "ms",
        floor=ms["floor"],
        n=events,
        must=harness.bar("< 50 ms", ms["ours"] < 50),
        moonshot=harness.bar("<= 10 ms", ms["ours"] <= 10),
    )


def main() -> None:
    quick = harness.quick()
    appends("C1", "durable append, FULL, one event", "power", n=40 if quick else 300, batch=1, moonshot=0.95)
    appends("C2", "append, NORMAL, one event", "process", n=200 if quick else 2_000, batch=1, moonshot=1.05)
    appends(
        "C3",
        "append, batches of 1000, FULL",
        "power",
        n=2_000 if quick else 20_000,
        batch=1_000,
        moonshot=1.5,
    )
    opening(5_000 if quick else 100_000)


if __name__ == "__main__":
    main()
