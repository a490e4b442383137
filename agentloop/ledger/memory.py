"""A ledger store in memory: for tests, for evals, for runs nobody wants to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

from agentloop.errors import LedgerConflict
from agentloop.ledger.chain import NO_ENTRIES, follow
from agentloop.ledger.summaries import summarize
from agentloop.ports import Head, LedgerEntry, RunSummary

__all__ = ("MemoryLedgerStore",)


class MemoryLedgerStore:
    """Keeps runs as lists of entries. Also a `RunIndex`."""

    blocking = False

    def __init__(self) -> None:
        self._runs: dict[str, list[LedgerEntry]] = {}
        self._blobs: dict[str, bytes] = {}

    def append(
        self,
        run: str,
        entries: Sequence[LedgerEntry],
        /,
        *,
        expected: int,
        sync: bool,
        blobs: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Head:
        kept = self._runs.get(run, [])
        if len(kept) != expected:
            raise LedgerConflict(run, expected, len(kept))
        head = (expected, kept[-1].hash) if kept else NO_ENTRIES
        checked = list(follow(run, entries, head))
        self._blobs.update(blobs)
        if checked:
            kept.extend(checked)
            self._runs[run] = kept
            head = checked[-1].seq, checked[-1].hash
        return head

    def read(self, run: str, /, *, after: int = 0) -> Iterator[LedgerEntry]:
        kept = self._runs.get(run, ())
        return islice(kept, after, len(kept))

    def blob(self, digest: str, /) -> bytes | None:
        return self._blobs.get(digest)

    def runs(self, *, prefix: str = "", limit: int | None = None) -> Iterator[RunSummary]:
        found = (run for run in sorted(self._runs, reverse=True) if run.startswith(prefix))
        return islice(filter(None, map(self._summary, found)), limit)

    def _summary(self, run: str) -> RunSummary | None:
        kept = self._runs[run]
        return summarize(run, lambda: (kept[0], kept[-1]))
