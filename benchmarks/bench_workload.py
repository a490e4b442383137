"""A graph's whole life at four sizes, and reads after a thousand and after a million events.

    python benchmarks/bench_workload.py [--quick] [sizes|events|units]

The life is a published one: N nodes with four transition edges each to the next four modulo N,
5,000 times suggest and transition with a reward every 50th time, one snapshot, one recovery.
The build is in units of 4,000 verbs; automatic snapshots stay on. Building is linear if a node or an edge costs the same at every size,
a step is flat if it does. The floor of building is `bench_graph.Floor` in one transaction, that of
a step is its step.

The second part folds the same live graph from few events and from many, and reads it. The third
writes the same nodes alone and in units, one commit each.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from benchmarks.bench_graph import EDGES_EACH, Floor, walk, walk_floor
from graphstate.adaptogen import Adaptogen
from graphstate.cli.commands import _status
from graphstate.events import GRAPH, Draft
from graphstate.store.db import Durability
from graphstate.store.snapshot import state_bytes

SIZES = (500, 4_000, 16_000, 64_000)
STEPS = 5_000

#: Verbs in one transaction of the build.
TOGETHER = 4_000


class Life(NamedTuple):
    """What one life cost: CPU, and wall time where a disk is waited for."""

    build_us: float
    step_us: float
    step_wall_us: float
    snapshot_ms: float
    recover_ms: float
    #: of the newest snapshot, of the live state as plain JSON, and of all snapshots that are left
    snapshot_bytes: int
    live_bytes: int
    left_bytes: int
    file_bytes: int


class Clock:
    """CPU and wall seconds since it was made."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    @property
    def cpu(self) -> float:
        return time.process_time() - self._cpu

    @property
    def wall(self) -> float:
        return time.perf_counter() - self._wall


def build(graph: Adaptogen, size: int) -> None:
    for first in range(0, size, TOGETHER):
        with graph.unit():
            for i in range(first, min(size, first + TOGETHER)):
                graph.remember(f"n{i}", payload={"i": i}).unwrap()
    for first in range(0, size, TOGETHER // EDGES_EACH):
        with graph.unit():
            for i in range(first, min(size, first + TOGETHER // EDGES_EACH)):
                for k in range(1, EDGES_EACH + 1):
                    graph.link(f"n{i}", f"n{(i + k) % size}", id=f"e{i}-{k}").unwrap()
    graph.set_cursor(["n0"]).unwrap()


def recover(graph: Adaptogen) -> None:
    """Follow the whole chain, then make the projection again from the newest snapshot."""
    assert graph.verify_integrity().ok
    store = graph.store
    store.begin()
    store.rebuild(store.log.head(GRAPH))
    store.commit()


def live(path: str, size: int, steps: int) -> Life:
    graph = Adaptogen.open(path, seed=False)
    clock = Clock()
    build(graph, size)
    built = clock.cpu
    walk(graph, min(size, steps))()  # a first lap reads what a step needs
    clock = Clock()
    walk(graph, steps)()
    walked, waited = clock.cpu, clock.wall
    clock = Clock()
    graph.checkpoint("end").unwrap()
    snapshot = clock.cpu
    clock = Clock()
    recover(graph)
    recovered = clock.cpu
    db = graph.store._db
    newest = db.one("SELECT length(data) FROM snapshot ORDER BY seq DESC LIMIT 1") or (0,)
    left = db.one("SELECT coalesce(sum(length(data)), 0) FROM snapshot") or (0,)
    state = len(state_bytes(db))
    graph.close()
    return Life(
        built / (size * (1 + EDGES_EACH)) * 1e6, walked / steps * 1e6, waited / steps * 1e6, snapshot * 1e3,
        recovered * 1e3, newest[0], state, left[0], 0 if path == ":memory:" else os.path.getsize(path),
    )  # fmt: skip


class Bulk(Floor):
    """The floor in one transaction."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._db.execute("BEGIN IMMEDIATE")

    def _write(self, values: tuple[object, ...]) -> None:
        self._db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", values)


def floor_build_us(size: int) -> float:
    floor = Bulk(0)
    clock = Clock()
    for i in range(size):
        floor.remember(f"n{i}", {"i": i})
    for i in range(size):
        for k in range(1, EDGES_EACH + 1):
            edge, to = f"e{i}-{k}", f"n{(i + k) % size}"
            body = {"id": edge, "src": f"n{i}", "dst": to, "kind": "transition", "label": "", "guard": None}
            floor.record("EdgeUpserted", body | {"enforcement": None, "weight": 1.0})
            floor.out.setdefault(f"n{i}", []).append((edge, to, 1.0))
    return clock.cpu / (size * (1 + EDGES_EACH)) * 1e6


def floor_step_us(size: int, steps: int) -> float:
    floor = Floor(size)
    walk_floor(floor, min(size, steps))()
    clock = Clock()
    walk_floor(floor, steps)()
    return clock.cpu / steps * 1e6


def best(lives: list[Life]) -> Life:
    return Life(*map(min, zip(*lives, strict=True)))


def sizes(quick: bool) -> None:
    chosen, steps = (SIZES[:2], 500) if quick else (SIZES, STEPS)
    build_floor = {size: floor_build_us(size) for size in chosen}
    step_floor = {size: floor_step_us(size, steps) for size in chosen}
    for where in ("memory", "disk"):
        lives: dict[int, Life] = {}
        for size in chosen:
            with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
                turns = 1 if quick else 3 if size < 10_000 else 2
                paths = [f"{folder}/{turn}.db" if where == "disk" else ":memory:" for turn in range(turns)]
                lives[size] = best([live(path, size, steps) for path in paths])
        report_sizes(where, lives, build_floor, step_floor, steps)


def report_sizes(
    where: str,
    lives: Mapping[int, Life],
    build_floor: Mapping[int, float],
    step_floor: Mapping[int, float],
    steps: int,
) -> None:
    first, last = lives[min(lives)], lives[max(lives)]
    linear, flat = last.build_us / first.build_us, last.step_us / first.step_us
    for size, life in lives.items():
        harness.report(
            "W1",
            f"build, {where}, {size:,} nodes / {size * EDGES_EACH:,} edges, a node or an edge",
            life.build_us,
            "us",
            floor=build_floor[size],
            n=size * (1 + EDGES_EACH),
            must=harness.bar("linear: largest over smallest <= 1.3", linear <= 1.3),
            largest_over_smallest=linear,
            floor_largest_over_smallest=build_floor[max(lives)] / build_floor[min(lives)],
        )
    for size, life in lives.items():
        harness.report(
            "W2",
            f"suggest and transition, {where}, {size:,} nodes / {size * EDGES_EACH:,} edges",
            life.step_us,
            "us",
            floor=step_floor[size],
            n=steps,
            must=harness.bar("flat: largest over smallest <= 1.3", flat <= 1.3),
            moonshot=harness.bar("<= 1.5x the floor in memory", life.step_us <= 1.5 * step_floor[size]),
            largest_over_smallest=flat,
            floor_largest_over_smallest=step_floor[max(lives)] / step_floor[min(lives)],
            wall_us=life.step_wall_us,
            wall_largest_over_smallest=last.step_wall_us / first.step_wall_us,
        )
    per_byte = [life.snapshot_bytes / life.live_bytes for life in lives.values()]
    for size, life in lives.items():
        harness.report(
            "W3",
            f"one snapshot, {where}, {size:,} nodes, of the live state's bytes",
            life.snapshot_bytes / life.live_bytes,
            "share",
            must=harness.bar(
                "in proportion: largest over smallest <= 1.3", max(per_byte) <= 1.3 * min(per_byte)
            ),
            live_bytes=life.live_bytes,
            left_behind_bytes=life.left_bytes,
            left_over_live=life.left_bytes / life.live_bytes,
            file_bytes=life.file_bytes,
            snapshot_ms=life.snapshot_ms,
            recover_ms=life.recover_ms,
            snapshot_us_a_node=life.snapshot_ms * 1e3 / size,
            recover_us_a_node=life.recover_ms * 1e3 / size,
        )


# ---------------------------------------------------------------------------------- events

READS: Mapping[str, Callable[[Adaptogen], Any]] = {
    "render": Adaptogen.render,
    "status": _status,
    "metrics": Adaptogen.metrics,
    "ready": Adaptogen.ready,
    "suggest": Adaptogen.suggest,
}


def aged(path: str, events: int, ring: int = 50) -> str:
    """A small graph whose moves were many: rewards come first, so that they lie far back."""
    with Adaptogen.open(path, seed=False) as graph:
        build(graph, ring)
        graph.reward(1, edge_id="e0-1").unwrap()
        moves = [
            Draft("TransitionTaken", {"edgeId": f"e{i}-1", "from": f"n{i}", "to": f"n{(i + 1) % ring}", "clean": True})
            for i in range(ring)
        ]  # fmt: skip
        while graph.store.head().seq < events:
            with graph.unit():
                for _ in range(200):
                    graph.record(*moves)
                    if graph.store.log.head(GRAPH).seq >= events:
                        break
    return path


def events(quick: bool) -> None:
    few, many = 1_000, 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        short, long = aged(f"{folder}/short.db", few), aged(f"{folder}/long.db", many)
        works: dict[str, Callable[[], object]] = {}
        graphs = {few: Adaptogen.open(short, seed=False), many: Adaptogen.open(long, seed=False)}
        for count, graph in graphs.items():
            for name, read in READS.items():
                works[f"{name} {count}"] = repeated(lambda graph=graph, read=read: read(graph))  # type: ignore[misc]
        us = harness.measure(works, n=20)
        for graph in graphs.values():
            graph.close()
        opening = {
            f"open {count}": repeated(lambda path=path: Adaptogen.open(path, seed=False).close())  # type: ignore[misc]
            for count, path in ((few, short), (many, long))
        }
        us |= harness.measure(opening, n=20, clock="wall", pick="median")
        sizes_of = {few: os.path.getsize(short), many: os.path.getsize(long)}
    for name in (*READS, "open"):
        ratio = us[f"{name} {many}"] / us[f"{name} {few}"]
        bound = harness.bar("<= 1.3x of it after 1,000 events", ratio <= 1.3)
        harness.report(
            "W4", f"{name}, {many:,} events", us[f"{name} {many}"], "us", floor=us[f"{name} {few}"], n=20,
            must=bound, file_bytes=sizes_of[many],
        )  # fmt: skip


# ---------------------------------------------------------------------------------- units


def units(quick: bool) -> None:
    n, together = (100, 50) if quick else (1_000, 100)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        levels: tuple[Durability, ...] = ("process", "power")
        for level in levels:
            with Adaptogen.open(f"{folder}/{level}.db", seed=False, durability=level) as graph:
                works = {"alone": remembered(graph, n, 1), "unit": remembered(graph, n, together)}
                us = harness.measure(works, n=n, clock="wall", pick="median", rounds=5)
            harness.report(
                "W5", f"remember on disk, {level}, in units of {together}", us["unit"], "us", n=n,
                alone_us=us["alone"], alone_over_unit=us["alone"] / us["unit"],
            )  # fmt: skip


def remembered(graph: Adaptogen, n: int, together: int) -> Callable[[], None]:
    count = iter(range(10**9))

    def work() -> None:
        for _ in range(0, n, together):
            with graph.unit():
                for _ in range(together):
                    graph.remember(f"{together}-{next(count)}", payload={"done": False}).unwrap()

    return work


def repeated(read: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        for _ in range(20):
            read()

    return work


def main() -> None:
    quick = harness.quick()
    parts = {"sizes": sizes, "events": events, "units": units}
    for name, part in parts.items():
        if not set(sys.argv[1:]) & parts.keys() or name in sys.argv[1:]:
            part(quick)


if __name__ == "__main__":
    main()
