"""The reducer: every rule about what a run does next.

`reduce` takes a state and an event and says the next state, what is to be done, or which event
follows at once. It reads no clock, draws no chance, does no I/O and changes none of its
arguments. The driver in `runtime` does what it says; a replay feeds it what was recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from agentloop.errors import ErrorValue, IllegalTransition, InvariantViolation
from agentloop.messages import Message, ToolCall
from agentloop.orchestrator import budgets
from agentloop.orchestrator.config import RunConfig
from agentloop.orchestrator.events import (
    Answer,
    Assemble,
    BackoffElapsed,
    BudgetExceeded,
    CallModel,
    ContextAssembled,
    Effect,
    Event,
    ExecuteTools,
    Fault,
    Finalize,
    ModelFailed,
    ModelFrames,
    ModelSucceeded,
    ObservationsRecorded,
    OutputFinalized,
    Repair,
    RunCancelled,
    RunStarted,
    SummaryRecorded,
    ToolExecution,
    ToolRequest,
    ToolsCompleted,
    ToolStarted,
    Wait,
    event_name,
)
from agentloop.orchestrator.phases import ORCHESTRATION, Phase
from agentloop.orchestrator.state import Outcome, RunState, Transcript
from agentloop.orchestrator.streaming import fold_frames
from agentloop.outcome import cancelled, correctable, fatal

__all__ = (
    "MAX_SHRINKS",
    "MAX_SUMMARIES",
    "SHRINK",
    "Transition",
    "kept_name",
    "reduce",
    "shown_length",
    "shown_result",
)

#: What the window's budget is multiplied by each time a model finds it too long.
SHRINK: Final = 0.85
#: How often, in a run.
MAX_SHRINKS: Final = 3
#: Summaries an assembler may have made, in a run.
MAX_SUMMARIES: Final = 50
#: Characters a token is taken for where a text is cut.
_PER_TOKEN: Final = 4


class Transition(NamedTuple):
    """The next state, and either what is to be done or which events follow at once."""

    state: RunState
    effects: tuple[Effect, ...] = ()
    emit: tuple[Event, ...] = ()


def reduce(state: RunState, event: Event, config: RunConfig) -> Transition:
    """Return what follows from an event. Constant time in the length of the run.

    Raises:
        IllegalTransition: The event is not legal in this phase: the driver is wrong.
        InvariantViolation: The event contradicts what was before.
    """
    name = event_name(event)
    legal = ORCHESTRATION.rows[state.phase]
    if name not in legal:
        raise IllegalTransition(state.phase, name, legal)
    transition = _RULES[type(event)](state, event, config)
    if transition.effects and transition.emit:
        raise InvariantViolation(f"{name} gave both effects and events, whose order nobody knows")
    ORCHESTRATION.check(state.phase, name, transition.state.phase)
    return transition


_replace = msgspec.structs.replace


def _end(state: RunState, at: int, status: Any, phase: Phase, error: ErrorValue) -> Transition:
    partial = state.draft
    if partial is None and state.partial is not None:
        partial = state.partial.text or None
    outcome = Outcome(status=status, error=error, partial=partial)
    return Transition(_replace(state, now=at, phase=phase, outcome=outcome))


def _halt(state: RunState, at: int, error: ErrorValue) -> Transition:
    return _end(state, at, "halted", Phase.HALTED, error)


def _abort(state: RunState, at: int, error: ErrorValue) -> Transition:
    return _end(state, at, "failed", Phase.FAILED, error)


def _enter_assemble(state: RunState, config: RunConfig) -> Transition:
    breach = budgets.before_turn(state, config)
    if breach is not None:
        return _halt(state, state.now, breach)
    ready = _replace(state, phase=Phase.ASSEMBLE, attempt=1, partial=None)
    return Transition(ready, (_assemble(ready, config),))


def _assemble(state: RunState, config: RunConfig) -> Assemble:
    return Assemble(offer_tools=budgets.offers_tools(state.usage, config), shrink=SHRINK**state.shrinks)


def _observe(
    state: RunState, at: int, messages: Sequence[Message], *, corrective: bool, failed: bool
) -> Transition:
    usage = state.usage
    if corrective:
        usage = _replace(usage, corrective_turns=usage.corrective_turns + 1)
    seen = _replace(
        state,
        now=at,
        phase=Phase.OBSERVE,
        transcript=state.transcript.plus(messages),
        usage=usage,
        consecutive_failures=state.consecutive_failures + 1 if failed else 0,
        pending_calls=(),
        partial=None,
    )
    return Transition(seen, emit=(ObservationsRecorded(at=at, count=len(messages)),))


def _repair(error: ErrorValue) -> Message:
    text = f"Your last reply could not be used: {error.message}\nReply again, corrected."
    return Message(role="user", content=text)


# ------------------------------------------------------------------------------ start, window


def _run_started(state: RunState, event: RunStarted, config: RunConfig) -> Transition:
    goal = Message(role="user", content=event.goal)
    begun = _replace(state, now=event.at, goal=event.goal, transcript=Transcript([goal]))
    return _enter_assemble(begun, config)


def _context_assembled(state: RunState, event: ContextAssembled, config: RunConfig) -> Transition:
    context = event.context
    breach = budgets.window_too_dear(state, context.tokens, config)
    if breach is not None:
        return _halt(state, event.at, breach)
    ready = _replace(state, now=event.at, phase=Phase.MODEL, context=context)
    return Transition(ready, (_call(ready, config),))


def _call(state: RunState, config: RunConfig) -> CallModel:
    context = state.context
    if context is None:
        raise InvariantViolation("a model call needs a window, and none was assembled")
    room = budgets.output_room(state, context.tokens, config)
    limits = [limit for limit in (context.max_output_tokens, room) if limit is not None]
    most = min(limits) if limits else None
    return CallModel(context=context, attempt=state.attempt, max_output_tokens=most)


def _summary_recorded(state: RunState, event: SummaryRecorded, config: RunConfig) -> Transition:
    if len(state.summaries) >= MAX_SUMMARIES:
        raise InvariantViolation(f"an assembler had more than {MAX_SUMMARIES} summaries made in one run")
    usage = budgets.spent(state.usage, event.usage, config)
    summaries = (*state.summaries, event.text)
    ready = _replace(state, now=event.at, usage=usage, summaries=summaries)
    return Transition(ready, (_assemble(ready, config),))


# -------------------------------------------------------------------------------------- model


def _model_frames(state: RunState, event: ModelFrames, config: RunConfig) -> Transition:
    return Transition(_replace(state, now=event.at, partial=fold_frames(state.partial, event.frames)))


def _model_succeeded(state: RunState, event: ModelSucceeded, config: RunConfig) -> Transition:
    message = event.message
    if state.partial is not None and state.partial.reply().message != message:
        raise InvariantViolation("the reply is not what its frames add up to")
    usage = budgets.spent(state.usage, event.usage, config)
    route = _route(state, event)
    transcript = state.transcript
    # A server refuses a later window that holds a message without anything, or one call id twice.
    if not (type(route) is Repair and route.error.code in _UNUSABLE):
        transcript = transcript.plus([message])
    counted = 0 if state.context is None else state.context.tokens
    answered = _replace(
        state,
        now=event.at,
        phase=Phase.ROUTE,
        step=state.step + 1,
        transcript=transcript,
        usage=_replace(usage, model_calls=usage.model_calls + 1),
        attempt=1,
        partial=None,
        estimates=state.estimates.seen(counted, event.usage.prompt_tokens),
    )
    return Transition(answered, emit=(route,))


_UNUSABLE: Final = frozenset({"model.empty_response", "model.duplicate_call_id"})


def _route(state: RunState, event: ModelSucceeded) -> ToolRequest | Answer | Repair:
    message, at = event.message, event.at
    calls = message.tool_calls
    if calls:
        if len({call.id for call in calls}) != len(calls):
            text = "two tool calls of one reply have the same id"
            return Repair(at=at, error=correctable("model.duplicate_call_id", text))
        return ToolRequest(at=at, calls=calls)
    if not message.content.strip():
        text = "the reply has neither content nor a tool call"
        return Repair(at=at, error=correctable("model.empty_response", text))
    if event.stop_reason == "tool_use":
        text = "the reply stopped to call a tool and calls none"
        return Repair(at=at, error=correctable("model.missing_tool_call", text))
    if event.stop_reason == "max_tokens" and not state.truncated:
        text = "the reply was cut off at its token limit: answer more briefly"
        return Repair(at=at, error=correctable("model.truncated", text))
    return Answer(at=at, content=message.content, truncated=event.stop_reason == "max_tokens")


def _model_failed(state: RunState, event: ModelFailed, config: RunConfig) -> Transition:
    error, at = event.error, event.at
    reported = event.usage or (state.partial.usage if state.partial is not None else None)
    usage = budgets.spent(state.usage, reported, config)
    failed = _replace(state, now=at, usage=usage)
    match error.error_class:
        case "transient" if error.code == "context.length_exceeded":
            return _shrink(failed, error, config)
        case "transient":
            return _try_again(failed, error, config)
        case "correctable":
            return _observe(failed, at, [_repair(error)], corrective=True, failed=True)
        case "budget":
            return _halt(failed, at, error)
        case _:
            return _abort(failed, at, error)


def _shrink(state: RunState, error: ErrorValue, config: RunConfig) -> Transition:
    if state.shrinks >= MAX_SHRINKS:
        text = f"the window is still too long after {MAX_SHRINKS} cuts: {error.message}"
        return _abort(state, state.now, fatal(error.code, text, detail=error.detail, source=error.source))
    usage = _replace(state.usage, retries=state.usage.retries + 1)
    return _enter_assemble(_replace(state, usage=usage, shrinks=state.shrinks + 1), config)


def _try_again(state: RunState, error: ErrorValue, config: RunConfig) -> Transition:
    attempt, at = state.attempt, state.now
    if attempt >= config.budget.max_model_attempts:
        detail = {"attempts": attempt, "lastCode": error.code}
        text = f"the model did not answer in {attempt} attempts; the last one: {error.message}"
        return _abort(state, at, fatal("model.retries_exhausted", text, detail=detail))
    tokens = 0 if state.context is None else state.context.tokens
    breach = budgets.invocations_used_up(state.usage, config) or budgets.window_too_dear(
        state, tokens, config
    )
    if breach is not None:
        return _halt(state, at, breach)
    usage = _replace(state.usage, retries=state.usage.retries + 1)
    waiting = _replace(state, phase=Phase.BACKOFF, attempt=attempt + 1, usage=usage, partial=None)
    return Transition(waiting, (Wait(ms=_delay_ms(attempt, error, config)),))


def _delay_ms(attempt: int, error: ErrorValue, config: RunConfig) -> int:
    delay_ms, asked_ms = config.retry.delay_ms(attempt), error.detail.get("retryAfterMs")
    if isinstance(asked_ms, int) and asked_ms > delay_ms:
        return min(asked_ms, config.retry.max_delay_ms)
    return delay_ms


def _backoff_elapsed(state: RunState, event: BackoffElapsed, config: RunConfig) -> Transition:
    ready = _replace(state, now=event.at, phase=Phase.MODEL)
    return Transition(ready, (_call(ready, config),))


# -------------------------------------------------------------------------------------- route


def _route_tools(state: RunState, event: ToolRequest, config: RunConfig) -> Transition:
    breach = budgets.too_many_calls(state.usage, len(event.calls), config)
    if breach is not None:
        refused = [_not_made(call, breach.message) for call in event.calls]
        return _halt(_replace(state, transcript=state.transcript.plus(refused)), event.at, breach)
    ready = _replace(state, now=event.at, phase=Phase.TOOLS, pending_calls=event.calls)
    return Transition(ready, (ExecuteTools(calls=event.calls),))


def _not_made(call: ToolCall, why: str) -> Message:
    content = f"This call was not made: {why}."
    return Message(role="tool", content=content, call_id=call.id, name=call.name, is_error=True)


def _answer(state: RunState, event: Answer, config: RunConfig) -> Transition:
    ready = _replace(
        state,
        now=event.at,
        phase=Phase.FINALIZE,
        draft=event.content,
        consecutive_failures=0,
        truncated=event.truncated,
    )
    return Transition(ready, (Finalize(draft=event.content),))


def _repair_asked(state: RunState, event: Repair, config: RunConfig) -> Transition:
    if event.error.code == "model.truncated":
        state = _replace(state, truncated=True)
    return _observe(state, event.at, [_repair(event.error)], corrective=True, failed=True)


# -------------------------------------------------------------------------------------- tools


def _tool_started(state: RunState, event: ToolStarted, config: RunConfig) -> Transition:
    return Transition(_replace(state, now=event.at))


#: Which failures of a tool end the run, the worst first.
_SEVERITY: Final = ("cancelled", "fatal", "budget")


def _tools_completed(state: RunState, event: ToolsCompleted, config: RunConfig) -> Transition:
    results, at = event.results, event.at
    usage = state.usage
    usage = _replace(
        usage,
        tool_calls=usage.tool_calls + len(results),
        retries=usage.retries + sum(result.attempts - 1 for result in results),
    )
    for child in [child for result in results for child in result.children]:
        usage = budgets.paid(usage, child.usage, config)
        usage = _replace(usage, tool_calls=usage.tool_calls + child.tool_calls)
    state = _replace(state, now=at, usage=usage)
    messages = [shown_result(result, config) for result in results]
    if event.skipped:
        calls = {call.id: call for call in state.pending_calls}
        messages += [_not_made(calls[call_id], "one before it ended the run") for call_id in event.skipped]
    worst = _worst(results)
    if worst is not None and worst.error_class != "budget":
        seen = _replace(state, transcript=state.transcript.plus(messages))
        return _abort(seen, at, worst)
    failed = [result for result in results if not result.ok]
    all_failed = bool(results) and len(failed) == len(results)
    transition = _observe(state, at, messages, corrective=bool(failed), failed=all_failed)
    if worst is None:
        return transition
    return Transition(transition.state, emit=(BudgetExceeded(at=at, error=worst),))


def _worst(results: Sequence[ToolExecution]) -> ErrorValue | None:
    for error_class in _SEVERITY:
        for result in results:
            if result.error is not None and result.error.error_class == error_class:
                return result.error
    return None


def shown_length(config: RunConfig) -> int | None:
    """Return the characters of a result that a model is shown; None for all of them."""
    return None if config.max_result_tokens is None else config.max_result_tokens * _PER_TOKEN


def kept_name(content: str) -> str:
    """Return what a result that was cut is kept as: sixteen digits of its SHA-256."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def shown_result(result: ToolExecution, config: RunConfig) -> Message:
    """Return the message a model reads; what is too long for it is cut, visibly."""
    content, most = result.content, shown_length(config)
    if most is not None and len(content) > most:
        cut, name = len(content) - most, kept_name(content)
        content = f"{content[:most]}\n[… {cut} characters cut; all of it is kept as {name} …]"
    call = result.call
    return Message(role="tool", content=content, call_id=call.id, name=call.name, is_error=not result.ok)


# ---------------------------------------------------------------------------------------- end


def _observations_recorded(state: RunState, event: ObservationsRecorded, config: RunConfig) -> Transition:
    return _enter_assemble(_replace(state, now=event.at), config)


def _output_finalized(state: RunState, event: OutputFinalized, config: RunConfig) -> Transition:
    outcome = Outcome(status="completed", output=event.output, truncated=state.truncated)
    return Transition(_replace(state, now=event.at, phase=Phase.DONE, draft=None, outcome=outcome))


def _budget_exceeded(state: RunState, event: BudgetExceeded, config: RunConfig) -> Transition:
    return _halt(state, event.at, event.error)


def _fault(state: RunState, event: Fault, config: RunConfig) -> Transition:
    return _abort(state, event.at, event.error)


def _run_cancelled(state: RunState, event: RunCancelled, config: RunConfig) -> Transition:
    return _abort(state, event.at, cancelled(event.reason or "the run was cancelled"))


_RULES: Final[Mapping[type[Any], Callable[[RunState, Any, RunConfig], Transition]]] = {
    RunStarted: _run_started,
    ContextAssembled: _context_assembled,
    SummaryRecorded: _summary_recorded,
    ModelFrames: _model_frames,
    ModelSucceeded: _model_succeeded,
    ModelFailed: _model_failed,
    ToolRequest: _route_tools,
    Answer: _answer,
    Repair: _repair_asked,
    ToolStarted: _tool_started,
    ToolsCompleted: _tools_completed,
    ObservationsRecorded: _observations_recorded,
    BackoffElapsed: _backoff_elapsed,
    OutputFinalized: _output_finalized,
    BudgetExceeded: _budget_exceeded,
    Fault: _fault,
    RunCancelled: _run_cancelled,
}
