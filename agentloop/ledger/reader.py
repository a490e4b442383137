"""Reading a run back: entries decoded and checked, whatever the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from agentloop._canonical import Json, NotJson, decode
from agentloop.errors import DamagedLedger, LedgerError, RunNotFound
from agentloop.ledger.blobs import BLOB_MARK, PROMPT, blob_digest, join_blobs
from agentloop.ledger.chain import NO_ENTRIES, follow
from agentloop.ledger.summaries import CLOSED, OPENED, data_of
from agentloop.ledger.upcasting import ENTRIES
from agentloop.ports import Head, LedgerEntry, LedgerStore, RunIndex

__all__ = ("Entry", "LedgerReport", "RunLedger", "find_run")

STEP = "step"
_ENDS = frozenset({OPENED, CLOSED})


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of a run, decoded."""

    seq: int
    #: Milliseconds since 1970 by the run's clock; says nothing about order.
    at: int
    kind: str
    data: Json


class LedgerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `RunLedger.verify` found."""

    ok: bool
    #: How many entries hold.
    checked: int
    #: The newest entry that holds; keep it elsewhere to notice a shortened ledger later.
    head: Head
    #: Number of the first entry that does not hold, if one does not.
    first_break: int | None = None
    problem: str | None = None


class RunLedger:
    """The recorded run, read from its store.

    Everything is checked while it is read: the numbers, the hash chain from the first entry,
    the data as strict JSON, the texts kept outside the entries by their digest. That shows any
    change in the middle; that newest entries were removed, or that everything was replaced by
    another valid run, only a head kept elsewhere can show.

    A run of an older version is given as this one would have recorded it; what is stored stays.

    Attributes:
        version: The version that recorded the run, once its first entry was read.
    """

    def __init__(self, store: LedgerStore, run: str) -> None:
        self.run = run
        self.version = ENTRIES.current
        self._store = store

    def entries(self) -> Iterator[Entry]:
        """Yield the entries in order. Constant memory.

        Raises:
            RunNotFound: The store has no such run.
            DamagedLedger: At the first entry that does not hold.
            UnsupportedVersion: A newer version wrote the run.
        """
        return (entry for entry, _ in self._read())

    def hashed_entries(self) -> Iterator[tuple[Entry, bytes]]:
        """Yield each entry with its hash; raises as `entries`."""
        return self._read()

    def _read(self) -> Iterator[tuple[Entry, bytes]]:
        stored, current = None, ENTRIES.current
        closed = False
        for stored in follow(self.run, self._store.read(self.run), NO_ENTRIES):
            if closed:
                raise DamagedLedger(self.run, stored.seq, f"it stands after {CLOSED}")
            entry = self._decode(stored)
            if stored.seq == 1:
                self._check_opened(entry)
            if self.version != current:
                entry = self._raised(entry)
            closed = entry.kind == CLOSED
            yield entry, stored.hash
        if stored is None:
            raise RunNotFound(self.run)

    def _decode(self, stored: LedgerEntry) -> Entry:
        kind = stored.kind
        data = data_of(self.run, stored)
        if kind == PROMPT and BLOB_MARK in stored.body:
            try:
                data = join_blobs(data, lambda digest: self._load(stored.seq, digest))
            except NotJson as error:
                raise DamagedLedger(self.run, stored.seq, str(error)) from error
        if kind in _ENDS and not isinstance(data, dict):
            raise DamagedLedger(self.run, stored.seq, f"the data of {kind} is not an object")
        return Entry(seq=stored.seq, at=stored.at, kind=kind, data=data)

    def _load(self, seq: int, digest: Json) -> Json:
        blob = self._store.blob(digest) if isinstance(digest, str) else None
        if blob is None:
            raise DamagedLedger(self.run, seq, f"the text {digest!r} it refers to is missing")
        if blob_digest(blob) != digest:
            raise DamagedLedger(self.run, seq, f"the text {digest!r} it refers to was changed")
        return decode(blob)

    def _check_opened(self, entry: Entry) -> None:
        if entry.kind != OPENED:
            raise DamagedLedger(
                self.run, entry.seq, f"a run begins with {OPENED}, this one with {entry.kind!r}"
            )
        version = entry.data.get("version")
        if type(version) is not int or version < ENTRIES.oldest:
            raise DamagedLedger(self.run, entry.seq, f"{OPENED} has the unusable version {version!r}")
        self.version = ENTRIES.check(version)

    def _raised(self, entry: Entry) -> Entry:
        """Return an entry of an older version as this one would have recorded it."""
        kind, data = ENTRIES.raised(self.version, (entry.kind, entry.data))
        if kind == OPENED and isinstance(data, dict):
            data = {**data, "version": ENTRIES.current}
        return Entry(seq=entry.seq, at=entry.at, kind=kind, data=data)

    def verify(self, *, expect_head: Head | None = None) -> LedgerReport:
        """Return whether every entry holds. Never raises on account of what is stored.

        Args:
            expect_head: A head that was kept elsewhere: the run must still contain it.
        """
        head, first_break, problem = NO_ENTRIES, None, None
        expected = expect_head is None or expect_head == NO_ENTRIES
        try:
            for entry, hashed in self._read():
                head = entry.seq, hashed
                expected = expected or head == expect_head
            if not expected:
                problem = "the expected head is not in the run: entries were removed or replaced"
        except DamagedLedger as error:
            first_break, problem = error.seq, error.problem
        except LedgerError as error:
            problem = str(error)
        return LedgerReport(
            ok=problem is None, checked=head[0], head=head, first_break=first_break, problem=problem
        )

    @property
    def opened(self) -> dict[str, Json]:
        """The data of ``run.opened``; reads one entry.

        Raises:
            RunNotFound, DamagedLedger, UnsupportedVersion: As `entries`.
        """
        opened: dict[str, Json] = next(self.entries()).data
        return opened

    @property
    def closed(self) -> dict[str, Json] | None:
        """The data of ``run.closed``; None while the run is open or was killed. Reads everything.

        Raises:
            RunNotFound, DamagedLedger, UnsupportedVersion: As `entries`.
        """
        newest = deque(self.entries(), maxlen=1).pop()
        return newest.data if newest.kind == CLOSED else None

    def steps(self) -> Iterator[Entry]:
        """Yield the decisions only."""
        return (entry for entry in self.entries() if entry.kind == STEP)


def find_run(index: RunIndex, prefix: str) -> str:
    """Return the one run whose id begins with the prefix; a full id always wins.

    Runs inside a run (``<run>/<n>``) are found by their own full id or by a prefix that
    reaches beyond the slash.

    Raises:
        RunNotFound: There is none, or more than one.
    """
    candidates: list[str] = []
    for summary in index.runs(prefix=prefix):
        if summary.run == prefix:
            return prefix
        if "/" not in summary.run[len(prefix) :]:
            candidates.append(summary.run)
    if len(candidates) != 1:
        raise RunNotFound(prefix, candidates)
    return candidates[0]
