"""What a run knows of itself: its state, what it spent, how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

import msgspec

from agentloop._canonical import Json
from agentloop.errors import ErrorValue
from agentloop.messages import Message, ToolCall
from agentloop.orchestrator.phases import Phase
from agentloop.orchestrator.streaming import Partial
from agentloop.ports import Context, Estimates

__all__ = ("Outcome", "RunState", "Transcript", "Usage")


class Transcript(Sequence[Message]):
    """The messages of a run so far: a shared list that only grows, and how much of it counts.

    `plus` takes constant time, and no state ever sees what a later one added. Two states that
    went on from the same one in different ways part company: the second copies.
    """

    __slots__ = ("_length", "_shared")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._shared, self._length = list(messages), len(messages)

    def plus(self, messages: Sequence[Message]) -> Transcript:
        """Return this and more."""
        shared, length = self._shared, self._length
        if len(shared) == length:
            shared.extend(messages)
        elif shared[length : length + len(messages)] != [*messages]:
            shared = [*shared[:length], *messages]
        longer = Transcript.__new__(Transcript)
        longer._shared, longer._length = shared, length + len(messages)
        return longer

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._shared[place] for place in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._shared[index if index >= 0 else index + self._length]

    def __iter__(self) -> Iterator[Message]:
        shared = self._shared
        return (shared[place] for place in range(self._length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transcript) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash(self._length)

    def __repr__(self) -> str:
        return f"Transcript({[*self]!r})"


class Usage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a run has spent."""

    #: Completed model calls.
    model_calls: int = 0
    #: Model calls, failed ones included.
    model_invocations: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    #: Turns in which something had to be put right.
    corrective_turns: int = 0
    retries: int = 0
    #: Tokens the provider reported beyond the budget.
    budget_overrun: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run ended."""

    status: Literal["completed", "failed", "halted"]
    output: str | None = None
    error: ErrorValue | None = None
    #: What there was of an answer when the run ended without one.
    partial: str | None = None
    #: The output was cut off at the token limit.
    truncated: bool = False

    def to_wire(self) -> dict[str, Json]:
        """Return plain JSON data; absent parts are left out."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the reducer knows. `reduce` never changes one, it returns another."""

    run_id: str
    goal: str
    started_at: int
    #: The time of the newest event.
    now: int
    phase: Phase = Phase.INIT
    #: Completed model calls.
    step: int = 0
    #: Number 0 is the goal as a user message.
    transcript: Transcript = msgspec.field(default_factory=Transcript)
    #: Calls that are being executed.
    pending_calls: tuple[ToolCall, ...] = ()
    #: The newest window; attempts at the same call share it.
    context: Context | None = None
    #: The answer before it is finalized.
    draft: str | None = None
    usage: Usage = Usage()
    #: Number of the attempt at the model call in flight.
    attempt: int = 1
    #: Turns in a row that gave nothing but errors.
    consecutive_failures: int = 0
    outcome: Outcome | None = None
    #: What the model has said so far in the call in flight.
    partial: Partial | None = None
    #: How often a model found the window too long.
    shrinks: int = 0
    #: A reply was cut off at its token limit before.
    truncated: bool = False
    #: Texts of the summaries made.
    summaries: tuple[str, ...] = ()
    #: How good the counts of the windows were.
    estimates: Estimates = Estimates()

    @classmethod
    def initial(cls, run_id: str, goal: str, started_at: int) -> RunState:
        """Return the state before anything happened."""
        return cls(run_id=run_id, goal=goal, started_at=started_at, now=started_at)
