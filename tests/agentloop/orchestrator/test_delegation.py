"""Runs inside a call: what they may spend, how they are recorded, replayed and gone on with."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import msgspec
import pytest

from agentloop import (
    AgentLoopConfigError,
    ManualClock,
    MemoryLedgerStore,
    Orchestrator,
    RunLedger,
    RunResult,
    ScriptedProvider,
    SequentialIds,
    Tool,
    delegate,
    replay,
    replay_file,
    resume,
    run,
)
from agentloop.orchestrator.options import Deps
from tests.agentloop.loop.scenes import call, make_loop, play, yes
from tests.agentloop.orchestrator.scenes import A, F, T

pytestmark = pytest.mark.anyio

N: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def use(n: int) -> dict[str, Any]:
    return {"say": "", "callTools": [{"name": "write", "args": {"n": n}}]}


class World:
    """An outer run whose model delegates, and a tool of the inner one that counts its calls."""

    def __init__(
        self, *inner: dict[str, Any], outer: list[dict[str, Any]] | None = None, **options: Any
    ) -> None:
        self.inner, self.options = inner or (use(1), use(2), A("inner answer")), options
        self.outer = outer or [T("research", args={"goal": "find it"}, say="I ask"), A("outer answer")]
        self.done: Counter[int] = Counter()
        self.clock = ManualClock()
        self.config: dict[str, Any] = {}

    def tools(self) -> list[Tool]:
        async def write(n: int) -> str:
            self.done[n] += 1
            return f"wrote {n}"

        inner = Tool(name="write", handler=write, schema=N)
        return [
            delegate(
                "research", description="Finds things out.", tools=[inner],
                provider=lambda: ScriptedProvider(self.inner, clock=self.clock), **self.options,
            )
        ]  # fmt: skip

    def given(self) -> dict[str, Any]:
        provider = ScriptedProvider(self.outer, clock=self.clock)
        return {"provider": provider, "tools": self.tools(), "deps": Deps(clock=self.clock)}

    async def run(self, store: MemoryLedgerStore) -> RunResult:
        given = {**self.given(), "deps": Deps(clock=self.clock, ids=SequentialIds())}
        return await run("goal", ledger=store, run_id="r", seed="test", config=self.config, **given)


def executions(result: RunResult) -> list[Any]:
    return result.ledger.executions


async def test_s2_a_delegated_call_is_a_run_of_its_own_paid_by_the_outer_one() -> None:
    world, store = World(), MemoryLedgerStore()
    result = await world.run(store)
    assert (result.outcome.status, result.outcome.output) == ("completed", "outer answer")
    (execution,) = executions(result)
    assert (execution.ok, execution.content) == (True, "inner answer")
    (child,) = execution.children
    assert child.run == "r/tool-0001"
    closed = RunLedger(store, child.run).closed
    assert closed is not None
    assert (closed["usage"]["promptTokens"], closed["usage"]["completionTokens"]) == (
        child.usage.prompt_tokens,
        child.usage.completion_tokens,
    )
    assert RunLedger(store, child.run).verify().head == (child.entries, bytes.fromhex(child.hash))
    own = sum(
        msgspec.to_builtins(entry.event)["usage"]["promptTokens"]
        + msgspec.to_builtins(entry.event)["usage"]["completionTokens"]
        for entry in result.ledger.entries
        if entry.event.__struct_config__.tag == "model.succeeded"
    )
    usage = result.state.usage
    assert usage.total_tokens == own + child.usage.prompt_tokens + child.usage.completion_tokens
    assert usage.tool_calls == 1 + 2
    assert usage.model_calls == 2
    assert world.done == {1: 1, 2: 1}


async def test_s2_replay_descends_into_the_inner_run() -> None:
    store = MemoryLedgerStore()
    result = await World().run(store)
    report = replay(store, "r")
    assert report.ok, report
    assert [(child.run, child.ok) for child in report.children] == [("r/tool-0001", True)]
    assert replay_file(result.ledger).ok
    shortened = MemoryLedgerStore()
    for name in ("r", "r/tool-0001"):
        kept = list(store.read(name))[: None if name == "r" else -2]
        shortened.append(name, kept, expected=0, sync=True, blobs=store._blobs)
    assert not replay(shortened, "r").ok
    del shortened._runs["r/tool-0001"]
    assert not replay(shortened, "r").ok


@pytest.mark.parametrize(
    ("outer", "own", "expected"),
    [
        ({"maxTotalTokens": 2_000}, {}, {"maxTotalTokens": 0.5}),
        ({"maxTotalTokens": 2_000}, {"maxTotalTokens": 300}, {"maxTotalTokens": 300}),
        ({"maxTotalTokens": None}, {"maxTotalTokens": None}, {"maxTotalTokens": None}),
        ({"maxToolCalls": 3}, {}, {"maxToolCalls": 2}),
        ({"maxToolCalls": None}, {"maxToolCalls": 7}, {"maxToolCalls": 7}),
        ({"maxWallClockMs": 900}, {}, {"maxWallClockMs": 900 - 40}),
    ],
)
async def test_s2_an_inner_run_gets_no_more_than_is_left(
    outer: dict[str, Any], own: dict[str, Any], expected: dict[str, Any]
) -> None:
    world, store = World(A("ok"), config={"budget": own}), MemoryLedgerStore()
    world.outer[0]["waitMs"] = 40
    world.config = {"budget": outer}
    await world.run(store)
    limits = RunLedger(store, "r/tool-0001").opened["config"]["budget"]
    ((name, wanted),) = expected.items()
    if wanted == 0.5:
        wanted = (2_000 - _spent_before(store)) // 2
    assert limits[name] == wanted


def _spent_before(store: MemoryLedgerStore) -> int:
    ended = [entry.data for entry in RunLedger(store, "r").entries() if entry.kind == "fact.turn_ended"]
    return int(ended[0]["usage"]["promptTokens"] + ended[0]["usage"]["completionTokens"])


async def test_s2_the_calls_of_one_turn_share_what_is_left() -> None:
    both = {"say": "", "callTools": [{"name": "research", "args": {"goal": goal}} for goal in ("a", "b")]}
    world, store = World(A("x" * 400), outer=[both, A()]), MemoryLedgerStore()
    world.config = {"budget": {"maxTotalTokens": 2_000}}
    result = await world.run(store)
    first, second = [child for execution in executions(result) for child in execution.children]
    limits = [
        RunLedger(store, one.run).opened["config"]["budget"]["maxTotalTokens"] for one in (first, second)
    ]
    spent = first.usage.prompt_tokens + first.usage.completion_tokens
    left = 2_000 - _spent_before(store)
    assert limits == [left // 2, (left - spent) // 2]
    assert result.state.usage.budget_overrun == 0


async def test_s2_with_nothing_left_the_model_is_told_so() -> None:
    world, store = World(share=0.001), MemoryLedgerStore()
    world.config = {"budget": {"maxTotalTokens": 300}}
    result = await world.run(store)
    (execution,) = executions(result)
    assert execution.error.code == "delegate.no_budget"
    assert execution.children == ()
    assert result.outcome.status == "completed"


@pytest.mark.parametrize(
    ("inner", "config", "code", "said"),
    [
        ((F("fatal", "auth.invalid_key"),), {}, "delegate.failed", "a fatal failure"),
        ((use(1), use(2)), {"budget": {"maxSteps": 1}}, "delegate.halted", "1 model calls"),
        ((A(waitMs=700),), {"budget": {"maxWallClockMs": 500}}, "delegate.halted", "500"),
    ],
)
async def test_s2_an_inner_run_that_does_not_finish_is_something_the_model_reads(
    inner: Any, config: Any, code: str, said: str
) -> None:
    store = MemoryLedgerStore()
    result = await World(*inner, config=config).run(store)
    (execution,) = executions(result)
    assert (execution.ok, execution.error.error_class, execution.error.code) == (False, "correctable", code)
    assert said in execution.content
    assert execution.error.detail["run"] == "r/tool-0001"
    assert len(execution.children) == 1
    assert result.outcome.status == "completed"
    assert replay(store, "r").ok


async def test_s2_the_end_of_the_outer_run_ends_the_inner_one() -> None:
    world, store = World(A(waitMs=10_000)), MemoryLedgerStore()
    world.config = {"budget": {"maxWallClockMs": 60_000}}
    signal, results = anyio.Event(), list[RunResult]()

    async def drive() -> None:
        given = {**world.given(), "deps": Deps(clock=world.clock, ids=SequentialIds())}
        results.append(await run("goal", ledger=store, run_id="r", seed="test", signal=signal, **given))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await world.clock.sleep_ms(5_000)
        signal.set()
    outcome = results[0].outcome
    assert outcome.error is not None
    assert outcome.error.code == "run.cancelled"
    inner = RunLedger(store, "r/tool-0001").closed
    assert inner is not None
    assert inner["outcome"]["error"]["code"] == "run.cancelled"


async def test_s2_every_prefix_goes_on_with_the_inner_run_where_it_was() -> None:
    """Whatever was on record of the two, no call is made twice that was answered."""

    class Ordered(MemoryLedgerStore):
        def __init__(self) -> None:
            super().__init__()
            self.order: list[tuple[str, Any]] = []

        def append(self, run: str, entries: Any, /, **options: Any) -> Any:
            head = super().append(run, entries, **options)
            self.order += [(run, entry) for entry in entries]
            return head

    store = Ordered()
    whole = await World().run(store)
    assert whole.outcome.status == "completed"
    for cut_at in range(1, len(store.order) + 1):
        cut = MemoryLedgerStore()
        for name, entry in store.order[:cut_at]:
            cut.append(name, [entry], expected=entry.seq - 1, sync=True)
        kinds = [(name, entry.kind) for name, entry in store.order[:cut_at]]
        begun = kinds.count(("r/tool-0001", "fact.tool_started"))
        answered = kinds.count(("r/tool-0001", "fact.tool_result"))
        again = World()
        resumed = resume(cut, "r", **again.given())
        assert isinstance(resumed, Orchestrator)
        with anyio.fail_after(10):
            result = await resumed.run()
        assert result.outcome.status == "completed", cut_at
        # Of those in flight nobody knows, and the inner model was told so: they are not made again.
        assert sum(again.done.values()) == 2 - begun, (cut_at, again.done)
        assert replay(cut, "r").ok, cut_at
        unknown = [
            one
            for one in RunLedger(cut, "r/tool-0001").entries()
            if one.kind == "fact.tool_result"
            and one.data["result"].get("error", {}).get("code") == "tool.unknown_outcome"
        ]
        assert len(unknown) == begun - answered, cut_at


async def test_s2_delegates_can_delegate() -> None:
    store, clock = MemoryLedgerStore(), ManualClock()
    inmost = delegate("deep", description="d", provider=lambda: ScriptedProvider([A("deepest")]))
    middle = delegate(
        "middle", description="m", tools=[inmost],
        provider=lambda: ScriptedProvider([T("deep", args={"goal": "g"}), A("middle")]),
    )  # fmt: skip
    result = await run(
        "goal", provider=ScriptedProvider([T("middle", args={"goal": "g"}), A()]), tools=[middle],
        ledger=store, run_id="r", deps=Deps(clock=clock, ids=SequentialIds()),
    )  # fmt: skip
    assert result.outcome.status == "completed"
    report = replay(store, "r")
    assert report.ok
    assert [one.run for one in report.children[0].children] == ["r/tool-0001/tool-0001"]
    inner, inmost_used = (
        RunLedger(store, name).closed or {} for name in ("r/tool-0001", "r/tool-0001/tool-0001")
    )
    assert (
        result.state.usage.total_tokens > inner["usage"]["totalTokens"] > inmost_used["usage"]["totalTokens"]
    )


async def test_s2_outside_an_orchestrated_run_a_delegate_answers_that_it_cannot() -> None:
    tool = delegate("research", description="d", provider=ScriptedProvider([A()]))
    loop = make_loop(
        [[call("research", {"goal": "g"}), "done"]], [yes()], tool_adapters={"research": tool},
        forward_frames=["TOOL_RESULT"],
    )  # fmt: skip
    (answer,) = [frame for frame in await play(loop) if frame.type == "TOOL_RESULT"]
    assert answer.content["ok"] is False
    assert "only runs of the orchestrator" in answer.content["message"]


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_a_share_is_above_nothing_and_at_most_all(share: float) -> None:
    with pytest.raises((AgentLoopConfigError, ValueError)):
        delegate("d", description="d", provider=ScriptedProvider([]), share=share)
