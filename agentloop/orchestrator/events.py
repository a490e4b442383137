"""Events and effects of a run, as data: what has happened, and what is to be done.

Every event carries the time at which it happened, which is the reducer's only clock. The names
of fields on the wire are in camel case; the ``type`` is the event's name in the table.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from agentloop.errors import ErrorValue
from agentloop.messages import Message, ToolCall
from agentloop.ports import Context, TokenUsage

__all__ = (
    "Answer",
    "Assemble",
    "Attempt",
    "BackoffElapsed",
    "BudgetExceeded",
    "CallModel",
    "ChildRun",
    "ContextAssembled",
    "Effect",
    "Event",
    "ExecuteTools",
    "Fault",
    "Finalize",
    "ModelFailed",
    "ModelFrames",
    "ModelSucceeded",
    "ObservationsRecorded",
    "OutputFinalized",
    "Repair",
    "RunCancelled",
    "RunStarted",
    "SummaryRecorded",
    "ToolExecution",
    "ToolRequest",
    "ToolStarted",
    "ToolsCompleted",
    "Wait",
    "event_name",
)


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="type"):
    #: Milliseconds by the run's clock.
    at: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A failed attempt at a tool call that was tried again."""

    at: int
    code: str
    waited_ms: int


class ChildRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A run that was made inside a tool call: where it is recorded, and what it spent."""

    #: Its id, in the same store.
    run: str
    #: Number and hexadecimal hash of its last entry.
    entries: int
    hash: str
    usage: TokenUsage = TokenUsage()
    tool_calls: int = msgspec.field(default_factory=int)


class ToolExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How one tool call came out."""

    call: ToolCall
    ok: bool
    #: The value as text, or the error's message.
    content: str
    error: ErrorValue | None = None
    duration_ms: int = msgspec.field(default_factory=int)
    attempts: int = msgspec.field(default_factory=lambda: 1)
    #: The attempts before the last one.
    attempts_log: tuple[Attempt, ...] = ()
    #: Ours; attempts at the same call share it.
    step_id: str = ""
    #: Runs that were made for the call; what they spent is spent of this run's budget.
    children: tuple[ChildRun, ...] = ()


class RunStarted(_Event, frozen=True, tag="run.started"):
    goal: str


class ContextAssembled(_Event, frozen=True, tag="context.assembled"):
    context: Context


class SummaryRecorded(_Event, frozen=True, tag="summary.recorded"):
    text: str
    usage: TokenUsage


class ModelFrames(_Event, frozen=True, tag="model.frame"):
    """A batch of what the model says while it says it."""

    attempt: int
    #: ``{n, kind, …}``; n counts from 1 within an attempt.
    frames: tuple[dict[str, Any], ...]


class ModelSucceeded(_Event, frozen=True, tag="model.succeeded"):
    message: Message
    usage: TokenUsage
    stop_reason: str


class ModelFailed(_Event, frozen=True, tag="model.failed"):
    error: ErrorValue
    #: What the failed attempt cost, if the provider said so.
    usage: TokenUsage | None = None


class ToolRequest(_Event, frozen=True, tag="route.tools"):
    calls: tuple[ToolCall, ...]


class Answer(_Event, frozen=True, tag="route.answer"):
    content: str
    #: The answer was cut off at the token limit.
    truncated: bool = False


class Repair(_Event, frozen=True, tag="route.repair"):
    error: ErrorValue


class ToolStarted(_Event, frozen=True, tag="tool.started"):
    """A call that may change something is about to be made."""

    call: ToolCall
    step_id: str


class ToolsCompleted(_Event, frozen=True, tag="tools.completed"):
    results: tuple[ToolExecution, ...]
    #: Ids of calls that were not made, because one before them ended the run.
    skipped: tuple[str, ...] = ()


class ObservationsRecorded(_Event, frozen=True, tag="observations.recorded"):
    count: int


class BackoffElapsed(_Event, frozen=True, tag="backoff.elapsed"):
    waited_ms: int


class OutputFinalized(_Event, frozen=True, tag="output.finalized"):
    output: str


class BudgetExceeded(_Event, frozen=True, tag="budget.exceeded"):
    error: ErrorValue


class Fault(_Event, frozen=True, tag="fault"):
    error: ErrorValue


class RunCancelled(_Event, frozen=True, tag="run.cancelled"):
    reason: str | None = None


Event: TypeAlias = (
    RunStarted
    | ContextAssembled
    | SummaryRecorded
    | ModelFrames
    | ModelSucceeded
    | ModelFailed
    | ToolRequest
    | Answer
    | Repair
    | ToolStarted
    | ToolsCompleted
    | ObservationsRecorded
    | BackoffElapsed
    | OutputFinalized
    | BudgetExceeded
    | Fault
    | RunCancelled
)


def event_name(event: Event) -> str:
    """Return the event's name in the table."""
    return str(event.__struct_config__.tag)


# ---------------------------------------------------------------------------------- effects


class Assemble(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="assemble"):
    """Build the next window."""

    #: False when the run's tool calls are used up.
    offer_tools: bool = True
    #: What the usable budget is multiplied by.
    shrink: float = 1.0


class CallModel(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="call-model"):
    """Ask the model."""

    context: Context
    attempt: int
    max_output_tokens: int | None = None


class ExecuteTools(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="execute-tools"):
    """Make the calls."""

    calls: tuple[ToolCall, ...]


class Wait(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="wait"):
    """Wait before the model is asked again; chance is added by whoever waits."""

    ms: int


class Finalize(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="finalize"):
    """Turn the draft into the output."""

    draft: str


Effect: TypeAlias = Assemble | CallModel | ExecuteTools | Wait | Finalize

EffectKind: TypeAlias = Literal["assemble", "call-model", "execute-tools", "wait", "finalize"]
