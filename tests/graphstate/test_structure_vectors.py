"""Vectors V42 to V52: edges, order, cycles."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate import Adaptogen, Edge, Fail, VerbFailed
from graphstate.algorithms import find_path, topological_order
from tests.graphstate.conftest import Make


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def test_v42_an_edge_has_its_defaults(make: Make) -> None:
    graph = make("a", "b")
    edge = graph.link("a", "b", id="e1").unwrap()
    assert edge == Edge(id="e1", src="a", dst="b", created_seq=3, updated_seq=3)
    assert (edge.kind, edge.label, edge.guard, edge.enforcement, edge.weight, edge.version) == (
        "transition", "", None, None, 1, 1,
    )  # fmt: skip
    assert graph.get_edge("e1") == edge


@pytest.mark.parametrize("weight", [float("nan"), -1, "2", float("inf"), 10**400, True])
def test_v43_bad_weights(make: Make, weight: Any) -> None:
    graph = make("a", "b")
    assert code(graph.link("a", "b", weight=weight)) == "InvalidInput"
    assert graph.store.head().seq == 2


@pytest.mark.parametrize("weight", [0, 3, 0.5, -0.0])
def test_v43_good_weights(make: Make, weight: float) -> None:
    graph = make("a", "b")
    assert graph.link("a", "b", weight=weight).unwrap().weight == weight
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"dst": "x"}, "NotFound"),
        ({"src": "x"}, "NotFound"),
        ({"src": "bad id"}, "InvalidInput"),
        ({"guard": "x =="}, "GuardParseError"),
        ({"guard": ""}, "GuardParseError"),
        ({"id": "bad id"}, "InvalidInput"),
        ({"id": ""}, "InvalidInput"),
        ({"kind": "wish"}, "InvalidInput"),
        ({"enforcement": "banana"}, "InvalidInput"),
        ({"label": "x" * 1_025}, "InvalidInput"),
    ],
)
def test_v44_v78_bad_edges_write_nothing(make: Make, arguments: dict[str, Any], expected: str) -> None:
    graph = make("a", "b")
    assert code(graph.link(**{"src": "a", "dst": "b"} | arguments)) == expected
    assert graph.store.head().seq == 2


def test_v45_a_dependency_that_closes_a_cycle_is_refused_with_the_path(make: Make) -> None:
    graph = make("a", "b", "c")
    assert graph.depend("b", "a").ok
    assert graph.depend("c", "b").ok
    for node, prereq, cycle in (
        ("a", "c", ["c", "a", "b", "c"]), ("a", "b", ["b", "a", "b"]), ("a", "a", ["a", "a"]),
    ):  # fmt: skip
        refused = graph.depend(node, prereq)
        assert code(refused) == "CycleRejected"
        assert isinstance(refused, Fail)
        assert refused.details["cycle"] == cycle
    assert graph.depend("b", "a").ok
    assert graph.store.head().seq == 6


def test_v46_transitions_may_go_round(make: Make) -> None:
    graph = make("a", "b")
    assert all(graph.link(src, dst).ok for src, dst in (("a", "b"), ("b", "a"), ("a", "a")))


def test_v47_order_and_readiness(make: Make) -> None:
    graph = make("d", "c", "b", "a")
    for node, prereq in (("c", "d"), ("a", "d"), ("b", "a")):
        graph.depend(node, prereq).unwrap()
    topology = graph.topo()
    assert (topology.order, topology.cyclic) == (("d", "a", "c", "b"), False)
    assert graph.ready() == ["d"]
    assert graph.ready(["d"]) == ["a", "c"]
    assert graph.ready(["d", "a", "c"]) == ["b"]
    assert graph.ready(["unknown"]) == ["d"]
    with pytest.raises(VerbFailed, match="done"):
        graph.ready("d")


def test_v48_a_chain_of_2000_overflows_nothing(make: Make) -> None:
    graph = make()
    with graph.unit():
        for i in range(2_000):
            graph.remember(f"n{i}")
            if i:
                graph.depend(f"n{i}", f"n{i - 1}")
    refused = graph.depend("n0", "n1999")
    assert code(refused) == "CycleRejected"
    assert isinstance(refused, Fail)
    assert len(refused.details["cycle"]) == 2_001
    assert graph.topo().cyclic is False
    assert len(graph.descendants("n0")) == 1_999


def test_v49_closures_follow_one_kind(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.depend("b", "a")
    graph.link("b", "c")
    graph.link("c", "c")
    assert graph.ancestors("b") == ["a"]
    assert graph.descendants("a") == ["b"]
    assert graph.reachable("a") == []
    assert graph.reachable("a", kind="dependency") == ["b"]
    assert graph.reachable("c") == ["c"]
    assert graph.reachable("unknown") == []
    with pytest.raises(VerbFailed, match="kind"):
        graph.reachable("a", kind="wish")  # type: ignore[arg-type]  # what nobody should pass


def test_v50_an_archived_prerequisite_still_blocks(make: Make) -> None:
    graph = make("a", "b")
    graph.depend("b", "a")
    graph.archive("a")
    assert graph.ready() == []
    assert graph.ready(["a"]) == ["b"]
    assert graph.topo().order == ("a", "b")


def walked(graph: Adaptogen) -> None:
    graph.set_cursor(["a"]).unwrap()
    graph.transition("b").unwrap()


def test_v51_unlink_removes_edge_and_statistic(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1")
    walked(graph)
    assert graph.get_stat("edge", "e1") is not None
    assert graph.unlink("e1").unwrap() is True
    assert graph.get_stat("edge", "e1") is None
    assert graph.get_edge("e1") is None
    assert code(graph.unlink("e1")) == "NotFound"
    graph.link("a", "b", id="e1")
    assert graph.get_stat("edge", "e1") is None
    assert graph.verify_integrity(deep=True).ok


def test_v52_an_edge_is_rewired_only_on_purpose_and_forgets_what_it_learned(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "b", id="e1")
    walked(graph)
    refused = graph.link("a", "c", id="e1")
    assert code(refused) == "DuplicateId"
    assert graph.get_edge("e1").dst == "b"  # type: ignore[union-attr]  # it is there
    kept = graph.link("a", "b", id="e1", weight=2, upsert=True).unwrap()
    assert (kept.version, kept.created_seq, kept.weight) == (2, 4, 2)
    assert graph.get_stat("edge", "e1") is not None
    moved = graph.link("a", "c", id="e1", upsert=True).unwrap()
    assert (moved.version, moved.created_seq, moved.dst) == (3, 4, "c")
    assert graph.get_stat("edge", "e1") is None
    assert [move.to for move in graph.as_actor("x").legal_moves()] == []
    graph.set_cursor(["a"])
    assert [move.to for move in graph.legal_moves()] == ["c"]
    assert graph.verify_integrity(deep=True).ok


def test_edges_are_replaced_at_the_version_that_was_read(make: Make) -> None:
    graph = make("a", "b")
    assert graph.link("a", "b", id="e1", expect_version=0).ok
    assert code(graph.link("a", "b", id="e1", expect_version=0)) == "Conflict"
    assert graph.link("a", "b", id="e1", expect_version=1).unwrap().version == 2


def test_replacing_a_dependency_does_not_count_the_edge_it_replaces(make: Make) -> None:
    graph = make("a", "b")
    graph.depend("b", "a", id="e1").unwrap()
    turned = graph.link("b", "a", id="e1", kind="dependency", upsert=True)
    assert turned.ok
    assert graph.topo().order == ("b", "a")


EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=30)


@given(EDGES)
@settings(max_examples=150, deadline=None)
def test_paths_and_orders_agree_with_networkx(edges: list[tuple[int, int]]) -> None:
    names = [f"n{i}" for i in range(8)]
    named = [(f"n{a}", f"n{b}") for a, b in edges]
    oracle = nx.DiGraph()
    oracle.add_nodes_from(names)
    oracle.add_edges_from(named)
    for goal in names[1:]:
        path = find_path("n0", goal, oracle.successors, oracle.predecessors)
        assert (path is not None) == nx.has_path(oracle, "n0", goal)
        if path is not None:
            assert path[0] == "n0"
            assert path[-1] == goal
            assert all(oracle.has_edge(a, b) for a, b in pairwise(path))
    order = topological_order(names, named)
    assert (len(order) == 8) == nx.is_directed_acyclic_graph(oracle)
    if len(order) == 8:
        assert all(order.index(a) < order.index(b) for a, b in named)
