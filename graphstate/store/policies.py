"""Zones, locks and what happened to rules, folded from the stream ``graph``.

A part of the projection: `Projection.apply` calls these folds, live and in a rebuild. What
decisions need (the zones of a node, locks) is kept in memory once read. Changes of policy are
rare, so they are written at once and what is kept is dropped.

The table ``blocked`` is no part of the fold: it counts denied attempts of the running minute
that have no event of their own yet (`attempt`), so that none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from graphstate._canonical import Json
from graphstate.events import Row
from graphstate.model import Edge, Lock, Zone
from graphstate.policy import Counts, Fence, Rule
from graphstate.store.db import Database

__all__ = ("Pending", "Policies")

#: Attempts on one edge in one minute that get an event each.
RECORDED_A_MINUTE = 10

_MINUTE_MS = 60_000

# Beyond this many remembered nodes the memory starts afresh.
_REMEMBERED = 100_000

_ZONE = """SELECT name, intra, boundary, learned_intra, learned_boundary, version, created_seq, updated_seq
FROM zone WHERE name = ?"""
_ZONES = "SELECT name FROM zone ORDER BY name"
_FENCES = """SELECT name, intra, boundary, learned_intra, learned_boundary, EXISTS (
SELECT 1 FROM policy_lock WHERE scope = 'zone' AND id = name) FROM zone ORDER BY name"""
_MEMBERS = "SELECT node FROM zone_member WHERE zone = ? ORDER BY node"
_ZONES_OF = "SELECT zone FROM zone_member WHERE node = ? ORDER BY zone"
_ZONE_PUT = """INSERT INTO zone VALUES (NULL, ?1, ?2, ?3, NULL, NULL, 1, ?4, ?4) ON CONFLICT (name) DO UPDATE SET
intra = ?2, boundary = ?3, learned_intra = NULL, learned_boundary = NULL, version = version + 1, updated_seq = ?4"""
_MEMBER_PUT = "INSERT OR IGNORE INTO zone_member VALUES (?, ?)"
_ZONE_MODE = {
    ("zone-intra", False): """UPDATE zone SET intra = ?, learned_intra = NULL, version = version + 1,
    updated_seq = ? WHERE name = ?""",
    ("zone-boundary", False): """UPDATE zone SET boundary = ?, learned_boundary = NULL, version = version + 1,
    updated_seq = ? WHERE name = ?""",
    ("zone-intra", True): "UPDATE zone SET learned_intra = ?, updated_seq = ? WHERE name = ?",
    ("zone-boundary", True): "UPDATE zone SET learned_boundary = ?, updated_seq = ? WHERE name = ?",
}
_ZONE_CHANGED = "UPDATE zone SET version = version + 1, updated_seq = ? WHERE name = ?"
_COUNTS = "SELECT violations, clean FROM rule WHERE scope = ? AND id = ?"
_VIOLATED = """INSERT INTO rule VALUES (?, ?, 1, 0) ON CONFLICT DO UPDATE SET violations = violations + 1,
clean = 0"""
_RAN_CLEAN = "INSERT INTO rule VALUES (?, ?, 0, 1) ON CONFLICT DO UPDATE SET clean = clean + 1"
_BLOCKED = "UPDATE rule SET clean = 0 WHERE scope = ? AND id = ?"
_FORGET_RULE = "DELETE FROM rule WHERE scope = ? AND id = ?"
_LOCKS = "SELECT scope, id, reason, actor, at, seq FROM policy_lock ORDER BY scope, id"
_ATTEMPT = "SELECT minute, recorded, pending FROM blocked WHERE edge = ? AND edge_seq = ?"
_ATTEMPT_PUT = "INSERT OR REPLACE INTO blocked VALUES (?, ?, ?, ?, ?)"
_DUE = """SELECT b.edge, b.pending FROM blocked b JOIN edge e ON e.id = b.edge AND e.created_seq = b.edge_seq
WHERE b.pending > 0 AND b.minute < ? ORDER BY b.edge"""
_TOLD = "UPDATE blocked SET pending = 0 WHERE edge = ?"


class Pending(NamedTuple):
    """Attempts on an edge that no event tells of yet."""

    edge: str
    attempts: int


class Policies:
    """The policy tables of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        #: changes whenever a zone may have changed
        self.shape = 0
        self.folds: Mapping[str, Callable[[Row, dict[str, Json]], None]] = {
            "ZoneDefined": self._zone_defined,
            "ZoneMembership": self._zone_membership,
            "ZoneDeleted": self._zone_deleted,
            "PolicyLocked": self._locked,
            "PolicyUnlocked": self._unlocked,
        }
        self.forget()

    def forget(self) -> None:
        """Drop what is remembered of the tables."""
        self._fences: dict[str, Fence] | None = None
        self._zones_of: dict[str, tuple[Fence, ...]] = {}
        self._locks: dict[tuple[str, str], Lock] | None = None
        self.shape += 1

    # ------------------------------------------------------------------ folding

    def _zone_defined(self, row: Row, body: dict[str, Json]) -> None:
        name = body["name"]
        self._db.run(_ZONE_PUT, (name, body["intra"], body["boundary"], row.seq))
        self._db.run("DELETE FROM zone_member WHERE zone = ?", (name,))
        self._db.many(_MEMBER_PUT, [(name, node) for node in body["members"]])
        self._zone_changed(name, row.seq, "zone-intra", "zone-boundary")

    def _zone_membership(self, row: Row, body: dict[str, Json]) -> None:
        name, node = body["zone"], body["node"]
        if body["op"] == "add":
            self._db.run(_MEMBER_PUT, (name, node))
        else:
            self._db.run("DELETE FROM zone_member WHERE zone = ? AND node = ?", (name, node))
        self._db.run(_ZONE_CHANGED, (row.seq, name))
        self._zone_changed(name, row.seq)

    def _zone_deleted(self, row: Row, body: dict[str, Json]) -> None:
        name = body["name"]
        self._db.run("DELETE FROM zone WHERE name = ?", (name,))
        self._db.run("DELETE FROM zone_member WHERE zone = ?", (name,))
        self.drop_lock("zone", name)
        self._zone_changed(name, row.seq, "zone-intra", "zone-boundary")

    def zone_mode_changed(self, scope: str, name: str, mode: str | None, *, learned: bool, seq: int) -> None:
        """Fold a change of a zone's mode, as declared or as learned."""
        self._db.run(_ZONE_MODE[scope, learned], (mode, seq, name))
        self._zone_changed(name, seq, scope)

    def _zone_changed(self, name: str, seq: int, *scopes: str) -> None:
        for scope in scopes:
            self.forget_rule(scope, name)
        self.lock_moves("zone", name, seq)
        self._fences, self._zones_of = None, {}
        self.shape += 1

    def _locked(self, row: Row, body: dict[str, Json]) -> None:
        self._db.run(
            "INSERT OR REPLACE INTO policy_lock VALUES (?, ?, ?, ?, ?, ?)",
            (body["scope"], body["id"], body["reason"], row.actor, row.at, row.seq),
        )
        self.forget()

    def _unlocked(self, row: Row, body: dict[str, Json]) -> None:
        self.drop_lock(body["scope"], body["id"])

    def drop_lock(self, scope: str, id: str) -> None:
        """Fold that what was locked is gone or free."""
        if (scope, id) in self.locks():
            self._db.run("DELETE FROM policy_lock WHERE scope = ? AND id = ?", (scope, id))
            self.forget()

    def lock_moves(self, scope: str, id: str, seq: int) -> None:
        """Fold that something locked was changed: a rollback must not go back before that."""
        if (scope, id) in self.locks():
            self._db.run("UPDATE policy_lock SET seq = ? WHERE scope = ? AND id = ?", (seq, scope, id))
            self._locks = None

    def forget_rule(self, scope: str, id: str) -> None:
        """Fold that a rule changed: what happened to it before does not count any more."""
        self._db.run(_FORGET_RULE, (scope, id))

    def violated(self, rules: list[list[str]]) -> None:
        """Fold soft violations of rules."""
        self._db.many(_VIOLATED, [(scope, name) for scope, name in rules])

    def ran_clean(self, rules: list[list[str]]) -> None:
        """Fold that hardened rules had nothing to say."""
        self._db.many(_RAN_CLEAN, [(scope, name) for scope, name in rules])

    def blocked(self, rules: list[list[str]]) -> None:
        """Fold that rules denied a move."""
        self._db.many(_BLOCKED, [(scope, name) for scope, name in rules])

    # ------------------------------------------------------------------ reading

    def fences(self) -> Mapping[str, Fence]:
        """Return every zone as decisions see it, by name."""
        if self._fences is None:
            self._fences = {
                name: Fence(
                    name=name, intra=intra, boundary=boundary, learned_intra=learned_intra,
                    learned_boundary=learned_boundary, locked=bool(locked),
                )
                for name, intra, boundary, learned_intra, learned_boundary, locked in self._db.all(_FENCES)
            }  # fmt: skip
        return self._fences

    def zones_of(self, node: str) -> tuple[Fence, ...]:
        """Return the zones a node is in, sorted by name."""
        found = self._zones_of.get(node)
        if found is None:
            fences = self.fences()
            if len(self._zones_of) > _REMEMBERED:
                self._zones_of.clear()
            found = tuple(fences[name] for (name,) in self._db.all(_ZONES_OF, (node,))) if fences else ()
            self._zones_of[node] = found
        return found

    def zone(self, name: str) -> Zone | None:
        """Return a zone with its members."""
        row = self._db.one(_ZONE, (name,))
        if row is None:
            return None
        return Zone(
            name=row[0], intra=row[1], boundary=row[2], learned_intra=row[3], learned_boundary=row[4],
            version=row[5], created_seq=row[6], updated_seq=row[7], members=self.members(name),
        )  # fmt: skip

    def zones(self) -> list[Zone]:
        """Return all zones, sorted by name."""
        names = [name for (name,) in self._db.all(_ZONES)]
        return [zone for name in names if (zone := self.zone(name)) is not None]

    def members(self, name: str) -> tuple[str, ...]:
        """Return the members of a zone, sorted."""
        return tuple(node for (node,) in self._db.all(_MEMBERS, (name,)))

    def locks(self) -> Mapping[tuple[str, str], Lock]:
        """Return every lock, by scope and id."""
        if self._locks is None:
            self._locks = {
                (row[0], row[1]): Lock(
                    scope=row[0], id=row[1], reason=row[2], actor=row[3], at=row[4], seq=row[5]
                )
                for row in self._db.all(_LOCKS)
            }
        return self._locks

    def counts(self, rule: Rule) -> Counts:
        """Return what happened to a rule since it last changed."""
        row = self._db.one(_COUNTS, tuple(rule))
        return Counts(*row) if row else Counts()

    # ------------------------------------------------------------------ attempts without an event

    def attempt(self, edge: Edge, at: int) -> bool:
        """Count a denied attempt, and say whether it gets an event of its own."""
        minute = at // _MINUTE_MS
        # By its first event too: the id may have belonged to an edge that is gone.
        row = self._db.one(_ATTEMPT, (edge.id, edge.created_seq))
        recorded = int(row[1]) if row and row[0] == minute else 0
        pending = int(row[2]) if row else 0
        own = recorded < RECORDED_A_MINUTE
        self._db.run(_ATTEMPT_PUT, (edge.id, edge.created_seq, minute, recorded + own, pending + (not own)))
        return own

    def due(self, at: int | None) -> list[Pending]:
        """Return the attempts of minutes that are over, all with None, that no event tells of."""
        before = 2**62 if at is None else at // _MINUTE_MS
        return [Pending(*row) for row in self._db.all(_DUE, (before,))]

    def told(self, edge: str) -> None:
        """Note that an event tells of an edge's attempts now."""
        self._db.run(_TOLD, (edge,))
