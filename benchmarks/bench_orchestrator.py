"""The orchestrator: one step of its reducer (O1), its growth (O2), replays (O3), whole runs (O4, O5), arguments (A2).

    python benchmarks/bench_orchestrator.py [--quick]

A turn is a window, a reply with a call, its result: five steps. The floor of O1 is one frozen
struct replaced by another, as every step does at least once. That of O3 is reading the same
entries, chain and JSON checked, without replaying them. That of A2 is the library's kept validator.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from jsonschema import Draft202012Validator

from agentloop import (
    ArgumentSchema,
    ManualClock,
    MemoryLedgerStore,
    Message,
    Mulberry32,
    RunLedger,
    SequentialIds,
    Tool,
    ToolCall,
    replay,
    run,
)
from agentloop.orchestrator.config import Budget, RunConfig
from agentloop.orchestrator.events import (
    ContextAssembled,
    Event,
    ModelSucceeded,
    RunStarted,
    ToolExecution,
    ToolsCompleted,
)
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.providers import ScriptedProvider
from agentloop.orchestrator.reducer import reduce
from agentloop.orchestrator.state import RunState
from agentloop.ports import AssemblyRequest, Context, TokenUsage
from benchmarks import harness

STEPS_A_TURN = 5
FREE = RunConfig(
    budget=Budget(max_steps=None, max_tool_calls=None, max_total_tokens=None, max_wall_clock_ms=None)
)


def turn(number: int) -> list[Event]:
    """Return the events from outside of one turn."""
    call = ToolCall(id=f"c{number}", name="search", arguments={"q": "x"})
    usage = TokenUsage(prompt_tokens=100, completion_tokens=20)
    message = Message(role="assistant", content="let me look", tool_calls=(call,))
    return [
        ContextAssembled(at=number, context=Context(messages=(message,), tokens=10)),
        ModelSucceeded(at=number, message=message, usage=usage, stop_reason="tool_use"),
        ToolsCompleted(at=number, results=(ToolExecution(call=call, ok=True, content="found"),)),
    ]


def walk(state: RunState, turns: int) -> RunState:
    """Reduce that many turns, emitted events included."""
    waiting: deque[Event] = deque()
    for number in range(turns):
        waiting.extend(turn(number))
        while waiting:
            transition = reduce(state, waiting.popleft(), FREE)
            state = transition.state
            waiting.extendleft(reversed(transition.emit))
    return state


def reducer(turns: int) -> None:
    start = reduce(RunState.initial("r", "g", 0), RunStarted(at=0, goal="g"), FREE).state
    late = walk(start, 10_000 // STEPS_A_TURN)
    steps = turns * STEPS_A_TURN

    def floor() -> None:
        state = start
        for number in range(steps):
            state = msgspec.structs.replace(state, now=number, step=number)

    us = harness.measure(
        {"early": lambda: walk(start, turns), "late": lambda: walk(late, turns), "floor": floor}, n=steps
    )
    harness.report(
        "O1", "one step of the reducer, its events made too", us["early"], "us", floor=us["floor"], n=steps,
        must=harness.bar("<= 20 us", us["early"] <= 20),
    )  # fmt: skip
    growth = us["late"] / us["early"]
    harness.report(
        "O2", "steps after 10,000 steps over early ones", growth, "ratio", n=steps,
        must=harness.bar("<= 1.1", growth <= 1.1),
    )  # fmt: skip


class LastMessages:
    """Shows a model the newest messages, so that a window does not grow with its run."""

    async def assemble(self, request: AssemblyRequest, /) -> Context:
        return Context(messages=tuple(request.transcript[-6:]), tokens=100)


async def found(q: str) -> str:
    return f"found {q}"


SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string", "minLength": 1}, "limit": {"type": "integer", "minimum": 1}},
    "required": ["q"],
    "additionalProperties": False,
}


async def whole(turns: int, store: MemoryLedgerStore) -> str:
    search = {"say": "let me look", "callTools": [{"name": "search", "args": {"q": "x"}}]}
    provider = ScriptedProvider([*[search] * turns, {"say": "done"}])
    result = await run(
        "g",
        provider=provider,
        tools=[Tool(name="search", handler=found, schema=SCHEMA, read_only=True)],
        assembler=LastMessages(),
        config=FREE,
        deps=Deps(clock=ManualClock(), rng=Mulberry32(1), ids=SequentialIds()),
        ledger=store,
        durability="process",
    )
    assert result.outcome.status == "completed"
    return result.run_id


def runs(turns: int) -> None:
    stores: list[MemoryLedgerStore] = []

    async def recorded() -> None:
        stores.append(MemoryLedgerStore())
        await whole(turns, stores[-1])

    us = harness.measure({"run": harness.timed(recorded)}, n=turns)
    store, run_id = stores[-1], "run-0001"
    entries = sum(1 for _ in store.read(run_id))
    harness.report(
        "O4", "one turn of a run: window, call, result, five steps on record", us["run"], "us", n=turns,
        must=harness.bar("<= 2000 us", us["run"] <= 2_000), entries_a_turn=entries / turns,
    )  # fmt: skip

    async def longer() -> None:
        await whole(10 * turns, MemoryLedgerStore())

    late = harness.measure({"run": harness.timed(longer)}, n=10 * turns, rounds=3)["run"]
    harness.report(
        "O5", "a turn of a run ten times as long over one of this run", late / us["run"], "ratio", n=10 * turns,
        must=harness.bar("<= 1.3", late <= 1.3 * us["run"]),
    )  # fmt: skip

    def read() -> None:
        for _ in RunLedger(store, run_id).entries():
            pass

    def replayed() -> None:
        assert replay(store, run_id).ok

    us = harness.measure({"replay": replayed, "floor": read}, n=entries)
    rate = 1e6 / us["replay"]
    harness.report(
        "O3", "replaying a recorded run", rate, "entries/s", n=entries, floor=1e6 / us["floor"],
        must=harness.bar(">= 20,000 entries/s", rate >= 20_000),
    )  # fmt: skip


def arguments(n: int) -> None:
    value: dict[str, Any] = {"q": "caches", "limit": 5}
    compiled, general = ArgumentSchema(SCHEMA), ArgumentSchema({**SCHEMA, "$defs": {}})
    kept = Draft202012Validator(SCHEMA)

    def checked(schema: ArgumentSchema) -> Any:
        def work() -> None:
            for _ in range(n):
                assert not schema.problems(value)

        return work

    def by_library() -> None:
        for _ in range(n):
            assert not list(kept.iter_errors(value))

    us = harness.measure(
        {"compiled": checked(compiled), "general": checked(general), "floor": by_library}, n=n
    )
    harness.report(
        "A2", "check a call's arguments, schema of the common kind", us["compiled"], "us",
        floor=us["floor"], n=n,
        must=harness.bar('<= 1.1x "validator kept"', us["compiled"] <= 1.1 * us["floor"]),
        moonshot=harness.bar("<= 5 us", us["compiled"] <= 5),
    )  # fmt: skip
    harness.report(
        "A2", "check a call's arguments, any schema, every keyword counted", us["general"], "us",
        floor=us["floor"], n=n, must=harness.bar('<= 1.5x "validator kept"', us["general"] <= 1.5 * us["floor"]),
    )  # fmt: skip


def main() -> None:
    quick = harness.quick()
    reducer(200 if quick else 2_000)
    runs(50 if quick else 500)
    arguments(100 if quick else 2_000)


if __name__ == "__main__":
    main()
