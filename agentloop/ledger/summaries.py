"""One line about a run, from its first and its last entry."""

from __future__ import annotations

from collections.abc import Callable

from agentloop._canonical import Json, NotJson, decode
from agentloop.errors import DamagedLedger, LedgerError
from agentloop.ports import LedgerEntry, RunSummary

__all__ = ("CLOSED", "OPENED", "data_of", "summarize")

#: The kinds of a run's first and last entry.
OPENED = "run.opened"
CLOSED = "run.closed"


def data_of(run: str, entry: LedgerEntry) -> Json:
    """Return an entry's data.

    Raises:
        DamagedLedger: It is not strict JSON.
    """
    try:
        return decode(entry.body)
    except NotJson as error:
        raise DamagedLedger(run, entry.seq, f"its data is not JSON: {error}") from error


def _object_of(run: str, entry: LedgerEntry) -> dict[str, Json]:
    data = data_of(run, entry)
    if not isinstance(data, dict):
        raise DamagedLedger(run, entry.seq, f"the data of {entry.kind} is not an object")
    return data


def summarize(run: str, ends: Callable[[], tuple[LedgerEntry, LedgerEntry] | None]) -> RunSummary | None:
    """Return the summary of a run; one that cannot be read has one that says so.

    Args:
        ends: Gives the first and the last entry, or None for a run without entries.
    """
    try:
        found = ends()
        return _summary(run, *found) if found else None
    except LedgerError as error:
        return RunSummary(run=run, entries=0, opened_at=0, opened={}, damage=str(error))


def _summary(run: str, first: LedgerEntry, last: LedgerEntry) -> RunSummary:
    if first.kind != OPENED:
        raise DamagedLedger(run, first.seq, f"a run begins with {OPENED}, this one with {first.kind!r}")
    closed = last.kind == CLOSED
    return RunSummary(
        run=run,
        entries=last.seq,
        opened_at=first.at,
        opened=_object_of(run, first),
        closed_at=last.at if closed else None,
        closed=_object_of(run, last) if closed else None,
    )
