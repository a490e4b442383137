"""Whole runs in virtual time, by the numbers of the behaviour they hold to."""

from __future__ import annotations

import time
from typing import Any

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from agentloop import (
    AgentLoopConfigError,
    AssemblyRequest,
    ClassifiedError,
    Context,
    Err,
    InvariantViolation,
    ManualClock,
    MemoryLedgerStore,
    Message,
    ModelReply,
    Ok,
    PassthroughAssembler,
    RunLedger,
    Summary,
    TokenUsage,
    ToolCall,
    ToolSpec,
    budget_exceeded,
    cancelled,
    correctable,
    fatal,
    replay_file,
    transient,
)
from agentloop._canonical import decode
from agentloop.errors import LedgerUnavailable
from agentloop.orchestrator.events import BackoffElapsed, event_name
from agentloop.orchestrator.providers import ChunkedProvider, ScriptedProvider
from agentloop.orchestrator.reducer import kept_name
from agentloop.orchestrator.runtime import RunResult
from tests.agentloop.orchestrator.scenes import A, F, T, play, search

pytestmark = pytest.mark.anyio


def waits(result: RunResult) -> list[int]:
    return [
        entry.event.waited_ms for entry in result.ledger.entries if isinstance(entry.event, BackoffElapsed)
    ]


def steps(result: RunResult) -> list[str]:
    return [f"{entry.from_phase}->{entry.to} {event_name(entry.event)}" for entry in result.ledger.steps]


def code(result: RunResult) -> str | None:
    return None if result.outcome.error is None else result.outcome.error.code


def told(result: RunResult) -> tuple[str, str | None, int, str]:
    """Status, code, entries and fingerprint."""
    file = result.ledger
    return result.outcome.status, code(result), len(file.steps), file.fingerprint


# ----------------------------------------------------------------------------------- answers


async def test_v053_an_answer() -> None:
    result = await play([A()])
    file = result.ledger
    assert file.phase_path == ["assemble", "model", "route", "finalize", "done"]
    assert [entry.effects for entry in file.entries] == [
        ("assemble",),
        ("call-model",),
        (),
        ("finalize",),
        (),
    ]
    assert (file.fingerprint, file.finished_at, result.run_id) == ("ed485d24", 0, "run-0001")
    assert result.outcome.output == "the answer"


async def test_v054_a_tool_call_and_an_answer() -> None:
    result = await play([T(), A()], [search()])
    assert told(result) == ("completed", None, 10, "b8979d4d")
    assert result.ledger.tool_sequence == ["search"]
    assert (result.state.usage.model_calls, result.state.usage.tool_calls) == (2, 1)
    assert [message.content for message in result.transcript if message.role == "tool"] == ["found x"]


async def test_v055_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    result = await play([T("serch"), T(), A()], [search()])
    uses = [(use.name, use.ok, use.error_code) for use in result.ledger.tool_calls]
    assert uses == [("serch", False, "tool.unknown"), ("search", True, None)]
    assert told(result) == ("completed", None, 15, "882e212b")
    assert result.state.usage.corrective_turns == 1
    observation = next(message for message in result.transcript if message.role == "tool")
    assert "serch" in observation.content
    assert "Available tools: search." in observation.content


async def test_v056_arguments_that_do_not_fit() -> None:
    result = await play([T(args={"query": "x"}), A()], [search()])
    observation = next(message for message in result.transcript if message.role == "tool")
    assert '$ missing required property "q"' in observation.content
    assert result.ledger.tool_calls[0].error_code == "tool.invalid_arguments"
    assert result.outcome.status == "completed"


# ----------------------------------------------------------------------------------- retries


async def test_v057_a_transient_failure() -> None:
    result = await play([F(), A()])
    assert (result.state.usage.retries, waits(result)) == (1, [277])
    assert told(result) == ("completed", None, 7, "50ed27ca")
    assert result.ledger.finished_at == 277


async def test_v058_two_transient_failures() -> None:
    result = await play([F(), F(), A()], retry={"baseDelayMs": 100, "maxDelayMs": 10_000})
    assert (waits(result), result.ledger.finished_at) == ([111, 185], 296)
    assert told(result) == ("completed", None, 9, "28aac350")


async def test_v059_attempts_run_out() -> None:
    result = await play([F()] * 4, budget={"maxModelAttempts": 2})
    assert told(result) == ("failed", "model.retries_exhausted", 5, "9f4ae929")
    assert result.state.usage.retries == 1


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        ("escapement", [206, 413, 904, 1541]),
        ("test", [277, 462, 884, 1751]),
        ("transient-retry", [272]),
    ],
)
async def test_v060_waits_by_seed(seed: str, expected: list[int]) -> None:
    turns = [F()] * len(expected)
    result = await play([*turns, A()], seed=seed, budget={"maxModelAttempts": 9})
    assert waits(result) == expected


async def test_v060_waits_of_a_small_base() -> None:
    result = await play([F(), F(), A()], seed="retry-exhaustion", retry={"baseDelayMs": 10})
    assert waits(result) == [8, 25]


class Raising:
    name = "raising"
    calls = 0

    async def generate(self, request: Any, call: Any, /) -> Any:
        self.calls += 1
        raise ValueError("no such thing")


async def test_v061_a_provider_that_raises_has_a_bug() -> None:
    provider = Raising()
    result = await play([], provider=provider)
    assert (result.outcome.status, code(result), provider.calls) == ("failed", "unknown.ValueError", 1)
    assert result.outcome.error is not None
    assert result.outcome.error.source == "provider"


async def test_v062_a_handler_that_raises_ends_the_run() -> None:
    async def broken(q: str) -> str:
        raise RuntimeError("broken")

    result = await play([T(), A()], [search(handler=broken)])
    error = result.outcome.error
    assert error is not None
    assert (error.error_class, error.source) == ("fatal", "tool:search")


# ------------------------------------------------------------------------------------ limits


async def test_v063_steps_run_out() -> None:
    result = await play([T()], [search()], repeat=True, budget={"maxSteps": 4})
    assert told(result) == ("halted", "budget.steps", 21, "0234d462")
    assert result.state.usage.model_calls == 4


async def test_v040_the_whole_tool_budget_leaves_an_answer() -> None:
    provider = ScriptedProvider([T(), A()])
    result = await play([], [search()], provider=provider, budget={"maxToolCalls": 1})
    assert told(result) == ("completed", None, 10, "b8979d4d")
    assert [len(request.tools) for request in provider.requests] == [1, 0]
    assert "No more tools" in provider.requests[1].messages[0].content


async def test_v041_a_larger_tool_budget_changes_nothing() -> None:
    result = await play([T(), A()], [search()], budget={"maxToolCalls": 2})
    assert told(result) == ("completed", None, 10, "b8979d4d")


async def test_v043_an_unknown_tool_again_and_again() -> None:
    result = await play([T("nope")], [search()], repeat=True)
    assert told(result) == ("halted", "budget.consecutive_failures", 16, "e57d12f1")
    usage = result.state.usage
    assert (usage.model_calls, usage.tool_calls) == (3, 3)


async def test_v044_blank_replies_again_and_again() -> None:
    result = await play([A("  ")], repeat=True, budget={"maxConsecutiveFailures": 2})
    assert (code(result), result.state.usage.model_calls) == ("budget.consecutive_failures", 2)


async def test_v045_without_tool_calls_a_plain_answer_completes() -> None:
    provider = ScriptedProvider([A()])
    result = await play([], [search()], provider=provider, budget={"maxToolCalls": 0})
    assert result.outcome.status == "completed"
    assert provider.requests[0].tools == ()
    with pytest.raises(AgentLoopConfigError, match=r"config\.invalid"):
        await play([A()], budget={"maxSteps": 0})


async def test_v048_attempts_of_two_turns() -> None:
    turns = [F(), F("correctable"), F(), F(), A()]
    result = await play(turns, budget={"maxModelAttempts": 3})
    assert told(result) == ("completed", None, 14, "cde20069")
    assert waits(result) == [277, 231, 442]
    assert (result.state.usage.retries, result.state.usage.corrective_turns) == (3, 1)


async def test_v064_a_tool_is_cut_at_the_wall_clock() -> None:
    clock = ManualClock()

    async def slow(q: str) -> str:
        await clock.sleep_ms(60_000)
        return "late"

    budget = {"maxWallClockMs": 30_000}
    result = await play([T(), A()], [search(handler=slow, timeout_ms=90_000)], clock=clock, budget=budget)
    assert steps(result)[-1] == "tools->halted budget.exceeded"
    assert (code(result), result.ledger.finished_at) == ("budget.wall_clock", 30_000)


async def test_v065_a_wait_is_cut_at_the_wall_clock() -> None:
    provider = ScriptedProvider([F(), A()])
    result = await play([], provider=provider, budget={"maxWallClockMs": 200})
    assert steps(result)[-1] == "backoff->halted budget.exceeded"
    assert (result.ledger.finished_at, len(provider.requests)) == (200, 1)


async def test_v066_a_finalizer_is_cut_at_the_wall_clock() -> None:
    clock = ManualClock()

    async def slow(draft: str, request: AssemblyRequest) -> str:
        await clock.sleep_ms(500)
        return draft

    result = await play([A()], clock=clock, finalizer=slow, budget={"maxWallClockMs": 200})
    assert (result.outcome.status, code(result)) == ("halted", "budget.wall_clock")
    assert (result.outcome.partial, result.ledger.finished_at) == ("the answer", 200)


async def test_w14_a_model_that_hangs_is_tried_again() -> None:
    turns = [A(waitMs=5_000), A()]
    result = await play(turns, config={"modelTimeoutMs": 1_000})
    assert (result.outcome.status, waits(result)) == ("completed", [277])
    assert result.ledger.steps[2].event.error.code == "model.timeout"  # type: ignore[union-attr]
    assert result.ledger.finished_at == 1_277


async def test_w14_a_tool_that_hangs_is_an_observation() -> None:
    clock = ManualClock()

    async def slow(q: str) -> str:
        await clock.sleep_ms(5_000)
        return "late"

    result = await play([T(), A()], [search(handler=slow, timeout_ms=100, read_only=False)], clock=clock)
    assert [(use.ok, use.error_code) for use in result.ledger.tool_calls] == [(False, "tool.timeout")]
    assert (result.outcome.status, result.ledger.finished_at) == ("completed", 100)


# ------------------------------------------------------------------------------------- tools


async def test_v067_a_reading_tool_is_tried_again() -> None:
    calls = []

    async def flaky(q: str) -> Any:
        calls.append(q)
        return Err(transient("net.down", "down")) if len(calls) == 1 else Ok("up")

    result = await play([T(), A()], [search(handler=flaky)])
    usage = result.state.usage
    assert (result.outcome.status, len(calls), usage.retries, usage.model_calls) == ("completed", 2, 1, 2)
    (execution,) = result.ledger.executions
    assert execution.attempts == 2
    assert [(one.at, one.code, one.waited_ms) for one in execution.attempts_log] == [(0, "net.down", 277)]
    assert execution.duration_ms == 277


async def test_v068_a_writing_tool_is_not_tried_again() -> None:
    calls = []

    async def flaky(q: str) -> Any:
        calls.append(q)
        return Err(transient("net.down", "down"))

    result = await play([T(), A()], [search(handler=flaky, read_only=False)])
    assert (result.outcome.status, len(calls)) == ("completed", 1)
    assert [message.is_error for message in result.transcript if message.role == "tool"] == [True]


async def test_v069_reading_tools_run_at_the_same_time() -> None:
    clock, finished = ManualClock(), list[str]()

    def sleeping(name: str, duration_ms: int) -> Any:
        async def handler(q: str) -> str:
            await clock.sleep_ms(duration_ms)
            finished.append(name)
            return name

        return search(name, handler)

    tools = [sleeping("slow", 100), sleeping("fast", 1)]
    result = await play([T("slow", "fast"), A()], tools, clock=clock)
    assert (len(result.ledger.steps), result.ledger.finished_at) == (10, 100)
    assert finished == ["fast", "slow"]
    assert result.ledger.tool_sequence == ["slow", "fast"]
    assert [execution.duration_ms for execution in result.ledger.executions] == [100, 1]


class Overlap:
    """Tools that count how many of them run at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[str] = []

    def tool(self, name: str, **options: Any) -> Any:
        async def handler(q: str) -> str:
            self.now += 1
            self.most = max(self.most, self.now)
            self.order.append(name)
            for _ in range(3):
                await checkpoint()
            self.now -= 1
            return name

        return search(name, handler, **options)


async def test_v070_a_writing_tool_runs_alone() -> None:
    overlap = Overlap()
    tools = [overlap.tool("read"), overlap.tool("write", read_only=False)]
    result = await play([T("read", "write"), A()], tools)
    assert (overlap.order, overlap.most) == (["read", "write"], 1)
    assert result.ledger.tool_sequence == ["read", "write"]


async def test_v071_an_unknown_tool_runs_alone() -> None:
    overlap = Overlap()
    result = await play([T("nope", "read"), A()], [overlap.tool("read")])
    assert (overlap.order, overlap.most) == (["read"], 1)
    assert result.ledger.tool_sequence == ["nope", "read"]


async def test_w17_neighbours_that_read_run_together_within_the_limit() -> None:
    overlap = Overlap()
    tools = [overlap.tool("read"), overlap.tool("write", read_only=False)]
    names = ["read"] * 5 + ["write"] + ["read"] * 2
    result = await play([T(*names), A()], tools, config={"maxConcurrentTools": 3})
    assert (overlap.most, overlap.order) == (3, names)
    assert result.ledger.tool_sequence == names


async def test_v072_nothing_is_called_after_a_fatal_result() -> None:
    overlap = Overlap()

    async def boom(q: str) -> str:
        raise RuntimeError("boom")

    tools = [search("boom", boom, read_only=False), overlap.tool("after", read_only=False)]
    result = await play([T("boom", "after"), A()], tools)
    assert overlap.order == []
    assert (result.ledger.tool_sequence, result.ledger.fingerprint) == (["boom"], "fd236696")
    assert result.ledger.steps[-1].event.skipped == ("call-01-02",)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("error", "status"), [(budget_exceeded("t.quota", "no"), "halted"), (cancelled("stop"), "failed")]
)
async def test_v074_a_tool_may_halt_or_stop_the_run(error: Any, status: str) -> None:
    async def handler(q: str) -> Any:
        return Err(error)

    result = await play([T(), A()], [search(handler=handler)])
    assert (result.outcome.status, code(result)) == (status, error.code)


@pytest.mark.parametrize("value", [{1, 2}, object(), float("nan"), {1: 2}, 10**2000])
async def test_w18_a_value_that_is_not_json_is_fatal(value: object) -> None:
    async def handler(q: str) -> Any:
        return Ok({"deep": [value]})

    result = await play([T(), A()], [search(handler=handler)])
    assert (result.outcome.status, code(result)) == ("failed", "tool.bad_value")
    assert replay_file(result.ledger).ok


async def test_values_become_text_in_the_order_of_their_author() -> None:
    def handler(q: str) -> Any:  # a plain function runs in a thread
        return {"b": 1, "a": [True, None, "é"]}

    def nothing(q: str) -> None:
        return None

    result = await play([T("search", "nothing"), A()], [search(handler=handler), search("nothing", nothing)])
    contents = [message.content for message in result.transcript if message.role == "tool"]
    assert contents == ['{"b":1,"a":[true,null,"é"]}', ""]


async def test_w23_a_long_result_is_read_page_by_page() -> None:
    whole = "".join(f"{number:04d} " for number in range(100))
    name = kept_name(whole)

    async def long(q: str) -> str:
        return whole

    turns = [
        T(),
        T("read_more", args={"id": name, "offset": 200}),
        T("read_more", args={"id": "nope"}),
        A(),
    ]
    provider = ScriptedProvider(turns)
    result = await play([], [search(handler=long)], provider=provider, config={"maxResultTokens": 50})
    shown, page, refused = [message.content for message in result.transcript if message.role == "tool"]
    assert shown == f"{whole[:200]}\n[… 300 characters cut; all of it is kept as {name} …]"
    assert page == f"{whole[200:320]}\n[… 180 characters more, from offset 320 …]"
    assert name in refused
    assert [len(request.tools) for request in provider.requests] == [1, 2, 2, 2]
    assert result.ledger.executions[0].content == whole
    assert replay_file(result.ledger).ok


# ------------------------------------------------------------------------------ cancellation


async def test_v073_a_run_that_is_stopped_before_it_starts() -> None:
    signal, provider = anyio.Event(), ScriptedProvider([A()])
    signal.set()
    result = await play([], provider=provider, signal=signal)
    assert told(result) == ("failed", "run.cancelled", 2, "2e6f76e4")
    assert result.ledger.phase_trace == ["init->assemble", "assemble->failed"]
    assert provider.requests == []


@pytest.mark.parametrize("turn", [A(waitMs=9_000), F(), T()])
async def test_w15_a_signal_interrupts_whatever_runs(turn: Any) -> None:
    clock, signal = ManualClock(), anyio.Event()

    async def slow(q: str) -> str:
        await clock.sleep_ms(5_000)
        return "late"

    async def stop() -> None:
        await clock.sleep_ms(20)
        signal.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        result = await play([turn, A()], [search(handler=slow)], clock=clock, signal=signal)
    assert (code(result), result.ledger.finished_at) == ("run.cancelled", 20)
    assert replay_file(result.ledger).ok


async def test_w15_cancelling_the_caller_ends_the_record() -> None:
    store = MemoryLedgerStore()
    with anyio.CancelScope() as scope:

        async def handler(q: str) -> str:
            scope.cancel()
            await anyio.sleep(10)
            return "never"

        await play([T(), A()], [search(handler=handler)], ledger=store)
    assert scope.cancelled_caught
    closed = RunLedger(store, "run-0001").closed
    assert closed is not None
    assert closed["outcome"]["error"]["code"] == "run.cancelled"


# ------------------------------------------------------------------------------------ tokens


async def test_v075_an_answer_is_bounded_by_what_is_left() -> None:
    provider = ScriptedProvider([A(usage={"promptTokens": 10, "completionTokens": 100_000})])
    result = await play([], provider=provider, goal="x" * 84, budget={"maxTotalTokens": 500})
    assert provider.requests[0].max_output_tokens == 479
    assert result.state.usage.budget_overrun == 100_010 - 500


@pytest.mark.parametrize(("limit", "status"), [(5, "completed"), (4, "halted"), (3, "halted")])
async def test_v076_a_window_needs_room(limit: int, status: str) -> None:
    turn = A(usage={"promptTokens": 1, "completionTokens": 1})
    result = await play([turn], goal="x" * 15, budget={"maxTotalTokens": limit})
    assert result.outcome.status == status
    if status == "halted":
        assert (code(result), len(result.ledger.steps)) == ("budget.tokens", 2)


async def test_v077_an_empty_script() -> None:
    result = await play([])
    assert told(result) == ("failed", "scripted.exhausted", 3, "d78703e7")


async def test_v078_two_runs_of_one_script_have_the_same_bytes() -> None:
    turns = [T(), F(), F("correctable"), A("é \U0001f600")]
    first, second = [await play(turns, [search()]) for _ in range(2)]
    assert first.ledger.serialise() == second.ledger.serialise()
    assert first.head == second.head


async def test_v079_entries_are_a_chain() -> None:
    entries = (await play([T(), F(), A()], [search()])).ledger.entries
    assert [entry.seq for entry in entries] == [*range(1, len(entries) + 1)]
    assert [entry.from_phase for entry in entries[1:]] == [entry.to for entry in entries[:-1]]


async def test_v080_the_plainest_window() -> None:
    tools = (ToolSpec(name="search", description="Search the index."),)
    transcript = [Message(role="user", content="x" * 15)]
    request = AssemblyRequest(run_id="r", step=0, goal="g", transcript=transcript, tools=tools)
    context = await PassthroughAssembler().assemble(request)
    assert [message.role for message in context.messages] == ["system", "user"]
    assert context.messages[0].content.splitlines()[1] == "- search: Search the index."
    assert context.tokens == 21


# ------------------------------------------------------------------- assembler and finalizer


class Window:
    """Gives the passthrough window after some failures or summaries."""

    def __init__(self, *before: Any) -> None:
        self.before, self.requests = list(before), list[AssemblyRequest]()

    async def assemble(self, request: AssemblyRequest, /) -> Any:
        self.requests.append(request)
        if self.before:
            item = self.before.pop(0)
            if isinstance(item, Exception):
                raise item
            return item
        return await PassthroughAssembler().assemble(request)


async def test_w12_a_transient_failure_of_the_assembler_is_tried_again() -> None:
    result = await play([A()], assembler=Window(ClassifiedError(transient("index.down", "down"))))
    assert (result.outcome.status, result.ledger.finished_at) == ("completed", 277)
    assert result.ledger.context_reports == [{"assemblyAttempts": 2}]


@pytest.mark.parametrize(
    ("error", "status", "expected"),
    [
        (ClassifiedError(budget_exceeded("a.b", "no")), "halted", "a.b"),
        (
            ClassifiedError(fatal("context.pinned_overflow", "no", source="context")),
            "failed",
            "context.pinned_overflow",
        ),
        (ClassifiedError(cancelled("no")), "failed", "run.cancelled"),
        (ClassifiedError(correctable("a.c", "no")), "failed", "a.c"),
        (KeyError("x"), "failed", "unknown.KeyError"),
        ("no window", "failed", "context.bad_value"),
        (Context(messages=(), tokens=0, report={"x": object()}), "failed", "context.bad_report"),
    ],
)
async def test_w12_the_class_of_a_failure_decides(error: Any, status: str, expected: str) -> None:
    result = await play([A()], assembler=Window(error))
    assert (result.outcome.status, code(result)) == (status, expected)
    assert replay_file(result.ledger).ok


async def test_w12_a_finalizer_fails_by_class_too() -> None:
    calls = []

    def finalizer(draft: str, request: AssemblyRequest) -> str:
        calls.append(draft)
        raise ClassifiedError(transient("disk.busy", "busy")) if len(calls) == 1 else ValueError("bad")

    result = await play([A(" x ")], finalizer=finalizer)
    assert (code(result), calls) == ("unknown.ValueError", [" x ", " x "])
    assert result.outcome.partial == " x "
    assert (await play([A(" x ")])).outcome.output == "x"
    wrong: Any = lambda draft, request: 5  # noqa: E731
    assert code(await play([A()], finalizer=wrong)) == "output.bad_value"


async def test_s5_a_summary_is_recorded_and_paid_before_the_window() -> None:
    window = Window(Summary(text="so far", usage=TokenUsage(prompt_tokens=7, completion_tokens=3)))
    result = await play([A()], assembler=window)
    assert told(result) == ("completed", None, 5, "ed485d24")
    assert [tuple(request.summaries) for request in window.requests] == [(), ("so far",)]
    assert len(result.ledger.entries) == 6
    assert result.state.usage.total_tokens > 10
    endless = Window(*[Summary(text="again")] * 60)
    assert code(await play([A()], assembler=endless)) == "context.too_many_summaries"


# ----------------------------------------------------------------------------------- streams


class Chunks:
    """A sink that keeps what it is shown."""

    def __init__(self) -> None:
        self.frames: list[Any] = []

    async def write(self, frame: Any, /) -> bool:
        self.frames.append(frame)
        return True


async def test_s1_a_streamed_run_has_the_same_path_and_end() -> None:
    turns = [T(say="let me look"), F(), A("an answer " * 200)]
    plain = await play(turns, [search()])
    sink: Any = Chunks()
    provider = ChunkedProvider(ScriptedProvider(turns), characters=7)
    streamed = await play([], [search()], provider=provider, sink=sink)
    assert streamed.ledger.fingerprint == plain.ledger.fingerprint
    assert len(streamed.ledger.steps) == len(plain.ledger.entries)
    assert (streamed.outcome, streamed.transcript) == (plain.outcome, plain.transcript)
    assert streamed.state.usage == plain.state.usage
    text = "".join(frame.text for frame in sink.frames if frame.type == "TEXT")
    assert text == "let me look" + "an answer " * 200
    assert len(streamed.ledger.frames) > 200
    batches = [entry for entry in streamed.ledger.entries if event_name(entry.event) == "model.frame"]
    assert len(batches) < 20
    assert replay_file(streamed.ledger).ok


async def test_s1_an_endless_answer_is_stopped() -> None:
    provider = ChunkedProvider(ScriptedProvider([A("x" * 9_000)]), characters=100)
    result = await play([], provider=provider, budget={"maxTotalTokens": 500})
    assert (result.outcome.status, code(result)) == ("halted", "budget.tokens")
    assert result.outcome.partial
    assert len(result.outcome.partial) < 4_500
    assert replay_file(result.ledger).ok


# -------------------------------------------------------------------------------- boundaries


class Answering:
    name = "answering"

    def __init__(self, value: Any) -> None:
        self.value = value

    async def generate(self, request: Any, call: Any, /) -> Any:
        return self.value


@pytest.mark.parametrize(
    "value",
    [
        None,
        Ok("text"),
        ModelReply(message=Message(role="assistant", content="x")),
        Ok(
            ModelReply(
                message=Message(
                    role="assistant", tool_calls=(ToolCall(id="a", name="b", arguments={"x": object()}),)
                )
            )
        ),
    ],
)
async def test_w33_a_reply_that_is_none_is_a_fault(value: Any) -> None:
    result = await play([], provider=Answering(value))
    assert (result.outcome.status, code(result)) == ("failed", "provider.bad_value")


async def test_half_a_character_is_repaired_on_the_way_in() -> None:
    reply = ModelReply(message=Message(role="assistant", content="a\ud800b"))
    result = await play([], provider=Answering(Ok(reply)))
    assert result.outcome.output == "a\ufffdb"


async def test_secrets_do_not_get_into_a_record_that_is_kept() -> None:
    store = MemoryLedgerStore()
    secret = "sk-" + "abcdefghij0123456789klmn"
    result = await play([A(f"the key is {secret}")], ledger=store, goal=f"use {secret}")
    assert result.outcome.output == "the key is [redacted]"
    assert all(secret.encode() not in entry.body for entry in store.read(result.run_id))


async def test_w24_an_observer_changes_nothing() -> None:
    seen = []

    def observe(entry: Any) -> None:
        seen.append(entry.seq)
        raise ValueError("broken observer")

    result = await play([A()], on_entry=observe)
    assert (result.outcome.status, seen) == ("completed", [1, 2, 3, 4, 5])
    assert len(result.warnings) == 5
    assert "broken observer" in result.warnings[0]


class Full(MemoryLedgerStore):
    """Refuses one append, and takes the next ones."""

    def __init__(self, seq: int) -> None:
        super().__init__()
        self.seq = seq

    def append(self, run: str, entries: Any, /, **options: Any) -> Any:
        if any(entry.seq >= self.seq for entry in entries):
            self.seq = 10**9
            raise LedgerUnavailable(run, "the disk is full")
        return super().append(run, entries, **options)


@pytest.mark.parametrize("seq", range(1, 18))
async def test_w24_nothing_goes_on_without_the_record(seq: int) -> None:
    done: list[str] = []

    async def write(q: str) -> str:
        done.append(q)
        return "written"

    provider, store = ScriptedProvider([T(), T(), A()]), Full(seq)
    with pytest.raises(LedgerUnavailable, match="full") as raised:
        await play([], [search(handler=write, read_only=False)], provider=provider, ledger=store)
    partial = raised.value.ledger
    if partial is None:
        assert "cannot be read" in raised.value.__notes__[0]
        assert list(store.read("run-0001")) == []
    else:
        assert (partial.outcome, partial.run_id) == (None, "run-0001")
    entries = [entry.kind for entry in store.read("run-0001")]
    assert entries.count("fact.tool_started") >= len(done)
    assert len(provider.requests) <= entries.count("fact.prompt") + 1


class Slow(MemoryLedgerStore):
    """Takes its entries on a thread, and longer than an idle event loop looks round."""

    blocking = True

    def append(self, run: str, entries: Any, /, **options: Any) -> Any:
        time.sleep(0.15)
        return super().append(run, entries, **options)


async def test_no_virtual_time_passes_while_a_disk_is_slow() -> None:
    result = await play([T(), A()], [search(read_only=False)], ledger=Slow())
    assert (result.outcome.status, result.state.now) == ("completed", result.state.started_at)


async def test_a_sink_that_fails_changes_nothing() -> None:
    class Failing:
        writes = 0

        async def write(self, frame: Any, /) -> bool:
            self.writes += 1
            raise ValueError("nobody reads")

    sink: Any = Failing()
    result = await play([], provider=ChunkedProvider(ScriptedProvider([A()]), characters=2), sink=sink)
    assert (result.outcome.status, sink.writes) == ("completed", 1)
    assert "nobody reads" in result.warnings[0]


async def test_w24_a_broken_program_hands_over_its_record() -> None:
    class Lying(ChunkedProvider):
        """Says frames whose numbers contradict the table: a reply ends twice."""

    result: Any = None
    provider = Lying(ScriptedProvider([A("x" * 600)]))
    from agentloop.orchestrator import effects

    original = effects._succeeded

    def other(reply: ModelReply, at: int) -> Any:
        return original(ModelReply(message=Message(role="assistant", content="other")), at)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(InvariantViolation) as raised:
        patch.setattr(effects, "_succeeded", other)
        result = await play([], provider=provider)
    assert result is None
    assert [event_name(entry.event) for entry in raised.value.ledger.entries][:2] == [
        "run.started",
        "context.assembled",
    ]


async def test_w25_a_record_says_that_a_redactor_looked_at_it() -> None:
    marked = (await play([A()], ledger=MemoryLedgerStore())).ledger
    assert marked.redacted is True
    assert decode(marked.serialise())["redacted"] is True
    plain = (await play([A()])).ledger
    assert "redacted" not in decode(plain.serialise())


async def test_w25_every_change_of_a_stored_entry_is_found() -> None:
    store = MemoryLedgerStore()
    result = await play([T(), A()], [search()], ledger=store)
    whole = list(store.read(result.run_id))
    assert RunLedger(store, result.run_id).verify().ok
    for place, entry in enumerate(whole):
        other = MemoryLedgerStore()
        changed = msgspec.structs.replace(entry, body=entry.body.replace(b"e", b"E", 1))
        other._runs[result.run_id] = [*whole[:place], changed, *whole[place + 1 :]]
        report = RunLedger(other, result.run_id).verify()
        assert (report.ok, report.first_break) == (False, entry.seq)


async def test_w25_the_context_is_kept_once() -> None:
    """What a window repeats of the one before it is not written again."""
    store = MemoryLedgerStore()
    turns = [T(say="x" * 500)] * 11
    result = await play([*turns, A()], [search()], ledger=store)
    size = sum(len(entry.body) for entry in store.read(result.run_id))
    whole = len(result.ledger.serialise())
    assert result.outcome.status == "completed"
    assert size < whole / 2


async def test_a_run_on_the_real_clock() -> None:
    from agentloop import run

    result = await run(
        "g",
        provider=ScriptedProvider([F(), T(), A()]),
        tools=[search()],
        config={"retry": {"baseDelayMs": 5}},
    )
    assert result.outcome.status == "completed"
    assert len(result.run_id) == 26
    assert replay_file(result.ledger).ok
