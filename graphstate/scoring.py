"""Learned value: how rewards settle, fade and rank moves. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from graphstate._canonical import Json
from graphstate.model import Breakdown, Edge, Stat, Suggestion, Trace

__all__ = ("Experience", "confidence", "credit", "faded", "joined", "learned", "rank", "weight_term")

_LEAST_WEIGHT = 1e-9

# What a losing edge keeps of its prior, so that it can still be tried.
_LEAST_SHARE = 0.01


class Experience(Protocol):
    """What a ranking needs to know about an edge."""

    visits: int
    ema: float
    rewarded_by: str | None
    rewarded_move: int


def credit(ema: float, value: float, weight: float, alpha: float) -> float:
    """Return the average after a reward; the weight scales the step, not the target.

    A share of a good outcome can therefore never lower a good edge.
    """
    return ema + alpha * weight * (value - ema)


def faded(ema: float, age: int, half_life: float) -> float:
    """Return what a reward still counts after ``age`` moves of the cursor that earned it."""
    return float(ema * 0.5 ** (max(0, age) / max(1.0, half_life)))


def weight_term(weight: float) -> float:
    """Return the prior's share of a score; a weight of 0 is about -20.7."""
    return math.log(weight if weight > _LEAST_WEIGHT else _LEAST_WEIGHT)


def learned(prior: float, ema: float) -> float:
    """Return what experience adds to a prior: its share ``ema``, at least -99 percent of it.

    Prior and learned weight together are the prior times ``max(0.01, 1 + ema)``, so that a
    prior of 0 stays 0.
    """
    return prior * max(_LEAST_SHARE - 1, ema)


def joined(one: Stat, other: Stat) -> Stat:
    """Return what two statistics say together; averages count by their rewards."""
    mine, theirs = (stat.successes + stat.failures for stat in (one, other))
    latest = max((one, other), key=lambda stat: (stat.rewarded_by is not None, stat.last_seq))
    return Stat(
        visits=one.visits + other.visits,
        successes=one.successes + other.successes,
        failures=one.failures + other.failures,
        soft_violations=one.soft_violations + other.soft_violations,
        blocks=one.blocks + other.blocks,
        ema_reward=(one.ema_reward * mine + other.ema_reward * theirs) / max(1, mine + theirs),
        last_seq=max(one.last_seq, other.last_seq),
        rewarded_by=latest.rewarded_by,
        rewarded_move=latest.rewarded_move,
    )


def confidence(visits: int) -> float:
    """Return 0..1: how much the visits are worth."""
    return visits / (visits + 4)


def rank(
    moves: Sequence[tuple[Edge, Experience, Trace]],
    *,
    tunables: Mapping[str, Json],
    moves_of: Callable[[str], int],
    rand: Callable[[], float],
) -> tuple[list[Suggestion], list[float]]:
    """Return the moves with their scores, best first, and the random numbers drawn for them.

    A score is reward + ln(weight) + exploration. Equal scores are ordered by edge id.

    Args:
        tunables: decayHalfLife, explore, ucbC, epsilon.
        moves_of: How many moves an actor's cursor has made; only these make a reward older.
        rand: Called once or twice for each move, in their order, if explore is ``epsilon``.
    """
    half_life, strategy, c = tunables["decayHalfLife"], tunables["explore"], tunables["ucbC"]
    log_total = math.log(1 + sum([known.visits for _, known, _ in moves]))
    draws: list[float] = []
    ranked: list[tuple[float, str, Suggestion]] = []
    log, sqrt = math.log, math.sqrt
    for edge, known, trace in moves:
        visits, ema, reward, explore = known.visits, known.ema, 0.0, 0.0
        if ema and known.rewarded_by is not None:
            reward = faded(ema, moves_of(known.rewarded_by) - known.rewarded_move, half_life)
        prior = edge.weight + edge.learned_weight
        weight = log(prior if prior > _LEAST_WEIGHT else _LEAST_WEIGHT)
        if strategy == "ucb":
            explore = c * sqrt(log_total / (visits + 1))
        elif strategy == "epsilon":
            draws.append(rand())
            if draws[-1] < tunables["epsilon"]:
                explore = rand()
                draws.append(explore)
        edge_id, score = edge.id, reward + weight + explore
        suggestion = Suggestion(
            edge_id, edge.src, edge.dst, score, visits / (visits + 4), trace.effective_enforcement, visits, ema,
            Breakdown(reward, weight, explore),
        )  # fmt: skip
        ranked.append((-score, edge_id, suggestion))
    ranked.sort()
    return [suggestion for _, _, suggestion in ranked], draws
