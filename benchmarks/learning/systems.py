"""Memories that play a stream: the port, and the plain ones that a memory has to beat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from heapq import nlargest
from typing import NamedTuple, Protocol

from agentloop.context.bm25 import Bm25Index, Document
from benchmarks.learning.streams import Operation, Question, Remember, Retract, Supersede

__all__ = ("BM25", "Embed", "FullContext", "Hit", "MemorySystem", "Recency", "VectorSearch")

Embed = Callable[[str], Sequence[float]]


class Hit(NamedTuple):
    """One statement that was found."""

    id: str
    score: float


class MemorySystem(Protocol):
    """What plays a stream."""

    def take(self, operation: Operation) -> None:
        """Be told something; what a memory has no notion of it may pass over."""

    def recall(self, question: Question, limit: int) -> Sequence[Hit]:
        """Return what may answer a question, best first."""

    def learn(self, shown: Sequence[str], useful: Collection[str]) -> None:
        """Be told which of the statements that were shown last were of use."""

    def close(self) -> None: ...


class _Plain:
    """Keeps statements with their times, knows nothing of replacing, and learns nothing.

    For what held in the past only statements from before are looked at: a condition on a date is
    to be had everywhere.

    Args:
        overwrite: Delete what is replaced or called wrong.
    """

    def __init__(self, *, overwrite: bool = False) -> None:
        self._statements: list[Remember] = []
        self._overwrite = overwrite

    def take(self, operation: Operation) -> None:
        if isinstance(operation, Remember) and operation.memory_class != "entity":
            self._statements.append(operation)
            self._add(operation)
        elif self._overwrite and isinstance(operation, (Supersede, Retract)):
            gone = operation.old if isinstance(operation, Supersede) else operation.id
            self._statements = [one for one in self._statements if one.id != gone]

    def _add(self, statement: Remember) -> None: ...

    def _before(self, question: Question) -> list[Remember]:
        limit = question.at if question.as_of is None else question.as_of
        return [one for one in self._statements if one.at <= limit]

    def learn(self, shown: Sequence[str], useful: Collection[str]) -> None: ...

    def close(self) -> None: ...


class Recency(_Plain):
    """The newest statements, whatever is asked."""

    def recall(self, question: Question, limit: int) -> Sequence[Hit]:
        return [Hit(one.id, 1.0) for one in self._before(question)[::-1][:limit]]


class FullContext(_Plain):
    """Everything that was ever said, newest first."""

    def recall(self, question: Question, limit: int) -> Sequence[Hit]:
        return [Hit(one.id, 1.0) for one in self._before(question)[::-1]]


class BM25(_Plain):
    """Search by words; of equally good statements the newer comes first."""

    def __init__(self, *, overwrite: bool = False) -> None:
        super().__init__(overwrite=overwrite)
        self._index = Bm25Index()
        self._place: dict[str, int] = {}

    def _add(self, statement: Remember) -> None:
        self._place[statement.id] = len(self._place)
        self._index.add(Document(statement.id, statement.text))

    def recall(self, question: Question, limit: int) -> Sequence[Hit]:
        known = {one.id for one in self._before(question)}
        found = self._index.search(question.text, len(self._place), tie=lambda one: -self._place[one.id])
        return [Hit(one.id, one.score) for one in found if one.id in known][:limit]


class VectorSearch(_Plain):
    """Search by likeness of vectors; of equally good statements the newer comes first."""

    def __init__(self, embed: Embed, *, overwrite: bool = False) -> None:
        super().__init__(overwrite=overwrite)
        self._embed = embed
        self._vectors: dict[str, Sequence[float]] = {}

    def _add(self, statement: Remember) -> None:
        self._vectors[statement.id] = self._embed(statement.text)

    def recall(self, question: Question, limit: int) -> Sequence[Hit]:
        asked = self._embed(question.text)
        scored = [
            (_dot(asked, self._vectors[one.id]), place, one.id)
            for place, one in enumerate(self._before(question))
        ]
        return [Hit(found, score) for score, _, found in nlargest(limit, scored) if score > 0]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum([a * b for a, b in zip(one, other, strict=True)])
