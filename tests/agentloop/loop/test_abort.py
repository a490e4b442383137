"""Abort, cancel, close: every way to stop a run, and what it leaves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from agentloop import Frame, NodeStatus, ScriptedAdapter, create_agent_loop
from agentloop.loop.agent import AgentLoop
from tests.agentloop.loop.scenes import (
    TICK,
    RealDuplex,
    Seen,
    call,
    loop_options,
    make_loop,
    more,
    only,
    play,
    serving,
    story,
    yes,
)

pytestmark = pytest.mark.anyio


class Sleeper:
    """An agent that says something and sleeps for ever; knows whether it was cleaned up."""

    def __init__(self) -> None:
        self.asleep = anyio.Event()
        self.cleaned = False
        self.aborts: list[str | None] = []

    def abort(self, reason: str | None = None) -> bool:
        self.aborts.append(reason)
        return True

    async def turn(self, prompt: object, ctx: object) -> AsyncIterator[Any]:
        yield "thinking"
        self.asleep.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cleaned = True


async def read(loop: AgentLoop) -> list[Frame]:
    return [frame async for frame in loop.source]


@pytest.mark.parametrize("kind", ["object", "duplex"])
async def test_v076_abort_in_the_middle_of_a_turn(kind: str) -> None:
    sleeper = Sleeper()
    adapter: Any = sleeper if kind == "object" else RealDuplex(sleeper.turn)
    loop = make_loop(adapter, [])
    async with serving(adapter):
        async with loop:
            await loop.sink.write(TICK)
            frames = [await loop.source.receive()]
            await sleeper.asleep.wait()
            assert loop.abort("stop") is True
            frames += await read(loop)
        assert story(frames) == ["T(a)", "tree_failed", "ABORT"]
        assert frames[1].content == {"reason": "aborted", "iteration": 1}
        assert frames[2].content == {"reason": "stop"}
        assert loop.result is not None
        assert (loop.result.status, loop.result.reason) == ("FAILURE", "aborted")
        assert adapter.aborts == ["stop"]
    assert sleeper.cleaned


async def test_v077_abort_before_the_tick() -> None:
    agent = ScriptedAdapter(["a"])
    loop = make_loop(agent, [yes()])
    loop.abort("early")
    async with loop:
        frames = await read(loop)
    assert story(frames) == ["tree_failed", "ABORT"]
    assert agent.prompts == []
    loop = make_loop(agent, [yes()])
    async with loop:
        await loop.sink.write({"type": "CANCEL"})
        frames = await read(loop)
        assert await loop.sink.write(TICK) is False
    assert frames[-1].content == {"reason": "cancelled"}
    assert agent.prompts == []


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ({"type": "CANCEL"}, "cancelled"),
        ({"type": "ABORT"}, "aborted"),
        ({"type": "CANCEL", "content": {"reason": "enough"}}, "enough"),
        ({"type": "ABORT", "content": {"reason": ""}}, "aborted"),
        ({"type": "ABORT", "content": {"reason": 5}}, "aborted"),
    ],
)
async def test_v078_frames_that_stop(frame: dict[str, Any], reason: str) -> None:
    sleeper = Sleeper()
    loop = make_loop(sleeper, [])
    async with loop:
        await loop.sink.write(TICK)
        await sleeper.asleep.wait()
        assert await loop.sink.write(frame) is True
        frames = await read(loop)
    assert story(frames) == ["T(a)", "tree_failed", "ABORT"]
    assert frames[-1].content == {"reason": reason}
    assert sleeper.cleaned
    assert sleeper.aborts == [reason]


async def test_v079_only_the_first_abort_counts() -> None:
    sleeper = Sleeper()
    loop = make_loop(sleeper, [])
    async with loop:
        await loop.sink.write(TICK)
        await sleeper.asleep.wait()
        assert [loop.abort("one"), loop.abort("two")] == [True, False]
        frames = await read(loop)
        assert loop.abort("three") is False
    assert loop.abort("four") is False
    assert [content["reason"] for content in only(frames, "ABORT")] == ["one"]


async def test_v080_abort_from_progress() -> None:
    evaluator, build = ScriptedAdapter([yes()]), Seen("judge")

    def progress(kind: str, data: object) -> None:
        if kind.endswith("node_started"):
            assert loop.abort("seen enough") is True

    loop = make_loop(["a"], evaluator, on_progress=progress, build_evaluator_prompt=build)
    frames = await play(loop)
    assert story(frames) == ["T(a)", "node_started", "tree_failed", "ABORT"]
    assert (evaluator.prompts, build.calls) == ([], [])


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_v081_abort_from_inside_a_tool(kind: str) -> None:
    events: list[str] = []

    async def coroutine() -> str:
        loop.abort("from the tool")
        try:
            await anyio.sleep_forever()
        finally:
            events.append("cancelled")
        return "never"

    def thread() -> str:
        loop.abort_from_thread("from the tool")
        events.append("cancelled")
        return "late"

    agent = ScriptedAdapter([[call("t"), "after"]])
    loop = make_loop(agent, [], tool_adapters={"t": coroutine if kind == "coroutine" else thread})
    frames = await play(loop)
    assert story(frames) == ["tree_failed", "ABORT"]
    assert frames[-1].content == {"reason": "from the tool"}
    assert events == (["cancelled"] if kind == "coroutine" else events)  # a thread may still run
    assert agent.results == []


async def test_v082_leaving_without_reading() -> None:
    sleeper = Sleeper()
    loop = make_loop(sleeper, [])
    async with loop:
        await loop.sink.write(TICK)
        await sleeper.asleep.wait()
    assert loop.result is not None
    assert loop.result.reason == "aborted"
    assert sleeper.cleaned
    frames = await loop.source.collect()
    assert frames[-1].content == {"reason": "closed"}


async def test_v083_never_ticked() -> None:
    async with make_loop(["a"], []) as loop:
        pass
    frames = await loop.source.collect()
    assert story(frames) == ["tree_failed", "ABORT"]
    assert frames[-1].content == {"reason": "closed"}
    assert loop.result is not None
    assert (loop.result.status, loop.result.reason) == ("FAILURE", "aborted")
    assert loop.status is NodeStatus.FAILURE


async def test_v084_an_outer_timeout() -> None:
    sleeper = Sleeper()
    loop = make_loop(sleeper, [])
    with anyio.move_on_after(0.02) as scope:
        async with loop:
            await loop.sink.write(TICK)
            await loop.wait()
    assert scope.cancelled_caught
    assert sleeper.cleaned
    assert sleeper.aborts == ["cancelled"] or sleeper.aborts == ["closed"]
    frames = await loop.source.collect()
    assert story(frames) == ["T(a)", "tree_failed", "ABORT"]


async def test_v085_abort_after_the_verdict_was_told() -> None:
    loop = make_loop(["a"], [yes()])
    async with loop:
        await loop.sink.write(TICK)
        await loop.wait()
        assert loop.abort("too late") is False
        frames = await loop.source.collect()
    assert story(frames)[-1] == "node_completed"
    assert loop.result is not None
    assert loop.result.status == "SUCCESS"


async def test_abort_from_progress_at_the_verdict_changes_nothing() -> None:
    answers: list[bool] = []

    def progress(kind: str, data: object) -> None:
        if kind.endswith("node_completed"):
            answers.append(loop.abort("too late"))

    loop = make_loop(["a"], [yes()], on_progress=progress)
    frames = await play(loop)
    assert answers == [False]
    assert story(frames)[-1] == "node_completed"
    assert loop.result is not None
    assert loop.result.status == "SUCCESS"


async def test_v086_abort_while_waiting_for_room() -> None:
    loop = make_loop(["a"], [yes()], max_buffered_output_frames=1, output_overflow_strategy="block")
    with anyio.fail_after(4):
        async with loop:
            await loop.sink.write(TICK)
            while not loop.source.statistics().paused:
                await checkpoint()
            for _ in range(10):
                await checkpoint()
            began = anyio.current_time()
            loop.abort("enough")
            result = await loop.wait()
            assert anyio.current_time() - began < 1
            frames = await loop.source.collect()
    assert result.reason == "aborted"
    assert story(frames) == ["T(a)", "tree_failed", "ABORT"]
    assert [frame.seq for frame in frames] == [1, 2, 3]
    assert loop.source.statistics().buffered == 0


@pytest.mark.parametrize("ends", ["SUCCESS", "RUNNING"])
async def test_v087_cancel_after_the_cycle(ends: str) -> None:
    gate = anyio.Event()
    asked = anyio.Event()

    async def agent(prompt: object, ctx: object) -> str:
        asked.set()
        await gate.wait()
        return "a"

    loop = make_loop(agent, [yes("fine") if ends == "SUCCESS" else more("not yet")])
    async with loop:
        await loop.sink.write(TICK)
        await asked.wait()
        stop = {"type": "CANCEL", "content": {"mode": "after_cycle", "reason": "soon"}}
        assert await loop.sink.write(stop) is True
        assert await loop.sink.write(stop) is False
        gate.set()
        frames = await read(loop)
    if ends == "SUCCESS":
        assert story(frames) == ["T(a)", "node_started", "T(e)", "node_completed"]
    else:
        assert story(frames) == ["T(a)", "node_started", "T(e)", "tree_failed", "ABORT"]
        assert frames[-2].content == {"reason": "aborted", "evidence": "not yet", "iteration": 1}
        assert frames[-1].content == {"reason": "soon"}


async def test_v088_the_reader_aborts_the_source() -> None:
    sleeper, progress = Sleeper(), Seen()
    loop = make_loop(sleeper, [], on_progress=progress)
    async with loop:
        await loop.sink.write(TICK)
        await sleeper.asleep.wait()
        assert loop.source.abort() is True
        result = await loop.wait()
        assert [frame async for frame in loop.source] == []
    assert result.reason == "aborted"
    assert progress.calls == [("agent_loop:tree_failed", {"reason": "aborted", "iteration": 1})]
    assert sleeper.aborts == ["output_aborted"]


@pytest.mark.parametrize("how", ["abort", "turn_timeout", "run_timeout"])
async def test_v089_an_adapter_that_refuses_to_stop(how: str, caplog: pytest.LogCaptureFixture) -> None:
    release, begun = anyio.Event(), anyio.Event()

    async def stubborn(prompt: object, ctx: object) -> str:
        begun.set()
        with anyio.CancelScope(shield=True):
            await release.wait()
        return "late"

    timeouts = {"turn_timeout": {"turn_timeout_ms": 20}, "run_timeout": {"run_timeout_ms": 20}}
    loop = make_loop(stubborn, [yes()], cleanup_timeout_ms=50, **timeouts.get(how, {}))
    with anyio.fail_after(5), caplog.at_level(logging.WARNING):
        async with loop:
            await loop.sink.write(TICK)
            await begun.wait()
            began = anyio.current_time()
            if how == "abort":
                loop.abort("stop")
            result = await loop.wait()
            assert 0.03 < anyio.current_time() - began < 0.5
            frames = await loop.source.collect()
            release.set()
    reports = [record for record in caplog.records if "did not stop" in record.getMessage()]
    assert len(reports) == 1
    assert "agent" in reports[0].getMessage()
    expected = ["ERROR", "tree_failed"] if how == "turn_timeout" else ["tree_failed", "ABORT"]
    assert story(frames) == expected
    assert result.reason == ("error" if how == "turn_timeout" else "aborted")


async def test_v090_facts_from_before_the_abort_stay() -> None:
    def progress(kind: str, data: dict[str, Any]) -> None:
        if kind.endswith("node_started") and data["iteration"] == 2:
            loop.abort()

    loop = make_loop(["a", "b"], [more("m", [{"name": "x", "value": 1}])], on_progress=progress)
    frames = await play(loop)
    assert loop.symbolics.get_value("x") == 1
    assert frames[-2].content == {"reason": "aborted", "evidence": "m", "iteration": 2}


async def test_a_run_timeout_is_an_abort() -> None:
    sleeper = Sleeper()
    loop = make_loop(sleeper, [], run_timeout_ms=200)
    with anyio.fail_after(4):
        frames = await play(loop)
    assert story(frames) == ["T(a)", "tree_failed", "ABORT"]
    assert frames[-1].content == {"reason": "timeout"}
    assert sleeper.aborts == ["timeout"]


@pytest.mark.parametrize("kind", ["object", "duplex"])
async def test_a_turn_timeout_is_an_error_of_its_phase(kind: str) -> None:
    sleeper = Sleeper()
    adapter: Any = sleeper if kind == "object" else RealDuplex(sleeper.turn)
    async with serving(adapter):
        loop = make_loop(adapter, [], turn_timeout_ms=200)
        with anyio.fail_after(4):
            frames = await play(loop)
    assert story(frames) == ["T(a)", "ERROR", "tree_failed"]
    assert (frames[1].content["phase"], frames[1].content["error_type"]) == ("agent", "TurnTimeout")
    assert adapter.aborts == ["TurnTimeout"]
    assert sleeper.cleaned


async def test_a_tool_does_not_use_up_the_turn() -> None:
    async def slow() -> str:
        await anyio.sleep(0.06)
        return "slow"

    loop = make_loop([[call("slow"), "a"]], [yes()], turn_timeout_ms=40, tool_adapters={"slow": slow})
    frames = await play(loop)
    assert story(frames)[-1] == "node_completed"


async def test_an_adapter_that_fails_while_it_is_stopped_does_not_hide_the_abort() -> None:
    asleep = anyio.Event()

    async def agent(prompt: object, ctx: object) -> str:
        try:
            asleep.set()
            await anyio.sleep_forever()
        finally:
            raise ValueError("clean-up went wrong")

    loop = make_loop(agent, [])
    async with loop:
        await loop.sink.write(TICK)
        await asleep.wait()
        loop.abort("stop")
        frames = await read(loop)
    assert story(frames) == ["tree_failed", "ABORT"]
    assert loop.result is not None
    assert loop.result.reason == "aborted"
    assert any("clean-up went wrong" in warning for warning in loop.result.warnings)


async def test_frames_an_adapter_emits_after_the_abort_are_dropped() -> None:
    asleep = anyio.Event()

    async def agent(prompt: object, ctx: object) -> AsyncIterator[str]:
        yield "before"
        try:
            asleep.set()
            await anyio.sleep_forever()
        except BaseException:
            yield "after"  # it swallows the cancellation
            yield "and after"

    loop = make_loop(agent, [])
    async with loop:
        await loop.sink.write(TICK)
        await asleep.wait()
        loop.abort("stop")
        frames = await read(loop)
    assert story(frames) == ["T(a)", "tree_failed", "ABORT"]
    assert frames[0].text == "before"


@pytest.mark.parametrize("reason", ["", None, "\ud800", 5])
async def test_any_reason_ends_the_run(reason: Any) -> None:
    from agentloop import MemoryLedgerStore

    loop = make_loop(["a"], [], ledger=MemoryLedgerStore())
    with anyio.fail_after(4):
        async with loop:
            loop.abort(reason)
            frames = await read(loop)
    assert story(frames) == ["tree_failed", "ABORT"]
    assert isinstance(frames[-1].content["reason"], str)


async def test_abort_stops_a_prompt_builder_and_a_parser_and_checks() -> None:
    for option in ("build_agent_prompt", "parse_evaluator_output", "deterministic_checks", "on_progress"):
        began = anyio.Event()
        ended: list[bool] = []

        async def hang(*arguments: object, began: anyio.Event = began, ended: list[bool] = ended) -> Any:
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(True)

        options: dict[str, Any] = {option: hang}
        if option == "deterministic_checks":
            options["checks_list"] = ["c"]
        loop = make_loop(["a"], ["x"], cleanup_timeout_ms=50, **options)
        with anyio.fail_after(4):
            async with loop:
                await loop.sink.write(TICK)
                await began.wait()
                loop.abort()
                result = await loop.wait()
        assert result.reason == "aborted", option
        assert ended == ([True, True] if option == "on_progress" else [True]), option


async def test_an_exception_of_the_user_passes_unwrapped() -> None:
    sleeper = Sleeper()
    loop = make_loop(sleeper, [])
    with pytest.raises(ValueError, match="mine"):
        async with loop:
            await loop.sink.write(TICK)
            await sleeper.asleep.wait()
            raise ValueError("mine")
    assert loop.result is not None
    assert loop.result.reason == "aborted"
    assert sleeper.cleaned


async def test_an_error_end_of_the_input_aborts() -> None:
    sleeper = Sleeper()
    loop = make_loop(sleeper, [])
    async with loop:
        await loop.sink.write(TICK)
        await sleeper.asleep.wait()
        assert loop.sink.end(OSError("pipe")) is True
        frames = await read(loop)
    assert frames[-1].content == {"reason": "input failed: OSError"}


async def test_a_normal_end_of_the_input_changes_nothing() -> None:
    loop = make_loop(["a"], [yes()])
    async with loop:
        await loop.sink.write(TICK)
        loop.sink.end()
        frames = await read(loop)
    assert story(frames)[-1] == "node_completed"


async def test_an_adapter_that_cannot_be_entered_leaves_nothing_open() -> None:
    events: list[str] = []

    class Owned(ScriptedAdapter):
        def __init__(self, name: str, turns: Any) -> None:
            super().__init__(turns)
            self.name = name

        async def __aenter__(self) -> Owned:
            if self.name == "evaluator":
                raise ConnectionError("refused")
            events.append(f"enter {self.name}")
            return self

        async def __aexit__(self, *exc_info: object) -> None:
            events.append(f"leave {self.name}")

    loop = make_loop(Owned("agent", ["a"]), Owned("evaluator", [yes()]), own_adapters=True)
    with pytest.raises(ConnectionError, match="refused"):
        async with loop:
            pass
    assert events == ["enter agent", "leave agent"]


async def test_an_adapter_is_told_when_the_run_fails_for_another_reason() -> None:
    duplex = RealDuplex(Sleeper().turn)

    class Tap:
        fatal = True

        async def write(self, frame: Frame) -> None:
            raise OSError("tap")

    async with serving(duplex):
        frames = await play(make_loop(duplex, [], taps=[Tap()]))
    assert only(frames, "ERROR")[0]["phase"] == "sink"
    assert len(duplex.aborts) == 1


async def test_two_runs_of_one_factory_do_not_touch_each_other() -> None:
    options = loop_options(["a", "b"], [yes(), yes()])
    one, two = create_agent_loop(**options), create_agent_loop(**options)
    one.abort()
    frames = await play(two)
    assert story(frames)[-1] == "node_completed"
