"""Questions about the whole live graph: what cannot be right, what nobody reaches, what was learned.

Each is one pass inside SQLite over nodes, edges and statistics; none reads the log, so that
none costs more because more has happened. Written statistics are read: flush first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from graphstate import algorithms
from graphstate._canonical import Json, encode_text
from graphstate.mining import Traffic, ZoneTraffic
from graphstate.store.db import Database

__all__ = ("Flaw", "Survey")

_NODES = "SELECT id FROM node ORDER BY id"
_DEPENDENCIES = "SELECT src, dst FROM edge WHERE kind = 'dependency' ORDER BY no"
_DANGLING_EDGES = """SELECT e.id, e.src, e.dst, s.no IS NULL, d.no IS NULL
FROM edge e LEFT JOIN node s ON s.id = e.src LEFT JOIN node d ON d.id = e.dst
WHERE s.no IS NULL OR d.no IS NULL ORDER BY e.no"""
_ORPHAN_STATS = """SELECT x.no FROM experience x
LEFT JOIN node n ON n.no = x.no / 2 AND x.no % 2 = 0 LEFT JOIN edge e ON e.no = x.no / 2 AND x.no % 2 = 1
WHERE n.no IS NULL AND e.no IS NULL ORDER BY x.no"""
_DEAD_HEADS = """SELECT substr(s.key, 8), h.value, n.status
FROM state s, json_each(s.value, '$.nodes') h LEFT JOIN node n ON n.id = h.value
WHERE s.key GLOB 'cursor/*' AND n.status IS NOT 'active' ORDER BY s.key, h.key"""
_DANGLING_MEMBERS = """SELECT m.zone, m.node FROM zone_member m LEFT JOIN node n ON n.id = m.node
WHERE n.no IS NULL ORDER BY m.zone, m.node"""
_HEADS_ON = """SELECT substr(s.key, 8) FROM state s WHERE s.key GLOB 'cursor/*'
AND EXISTS (SELECT 1 FROM json_each(s.value, '$.nodes') h WHERE h.value = ?) ORDER BY s.key"""

_KINDS = "SELECT DISTINCT kind FROM node ORDER BY kind"
_TAGS = "SELECT DISTINCT tag FROM node_tag ORDER BY tag"
_ZONE_NAMES = "SELECT name FROM zone ORDER BY name"

_ANY_HEAD = """SELECT 1 FROM state s, json_each(s.value, '$.nodes') h WHERE s.key GLOB 'cursor/*' LIMIT 1"""
# Transitions give life forwards only; what a living node waits for, serves or refers to lives too.
_GARBAGE = """WITH RECURSIVE live(id) AS (
SELECT h.value FROM state s, json_each(s.value, '$.nodes') h WHERE s.key GLOB 'cursor/*'
UNION SELECT id FROM node WHERE kind NOT IN (SELECT value FROM json_each(?1))
UNION SELECT n.id FROM node_tag t JOIN node n ON n.no = t.node WHERE t.tag IN (SELECT value FROM json_each(?2))
UNION SELECT n.id FROM experience x JOIN node n ON x.no = 2 * n.no
    WHERE x.visits > 0 OR x.successes + x.failures > 0
UNION SELECT e.src FROM experience x JOIN edge e ON x.no = 2 * e.no + 1 WHERE x.visits > 0
UNION SELECT e.dst FROM live l JOIN edge e ON e.src = l.id
UNION SELECT e.src FROM live l JOIN edge e ON e.dst = l.id AND e.kind <> 'transition')
SELECT n.id, n.updated_seq FROM node n WHERE n.status = 'active' AND n.updated_seq <= ?3
AND n.id NOT IN (SELECT id FROM live) ORDER BY n.id"""
_DORMANT = """SELECT count(*) FROM edge WHERE src IN (SELECT value FROM json_each(?1))
OR dst IN (SELECT value FROM json_each(?1))"""

# What was violated is a rule; a gate or a lock that the author set is not argued with.
_VIOLATED_EDGES = """SELECT e.id, r.violations, e.enforcement FROM rule r JOIN edge e ON e.id = r.id
WHERE r.scope = 'edge' AND r.violations >= ? AND e.learned_enforcement IS NULL
AND e.enforcement IS NOT 'hard' AND e.enforcement IS NOT 'off'
AND NOT EXISTS (SELECT 1 FROM policy_lock l WHERE l.scope = 'edge' AND l.id = e.id) ORDER BY e.no"""
_ZONES = """SELECT z.name, coalesce(z.learned_intra, z.intra), coalesce(z.learned_boundary, z.boundary),
coalesce((SELECT violations FROM rule WHERE scope = 'zone-intra' AND id = z.name), 0),
coalesce((SELECT violations FROM rule WHERE scope = 'zone-boundary' AND id = z.name), 0)
FROM zone z WHERE NOT EXISTS (SELECT 1 FROM policy_lock l WHERE l.scope = 'zone' AND l.id = z.name)
ORDER BY z.name"""
_TRAFFIC = """SELECT t.zone, (SELECT count(*) FROM zone_member m WHERE m.zone = t.zone AND m.node IN (t.src, t.dst))
= 1 + (t.src <> t.dst) AS inside, sum(x.visits), sum(x.successes), sum(x.failures)
FROM (SELECT m.zone, e.no, e.src, e.dst FROM zone_member m JOIN edge e ON e.src = m.node AND e.kind = 'transition'
UNION SELECT m.zone, e.no, e.src, e.dst FROM zone_member m JOIN edge e ON e.dst = m.node AND e.kind = 'transition') t
JOIN experience x ON x.no = 2 * t.no + 1 GROUP BY t.zone, inside"""
_DUPLICATES = """SELECT id, first FROM (SELECT no, id, first_value(id) OVER (
PARTITION BY src, dst, kind, label, guard, enforcement ORDER BY no) AS first FROM edge)
WHERE id <> first ORDER BY no"""
_BLOCKED = """SELECT e.id, d.id, s.id, s.status FROM edge e JOIN node d ON d.id = e.dst JOIN node s ON s.id = e.src
LEFT JOIN experience x ON x.no = 2 * s.no WHERE e.kind = 'dependency' AND d.status = 'active'
AND s.status <> 'active' AND coalesce(x.visits, 0) = 0 ORDER BY e.no"""
_LOW_VALUE = """SELECT e.id, x.ema_reward, x.visits FROM experience x JOIN edge e ON x.no = 2 * e.no + 1
WHERE x.visits >= ? AND x.ema_reward < 0 ORDER BY e.no"""
_LEARNED = """SELECT e.id, e.weight, e.learned_weight, coalesce(x.ema_reward, 0.0)
FROM edge e LEFT JOIN experience x ON x.no = 2 * e.no + 1
WHERE e.kind = 'transition' AND (e.learned_weight <> 0 OR x.ema_reward <> 0) ORDER BY e.no"""

_NODES_OF_KIND = "SELECT id FROM node WHERE kind = ? ORDER BY id"
_EDGES_AT = "SELECT id FROM edge WHERE src = ?1 OR dst = ?1 ORDER BY src <> ?1, no"


class Flaw(NamedTuple):
    """Something that cannot be right: its kind, where it is, and words about it."""

    kind: str
    locus: Mapping[str, Json]
    detail: str


class Survey:
    """Reads over the tables of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._structure: tuple[tuple[int, ...], list[Flaw]] = ((), [])

    def flaws(self, shape: tuple[int, ...]) -> list[Flaw]:
        """Return what cannot be right: a cycle, and what hangs in the air.

        Args:
            shape: Numbers that change with nodes, edges, statuses and zones. While they are the
                same only the cursors are looked at.
        """
        if self._structure[0] != shape:
            self._structure = (
                shape,
                [*self._cycle(), *self._dangling_edges(), *self._orphan_stats(), *self._dangling_members()],
            )
        return [*self._structure[1], *self._dead_heads()]

    def _cycle(self) -> list[Flaw]:
        edges = self._db.all(_DEPENDENCIES)
        cycle = algorithms.find_cycle([node for (node,) in self._db.all(_NODES)], edges) if edges else None
        if cycle is None:
            return []
        return [Flaw("DagCycle", {"nodes": cycle}, f"dependencies form a cycle: {' -> '.join(cycle)}")]

    def _dangling_edges(self) -> list[Flaw]:
        return [
            Flaw(
                "DanglingEdge",
                {"edge": edge},
                f"edge {edge!r} leads from {src!r}{' (missing)' * no_src} to {dst!r}{' (missing)' * no_dst}",
            )
            for edge, src, dst, no_src, no_dst in self._db.all(_DANGLING_EDGES)
        ]

    def _orphan_stats(self) -> list[Flaw]:
        found = [("edge" if key % 2 else "node", key // 2) for (key,) in self._db.all(_ORPHAN_STATS)]
        return [
            Flaw("OrphanStat", {"stat": kind, "no": no}, f"a statistic of {kind} number {no}, which is gone")
            for kind, no in found
        ]

    def _dangling_members(self) -> list[Flaw]:
        return [
            Flaw(
                "DanglingZoneMember",
                {"zone": zone, "node": node},
                f"zone {zone!r} has the member {node!r}, which is missing",
            )
            for zone, node in self._db.all(_DANGLING_MEMBERS)
        ]

    def _dead_heads(self) -> list[Flaw]:
        return [
            Flaw(
                "CursorOnDeadNode",
                {"actor": actor, "node": node},
                f"{actor!r} stands on {node!r}, which is {status or 'missing'}",
            )
            for actor, node, status in self._db.all(_DEAD_HEADS)
        ]

    def names(self) -> dict[str, list[str]]:
        """Return the kinds of nodes, the tags and the zones that are in use, sorted."""
        return {
            what: [name for (name,) in self._db.all(sql)]
            for what, sql in (("kinds", _KINDS), ("tags", _TAGS), ("zones", _ZONE_NAMES))
        }

    def actors_on(self, node: str) -> list[str]:
        """Return whose cursors stand on a node."""
        return [actor for (actor,) in self._db.all(_HEADS_ON, (node,))]

    def garbage(
        self, *, kinds: Sequence[str], pins: Sequence[str], changed_before: int
    ) -> list[tuple[str, int]]:
        """Return (node, event of its last change) of active nodes that nothing leads to.

        Args:
            kinds: Nodes of other kinds are never garbage, and keep what they are linked to.
            pins: Tags with the same effect.
            changed_before: Only nodes whose last change is this event or an earlier one.

        Returns:
            Nothing at all as long as nobody stands anywhere.
        """
        if self._db.one(_ANY_HEAD) is None:
            return []
        return self._db.all(_GARBAGE, (encode_text(list(kinds)), encode_text(list(pins)), changed_before))

    def dormant(self, nodes: Sequence[str]) -> int:
        """Return how many edges touch any of the nodes."""
        row = self._db.one(_DORMANT, (encode_text(list(nodes)),))
        return int(row[0]) if row else 0

    def violated_edges(self, least: int) -> list[tuple[str, int, str | None]]:
        """Return (edge, soft violations of its guard, declared mode) of soft edges with at least so many."""
        return self._db.all(_VIOLATED_EDGES, (least,))

    def zone_traffic(self) -> list[ZoneTraffic]:
        """Return what happened inside every zone that is not locked, and over its boundary."""
        moved = {(zone, inside): Traffic(*sums) for zone, inside, *sums in self._db.all(_TRAFFIC)}
        return [
            ZoneTraffic(
                name=name, intra=intra, boundary=boundary,
                inside=moved.get((name, 1), Traffic())._replace(violations=inner),
                crossing=moved.get((name, 0), Traffic())._replace(violations=outer),
            )
            for name, intra, boundary, inner, outer in self._db.all(_ZONES)
        ]  # fmt: skip

    def duplicates(self) -> list[tuple[str, str]]:
        """Return (edge, older edge) of edges alike in ends, kind, label, guard and mode."""
        return self._db.all(_DUPLICATES)

    def blocked(self) -> list[tuple[str, str, str, str]]:
        """Return (edge, node, prerequisite, its status) where a node waits for one that was set aside."""
        return self._db.all(_BLOCKED)

    def low_value(self, least_visits: int) -> list[tuple[str, float, int]]:
        """Return (edge, average reward, visits) of much used edges that lose."""
        return self._db.all(_LOW_VALUE, (least_visits,))

    def learned(self) -> list[tuple[str, float, float, float]]:
        """Return (edge, prior, learned weight, average reward) of transitions that learned anything."""
        return self._db.all(_LEARNED)

    def nodes_of_kind(self, kind: str) -> list[str]:
        """Return the ids of all nodes of a kind, whatever their status, sorted."""
        return [node for (node,) in self._db.all(_NODES_OF_KIND, (kind,))]

    def edges_at(self, node: str) -> list[str]:
        """Return the ids of the edges of a node: those that leave it first, oldest first."""
        rows: list[tuple[Any, ...]] = self._db.all(_EDGES_AT, (node,))
        return [edge for (edge,) in rows]
