"""The facts of the log: one row, one hash, and the ids of rows.

A `Row` is what is stored and hashed, in every stream and in every store. A `Draft` is a
fact before it has a place. Nothing here reads a clock or draws a number by itself.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from graphstate._canonical import Json, encode_text

__all__ = (
    "GENESIS",
    "GRAPH",
    "ID_PATTERN",
    "ChainKey",
    "Draft",
    "Head",
    "IdGen",
    "Row",
    "first_break",
    "follow",
    "is_valid_id",
    "row_hash",
)

#: The stream that holds the graph's own events.
GRAPH = "graph"

#: The hash before the first row of a stream.
GENESIS = bytes(32)

_HEAD_TEXT = re.compile(r"([0-9]{1,13}):([0-9a-f]{64})")

ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def is_valid_id(value: object) -> bool:
    """Say whether a value can name a node, an edge, a checkpoint or an actor."""
    return isinstance(value, str) and ID_PATTERN.fullmatch(value) is not None


class Head(NamedTuple):
    """Where a stream ends: (0, GENESIS) if it is empty."""

    seq: int
    hash: bytes

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return the head that `str` made this text of.

        Raises:
            ValueError: It is no such text.
        """
        match = _HEAD_TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"a head is SEQ:HASH with 64 hexadecimal digits, not {text[:80]!r}")
        return cls(int(match[1]), bytes.fromhex(match[2]))

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash.hex()}"


class ChainKey(bytes):
    """The secret of a keyed chain. It does not show itself in messages and tracebacks."""

    def __repr__(self) -> str:
        return "ChainKey(hidden)"

    __str__ = __repr__


class Draft(NamedTuple):
    """A fact that has no place in the log yet."""

    type: str
    body: dict[str, Json]


class Row(NamedTuple):
    """One stored fact. Absent columns are None; `body` is canonical JSON."""

    seq: int
    at: int
    id: str | None
    type: str
    actor: str | None
    trust: str | None
    cause: str | None
    body: bytes
    hash: bytes


# Streams, types and actors repeat, so their JSON text is kept.
_quoted = lru_cache(maxsize=4096)(encode_text)


@lru_cache(maxsize=4096)
def _names(type: str, actor: str | None, trust: str | None) -> str:
    return f",{encode_text(type)},{encode_text(actor)},{encode_text(trust)},"


def row_hash(
    previous: bytes,
    stream: str,
    seq: int,
    at: int,
    id: str | None,
    type: str,
    actor: str | None,
    trust: str | None,
    cause: str | None,
    body: bytes,
    *,
    key: bytes | None = None,
) -> bytes:
    """Return the 32-byte hash of a row: SHA-256 of previous hash, header array, LF and body.

    With a key it is HMAC-SHA-256 of the same bytes.
    """
    shown = "null" if id is None else f'"{id}"' if id.isalnum() and id.isascii() else encode_text(id)
    because = "null" if cause is None else encode_text(cause)
    header = f"[{_quoted(stream)},{seq},{at},{shown}{_names(type, actor, trust)}{because}]\n"
    if key is not None:
        return hmac.digest(key, previous + header.encode() + body, "sha256")
    return sha256(previous + header.encode() + body).digest()


def first_break(stream: str, head: Head, rows: Iterable[Row]) -> Row | None:
    """Return the first row that does not continue the chain after ``head``, None if all do."""
    seq, previous = head
    for row in rows:
        seq += 1
        digest = row[8]
        if row[0] != seq or row_hash(previous, stream, *row[:8]) != digest:
            return row
        previous = digest
    return None


def follow(
    stream: str, head: Head, rows: Iterable[Sequence[Any]], names: Mapping[int, str], key: bytes | None = None
) -> tuple[Head, tuple[int, str] | None]:
    """Follow the chain over rows as they are stored: numbers for names, bytes for texts.

    This is `row_hash` without a call and a `Row` for each of a million rows.

    Returns:
        The last row that holds, and number and reason of the one that does not.
    """
    seq, previous = head
    begin = f"[{_quoted(stream)},"
    parts: dict[tuple[int, int, int], str] = {}
    for found, at, row_id, kind, actor, trust, cause, body, digest in rows:
        if found != seq + 1:
            return Head(seq, previous), (found, f"seq gap: expected {seq + 1}, got {found}")
        try:
            part = parts.get((kind, actor, trust))
            if part is None:
                part = _names(names[kind], actor and names[actor], trust and names[trust])
                parts[kind, actor, trust] = part
            shown = (
                "null" if row_id is None
                else f'"{row_id.decode()}"' if row_id.isalnum() else encode_text(row_id.decode())
            )  # fmt: skip
            because = "null" if cause is None else encode_text(cause.decode())
        except (KeyError, UnicodeDecodeError) as error:
            return Head(seq, previous), (found, f"row {found} of stream {stream!r} cannot be read: {error}")
        text = previous + f"{begin}{found},{at},{shown}{part}{because}]\n".encode() + body
        if (sha256(text).digest() if key is None else hmac.digest(key, text, "sha256")) != digest:
            reason = f"hash mismatch: seq {found} does not match its row or the row before"
            return Head(seq, previous), (found, reason)
        seq, previous = found, digest
    return Head(seq, previous), None


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)


class IdGen:
    """Ids that sort in the order they were made: prefix, time, tick counter, entropy.

    Args:
        now: Milliseconds since the epoch.
        rand: Uniform in [0, 1).
    """

    __slots__ = ("_now", "_rand", "_stamp", "_tick", "_time")

    def __init__(self, now: Callable[[], int], rand: Callable[[], float]) -> None:
        self._now, self._rand = now, rand
        self._time, self._tick, self._stamp = -1, 0, ""

    def next(self, prefix: str) -> str:
        """Return the next id: the prefix letter and 20 Crockford base32 characters."""
        now = self._now() & 0xFFFFFFFFFFFF
        if now > self._time:
            self._time, self._tick = now, 0
            self._stamp = "".join(_PAIRS[now >> shift & 1023] for shift in (40, 30, 20, 10, 0))
        else:
            self._tick = (self._tick + 1) & 0xFFFFF
        tick, entropy = self._tick, int(self._rand() * 0x40000000) & 0x3FFFFFFF
        return (
            f"{prefix}{self._stamp}{_PAIRS[tick >> 10]}{_PAIRS[tick & 1023]}"
            f"{_PAIRS[entropy >> 20]}{_PAIRS[entropy >> 10 & 1023]}{_PAIRS[entropy & 1023]}"
        )
