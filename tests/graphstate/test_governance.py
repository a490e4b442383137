"""Locks, attempts and the record of decisions: defects D10, D40, D41, and promise P11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Ok
from graphstate._canonical import decode
from graphstate.events import GRAPH, Draft
from graphstate.model import to_json
from graphstate.policy import digest
from tests.graphstate.conftest import Clock, Make


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def bodies(graph: Adaptogen, type: str) -> list[dict[str, Any]]:
    return [decode(row.body) for row in graph.store.read(GRAPH) if row.type == type]


def ruled(make: Make, **options: Any) -> tuple[Adaptogen, Adaptogen]:
    """A graph whose policy is locked, and the same for a model that stands inside the zone."""
    graph = make("in", "also", "out", **options)
    graph.link("in", "out", id="exit", guard="false", enforcement="hard").unwrap()
    graph.link("in", "also", id="open").unwrap()
    graph.define_zone("z", ["in", "also"], intra="off", boundary="hard").unwrap()
    model = graph.as_actor("robot", trust="model")
    graph.set_cursor(["in"], actor="robot").unwrap()
    graph.lock_policy("edge", "exit", reason="agreed").unwrap()
    graph.lock_policy("zone", "z", reason="agreed").unwrap()
    graph.lock_policy("tunables", reason="agreed").unwrap()
    return graph, model


ATTEMPTS: dict[str, Callable[[Adaptogen], Any]] = {
    "unlink": lambda g: g.unlink("exit"),
    "upsert": lambda g: g.link("in", "out", id="exit", upsert=True),
    "rewire": lambda g: g.link("also", "out", id="exit", upsert=True),
    "expected version": lambda g: g.link("in", "out", id="exit", expect_version=1),
    "a way beside it": lambda g: g.link("in", "out"),
    "an edge moved beside it": lambda g: g.link("in", "out", id="open", upsert=True),
    "mode": lambda g: g.set_enforcement("exit", "off"),
    "zone anew": lambda g: g.define_zone("z", ["in", "also", "out"]),
    "zone mode": lambda g: g.set_zone_enforcement("z", boundary="off"),
    "zone add": lambda g: g.add_to_zone("z", "out"),
    "zone remove": lambda g: g.remove_from_zone("z", "in"),
    "zone delete": lambda g: g.delete_zone("z"),
    "zone derived": lambda g: g.derive_zone("in", ratify=True, name="z"),
    "tunable": lambda g: g.set_tunable("defaultEnforcement", "off"),
    "teleport out": lambda g: g.set_cursor(["out"]),
    "teleport half out": lambda g: g.set_cursor(["in", "out"]),
    "teleport away": lambda g: g.set_cursor([]),
    "teleport of another": lambda g: g.set_cursor(["in"], actor="other"),
    "lock": lambda g: g.lock_policy("edge", "open"),
    "unlock": lambda g: g.unlock_policy("edge", "exit"),
}


@pytest.mark.parametrize("way", ATTEMPTS)
@pytest.mark.parametrize("trust", ["model", "tool", "import"])
def test_d10_who_is_bound_cannot_lift_what_is_locked(make: Make, way: str, trust: str) -> None:
    graph, _ = ruled(make)
    before = (graph.store.head(), graph.zones(), graph.get_edge("exit"), graph.cursor(actor="robot"))
    refused = ATTEMPTS[way](graph.as_actor("robot", trust=trust))
    assert code(refused) == "Locked"
    assert (graph.store.head(), graph.zones(), graph.get_edge("exit"), graph.cursor(actor="robot")) == before
    if "lock" not in way:
        assert "agreed" in refused.message


@pytest.mark.parametrize("way", [way for way in ATTEMPTS if way != "teleport of another"])
@pytest.mark.parametrize("trust", ["developer", "person"])
def test_a_trusted_party_may(make: Make, way: str, trust: str) -> None:
    graph, _ = ruled(make)
    assert isinstance(ATTEMPTS[way](graph.as_actor("robot", trust=trust)), Ok)
    assert graph.verify_integrity(deep=True).ok


def test_what_is_not_locked_stays_free(make: Make) -> None:
    _, model = ruled(make)
    assert model.set_cursor(["also"]).ok
    assert model.set_cursor(["also", "in"]).ok
    assert model.link("in", "also").ok
    assert model.link("out", "in").ok
    assert model.set_enforcement("open", "off").ok
    assert model.define_zone("mine", ["in"], boundary="off").ok
    assert model.transition("also", head="in").unwrap().applied
    assert model.remember("in", payload={"x": 1}).ok


def test_moves_are_governed_by_rules_not_by_locks(make: Make) -> None:
    graph, model = ruled(make)
    graph.set_zone_enforcement("z", boundary="soft")
    graph.set_enforcement("exit", "soft")
    assert model.transition("out").unwrap().soft_warned


def test_a_zone_that_is_locked_is_not_opened_by_an_edge_that_is_not(make: Make) -> None:
    graph, model = ruled(make)
    model.link("also", "out", id="gate", enforcement="off").unwrap()
    model.set_cursor(["also"]).unwrap()
    trace = model.explain_transition("out").unwrap()
    assert (trace.decision, trace.boundary["gated"]) == ("deny", False)
    assert trace.reasons == ("zone boundary crossing z->? (locked)",)
    graph.lock_policy("edge", "gate", reason="the way out").unwrap()
    trace = model.transition("out").unwrap().trace
    assert (trace.decision, trace.enforcement_source, trace.boundary["gated"]) == ("allow", "edge", True)


def test_a_locked_rule_neither_hardens_nor_relaxes(make: Make) -> None:
    graph = make("a", "b")
    graph.set_tunable("escalationThreshold", 1)
    graph.set_tunable("demotionCleanRuns", 1)
    for name, kept in (("e1", False), ("e2", True)):
        graph.link("a", "b", id=name, guard="vars.ok", enforcement="soft")
        if kept:
            graph.set_cursor(["a"])
            graph.transition(edge_id=name).unwrap()
        graph.lock_policy("edge", name)
    for ok in (False, True, False, True):
        for name in ("e1", "e2"):
            graph.set_cursor(["a"])
            graph.transition(edge_id=name, vars={"ok": ok}).unwrap()
    found = [graph.get_edge(name) for name in ("e1", "e2")]
    assert [edge.learned_enforcement for edge in found if edge] == [None, "hard"]


def test_the_cursor_of_an_actor_can_be_locked(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b")
    model = graph.as_actor("robot", trust="model")
    model.set_cursor(["a"]).unwrap()
    graph.lock_policy("cursor", "robot", reason="no jumps").unwrap()
    assert code(model.set_cursor(["b"])) == "Locked"
    assert code(graph.as_actor("other", trust="tool").set_cursor(["b"], actor="robot")) == "Locked"
    assert model.transition("b").unwrap().applied
    assert graph.set_cursor(["a"], actor="robot").ok
    graph.unlock_policy("cursor", "robot").unwrap()
    assert model.set_cursor(["b"]).ok


def test_locks_are_listed_with_who_when_and_why(make: Make) -> None:
    graph, _ = ruled(make)
    assert [(lock.scope, lock.id, lock.reason, lock.actor) for lock in graph.locks()] == [
        ("edge", "exit", "agreed", "developer"),
        ("tunables", "*", "agreed", "developer"),
        ("zone", "z", "agreed", "developer"),
    ]
    assert all(lock.at > 1_000_000 for lock in graph.locks())
    graph.unlink("exit").unwrap()
    graph.delete_zone("z").unwrap()
    assert [lock.scope for lock in graph.locks()] == ["tunables"]
    assert graph.verify_integrity(deep=True).ok


def test_what_cannot_be_locked_is_refused(make: Make) -> None:
    graph = make("a")
    before = graph.store.head()
    assert code(graph.lock_policy("edge", "no")) == "NotFound"
    assert code(graph.lock_policy("edge")) == "InvalidInput"
    assert code(graph.lock_policy("zone", "no")) == "ZoneNotFound"
    assert code(graph.lock_policy("tunables", "explore")) == "InvalidInput"
    assert code(graph.lock_policy("cursor", "a b")) == "InvalidInput"
    assert code(graph.lock_policy("node", "a")) == "InvalidInput"  # type: ignore[arg-type]
    assert code(graph.unlock_policy("tunables")) == "NotFound"
    assert code(graph.lock_policy("tunables", reason="x" * 1_025)) == "InvalidInput"
    assert graph.store.head() == before


# ------------------------------------------------------------------------------ rolling back


@pytest.mark.parametrize("trust", ["developer", "model"])
def test_no_rollback_goes_back_before_a_lock(make: Make, trust: str) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1", enforcement="hard")
    graph.checkpoint("before")
    graph.lock_policy("edge", "e1").unwrap()
    graph.checkpoint("after")
    head = graph.store.head()
    assert code(graph.as_actor("x", trust=trust).rollback("before")) == "Locked"
    assert graph.store.head() == head
    assert graph.as_actor("x", trust=trust).rollback("after").ok
    assert [lock.id for lock in graph.locks()] == ["e1"]
    graph.unlock_policy("edge", "e1").unwrap()
    assert graph.rollback("before").ok
    assert graph.verify_integrity(deep=True).ok


CHANGES: dict[str, Callable[[Adaptogen], Any]] = {
    "edge": lambda g: g.link("in", "out", id="exit", guard="true", upsert=True),
    "edge mode": lambda g: g.set_enforcement("exit", "off"),
    "zone": lambda g: g.set_zone_enforcement("z", intra="hard"),
    "member": lambda g: g.add_to_zone("z", "out"),
    "tunables": lambda g: g.set_tunable("ucbC", 2),
    "removed": lambda g: g.delete_zone("z"),
}


@pytest.mark.parametrize("what", [what for what in CHANGES if what != "removed"])
def test_no_rollback_undoes_a_change_of_what_is_locked(make: Make, what: str) -> None:
    graph, model = ruled(make)
    graph.checkpoint("locked")
    CHANGES[what](graph).unwrap()
    assert code(model.rollback("locked")) == "Locked"
    assert graph.verify_integrity(deep=True).ok


def test_a_rollback_may_bring_a_lock_back(make: Make) -> None:
    graph, model = ruled(make)
    graph.checkpoint("locked")
    graph.unlock_policy("zone", "z").unwrap()
    model.set_cursor(["out"]).unwrap()
    assert model.rollback("locked").ok
    assert len(graph.locks()) == 3


def test_a_rollback_is_no_way_out_of_a_locked_zone(make: Make) -> None:
    graph, model = ruled(make)
    graph.set_cursor(["out"], actor="robot")
    graph.checkpoint("outside")
    graph.set_cursor(["in"], actor="robot").unwrap()
    head = graph.store.head()
    assert code(model.rollback("outside")) == "Locked"
    assert (graph.store.head(), model.cursor()) == (head, ["in"])
    assert graph.rollback("outside").ok
    assert model.cursor() == ["out"]


def test_events_that_other_verbs_write_are_held_back_too(make: Make) -> None:
    from graphstate import VerbFailed

    graph, model = ruled(make)
    with pytest.raises(VerbFailed, match="Locked"), graph.unit():
        model.record(Draft("EdgeRemoved", {"id": "exit"}))
    assert graph.get_edge("exit") is not None


# ---------------------------------------------------------------------------- what is recorded


def test_d40_a_move_records_what_its_decision_rested_on(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1", guard="vars.token == 's3cret'", enforcement="soft")
    graph.set_cursor(["a"])
    trace = graph.explain_transition("b", vars={"token": "s3cret"}).unwrap()
    graph.transition("b", vars={"token": "s3cret"}).unwrap()
    (first,) = bodies(graph, "TransitionTaken")
    assert first["vars"] == digest({"token": "s3cret"})
    assert first["decision"] == digest(to_json(trace))
    assert all("s3cret" not in str(body.get("vars")) for body in bodies(graph, "TransitionTaken"))
    graph.set_cursor(["a"])
    graph.transition("b", vars={"token": "s3cret"}).unwrap()
    assert bodies(graph, "TransitionTaken")[1] == first
    graph.set_enforcement("e1", "hard")
    graph.set_cursor(["a"])
    graph.transition("b", vars={"token": "s3cret"}).unwrap()
    third = bodies(graph, "TransitionTaken")[2]
    assert (third["decision"], third["policy"] != first["policy"]) == (first["decision"], True)
    graph.set_cursor(["a"])
    graph.transition("b")
    (blocked,) = bodies(graph, "BlockedAttempt")
    assert (blocked["policy"], "vars" in blocked) == (third["policy"], False)


def test_d40_a_move_that_no_rule_concerns_stays_small(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1")
    graph.set_cursor(["a"])
    graph.transition("b", vars={"x": 1}).unwrap()
    assert bodies(graph, "TransitionTaken") == [
        {"edgeId": "e1", "from": "a", "to": "b", "clean": True, "vars": digest({"x": 1})}
    ]


def test_d40_a_step_records_candidates_and_draws(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "b", id="e1")
    graph.link("a", "c", id="e2", guard="vars.no", enforcement="hard")
    graph.set_tunable("explore", "epsilon")
    graph.set_cursor(["a"])
    graph.step().unwrap()
    (taken,) = bodies(graph, "TransitionTaken")
    assert [edge for edge, _ in taken["choice"]["ranked"]] == ["e1"]
    assert len(taken["choice"]["draws"]) in (1, 2)


def blocked(make: Make, **options: Any) -> tuple[Adaptogen, Clock]:
    clock = Clock()
    graph = make("a", "b", now=clock, **options)
    graph.link("a", "b", id="e1", guard="vars.ok", enforcement="hard")
    graph.set_cursor(["a"])
    clock.ms = 60_000 * 100
    return graph, clock


def blocks(graph: Adaptogen) -> int:
    stat = graph.get_stat("edge", "e1")
    assert stat is not None
    return stat.blocks


def test_d41_a_loop_of_attempts_gets_ten_events_a_minute_and_one_sum(make: Make) -> None:
    graph, clock = blocked(make)
    for _ in range(500):
        assert graph.transition("b").unwrap().applied is False
    assert len(bodies(graph, "BlockedAttempt")) == blocks(graph) == 10
    clock.ms += 60_000
    graph.transition("b")
    found = bodies(graph, "BlockedAttempt")
    assert [body.get("count", 1) for body in found] == [1] * 10 + [490, 1]
    assert found[10]["reason"] == "490 more attempts"
    assert blocks(graph) == 501
    assert graph.verify_integrity(deep=True).ok


def test_d41_a_checkpoint_counts_what_has_no_event_yet(make: Make) -> None:
    graph, _ = blocked(make)
    for _ in range(25):
        graph.transition("b")
    graph.checkpoint("now")
    assert blocks(graph) == 25
    graph.checkpoint("again")
    assert len(bodies(graph, "BlockedAttempt")) == 11


def test_d41_attempts_without_an_event_survive_reopening(make: Make, tmp_path: Any) -> None:
    path = tmp_path / "g.db"
    graph, clock = blocked(make, path=path)
    for _ in range(12):
        graph.transition("b")
    graph.close()
    again = make(path=path, now=clock)
    again.transition("b")
    clock.ms += 60_000
    again.transition("b")
    assert blocks(again) == 14
    again.unlink("e1")
    assert again.verify_integrity(deep=True).ok


def test_d41_being_blocked_does_not_refresh_a_reward(make: Make) -> None:
    graph, _ = blocked(make)
    graph.transition("b", vars={"ok": True}).unwrap()
    graph.reward(1)
    graph.set_cursor(["a"])
    graph.link("a", "a", id="loop")
    for _ in range(7):
        graph.transition("a").unwrap()
    before = {s.edge_id: s.breakdown.reward for s in graph.suggest(vars={"ok": True})}
    graph.transition("b")
    assert {s.edge_id: s.breakdown.reward for s in graph.suggest(vars={"ok": True})} == before
    assert before["e1"] == pytest.approx(0.3 * 0.5 ** (7 / 200))
