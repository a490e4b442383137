"""Vectors V53 to V56 and V74 to V76: cursors and transitions."""

from __future__ import annotations

from typing import Any

import pytest

from graphstate import Adaptogen, Edge, Fail, Trace, VerbFailed
from graphstate.events import GRAPH
from tests.graphstate.conftest import Make


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def pair(make: Make) -> Adaptogen:
    graph = make("a", "b")
    graph.link("a", "b", id="e1").unwrap()
    graph.set_cursor(["a"]).unwrap()
    return graph


def types(graph: Adaptogen) -> list[str]:
    return [row.type for row in graph.store.read(GRAPH)]


def test_v53_a_move_is_recorded_and_counted(make: Make) -> None:
    graph = pair(make)
    outcome = graph.transition("b").unwrap()
    assert (outcome.applied, outcome.soft_warned, outcome.from_, outcome.to, outcome.edge_id) == (
        True, False, "a", "b", "e1",
    )  # fmt: skip
    assert outcome.trace == Trace(
        decision="allow", enforcement_source="none", effective_enforcement="off",
        guard={"present": False, "passed": True}, boundary={"crossing": False, "gated": False},
        escalation={"soft_violations": 0, "promoted": False}, reasons=(),
    )  # fmt: skip
    (row,) = graph.store.read(GRAPH, after=4)
    assert (row.seq, row.type, row.actor) == (5, "TransitionTaken", "developer")
    assert row.body == b'{"clean":true,"edgeId":"e1","from":"a","to":"b"}'
    for kind, name in (("edge", "e1"), ("node", "b")):
        stat = graph.get_stat(kind, name)
        assert stat is not None
        assert (stat.visits, stat.last_seq) == (1, 5)
    assert graph.get_stat("node", "a") is None
    assert graph.cursor() == ["b"]


def test_v54_targets_that_cannot_be_entered(make: Make) -> None:
    graph = pair(make)
    assert code(graph.transition("x")) == "NotFound"
    assert code(graph.transition("a")) == "IllegalTransition"
    assert code(graph.explain_transition("a")) == "IllegalTransition"
    graph.archive("b")
    assert code(graph.transition("b")) == "IllegalTransition"
    assert graph.legal_moves() == []
    assert code(graph.transition()) == "InvalidInput"
    assert code(graph.transition("b", vars=7)) == "InvalidInput"  # type: ignore[arg-type]  # hostile
    assert code(graph.transition("b", vars={"x": float("nan")})) == "InvalidInput"


def test_v55_the_cursor_stands_on_active_nodes_only(make: Make) -> None:
    graph = make("a", "b")
    graph.archive("b")
    assert code(graph.set_cursor(["x"])) == "NotFound"
    assert code(graph.set_cursor(["b"])) == "IllegalTransition"
    assert code(graph.set_cursor("a")) == "InvalidInput"
    assert graph.set_cursor(["a", "a"]).unwrap() == ["a", "a"]
    assert graph.cursor() == ["a"]
    assert graph.set_cursor([]).unwrap() == []
    assert graph.cursor() == []


def test_v56_one_head_moves_at_a_time_and_heads_that_meet_merge(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "c")
    graph.link("b", "c")
    graph.set_cursor(["a", "b"])
    assert graph.transition("c").unwrap().from_ == "a"
    assert graph.cursor() == ["b", "c"]
    assert graph.transition("c").unwrap().from_ == "b"
    assert graph.cursor() == ["c"]


def test_a_self_loop_keeps_the_place_of_its_head(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "a")
    graph.set_cursor(["a", "b"])
    graph.transition("a").unwrap()
    assert graph.cursor() == ["a", "b"]


def test_v74_explaining_changes_nothing(make: Make) -> None:
    graph = pair(make)
    assert graph.explain_transition("b").unwrap().decision == "allow"
    assert graph.explain_transition(edge_id="e1").unwrap().decision == "allow"
    assert graph.store.head().seq == 4
    assert graph.cursor() == ["a"]


def test_a_denied_move_is_ok_and_only_the_attempt_is_recorded(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1", guard="vars.ok", enforcement="hard").unwrap()
    graph.set_cursor(["a"]).unwrap()
    outcome = graph.transition("b").unwrap()
    assert (outcome.applied, outcome.trace.decision) == (False, "deny")
    assert (outcome.trace.code, outcome.trace.reasons) == ("HardBlocked", ("guard failed: vars.ok",))
    assert types(graph)[4:] == ["BlockedAttempt"]
    stat = graph.get_stat("edge", "e1")
    assert stat is not None
    assert (stat.blocks, stat.visits) == (1, 0)
    assert graph.cursor() == ["a"]
    assert graph.legal_moves() == []
    assert code(graph.step()) == "NoMoves"
    assert len(types(graph)) == 5
    denied = graph.step("b", reward=1).unwrap()
    assert (denied.applied, denied.denied, denied.suggestion, denied.reward, denied.done) == (
        False, True, None, None, True,
    )  # fmt: skip
    assert graph.verify_integrity(deep=True).ok


def parallel(make: Make) -> Adaptogen:
    graph = make("a", "b")
    graph.link("a", "b", id="z1", weight=1)
    graph.link("a", "b", id="a2", weight=9)
    graph.set_cursor(["a"])
    return graph


def test_v75_the_best_decision_among_parallel_edges_is_taken(make: Make) -> None:
    graph = parallel(make)
    graph.link("a", "b", id="z1", guard="false", enforcement="hard", upsert=True).unwrap()
    assert [move.edge_id for move in graph.legal_moves()] == ["a2"]
    assert graph.step().unwrap().applied
    graph.set_cursor(["a"])
    assert graph.transition("b").unwrap().edge_id == "a2"


def test_v76_the_suggested_edge_is_the_one_that_is_taken_and_credited(make: Make) -> None:
    graph = parallel(make)
    step = graph.step(reward=1).unwrap()
    assert step.suggestion is not None
    assert step.suggestion.edge_id == step.outcome.edge_id == "a2"
    assert graph.get_stat("edge", "z1") is None
    stat = graph.get_stat("edge", "a2")
    assert stat is not None
    assert stat.ema_reward == pytest.approx(0.3)


def test_a_move_can_name_its_edge(make: Make) -> None:
    graph = parallel(make)
    assert graph.transition("b").unwrap().edge_id == "z1"
    graph.set_cursor(["a"])
    assert graph.transition(edge_id="a2").unwrap().to == "b"
    assert code(graph.transition(edge_id="a2")) == "IllegalTransition"
    assert code(graph.transition("a", edge_id="a2")) == "InvalidInput"
    assert code(graph.transition(edge_id="gone")) == "NotFound"
    graph.depend("b", "a", id="d1")
    graph.set_cursor(["a"])
    assert code(graph.transition(edge_id="d1")) == "IllegalTransition"


def test_each_actor_has_a_cursor_of_its_own(make: Make) -> None:
    graph = pair(make)
    other = graph.as_actor("other", trust="model")
    assert other.cursor() == []
    other.set_cursor(["b"]).unwrap()
    assert (graph.cursor(), other.cursor(), graph.cursor(actor="other")) == (["a"], ["b"], ["b"])
    graph.transition("b", actor="developer").unwrap()
    assert other.cursor() == ["b"]
    row = next(iter(graph.store.read(GRAPH, after=4)))
    assert (row.actor, row.trust) == ("other", "model")
    for bad in ("", "a b", 7):
        with pytest.raises(VerbFailed, match="actor"):
            graph.cursor(actor=bad)  # type: ignore[arg-type]  # what nobody should pass
        assert code(graph.set_cursor(["a"], actor=bad)) == "InvalidInput"  # type: ignore[arg-type]


def test_moves_are_read_from_memory_only(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "b")
    graph.link("b", "c")
    graph.set_cursor(["a"])
    graph.transition("b").unwrap()  # the first of its kind gives the type its number
    graph.set_cursor(["a"])
    statements: list[str] = []
    database = graph.store._db
    for name in ("one", "all"):
        original = getattr(database, name)

        def watch(sql: str, values: Any = (), original: Any = original) -> Any:
            statements.append(sql)
            return original(sql, values)

        monkeypatch.setattr(database, name, watch)
    assert graph.suggest()[0].to == "b"
    graph.transition("b").unwrap()
    assert graph.suggest()[0].to == "c"
    assert statements == []


def test_edges_are_values() -> None:
    assert Edge(id="e", src="a", dst="b") == Edge(id="e", src="a", dst="b", weight=1)
