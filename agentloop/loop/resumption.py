"""Where a recorded run stands: what a driver needs to go on with it.

Read from a ledger by `agentloop.resumes`; nothing here reads or writes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from agentloop._canonical import Json, encode_text
from agentloop.errors import ResumeError
from agentloop.frames import TEXT, Frame, Role
from agentloop.loop.cycle import CycleConfig, CycleState, Event, Order
from agentloop.loop.record import OutDigest
from agentloop.loop.rounds import Round, RoundEvent, RoundOrder
from agentloop.messages import CheckReport, LoopResult, SymbolicUpdate, ToolCall
from agentloop.ports import Head
from agentloop.symbolic import SymbolicState

__all__ = (
    "LIMITS",
    "OpenTurn",
    "OuterResumption",
    "RecordedCall",
    "Resumption",
    "continued",
    "set_facts",
    "skip_turns",
)


#: Limits and switches that stand in the record.
LIMITS: Final = ("max_iterations", "max_retries", "evaluator_parse_retries", "extra_frames")


class RecordedCall(msgspec.Struct, kw_only=True):
    """A tool call of a turn that was not finished."""

    step: str
    call: ToolCall
    read_only: bool = True
    #: The content of its TOOL_RESULT; None if it was begun and nobody knows what came of it.
    result: dict[str, Json] | None = None


class OpenTurn(msgspec.Struct, kw_only=True):
    """A turn that was begun and not finished: it is asked for again."""

    role: Role
    #: None if only the prompt's digest was recorded.
    prompt: list[Frame] | None = None
    calls: list[RecordedCall] = []

    def take(self, call: ToolCall) -> RecordedCall | None:
        """Return the recorded call that is asked for again, once, else None."""
        wanted = _asked(call)
        for position, known in enumerate(self.calls):
            if _asked(known.call) == wanted:
                return self.calls.pop(position)
        return None


def _asked(call: ToolCall) -> tuple[str, Json]:
    return call.name, call.arguments if call.arguments is not None else call.raw_arguments


class Resumption(msgspec.Struct, kw_only=True):
    """A run up to its newest entry."""

    run: str
    head: Head
    config: CycleConfig
    node: Json
    labels: dict[str, Json]
    #: Types of adapters' frames that are forwarded; ``"*"`` for all.
    forward: Json
    state: CycleState
    out: OutDigest
    #: Decisions so far.
    steps: int
    #: Turns begun so far.
    turns: int = 0
    #: Turns of each role that were finished.
    finished: dict[Role, int] = {}
    #: What was found out and not decided upon yet.
    event: Event | None = None
    #: What was ordered and not done yet.
    order: Order | None = None
    #: The evaluator's frames, if it has spoken and its verdict is not on record.
    judging: tuple[Frame, ...] | None = None
    #: Changes a recorded verdict asks for.
    updates: tuple[SymbolicUpdate, ...] = ()
    open_turn: OpenTurn | None = None
    #: A stop that was asked for and not decided upon yet.
    stop_reason: str | None = None
    history: list[dict[str, Any]] = []
    trace: list[dict[str, Any]] = []
    #: Value and writer of each fact.
    facts: dict[str, tuple[Json, str]] = {}
    usage: dict[str, int] = {}
    retrieval_ids: list[str] = []
    inbox: list[str] = []
    last_checks: CheckReport | None = None
    #: Frames that may not have reached everybody.
    unpublished: list[Frame] = []
    #: The run has its last entry: there is nothing to go on with.
    closed: bool = False

    def recorded_options(self) -> dict[str, Any]:
        """Return the options that the record decides."""
        limits = {name: getattr(self.config, name) for name in LIMITS}
        return {
            **limits, "node": self.node, "labels": self.labels, "forward_frames": self.forward, "run_id": self.run,
        }  # fmt: skip

    def check(self, config: CycleConfig) -> None:
        """Refuse options under which the rules would decide otherwise.

        Raises:
            ResumeError: Names the option.
        """
        for name, option in (("has_checks", "checks_list"), ("has_memory", "graph")):
            had = getattr(self.config, name)
            if had is not getattr(config, name):
                raise ResumeError(
                    self.run, f"it was begun with{'' if had else 'out'} {option}, and has to go on so"
                )


class OuterResumption(msgspec.Struct, kw_only=True):
    """A looping run up to its newest entry."""

    run: str
    head: Head
    state: Round
    #: Decisions so far.
    steps: int
    event: RoundEvent | None = None
    order: RoundOrder | None = None
    #: The newest node the provider gave.
    node: Json = None
    #: How often the provider was asked.
    nodes: int = 0
    #: How the inner runs ended that are known to have ended.
    results: list[LoopResult] = []
    #: Their turns of each role that were finished.
    finished: dict[Role, int] = {}
    #: The facts the newest of them left.
    facts: dict[str, tuple[Json, str]] = {}
    #: Frames that may not have reached everybody.
    unpublished: list[Frame] = []
    closed: bool = False
    #: Where the inner run of that id stands; None if nothing of it is on record.
    inner: Callable[[str], Resumption | None] = lambda run: None


def continued(prompt: Sequence[Frame], calls: Sequence[RecordedCall]) -> list[Frame]:
    """Return the prompt of a turn that is asked for again, with what it had called already."""
    if not calls:
        return [*prompt]
    note = Frame(TEXT, {"text": "\n\n".join(("", _note(calls)))})
    # In the last text, so that whoever takes one frame for one prompt is asked once.
    for position in range(len(prompt) - 1, -1, -1):
        if prompt[position].type == TEXT:
            content = {**prompt[position].content, "text": prompt[position].text + note.text}
            return [*prompt[:position], Frame(TEXT, content), *prompt[position + 1 :]]
    return [*prompt, note]


def set_facts(state: SymbolicState, facts: Mapping[str, tuple[Json, str]]) -> None:
    """Make the state hold these facts and no others, each by its writer."""
    for name in [name for name in state if name not in facts]:
        state.retract_value(name)
    for name, (value, by) in facts.items():
        state.assert_value(name, value, by=cast(Any, by))


def skip_turns(adapter: object, turns: int) -> None:
    """Tell an adapter that has a script how many of its turns were finished before."""
    skip = getattr(adapter, "skip", None)
    if skip is not None and turns:
        skip(turns)


def _note(calls: Sequence[RecordedCall]) -> str:
    lines = ["[This turn was interrupted and is asked for again. These calls were made in it:"]
    return "\n".join([*lines, *map(_line, calls)]) + "]"


def _line(known: RecordedCall) -> str:
    result: Mapping[str, Json] = known.result or {}
    if known.result is None:
        state = "was cut off; it changes nothing, call it again if needed"
    elif result.get("error") == "unknown_outcome":
        state = "outcome unknown: find out what it did before calling it again"
    else:
        state = (
            "done; called again with these arguments it gives the same answer"
            if result.get("ok")
            else (f"failed ({result.get('error') or 'not ok'})")
        )
    asked = known.call.arguments if known.call.arguments is not None else known.call.raw_arguments
    return f"- {known.call.name}({encode_text(asked)[:500]}): {state}"
