"""Memories of the context window that are there because they are present, and learn from what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from adapters.graph.calls import value_of
from adapters.graph.learning import shown_id, zone_of
from adapters.graph.memory import GraphMemory
from adapters.graph.names import actor_of
from agentloop._canonical import encode_text
from agentloop.context.memory import MemoryQuery, MemoryRecord, is_met
from agentloop.context.words import WordRule
from graphstate import Adaptogen, Node

__all__ = ("GraphWorkingMemory",)

#: What a new memory of unknown salience is reinforced by, as if it had been shown once.
_NEW: Final = 0.1
#: Memories that are looked at for each one that is asked for: some have another kind or tag.
_DEPTH: Final = 4
_MOST: Final = 1_000
#: Kinds of nodes that the library itself writes and that are nobody's memories.
_OTHERS: Final = ("run", "start", "task")
#: Bytes of a question that are searched for.
_QUESTION: Final = 1_024
#: Characters of a payload that is shown as it is.
_TEXT: Final = 2_000


class GraphWorkingMemory(GraphMemory):
    """A `MemoryStore` that recalls what resembles the question, then what is present by itself.

    A search is remembered in the file, and each record says which one found it: a `GraphBridge`
    on the same graph lets the verdict on the run count for the memories it was shown. Nodes
    without a record are recalled by their label or payload, as data.

    Standing instructions do not fade: asked for instructions alone, it answers as `GraphMemory`.

    Args:
        graph: An open graph, which stays its owner's to close.
        task: Whose weights of signals are used and learn; the zone its cursor stands in is the context.
        context: Another context, or a function that returns one; a context changes what is present.
        fill: Give the places that a search leaves to what is present.
        actor: Who writes, in the graph's log.
        words: As of `GraphMemory`.
    """

    name = "graph-working-memory"

    def __init__(
        self,
        graph: Adaptogen,
        *,
        task: str = "default",
        context: str | Callable[[], str | None] | None = None,
        fill: bool = True,
        actor: str = "memory",
        words: WordRule | None = None,
    ) -> None:
        super().__init__(graph, actor=actor, words=words)
        self._memory, self._task, self._fill = graph, actor_of(task), fill
        self._context = context

    def _where(self) -> str | None:
        if isinstance(self._context, str):
            return self._context
        if self._context is not None:
            return self._context()
        return zone_of(self._memory, min(self._memory.cursor(actor=self._task), default=None))

    def _remember(self, record: MemoryRecord) -> MemoryRecord:
        with self._memory.unit():
            kept = super()._remember(record)
            writer = self._memory.as_actor(self._actor, trust=kept.trust)
            amount = _NEW if kept.salience is None else kept.salience
            value_of(
                writer.reinforce(str(kept.retrieval_id), amount, reason="remembered", context=self._where())
            )
        return kept

    def _recall(self, query: MemoryQuery) -> list[MemoryRecord]:
        if query.kinds == ("instruction",):
            return super()._recall(query)
        records: dict[str, MemoryRecord] = {}
        for search, node in self._present(query):
            if len(records) >= query.limit:
                break
            if node.id in records or node.kind in _OTHERS:
                continue
            record = self._record(node) or self._told(node)
            if is_met(query, record):
                records[node.id] = msgspec.structs.replace(record, retrieval_id=shown_id(search, node.id))
        return list(records.values())

    def _present(self, query: MemoryQuery) -> Iterator[tuple[str, Node]]:
        """Return nodes with the search that found each, the most fitting first."""
        graph, context = self._memory, self._where()
        limit = min(_MOST, query.limit * _DEPTH)
        asked = (query.text or "").encode()[:_QUESTION].decode(errors="ignore").strip()
        if asked:
            pulse = graph.pulse(asked, limit=limit, context=context, scope=self._task, log=True)
            for hit in pulse.hits:
                node = graph.get_node(hit.id)
                if node is not None:
                    yield pulse.retrieval_id, node
        if not asked or self._fill:
            window = graph.working_memory(
                limit=limit, scope=self._task, context=context, context_fallback=True, log=True
            )
            for item in window.items:
                if item.node is not None:
                    yield window.retrieval_id, item.node

    def _told(self, node: Node) -> MemoryRecord:
        """Return what a node of another making says. It is a fact of whoever wrote it."""
        said = (
            node.payload.get("text") or node.payload.get("content")
            if isinstance(node.payload, dict)
            else None
        )
        text = said if isinstance(said, str) else f"{node.label or node.id}: {encode_text(node.payload)}"
        return MemoryRecord(
            id=node.id,
            text=text[:_TEXT],
            created_at=node.created_at,
            tags=tuple(node.tags),
            trust=node.trust,
        )
