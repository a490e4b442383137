"""What the adaptive memory should hold, in the plainest form: sums that never fade.

The machine lets values halve in thirty years, so that what was added is what is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import networkx as nx

from graphstate import ErrorCode
from graphstate.activation.embedding import HashingEmbedder, node_text
from tests.properties.graph_model import Failed, Model

__all__ = ("EMBEDDER", "SUPERSEDED", "Lens", "MemoryModel", "Part", "Record", "clamp", "taught", "vector_of")

#: Of the first handle; the second one has none.
EMBEDDER = HashingEmbedder(dimensions=8)

SUPERSEDED, CONSOLIDATED = "superseded_by", "consolidated_from"
GAIN, INHERITED, MOST_INHERITED, NEGLIGIBLE = 0.05, 0.5, 0.9, 1e-4
SIGNALS = ("semantic", "lexical", "graph", "recency", "usage")


def clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


@lru_cache
def vector_of(text: str) -> list[float]:
    return EMBEDDER.embed([text])[0]


@dataclass
class Lens:
    """What a memory is worth in one context; it may never have been suppressed there."""

    score: float = 0.0
    inhibition: float | None = None


@dataclass
class Record:
    """What was ever added to one memory."""

    score: float = 0.0
    importance: float = 0.0
    inhibition: float | None = None
    count: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: {"shown": 0, "useful": 0, "harmful": 0})
    lenses: dict[str, Lens] = field(default_factory=dict)

    def effective(self, *, context: str | None = None, attention: float = 0.0) -> float:
        score, inhibition = self.score, clamp(self.inhibition or 0)
        if context is not None:
            lens = self.lenses.get(context, Lens())
            score, inhibition = lens.score, inhibition + clamp(lens.inhibition or 0)
        return clamp(clamp(score) + attention - inhibition)

    def lens(self, context: str) -> Lens:
        """The lens that is touched; others that came to nothing are dropped."""
        lens = self.lenses.get(context, Lens())
        others = {
            name: other
            for name, other in self.lenses.items()
            if name != context and max(abs(other.score), abs(other.inhibition or 0)) >= NEGLIGIBLE
        }
        self.lenses = {**others, context: lens}
        return lens

    def inherit(self, score: float, importance: float, lenses: Mapping[str, float]) -> None:
        """Be worth at least so much. What is larger stays, and nothing stays below zero."""
        self.score, self.importance = max(self.score, score), max(self.importance, importance)
        if self.inhibition is not None:
            self.inhibition = max(self.inhibition, 0)
        for name, value in lenses.items():
            lens = self.lenses.setdefault(name, Lens(value))
            lens.score = max(lens.score, value)
            if lens.inhibition is not None:
                lens.inhibition = max(lens.inhibition, 0)


@dataclass
class Part:
    """One event that added something, as the log has it."""

    seq: int
    key: tuple[str, str, str | None]
    amount: float
    outcome: str | None


@dataclass
class MemoryModel(Model):
    """Nodes and edges, and what is remembered of the nodes."""

    records: dict[str, Record] = field(default_factory=dict)
    #: what is known of where a node comes from
    provenance: dict[str, dict[str, Any]] = field(default_factory=dict)
    classes: dict[str, str] = field(
        default_factory=lambda: {
            "fact": "semantic",
            "episode": "episodic",
            "instruction": "procedural",
            "entity": "entity",
        }
    )
    #: the text that the vector of a node is of
    vectors: dict[str, str] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    verdicts: dict[tuple[str, str], bool] = field(default_factory=dict)
    #: the event with which replication began
    began: int | None = None
    #: what was added since, by the id of its event
    parts: dict[str, Part] = field(default_factory=dict)
    read_up_to: int = 0

    # ------------------------------------------------------------------ what nodes say

    def text(self, node: str) -> str:
        state = self.nodes[node]
        return node_text(node, state["label"], state["payload"])

    def put_node(self, node: str, state: dict[str, Any], handle: int) -> None:
        before = self.text(node) if node in self.nodes else None
        super().put_node(node, state, handle)
        if before is not None and before == self.text(node) and node in self.vectors:
            return
        if handle == 0:
            self.vectors[node] = self.text(node)
        else:
            self.vectors.pop(node, None)

    def change_payload(self, node: str, payload: dict[str, Any]) -> None:
        """No handle makes a vector where nobody remembered; one of another text is dropped."""
        before = self.text(node)
        self.nodes[node] = {**self.nodes[node], "payload": payload}
        if self.text(node) != before:
            self.vectors.pop(node, None)

    def without_vector(self) -> list[str]:
        return [node for node in self.nodes if node not in self.vectors]

    def memory_class(self, node: str) -> str | None:
        own = self.provenance.get(node, {}).get("memory_class")
        return own or self.classes.get(self.nodes[node]["kind"])

    # ------------------------------------------------------------------ adding up

    def record(self, node: str) -> Record:
        return self.records.setdefault(node, Record())

    def reinforce(
        self, node: str, amount: float, context: str | None = None, outcome: str | None = None
    ) -> None:
        record = self.record(node)
        record.score += amount
        record.importance += GAIN * amount
        record.count += 1
        if outcome is not None:
            record.outcomes[outcome] += 1
        if context is not None:
            record.lens(context).score += amount

    def suppress(self, node: str, amount: float, context: str | None = None) -> None:
        record = self.record(node)
        subject = record if context is None else record.lens(context)
        subject.inhibition = (subject.inhibition or 0) + amount

    def suppression(self, node: str, context: str | None) -> float:
        record = self.records.get(node, Record())
        subject = record if context is None else record.lenses.get(context, Lens())
        return subject.inhibition or 0

    # ------------------------------------------------------------------ succession

    def ties(self, label: str) -> Iterator[tuple[str, str, str]]:
        for name, edge in self.edges.items():
            if edge["kind"] == "reference" and edge["label"] == label:
                yield name, edge["src"], edge["dst"]

    def superseded(self, node: str) -> bool:
        return any(src == node for _, src, _ in self.ties(SUPERSEDED))

    def edges_to_successors(self, node: str) -> list[tuple[str, str]]:
        return [(name, dst) for name, src, dst in self.ties(SUPERSEDED) if src == node]

    def successions(self) -> nx.DiGraph:
        graph = nx.DiGraph((src, dst) for _, src, dst in self.ties(SUPERSEDED))
        graph.add_nodes_from(self.nodes)
        return graph

    def without_circles(self) -> list[nx.DiGraph]:
        return [*super().without_circles(), self.successions()]

    def refuse_circle(self, new: str, old: str) -> None:
        if nx.has_path(self.successions(), new, old):
            raise Failed(ErrorCode.CYCLE_REJECTED)

    def supersede(self, new: str, old: str, edge: str) -> None:
        if old in self.records:
            self.record(new).inherit(INHERITED * self.records[old].effective(), 0, {})
        self.put_edge(old, new, "reference", edge, label=SUPERSEDED)
        self.provenance.setdefault(new, {})["supersedes"] = old

    def drop_edge(self, name: str) -> None:
        edge = self.edges[name]
        if edge["label"] == SUPERSEDED:
            known = self.provenance.get(edge["dst"], {})
            if known.get("supersedes") == edge["src"]:
                del known["supersedes"]
        super().drop_edge(name)

    def sources(self, node: str) -> list[str]:
        return [dst for _, src, dst in self.ties(CONSOLIDATED) if src == node]

    def consolidate(self, node: str, sources: list[str], amount: float, edges: list[str]) -> None:
        records = [self.records[source] for source in sources if source in self.records]
        lenses: dict[str, float] = {}
        for record in records:
            for name, lens in record.lenses.items():
                lenses[name] = max(lenses.get(name, 0), clamp(lens.score))
        self.record(node).inherit(
            min(MOST_INHERITED, 1 - math.prod(1 - record.effective() for record in records)),
            max((clamp(record.importance) for record in records), default=0),
            lenses,
        )
        before = self.sources(node)
        for source, edge in zip(sources, edges, strict=True):
            if source not in before:
                self.put_edge(node, source, "reference", edge, label=CONSOLIDATED)
                self.suppress(source, amount)
        known = self.provenance.setdefault(node, {})
        known["derived_from"] = list(dict.fromkeys([*known.get("derived_from", []), *sources]))

    # ------------------------------------------------------------------ reshaping

    def split(self, node: str, new: str, edges: list[str]) -> list[str]:
        moved = super().split(node, new, edges)
        if node in self.vectors:  # the copy has it from the original, whose label it extends
            self.vectors[new] = self.vectors[node]
        if node in self.provenance:
            self.provenance[new] = dict(self.provenance[node])
        return moved

    def merge(self, into: str, gone: str) -> tuple[list[str], list[str]]:
        had = self.vectors.get(into)
        before = self.text(into) if into in self.nodes else None
        done = super().merge(into, gone)
        if had is None and gone in self.vectors:
            self.vectors[into] = self.vectors[gone]
        elif self.text(into) != before:
            self.vectors.pop(into, None)
        return done

    # ------------------------------------------------------------------ learning

    def weights_of(self, scope: str) -> dict[str, float]:
        default = {**dict.fromkeys(SIGNALS, 1.0), "inhibition": 0.0}
        return {**default, **self.weights.get("global", {}), **self.weights.get(scope, {})}

    def set_weights(self, scope: str, weights: Mapping[str, float]) -> None:
        self.weights.setdefault(scope, {}).update(weights)

    def judge(
        self, search: str, node: str, useful: bool, *, rule: str, rate: float, scope: str,
        signals: Mapping[str, float], others: Mapping[str, float],
    ) -> None:  # fmt: skip
        self.verdicts[search, node] = useful
        moved = taught(rule, self.weights_of(scope), signals, others, useful=useful, rate=rate)
        self.set_weights(scope, {name: weight for name, weight in moved.items() if name in signals})
        self.record(node).outcomes["useful" if useful else "harmful"] += 1

    # ------------------------------------------------------------------ replicas

    def sums(self, parts: Iterable[Part]) -> dict[tuple[str, str, str | None], list[Part]]:
        found: dict[tuple[str, str, str | None], list[Part]] = {}
        for part in sorted(parts, key=lambda part: part.seq):
            found.setdefault(part.key, []).append(part)
        return found


def taught(
    rule: str, weights: Mapping[str, float], signals: Mapping[str, float], others: Mapping[str, float], *,
    useful: bool, rate: float,
) -> dict[str, float]:  # fmt: skip
    """The weights of the signals after one verdict."""
    step = rate if useful else -rate
    if rule == "additive":
        return {name: max(0.0, weights[name] + step * value) for name, value in signals.items()}
    if rule == "contrast":
        if not (useful and others):
            return dict(weights)
        steps = {name: rate * (value - others.get(name, value)) for name, value in signals.items()}
    else:
        mean = sum(signals.values()) / len(signals)
        steps = {name: step * (value - mean) for name, value in signals.items()}
    moved = {name: weights[name] * math.exp(step) for name, step in steps.items()}
    mass = sum(moved.values())
    scale = len(moved) / mass if mass else 1.0
    return {name: min(3.0, max(0.05, weight * scale)) for name, weight in moved.items()}
