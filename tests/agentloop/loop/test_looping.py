"""Loops of loops: one inner loop a node, while `should_continue` says so."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from agentloop import (
    AgentLoop,
    Frame,
    LoopResult,
    MemoryLedgerStore,
    NodeStatus,
    ScriptedAdapter,
    create_agent_loop,
    create_looping_agent_loop,
)
from agentloop.loop.rounds import (
    Answered,
    Began,
    InnerEnded,
    NodeGiven,
    OuterAborted,
    Round,
    RoundEvent,
    RoundPhase,
    RoundsConfig,
    next_round,
)
from tests.agentloop.loop.scenes import (
    TICK,
    Builder,
    Seen,
    loop_options,
    more,
    no,
    only,
    play,
    short,
    story,
    yes,
)

pytestmark = pytest.mark.anyio

INNER = ["T(a)", "node_started", "T(e)", "node_completed"]


def agent_saying(text: str = "a") -> Any:
    return lambda prompt, ctx: text


def looping(agent: Any = None, evaluator: Any = None, **options: Any) -> Any:
    return create_looping_agent_loop(
        **loop_options(agent or agent_saying(), evaluator or agent_saying(yes()), **options)
    )


async def test_v159_by_default_one_inner_loop() -> None:
    loop = looping()
    assert (loop.status, loop.result) == (NodeStatus.PENDING, None)
    frames = await play(loop)
    assert story(frames) == INNER
    assert [frame.meta["outer_iteration"] for frame in frames] == [0, 0, 0, 0]
    assert [frame.seq for frame in frames] == [1, 2, 3, 4]
    assert (loop.result.status, loop.result.reason) == ("SUCCESS", "evaluator")
    assert len(loop.results) == 1


async def test_v160_the_outer_limit() -> None:
    again = Seen(True)
    loop = looping(should_continue=again, max_iterations=3)
    frames = await play(loop)
    assert story(frames) == [*INNER * 3, "tree_failed"]
    assert frames[-1].content["reason"] == "max_iterations"
    assert [index for _, index in again.calls] == [0, 1, 2]
    assert all(isinstance(result, LoopResult) for result, _ in again.calls)
    assert (loop.result.status, loop.result.reason) == ("FAILURE", "max_iterations")
    assert len(loop.results) == 3


@pytest.mark.parametrize("form", ["function", "async function", "list", "generator", "async generator"])
async def test_v161_nodes_from_a_provider(form: str) -> None:
    def by_index(index: int) -> str | None:
        return ["a", "b", None][index]

    async def awaited(index: int) -> str | None:
        await checkpoint()
        return by_index(index)

    async def generated() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    providers: dict[str, Any] = {
        "function": by_index,
        "async function": awaited,
        "list": ["a", "b"],
        "generator": (node for node in ("a", "b")),
        "async generator": generated(),
    }
    build = Builder("node", "iteration")
    loop = looping(node_provider=providers[form], should_continue=Seen(True), build_agent_prompt=build)
    frames = await play(loop)
    assert build.seen == [("a", 1), ("b", 1)]
    assert story(frames) == INNER * 2
    assert loop.result.node == "b"
    assert loop.result.status == "SUCCESS"


async def test_v162_again_after_a_failure() -> None:
    loop = looping(
        evaluator=ScriptedAdapter([no("bad"), yes("ok"), yes("never asked")]),
        should_continue=lambda result, index: result.status == "FAILURE",
    )
    frames = await play(loop)
    assert [short(frame) for frame in frames if short(frame).startswith("node_")] == [
        "node_started",
        "node_failed",
        "node_started",
        "node_completed",
    ]
    assert loop.result.status == "SUCCESS"
    assert [result.status for result in loop.results] == ["FAILURE", "SUCCESS"]


@pytest.mark.parametrize("option", ["should_continue", "node_provider", "inner_loop_factory"])
async def test_v163_callbacks_that_raise(option: str) -> None:
    problem = RuntimeError("broken")

    def broken(*arguments: Any, **options: Any) -> Any:
        raise problem

    loop = looping(**{option: broken})
    frames = await play(loop)
    assert story(frames)[-2:] == ["ERROR", "tree_failed"]
    error = only(frames, "ERROR")[0]
    assert (error["phase"], error["fatal"], error["message"]) == (option, True, "broken")
    assert frames[-1].content["reason"] == "error"
    assert loop.result.reason == "error"
    assert loop.result.error is problem


async def test_v164_abort_in_the_second_inner_loop() -> None:
    again = Seen(True)

    async def agent(prompt: object, ctx: Any) -> str:
        if len(loop.results) == 1:
            loop.abort("enough")
            await anyio.sleep_forever()
        return "a"

    loop = looping(agent, should_continue=again)
    frames = await play(loop)
    assert story(frames) == [*INNER, "tree_failed", "ABORT"]
    assert frames[-1].content == {"reason": "enough"}
    assert len(again.calls) == 1
    assert len(loop.results) == 2
    assert loop.result.reason == "aborted"


async def test_v165_a_factory_of_the_users_own() -> None:
    given: list[dict[str, Any]] = []

    def factory(**options: Any) -> AgentLoop:
        given.append(options)
        return create_agent_loop(**options)

    loop = looping(
        inner_loop_factory=factory,
        should_continue=lambda result, index: index == 0,
        node_provider=["n1", "n2"],
        max_retries=7,
        inner_max_iterations=4,
    )
    await play(loop)
    assert [options["node"] for options in given] == ["n1", "n2"]
    assert all(options["max_retries"] == 7 and options["max_iterations"] == 4 for options in given)
    assert given[0]["symbolics"] is given[1]["symbolics"] is loop.symbolics
    assert {"agent_adapter", "evaluator_adapter", "build_agent_prompt"} <= given[0].keys()
    assert not {"should_continue", "node_provider", "inner_loop_factory", "share_symbolics"} & given[0].keys()


@pytest.mark.parametrize("share", [True, False])
async def test_v166_facts_are_shared_unless_told_otherwise(share: bool) -> None:
    seen: list[object] = []

    def build(ctx: Any) -> str:
        seen.append(ctx.symbolics.get_value("a"))
        return "go"

    loop = looping(
        evaluator=agent_saying(yes("ok", [{"name": "a", "value": 1}])),
        should_continue=lambda result, index: index == 0,
        build_agent_prompt=build,
        share_symbolics=share,
    )
    await play(loop)
    assert seen == [None, 1 if share else None]


async def test_v167_each_event_is_told_once() -> None:
    progress = Seen()
    loop = looping(on_progress=progress, should_continue=lambda result, index: True, max_iterations=2)
    await play(loop)
    assert [kind.removeprefix("agent_loop:") for kind, _ in progress.calls] == [
        *["node_started", "node_completed"] * 2,
        "tree_failed",
    ]


async def test_v168_no_node_at_all_and_no_round_at_all() -> None:
    loop = looping(node_provider=lambda index: None)
    assert await play(loop) == []
    assert (loop.result.status, loop.result.reason) == ("SUCCESS", "no_nodes")
    assert loop.status is NodeStatus.SUCCESS
    provider = Seen("n")
    loop = looping(node_provider=provider, max_iterations=0)
    frames = await play(loop)
    assert story(frames) == ["tree_failed"]
    assert frames[0].content["reason"] == "max_iterations"
    assert provider.calls == []


async def test_should_continue_is_not_asked_after_an_abort_but_after_an_error() -> None:
    again = Seen(False)

    def agent(prompt: object, ctx: object) -> str:
        raise ConnectionError("gone")

    loop = looping(agent, should_continue=again)
    await play(loop)
    assert again.calls[0][0].reason == "error"
    assert loop.result.reason == "error"


async def test_should_continue_may_be_async_and_its_truth_decides() -> None:
    async def again(result: LoopResult, index: int) -> object:
        await checkpoint()
        return [] if index else "yes"

    loop = looping(should_continue=again)
    await play(loop)
    assert len(loop.results) == 2


async def test_context_symbolics_are_the_shared_state() -> None:
    loop = looping(context={"task": "t", "symbolics": {"a": 1}})
    await play(loop)
    assert loop.symbolics.get_all() == {"a": 1}
    assert loop.result.symbolics == {"a": 1}


async def test_each_inner_loop_starts_with_fresh_counters() -> None:
    build = Builder("iteration", "retry_count", "last_evidence", "history")
    loop = looping(
        evaluator=ScriptedAdapter([more(), yes(), yes()]),
        build_agent_prompt=build,
        should_continue=lambda result, index: index == 0,
    )
    await play(loop)
    assert [(values[0], values[1]) for values in build.seen] == [(1, 0), (2, 1), (1, 0)]
    assert build.seen[2][2] is None


async def test_abort_before_the_tick_and_between_two_inner_loops() -> None:
    loop = looping()
    loop.abort("early")
    async with loop:
        frames = [frame async for frame in loop.source]
    assert story(frames) == ["tree_failed", "ABORT"]
    asked = anyio.Event()

    async def provider(index: int) -> str:
        asked.set()
        await anyio.sleep_forever()
        return "never"

    loop = looping(node_provider=provider)
    async with loop:
        await loop.sink.write(TICK)
        await asked.wait()
        assert loop.abort("between") is True
        assert loop.abort("again") is False
        frames = [frame async for frame in loop.source]
    assert story(frames) == ["tree_failed", "ABORT"]
    assert loop.result.reason == "aborted"
    assert loop.status is NodeStatus.FAILURE


async def test_a_note_reaches_the_running_inner_loop_or_the_next() -> None:
    build = Builder("inbox")
    loop = looping(build_agent_prompt=build)
    async with loop:
        await loop.sink.write({"type": "INPUT", "content": {"text": "before"}})
        await loop.sink.write(TICK)
        await loop.source.collect()
    assert build.seen == [("before",)]


async def test_cancel_after_the_cycle_ends_the_whole() -> None:
    async def agent(prompt: object, ctx: object) -> str:
        if not loop.results:
            loop.sink.write_nowait({"type": "CANCEL", "content": {"mode": "after_cycle"}})
        return "a"

    loop = looping(agent, should_continue=Seen(True))
    frames = await play(loop)
    assert story(frames) == INNER
    assert loop.result.status == "SUCCESS"


async def test_errors_are_raised_if_asked_for() -> None:
    def provider(index: int) -> str:
        raise LookupError("no such node")

    with pytest.raises(LookupError, match="no such node"):
        await looping(node_provider=provider, raise_errors=True).run()


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_an_abort_with_a_full_blocking_buffer_shows_the_end(limit: int) -> None:
    loop = looping(
        ScriptedAdapter([["one", "two", "three", "four", "five"]]),
        max_buffered_output_frames=limit,
        output_overflow_strategy="block",
    )
    with anyio.fail_after(4):
        async with loop:
            await loop.sink.write(TICK)
            while not loop.source.statistics().paused:
                await checkpoint()
            for _ in range(30):
                await checkpoint()
            loop.abort("enough")
            await loop.wait()
            frames = await loop.source.collect()
    # The inner run had ended already, or it was cut: either way its last frames are there.
    assert story(frames)[-1] in ("ABORT", "node_completed")
    assert [frame.text for frame in frames][:limit] == ["one", "two", "three", "four", "five"][:limit]


async def test_a_slow_reader_of_a_blocking_buffer_gets_everything() -> None:
    loop = looping(
        should_continue=lambda result, index: index < 2,
        max_buffered_output_frames=1,
        output_overflow_strategy="block",
    )
    frames: list[Frame] = []
    async with loop:
        await loop.sink.write(TICK)
        async for frame in loop.source:
            frames.append(frame)
            for _ in range(5):
                await checkpoint()
    assert story(frames) == INNER * 3


async def test_outer_cancellation_cleans_up() -> None:
    cleaned: list[bool] = []
    begun = anyio.Event()

    async def agent(prompt: object, ctx: object) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)
        return "never"

    loop = looping(agent)
    with anyio.CancelScope() as scope:
        async with loop:
            await loop.sink.write(TICK)
            await begun.wait()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert cleaned == [True]
    assert story(await loop.source.collect()) == ["tree_failed", "ABORT"]
    assert loop.result.reason == "aborted"


@pytest.mark.parametrize("what", ["node_provider", "agent", "should_continue"])
async def test_f19_loops_that_refuse_to_stop(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """An aborted run has its result in time, whatever of it is stuck."""
    release, begun = anyio.Event(), anyio.Event()

    async def stuck(*args: object) -> str:
        begun.set()
        with anyio.CancelScope(shield=True):
            await release.wait()
        return "late"

    loop = looping(cleanup_timeout_ms=30, **{what: stuck})
    with anyio.fail_after(5), caplog.at_level(logging.WARNING):
        async with loop:
            await loop.sink.write(TICK)
            await begun.wait()
            loop.abort("stop")
            result = await loop.wait()
            assert not release.is_set()
            frames = await loop.source.collect()
            release.set()
    assert (result.status, result.reason) == ("FAILURE", "aborted")
    assert story(frames)[-2:] == ["tree_failed", "ABORT"]
    assert any("did not stop" in record.getMessage() for record in caplog.records)
    assert loop.result is result


def test_the_rules_of_the_rounds_are_total() -> None:
    """Every phase and event either has a rule that leads where the table says, or is refused."""
    from agentloop import IllegalTransition

    events: list[RoundEvent] = [
        Began(),
        NodeGiven(True),
        NodeGiven(False),
        InnerEnded(NodeStatus.SUCCESS, "checks"),
        InnerEnded(NodeStatus.FAILURE, "aborted"),
        Answered(True),
        Answered(False),
        OuterAborted("x"),
    ]
    for has_provider in (True, False):
        config = RoundsConfig(max_iterations=2, has_provider=has_provider)
        for phase in RoundPhase:
            for event in events:
                try:
                    after, _ = next_round(Round(phase=phase), event, config)
                except IllegalTransition:
                    continue
                assert phase not in (RoundPhase.DONE, RoundPhase.FAILED)
                assert (after.ending is not None) == (after.phase in (RoundPhase.DONE, RoundPhase.FAILED))


async def test_a_kept_run_of_loops_hides_keys_by_default_too() -> None:
    key = "sk-" + "proj1234567890abcdefgh"
    store = MemoryLedgerStore()
    loop = looping(ledger=store, run_id="R", labels={"note": key}, node_provider=[{"id": "n", "hint": key}])

    await loop.run()

    kept = b"".join(entry.body for run in ("R", "R/1") for entry in store.read(run))
    assert b"[redacted]" in kept
    assert key.encode() not in kept
