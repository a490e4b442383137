"""Making the projection of an event again: the newest good snapshot before it, then the rest.

A snapshot is good if its bytes have their digest, an event names it with that digest, and it
stands on the event it says. Used by recovery, rollback, deep verification and compaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphstate._canonical import NotJson, decode_each
from graphstate.errors import IntegrityBroken
from graphstate.events import GRAPH, Head
from graphstate.model import Recovery
from graphstate.store.log import Log
from graphstate.store.projection import Projection
from graphstate.store.recorded import snapshot_is_recorded
from graphstate.store.snapshot import Snapshots, Taken

__all__ = ("base_of", "rebuild", "replay")


def replay(log: Log, projection: Projection, *, after: int, upto: Head) -> int:
    """Fold the events after a number and return how many there were.

    Raises:
        IntegrityBroken: One of them cannot be folded.
    """
    seq, folds = after, projection.folds
    try:
        for rows in log.read_few(GRAPH, after=after, upto=upto.seq):
            projection.make_room()
            bodies = decode_each([row.body for row in rows])
            for row in rows:
                seq, fold = row.seq, folds.get(row.type)
                body = next(bodies)
                if fold is not None:
                    fold(row, body)
    except (NotJson, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise IntegrityBroken(f"event {seq} cannot be folded: {type(error).__name__}: {error}") from None
    projection.set_applied(upto)
    return seq - after


def base_of(log: Log, snapshots: Snapshots, upto: Head, among: Iterable[Taken]) -> tuple[Taken, str] | None:
    """Return the first good snapshot, with its state, from which ``upto`` can be reached."""
    start = log.start(GRAPH).seq
    for taken in among:
        stands = taken.head.seq >= start and log.hash_at(GRAPH, taken.head.seq) == taken.head.hash
        if (stands or taken.head == upto) and snapshot_is_recorded(log, taken):
            state = snapshots.read(taken.id)
            if state is not None:
                return taken, state
    return None


def rebuild(log: Log, projection: Projection, snapshots: Snapshots, upto: Head) -> Recovery:
    """Fill the projection with the state of an event.

    About 4 us for each move or reward after the snapshot, 5 us for each row in it.

    Raises:
        IntegrityBroken: No good snapshot is left, and the events before were removed.
    """
    start = log.start(GRAPH)
    found = base_of(log, snapshots, upto, snapshots.before(upto.seq))
    if found is None and upto.seq and start.seq:
        raise IntegrityBroken(
            f"the state of event {upto.seq} cannot be made: the events up to {start.seq} were removed by "
            "a compaction, and no snapshot from which it could start is intact"
        )
    projection.clear()
    if found is None:
        return Recovery(last_good_seq=upto.seq, replayed=replay(log, projection, after=0, upto=upto))
    taken, state = found
    snapshots.load(state)
    count = replay(log, projection, after=taken.head.seq, upto=upto)
    return Recovery(last_good_seq=upto.seq, replayed=count, snapshot_id=taken.id)
