"""Vectors V42, V49 to V57 and V65: searches, what they reinforce, what is learned from them.

Each search is tried as the vectors have it (sums, no fan, additive rule) and as it is by default.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Pulse, VerbFailed
from tests.graphstate.conftest import Make

DAY = 86_400_000
NOW = 1_700_000_000_000

#: As the vectors are computed.
PLAIN: dict[str, Any] = {"normalise": False, "fan_beta": 0}


class Clock:
    ms = NOW

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def graph(make: Make, clock: Clock) -> Adaptogen:
    """A 7 days old, B and X and Y of today, C 14 days old; A leads to C and X, X to Y."""
    graph = make(now=clock)
    for age, node, vector in (
        (14, "C", [0, 1]), (7, "A", [1, 0]), (0, "B", [0.6, 0.8]), (0, "X", None), (0, "Y", None),
    ):  # fmt: skip
        clock.ms = NOW - age * DAY
        graph.remember(node, embedding=vector).unwrap()
    for src, dst in (("A", "C"), ("A", "X"), ("X", "Y")):
        graph.link(src, dst, kind="reference", label="about").unwrap()
    # A gain of 0.05 makes these an importance of 0.2 and 0.1.
    graph.reinforce("A", 4).unwrap()
    graph.reinforce("C", 2).unwrap()
    return graph


def scores(found: Pulse) -> dict[str, float]:
    return {hit.id: hit.score for hit in found.hits}


def ids(found: Pulse) -> list[str]:
    return [hit.id for hit in found.hits]


def test_v49_only_what_is_nearer_than_nothing_is_a_seed(graph: Adaptogen) -> None:
    found = graph.pulse([1, 0], depth=0)
    assert {hit.id: hit.signals["semantic"] for hit in found.hits} == pytest.approx({"A": 1, "B": 0.6})
    assert found.seeds == 2


def test_v50_totals_are_sums_of_weighted_signals(graph: Adaptogen) -> None:
    found = graph.pulse([1, 0], **PLAIN)
    assert scores(found) == pytest.approx({"A": 1.7, "B": 1.6, "X": 1.5, "Y": 1.25, "C": 0.85})
    assert ids(found) == ["A", "B", "X", "Y", "C"]
    signals = {hit.id: hit.signals for hit in found.hits}
    assert signals["C"] == pytest.approx({"semantic": 0, "graph": 0.5, "recency": 0.25, "usage": 0.1})


def test_v50_by_default_totals_are_means_and_neighbours_share(graph: Adaptogen) -> None:
    found = graph.pulse([1, 0])
    fan = 0.5 / math.sqrt(2)
    assert scores(found) == pytest.approx(
        {"A": 1.7 / 4, "B": 1.6 / 4, "X": (fan + 1) / 4, "Y": (fan / 2 + 1) / 4, "C": (fan + 0.35) / 4}
    )
    for hit in found.hits:
        assert math.fsum(hit.shares.values()) == pytest.approx(hit.score)


@pytest.mark.parametrize("options", [PLAIN, {}], ids=["plain", "default"])
def test_v51_depth_threshold_and_number_of_seeds_bound_the_region(
    graph: Adaptogen, options: dict[str, Any]
) -> None:
    assert "Y" not in ids(graph.pulse([1, 0], depth=1, **options))
    assert "B" not in ids(graph.pulse([1, 0], semantic_threshold=0.6, **options))
    assert ids(graph.pulse([1, 0], seeds=1, **options)) == ["A", "X", "Y", "C"]


def test_v51_the_threshold_is_strict(graph: Adaptogen) -> None:
    assert ids(graph.pulse([1, 0], threshold=1.5, **PLAIN)) == ["A", "B"]
    assert ids(graph.pulse([1, 0], threshold=0.41)) == ["A"]


@pytest.mark.parametrize("options", [PLAIN, {}], ids=["plain", "default"])
def test_v52_nothing_resembles_nothing_and_no_edge_leads_nowhere(
    graph: Adaptogen, options: dict[str, Any]
) -> None:
    assert graph.pulse([0, 0], **options).hits == ()
    assert ids(graph.pulse([1, 0], edge_types=[], **options)) == ["A", "B"]


def test_v42_edges_of_other_types_are_not_followed(graph: Adaptogen) -> None:
    graph.link("A", "Y", kind="reference", label="ignores").unwrap()
    found = graph.pulse([1, 0], edge_types=["ignores"], depth=1, **PLAIN)
    assert ids(found) == ["A", "B", "Y"]
    assert found.hits[2].signals["graph"] == 0.5
    half = graph.pulse([1, 0], edge_types={"ignores": 0.5}, depth=1, **PLAIN)
    assert half.hits[2].signals["graph"] == 0.25


def chained(make: Make) -> Adaptogen:
    graph = make("ai", "v", "p", "n")
    for src, dst in (("ai", "v"), ("v", "p"), ("p", "n")):
        graph.link(src, dst).unwrap()
    return graph


def test_v41_the_verb_goes_as_deep_as_it_is_told(make: Make) -> None:
    graph = chained(make)
    assert graph.spread(["ai"], depth=2, decay=0.5).reached == {"v": 0.5, "p": 0.25}
    assert graph.spread(["ai"], depth=5).reached["n"] == 0.125
    assert graph.spread(["n"], direction="in", depth=1).reached == {"p": 0.5}
    limited = graph.spread({"ai": 0.5}, limit=1)
    assert (limited.reached, limited.found, limited.truncated) == ({"v": 0.25}, 2, False)


def test_v46_the_verb_begins_at_nodes_that_there_are(make: Make) -> None:
    graph = chained(make)
    assert graph.spread(["ai"], depth=0).reached == graph.spread(["ai"], edge_types=[]).reached == {}
    assert graph.spread(["ghost"]).reached == graph.spread([]).reached == {}
    head = graph.head()
    for wrong in ({"decay": 1.5}, {"depth": 9}, {"seeds": "ai"}, {"seeds": {"ai": 2}}, {"seeds": ["no id!"]}):
        with pytest.raises(VerbFailed, match="InvalidInput"):
            graph.spread(**{"seeds": ["ai"], **wrong})  # type: ignore[arg-type]  # that is the point
    assert graph.head() == head


def test_v53_absorbing_adds_a_share_of_each_score(graph: Adaptogen) -> None:
    done = graph.absorb([1, 0], **PLAIN).unwrap()
    assert done.amounts == pytest.approx({"A": 0.085, "B": 0.08, "X": 0.075, "Y": 0.0625, "C": 0.0425})
    assert done.pulse.hits[0].score == pytest.approx(1.7)
    assert [entry.type for entry in graph.history(limit=5)] == ["memory.reinforced"] * 5
    state = graph.activation("B")
    assert state is not None
    assert state.score == pytest.approx(0.08)
    assert state.reinforcement_count == 1


def test_v53_what_is_only_loosely_tied_is_not_absorbed(graph: Adaptogen) -> None:
    assert set(graph.absorb([1, 0], min_graph=0.5, **PLAIN).unwrap().amounts) == {"A", "B", "C", "X"}


def test_v53_by_default_nothing_gains_for_being_new_alone(graph: Adaptogen) -> None:
    done = graph.absorb([1, 0]).unwrap()
    assert done.amounts == pytest.approx(
        {"A": 0.05 * 1.7 / 4, "B": 0.05 * 1.6 / 4, "X": 0.05 * (0.5 / math.sqrt(2) + 1) / 4}
    )


def test_v54_a_verdict_adds_a_share_of_its_signals(graph: Adaptogen) -> None:
    found = graph.pulse([1, 0], **PLAIN)
    taught = graph.feedback(found.retrieval_id, "A", True, rule="additive").unwrap()
    assert [taught.weights[name] for name in ("semantic", "graph", "recency", "usage")] == pytest.approx(
        [1.05, 1.0, 1.025, 1.01]
    )
    assert scores(graph.pulse([1, 0], **PLAIN))["A"] == pytest.approx(1.7645)


def test_v54_a_harmful_verdict_takes_it_away(graph: Adaptogen) -> None:
    found = graph.pulse([1, 0], **PLAIN)
    weights = graph.feedback(found.retrieval_id, "B", False, rule="additive").unwrap().weights
    assert [weights[name] for name in ("semantic", "graph", "recency", "usage")] == pytest.approx(
        [0.97, 1, 0.95, 1]
    )


def test_v54_by_default_a_verdict_moves_weights_towards_what_stood_out(graph: Adaptogen) -> None:
    found = graph.pulse([1, 0])
    weights = graph.feedback(found.retrieval_id, "A", True).unwrap().weights
    assert weights["semantic"] > weights["recency"] > 1 > weights["usage"] > weights["graph"]
    assert weights["lexical"] == 1
    assert graph.pulse([1, 0]).hits[0].id == "A"


def test_v55_weights_stop_at_zero_and_numbers_that_are_none_are_refused(graph: Adaptogen) -> None:
    found = graph.pulse([1, 0], **PLAIN)
    weights = graph.feedback(found.retrieval_id, "B", False, rate=2, rule="additive").unwrap().weights
    assert (weights["semantic"], weights["recency"]) == (0, 0)
    before = graph.weights()
    for wrong in (-1, math.inf, math.nan):
        refused = graph.set_weights({"semantic": wrong})
        assert isinstance(refused, Fail)
        assert refused.code == "InvalidInput"
    assert isinstance(graph.set_weights({"novelty": 1}), Fail)
    unknown = graph.feedback(found.retrieval_id, "ghost", True)
    assert isinstance(unknown, Fail)
    assert unknown.code == "NotFound"
    assert graph.weights() == before


def test_v55_by_default_weights_stay_between_their_bounds(graph: Adaptogen) -> None:
    found = graph.pulse([1, 0])
    weights = graph.feedback(found.retrieval_id, "B", False, rate=10).unwrap().weights
    assert min(weights[name] for name in ("semantic", "graph", "recency", "usage")) >= 0.05
    assert max(weights.values()) <= 3


def test_v56_the_centred_rule_has_its_published_values(graph: Adaptogen) -> None:
    signals = {"semantic": 1, "graph": 0, "recency": 0.5, "usage": 0.2}
    weights = graph.feedback("R-elsewhere", "A", True, signals=signals).unwrap().weights
    assert [weights[name] for name in ("semantic", "graph", "recency", "usage")] == pytest.approx(
        [1.028984, 0.978800, 1.003579, 0.988637], abs=1e-6
    )


def test_v57_gap_06_usage_fades(graph: Adaptogen, clock: Clock) -> None:
    for _ in range(10):
        graph.reinforce("B", 0.9).unwrap()
    assert {hit.id: hit.signals["usage"] for hit in graph.pulse([1, 0]).hits}["B"] == pytest.approx(0.45)
    clock.ms += 60 * DAY
    assert {hit.id: hit.signals["usage"] for hit in graph.pulse([1, 0]).hits}["B"] == pytest.approx(0.1125)


def test_v61_the_budget_of_a_window_is_in_tokens_of_its_nodes(make: Make, clock: Clock) -> None:
    graph = make(now=clock)
    for node, amount in (("a", 0.9), ("b", 0.5), ("c", 0.1)):
        graph.remember(node, kind="t").unwrap()
        graph.reinforce(node, amount).unwrap()
    for budget, expected in ((16, ["a", "b"]), (15, ["a"]), (0, [])):
        window = graph.working_memory(token_budget=budget)
        assert [item.id for item in window.items] == expected
        assert window.budget_used == 8 * len(expected) <= budget
    assert [item.id for item in graph.working_memory(token_budget=2, cost_of=lambda _: 1).items] == ["a", "b"]
    assert [item.id for item in graph.working_memory(min_score=0.5).items] == ["a"]


@pytest.mark.parametrize("cost", [math.nan, -1])
def test_v64_a_cost_that_is_none_is_refused(graph: Adaptogen, cost: float) -> None:
    with pytest.raises(VerbFailed, match="the cost of 'A' must be a finite number"):
        graph.working_memory(token_budget=100, cost_of=lambda _: cost)
    assert graph.working_memory(cost_of=lambda _: cost).items


def test_v65_a_context_sees_what_was_seen_in_it(make: Make, clock: Clock) -> None:
    graph = make("p", "q", now=clock)
    graph.reinforce("p", 0.6).unwrap()
    graph.reinforce("q", 0.2, context="x").unwrap()
    assert [(item.id, item.base) for item in graph.working_memory(context="x").items] == [("q", 0.2)]
    window = graph.working_memory(context="x", context_fallback=True)
    assert [(item.id, item.effective) for item in window.items] == [("p", 0.6), ("q", 0.2)]
