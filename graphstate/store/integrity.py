"""Verification: do the chains hold, and is everything made from them what they say?

Nothing here writes. The store acts on what is found.
"""

from __future__ import annotations

from graphstate._canonical import decode
from graphstate.events import GENESIS, GRAPH, Head
from graphstate.model import IntegrityReport
from graphstate.store import schema
from graphstate.store.db import Database, SqliteDatabase
from graphstate.store.log import Log
from graphstate.store.projection import Projection
from graphstate.store.snapshot import Snapshots, state_bytes

__all__ = ("check_chains", "projection_differs", "verify_state")


def check_chains(log: Log, applied: Head, *, deep: bool) -> tuple[IntegrityReport, dict[str, Head]]:
    """Follow every stream from where it was verified last, or with ``deep`` from its start.

    Returns:
        The report, and the streams whose verified end moved.
    """
    rows, graph, moved = 0, Head(0, GENESIS), {}
    for stream in log.streams(""):
        start = Head(0, GENESIS) if deep else log.verified(stream)
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
    if applied != graph:
        report = IntegrityReport(
            ok=False, checked_events=rows, verified_seq=graph.seq, stream=GRAPH, deep=deep,
            first_break_seq=min(applied.seq, graph.seq) + 1,
            detail=f"the log ends at {graph.seq}, but {applied.seq} events were acknowledged",
        )  # fmt: skip
        return report, {}
    return IntegrityReport(ok=True, checked_events=rows, verified_seq=graph.seq, deep=deep), moved


def verify_state(db: Database, log: Log, snapshots: Snapshots, chains: IntegrityReport) -> IntegrityReport:
    """Check what is made from the chains: SQLite's structure, snapshots, projection."""
    problem = schema.structure_problem(db)
    if problem is None and (damaged := snapshots.damaged()):
        problem = f"snapshot {damaged[0]} does not have its digest"
    if problem is None and projection_differs(db, log):
        problem = "the projection differs from a replay of the log"
    if problem is None:
        return chains
    return IntegrityReport(
        ok=False, checked_events=chains.checked_events, verified_seq=chains.verified_seq,
        detail=problem, stream=GRAPH, deep=True,
    )  # fmt: skip


def projection_differs(db: Database, log: Log) -> bool:
    """Replay the graph's stream beside the tables and compare. Memory: the live state."""
    again = SqliteDatabase(":memory:", read_only=False, busy_timeout_ms=0)
    try:
        schema.create(again, full_text=False)
        fresh = Projection(again)
        for row in log.read(GRAPH):
            fresh.apply(row, decode(row.body))
        fresh.flush()
        return state_bytes(again) != state_bytes(db)
    finally:
        again.close()
