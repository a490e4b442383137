"""An assembler as the prompt builder of a real run: what adapters see, what is on record, what the memory learns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import pytest

from agentloop import (
    AgentLoop,
    Frame,
    LoopResult,
    MemoryLedgerStore,
    ModelRequest,
    Prompt,
    RunLedger,
    RunOutcome,
    ScriptedAdapter,
    Tool,
    as_duplex,
    create_agent_loop,
    replay,
    resume,
)
from agentloop.context.assembler import create_assembler
from agentloop.context.config import ContextConfig, MemoryOptions
from agentloop.context.memory import InProcessMemory, MemoryRecord
from agentloop.context.packer import ContextBudget
from agentloop.context.prompts import context_prompt, frames_of, transcript_of
from agentloop.errors import AgentLoopConfigError
from agentloop.messages import Message, ToolCall
from agentloop.ports import AssemblyRequest, Context, Summary
from tests.agentloop.loop.scenes import call, loop_options, make_loop, more, only, play, yes

pytestmark = pytest.mark.anyio


class Bridge:
    strict = False

    def __init__(self) -> None:
        self.outcomes: list[RunOutcome] = []

    async def fact(self, name: str, value: Any, /, **how: Any) -> None:
        """No facts are looked at here."""

    async def record_outcome(self, outcome: RunOutcome, /) -> dict[str, Any]:
        self.outcomes.append(outcome)
        return {}


async def builder(total: int = 4_000, **options: Any) -> Any:
    store = InProcessMemory()
    await store.remember(MemoryRecord(id="m1", text="The tea is in the left drawer.", trust="person"))
    config = ContextConfig(
        budget=ContextBudget(total=total), system_prompt="You make tea.", memory=MemoryOptions(store=store)
    )
    return context_prompt(create_assembler(config), **{"goal": "Make tea.", **options})


def ended(loop: AgentLoop) -> LoopResult:
    assert loop.result is not None
    return loop.result


def look() -> Tool:
    return Tool(name="look", handler=lambda place: f"a {place}", read_only=True)


async def test_a_run_with_windows_is_recorded_replayed_and_told_to_the_memory() -> None:
    store, bridge, prompts = MemoryLedgerStore(), Bridge(), list[Prompt]()

    async def agent(prompt: Prompt, ctx: Any) -> AsyncGenerator[Any, Any]:
        prompts.append(prompt)
        if len(prompts) == 1:
            yield call("look", {"place": "drawer"})
        yield f"turn {len(prompts)}"

    loop = make_loop(
        agent,
        [more("no sugar yet"), yes()],
        build_agent_prompt=await builder(),
        tool_adapters={"look": look()},
        forward_frames=["TEXT", "CONTEXT"],
        graph=bridge,
        ledger=store,
        run_id="r",
    )
    frames = await play(loop)

    assert ended(loop).status == "SUCCESS"
    first, second = prompts
    assert "CONTEXT" not in {frame.type for frame in (*first, *second)}
    assert first[0].content == {"text": "You make tea.", "role": "system"}
    assert "The tea is in the left drawer." in first.text
    said = [(frame.type, frame.text) for frame in second[-3:]]
    assert said == [
        ("MESSAGES", 'You called: look({"place":"drawer"})\nlook answered: a drawer'),
        ("TEXT", "turn 1"),
        ("TEXT", "The evaluator says (RUNNING): no sugar yet"),
    ]
    assert bridge.outcomes[0].retrieval_ids == ("m1", "m1")
    windows = only(frames, "CONTEXT")
    assert [window["retrieval_ids"] for window in windows] == [["m1"], ["m1"]]
    assert windows[1]["report"]["used"] > windows[0]["report"]["used"]

    assert RunLedger(store, "r").verify().ok
    shown: list[Frame] = []
    report = replay(store, "r", on_frame=shown.append)
    assert report.ok, report.divergence
    assert shown == frames


async def test_a_run_that_was_cut_off_goes_on_with_the_window_it_had() -> None:
    whole, bridge = MemoryLedgerStore(), Bridge()

    async def run(store: MemoryLedgerStore, run_id: str | None, bridge: Bridge) -> Any:
        options = loop_options(
            [["one"], ["two"]],
            [more(), yes()],
            build_agent_prompt=await builder(),
            graph=bridge,
            ledger=store,
        )
        loop = (
            create_agent_loop(**options, run_id="r")
            if run_id is None
            else resume(store, run_id, **_without(options))
        )
        await play(loop)
        return loop.result

    result = await run(whole, None, bridge)
    entries = list(whole.read("r"))
    for cut in range(2, len(entries)):
        store, told = MemoryLedgerStore(), Bridge()
        store.append("r", entries[:cut], expected=0, sync=True, blobs=dict(whole._blobs))
        again = await run(store, "r", told)
        assert (again.status, again.agent_text) == (result.status, result.agent_text), cut
        if told.outcomes:
            assert told.outcomes[0].retrieval_ids == ("m1", "m1"), cut
        assert replay(store, "r").ok


def _without(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "ledger"}


async def test_a_model_is_asked_with_messages_of_their_roles() -> None:
    class Core:
        def __init__(self) -> None:
            self.requests: list[ModelRequest] = []

        async def stream(self, request: ModelRequest, /) -> AsyncGenerator[Frame, None]:
            self.requests.append(request)
            if len(self.requests) == 1:
                yield call("look", {"place": "drawer"}, id="c1")
            yield Frame("TEXT", {"text": "done"})
            yield Frame("DONE", {"finish_reason": "end_turn"})

    core = Core()
    agent = as_duplex(core)
    async with agent:
        loop = make_loop(
            agent,
            [more("not yet"), yes()],
            build_agent_prompt=await builder(),
            tool_adapters={"look": look()},
        )
        await play(loop)
    last = core.requests[-1]
    assert [message.role for message in last.messages] == [
        "system", "user", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    asks, answer = last.messages[3:5]
    assert asks.tool_calls[0].id == answer.call_id == "1.c1"
    assert answer.content == "a drawer"
    assert [tool.name for tool in last.tools] == ["look"]


async def test_a_window_stays_within_its_budget_however_long_the_run() -> None:
    loop = make_loop(
        [[f"turn {number} " + "word " * 200] for number in range(12)],
        [*[more("again")] * 11, yes()],
        build_agent_prompt=await builder(1_000),
        max_iterations=12,
        forward_frames=["CONTEXT"],
    )
    reports = [window["report"] for window in only(await play(loop), "CONTEXT")]
    assert len(reports) == 12
    assert all(report["used"] <= report["usable"] == 920 for report in reports)
    assert reports[-1]["droppedItems"] > 0


async def test_tools_are_described_for_an_agent_that_only_reads_text() -> None:
    seen: list[Prompt] = []

    async def agent(prompt: Prompt, ctx: Any) -> str:
        seen.append(prompt)
        return "done"

    loop = make_loop(
        agent, [yes()], build_agent_prompt=await builder(native_tools=False), tool_adapters={"look": look()}
    )
    await play(loop)
    assert "Tools you may call:\n\n- look" in seen[0].text


async def test_the_goal_is_the_nodes_or_a_function_or_missing() -> None:
    async def said(**options: Any) -> Any:
        prompts: list[Prompt] = []

        def agent(prompt: Prompt, ctx: Any) -> str:
            prompts.append(prompt)
            return "x"

        node = options.pop("node", None)
        loop = make_loop(agent, [yes()], node=node, build_agent_prompt=await builder(**options))
        await play(loop)
        return prompts[0].text if prompts else ended(loop).error

    assert "Boil eggs." in await said(goal=None, node={"id": "n", "goal": "Boil eggs."})
    assert "Node 7" in await said(goal=lambda ctx: f"Node {ctx.node}", node=7)
    error = await said(goal=None)
    assert isinstance(error, AgentLoopConfigError)
    assert "goal=" in str(error)


async def test_a_window_that_cannot_be_made_ends_the_run_with_its_reason() -> None:
    loop = make_loop(["never asked"], [yes()], build_agent_prompt=await builder(3))
    await play(loop)
    assert ended(loop).reason == "error"
    assert "system" in str(ended(loop).error)


async def test_a_summary_cannot_be_made_here() -> None:
    class Summarising:
        async def assemble(self, request: AssemblyRequest, /) -> Context | Summary:
            return Summary(text="short")

    loop = make_loop(["x"], [yes()], build_agent_prompt=context_prompt(Summarising(), goal="g"))
    await play(loop)
    assert isinstance(ended(loop).error, AgentLoopConfigError)


# ------------------------------------------------------------------------------ transcript


def entry(**values: Any) -> dict[str, Any]:
    empty = {"iteration": 1, "agent_text": "", "tool_calls": [], "tool_results": [], "checks": None}
    return {**empty, "evaluation": None, **values}


def result(**values: Any) -> dict[str, Any]:
    return {"call_id": "k1", "name": "run", "ok": True, "output": "", **values}


def contents(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages]


def test_what_checks_and_evaluator_said_is_told_to_the_agent() -> None:
    history = [
        entry(agent_text="one", checks={"all_passed": False, "evidence": "FAIL x"}),
        entry(agent_text="two", checks={"all_passed": True, "evidence": ""}),
        entry(agent_text="three", evaluation={"status": "RUNNING", "evidence": "more"}),
    ]
    assert contents(transcript_of("g", history, inbox=["hurry"])) == [
        "g", "one", "The checks did not pass:\nFAIL x", "two", "three", "The evaluator says (RUNNING): more",
        "A note from the person you work for: hurry",
    ]  # fmt: skip


def test_a_result_is_told_with_all_that_a_process_gave() -> None:
    results = [
        result(output="out", stdout="out", stderr="oops", exit_code=1, ok=False),
        result(output={"n": 1}, call_id="k2"),
    ]
    calls = [{"id": "k1", "name": "run", "arguments": {}}, {"id": "k2", "name": "run", "arguments": "{bad"}]
    said = transcript_of("g", [entry(tool_calls=calls, tool_results=results)])
    assert contents(said[2:]) == ["out\nstderr:\noops\nexit code: 1", '{"n":1}']
    assert [message.is_error for message in said[2:]] == [True, False]
    assert said[1].tool_calls[1].raw_arguments == "{bad"


def test_a_window_becomes_frames_in_its_order() -> None:
    asks = ToolCall(id="c", name="look", arguments={})
    messages = (
        Message(role="system", content="S"),
        Message(role="assistant", tool_calls=(asks,)),
        Message(role="tool", call_id="c", name="look", content="no", is_error=True),
        Message(role="user", content="u"),
    )
    context, system, exchange, last = frames_of(Context(messages=messages, tokens=3, retrieval_ids=("m",)))
    assert context == Frame("CONTEXT", {"report": None, "retrieval_ids": ["m"]})
    assert (system.content["role"], last.content["role"]) == ("system", "user")
    assert exchange.text == "You called: look({})\nlook answered with an error: no"
    assert [said["role"] for said in cast("list[dict[str, Any]]", exchange.content["messages"])] == [
        "assistant",
        "tool",
    ]


async def test_a_scripted_agent_takes_windows_too() -> None:
    loop = make_loop(ScriptedAdapter(["done"]), [yes()], build_agent_prompt=await builder())
    await play(loop)
    assert ended(loop).status == "SUCCESS"
