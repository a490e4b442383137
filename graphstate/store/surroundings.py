"""What a search needs to know of nodes, a whole set in one statement: words, links, worth.

Every statement begins at the nodes in question and follows indexes; none reads all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, TypeAlias

from graphstate._canonical import encode_text
from graphstate.activation.decay import Curves, HalfLives, clamp, factor
from graphstate.activation.spreading import Link
from graphstate.store.activation import SUPERSEDED_BY
from graphstate.store.db import Database
from graphstate.store.successions import CONSOLIDATED_FROM

__all__ = ("COMMON", "FAN", "RANKED", "Direction", "Fact", "Surroundings")

Direction: TypeAlias = Literal["out", "in", "both"]

#: Edges of one node that a search follows; a hub with more says nothing about each of them.
FAN = 1_000

#: A word that more nodes have tells nothing apart.
COMMON = 5_000

#: Nodes that are ranked for one search.
RANKED = 10_000

_LINKS = {
    (near, far): f"""SELECT e.{near}, e.{far}, e.kind, e.label, e.weight + e.learned_weight
    FROM json_each(?1) s JOIN edge e ON e.no IN (SELECT no FROM edge WHERE {near} = s.value LIMIT ?2)"""
    for near, far in (("src", "dst"), ("dst", "src"))
}
_ENDS: dict[Direction, tuple[tuple[str, str], ...]] = {
    "out": (("src", "dst"),),
    "in": (("dst", "src"),),
    "both": (("src", "dst"), ("dst", "src")),
}

_FACTS = f"""SELECT n.id, n.kind, n.label, n.status = 'active', n.trust, n.created_at, p.memory_class, p.confidence, p.source,
coalesce(p.observed_at, n.created_at), a.score, a.importance, a.anchor, a.inhibition, a.inhibited_at,
a.reinforcement_count, a.last_reinforced_at, l.score, l.anchor, l.inhibition, l.inhibited_at,
(SELECT e.dst FROM edge e JOIN node d ON d.id = e.dst LEFT JOIN succession s ON s.no = e.no
    LEFT JOIN provenance q ON q.no = d.no WHERE e.src = n.id AND e.kind = 'reference'
    AND e.label = '{SUPERSEDED_BY}' AND (?3 IS NULL OR coalesce(q.observed_at, s.at, d.created_at) <= ?3)
    ORDER BY e.no DESC LIMIT 1)
FROM json_each(?1) j CROSS JOIN node n ON n.id = j.value
LEFT JOIN provenance p ON p.no = n.no LEFT JOIN activation a ON a.no = n.no
LEFT JOIN lens l ON l.no = n.no AND l.context = ?2"""
_SUMMARIES = f"""SELECT e.dst, e.src FROM json_each(?) j CROSS JOIN edge e ON e.dst = j.value
JOIN node n ON n.id = e.src AND n.status = 'active'
WHERE e.kind = 'reference' AND e.label = '{CONSOLIDATED_FROM}' ORDER BY e.no"""
# Ranked and cut inside the index; only what is left is looked up.
_MATCHING = """SELECT n.id, -t.rank FROM (SELECT rowid, rank FROM node_text WHERE text MATCH ?
ORDER BY rank LIMIT ?) t JOIN node n ON n.no = t.rowid ORDER BY t.rank, n.id"""
_NEWEST_MATCHING = """SELECT n.id, -t.rank FROM (SELECT rowid, rank FROM (SELECT rowid, rank FROM node_text
WHERE text MATCH ?1 ORDER BY rowid DESC LIMIT ?3) ORDER BY rank LIMIT ?2) t JOIN node n ON n.no = t.rowid
ORDER BY t.rank, n.id"""
_OCCURRENCES = """SELECT value, (SELECT count(*) FROM (SELECT 1 FROM node_text
WHERE text MATCH '"' || value || '"' LIMIT ?2)) FROM json_each(?1)"""
_PRESENT = "SELECT count(*) FROM (SELECT 1 FROM activation WHERE rank_key IS NOT NULL LIMIT ?)"
_LENSES_PRESENT = """SELECT count(*) FROM (SELECT 1 FROM lens WHERE context = ? AND rank_key IS NOT NULL
LIMIT ?)"""
_CONTENT = "SELECT id, label, payload, tags FROM node WHERE id IN (SELECT value FROM json_each(?))"


class Fact(NamedTuple):
    """What a node is worth, as raw values beside their anchors."""

    id: str
    kind: str
    label: str
    active: int
    trust: str
    created_at: int
    memory_class: str | None
    confidence: float | None
    source: str | None
    #: since when it holds
    since: int
    score: float | None
    importance: float | None
    anchor: int
    inhibition: float | None
    inhibited_at: int | None
    uses: int | None
    used_at: int | None
    lens_score: float | None
    lens_anchor: int
    lens_inhibition: float | None
    lens_inhibited_at: int | None
    superseded_by: str | None

    def half_lives(self, curves: Curves) -> HalfLives:
        """Return how it fades."""
        return curves.resolve(self.memory_class, self.kind)

    def presence(self, now: int, curves: Curves, *, lens: bool = False, fallback: bool = False) -> float:
        """Return its score now, that of the context if one was asked for, without attention."""
        here = lens and (self.lens_score is not None or not fallback)
        value, anchor = (self.lens_score, self.lens_anchor) if here else (self.score, self.anchor)
        return 0.0 if value is None else clamp(value * factor(now - anchor, self.half_lives(curves).score_ms))

    def usage(self, now: int, curves: Curves, *, lens: bool) -> float:
        """Return its importance now, times its score in the context if one was asked for."""
        if self.importance is None:
            return 0.0
        half_lives = self.half_lives(curves)
        usage = clamp(self.importance * factor(now - self.anchor, half_lives.importance_ms))
        if lens:
            score = self.lens_score or 0.0
            usage *= clamp(score * factor(now - (self.lens_anchor or 0), half_lives.score_ms))
        return usage

    def inhibited(self, now: int, curves: Curves) -> float:
        """Return how far it is suppressed now, everywhere and in the context."""
        if self.inhibited_at is None and self.lens_inhibited_at is None:
            return 0.0
        half_life = self.half_lives(curves).inhibition_ms
        everywhere, here = (
            0.0 if at is None else clamp((value or 0.0) * factor(now - at, half_life))
            for value, at in (
                (self.inhibition, self.inhibited_at),
                (self.lens_inhibition, self.lens_inhibited_at),
            )
        )
        return clamp(everywhere + here)


def edge_type(kind: str, label: str) -> str:
    """Return what spreading calls an edge: the label of a reference that has one, else the kind."""
    return label if kind == "reference" and label else kind


def _any_of(words: Sequence[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


class Surroundings:
    """Questions about sets of nodes of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def facts(self, ids: Collection[str], *, context: str | None, as_of: int | None) -> dict[str, Fact]:
        """Return those of the nodes that exist, by id: about 4 us each.

        Args:
            as_of: Say of supersession what held then.
        """
        rows = self._db.all(_FACTS, (encode_text(sorted(ids)), context, as_of))
        return {row[0]: Fact._make(row) for row in rows}

    def links(
        self,
        sources: Sequence[str],
        *,
        direction: Direction,
        strength: Callable[[str, float], float],
    ) -> list[Link]:
        """Return the edges of some nodes, at most `FAN` of each.

        Args:
            strength: Of an edge by its type and weight; 0 leaves it out.
        """
        found: list[Link] = []
        for ends in _ENDS[direction]:
            rows = self._db.all(_LINKS[ends], (encode_text(list(sources)), FAN))
            for near, far, kind, label, weight in rows:
                value = strength(edge_type(kind, label), weight)
                if value > 0:
                    found.append(Link(near, far, value))
        return found

    def summaries(self, sources: Collection[str]) -> dict[str, str]:
        """Return the newest active consolidation of each of the nodes that have one."""
        return dict(self._db.all(_SUMMARIES, (encode_text(sorted(sources)),)))

    def present(self, most: int, context: str | None, *, fallback: bool) -> int:
        """Return how many nodes are ranked, or ``most`` if there are so many or more."""
        if context is not None and not fallback:
            (count,) = self._db.one(_LENSES_PRESENT, (context, most)) or (0,)
        else:
            (count,) = self._db.one(_PRESENT, (most,)) or (0,)
        return int(count)

    def matching(self, words: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """Return the nodes that the full-text index ranks best, with their scores, best first.

        The rarest words first, as many as together occur in `RANKED` nodes. If each of them is in
        more than `COMMON`, the newest nodes with any of them. About 2 us a node that is ranked.
        """
        counted = self._db.all(_OCCURRENCES, (encode_text(list(words)), COMMON + 1))
        chosen: list[str] = []
        ranked = 0
        for word, nodes in sorted(counted, key=lambda row: (row[1], row[0])):
            ranked += nodes
            if nodes > COMMON or (chosen and ranked > RANKED):
                break
            if nodes:
                chosen.append(word)
        if chosen or not any(nodes for _, nodes in counted):
            return self._db.all(_MATCHING, (_any_of(chosen), limit)) if chosen else []
        return self._db.all(_NEWEST_MATCHING, (_any_of(words), limit, RANKED))

    def content(self, ids: Collection[str]) -> list[tuple[str, str, str, str]]:
        """Return id, label, and payload and tags as JSON text of those of the nodes that exist."""
        return self._db.all(_CONTENT, (encode_text(sorted(ids)),))
