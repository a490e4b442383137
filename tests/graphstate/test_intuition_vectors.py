"""Vectors V89 to V109: rewards, ranking, steps.

Restated where a move of the cursor, not every event, makes a reward older, and where a reward
credits edge and target alike.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Suggestion, scoring
from graphstate._canonical import decode
from graphstate.events import GRAPH
from tests.graphstate.conftest import Make


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def ema(graph: Adaptogen, id: str, kind: str = "edge") -> float:
    stat = graph.get_stat(kind, id)
    return stat.ema_reward if stat else 0.0


def pair(make: Make, *, weight: float = 1) -> Adaptogen:
    graph = make("a", "b")
    graph.link("a", "b", id="e1", weight=weight)
    graph.set_cursor(["a"])
    return graph


def by_edge(graph: Adaptogen) -> dict[str, Suggestion]:
    return {suggestion.edge_id: suggestion for suggestion in graph.suggest()}


def test_v89_a_reward_credits_edge_and_target(make: Make) -> None:
    graph = pair(make)
    graph.transition("b")
    assert graph.reward(1).unwrap().scopes == 2
    for kind, name in (("edge", "e1"), ("node", "b")):
        stat = graph.get_stat(kind, name)
        assert stat is not None
        assert stat.ema_reward == pytest.approx(0.3, abs=1e-9)
        assert (stat.successes, stat.failures, stat.last_seq, stat.rewarded_by) == (1, 0, 6, "developer")


def test_v90_a_teleport_does_not_age_a_reward(make: Make) -> None:
    graph = pair(make)
    graph.transition("b")
    graph.reward(1)
    graph.set_cursor(["a"])
    (suggestion,) = graph.suggest()
    assert suggestion.breakdown.reward == pytest.approx(0.3, abs=1e-9)
    assert suggestion.breakdown.explore == pytest.approx(0.8241870157608322, abs=1e-9)
    assert suggestion.score == pytest.approx(1.1241870157608322, abs=1e-9)
    assert suggestion.confidence == 0.2


def fork(make: Make) -> Adaptogen:
    graph = make("a", "b", "c")
    graph.link("a", "b", id="e1")
    graph.link("a", "c", id="e2", weight=2)
    graph.set_cursor(["a"])
    return graph


def test_v91_without_experience_the_prior_decides(make: Make) -> None:
    graph = fork(make)
    assert [s.edge_id for s in graph.suggest()] == ["e2", "e1"]
    assert [s.score for s in graph.suggest()] == pytest.approx([0.6931471805599453, 0.0])
    assert all(s.breakdown.explore == 0 for s in graph.suggest())


def test_v92_exploration_favours_what_was_not_tried(make: Make) -> None:
    graph = fork(make)
    graph.transition("b")
    graph.reward(1, edge_id="e1")
    graph.set_cursor(["a"])
    found = by_edge(graph)
    assert found["e2"].score == pytest.approx(1.8587236361807218, abs=1e-9)
    assert found["e2"].breakdown.explore == pytest.approx(1.1655764556207766, abs=1e-9)
    assert found["e1"].score == pytest.approx(1.1241870157608322, abs=1e-9)
    graph.set_tunable("explore", "greedy")
    found = by_edge(graph)
    assert found["e2"].score == pytest.approx(0.6931471805599453, abs=1e-9)
    assert found["e1"].score == pytest.approx(0.3, abs=1e-9)


def test_v93_rewards_visits_and_priors_together(make: Make) -> None:
    graph = make("a", "b", "c", "d")
    for edge, to, weight in (("x1", "b", 1), ("x2", "c", 1), ("x3", "d", 0.5)):
        graph.link("a", to, id=edge, weight=weight)
    graph.set_cursor(["a"])
    for _ in range(3):
        graph.set_cursor(["a"])
        graph.transition("b").unwrap()
    graph.reward(1, edge_id="x1")
    graph.set_cursor(["a"])
    graph.transition("c").unwrap()
    graph.reward(-1, edge_id="x2")
    graph.set_cursor(["a"])
    found = by_edge(graph)
    assert [s.edge_id for s in graph.suggest()] == ["x1", "x3", "x2"]
    assert found["x1"].breakdown.reward == pytest.approx(0.3 * 0.5 ** (1 / 200), abs=1e-9)  # one move older
    assert found["x1"].breakdown.explore == pytest.approx(0.8880453688256637, abs=1e-9)
    assert found["x1"].confidence == pytest.approx(0.42857142857142855)
    assert found["x3"].score == pytest.approx(1.0829435570913821, abs=1e-9)
    assert found["x2"].breakdown.reward == pytest.approx(-0.3, abs=1e-9)
    assert found["x2"].breakdown.explore == pytest.approx(1.255885804595871, abs=1e-9)


def chain(make: Make) -> Adaptogen:
    graph = make("a", "b", "c", "d")
    for edge, src, dst in (("e1", "a", "b"), ("e2", "b", "c"), ("e3", "c", "d")):
        graph.link(src, dst, id=edge)
    graph.set_cursor(["a"])
    for to in "bcd":
        graph.transition(to).unwrap()
    return graph


def test_v94_a_trace_fades_backwards(make: Make) -> None:
    graph = chain(make)
    assert graph.reward(1, trace=True, depth=3, lambda_=0.6).unwrap().scopes == 6
    body = decode(list(graph.store.read(GRAPH))[-1].body)
    assert [s["id"] for s in body["scopes"]] == ["e3", "d", "e2", "c", "e1", "b"]
    assert [s["weight"] for s in body["scopes"]] == pytest.approx([1, 1, 0.6, 0.6, 0.36, 0.36])
    for edge, node, value in (("e1", "b", 0.108), ("e2", "c", 0.18), ("e3", "d", 0.3)):
        assert ema(graph, edge) == pytest.approx(value, abs=1e-9)
        assert ema(graph, node, "node") == pytest.approx(value, abs=1e-9)


def test_v95_the_sign_of_the_value_decides_success(make: Make) -> None:
    graph = chain(make)
    graph.reward(1, trace=True, depth=3)
    graph.reward(-1, edge_id="e3")
    assert ema(graph, "e3") == pytest.approx(-0.09, abs=1e-9)
    graph.reward(0, edge_id="e3")
    stat = graph.get_stat("edge", "e3")
    assert stat is not None
    assert stat.ema_reward == pytest.approx(-0.063, abs=1e-9)
    assert (stat.failures, stat.successes) == (1, 2)


def test_v96_a_loop_taken_twice_is_credited_twice(make: Make) -> None:
    graph = make("a")
    graph.link("a", "a", id="e1")
    graph.set_cursor(["a"])
    graph.transition("a")
    graph.transition("a")
    assert graph.reward(1, trace=True, lambda_=0.6).unwrap().scopes == 4
    stat = graph.get_stat("edge", "e1")
    assert stat is not None
    # 0.3, then a step of 0.3 * 0.6 towards the value
    assert stat.ema_reward == pytest.approx(0.3 + 0.18 * 0.7, abs=1e-9)
    assert stat.successes == 2


@pytest.mark.parametrize(("alpha", "expected"), [(1, -0.5), (0, 0.0)])
def test_v97_the_rate_of_learning(make: Make, alpha: float, expected: float) -> None:
    graph = pair(make)
    graph.transition("b")
    graph.set_tunable("rewardAlpha", alpha)
    graph.reward(-0.5)
    assert ema(graph, "e1") == expected


def test_v98_v99_a_reward_halves_over_its_half_life() -> None:
    assert [scoring.faded(1, age, 100) for age in (0, 100, 200, -5)] == [1, 0.5, 0.25, 1]
    assert scoring.faded(0.3, 202, 200) == pytest.approx(0.14896387431555538, abs=1e-12)


def test_v98_only_moves_of_the_rewarded_cursor_age_a_reward(make: Make) -> None:
    graph = pair(make)
    graph.link("b", "a", id="back")
    graph.set_tunable("decayHalfLife", 2)
    graph.transition("b")
    graph.reward(1, edge_id="e1")
    for i in range(5):
        graph.remember(f"x{i}")
    other = graph.as_actor("other")
    other.set_cursor(["a"])
    for to in "baba":
        other.transition(to).unwrap()
    graph.transition("a").unwrap()
    assert by_edge(graph)["e1"].breakdown.reward == pytest.approx(0.3 * 0.5**0.5, abs=1e-9)
    assert other.suggest()[0].breakdown.reward == pytest.approx(0.3 * 0.5**0.5, abs=1e-9)


def test_v100_a_weight_of_zero_is_very_unlikely(make: Make) -> None:
    (suggestion,) = pair(make, weight=0).suggest()
    assert suggestion.breakdown.weight == pytest.approx(-20.72326583694641)


def test_v101_epsilon_explores_with_its_probability(make: Make) -> None:
    graph = fork(make)
    graph.set_tunable("explore", "epsilon")
    graph.set_tunable("epsilon", 0)
    assert all(s.breakdown.explore == 0 for s in graph.suggest())
    graph.set_tunable("epsilon", 1)
    assert all(0 < s.breakdown.explore < 1 for s in graph.suggest())


def test_v102_without_a_move_there_is_nothing_to_reward(make: Make) -> None:
    graph = pair(make)
    assert code(graph.reward(1)) == "NotFound"
    assert code(graph.reward(1, edge_id="gone")) == "NotFound"
    graph.transition("b")
    assert code(graph.reward(1, trace=True, depth=0)) == "NotFound"
    assert code(graph.as_actor("other").reward(1)) == "NotFound"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x", None, True, 10**400, 1e7, -1e7])
def test_v103_a_reward_is_a_finite_number(make: Make, value: Any) -> None:
    graph = pair(make)
    graph.transition("b")
    before = graph.store.head()
    assert code(graph.reward(value)) == "InvalidInput"
    if value is not None:
        assert code(graph.step(reward=value)) == "InvalidInput"
    assert graph.store.head() == before


@pytest.mark.parametrize(
    "arguments", [{"depth": -1}, {"depth": 33}, {"depth": 1.5}, {"lambda_": 1.1}, {"lambda_": "x"}]
)
def test_v104_depth_and_fading_are_bounded(make: Make, arguments: dict[str, Any]) -> None:
    graph = pair(make)
    graph.transition("b")
    assert code(graph.reward(1, trace=True, **arguments)) == "InvalidInput"


def test_a_trace_reaches_as_far_back_as_the_trail(make: Make) -> None:
    graph = make("a")
    graph.link("a", "a", id="e1")
    graph.set_cursor(["a"])
    for _ in range(40):
        graph.transition("a").unwrap()
    assert graph.reward(1, trace=True, depth=32, lambda_=1).unwrap().scopes == 64
    assert graph.verify_integrity(deep=True).ok


def test_v105_a_share_of_a_good_outcome_never_lowers_a_good_edge() -> None:
    good = 0.986158712799
    assert scoring.credit(good, 1, 0.6, 0.3) == pytest.approx(good + 0.18 * (1 - good))
    assert scoring.credit(good, 1, 0.6, 0.3) > good


def test_v106_steps_to_the_end_of_a_chain(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "b")
    graph.link("b", "c")
    graph.set_cursor(["a"])
    first = graph.step(reward=1).unwrap()
    assert (first.to, first.applied, first.denied, first.done) == ("b", True, False, False)
    assert first.reward is not None
    assert first.reward.scopes == 2
    second = graph.step(reward=1).unwrap()
    assert (second.to, second.done) == ("c", True)
    assert graph.store.head().seq == 6 + 4
    ended = graph.step(reward=1)
    assert code(ended) == "NoMoves"
    assert "legal_moves" in ended.hint  # type: ignore[union-attr]  # code() has looked


def test_v107_steps_that_lead_nowhere(make: Make) -> None:
    graph = make("a")
    assert code(graph.step()) == "InvalidInput"
    graph.set_cursor(["a"])
    assert code(graph.step("ghost")) == "NotFound"
    assert code(graph.step("a")) == "IllegalTransition"


def test_v108_a_step_credits_edge_and_target_or_nothing(make: Make) -> None:
    graph = pair(make)
    assert graph.step("b").unwrap().reward is None
    graph.set_cursor(["a"])
    graph.step("b", reward=0.5).unwrap()
    assert ema(graph, "e1") == pytest.approx(0.15)
    assert ema(graph, "b", "node") == pytest.approx(0.15)


def test_a_step_records_what_it_chose_from(make: Make) -> None:
    graph = fork(make)
    graph.set_tunable("explore", "epsilon")
    graph.set_tunable("epsilon", 1)
    ranked = graph.step().unwrap()
    body = decode(list(graph.store.read(GRAPH))[-1].body)
    assert ranked.suggestion is not None
    assert body["choice"]["ranked"][0] == [ranked.suggestion.edge_id, ranked.suggestion.score]
    assert len(body["choice"]["ranked"]) == 2
    assert len(body["choice"]["draws"]) == 4


def test_an_edge_that_is_gone_learns_nothing(make: Make) -> None:
    graph = pair(make)
    graph.transition("b")
    graph.unlink("e1")
    assert graph.reward(1).unwrap().scopes == 2
    assert graph.get_stat("edge", "e1") is None
    assert ema(graph, "b", "node") == pytest.approx(0.3)
    assert graph.verify_integrity(deep=True).ok


def test_scores_are_finite_for_any_experience(make: Make) -> None:
    graph = pair(make, weight=1e308)
    graph.set_tunable("ucbC", 100)
    graph.transition("b")
    graph.reward(1e6).unwrap()
    graph.reward(-1e6).unwrap()
    graph.set_cursor(["a"])
    assert all(math.isfinite(s.score) for s in graph.suggest())
