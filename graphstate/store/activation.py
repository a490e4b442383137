"""The activation of nodes, folded from the stream ``graph``, and their rank order.

A part of the projection: `Projection.apply` calls these folds, live and in a rebuild. A
reinforcement changes one narrow row. Nothing fades in the tables: each value stands beside its
anchor, and the keys that rank them do not depend on the time. The formulas are those of
`graphstate.activation`; an event tells what was done and when, and here it becomes a sum.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from graphstate._canonical import Json, encode_text
from graphstate.activation.decay import CLASSES, Curves, HalfLives
from graphstate.activation.record import Activation, Lens, rank_key
from graphstate.events import Row
from graphstate.model import MemoryClass
from graphstate.store.db import Database, SqlValue

__all__ = ("CURVE_TUNABLES", "SUPERSEDED_BY", "Activations", "Found", "Order", "Ranking", "event_time")

#: Settings that the rank keys depend on.
CURVE_TUNABLES = frozenset(
    {"scoreHalfLifeMs", "importanceHalfLifeMs", "inhibitionHalfLifeMs", "classHalfLives", "memoryClasses",
     "importanceGain"}
)  # fmt: skip

#: Label of the reference from a node to the one that took its place.
SUPERSEDED_BY = "superseded_by"

# A lane is the class of a node, plus this if it is superseded.
_SUPERSEDED = 8
_LANES: Mapping[str | None, int] = {None: 0, **{name: no for no, name in enumerate(CLASSES, 1)}}
_CLASS_OF = {lane: name for name, lane in _LANES.items()}

_RECORD = """a.score, a.importance, a.anchor, a.inhibition, a.inhibited_at, a.reinforcement_count,
a.last_reinforced_at, a.shown, a.useful, a.harmful"""
_FIND = f"""SELECT n.no, n.id, n.kind, n.status, p.memory_class, EXISTS (SELECT 1 FROM edge e
WHERE e.src = n.id AND e.kind = 'reference' AND e.label = '{SUPERSEDED_BY}'), a.no IS NOT NULL,
EXISTS (SELECT 1 FROM lens l WHERE l.no = n.no), {_RECORD}
FROM node n LEFT JOIN provenance p ON p.no = n.no LEFT JOIN activation a ON a.no = n.no"""
_FIND_ONE = f"{_FIND} WHERE n.id = ?"
_FIND_SOME = f"{_FIND} WHERE n.id IN (SELECT value FROM json_each(?))"
_FIND_ALL = f"{_FIND} WHERE a.no IS NOT NULL"
_LENSES = "SELECT context, score, anchor, inhibition, inhibited_at FROM lens WHERE no = ?"

_INSERT = "INSERT INTO activation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE = """UPDATE activation SET lane = ?, rank_key = ?, score = ?, importance = ?, anchor = ?,
inhibition = ?, inhibited_at = ?, reinforcement_count = ?, last_reinforced_at = ?, shown = ?, useful = ?,
harmful = ? WHERE no = ?"""
_LENS_PUT = "INSERT OR REPLACE INTO lens VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LENS_DROP = "DELETE FROM lens WHERE no = ? AND context = ?"

_PROVENANCE_PUT = "INSERT OR REPLACE INTO provenance VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PROVENANCE_DROP = "DELETE FROM provenance WHERE no = ?"

# Looks each number up: a search for the different ones would read the whole index.
_LANES_IN_USE = """SELECT l.value FROM json_each(?) l WHERE EXISTS (SELECT 1 FROM activation a
WHERE a.lane = l.value)"""
_RANKED_LANES = (*_CLASS_OF, *(lane + _SUPERSEDED for lane in _CLASS_OF))
_TOP = """SELECT -rank_key, id, score, anchor, inhibition, inhibited_at, NULL, NULL FROM activation
WHERE lane = ?1 AND rank_key IS NOT NULL ORDER BY rank_key DESC, id LIMIT ?2"""
_TOP_LENS = """SELECT -l.rank_key, l.id, l.score, l.anchor, a.inhibition, a.inhibited_at, l.inhibition,
l.inhibited_at FROM lens l JOIN activation a ON a.no = l.no
WHERE l.lane = ?1 AND l.context = ?3 AND l.rank_key IS NOT NULL ORDER BY l.rank_key DESC, l.id LIMIT ?2"""
_TOP_ELSEWHERE = """SELECT -rank_key, id, score, anchor, inhibition, inhibited_at, NULL, NULL FROM activation a
WHERE lane = ?1 AND rank_key IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM lens l WHERE l.no = a.no AND l.context = ?3)
ORDER BY rank_key DESC, id LIMIT ?2"""

#: First rows of a rank order that are read at once and remembered.
_HEAD = 64


class Found(NamedTuple):
    """A node as activation sees it."""

    no: int
    id: str
    #: its own or its kind's
    memory_class: MemoryClass | None
    half_lives: HalfLives
    superseded: bool
    #: neither archived nor deprecated
    active: bool
    #: it was reinforced or suppressed before
    recorded: bool
    #: and in some context
    lenses: bool
    record: Activation

    @property
    def lane(self) -> int | None:
        """The rank order it is in, None if it is in none."""
        return _LANES[self.memory_class] + _SUPERSEDED * self.superseded if self.active else None


class Ranking(NamedTuple):
    """A row of a rank order. Rows compare as they are ordered."""

    #: less its rank key
    place: float
    id: str
    score: float
    anchor: int
    inhibition: float
    inhibited_at: int | None
    #: of the context, if one was asked for
    lens_inhibition: float | None = None
    lens_inhibited_at: int | None = None


class Order(NamedTuple):
    """The first rows of a rank order, best first."""

    half_lives: HalfLives
    superseded: bool
    rows: Sequence[Ranking]
    #: there are no others
    complete: bool


class _Head:
    """The remembered beginning of a rank order: nothing stands between its rows but themselves."""

    __slots__ = ("complete", "rows")

    def __init__(self, rows: list[Ranking], complete: bool) -> None:
        self.rows, self.complete = rows, complete

    def add(self, row: Ranking) -> bool:
        """Take a row in if it belongs to the beginning, and say so."""
        if not self.complete and not (self.rows and row < self.rows[-1]):
            return False
        insort(self.rows, row)
        return True


class Activations:
    """The activation tables of one database.

    Args:
        tunables: The settings in force.
    """

    def __init__(self, db: Database, tunables: Callable[[], Mapping[str, Json]]) -> None:
        self._db, self._tunables = db, tunables
        self.folds: Mapping[str, Callable[[Row, dict[str, Json]], None]] = {
            "memory.reinforced": self._reinforced,
            "memory.suppressed": self._suppressed,
        }
        self.forget()

    def forget(self) -> None:
        """Drop what is remembered of the tables."""
        self._curves: Curves | None = None
        self._lanes: set[int] | None = None
        #: the last event that changed one memory, and this memory after it
        self._latest: tuple[int, Found] | None = None
        self._heads: dict[int, _Head] = {}
        #: in which of them a node stands
        self._in_head: dict[str, int] = {}

    @property
    def curves(self) -> Curves:
        """How values fade in this graph."""
        if self._curves is None:
            self._curves = Curves.of(self._tunables())
        return self._curves

    # ------------------------------------------------------------------ folding

    def _reinforced(self, row: Row, body: dict[str, Json]) -> None:
        context = body.get("context")
        found = self.find(body["id"], contexts=context is not None)
        if found is not None:
            at = event_time(row, body)
            record = found.record if found.recorded else Activation(anchor=at)
            new = record.reinforced(
                float(body["amount"]), at, self.curves, found.half_lives, context=context,
                outcome=body.get("outcome"),
            )  # fmt: skip
            self.put(found, new)
            self._latest = row.seq, found._replace(recorded=True, record=new)

    def _suppressed(self, row: Row, body: dict[str, Json]) -> None:
        context = body.get("context")
        found = self.find(body["id"], contexts=context is not None)
        if found is not None:
            at = event_time(row, body)
            record = found.record if found.recorded else Activation(anchor=at)
            new = record.suppressed(float(body["amount"]), at, found.half_lives, context=context)
            self.put(found, new)
            self._latest = row.seq, found._replace(recorded=True, record=new)

    def put(self, found: Found, record: Activation) -> None:
        """Write the record of a node, and the lenses in it that differ."""
        lane, key = found.lane, self._key(found, record.score, record.anchor)
        values: tuple[SqlValue, ...] = (
            lane, key, record.score, record.importance, record.anchor,
            record.inhibition, record.inhibited_at, record.reinforcement_count, record.last_reinforced_at,
            record.shown, record.useful, record.harmful,
        )  # fmt: skip
        if found.recorded:
            self._db.run(_UPDATE, (*values, found.no))
        else:
            self._db.run(_INSERT, (found.no, found.id, *values))
        if self._lanes is not None and lane is not None:
            self._lanes.add(lane)
        if self._heads:
            self._moved(found, key, record)
        if record.contexts is not found.record.contexts:
            self._put_lenses(found, record.contexts)

    def _put_lenses(self, found: Found, lenses: Mapping[str, Lens]) -> None:
        before = found.record.contexts
        for name in before.keys() - lenses.keys():
            self._db.run(_LENS_DROP, (found.no, name))
        for name, lens in lenses.items():
            if before.get(name) != lens:
                self._put_lens(found, name, lens)

    def _put_lens(self, found: Found, name: str, lens: Lens) -> None:
        key = self._key(found, lens.score, lens.anchor)
        row = (found.no, name, found.id, found.lane, key, lens.score, lens.anchor)
        self._db.run(_LENS_PUT, (*row, lens.inhibition, lens.inhibited_at))

    def _key(self, found: Found, score: float, anchor: int) -> float | None:
        return rank_key(score, anchor, found.half_lives.score_ms) if found.active else None

    def lane_changed(self, id: str) -> None:
        """Rank a node again: its class or status changed, or it was superseded or is so no more."""
        found = self.find(id, contexts=True)
        if found is not None and found.recorded:
            self._rank(found)

    def rank_all(self) -> None:
        """Rank every node again: a half-life or the class of a kind changed. About 10 us a node."""
        self.forget()
        for found in [self._found(row) for row in self._db.all(_FIND_ALL)]:
            self._rank(self._with_lenses(found))

    def _rank(self, found: Found) -> None:
        self.put(found, found.record)
        for name, lens in found.record.contexts.items():
            self._put_lens(found, name, lens)

    def set_provenance(self, no: int, told: Mapping[str, Json]) -> None:
        """Replace what is known of where a node comes from."""
        if not told:
            self._db.run(_PROVENANCE_DROP, (no,))
            return
        confidence = told.get("confidence")
        self._db.run(
            _PROVENANCE_PUT,
            (no, told.get("memory_class"), None if confidence is None else float(confidence), told.get("source"),
             told.get("observed_at"), encode_text(told.get("derived_from", [])), told.get("supersedes"),
             encode_text(told.get("contradicts", []))),
        )  # fmt: skip

    # ------------------------------------------------------------------ reading

    def find(self, id: str, *, contexts: bool = True) -> Found | None:
        """Return a node with its record, an empty one if nothing was ever recorded of it.

        Args:
            contexts: Read its lenses too; without them the record has none, and must not be
                written with other ones.
        """
        row = self._db.one(_FIND_ONE, (id,))
        if row is None:
            return None
        found = self._found(row)
        return self._with_lenses(found) if contexts else found

    def changed(self, seq: int) -> Found | None:
        """Return the memory that this event, the last one, reinforced or suppressed."""
        if self._latest is None or self._latest[0] != seq:
            return None
        return self._with_lenses(self._latest[1])

    def find_some(self, ids: Sequence[str], *, contexts: bool = True) -> list[Found]:
        """Return those of the nodes that exist, in no order."""
        found = [self._found(row) for row in self._db.all(_FIND_SOME, (encode_text(list(ids)),))]
        return [self._with_lenses(one) if contexts else one for one in found]

    def _found(self, row: Sequence[Any]) -> Found:
        no, node, kind, status, own, superseded, recorded, lenses, *record = row
        curves = self.curves
        memory_class = cast("MemoryClass | None", curves.class_of(own, kind))
        return Found(no, node, memory_class, curves.half_lives(memory_class), bool(superseded), status == "active",
            bool(recorded), bool(lenses), Activation(*record) if recorded else _EMPTY,
        )  # fmt: skip

    def _with_lenses(self, found: Found) -> Found:
        record = found.record
        if not found.lenses or record.contexts:
            return found
        lenses = {name: Lens(*values) for name, *values in self._db.all(_LENSES, (found.no,))}
        return found._replace(record=_with_contexts(record, lenses))

    def orders(
        self, depth: int, *, context: str | None = None, fallback: bool = False, superseded: bool = False
    ) -> list[Order]:
        """Return the beginning of every rank order: at least so many rows, if it has them.

        Args:
            context: The orders of this context.
            fallback: And those of what was never seen in it.
            superseded: Also those of superseded nodes.
        """
        lanes = [lane for lane in self._lanes_in_use() if superseded or lane < _SUPERSEDED]
        if context is None:
            return [
                self._order(lane, head.rows, head.complete)
                for lane in lanes
                if (head := self._head(lane, depth)).rows
            ]
        found = []
        for sql in (_TOP_LENS, _TOP_ELSEWHERE) if fallback else (_TOP_LENS,):
            for lane in lanes:
                rows = [Ranking(*row) for row in self._db.all(sql, (lane, depth, context))]
                if rows:
                    found.append(self._order(lane, rows, len(rows) < depth))
        return found

    def _order(self, lane: int, rows: Sequence[Ranking], complete: bool) -> Order:
        half_lives = self.curves.half_lives(_CLASS_OF[lane % _SUPERSEDED])
        return Order(half_lives, lane >= _SUPERSEDED, rows, complete)

    def _head(self, lane: int, depth: int) -> _Head:
        head = self._heads.get(lane)
        if head is None or (len(head.rows) < depth and not head.complete):
            most = max(depth, _HEAD)
            rows = [Ranking(*row) for row in self._db.all(_TOP, (lane, most))]
            head = self._heads[lane] = _Head(rows, len(rows) < most)
            self._in_head.update((row.id, lane) for row in rows)
        return head

    def _moved(self, found: Found, key: float | None, record: Activation) -> None:
        """Let the remembered beginnings follow a row that was written."""
        held = self._in_head.pop(found.id, None)
        if held is not None:
            rows = self._heads[held].rows
            del rows[next(place for place, row in enumerate(rows) if row.id == found.id)]
        lane = found.lane
        head = None if lane is None else self._heads.get(lane)
        if lane is None or head is None or key is None:
            return
        row = Ranking(-key, found.id, record.score, record.anchor, record.inhibition, record.inhibited_at)
        if head.add(row):
            self._in_head[found.id] = lane
            if len(head.rows) > 4 * _HEAD:
                head.complete = False
                self._in_head.pop(head.rows.pop().id)

    def _lanes_in_use(self) -> set[int]:
        if self._lanes is None:
            self._lanes = {lane for (lane,) in self._db.all(_LANES_IN_USE, (encode_text([*_RANKED_LANES]),))}
        return self._lanes


def event_time(row: Row, body: Mapping[str, Json]) -> int:
    """Return when something happened: as the event says, but never after it was written."""
    return min(int(body["at"]), row.at)


_EMPTY = Activation()


def _with_contexts(record: Activation, lenses: Mapping[str, Lens]) -> Activation:
    return Activation(
        record.score, record.importance, record.anchor, record.inhibition, record.inhibited_at,
        record.reinforcement_count, record.last_reinforced_at, record.shown, record.useful, record.harmful,
        lenses,
    )  # fmt: skip
