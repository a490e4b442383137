"""Vectors V143, V144 (plan) and V79 (orient)."""

from __future__ import annotations

from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Planned, UnitFailed, VerbFailed
from tests.graphstate.conftest import Make


def seq(graph: Adaptogen) -> int:
    return graph.store.head().seq


def refused(graph: Adaptogen, spec: Any, code: str, place: str) -> Fail:
    """The plan fails at a place, and nothing of it is kept."""
    before = (seq(graph), graph.recall(limit=1_000), graph.cursor())
    answer = graph.plan(spec)
    assert isinstance(answer, Fail), answer
    assert (answer.code, answer.message.partition(":")[0], answer.details["item"]) == (code, place, place)
    assert answer.hint
    assert (seq(graph), graph.recall(limit=1_000), graph.cursor()) == before
    assert graph.remember("after").ok
    assert graph.verify_integrity(deep=True).ok
    return answer


def test_v143_a_plan(make: Make) -> None:
    graph = make()
    made = graph.plan(
        {
            "nodes": ["a", {"id": "b", "kind": "task", "payload": {"x": 1}}, "c"],
            "transitions": [["a", "b"], {"from": "b", "to": "c", "id": "bc", "weight": 2}],
            "deps": [["b", "a"], {"node": "c", "prereq": "b", "id": "cb"}],
            "cursor": ["a"],
        }
    ).unwrap()
    assert (made.nodes, made.cursor) == (("a", "b", "c"), ("a",))
    assert made.transitions[1:] == ("bc",)
    assert made.deps[1:] == ("cb",)
    assert [entry.type for entry in graph.history()] == [
        "NodeUpserted", "NodeUpserted", "NodeUpserted", "EdgeUpserted", "EdgeUpserted", "EdgeUpserted",
        "EdgeUpserted", "CursorMoved",
    ]  # fmt: skip
    node, edge = graph.get_node("b"), graph.get_edge("bc")
    assert node is not None
    assert edge is not None
    assert (node.kind, node.payload, edge.weight) == ("task", {"x": 1}, 2)
    assert [suggestion.to for suggestion in graph.suggest()] == ["b"]
    assert graph.verify_integrity(deep=True).ok
    assert graph.validate().ok


def test_an_empty_plan_makes_nothing(make: Make) -> None:
    graph = make()
    assert graph.plan({}).unwrap() == Planned(nodes=(), transitions=(), deps=(), cursor=None)
    assert graph.plan({"nodes": [], "cursor": None}).unwrap().cursor is None
    assert seq(graph) == 0


@pytest.mark.parametrize(
    ("spec", "code", "place"),
    [
        ([], "InvalidInput", "plan"),
        ({"edges": []}, "InvalidInput", "plan"),
        ({"nodes": "a"}, "InvalidInput", "plan.nodes"),
        ({"nodes": ["n"] * 10_001}, "InvalidInput", "plan"),
        ({"nodes": [7]}, "InvalidInput", "plan.nodes[0]"),
        ({"nodes": ["n", {"kind": "task"}]}, "InvalidInput", "plan.nodes[1]"),
        ({"nodes": ["n", {"id": "m", "kindd": "task"}]}, "InvalidInput", "plan.nodes[1]"),
        ({"nodes": ["n", "bad id"]}, "InvalidInput", "plan.nodes[1]"),
        ({"nodes": ["n", "m", "n"]}, "DuplicateId", "plan.nodes[2]"),
        ({"nodes": ["n", {"id": "m", "payload": "x" * 300_000}]}, "PayloadTooLarge", "plan.nodes[1]"),
        ({"nodes": ["n", {"id": "a", "expect_version": 9}]}, "Conflict", "plan.nodes[1]"),
        ({"nodes": ["n"], "transitions": [["n", "nowhere"]]}, "NotFound", "plan.transitions[0]"),
        ({"nodes": ["n"], "transitions": [["n", "a"], ["n"]]}, "InvalidInput", "plan.transitions[1]"),
        ({"nodes": ["n"], "transitions": [["n", "a", {"to": "b"}]]}, "InvalidInput", "plan.transitions[0]"),
        ({"nodes": ["n"], "transitions": [["n", "a", {"wait": 1}]]}, "InvalidInput", "plan.transitions[0]"),
        (
            {"nodes": ["n"], "transitions": [["n", "a", {"weight": -1}]]},
            "InvalidInput",
            "plan.transitions[0]",
        ),
        (
            {"nodes": ["n"], "transitions": [["n", "a", {"id": "bad id"}]]},
            "InvalidInput",
            "plan.transitions[0]",
        ),
        (
            {"nodes": ["n"], "transitions": [["n", "a", {"guard": "x =="}]]},
            "GuardParseError",
            "plan.transitions[0]",
        ),
        ({"nodes": ["n"], "transitions": [["n", "a"]], "deps": [["n", "?"]]}, "InvalidInput", "plan.deps[0]"),
        ({"nodes": ["n"], "deps": [["n", "a"], ["b", "nowhere"]]}, "NotFound", "plan.deps[1]"),
        ({"nodes": ["n"], "deps": [["n", "a"], ["b", "n"], ["a", "b"]]}, "CycleRejected", "plan.deps[2]"),
        ({"nodes": ["n"], "deps": [["n", "a", {}]]}, "InvalidInput", "plan.deps[0]"),
        ({"nodes": ["n"], "cursor": "n"}, "InvalidInput", "plan.cursor"),
        ({"nodes": ["n"], "cursor": ["nowhere"]}, "NotFound", "plan.cursor"),
        ({"nodes": ["n"], "cursor": ["asleep"]}, "IllegalTransition", "plan.cursor"),
        ({"nodes": [{"id": "n", "status": "archived"}], "cursor": ["n"]}, "IllegalTransition", "plan.cursor"),
    ],
)
def test_v143_a_refused_plan_names_its_item_and_keeps_nothing(
    make: Make, spec: Any, code: str, place: str
) -> None:
    graph = make("a", "b", "asleep")
    graph.archive("asleep").unwrap()
    refused(graph, spec, code, place)


def test_v144_d25_a_cycle_among_transitions_is_noticed_and_undone(make: Make) -> None:
    spec = {
        "nodes": ["p", "q"],
        "transitions": [["p", "q", {"kind": "dependency"}], ["q", "p", {"kind": "dependency"}]],
    }
    answer = refused(make(), spec, "CycleRejected", "plan.transitions[1]")
    assert answer.details["cycle"] == ["q", "p", "q"]


def test_v144_d20_a_node_that_exists_keeps_what_is_not_given(make: Make) -> None:
    graph = make()
    graph.remember("b", payload={"x": 1}, kind="fact").unwrap()
    assert graph.plan({"nodes": ["b"]}).unwrap().nodes == ("b",)
    assert seq(graph) == 1
    graph.plan({"nodes": [{"id": "b", "label": "B"}]}).unwrap()
    node = graph.get_node("b")
    assert node is not None
    assert (node.payload, node.kind, node.label, node.version) == ({"x": 1}, "fact", "B", 2)


def test_a_plan_happens_once_for_a_cause_and_stands_in_the_log(make: Make) -> None:
    graph = make()
    spec = {"nodes": ["a", "b"], "transitions": [["a", "b"]]}
    first = graph.plan(spec, cause="run 7", actor="planner").unwrap()
    again = graph.plan(spec, cause="run 7")
    assert again.ok
    assert (again.unwrap(), again.repeated, seq(graph)) == (first, True, 3)
    rows = list(graph.store.read("graph"))
    assert [(row.cause, row.actor) for row in rows] == [
        ("run 7", "planner"),
        (None, "planner"),
        (None, "planner"),
    ]


def test_a_refused_plan_fails_the_unit_it_is_in(make: Make) -> None:
    graph = make()
    with pytest.raises(UnitFailed), graph.unit():
        graph.remember("before")
        assert not graph.plan({"nodes": ["x"], "cursor": ["nowhere"]}).ok
    assert seq(graph) == 0


# ------------------------------------------------------------------------------ orient


def test_v79_a_denied_edge_is_listed_with_its_reasons(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "b", id="no", guard="vars.ok == true", enforcement="hard").unwrap()
    graph.link("a", "c", id="yes").unwrap()
    graph.set_cursor(["a"]).unwrap()
    head = seq(graph)
    now = graph.orient()
    assert [move.edge_id for move in now.legal_moves] == ["yes"]
    assert [(b.edge_id, b.from_, b.to, b.reasons) for b in now.blocked] == [
        ("no", "a", "b", ("guard failed: vars.ok == true",))
    ]
    assert not graph.orient(vars={"ok": True}).blocked
    assert seq(graph) == head


def test_orient_tells_the_moment(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "b", id="e").unwrap()
    graph.depend("c", "b").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.step(reward=1).unwrap()
    now = graph.orient()
    assert (now.cursor, now.done, now.seq) == (("b",), True, seq(graph))
    assert (now.ready, now.violations, now.integrity_ok, now.verified_seq) == (("a", "c"), 0, True, 0)
    assert now.suggestions == tuple(graph.suggest())
    assert [entry.seq for entry in now.recent] == list(range(now.seq - 4, now.seq + 1))
    assert (now.fts_enabled, now.tunables) == (graph.fts_enabled(), graph.get_tunables())
    graph.validate()
    assert graph.orient().verified_seq == now.seq
    assert graph.orient(actor="robot").cursor == ()
    graph.archive("b").unwrap()
    assert (graph.orient().violations, graph.orient().integrity_ok) == (1, False)


@pytest.mark.parametrize("options", [{"vars": 7}, {"actor": "bad id"}])
def test_orient_refuses_bad_arguments(make: Make, options: Any) -> None:
    with pytest.raises(VerbFailed, match="InvalidInput"):
        make().orient(**options)
