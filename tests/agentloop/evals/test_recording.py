"""Any run that has ended becomes a case that goes the same way, from data alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentloop.determinism import ManualClock
from agentloop.errors import RunNotFound, TaskError
from agentloop.evals.files import load_case, load_cases, read_case
from agentloop.evals.recording import case_of_run, view_run
from agentloop.evals.running import play_case, run_case
from agentloop.factories import create_agent_loop, create_looping_agent_loop
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.providers import ChunkedProvider, ScriptedProvider
from agentloop.orchestrator.runtime import run
from agentloop.outcome import Err, correctable
from agentloop.tools import Tool
from tests.agentloop.evals.test_loops import ASK, SAY, loop_case, verdict
from tests.agentloop.loop.scenes import loop_options, yes
from tests.agentloop.orchestrator.test_delegation import World as Delegating
from tests.evals.suite import suite

pytestmark = pytest.mark.anyio


async def again(store: MemoryLedgerStore, run_id: str) -> Any:
    """Make a case of a run, through its file, and run it."""
    made = await case_of_run(store, run_id, id="again")
    assert read_case(made.serialise()) == made
    result = await run_case(read_case(made.serialise()).case(), twice=True)
    assert [grade for grade in result.grades if not grade.passed] == []
    assert (result.error, result.passed, result.deterministic) == (None, True, True)
    assert result.fingerprint2 == view_run(store, run_id).fingerprint2
    return made


@pytest.mark.parametrize("name", [one.id for one in suite.cases])
async def test_our_own_cases_recorded_go_the_same_way(name: str) -> None:
    store = MemoryLedgerStore()
    given = next(one for one in suite.cases if one.id == name)
    first = await play_case(given, store=store)
    made = await again(store, first.run_id)
    second = await play_case(made.case())
    assert second.usage == first.usage
    assert second.context_reports == first.context_reports
    assert second.output == first.output


async def test_a_streamed_run_with_real_time_and_real_tools() -> None:
    store = MemoryLedgerStore()

    def refuse(path: str) -> Any:
        return Err(correctable("disk.full", f"no room for {path}"))

    async def read(path: str) -> dict[str, str]:
        return {"path": path}

    tools = [Tool(name="write", handler=refuse), Tool(name="read", handler=read, read_only=True)]
    calls = [{"name": "read", "args": {"path": "a"}}, {"name": "read", "args": {"path": "b"}}]
    turns: list[dict[str, Any]] = [
        {"say": "first", "callTools": [{"name": "write", "args": {"path": "a"}}]},
        {"say": "then", "callTools": calls},
        {"say": "all read"},
    ]
    result = await run(
        "read", provider=ChunkedProvider(ScriptedProvider(turns)), tools=tools, ledger=store, run_id="real"
    )
    assert result.ledger.frames
    made = await again(store, "real")
    assert made.tools == {"write": False, "read": True}
    assert [one.error is None for one in made.results] == [False, True, True]


async def test_a_delegating_run_and_its_inner_run_become_a_case_each() -> None:
    world, store = Delegating(), MemoryLedgerStore()
    await world.run(store)
    outer, inner = await again(store, "r"), await again(store, "r/tool-0001")
    assert [result.content for result in outer.results] == ["inner answer"]
    assert [result.name for result in inner.results] == ["write", "write"]


async def test_a_limit_that_inner_runs_used_up_makes_no_case() -> None:
    ask = {"say": "", "callTools": [{"name": "research", "args": {"goal": "find it"}}]}
    world, store = Delegating(outer=[ask, ask, {"say": "done"}]), MemoryLedgerStore()
    world.config = {"budget": {"maxToolCalls": 3}}
    assert (await world.run(store)).outcome.status == "halted"
    with pytest.raises(TaskError, match="does not go the same way again: step"):
        await case_of_run(store, "r")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"evaluator": [verdict("RUNNING"), verdict("SUCCESS")], "script": [ASK, SAY, SAY]},
        {"evaluator": [verdict("FAILURE")]},
        {"evaluator": [verdict("RUNNING")], "config": {"max_iterations": 1}},
        {"script": [{"failWith": {"class": "fatal", "code": "auth.invalid_key", "message": "no"}}]},
        {
            "checks": ["searched"],
            "judge": lambda: lambda names, trace: (bool(trace), "searched"),
            "script": [SAY, ASK, SAY],
        },
    ],
)
async def test_loops_become_cases(change: Any) -> None:
    store = MemoryLedgerStore()
    first = await play_case(loop_case(**change), store=store)
    made = await again(store, first.run_id)
    second = await play_case(made.case())
    assert (second.usage, second.output) == (first.usage, first.output)
    assert second.tool_calls == first.tool_calls


OUT_OF_TIME: dict[str, tuple[list[dict[str, Any]], int, str]] = {
    "model": ([{"say": "late", "waitMs": 5_000}], 0, "model->halted"),
    "streamed": ([SAY | {"waitMs": 5_000}], 0, "model->halted"),
    "tool": ([ASK, SAY], 5_000, "tools->halted"),
    "the third tool": ([ASK, ASK, ASK, SAY], 400, "tools->halted"),
    "between": ([ASK | {"waitMs": 600}, SAY], 400, "observe->halted"),
    "wait": (
        [{"failWith": {"class": "transient", "code": "m.x", "message": "x"}}, SAY],
        0,
        "backoff->halted",
    ),
}


@pytest.mark.parametrize("name", OUT_OF_TIME)
async def test_runs_that_were_out_of_time_are_so_again(name: str) -> None:
    turns, takes_ms, last = OUT_OF_TIME[name]
    store, clock = MemoryLedgerStore(), ManualClock()

    async def search(**arguments: Any) -> str:
        await clock.sleep_ms(takes_ms)
        return "found"

    provider: Any = ScriptedProvider(turns, clock=clock)
    result = await run(
        "go",
        provider=ChunkedProvider(provider) if name == "streamed" else provider,
        tools=[Tool(name="search", handler=search, read_only=True)],
        ledger=store,
        run_id="late",
        deps=Deps(clock=clock),
        config={"budget": {"maxWallClockMs": 200 if name == "wait" else 1_000}},
    )
    assert result.outcome.error is not None
    assert (result.outcome.error.code, result.ledger.phase_trace[-1]) == ("budget.wall_clock", last)
    await again(store, "late")


async def test_of_calls_that_were_cut_off_those_that_came_back_have_their_results() -> None:
    store, clock = MemoryLedgerStore(), ManualClock()

    async def write(ms: int) -> str:
        await clock.sleep_ms(ms)
        return "written"

    calls = [{"name": "write", "args": {"ms": 10}}, {"name": "write", "args": {"ms": 9_000}}]
    await run(
        "go",
        provider=ScriptedProvider([{"say": "", "callTools": calls}]),
        tools=[Tool(name="write", handler=write)],
        ledger=store,
        run_id="late",
        deps=Deps(clock=clock),
        config={"budget": {"maxWallClockMs": 1_000}},
    )
    made = await again(store, "late")
    assert [(one.content, one.wait_ms) for one in made.results] == [("written", 10), ("", 1_001)]


async def test_a_loop_whose_turn_takes_too_long_does_so_again() -> None:
    store = MemoryLedgerStore()

    async def hang(prompt: Any, ctx: Any) -> str:
        await anyio.sleep_forever()
        return ""

    loop = create_agent_loop(
        **loop_options(hang, lambda prompt, ctx: ""), ledger=store, run_id="late", turn_timeout_ms=1
    )
    await loop.run()
    view = view_run(store, "late")
    assert (view.status, view.error_code) == ("failed", "loop.error")
    made = await again(store, "late")
    assert "failWith" in made.script[0]


async def test_an_inner_run_of_a_looping_run_becomes_a_case_and_the_outer_one_does_not() -> None:
    store = MemoryLedgerStore()
    answers = iter(["first", "second"])
    loop = create_looping_agent_loop(
        **loop_options(lambda prompt, ctx: next(answers), lambda prompt, ctx: yes()),
        should_continue=lambda result, index: index == 0,
        ledger=store,
        run_id="outer",
    )
    await loop.run()
    for number, said in ((1, "first"), (2, "second")):
        made = await case_of_run(store, f"outer/{number}")
        assert (made.id, made.subject, made.script[0]["say"]) == (f"outer-{number}", "loop", said)
        assert (await run_case(made.case(), twice=True)).passed
    with pytest.raises(TaskError, match="one loop or one orchestrated"):
        await case_of_run(store, "outer")


async def test_a_run_that_was_cancelled_is_refused() -> None:
    store, signal = MemoryLedgerStore(), anyio.Event()
    signal.set()
    await run("go", provider=ScriptedProvider([SAY]), ledger=store, run_id="cut", signal=signal)
    with pytest.raises(TaskError, match="from outside"):
        await case_of_run(store, "cut")


async def test_a_run_whose_way_no_script_can_bring_about_is_refused() -> None:
    class Broken:
        async def assemble(self, request: Any, /) -> Any:
            raise RuntimeError("no window")

    store = MemoryLedgerStore()
    await run("go", provider=ScriptedProvider([SAY]), ledger=store, run_id="odd", assembler=Broken())
    with pytest.raises(TaskError, match="same way again"):
        await case_of_run(store, "odd")
    with pytest.raises(RunNotFound):
        await case_of_run(store, "none")


GOOD: dict[str, Any] = {
    "version": 1,
    "id": "one",
    "goal": "go",
    "script": [{"say": "the answer"}],
    "graders": [{"grader": "output-contains", "args": ["answer"], "weight": 2}],
}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"graders": [{"grader": "os.system", "args": ["true"]}]},
        {"graders": [{"grader": "ends-as", "args": ["a", "b", "c"]}]},
        {"graders": [{"grader": "within-steps", "args": [1], "weight": -1}]},
        {"python": "module:function"},
        {"weight": -1},
        {"id": ""},
        {"script": 1},
    ],
)
async def test_a_file_that_is_no_case_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(GOOD))
    (loaded,) = load_cases(tmp_path).cases
    assert (await run_case(loaded)).passed
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(TaskError, match=r"one\.json"):
        load_case(path)


async def test_more_calls_than_were_recorded_get_an_error() -> None:
    calls = [{"name": "read", "args": {}}, {"name": "read", "args": {}}]
    told = GOOD | {
        "script": [{"callTools": calls}],
        "tools": {"read": True},
        "results": [{"name": "read", "content": "once"}],
    }
    played = await play_case(read_case(json.dumps(told)).case())
    # They are made at the same time: either may be the one that has an answer.
    assert {use.error_code for use in played.tool_calls} == {None, "tool.not_recorded"}
    assert played.status == "failed"


async def test_a_folder_without_cases_is_no_suite(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no cases"):
        load_cases(tmp_path)
    with pytest.raises(TaskError):
        load_case(tmp_path / "missing.json")
