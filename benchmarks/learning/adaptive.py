"""The adaptive memory of a graph, whole or with a part taken away."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.learning.streams import Connect, Operation, Question, Remember, Supersede
from benchmarks.learning.systems import Hit
from graphstate import Adaptogen
from graphstate.activation.embedding import Embedder, HashingEmbedder

__all__ = ("PARTS", "RATE", "AdaptiveMemory", "Without", "embed")

#: When streams begin, in milliseconds since the epoch; any time does.
EPOCH: Final = 1_700_000_000_000

_EMBEDDER: Final = HashingEmbedder()

#: Signals that say how well a memory fits a question; the others are the same for every question.
_FIT: Final = ("semantic", "lexical", "graph")

#: How fast weights learn; the best of 0.3, 0.5, 1 and 3 on streams of other seeds.
RATE: Final = 0.5

#: What a retrieval that proved useful reinforces its node by.
_USEFUL: Final = 0.1


def embed(text: str) -> Sequence[float]:
    """Return the vector that every memory here uses, if nothing else is said."""
    return _EMBEDDER.embed([text])[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """What is taken away. All else is as a new graph has it, except that inhibition counts 1."""

    #: scores, importance, suppressions and recency never fade
    decay: bool = False
    #: nothing spreads over edges
    spread: bool = False
    #: nothing is suppressed
    inhibition: bool = False
    #: nothing is learned from what was shown
    feedback: bool = False
    #: nothing is superseded: a replacement is only a newer statement
    succession: bool = False
    #: weights to begin with, where they shall not be equal
    weights: Mapping[str, float] = field(default_factory=dict)


#: One part taken away at a time.
PARTS: Final[Mapping[str, Without]] = {
    "no decay": Without(decay=True),
    "no spread": Without(spread=True),
    "no inhibition": Without(inhibition=True),
    "no feedback": Without(feedback=True),
    "no succession": Without(succession=True),
}

_NEVER: Final[Mapping[str, object]] = {
    "scoreHalfLifeMs": 0,
    "importanceHalfLifeMs": 0,
    "inhibitionHalfLifeMs": 0,
    "recencyHalfLifeMs": 0,
    "classHalfLives": {},
}


class AdaptiveMemory:
    """Plays a stream to the verbs of a graph: remember, link, supersede, suppress, pulse, feedback.

    Args:
        without: What is taken away.
        path: The graph's file; in memory if not given.
        embedder: Makes the vectors, if not the one that needs no model.
        fresh: False opens what is there as it is.

    Attributes:
        retrieval: Names the newest answer.
    """

    def __init__(
        self,
        without: Without | None = None,
        *,
        path: Path | None = None,
        embedder: Embedder | None = None,
        fresh: bool = True,
    ) -> None:
        self._without = without or Without()
        self._now = EPOCH
        self.graph = Adaptogen.open(
            ":memory:" if path is None else path, seed=False, now=self._clock, embedder=embedder or _EMBEDDER
        )
        self.retrieval = ""
        if fresh:
            self._set_up()

    def _set_up(self) -> None:
        for name, value in (_NEVER if self._without.decay else {}).items():
            self.graph.set_tunable(name, value).unwrap()
        inhibition = 0.0 if self._without.inhibition else 1.0
        self.graph.set_weights({**self._without.weights, "inhibition": inhibition}).unwrap()

    def _clock(self) -> int:
        return self._now

    def take(self, operation: Operation) -> None:
        self._now = EPOCH + operation.at
        if isinstance(operation, Remember):
            self._remember(operation)
        elif isinstance(operation, Connect):
            source, target = operation.source, operation.target
            self.graph.link(source, target, kind="reference", label="see").unwrap()
        elif isinstance(operation, Supersede):
            if not self._without.succession:
                self.graph.supersede(operation.new, operation.old).unwrap()
        elif not isinstance(operation, Question) and not self._without.inhibition:
            self.graph.suppress(operation.id, 1.0, reason="called wrong").unwrap()

    def _remember(self, said: Remember) -> None:
        with self.graph.unit():
            self.graph.remember(
                said.id,
                kind="thing" if said.memory_class == "entity" else "statement",
                payload={"text": said.text},
                memory={"memory_class": said.memory_class},
            ).unwrap()
            for thing in said.about:
                self.graph.link(said.id, thing, kind="reference", label="mentions").unwrap()

    def recall(self, question: Question, limit: int) -> Sequence[Hit]:
        self._now = EPOCH + question.at
        found = self.graph.pulse(
            question.text,
            limit=10 * limit,
            direction="both",
            depth=0 if self._without.spread else None,
            as_of=None if question.as_of is None else EPOCH + question.as_of,
        )
        self.retrieval = found.retrieval_id
        # Ranked by everything; what is shown of it is cut by how well it fits the question.
        statements = [hit for hit in found.hits if hit.kind == "statement"][:limit]
        weights = {name: found.weights[name] for name in _FIT}
        mass = sum(weights.values())
        return [
            Hit(hit.id, sum([weight * hit.signals.get(name, 0.0) for name, weight in weights.items()]) / mass)
            for hit in statements
        ]

    def learn(self, shown: Sequence[str], useful: Collection[str]) -> None:
        if self._without.feedback:
            return
        with self.graph.unit():
            for one in shown:
                if one in useful:
                    taught = self.graph.feedback(self.retrieval, one, True, rate=RATE, rule="contrast")
                    taught.unwrap()
                    self.graph.reinforce(one, _USEFUL, reason="useful").unwrap()

    def close(self) -> None:
        self.graph.close()
