"""Snapshots: the live state at one event, compressed, with a digest that the log carries.

A snapshot serves rollback and rebuilding, never opening. The bytes are made and read by
SQLite's own JSON functions, so their cost is about 1 us for each live row. The same bytes
give the digest that compares two projections.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from graphstate.events import Head
from graphstate.store.db import Database
from graphstate.store.tables import DUMP, LOAD

__all__ = ("LOAD_ROW", "Pin", "Snapshots", "Taken", "state_bytes")

#: Automatic snapshots that are kept beside those that checkpoints name.
KEPT = 2

_DUMP = """SELECT '{"node":' || (SELECT json_group_array(json_array(no, id, kind, label, payload, tags, status, version,
    created_seq, updated_seq, created_at, updated_at, trust)) FROM (SELECT * FROM node ORDER BY no))
|| ',"edge":' || (SELECT json_group_array(json_array(no, id, src, dst, kind, label, guard, enforcement, weight,
    learned_weight, version, created_seq, updated_seq, learned_enforcement)) FROM (SELECT * FROM edge ORDER BY no))
|| ',"experience":' || (SELECT json_group_array(json_array(no, visits, successes, failures, soft_violations,
    blocks, ema_reward, last_seq, rewarded_by, rewarded_move)) FROM (SELECT * FROM experience ORDER BY no))
|| ',"state":' || (SELECT json_group_array(json_array(key, value)) FROM (SELECT * FROM state
    WHERE key GLOB 'cursor/*' OR key GLOB 'trail/*' OR key GLOB 'origin/*' OR key IN ('embedder', 'rewards') ORDER BY key))
|| ',"zone":' || (SELECT json_group_array(json_array(no, name, intra, boundary, learned_intra, learned_boundary,
    version, created_seq, updated_seq)) FROM (SELECT * FROM zone ORDER BY no))
|| ',"zone_member":' || (SELECT json_group_array(json_array(zone, node)) FROM (SELECT * FROM zone_member
    ORDER BY zone, node))
|| ',"rule":' || (SELECT json_group_array(json_array(scope, id, violations, clean)) FROM (SELECT * FROM rule
    ORDER BY scope, id))
|| ',"policy_lock":' || (SELECT json_group_array(json_array(scope, id, reason, actor, at, seq)) FROM (
    SELECT * FROM policy_lock ORDER BY scope, id))
|| ',"tunable":' || (SELECT json_group_array(json_array(key, value)) FROM (SELECT * FROM tunable ORDER BY key))"""
_DUMP += "".join(f" || ',\"{name}\":' || {rows}" for name, rows in DUMP.items()) + " || '}'"

_LOAD = (
    """INSERT INTO node SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
    value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12
    FROM json_each(?, '$.node')""",
    "INSERT INTO node_tag SELECT DISTINCT t.value, n.no FROM node n, json_each(n.tags) t WHERE ? IS NOT NULL",
    """INSERT INTO edge SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
    value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13
    FROM json_each(?, '$.edge')""",
    """INSERT INTO experience SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4,
    value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9 FROM json_each(?, '$.experience')""",
    "INSERT INTO state SELECT value ->> 0, value ->> 1 FROM json_each(?, '$.state')",
    """INSERT INTO zone SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
    value ->> 6, value ->> 7, value ->> 8 FROM json_each(?, '$.zone')""",
    "INSERT INTO zone_member SELECT value ->> 0, value ->> 1 FROM json_each(?, '$.zone_member')",
    "INSERT INTO rule SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?, '$.rule')",
    """INSERT INTO policy_lock SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4,
    value ->> 5 FROM json_each(?, '$.policy_lock')""",
    "INSERT INTO tunable SELECT value ->> 0, value ->> 1 FROM json_each(?, '$.tunable')",
    *LOAD,
)

#: How one row of each table of a state is loaded, from ``{"node":[row]}``.
LOAD_ROW: Mapping[str, str] = {
    table: sql for sql in _LOAD if (table := sql.split(maxsplit=3)[2]) != "node_tag"
}

# A whole state is parsed once for all tables, and its rows are handed on without writing them as text.
_PARSED = "SELECT jsonb(?)"
_LOAD_PARSED = [sql.replace("FROM json_each(?", "FROM jsonb_each(?") for sql in _LOAD]

_TABLES = "SELECT key FROM json_each(?)"
_ROWS = "SELECT value FROM json_each(?, '$.' || ?)"

_PRUNE = """DELETE FROM snapshot WHERE id NOT IN (SELECT snapshot FROM checkpoint)
AND id NOT IN (SELECT id FROM snapshot ORDER BY seq DESC, id DESC LIMIT ?)"""


_DROP_BEFORE = "DELETE FROM snapshot WHERE seq < ? AND id NOT IN (SELECT snapshot FROM checkpoint)"


class Taken(NamedTuple):
    """A snapshot that exists."""

    id: str
    head: Head
    digest: bytes


class Pin(NamedTuple):
    """Where a checkpoint stands, and the snapshot of that moment."""

    head: Head
    snapshot: str


def state_bytes(db: Database) -> bytes:
    """Return the live state as JSON bytes; equal states give equal bytes."""
    row = db.one(_DUMP)
    assert row is not None
    return str(row[0]).encode()


class Snapshots:
    """The snapshots and checkpoints of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def take(self, id: str, head: Head, at: int) -> Taken:
        """Keep the live state, which is that of ``head``."""
        state = state_bytes(self._db)
        digest = hashlib.sha256(state).digest()
        self._db.run(
            "INSERT INTO snapshot VALUES (?, ?, ?, ?, ?, ?)",
            (id, head.seq, head.hash, at, digest, zlib.compress(state, 1)),
        )
        self._db.run(_PRUNE, (KEPT,))
        return Taken(id, head, digest)

    def before(self, seq: int) -> list[Taken]:
        """Return the snapshots at or before an event, newest first."""
        rows = self._db.all(
            "SELECT id, seq, hash, digest FROM snapshot WHERE seq <= ? ORDER BY seq DESC, id DESC", (seq,)
        )
        return [Taken(name, Head(*head), digest) for name, *head, digest in rows]

    def read(self, id: str) -> str | None:
        """Return a snapshot's state, None if its bytes do not have their digest any more."""
        row = self._db.one("SELECT digest, data FROM snapshot WHERE id = ?", (id,))
        if row is None:
            return None
        try:
            state = zlib.decompress(row[1])
        except zlib.error:
            return None
        return state.decode() if hashlib.sha256(state).digest() == row[0] else None

    def tables(self, state: str) -> tuple[str, ...]:
        """Return the names of the tables in a state, in its order."""
        return tuple(name for (name,) in self._db.all(_TABLES, (state,)))

    def rows(self, state: str, table: str) -> Iterator[str]:
        """Yield the rows of one table of a state, each as its JSON text."""
        for (row,) in self._db.each(_ROWS, (state, table)):
            yield row

    def load(self, state: str) -> None:
        """Fill the empty projection tables with a snapshot's state."""
        parsed = self._db.one(_PARSED, (state,))
        assert parsed is not None
        for statement in _LOAD_PARSED:
            self._db.run(statement, parsed)

    def drop(self, ids: Sequence[str]) -> None:
        """Remove snapshots; checkpoints on them are reached by a longer replay."""
        self._db.many("DELETE FROM snapshot WHERE id = ?", [(name,) for name in ids])

    def drop_before(self, seq: int) -> None:
        """Remove the snapshots of events that were pruned, but for those of checkpoints."""
        self._db.run(_DROP_BEFORE, (seq,))

    def mark(self, name: str, head: Head, snapshot: str, at: int) -> None:
        """Put a checkpoint on an event; a name that exists moves."""
        self._db.run("INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?, ?)", (name, *head, snapshot, at))

    def unmark(self, name: str) -> None:
        """Remove a checkpoint."""
        self._db.run("DELETE FROM checkpoint WHERE name = ?", (name,))

    def checkpoints(self) -> dict[str, Pin]:
        """Return all checkpoints by name, in the order of the log."""
        rows = self._db.all("SELECT name, seq, hash, snapshot FROM checkpoint ORDER BY seq, name")
        return {name: Pin(Head(*head), snapshot) for name, *head, snapshot in rows}

    def drop_after(self, seq: int) -> None:
        """Remove what belongs to events that were set aside."""
        self._db.run("DELETE FROM checkpoint WHERE seq > ?", (seq,))
        self._db.run("DELETE FROM snapshot WHERE seq > ?", (seq,))
