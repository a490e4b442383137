"""The append-only log: named streams, one hash chain each.

Appending compares the head and extends the chain; nothing else is known here about what a
fact means. A stream begins with event 1, or after the last row that was pruned. With a key
the chain of the stream ``graph`` is keyed; the makers of other streams hash them without.
The caller holds the transaction.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from msgspec import Struct

from graphstate.errors import Conflict, IntegrityBroken
from graphstate.events import GENESIS, GRAPH, ChainKey, Head, Row, first_break, follow, row_hash
from graphstate.store.db import Database, SqlValue
from graphstate.store.schema import SHIFT

__all__ = ("TORN", "Cut", "Log", "Walk")

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
_START = "SELECT start_seq, start_hash FROM stream WHERE name = ?"
_SET_ASIDE = """SELECT CAST(a.body AS BLOB) FROM cut c JOIN event_abandoned a ON a.cut = c.no AND a.no = ?
WHERE a.type = (SELECT no FROM term WHERE text = ?)"""
_OF_TYPE = """SELECT no & 0xFFFFFFFFFF, CAST(body AS BLOB) FROM event
WHERE no BETWEEN ? AND ? AND type = (SELECT no FROM term WHERE text = ?) ORDER BY no"""
# CAST, so that text which is not UTF-8 any more can still be read and reported.
_COLUMNS = """no & 0xFFFFFFFFFF, at, CAST(id AS BLOB), type, actor, trust, CAST(cause AS BLOB),
CAST(body AS BLOB), hash"""
_READ = f"SELECT {_COLUMNS} FROM event WHERE no BETWEEN ? AND ? ORDER BY no LIMIT ?"
_ASIDE = f"SELECT {_COLUMNS} FROM event_abandoned WHERE cut = ? ORDER BY no"
_RECENT = """SELECT no & 0xFFFFFFFFFF, at, id, type, actor, trust, cause, CAST(body AS BLOB), hash FROM event
WHERE no BETWEEN ?1 AND ?2
AND (?3 IS NULL OR type = (SELECT no FROM term WHERE text = ?3))
AND (?4 IS NULL OR ?4 IN (body ->> '$.id', body ->> '$.from', body ->> '$.to', body ->> '$.new', body ->> '$.old'))
AND (?5 IS NULL OR ?5 IN (body ->> '$.id', body ->> '$.edgeId'))
AND (?6 IS NULL OR actor = (SELECT no FROM term WHERE text = ?6))
ORDER BY no DESC LIMIT ?7"""
_CUTS = """SELECT c.no, s.name, c.at, c.actor, c.trust, c.reason, c.from_seq, c.from_hash, c.to_seq,
c.to_hash, (SELECT count(*) FROM event_abandoned WHERE cut = c.no)
FROM cut c JOIN stream s ON s.no = c.stream ORDER BY c.no"""
_PAGE = 500
_FEW = 64


#: Why recovery sets rows aside.
TORN = "torn tail"


class Cut(NamedTuple):
    """Where a stream was cut back, by whom and why."""

    no: int
    stream: str
    at: int
    actor: str | None
    trust: str | None
    reason: str
    #: the end that was left, and the one that was returned to
    old: Head
    to: Head
    #: rows set aside that are still there
    kept: int

    @property
    def by_recovery(self) -> bool:
        """Say whether the rows never continued the chain."""
        return self.actor is None and self.reason == TORN


class Walk(Struct, frozen=True, kw_only=True):
    """How far a chain holds."""

    #: rows read, the bad one included
    rows: int
    #: the last row that holds
    head: Head
    #: the first row that does not, or None
    break_seq: int | None = None
    detail: str | None = None


def _rows(stream: str, page: Iterable[Sequence[Any]], names: Mapping[int, str]) -> list[Row]:
    seq, rows, new = 0, list[Row](), tuple.__new__  # half the time of a call of `Row`
    try:
        for seq, at, row_id, kind, actor, trust, cause, body, digest in page:
            rows.append(new(Row, (
                seq, at, row_id and row_id.decode(), names[kind], actor and names[actor],
                trust and names[trust], cause and cause.decode(), body, digest,
            )))  # fmt: skip
    except (KeyError, UnicodeDecodeError) as error:
        raise IntegrityBroken(f"row {seq} of stream {stream!r} cannot be read: {error}") from None
    return rows


def _row(stream: str, values: Sequence[Any], names: Mapping[int, str]) -> Row:
    return _rows(stream, (values,), names)[0]


class Log:
    """The streams of one database."""

    def __init__(self, db: Database, key: ChainKey | None = None) -> None:
        self._db, self._key = db, key
        self._streams: dict[str, int] = {}
        self._heads: dict[str, Head] = {}
        self._terms: dict[str | None, int | None] = {None: None}

    def forget(self) -> None:
        """Drop what is remembered of the file: after a rollback, or when somebody else wrote."""
        self._streams.clear()
        self._heads.clear()
        self._terms = {None: None}

    def head(self, stream: str) -> Head:
        """Return the newest (seq, hash) of a stream; its start if it is empty."""
        head = self._heads.get(stream)
        if head is None:
            row = self._db.one(_HEAD, self._range(stream))
            head = Head(*row) if row else self.start(stream)
            self._heads[stream] = head
        return head

    def start(self, stream: str) -> Head:
        """Return the last row that was pruned, (0, 32 zero bytes) if none ever was."""
        row = self._db.one(_START, (stream,))
        return Head(*row) if row else Head(0, GENESIS)

    def start_record(self, stream: str) -> int:
        """Return the number of the row that says where the stream starts, 0 if none does."""
        row = self._db.one("SELECT start_record FROM stream WHERE name = ?", (stream,))
        return int(row[0]) if row else 0

    def set_start(self, stream: str, start: Head, *, record: int) -> None:
        """Let a stream begin after a row that is gone; ``record`` says so in the stream itself."""
        self._db.run(
            "UPDATE stream SET start_seq = ?, start_hash = ?, start_record = ? WHERE name = ?",
            (start.seq, start.hash, record, stream),
        )
        self._heads.pop(stream, None)

    def prune(self, stream: str, last: Head) -> int:
        """Remove the rows up to ``last`` for good and return how many there were.

        The caller sets the new start in the same transaction.
        """
        base = self.number(stream) << SHIFT
        keys = base, base + last.seq
        (count,) = self._db.one("SELECT count(*) FROM event WHERE no BETWEEN ? AND ?", keys) or (0,)
        self._db.run("DELETE FROM event WHERE no BETWEEN ? AND ?", keys)
        return int(count)

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
                    "INSERT INTO stream VALUES (NULL, ?1, 0, ?2, 0, ?2, 0) RETURNING no", (stream, GENESIS)
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
        if len(values) == 1:
            self._db.run(_INSERT[1], values[0])
        else:
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
        for page in self._pages(stream, after, upto):
            for values in page:
                yield _row(stream, values, names)

    def read_few(self, stream: str, *, after: int, upto: int) -> Iterator[list[Row]]:
        """Yield the same rows, a few at a time: what is made of them stays in the processor's cache.

        Raises:
            IntegrityBroken: One of the few cannot be read at all.
        """
        names = self._names()
        for page in self._pages(stream, after, upto, _FEW):
            yield _rows(stream, page, names)

    def _pages(
        self, stream: str, after: int, upto: int | None = None, size: int = _PAGE
    ) -> Iterator[list[tuple[Any, ...]]]:
        base = self.number(stream) << SHIFT
        last = base + (_SEQ if upto is None else min(upto, _SEQ))
        while page := self._db.all(_READ, (base + after + 1, last, size)):
            yield page
            after = page[-1][0]

    def row(self, stream: str, seq: int) -> Row | None:
        """Return one row, None if there is no such row."""
        return next(self.read(stream, after=seq - 1, upto=seq), None) if seq > 0 else None

    def of_type(self, stream: str, type: str) -> list[tuple[int, bytes]]:
        """Return (seq, body) of the rows of one type; reads the whole stream inside SQLite."""
        return self._db.all(_OF_TYPE, (*self._range(stream), type))

    def set_aside(self, stream: str, seq: int, type: str) -> list[bytes]:
        """Return the bodies of the rows of one type that had a number until they were set aside."""
        return [body for (body,) in self._db.all(_SET_ASIDE, ((self.number(stream) << SHIFT) + seq, type))]

    def _names(self) -> dict[int, str]:
        return dict(self._db.all("SELECT no, text FROM term"))

    def walk(self, stream: str, after: Head) -> Walk:
        """Follow the chain from a row that is known to hold. Constant memory, 2 us a row."""
        if after.seq and self.hash_at(stream, after.seq) != after.hash:
            detail = f"hash of seq {after.seq} changed"
            return Walk(rows=1, head=Head(0, GENESIS), break_seq=after.seq, detail=detail)
        names, key, head = self._names(), self._key_of(stream), after
        for page in self._pages(stream, after.seq):
            head, problem = follow(stream, head, page, names, key)
            if problem is not None:
                seq, detail = problem
                return Walk(rows=head.seq - after.seq + 1, head=head, break_seq=seq, detail=detail)
        return Walk(rows=head.seq - after.seq, head=head)

    def hash_at(self, stream: str, seq: int) -> bytes | None:
        """Return the hash of one row, None if there is no such row."""
        row = self._db.one(_HASH, ((self.number(stream) << SHIFT) + seq,))
        if row:
            digest: bytes = row[0]
            return digest
        start = self.start(stream)
        return start.hash if seq == start.seq else GENESIS if seq == 0 else None

    def row_holds(self, stream: str, seq: int) -> bool:
        """Say whether one row continues the one before it."""
        row, previous = self.row(stream, seq), self.hash_at(stream, seq - 1)
        key = self._key_of(stream)
        return row is not None and previous is not None and (
            row_hash(previous, stream, *row[:8], key=key) == row.hash
        )  # fmt: skip

    def verified(self, stream: str) -> Head:
        """Return up to where a stream was verified before; its start if that is not known.

        In a keyed chain a mark that was not made with the key counts for nothing.
        """
        start = self.start(stream)
        row = self._db.one("SELECT verified_seq, verified_hash FROM stream WHERE name = ?", (stream,))
        if row is None or row[0] <= start.seq:
            return start
        digest = self.hash_at(stream, row[0])
        if self._key_of(stream) is None:
            return Head(*row)
        if digest is None or self._mark(stream, Head(row[0], digest)) != row[1]:
            return start
        return Head(row[0], digest)

    def set_verified(self, stream: str, head: Head) -> None:
        """Remember up to where a stream was verified."""
        self._db.run(
            "UPDATE stream SET verified_seq = ?, verified_hash = ? WHERE name = ?",
            (head.seq, self._mark(stream, head), stream),
        )

    def _mark(self, stream: str, head: Head) -> bytes:
        key = self._key_of(stream)
        return head.hash if key is None else hmac.digest(key, f"verified {head}".encode(), "sha256")

    def _key_of(self, stream: str) -> ChainKey | None:
        return self._key if stream == GRAPH else None

    def abandon(
        self, stream: str, to: Head, *, at: int, actor: str | None, trust: str | None, reason: str
    ) -> int:
        """Move the rows after ``to`` aside, with who and why, and return the number of the cut."""
        no, old, verified = self.number(stream), self.head(stream), self.verified(stream)
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
        if verified.seq > to.seq:
            self.set_verified(stream, to)
        self._heads[stream] = to
        return int(row[0])

    def cuts_after(self, stream: str, after: int) -> tuple[int, int | None]:
        """Return the number of the newest cut, and the earliest event the cuts after one led back to."""
        row = self._db.one(
            "SELECT coalesce(max(no), ?2), min(to_seq) FROM cut WHERE stream = ?1 AND no > ?2",
            (self.number(stream), after),
        )
        assert row is not None
        return row[0], row[1]

    def cuts(self) -> list[Cut]:
        """Return the cuts, oldest first."""
        return [
            Cut(no, stream, at, actor, trust, reason, Head(*ends[:2]), Head(*ends[2:]), kept)
            for no, stream, at, actor, trust, reason, *ends, kept in self._db.all(_CUTS)
        ]

    def walk_aside(self, cut: int, stream: str, to: Head) -> Walk:
        """Follow the chain of the rows that a cut set aside, from the row it returned to.

        A cut that returned to a pruned row has a gap there; its first row is taken as it is.
        """
        names, key, head, rows = self._names(), self._key_of(stream), to, 0
        for values in self._db.each(_ASIDE, (cut,)):
            if not rows and values[0] > to.seq + 1:
                head = Head(values[0], values[-1])
            else:
                head, problem = follow(stream, head, [values], names, key)
                if problem is not None:
                    detail = f"event {problem[0]}, set aside by cut {cut}, does not continue its chain"
                    return Walk(rows=rows + 1, head=head, break_seq=problem[0], detail=detail)
            rows += 1
        return Walk(rows=rows, head=head)

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
        self,
        stream: str,
        *,
        from_seq: int,
        limit: int,
        type: str | None = None,
        node: str | None = None,
        edge: str | None = None,
        actor: str | None = None,
    ) -> list[Row]:
        """Return the newest rows that match, oldest first.

        Without a filter the cost is the limit. A filter reads back from the end until enough
        rows match, so a rare one reads the whole stream (about 1 us a row, inside SQLite).
        """
        names = self._names()
        rows = self._db.all(_RECENT, (*self._range(stream, from_seq - 1), type, node, edge, actor, limit))
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
