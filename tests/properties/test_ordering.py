"""The order of dependencies against networkx, by itself and behind a graph."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from unittest import mock

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate import Adaptogen, Fail, ordering
from graphstate.ordering import Ordering

NAMES = [f"n{i}" for i in range(9)]
EDGES = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES))
#: (remove instead of add, edge, which of the present edges to remove)
STEPS = st.lists(st.tuples(st.booleans(), EDGES, st.integers(0, 1_000)), max_size=60)


class Oracle:
    """Edges as a multiset, and networkx over them."""

    def __init__(self) -> None:
        self.edges: Counter[tuple[str, str]] = Counter()

    def graph(self) -> nx.DiGraph:
        graph = nx.DiGraph()
        graph.add_nodes_from(NAMES)
        graph.add_edges_from(edge for edge, count in self.edges.items() if count)
        return graph

    def nth(self, index: int) -> tuple[str, str] | None:
        present = sorted(self.edges.elements())
        return present[index % len(present)] if present else None


def agrees(order: Ordering, oracle: Oracle) -> None:
    place = {node: index for index, node in enumerate(order)}
    assert len(place) == sum(1 for _ in order)
    for src, dst in +oracle.edges:
        assert place[src] < place[dst]
    numbers = [order._places[node].number for node in order]
    assert all(left < right for left, right in pairwise(numbers))


def is_a_path(path: list[str], start: str, goal: str, graph: nx.DiGraph) -> None:
    assert (path[0], path[-1]) == (start, goal)
    assert all(graph.has_edge(*step) for step in pairwise(path))


@pytest.mark.parametrize(("gap", "room"), [(1 << 40, 1 << 12), (4, 1)], ids=["wide", "narrow"])
@given(steps=STEPS)
@settings(max_examples=200, deadline=None)
def test_an_order_accepts_and_refuses_as_networkx_does(
    gap: int, room: int, steps: list[tuple[bool, tuple[str, str], int]]
) -> None:
    with mock.patch.object(ordering, "_GAP", gap), mock.patch.object(ordering, "_ROOM", room):
        order, oracle = Ordering(), Oracle()
        for remove, (src, dst), index in steps:
            gone = oracle.nth(index)
            if remove and gone is not None:
                order.remove(*gone)
                oracle.edges[gone] -= 1
            else:
                path = order.path(dst, src)
                graph = oracle.graph()
                assert (path is not None) == nx.has_path(graph, dst, src)
                if path is not None:
                    is_a_path(path, dst, src, graph)
                else:
                    assert order.add(src, dst)
                    oracle.edges[src, dst] += 1
            agrees(order, oracle)


@given(edges=st.lists(EDGES, max_size=25))
@settings(max_examples=200, deadline=None)
def test_an_order_is_made_of_all_edges_or_of_none(edges: list[tuple[str, str]]) -> None:
    oracle = Oracle()
    oracle.edges.update(edges)
    whole, grown = Ordering.of(edges), Ordering()
    acyclic = nx.is_directed_acyclic_graph(oracle.graph())
    assert (whole is not None) == acyclic
    if whole is not None:
        agrees(whole, oracle)
    # Without asking first, the edge that closes the circle is the one that says so.
    assert all(grown.add(*edge) for edge in edges) == acyclic


@given(edges=st.permutations([(f"n{i}", f"n{j}") for i in range(7) for j in range(i)]))
@settings(max_examples=50, deadline=None)
def test_edges_of_a_full_order_fit_in_any_sequence(edges: list[tuple[str, str]]) -> None:
    order = Ordering()
    assert all(order.path(dst, src) is None and order.add(src, dst) for src, dst in edges)
    assert list(order) == [f"n{i}" for i in reversed(range(7))]


def test_an_order_survives_a_gap_that_is_always_the_same() -> None:
    order = Ordering()
    assert order.add("first", "last")
    for i in range(3_000):  # each has an edge on both sides, so it must go right before `last`
        assert order.add(f"m{i}", f"m{i}-end")
        assert order.add("first", f"m{i}")
        assert order.path("last", f"m{i}") is None
        assert order.add(f"m{i}", "last")
        assert order.path("last", "first") is None
    place = {node: index for index, node in enumerate(order)}
    assert all(place["first"] < place[f"m{i}"] < place["last"] for i in range(3_000))


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "turn", "remove"]), EDGES, st.integers(0, 9)), max_size=25
    )
)
@settings(max_examples=60, deadline=None)
def test_a_graph_answers_the_same_from_memory_and_from_its_tables(
    steps: list[tuple[str, tuple[str, str], int]],
) -> None:
    with Adaptogen.open(":memory:", seed=False) as graph:
        for name in NAMES:
            graph.remember(name)
        dependencies = graph.store.projection.dependencies
        dependencies.load()
        known: dict[str, tuple[str, str]] = {}
        for way, (src, dst), number in steps:
            name = f"e{number}"
            if way == "remove":
                assert graph.unlink(name).ok == (known.pop(name, None) is not None)
            elif way == "turn" or name not in known:
                oracle = nx.DiGraph(edge for other, edge in known.items() if other != name)
                oracle.add_nodes_from(NAMES)
                answer = graph.link(src, dst, id=name, kind="dependency", upsert=True)
                assert answer.ok == (not nx.has_path(oracle, dst, src))
                if isinstance(answer, Fail):
                    cycle = answer.details["cycle"]
                    assert cycle[0] == src
                    is_a_path(cycle[1:], dst, src, oracle)
                else:
                    known[name] = (src, dst)
            order = dependencies.ordering
            assert order is not None, "a refusal must not drop the order"
            place = {node: index for index, node in enumerate(order)}
            assert all(place[src] < place[dst] for src, dst in known.values())
        assert graph.verify_integrity(deep=True).ok
