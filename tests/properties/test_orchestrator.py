"""What holds of every orchestrated run, whatever models and tools do, and wherever it is cut."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from itertools import count
from typing import Any

import anyio
import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentloop import (
    ArgumentSchema,
    ManualClock,
    MemoryLedgerStore,
    Mulberry32,
    Orchestrator,
    RunFile,
    RunLedger,
    RunResult,
    SequentialIds,
    Tool,
    parse_ledger,
    replay,
    replay_file,
    resume,
    run,
)
from agentloop.errors import ErrorValue
from agentloop.ledger.reader import Entry
from agentloop.messages import Message, ToolCall
from agentloop.orchestrator.config import Budget, RetryPolicy, RunConfig
from agentloop.orchestrator.events import (
    BackoffElapsed,
    BudgetExceeded,
    ChildRun,
    ContextAssembled,
    Fault,
    ModelFailed,
    ModelFrames,
    ModelSucceeded,
    OutputFinalized,
    RunCancelled,
    RunStarted,
    SummaryRecorded,
    ToolExecution,
    ToolsCompleted,
    ToolStarted,
    event_name,
)
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.phases import ORCHESTRATION, SELF_LOOPS, Phase
from agentloop.orchestrator.providers import ChunkedProvider, ScriptedProvider
from agentloop.orchestrator.reducer import reduce
from agentloop.orchestrator.state import RunState
from agentloop.orchestrator.streaming import fold_frames
from agentloop.outcome import Err, fail
from agentloop.ports import Context, TokenUsage
from tests.strategies import json_values, model_scripts

_SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ONE: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
TIGHT = {"budget": {"maxSteps": 5, "maxToolCalls": 6, "maxWallClockMs": 9_000}, "modelTimeoutMs": 1_500}


def tools(clock: ManualClock) -> list[Tool]:
    async def quick(n: int) -> Any:
        return {"n": n, "text": "é"}

    async def slow(n: int) -> Any:
        await clock.sleep_ms(300 * n)
        return n

    failing: list[int] = []

    async def flaky(n: int) -> Any:
        failing.append(n)
        return Err(fail("transient", "a.b", "no")) if len(failing) % 2 else "yes"

    def failed(error_class: Any) -> Any:
        async def handler(n: int) -> Any:
            return Err(fail(error_class, f"tool.{error_class}", "no"))

        return handler

    made = [
        Tool(name="read", handler=quick, schema=ONE, read_only=True),
        Tool(name="slow", handler=slow, schema=ONE, read_only=True, timeout_ms=500),
        Tool(name="write", handler=quick, schema=ONE),
        Tool(name="flaky", handler=flaky, schema=ONE, read_only=True),
    ]
    classes = ("correctable", "fatal", "budget", "cancelled")
    return made + [Tool(name=name, handler=failed(name), schema=ONE) for name in classes]


def scripted(script: list[dict[str, Any]], clock: ManualClock, characters: int | None) -> Any:
    provider = ScriptedProvider(script, clock=clock)
    return provider if characters is None else ChunkedProvider(provider, characters=characters)


async def driven(
    script: list[dict[str, Any]], *, characters: int | None = None, store: MemoryLedgerStore | None = None
) -> RunResult:
    clock = ManualClock()
    deps = Deps(clock=clock, rng=Mulberry32("p"), ids=SequentialIds())
    return await run(
        "goal",
        provider=scripted(script, clock, characters),
        tools=tools(clock),
        config=TIGHT,
        deps=deps,
        ledger=store,
        durability="process",
    )


def play(script: list[dict[str, Any]], **options: Any) -> RunResult:
    async def main() -> RunResult:
        return await driven(script, **options)

    return anyio.run(main)


@_SETTINGS
@given(script=model_scripts())
def test_property_3_every_run_ends_within_its_limits_and_replays(script: list[dict[str, Any]]) -> None:
    store = MemoryLedgerStore()
    result = play(script, store=store)
    usage, file = result.state.usage, result.ledger
    assert ORCHESTRATION.terminal(result.state.phase)
    assert usage.model_calls <= 5
    assert usage.tool_calls <= 6
    assert usage.model_invocations <= 15
    assert file.elapsed_ms <= 9_000
    again = parse_ledger(file.serialise())
    assert again == file
    replayed = replay_file(again)
    assert (replayed.ok, replayed.divergence) == (True, None)
    assert replay(store, result.run_id).ok
    assert [entry.seq for entry in file.entries] == [*range(1, len(file.entries) + 1)]
    for message, following in zip(result.transcript, result.transcript[1:], strict=False):
        if message.tool_calls:
            assert following.role == "tool" or result.state.phase is not Phase.DONE


def _settled(entries: list[Entry]) -> list[int]:
    """Return after which entries no call is under way whose outcome would be unknown."""
    begun, places = set[str](), list[int]()
    for entry in entries:
        if entry.kind == "fact.tool_started":
            begun.add(entry.data["stepId"])
        elif entry.kind == "fact.tool_result":
            begun.discard(entry.data["step"])
        if not begun:
            places.append(entry.seq)
    return places


@_SETTINGS
@given(script=model_scripts(), characters=st.sampled_from([None, 7]), data=st.data())
def test_a_run_of_any_script_cut_anywhere_comes_to_the_same_end(
    script: list[dict[str, Any]], characters: int | None, data: st.DataObject
) -> None:
    # What answers otherwise when it is asked again cannot come to the same end.
    assume(all(call["name"] != "flaky" for turn in script for call in turn.get("callTools", ())))
    store = MemoryLedgerStore()
    whole = play(script, characters=characters, store=store)
    place = data.draw(st.sampled_from(_settled([*RunLedger(store, whole.run_id).entries()])))
    cut = MemoryLedgerStore()
    kept = [entry for entry in store.read(whole.run_id) if entry.seq <= place]
    cut.append(whole.run_id, kept, expected=0, sync=True, blobs=dict(store._blobs))

    async def go_on() -> RunResult:
        clock = ManualClock()
        provider = scripted(script, clock, characters)
        loop = resume(
            cut, whole.run_id, provider=provider, tools=tools(clock), deps=Deps(clock=clock, rng=None)
        )
        assert isinstance(loop, Orchestrator)
        return await loop.run()

    again = anyio.run(go_on)
    assert again.outcome == whole.outcome
    assert again.transcript == whole.transcript
    assert again.ledger.fingerprint == whole.ledger.fingerprint
    assert replay(cut, whole.run_id).ok


@_SETTINGS
@given(script=model_scripts(), characters=st.integers(1, 40))
def test_property_5_a_streamed_run_is_the_same_run(script: list[dict[str, Any]], characters: int) -> None:
    plain, streamed = play(script), play(script, characters=characters)
    assert streamed.ledger.fingerprint == plain.ledger.fingerprint
    assert streamed.ledger.fingerprint2 == plain.ledger.fingerprint2
    assert streamed.transcript == plain.transcript
    assert streamed.outcome == plain.outcome
    assert replay_file(streamed.ledger).ok


@_SETTINGS
@given(script=model_scripts(), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_property_5_any_cutting_of_frames_folds_to_the_same(
    script: list[dict[str, Any]], cuts: list[int]
) -> None:
    frames = play(script, characters=5).ledger.frames
    attempt: list[dict[str, Any]] = []
    for frame in frames:
        attempt = [frame] if frame["n"] == 1 else [*attempt, frame]
    places = sorted({min(cut, len(attempt)) for cut in cuts})
    partial = None
    for start, end in zip([0, *places], [*places, len(attempt)], strict=True):
        partial = fold_frames(partial, attempt[start:end]) if end > start else partial
    assert (partial or fold_frames(None, [])) == fold_frames(None, attempt)


def _mutations(file: RunFile, place: int) -> list[RunFile]:
    entries, replace = file.entries, msgspec.structs.replace
    entry = entries[place]
    other = next(phase for phase in Phase if phase not in (entry.to, entry.from_phase))

    def swapped(changed: Any) -> RunFile:
        return replace(file, entries=(*entries[:place], changed, *entries[place + 1 :]))

    mutated = [
        swapped(replace(entry, to=other)),
        swapped(replace(entry, from_phase=other)),
        swapped(replace(entry, effects=(*entry.effects, "wait"))),
        swapped(replace(entry, seq=entry.seq + 1)),
        swapped(replace(entry, at=entry.at + 1)),
        replace(file, entries=(*entries[:place], *entries[place + 1 :])),
        replace(file, entries=(*entries[: place + 1], *entries[place:])),
        replace(file, usage=replace(file.usage, total_tokens=file.usage.total_tokens + 1)),
        replace(file, outcome=None),
        replace(file, final_phase=Phase.INIT),
    ]
    if place + 1 < len(entries):
        pair = entries[place + 1], entry
        mutated.append(replace(file, entries=(*entries[:place], *pair, *entries[place + 2 :])))
    return mutated


@_SETTINGS
@given(script=model_scripts(), data=st.data())
def test_property_4_any_change_of_a_file_is_noticed(
    script: list[dict[str, Any]], data: st.DataObject
) -> None:
    file = play(script).ledger
    place = data.draw(st.integers(0, len(file.entries) - 1))
    for number, mutated in enumerate(_mutations(file, place)):
        replayed = replay_file(mutated)
        assert not replayed.ok, number
        assert replayed.divergence is not None


# ------------------------------------------------------------------------- walks of the table

WALK = RunConfig(
    budget=Budget(
        max_steps=4, max_tool_calls=5, max_total_tokens=2_000, max_wall_clock_ms=5_000,
        max_consecutive_failures=2, max_model_attempts=3,
    )
)  # fmt: skip
_TOKENS = st.integers(0, 300).map(lambda count: TokenUsage(prompt_tokens=count, completion_tokens=count // 3))
_CLASSES = st.sampled_from(["transient", "transient", "correctable", "fatal", "budget", "cancelled"])


def _errors(draw: Any) -> ErrorValue:
    code = draw(st.sampled_from(["a.b", "a.b", "context.length_exceeded"]))
    return fail(draw(_CLASSES), code, "no")


def _made(draw: Any, state: RunState, name: str, at: int) -> Any:
    """Return an event of that name as a driver could make one where the run stands."""
    match name:
        case "run.started":
            return RunStarted(at=at, goal="g")
        case "context.assembled":
            context = Context(messages=tuple(state.transcript), tokens=draw(st.integers(0, 900)))
            return ContextAssembled(at=at, context=context)
        case "summary.recorded":
            return SummaryRecorded(at=at, text="s", usage=draw(_TOKENS))
        case "model.frame":
            number = 1 + (0 if state.partial is None else state.partial.frames)
            return ModelFrames(
                at=at, attempt=state.attempt, frames=({"n": number, "kind": "text", "delta": "x"},)
            )
        case "model.succeeded":
            return _reply(draw, state, at)
        case "model.failed":
            return ModelFailed(at=at, error=_errors(draw), usage=draw(st.none() | _TOKENS))
        case "tool.started":
            return ToolStarted(at=at, call=state.pending_calls[0], step_id="tool-0001")
        case "tools.completed":
            return ToolsCompleted(at=at, results=tuple(_result(draw, call) for call in state.pending_calls))
        case "backoff.elapsed":
            return BackoffElapsed(at=at, waited_ms=1)
        case "output.finalized":
            return OutputFinalized(at=at, output="o")
        case "budget.exceeded":
            return BudgetExceeded(at=at, error=fail("budget", "budget.wall_clock", "late"))
        case "fault":
            return Fault(at=at, error=fail("fatal", "unknown.error", "broken"))
    return RunCancelled(at=at)


def _reply(draw: Any, state: RunState, at: int) -> ModelSucceeded:
    if state.partial is not None:
        message = state.partial.reply().message
    else:
        calls = [
            ToolCall(id=f"c{draw(st.integers(0, 3))}", name="t", arguments={})
            for _ in range(draw(st.integers(0, 3)))
        ]
        message = Message(role="assistant", content=draw(st.sampled_from(["", "x"])), tool_calls=tuple(calls))
    reason = draw(st.sampled_from(["end_turn", "tool_use", "max_tokens"]))
    return ModelSucceeded(at=at, message=message, usage=draw(_TOKENS), stop_reason=reason)


def _result(draw: Any, call: ToolCall) -> ToolExecution:
    error = None if draw(st.booleans()) else fail(draw(_CLASSES), "tool.x", "no")
    children = draw(st.sampled_from([(), (ChildRun(run="c", entries=1, hash="", tool_calls=1),)]))
    return ToolExecution(call=call, ok=error is None, content="r", error=error, children=children)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_property_2_every_walk_of_legal_events_ends_within_the_limits(data: st.DataObject) -> None:
    state, emitted = RunState.initial("r", "g", 0), deque[Any]()
    now = steps = failures = 0
    while not ORCHESTRATION.terminal(state.phase):
        steps += 1
        assert steps < 400
        legal = sorted(ORCHESTRATION.rows[state.phase])
        now += data.draw(st.sampled_from([0, 0, 10, 700]), "waited")
        names = [name for name in legal if not name.startswith("route.") and name != "observations.recorded"]
        # What leaves things as they are may come any number of times: here at most twice in a row.
        if failures >= 2:
            names = [name for name in names if name not in SELF_LOOPS]
        ordinary = [name for name in names if name not in ORCHESTRATION.anywhere] or names
        if emitted and data.draw(st.integers(0, 9), "something comes between") != 0:
            event = emitted.popleft()
        else:
            come = ORCHESTRATION.anywhere if emitted else ordinary + ordinary + [*ORCHESTRATION.anywhere][:1]
            event = _made(data.draw, state, data.draw(st.sampled_from(sorted(come)), "event"), now)
        name = event_name(event)
        failures = failures + 1 if name in SELF_LOOPS else 0
        transition = reduce(state, event, WALK)
        assert not (transition.effects and transition.emit)
        assert ORCHESTRATION.legal(state.phase, name, transition.state.phase)
        state = transition.state
        emitted.extend(transition.emit)
        budget, usage = WALK.budget, state.usage
        assert budget.max_steps is not None
        assert usage.model_calls == state.step <= budget.max_steps
        assert state.attempt <= budget.max_model_attempts
        assert state.consecutive_failures <= 2
        assert usage.tool_calls <= 5 + 5  # inner runs may have used up what was left to them
        assert usage.model_invocations <= 3 * budget.max_steps
    assert state.outcome is not None
    assert not emitted or state.phase is not Phase.DONE


@_SETTINGS
@given(script=model_scripts(), characters=st.none() | st.integers(1, 20))
def test_v049_v050_property_1_the_reducer_repeats_itself_and_changes_nothing(
    script: list[dict[str, Any]], characters: int | None
) -> None:
    file = play(script, characters=characters).ledger
    state = RunState.initial(file.run_id, file.goal, file.started_at)
    emitted: deque[Any] = deque()
    for entry in file.entries:
        shown, messages = repr(state), [*state.transcript]
        first, second = (reduce(state, entry.event, file.config) for _ in range(2))
        assert first == second
        assert not (first.effects and first.emit)
        assert repr(state) == shown
        assert [*state.transcript] == messages
        assert ORCHESTRATION.legal(state.phase, event_name(entry.event), first.state.phase)
        emitted.extend(first.emit)
        state = first.state


@_SETTINGS
@given(
    attempt=st.integers(0, 60),
    chance=st.floats(0, 1, exclude_max=True),
    base=st.integers(0, 10_000),
    most=st.integers(0, 100_000),
    jitter=st.floats(0, 0.99),
)
def test_property_11_waits_stay_within_their_band(
    attempt: int, chance: float, base: int, most: int, jitter: float
) -> None:
    policy = RetryPolicy(base_delay_ms=base, max_delay_ms=most, jitter=jitter)
    delay = policy.delay_ms(attempt)
    waited = policy.jittered_ms(delay, chance)
    assert delay <= policy.delay_ms(attempt + 1) <= most
    assert delay * (1 - jitter) - 1 <= waited <= min(most, delay * (1 + jitter) + 1)


@_SETTINGS
@given(script=model_scripts())
def test_property_11_chance_is_drawn_once_for_each_wait(script: list[dict[str, Any]]) -> None:
    draws: list[float] = []

    class Counted(Mulberry32):
        def next(self) -> float:
            draws.append(super().next())
            return draws[-1]

    async def main() -> RunResult:
        clock = ManualClock()
        deps = Deps(clock=clock, rng=Counted("p"), ids=SequentialIds())
        provider = ScriptedProvider(script, clock=clock)
        return await run("g", provider=provider, tools=tools(clock), config=TIGHT, deps=deps)

    result = anyio.run(main)
    waits = sum(isinstance(entry.event, BackoffElapsed) for entry in result.ledger.entries)
    waits += sum(len(execution.attempts_log) for execution in result.ledger.executions)
    # A wait that the deadline cut short was begun, and nothing came of it.
    assert 0 <= len(draws) - waits <= (result.outcome.status == "halted") * 8


# ------------------------------------------------------------------------------ cancellation

#: Each call waits: a run can be cut only where it waits for something.
SCRIPT: list[dict[str, Any]] = [
    {
        "say": "let me look",
        "waitMs": 1,
        "callTools": [{"name": "read", "args": {"n": 1}}, {"name": "slow", "args": {"n": 1}}],
    },
    {"failWith": {"class": "transient", "code": "a.b", "message": "no"}, "waitMs": 1},
    {
        "say": "now",
        "waitMs": 1,
        "callTools": [{"name": "slow", "args": {"n": 1}}, {"name": "write", "args": {"n": 1}}],
    },
    {"say": "an answer of some length", "waitMs": 1},
]


@pytest.mark.anyio
@pytest.mark.parametrize("characters", [None, 4])
@pytest.mark.parametrize("struck_by", ["cancel", "signal"])
async def test_property_12_a_run_cut_at_any_step_has_an_end_on_record(
    struck_by: str, characters: int | None
) -> None:
    ended = False
    step = 0
    while not ended:
        ended = await _cut(step, struck_by, characters)
        step += 1
    assert step > 10
    gc.collect()  # what was left open says so now, and warnings are errors


class Stepped:
    """Awaits a coroutine and strikes before its step of that number."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, RunResult], step: int, strike: Callable[[], object]
    ) -> None:
        self._coroutine, self._step, self._strike = coroutine, step, strike
        self.struck = False

    def __await__(self) -> Generator[Any, Any, RunResult]:
        advance: Callable[[], Any] = partial(self._coroutine.send, None)
        for number in count():
            if number == self._step:
                self.struck = True
                self._strike()
            try:
                waited_for = advance()
            except StopIteration as stop:
                result: RunResult = stop.value
                return result
            try:
                advance = partial(self._coroutine.send, (yield waited_for))
            except BaseException as thrown:
                advance = partial(self._coroutine.throw, thrown)
        raise AssertionError("unreachable")


async def _cut(step: int, struck_by: str, characters: int | None) -> bool:
    """Cut a run before that step of its task; True if it had ended before."""
    store, clock, signal = MemoryLedgerStore(), ManualClock(), anyio.Event()
    provider: Any = ScriptedProvider(SCRIPT, clock=clock)
    if characters is not None:
        provider = ChunkedProvider(provider, characters=characters)
    deps = Deps(clock=clock, rng=Mulberry32("p"), ids=SequentialIds())
    with anyio.CancelScope() as scope:
        driving = run(
            "g", provider=provider, tools=tools(clock), deps=deps, ledger=store, run_id="r", signal=signal
        )
        stepped = Stepped(driving, step, scope.cancel if struck_by == "cancel" else signal.set)
        await stepped
    entries = [*RunLedger(store, "r").entries()]
    assert entries[-1].kind == "run.closed", step
    assert replay(store, "r").ok, step
    outcome = entries[-1].data["outcome"]
    if not stepped.struck:
        assert outcome["status"] == "completed"
    elif outcome["status"] != "completed":  # what was struck too late to be noticed completes
        assert outcome["error"]["code"] == "run.cancelled", step
    return not stepped.struck


# ---------------------------------------------------------------------------------- schemas


def _schemas() -> st.SearchStrategy[dict[str, Any]]:
    bounds = st.integers(0, 4)
    simple = (
        st.fixed_dictionaries(
            {"type": st.just("string")},
            optional={
                "minLength": bounds,
                "maxLength": bounds,
                "enum": st.lists(st.sampled_from(["a", "b", "é", "\U0001f600"]), min_size=1, unique=True),
            },
        )
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["number", "integer"])}, optional={"minimum": bounds, "maximum": bounds}
        )
        | st.just({"type": "boolean"})
    )
    names = st.sampled_from(["a", "b", "c"])
    return st.recursive(
        simple,
        lambda inner: (
            st.fixed_dictionaries(
                {"type": st.just("array")}, optional={"items": inner, "minItems": bounds, "maxItems": bounds}
            )
            | st.fixed_dictionaries(
                {"type": st.just("object")},
                optional={
                    "properties": st.dictionaries(names, inner, max_size=3),
                    "required": st.lists(names, unique=True),
                    "additionalProperties": st.booleans(),
                },
            )
        ),
        max_leaves=6,
    )


def _values() -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "c", "d"])
    simple = st.sampled_from(["a", "é", "\U0001f600", "", "abcde", 0, 1, 3, 5, 2.5, 4.0, True, None])
    return st.recursive(
        simple,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=4),
        max_leaves=8,
    )


@settings(max_examples=300, deadline=None)
@given(schema=_schemas(), value=_values() | json_values(6))
def test_property_9_the_compiled_check_agrees_with_the_library(schema: dict[str, Any], value: Any) -> None:
    prepared = ArgumentSchema(schema)
    assert prepared.compiled
    problems = prepared.problems(value)
    assert problems == prepared.problems(value)
    assert (problems == []) == jsonschema.Draft202012Validator(schema).is_valid(value)
    slow = ArgumentSchema({**schema, "$defs": {}})
    assert not slow.compiled
    assert (slow.problems(value) == []) == (problems == [])
    assert {str(problem) for problem in problems} >= {str(problem) for problem in slow.problems(value)}
