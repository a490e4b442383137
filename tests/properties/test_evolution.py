"""No edit of the structure breaks a graph, whatever it looks like, and a refused one changes nothing.

`RELIABILITY=full` tries many more programs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx
from hypothesis import given, settings

from graphstate import Adaptogen, Result, Violation
from graphstate.store.snapshot import state_bytes
from tests.strategies import evolution_steps

Calls = Mapping[str, Callable[..., Result[Any]]]


def calls(graph: Adaptogen) -> Calls:
    """Each word of a program as a call."""
    return {
        "link": lambda src, dst, edge, kind: graph.link(src, dst, id=edge, kind=kind, upsert=True),
        "stand": lambda node, actor: graph.set_cursor([node], actor=actor),
        "step": lambda reward, actor: graph.step(reward=float(reward), actor=actor),
        "status": lambda node, status: graph.set_status(node, status),
        "remember": lambda node, kind: graph.remember(node, kind=kind),
        "pin": graph.pin,
        "self_iterate": lambda: graph.self_iterate(min_age=0),
        "gc": graph.gc,
        "reweight": graph.reweight,
        "migrate": lambda: graph.migrate("state", lambda payload: {"n": payload.get("n", 0) + 1}),
        "split": lambda node, copy, *edges: graph.split_state(node, copy, edges),
        "merge": graph.merge_states,
        "plan": lambda a, b, new, edge: graph.plan(
            {
                "nodes": [new],
                "transitions": [[a, new, {"id": edge, "upsert": True}]],
                "deps": [[new, b], [b, a]],
                "cursor": [new],
            }
        ),
    }


FULL = os.environ.get("RELIABILITY") == "full"
EDITS = ("self_iterate", "gc", "reweight", "migrate", "split", "merge", "plan")


def wrong(graph: Adaptogen) -> set[tuple[str, str]]:
    def key(violation: Violation) -> tuple[str, str]:
        return violation.kind, str(violation.locus)

    return {key(violation) for violation in graph.validate().violations}


def state(graph: Adaptogen) -> bytes:
    return state_bytes(graph.store._db)


@settings(max_examples=3_000 if FULL else 80, deadline=None)
@given(program=evolution_steps())
def test_edits_keep_a_graph_valid(program: list[tuple[str, ...]]) -> None:
    with Adaptogen.open(":memory:", seed=False) as graph:
        for node in "abcd":
            graph.remember(node).unwrap()
        graph.depend("b", "a", id="e1").unwrap()
        graph.depend("c", "b", id="e2").unwrap()
        graph.link("a", "b", id="e3").unwrap()
        call = calls(graph)
        for word, *arguments in program:
            before, head, content = wrong(graph), graph.store.head(), state(graph)
            result = call[word](*arguments)
            if not result.ok:
                assert (graph.store.head(), state(graph)) == (head, content), (word, result)
            if word in EDITS:
                assert wrong(graph) <= before, (word, result)
                assert graph.verify_integrity(deep=True).ok, (
                    word,
                    "the tables are not the replay of the log",
                )
        holds_together(graph)
        assert graph.repair().unwrap().ok
        assert graph.validate().ok
        quiet(graph)


def holds_together(graph: Adaptogen) -> None:
    nodes = {node.id for node in graph.recall(limit=1_000)}
    edges = [edge for number in range(1, 7) if (edge := graph.get_edge(f"e{number}")) is not None]
    assert all({edge.src, edge.dst} <= nodes for edge in edges)
    assert not graph.topo().cyclic
    dependencies = nx.DiGraph((edge.src, edge.dst) for edge in edges if edge.kind == "dependency")
    assert nx.is_directed_acyclic_graph(dependencies)


def quiet(graph: Adaptogen) -> None:
    """What learned all it can, and collected all it can, has nothing to say."""
    graph.self_iterate(min_age=0).unwrap()
    head = graph.store.head()
    done = graph.self_iterate(min_age=0).unwrap()
    assert (done.applied, done.reweighted, done.checkpoint) == ((), 0, None)
    assert graph.gc().unwrap().deprecated == ()
    assert graph.store.head() == head
