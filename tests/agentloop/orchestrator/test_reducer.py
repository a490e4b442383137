"""The table and the reducer, by the numbers of the behaviour they hold to."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from agentloop import (
    AgentLoopConfigError,
    ErrorValue,
    IllegalTransition,
    InvariantViolation,
    Message,
    ToolCall,
)
from agentloop.orchestrator.config import Budget, RetryPolicy, RunConfig, read_config
from agentloop.orchestrator.events import (
    BackoffElapsed,
    CallModel,
    ContextAssembled,
    Event,
    Finalize,
    ModelFailed,
    ModelFrames,
    ModelSucceeded,
    ObservationsRecorded,
    OutputFinalized,
    Repair,
    RunCancelled,
    RunStarted,
    ToolExecution,
    ToolRequest,
    ToolsCompleted,
    Wait,
    event_name,
)
from agentloop.orchestrator.phases import ORCHESTRATION, Phase
from agentloop.orchestrator.reducer import Transition, reduce
from agentloop.orchestrator.state import RunState, Transcript
from agentloop.outcome import budget_exceeded, cancelled, correctable, fatal, transient
from agentloop.ports import Context, TokenUsage

C = Context(messages=(Message(role="user", content="goal"),), tokens=100)
USAGE = TokenUsage(prompt_tokens=100, completion_tokens=20)
TERMINAL = (Phase.DONE, Phase.FAILED, Phase.HALTED)
RUNNING = [phase for phase in Phase if phase not in TERMINAL]


class Walk:
    """Feeds events from outside to the reducer and follows what it emits."""

    def __init__(self, config: RunConfig | None = None, **budget: Any) -> None:
        self.config = config or RunConfig(budget=Budget(**budget))
        self.state = RunState.initial("r", "goal", 0)
        self.trace: list[str] = []
        self.last = Transition(self.state)

    def __call__(self, *events: Event) -> Walk:
        for event in events:
            waiting: deque[Event] = deque([event])
            while waiting:
                self._one(waiting.popleft())
                waiting.extend(self.last.emit)
        return self

    def _one(self, event: Event) -> None:
        before = self.state.phase
        self.last = reduce(self.state, event, self.config)
        assert not (self.last.effects and self.last.emit)
        self.state = self.last.state
        self.trace.append(f"{before}->{self.state.phase}")

    @property
    def code(self) -> str | None:
        outcome = self.state.outcome
        return outcome.error.code if outcome is not None and outcome.error is not None else None

    @property
    def detail(self) -> dict[str, Any]:
        assert self.state.outcome is not None
        assert self.state.outcome.error is not None
        return self.state.outcome.error.detail


START = RunStarted(at=0, goal="goal")
READY = ContextAssembled(at=0, context=C)


def said(content: str, *calls: ToolCall, stop: str | None = None) -> ModelSucceeded:
    message = Message(role="assistant", content=content, tool_calls=calls)
    reason = stop or ("tool_use" if calls else "end_turn")
    return ModelSucceeded(at=0, message=message, usage=USAGE, stop_reason=reason)


def failed(error: ErrorValue) -> ModelFailed:
    return ModelFailed(at=0, error=error)


def call(number: int = 1, name: str = "search") -> ToolCall:
    return ToolCall(id=f"c{number}", name=name, arguments={})


def done(*results: ToolExecution | ErrorValue | None, skipped: Sequence[str] = ()) -> ToolsCompleted:
    """Results of calls 1, 2, …: None went well, an error did not."""
    made = []
    for number, result in enumerate(results, 1):
        error = result if isinstance(result, ErrorValue) else None
        content = "value" if error is None else error.message
        made.append(
            result
            if isinstance(result, ToolExecution)
            else ToolExecution(call=call(number), ok=error is None, content=content, error=error)
        )
    return ToolsCompleted(at=0, results=tuple(made), skipped=tuple(skipped))


WRONG = correctable("tool.bad", "read this")
LATER = transient("x.y", "later")


# ------------------------------------------------------------------------------------- table


@pytest.mark.parametrize("phase", TERMINAL)
def test_v018_nothing_follows_the_end(phase: Phase) -> None:
    assert ORCHESTRATION.allowed(phase) == ()
    assert ORCHESTRATION.terminal(phase)


@pytest.mark.parametrize("phase", RUNNING)
def test_v019_every_phase_can_be_ended_and_left(phase: Phase) -> None:
    assert ORCHESTRATION.legal(phase, "budget.exceeded", Phase.HALTED)
    assert ORCHESTRATION.legal(phase, "fault", Phase.FAILED)
    assert ORCHESTRATION.legal(phase, "run.cancelled", Phase.FAILED)
    assert ORCHESTRATION.allowed(phase)[:3] == ("budget.exceeded", "fault", "run.cancelled")
    assert len(ORCHESTRATION.allowed(phase)) > 3


def test_v020_a_wait_cannot_end_before_it_began() -> None:
    state = RunState.initial("r", "g", 0)
    with pytest.raises(InvariantViolation) as raised:
        reduce(state, BackoffElapsed(at=0, waited_ms=1), RunConfig())
    assert raised.value.detail == {"from": "init", "event": "backoff.elapsed"}


def test_v021_nothing_happens_after_the_end() -> None:
    walk = Walk()(START, READY, said("42"), OutputFinalized(at=0, output="42"))
    before = walk.state
    with pytest.raises(IllegalTransition):
        reduce(before, RunCancelled(at=1), walk.config)
    assert walk.state is before


def test_v022_the_table_is_whole() -> None:
    assert len(ORCHESTRATION.events) == 17
    assert {event_name_of(each) for each in Event.__args__} == {*ORCHESTRATION.events}
    reached, todo = {Phase.INIT}, [Phase.INIT]
    while todo:
        for following in ORCHESTRATION.rows[todo.pop()].values():
            todo += following - reached
            reached |= following
    assert reached == {*Phase}
    assert len(reached) == 11
    with pytest.raises(TypeError):
        ORCHESTRATION.rows[Phase.DONE]["fault"] = frozenset()  # type: ignore[index]


def event_name_of(event: Any) -> str:
    return str(event.__struct_config__.tag)


def test_v023_the_drawing() -> None:
    drawn = ORCHESTRATION.to_mermaid(anywhere=False)
    assert drawn.startswith("stateDiagram-v2")
    assert "init --> assemble: run.started" in drawn
    assert "model --> backoff: model.failed" in drawn
    assert "fault" not in drawn
    assert "assemble --> failed: fault" in ORCHESTRATION.to_mermaid(anywhere=True)


def test_the_grid_has_a_cell_for_each_phase_and_event() -> None:
    head, *rows = ORCHESTRATION.to_grid()
    assert head[1:] == sorted(head[1:])
    assert [row[0] for row in rows] == [phase.value for phase in Phase]
    assert {len(row) for row in rows} == {18}
    assert rows[-1][1:] == ["·"] * 17


# ----------------------------------------------------------------------------------- reducer


def test_v024_an_answer() -> None:
    walk = Walk()(START, READY, said("42"), OutputFinalized(at=0, output="42"))
    assert walk.trace == [
        "init->assemble",
        "assemble->model",
        "model->route",
        "route->finalize",
        "finalize->done",
    ]
    assert (walk.state.usage.model_calls, walk.state.usage.total_tokens) == (1, 120)
    assert walk.state.outcome is not None
    assert walk.state.outcome.to_wire() == {"status": "completed", "output": "42"}


def test_v025_a_tool_call() -> None:
    walk = Walk()(START, READY, said("", call()), done(None))
    assert walk.trace[2:] == ["model->route", "route->tools", "tools->observe", "observe->assemble"]
    assert walk.state.usage.tool_calls == 1
    assert walk.state.transcript[-1].role == "tool"
    assert walk.state.consecutive_failures == 0


def test_v026_a_blank_reply() -> None:
    walk = Walk()(START, READY, said("   "))
    assert walk.trace[2:] == ["model->route", "route->observe", "observe->assemble"]
    assert walk.state.usage.corrective_turns == 1
    assert "neither content nor a tool call" in walk.state.transcript[-1].content


def test_v027_calls_win_over_content() -> None:
    walk = Walk()(START, READY)
    transition = reduce(walk.state, said("x", call()), walk.config)
    assert [type(event) for event in transition.emit] == [ToolRequest]


def test_v028_a_failed_call() -> None:
    walk = Walk()(START, READY, said("", call()), done(WRONG))
    message = walk.state.transcript[-1]
    assert walk.state.phase is Phase.ASSEMBLE
    assert (message.role, message.is_error, message.content) == ("tool", True, "read this")
    assert (walk.state.consecutive_failures, walk.state.usage.corrective_turns) == (1, 1)


def test_v029_one_of_two_calls_fails() -> None:
    walk = Walk()(START, READY, said("", call(1), call(2)), done(None, WRONG))
    assert (walk.state.consecutive_failures, walk.state.usage.corrective_turns) == (0, 1)


def test_v030_w09_a_fatal_result_is_accounted_before_it_ends_the_run() -> None:
    error = fatal("tool.broken", "broken")
    walk = Walk()(START, READY, said("", call(1), call(2)), done(None, error))
    assert (walk.state.phase, walk.code) == (Phase.FAILED, "tool.broken")
    assert walk.state.usage.tool_calls == 2
    assert [message.call_id for message in walk.state.transcript[-2:]] == ["c1", "c2"]


def test_v031_a_transient_failure_waits_and_tries_again() -> None:
    walk = Walk()(START, READY)
    (first,) = walk.last.effects
    walk(failed(LATER))
    assert walk.last.effects == (Wait(ms=250),)
    walk(BackoffElapsed(at=5, waited_ms=5))
    assert walk.trace[2:] == ["model->backoff", "backoff->model"]
    assert (walk.state.attempt, walk.state.usage.retries) == (2, 1)
    (second,) = walk.last.effects
    assert isinstance(first, CallModel)
    assert isinstance(second, CallModel)
    assert second.context is first.context
    assert (first.attempt, second.attempt) == (1, 2)


def test_v032_the_attempts_run_out() -> None:
    walk = Walk(max_model_attempts=3)(START, READY, failed(LATER))
    walk(BackoffElapsed(at=0, waited_ms=0), failed(LATER), BackoffElapsed(at=0, waited_ms=0), failed(LATER))
    assert (walk.state.phase, walk.code) == (Phase.FAILED, "model.retries_exhausted")
    assert (walk.detail, walk.state.usage.retries) == ({"attempts": 3, "lastCode": "x.y"}, 2)


def test_v033_a_correctable_failure_is_shown_to_the_model() -> None:
    walk = Walk()(START, READY, failed(WRONG))
    assert walk.trace[2:] == ["model->observe", "observe->assemble"]
    usage = walk.state.usage
    assert (usage.retries, usage.corrective_turns, walk.state.step) == (0, 1, 0)
    assert "read this" in walk.state.transcript[-1].content


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (fatal("auth.invalid_key", "no"), Phase.FAILED),
        (budget_exceeded("gateway.quota", "no"), Phase.HALTED),
        (cancelled("no"), Phase.FAILED),
    ],
)
def test_v034_the_other_classes_end_the_run(error: ErrorValue, phase: Phase) -> None:
    walk = Walk()(START, READY, failed(error))
    assert (walk.state.phase, walk.code) == (phase, error.code)


def test_v035_the_steps_run_out() -> None:
    walk = Walk(max_steps=1)(START, READY, said("", call()), done(None))
    assert (walk.trace[-1], walk.code) == ("observe->halted", "budget.steps")
    assert walk.detail == {"steps": 1, "limit": 1}


def test_v036_the_last_step_may_answer() -> None:
    walk = Walk(max_steps=1)(START, READY, said("42"), OutputFinalized(at=0, output="42"))
    assert walk.state.phase is Phase.DONE


def test_v037_a_window_beyond_the_budget() -> None:
    walk = Walk(max_total_tokens=50)(START, READY)
    assert (walk.trace[-1], walk.code) == ("assemble->halted", "budget.tokens")
    assert walk.state.usage.model_calls == 0
    assert walk.detail == {"assembled": 100, "spent": 0, "limit": 50}


def test_v038_a_window_leaves_room_for_an_answer() -> None:
    assert Walk(max_total_tokens=100)(START, READY).code == "budget.tokens"
    walk = Walk(max_total_tokens=101)(START, READY)
    assert walk.state.phase is Phase.MODEL
    (effect,) = walk.last.effects
    assert isinstance(effect, CallModel)
    assert effect.max_output_tokens == 1


def test_v039_a_batch_beyond_the_budget_is_refused_whole() -> None:
    walk = Walk(max_tool_calls=1)(START, READY, said("", call(1), call(2)))
    assert (walk.trace[-1], walk.code) == ("route->halted", "budget.tool_calls")
    assert walk.detail == {"requested": 2, "spent": 0, "limit": 1}
    assert walk.last.effects == ()
    answers = walk.state.transcript[-2:]
    assert [(one.role, one.call_id, one.is_error) for one in answers] == [
        ("tool", "c1", True),
        ("tool", "c2", True),
    ]


def test_v042_failures_in_a_row() -> None:
    walk = Walk(max_consecutive_failures=2)(START, READY, failed(WRONG), READY, failed(WRONG))
    assert (walk.state.phase, walk.code) == (Phase.HALTED, "budget.consecutive_failures")


@pytest.mark.parametrize(
    "name", ["max_steps", "max_total_tokens", "max_wall_clock_ms", "max_consecutive_failures"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), 1.5, True, "3"])
def test_v045_limits_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(AgentLoopConfigError, match=r"config\.invalid.*" + name):
        Budget(**{name: value})


def test_v045_no_tools_and_no_second_attempt() -> None:
    walk = Walk(max_tool_calls=0, max_model_attempts=0)(START)
    (effect,) = walk.last.effects
    assert msgspec.to_builtins(effect) == {"kind": "assemble", "offer_tools": False, "shrink": 1.0}
    assert walk(READY, failed(LATER)).code == "model.retries_exhausted"


@pytest.mark.parametrize("jitter", [-0.1, 1, 2.0, float("nan"), True])
def test_w05_jitter_is_below_one(jitter: Any) -> None:
    with pytest.raises(AgentLoopConfigError, match=r"config\.invalid.*jitter"):
        RetryPolicy(jitter=jitter)


def test_w05_none_takes_a_limit_away() -> None:
    config = read_config({"budget": {"maxTotalTokens": None, "max_steps": None}, "retry": {"jitter": 0}})
    assert (config.budget.max_total_tokens, config.budget.max_tool_calls) == (None, 48)
    (effect,) = Walk(config)(START, READY).last.effects
    assert isinstance(effect, CallModel)
    assert effect.max_output_tokens is None
    for wrong in ({"budget": {"maxStep": 1}}, {"budget": {"maxSteps": 0}}, {"retry": 3}):
        with pytest.raises(AgentLoopConfigError, match=r"config\.invalid"):
            read_config(wrong)


def test_v046_the_order_of_the_limits() -> None:
    walk = Walk(max_steps=1, max_total_tokens=101)(START, READY, said("", call()), done(None))
    assert walk.code == "budget.steps"


@pytest.mark.parametrize(
    ("now", "code"), [(5000, "budget.wall_clock"), (1000, "budget.wall_clock"), (999, None)]
)
def test_v047_the_wall_clock(now: int, code: str | None) -> None:
    walk = Walk(max_wall_clock_ms=1000)
    walk(RunStarted(at=now, goal="goal"))
    assert walk.code == code
    if code:
        assert walk.detail == {"elapsedMs": now, "limit": 1000}


def test_v049_the_reducer_changes_nothing() -> None:
    walk = Walk()(START, READY)
    shown = repr(walk.state)
    event = said("", call())
    first, second = (reduce(walk.state, event, walk.config) for _ in range(2))
    assert first == second
    assert repr(walk.state) == shown
    assert len(walk.state.transcript) == 1
    other = reduce(walk.state, said("other"), walk.config)
    assert [message.content for message in other.state.transcript] == ["goal", "other"]
    assert [message.content for message in first.state.transcript] == ["goal", ""]


def test_a_transcript_is_shared_until_it_parts() -> None:
    one, two, three = (Message(role="user", content=text) for text in "123")
    start = Transcript([one])
    left, again, right = start.plus([two]), start.plus([two]), start.plus([three])
    assert (left, [*right], len(start)) == (again, [one, three], 1)
    assert left[-1] is two
    assert start[0:5] == [one]
    assert left != right
    with pytest.raises(IndexError):
        start[1]
    assert copy.copy(left) == left


def test_v051_waits_before_chance() -> None:
    delays = [RetryPolicy().delay_ms(attempt) for attempt in range(11)]
    assert delays == [250, 250, 500, 1000, 2000, 4000, 8000, 16000, 20000, 20000, 20000]
    assert RetryPolicy().delay_ms(10_000) == 20_000


def test_v052_no_model_call_without_a_window() -> None:
    state = msgspec.structs.replace(RunState.initial("r", "g", 0), phase=Phase.BACKOFF)
    with pytest.raises(InvariantViolation, match="window"):
        reduce(state, BackoffElapsed(at=0, waited_ms=0), RunConfig())


# ------------------------------------------------------------------------------- departures


def test_w01_only_progress_clears_the_failures() -> None:
    walk = Walk(max_consecutive_failures=3)(START, READY, failed(WRONG))
    walk(READY, said("", call()))
    assert walk.state.consecutive_failures == 1
    walk(done(WRONG))
    assert walk.state.consecutive_failures == 2
    walk(READY, said("", call(1), call(2)), done(None, WRONG))
    assert walk.state.consecutive_failures == 0
    walk(READY, failed(WRONG), READY, said("an answer"))
    assert walk.state.consecutive_failures == 0


def test_w02_an_overshoot_is_written_down_and_blocks_the_next_call() -> None:
    walk = Walk(max_total_tokens=110)(START, READY, said("", call()))
    assert walk.state.usage.budget_overrun == 10
    assert walk(done(None)).code == "budget.tokens"


def test_w03_at_the_limit_the_model_may_still_answer() -> None:
    walk = Walk(max_tool_calls=1)(START, READY, said("", call()), done(None))
    (effect,) = walk.last.effects
    assert msgspec.to_builtins(effect)["offer_tools"] is False
    assert walk(READY, said("", call(2))).code == "budget.tool_calls"


def test_w04_attempts_do_not_leak_into_the_next_turn() -> None:
    walk = Walk()(START, READY, failed(LATER), BackoffElapsed(at=0, waited_ms=0), failed(WRONG))
    assert walk.state.attempt == 1


def test_w06_a_truncated_reply_is_asked_for_again_once() -> None:
    walk = Walk()(START, READY, said("half an", stop="max_tokens"))
    assert walk.state.phase is Phase.ASSEMBLE
    assert walk.state.transcript[1].content == "half an"
    assert "cut off" in walk.state.transcript[-1].content
    walk(READY, said("half again", stop="max_tokens"), OutputFinalized(at=0, output="half again"))
    assert walk.state.outcome is not None
    assert walk.state.outcome.truncated
    walk = Walk()(START, READY, said("x", stop="max_tokens"), READY, said("whole"))
    walk(OutputFinalized(at=0, output="whole"))
    assert walk.state.outcome is not None
    assert not walk.state.outcome.truncated


def test_w06_a_reply_that_stops_for_a_tool_must_call_one() -> None:
    walk = Walk()(START, READY)
    transition = reduce(walk.state, said("let me look", stop="tool_use"), walk.config)
    (event,) = transition.emit
    assert isinstance(event, Repair)
    assert event.error.code == "model.missing_tool_call"


def test_w07_model_calls_that_fail_are_bounded_too() -> None:
    walk = Walk(max_steps=1, max_consecutive_failures=None)(START)
    for _ in range(3):
        walk(READY, failed(WRONG))
    assert walk.code == "budget.model_invocations"
    assert walk.state.usage.model_invocations == 3
    walk = Walk(max_model_invocations=1)(START, READY, failed(LATER))
    assert (walk.trace[-1], walk.code) == ("model->halted", "budget.model_invocations")


def test_w08_the_server_may_ask_for_a_longer_wait() -> None:
    def wait(asked: Any) -> int:
        walk = Walk()(START, READY, failed(transient("x.y", "later", detail={"retryAfterMs": asked})))
        (effect,) = walk.last.effects
        assert isinstance(effect, Wait)
        return effect.ms

    assert [wait(asked) for asked in (1_000, 10, 90_000, "soon")] == [1_000, 250, 20_000, 250]
    policy = RetryPolicy()
    assert policy.jittered_ms(20_000, 0.999) == 20_000


def test_w08_failed_attempts_are_paid_for() -> None:
    walk = Walk(max_total_tokens=150)(START, READY)
    walk(ModelFailed(at=0, error=LATER, usage=TokenUsage(prompt_tokens=60)))
    assert walk.state.usage.total_tokens == 60
    assert (walk.trace[-1], walk.code) == ("model->halted", "budget.tokens")


@pytest.mark.parametrize(
    ("errors", "phase", "code"),
    [
        ([budget_exceeded("t.quota", "no"), None], Phase.HALTED, "t.quota"),
        ([budget_exceeded("t.quota", "no"), fatal("t.broken", "no")], Phase.FAILED, "t.broken"),
        ([fatal("t.broken", "no"), cancelled("stop")], Phase.FAILED, "run.cancelled"),
        ([fatal("t.first", "no"), fatal("t.second", "no")], Phase.FAILED, "t.first"),
    ],
)
def test_w10_the_worst_result_decides(errors: list[ErrorValue | None], phase: Phase, code: str) -> None:
    walk = Walk()(START, READY, said("", call(1), call(2)), done(*errors))
    assert (walk.state.phase, walk.code) == (phase, code)
    assert walk.state.usage.tool_calls == 2


def test_w11_a_window_too_long_is_built_smaller() -> None:
    walk = Walk()(START)
    too_long = transient("context.length_exceeded", "too long")
    shrinks = []
    for _ in range(3):
        walk(READY, failed(too_long))
        (effect,) = walk.last.effects
        shrinks.append(msgspec.to_builtins(effect)["shrink"])
    assert shrinks == pytest.approx([0.85, 0.7225, 0.614125])
    assert walk.trace[-1] == "model->assemble"
    walk(READY, failed(too_long))
    assert (walk.state.phase, walk.code) == (Phase.FAILED, "context.length_exceeded")


def test_w13_nothing_unusable_gets_into_the_transcript() -> None:
    walk = Walk()(START, READY, said(" "))
    assert [message.role for message in walk.state.transcript] == ["user", "user"]
    walk(READY, said("", call(1), call(1)))
    assert [message.role for message in walk.state.transcript] == ["user", "user", "user"]
    assert "same id" in walk.state.transcript[-1].content


def test_w16_calls_that_were_not_made_are_answered() -> None:
    walk = Walk()(START, READY, said("", call(1), call(2)), done(fatal("t.broken", "no"), skipped=["c2"]))
    assert [message.call_id for message in walk.state.transcript[-2:]] == ["c1", "c2"]
    assert walk.state.usage.tool_calls == 1


def test_w23_long_results_are_cut_where_the_model_reads_them() -> None:
    result = ToolExecution(call=call(), ok=True, content="x" * 100)
    config = RunConfig(max_result_tokens=5)
    walk = Walk(config)(START, READY, said("", call()), done(result))
    content = walk.state.transcript[-1].content
    assert content.startswith("x" * 20 + "\n[… 80 characters cut")


def frames(*told: dict[str, Any], attempt: int = 1) -> ModelFrames:
    return ModelFrames(at=0, attempt=attempt, frames=told)


def test_s1_a_reply_is_what_its_frames_add_up_to() -> None:
    parts = [frames({"n": number, "kind": "text", "delta": text}) for number, text in enumerate("ab", 1)]
    walk = Walk()(START, READY, *parts)
    assert walk.trace[2:] == ["model->model", "model->model"]
    assert walk.state.partial is not None
    assert walk.state.partial.text == "ab"
    with pytest.raises(InvariantViolation, match="add up"):
        reduce(walk.state, said("abc"), walk.config)
    assert walk(said("ab")).state.partial is None


def test_s1_an_attempt_begins_anew() -> None:
    walk = Walk()(START, READY, frames({"n": 1, "kind": "text", "delta": "half"}), failed(LATER))
    assert walk.state.partial is None
    walk(BackoffElapsed(at=0, waited_ms=0), frames({"n": 1, "kind": "text", "delta": "x"}, attempt=2))
    walk(frames({"n": 1, "kind": "text", "delta": "whole"}, attempt=2), said("whole"))
    assert walk.state.phase is Phase.FINALIZE


def test_s1_what_was_said_stays_when_the_run_ends() -> None:
    walk = Walk()(START, READY, frames({"n": 1, "kind": "text", "delta": "half"}), RunCancelled(at=0))
    assert walk.state.outcome is not None
    assert walk.state.outcome.partial == "half"


def test_the_rest_of_the_row_is_refused() -> None:
    walk = Walk()(START)
    for event in (ObservationsRecorded(at=0, count=1), said("x"), done(None), START):
        with pytest.raises(IllegalTransition, match=event_name(event)):
            reduce(walk.state, event, walk.config)
    (effect,) = Walk()(START, READY, said(" 42 ")).last.effects
    assert effect == Finalize(draft=" 42 ")
