"""Where ledger and memory share a file, the outcome and the end of the ledger are one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import apsw
import pytest

from adapters.graph import GraphBridge, GraphLedgerStore, declare_nodes
from agentloop import (
    AgentLoop,
    Frame,
    RunLedger,
    ScriptedAdapter,
    create_agent_loop,
    create_default_evaluator_parser,
    replay,
)
from graphstate import Adaptogen
from graphstate.store.db import SqliteDatabase

pytestmark = pytest.mark.anyio
DONE = '{"status": "SUCCESS", "evidence": "done"}'
Level = Literal["process", "power"]
LEVELS = pytest.mark.parametrize("durability", ["process", "power"])


@contextmanager
def graph(folder: Path, durability: Level) -> Iterator[Adaptogen]:
    opened = Adaptogen.open(folder / "g.db", seed=False, durability=durability)
    try:
        declare_nodes(opened, "default", [{"id": "build"}])
        opened.remember("island")
        yield opened
    finally:
        opened.close()


def make(opened: Adaptogen, *, node: str = "build") -> tuple[AgentLoop, GraphLedgerStore]:
    ledger = GraphLedgerStore(opened.store)
    loop = create_agent_loop(
        agent_adapter=ScriptedAdapter(["work"]),
        evaluator_adapter=ScriptedAdapter([DONE]),
        build_agent_prompt=lambda ctx: "go",
        build_evaluator_prompt=lambda ctx, history: "judge",
        parse_evaluator_output=create_default_evaluator_parser(),
        graph=GraphBridge(opened, node_id=node),
        ledger=ledger,
        run_id="R",
    )
    return loop, ledger


async def run(loop: AgentLoop) -> list[Frame]:
    async with loop:
        await loop.sink.write({"type": "TICK"})
        return await loop.source.collect()


def assert_whole(ledger: GraphLedgerStore, frames: list[Frame]) -> None:
    kinds = [entry.kind for entry in RunLedger(ledger, "R").entries()]
    assert kinds[-1] == "run.closed"
    assert kinds.count("run.closed") == kinds.count("fact.outcome_written") == 1
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
    shown: list[Frame] = []
    assert replay(ledger, "R", on_frame=shown.append).divergence is None
    assert shown == frames


@LEVELS
async def test_the_outcome_and_the_end_of_the_ledger_are_one_commit(
    tmp_path: Path, durability: Level
) -> None:
    with graph(tmp_path, durability) as opened:
        loop, ledger = make(opened)
        database = opened.store._db
        assert isinstance(database, SqliteDatabase)
        statements: list[str] = []
        database._connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"]))
        frames = await run(loop)
        database._connection.trace_v2(0, None)

        assert loop.result is not None
        assert loop.result.status == "SUCCESS"
        assert opened.get_node("run:R") is not None
        assert_whole(ledger, frames)
        # One for the agent's turn, one for what the memory is told, one for the end: no more.
        assert statements.count("COMMIT") == 3


@LEVELS
async def test_a_move_that_is_not_possible_is_told_in_the_same_transaction(
    tmp_path: Path, durability: Level
) -> None:
    with graph(tmp_path, durability) as opened:
        loop, ledger = make(opened, node="island")
        frames = await run(loop)

        assert [frame.type for frame in frames].count("ERROR") == 1
        assert opened.get_node("run:R") is not None
        assert_whole(ledger, frames)


@LEVELS
async def test_a_commit_that_fails_keeps_neither_and_the_run_still_ends(
    tmp_path: Path, durability: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    with graph(tmp_path, durability) as opened:
        loop, ledger = make(opened)
        real = SqliteDatabase.commit
        failed: list[bool] = []

        def commit(self: SqliteDatabase) -> None:
            rows = opened.store.log.read("run:R", after=0)
            if not failed and any(row.type == "run.closed" for row in rows):
                failed.append(True)
                raise OSError("torn")
            real(self)

        monkeypatch.setattr(SqliteDatabase, "commit", commit)
        frames = await run(loop)
        monkeypatch.undo()

        assert failed
        assert loop.result is not None
        assert loop.result.status == "SUCCESS"
        assert opened.get_node("run:R") is None
        assert [frame.type for frame in frames].count("ERROR") == 1
        assert_whole(ledger, frames)
