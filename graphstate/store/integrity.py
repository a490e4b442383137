"""Verification: do the chains hold, and is everything made from them what they say?

Nothing here writes. The store acts on what is found.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphstate.errors import IntegrityBroken
from graphstate.events import GENESIS, GRAPH, Head
from graphstate.model import IntegrityReport
from graphstate.store import schema
from graphstate.store.db import Database, SqliteDatabase
from graphstate.store.log import Log
from graphstate.store.projection import Projection
from graphstate.store.rebuilding import base_of, replay
from graphstate.store.recorded import damage, start_problem
from graphstate.store.snapshot import Snapshots, state_bytes

__all__ = ("check_chains", "head_problem", "projection_problem", "verify_state")


def check_chains(
    log: Log, applied: Head, *, deep: bool, streams: Sequence[str] | None = None
) -> tuple[IntegrityReport, dict[str, Head]]:
    """Follow every stream from where it was verified last, or with ``deep`` from its start.

    Returns:
        The report, and the streams whose verified end moved.
    """
    rows, graph, moved = 0, Head(0, GENESIS), {}
    for stream in log.streams("") if streams is None else streams:
        start = log.start(stream) if deep else log.verified(stream)
        walk = log.walk(stream, start)
        rows += walk.rows
        if walk.break_seq is not None:
            report = IntegrityReport(
                ok=False, checked_events=rows, verified_seq=walk.head.seq, stream=stream,
                first_break_seq=walk.break_seq, detail=walk.detail, deep=deep,
            )  # fmt: skip
            return report, {}
        if walk.head != start:
            moved[stream] = walk.head
        if stream == GRAPH:
            graph = walk.head
    problem, at = start_problem(log), log.start(GRAPH).seq
    if problem is None and applied != graph:
        problem = f"the log ends at {graph.seq}, but {applied.seq} events were acknowledged"
        at = min(applied.seq, graph.seq)
    if problem is not None:
        report = IntegrityReport(
            ok=False, checked_events=rows, verified_seq=min(at, graph.seq), stream=GRAPH, deep=deep,
            first_break_seq=at + 1, detail=problem,
        )  # fmt: skip
        return report, {}
    return IntegrityReport(ok=True, checked_events=rows, verified_seq=graph.seq, deep=deep), moved


def head_problem(log: Log, expected: Head) -> str | None:
    """Return why the log does not hold a head that was kept elsewhere, None if it does."""
    found, start, head = log.hash_at(GRAPH, expected.seq), log.start(GRAPH), log.head(GRAPH)
    if found == expected.hash:
        return None
    if found is not None:
        return f"event {expected.seq} is not the one that was kept: its hash is {found.hex()}"
    if expected.seq < start.seq:
        return (
            f"event {expected.seq} was removed by a compaction; what can be compared begins with the head "
            f"{start}, so keep newer ones"
        )
    return f"event {expected.seq} is absent: the log ends at {head.seq}"


def verify_state(db: Database, log: Log, snapshots: Snapshots, chains: IntegrityReport) -> IntegrityReport:
    """Check what is made from the chains: SQLite's structure, snapshots, projection."""
    problem = (
        schema.structure_problem(db)
        or _aside_problem(log)
        or _kept_problem(log, snapshots)
        or projection_problem(db, log, snapshots)
    )
    if problem is None:
        return chains
    return IntegrityReport(
        ok=False, checked_events=chains.checked_events, verified_seq=chains.verified_seq,
        detail=problem, stream=GRAPH, deep=True,
    )  # fmt: skip


def _aside_problem(log: Log) -> str | None:
    """Return which row that a rollback set aside was changed. What recovery set aside never held."""
    for cut in log.cuts():
        if cut.by_recovery:
            continue
        walk = log.walk_aside(cut.no, cut.stream, cut.to)
        if walk.break_seq is not None:
            return walk.detail
        if walk.head != cut.old:
            return f"cut {cut.no} does not hold all the events it set aside"
    return None


def _kept_problem(log: Log, snapshots: Snapshots) -> str | None:
    try:
        differing, unknown, bad = damage(log, snapshots)
    except (LookupError, TypeError, ValueError) as error:
        return f"an event about checkpoints cannot be read: {type(error).__name__}: {error}"
    if bad:
        return f"snapshot {bad[0]} does not have the digest that the log records"
    if differing or unknown:
        return f"checkpoint {[*differing, *unknown][0]!r} is not where the log says"
    return None


def projection_problem(db: Database, log: Log, snapshots: Snapshots) -> str | None:
    """Replay the graph's stream beside the tables and compare. Memory: the live state.

    Begins at event 1, or in a compacted log at the oldest snapshot that is left.
    """
    head, start = log.head(GRAPH), log.start(GRAPH).seq
    again = SqliteDatabase(":memory:", read_only=False, busy_timeout_ms=0)
    try:
        schema.create(again, full_text=False)
        fresh, after = Projection(again), 0
        if start and head.seq:
            base = base_of(log, snapshots, head, reversed(snapshots.before(head.seq)))
            if base is None:
                return f"no intact snapshot is left to replay from, and the log begins after event {start}"
            Snapshots(again).load(base[1])
            after = base[0].head.seq
        replay(log, fresh, after=after, upto=head)
        fresh.flush()
        same = state_bytes(again) == state_bytes(db)
    except IntegrityBroken as error:
        return str(error)
    finally:
        again.close()
    return None if same else "the projection differs from a replay of the log"
