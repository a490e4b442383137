"""Vectors V57 to V73, V77 to V79, V87, V88: guards, zones and modes decide about moves.

Restated where only what was learned relaxes (V69 to V73), where every zone touched has its say
(V66), where the rule that was violated hardens (V68), and where the gate is named (V61).
"""

from __future__ import annotations

from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Outcome, Trace, VerbFailed, compile_guard
from graphstate._canonical import decode
from graphstate.events import GRAPH
from graphstate.verbs.fsm import denied
from graphstate.verbs.judge import VERB_BUDGET
from tests.graphstate.conftest import Make

OK = {"ok": True}


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def guarded(make: Make, mode: Any = None, **tunables: Any) -> Adaptogen:
    """Nodes a and b, an edge e1 that passes with vars.ok, the cursor on a."""
    graph = make("a", "b")
    for key, value in tunables.items():
        graph.set_tunable(key, value).unwrap()
    graph.link("a", "b", id="e1", guard="vars.ok == true", enforcement=mode).unwrap()
    graph.set_cursor(["a"]).unwrap()
    return graph


def walk(graph: Adaptogen, *, ok: bool = False, to: str = "b") -> Outcome:
    graph.set_cursor(["a"]).unwrap()
    return graph.transition(to, vars=OK if ok else None).unwrap()


def fenced(make: Make, *, edge: Any = None, **modes: Any) -> Adaptogen:
    """Nodes in and out, an edge e1 from one to the other, a zone z over the first."""
    graph = make("in", "out")
    graph.link("in", "out", id="e1", enforcement=edge).unwrap()
    graph.define_zone("z", ["in"], **modes).unwrap()
    graph.set_cursor(["in"]).unwrap()
    return graph


def both(make: Make, *, edge: Any = None, **modes: Any) -> Trace:
    """The trace of a move from a to b, both in the zone z."""
    graph = make("a", "b")
    graph.link("a", "b", id="e1", enforcement=edge).unwrap()
    graph.define_zone("z", ["a", "b"], **modes).unwrap()
    graph.set_cursor(["a"]).unwrap()
    return graph.explain_transition("b").unwrap()


def summary(trace: Trace) -> tuple[str, str, str]:
    return trace.decision, trace.enforcement_source, trace.effective_enforcement


def types(graph: Adaptogen, after: int = 0) -> list[str]:
    return [row.type for row in graph.store.read(GRAPH, after=after)]


def body(graph: Adaptogen, type: str) -> dict[str, Any]:
    """The body of the newest event of a type."""
    found: dict[str, Any] = [decode(row.body) for row in graph.store.read(GRAPH) if row.type == type][-1]
    return found


def mode(graph: Adaptogen, edge: str = "e1") -> tuple[str | None, str | None]:
    """The declared mode and the learned one."""
    found = graph.get_edge(edge)
    assert found is not None
    return found.enforcement, found.learned_enforcement


# ---------------------------------------------------------------------------------- guards


def test_v57_a_failed_guard_on_a_soft_edge_warns(make: Make) -> None:
    graph = guarded(make, "soft")
    outcome = graph.transition("b").unwrap()
    assert (outcome.applied, outcome.soft_warned) == (True, True)
    assert summary(outcome.trace) == ("warn", "edge", "soft")
    assert outcome.trace.guard == {"present": True, "passed": False, "reason": "vars.ok == true"}
    assert outcome.trace.reasons == ("guard failed: vars.ok == true",)
    assert types(graph, 4) == ["SoftViolation", "TransitionTaken"]
    assert body(graph, "TransitionTaken")["clean"] is False
    stat = graph.get_stat("edge", "e1")
    assert stat is not None
    assert (stat.soft_violations, stat.visits) == (1, 1)
    assert graph.cursor() == ["b"]


def test_v58_a_failed_guard_on_a_hard_edge_denies(make: Make) -> None:
    graph = guarded(make, "hard")
    outcome = graph.transition("b").unwrap()
    assert (outcome.applied, outcome.trace.code) == (False, "HardBlocked")
    assert types(graph, 4) == ["BlockedAttempt"]
    assert body(graph, "BlockedAttempt")["reason"] == "guard failed: vars.ok == true"
    stat = graph.get_stat("edge", "e1")
    assert stat is not None
    assert (stat.blocks, stat.visits) == (1, 0)
    assert graph.cursor() == ["a"]
    passed = graph.transition("b", vars=OK).unwrap()
    assert passed.applied
    assert summary(passed.trace) == ("allow", "none", "off")
    assert (passed.trace.guard, passed.trace.code) == ({"present": True, "passed": True}, None)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("soft", ("warn", "global", "soft")),
        ("hard", ("deny", "global", "hard")),
        ("off", ("allow", "none", "off")),
    ],
)
def test_v59_an_edge_without_a_mode_inherits(
    make: Make, default: str, expected: tuple[str, str, str]
) -> None:
    graph = guarded(make, None, defaultEnforcement=default)
    trace = graph.explain_transition("b").unwrap()
    assert summary(trace) == expected
    assert trace.reasons == ("guard failed: vars.ok == true",)


def test_a_guard_on_an_open_edge_leaves_a_note(make: Make) -> None:
    trace = guarded(make, "off").explain_transition("b").unwrap()
    assert summary(trace) == ("allow", "edge", "off")
    assert trace.reasons == ("guard failed: vars.ok == true",)


def test_v87_guards_read_payload_statistic_weight_and_kind(make: Make) -> None:
    graph = make("a", "c")
    graph.remember("a", payload={"k": 1})
    text = "from.k == 1 && stat.visits < 2 && edge.weight >= 1 && toKind == 'state'"
    graph.link("a", "c", guard=text).unwrap()
    assert [walk(graph, to="c").trace.decision for _ in range(3)] == ["allow", "allow", "warn"]


def test_a_guard_reads_ids_tags_and_the_edge(make: Make) -> None:
    graph = make("a", "b")
    graph.remember("b", tags=["ready"], kind="task")
    text = (
        "fromId == 'a' && toId == 'b' && toTags has 'ready' && tags has 'ready' && kind == toKind && fromKind == "
        "'state' && edge.id == 'e1' && edge.label == 'go' && payload == to && stat.emaReward == 0"
    )
    graph.link("a", "b", id="e1", label="go", guard=text, enforcement="hard").unwrap()
    assert walk(graph).applied


def test_v88_a_payload_cannot_make_a_guard_raise(make: Make) -> None:
    graph = make("a", "b")
    graph.remember("a", payload={"toString": 1, "valueOf": 1, "__class__": 2})
    graph.link("a", "b", guard="from > 1", enforcement="hard").unwrap()
    assert walk(graph).trace.decision == "deny"


@pytest.mark.parametrize("guard", ["vars.x >", "", "a = 1", 7, b"true", "x" * 2_001, "a..b"])
def test_a_guard_that_does_not_compile_is_refused(make: Make, guard: Any) -> None:
    graph = make("a", "b")
    assert code(graph.link("a", "b", guard=guard)) == "GuardParseError"
    assert graph.store.head().seq == 2


def test_an_upsert_validates_and_replaces_the_guard(make: Make) -> None:
    graph = guarded(make, "hard")
    assert code(graph.link("a", "b", id="e1", guard="(", upsert=True)) == "GuardParseError"
    assert walk(graph).trace.decision == "deny"
    edge = graph.link("a", "b", id="e1", guard="true", enforcement="hard", upsert=True).unwrap()
    assert edge.guard == "true"
    assert walk(graph).applied


BIG = "vars.a == vars.b"
BIG_VARS = {"a": [0] * 6_000, "b": [0] * 6_000}


def test_a_guard_over_its_budget_denies_where_it_would_warn(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1", guard=BIG, enforcement="soft").unwrap()
    graph.set_cursor(["a"])
    trace = graph.explain_transition("b", vars=BIG_VARS).unwrap()
    assert summary(trace) == ("deny", "edge", "hard")
    assert trace.guard["reason"] == "guard_budget"
    assert trace.reasons == (f"guard_budget: {BIG}",)


def test_one_verb_has_one_budget_for_all_its_guards(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="first", guard="vars.a == vars.b", enforcement="hard").unwrap()
    with graph.unit():
        for number in range(250):
            graph.link("a", "b", id=f"e{number}", guard="vars.a == vars.b", enforcement="hard")
    graph.set_cursor(["a"])
    some = {"a": [0] * 2_200, "b": [0] * 2_200}
    one = compile_guard("vars.a == vars.b").evaluate({"vars": some})
    legal = len(graph.legal_moves(vars=some))
    assert one.passed
    assert legal == VERB_BUDGET // one.units < 251
    assert len(denied(graph, "developer", some)) == 251 - legal
    assert graph.transition(edge_id="e249", vars=some).unwrap().applied


def test_a_stored_guard_that_no_longer_compiles_denies(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphstate import GuardError, guards

    def refuse(text: str) -> None:
        raise GuardError("another grammar")

    graph = guarded(make, "soft")
    monkeypatch.setattr(guards, "compile_guard", refuse)
    trace = graph.explain_transition("b", vars=OK).unwrap()
    assert trace.decision == "deny"
    assert trace.reasons == ("guard does not compile: vars.ok == true",)


def test_vars_reach_every_verb_that_decides(make: Make) -> None:
    graph = guarded(make, "hard")
    assert (graph.legal_moves(), graph.suggest()) == ([], [])
    assert [move.edge_id for move in graph.legal_moves(vars=OK)] == ["e1"]
    assert [move.edge_id for move in graph.suggest(vars=OK)] == ["e1"]
    assert graph.explain_transition("b", vars=OK).unwrap().decision == "allow"
    step = graph.step(vars=OK).unwrap()
    assert (step.applied, step.done) == (True, True)


# ----------------------------------------------------------------------------------- zones


def test_v60_leaving_and_entering_a_hard_zone_is_denied(make: Make) -> None:
    graph = fenced(make)
    trace = graph.transition("out").unwrap().trace
    assert summary(trace) == ("deny", "zone", "hard")
    assert trace.boundary == {"crossing": True, "gated": False, "zone_from": "z"}
    assert trace.reasons == ("zone boundary crossing z->?",)
    graph.link("out", "in", id="back").unwrap()
    graph.set_cursor(["out"])
    trace = graph.transition("in").unwrap().trace
    assert trace.boundary == {"crossing": True, "gated": False, "zone_to": "z"}
    assert trace.reasons == ("zone boundary crossing ?->z",)


def test_v61_an_open_edge_is_the_gate_and_named_as_the_source(make: Make) -> None:
    trace = fenced(make, edge="off").transition("out").unwrap().trace
    assert summary(trace) == ("allow", "edge", "off")
    assert trace.boundary == {"crossing": True, "gated": True, "zone_from": "z"}
    assert trace.reasons == ("zone boundary crossing z->? (gated)",)


@pytest.mark.parametrize(
    ("edge", "boundary", "expected"),
    [("hard", "soft", ("warn", "zone", "soft")), ("soft", "hard", ("deny", "zone", "hard"))],
)
def test_v62_a_mode_of_an_edge_does_not_change_a_zone(
    make: Make, edge: str, boundary: str, expected: tuple[str, str, str]
) -> None:
    graph = fenced(make, edge=edge, boundary=boundary)
    assert summary(graph.explain_transition("out").unwrap()) == expected


@pytest.mark.parametrize(("edge", "source"), [("soft", "zone"), ("hard", "edge")])
def test_v63_the_strictest_objection_decides_and_the_guard_on_a_tie(
    make: Make, edge: str, source: str
) -> None:
    graph = fenced(make)
    graph.link("in", "out", id="e1", guard="false", enforcement=edge, upsert=True)  # type: ignore[arg-type]
    trace = graph.explain_transition("out").unwrap()
    assert summary(trace) == ("deny", source, "hard")
    assert trace.reasons == ("guard failed: false", "zone boundary crossing z->?")


def test_v64_the_policy_inside_a_zone(make: Make) -> None:
    assert summary(both(make)) == ("warn", "zone", "soft")
    assert both(make).reasons == ("intra-zone policy soft",)
    assert summary(both(make, intra="hard")) == ("deny", "zone", "hard")
    lifted = both(make, intra="hard", edge="off")
    assert (summary(lifted), lifted.reasons) == (("allow", "edge", "off"), ("intra-zone policy hard",))
    assert both(make, intra="off") == Trace()


def test_v65_every_zone_left_or_entered_has_its_say(make: Make) -> None:
    graph = fenced(make, boundary="soft")
    graph.define_zone("y", ["in"], boundary="hard")
    assert graph.explain_transition("out").unwrap().decision == "deny"
    graph.define_zone("y", ["in"], boundary="off")
    graph.define_zone("zb", ["out"], boundary="soft")
    graph.delete_zone("z")
    trace = graph.explain_transition("out").unwrap()
    assert (trace.decision, trace.reasons) == ("warn", ("zone boundary crossing y->zb",))


def test_v66_a_nested_zone_does_not_open_the_outer_one(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b")
    graph.define_zone("big", ["a", "b"], intra="hard")
    graph.define_zone("small", ["a"], boundary="off")
    graph.set_cursor(["a"])
    trace = graph.explain_transition("b").unwrap()
    assert summary(trace) == ("deny", "zone", "hard")
    assert trace.reasons == ("zone boundary crossing small->?", "intra-zone policy hard")


# -------------------------------------------------------------------- hardening and relaxing


def test_v67_a_soft_guard_hardens_at_the_threshold(make: Make) -> None:
    graph = guarded(make, "soft", escalationThreshold=2)
    first, second, third = walk(graph), walk(graph), walk(graph)
    assert (first.applied, first.trace.escalation["promoted"]) == (True, False)
    assert (second.applied, third.applied) == (True, False)
    assert second.trace.escalation == {"soft_violations": 1, "promoted": True, "rules": ["edge:e1"]}
    assert (mode(graph), summary(third.trace)) == (("soft", "hard"), ("deny", "edge", "hard"))
    change = {"scope": "edge", "id": "e1", "mode": "hard", "learned": True}
    assert body(graph, "EnforcementChanged") == change
    assert types(graph).count("EnforcementChanged") == 1
    assert graph.verify_integrity(deep=True).ok


def test_v67_a_threshold_of_0_hardens_nothing(make: Make) -> None:
    graph = guarded(make, "soft", escalationThreshold=0)
    assert all(walk(graph).applied for _ in range(5))
    assert mode(graph) == ("soft", None)


def test_the_dry_run_says_that_a_move_would_harden(make: Make) -> None:
    graph = guarded(make, "soft", escalationThreshold=1)
    assert graph.explain_transition("b").unwrap().escalation["promoted"] is True
    assert mode(graph) == ("soft", None)


def test_v68_the_zone_that_was_violated_hardens_and_says_so_once(make: Make) -> None:
    graph = fenced(make, boundary="soft")
    applied = []
    for _ in range(5):
        graph.set_cursor(["in"])
        applied.append(graph.transition("out").unwrap().applied)
    assert applied == [True, True, True, False, False]
    (zone,) = graph.zones()
    assert (zone.boundary, zone.learned_boundary, mode(graph)) == ("soft", "hard", (None, None))
    assert types(graph).count("EnforcementChanged") == 1
    assert body(graph, "EnforcementChanged")["scope"] == "zone-boundary"
    assert graph.verify_integrity(deep=True).ok


def test_d19_the_inside_of_a_zone_hardens_by_itself(make: Make) -> None:
    graph = make("a", "b")
    graph.set_tunable("escalationThreshold", 2)
    graph.link("a", "b", id="e1")
    graph.define_zone("z", ["a", "b"])
    assert [walk(graph).applied for _ in range(3)] == [True, True, False]
    (zone,) = graph.zones()
    assert (zone.intra, zone.learned_intra, zone.learned_boundary) == ("soft", "hard", None)


def test_v69_what_the_author_set_never_relaxes(make: Make) -> None:
    graph = make("a", "b")
    graph.set_tunable("demotionCleanRuns", 2)
    graph.link("a", "b", id="e1", enforcement="hard")
    assert all(walk(graph).applied for _ in range(4))
    assert mode(graph) == ("hard", None)


def hardened(make: Make, **tunables: Any) -> Adaptogen:
    graph = guarded(make, "soft", escalationThreshold=1, **tunables)
    walk(graph)
    assert mode(graph) == ("soft", "hard")
    return graph


def test_v70_a_learned_hardening_relaxes_after_clean_moves_in_a_row(make: Make) -> None:
    graph = hardened(make, demotionCleanRuns=2)
    seen = []
    for ok in (True, False, True, True):
        seen.append((walk(graph, ok=ok).trace.decision, mode(graph)[1]))
    assert seen == [("allow", "hard"), ("deny", "hard"), ("allow", "hard"), ("allow", None)]
    change = {"scope": "edge", "id": "e1", "mode": None, "learned": True}
    assert body(graph, "EnforcementChanged") == change
    assert graph.verify_integrity(deep=True).ok


def test_v70_with_0_nothing_relaxes(make: Make) -> None:
    graph = hardened(make, demotionCleanRuns=0)
    assert all(walk(graph, ok=True).applied for _ in range(9))
    assert mode(graph) == ("soft", "hard")


def test_v71_approved_moves_do_not_open_a_hard_edge(make: Make) -> None:
    graph = guarded(make, "hard")
    assert all(walk(graph, ok=True).applied for _ in range(6))
    assert walk(graph).applied is False


def test_v72_clean_moves_from_before_do_not_count(make: Make) -> None:
    graph = guarded(make, "soft", escalationThreshold=1, demotionCleanRuns=3)
    for _ in range(6):
        walk(graph, ok=True)
    walk(graph)
    assert [mode(graph)[1] for _ in range(3) if walk(graph, ok=True)] == ["hard", "hard", None]
    graph.set_enforcement("e1", "hard").unwrap()
    walk(graph, ok=True)
    assert mode(graph) == ("hard", None)


def test_v73_violations_from_before_do_not_count(make: Make) -> None:
    graph = guarded(make, "soft", escalationThreshold=2, demotionCleanRuns=2)
    seen = [(walk(graph, ok=ok).trace.decision, mode(graph)[1]) for ok in (False, False, True, True, False)]
    assert seen == [("warn", None), ("warn", "hard"), ("allow", "hard"), ("allow", None), ("warn", None)]
    stat = graph.get_stat("edge", "e1")
    assert stat is not None
    assert stat.soft_violations == 3


def test_d8_setting_a_mode_resets_what_was_learned_and_counted(make: Make) -> None:
    graph = guarded(make, "soft", escalationThreshold=2)
    walk(graph)
    graph.set_enforcement("e1", "soft").unwrap()
    assert walk(graph).trace.escalation == {"soft_violations": 0, "promoted": False}
    walk(graph)
    assert mode(graph) == ("soft", "hard")
    assert graph.set_enforcement("e1", None, reason="as all others").unwrap().enforcement is None
    assert mode(graph) == (None, None)
    assert body(graph, "EnforcementChanged") == {
        "scope": "edge", "id": "e1", "mode": None, "reason": "as all others",
    }  # fmt: skip


def test_d8_replacing_an_edge_as_it_was_keeps_what_was_learned(make: Make) -> None:
    graph = hardened(make)
    graph.link("a", "b", id="e1", guard="vars.ok == true", enforcement="soft", weight=3, upsert=True)
    assert mode(graph) == ("soft", "hard")
    graph.link("a", "b", id="e1", guard="vars.ok", enforcement="soft", upsert=True)
    assert mode(graph) == ("soft", None)


def test_a_zone_relaxes_after_clean_moves_that_it_could_have_objected_to(make: Make) -> None:
    graph = fenced(make, boundary="soft", intra="off")
    graph.set_tunable("escalationThreshold", 1)
    graph.set_tunable("demotionCleanRuns", 2)
    graph.link("in", "in", id="loop")
    graph.transition("out").unwrap()
    graph.set_cursor(["in"])
    for _ in range(2):
        assert graph.transition("out").unwrap().applied is False
        assert graph.transition("in").unwrap().applied
    assert graph.zones()[0].learned_boundary == "hard"
    graph.transition("in")
    assert graph.zones()[0].learned_boundary is None
    assert graph.transition("out").unwrap().soft_warned
    assert graph.verify_integrity(deep=True).ok


def test_d36_a_move_and_what_it_teaches_are_one_transaction(make: Make) -> None:
    graph = guarded(make, "soft", escalationThreshold=1)
    before = graph.store.head().seq
    with pytest.raises(KeyError), graph.unit():
        graph.transition("b")
        raise KeyError
    assert graph.store.head().seq == before
    assert mode(graph) == ("soft", None)
    graph.transition("b").unwrap()
    assert types(graph, before) == ["SoftViolation", "TransitionTaken", "EnforcementChanged"]


# ------------------------------------------------------------------------- the rest of moving


def test_v77_a_teleport_is_recorded_with_who_and_why(make: Make) -> None:
    graph = fenced(make)
    model = graph.as_actor("robot", trust="model")
    model.set_cursor(["in"]).unwrap()
    model.set_cursor(["out"], reason="stuck").unwrap()
    row = list(graph.store.read(GRAPH))[-1]
    assert (row.type, row.actor, row.trust) == ("CursorMoved", "robot", "model")
    assert decode(row.body) == {"set": ["out"], "reason": "stuck"}


def test_v78_modes_are_words_from_a_list(make: Make) -> None:
    graph = guarded(make, "soft")
    before = graph.store.head()
    for bad in ("Hard", "banana", "", 7, True):
        assert code(graph.define_zone("z", ["a"], boundary=bad)) == "InvalidInput"  # type: ignore[arg-type]
        assert code(graph.define_zone("z", ["a"], intra=bad)) == "InvalidInput"  # type: ignore[arg-type]
        assert code(graph.set_enforcement("e1", bad)) == "InvalidInput"  # type: ignore[arg-type]
        assert code(graph.link("a", "b", enforcement=bad)) == "InvalidInput"  # type: ignore[arg-type]
    assert code(graph.set_enforcement("e9", "hard")) == "NotFound"
    assert graph.store.head() == before


def test_v79_legal_moves_leave_denied_ones_out_and_blocked_tells_why(make: Make) -> None:
    graph = guarded(make, "hard")
    graph.link("a", "a", id="loop")
    assert [move.edge_id for move in graph.legal_moves()] == ["loop"]
    (blocked,) = denied(graph, "developer")
    assert (blocked.edge_id, blocked.from_, blocked.to) == ("e1", "a", "b")
    assert blocked.reasons == ("guard failed: vars.ok == true",)
    assert denied(graph, "developer", OK) == []


def test_d10_a_head_on_an_archived_node_does_not_move(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1")
    graph.set_cursor(["a"])
    graph.archive("a")
    assert (graph.legal_moves(), graph.suggest()) == ([], [])
    before = graph.store.head()
    for refused in (graph.transition("b"), graph.transition(edge_id="e1"), graph.explain_transition("b")):
        assert code(refused) == "IllegalTransition"
    assert isinstance(graph.transition("b"), Fail)
    assert "a (archived)" in graph.transition("b").message  # type: ignore[union-attr]
    assert code(graph.step()) == "NoMoves"
    assert graph.store.head() == before


def test_d18_the_caller_says_which_head_moves(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "c", id="ac")
    graph.link("b", "c", id="bc")
    graph.set_cursor(["a", "b"])
    assert graph.transition("c", head="b").unwrap().edge_id == "bc"
    assert graph.cursor() == ["a", "c"]
    assert code(graph.transition("c", head="b")) == "IllegalTransition"
    assert code(graph.transition("c", head="no node")) == "InvalidInput"
    assert graph.explain_transition("c", head="a").unwrap().decision == "allow"


def test_a_read_question_about_vars_is_refused_like_a_verb(make: Make) -> None:
    graph = guarded(make)
    for bad in ([], [1], "x", 0, 7):
        with pytest.raises(VerbFailed, match="vars must be an object"):
            graph.suggest(vars=bad)  # type: ignore[arg-type]
