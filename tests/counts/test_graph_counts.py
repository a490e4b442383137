"""What grows with the log and what does not, in steps of SQLite's machine: no clock is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from graphstate import Adaptogen, UnitFailed
from graphstate.cli.commands import _status
from graphstate.events import Draft
from graphstate.store import projection

RING = 12

READS: dict[str, Callable[[Adaptogen], Any]] = {
    "render": Adaptogen.render,
    "status": _status,
    "metrics": Adaptogen.metrics,
    "ready": Adaptogen.ready,
    "topo": Adaptogen.topo,
    "suggest": Adaptogen.suggest,
    "head": Adaptogen.head,
    "history": lambda graph: graph.history(limit=5),
    "checkpoints": Adaptogen.list_checkpoints,
}


class Work:
    """Steps and statements that SQLite was asked for."""

    def __init__(self) -> None:
        self.steps = self.statements = 0

    def note(self, event: dict[str, Any]) -> None:
        self.statements += 1
        self.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@contextmanager
def work_of(graph: Adaptogen) -> Iterator[Work]:
    connection = graph.store._db._connection  # type: ignore[attr-defined]
    with watched(connection) as work:
        yield work


@contextmanager
def watched(connection: apsw.Connection) -> Iterator[Work]:
    work = Work()
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, work.note)
    try:
        yield work
    finally:
        connection.trace_v2(0, None)


def ring(path: Path, events: int) -> Path:
    """The same live graph after many or few events: rewards first, then moves round a ring."""
    with Adaptogen.open(path, seed=False) as graph:
        graph.set_tunable("snapshotInterval", 0)
        with graph.unit():
            for i in range(RING):
                graph.remember(f"n{i}")
            for i in range(RING):
                graph.link(f"n{i}", f"n{(i + 1) % RING}", id=f"e{i}")
                graph.depend(f"n{i}", "n0") if i else None
            graph.set_cursor(["n0"])
            for value in (1, 0.5, -1):
                graph.reward(value, edge_id="e0")
        with graph.unit():
            for i in [*range(RING)] * (events // RING):
                body: dict[str, Any] = {"edgeId": f"e{i}", "from": f"n{i}", "to": f"n{(i + 1) % RING}"}
                graph.record(Draft("TransitionTaken", body | {"clean": True}))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("counts")
    return ring(folder / "short.db", 120), ring(folder / "long.db", 20_000)


@pytest.mark.parametrize("name", READS)
def test_a_read_costs_the_same_after_many_events(files: tuple[Path, Path], name: str) -> None:
    spent: list[int] = []
    for path in files:
        with Adaptogen.open(path, seed=False) as graph, work_of(graph) as work:
            READS[name](graph)
        assert work.statements
        spent.append(work.steps)
    assert spent[0] == spent[1]


def test_opening_costs_the_same_after_many_events(files: tuple[Path, Path]) -> None:
    spent: list[int] = []
    for path in files:
        work = Work()

        def watch(connection: apsw.Connection, note: Callable[[dict[str, Any]], None] = work.note) -> None:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)

        apsw.connection_hooks.append(watch)
        try:
            Adaptogen.open(path, seed=False).close()
        finally:
            apsw.connection_hooks.remove(watch)
        assert work.statements
        spent.append(work.steps)
    assert spent[0] == spent[1]


def test_the_picture_shows_rewards_that_lie_far_back(files: tuple[Path, Path]) -> None:
    with Adaptogen.open(files[1], seed=False) as graph:
        picture = graph.render()
        shown = [line.split(" @")[0].strip() for line in picture.splitlines() if "@ seq" in line]
        assert shown == ["1", "0.5", "-1"]


def circle(nodes: int) -> Adaptogen:
    graph = Adaptogen.open(":memory:", seed=False)
    graph.set_tunable("snapshotInterval", 0).unwrap()
    with graph.unit():
        for i in range(nodes):
            graph.remember(f"n{i}")
        for i in range(nodes):
            graph.link(f"n{i}", f"n{(i + 1) % nodes}", id=f"e{i}")
            graph.link(f"n{i}", f"n{(i + 2) % nodes}", id=f"f{i}")
        graph.set_cursor(["n0"])
    return graph


def walked(graph: Adaptogen, steps: int) -> None:
    for i in range(steps):
        graph.step(reward=0.5 if i % 7 == 0 else None).unwrap()


def test_a_step_costs_the_same_in_a_large_graph() -> None:
    spent: list[tuple[int, int]] = []
    for nodes in (30, 1_500):
        with circle(nodes) as graph:
            walked(graph, 70)
            with work_of(graph) as work:
                walked(graph, 70)
        spent.append((work.statements, work.steps))
    small, large = spent
    assert small[0] == large[0]
    assert large[1] <= small[1]  # first visits insert statistics, later ones replace them: a step more
    assert small[0] == 70 * 5 + 10 * 1  # begin, event, state, statistics, commit; a reward's event


def test_a_refusal_forgets_nothing() -> None:
    with circle(30) as graph:
        walked(graph, 5)
        graph.depend("n1", "n0").unwrap()
        graph.store.projection.dependencies.load()
        assert not graph.depend("n0", "n1").ok
        assert not graph.transition("nowhere").ok
        assert graph.store.projection.dependencies.ordering is not None
        with work_of(graph) as work:
            graph.suggest()
        assert work.statements == 0


def test_a_unit_that_fails_after_a_write_leaves_nothing_in_memory() -> None:
    with circle(30) as graph:
        walked(graph, 5)
        before = (graph.cursor(), graph.suggest(), graph.head(), graph.topo())
        graph.store.projection.dependencies.load()
        with pytest.raises(UnitFailed), graph.unit():
            walked(graph, 3)
            graph.depend("n1", "n0")
            graph.transition("nowhere")
        assert graph.store.projection.dependencies.ordering is None
        assert (graph.cursor(), graph.suggest(), graph.head(), graph.topo()) == before


def test_a_full_memory_starts_afresh_and_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def life(most: int) -> tuple[Any, ...]:
        monkeypatch.setattr(projection, "_REMEMBERED", most)
        with circle(20) as graph:
            walked(graph, 60)
            graph.depend("n1", "n0").unwrap()
            graph.store.projection.dependencies.load()
            walked(graph, 60)
            assert graph.store.projection.dependencies.ordering is not None
            stats = [graph.get_stat("edge", f"{letter}{i}") for letter in "ef" for i in range(20)]
            assert graph.verify_integrity(deep=True).ok
            return graph.cursor(), graph.suggest(), stats, graph.render()

    assert life(7) == life(1_000_000)


CHANGES: dict[str, Callable[[Adaptogen], Any]] = {
    "another edge": lambda graph: graph.link("n0", "n5", id="more"),
    "an edge changed": lambda graph: graph.link("n0", "n7", id="e0", upsert=True),
    "a weight": lambda graph: graph.link("n0", "n1", id="e0", weight=9, upsert=True),
    "a guard": lambda graph: graph.link("n0", "n1", id="e0", guard="vars.ok == true", upsert=True),
    "an edge removed": lambda graph: graph.unlink("e0"),
    "a mode": lambda graph: graph.set_enforcement("e0", "hard"),
    "a target archived": lambda graph: graph.archive("n1"),
    "the start archived": lambda graph: graph.archive("n0"),
    "a node merged": lambda graph: graph.merge_states("n1", "n2"),
    "a reward": lambda graph: graph.reward(1, edge_id="e0"),
    "weights learned": lambda graph: (graph.reward(1, edge_id="e0"), graph.reweight())[1],
    "a zone": lambda graph: graph.define_zone("island", ["n1"]),
    "a move": lambda graph: graph.step(),
    "another cursor": lambda graph: graph.set_cursor(["n0", "n3"]),
    "a rollback": lambda graph: (graph.checkpoint("here"), graph.archive("n1"), graph.rollback("here"))[2],
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_remembered_follows_every_change(tmp_path: Path, change: str) -> None:
    path = tmp_path / "g.db"
    with Adaptogen.open(path, seed=False) as graph:
        with graph.unit():
            for i in range(8):
                graph.remember(f"n{i}")
            for i in range(8):
                graph.link(f"n{i}", f"n{(i + 1) % 8}", id=f"e{i}")
                graph.link(f"n{i}", f"n{(i + 2) % 8}", id=f"f{i}")
            graph.set_cursor(["n0"])
        graph.suggest()  # from here on it is remembered
        CHANGES[change](graph).unwrap()
        graph.suggest()
        with Adaptogen.open(path, read_only=True) as fresh:
            assert graph.suggest() == fresh.suggest()
            assert graph.legal_moves() == fresh.legal_moves()
