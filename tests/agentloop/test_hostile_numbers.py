"""Every number that a public function or option takes: refused where it enters, or documented.

The names are found in the signatures, so that a new one has to say what it accepts.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import anyio
import msgspec
import pytest

import agentloop
from adapters.openai import create_openai_adapter
from agentloop import (
    PIECEWISE,
    Baseline,
    Bm25Index,
    Bm25Retriever,
    Budget,
    CaseFile,
    ChunkedProvider,
    Context,
    ContextBudget,
    CountedTexts,
    EvalCase,
    EvalSuite,
    Frame,
    Grade,
    Grader,
    HistoryOptions,
    InProcessMemory,
    Item,
    LiveSuite,
    MemoryLedgerStore,
    MemoryOptions,
    MemoryQuery,
    MemoryRecord,
    Message,
    ModelRequest,
    Passage,
    RetrievalOptions,
    RetryPolicy,
    RunConfig,
    ScriptedProvider,
    Section,
    SuiteResult,
    TokenUsage,
    as_provider,
    delegate,
    exact_tokenizer,
    fork,
    fuse,
    grader,
    run_live,
    run_suite,
    to_baseline,
    tool,
    trajectory_close_to,
    within_corrective_turns,
    within_retries,
    within_steps,
    within_tokens,
    within_tool_calls,
)
from agentloop.checks import create_default_deterministic_checks
from agentloop.determinism import ManualClock
from agentloop.errors import AgentLoopConfigError
from agentloop.evals.baseline import empty_baseline
from agentloop.evals.grades import grade_run
from agentloop.evals.running import play_case
from agentloop.factories import create_agent_loop, create_looping_agent_loop
from agentloop.ledger import Recorder
from agentloop.models import Retry
from agentloop.scripted import Sleep
from agentloop.streams import (
    FrameBuffer,
    TurnDuplex,
    chunks,
    duplex_pair,
    from_aiter,
    from_object_streams,
    take,
    tee,
    timeout,
    turn_duplex,
)
from agentloop.tools import Tool, create_tool_adapter_wrapper
from tests.agentloop.loop.scenes import loop_options
from tests.hostile_numbers import NUMBERS
from tests.tally import tally

pytestmark = pytest.mark.anyio

Take = Callable[[Any], object]


async def _frames() -> AsyncIterator[Frame]:
    yield Frame("TEXT", {})


async def _turn(prompt: object, ctx: object) -> AsyncIterator[str]:
    yield "x"


def _bridge(**options: Any) -> object:
    send, receive = anyio.create_memory_object_stream[Any](1)
    try:
        return from_object_streams(receive, send, **options)
    finally:
        send.close()
        receive.close()


def _option(make: Callable[..., object], name: str) -> Take:
    return lambda value: make(**loop_options([], [], **{name: value}))


def _field(form: type[Any], name: str) -> Take:
    return lambda value: form(**{name: value})


def _no_core() -> Any:
    return None


def _handler(text: str) -> str:
    return text


async def _graded(score: Any) -> None:
    """A grader is never refused: what it answers becomes a failing grade that says why."""
    loop = [grader("g", lambda _: Grade(score=score, passed=True, reason=""))]
    (grade,) = await grade_run(loop, await play_case(EvalCase(id="c", goal="", script=(), graders=loop)))
    if not grade.passed:
        assert "is not a number from 0 to 1" in grade.reason
        raise ValueError(grade.reason)


NO_CASES = SuiteResult.of("s", [])
WITHIN = (within_corrective_turns, within_retries, within_steps, within_tokens, within_tool_calls)


def _baseline(**number: Any) -> object:
    return msgspec.structs.replace(empty_baseline("s"), **number)


BUDGET = ("max_consecutive_failures", "max_model_attempts", "max_model_invocations", "max_steps",
          "max_tool_attempts", "max_tool_calls", "max_total_tokens", "max_wall_clock_ms", "min_output_tokens")  # fmt: skip
RETRY = ("base_delay_ms", "jitter", "max_delay_ms")
CONFIG = ("max_concurrent_tools", "max_result_tokens", "model_timeout_ms", "tool_timeout_ms")

LOOP = ("cleanup_timeout_ms", "evaluator_parse_retries", "max_buffered_output_frames", "max_iterations",
        "max_retries", "max_tool_calls", "max_tool_output", "run_timeout_ms", "stall_after_ms",
        "tool_timeout_ms", "turn_timeout_ms")  # fmt: skip


#: How each number is passed, by the public name that takes it and the name it has there.
def numeric(thing: Any) -> set[str]:
    """Return the names of the numbers that a public thing takes."""
    if inspect.isclass(thing) and issubclass(thing, msgspec.Struct):
        annotated = {
            name: str(kind)
            for cls in thing.__mro__
            for name, kind in vars(cls).get("__annotations__", {}).items()
        }
    else:
        try:
            parameters = inspect.signature(thing).parameters.values()
        except (TypeError, ValueError):
            return set()
        annotated = {each.name: str(each.annotation) for each in parameters}
    plain = {"int", "float", "int | None", "float | None", "<class 'int'>", "<class 'float'>"}
    return {name for name, kind in annotated.items() if kind in plain}


def _window(kind: Callable[..., object], name: str, **needed: Any) -> Take:
    return lambda value: kind(**{**needed, name: value})


PLACES: Mapping[tuple[str, str], Take] = {
    **{("LoopOptions", name): _option(create_agent_loop, name) for name in LOOP},
    ("create_looping_agent_loop", "inner_max_iterations"): _option(
        create_looping_agent_loop, "inner_max_iterations"
    ),
    ("create_looping_agent_loop", "max_iterations"): _option(create_looping_agent_loop, "max_iterations"),
    ("create_looping_agent_loop", "max_buffered_output_frames"): _option(
        create_looping_agent_loop, "max_buffered_output_frames"
    ),
    ("create_tool_adapter_wrapper", "timeout_ms"): lambda v: create_tool_adapter_wrapper({}, timeout_ms=v),
    ("create_tool_adapter_wrapper", "max_output"): lambda v: create_tool_adapter_wrapper({}, max_output=v),
    ("Tool", "timeout_ms"): lambda v: Tool(name="t", handler=print, timeout_ms=v),
    ("Retry", "attempts"): lambda v: Retry(attempts=v),
    ("Retry", "base_ms"): lambda v: Retry(base_ms=v, max_ms=2**53),
    ("Retry", "max_ms"): lambda v: Retry(max_ms=v),
    ("Sleep", "duration_ms"): Sleep,
    ("ManualClock", "start_ms"): ManualClock,
    ("ModelRequest", "temperature"): lambda v: ModelRequest(messages=(), temperature=v),
    ("ModelRequest", "max_output_tokens"): lambda v: ModelRequest(messages=(), max_output_tokens=v),
    ("create_default_deterministic_checks", "glob_limit"): lambda v: create_default_deterministic_checks(
        glob_limit=v
    ),
    ("turn_duplex", "limit"): lambda v: turn_duplex(_turn, limit=v),
    ("TurnDuplex", "limit"): lambda v: TurnDuplex(_turn, limit=v),
    ("duplex_pair", "limit"): lambda v: duplex_pair(limit=v),
    ("FrameBuffer", "limit"): FrameBuffer,
    ("FrameBuffer", "reserve"): lambda v: FrameBuffer(3, reserve=v),
    ("chunks", "size"): lambda v: chunks(from_aiter(_frames()), v),
    ("chunks", "within_ms"): lambda v: chunks(from_aiter(_frames()), 3, within_ms=v),
    ("take", "count"): take,
    ("fork", "at"): lambda v: fork(MemoryLedgerStore(), "r", at=v),
    ("tee", "count"): lambda v: tee(from_aiter(_frames()), v),
    ("tee", "limit"): lambda v: tee(from_aiter(_frames()), limit=v),
    ("timeout", "timeout_ms"): lambda v: timeout(from_aiter(_frames()), v),
    ("from_object_streams", "limit"): lambda v: _bridge(limit=v),
    ("from_object_streams", "close_timeout_ms"): lambda v: _bridge(close_timeout_ms=v),
    **{("Budget", name): _field(Budget, name) for name in BUDGET},
    **{("RetryPolicy", name): _field(RetryPolicy, name) for name in RETRY},
    **{("RunConfig", name): _field(RunConfig, name) for name in CONFIG},
    ("Context", "tokens"): lambda v: Context(messages=(), tokens=v),
    ("Context", "max_output_tokens"): lambda v: Context(messages=(), tokens=1, max_output_tokens=v),
    ("TokenUsage", "prompt_tokens"): lambda v: TokenUsage(prompt_tokens=v),
    ("TokenUsage", "completion_tokens"): lambda v: TokenUsage(completion_tokens=v),
    ("ChunkedProvider", "characters"): lambda v: ChunkedProvider(ScriptedProvider([]), characters=v),
    ("as_provider", "max_output_tokens"): lambda v: as_provider(_no_core(), max_output_tokens=v),
    ("tool", "timeout_ms"): lambda v: tool(timeout_ms=v)(_handler),
    **{("ContextBudget", name): _window(ContextBudget, name, total=9) for name in numeric(ContextBudget)},
    **{
        ("MemoryOptions", name): _window(MemoryOptions, name, store=InProcessMemory())
        for name in numeric(MemoryOptions)
    },
    **{
        ("RetrievalOptions", name): _window(RetrievalOptions, name, retriever=Bm25Retriever())
        for name in numeric(RetrievalOptions)
    },
    **{("HistoryOptions", name): _window(HistoryOptions, name) for name in numeric(HistoryOptions)},
    **{("Section", name): _window(Section, name, id="s", priority=1) for name in numeric(Section)},
    **{
        ("MemoryRecord", name): _window(MemoryRecord, name, id="m", text="m")
        for name in numeric(MemoryRecord)
    },
    ("MemoryQuery", "limit"): lambda v: MemoryQuery(limit=v),
    ("Item", "score"): lambda v: Item(id="i", message=Message(role="user"), score=v),
    ("Passage", "score"): lambda v: Passage(id="p", text="", score=v),
    ("Bm25Index", "k1"): lambda v: Bm25Index(k1=v),
    ("Bm25Index", "b"): lambda v: Bm25Index(b=v),
    ("Bm25Retriever", "k1"): lambda v: Bm25Retriever(k1=v),
    ("Bm25Retriever", "b"): lambda v: Bm25Retriever(b=v),
    ("CountedTexts", "max_characters"): lambda v: CountedTexts(PIECEWISE, max_characters=v),
    ("exact_tokenizer", "message_tokens"): lambda v: exact_tokenizer(message_tokens=v),
    ("fuse", "k"): lambda v: fuse([], limit=1, k=v),
    ("fuse", "limit"): lambda v: fuse([], limit=v),
    ("delegate", "share"): lambda v: delegate("d", description="d", provider=ScriptedProvider([]), share=v),
    **{("Baseline", name): _window(_baseline, name) for name in numeric(Baseline)},
    ("to_baseline", "tolerance"): lambda v: to_baseline(NO_CASES, tolerance=v),
    ("to_baseline", "aggregate_tolerance"): lambda v: to_baseline(NO_CASES, aggregate_tolerance=v),
    ("CaseFile", "weight"): lambda v: CaseFile(
        version=1, id="c", goal="", graders=(), script=(), weight=v
    ).case(),
    ("EvalCase", "weight"): lambda v: EvalCase(id="c", goal="", script=(), graders=(), weight=v),
    ("Grader", "weight"): lambda v: Grader(id="g", grade=print, weight=v),  # type: ignore[arg-type]
    ("grader", "weight"): lambda v: grader("g", print, weight=v),  # type: ignore[arg-type]
    ("Grade", "score"): lambda v: _graded(v),
    ("trajectory_close_to", "threshold"): lambda v: trajectory_close_to([], threshold=v),
    **{(within.__name__, "limit"): within for within in WITHIN},
    ("run_suite", "parallel"): lambda v: run_suite(EvalSuite(id="s", cases=[]), parallel=v),
    ("run_live", "parallel"): lambda v: run_live(LiveSuite(id="s", cases=[]), parallel=v),
    ("run_live", "seeds"): lambda v: run_live(LiveSuite(id="s", cases=[]), seeds=v),
    **{("LiveSuite", name): _window(LiveSuite, name, id="s", cases=[]) for name in numeric(LiveSuite)},
    ("openai", "temperature"): lambda v: _openai(temperature=v),
    ("openai", "max_output_tokens"): lambda v: _openai(max_output_tokens=v),
    ("openai", "timeout_ms"): lambda v: _openai(timeout_ms=v),
    ("openai", "connect_timeout_ms"): lambda v: _openai(connect_timeout_ms=v),
}


def _openai(**options: Any) -> object:
    return create_openai_adapter(model="m", base_url="http://127.0.0.1:1/v1", environ={}, **options)


#: What holds numbers that the library itself made: results, reports, entries, frames.
MADE_HERE = {
    "AssemblyRequest", "CaseResult", "LiveResult", "SuiteResult", "ChildRun", "ContextReport", "Difference", "Estimates", "FullReplay", "Packed", "SectionReport", "Divergence", "Entry", "FileDivergence", "FileEntry", "FileReplay", "Frame", "FrameStats",
    "LedgerEntry", "LedgerReport", "LoopResult", "ModelCall", "ReplayReport", "RunFile", "RunOutcome", "RunState",
    "RunSummary", "ToolExecution", "ToolResult", "ToolRun", "Usage",
}  # fmt: skip

#: Where None is no limit, or the default.
OPTIONAL = {
    ("LoopOptions", "max_buffered_output_frames"), ("LoopOptions", "run_timeout_ms"),
    ("LoopOptions", "stall_after_ms"), ("LoopOptions", "tool_timeout_ms"), ("LoopOptions", "turn_timeout_ms"),
    ("create_looping_agent_loop", "inner_max_iterations"),
    ("create_looping_agent_loop", "max_buffered_output_frames"), ("create_tool_adapter_wrapper", "timeout_ms"),
    ("Tool", "timeout_ms"), ("ModelRequest", "temperature"), ("ModelRequest", "max_output_tokens"),
    ("turn_duplex", "limit"), ("TurnDuplex", "limit"), ("duplex_pair", "limit"), ("FrameBuffer", "limit"), ("chunks", "within_ms"),
    ("tee", "limit"), ("from_object_streams", "limit"), ("openai", "temperature"), ("openai", "max_output_tokens"),
    ("Budget", "max_consecutive_failures"), ("Budget", "max_model_invocations"), ("Budget", "max_steps"),
    ("Budget", "max_tool_calls"), ("Budget", "max_total_tokens"), ("Budget", "max_wall_clock_ms"),
    ("RunConfig", "max_result_tokens"), ("RunConfig", "model_timeout_ms"), ("RunConfig", "tool_timeout_ms"),
    ("Context", "max_output_tokens"), ("tool", "timeout_ms"), ("ContextBudget", "safety_margin"),
    ("Section", "max_share"), ("Section", "order"), ("MemoryRecord", "salience"), ("Item", "score"),
    ("Baseline", "aggregate_tolerance"), ("to_baseline", "aggregate_tolerance"),
    ("LiveSuite", "max_total_tokens"), ("run_live", "seeds"),
}  # fmt: skip
#: Where minus zero is zero, and zero is allowed.
FROM_ZERO = {
    ("ModelRequest", "temperature"), ("openai", "temperature"), ("chunks", "within_ms"), ("Sleep", "duration_ms"),
    ("from_object_streams", "close_timeout_ms"), ("RetryPolicy", "jitter"), ("Bm25Index", "k1"), ("Bm25Index", "b"),
    ("Bm25Retriever", "k1"), ("Bm25Retriever", "b"), ("ContextBudget", "safety_margin"),
    ("MemoryOptions", "max_share"), ("MemoryOptions", "standing_salience"), ("RetrievalOptions", "max_share"),
    ("HistoryOptions", "older_max_share"), ("Section", "max_share"), ("Section", "priority"), ("Section", "order"),
    ("MemoryRecord", "salience"), ("Item", "score"), ("Passage", "score"),
    ("Baseline", "tolerance"), ("Baseline", "aggregate_tolerance"), ("to_baseline", "tolerance"),
    ("to_baseline", "aggregate_tolerance"), ("CaseFile", "weight"), ("EvalCase", "weight"), ("Grader", "weight"),
    ("grader", "weight"), ("Grade", "score"), ("trajectory_close_to", "threshold"),
}  # fmt: skip
#: Limits that nothing is computed from: any whole number is one.
UNBOUNDED = {
    ("create_looping_agent_loop", "max_buffered_output_frames"), ("FrameBuffer", "reserve"),
    ("turn_duplex", "limit"), ("TurnDuplex", "limit"), ("duplex_pair", "limit"), ("FrameBuffer", "limit"), ("tee", "limit"),
    ("from_object_streams", "limit"), ("create_default_deterministic_checks", "glob_limit"),
}  # fmt: skip


def test_every_number_that_a_public_name_takes_is_tried() -> None:
    taken = {
        (name, number)
        for name in agentloop.__all__
        if callable(thing := getattr(agentloop, name)) and name not in MADE_HERE
        if not (inspect.isclass(thing) and issubclass(thing, BaseException))
        for number in numeric(thing)
    }
    assert taken <= set(PLACES)
    assert len(taken) >= 25


@pytest.mark.parametrize("place", sorted(PLACES), ids=".".join)
async def test_a_number_is_refused_where_it_enters(place: tuple[str, str], anyio_backend: str) -> None:
    pass_ = PLACES[place]
    for name, value in NUMBERS.items():
        allowed = (
            (value is None and place in OPTIONAL)
            or (name == "minus zero" and place in FROM_ZERO)
            or (name in ("2**53 + 1", "2**63", "10**400") and place in UNBOUNDED)
        )
        tally("numbers as arguments")
        if allowed:
            await _finished(pass_(value))
        else:
            with pytest.raises((TypeError, ValueError, AgentLoopConfigError)):
                await _finished(pass_(value))


async def _finished(answer: object) -> None:
    if inspect.isawaitable(answer):
        await answer


async def test_a_clock_that_says_nonsense_dates_no_entry() -> None:
    class Broken(ManualClock):
        said: Any = 0

        def now_ms(self) -> int:
            said: int = self.said
            return said

    clock, store = Broken(), MemoryLedgerStore()
    recorder = Recorder(store, "r", clock)
    recorder.record("run.opened", {"version": 2})
    for value in NUMBERS.values():
        clock.said = value
        with pytest.raises(TypeError, match="now_ms"):
            recorder.record("step", {})
    recorder.flush(sync=True)
    assert [entry.at for entry in store.read("r")] == [0]
