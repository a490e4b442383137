"""Vectors 11 to 40 and 66 to 71: what reinforcing, suppressing and merging do to one memory.

The graph is asked, so that verbs, events and tables are what is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from graphstate import Adaptogen, ErrorCode, Fail
from graphstate.activation.decay import FLAT, Curves
from graphstate.activation.record import MAX_LENSES, Activation, Lens
from tests.graphstate.activation.conftest import D, H, Hands, Remember, near

CURVES = Curves()


def state(graph: Adaptogen, id: str = "a") -> Any:
    found = graph.activation(id)
    assert found is not None
    return found


def shown(graph: Adaptogen, id: str = "a") -> tuple[float, float, int]:
    now = state(graph, id)
    return near(now.score), near(now.importance), now.reinforcement_count


def raw(graph: Adaptogen, id: str = "a") -> Activation:
    found = graph.store.projection.activations.find(id)
    assert found is not None
    return found.record


def test_v11_no_anchor_lies_after_the_moment_at_which_its_event_was_written(
    graph_of: Remember, clock: Hands
) -> None:
    graph = graph_of("a")
    clock.ms = 365 * D
    body = graph.store.projection.activations.folds["memory.reinforced"]
    row = graph.store.read("graph")
    first = next(iter(row))
    body(first._replace(at=10), {"id": "a", "amount": 1, "at": 365 * D})
    assert raw(graph).anchor == 10
    assert raw(graph).decayed(10 + D, FLAT).score == 0.5


def test_v13_the_first_reinforcement(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    clock.ms = 1000
    graph.reinforce("a", 0.3).unwrap()
    assert raw(graph) == Activation(
        score=0.3, importance=near(0.015), anchor=1000, reinforcement_count=1, last_reinforced_at=1000
    )


def test_v14_another_one_adds(graph_of: Remember) -> None:
    graph = graph_of("a")
    graph.reinforce("a", 0.2).unwrap()
    assert shown(graph) == (0.2, 0.01, 1)
    graph.reinforce("a", 0.3).unwrap()
    assert shown(graph) == (0.5, 0.025, 2)


def test_v14_importance_grows_by_the_gain() -> None:
    record = Activation(score=0.2, importance=0.1, reinforcement_count=1).reinforced(0.3, 0, CURVES, FLAT)
    assert (record.score, record.importance, record.reinforcement_count) == (0.5, near(0.115), 2)


def test_v15_a_sum_beyond_1_reads_as_1() -> None:
    record = Activation(score=0.9, importance=0.99, reinforcement_count=4).reinforced(0.5, 0, CURVES, FLAT)
    view = record.decayed(0, FLAT)
    assert (view.score, view.importance, record.reinforcement_count) == (1, 1, 5)


def test_v16_a_negative_amount_takes_away_and_counts() -> None:
    record = Activation(score=0.5, importance=0.1, reinforcement_count=3).reinforced(-0.3, 0, CURVES, FLAT)
    assert (record.score, record.importance, record.reinforcement_count) == (0.2, near(0.085), 4)
    view = (record := record.reinforced(-2, 0, CURVES, FLAT)).decayed(0, FLAT)
    assert (view.score, view.importance, record.reinforcement_count) == (0, 0, 5)
    record = record.reinforced(0, D, CURVES, FLAT)
    assert (record.reinforcement_count, record.anchor) == (6, D)


def test_v17_what_was_there_has_faded_when_something_is_added(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    graph.set_tunable("importanceGain", 0).unwrap()
    graph.reinforce("a", 0.8).unwrap()
    graph.set_tunable("importanceGain", 0.05).unwrap()
    clock.ms = D
    graph.reinforce("a", 0.1).unwrap()
    assert shown(graph) == (0.5, 0.005, 2)
    assert raw(graph).anchor == D


def test_v18_a_sequence_over_thirty_hours(graph_of: Remember, clock: Hands) -> None:
    graph, seen = graph_of("a"), []
    for at, amount in ((0, 0.2), (6 * H, 0.3), (30 * H, 0.5)):
        clock.ms = at
        seen.append(graph.reinforce("a", amount).unwrap())
    assert [s.score for s in seen] == near([0.2, 0.468179283, 0.734089642], abs=1e-9)
    assert [s.importance for s in seen] == near([0.01, 0.024942404, 0.049372719], abs=1e-9)
    assert seen[-1].reinforcement_count == 3


def test_v19_ten_in_ten_hours_are_less_than_ten_at_once(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    for hour in range(10):
        clock.ms = hour * H
        graph.reinforce("a", 0.1).unwrap()
    assert state(graph).score == near(0.881150566, abs=1e-9)


def test_v20_a_context_is_reinforced_beside_the_whole(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    clock.ms = 1000
    graph.reinforce("a", 0.3, context="x").unwrap()
    assert state(graph).score == 0.3
    assert raw(graph).contexts == {"x": Lens(0.3, 1000)}


def test_v21_other_contexts_stay(graph_of: Remember) -> None:
    record = Activation(score=0.2, contexts={"x": Lens(0.4), "y": Lens(0.1)})
    view = record.reinforced(0.2, 0, CURVES, FLAT, context="x").decayed(0, FLAT)
    assert view.score == 0.4
    assert view.contexts == {"x": near(0.6), "y": 0.1}


def test_v22_and_v23_a_context_fades_once_whatever_happens_elsewhere() -> None:
    record = Activation(score=0.2, reinforcement_count=1, contexts={"x": Lens(0.8)})
    record = record.reinforced(0.1, D, CURVES, FLAT)
    view = record.decayed(D, FLAT)
    assert (view.score, record.reinforcement_count, view.contexts) == (0.2, 2, {"x": 0.4})
    assert record.decayed(2 * D, FLAT).contexts == {"x": 0.2}


@pytest.mark.parametrize("amount", [math.nan, math.inf, -math.inf, True, "1", None, 1e7])
def test_v24_an_amount_that_is_no_number_is_refused_even_for_an_unknown_id(
    graph_of: Remember, amount: Any
) -> None:
    graph = graph_of("a")
    before = graph.head()
    for verb in (graph.reinforce, graph.suppress):
        for node in ("a", "unknown"):
            refused = verb(node, amount)
            assert isinstance(refused, Fail)
            assert refused.code is ErrorCode.INVALID_INPUT
        missing = verb("unknown", 0.1)
        assert isinstance(missing, Fail)
        assert missing.code is ErrorCode.NOT_FOUND
        assert missing.hint
    assert graph.head() == before


def test_v25_touching_a_durable_memory_does_not_weaken_it(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a", memory_class="entity")
    graph.reinforce("a", 0.8).unwrap()
    clock.ms = D
    assert graph.effective("a") == near(0.781727975, abs=1e-9)
    assert graph.reinforce("a", 0.1).unwrap().effective == near(0.881727975, abs=1e-9)


def test_v26_suppressing_what_was_never_reinforced(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    clock.ms = 1000
    graph.suppress("a", 0.5).unwrap()
    assert raw(graph) == Activation(anchor=1000, inhibition=0.5, inhibited_at=1000)


def test_v27_suppressions_add_up_where_they_have_faded_to(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    graph.suppress("a", 0.8).unwrap()
    clock.ms = 12 * H
    assert graph.suppress("a", 0.1).unwrap().inhibition == near(0.5)
    assert raw(graph).inhibited_at == 12 * H


def test_v28_a_negative_amount_releases_and_the_record_stays(graph_of: Remember) -> None:
    graph = graph_of("a")
    graph.suppress("a", 0.6).unwrap()
    assert graph.suppress("a", -0.4).unwrap().inhibition == near(0.2)
    assert graph.suppress("a", -1).unwrap().inhibition == 0
    assert raw(graph).inhibited_at == 0


def test_v29_a_suppression_leaves_the_score(graph_of: Remember) -> None:
    graph = graph_of("a")
    graph.reinforce("a", 0.8).unwrap()
    suppressed = graph.suppress("a", 0.5).unwrap()
    assert (suppressed.effective, suppressed.score) == (near(0.3), 0.8)
    assert graph.suppress("a", -0.5).unwrap().effective == 0.8


def test_v30_suppressing_fades_nothing_twice(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    graph.reinforce("a", 0.8).unwrap()
    clock.ms = D
    suppressed = graph.suppress("a", 0.1).unwrap()
    assert (suppressed.score, suppressed.effective) == (0.4, near(0.3))
    assert graph.effective("a", at=36 * H) == near(0.232842712, abs=1e-9)


def test_v31_reinforcing_fades_no_suppression_twice(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    graph.suppress("a", 0.8).unwrap()
    clock.ms = 12 * H
    assert graph.reinforce("a", 0.1).unwrap().inhibition == 0.4


def test_v32_score_and_suppression_fade_by_their_own_curves(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    graph.reinforce("a", 0.8).unwrap()
    graph.suppress("a", 0.5).unwrap()
    clock.ms = 12 * H
    assert graph.effective("a") == near(0.315685425, abs=1e-9)


def test_v33_a_context_is_a_lens_and_never_falls_back(graph_of: Remember) -> None:
    graph = graph_of("a")
    graph.reinforce("a", 0.2).unwrap()
    graph.reinforce("a", 0.3, context="x").unwrap()
    assert [
        graph.effective("a"),
        graph.effective("a", context="x"),
        graph.effective("a", context="y"),
    ] == near([0.5, 0.3, 0])
    assert state(graph).contexts == {"x": 0.3}


def test_v34_attention_adds_up_to_a_reinforcement(graph_of: Remember) -> None:
    graph = graph_of("a")
    graph.reinforce("a", 0.5).unwrap()
    head = graph.head()
    assert graph.bump_attention("a", 0.02).unwrap().attention == 0.02
    assert graph.head() == head, "what was noticed only is in no log"
    assert (graph.effective("a"), state(graph).score, state(graph).attention) == (near(0.52), 0.5, 0.02)
    promoted = graph.bump_attention("a", 0.05).unwrap()
    assert (promoted.promoted, promoted.attention) == (True, 0)
    assert (state(graph).score, state(graph).attention, state(graph).reinforcement_count) == (
        near(0.57),
        0,
        2,
    )
    (event,) = graph.history(type="memory.reinforced", limit=1)
    assert event.payload == {"id": "a", "amount": near(0.07), "at": 0, "reason": "attention"}


def test_v35_attention_has_a_floor_and_unknown_ids_are_refused(graph_of: Remember) -> None:
    graph = graph_of("a")
    assert graph.bump_attention("a", -0.3).unwrap().attention == 0
    refused = graph.bump_attention("unknown", 0.9)
    assert isinstance(refused, Fail)
    assert refused.code is ErrorCode.NOT_FOUND
    for amount in (math.nan, math.inf, 2, True, "x"):
        poisoned = graph.bump_attention("a", amount)  # type: ignore[arg-type]
        assert isinstance(poisoned, Fail)
        assert poisoned.code is ErrorCode.INVALID_INPUT
    assert graph.activation("a") is None


def test_v36_effective_is_cut_at_both_ends(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    graph.reinforce("a", 0.2).unwrap()
    graph.suppress("a", 0.9).unwrap()
    graph.reinforce("b", 0.98).unwrap()
    graph.bump_attention("b", 0.04).unwrap()
    assert (graph.effective("a"), graph.effective("b")) == (0, 1)


@pytest.mark.parametrize(
    ("memory_class", "hours", "most", "at"),
    [(None, 7.733, 0.159999, 31.7), ("semantic", 4.167, 0.596056, 53.3), ("entity", 3.933, 0.731156, 76.0)],
)
def test_v37_and_v38_a_suppression_fades_and_what_it_held_back_comes_again(
    graph_of: Remember, memory_class: str | None, hours: float, most: float, at: float
) -> None:
    graph = graph_of("a", memory_class=memory_class)
    graph.reinforce("a", 0.8).unwrap()
    graph.suppress("a", 1).unwrap()
    assert graph.effective("a", at=int((hours - 0.01) * H)) == 0
    assert graph.effective("a", at=int((hours + 0.01) * H)) > 0
    times = [round(tenth * H / 10) for tenth in range(2_000)]
    best = max(times, key=lambda now: graph.effective("a", at=now))
    assert graph.effective("a", at=best) == near(most, abs=1e-5)
    assert best / H == near(at, abs=0.3)


@pytest.mark.parametrize("hours", [0, 4.2, 8, 53.3, 24 * 30, 24 * 365])
def test_v39_what_was_superseded_never_comes_back(graph_of: Remember, clock: Hands, hours: float) -> None:
    graph = graph_of("old", "new", memory_class="semantic")
    graph.reinforce("old", 0.8).unwrap()
    graph.reinforce("new", 0.1).unwrap()
    graph.supersede("new", "old").unwrap()
    clock.ms = int(hours * H)
    assert [ranked.id for ranked in graph.top_activated()] == ["new"]
    assert graph.effective("old") == 0


def test_v40_there_is_no_sweep_and_moving_anchors_changes_no_read() -> None:
    record = Activation(score=0.8, contexts={"x": Lens(0.8)}, inhibition=0.5, inhibited_at=0)
    for now in (1, H, 5 * D):
        swept = record.rebased(now, FLAT)
        for later in (now, now + H, now + 40 * D):
            a, b = record.decayed(later, FLAT), swept.decayed(later, FLAT)
            assert (a.score, a.importance, a.inhibition) == near(
                (b.score, b.importance, b.inhibition), abs=1e-12
            )
            assert a.contexts == near(b.contexts, abs=1e-12)


def test_v66_whole_records_are_merged_by_the_larger_value() -> None:
    ours = Activation(score=0.6, importance=0.3, anchor=-D, reinforcement_count=2)
    theirs = Activation(score=0.9, importance=0.1, reinforcement_count=1)
    merged = ours.merged(theirs, 0, FLAT)
    assert (merged.score, merged.importance) == (0.9, near(0.293147991, abs=1e-9))
    assert (merged.reinforcement_count, merged.anchor) == (2, 0)


def test_v67_merging_fades_first_keeps_every_context_and_again_changes_nothing() -> None:
    ours = Activation(inhibition=0.8, inhibited_at=-12 * H, contexts={"x": Lens(0.7)})
    theirs = Activation(inhibition=0.3, inhibited_at=0, contexts={"x": Lens(0.4), "y": Lens(0.2)})
    merged = ours.merged(theirs, 0, FLAT)
    assert merged.inhibition == 0.4
    assert {name: lens.score for name, lens in merged.contexts.items()} == {"x": 0.7, "y": 0.2}
    assert merged.merged(theirs, 0, FLAT) == merged
    plain = Activation(score=1).merged(Activation(), 0, FLAT)
    assert (plain.inhibited_at, plain.contexts) == (None, {})


def test_v68_the_order_of_amounts_does_not_matter(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    for amount in (0.9, 0.3, -0.5):
        graph.reinforce("a", amount).unwrap()
    for amount in (0.9, -0.5, 0.3):
        graph.reinforce("b", amount).unwrap()
    assert (state(graph, "a").score, state(graph, "b").score) == near((0.7, 0.7))


def test_v69_what_two_replicas_did_adds_up(graph_of: Remember) -> None:
    graph = graph_of("a")
    branch = graph.branch(":memory:").unwrap()
    graph.reinforce("a", 0.2).unwrap()
    branch.reinforce("a", 0.3).unwrap()
    graph.merge(branch).unwrap()
    assert state(graph).score == near(0.5)
    assert graph.merge(branch).unwrap().merged == 0
    assert state(graph).score == near(0.5)
    branch.discard()


def test_v70_small_amounts_are_never_lost(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    branch = graph.branch(":memory:").unwrap()
    for _ in range(5):
        branch.reinforce("a", 0.04).unwrap()
    for amount in (0.01, 0.2):
        branch.reinforce("b", amount).unwrap()
    graph.merge(branch).unwrap()
    assert (state(graph, "a").score, state(graph, "b").score) == near((0.2, 0.21))
    branch.discard()


def test_v71_an_amount_that_arrives_late_counts_from_when_it_was_given(
    graph_of: Remember, clock: Hands
) -> None:
    graph = graph_of("a")
    branch = graph.branch(":memory:").unwrap()
    branch.reinforce("a", 0.3).unwrap()
    clock.ms = D
    branch.reinforce("a", 0.1).unwrap()
    graph.reinforce("a", 0.1).unwrap()
    graph.merge(branch).unwrap()
    assert state(branch).score == near(0.25)
    assert state(graph).score == near(0.35)
    branch.discard()


def test_v71_an_event_counts_from_its_own_moment_whenever_it_is_folded(graph_of: Remember) -> None:
    graph = graph_of("a")
    row = next(iter(graph.store.read("graph")))
    folds = graph.store.projection.activations.folds
    folds["memory.suppressed"](row._replace(at=D), {"id": "a", "amount": 0.8, "at": D - 12 * H})
    folds["memory.reinforced"](row._replace(at=D), {"id": "a", "amount": 0.3, "at": 0})
    assert graph.activation("a", at=D).score == near(0.15)  # type: ignore[union-attr]
    assert graph.activation("a", at=D).inhibition == 0.4  # type: ignore[union-attr]


def test_v71_in_the_record_itself() -> None:
    late = Activation(score=0.0, anchor=D).reinforced(0.3, 0, CURVES, FLAT)
    assert (late.decayed(D, FLAT).score, late.anchor) == (0.15, D)


# ------------------------------------------------------------------------- what the vectors leave open


def test_release_takes_a_suppression_back_as_a_whole_or_in_part(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a")
    graph.reinforce("a", 0.9).unwrap()
    graph.suppress("a", 0.8).unwrap()
    clock.ms = 12 * H
    assert graph.release("a", amount=0.1).unwrap().inhibition == near(0.3)
    released = graph.release("a").unwrap()
    assert (released.inhibition, released.effective) == (near(0, abs=1e-12), near(released.score))
    assert graph.release("a", context="never").unwrap().inhibition == near(0, abs=1e-12)
    assert not graph.release("a", amount=-1).ok


def test_a_suppression_may_hold_in_one_context_only(graph_of: Remember) -> None:
    graph = graph_of("a")
    for context in ("x", "y"):
        graph.reinforce("a", 0.4, context=context).unwrap()
    held = graph.suppress("a", 0.3, context="x").unwrap()
    assert held.inhibitions == {"x": 0.3}
    assert [graph.effective("a", context=c) for c in ("x", "y")] == near([0.1, 0.4])
    assert graph.effective("a") == near(0.8)
    graph.release("a", context="x").unwrap()
    assert graph.effective("a", context="x") == near(0.4)


def test_contexts_are_capped_and_the_weakest_makes_room(graph_of: Remember) -> None:
    graph = graph_of("a")
    for number in range(MAX_LENSES + 3):
        graph.reinforce("a", 0.1 + number / 100, context=f"c{number:02}").unwrap()
    kept = state(graph).contexts
    assert len(kept) == MAX_LENSES
    assert sorted(kept)[0] == "c03"
    graph.reinforce("a", 0.05, context="weak").unwrap()
    assert "weak" in state(graph).contexts, "what was just touched stays"
    assert "c03" not in state(graph).contexts


def test_a_context_that_faded_away_is_dropped_by_the_next_that_is_touched(
    graph_of: Remember, clock: Hands
) -> None:
    graph = graph_of("a")
    graph.reinforce("a", 0.5, context="x").unwrap()
    clock.ms = 30 * D
    graph.reinforce("a", 0.5, context="y").unwrap()
    assert set(state(graph).contexts) == {"y"}


def test_contexts_fade_as_their_memory_class_does(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("a", memory_class="semantic")
    graph.reinforce("a", 0.5, context="x").unwrap()
    clock.ms = 7 * D
    assert graph.effective("a", context="x") == 0.25


def test_exposure_and_use_are_counted_apart(graph_of: Remember) -> None:
    graph = graph_of("a")
    assert graph.reinforce("a", 0, outcome="shown").unwrap().usefulness == 0.5
    graph.reinforce("a", 0.1, outcome="useful").unwrap()
    graph.reinforce("a", 0.1, outcome="useful").unwrap()
    now = graph.reinforce("a", -0.1, outcome="harmful").unwrap()
    assert (now.shown, now.useful, now.harmful, now.reinforcement_count) == (1, 2, 1, 4)
    assert now.usefulness == 3 / 5
    assert not graph.reinforce("a", 0.1, outcome="liked").ok  # type: ignore[arg-type]


def test_attention_fades_within_minutes_and_negligible_amounts_are_dropped(
    graph_of: Remember, clock: Hands
) -> None:
    graph = graph_of("a")
    graph.bump_attention("a", 0.04).unwrap()
    clock.ms = 5 * 60_000
    assert graph.effective("a") == 0.02
    clock.ms = 2 * H
    assert graph.effective("a") == 0
    assert graph.store.attention._values == {}


def test_attention_of_a_repeated_call_is_promoted_once(graph_of: Remember) -> None:
    graph = graph_of("a")
    assert not graph.bump_attention("a", 0.2, cause="seen").unwrap().attention
    again = graph.bump_attention("a", 0.2, cause="seen")
    assert again.ok
    assert state(graph).reinforcement_count == 1


def test_attention_is_kept_if_it_cannot_be_promoted(graph_of: Remember, tmp_path: Any) -> None:
    with Adaptogen.open(tmp_path / "g.db", seed=False) as graph:
        graph.remember("a").unwrap()
    with Adaptogen.open(tmp_path / "g.db", seed=False, read_only=True) as graph:
        refused = graph.bump_attention("a", 0.5)
        assert isinstance(refused, Fail)
        assert refused.code is ErrorCode.READ_ONLY
        assert graph.effective("a") == near(0.5, abs=1e-3)


def test_several_reinforcements_are_one_unit_or_none(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    done = graph.reinforce_all(
        [
            {"id": "a", "amount": 0.5, "context": "x"},
            {"id": "b", "amount": 0.1, "reason": "why", "outcome": "useful"},
        ]
    )
    assert done.unwrap().count == 2
    before, told = graph.head(), list[Any]()
    with graph.subscribe(told.append):
        for items in (
            [{"id": "a", "amount": 1}, {"id": "unknown", "amount": 1}],
            [{"id": "a", "amount": 1}, {"id": "b", "amount": math.nan}],
            [{"id": "a"}], [{"id": "a", "amount": 1, "more": 2}], ["a"], "a", {"id": "a"},
        ):  # fmt: skip
            assert not graph.reinforce_all(items).ok  # type: ignore[arg-type]
    assert (graph.head(), told) == (before, [])
    assert shown(graph)[2] == 1
    assert graph.reinforce_all([]).unwrap().count == 0


def test_a_memory_class_is_registered_for_a_kind(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of()
    graph.remember("a", kind="note").unwrap()
    graph.remember("b", kind="note", memory={"memory_class": "episodic"}).unwrap()
    for node in "ab":
        graph.reinforce(node, 0.8).unwrap()
    assert graph.register_memory_class("note", "entity").unwrap()["note"] == "entity"
    clock.ms = 12 * H
    assert graph.effective("a") == near(0.790811216, abs=1e-9)
    assert graph.effective("b") == near(0.4)
    assert graph.activation("a").memory_class == "entity"  # type: ignore[union-attr]
    assert "note" not in graph.register_memory_class("note", None).unwrap()
    assert not graph.register_memory_class("note", "bird").ok


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.set_tunable("scoreHalfLifeMs", 6 * H),
        lambda graph: graph.set_tunable("classHalfLives", {"episodic": {"score": 0}}),
        lambda graph: graph.set_tunable("importanceGain", 1),
        lambda graph: graph.remember("a", kind="episode"),
    ],
)
def test_the_settings_of_the_time_are_those_of_a_replay(
    graph_of: Remember, clock: Hands, change: Callable[[Adaptogen], Any]
) -> None:
    graph = graph_of("a", "b")
    for amount in (0.3, 0.4):
        graph.reinforce("a", amount, context="x").unwrap()
        graph.reinforce("b", amount).unwrap()
        clock.ms += 5 * H
    change(graph).unwrap()
    clock.ms += 5 * H
    graph.reinforce("a", 0.1).unwrap()
    assert graph.verify_integrity(deep=True).ok
    before = [graph.activation(node) for node in "ab"]
    graph.rebuild().unwrap()
    assert [graph.activation(node) for node in "ab"] == before


def test_gap_15_a_clock_that_is_set_back_loses_nothing_but_what_fades_meanwhile(
    graph_of: Remember, clock: Hands
) -> None:
    graph = graph_of("a")
    clock.ms = 10 * D
    graph.reinforce("a", 0.3).unwrap()
    clock.ms -= 60_000
    graph.reinforce("a", 0.2).unwrap()
    assert state(graph).score == near(0.5, abs=1e-3)
    assert raw(graph).anchor == 10 * D
    clock.ms -= 5 * D
    assert state(graph).score == near(0.5, abs=1e-3), "nothing fades before its time"
    graph.reinforce("a", 0.2).unwrap()  # as of its own moment, five half-lives before the anchor
    assert state(graph).score == near(0.5 + 0.2 / 32, abs=1e-3)
    assert graph.verify_integrity(deep=True).ok


def test_each_call_is_one_small_event(graph_of: Remember) -> None:
    graph = graph_of("a")
    before = graph.store.head().seq
    graph.reinforce("a", 0.1, reason="read").unwrap()
    graph.suppress("a", 0.1).unwrap()
    assert graph.store.head().seq == before + 2
    first, second = graph.history(limit=2)
    assert first.payload == {"id": "a", "amount": 0.1, "reason": "read", "at": 0}
    assert second.payload == {"id": "a", "amount": 0.1, "at": 0}


def test_reading_appends_nothing(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    graph.reinforce("a", 0.5, context="x").unwrap()
    head = graph.head()
    graph.effective("a"), graph.activation("a"), graph.top_activated(), graph.top_activated(context="x")
    graph.expand("a"), graph.effective("unknown"), graph.effective("no id!")
    assert graph.activation("unknown") is graph.activation("b") is None
    assert graph.head() == head
