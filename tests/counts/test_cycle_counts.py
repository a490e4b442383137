"""Costs that need no quiet machine: calls, callbacks, statements and commits a cycle."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import anyio
import apsw
import pytest

from adapters.graph import GraphLedgerStore
from benchmarks import bench_loop, cycle_work
from graphstate import Store
from graphstate.store.db import SqliteDatabase


@pytest.mark.parametrize("make", [cycle_work.with_tasks, cycle_work.in_line], ids=["tasks", "in line"])
def test_a_cycle_in_memory_stays_within_its_calls_and_callbacks(make: object) -> None:
    calls, callbacks = bench_loop.counts(make)  # type: ignore[arg-type]
    assert calls <= 800
    assert callbacks <= 16


def test_a_durable_cycle_is_one_commit_and_at_most_eight_statements(tmp_path: Path) -> None:
    few, many = _statements(tmp_path, 10), _statements(tmp_path, 60)
    each = {word: (many[word] - few[word]) / 50 for word in many}
    assert each["COMMIT"] == 1
    assert sum(each.values()) <= 8, each


def test_committing_every_turn_is_two_commits_a_cycle(tmp_path: Path) -> None:
    few, many = _statements(tmp_path, 10, commit="turn"), _statements(tmp_path, 60, commit="turn")
    assert (many["COMMIT"] - few["COMMIT"]) / 50 == 2


def _statements(folder: Path, cycles: int, *, commit: str = "cycle") -> Counter[str]:
    """Count the statements SQLite is asked to run, by their first word, at the level of power loss."""
    seen: Counter[str] = Counter()
    with closing(Store.open(folder / f"{commit}-{cycles}.db", durability="power")) as store:
        database = store._db
        assert isinstance(database, SqliteDatabase)
        database._connection.trace_v2(
            apsw.SQLITE_TRACE_STMT, lambda event: seen.update([event["sql"].split(maxsplit=1)[0].upper()])
        )
        anyio.run(cycle_work.in_line(cycles, ledger=GraphLedgerStore(store), commit=commit))
    return seen
