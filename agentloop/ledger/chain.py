"""The hash chain: how an entry's hash follows from the entry before it.

``hash = SHA-256(previous hash + header + LF + body)``, where the header is the canonical
array ``[stream, seq, at, id, type, actor, trust, cause]``. The stream of a run is
``run:<run id>``; entries of a run have no id, actor, trust and cause.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache

from agentloop._canonical import Json, encode
from agentloop.errors import DamagedLedger
from agentloop.ports import Head, LedgerEntry

__all__ = ("NO_ENTRIES", "Chain", "chain_hash", "follow", "kind_text")

#: The head of a run that has no entries.
NO_ENTRIES: Head = (0, bytes(32))


def chain_hash(
    previous: bytes,
    stream: str,
    seq: int,
    at: int,
    id: str | None,
    kind: str,
    actor: str | None,
    trust: Json,
    cause: str | None,
    body: bytes,
) -> bytes:
    """Return the 32-byte hash of one row of any stream.

    Args:
        previous: The hash of the row before; 32 zero bytes for the first.
        body: Exactly the bytes that are stored.
    """
    header = encode([stream, seq, at, id, kind, actor, trust, cause])
    return hashlib.sha256(b"%b%b\n%b" % (previous, header, body)).digest()


@lru_cache(maxsize=256)
def kind_text(kind: str) -> bytes:
    """Return the canonical JSON of a kind, which comes from a small set and is kept."""
    return encode(kind)


class Chain:
    """`chain_hash` for the entries of one run, about five times faster."""

    __slots__ = ("_prefix",)

    def __init__(self, run: str) -> None:
        self._prefix = b"[" + encode(f"run:{run}")

    def hash(self, previous: bytes, seq: int, at: int, kind: str, body: bytes) -> bytes:
        """Return the hash of the entry that follows the one with hash ``previous``."""
        row = (previous, self._prefix, seq, at, kind_text(kind), body)
        return hashlib.sha256(b"%b%b,%d,%d,null,%b,null,null,null]\n%b" % row).digest()


#: The newest runs' chains, so that appending a few entries does not make one each time.
_chain = lru_cache(maxsize=64)(Chain)


def follow(run: str, entries: Iterable[LedgerEntry], head: Head) -> Iterator[LedgerEntry]:
    """Yield the entries as long as each one continues the chain from ``head``.

    Raises:
        DamagedLedger: At the first one that does not.
    """
    chain = _chain(run)
    seq, previous = head
    for entry in entries:
        seq += 1
        if entry.seq != seq:
            raise DamagedLedger(run, seq, f"entry {entry.seq} stands in its place")
        if not -(2**63) <= entry.at < 2**63:
            raise DamagedLedger(run, seq, f"its time {entry.at:.0e} does not fit 64 bits")
        if entry.hash != chain.hash(previous, seq, entry.at, entry.kind, entry.body):
            raise DamagedLedger(run, seq, "its hash does not follow from its content and the entry before it")
        previous = entry.hash
        yield entry
