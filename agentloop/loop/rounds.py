"""The outer loop's rules: which inner loop follows which, and how the whole ends. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentloop.frames import ABORT, ERROR, TREE_FAILED
from agentloop.loop.cycle import Emit, Faulted
from agentloop.machine import TransitionTable
from agentloop.messages import NodeStatus, ResultReason

__all__ = (
    "ASK_AGAIN",
    "ASK_NODE",
    "ROUNDS",
    "RUN_INNER",
    "Answered",
    "Began",
    "Faulted",
    "InnerEnded",
    "NodeGiven",
    "OuterAborted",
    "Round",
    "RoundPhase",
    "RoundsConfig",
    "next_round",
)


class RoundPhase(StrEnum):
    """Where the outer loop stands."""

    IDLE = "idle"
    NODE = "node"
    INNER = "inner"
    AGAIN = "again"
    DONE = "done"
    FAILED = "failed"


_END: Final = (RoundPhase.DONE, RoundPhase.FAILED)
_NEXT: Final = (RoundPhase.NODE, RoundPhase.INNER)

ROUNDS: Final = TransitionTable[RoundPhase](
    {
        RoundPhase.IDLE: {"began": (*_NEXT, RoundPhase.FAILED)},
        RoundPhase.NODE: {"node.given": (RoundPhase.INNER, *_END)},
        RoundPhase.INNER: {"inner.ended": (RoundPhase.AGAIN, *_END)},
        RoundPhase.AGAIN: {"answered": (*_NEXT, *_END)},
        RoundPhase.DONE: {},
        RoundPhase.FAILED: {},
    },
    anywhere={"outer_aborted": (RoundPhase.FAILED,), "faulted": (RoundPhase.FAILED,)},
)


class Began(msgspec.Struct, frozen=True, tag="began"):
    """Somebody asked for the run to start."""


class NodeGiven(msgspec.Struct, frozen=True, tag="node.given"):
    """The provider was asked; ``found`` is False when it has no more."""

    found: bool


class InnerEnded(msgspec.Struct, frozen=True, tag="inner.ended"):
    """An inner loop is over."""

    status: NodeStatus
    reason: ResultReason


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """``should_continue`` was asked."""

    again: bool


class OuterAborted(msgspec.Struct, frozen=True, tag="outer_aborted"):
    """The run was stopped between two inner loops."""

    reason: str


RoundEvent: TypeAlias = Began | NodeGiven | InnerEnded | Answered | OuterAborted | Faulted
RoundOrder: TypeAlias = Literal["ask_node", "run_inner", "ask_again"]
ASK_NODE: Final = "ask_node"
RUN_INNER: Final = "run_inner"
ASK_AGAIN: Final = "ask_again"


class RoundsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules depend on."""

    max_iterations: int
    has_provider: bool


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the rules remember between two events."""

    phase: RoundPhase = RoundPhase.IDLE
    #: Index of the current inner loop, from 0.
    index: int = 0
    #: How the newest inner loop ended.
    last: InnerEnded | None = None
    #: How the whole ended; ``inner`` stands for the newest inner result.
    ending: ResultReason | Literal["inner"] | None = None


RoundStep: TypeAlias = tuple[Round, tuple[Emit | RoundOrder, ...]]
_replace = msgspec.structs.replace


def next_round(state: Round, event: RoundEvent, config: RoundsConfig) -> RoundStep:
    """Return the state after the event and what is to be done now.

    Raises:
        IllegalTransition: The event may not come in this phase: a bug in the driver.
    """
    after, effects = _RULES[type(event)](state, event, config)
    ROUNDS.check(state.phase, str(event.__struct_config__.tag), after.phase)
    return after, effects


def _began(state: Round, event: Began, config: RoundsConfig) -> RoundStep:
    return _begin(state, 0, config)


def _begin(state: Round, index: int, config: RoundsConfig) -> RoundStep:
    if index >= config.max_iterations:
        return _end(state, "max_iterations", Emit(TREE_FAILED, {"reason": "max_iterations"}))
    if config.has_provider:
        return _replace(state, phase=RoundPhase.NODE, index=index), (ASK_NODE,)
    return _replace(state, phase=RoundPhase.INNER, index=index), (RUN_INNER,)


def _node_given(state: Round, event: NodeGiven, config: RoundsConfig) -> RoundStep:
    if event.found:
        return _replace(state, phase=RoundPhase.INNER), (RUN_INNER,)
    return _end(state, "no_nodes" if state.last is None else "inner")


def _inner_ended(state: Round, event: InnerEnded, config: RoundsConfig) -> RoundStep:
    state = _replace(state, last=event)
    if event.reason == "aborted":
        return _end(state, "inner")
    return _replace(state, phase=RoundPhase.AGAIN), (ASK_AGAIN,)


def _answered(state: Round, event: Answered, config: RoundsConfig) -> RoundStep:
    return _begin(state, state.index + 1, config) if event.again else _end(state, "inner")


def _outer_aborted(state: Round, event: OuterAborted, config: RoundsConfig) -> RoundStep:
    failed = Emit(TREE_FAILED, {"reason": "aborted"})
    return _end(state, "aborted", failed, Emit(ABORT, {"reason": event.reason}))


def _faulted(state: Round, event: Faulted, config: RoundsConfig) -> RoundStep:
    content = {"phase": event.phase, "error_type": event.error_type, "message": event.message}
    error = Emit(ERROR, {**content, "fatal": True, "iteration": state.index})
    evidence = f"{event.phase}: {event.message}"
    return _end(state, "error", error, Emit(TREE_FAILED, {"reason": "error", "evidence": evidence}))


def _end(state: Round, ending: ResultReason | Literal["inner"], *frames: Emit) -> RoundStep:
    if ending == "inner":
        succeeded = state.last is not None and state.last.status is NodeStatus.SUCCESS
    else:
        succeeded = ending == "no_nodes"
    phase = RoundPhase.DONE if succeeded else RoundPhase.FAILED
    return _replace(state, phase=phase, ending=ending), frames


_RULES: Final[dict[type, Any]] = {
    Began: _began,
    NodeGiven: _node_given,
    InnerEnded: _inner_ended,
    Answered: _answered,
    OuterAborted: _outer_aborted,
    Faulted: _faulted,
}
