"""What a run writes down, and how it is read back.

Every event from outside is a fact of its own kind, every decision a ``step``; both stand in
the ledger before anything that follows is done. A window repeats the beginning of the one
before it, and a batch of tool results repeats what was recorded call by call: both are kept
once and put together again when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from agentloop._canonical import Json
from agentloop.frames import REASONING, TEXT, TOOL_CALL, TOOL_RESULT, Frame
from agentloop.ledger.commits import Commits
from agentloop.ledger.recorder import LEDGER_VERSION, Recorder
from agentloop.messages import ToolCall
from agentloop.orchestrator.config import RunConfig
from agentloop.orchestrator.events import (
    Effect,
    Event,
    ModelFrames,
    ModelSucceeded,
    ToolExecution,
    ToolsCompleted,
    event_name,
)
from agentloop.orchestrator.phases import Phase
from agentloop.orchestrator.state import RunState

__all__ = (
    "DRIVER",
    "FactReader",
    "OrchestratorRecord",
    "closing",
    "effect_kinds",
    "event_of",
    "shown_frames",
)

#: What ``run.opened`` calls this driver.
DRIVER: Final = "orchestrator"

#: The kind of entry an event from outside is kept in.
FACTS: Final[Mapping[str, str]] = {
    "run.started": "fact.input",
    "run.cancelled": "fact.input",
    "context.assembled": "fact.prompt",
    "summary.recorded": "fact.summary",
    "model.frame": "fact.frames",
    "model.succeeded": "fact.turn_ended",
    "model.failed": "fact.turn_ended",
    "tool.started": "fact.tool_started",
    "tools.completed": "fact.tools_completed",
    "backoff.elapsed": "fact.clock",
    "budget.exceeded": "fact.clock",
    "output.finalized": "fact.output",
    "fault": "fact.fault",
}
_FACT_KINDS: Final = frozenset(FACTS.values())


def effect_kinds(effects: Sequence[Effect]) -> list[str]:
    """Return what a step records of its effects."""
    return [str(effect.__struct_config__.tag) for effect in effects]


def event_of(data: Json) -> Event:
    """Return the event of its wire form.

    Raises:
        msgspec.ValidationError: It is none.
    """
    event: Event = msgspec.convert(data, Event)
    return event


def closing(state: RunState) -> dict[str, Json]:
    """Return the data of ``run.closed`` for a state that has ended."""
    assert state.outcome is not None
    status = {"completed": "SUCCESS"}.get(state.outcome.status, "FAILURE")
    return {
        "finalPhase": state.phase.value,
        "finishedAt": state.now,
        "outcome": state.outcome.to_wire(),
        "usage": msgspec.to_builtins(state.usage),
        # As the runs of other drivers say it, for who lists runs.
        "status": status,
        "reason": state.outcome.error.code if state.outcome.error else "answered",
    }


class OrchestratorRecord:
    """Writes one run into a recorder.

    Args:
        sync: Commits survive a loss of power.
        opened_at: The recorder's entries so far, for a run that goes on: its reader.
    """

    def __init__(self, recorder: Recorder, *, sync: bool, reader: FactReader | None = None) -> None:
        self.recorder = recorder
        self.commits = Commits(recorder, sync=sync)
        self._shown: Sequence[Json] = () if reader is None else reader.shown
        self._known = dict[str, ToolExecution]() if reader is None else dict(reader.executions)

    def opened(
        self,
        state: RunState,
        config: RunConfig,
        *,
        seed: str,
        tools: Sequence[str],
        labels: Mapping[str, Json],
        redacted: bool,
    ) -> None:
        """Record the beginning; ``redacted`` says that a redactor looked at what entered."""
        data = {
            "version": LEDGER_VERSION,
            "driver": DRIVER,
            "run": state.run_id,
            "goal": state.goal,
            "seed": seed,
            "config": msgspec.to_builtins(config),
            "startedAt": state.started_at,
            "tools": [*tools],
            "node": None,
            "labels": dict(labels),
            **({"redacted": True} if redacted else {}),
        }
        self.recorder.record("run.opened", data)

    def fact(self, event: Event, **beside: Json) -> None:
        """Record an event from outside."""
        data = msgspec.to_builtins(event)
        name = data["type"]
        if name == "context.assembled":
            self._shorten(data["context"])
        elif name == "tools.completed":
            data["results"] = [self._reference(result) for result in data["results"]]
        self.recorder.record(FACTS[name], {**data, **beside})

    def _shorten(self, context: dict[str, Json]) -> None:
        messages, before = context["messages"], self._shown
        kept = 0
        for new, old in zip(messages, before, strict=False):
            if new != old:
                break
            kept += 1
        self._shown = messages
        if kept:
            context["messages"], context["kept"] = messages[kept:], kept

    def _reference(self, result: dict[str, Json]) -> Json:
        step = result.get("stepId")
        known = self._known.get(step) if isinstance(step, str) else None
        return step if known is not None else result

    def result(self, execution: ToolExecution) -> None:
        """Record how one call came out, before its batch is complete."""
        self._known[execution.step_id] = execution
        data = {"step": execution.step_id, "result": msgspec.to_builtins(execution)}
        self.recorder.record("fact.tool_result", data)

    def step(self, number: int, before: Phase, event: Event, after: Phase, effects: Sequence[Effect]) -> None:
        """Record a decision."""
        data = {
            "n": number,
            "from": before.value,
            "to": after.value,
            "event": event_name(event),
            "effects": effect_kinds(effects),
        }
        self.recorder.record("step", data)

    def closed(self, state: RunState) -> None:
        """Record the end; nothing may follow."""
        self.recorder.record("run.closed", closing(state))


class FactReader:
    """Puts facts together again, in the order in which they were recorded.

    Attributes:
        shown: The messages of the newest window.
        executions: How the calls came out that are on record, by step id.
        started: Calls that may change something and were begun, by step id.
    """

    def __init__(self) -> None:
        self.shown: list[Json] = []
        self.executions: dict[str, ToolExecution] = {}
        self.started: dict[str, ToolCall] = {}

    def read(self, kind: str, data: Mapping[str, Any]) -> Event | None:
        """Return the event an entry stands for; None if it stands for none.

        Raises:
            msgspec.ValidationError, KeyError, TypeError: It has another form.
        """
        if kind == "fact.tool_result":
            execution = msgspec.convert(data["result"], ToolExecution)
            self.executions[data["step"]] = execution
            return None
        if kind not in _FACT_KINDS or "type" not in data:
            return None
        name = data["type"]
        if name == "context.assembled":
            data = {**data, "context": self._whole(data["context"])}
        elif name == "tools.completed":
            data = {**data, "results": [self._execution(each) for each in data["results"]]}
        elif name == "tool.started":
            self.started[data["stepId"]] = msgspec.convert(data["call"], ToolCall)
        return event_of(data)

    def _whole(self, context: Mapping[str, Any]) -> dict[str, Any]:
        kept = context.get("kept", 0)
        self.shown = [*self.shown[:kept], *context["messages"]]
        return {**context, "messages": self.shown}

    def _execution(self, each: Json) -> Json:
        return msgspec.to_builtins(self.executions[each]) if isinstance(each, str) else each


def shown_frames(event: Event, *, streamed: bool) -> Iterator[Frame]:
    """Yield the frames an event is shown as: what the model said, and what tools gave.

    Args:
        event: Of the run.
        streamed: Whether the reply was shown while it came.
    """
    match event:
        case ModelFrames():
            for frame in event.frames:
                yield from _shown(frame)
        case ModelSucceeded() if not streamed:
            if event.message.content:
                yield Frame(TEXT, {"text": event.message.content})
            for call in event.message.tool_calls:
                yield Frame(TOOL_CALL, {"id": call.id, "name": call.name, "arguments": call.arguments or {}})
        case ToolsCompleted():
            for result in event.results:
                content = {"id": result.call.id, "name": result.call.name, "ok": result.ok}
                yield Frame(TOOL_RESULT, {**content, "output": result.content})


def _shown(frame: Mapping[str, Any]) -> Iterator[Frame]:
    match frame["kind"]:
        case "text":
            yield Frame(TEXT, {"text": frame["delta"]})
        case "reasoning":
            yield Frame(REASONING, {"text": frame["delta"]})
        case "tool":
            named = {"id": frame.get("id", ""), "name": frame.get("name", "")}
            yield Frame(TOOL_CALL, {**named, "raw_arguments": frame["argsDelta"]})
