"""What holds for every decision about a move, whatever the zones, the modes and the guard."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from graphstate import Edge
from graphstate.policy import (
    ALLOWED,
    Counts,
    Decision,
    Fence,
    GuardReport,
    Rule,
    crosses,
    decide,
    escalation,
    settled,
)
from tests.strategies import MODES, fences, governed_edges, guard_reports

STRICTNESS = {"off": 0, "soft": 1, "hard": 2}
RANK = {"allow": 0, "warn": 1, "deny": 2}


@st.composite
def situations(draw: st.DrawFn) -> dict[str, Any]:
    """All that a decision depends on; both nodes in some of six zones."""
    zones = draw(fences())
    some = st.lists(st.sampled_from(zones), max_size=4, unique_by=lambda zone: zone.name)
    return {
        "edge": draw(governed_edges()),
        "guard": draw(guard_reports()),
        "source": draw(some),
        "target": draw(some),
        "default": draw(st.sampled_from(MODES)),
        "locked": draw(st.booleans()),
    }


def made(situation: dict[str, Any], **changed: Any) -> Decision:
    given_ = situation | changed
    edge, guard = given_.pop("edge"), given_.pop("guard")
    return decide(edge, guard, given_.pop("source"), given_.pop("target"), **given_)


def expected_strictness(
    edge: Edge,
    guard: GuardReport | None,
    source: list[Fence],
    target: list[Fence],
    default: str,
    locked: bool,
) -> int:
    """The strictest of all objections, said as plainly as possible."""
    worst = 0
    if guard is not None and not guard.passed:
        mode = STRICTNESS[edge.learned_enforcement or edge.enforcement or default]
        worst = 2 if guard.problem and mode == 1 else mode
    for zone in {zone.name: zone for zone in (*source, *target)}.values():
        if zone in source and zone in target:
            mode = STRICTNESS[zone.learned_intra or zone.intra]
        else:
            mode = STRICTNESS[zone.learned_boundary or zone.boundary]
        if edge.enforcement == "off" and (locked or not zone.locked):
            mode = 0
        worst = max(worst, mode)
    return worst


@given(situations())
def test_the_strictest_objection_decides(situation: dict[str, Any]) -> None:
    decision = made(situation).trace
    assert (
        RANK[decision.decision]
        == STRICTNESS[decision.effective_enforcement]
        == expected_strictness(**situation)
    )
    assert (decision.code == "HardBlocked") == (decision.decision == "deny")
    assert (decision.enforcement_source == "none") <= (decision.decision == "allow")


@given(situations(), st.randoms(use_true_random=False))
def test_the_order_of_zones_means_nothing(situation: dict[str, Any], random: Any) -> None:
    shuffled = {key: random.sample(situation[key], len(situation[key])) for key in ("source", "target")}
    assert made(situation, **shuffled) == made(situation)


@given(situations(), fences(), st.sampled_from(["source", "target", "both"]))
def test_one_more_zone_never_softens(situation: dict[str, Any], more: list[Fence], where: str) -> None:
    zone = more[0]
    kept = {key: [z for z in situation[key] if z.name != zone.name] for key in ("source", "target")}
    added = {key: [*kept[key], zone] if where in (key, "both") else kept[key] for key in kept}
    assert RANK[made(situation, **added).trace.decision] >= RANK[made(situation, **kept).trace.decision]


@given(situations())
def test_only_an_open_edge_lifts_anything(situation: dict[str, Any]) -> None:
    gate = made(situation).trace
    closed = Edge(id="e1", src="a", dst="b", enforcement="hard", learned_enforcement=None)
    if situation["edge"].enforcement != "off":
        soft, hard = (
            made(situation, edge=Edge(id="e1", src="a", dst="b", enforcement=m), guard=None)
            for m in ("soft", "hard")
        )
        assert soft.trace == hard.trace
    elif any(zone.locked for zone in situation["source"] + situation["target"]) and not situation["locked"]:
        assert gate.boundary["gated"] is False or not any(
            zone.locked
            for zone in situation["source"] + situation["target"]
            if (zone in situation["source"]) != (zone in situation["target"])
        )
    assert (
        RANK[made(situation, edge=closed, guard=None).trace.decision]
        >= RANK[made(situation, guard=None).trace.decision]
    )


@given(situations())
def test_what_a_move_teaches_concerns_rules_that_had_a_say(situation: dict[str, Any]) -> None:
    decision = made(situation)
    names = {zone.name for zone in situation["source"] + situation["target"] if not zone.locked}
    for rule in (*decision.objecting, *decision.clean):
        assert rule.id in (names if rule.scope != "edge" else {"e1"})
    assert not set(decision.objecting) & set(decision.clean)
    if decision.trace.decision != "allow":
        assert decision.clean == ()
    elif decision.basis is None:
        assert decision == ALLOWED


@given(situations(), st.integers(0, 4), st.integers(0, 5), st.integers(0, 4))
@example(
    {"edge": Edge(id="e1", src="a", dst="b"), "guard": GuardReport("g", False), "source": [], "target": [],
     "default": "soft", "locked": False}, 1, 2, 2,
)  # fmt: skip
def test_hardening_and_relaxing_follow_the_counts(
    situation: dict[str, Any], violations: int, threshold: int, runs: int
) -> None:
    decision = made(situation)
    counts = {rule: Counts(violations, violations) for rule in (*decision.objecting, *decision.clean)}
    again, hardened = escalation(decision, counts, threshold)
    due = threshold > 0 and violations + 1 >= threshold
    assert hardened == (decision.objecting if due and decision.trace.decision == "warn" else ())
    assert again.trace.escalation["promoted"] == bool(hardened)
    assert set(settled(decision, counts, runs)) == (
        set(decision.clean) if 0 < runs <= violations + 1 else set()
    )
    assert all(isinstance(rule, Rule) for rule in hardened)


@given(st.lists(st.booleans(), max_size=4), st.lists(st.booleans(), max_size=4))
def test_a_cursor_crosses_a_zone_when_a_side_appears_that_it_could_not_reach(
    before: list[bool], after: list[bool]
) -> None:
    crossing = crosses(before, after)
    assert crosses(before, before) is False
    assert crossing == crosses(set(before), set(after))
    if any(before) != any(after):
        assert crossing
    if before and all(before) and not all(after):
        assert crossing
    if not any(before) and not any(after):
        assert not crossing
