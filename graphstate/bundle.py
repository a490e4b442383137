"""The bundle: a graph's log as lines of JSON that can be checked before anything is believed.

    {"format":"graphstate.bundle","version":2,...}   header: where the log ends, what follows
    {"row":[...],"table":"node"}                     the state before the first event, if the log
                                                     does not reach back to its beginning
    {"actor":...,"seq":1,"type":"NodeUpserted",...}  one line for each event
    {"count":...,"digest":...,"end":"7:..."}         trailer: SHA-256 of everything before it

The lines of a state depend on nothing but the state. Nothing here reads or writes a store. A
reader keeps one line in memory and trusts none of them: order, bounds, keys, the hash chain,
header and trailer must agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, BinaryIO, NamedTuple, NoReturn

from graphstate._canonical import MAX_DEPTH, Json, NotJson, decode, encode, encode_text
from graphstate.errors import ErrorCode, VerbFailed, shown
from graphstate.events import GENESIS, GRAPH, Head, Row, row_hash

__all__ = (
    "MAX_EVENTS",
    "MAX_LINE",
    "MAX_TOTAL",
    "VERSION",
    "Base",
    "Bundle",
    "BundleWriter",
    "Fact",
    "Header",
    "parsed_head",
    "records",
    "refuse_bundle",
)

VERSION = 2
FORMAT = "graphstate.bundle"

#: UTF-8 bytes of a line: an event's body may have 1 MiB, the rest of its line at most 4 KiB.
MAX_LINE = 1_048_576 + 4_096
#: A row of the base holds JSON as text, so that quotes and backslashes count twice.
MAX_BASE_LINE = 2 * MAX_LINE
MAX_EVENTS = 1_000_000
MAX_TOTAL = 1_073_741_824
#: UTF-8 bytes of a bundle of version 1, which is one JSON document and read whole.
MAX_DOCUMENT = 64 * 1024 * 1024

_MAX_INT = 2**53
_NOWHERE = Head(0, GENESIS)
_ROW = b'{"row":'
_HEADER_KEYS = {"at", "events", "format", "from", "head", "rows", "tables", "version"}
_EVENT_KEYS = {"actor", "at", "cause", "hash", "id", "payload", "seq", "trust", "type"}
_TRAILER_KEYS = {"count", "digest", "end"}
_OLD_KEYS = {"schema_version", "events"}


class Base(NamedTuple):
    """The state before the first event that a log still holds."""

    head: Head
    #: as a snapshot keeps it: an object of tables, each an array of rows
    state: str
    #: hexadecimal SHA-256 of the state
    digest: str
    #: the tables of the state in its order
    tables: tuple[str, ...]


class Header(NamedTuple):
    """What the first line says."""

    version: int
    #: where the source's log ended
    head: Head
    #: the last event before those that follow: (0, GENESIS), or that of the base
    origin: Head
    #: milliseconds since the epoch, of the last event; None if the bundle does not tell
    at: int | None
    events: int
    rows: int
    tables: tuple[str, ...]


class Fact(NamedTuple):
    """An event from elsewhere: its columns there, and its body."""

    row: Row
    body: dict[str, Json]


def refuse_bundle(message: str, *, line: int | None = None, **details: Any) -> NoReturn:
    """Fail with InvalidBundle, naming the line."""
    place = {} if line is None else {"line": line}
    where = "" if line is None else f"line {line} of the bundle: "
    raise VerbFailed(ErrorCode.INVALID_BUNDLE, f"{where}{message}", place | details)


# ---------------------------------------------------------------------------------- writing


class BundleWriter:
    """Lines to a binary file, counted and hashed on their way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sum = file, sha256()
        self.bytes = 0

    def header(self, header: Header) -> None:
        """Write the first line."""
        self._line(
            {
                "at": header.at, "events": header.events, "format": FORMAT, "from": str(header.origin),
                "head": str(header.head), "rows": header.rows, "tables": list(header.tables),
                "version": VERSION,
            }
        )  # fmt: skip

    def base_row(self, table: str, row: str) -> None:
        """Write one row of the base, in the very characters it has there."""
        self._put(b'{"row":%b,"table":%b}\n' % (row.encode(), encode(table)), MAX_BASE_LINE)

    def event(self, row: Row) -> None:
        """Write one event; its body goes out as it is stored."""
        before = encode_text(
            {"actor": row.actor, "at": row.at, "cause": row.cause, "hash": row.hash.hex(), "id": row.id}
        )
        after = encode_text({"seq": row.seq, "trust": row.trust, "type": row.type})
        self._put(b'%b,"payload":%b,%b\n' % (before[:-1].encode(), row.body, after[1:].encode()))

    def trailer(self, head: Head, count: int) -> str:
        """Write the last line and return the digest in it."""
        digest = self._sum.hexdigest()
        self._line({"count": count, "digest": digest, "end": str(head)})
        return digest

    def _line(self, value: Json) -> None:
        self._put(encode(value) + b"\n")

    def _put(self, line: bytes, most: int = MAX_LINE) -> None:
        if len(line) > most:
            refuse_bundle(f"a line would have {len(line)} bytes, more than the {most} allowed")
        self._sum.update(line)
        self.bytes += len(line)
        if self.bytes > MAX_TOTAL:
            refuse_bundle(f"the bundle would have more than the {MAX_TOTAL} bytes allowed")
        self._file.write(line)


# ---------------------------------------------------------------------------------- reading


class Bundle:
    """A bundle while it is read: `header` first, then `base_rows`, then `facts`, each once.

    Every method, and making one, fails with InvalidBundle for what is not a bundle.

    Attributes:
        header: The first line.
        digest: SHA-256 of everything before the trailer, once `facts` is exhausted; of version
            1 of the whole document.
        number: The line that was read last, from 1; of version 1 the event.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sum = file, sha256()
        self._bytes = self.number = 0
        self.digest = self._proof = ""
        self._proved = False
        self._old: list[Json] = []
        first = self._read(MAX_LINE + 1)
        self._sum.update(first)
        value = _value(first)
        if isinstance(value, dict) and "format" in value:
            if not first.endswith(b"\n"):
                self._refuse("the bundle ends here, before its trailer")
            self.header = self._header(value)
        else:
            self._old = self._document(first)
            self.header = Header(1, Head(len(self._old), GENESIS), _NOWHERE, None, len(self._old), 0, ())

    # ------------------------------------------------------------------ lines

    def _read(self, most: int) -> bytes:
        line = self._file.readline(most)
        if not isinstance(line, bytes):
            raise TypeError(f"a bundle is read from a binary file, not {type(self._file).__name__}")
        self.number += 1
        self._bytes += len(line)
        return line

    def _line(self, most: int = MAX_LINE) -> bytes:
        line = self._read(most + 1)
        if len(line) > most:
            self._refuse(f"more than the {most} bytes allowed")
        if self._bytes > MAX_TOTAL:
            self._refuse(f"more than the {MAX_TOTAL} bytes allowed for all lines together")
        if not line.endswith(b"\n"):
            self._refuse("the bundle ends here, before its trailer")
        return line

    def _object(self, line: bytes, keys: set[str], depth: int = MAX_DEPTH) -> dict[str, Json]:
        try:
            value = decode(line[:-1], max_depth=depth)
        except NotJson as error:
            self._refuse(f"not JSON: {error}")
        if not isinstance(value, dict) or set(value) != keys:
            self._refuse(f"an object with the keys {', '.join(sorted(keys))} is needed, not {shown(value)}")
        return value

    def _refuse(self, message: str) -> NoReturn:
        refuse_bundle(message, line=self.number)

    # ------------------------------------------------------------------ values

    def _head(self, text: object, what: str) -> Head:
        head = parsed_head(text)
        if head is None:
            self._refuse(
                f"{what} must be a number and 64 hexadecimal digits, as 7:00ff..., not {shown(text)}"
            )
        return head

    def _whole(self, value: object, what: str, least: int, most: int) -> int:
        if type(value) is not int or not least <= value <= most:
            self._refuse(f"{what} must be an integer from {least} to {most}, not {shown(value)}")
        return value

    def _text(self, value: object, what: str) -> str:
        if not isinstance(value, str):
            self._refuse(f"{what} must be text, not {shown(value)}")
        return value

    def _text_or_none(self, value: object, what: str) -> str | None:
        return None if value is None else self._text(value, what)

    # ------------------------------------------------------------------ version 2

    def _header(self, found: dict[str, Json]) -> Header:
        if found["format"] != FORMAT or type(found.get("version")) is not int or found["version"] != VERSION:
            self._refuse(
                f"format {shown(found['format'])} of version {shown(found.get('version'))} cannot be read: "
                f"{FORMAT!r} of version {VERSION} and bundles of version 1 can"
            )
        if set(found) != _HEADER_KEYS:
            self._refuse(f"the header must have the keys {', '.join(sorted(_HEADER_KEYS))}")
        head, origin = self._head(found["head"], "head"), self._head(found["from"], "from")
        events = self._whole(found["events"], "events", 0, MAX_EVENTS)
        rows = self._whole(found["rows"], "rows", 0, MAX_EVENTS)
        tables, at = found["tables"], found["at"]
        if not isinstance(tables, list) or not all(isinstance(name, str) for name in tables):
            self._refuse(f"tables must be a list of names, not {shown(tables)}")
        if head.seq != origin.seq + events or (not events and head != origin):
            self._refuse(f"{events} events do not lead from {origin.seq} to {head.seq}")
        if origin.seq == 0 and (origin != _NOWHERE or tables or rows):
            self._refuse("events that begin at 1 have no base")
        if origin.seq and not tables:
            self._refuse(f"events that begin at {origin.seq + 1} need a base")
        if at is not None:
            self._whole(at, "at", -_MAX_INT, _MAX_INT)
        return Header(VERSION, head, origin, at, events, rows, tuple(tables))

    def base_rows(self) -> Iterator[tuple[str, Json]]:
        """Yield (table, row) of the base in its order.

        It is proved by an event that recorded the state's SHA-256, so after it; `facts` looks
        for that one.
        """
        if not self.header.tables:
            return
        state = _StateSum(self.header.tables)
        for _ in range(self.header.rows):
            line = self._line(MAX_BASE_LINE)
            self._sum.update(line)
            found = self._object(line, {"row", "table"})
            table, row = found["table"], found["row"]
            while state.table != table:
                if not state.next_table():
                    self._refuse(f"a row of table {shown(table)} is out of its place")
            end = b',"table":%b}\n' % encode(table)
            if not line.startswith(_ROW) or not line.endswith(end) or not isinstance(row, list):
                self._refuse('a row of the base must be written as {"row":[...],"table":"..."}')
            state.row(line[len(_ROW) : -len(end)])
            yield table, row
        self._proof = state.finish()

    def facts(self) -> Iterator[Fact]:
        """Yield every event in order, each proved by its hash, and check the trailer at the end."""
        if self.header.version == 1:
            yield from self._old_facts()
            return
        seq, previous = self.header.origin
        at: int | None = None
        for _ in range(self.header.events):
            line = self._line()
            self._sum.update(line)
            fact = self._fact(line)
            row, seq = fact.row, seq + 1
            if row.seq != seq:
                self._refuse(f"event {row.seq} stands where event {seq} belongs")
            if row_hash(previous, GRAPH, *row[:8]) != row.hash:
                self._refuse(f"event {seq} does not have its hash: it or one before it was changed")
            self._proved = self._proved or self._proves_base(fact)
            previous, at = row.hash, row.at
            yield fact
        if Head(seq, previous) != self.header.head or at != self.header.at:
            self._refuse(f"the events end at {Head(seq, previous)}, the header says {self.header.head}")
        if self.header.tables and not self._proved:
            self._refuse("no event recorded the base, so it may be any other")
        self._end()

    def _fact(self, line: bytes) -> Fact:
        found = self._object(line, _EVENT_KEYS, MAX_DEPTH + 1)
        body, digest = found["payload"], found["hash"]
        if not isinstance(body, dict):
            self._refuse(f"the payload must be an object, not {shown(body)}")
        if not isinstance(digest, str) or not _is_hash(digest):
            self._refuse(f"hash must be 64 hexadecimal digits, not {shown(digest)}")
        try:
            data = encode(body)
        except NotJson as error:
            self._refuse(f"the payload is not JSON: {error}")
        row = Row(
            self._whole(found["seq"], "seq", 1, _MAX_INT), self._whole(found["at"], "at", -_MAX_INT, _MAX_INT),
            self._text_or_none(found["id"], "id"), self._text(found["type"], "type"),
            self._text_or_none(found["actor"], "actor"), self._text_or_none(found["trust"], "trust"),
            self._text_or_none(found["cause"], "cause"), data, bytes.fromhex(digest),
        )  # fmt: skip
        return Fact(row, decode(data))

    def _proves_base(self, fact: Fact) -> bool:
        return bool(self._proof) and records(fact.row.type, fact.body, self.header.origin.seq, self._proof)

    def _end(self) -> None:
        digest = self._sum.hexdigest()
        found = self._object(self._line(), _TRAILER_KEYS)
        ours = {"count": self.header.events, "digest": digest, "end": str(self.header.head)}
        if found != ours or type(found["count"]) is not int:
            self._refuse("the trailer does not fit what stands before it")
        if self._file.read(1):
            self._refuse("something follows the trailer")
        self.digest = digest

    # ------------------------------------------------------------------ version 1

    def _document(self, first: bytes) -> list[Json]:
        data = first + self._file.read(MAX_DOCUMENT + 1 - len(first))
        self.digest = sha256(data).hexdigest()
        try:
            value = decode(data, max_bytes=MAX_DOCUMENT)
        except NotJson as error:
            self._refuse(f"neither the header of a bundle nor a bundle of version 1: {error}")
        if not isinstance(value, dict) or set(value) != _OLD_KEYS:
            self._refuse(f"neither the header of a bundle nor a bundle of version 1: {shown(value)}")
        version, events = value["schema_version"], value["events"]
        if type(version) is not int or version != 1:
            self._refuse(f"schema_version {shown(version)} cannot be read: 1 can")
        if not isinstance(events, list) or len(events) > MAX_EVENTS:
            self._refuse(f"events must be a list of at most {MAX_EVENTS} events")
        return events

    def _old_facts(self) -> Iterator[Fact]:
        for number, found in enumerate(self._old, 1):
            self.number = number
            if not isinstance(found, dict) or set(found) != {"type", "payload"}:
                self._refuse(f"an object with the keys payload, type is needed, not {shown(found)}")
            if not isinstance(found["payload"], dict):
                self._refuse(f"the payload must be an object, not {shown(found['payload'])}")
            data = encode(found["payload"])
            row = Row(number, 0, None, self._text(found["type"], "type"), None, None, None, data, GENESIS)
            yield Fact(row, decode(data))


def records(type: str, body: Mapping[str, Json], seq: int, digest: str) -> bool:
    """Say whether an event recorded the state at a number with this digest."""
    at = {"SnapshotTaken": "seq", "Compacted": "snapshotSeq"}.get(type)
    return at is not None and body.get(at) == seq and body.get("digest") == digest


class _StateSum:
    """SHA-256 of a state's text, from its rows: ``{"node":[row,row],"edge":[]}``."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables, self._sum = iter(tables), sha256(b"{")
        self.table: str | None = None
        self._filled = False

    def next_table(self) -> bool:
        """Close the table and open the one after it; False if there is none."""
        following = next(self._tables, None)
        if self.table is not None:
            self._sum.update(b"]" if following is None else b"],")
        self.table, self._filled = following, False
        if following is not None:
            self._sum.update(encode(following) + b":[")
        return following is not None

    def row(self, text: bytes) -> None:
        self._sum.update(b"," + text if self._filled else text)
        self._filled = True

    def finish(self) -> str:
        while self.next_table():
            pass
        self._sum.update(b"}")
        return self._sum.hexdigest()


def _value(line: bytes) -> Json:
    try:
        return decode(line)
    except NotJson:
        return None


def _is_hash(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")


def parsed_head(text: object) -> Head | None:
    """Read a head as ``seq:hash``; None if it is none."""
    if not isinstance(text, str) or len(text) > 90:
        return None
    seq, _, digest = text.partition(":")
    if not (seq.isascii() and seq.isdigit() and len(seq) <= 16 and _is_hash(digest)):
        return None
    head = Head(int(seq), bytes.fromhex(digest))
    return head if str(head) == text else None
