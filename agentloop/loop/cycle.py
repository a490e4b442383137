"""The agent-evaluator cycle: every rule about what may follow what.

Nothing here awaits, reads a clock or knows a model. The driver in `agent` hands every event
to `decide` and does what it says; `replay` does the same with recorded events. If a rule is
needed anywhere else, it moves here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentloop.frames import (
    ABORT,
    CYCLE_STARTED,
    ERROR,
    NODE_COMPLETED,
    NODE_FAILED,
    NODE_RETRY,
    NODE_STARTED,
    TREE_FAILED,
)
from agentloop.machine import TransitionTable
from agentloop.messages import NodeStatus, ResultReason

__all__ = (
    "CALL_AGENT",
    "CALL_EVALUATOR",
    "CYCLE",
    "RECORD_OUTCOME",
    "RUN_CHECKS",
    "AgentEnded",
    "Aborted",
    "ChecksReported",
    "Closing",
    "CycleConfig",
    "CycleState",
    "Effect",
    "Emit",
    "Event",
    "Faulted",
    "Order",
    "OutcomeRecorded",
    "Phase",
    "StopAsked",
    "Ticked",
    "Judged",
    "decide",
)


class Phase(StrEnum):
    """Where a run stands."""

    IDLE = "idle"
    AGENT = "agent"
    CHECKS = "checks"
    EVALUATOR = "evaluator"
    RECORDING = "recording"
    DONE = "done"
    FAILED = "failed"


_END: Final = (Phase.RECORDING, Phase.DONE, Phase.FAILED)
_FAIL: Final = (Phase.RECORDING, Phase.FAILED)

#: Which event may follow in which phase, and the phase that comes then.
CYCLE: Final = TransitionTable[Phase](
    {
        Phase.IDLE: {"tick": (Phase.AGENT, *_FAIL), "stop_asked": _FAIL},
        Phase.AGENT: {"agent.ended": (Phase.CHECKS, Phase.EVALUATOR), "stop_asked": (Phase.AGENT,)},
        Phase.CHECKS: {
            "checks.passed": _END,
            "checks.failed": (Phase.AGENT, Phase.EVALUATOR, *_FAIL),
            "stop_asked": (Phase.CHECKS,),
        },
        Phase.EVALUATOR: {
            "verdict": (Phase.AGENT, Phase.EVALUATOR, *_END),
            "stop_asked": (Phase.EVALUATOR,),
        },
        Phase.RECORDING: {"outcome.recorded": (Phase.DONE, Phase.FAILED)},
        Phase.DONE: {},
        Phase.FAILED: {},
    },
    anywhere={"aborted": _FAIL, "faulted": _FAIL},
)


# ----------------------------------------------------------------------------------- events


class Ticked(msgspec.Struct, frozen=True, tag="tick"):
    """Somebody asked for the run to start."""


class AgentEnded(msgspec.Struct, frozen=True, tag="agent.ended"):
    """The agent's turn is in."""

    agent_text: str


class ChecksReported(msgspec.Struct, frozen=True, tag="checks"):
    """The deterministic checks have been evaluated."""

    all_passed: bool
    evidence: str


class Judged(msgspec.Struct, frozen=True, tag="verdict"):
    """The evaluator's turn is in and was parsed."""

    status: NodeStatus
    evidence: str
    parse_error: str | None = None


class OutcomeRecorded(msgspec.Struct, frozen=True, tag="outcome.recorded"):
    """The outcome was written to the memory, or could not be and that is fatal."""

    failure: str | None = None


class Aborted(msgspec.Struct, frozen=True, tag="aborted"):
    """Somebody stopped the run."""

    reason: str


class StopAsked(msgspec.Struct, frozen=True, tag="stop_asked"):
    """Somebody asked for the run to stop after the current cycle."""

    reason: str


class Faulted(msgspec.Struct, frozen=True, tag="faulted"):
    """Something raised that the run cannot do without."""

    phase: str
    error_type: str
    message: str


Event: TypeAlias = (
    Ticked | AgentEnded | ChecksReported | Judged | OutcomeRecorded | Aborted | StopAsked | Faulted
)


# ---------------------------------------------------------------------------------- effects


class Emit(msgspec.Struct, frozen=True):
    """Publish a frame."""

    type: str
    content: dict[str, Any]


#: An effect without parameters.
Order: TypeAlias = Literal["call_agent", "run_checks", "call_evaluator", "record_outcome"]

CALL_AGENT: Final = "call_agent"
RUN_CHECKS: Final = "run_checks"
CALL_EVALUATOR: Final = "call_evaluator"
RECORD_OUTCOME: Final = "record_outcome"

Effect: TypeAlias = Emit | Order


# ------------------------------------------------------------------------------------ state


class CycleConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and switches the rules depend on."""

    max_iterations: int
    max_retries: int
    evaluator_parse_retries: int = 0
    has_checks: bool = False
    #: An outcome is written to a memory before the terminal frame is published.
    has_memory: bool = False
    extra_frames: bool = False


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """How the run ends."""

    status: NodeStatus
    reason: ResultReason
    evidence: str | None
    #: The frames that tell it; the first is terminal.
    frames: tuple[Emit, ...]


class CycleState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the rules remember between two events."""

    phase: Phase = Phase.IDLE
    iteration: int = 0
    retry_count: int = 0
    check_retry_count: int = 0
    last_evidence: str | None = None
    agent_text: str = ""
    #: Evaluator turns of this cycle whose text could not be read.
    parse_failures: int = 0
    parse_error: str | None = None
    #: Why the run is to end instead of beginning another cycle.
    stop_reason: str | None = None
    closing: Closing | None = None


Step: TypeAlias = tuple[CycleState, tuple[Effect, ...]]
_replace = msgspec.structs.replace


def event_name(event: Event) -> str:
    """Return the event's name in the transition table."""
    if type(event) is ChecksReported:
        return "checks.passed" if event.all_passed else "checks.failed"
    return _NAMES[type(event)]


def decide(state: CycleState, event: Event, config: CycleConfig) -> Step:
    """Return the state after the event and what is to be done now, in order.

    Raises:
        IllegalTransition: The event may not come in this phase: a bug in the driver.
    """
    after, effects = _RULES[type(event)](state, event, config)
    CYCLE.check(state.phase, event_name(event), after.phase)
    return after, effects


def _ticked(state: CycleState, event: Ticked, config: CycleConfig) -> Step:
    return _begin_cycle(state, config)


def _begin_cycle(state: CycleState, config: CycleConfig, *before: Effect) -> Step:
    if state.iteration >= config.max_iterations:
        return _exhausted(state, config)
    iteration = state.iteration + 1
    started = Emit(CYCLE_STARTED, {"iteration": iteration, "retry_count": state.retry_count})
    effects: tuple[Effect, ...] = (*before, CALL_AGENT)
    if config.extra_frames:
        effects = (*before, started, CALL_AGENT)
    after = _replace(state, phase=Phase.AGENT, iteration=iteration, parse_failures=0, parse_error=None)
    return after, effects


def _agent_ended(state: CycleState, event: AgentEnded, config: CycleConfig) -> Step:
    started = Emit(NODE_STARTED, {"iteration": state.iteration, "agent_text": event.agent_text})
    if config.has_checks:
        return _replace(state, phase=Phase.CHECKS, agent_text=event.agent_text), (started, RUN_CHECKS)
    return _replace(state, phase=Phase.EVALUATOR, agent_text=event.agent_text), (started, CALL_EVALUATOR)


def _checks_reported(state: CycleState, event: ChecksReported, config: CycleConfig) -> Step:
    state = _replace(state, last_evidence=event.evidence)
    if event.all_passed:
        return _succeeded(state, config, "checks")
    if state.check_retry_count >= config.max_retries:
        # The budget for check-driven retries is spent and never refilled: the evaluator judges.
        return _replace(state, phase=Phase.EVALUATOR), (CALL_EVALUATOR,)
    return _retry(state, config, "checks")


def _verdict(state: CycleState, event: Judged, config: CycleConfig) -> Step:
    if event.parse_error is not None and state.parse_failures < config.evaluator_parse_retries:
        return _replace(state, parse_failures=state.parse_failures + 1, parse_error=event.parse_error), (
            CALL_EVALUATOR,
        )
    state = _replace(state, last_evidence=event.evidence, parse_error=None)
    if event.status is NodeStatus.SUCCESS:
        return _succeeded(state, config, "evaluator")
    if event.status is NodeStatus.FAILURE:
        failed = Emit(NODE_FAILED, {"evidence": event.evidence, "iteration": state.iteration})
        return _close(state, config, NodeStatus.FAILURE, "evaluator", failed)
    return _retry(state, config, "evaluator")


def _retry(state: CycleState, config: CycleConfig, source: str) -> Step:
    if state.stop_reason is not None:
        return _aborted(state, Aborted(state.stop_reason), config)
    if state.iteration >= config.max_iterations:
        # No retry is announced that cannot happen.
        return _exhausted(state, config)
    by_checks = source == "checks"
    state = _replace(
        state,
        retry_count=state.retry_count + 1,
        check_retry_count=state.check_retry_count + by_checks,
    )
    content = {"evidence": state.last_evidence, "retry_count": state.retry_count}
    retry = Emit(NODE_RETRY, {**content, "source": source, "iteration": state.iteration})
    return _begin_cycle(state, config, retry)


def _succeeded(state: CycleState, config: CycleConfig, source: Literal["checks", "evaluator"]) -> Step:
    content = {"evidence": state.last_evidence, "iteration": state.iteration, "source": source}
    return _close(state, config, NodeStatus.SUCCESS, source, Emit(NODE_COMPLETED, content))


def _exhausted(state: CycleState, config: CycleConfig) -> Step:
    return _close(state, config, NodeStatus.FAILURE, "max_iterations", _tree_failed(state, "max_iterations"))


def _aborted(state: CycleState, event: Aborted, config: CycleConfig) -> Step:
    frames = (_tree_failed(state, "aborted"), Emit(ABORT, {"reason": event.reason}))
    return _close(state, config, NodeStatus.FAILURE, "aborted", *frames)


def _stop_asked(state: CycleState, event: StopAsked, config: CycleConfig) -> Step:
    if state.phase is Phase.IDLE:
        return _aborted(state, Aborted(event.reason), config)
    return _replace(state, stop_reason=event.reason), ()


def _faulted(state: CycleState, event: Faulted, config: CycleConfig) -> Step:
    evidence = f"{event.phase}: {event.message}"
    error = Emit(ERROR, {**_error_content(event), "fatal": True, "iteration": state.iteration})
    after, effects = _close(
        _replace(state, last_evidence=evidence),
        config,
        NodeStatus.FAILURE,
        "error",
        _tree_failed(_replace(state, last_evidence=evidence), "error"),
    )
    return after, (error, *effects)


def _error_content(event: Faulted) -> dict[str, Any]:
    return {"phase": event.phase, "error_type": event.error_type, "message": event.message}


def _tree_failed(state: CycleState, reason: str) -> Emit:
    content: dict[str, Any] = {"reason": reason, "iteration": state.iteration}
    if state.last_evidence is not None:
        content["evidence"] = state.last_evidence
    return Emit(TREE_FAILED, content)


def _close(
    state: CycleState,
    config: CycleConfig,
    status: NodeStatus,
    reason: ResultReason,
    *frames: Emit,
) -> Step:
    closing = Closing(status=status, reason=reason, evidence=state.last_evidence, frames=frames)
    if config.has_memory and state.phase is not Phase.RECORDING:
        return _replace(state, phase=Phase.RECORDING, closing=closing), (RECORD_OUTCOME,)
    return _replace(state, phase=_final_phase(status), closing=closing), frames


def _final_phase(status: NodeStatus) -> Phase:
    return Phase.DONE if status is NodeStatus.SUCCESS else Phase.FAILED


def _outcome_recorded(state: CycleState, event: OutcomeRecorded, config: CycleConfig) -> Step:
    if event.failure is not None:
        return _faulted(state, Faulted("graph", "GraphWriteFailed", event.failure), config)
    closing = state.closing
    if closing is None:
        return state, ()  # nothing is decided yet: the table refuses it
    return _replace(state, phase=_final_phase(closing.status)), closing.frames


_RULES: Final[dict[type[Event], Any]] = {
    Ticked: _ticked,
    AgentEnded: _agent_ended,
    ChecksReported: _checks_reported,
    Judged: _verdict,
    OutcomeRecorded: _outcome_recorded,
    Aborted: _aborted,
    StopAsked: _stop_asked,
    Faulted: _faulted,
}
_NAMES: Final[dict[type[Event], str]] = {kind: str(kind.__struct_config__.tag) for kind in _RULES}
