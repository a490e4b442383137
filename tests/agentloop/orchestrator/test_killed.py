"""A process that is killed in the middle of a call; another one goes on from the files it left."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import anyio
import pytest

from agentloop import JsonLinesLedgerStore, Orchestrator, RunLedger, Tool, replay, resume
from agentloop.orchestrator.providers import ScriptedProvider
from tests.agentloop.orchestrator.scenes import A, T

pytestmark = pytest.mark.anyio

PROGRAM = """
import os, signal, sys
from pathlib import Path

import anyio

from agentloop import JsonLinesLedgerStore, ScriptedProvider, Tool, run

folder = Path(sys.argv[1])

def write(q: str) -> str:
    with open(folder / "written.txt", "a") as file:
        file.write(q)
    if q == "b":
        os.kill(os.getpid(), signal.SIGKILL)
    return "written " + q

def turn(q):
    return {"say": "", "callTools": [{"name": "write", "args": {"q": q}}]}

turns = [turn("a"), turn("b"), turn("c"), {"say": "done"}]
store = JsonLinesLedgerStore(folder / "runs")

async def main():
    tools = [Tool(name="write", handler=write)]
    await run("g", provider=ScriptedProvider(turns), tools=tools, ledger=store, run_id="r")

anyio.run(main)
"""


async def test_f4_a_killed_run_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        done = await anyio.run_process([sys.executable, "-c", PROGRAM, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    written = tmp_path / "written.txt"
    assert written.read_text() == "ab"
    store = JsonLinesLedgerStore(tmp_path / "runs")
    assert RunLedger(store, "r").closed is None

    async def write(q: str) -> str:
        written.write_text(written.read_text() + q)
        return f"written {q}"

    turns = [T("write", args={"q": q}) for q in "abc"]
    loop = resume(
        store, "r", provider=ScriptedProvider([*turns, A()]), tools=[Tool(name="write", handler=write)]
    )
    assert isinstance(loop, Orchestrator)
    result = await loop.run()
    assert written.read_text() == "abc"
    assert [(use.ok, use.error_code) for use in result.ledger.tool_calls] == [
        (True, None),
        (False, "tool.unknown_outcome"),
        (True, None),
    ]
    assert result.outcome.status == "completed"
    assert replay(store, "r").ok
