"""Records the ledgers of this folder: scripted runs, virtual time, the same bytes every time."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from agentloop import (
    Frame,
    JsonLinesLedgerStore,
    ManualClock,
    MemoryLedgerStore,
    RunFile,
    ScriptedAdapter,
    ScriptedProvider,
    Tool,
    create_agent_loop,
    create_default_evaluator_parser,
    create_looping_agent_loop,
    delegate,
    run,
)
from agentloop._canonical import decode, encode
from agentloop.determinism import Mulberry32, SequentialIds
from agentloop.ledger.recorder import LEDGER_VERSION
from agentloop.orchestrator.agent import OrchestratedAgent
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.providers import ChunkedProvider
from agentloop.orchestrator.registry import ToolRegistry
from agentloop.ports import LedgerEntry

FOLDER = Path(__file__).parent
N: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def verdict(status: str, evidence: str, updates: object = None) -> str:
    return encode({"status": status, "evidence": evidence, "symbolicUpdates": updates or []}).decode()


def asks(name: str, **arguments: Any) -> Frame:
    return Frame("TOOL_CALL", {"id": f"ask-{name}", "name": name, "arguments": arguments})


def tools() -> list[Tool]:
    async def write(n: int) -> str:
        return f"wrote {n}"

    async def read(n: int) -> str:
        return "x" * 2_000 if n == 9 else f"read {n}"

    return [
        Tool(name="write", handler=write, schema=N),
        Tool(name="read", handler=read, schema=N, read_only=True),
    ]


def loop_options(clock: ManualClock, agent: Any, verdicts: list[Any]) -> dict[str, Any]:
    return {
        "agent_adapter": agent if hasattr(agent, "turn") else ScriptedAdapter(agent),
        "evaluator_adapter": ScriptedAdapter(verdicts),
        "build_agent_prompt": lambda ctx: f"Do it, cycle {ctx.iteration}. " + "Background. " * 100,
        "build_evaluator_prompt": lambda ctx, history: f"Judge it: {len(history)}.",
        "parse_evaluator_output": create_default_evaluator_parser(),
        "tool_adapters": {tool.name: tool for tool in tools()},
        "clock": clock,
    }


def provider(clock: ManualClock, *turns: dict[str, Any], characters: int | None = None) -> Any:
    scripted = ScriptedProvider(turns, clock=clock)
    return scripted if characters is None else ChunkedProvider(scripted, characters=characters)


def calls(*named: tuple[str, int], say: str = "", **more: Any) -> dict[str, Any]:
    return {"say": say, "callTools": [{"name": name, "args": {"n": n}} for name, n in named], **more}


def failure(error_class: str, code: str) -> dict[str, Any]:
    return {"failWith": {"class": error_class, "code": code, "message": f"a {error_class} failure"}}


async def loops(store: MemoryLedgerStore) -> None:
    """Runs of the agent-evaluator loop: judged, checked, aborted by its limit, with an inner run."""
    clock = ManualClock()
    update = [{"name": "seen", "value": [1, "é"]}, {"name": "old", "op": "retract"}]
    agent = [[asks("read", n=1), "looked"], [asks("write", n=2), asks("nothing"), "wrote"], "done"]
    judged = [
        verdict("RUNNING", "not yet", update),
        "prose",
        verdict("RUNNING", "more"),
        verdict("SUCCESS", "ok"),
    ]
    await create_agent_loop(
        **loop_options(clock, agent, judged), initial_symbolics={"old": 1}, evaluator_parse_retries=1,
        forward_frames="*", ledger=store, run_id="judged", node={"id": "n"}, labels={"by": "recording"},
    ).run()  # fmt: skip
    await create_agent_loop(
        **loop_options(clock, ["one", "two", "three"], [verdict("FAILURE", "bad")]), max_retries=1,
        checks_list=["symbolic:ready"], deterministic_checks=lambda names, trace: (False, "not ready"),
        ledger=store, run_id="checked",
    ).run()  # fmt: skip
    await create_agent_loop(
        **loop_options(clock, ["one", "two"], [verdict("RUNNING", "more")] * 2), max_iterations=2,
        ledger=store, run_id="limited",
    ).run()  # fmt: skip
    inner = OrchestratedAgent(
        provider(clock, calls(("write", 1), say="working"), {"say": "finished"}),
        ledger=store,
        deps=Deps(clock=clock, rng=Mulberry32("test"), ids=SequentialIds()),
    )
    await create_agent_loop(
        **loop_options(clock, inner, [verdict("SUCCESS", "ok")]), ledger=store, run_id="inner"
    ).run()


async def loopings(store: MemoryLedgerStore) -> None:
    """A looping run over three nodes, the second of which fails."""
    options = loop_options(
        ManualClock(),
        ["a1", "a2", "b1", "c1"],
        [verdict("RUNNING", "a"), verdict("SUCCESS", "a"), verdict("FAILURE", "b"), verdict("SUCCESS", "c")],
    )
    await create_looping_agent_loop(
        **options, node_provider=[{"id": "a"}, {"id": "b"}, {"id": "c"}], max_iterations=5,
        should_continue=lambda result, index: True, ledger=store, run_id="looping",
    ).run()  # fmt: skip


async def orchestrated(store: MemoryLedgerStore) -> RunFile:
    """Runs of the orchestrator: answered, streamed, halted, failed. Returns the first one's file."""
    clock = ManualClock()

    async def made(run_id: str, given: Any, *more: Tool, **config: Any) -> RunFile:
        deps = Deps(clock=clock, rng=Mulberry32("test"), ids=SequentialIds())
        result = await run(
            "the goal", provider=given, tools=ToolRegistry([*tools(), *more]), ledger=store, run_id=run_id, deps=deps,
            config=config,
        )  # fmt: skip
        return result.ledger

    turns = [
        calls(("read", 1), ("read", 9), say="let me look"),
        failure("transient", "model.timeout"),
        calls(("write", 2), ("nope", 3), waitMs=40),
        {"say": " "},
        failure("correctable", "model.bad_tool_args"),
        {"say": "the answer"},
    ]
    first = await made("answered", provider(clock, *turns), budget={"maxConsecutiveFailures": 9})
    await made("streamed", provider(clock, *turns[:3], turns[-1], characters=4), max_result_tokens=100)
    await made("halted", provider(clock, *[calls(("read", 1))] * 3), budget={"maxSteps": 2})
    await made("failed", provider(clock, calls(("write", 1)), failure("fatal", "auth.invalid_key")))
    handing = delegate(
        "hand", description="Hands over.", tools=tools(),
        provider=lambda: provider(clock, calls(("write", 1)), {"say": "inner answer"}),
    )  # fmt: skip
    asking = {"say": "", "callTools": [{"name": "hand", "args": {"goal": "do a part"}}]}
    await made("delegating", provider(clock, asking, {"say": "the answer"}), handing)
    return first


def of_the_first_version(file: RunFile) -> bytes:
    """Return a file as its first version would have written it: nothing that came later."""
    data: dict[str, Any] = {**decode(file.serialise()), "version": 1}
    budget = (
        "maxSteps", "maxToolCalls", "maxTotalTokens", "maxWallClockMs", "maxConsecutiveFailures",
        "maxModelAttempts", "maxToolAttempts",
    )  # fmt: skip
    data["config"] = {
        "budget": {name: data["config"]["budget"][name] for name in budget},
        "retry": data["config"]["retry"],
    }
    later = ("modelInvocations", "budgetOverrun")
    data["usage"] = {name: count for name, count in data["usage"].items() if name not in later}
    steps = [step for step in data["entries"] if step["event"]["type"] not in ("model.frame", "tool.started")]
    for number, step in enumerate(steps, 1):
        step["seq"] = number
        for result in step["event"].get("results", ()):
            result.pop("stepId", None)
            result.setdefault("durationMs", 0)
            result.setdefault("attempts", 1)
    return encode({**data, "entries": steps})


async def record(folder: Path) -> RunFile:
    # In memory first: virtual time passes while a thread writes to a disk.
    made = MemoryLedgerStore()
    await loops(made)
    await loopings(made)
    first = await orchestrated(made)
    with JsonLinesLedgerStore(folder) as store:
        for summary in made.runs():
            entries = list(made.read(summary.run))
            store.append(summary.run, entries, expected=0, sync=True, blobs=_blobs(made, entries))
    return first


def _blobs(store: MemoryLedgerStore, entries: list[LedgerEntry]) -> dict[str, bytes]:
    digests = {name for entry in entries for name in re.findall(r"[0-9a-f]{64}", entry.body.decode())}
    return {digest: blob for digest in digests if (blob := store.blob(digest)) is not None}


def main() -> None:
    folder = FOLDER / f"version-{LEDGER_VERSION}"
    if folder.exists():
        sys.exit(f"{folder} is there: what was recorded is never written again")
    first = anyio.run(partial(record, folder))
    (folder / "answered.file.json").write_bytes(first.serialise())
    if LEDGER_VERSION == 2:
        (FOLDER / "file-1.json").write_bytes(of_the_first_version(first))


if __name__ == "__main__":
    main()
