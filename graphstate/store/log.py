"""The append-only log: named streams, one hash chain each.

Appending compares the head and extends the chain; nothing else is known here about what a
fact means. The caller holds the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec import Struct

from graphstate.errors import Conflict, IntegrityBroken
from graphstate.events import GENESIS, Head, Row, first_break, row_hash
from graphstate.store.db import Database, SqlValue
from graphstate.store.schema import SHIFT

__all__ = ("Log", "Walk")

_SEQ = (1 << SHIFT) - 1

#: Rows one statement inserts. More do not make it faster, and SQLite keeps each form prepared.
_AT_ONCE = 32
_INSERT = [
    "INSERT INTO event VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * n) for n in range(_AT_ONCE + 1)
]
_HEAD = "SELECT no & 0xFFFFFFFFFF, hash FROM event WHERE no BETWEEN ? AND ? ORDER BY no DESC LIMIT 1"
_FIRST = "SELECT no & 0xFFFFFFFFFF FROM event WHERE no BETWEEN ? AND ? ORDER BY no LIMIT 1"
_DROP_OTHER_ROWS = (
    "DELETE FROM event WHERE no NOT BETWEEN ? AND ?",
    "DELETE FROM event_abandoned WHERE no NOT BETWEEN ? AND ?",
)
_DROP_OTHER_STREAMS = (
    "DELETE FROM first_result WHERE stream <> ?",
    "DELETE FROM cut WHERE stream <> ?",
    "DELETE FROM stream WHERE no <> ?",
)
_HASH = "SELECT hash FROM event WHERE no = ?"
# CAST, so that text which is not UTF-8 any more can still be read and reported.
_READ = """SELECT no & 0xFFFFFFFFFF, at, CAST(id AS BLOB), type, actor, trust, CAST(cause AS BLOB),
CAST(body AS BLOB), hash FROM event WHERE no BETWEEN ? AND ? ORDER BY no LIMIT ?"""
_RECENT = """SELECT no & 0xFFFFFFFFFF, at, id, type, actor, trust, cause, CAST(body AS BLOB), hash FROM event
WHERE no BETWEEN ?1 AND ?2
AND (?3 IS NULL OR type = (SELECT no FROM term WHERE text = ?3))
AND (?4 IS NULL OR ?4 IN (body ->> '$.id', body ->> '$.from', body ->> '$.to'))
AND (?5 IS NULL OR ?5 IN (body ->> '$.id', body ->> '$.edgeId'))
ORDER BY no DESC LIMIT ?6"""
_PAGE = 500


class Walk(Struct, frozen=True, kw_only=True):
    """How far a chain holds."""

    #: rows read, the bad one included
    rows: int
    #: the last row that holds
    head: Head
    #: the first row that does not, or None
    break_seq: int | None = None
    detail: str | None = None


class Log:
    """The streams of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._streams: dict[str, int] = {}
        self._heads: dict[str, Head] = {}
        self._terms: dict[str | None, int | None] = {None: None}

    def forget(self) -> None:
        """Drop what is remembered of the file: after a rollback, or when somebody else wrote."""
        self._streams.clear()
        self._heads.clear()
        self._terms = {None: None}

    def head(self, stream: str) -> Head:
        """Return the newest (seq, hash) of a stream, (0, 32 zero bytes) if there is none."""
        head = self._heads.get(stream)
        if head is None:
            row = self._db.one(_HEAD, self._range(stream))
            head = Head(*row) if row else Head(0, GENESIS)
            self._heads[stream] = head
        return head

    def first(self, stream: str) -> int:
        """Return the number of the oldest row that a stream still holds, 0 if it holds none."""
        row = self._db.one(_FIRST, self._range(stream))
        return int(row[0]) if row else 0

    def keep_only(self, stream: str) -> None:
        """Drop every other stream with all that belongs to it."""
        no, (first, last) = self.number(stream), self._range(stream)
        for statement in _DROP_OTHER_ROWS:
            self._db.run(statement, (first, last))
        for statement in _DROP_OTHER_STREAMS:
            self._db.run(statement, (no,))
        self.forget()

    def number(self, stream: str, *, create: bool = False) -> int:
        """Return the number rows of a stream carry; 0 if there is no such stream yet."""
        no = self._streams.get(stream)
        if no is None:
            row = self._db.one("SELECT no FROM stream WHERE name = ?", (stream,))
            if row is None and create:
                row = self._db.one(
                    "INSERT INTO stream (name, verified_seq, verified_hash) VALUES (?, 0, ?) RETURNING no",
                    (stream, GENESIS),
                )
            if row is None:
                return 0
            no = self._streams[stream] = int(row[0])
        return no

    def _range(self, stream: str, after: int = 0) -> tuple[int, int]:
        """Return the first and the last key of the rows after a seq."""
        base = self.number(stream) << SHIFT
        return base + after + 1, base + _SEQ

    def streams(self, prefix: str) -> list[str]:
        """Return the names of the streams that begin with a prefix, sorted."""
        rows = self._db.all(
            "SELECT name FROM stream WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name", (prefix,)
        )
        return [name for (name,) in rows]

    def _term(self, text: str | None) -> int:
        row = self._db.one("SELECT no FROM term WHERE text = ?", (text,)) or self._db.one(
            "INSERT INTO term (text) VALUES (?) RETURNING no", (text,)
        )
        assert row is not None
        no = self._terms[text] = int(row[0])
        return no

    def append(self, stream: str, rows: Sequence[Row], *, expected: int | None) -> Head:
        """Add rows whose hashes their maker computed, after checking each of them.

        Raises:
            Conflict: The stream is not at ``expected``.
            IntegrityBroken: A row does not continue the chain.
        """
        head = self.head(stream)
        if expected is not None and expected != head.seq:
            raise Conflict(stream, expected, head.seq)
        bad = first_break(stream, head, rows)
        if bad is not None:
            raise IntegrityBroken(
                f"row {bad.seq} does not continue stream {stream!r}, which is at {head}: "
                "its number or its hash is not the next one"
            )
        return self.extend(stream, rows)

    def extend(self, stream: str, rows: Sequence[Row]) -> Head:
        """Add rows that are known to continue the chain."""
        if not rows:
            return self.head(stream)
        base, terms, term = self.number(stream, create=True) << SHIFT, self._terms, self._term
        values: list[tuple[SqlValue, ...]] = [
            (
                base + seq, at, row_id, terms[kind] if kind in terms else term(kind),
                terms[actor] if actor in terms else term(actor),
                terms[trust] if trust in terms else term(trust), cause, body.decode(), digest,
            )
            for seq, at, row_id, kind, actor, trust, cause, body, digest in rows
        ]  # fmt: skip
        for start in range(0, len(values), _AT_ONCE):
            group = values[start : start + _AT_ONCE]
            self._db.run(_INSERT[len(group)], [*chain.from_iterable(group)])
        head = self._heads[stream] = Head(rows[-1].seq, rows[-1].hash)
        return head

    def read(self, stream: str, *, after: int = 0, upto: int | None = None) -> Iterator[Row]:
        """Yield the rows of a stream after a number, page by page.

        Raises:
            IntegrityBroken: A row cannot be read at all.
        """
        names = self._names()
        while page := self._db.all(_READ, (*self._range(stream, after), _PAGE)):
            for seq, at, row_id, kind, actor, trust, cause, body, digest in page:
                if upto is not None and seq > upto:
                    return
                try:
                    yield Row(
                        seq, at, row_id and row_id.decode(), names[kind], actor and names[actor],
                        trust and names[trust], cause and cause.decode(), body, digest,
                    )  # fmt: skip
                except (KeyError, UnicodeDecodeError) as error:
                    raise IntegrityBroken(f"row {seq} of stream {stream!r} cannot be read: {error}") from None
                after = seq

    def _names(self) -> dict[int, str]:
        return dict(self._db.all("SELECT no, text FROM term"))

    def walk(self, stream: str, after: Head) -> Walk:
        """Follow the chain from a row that is known to hold. Constant memory, 2 us a row."""
        seq, previous, rows = after.seq, after.hash, 0
        if seq and self.hash_at(stream, seq) != previous:
            return Walk(rows=1, head=Head(0, GENESIS), break_seq=seq, detail=f"hash of seq {seq} changed")
        try:
            for row in self.read(stream, after=seq):
                rows += 1
                expected = seq + 1
                if row.seq != expected:
                    detail = f"seq gap: expected {expected}, got {row.seq}"
                    return Walk(rows=rows, head=Head(seq, previous), break_seq=row.seq, detail=detail)
                if row_hash(previous, stream, *row[:8]) != row.hash:
                    detail = f"hash mismatch: seq {row.seq} does not match its row or the row before"
                    return Walk(rows=rows, head=Head(seq, previous), break_seq=row.seq, detail=detail)
                seq, previous = row.seq, row.hash
        except IntegrityBroken as error:
            return Walk(rows=rows + 1, head=Head(seq, previous), break_seq=seq + 1, detail=str(error))
        return Walk(rows=rows, head=Head(seq, previous))

    def hash_at(self, stream: str, seq: int) -> bytes | None:
        """Return the hash of one row, None if there is no such row."""
        row = self._db.one(_HASH, ((self.number(stream) << SHIFT) + seq,))
        return row[0] if row else (GENESIS if seq == 0 else None)

    def verified(self, stream: str) -> Head:
        """Return up to where a stream was verified before."""
        row = self._db.one("SELECT verified_seq, verified_hash FROM stream WHERE name = ?", (stream,))
        return Head(*row) if row else Head(0, GENESIS)

    def set_verified(self, stream: str, head: Head) -> None:
        """Remember up to where a stream was verified."""
        self._db.run(
            "UPDATE stream SET verified_seq = ?, verified_hash = ? WHERE name = ?",
            (head.seq, head.hash, stream),
        )

    def abandon(
        self, stream: str, to: Head, *, at: int, actor: str | None, trust: str | None, reason: str
    ) -> int:
        """Move the rows after ``to`` aside, with who and why, and return the number of the cut."""
        no, old = self.number(stream), self.head(stream)
        row = self._db.one(
            """INSERT INTO cut (stream, at, actor, trust, reason, from_seq, from_hash, to_seq, to_hash)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING no""",
            (no, at, actor, trust, reason, old.seq, old.hash, to.seq, to.hash),
        )
        assert row is not None
        keys = self._range(stream, to.seq)
        self._db.run(
            "INSERT INTO event_abandoned SELECT ?, * FROM event WHERE no BETWEEN ? AND ?", (row[0], *keys)
        )
        self._db.run("DELETE FROM event WHERE no BETWEEN ? AND ?", keys)
        self._db.run("DELETE FROM first_result WHERE stream = ? AND seq > ?", (no, to.seq))
        self._db.run(
            "UPDATE stream SET verified_seq = ?, verified_hash = ? WHERE no = ? AND verified_seq > ?",
            (to.seq, to.hash, no, to.seq),
        )
        self._heads[stream] = to
        return int(row[0])

    # ------------------------------------------------------------------ causes

    def first_result(self, stream: str, cause: str) -> tuple[str, str] | None:
        """Return (verb, result text) of the first call with a cause, None if there was none."""
        row = self._db.one(
            "SELECT verb, result FROM first_result WHERE stream = ? AND cause = ?",
            (self.number(stream), cause),
        )
        return (row[0], row[1]) if row else None

    def set_first_result(self, stream: str, cause: str, verb: str, result: str) -> None:
        """Keep what a call with a cause answered."""
        self._db.run(
            "INSERT INTO first_result VALUES (?, ?, ?, ?, ?)",
            (self.number(stream), cause, verb, self.head(stream).seq, result),
        )

    def recent(
        self, stream: str, *, from_seq: int, limit: int, type: str | None, node: str | None, edge: str | None
    ) -> list[Row]:
        """Return the newest rows that match, oldest first.

        Without a filter the cost is the limit. A filter reads back from the end until enough
        rows match, so a rare one reads the whole stream (about 1 us a row, inside SQLite).
        """
        names = self._names()
        rows = self._db.all(_RECENT, (*self._range(stream, from_seq - 1), type, node, edge, limit))
        return [
            Row(
                seq,
                at,
                row_id,
                names[kind],
                actor and names[actor],
                trust and names[trust],
                cause,
                body,
                digest,
            )
            for seq, at, row_id, kind, actor, trust, cause, body, digest in reversed(rows)
        ]
