"""Means with what they are worth: seeded bootstrap intervals over seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import inf
from statistics import fmean
from typing import NamedTuple

__all__ = ("Interval", "interval", "quotient_interval", "ratio_interval")

_DRAWS = 2_000
_SEED = 20_240


class Interval(NamedTuple):
    """A figure and the middle 95 % of what it would be, had other seeds of these been drawn."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


def interval(values: Sequence[float], *, draws: int = _DRAWS) -> Interval:
    """Return the mean of one value a seed with its 95 % interval; the same for the same values."""
    return _bootstrap(len(values), lambda picked: fmean([values[i] for i in picked]), draws)


def ratio_interval(above: Sequence[float], below: Sequence[float], *, draws: int = _DRAWS) -> Interval:
    """Return the ratio of two sums over the same seeds; each draw takes both sides of a seed."""
    if len(above) != len(below):
        raise ValueError(f"{len(above)} values over {len(below)}: both sides need one a seed")

    def ratio(picked: Sequence[int]) -> float:
        total = sum([below[i] for i in picked])
        return sum([above[i] for i in picked]) / total if total else inf

    return _bootstrap(len(above), ratio, draws)


def quotient_interval(
    one: tuple[Sequence[float], Sequence[float]],
    other: tuple[Sequence[float], Sequence[float]],
    *,
    draws: int = _DRAWS,
) -> Interval:
    """Return one ratio of sums over another one of the same seeds."""

    def ratio(pair: tuple[Sequence[float], Sequence[float]], picked: Sequence[int]) -> float:
        below = sum([pair[1][i] for i in picked])
        return sum([pair[0][i] for i in picked]) / below if below else inf

    def quotient(picked: Sequence[int]) -> float:
        theirs = ratio(other, picked)
        return 0.0 if theirs == inf else ratio(one, picked) / theirs

    return _bootstrap(len(one[0]), quotient, draws)


def _bootstrap(count: int, figure: Callable[[Sequence[int]], float], draws: int) -> Interval:
    if not count:
        raise ValueError("no values")
    rng = random.Random(_SEED)
    places = range(count)
    drawn = sorted(figure(rng.choices(places, k=count)) for _ in range(draws))
    return Interval(figure(places), drawn[int(draws * 0.025)], drawn[min(draws - 1, int(draws * 0.975))])
