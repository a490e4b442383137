"""Memories of the context window, kept as nodes of a graph.

A fact is a ``semantic`` node, an episode an ``episodic``, an instruction a ``procedural`` one.
How far its text is trusted is what the graph has folded from who wrote it and what it was made
of. What the payload says of it, where anybody who may write nodes could say anything, only lowers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from adapters.graph.calls import GraphCalls, value_of
from adapters.graph.names import memory_id
from agentloop.context.memory import (
    GIVES_INSTRUCTIONS,
    TRUST_LEVELS,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    Trust,
    is_met,
    lowest_trust,
    ranked,
    settled,
)
from agentloop.context.words import WordRule
from graphstate import Node

__all__ = ("NODE_KINDS", "GraphMemory")

#: Which kind of node holds which kind of memory.
NODE_KINDS: Final[dict[MemoryKind, str]] = {
    "fact": "semantic",
    "episode": "episodic",
    "instruction": "procedural",
}
_KINDS: Final = {node: kind for kind, node in NODE_KINDS.items()}
#: Words of a query that are looked up, nodes that each of them gives.
_WORDS: Final = 32
_FOUND: Final = 64
_MOST: Final = 1_000

T = TypeVar("T")


class _Graph(Protocol):
    """What is asked of a graph; `graphstate.Adaptogen` has it."""

    @property
    def recall(self) -> Callable[..., Sequence[Node]]: ...
    @property
    def get_node(self) -> Callable[[str], Node | None]: ...
    @property
    def as_actor(self) -> Callable[..., Any]: ...


class GraphMemory:
    """A `MemoryStore` in a graph; nodes that others put aside are not recalled.

    Without words, what matters most is looked for among the first thousand nodes of a kind.

    Args:
        graph: An open graph, which stays its owner's to close.
        actor: Who writes, in the graph's log; the trust written there is the record's.
        words: How texts are split for ranking.
    """

    name = "graph"

    def __init__(self, graph: _Graph, *, actor: str = "memory", words: WordRule | None = None) -> None:
        self._graph, self._actor = graph, actor
        self._words = words or WordRule(unicode=True)
        self._call = GraphCalls(graph)

    async def remember(self, record: MemoryRecord, /) -> MemoryRecord:
        """Keep a record as a node, in place of one with its id, and return it as it is kept.

        Raises:
            ValueError: Trust forbids it; nothing was changed.
            VerbFailed: The graph refused; the message says why.
        """
        return await self._call(lambda: self._remember(record))

    def _remember(self, record: MemoryRecord) -> MemoryRecord:
        kept = settled(record, self._known)
        node = memory_id(kept.id)
        fields = ("id", "text", "created_at", "salience", "trust", "source", "derived_from", "metadata")
        payload = {name: msgspec.to_builtins(getattr(kept, name)) for name in fields}
        writer = self._graph.as_actor(self._actor, trust=kept.trust)
        value_of(
            writer.remember(
                node, kind=NODE_KINDS[kept.kind], payload=payload, tags=list(kept.tags), status="active"
            )
        )
        return msgspec.structs.replace(kept, retrieval_id=node)

    async def recall(self, query: MemoryQuery, /) -> list[MemoryRecord]:
        """Return what matches, best first; see `MemoryStore`."""
        return await self._call(lambda: self._recall(query))

    def _recall(self, query: MemoryQuery) -> list[MemoryRecord]:
        nodes = {node.id: node for node in self._candidates(query)}
        records = [record for node in nodes.values() if (record := self._record(node)) is not None]
        return ranked([record for record in records if is_met(query, record)], query, words=self._words)

    async def all(self) -> list[MemoryRecord]:
        """Return every record, by id: of each kind the first thousand."""
        everything = MemoryQuery(limit=len(NODE_KINDS) * _MOST)
        found = await self._call(lambda: GraphMemory._recall(self, everything))
        return sorted(found, key=lambda record: record.id)

    # -------------------------------------------------------------------------------- nodes

    def _candidates(self, query: MemoryQuery) -> Iterator[Node]:
        words: Sequence[str | None] = (None,)
        if query.text and query.text.strip():
            words = list(dict.fromkeys(self._words(query.text)))[:_WORDS]
        wanted = set(NODE_KINDS if query.kinds is None else query.kinds)
        if "fact" in wanted:
            wanted.add("instruction")  # one that its writer may not give is a fact
        for kind in [NODE_KINDS[kind] for kind in NODE_KINDS if kind in wanted]:
            for word in words:
                limit = _MOST if word is None else _FOUND
                yield from self._graph.recall(kind=kind, status="active", text=word, limit=limit)

    def _known(self, id: str) -> MemoryRecord | None:
        node = self._graph.get_node(memory_id(id))
        return None if node is None else self._record(node)

    def _record(self, node: Node) -> MemoryRecord | None:
        """Return the record a node holds; None for a node of another making."""
        if not isinstance(node.payload, dict) or node.kind not in _KINDS:
            return None
        trust = self._trust(node)
        kind = _KINDS[node.kind]
        if kind == "instruction" and trust not in GIVES_INSTRUCTIONS:
            kind = "fact"
        told = {
            # What others remember under a kind of these, as a server's clients do, has no id of its own.
            "id": node.id.removeprefix("memory:"),
            "created_at": node.created_at,
            **node.payload,
            "trust": trust,
            "kind": kind,
            "tags": node.tags,
        }
        try:
            record = msgspec.convert(told, MemoryRecord)
        except (msgspec.ValidationError, ValueError):
            return None
        return msgspec.structs.replace(record, retrieval_id=node.id)

    def _trust(self, node: Node) -> Trust:
        """Return the trust of a node's text: what the graph says, or less if the node itself says so."""
        said: Any = node.payload.get("trust") if isinstance(node.payload, dict) else None
        return lowest_trust([node.trust, said]) if said in TRUST_LEVELS else node.trust
