"""Finding what a window could show: the port, a fixed answer, and rank fusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from agentloop._numbers import check_count, check_finite

__all__ = ("FUSION_K", "FixedRetriever", "FusedRetriever", "Passage", "Retriever", "fuse")

#: How much the first ranks count over the later ones, as usual in the literature.
FUSION_K: Final = 60


class Passage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text that was found."""

    id: str
    text: str
    #: Comparable within one answer only.
    score: float = 0.0
    metadata: Mapping[str, Any] = {}
    #: What feedback about the passage is given to, if it is given any.
    retrieval_id: str | None = None

    def __post_init__(self) -> None:
        check_finite("score", self.score)


class Retriever(Protocol):
    """Finds passages."""

    @property
    def name(self) -> str:
        """Which one this is, with its version: recorded with every window."""

    async def retrieve(self, query: str, *, limit: int) -> Sequence[Passage]:
        """Return at most ``limit`` passages, best first; empty when nothing matches."""


@dataclass(frozen=True, slots=True)
class FixedRetriever:
    """Gives the same passages for every query."""

    passages: Sequence[Passage]
    name: str = "fixed"

    async def retrieve(self, query: str, *, limit: int) -> Sequence[Passage]:
        return self.passages[:limit]


def fuse(rankings: Sequence[Sequence[Passage]], *, limit: int, k: int = FUSION_K) -> list[Passage]:
    """Return the best of several rankings by reciprocal rank; ties by id.

    A passage keeps what the first ranking that has it says about it, with the fused score.
    """
    check_count("limit", limit, 0)
    check_count("k", k, 0)
    scores: dict[str, float] = {}
    found: dict[str, Passage] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, 1):
            scores[passage.id] = scores.get(passage.id, 0.0) + 1 / (k + rank)
            found.setdefault(passage.id, passage)
    best = sorted(scores, key=lambda name: (-scores[name], name))[:limit]
    return [msgspec.structs.replace(found[name], score=scores[name]) for name in best]


@dataclass(frozen=True, slots=True)
class FusedRetriever:
    """Asks several retrievers and fuses their rankings, as of words and of embeddings."""

    retrievers: Sequence[Retriever]

    @property
    def name(self) -> str:
        return f"fused({', '.join(retriever.name for retriever in self.retrievers)})"

    async def retrieve(self, query: str, *, limit: int) -> Sequence[Passage]:
        # Deeper than asked for: what two rankings have in the middle beats what one has on top.
        depth = max(limit, FUSION_K)
        rankings = [await retriever.retrieve(query, limit=depth) for retriever in self.retrievers]
        return fuse(rankings, limit=limit)
