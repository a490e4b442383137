"""One score from several signals, and how feedback moves their weights.

Each signal is a number from 0 to 1: nearness of meaning, shared words, what spread over edges,
how new, how much used. The total is their weighted mean, so that a threshold means the same
whatever the weights became. A signal that a query cannot have, such as shared words for a query
that is a vector, takes no part in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

__all__ = (
    "DEFAULT_WEIGHTS", "LEARNED", "RULES", "FeedbackRule", "additive", "centred", "composite", "contrasted",
    "shares", "taught",
)  # fmt: skip

FeedbackRule: TypeAlias = Literal["centred", "additive", "contrast"]

#: Signals whose weights feedback moves.
LEARNED = ("semantic", "lexical", "graph", "recency", "usage")

#: `inhibition` is subtracted; it takes no part in the mean, and feedback leaves it.
DEFAULT_WEIGHTS: Mapping[str, float] = {**dict.fromkeys(LEARNED, 1.0), "inhibition": 0.0}

RULES = ("centred", "additive", "contrast")

# Where the centred rule keeps a weight; the additive one only keeps it from falling below 0.
_LEAST, _MOST = 0.05, 3.0


def composite(
    signals: Mapping[str, float],
    weights: Mapping[str, float],
    *,
    inhibition: float = 0.0,
    confidence: float = 1.0,
    gamma: float = 1.0,
    normalise: bool = True,
) -> float:
    """Weigh the signals that a query has.

    The weighted mean times ``confidence ** gamma``, less ``weights["inhibition"] * inhibition``, and
    not below 0. Without ``normalise`` the weighted sum takes the place of the mean.
    """
    relevance, mass = 0.0, 0.0
    for name, value in signals.items():
        weight = weights[name]
        relevance += weight * value
        mass += weight
    if normalise:
        relevance = relevance / mass if mass else 0.0
    if confidence != 1:
        relevance *= confidence**gamma
    return max(0.0, relevance - weights["inhibition"] * inhibition)


def shares(
    signals: Mapping[str, float], weights: Mapping[str, float], *, normalise: bool = True
) -> dict[str, float]:
    """Return what each signal adds to a composite, before confidence and inhibition."""
    mass = sum(weights[name] for name in signals) if normalise else 1.0
    return {name: weights[name] * value / mass if mass else 0.0 for name, value in signals.items()}


def centred(
    weights: Mapping[str, float], signals: Mapping[str, float], *, useful: bool, rate: float
) -> dict[str, float]:
    """Move weights towards the signals that stood out, and return all of them.

    A weight grows by ``exp(rate * (signal - mean of the signals))``; those of the signals given
    are then scaled so that their mean is 1, and kept within 0.05 to 3. Measured against the mean,
    a signal that is high for every node, as recency is for fresh ones, gains nothing by it.
    """
    if not signals:
        return dict(weights)
    step = rate if useful else -rate
    mean = math.fsum(signals.values()) / len(signals)
    return _moved(weights, {name: step * (value - mean) for name, value in signals.items()})


def contrasted(
    weights: Mapping[str, float], signals: Mapping[str, float], others: Mapping[str, float], *, rate: float
) -> dict[str, float]:
    """Move weights towards the signals in which a useful memory is ahead of others.

    ``others`` are the means of those that were ranked before it. A signal that is as high in them
    all, as sharing words is among what was found by words, tells them not apart and gains nothing.
    """
    if not signals:
        return dict(weights)
    return _moved(
        weights, {name: rate * (value - others.get(name, value)) for name, value in signals.items()}
    )


def _moved(weights: Mapping[str, float], steps: Mapping[str, float]) -> dict[str, float]:
    moved = {name: weights[name] * math.exp(step) for name, step in steps.items()}
    mass = math.fsum(moved.values())
    scale = len(moved) / mass if mass else 1.0
    return {**weights, **{name: min(_MOST, max(_LEAST, value * scale)) for name, value in moved.items()}}


def additive(
    weights: Mapping[str, float], signals: Mapping[str, float], *, useful: bool, rate: float
) -> dict[str, float]:
    """Add ``rate`` times each signal to its weight, or take it away, and return all weights."""
    step = rate if useful else -rate
    return {
        **weights,
        **{name: max(0.0, weights[name] + step * value) for name, value in signals.items()},
    }


def taught(
    rule: FeedbackRule,
    weights: Mapping[str, float],
    signals: Mapping[str, float],
    *,
    useful: bool,
    rate: float,
    others: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return the weights after one verdict by a rule; signals it does not know are left out.

    By contrast only what was useful and had ``others`` before it teaches: the rest was ranked well.
    """
    known = {name: value for name, value in signals.items() if name in LEARNED}
    if rule == "contrast":
        return contrasted(weights, known, others, rate=rate) if useful and others else dict(weights)
    return (centred if rule == "centred" else additive)(weights, known, useful=useful, rate=rate)
