"""A ledger store in the graph's file: a run is the stream ``run:<run id>`` of its log.

Rows and bytes are the ledger's own. A blob is a stream of one row, named by its digest, so
that it is kept once for all runs. Inside ``with store.unit():`` an append joins the graph's
own changes in one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import MappingProxyType
from typing import Self

from agentloop.errors import DamagedLedger, LedgerConflict, LedgerUnavailable
from agentloop.ledger.summaries import summarize
from agentloop.ports import Head, LedgerEntry, RunSummary
from graphstate.errors import Conflict, IntegrityBroken, StoreError
from graphstate.events import GENESIS, Row, row_hash
from graphstate.store import Store

__all__ = ("GraphLedgerStore",)

_RUN = "run:"
_BLOB = "blob:"


@contextmanager
def _translated(run: str, seq: int) -> Iterator[None]:
    """Turn the graph's failures into the ledger's; misuse stays what it is."""
    try:
        yield
    except Conflict as error:
        raise LedgerConflict(run, error.expected, error.current) from error
    except IntegrityBroken as error:
        raise DamagedLedger(run, seq, str(error)) from error
    except StoreError as error:
        raise LedgerUnavailable(run, str(error)) from error


def _row(entry: LedgerEntry) -> Row:
    return Row(entry.seq, entry.at, None, entry.kind, None, None, None, entry.body, entry.hash)


def _entry(run: str, row: Row) -> LedgerEntry:
    if row.id is not None or row.actor is not None or row.trust is not None or row.cause is not None:
        raise DamagedLedger(
            run, row.seq, "it has an id, actor, trust or cause, which entries of a run do not have"
        )
    return LedgerEntry(seq=row.seq, at=row.at, kind=row.type, body=row.body, hash=row.hash)


class GraphLedgerStore:
    """Keeps runs in a graphstate file. Also a `RunIndex`.

    Args:
        store: An open store, which stays its owner's to close, or the path of a file.

    Raises:
        graphstate.errors.GraphStateError: The file cannot be opened.
    """

    def __init__(self, store: Store | str | os.PathLike[str]) -> None:
        self._owns = not isinstance(store, Store)
        self._store = store if isinstance(store, Store) else Store.open(store)

    @property
    def store(self) -> Store:
        """The file, for whoever joins other changes to an append."""
        return self._store

    @property
    def blocking(self) -> bool:
        return self._store.path != ":memory:"

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
        stream, rows = _RUN + run, [_row(entry) for entry in entries]
        with _translated(run, expected + 1):
            if rows and not blobs:
                head = self._store.append(stream, rows, expected=expected, sync=sync)
            else:
                with self._store.unit(sync=sync and bool(rows)):
                    for digest, blob in blobs.items():
                        self._keep_blob(digest, blob, at=rows[0].at if rows else 0)
                    # Without rows it is the append that asks the store to sync what is there.
                    head = self._store.append(stream, rows, expected=expected, sync=sync and not rows)
        return head.seq, head.hash

    def _keep_blob(self, digest: str, blob: bytes, *, at: int) -> None:
        stream = _BLOB + digest
        if self._store.head(stream).seq == 0:
            hashed = row_hash(GENESIS, stream, 1, at, None, "blob", None, None, None, blob)
            self._store.append(stream, [Row(1, at, None, "blob", None, None, None, blob, hashed)])

    def read(self, run: str, /, *, after: int = 0) -> Iterator[LedgerEntry]:
        with _translated(run, after + 1):
            for row in self._store.read(_RUN + run, after=after):
                yield _entry(run, row)

    def blob(self, digest: str, /) -> bytes | None:
        with _translated(digest, 1):
            row = next(self._store.read(_BLOB + digest), None)
        return None if row is None else row.body

    def runs(self, *, prefix: str = "", limit: int | None = None) -> Iterator[RunSummary]:
        with _translated(prefix, 0):
            found = [name.removeprefix(_RUN) for name in self._store.streams(_RUN + prefix)]
        return islice(filter(None, map(self._summary, reversed(found))), limit)

    def _summary(self, run: str) -> RunSummary | None:
        return summarize(run, lambda: self._ends(run))

    def _ends(self, run: str) -> tuple[LedgerEntry, LedgerEntry] | None:
        with _translated(run, 1):
            newest, _ = self._store.head(_RUN + run)
        first = next(self.read(run), None)
        last = next(self.read(run, after=newest - 1), None)
        return (first, last) if first and last else None

    def close(self) -> None:
        """Close the file, if this store opened it."""
        if self._owns:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
