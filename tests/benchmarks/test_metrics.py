from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning.intervals import interval, ratio_interval
from benchmarks.learning.metrics import first_of, ndcg, recall_at, reciprocal_rank

RANKED = ["a", "b", "c", "d"]


def test_recall_is_the_share_of_the_relevant_within_k() -> None:
    assert recall_at(RANKED, {"b", "d"}, 2) == 0.5
    assert recall_at(RANKED, {"b", "d"}, 4) == 1
    assert recall_at(RANKED, {"x"}, 4) == 0
    assert recall_at([], {"x"}, 4) == 0


def test_a_reciprocal_rank_is_one_over_the_place() -> None:
    assert [reciprocal_rank(RANKED, item) for item in ("a", "b", "d", "x")] == [1, 0.5, 0.25, 0]


def test_ndcg_discounts_by_the_logarithm_of_the_place() -> None:
    # b at place 2 and d at place 4: (1/log2 3 + 1/log2 5) / (1/log2 2 + 1/log2 3)
    assert ndcg(RANKED, {"b", "d"}, 4) == pytest.approx((0.6309297536 + 0.4306765581) / 1.6309297536)
    assert ndcg(["b", "d", "a"], {"b", "d"}, 4) == 1
    assert ndcg(RANKED, {"d"}, 3) == 0
    assert ndcg(RANKED, {"a"}, 1) == 1


@given(st.permutations("abcdef"), st.sets(st.sampled_from("abcdef"), min_size=1), st.integers(1, 7))
def test_ndcg_is_the_gain_over_that_of_the_best_of_all_orders(
    order: list[str], relevant: set[str], k: int
) -> None:
    def gain(items: tuple[str, ...]) -> float:
        return sum(1 / math.log2(2 + items.index(one)) for one in relevant if items.index(one) < k)

    best = max(map(gain, itertools.permutations("abcdef")))
    assert ndcg(order, relevant, k) == pytest.approx(gain(tuple(order)) / best)


def test_a_reader_goes_by_the_first_that_bears_on_the_question() -> None:
    assert first_of(RANKED, {"d", "c"}) == "c"
    assert first_of(RANKED, {"x"}) is None


def test_an_interval_is_the_same_each_time_and_holds_the_mean() -> None:
    values = [1.0, 2.0, 4.0, 3.0]
    found = interval(values)

    assert found == interval(values)
    assert found.value == 2.5
    assert 1 <= found.low < 2.5 < found.high <= 4
    assert interval([3.0]) == (3, 3, 3)


def test_a_ratio_draws_both_sides_of_a_seed_together() -> None:
    assert ratio_interval([1.0, 3.0, 5.0], [2.0, 6.0, 10.0]) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="one a seed"):
        ratio_interval([1.0], [1.0, 2.0])


def test_the_interval_of_many_equal_draws_is_as_wide_as_theory_says() -> None:
    found = interval([0.0, 1.0] * 50)

    assert found.low == pytest.approx(0.5 - 1.96 * 0.05, abs=0.02)
    assert found.high == pytest.approx(0.5 + 1.96 * 0.05, abs=0.02)
