"""Learned value: how rewards settle, fade and rank moves. Pure arithmetic."""

from __future__ import annotations

import math

__all__ = ("confidence", "credit", "explore_ucb", "faded", "weight_term")


def credit(ema: float, value: float, weight: float, alpha: float) -> float:
    """Return the average after a reward; the weight scales the step, not the target.

    A share of a good outcome can therefore never lower a good edge.
    """
    return ema + alpha * weight * (value - ema)


def faded(ema: float, age: int, half_life: float) -> float:
    """Return what a reward still counts after ``age`` moves of the cursor that earned it."""
    return float(ema * 0.5 ** (max(0, age) / max(1.0, half_life))) if ema else 0.0


def weight_term(weight: float) -> float:
    """Return the prior's share of a score; a weight of 0 is about -20.7."""
    return math.log(max(1e-9, weight))


def explore_ucb(c: float, visits: int, total: int) -> float:
    """Return the bonus of a move that was taken less often than the others."""
    return c * math.sqrt(math.log(total + 1) / (visits + 1))


def confidence(visits: int) -> float:
    """Return 0..1: how much the visits are worth."""
    return visits / (visits + 4)
