"""The published package polypack-db, which has the same notions, on the same streams.

It reads the clock of the machine; here it is given that of the stream. Vectors are ours: it has
none of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from benchmarks.learning.streams import Connect, Operation, Question, Remember, Supersede
from benchmarks.learning.systems import Embed, Hit

__all__ = ("Polypack", "installed", "library")

_EPOCH = 1_700_000_000_000


def installed() -> bool:
    return find_spec("polypack") is not None


def library() -> Any:
    """Return the package; the extra ``bench`` has it."""
    return import_module("polypack")


class Polypack:
    """Plays a stream to a graph of the package and its engine, with their defaults.

    Args:
        embed: Makes the vectors.
        weights: Of the engine, where they shall not be 1.
    """

    def __init__(self, embed: Embed, *, weights: Mapping[str, float] | None = None) -> None:
        self._library = library()
        self._now, self._embed = _EPOCH, embed
        self._library.time = SimpleNamespace(time=lambda: self._now / 1000)
        self._graph = self._library.PolyGraph()
        self._engine = self._library.ActivationEngine(self._graph)
        self._engine.set_weights(dict(weights or {}))

    def take(self, operation: Operation) -> None:
        self._now = _EPOCH + operation.at
        if isinstance(operation, Remember):
            self._graph.add_node(
                {
                    "id": operation.id,
                    "type": "thing" if operation.memory_class == "entity" else "statement",
                    "data": {"text": operation.text},
                    "insertedAt": self._now,
                    "updatedAt": self._now,
                    "memoryClass": operation.memory_class,
                    "vector": list(self._embed(operation.text)),
                }
            )
            for thing in operation.about:  # its activation spreads along edges one way only
                self._graph.add_edge(operation.id, "MENTIONS", thing)
                self._graph.add_edge(thing, "MENTIONED_BY", operation.id)
        elif isinstance(operation, Connect):
            self._graph.add_edge(operation.source, "SEE", operation.target)
        elif isinstance(operation, Supersede):
            self._graph.supersede(operation.new, operation.old)
        elif not isinstance(operation, Question):
            self._graph.suppress_node(operation.id, 1.0, "called wrong")

    def recall(self, question: Question, limit: int) -> Sequence[Hit]:
        self._now = _EPOCH + question.at
        last = self._now if question.as_of is None else _EPOCH + question.as_of
        hits = []
        ranked = self._engine.pulse(list(self._embed(question.text)), top_k=50)
        for found, score in sorted(ranked, key=lambda pair: (-pair[1], pair[0])):
            node = self._graph.get_node(found)
            if node["type"] == "statement" and node["insertedAt"] <= last:
                hits.append(Hit(found, score))
                if len(hits) == limit:
                    break
        return hits

    def learn(self, shown: Sequence[str], useful: Collection[str]) -> None:
        for one in shown:
            if one in useful:  # a verdict on each that is not takes all weights to 0
                self._engine.record_feedback(one, True)
                self._engine.reinforce(one, 0.1, "useful")

    def close(self) -> None:
        import time

        self._library.time = time
