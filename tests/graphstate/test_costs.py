"""What may not cost more because more has happened (D42), counted in steps of SQLite's machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import pytest

from graphstate import Adaptogen
from tests.graphstate.conftest import Make

FEW, MANY = 600, 6_000


def steps(graph: Adaptogen, read: Callable[[Adaptogen], Any]) -> int:
    """Return how many steps SQLite takes for a read by a process that has just opened the file."""
    counted = 0

    def note(event: dict[str, Any]) -> None:
        nonlocal counted
        counted += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    connection = graph.store._db._connection  # type: ignore[attr-defined]
    graph.store._forget()
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
    read(graph)
    connection.trace_v2(0, None)
    return counted


def busy(make: Make, events: int, *, rewards: bool) -> Adaptogen:
    """Always the same graph, after so many events."""
    graph = make(*"abcd")
    for src, dst in ("ab", "bc", "cd", "da"):
        graph.link(src, dst, id=src + dst).unwrap()
    graph.depend("d", "a").unwrap()
    graph.set_tunable("snapshotInterval", 0).unwrap()
    graph.set_cursor(["a"]).unwrap()
    with graph.unit():
        graph.step(reward=0.5).unwrap()
        while graph.store.log.head("graph").seq < events:
            graph.step(reward=0.5 if rewards else None).unwrap()
        graph.set_cursor(["a"]).unwrap()
    return graph


READS: dict[str, Callable[[Adaptogen], Any]] = {
    "render": lambda graph: graph.render(),
    "metrics": lambda graph: graph.metrics(),
    "ready": lambda graph: graph.ready(["a"]),
    "orient": lambda graph: graph.orient(),
    "optimize": lambda graph: graph.optimize(),
    "suggest": lambda graph: graph.suggest(),
}


@pytest.mark.parametrize("rewards", [True, False], ids=["rewards", "one old reward"])
def test_d42_reads_cost_the_same_after_ten_times_as_many_events(make: Make, rewards: bool) -> None:
    few, many = (busy(make, events, rewards=rewards) for events in (FEW, MANY))
    assert many.metrics().events > 9 * few.metrics().events
    for name, read in READS.items():
        assert steps(few, read) > 0, "something is counted"
        assert steps(many, read) <= steps(few, read) * 1.05, name


def test_d42_validation_starts_where_it_ended(make: Make) -> None:
    graph = busy(make, MANY, rewards=True)
    first = steps(graph, lambda graph: graph.validate())
    assert graph.validate().ok
    assert steps(graph, lambda graph: graph.validate()) < first / 10


def test_d42_looking_again_at_an_unchanged_graph_reads_no_node_and_no_edge(make: Make) -> None:
    graph = make("a")
    graph.set_cursor(["a"]).unwrap()
    with graph.unit():
        for number in range(300):
            graph.remember(f"n{number}").unwrap()
            graph.link("a", f"n{number}", kind="reference").unwrap()

    def look_twice(graph: Adaptogen) -> None:
        graph.store.flaws()
        graph.store.flaws()

    once = steps(graph, lambda graph: graph.store.flaws())
    assert steps(graph, look_twice) < once * 1.1
