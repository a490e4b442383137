"""Runs each driver in processes that are killed around every append to the ledger, and resumes it.

``python -m tests.integration.run_killer DRIVER FOLDER`` says one line of JSON for each kill: where
it was, which writing calls were made before it and after, and how the resumed run ended.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal

import anyio

from agentloop import (
    Frame,
    JsonLinesLedgerStore,
    RunLedger,
    RunNotFound,
    ScriptedAdapter,
    ScriptedProvider,
    Tool,
    create_agent_loop,
    create_default_evaluator_parser,
    create_looping_agent_loop,
    delegate,
    replay,
    resume,
    run,
)
from agentloop._canonical import encode_text

When = Literal["before", "after"]
N: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
#: Writing calls of every driver's script.
WRITES = (1, 2)


class KillingStore(JsonLinesLedgerStore):
    """Kills its process before or after an append of that number."""

    def __init__(self, folder: Path, at: int, when: When) -> None:
        super().__init__(folder)
        self._left, self._when = at, when

    def append(self, run: str, entries: Any, /, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        head = super().append(run, entries, **options)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return head


def tools(folder: Path) -> list[Tool]:
    async def write(n: int) -> str:
        file = os.open(folder / "done.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{n}\n".encode())
        os.close(file)
        return f"wrote {n}"

    async def read(n: int) -> str:
        return f"read {n}"

    return [
        Tool(name="write", handler=write, schema=N),
        Tool(name="read", handler=read, schema=N, read_only=True),
    ]


def ask(name: str, n: int) -> Frame:
    return Frame("TOOL_CALL", {"id": f"k{n}", "name": name, "arguments": {"n": n}})


def call(name: str, *numbers: int, **args: Any) -> dict[str, Any]:
    asked = [{"name": name, "args": {"n": n}} for n in numbers] or [{"name": name, "args": args}]
    return {"say": "", "callTools": asked}


def loop_options(folder: Path, *verdicts: str) -> dict[str, Any]:
    return {
        "agent_adapter": ScriptedAdapter(
            [[ask("write", 1), "one"], [ask("write", 2), ask("read", 3), "two"]]
        ),
        "evaluator_adapter": ScriptedAdapter([f'{{"status":"{verdict}"}}' for verdict in verdicts]),
        "build_agent_prompt": lambda ctx: "go",
        "build_evaluator_prompt": lambda ctx, history: "judge",
        "parse_evaluator_output": create_default_evaluator_parser(),
        "tool_adapters": {tool.name: tool for tool in tools(folder)},
    }


def looping_options(folder: Path) -> dict[str, Any]:
    return {
        **loop_options(folder, "SUCCESS", "SUCCESS"),
        "node_provider": [{"id": "a"}, {"id": "b"}],
        "should_continue": lambda result, index: True,
    }


def run_options(folder: Path) -> dict[str, Any]:
    turns = [call("write", 1), {"failWith": {"class": "correctable", "code": "a.b", "message": "no"}}]
    turns += [call("write", 2), call("read", 3), {"say": "done"}]
    return {"provider": ScriptedProvider(turns), "tools": tools(folder)}


def delegating_options(folder: Path) -> dict[str, Any]:
    inner = [call("write", 1), call("write", 2), {"say": "inner"}]
    handing = delegate("hand", description="d", tools=tools(folder), provider=lambda: ScriptedProvider(inner))
    return {"provider": ScriptedProvider([call("hand", goal="g"), {"say": "done"}]), "tools": [handing]}


async def drive_run(store: JsonLinesLedgerStore, options: dict[str, Any]) -> str:
    return (await run("goal", ledger=store, run_id="r", **options)).outcome.status


async def drive_loop(store: JsonLinesLedgerStore, options: dict[str, Any]) -> str:
    return str((await create_agent_loop(**options, ledger=store, run_id="r").run()).status)


async def drive_looping(store: JsonLinesLedgerStore, options: dict[str, Any]) -> str:
    return str((await create_looping_agent_loop(**options, ledger=store, run_id="r").run()).status)


DRIVERS: dict[str, tuple[Callable[..., Any], Callable[[Path], dict[str, Any]]]] = {
    "loop": (drive_loop, lambda folder: loop_options(folder, "RUNNING", "SUCCESS")),
    "looping": (drive_looping, looping_options),
    "orchestrator": (drive_run, run_options),
    "delegating": (drive_run, delegating_options),
}


def in_a_process(work: Callable[[], object]) -> int:
    """Do something in a process of its own; return how that ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def writes(folder: Path) -> list[int]:
    path = folder / "done.txt"
    return [*map(int, path.read_text().split())] if path.exists() else []


def unknown(store: JsonLinesLedgerStore) -> list[int]:
    """Return the writing calls of which the record says that nobody knows what they did."""
    found = []
    for summary in store.runs():
        begun: dict[str, int] = {}
        for entry in RunLedger(store, summary.run).entries():
            data = entry.data
            if entry.kind == "fact.tool_started":
                called = data["call"]
                if called["name"] == "write":
                    arguments = called.get("arguments") or called.get("args")
                    begun[data.get("step") or data["stepId"]] = arguments["n"]
            elif entry.kind == "fact.tool_result":
                error: Any = data["result"].get("error")
                code = error.get("code") if isinstance(error, dict) else error
                # A turn that is asked for again gets the same answer once more, for a call never begun.
                if code in ("unknown_outcome", "tool.unknown_outcome") and data["step"] in begun:
                    found.append(begun[data["step"]])
    return found


def go_on(driver: str, folder: Path) -> dict[str, Any]:
    """Resume the run to its end and tell about it."""
    told: dict[str, Any] = {"before": writes(folder)}
    store = JsonLinesLedgerStore(folder / "runs")

    async def main() -> None:
        try:
            resumed: Any = resume(store, "r", **DRIVERS[driver][1](folder))
        except RunNotFound:
            told["status"] = "nothing on record"
            return
        result = await resumed.run()
        told["status"] = result.outcome.status if hasattr(result, "outcome") else str(result.status)
        told["replays"] = replay(store, "r").ok

    anyio.run(main)
    return {**told, "after": writes(folder), "unknown": unknown(store)}


def kills(driver: str, root: Path) -> Iterator[dict[str, Any]]:
    """Kill the driver around each of its appends, resume it, and tell about each."""
    drive, options = DRIVERS[driver]
    for number in count(1):
        for when in ("before", "after"):
            folder = root / f"{number}-{when}"
            folder.mkdir()

            def begin(folder: Path = folder, number: int = number, when: Any = when) -> None:
                store = KillingStore(folder / "runs", number, when)
                anyio.run(drive, store, options(folder))

            ended = in_a_process(begin)
            if ended == 0:
                return
            assert ended == -signal.SIGKILL, ended

            def tell(folder: Path = folder, where: str = f"{when} append {number}") -> None:
                sys.stdout.write(encode_text({"where": where, **go_on(driver, folder)}) + "\n")

            yield {"ended": in_a_process(tell)}


if __name__ == "__main__":
    for done in kills(sys.argv[1], Path(sys.argv[2])):
        if done["ended"] != 0:
            sys.exit("a resumed run failed")
