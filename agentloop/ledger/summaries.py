"""One line about a run, from its first and its last entry."""

from __future__ import annotations

from agentloop._canonical import Json, NotJson, decode
from agentloop.errors import DamagedLedger
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


def summarize(run: str, first: LedgerEntry, last: LedgerEntry) -> RunSummary:
    """Return the summary of a run.

    Raises:
        DamagedLedger: It does not begin with ``run.opened``, or the data is not an object.
    """
    if first.kind != OPENED:
        raise DamagedLedger(run, first.seq, f"a run begins with {OPENED}, this one with {first.kind}")
    closed = last.kind == CLOSED
    return RunSummary(
        run=run,
        entries=last.seq,
        opened_at=first.at,
        opened=_object_of(run, first),
        closed_at=last.at if closed else None,
        closed=_object_of(run, last) if closed else None,
    )
