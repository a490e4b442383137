"""Vectors V54 to V56 on their arithmetic: the score, and how a verdict moves its weights."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphstate.activation.base_level import base_level, base_level_of, retention
from graphstate.activation.composite import (
    DEFAULT_WEIGHTS,
    LEARNED,
    additive,
    centred,
    composite,
    shares,
    taught,
)

A = {"semantic": 1.0, "graph": 0.0, "recency": 0.5, "usage": 0.2}
B = {"semantic": 0.6, "graph": 0.0, "recency": 1.0, "usage": 0.0}
FRESH = {"semantic": 0.6, "graph": 0.5, "recency": 1.0, "usage": 0.0}
UNIT = st.floats(0, 1)


def four(weights: dict[str, float]) -> list[float]:
    return [weights[name] for name in ("semantic", "graph", "recency", "usage")]


def test_v54_the_additive_rule_adds_a_share_of_each_signal() -> None:
    after = additive(dict(DEFAULT_WEIGHTS), A, useful=True, rate=0.05)
    assert four(after) == pytest.approx([1.05, 1.0, 1.025, 1.01])
    assert composite(A, after, normalise=False) == pytest.approx(1.7645)
    assert four(additive(dict(DEFAULT_WEIGHTS), B, useful=False, rate=0.05)) == pytest.approx(
        [0.97, 1, 0.95, 1]
    )


def test_v55_the_additive_rule_stops_at_zero() -> None:
    after = additive(dict(DEFAULT_WEIGHTS), B, useful=False, rate=2)
    assert (after["semantic"], after["recency"]) == (0, 0)


def test_v56_the_default_rule_measures_against_the_mean() -> None:
    after = taught("centred", DEFAULT_WEIGHTS, A, useful=True, rate=0.05)
    assert four(after) == pytest.approx([1.028984, 0.978800, 1.003579, 0.988637], abs=1e-6)
    assert sum(four(after)) == pytest.approx(4)
    assert after["lexical"] == 1.0


def test_v54_under_the_default_rule_fresh_nodes_do_not_make_recency_heavy() -> None:
    weights: dict[str, float] = dict(DEFAULT_WEIGHTS)
    for signal in (0.9, 0.2, 0.4):  # useful whenever the meaning was near; recency is always 1
        weights = centred(weights, {"semantic": signal, "recency": 1.0}, useful=signal > 0.5, rate=0.5)
    assert weights["semantic"] > 1 > weights["recency"]


@given(st.lists(st.tuples(st.sampled_from([A, B, FRESH]), st.booleans()), max_size=40), st.floats(0, 5))
def test_v55_the_default_rule_keeps_weights_between_bounds(
    verdicts: list[tuple[dict[str, float], bool]], rate: float
) -> None:
    weights: dict[str, float] = dict(DEFAULT_WEIGHTS)
    for signals, useful in verdicts:
        weights = centred(weights, signals, useful=useful, rate=rate)
        assert all(0.05 <= weights[name] <= 3 for name in LEARNED)
    assert weights["inhibition"] == 0


def test_a_useful_verdict_and_a_harmful_one_undo_each_other() -> None:
    there = centred(DEFAULT_WEIGHTS, A, useful=True, rate=0.1)
    assert centred(there, A, useful=False, rate=0.1) == pytest.approx(DEFAULT_WEIGHTS)


def test_no_signal_teaches_nothing() -> None:
    assert taught("centred", DEFAULT_WEIGHTS, {"novelty": 1.0}, useful=True, rate=1) == DEFAULT_WEIGHTS


@given(st.fixed_dictionaries(dict.fromkeys(LEARNED, UNIT)), st.floats(0.1, 9))
def test_a_total_is_a_mean_and_scaling_all_weights_changes_nothing(
    signals: dict[str, float], by: float
) -> None:
    plain = composite(signals, DEFAULT_WEIGHTS)
    scaled = composite(signals, {name: weight * by for name, weight in DEFAULT_WEIGHTS.items()})
    assert 0 <= plain <= 1 + 1e-12
    assert scaled == pytest.approx(plain)
    assert math.fsum(shares(signals, DEFAULT_WEIGHTS).values()) == pytest.approx(plain)


def test_gap_28_confidence_scales_the_total() -> None:
    assert composite(A, DEFAULT_WEIGHTS, confidence=0.5) == pytest.approx(0.425 * 0.5)
    assert composite(A, DEFAULT_WEIGHTS, confidence=0.5, gamma=2) == pytest.approx(0.425 * 0.25)
    assert composite(A, DEFAULT_WEIGHTS, confidence=0.0, gamma=0) == pytest.approx(0.425)


def test_inhibition_is_subtracted_if_it_has_a_weight_and_a_total_stays_above_zero() -> None:
    strict = {**DEFAULT_WEIGHTS, "inhibition": 1.0}
    assert composite(A, DEFAULT_WEIGHTS, inhibition=0.3) == pytest.approx(0.425)
    assert composite(A, strict, inhibition=0.3) == pytest.approx(0.125)
    assert composite(A, strict, inhibition=0.9) == 0


def test_signals_without_weight_make_no_total() -> None:
    assert composite({"semantic": 1.0}, {**DEFAULT_WEIGHTS, "semantic": 0.0}) == 0


# ------------------------------------------------------------------------------ power law

S = 1_000


def test_gap_17_the_base_level_has_its_published_values() -> None:
    assert base_level_of([16 * S]) == pytest.approx(-1.386294, abs=1e-6)
    assert base_level(1, first_ms=16 * S, last_ms=16 * S) == pytest.approx(-1.386294, abs=1e-6)
    assert base_level_of([60 * S, 3_600 * S, 86_400 * S]) == pytest.approx(-1.902681, abs=1e-6)
    # The three numbers do not miss the newest use, as the cheap form (-3.891612) does.
    assert base_level(3, first_ms=86_400 * S, last_ms=60 * S) == pytest.approx(-1.902681, abs=0.15)


def test_gap_17_spaced_use_outlasts_massed_use() -> None:
    hour, day = 3_600 * S, 86_400 * S
    massed = base_level(10, first_ms=30 * day + hour, last_ms=30 * day)
    spaced = base_level(10, first_ms=60 * day, last_ms=day)
    assert retention(spaced) > retention(massed) > 0


def test_gap_17_never_used_is_not_remembered() -> None:
    assert base_level(0, first_ms=0, last_ms=0) == base_level_of([]) == -math.inf
    assert retention(-math.inf) == 0
    assert retention(-6.0) == 0.5
    assert base_level(2, first_ms=0, last_ms=0) == pytest.approx(math.log(2))


@given(st.integers(1, 50), st.floats(1_000, 1e9), st.floats(1, 1e9))
def test_gap_17_more_uses_and_younger_ones_never_weaken(uses: int, last: float, span: float) -> None:
    level = base_level(uses, first_ms=last + span, last_ms=last)
    assert base_level(uses + 1, first_ms=last + span, last_ms=last) > level - 1e-9
    assert base_level(uses, first_ms=last + span + 1e6, last_ms=last + 1e6) < level + 1e-9
