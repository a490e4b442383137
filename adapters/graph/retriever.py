"""Passages for the context window, looked up among the nodes of a graph.

By meaning with an embedder of the caller's, by words without one; `FusedRetriever` joins the
two. What is found keeps its node's id, so that feedback about it reaches the node.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from adapters.graph.calls import GraphCalls
from agentloop._canonical import encode_text
from agentloop._numbers import check_count
from agentloop.context.retrieval import Passage, fuse
from agentloop.context.words import WordRule
from graphstate import Node

__all__ = ("Embed", "GraphRetriever", "node_passage_text")

Vector: TypeAlias = Sequence[float]
#: Makes the vector of a query, in the space of the graph's vectors.
Embed: TypeAlias = Callable[[str], Vector | Awaitable[Vector]]

#: Words of a query that are looked up, and nodes that each of them gives.
_WORDS: Final = 32
_FOUND: Final = 64
#: What a graph gives at most.
_MOST: Final = 1_000


class _Graph(Protocol):
    """What is asked of a graph; `graphstate.Adaptogen` has it."""

    @property
    def recall(self) -> Callable[..., Sequence[Node]]: ...


def node_passage_text(node: Node) -> str:
    """Return a node as a window shows it: its payload's ``text``, else its label and payload."""
    payload = node.payload
    if isinstance(payload, dict) and isinstance(payload.get("text"), str):
        return str(payload["text"])
    told = [node.label] if node.label else []
    return "\n".join([*told, encode_text(payload)] if payload not in ({}, None) else told)


class GraphRetriever:
    """A `Retriever` over the active nodes of a graph.

    One pass over the graph's vectors for each query, or one search for each of its words.

    Args:
        graph: An open graph, which stays its owner's to close.
        embed: From a query to its vector; may be async. The nodes have to have vectors of the
            same length. None looks for words.
        version: Says which embedder it is, and is recorded with every window.
        kind: Only nodes of this kind.
        tag: Only nodes with this tag.
        text_of: What is shown of a node; one of which nothing is shown is left out.
        words: How queries are split where words are looked for.

    Raises:
        VerbFailed: From `retrieve`, if the graph refuses the vector.
    """

    def __init__(
        self,
        graph: _Graph,
        *,
        embed: Embed | None = None,
        version: str = "",
        kind: str | None = None,
        tag: str | None = None,
        text_of: Callable[[Node], str] = node_passage_text,
        words: WordRule | None = None,
    ) -> None:
        self._graph, self._embed, self._text_of = graph, embed, text_of
        self._only = {"kind": kind, "tag": tag, "status": "active"}
        self._words = words or WordRule(unicode=True)
        self._call = GraphCalls(graph)
        by = "words" if embed is None else f"embeddings {version}".strip()
        self.name = f"graph by {by}"

    async def retrieve(self, query: str, *, limit: int) -> list[Passage]:
        """Return at most ``limit`` passages, best first; see `Retriever`."""
        check_count("limit", limit, 0)
        if not query.strip() or not limit:
            return []
        if self._embed is None:
            rankings = await self._call(lambda: self._by_words(query))
            return fuse(rankings, limit=limit)
        made = self._embed(query)
        vector: list[float] = [*(await made if inspect.isawaitable(made) else made)]
        return await self._call(lambda: self._nearest(vector, limit))

    def _by_words(self, query: str) -> list[list[Passage]]:
        words = list(dict.fromkeys(self._words(query)))[:_WORDS]
        return [self._passages(self._graph.recall(**self._only, text=word, limit=_FOUND)) for word in words]

    def _nearest(self, vector: list[float], limit: int) -> list[Passage]:
        nodes = self._graph.recall(**self._only, embedding=vector, limit=min(limit, _MOST))
        # A graph without vectors answers with any nodes: nothing of them is near.
        near = {node.id: _cosine(vector, node.embedding) for node in nodes if node.embedding}
        return [
            Passage(id=one.id, text=one.text, score=near[one.id], retrieval_id=one.id)
            for one in self._passages([node for node in nodes if near.get(node.id, 0) > 0])
        ]

    def _passages(self, nodes: Sequence[Node]) -> list[Passage]:
        told = [(node.id, self._text_of(node)) for node in nodes]
        return [Passage(id=name, text=text, retrieval_id=name) for name, text in told if text.strip()]


def _cosine(one: Vector, other: Vector) -> float:
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(x * y for x, y in zip(one, other, strict=True)) / norms if norms else 0.0
