"""Vectors V58 to V64: what goes into a window; and the laws of a selection."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate.activation.selection import SMALL, Selection, cosine, pool_size, select
from graphstate.activation.tokens import estimate_node, estimate_text


def chosen(selection: Selection) -> list[str]:
    return [choice.id for choice in selection.chosen]


def alike(vectors: Mapping[str, Sequence[float]]) -> Callable[[str, str], float]:
    return lambda one, other: cosine(vectors.get(one), vectors.get(other))


def test_v58_the_best_first_and_equals_by_id() -> None:
    assert chosen(select({"a": 0.9, "b": 0.5, "c": 0.1}, limit=2)) == ["a", "b"]
    assert chosen(select({"z": 0.5, "y": 0.5, "x": 0.5}, limit=3)) == ["x", "y", "z"]
    assert chosen(select({"a": 0.9}, limit=0)) == []


def test_v59_something_different_is_found_behind_many_that_are_alike() -> None:
    scores = {f"d{i}": 0.90 - i / 100 for i in range(9)} | {"far": 0.2}
    vectors = {f"d{i}": (1.0, i / 1000) for i in range(9)} | {"far": (0.0, 1.0)}
    similarity = alike(vectors)
    assert chosen(select(scores, limit=2, diversity=0.5, similarity=similarity)) == ["d0", "far"]
    assert chosen(select(scores, limit=3, diversity=0.5, similarity=similarity)) == ["d0", "far", "d1"]


def test_v59_all_of_a_few_candidates_are_looked_at_and_four_a_place_of_many() -> None:
    assert pool_size(2, SMALL) == 512
    assert pool_size(2, SMALL + 1) == 64
    assert pool_size(30, 1_000) == 120
    assert select({str(i): i / 600 for i in range(600)}, limit=3).looked_at == 64


def test_v60_tokens_are_a_quarter_of_the_bytes() -> None:
    assert estimate_node("a", "t", {}) == 8
    assert estimate_node("n1", "note", {"text": "hello world"}) == 14
    assert estimate_node("n1", "note", {"text": "hello world"}, label="n1") == 14
    assert estimate_node("n1", "note", {}, label="a longer name") > estimate_node("n1", "note", {})


def test_gap_26_scripts_of_many_bytes_are_not_undercounted() -> None:
    assert estimate_text("") == 1
    assert estimate_text("漢字仮名") == 3
    assert estimate_text("🙂🙂🙂🙂") == 4
    assert estimate_text("plain words") == 3


@pytest.mark.parametrize(
    ("budget", "cost", "expected"), [(16, 8, "ab"), (15, 8, "a"), (2, 1, "ab"), (0, 1, "")]
)
def test_v61_the_budget_bounds_the_sum(budget: float, cost: float, expected: str) -> None:
    found = select({"a": 0.9, "b": 0.5, "c": 0.1}, limit=10, budget=budget, cost_of=lambda _: cost)
    assert chosen(found) == list(expected)
    assert found.budget_used == cost * len(expected)


def test_v61_a_budget_of_nothing_takes_what_costs_nothing() -> None:
    assert chosen(select({"a": 0.9, "b": 0.5}, limit=9, budget=0, cost_of=lambda name: name == "a")) == ["b"]


def test_v62_what_does_not_fit_is_skipped_and_reported() -> None:
    costs = {"a": 5.0, "b": 1.0, "c": 1.0}
    found = select({"a": 0.9, "b": 0.5, "c": 0.1}, limit=10, budget=3, cost_of=costs.__getitem__)
    assert chosen(found) == ["b", "c"]
    assert [(skip.id, skip.cost, skip.decision) for skip in found.skipped] == [("a", 5.0, "too dear")]
    assert found.budget_used == 2


V63 = {"a": (1.0, 0.0), "b": (1.0, 0.01), "c": (0.0, 1.0)}


@pytest.mark.parametrize(
    ("diversity", "second", "value"),
    [
        (0.2, "b", 0.480010),
        (0.259, "b", None),
        (0.2595, "c", None),
        (0.3, "c", 0.35),
        (0.5, "c", 0.25),
        (0.8, "c", 0.1),
    ],
)
def test_v63_likeness_to_the_first_decides_the_second(
    diversity: float, second: str, value: float | None
) -> None:
    scores = {"a": 0.9, "b": 0.85, "c": 0.5}
    found = select(scores, limit=2, diversity=diversity, similarity=alike(V63))
    assert chosen(found) == ["a", second]
    if value is not None:
        assert found.chosen[1].value == pytest.approx(value, abs=1e-6)
    assert found.chosen[1].max_similarity == pytest.approx(cosine(V63["a"], V63[second]))


@pytest.mark.parametrize("cost", [math.nan, -1, math.inf, "1", None])
def test_v64_a_cost_that_is_none_is_refused(cost: Any) -> None:
    with pytest.raises(ValueError, match="the cost of 'a' must be a finite number"):
        select({"a": 0.9}, limit=1, budget=9, cost_of=lambda _: cost)


def test_v64_without_a_budget_nobody_asks_for_costs() -> None:
    def never(name: str) -> float:
        raise AssertionError(name)

    assert chosen(select({"a": 0.9, "b": 0.5}, limit=1, cost_of=never)) == ["a"]
    assert chosen(select({"a": 0.9, "b": 0.5}, limit=2, cost_of=never, diversity=0.5)) == ["a", "b"]


@pytest.mark.parametrize("likeness", [math.nan, math.inf, "1", None])
def test_a_likeness_that_is_none_is_refused(likeness: Any) -> None:
    with pytest.raises(ValueError, match="how alike 'b' and 'a' are must be a finite number"):
        select({"a": 0.9, "b": 0.5}, limit=2, diversity=0.5, similarity=lambda _one, _other: likeness)


@pytest.mark.parametrize(
    "wrong", [{"limit": -1}, {"diversity": 1.1}, {"diversity": -0.1}, {"budget": -1}, {"budget": math.nan}]
)
def test_v64_numbers_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    options: dict[str, Any] = {"limit": 1} | wrong
    with pytest.raises(ValueError, match="must be from 0"):
        select({"a": 0.9}, **options)


def test_v75_only_vectors_of_one_length_are_alike() -> None:
    assert cosine((1, 0), (2, 0)) == 1
    assert cosine((1, 0), (-1, 0)) == -1
    assert cosine((1, 0), (0, 0)) == cosine(None, (1, 0)) == 0
    with pytest.raises(ValueError, match="2 and 3 numbers"):
        cosine((1, 0), (1, 0, 0))


def test_pins_come_first_and_count_towards_limit_and_budget() -> None:
    scores = {"a": 0.9, "b": 0.5, "c": 0.1}
    found = select(scores, limit=2, pinned=["c", "ghost"], budget=9)
    assert chosen(found) == ["c", "a"]
    assert [choice.decision for choice in found.chosen] == ["pinned", "chosen"]
    dear = select(scores, limit=3, pinned=["c"], budget=3, cost_of=lambda name: 5 if name == "c" else 1)
    assert (chosen(dear), [skip.id for skip in dear.skipped]) == (["a", "b"], ["c"])


def test_gap_04_density_fills_a_tight_budget_with_more() -> None:
    scores, costs = {"long": 0.9, "x": 0.5, "y": 0.5}, {"long": 10.0, "x": 2.0, "y": 2.0}
    assert chosen(select(scores, limit=9, budget=10, cost_of=costs.__getitem__)) == ["long"]
    dense = select(scores, limit=9, budget=10, cost_of=costs.__getitem__, density=True)
    assert (chosen(dense), dense.budget_used) == (["x", "y"], 4)


# ------------------------------------------------------------------------------ laws

SCORES = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=2), st.sampled_from([0.1, 0.3, 0.3, 0.5, 0.9]), max_size=14
)


def naive(
    scores: Mapping[str, float], vectors: Mapping[str, Sequence[float]], costs: Mapping[str, float],
    limit: int, budget: float, diversity: float, pinned: Sequence[str],
) -> list[str]:  # fmt: skip
    """The rule as it is written: look at everything left, every time."""
    taken: list[str] = []
    used = 0.0
    for pin in pinned:
        if pin in scores and len(taken) < limit and used + costs[pin] <= budget:
            taken.append(pin)
            used += costs[pin]
    left = sorted(scores.keys() - set(pinned), key=lambda name: (-scores[name], name))
    while left and len(taken) < limit:

        def value(name: str) -> float:
            likest = max((cosine(vectors[name], vectors[other]) for other in taken), default=0.0)
            return (1 - diversity) * scores[name] - diversity * likest if diversity else scores[name]

        best = max(left, key=lambda name: (value(name), -left.index(name)))
        left.remove(best)
        if used + costs[best] <= budget:
            taken.append(best)
            used += costs[best]
    return taken


@given(
    SCORES,
    st.integers(0, 8),
    st.floats(0, 30),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    st.lists(st.text("abcdefgh", min_size=1, max_size=2), max_size=3, unique=True),
    st.integers(0, 999),
)
@settings(max_examples=200, deadline=None)
def test_a_selection_is_the_greedy_one_in_any_order_and_within_its_budget(
    scores: dict[str, float], limit: int, budget: float, diversity: float, pinned: list[str], seed: int
) -> None:
    random = Random(seed)
    vectors = {name: (random.uniform(-1, 1), random.uniform(-1, 1)) for name in sorted(scores)}
    costs = {name: random.choice([0.0, 1.0, 4.0, 9.0]) for name in sorted(scores)}
    similarity = alike(vectors)
    turned = list(scores.items())
    random.shuffle(turned)
    for density in (False, True):
        first, again = (
            select(
                given, limit=limit, budget=budget, cost_of=costs.__getitem__, diversity=diversity,
                pinned=pinned, density=density, similarity=similarity,
            )
            for given in (scores, dict(turned))
        )  # fmt: skip
        assert first == again
        assert len(first.chosen) <= limit
        assert sum(costs[choice.id] for choice in first.chosen) == first.budget_used <= budget
        decisions = [choice.decision for choice in first.chosen]
        assert decisions == sorted(decisions, key=lambda decision: decision != "pinned")
        if not density:
            assert chosen(first) == naive(scores, vectors, costs, limit, budget, diversity, pinned)
