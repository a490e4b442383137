"""How good a ranking is, and what a window of it is worth."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

__all__ = ("first_of", "ndcg", "recall_at", "reciprocal_rank")


def recall_at(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the share of the relevant that is among the first ``k``; 1 if nothing is relevant."""
    return sum([item in relevant for item in ranked[:k]]) / len(relevant) if relevant else 1.0


def reciprocal_rank(ranked: Sequence[str], answer: str) -> float:
    """Return 1 over the place of the answer, 0 if it is absent."""
    return 1 / (ranked.index(answer) + 1) if answer in ranked else 0.0


def ndcg(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the discounted gain of the first ``k`` over the best possible, all relevant alike."""
    gain = sum([1 / math.log2(place + 2) for place, item in enumerate(ranked[:k]) if item in relevant])
    best = sum([1 / math.log2(place + 2) for place in range(min(k, len(relevant)))])
    return gain / best if best else 1.0


def first_of(ranked: Sequence[str], bearing: Collection[str]) -> str | None:
    """Return the first item that bears on a question: what a reader of the window goes by."""
    return next((item for item in ranked if item in bearing), None)
