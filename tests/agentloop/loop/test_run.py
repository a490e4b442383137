"""The run, step by step: what an agent and an evaluator say, and what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from agentloop import (
    EvaluatorResult,
    Frame,
    NodeStatus,
    Prompt,
    ScriptedAdapter,
    create_agent_loop,
)
from tests.agentloop.loop.scenes import (
    KINDS,
    TICK,
    Builder,
    Seen,
    agent_of,
    call,
    loop_options,
    make_loop,
    more,
    no,
    only,
    play,
    play_out,
    serving,
    short,
    story,
    yes,
)

pytestmark = pytest.mark.anyio


async def play_kind(
    kind: str, agent: Sequence[Any], evaluator: Sequence[Any] = (), **options: Any
) -> tuple[Any, list[Frame]]:
    """Play with both adapters of one kind."""
    turns = [[turn] if isinstance(turn, str) else turn for turn in agent]
    verdicts = [[turn] if isinstance(turn, str) else turn for turn in evaluator]
    left, right = agent_of(kind, turns)[0], agent_of(kind, verdicts)[0]
    async with serving(left, right):
        return await play_out(left, right, **options)


@pytest.mark.parametrize("kind", KINDS)
async def test_v036_success_in_the_first_cycle(kind: str) -> None:
    loop, frames = await play_kind(kind, ["done"], [yes("good")])
    assert story(frames) == ["T(a)", "node_started", "T(e)", "node_completed"]
    assert frames[0].content == {"text": "done", "role": "agent"}
    assert frames[1].content == {"iteration": 1, "agent_text": "done"}
    assert frames[3].content == {"evidence": "good", "iteration": 1, "source": "evaluator"}
    assert [frame.seq for frame in frames] == [1, 2, 3, 4]
    assert (loop.result.status, loop.result.reason) == ("SUCCESS", "evaluator")
    assert loop.status is NodeStatus.SUCCESS


@pytest.mark.parametrize("kind", KINDS)
async def test_v037_a_retry(kind: str) -> None:
    build = Builder("retry_count", "last_evidence")
    loop, frames = await play_kind(kind, ["a1", "a2"], [more("more"), yes("ok")], build_agent_prompt=build)
    assert only(frames, "node_retry") == [
        {"evidence": "more", "retry_count": 1, "source": "evaluator", "iteration": 1}
    ]
    assert frames[-1].content == {"evidence": "ok", "iteration": 2, "source": "evaluator"}
    assert build.seen == [(0, None), (1, "more")]
    assert (loop.result.iterations, loop.result.retry_count) == (2, 1)


async def test_v038_failure_by_the_evaluator() -> None:
    loop, frames = await play_out(["x"], [no("bad")])
    assert short(frames[-1]) == "node_failed"
    assert frames[-1].content == {"evidence": "bad", "iteration": 1}
    assert "tree_failed" not in story(frames)
    assert (loop.result.status, loop.result.reason) == ("FAILURE", "evaluator")


async def test_v039_the_limit_of_cycles() -> None:
    loop, frames = await play_out(["a"] * 3, [more("1"), more("2"), more("3")], max_iterations=3)
    assert story(frames).count("node_started") == 3
    assert story(frames).count("node_retry") == 2
    assert frames[-1].content == {"reason": "max_iterations", "evidence": "3", "iteration": 3}
    assert (loop.result.status, loop.result.reason) == ("FAILURE", "max_iterations")


async def test_v040_no_cycles_at_all() -> None:
    agent = ScriptedAdapter([])
    loop, frames = await play_out(agent, [], max_iterations=0)
    assert story(frames) == ["tree_failed"]
    assert frames[0].content["reason"] == "max_iterations"
    assert "evidence" not in frames[0].content
    assert agent.prompts == []
    assert loop.result.evidence is None


async def test_v041_checks_pass() -> None:
    evaluator, build = ScriptedAdapter([]), Seen("judge")
    loop, frames = await play_out(
        ["a"],
        evaluator,
        build_evaluator_prompt=build,
        checks_list=["c"],
        deterministic_checks=lambda names, trace: (True, "fine"),
    )
    assert story(frames) == ["T(a)", "node_started", "node_completed"]
    assert frames[-1].content == {"evidence": "fine", "iteration": 1, "source": "checks"}
    assert (evaluator.prompts, build.calls) == ([], [])
    assert loop.result.reason == "checks"


def checks_of(*results: bool) -> Callable[..., tuple[bool, str]]:
    left = list(results)

    def check(names: list[str], trace: object) -> tuple[bool, str]:
        passed = left.pop(0) if len(left) > 1 else left[0]
        return passed, f"passed={passed}"

    return check


async def test_v042_checks_pass_in_the_third_cycle() -> None:
    evaluator = ScriptedAdapter([])
    _loop, frames = await play_out(
        ["a"] * 3, evaluator, checks_list=["c"], deterministic_checks=checks_of(False, False, True)
    )
    assert [retry["retry_count"] for retry in only(frames, "node_retry")] == [1, 2]
    assert {retry["source"] for retry in only(frames, "node_retry")} == {"checks"}
    assert frames[-1].content == {"evidence": "passed=True", "iteration": 3, "source": "checks"}
    assert evaluator.prompts == []


async def test_v043_the_evaluator_judges_once_the_budget_is_spent() -> None:
    loop, frames = await play_out(
        ["a"] * 3, [yes("fine")], checks_list=["c"], deterministic_checks=checks_of(False), max_retries=2
    )
    assert [retry["source"] for retry in only(frames, "node_retry")] == ["checks", "checks"]
    assert frames[-1].content == {"evidence": "fine", "iteration": 3, "source": "evaluator"}
    assert loop.result.retry_count == 2


async def test_v044_no_budget_for_checks() -> None:
    _, frames = await play_out(
        ["a"], [no("no")], checks_list=["c"], deterministic_checks=checks_of(False), max_retries=0
    )
    assert story(frames) == ["T(a)", "node_started", "T(e)", "node_failed"]
    assert frames[-1].content == {"evidence": "no", "iteration": 1}


async def test_v045_no_retry_is_announced_that_cannot_happen() -> None:
    evaluator = ScriptedAdapter([])
    _, frames = await play_out(
        ["a"], evaluator, checks_list=["c"], deterministic_checks=checks_of(False), max_iterations=1
    )
    assert story(frames) == ["T(a)", "node_started", "tree_failed"]
    assert frames[-1].content == {"reason": "max_iterations", "evidence": "passed=False", "iteration": 1}
    assert evaluator.prompts == []


@pytest.mark.parametrize(
    ("max_retries", "max_iterations", "agent_turns", "evaluator_turns", "by_checks", "by_evaluator"),
    [(0, 3, 3, 3, 0, 2), (2, 10, 10, 8, 2, 7), (5, 1, 1, 0, 0, 0), (5, 6, 6, 1, 5, 0), (5, 0, 0, 0, 0, 0)],
)
async def test_v046_the_table_of_counters(
    max_retries: int,
    max_iterations: int,
    agent_turns: int,
    evaluator_turns: int,
    by_checks: int,
    by_evaluator: int,
) -> None:
    agent, evaluator = ScriptedAdapter(["a"] * 20), ScriptedAdapter([more()] * 20)
    loop, frames = await play_out(
        agent,
        evaluator,
        checks_list=["c"],
        deterministic_checks=checks_of(False),
        max_retries=max_retries,
        max_iterations=max_iterations,
    )
    sources = [retry["source"] for retry in only(frames, "node_retry")]
    assert (len(agent.prompts), len(evaluator.prompts)) == (agent_turns, evaluator_turns)
    assert (sources.count("checks"), sources.count("evaluator")) == (by_checks, by_evaluator)
    assert frames[-1].content["reason"] == "max_iterations"
    assert loop.result.retry_count == by_checks + by_evaluator


async def test_v047_an_empty_list_of_checks_means_nothing() -> None:
    check = Seen(True)
    loop, _ = await play_out(["a"], [yes()], checks_list=[], deterministic_checks=check)
    assert check.calls == []
    assert loop.result.reason == "evaluator"


async def test_v048_one_run_however_many_ticks() -> None:
    agent = ScriptedAdapter([["a"]])
    loop = make_loop(agent, [yes()])
    async with loop:
        assert await loop.sink.write(TICK) is True
        assert await loop.sink.write(TICK) is False
        frames = [frame async for frame in loop.source]
        assert await loop.sink.write(TICK) is False
    assert story(frames) == ["T(a)", "node_started", "T(e)", "node_completed"]
    assert len(agent.prompts) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_v049_text_in_pieces(kind: str) -> None:
    _, frames = await play_kind(kind, [["he", "llo", Frame("DONE", {})]], [yes()])
    assert [frame.text for frame in frames[:2]] == ["he", "llo"]
    assert only(frames, "node_started") == [{"iteration": 1, "agent_text": "hello"}]


async def test_v050_a_final_text_replaces_the_pieces() -> None:
    final = Frame("TEXT", {"text": "hello", "final": True})
    _, frames = await play_out([["he", "llo", final]], [yes()])
    assert only(frames, "node_started")[0]["agent_text"] == "hello"


async def test_v051_an_empty_turn() -> None:
    loop, frames = await play_out([[Frame("DONE", {})], "a"], [more(), yes()])
    assert only(frames, "node_started")[0]["agent_text"] == ""
    assert [entry["empty"] for entry in loop.context.history] == [True, False]
    assert loop.result.status == "SUCCESS"


async def test_v052_reasoning_stays_inside() -> None:
    hidden = Frame("REASONING", {"text": "hmm"})
    _, frames = await play_out([[hidden, "a", hidden]], [[hidden, yes()]])
    assert story(frames) == ["T(a)", "node_started", "T(e)", "node_completed"]
    assert only(frames, "node_started")[0]["agent_text"] == "a"


@pytest.mark.parametrize(
    ("built", "sent"),
    [
        ("go", [Frame("TEXT", {"text": "go"})]),
        ({"type": "TASK", "content": {"n": 1}}, [Frame("TASK", {"n": 1})]),
        (["one", Frame("B", {})], [Frame("TEXT", {"text": "one"}), Frame("B", {})]),
    ],
)
async def test_v053_what_a_builder_may_return(built: object, sent: list[Frame]) -> None:
    agent = ScriptedAdapter(["a"])
    await play_out(agent, [yes()], build_agent_prompt=lambda ctx: built)
    assert list(agent.prompts[0]) == sent


async def test_a_builder_may_be_async() -> None:
    async def build(ctx: object) -> str:
        await checkpoint()
        return "go"

    agent = ScriptedAdapter(["a"])
    await play_out(agent, [yes()], build_agent_prompt=build)
    assert agent.prompts[0][0].text == "go"


@pytest.mark.parametrize("built", [None, [], 5, [5], {"no": "type"}])
async def test_v054_a_builder_that_returns_nothing_usable(built: object) -> None:
    agent = ScriptedAdapter(["a"])
    _loop, frames = await play_out(agent, [yes()], build_agent_prompt=lambda ctx: built)
    assert story(frames) == ["ERROR", "tree_failed"]
    assert frames[0].content["phase"] == "build_agent_prompt"
    assert frames[0].content["fatal"] is True
    assert frames[1].content["reason"] == "error"
    assert agent.prompts == []


async def test_v055_history_is_readable_and_cannot_be_spoiled() -> None:
    seen: list[list[Any]] = []

    def build(ctx: object, history: list[Any]) -> str:
        seen.append(json.loads(json.dumps(history)))
        for spoil in (
            lambda: history.append("x"),
            lambda: history[0].update(agent_text="x"),
            lambda: history[0]["tool_calls"].clear(),
        ):
            with pytest.raises(TypeError, match="read-only"):
                spoil()
        return "judge"

    await play_out([[call("t"), "a1"], "a2"], [more("r"), yes()], build_evaluator_prompt=build)
    assert [len(history) for history in seen] == [1, 2]
    first, second = seen[1]
    assert first["agent_text"] == "a1"
    assert first["evaluation"] == {"status": "RUNNING", "evidence": "r"}
    assert first["tool_calls"] == [{"id": "k1", "name": "t", "arguments": {}}]
    assert first["tool_results"][0]["error"] == "unknown_tool"
    assert second["evaluation"] is None
    assert set(second) == {
        "iteration",
        "agent_text",
        "tool_calls",
        "tool_results",
        "empty",
        "truncated",
        "checks",
        "evaluation",
    }


@pytest.mark.parametrize(
    ("parsed", "ends"),
    [
        (("SUCCESS", "e"), "node_completed"),
        (("SUCCESS", "e", [{"name": "a", "value": 1}]), "node_completed"),
        ({"status": "Success"}, "node_failed"),
        ({"status": 1}, "node_failed"),
        (EvaluatorResult(status=NodeStatus.SUCCESS), "node_completed"),
        (EvaluatorResult(status=NodeStatus.PENDING), "tree_failed"),
        ({"status": NodeStatus.PENDING}, "tree_failed"),
    ],
)
async def test_v056_what_a_parser_may_return(parsed: object, ends: str) -> None:
    loop, frames = await play_out(
        ["a"], ["whatever"], parse_evaluator_output=lambda frames: parsed, max_iterations=1
    )
    assert short(frames[-1]) == ends
    if ends == "tree_failed":
        assert loop.result.reason == "max_iterations"


async def test_a_parser_gets_every_frame_of_the_turn_but_done_and_may_be_async() -> None:
    got: list[Frame] = []

    async def parse(frames: list[Frame]) -> tuple[str, str]:
        got.extend(frames)
        await checkpoint()
        return "SUCCESS", ""

    hidden = Frame("REASONING", {"text": "hmm"})
    await play_out(["a"], [["x", hidden, "y"]], parse_evaluator_output=parse)
    assert got == [Frame("TEXT", {"text": "x"}), hidden, Frame("TEXT", {"text": "y"})]


async def test_v057_only_changes_are_told_and_before_the_verdict() -> None:
    updates = [{"name": "a", "value": 1}, {"name": "a", "value": 1}, {"name": "b", "op": "retract"}]
    _, frames = await play_out(["x", "y"], [more("r", updates), yes()])
    assert only(frames, "symbolic_asserted") == [{"name": "a", "value": 1, "op": "assert"}]
    assert story(frames).index("symbolic_asserted") < story(frames).index("node_retry")


async def test_v058_a_failing_verdict_keeps_its_facts() -> None:
    loop, frames = await play_out(["x"], [no("bad", [{"name": "k", "value": "v"}])])
    assert story(frames)[-2:] == ["symbolic_asserted", "node_failed"]
    assert loop.symbolics.get_value("k") == "v"
    assert loop.result.symbolics == {"k": "v"}


async def test_rejected_updates_are_reported_and_change_nothing_else() -> None:
    updates = [{"name": "", "value": 1}, {"name": "ok", "value": 1}]
    loop, frames = await play_out(["x"], [yes("ok", updates)])
    assert only(frames, "ERROR")[0]["phase"] == "symbolic_updates"
    assert only(frames, "ERROR")[0]["fatal"] is False
    assert loop.result.symbolics == {"ok": 1}
    assert loop.result.status == "SUCCESS"


async def test_v059_a_parser_that_raises() -> None:
    problem = KeyError("status")

    def parse(frames: object) -> object:
        raise problem

    loop, frames = await play_out(["x"], ["y"], parse_evaluator_output=parse)
    assert story(frames) == ["T(a)", "node_started", "T(e)", "ERROR", "tree_failed"]
    assert only(frames, "ERROR")[0] == {
        "phase": "parse",
        "error_type": "KeyError",
        "message": "'status'",
        "fatal": True,
        "iteration": 1,
    }
    assert frames[-1].content == {"reason": "error", "evidence": "parse: 'status'", "iteration": 1}
    assert loop.result.error is problem


@pytest.mark.parametrize("kind", KINDS)
async def test_v060_an_adapter_that_raises_after_a_text(kind: str) -> None:
    problem = ConnectionError("gone")

    async def broken(prompt: object, ctx: object) -> Any:
        yield "half"
        raise problem

    adapter: Any = {
        "scripted": ScriptedAdapter([["half", problem]]),
        "generator": broken,
        "duplex": agent_of("duplex", [])[0].__class__(broken),
    }[kind]
    async with serving(adapter):
        loop, frames = await play_out(adapter, [yes()])
    assert story(frames) == ["T(a)", "ERROR", "tree_failed"]
    assert frames[1].content["phase"] == "agent"
    assert frames[1].content["fatal"] is True
    assert "gone" in frames[1].content["message"]
    assert loop.result.reason == "error"
    assert loop.result.error is problem


async def test_v061_the_error_is_raised_once_the_stream_has_ended() -> None:
    loop = make_loop([["half", ConnectionError("gone")]], [yes()], raise_errors=True)
    seen: list[Frame] = []

    class Sink:
        paused = ended = False

        async def write(self, frame: Any) -> bool:
            seen.append(frame)
            return True

        def write_nowait(self, frame: Any) -> bool:
            seen.append(frame)
            return True

        async def ready(self) -> None: ...

        def end(self, error: BaseException | None = None) -> bool:
            seen.append(Frame("END", {}))
            return True

    loop.source.pipe(Sink())
    with pytest.raises(ConnectionError, match="gone"):
        await loop.run()
    assert story(seen) == ["T(a)", "ERROR", "tree_failed", "END"]


async def test_v062_check_functions() -> None:
    def raises(names: object, trace: object) -> bool:
        raise OSError("disk")

    loop, frames = await play_out(["a"], [yes()], checks_list=["c"], deterministic_checks=raises)
    assert only(frames, "ERROR")[0]["phase"] == "deterministic_checks"
    for accepted in ((True, "ok"), {"allPassed": True}, True, {"all_passed": True, "evidence": [1]}):
        loop, frames = await play_out(
            ["a"], checks_list=["c"], deterministic_checks=lambda names, trace, answer=accepted: answer
        )
        assert loop.result.reason == "checks"
    loop, frames = await play_out(
        ["a"], checks_list=["c"], deterministic_checks=lambda names, trace: {"all_passed": 1}
    )
    assert loop.result.reason == "error"


async def test_a_check_function_may_be_async() -> None:
    async def check(names: object, trace: object) -> bool:
        await checkpoint()
        return True

    loop, _ = await play_out(["a"], checks_list=["c"], deterministic_checks=check)
    assert loop.result.reason == "checks"


async def test_v063_cycle_started_only_if_asked_for() -> None:
    _, frames = await play_out(["a"], [yes()], extra_frames=True)
    assert short(frames[0]) == "cycle_started"
    assert frames[0].content == {"iteration": 1, "retry_count": 0}
    _, frames = await play_out(["a"], [yes()])
    assert "cycle_started" not in story(frames)


async def test_v064_progress_in_order() -> None:
    progress = Seen()
    _, frames = await play_out(["a1", "a2"], [more(), yes()], on_progress=progress, extra_frames=True)
    told = [(kind.removeprefix("agent_loop:"), data) for kind, data in progress.calls]
    assert [kind for kind, _ in told] == ["node_started", "node_retry", "node_started", "node_completed"]
    assert told == [
        (short(frame), frame.content)
        for frame in frames
        if short(frame) not in ("T(a)", "T(e)", "cycle_started")
    ]


async def test_changing_what_progress_is_given_changes_no_frame() -> None:
    _, frames = await play_out(["a"], [yes()], on_progress=lambda kind, data: data.clear())
    assert frames[1].content == {"iteration": 1, "agent_text": "a"}


async def test_v065_progress_is_awaited_before_the_next_frame() -> None:
    events: list[str] = []

    async def progress(kind: str, data: object) -> None:
        events.append(f"begin {kind.removeprefix('agent_loop:')}")
        for _ in range(5):
            await checkpoint()
        events.append("end")

    class Tap:
        fatal = False

        async def write(self, frame: Frame) -> None:
            events.append(short(frame))

    await play_out(["a"], [yes()], on_progress=progress, taps=[Tap()])
    assert events == [
        "T(a)",
        "node_started",
        "begin node_started",
        "end",
        "T(e)",
        "node_completed",
        "begin node_completed",
        "end",
    ]


async def test_v066_progress_that_raises() -> None:
    def at(kind: str) -> Callable[..., None]:
        def progress(type_: str, data: object) -> None:
            if type_ == f"agent_loop:{kind}":
                raise RuntimeError("observer")

        return progress

    loop, frames = await play_out(["a"], [yes()], on_progress=at("node_started"))
    assert story(frames) == ["T(a)", "node_started", "ERROR", "T(e)", "node_completed"]
    assert frames[2].content["phase"] == "on_progress"
    assert frames[2].content["fatal"] is False
    loop, frames = await play_out(["a"], [yes()], on_progress=at("node_completed"))
    assert "ERROR" not in story(frames)
    assert len(loop.result.warnings) == 1
    assert loop.result.status == "SUCCESS"


async def test_a_repeated_progress_error_is_reported_once_per_kind() -> None:
    def progress(kind: str, data: object) -> None:
        raise RuntimeError("observer")

    _, frames = await play_out(["a"] * 3, [more(), more(), yes()], on_progress=progress)
    assert len(only(frames, "ERROR")) == 2


async def test_v067_a_fact_asserted_by_progress() -> None:
    loop = make_loop(["a"], [yes()])

    def progress(kind: str, data: object) -> None:
        if kind.endswith("node_started"):
            loop.symbolics.assert_value("seen", True)

    loop = make_loop(["a"], [yes()], on_progress=progress)
    frames = await play(loop)
    assert story(frames) == ["T(a)", "node_started", "symbolic_asserted", "T(e)", "node_completed"]


async def unread(strategy: str, **options: Any) -> tuple[Any, list[Frame]]:
    loop = make_loop(
        ["done"], [yes()], max_buffered_output_frames=2, output_overflow_strategy=strategy, **options
    )
    async with loop:
        await loop.sink.write(TICK)
        await loop.wait()
        frames = await loop.source.collect()
    return loop, frames


async def test_v068_drop_oldest() -> None:
    loop, frames = await unread("drop-oldest")
    assert story(frames) == ["T(e)", "node_completed"]
    assert [frame.seq for frame in frames] == [3, 4]
    assert loop.result.dropped_frames == 2


async def test_v069_drop_newest() -> None:
    loop, frames = await unread("drop-newest")
    assert story(frames) == ["T(a)", "node_started"]
    assert [frame.seq for frame in frames] == [1, 2]
    assert loop.result.status == "SUCCESS"
    assert loop.result.dropped_frames == 2


async def test_v070_drop_newest_and_the_terminal_frame_protected() -> None:
    _, frames = await unread("drop-newest", protect_terminal=True)
    assert story(frames) == ["T(a)", "node_completed"]


async def test_v071_back_pressure_reaches_the_agent() -> None:
    said: list[str] = []

    async def agent(prompt: object, ctx: object) -> Any:
        for text in ("one", "two", "three"):
            said.append(text)
            yield text

    loop = make_loop(agent, [yes()], max_buffered_output_frames=1, output_overflow_strategy="block")
    taken: list[Frame] = []
    async with loop:
        await loop.sink.write(TICK)
        for number in (1, 2, 3):
            for _ in range(20):
                await checkpoint()
            assert said == ["one", "two", "three"][:number], "nothing is asked for that has no room"
            taken.append(await loop.source.receive())
        taken += await loop.source.collect()
    assert story(taken) == ["T(a)", "T(a)", "T(a)", "node_started", "T(e)", "node_completed"]
    assert loop.result is not None
    assert loop.result.dropped_frames == 0


async def test_v072_a_second_loop_from_the_same_options_starts_afresh() -> None:
    def agent(prompt: Prompt, ctx: Any) -> str:
        return f"{ctx.iteration} {len(ctx.history)}"

    options = loop_options(agent, lambda prompt, ctx: more() if ctx.iteration == 1 else yes())
    runs = [await play(create_agent_loop(**options)) for _ in range(2)]
    assert runs[0] == runs[1]
    assert [frame.seq for frame in runs[0]] == [frame.seq for frame in runs[1]]
    assert only(runs[1], "node_started")[0] == {"iteration": 1, "agent_text": "1 0"}


async def test_v074_usage_is_summed() -> None:
    used = [
        Frame("DONE", {"usage": {"input_tokens": 3, "output_tokens": 4}}),
        Frame("DONE", {"usage": {"input_tokens": 10, "output_tokens": 1}}),
    ]
    counted = Frame("USAGE", {"input_tokens": 100})
    loop, _ = await play_out([["a", used[0]], ["b", counted, used[1]]], [more(), yes()])
    assert loop.result.usage == {"input_tokens": 113, "output_tokens": 5}


async def test_v075_notes_reach_the_next_prompt_once() -> None:
    build = Builder("inbox")
    gate = anyio.Event()

    async def agent(prompt: object, ctx: Any) -> str:
        if ctx.iteration == 1:
            await gate.wait()
        return "a"

    loop = make_loop(agent, [more(), more(), yes()], build_agent_prompt=build)
    async with loop:
        await loop.sink.write(TICK)
        assert await loop.sink.write({"type": "INPUT", "content": {"text": "look at b"}}) is True
        gate.set()
        await loop.source.collect()
    assert build.seen[1:] == [("look at b",), ()] or build.seen == [("look at b",), (), ()]


async def test_a_note_that_comes_after_the_prompt_waits_for_the_next_one() -> None:
    build = Builder("inbox")
    loop = make_loop(["a", "b"], [more(), yes()], build_agent_prompt=build)

    def progress(kind: str, data: dict[str, Any]) -> None:
        if kind.endswith("node_started") and data["iteration"] == 1:
            loop.sink.write_nowait({"type": "INPUT", "content": {"text": "look at b"}})

    loop = make_loop(["a", "b"], [more(), yes()], build_agent_prompt=build, on_progress=progress)
    await play(loop)
    assert build.seen == [(), ("look at b",)]


def test_v073_the_same_frames_on_both_backends() -> None:
    async def record() -> list[tuple[str, dict[str, Any], int | None]]:
        _, frames = await play_out(["a1", "a2"], [more("more"), yes("ok")])
        return [(frame.type, frame.content, frame.seq) for frame in frames]

    assert anyio.run(record, backend="asyncio") == anyio.run(record, backend="trio")


async def test_evidence_of_the_checks_is_there_for_the_evaluator_of_the_same_cycle() -> None:
    seen: list[Any] = []

    def judge(ctx: Any, history: object) -> str:
        seen.append((ctx.last_evidence, ctx.last_checks.evidence, ctx.iteration))
        return "judge"

    await play_out(
        ["a"],
        [yes()],
        checks_list=["c"],
        deterministic_checks=checks_of(False),
        max_retries=0,
        build_evaluator_prompt=judge,
    )
    assert seen == [("passed=False", "passed=False", 1)]


async def test_a_truncated_turn_is_marked_and_its_half_calls_are_not_run() -> None:
    ran = Seen("ran")
    cut = [call("t", raw_arguments='{"a":'), Frame("DONE", {"finish_reason": "length"})]
    loop, _ = await play_out([cut], [yes()], tool_adapters={"t": ran})
    assert loop.context.history[0]["truncated"] is True
    assert ran.calls == []


async def test_an_adapter_that_ended_cannot_take_another_turn() -> None:
    from agentloop import duplex_pair

    ours, theirs = duplex_pair()
    await theirs.sink.write("a")
    loop = make_loop(ours, [more(), yes()])
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await theirs.source.receive()
            theirs.sink.end()

        tasks.start_soon(serve)
        frames = await play(loop)
    assert only(frames, "ERROR")[0]["phase"] == "agent"
    assert only(frames, "ERROR")[0]["error_type"] == "AdapterEnded"
    assert "already ended" in only(frames, "ERROR")[0]["message"]


async def test_what_an_earlier_turn_left_behind_is_discarded() -> None:
    from agentloop import duplex_pair

    ours, theirs = duplex_pair()
    await theirs.sink.write("stale")

    async def serve() -> None:
        await theirs.source.receive()
        await theirs.sink.write("fresh")
        await theirs.sink.write({"type": "DONE"})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        _, frames = await play_out(ours, [yes()])
    assert only(frames, "node_started")[0]["agent_text"] == "fresh"


async def test_one_adapter_may_play_both_roles() -> None:
    both = ScriptedAdapter(["a", yes()])
    _, frames = await play_out(both, both)
    assert story(frames) == ["T(a)", "node_started", "T(e)", "node_completed"]


async def test_own_adapters_are_entered_and_left_once() -> None:
    events: list[str] = []

    class Owned(ScriptedAdapter):
        async def __aenter__(self) -> Owned:
            events.append("enter")
            return self

        async def __aexit__(self, *exc_info: object) -> None:
            events.append("leave")

    both = Owned(["a", yes()])
    await play_out(both, both, own_adapters=True)
    assert events == ["enter", "leave"]
    events.clear()
    both = Owned(["a", yes()])
    await play_out(both, both)
    assert events == []


async def test_forwarded_frames() -> None:
    said = [call("t"), Frame("REASONING", {"text": "hmm"}), "a"]
    _, frames = await play_out([said], [yes()], forward_frames="*", tool_adapters={"t": lambda: "out"})
    assert story(frames) == [
        "TOOL_CALL",
        "TOOL_RESULT",
        "REASONING",
        "T(a)",
        "DONE",
        "node_started",
        "T(e)",
        "DONE",
        "node_completed",
    ]
    _, frames = await play_out(
        [said], [yes()], forward_frames=["TOOL_CALL"], tool_adapters={"t": lambda: "o"}
    )
    assert story(frames) == ["TOOL_CALL", "node_started", "node_completed"]


async def test_lone_surrogates_of_an_agent_are_repaired_and_pairs_joined() -> None:
    async def agent(prompt: object, ctx: object) -> Any:
        for text in ("\ud83d", "\ude00 and \ud800", "x"):
            yield text

    _, frames = await play_out(agent, [yes()])
    assert only(frames, "node_started")[0]["agent_text"] == "\U0001f600 and \ufffdx"


async def test_run_reads_the_frames_away() -> None:
    loop = make_loop(["a"], [yes("good")])
    result = await loop.run()
    assert (result.status, result.evidence, result.agent_text) == ("SUCCESS", "good", "a")
    with pytest.raises(RuntimeError, match="one run"):
        await loop.run()


async def test_waiting_for_a_loop_that_was_not_entered() -> None:
    with pytest.raises(RuntimeError, match="not entered"):
        await make_loop(["a"], [yes()]).wait()


async def test_a_plain_function_may_give_a_coroutine_or_a_generator() -> None:
    async def coroutine(text: str) -> str:
        await checkpoint()
        return text

    async def generator(text: str) -> Any:
        yield text

    for make in (coroutine, generator):
        _, frames = await play_out(lambda prompt, ctx, make=make: make("a"), [yes()])
        assert only(frames, "node_started")[0]["agent_text"] == "a"


async def test_the_status_follows_the_run() -> None:
    told: list[NodeStatus] = []
    loop: Any = make_loop(["a"], [yes()], on_progress=lambda kind, data: told.append(loop.status))
    seen = [loop.status]
    async with loop:
        seen.append(loop.status)
        await loop.sink.write(TICK)
        seen.append(loop.status)
        await loop.source.collect()
    assert [*seen, told[0], loop.status] == ["PENDING", "PENDING", "RUNNING", "RUNNING", "SUCCESS"]


async def test_what_is_written_before_entering_takes_effect_on_entry() -> None:
    build = Builder("inbox")
    loop = make_loop(["a"], [yes()], build_agent_prompt=build)
    assert await loop.sink.write({"type": "INPUT", "content": {"text": "early"}}) is True
    assert await loop.sink.write(TICK) is True
    async with loop:
        frames = await loop.source.collect()
    assert short(frames[-1]) == "node_completed"
    assert build.seen == [("early",)]


async def test_facts_from_before_the_tick_are_there_and_not_told() -> None:
    progress = Seen()
    loop = make_loop(["a"], [yes()], on_progress=progress)
    loop.symbolics.assert_value("early", 1)
    async with loop:
        loop.symbolics.assert_value("entered", 2)
        await loop.sink.write(TICK)
        frames = await loop.source.collect()
    assert only(frames, "symbolic_asserted") == []
    assert not any(kind.endswith("symbolic_asserted") for kind, _ in progress.calls)
    assert loop.result is not None
    assert loop.result.symbolics == {"early": 1, "entered": 2}


async def test_a_fact_asserted_in_a_thread_never_waits_for_a_full_buffer() -> None:
    def note() -> str:
        for number in range(3):
            loop.symbolics.assert_value("n", number, by="tool")
        return "noted"

    loop = make_loop(
        [[call("note"), "a"]],
        [yes()],
        tool_adapters={"note": note},
        max_buffered_output_frames=1,
        output_overflow_strategy="block",
    )
    frames: list[Frame] = []
    with anyio.fail_after(5):
        async with loop:
            await loop.sink.write(TICK)
            async for frame in loop.source:
                frames.append(frame)
                for _ in range(5):
                    await checkpoint()
    assert [fact["value"] for fact in only(frames, "symbolic_asserted")] == [0, 1, 2]
    assert story(frames)[-4:] == ["T(a)", "node_started", "T(e)", "node_completed"]


async def test_the_message_of_an_error_is_cut_and_holds_no_traceback() -> None:
    def parse(frames: object) -> object:
        raise ValueError("x" * 5_000)

    _, frames = await play_out(["a"], ["b"], parse_evaluator_output=parse)
    assert only(frames, "ERROR")[0]["message"] == "x" * 2_000
    assert "Traceback" not in json.dumps([frame.content for frame in frames])
