"""Tool calls inside a run: who is asked, when the answer comes, what the trace says."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from agentloop import Frame, Redactor, ScriptedAdapter, Tool, duplex_pair
from agentloop.scripted import Expect
from tests.agentloop.loop.scenes import (
    KINDS,
    TICK,
    RealDuplex,
    Seen,
    agent_of,
    call,
    make_loop,
    more,
    only,
    play_out,
    serving,
    story,
    yes,
)

pytestmark = pytest.mark.anyio


def trace_seen(seen: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return options with a check that keeps the trace it was given and passes."""

    def check(names: list[str], trace: Any) -> bool:
        seen.append([dict(entry) for entry in trace])
        return True

    return {"checks_list": ["c"], "deterministic_checks": check}


@pytest.mark.parametrize("kind", KINDS)
async def test_v148_a_plain_function_is_called_and_answered(kind: str) -> None:
    threads: list[int] = []

    def add(a: int, b: int) -> int:
        threads.append(threading.get_ident())
        return a + b

    agent, results = agent_of(kind, [[call("add", {"a": 1, "b": 2}, id="k7"), "three"]])
    async with serving(agent):
        _loop, frames = await play_out(agent, [yes()], tool_adapters={"add": add})
    assert [result.content for result in results] == [{"id": "k7", "name": "add", "ok": True, "output": 3}]
    assert threads != [threading.get_ident()]
    assert only(frames, "node_started")[0]["agent_text"] == "three"


async def test_v148_the_answer_is_there_before_the_next_frame_is_awaited() -> None:
    expected = Expect("TOOL_RESULT", {"id": "k1", "ok": True, "output": 3})
    await_answer = ScriptedAdapter([[call("add", {"a": 1, "b": 2}), expected, "three"]])
    loop, _ = await play_out(await_answer, [yes()], tool_adapters={"add": lambda a, b: a + b})
    assert loop.result.status == "SUCCESS"


async def test_v149_an_unknown_tool() -> None:
    agent = ScriptedAdapter([[call("nope"), "went on"]])
    _, frames = await play_out(agent, [yes()], tool_adapters={"b": print, "a": print})
    content = agent.results[0].content
    assert (content["ok"], content["error"]) == (False, "unknown_tool")
    assert "a, b" in content["output"]
    assert only(frames, "node_started")[0]["agent_text"] == "went on"


async def test_v150_a_duplex_tool_gets_the_method() -> None:
    ours, theirs = duplex_pair()
    got: list[Frame] = []

    async def serve() -> None:
        frame = await theirs.source.receive()
        got.append(frame)
        await theirs.sink.write(
            Frame("TOOL_RESULT", {"id": frame.content["id"], "ok": True, "output": "text"})
        )

    agent = ScriptedAdapter([[call("fs.read", {"path": "x"}), "a"]])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await play_out(agent, [yes()], tool_adapters={"fs": ours})
    assert got[0].type == "TOOL_CALL"
    assert got[0].content["method"] == "read"
    assert got[0].content["arguments"] == {"path": "x"}
    assert agent.results[0].content["output"] == "text"
    assert agent.results[0].content["name"] == "fs.read"


async def test_v151_an_async_tool_is_cancelled_and_awaited() -> None:
    events: list[str] = []

    async def slow() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            events.append("cleaned up")
        return "never"

    async def agent(prompt: object, ctx: object) -> AsyncGenerator[Any, Any]:
        result = yield call("slow")
        events.append(f"answered timed_out={result.content.get('timed_out')}")
        assert "exit_code" not in result.content
        assert (result.content["ok"], result.content["error"]) == (False, "timeout")
        yield "a"

    seen: list[list[dict[str, Any]]] = []
    await play_out(agent, [], tool_adapters={"slow": slow}, tool_timeout_ms=50, **trace_seen(seen))
    assert events == ["cleaned up", "answered timed_out=True"]
    assert seen[0][0]["timed_out"] is True
    assert seen[0][0]["exit_code"] is None


async def test_v152_a_blocking_tool_is_left_behind() -> None:
    release, ended, beats = threading.Event(), threading.Event(), 0

    def block() -> str:
        release.wait(5)
        ended.set()
        return "late"

    async def beat() -> None:
        nonlocal beats
        while True:
            await anyio.sleep(0.005)
            beats += 1

    agent = ScriptedAdapter([[call("block"), "a"]])
    seen: list[list[dict[str, Any]]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        began = anyio.current_time()
        await play_out(agent, [], tool_adapters={"block": block}, tool_timeout_ms=50, **trace_seen(seen))
        assert 0.04 < anyio.current_time() - began < 1
        tasks.cancel_scope.cancel()
    assert beats >= 3
    assert agent.results[0].content["error"] == "timeout"
    release.set()
    assert ended.wait(5)
    assert [entry["output"] for entry in seen[0]] == [agent.results[0].content["output"]]


async def test_v153_a_tool_that_raises() -> None:
    def broken() -> None:
        raise ValueError("bad")

    agent = ScriptedAdapter([[call("broken"), "a"]])
    loop, _ = await play_out(agent, [yes()], tool_adapters={"broken": broken})
    content = agent.results[0].content
    assert (content["ok"], content["error"]) == (False, "tool_error")
    assert content["output"] == content["message"] == "ValueError: bad"
    assert loop.result.status == "SUCCESS"


@pytest.mark.parametrize(
    ("raw", "error"), [("", None), ("  ", None), ("[1]", "invalid_arguments"), ('{"a":', "invalid_arguments")]
)
async def test_v154_raw_arguments(raw: str, error: str | None) -> None:
    tool = Seen("ran")
    agent = ScriptedAdapter([[call("t", raw_arguments=raw), "a"]])

    def run() -> Any:
        return tool()

    await play_out(agent, [yes()], tool_adapters={"t": run})
    assert agent.results[0].content.get("error") == error
    assert len(tool.calls) == (error is None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parallel", [False, True])
async def test_v155_one_after_another_or_together(kind: str, parallel: bool) -> None:
    events: list[str] = []

    async def tool(name: str, steps: int) -> str:
        events.append(f"begin {name}")
        for _ in range(steps):
            await checkpoint()
        events.append(f"end {name}")
        return name

    def asked(name: str, steps: int) -> Frame:
        return call("tool", {"name": name, "steps": steps}, id=name)

    agent, results = agent_of(kind, [[[asked("slow", 50), asked("fast", 1)], "a"]])
    seen: list[list[dict[str, Any]]] = []
    async with serving(agent):
        await play_out(
            agent, [], tool_adapters={"tool": tool}, parallel_tool_calls=parallel, **trace_seen(seen)
        )
    if parallel:
        assert sorted(events[:2]) == ["begin fast", "begin slow"]
        assert events[2:] == ["end fast", "end slow"]
    else:
        assert events == ["begin slow", "end slow", "begin fast", "end fast"]
    assert [entry["call_id"] for entry in seen[0]] == ["slow", "fast"]
    assert sorted(result.content["id"] for result in results) == ["fast", "slow"]


async def test_v156_the_evaluator_has_no_tools() -> None:
    tool = Seen("ran")
    evaluator = ScriptedAdapter([[call("t"), yes("went on")]])
    seen: list[list[dict[str, Any]]] = []

    def failing(names: list[str], trace: Any) -> bool:
        seen.append([*trace])
        return False

    options = trace_seen(seen) | {"deterministic_checks": failing}
    _loop, frames = await play_out(
        ["a"], evaluator, tool_adapters={"t": lambda: tool()}, max_retries=0, **options
    )
    assert evaluator.results[0].content["error"] == "tools_not_available"
    assert tool.calls == []
    assert frames[-1].content["evidence"] == "went on"
    assert seen == [[]]


async def test_v157_ids() -> None:
    agent = ScriptedAdapter(
        [[call("t", id=None), call("t", {"n": 1}, id="x"), call("t", {"n": 2}, id="x"), "a"]]
    )
    seen: list[list[dict[str, Any]]] = []
    await play_out(agent, [], tool_adapters={"t": lambda n=0: n}, **trace_seen(seen))
    assert [result.content["id"] for result in agent.results] == ["c1", "x", "x"]
    assert [entry["call_id"] for entry in seen[0]] == ["c1", "x", "x#2"]


async def test_v158_too_many_calls() -> None:
    ran: list[int] = []
    agent = ScriptedAdapter([[*(call("t", {"n": n}, id=f"k{n}") for n in range(3)), Frame("DONE", {})]])
    loop, _ = await play_out(agent, [yes()], tool_adapters={"t": ran.append}, max_tool_calls=2)
    assert [result.content.get("error") for result in agent.results][2] == "tool_call_limit"
    assert len(agent.results) == 3
    assert loop.result.status == "SUCCESS"


@pytest.mark.parametrize("role", ["agent", "evaluator"])
async def test_whoever_goes_on_asking_is_given_up(role: str) -> None:
    async def endless(prompt: object, ctx: object) -> AsyncIterator[Any]:
        n = 0
        while True:
            n += 1
            yield call("t", id=f"k{n}")
            await checkpoint()

    adapters = (endless, [yes()]) if role == "agent" else (["a"], endless)
    with anyio.fail_after(5):
        loop, frames = await play_out(*adapters, tool_adapters={"t": lambda: 1}, max_tool_calls=2)
    assert loop.result.reason == "error"
    assert only(frames, "ERROR")[0]["phase"] == role
    assert "max_tool_calls" in only(frames, "ERROR")[0]["message"]


async def test_facts_a_tool_asserts_are_told_while_the_turn_goes_on() -> None:
    async def note() -> str:
        loop.symbolics.assert_value("noted", True, by="tool")
        return "ok"

    loop = make_loop([[call("note"), "a"]], [yes()], tool_adapters={"note": note})
    async with loop:
        await loop.sink.write(TICK)
        frames = await loop.source.collect()
    assert story(frames) == ["symbolic_asserted", "T(a)", "node_started", "T(e)", "node_completed"]


async def test_a_list_may_hold_text_beside_calls() -> None:
    agent = ScriptedAdapter([[["first ", call("t", {"n": 1}), "second", call("t", {"n": 2}, id="k2")], "!"]])
    _loop, frames = await play_out(agent, [yes()], tool_adapters={"t": lambda n: n})
    assert only(frames, "node_started")[0]["agent_text"] == "first second!"
    assert [result.content["output"] for result in agent.results] == [1, 2]


async def test_text_held_back_before_calls_is_text_and_no_call() -> None:
    redactor = Redactor(["opensesame-123"], patterns=False)
    agent = ScriptedAdapter([["it begins opens", [call("t"), call("t", {"n": 2}, id="k2")], "!"]])
    seen: list[list[dict[str, Any]]] = []
    _loop, frames = await play_out(
        agent, [], tool_adapters={"t": lambda n=1: n}, redactor=redactor, **trace_seen(seen)
    )
    assert only(frames, "node_started")[0]["agent_text"] == "it begins opens!"
    assert [entry["name"] for entry in seen[0]] == ["t", "t"]


@pytest.mark.parametrize("kind", ["scripted", "duplex"])
async def test_overlapping_calls_publish_each_frame_once_and_in_order(kind: str) -> None:
    class SlowTap:
        fatal = False

        def __init__(self) -> None:
            self.seen: list[int | None] = []

        async def write(self, frame: Frame) -> None:
            await checkpoint()
            await checkpoint()
            self.seen.append(frame.seq)

    async def tool(steps: int) -> int:
        for _ in range(steps):
            await checkpoint()
        return steps

    said: list[Any] = [[call("tool", {"steps": n % 4}, id=f"k{n}") for n in range(12)], "a", "b", "c"]
    if kind == "duplex":  # it does not wait for the answers before it goes on
        ours, theirs = duplex_pair()

        async def serve() -> None:
            await theirs.source.receive()
            for item in (*said[0], *said[1:], {"type": "DONE"}):
                await theirs.sink.write(item)

        agent: Any = ours
    else:
        agent = ScriptedAdapter([said])

        async def serve() -> None:
            """Nothing to do."""

    tap = SlowTap()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        _, frames = await play_out(
            agent,
            [yes()],
            tool_adapters={"tool": tool},
            parallel_tool_calls=True,
            forward_frames="*",
            taps=[tap],
        )
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
    assert tap.seen == [frame.seq for frame in frames]
    assert len(only(frames, "TOOL_RESULT")) == 12


async def test_secrets_in_a_result_are_gone_before_anybody_sees_them() -> None:
    secret = "correct-horse-battery"
    agent = ScriptedAdapter([[call("t"), "a"]])
    seen: list[list[dict[str, Any]]] = []
    tool = {"t": lambda: {"output": f"key={secret}", "stdout": secret, "stderr": secret}}
    _, frames = await play_out(
        agent, [], tool_adapters=tool, redactor=Redactor([secret]), forward_frames="*", **trace_seen(seen)
    )
    assert secret not in repr((agent.results, seen, frames))
    assert seen[0][0]["stdout"] == "[redacted]"


async def test_a_tool_that_ignores_its_deadline_does_not_hold_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = anyio.Event()

    async def stubborn() -> str:
        with anyio.CancelScope(shield=True):
            await release.wait()
        return "late"

    agent = ScriptedAdapter([[call("stubborn"), "a"]])
    loop = make_loop(
        agent, [yes()], tool_adapters={"stubborn": stubborn}, tool_timeout_ms=20, cleanup_timeout_ms=30
    )
    with anyio.fail_after(5), caplog.at_level(logging.WARNING):
        async with loop:
            await loop.sink.write(TICK)
            began = anyio.current_time()
            result = await loop.wait()
            assert anyio.current_time() - began < 0.5
            frames = await loop.source.collect()
            release.set()
    assert story(frames) == ["ERROR", "tree_failed"]
    assert result.reason == "error"
    assert "stubborn" in frames[0].content["message"]
    assert any("did not stop" in record.getMessage() for record in caplog.records)
    assert agent.results == []


async def test_a_tool_without_a_deadline_may_take_its_time() -> None:
    async def slow() -> str:
        await anyio.sleep(0.08)
        return "done"

    loop, _ = await play_out(
        [[call("slow"), "a"]],
        [yes()],
        tool_adapters={"slow": slow},
        tool_timeout_ms=None,
        turn_timeout_ms=30,
        cleanup_timeout_ms=10,
    )
    assert loop.result.status == "SUCCESS"


async def test_the_same_call_repeated_is_the_newest_for_the_checks() -> None:
    """See V128: a stale pass does not outlive a newer failure."""
    codes = [0, 1]
    seen: list[list[dict[str, Any]]] = []
    await play_out(
        [[call("t"), call("t", id="k2"), "a"]],
        [],
        tool_adapters={"t": lambda: {"exit_code": codes.pop(0)}},
        **trace_seen(seen),
    )
    assert [entry["exit_code"] for entry in seen[0]] == [1]


@pytest.mark.parametrize(("scope", "passes"), [("latest", False), ("all", True)])
async def test_v128_the_newest_result_of_a_call_counts(scope: str, passes: bool) -> None:
    codes = [0, 1]
    reports: list[bool] = []

    def only_in_cycle_one(names: list[str], trace: Any) -> tuple[bool, str]:
        report = defaults(["exit_code:0"], trace)
        reports.append(report.all_passed)
        return report.all_passed and len(reports) > 1, report.evidence

    from agentloop import create_default_deterministic_checks

    defaults = create_default_deterministic_checks()
    await play_out(
        [[call("t"), "a"], [call("t"), "b"]],
        [],
        tool_adapters={"t": lambda: {"exit_code": codes.pop(0)}},
        checks_list=["exit_code:0"],
        deterministic_checks=only_in_cycle_one,
        tool_trace_scope=scope,
        max_iterations=2,
    )
    assert reports == [True, passes]


@pytest.mark.parametrize(("scope", "passes"), [("latest", True), ("cycle", False)])
async def test_v129_other_calls_keep_what_they_showed(scope: str, passes: bool) -> None:
    from agentloop import create_default_deterministic_checks

    defaults = create_default_deterministic_checks()
    reports: list[bool] = []

    def check(names: list[str], trace: Any) -> bool:
        reports.append(defaults(["exit_code:0"], trace).all_passed)
        return False

    await play_out(
        [[call("t", {"a": 1}), "a"], [call("u"), "b"]],
        [],
        tool_adapters={"t": lambda a: {"exit_code": 0}, "u": lambda: {"exit_code": 5}},
        checks_list=["exit_code:0"],
        deterministic_checks=check,
        tool_trace_scope=scope,
        max_iterations=2,
    )
    assert reports == [True, passes]


async def test_v124_the_default_checks_see_the_facts_of_the_loop() -> None:
    loop, frames = await play_out(["a"], [], checks_list=["symbolic:a=1"], initial_symbolics={"a": 1})
    assert loop.result.reason == "checks"
    assert frames[-1].content["evidence"] == "PASS symbolic:a=1"


@pytest.mark.parametrize(("retries", "ends"), [(1, "node_completed"), (0, "node_failed")])
async def test_v147_an_unreadable_verdict_is_asked_for_again(retries: int, ends: str) -> None:
    evaluator = ScriptedAdapter(["not json", yes("ok")])
    errors: list[str | None] = []

    def judge(ctx: Any, history: object) -> str:
        errors.append(ctx.parse_error)
        return "judge"

    loop, frames = await play_out(
        ["a"], evaluator, evaluator_parse_retries=retries, build_evaluator_prompt=judge
    )
    assert story(frames)[-1] == ends
    assert len(evaluator.prompts) == 1 + retries
    assert loop.result.iterations == 1
    assert errors == [None, "no_json"][: 1 + retries]


async def test_the_parse_budget_is_one_of_each_cycle() -> None:
    evaluator = ScriptedAdapter(["bad", more(), "bad", yes()])
    loop, _ = await play_out(["a", "b"], evaluator, evaluator_parse_retries=1)
    assert loop.result.status == "SUCCESS"
    assert loop.result.retry_count == 1


async def test_a_key_names_the_call_and_not_the_models_id() -> None:
    keys: list[str] = []

    def write(key: str) -> str:
        keys.append(key)
        return "ok"

    tool = Tool(name="write", handler=write, accepts_key=True)
    agent = [[call("write", id="x"), call("write", id="x"), "a"], [call("write", id="x"), "b"]]
    await play_out(agent, [more(), yes()], tool_adapters={"write": tool}, run_id="run-7")
    assert len(set(keys)) == 3
    assert all(key.startswith("run-7/") for key in keys)


async def test_a_real_duplex_answers_its_own_calls() -> None:
    async def turn(prompt: object, ctx: object) -> AsyncGenerator[Any, Any]:
        one = yield call("t", {"n": 1}, id="k1")
        two, three = yield [call("t", {"n": 2}, id="k2"), call("t", {"n": 3}, id="k3")]
        yield f"{one.content['output']}{two.content['output']}{three.content['output']}"

    agent = RealDuplex(turn)
    async with serving(agent):
        _, frames = await play_out(agent, [yes()], tool_adapters={"t": lambda n: n})
    assert only(frames, "node_started")[0]["agent_text"] == "123"
