"""The recorder: turns facts and decisions into chained entries and hands them to a store.

`record` does no I/O; `flush` is one synchronous call into the store, and whoever calls it
decides on which thread.
"""

from __future__ import annotations

from agentloop._canonical import MAX_BYTES, Json, NotJson, encode
from agentloop._numbers import MAX_COUNT
from agentloop.determinism import Clock
from agentloop.errors import LedgerUnavailable
from agentloop.ledger.blobs import BLOB_LIMIT, BLOB_MARK, PROMPT, split_blobs
from agentloop.ledger.chain import NO_ENTRIES, Chain
from agentloop.ledger.upcasting import ENTRIES
from agentloop.ports import Head, LedgerEntry, LedgerStore

__all__ = ("LEDGER_VERSION", "Recorder")

#: What ``run.opened`` carries as ``version``.
LEDGER_VERSION = ENTRIES.current


class Recorder:
    """Collects the entries of one run and appends them in batches.

    Args:
        store: None records nothing and costs nothing.
        run: The run's id.
        clock: Dates each entry.
        head: The newest entry already in the store, for a run that goes on.
    """

    __slots__ = (
        "_blobs",
        "_busy",
        "_chain",
        "_flushed",
        "_hash",
        "_pending",
        "_seq",
        "_store",
        "_synced",
        "clock",
        "run",
    )

    def __init__(self, store: LedgerStore | None, run: str, clock: Clock, *, head: Head = NO_ENTRIES) -> None:
        self.run = run
        self._store, self.clock, self._chain = store, clock, Chain(run)
        self._seq, self._hash = head
        self._flushed = head[0]
        self._pending: list[LedgerEntry] = []
        self._blobs: dict[str, bytes] = {}
        self._synced = True
        self._busy = False

    @property
    def head(self) -> Head:
        """Number and hash of the newest entry, recorded ones that wait for a flush included."""
        return self._seq, self._hash

    @property
    def pending(self) -> int:
        """How many entries are not acknowledged by the store yet."""
        return len(self._pending)

    @property
    def blocking(self) -> bool:
        """True if `flush` with ``sync`` should not be called on an event loop's thread."""
        return self._store is not None and self._store.blocking

    def record(self, kind: str, data: Json, /) -> None:
        """Append an entry to what waits for the next flush. No I/O; about 5 us for 100 bytes.

        The data is encoded here, so what is changed in it afterwards is not recorded.

        Raises:
            NotJson: The data is not JSON or more than 64 MiB of it; nothing was recorded.
        """
        if self._store is None:
            return
        body = encode(data)
        if kind == PROMPT and (len(body) > BLOB_LIMIT or BLOB_MARK in body):
            body = encode(split_blobs(data, self._blobs))
        self.record_encoded(kind, body)

    def record_encoded(self, kind: str, body: bytes, /) -> None:
        """As `record`, for data whose canonical JSON the caller has at hand."""
        if self._store is None:
            return
        if len(body) > MAX_BYTES:
            raise NotJson(f"an entry of {len(body)} bytes, more than the {MAX_BYTES} that can be read back")
        at, seq = self.clock.now_ms(), self._seq + 1
        if at.__class__ is not int or not -MAX_COUNT <= at <= MAX_COUNT:
            raise TypeError(f"clock.now_ms() must return whole milliseconds, not {at!r:.80}")
        hashed = self._chain.hash(self._hash, seq, at, kind, body)
        self._pending.append(LedgerEntry(seq=seq, at=at, kind=kind, body=body, hash=hashed))
        self._seq, self._hash = seq, hashed

    def copy(self) -> Recorder:
        """Return a recorder that goes on from here; of the two only one may be flushed."""
        twin = Recorder(self._store, self.run, self.clock, head=self.head)
        twin._flushed, twin._synced = self._flushed, self._synced
        twin._pending, twin._blobs = self._pending[:], self._blobs.copy()
        return twin

    def flush(self, *, sync: bool) -> None:
        """Append what waits. With ``sync`` every entry so far survives a loss of power.

        May run on another thread while entries are recorded; they wait for the next flush. After
        an error the entries still wait, but the store may refuse them: the run should end.

        Raises:
            LedgerError: As `LedgerStore.append`; LedgerUnavailable also while an earlier flush
                has not come back.
        """
        if self._store is None or not (self._pending or (sync and not self._synced)):
            return
        if self._busy:
            raise LedgerUnavailable(self.run, "the store has not answered an earlier append")
        # Copies, entries first: what another thread records meanwhile stays for the next flush,
        # and no entry goes without its blobs.
        entries, blobs = self._pending[:], self._blobs.copy()
        self._busy = True
        try:
            self._store.append(self.run, entries, expected=self._flushed, sync=sync, blobs=blobs)
        finally:
            self._busy = False
        del self._pending[: len(entries)]
        for digest in blobs:
            del self._blobs[digest]
        self._flushed += len(entries)
        self._synced = sync
