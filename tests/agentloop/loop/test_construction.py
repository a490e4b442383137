"""What a loop demands before it touches an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentloop import (
    AgentLoopConfigError,
    NodeStatus,
    create_agent_loop,
    create_looping_agent_loop,
    create_symbolic_state,
    options_from_camel,
)
from agentloop.loop.options import LoopOptions
from tests.agentloop.loop.scenes import call, loop_options, make_loop, more, play, play_out, story, yes

REQUIRED = (
    "agent_adapter",
    "evaluator_adapter",
    "build_agent_prompt",
    "build_evaluator_prompt",
    "parse_evaluator_output",
)


def partial_options(count: int) -> dict[str, Any]:
    complete = loop_options(["a"], [yes()])
    return {name: complete[name] for name in REQUIRED[:count]}


def test_v026_without_an_agent_adapter() -> None:
    with pytest.raises(AgentLoopConfigError) as caught:
        create_agent_loop()
    assert str(caught.value) == "create_agent_loop requires an agent_adapter"
    assert isinstance(caught.value, ValueError)


def test_v027_without_an_evaluator_adapter() -> None:
    with pytest.raises(AgentLoopConfigError) as caught:
        create_agent_loop(**partial_options(1))
    assert str(caught.value) == "create_agent_loop requires an evaluator_adapter"


@pytest.mark.parametrize("count", [2, 3, 4])
def test_v028_the_first_missing_callable_is_named(count: int) -> None:
    with pytest.raises(AgentLoopConfigError) as caught:
        create_agent_loop(**partial_options(count))
    assert str(caught.value) == f"create_agent_loop requires {REQUIRED[count]}"


@pytest.mark.parametrize("name", REQUIRED)
def test_none_counts_as_missing(name: str) -> None:
    with pytest.raises(AgentLoopConfigError, match=rf"requires (an )?{name}$"):
        create_agent_loop(**loop_options(["a"], [yes()], **{name: None}))


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("max_iterations", -1, ValueError),
        ("max_retries", True, TypeError),
        ("tool_timeout_ms", 0, ValueError),
        ("max_buffered_output_frames", 0, ValueError),
        ("checks_list", "file_exists:a", TypeError),
    ],
)
def test_v029_wrong_values(option: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=option):
        make_loop(["a"], [yes()], **{option: value})


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("max_iterations", 2.0, TypeError),
        ("max_iterations", "3", TypeError),
        ("max_retries", -1, ValueError),
        ("max_buffered_output_frames", False, TypeError),
        ("output_overflow_strategy", "drop", ValueError),
        ("tool_trace_scope", "newest", ValueError),
        ("commit", "never", ValueError),
        ("record_prompts", "all", ValueError),
        ("turn_timeout_ms", float("nan"), ValueError),
        ("turn_timeout_ms", float("inf"), ValueError),
        ("turn_timeout_ms", -5, ValueError),
        ("run_timeout_ms", "1", TypeError),
        ("cleanup_timeout_ms", True, TypeError),
        ("cleanup_timeout_ms", None, TypeError),
        ("max_tool_calls", -1, ValueError),
        ("max_tool_output", 0, ValueError),
        ("evaluator_parse_retries", -1, ValueError),
        ("build_agent_prompt", "go", TypeError),
        ("parse_evaluator_output", 5, TypeError),
        ("on_progress", [], TypeError),
        ("tool_adapters", [("a", len)], TypeError),
        ("tool_adapters", {"a": 5}, TypeError),
        ("initial_symbolics", [1], TypeError),
        ("initial_symbolics", {"a": object()}, TypeError),
        ("initial_symbolics", {"": 1}, ValueError),
        ("checks_list", 5, TypeError),
        ("agent_adapter", 5, TypeError),
        ("evaluator_adapter", "say yes", TypeError),
        ("context", [1], TypeError),
        ("context", {"runtime": 5}, TypeError),
        ("labels", [1], TypeError),
        ("labels", {"a": object()}, TypeError),
        ("forward_frames", 5, TypeError),
        ("forward_frames", "TEXT", TypeError),
        ("extra_frames", "yes", TypeError),
        ("raise_errors", 1, TypeError),
    ],
)
def test_every_option_is_checked_at_construction(option: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        make_loop(["a"], [yes()], **{option: value})


@pytest.mark.anyio
async def test_v030_camel_case_only_through_the_conversion() -> None:
    with pytest.raises(TypeError, match="maxRetries"):
        create_agent_loop(**loop_options(["a"], [yes()], maxRetries=3))
    camel = {
        "agentAdapter": loop_options(["a"])["agent_adapter"],
        "evaluatorAdapter": loop_options([], [yes()])["evaluator_adapter"],
        "buildAgentPrompt": lambda ctx: "go",
        "buildEvaluatorPrompt": lambda ctx, history: "judge",
        "parseEvaluatorOutput": loop_options([])["parse_evaluator_output"],
        "maxRetries": 3,
        "checksList": [],
    }
    loop = create_agent_loop(**options_from_camel(camel))
    assert story(await play(loop))[-1] == "node_completed"
    with pytest.raises(TypeError, match="maxRetrys"):
        options_from_camel({"maxRetrys": 3})


def test_an_unknown_option_names_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"no option 'max_retrys'.*'max_retries'"):
        make_loop(["a"], [yes()], max_retrys=3)
    with pytest.raises(TypeError, match=r"no option 'should_continu'.*'should_continue'"):
        create_looping_agent_loop(**loop_options(["a"], [yes()]), should_continu=bool)


def test_v031_making_a_loop_touches_nothing() -> None:
    options = loop_options(["a"], [yes()])
    loop = create_agent_loop(**options)
    assert options["agent_adapter"].prompts == []
    assert options["evaluator_adapter"].prompts == []
    assert loop.status is NodeStatus.PENDING
    assert loop.result is None
    assert loop.symbolics.get_all() == {}


@pytest.mark.anyio
async def test_v032_initial_values_are_not_touched() -> None:
    initial = {"k": [1]}
    loop = make_loop([[call("grow"), "a"]], [yes()], initial_symbolics=initial)

    async def grow() -> str:
        loop.symbolics.assert_value("k", [*loop.symbolics.get_value("k"), 2], by="tool")
        return "grown"

    loop = make_loop([[call("grow"), "a"]], [yes()], initial_symbolics=initial, tool_adapters={"grow": grow})
    await play(loop)
    assert loop.symbolics.get_value("k") == [1, 2]
    assert initial == {"k": [1]}


@pytest.mark.anyio
async def test_v033_a_context_without_a_runtime_is_the_runtime() -> None:
    seen: list[object] = []

    def build(ctx: Any) -> str:
        seen.extend((ctx.runtime.task, ctx["runtime"]["task"]))
        return "go"

    await play_out(["a"], [yes()], context={"task": "t"}, build_agent_prompt=build)
    assert seen == ["t", "t"]


@pytest.mark.anyio
async def test_v034_a_context_with_a_runtime() -> None:
    seen: list[object] = []

    def build(ctx: Any) -> str:
        seen.extend((ctx.runtime.task, ctx.extra["user"], ctx.symbolics.get_value("a")))
        with pytest.raises(AttributeError, match="goal"):
            _ = ctx.runtime.goal
        with pytest.raises(KeyError):
            _ = ctx["goal"]
        return "go"

    context = {"runtime": {"task": "t"}, "user": "u", "symbolics": {"a": 1}}
    loop, _ = await play_out(["a"], [yes()], context=context, build_agent_prompt=build)
    assert seen == ["t", "u", 1]
    assert loop.context.runtime.task == "t"


@pytest.mark.anyio
async def test_v035_default_checks_are_made_for_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    loop, frames = await play_out(["a"], checks_list=["file_exists:out.txt"])
    assert story(frames) == ["T(a)", "node_started", "node_completed"]
    assert loop.result is not None
    assert loop.result.reason == "checks"


@pytest.mark.anyio
async def test_the_list_of_checks_is_copied_at_construction() -> None:
    checks, asked = ["one"], []

    def check(names: list[str], trace: object) -> bool:
        asked.append(list(names))
        names.clear()
        return len(asked) == 2

    loop = make_loop(["a", "b"], checks_list=checks, deterministic_checks=check)
    checks.append("two")
    await play(loop)
    assert asked == [["one"], ["one"]]


@pytest.mark.anyio
async def test_a_given_state_is_used_and_completed() -> None:
    state = create_symbolic_state({"a": 1})
    loop, _ = await play_out(["a"], [yes()], symbolics=state, initial_symbolics={"a": 5, "b": 2})
    assert loop.symbolics is state
    assert state.get_all() == {"a": 1, "b": 2}


@pytest.mark.anyio
async def test_declared_names_bind_also_in_a_given_state() -> None:
    with pytest.raises((AgentLoopConfigError, TypeError, ValueError), match="symbolic_names"):
        make_loop(["a"], [yes()], symbolics=create_symbolic_state(), symbolic_names={"a": "developer"})


@pytest.mark.anyio
async def test_declared_names_bind_the_inner_loops_of_a_looping_loop() -> None:
    loop = create_looping_agent_loop(
        **loop_options(["a"], [yes("ok", [{"name": "a", "value": 1}])], symbolic_names={"a": "developer"})
    )
    frames = await play(loop)
    assert loop.symbolics.get_all() == {}
    assert "ERROR" in story(frames)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("agent_adapter", None, AgentLoopConfigError),
        ("max_retries", True, TypeError),
        ("inner_max_iterations", -1, ValueError),
        ("max_iterations", -1, ValueError),
        ("cleanup_timeout_ms", 0, ValueError),
        ("max_buffered_output_frames", 0, ValueError),
        ("should_continue", True, TypeError),
        ("on_progress", [], TypeError),
        ("inner_loop_factory", 5, TypeError),
        ("node_provider", 5, TypeError),
    ],
)
def test_a_looping_loop_checks_what_it_hands_on_at_construction(
    option: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        create_looping_agent_loop(**loop_options(["a"], [yes()], **{option: value}))


def test_by_default_no_turn_and_no_tool_may_take_for_ever() -> None:
    complete = LoopOptions(**loop_options(["a"], [yes()]))
    assert (complete.turn_timeout_ms, complete.tool_timeout_ms) == (600_000, 30_000)
    assert complete.cleanup_timeout_ms == 5_000


@pytest.mark.anyio
async def test_the_loop_can_be_made_and_aborted_without_an_event_loop() -> None:
    import threading

    made: list[Any] = []

    def outside() -> None:
        loop = make_loop(["a"], [more()])
        assert loop.abort("early") is True
        made.append(loop)

    thread = threading.Thread(target=outside)
    thread.start()
    thread.join()
    assert made, "abort before entry needs no event loop"
    async with made[0] as loop:
        assert story([frame async for frame in loop.source]) == ["tree_failed", "ABORT"]
