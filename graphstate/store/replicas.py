"""Which reinforcements a replica has: those that were made here, and those that came from others.

Nothing is kept until replication begins, by an event. From then on the id of every event that adds
something to a memory is, so that none is added twice, however often and in whatever order it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from graphstate._canonical import Json, encode_text
from graphstate.events import Row
from graphstate.store.db import Database
from graphstate.store.stored import as_stored, stored_json

__all__ = ("BEGAN", "DELTAS", "Replicas")

#: Where replication began, in the table `state`.
BEGAN = "origin/deltas"

#: Types of events that add something to a memory; their order does not matter.
DELTAS = ("memory.reinforced", "memory.suppressed")

_NOTE = "INSERT OR IGNORE INTO delta VALUES (?, ?)"
_KNOWN = "SELECT id FROM delta WHERE id IN (SELECT value FROM json_each(?))"
_STATE = "SELECT value FROM state WHERE key = ?"
_BEGIN = "INSERT OR IGNORE INTO state VALUES (?, ?)"


class Replicas:
    """What one database knows of the replicas of its graph."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.folds: Mapping[str, Callable[[Row, dict[str, Json]], None]] = {
            "memory.replication_began": self._began
        }
        self.forget()

    def forget(self) -> None:
        """Drop what is remembered of the tables."""
        self._since: int | None = None
        self._read = False

    def since(self) -> int | None:
        """Return the event with which replication began, None if it has not."""
        if not self._read:
            row = self._db.one(_STATE, (BEGAN,))
            with as_stored("where replication began"):
                self._since = None if row is None else int(stored_json(row[0])["seq"])
            self._read = True
        return self._since

    def known(self, ids: Collection[str]) -> set[str]:
        """Return those of the events that have been added here."""
        return {name for (name,) in self._db.all(_KNOWN, (encode_text(list(ids)),))}

    def noting(self, fold: Callable[[Row, dict[str, Json]], None]) -> Callable[[Row, dict[str, Json]], None]:
        """Return a fold that also keeps the id of what it folds."""

        def folded(row: Row, body: dict[str, Json]) -> None:
            fold(row, body)
            if self.since() is not None and row.id is not None:
                self._db.run(_NOTE, (row.id, row.at))

        return folded

    def _began(self, row: Row, body: dict[str, Json]) -> None:
        self._db.run(_BEGIN, (BEGAN, encode_text({"seq": row.seq, "hash": row.hash.hex()})))
        self.forget()
