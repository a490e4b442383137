"""Vectors 1 to 12 and 81: how values fade, and how they are ordered while they do."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphstate.activation.decay import CLASSES, FLAT, Curves, HalfLives, clamp, factor, log2
from graphstate.activation.record import Activation, rank_key
from tests.graphstate.activation.conftest import D, H, near

CURVES = Curves()


def score_after(elapsed: int, half_lives: HalfLives = FLAT, *, score: float = 0.8) -> float:
    return Activation(score=score).decayed(elapsed, half_lives).score


def test_v1_a_value_halves_with_every_half_life() -> None:
    assert [factor(0, D), factor(D, D), factor(2 * D, D)] == [1, 0.5, 0.25]
    assert factor(H, D) == near(0.971531941, abs=1e-9)


@pytest.mark.parametrize(
    ("elapsed", "half_life"),
    [(-1, D), (D, 0), (D, -5), (D, math.inf), (math.nan, D), (math.inf, D), (D, math.nan)],
)
def test_v2_what_is_no_time_or_no_half_life_fades_nothing(elapsed: float, half_life: float) -> None:
    assert factor(elapsed, half_life) == 1


def test_v3_a_score_after_half_a_day_and_one_and_a_half() -> None:
    assert score_after(12 * H) == near(0.565685425, abs=1e-9)
    assert score_after(36 * H) == near(0.282842712, abs=1e-9)


def test_v4_reading_moves_no_anchor_and_counts_nothing() -> None:
    record = Activation(score=0.8, importance=0.6, reinforcement_count=3)
    view = record.decayed(D, HalfLives(D, D))
    assert (view.score, view.importance) == (0.4, 0.3)
    assert record == Activation(score=0.8, importance=0.6, reinforcement_count=3)


def test_v5_a_clock_that_was_set_back_fades_nothing_and_half_life_0_neither() -> None:
    record = Activation(score=0.8, importance=0.6, anchor=5000)
    for view in (record.decayed(1000, FLAT), record.decayed(5000 + D, HalfLives(0, 0))):
        assert (view.score, view.importance) == (0.8, 0.6)


def test_v6_importance_has_a_curve_of_its_own() -> None:
    assert Activation(importance=0.6).decayed(D, FLAT).importance == near(0.586295981, abs=1e-9)


def test_v7_inhibition_fades_from_its_own_anchor() -> None:
    record = Activation(score=0.8, anchor=9 * D, inhibition=0.8, inhibited_at=0)
    assert record.decayed(12 * H, FLAT).inhibition == 0.4


def test_v8_a_week_leaves_a_hundred_and_twenty_eighth() -> None:
    assert score_after(7 * D, score=1) == 0.0078125
    assert score_after(D, HalfLives(score_ms=12 * H), score=1) == 0.25


@pytest.mark.parametrize(
    ("memory_class", "score"),
    [
        ("episodic", 0.4),
        ("semantic", 0.761356122),
        ("procedural", 0.761356122),
        ("entity", 0.790811216),
        (None, 0.565685425),
    ],
)
def test_v9_each_class_has_a_score_half_life(memory_class: str | None, score: float) -> None:
    assert score_after(12 * H, CURVES.half_lives(memory_class)) == near(score, abs=1e-9)


@pytest.mark.parametrize(
    ("memory_class", "importance"),
    [
        ("episodic", 0.25),
        ("semantic", 0.473758004),
        ("procedural", 0.461158097),
        ("entity", 0.5),
        (None, 0.425333580),
    ],
)
def test_v10_each_class_has_an_importance_half_life(memory_class: str | None, importance: float) -> None:
    view = Activation(importance=0.5).decayed(7 * D, CURVES.half_lives(memory_class))
    assert view.importance == near(importance, abs=1e-9)


def test_v81_a_rank_key_orders_alike_at_every_moment() -> None:
    keys = [rank_key(0.8, 0, D), rank_key(0.5, 12 * H, D), rank_key(0.5, D, D)]
    assert keys == [near(-0.321928, abs=1e-6), -0.5, 0]
    assert rank_key(0, 0, D) is rank_key(-1, 0, D) is None
    assert [0.8 * factor(D, D), 0.5 * factor(12 * H, D), 0.5] == [0.4, near(0.353553, abs=1e-6), 0.5]


def test_a_class_that_says_half_falls_back_for_the_other_half() -> None:
    curves = Curves(classes={"episodic": {"score": H}}, kinds={"note": "episodic"})
    assert curves.resolve(None, "note") == HalfLives(H, FLAT.importance_ms)
    assert curves.resolve("semantic", "note") == FLAT
    assert Curves(classes={}).resolve("entity", "fact") == FLAT
    assert {CURVES.class_of(None, kind) for kind in ("fact", "episode", "instruction", "entity")} == set(
        CLASSES
    )


# Bit for bit the same everywhere means made of roots, sums and products; they must still be right.
@given(st.floats(0, 2000))
def test_the_factor_is_a_power_of_one_half(power: float) -> None:
    assert factor(power, 1) == near(0.5**power, rel=2e-15, abs=0)


@given(st.floats(1e-300, 1e300))
def test_the_logarithm_is_one(value: float) -> None:
    assert log2(value) == near(math.log2(value), rel=1e-15, abs=2e-15)


@given(st.integers(-1000, 1000))
def test_powers_of_two_have_whole_logarithms(power: int) -> None:
    assert log2(2.0**power) == power
    assert factor(max(power, 0), 1) == float(Fraction(1, 2 ** max(power, 0)))


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(1, 10**7))
def test_more_time_never_leaves_more(elapsed: int, more: int, half_life: int) -> None:
    assert factor(elapsed + more, half_life) <= factor(elapsed, half_life) * (1 + 1e-15)


@given(st.floats(allow_nan=False))
def test_what_is_cut_is_between_0_and_1(value: float) -> None:
    assert clamp(value) == min(1.0, max(0.0, value))
