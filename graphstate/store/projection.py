"""The graph as tables, folded from the stream ``graph`` one event at a time.

`apply` is the only writer of these tables, live and in a rebuild. What moves and suggestions
need (cursors, edges out of a node, statistics, status of nodes) is kept in memory once read,
so that a step reads no table. Cursors and statistics change there first and are written by
`flush`, once for each transaction. `forget` drops it all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from graphstate import scoring
from graphstate._canonical import Json, encode_text
from graphstate.events import GENESIS, Head, Row
from graphstate.model import Edge, Node, Provenance, Stat
from graphstate.policy import lowest, written_trust
from graphstate.similarity import unpacked
from graphstate.store.activation import CURVE_TUNABLES, SUPERSEDED_BY, Activations
from graphstate.store.db import Database, SqlValue
from graphstate.store.dependencies import Dependencies
from graphstate.store.policies import Policies
from graphstate.store.replicas import BEGAN, DELTAS, Replicas
from graphstate.store.retrievals import Retrievals
from graphstate.store.schema import GRAPH_NO, SHIFT
from graphstate.store.snapshot import LOAD_ROW
from graphstate.store.stored import as_stored, stored_json
from graphstate.store.successions import Successions
from graphstate.store.surroundings import Surroundings
from graphstate.store.tables import CLEAR
from graphstate.store.vectors import Space, Vectors
from graphstate.store.words import index_text
from graphstate.tunables import DEFAULTS

__all__ = ("TRAIL", "CursorState", "Projection", "StatState")

Mark: TypeAlias = Literal["cut", "snapshot", "text"]

#: Moves of each cursor that a trace reward can reach back to.
TRAIL = 32

#: Last rewards that are kept for a picture.
REWARDS = 3

# Beyond this many remembered rows the memory starts afresh; a step then reads a few rows again,
# which makes it three times as long. A row takes about 0.4 kB: this is all of a graph of 100,000
# nodes and 400,000 edges, and at most 300 MB.
_REMEMBERED = 700_000

_NODE = """id, kind, label, payload, tags, status, version, created_seq, updated_seq,
created_at, updated_at, (SELECT data FROM vector v WHERE v.no = n.no), trust,
(SELECT json_array(p.memory_class, p.confidence, p.source,
 p.observed_at, p.derived_from, p.supersedes, p.contradicts) FROM provenance p WHERE p.no = n.no)"""
_EDGE = """id, src, dst, kind, label, guard, enforcement, weight, learned_weight, version,
created_seq, updated_seq, learned_enforcement"""
_NODE_BY_ID = f"SELECT {_NODE} FROM node n WHERE id = ?"
_EDGE_BY_ID = f"SELECT {_EDGE} FROM edge WHERE id = ?"
_STAT = """x.visits, x.successes, x.failures, x.soft_violations, x.blocks, x.ema_reward, x.last_seq,
x.rewarded_by, x.rewarded_move"""
_STAT_BY_ID = {
    "node": f"SELECT 2 * n.no, {_STAT} FROM node n LEFT JOIN experience x ON x.no = 2 * n.no WHERE n.id = ?",
    "edge": f"SELECT 2 * e.no + 1, {_STAT} FROM edge e LEFT JOIN experience x ON x.no = 2 * e.no + 1 WHERE e.id = ?",
}
_MOVES_OUT = f"""SELECT e.id, e.src, e.dst, e.kind, e.label, e.guard, e.enforcement, e.weight,
e.learned_weight, e.version, e.created_seq, e.updated_seq, e.learned_enforcement, n.status, 2 * e.no + 1, {_STAT}
FROM edge e LEFT JOIN node n ON n.id = e.dst LEFT JOIN experience x ON x.no = 2 * e.no + 1
WHERE e.src = ? AND e.kind = 'transition' ORDER BY e.no"""

_NODE_INSERT = "INSERT INTO node VALUES (NULL, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?) RETURNING no"
_NODE_UPDATE = """UPDATE node SET kind = ?, label = ?, payload = ?, tags = ?, status = ?,
version = version + 1, updated_seq = ?, updated_at = ?, trust = ? WHERE no = ?"""
_NODE_OLD = "SELECT no, tags, kind, status, label, payload, trust FROM node WHERE id = ?"
_TRUSTS = "SELECT DISTINCT trust FROM node WHERE id IN (SELECT value FROM json_each(?))"
_EDGE_INSERT = "INSERT INTO edge VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, 0.0, 1, ?, ?, NULL) RETURNING no"
_EDGE_UPDATE = """UPDATE edge SET src = ?, dst = ?, kind = ?, label = ?, guard = ?, enforcement = ?,
weight = ?, version = version + 1, updated_seq = ? WHERE id = ?"""
_LEARN = "UPDATE edge SET learned_weight = ?, updated_seq = ? WHERE id = ? RETURNING src"
_EDGE_MODE = {
    False: """UPDATE edge SET enforcement = ?, learned_enforcement = NULL, updated_seq = ? WHERE id = ?
    RETURNING src""",
    True: "UPDATE edge SET learned_enforcement = ?, updated_seq = ? WHERE id = ? RETURNING src",
}
# Most events change two or three of these; one statement for them costs half of two.
_STATE_PUTS = tuple(
    f"INSERT INTO state VALUES (?, ?){', (?, ?)' * more} ON CONFLICT DO UPDATE SET value = excluded.value"
    for more in range(4)
)
_STAT_PUTS = tuple(
    f"INSERT OR REPLACE INTO experience VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    f"{', (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)' * more}"
    for more in range(4)
)
_STATE = "SELECT value FROM state WHERE key = ?"
_CURSORS = "SELECT actor, nodes FROM cursor"
_TRAIL = """SELECT value ->> '$.edge', value ->> '$.to' FROM state WHERE key GLOB ?
ORDER BY value ->> '$.move' DESC LIMIT ?"""

_VALID = f"""AND (?5 IS NULL OR (coalesce((SELECT p.observed_at FROM provenance p WHERE p.no = n.no), n.created_at)
<= ?5 AND NOT EXISTS (SELECT 1 FROM edge e JOIN node d ON d.id = e.dst LEFT JOIN succession s ON s.no = e.no
LEFT JOIN provenance p ON p.no = d.no WHERE e.src = n.id AND e.kind = 'reference' AND e.label = '{SUPERSEDED_BY}'
AND coalesce(p.observed_at, s.at, d.created_at) <= ?5)))"""

# Each begins at the most selective condition that is given.
_MEETING: Mapping[str, str] = {
    "id": f"""FROM node n WHERE id = ?1 AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR status = ?3)
    AND (?4 IS NULL OR no IN (SELECT node FROM node_tag WHERE tag = ?4)) {_VALID}""",
    "tag": f"""FROM node n WHERE ?1 IS NULL AND no IN (SELECT node FROM node_tag WHERE tag = ?4)
    AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR status = ?3) {_VALID}""",
    "kind": f"""FROM node n WHERE kind = ?2 AND ?1 IS NULL AND ?4 IS NULL
    AND (?3 IS NULL OR status = ?3) {_VALID}""",
    "status": f"""FROM node n WHERE ?1 IS NULL AND ?2 IS NULL AND ?4 IS NULL
    AND (?3 IS NULL OR status = ?3) {_VALID}""",
}
_RECALL = {by: f"SELECT {_NODE} {meeting} ORDER BY id LIMIT ?6" for by, meeting in _MEETING.items()}
_NUMBERS = {by: f"SELECT no {meeting}" for by, meeting in _MEETING.items()}
_RECALL_TEXT = f"""SELECT {_NODE} FROM node_text t JOIN node n ON n.no = t.rowid
WHERE t.text MATCH ?7 AND (?1 IS NULL OR n.id = ?1) AND (?2 IS NULL OR kind = ?2)
AND (?3 IS NULL OR status = ?3) AND (?4 IS NULL OR no IN (SELECT node FROM node_tag WHERE tag = ?4)) {_VALID}
ORDER BY t.rank, id LIMIT ?6"""
_NODES_BY_ID = f"SELECT {_NODE} FROM node n WHERE id IN (SELECT value FROM json_each(?))"

_TEXT_ALL = "SELECT no, label, payload, tags FROM node"
_TEXT_STALE = f"""{_TEXT_ALL} WHERE id IN (SELECT DISTINCT body ->> '$.id' FROM event
WHERE no BETWEEN ? AND ? AND type IN (SELECT no FROM term WHERE text IN ('NodeUpserted', 'StateRestored')))"""

_RESTORE_TAGS = """INSERT INTO node_tag SELECT DISTINCT t.value, n.no FROM node n, json_each(n.tags) t
WHERE n.no = ?"""

_READY = """SELECT n.id FROM node n WHERE n.status = 'active'
AND n.id NOT IN (SELECT value FROM json_each(?1)) AND NOT EXISTS (
SELECT 1 FROM edge e WHERE e.dst = n.id AND e.kind = 'dependency'
AND e.src NOT IN (SELECT value FROM json_each(?1))) ORDER BY n.id"""

_CLEAR = (
    "DELETE FROM node",
    "DELETE FROM node_tag",
    "DELETE FROM edge",
    "DELETE FROM experience",
    "DELETE FROM tunable",
    "DELETE FROM zone",
    "DELETE FROM zone_member",
    "DELETE FROM rule",
    "DELETE FROM policy_lock",
    *CLEAR,
    """DELETE FROM state WHERE key GLOB 'cursor/*' OR key GLOB 'trail/*' OR key GLOB 'origin/*'
    OR key IN ('embedder', 'rewards')""",
)


def _narrowest(id: str | None, kind: str | None, tag: str | None) -> str:
    if id is not None:
        return "id"
    if tag is not None:
        return "tag"
    return "status" if kind is None else "kind"


class CursorState(Struct, frozen=True, gc=False):
    """Where one actor stands, and how often it moved."""

    nodes: tuple[str, ...] = ()
    moves: int = 0


class StatState(Struct, gc=False):
    """A statistic while it changes: its key and the fields of `Stat`, in the order of the table."""

    no: int
    visits: int = 0
    successes: int = 0
    failures: int = 0
    softs: int = 0
    blocks: int = 0
    ema: float = 0.0
    last_seq: int = 0
    rewarded_by: str | None = None
    rewarded_move: int = 0

    def frozen(self) -> Stat:
        return Stat(
            visits=self.visits, successes=self.successes, failures=self.failures,
            soft_violations=self.softs, blocks=self.blocks, ema_reward=self.ema, last_seq=self.last_seq,
            rewarded_by=self.rewarded_by, rewarded_move=self.rewarded_move,
        )  # fmt: skip


def _stat_state(row: Sequence[Any]) -> StatState:
    return StatState(row[0]) if row[1] is None else StatState(*row)


def _provenance(text: str | None) -> Provenance | None:
    if text is None:
        return None
    with as_stored("where a node comes from"):
        memory_class, confidence, source, observed_at, derived, supersedes, contradicts = stored_json(text)
        return Provenance(
            memory_class=memory_class, confidence=confidence, source=source, observed_at=observed_at,
            derived_from=tuple(stored_json(derived)), supersedes=supersedes,
            contradicts=tuple(stored_json(contradicts)),
        )  # fmt: skip


def _node(row: Sequence[Any]) -> Node:
    return Node(
        id=row[0], kind=row[1], label=row[2], payload=stored_json(row[3]), tags=tuple(stored_json(row[4])),
        status=row[5], version=row[6], created_seq=row[7], updated_seq=row[8], created_at=row[9],
        updated_at=row[10], embedding=None if row[11] is None else unpacked(row[11]),
        trust=row[12], memory=_provenance(row[13]),
    )  # fmt: skip


def _edge(row: Sequence[Any]) -> Edge:
    return Edge(
        id=row[0], src=row[1], dst=row[2], kind=row[3], label=row[4], guard=row[5], enforcement=row[6],
        weight=row[7], learned_weight=row[8], version=row[9], created_seq=row[10], updated_seq=row[11],
        learned_enforcement=row[12],
    )  # fmt: skip


class Projection:
    """The folded graph of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        #: changes whenever nodes, edges or statuses may have changed
        self.shape = 0
        #: zones, locks, and what happened to rules
        self.policies = Policies(db)
        #: how much of each node is present, and in what order
        self.activations = Activations(db, self.tunables)
        #: which node took the place of which, and of which ones one was made
        self.successions = Successions(db, self.activations, self._put_edge)
        #: what searches showed, and what was learned from it
        self.retrievals = Retrievals(db, self.activations, self.tunables)
        #: what a search needs to know of nodes
        self.surroundings = Surroundings(db)
        #: edges by their ends, and whether one more dependency would close a circle
        self.dependencies = Dependencies(db)
        #: which reinforcements are known here
        self.replicas = Replicas(db)
        #: vectors of nodes, and the search for the nearest
        self.vectors = Vectors(db, self.applied)
        self.folds: Mapping[str, Callable[[Row, dict[str, Json]], None]] = {
            "NodeUpserted": self._node_upserted,
            "NodeStatusChanged": self._node_status_changed,
            "EdgeUpserted": self._edge_upserted,
            "EdgeRemoved": self._edge_removed,
            "EdgesReweighted": self._edges_reweighted,
            "CursorMoved": self._cursor_moved,
            "TransitionTaken": self._transition_taken,
            "BlockedAttempt": self._blocked_attempt,
            "SoftViolation": self._soft_violation,
            "RewardApplied": self._reward_applied,
            "ConfigSet": self._config_set,
            "memory.embedded": self._embedded,
            "memory.embedder_set": self._embedder_set,
            "EnforcementChanged": self._enforcement_changed,
            **self.policies.folds,
            **{
                name: self.replicas.noting(fold) if name in DELTAS else fold
                for name, fold in self.activations.folds.items()
            },
            **self.replicas.folds,
            **self.successions.folds,
            **self.retrievals.folds,
            "StateRestored": self._state_restored,
            "TransitionMerged": self._transition_merged,
            "Forked": self._forked,
            "Imported": self._taken_over,
            "Merged": self._taken_over,
        }
        self.forget()

    def forget(self) -> None:
        """Drop what is remembered of the tables: after a rollback, or when somebody else wrote."""
        self._forget_rows()
        self.dependencies.forget()
        self.vectors.forget()
        self.replicas.forget()

    def _forget_rows(self) -> None:
        self._cursors: dict[str, CursorState] = {}
        self._out: dict[str, tuple[Edge, ...]] = {}
        self._edges: dict[str, Edge] = {}
        self._stats: dict[str, dict[str, StatState]] = {"edge": {}, "node": {}}
        self._status: dict[str, str] = {}
        self._tunables: dict[str, Json] | None = None
        self.policies.forget()
        self.activations.forget()
        self.retrievals.forget()
        self._rewards: list[list[Json]] | None = None
        # Not written yet: values of `state`, moves by their places in the trails, whether there was a
        # reward, and the keys of changed statistics.
        self._unwritten: dict[str, str] = {}
        self._changed: dict[int, StatState] = {}
        self._moved: dict[tuple[str, int], tuple[str, int, str]] = {}
        self._rewarded = False
        self.shape += 1

    def flush(self) -> None:
        """Write what changed in memory. The caller commits."""
        for (actor, place), (edge, move, to) in self._moved.items():
            self._unwritten[f"trail/{actor}/{place}"] = f'{{"edge":"{edge}","move":{move},"to":"{to}"}}'
        self._moved = {}
        if self._rewarded:
            self._unwritten["rewards"], self._rewarded = encode_text(self._rewards), False
        if self._unwritten:
            self._put(_STATE_PUTS, self._unwritten.items())
            self._unwritten = {}
        if self._changed:
            self._put(_STAT_PUTS, [*map(structs.astuple, self._changed.values())])
            self._changed = {}

    def is_ahead(self) -> bool:
        """Say whether memory holds changes that no table has yet."""
        return bool(self._unwritten or self._changed or self._moved or self._rewarded)

    def _put(self, statements: Sequence[str], rows: Collection[tuple[SqlValue, ...]]) -> None:
        if len(rows) <= len(statements):
            self._db.run(statements[len(rows) - 1], [*chain.from_iterable(rows)])
        else:
            self._db.many(statements[0], rows)

    def clear(self) -> None:
        """Empty the tables, for a rebuild."""
        for statement in _CLEAR:
            self._db.run(statement)
        self.forget()

    # ------------------------------------------------------------------ folding

    def apply(self, row: Row, body: dict[str, Json]) -> None:
        """Fold one event into the tables. Unknown types change nothing."""
        self.make_room()
        fold = self.folds.get(row.type)
        if fold is not None:
            fold(row, body)

    def make_room(self) -> None:
        """Start the memory of the tables afresh if it is full."""
        if len(self._edges) + len(self._stats["node"]) + len(self._status) > _REMEMBERED:
            self.flush()
            self._forget_rows()

    def applied(self) -> Head:
        """Return the last event that the tables contain."""
        value = self._state("head")
        if value is None:
            return Head(0, GENESIS)
        with as_stored("the place of the projection"):
            head = stored_json(value)
            return Head(head["seq"], bytes.fromhex(head["hash"]))

    def set_applied(self, head: Head) -> None:
        """Note the last event that the tables contain."""
        self._unwritten["head"] = f'{{"hash":"{head.hash.hex()}","seq":{head.seq}}}'

    def mark(self, key: Mark) -> int:
        """Return a number that is kept beside the head: 0 until it is set.

        ``cut`` counts rollbacks, ``snapshot`` is the event of the newest snapshot, ``text``
        the last event in the full-text index.
        """
        with as_stored(f"the mark {key}"):
            return int(self._state(key) or 0)

    def set_mark(self, key: Mark, value: int) -> None:
        """Set such a number."""
        self._unwritten[key] = str(value)

    def _state(self, key: str) -> str | None:
        value = self._unwritten.get(key)
        if value is None:
            row = self._db.one(_STATE, (key,))
            value = row[0] if row else None
        return value

    def size(self) -> int:
        """Return an upper bound of the live rows, without counting them."""
        row = self._db.one(
            "SELECT (SELECT coalesce(max(no), 0) FROM node) + (SELECT coalesce(max(no), 0) FROM edge)"
        )
        return int(row[0]) if row else 0

    def _node_upserted(self, row: Row, body: dict[str, Json]) -> None:
        node_id, tags = body["id"], body["tags"]
        tag_text = encode_text(tags) if tags else "[]"
        old = self._db.one(_NODE_OLD, (node_id,))
        kind, label, status = body["kind"], body["label"], body["status"]
        payload = encode_text(body["payload"])
        if old is None:
            trust = self._trust(None, row, body, rewritten=True)
            new = self._db.one(
                _NODE_INSERT,
                (node_id, kind, label, payload, tag_text, status, row.seq, row.seq, row.at, row.at, trust),
            )  # fmt: skip
            assert new is not None
            no, changed = new[0], bool(tags)
            self._out[node_id] = ()
            self._stats["node"][node_id] = StatState(2 * no)
        else:
            no, changed = old[0], old[1] != tag_text
            kept = (old[4] == label != node_id) or (old[5] == payload != "{}")
            trust = self._trust(old[6], row, body, rewritten=not kept and old[4:6] != (label, payload))
            self._db.run(_NODE_UPDATE, (kind, label, payload, tag_text, status, row.seq, row.at, trust, no))
            if changed:
                self._db.run(
                    "DELETE FROM node_tag WHERE node = ?1 AND tag IN (SELECT value FROM json_each(?2))",
                    (no, old[1]),
                )
        if changed:
            self._db.many("INSERT OR IGNORE INTO node_tag VALUES (?, ?)", [(tag, no) for tag in tags])
        if body.get("embedding") is not None or (old is not None and "embedding" in body):
            self.vectors.put(no, body["embedding"], row.seq, model=body.get("model"))
        self._status[node_id] = status
        self.shape += 1
        if "memory" in body:
            self.activations.set_provenance(no, body["memory"])
        if old is not None and ("memory" in body or old[2:4] != (kind, status)):
            self.activations.lane_changed(node_id)
        if "stat" in body:
            self._inherit("node", node_id, body["stat"], row.seq)

    def _trust(self, before: str | None, row: Row, body: dict[str, Json], *, rewritten: bool) -> str:
        by = lowest(row.trust, body["trust"]) if "trust" in body else row.trust
        trust = written_trust(before, by, rewritten=rewritten)
        sources = body["memory"].get("derived_from") if "memory" in body else None
        if sources:
            trust = lowest(trust, *(level for (level,) in self._db.all(_TRUSTS, (encode_text(sources),))))
        return trust

    def _node_status_changed(self, row: Row, body: dict[str, Json]) -> None:
        self.shape += 1
        self._db.run(
            "UPDATE node SET status = ?, updated_seq = ?, updated_at = ? WHERE id = ?",
            (body["status"], row.seq, row.at, body["id"]),
        )
        self._status[body["id"]] = body["status"]
        self.activations.lane_changed(body["id"])

    def _edge_upserted(self, row: Row, body: dict[str, Json]) -> None:
        self.shape += 1
        self._put_edge(row, body)
        if "stat" in body:
            self._inherit("edge", body["id"], body["stat"], row.seq)
        if "learned_weight" in body:
            self._learn(body["id"], float(body["learned_weight"]), row.seq)

    def _put_edge(self, row: Row, body: dict[str, Json]) -> None:
        edge_id, src, dst, kind = body["id"], body["src"], body["dst"], body["kind"]
        label, guard, enforcement, weight = body["label"], body["guard"], body["enforcement"], body["weight"]
        values = (src, dst, kind, label, guard, enforcement, float(weight))
        old = self._db.one(
            "SELECT src, dst, guard, enforcement, no, kind, label FROM edge WHERE id = ?", (edge_id,)
        )
        if old is not None:
            self._db.run(_EDGE_UPDATE, (*values, row.seq, edge_id))
            self.dependencies.removed(old[0], old[1], old[5])
            self.dependencies.added(src, dst, kind)
            self._forget_edge(edge_id, old[0], src)
            self.policies.lock_moves("edge", edge_id, row.seq)
            if old[:4] != (src, dst, guard, enforcement):
                self._db.run("UPDATE edge SET learned_enforcement = NULL WHERE id = ?", (edge_id,))
                self.policies.forget_rule("edge", edge_id)
            if old[6] == SUPERSEDED_BY and old[0] != src:
                self.activations.lane_changed(old[0])
            if SUPERSEDED_BY in (label, old[6]):
                self.activations.lane_changed(src)
            if old[:2] != (src, dst):  # what was learned belongs to the old ends
                self._db.run("UPDATE edge SET learned_weight = 0.0 WHERE id = ?", (edge_id,))
                self._drop_stat(edge_id, 2 * old[4] + 1)
            return
        new = self._db.one(_EDGE_INSERT, (edge_id, *values, row.seq, row.seq))
        assert new is not None
        self.dependencies.added(src, dst, kind)
        edge = self._edges[edge_id] = _edge((edge_id, *values, 0.0, 1, row.seq, row.seq, None))
        self._stats["edge"][edge_id] = StatState(2 * new[0] + 1)
        if kind == "transition" and src in self._out:
            self._out[src] += (edge,)
        if label == SUPERSEDED_BY:
            self.activations.lane_changed(src)

    def _edges_reweighted(self, row: Row, body: dict[str, Json]) -> None:
        for edge, learned in body["weights"].items():
            self._learn(edge, float(learned), row.seq)

    def _learn(self, edge: str, learned: float, seq: int) -> None:
        src = self._db.one(_LEARN, (learned, seq, edge))
        if src is not None:
            self._forget_edge(edge, src[0])

    def _inherit(self, kind: str, id: str, told: Mapping[str, Json], seq: int) -> None:
        """Take over what others learned: two nodes became one, or an edge got another end."""
        stat = self._touch(kind, id, seq)
        if stat is not None:
            stat.visits, stat.successes, stat.failures = told["visits"], told["successes"], told["failures"]
            stat.softs, stat.blocks, stat.ema = (
                told["soft_violations"],
                told["blocks"],
                float(told["ema_reward"]),
            )
            stat.rewarded_by, stat.rewarded_move = told["rewarded_by"], told["rewarded_move"]

    def _edge_removed(self, row: Row, body: dict[str, Json]) -> None:
        self.shape += 1
        old = self._db.one("DELETE FROM edge WHERE id = ? RETURNING src, no, dst, kind, label", (body["id"],))
        if old is not None:
            self.dependencies.removed(old[0], old[2], old[3])
            self._forget_edge(body["id"], old[0])
            self.policies.forget_rule("edge", body["id"])
            self.policies.drop_lock("edge", body["id"])
            self._drop_stat(body["id"], 2 * old[1] + 1)
            self.successions.edge_gone(old[1], old[0], old[2], old[4])

    def _embedder_set(self, row: Row, body: dict[str, Json]) -> None:
        self.vectors.settle(
            Space(body["provider"], body["model"], body["dimensions"], body["version"]), row.seq
        )

    def _embedded(self, row: Row, body: dict[str, Json]) -> None:
        for node, vector in body["vectors"].items():
            found = self._db.one("SELECT no FROM node WHERE id = ?", (node,))
            if found is not None:
                self.vectors.put(found[0], vector, row.seq, model=body["model"])

    def _enforcement_changed(self, row: Row, body: dict[str, Json]) -> None:
        scope, name, mode, learned = body["scope"], body["id"], body["mode"], body.get("learned", False)
        if scope != "edge":
            self.policies.zone_mode_changed(scope, name, mode, learned=learned, seq=row.seq)
            return
        edge = self._db.one(_EDGE_MODE[learned], (mode, row.seq, name))
        if edge is not None:
            self._forget_edge(name, edge[0])
            self.policies.forget_rule("edge", name)
            self.policies.lock_moves("edge", name, row.seq)

    def _forget_edge(self, edge: str, *sources: str) -> None:
        self._edges.pop(edge, None)
        for source in sources:
            self._out.pop(source, None)

    def _cursor_moved(self, row: Row, body: dict[str, Json]) -> None:
        actor = body.get("cursor", row.actor or "")  # whose cursor, if not that of who acts
        self._put_cursor(actor, tuple(dict.fromkeys(body["set"])), self.cursor(actor).moves)
        self.policies.lock_moves("cursor", actor, row.seq)

    def _transition_taken(self, row: Row, body: dict[str, Json]) -> None:
        actor, seq, to, edge = row.actor or "", row.seq, body["to"], body["edgeId"]
        state = self._cursors.get(actor) or self.cursor(actor)
        origin, moves = body["from"], state.moves + 1
        nodes: tuple[str, ...] = ()
        if state.nodes != (origin,):  # several heads: the others stay
            nodes = tuple(node for node in state.nodes if node != origin or node == to)
        nodes = nodes if to in nodes else (*nodes, to)
        self._put_cursor(actor, nodes, moves)
        self._moved[actor, moves % TRAIL] = edge, moves, to
        for stat in (self._touch("edge", edge, seq), self._touch("node", to, seq)):
            if stat is not None:
                stat.visits += 1
        if "cleanRules" in body:
            self.policies.ran_clean(body["cleanRules"])

    def _blocked_attempt(self, row: Row, body: dict[str, Json]) -> None:
        stat = self._touch("edge", body["edgeId"], row.seq)
        if stat is not None:
            stat.blocks += body.get("count", 1)
        if "rules" in body:
            self.policies.blocked(body["rules"])

    def _soft_violation(self, row: Row, body: dict[str, Json]) -> None:
        stat = self._touch("edge", body["edgeId"], row.seq)
        if stat is not None:
            stat.softs += 1
        if "rules" in body:
            self.policies.violated(body["rules"])

    def _reward_applied(self, row: Row, body: dict[str, Json]) -> None:
        value, alpha, actor, seq = float(body["value"]), float(body["alpha"]), row.actor or "", row.seq
        moves = (self._cursors.get(actor) or self.cursor(actor)).moves
        self._rewards = [*self.rewards()[1 - REWARDS :], [seq, body["value"]]]
        self._rewarded, good = True, value >= 0
        for scope in body["scopes"]:
            stat = self._touch(scope["kind"], scope["id"], seq)
            if stat is None:
                continue
            stat.ema = scoring.credit(stat.ema, value, float(scope["weight"]), alpha)
            if good:
                stat.successes += 1
            else:
                stat.failures += 1
            stat.rewarded_by, stat.rewarded_move = actor, moves

    def _config_set(self, row: Row, body: dict[str, Json]) -> None:
        self._db.run(
            "INSERT OR REPLACE INTO tunable VALUES (?, ?)", (body["key"], encode_text(body["value"]))
        )
        self._tunables = None
        if body["key"] in CURVE_TUNABLES:
            self.activations.rank_all()
        self.policies.lock_moves("tunables", "*", row.seq)

    def _state_restored(self, row: Row, body: dict[str, Json]) -> None:
        # Only ever into an empty graph, so what is remembered is little.
        self.flush()
        self.forget()
        table, no = body["table"], body["row"][0]
        self._db.run(
            LOAD_ROW[table], (encode_text({table: [self._renumbered(table, body["row"], row.seq)]}),)
        )
        # Numbers of events are those of this log.
        if table == "node":
            self._db.run(_RESTORE_TAGS, (no,))
            self._db.run(
                "UPDATE node SET created_seq = ?1, updated_seq = ?1, trust = ?3 WHERE no = ?2",
                (row.seq, no, lowest(row.trust, body["row"][12])),
            )
        elif table == "vector":
            self._db.run("UPDATE vector SET seq = ? WHERE no = ?", (row.seq, no))
        elif table == "edge":
            self._db.run("UPDATE edge SET created_seq = ?1, updated_seq = ?1 WHERE no = ?2", (row.seq, no))
        elif table == "zone":
            self._db.run("UPDATE zone SET created_seq = ?1, updated_seq = ?1 WHERE no = ?2", (row.seq, no))
        elif table in ("activation", "lens"):  # keys that somebody else made rank nothing here
            self.activations.lane_changed(body["row"][1 if table == "activation" else 2])
        elif table == "experience":
            self._db.run("UPDATE experience SET last_seq = ? WHERE no = ? AND last_seq > 0", (row.seq, no))

    @staticmethod
    def _renumbered(table: str, row: list[Json], seq: int) -> list[Json]:
        if table == "state" and row[0] == BEGAN:
            return [BEGAN, encode_text({**stored_json(row[1]), "seq": seq})]
        if table != "state" or row[0] != "rewards":
            return row
        return ["rewards", encode_text([[seq, value] for _, value in stored_json(row[1])])]

    def _transition_merged(self, row: Row, body: dict[str, Json]) -> None:
        # A move that was made elsewhere: what it teaches counts, nobody here has moved.
        for kind, scope in (("edge", body["edgeId"]), ("node", body["to"])):
            stat = self._touch(kind, scope, row.seq)
            if stat is not None:
                stat.visits += 1

    def _forked(self, row: Row, body: dict[str, Json]) -> None:
        fork = {"seq": body["seq"], "hash": body["hash"], "at_seq": row.seq}
        self._unwritten["origin/fork"] = encode_text(fork)

    def _taken_over(self, row: Row, body: dict[str, Json]) -> None:
        upto = {"seq": body["to"], "hash": body["head"].partition(":")[2]}
        self._unwritten[f"origin/merged/{body['origin']}"] = encode_text(upto)

    def _touch(self, kind: str, id: str, seq: int) -> StatState | None:
        """Return a statistic to change; None if its node or edge is gone, which learns nothing."""
        stat = self._stats[kind].get(id) or self._stat(kind, id)
        if stat is not None:
            stat.last_seq = seq
            self._changed[stat.no] = stat
        return stat

    def _drop_stat(self, edge: str, no: int) -> None:
        self._db.run("DELETE FROM experience WHERE no = ?", (no,))
        self._changed.pop(no, None)
        self._stats["edge"].pop(edge, None)

    def _put_cursor(self, actor: str, nodes: tuple[str, ...], moves: int) -> None:
        self._cursors[actor] = CursorState(nodes, moves)
        shown = '["' + '","'.join(nodes) + '"]' if nodes else "[]"  # ids need no escapes
        self._unwritten[f"cursor/{actor}"] = f'{{"moves":{moves},"nodes":{shown}}}'

    # ------------------------------------------------------------------ what a step needs

    def cursor(self, actor: str) -> CursorState:
        """Return where an actor stands."""
        state = self._cursors.get(actor)
        if state is None:
            value = self._state(f"cursor/{actor}")
            with as_stored(f"the cursor of {actor}"):
                found: Json = {"nodes": (), "moves": 0} if value is None else stored_json(value)
                state = self._cursors[actor] = CursorState(tuple(found["nodes"]), int(found["moves"]))
        return state

    def moves_out(self, node: str) -> tuple[Edge, ...]:
        """Return the transition edges out of a node, oldest first."""
        edges = self._out.get(node)
        if edges is None:
            found: list[Edge] = []
            for row in self._db.all(_MOVES_OUT, (node,)):
                edge = self._edges[row[0]] = _edge(row)
                found.append(edge)
                if row[13] is not None:
                    self._status[edge.dst] = row[13]
                if edge.id not in self._stats["edge"]:  # memory may be ahead of the table
                    self._stats["edge"][edge.id] = _stat_state(row[14:])
            edges = self._out[node] = tuple(found)
        return edges

    def moves(self, actor: str) -> list[tuple[Edge, StatState]]:
        """Return the edges from an actor's cursor, from and to active nodes, with their statistics."""
        stats, statuses, out = self._stats["edge"], self._status, self._out
        return [
            (edge, stats.get(edge.id) or self.live_stat(edge.id))
            for node in (self._cursors.get(actor) or self.cursor(actor)).nodes
            if (statuses.get(node) or self.status(node)) == "active"
            for edge in out.get(node) or self.moves_out(node)
            if (statuses.get(edge.dst) or self.status(edge.dst)) == "active"
        ]

    def status(self, node: str) -> str | None:
        """Return the status of a node, None if there is no such node."""
        try:
            return self._status[node]
        except KeyError:
            row = self._db.one("SELECT status FROM node WHERE id = ?", (node,))
            if row is None:
                return None
            status: str = row[0]
            self._status[node] = status
            return status

    def _stat(self, kind: str, id: str) -> StatState | None:
        stat = self._stats[kind].get(id)
        if stat is None:
            row = self._db.one(_STAT_BY_ID[kind], (id,))
            if row is not None:
                stat = self._stats[kind][id] = _stat_state(row)
        return stat

    def live_stat(self, edge: str) -> StatState:
        """Return an edge's statistic for reading; it changes under the reader's hands."""
        stat = self._stat("edge", edge)
        assert stat is not None
        return stat

    def stat(self, kind: str, id: str) -> Stat | None:
        """Return a statistic, None if nothing ever touched it."""
        stat = self._stat(kind, id)
        return stat.frozen() if stat and stat.last_seq else None

    def cursors(self) -> dict[str, tuple[str, ...]]:
        """Return where every actor stands."""
        self.flush()
        return {actor: tuple(stored_json(nodes)) for actor, nodes in self._db.all(_CURSORS)}

    def trail(self, actor: str, depth: int) -> list[tuple[str, str]]:
        """Return (edge, target) of an actor's last moves, newest first, at most `TRAIL`."""
        self.flush()
        return self._db.all(_TRAIL, (f"trail/{actor}/*", depth))

    def rewards(self) -> list[list[Json]]:
        """Return (event, value) of the last rewards of all actors, oldest first, at most `REWARDS`."""
        if self._rewards is None:
            self._rewards = stored_json(self._state("rewards") or "[]")
        return self._rewards

    def tunables(self) -> Mapping[str, Json]:
        """Return every tunable, stored ones over defaults."""
        if self._tunables is None:
            stored = self._db.all("SELECT key, value FROM tunable")
            self._tunables = {**DEFAULTS, **{key: stored_json(value) for key, value in stored}}
        return self._tunables

    def fork(self) -> tuple[Head, int] | None:
        """Return where this graph left the one it is a branch of, and the event that says so."""
        value = self._state("origin/fork")
        if value is None:
            return None
        fork = stored_json(value)
        return Head(fork["seq"], bytes.fromhex(fork["hash"])), fork["at_seq"]

    def taken_over(self, origin: str) -> Head | None:
        """Return up to where the events of an origin were taken over; None if none ever were."""
        value = self._state(f"origin/merged/{origin}")
        if value is None:
            return None
        upto = stored_json(value)
        return Head(upto["seq"], bytes.fromhex(upto["hash"]))

    # ------------------------------------------------------------------ other reads

    def node(self, id: str) -> Node | None:
        """Return a node."""
        row = self._db.one(_NODE_BY_ID, (id,))
        return _node(row) if row else None

    def edge(self, id: str) -> Edge | None:
        """Return an edge."""
        edge = self._edges.get(id)
        if edge is None:
            row = self._db.one(_EDGE_BY_ID, (id,))
            if row is not None:
                edge = self._edges[id] = _edge(row)
        return edge

    def out_ids(self, node: str, kind: str) -> list[str]:
        """Return where the edges of a kind lead from a node."""
        return self.dependencies.out_ids(node, kind)

    def in_ids(self, node: str, kind: str) -> list[str]:
        """Return where the edges of a kind come from."""
        return self.dependencies.in_ids(node, kind)

    def node_ids(self) -> list[str]:
        """Return the ids of all nodes, sorted."""
        return [node for (node,) in self._db.all("SELECT id FROM node ORDER BY id")]

    def edges(self, kind: str) -> list[tuple[str, str]]:
        """Return (src, dst) of all edges of a kind."""
        return self.dependencies.edges(kind)

    def node_labels(self) -> list[tuple[str, str, str]]:
        """Return id, label and status of every node, in the order in which they were made."""
        return self._db.all("SELECT id, label, status FROM node ORDER BY no")

    def edge_labels(self) -> list[tuple[str, str, str, str]]:
        """Return source, target, kind and label of every edge, in the order in which they were made."""
        return self._db.all("SELECT src, dst, kind, label FROM edge ORDER BY no")

    def ready(self, done: Sequence[str]) -> list[str]:
        """Return the active nodes not in ``done`` whose prerequisites all are, sorted."""
        return [node for (node,) in self._db.all(_READY, (encode_text(list(done)),))]

    def visited(self) -> list[str]:
        """Return the nodes that a move has ever entered."""
        self.flush()
        return [node for (node,) in self._db.all("SELECT id FROM stat WHERE kind = 'node' AND visits > 0")]

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return how many nodes of each status and edges of each kind there are."""
        nodes = dict(self._db.all("SELECT status, count(*) FROM node GROUP BY status"))
        return nodes, dict(self._db.all("SELECT kind, count(*) FROM edge GROUP BY kind"))

    def stat_summary(self) -> tuple[int, int, float, list[tuple[str, int]]]:
        """Return blocks, soft violations, mean reward and the five most visited edges."""
        self.flush()
        row = self._db.one(
            """SELECT coalesce(sum(blocks) FILTER (WHERE kind = 'edge'), 0),
            coalesce(sum(soft_violations) FILTER (WHERE kind = 'edge'), 0),
            coalesce(avg(ema_reward) FILTER (WHERE successes + failures > 0), 0.0) FROM stat"""
        )
        assert row is not None
        hot = self._db.all(
            "SELECT id, visits FROM stat WHERE kind = 'edge' AND visits > 0 ORDER BY visits DESC, id LIMIT 5"
        )
        return row[0], row[1], row[2], hot

    # ------------------------------------------------------------------ recall

    def recall(
        self, *, id: str | None, kind: str | None, status: str | None, tag: str | None, limit: int,
        as_of: int | None = None, match: str | None = None,
    ) -> Iterator[Node]:  # fmt: skip
        """Yield the nodes that meet every filter: by rank with ``match``, else by id."""
        values: list[SqlValue] = [id, kind, status, tag, as_of, limit]
        if match is not None:
            return map(_node, self._db.all(_RECALL_TEXT, [*values, match]))
        return map(_node, self._db.all(_RECALL[_narrowest(id, kind, tag)], values))

    def numbers(
        self,
        *,
        id: str | None,
        kind: str | None,
        status: str | None,
        tag: str | None,
        as_of: int | None = None,
    ) -> list[int]:
        """Return the numbers of the nodes that meet every filter, as a vector search takes them."""
        sql = _NUMBERS[_narrowest(id, kind, tag)]
        return [no for (no,) in self._db.all(sql, (id, kind, status, tag, as_of))]

    def nodes(self, ids: Iterable[str]) -> list[Node]:
        """Return the nodes with these ids, in their order; one that does not exist is left out."""
        wanted = list(ids)
        found = {row[0]: _node(row) for row in self._db.all(_NODES_BY_ID, (encode_text(wanted),))}
        return [found[name] for name in wanted if name in found]

    def text_lags(self, head: int) -> bool:
        """Say whether the full-text index is behind the log."""
        return self.mark("text") != head

    def refresh_text(self, head: int) -> None:
        """Bring the full-text index up to the head: about 30 us for each changed node.

        The words are split here, so that text is found alike with and without the index.
        """
        seq = self.mark("text")
        if seq < 0:  # after a rollback or a compaction the log does not tell what to change
            self._db.run("DELETE FROM node_text")
            stale = self._db.each(_TEXT_ALL)
        else:
            first = (GRAPH_NO << SHIFT) + seq + 1
            stale = self._db.each(_TEXT_STALE, (first, (GRAPH_NO << SHIFT) + head))
        rows = [(no, index_text(label, payload, tags)) for no, label, payload, tags in stale]
        self._db.many("INSERT OR REPLACE INTO node_text (rowid, text) VALUES (?, ?)", rows)
        self.set_mark("text", head)
