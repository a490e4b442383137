"""The hash-chained log: durable appends (C1, C2, C3), verification (C4), recovery (C5), opening.

    python benchmarks/bench_log.py [--quick]

The floor is what one would write by hand with the standard library alone: `json.dumps`, a
SHA-256 chain, one INSERT, one transaction. `bare_us` is the same without JSON and hash. Both
sides write the same values; both are the same file system and the same process. The floor of a
verification reads the rows and does nothing with them; that of a replay decodes their bodies
into structs and folds those into dictionaries, without a chain and without tables.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from graphstate import Adaptogen
from graphstate._canonical import encode
from graphstate.events import GRAPH, Draft, Row, row_hash
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
    before: int = 0,
) -> None:
    synchronous = "FULL" if durability == "power" else "NORMAL"
    with folder() as place:
        ours = Ours(place / "ours.db", durability)
        floor, bare = (
            Raw(place / f"{name}.db", synchronous, bare=name == "bare") for name in ("floor", "bare")
        )
        for log in (ours, floor, bare):
            repeat(log.append, before, batch)()
        us = harness.measure(
            {
                "ours": repeat(ours.append, n, batch),
                "floor": repeat(floor.append, n, batch),
                "bare": repeat(bare.append, n, batch),
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


def scanned(path: Path) -> int:
    """Read every row of the log by hand and return how many there are."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    count = sum(1 for _ in db.execute("SELECT * FROM event"))
    db.close()
    return count


def verification(events: int) -> None:
    """Verify a file from its first event on; the floor reads the same rows."""
    with folder() as place:
        path = place / "long.db"
        ours = Ours(path, "process")
        for _ in range(events // 1_000):
            ours.append(1_000)

        def verify() -> None:
            report = ours.store.verify(deep=True)
            assert (report.ok, report.checked_events) == (True, events)

        def scan() -> None:
            assert scanned(path) == events

        ms = harness.measure({"ours": verify, "floor": scan}, n=1, rounds=3, scale=1e3)
        tracemalloc.start()
        verify()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        ours.store.close()
    ratio = ms["ours"] / ms["floor"]
    harness.report(
        "C4",
        f"verify {events:,} events, deep",
        ms["ours"],
        "ms",
        floor=ms["floor"],
        n=events,
        must=harness.bar("<= 3x a read-only scan, constant memory", ratio <= 3 and peak < 4_000_000),
        moonshot=harness.bar("<= 0.15x a read-only scan", ratio <= 0.15),
        peak_kilobytes=peak / 1e3,
    )


class Moved(msgspec.Struct, rename={"from_": "from", "edge": "edgeId"}):
    """What a fold by hand reads of a move."""

    edge: str
    to: str
    from_: str | None = None


class Credited(msgspec.Struct):
    """What a fold by hand reads of a reward."""

    scopes: list[dict[str, Any]]
    value: float
    alpha: float


def folded_by_hand(path: Path) -> int:
    """Fold moves and rewards into dictionaries and return how many events there were."""
    moved, credited = msgspec.json.Decoder(Moved), msgspec.json.Decoder(Credited)
    visits: dict[str, int] = {}
    means: dict[str, float] = {}
    count = 0
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    sql = "SELECT t.text, e.body FROM event e JOIN term t ON t.no = e.type ORDER BY e.no"
    for kind, body in db.execute(sql):
        count += 1
        if kind == "TransitionTaken":
            move = moved.decode(body)
            for name in (move.edge, move.to):
                visits[name] = visits.get(name, 0) + 1
        elif kind == "RewardApplied":
            reward = credited.decode(body)
            for scope in reward.scopes:
                mean = means.get(scope["id"], 0.0)
                means[scope["id"]] = mean + reward.alpha * scope["weight"] * (reward.value - mean)
    db.close()
    return count


def lived(path: Path, nodes: int, steps: int, interval: int) -> Adaptogen:
    """A graph with four edges out of each node that has taken so many steps."""
    graph = Adaptogen.open(path, seed=False)
    with graph.unit():
        graph.set_tunable("snapshotInterval", interval).unwrap()
        for i in range(nodes):
            graph.remember(f"n{i}", payload={"i": i}).unwrap()
        for i in range(nodes):
            for jump in range(1, 5):
                graph.link(f"n{i}", f"n{(i + jump) % nodes}", id=f"e{i}-{jump}").unwrap()
        graph.set_cursor(["n0"]).unwrap()
    for start in range(0, steps, 1_000):
        with graph.unit():
            for i in range(start, min(start + 1_000, steps)):
                graph.step(f"n{(i + 1) % nodes}", reward=1).unwrap()
    return graph


def replay(steps: int) -> None:
    """Verify the chain and make the graph again from the first event on; the floor only folds."""
    with folder() as place:
        path = place / "lived.db"
        graph = lived(path, 100, steps, 0)
        events = graph.store.head().seq

        def fold() -> None:
            assert graph.rebuild().unwrap().replayed == events

        def floor() -> None:
            assert folded_by_hand(path) == events

        def verify() -> None:
            assert graph.store.log.walk(GRAPH, graph.store.log.start(GRAPH)).rows == events

        def ours() -> None:
            verify()
            fold()

        subjects = {"ours": ours, "fold": fold, "floor": floor, "verify": verify}
        us = harness.measure(subjects, n=events, rounds=3)
        graph.close()
    allowed = 1.5 * us["floor"] + us["verify"]
    harness.report(
        "C5 replay",
        f"verify and make a graph again from all its {events:,} events",
        us["ours"],
        "us",
        floor=us["floor"],
        n=events,
        must=harness.bar("<= 1.5x a typed fold by hand, and a verification", us["ours"] <= allowed),
        fold_us=us["fold"],
        verify_us=us["verify"],
    )


def recovery(nodes: int, short: int, long: int, limit_ms: float) -> None:
    """Make a graph again from its newest snapshot; what is compared is a log several times as long."""
    times: dict[str, float] = {}
    for name, steps in (("short", short), ("long", long)):
        with folder() as place:
            graph = lived(place / "lived.db", nodes, steps, 0)
            graph.snapshot().unwrap()
            for i in range(100):
                graph.step(f"n{(steps + i + 1) % nodes}", reward=1).unwrap()

            def ours(graph: Adaptogen = graph) -> None:
                assert graph.rebuild().unwrap().snapshot_id is not None

            times[name] = harness.measure({"ours": ours}, n=1, rounds=5, scale=1e3)["ours"]
            events = graph.store.head(GRAPH).seq
            graph.close()
    harness.report(
        "C5",
        f"make a graph of {nodes:,} nodes and {4 * nodes:,} edges again from snapshot and tail",
        times["long"],
        "ms",
        n=events,
        must=harness.bar("independent of the log's length", times["long"] <= 1.5 * times["short"]),
        moonshot=harness.bar(f"<= {limit_ms} ms", times["long"] <= limit_ms),
        short_log_ms=times["short"],
    )


def main() -> None:
    quick = harness.quick()
    # Until a write-ahead log has its full size, each commit also waits for the file to grow; ours
    # is let grow to 4,000 pages, SQLite's own default is 1,000.
    appends(
        "C1",
        "durable append, FULL, one event",
        "power",
        n=40 if quick else 300,
        batch=1,
        moonshot=0.95,
        before=0 if quick else 4_200,
    )
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
    verification(10_000 if quick else 1_000_000)
    replay(2_000 if quick else 100_000)
    recovery(200 if quick else 4_000, 200 if quick else 2_000, 1_000 if quick else 40_000, 60)


if __name__ == "__main__":
    main()
