"""Folding a recorded run: its facts go through the reducer, and its decisions must come out.

Replays, resumed runs and the run's file all read a ledger this way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from agentloop._canonical import Json
from agentloop.errors import InvariantViolation
from agentloop.ledger.reader import Entry
from agentloop.orchestrator.config import RunConfig, read_config
from agentloop.orchestrator.events import (
    BackoffElapsed,
    ContextAssembled,
    Effect,
    Event,
    ModelFailed,
    ModelSucceeded,
    ToolsCompleted,
    event_name,
)
from agentloop.orchestrator.recording import FactReader, closing, effect_kinds
from agentloop.orchestrator.reducer import reduce
from agentloop.orchestrator.state import RunState

__all__ = ("Mismatch", "RunFold")


class Mismatch(Exception):
    """The fold is somewhere else than the record."""

    def __init__(self, what: str, recorded: Json, replayed: Json) -> None:
        super().__init__(what)
        self.what, self.recorded, self.replayed = what, recorded, replayed


class RunFold:
    """A run up to the newest entry taken.

    Attributes:
        state: What the reducer knows.
        steps: Decisions so far.
        fact: An event that was recorded and not decided upon yet.
        emitted: Events that follow at once and were not decided upon yet.
        effects: What the newest decisions ordered and no event has answered yet.
        waits: Numbers drawn by chance so far.
        calls: Model calls that were answered or failed.
        tool_steps: Step ids given to tool calls of batches that are complete.
    """

    def __init__(self, opened: Mapping[str, Any]) -> None:
        self.opened = opened
        self.run_id, self.seed = str(opened["run"]), str(opened["seed"])
        self.config: RunConfig = read_config(opened["config"])
        self.state = RunState.initial(self.run_id, str(opened["goal"]), opened["startedAt"])
        self.reader = FactReader()
        self.steps = self.waits = self.calls = self.tool_steps = 0
        self.fact: Event | None = None
        self.emitted: deque[Event] = deque()
        self.effects: tuple[Effect, ...] = ()
        self.closed: Mapping[str, Any] | None = None

    def take(self, entry: Entry) -> Event | None:
        """Take the next entry; return the event if it is a decision.

        Raises:
            Mismatch: It is not what follows.
            KeyError, TypeError, ValueError, msgspec.ValidationError: It has another form.
        """
        kind, data = entry.kind, entry.data
        if kind == "step":
            return self._step(data)
        if kind == "run.closed":
            self._close(data)
        elif kind == "fact.forked":
            self.config = read_config(data["config"])
        else:
            event = self.reader.read(kind, data)
            if event is not None:
                self.fact = event
                self._count(event)
            elif kind == "fact.tool_result":
                self.waits += len(self.reader.executions[data["step"]].attempts_log)
        return None

    def _step(self, data: Mapping[str, Any]) -> Event:
        event = self._next_event()
        name = None if event is None else event_name(event)
        if name != data["event"]:
            raise Mismatch("event", data["event"], name)
        assert event is not None
        self.steps += 1
        if data["n"] != self.steps:
            raise Mismatch("n", data["n"], self.steps)
        state = self.state
        if data["from"] != state.phase.value:
            raise Mismatch("from", data["from"], state.phase.value)
        try:
            after, effects, emit = reduce(state, event, self.config)
        except InvariantViolation as error:
            raise Mismatch("to", data["to"], str(error)) from None
        if data["to"] != after.phase.value:
            raise Mismatch("to", data["to"], after.phase.value)
        kinds = effect_kinds(effects)
        if data["effects"] != kinds:
            raise Mismatch("effects", data["effects"], kinds)
        self.state = after
        self.emitted.extend(emit)
        if (
            after.phase is not state.phase or effects
        ):  # an event that leaves things as they are answers nothing
            self.effects = effects
        return event

    def _next_event(self) -> Event | None:
        # The driver puts an event from outside down when it is its turn, so that one comes first.
        if self.fact is not None:
            event, self.fact = self.fact, None
            return event
        return self.emitted.popleft() if self.emitted else None

    def _count(self, event: Event) -> None:
        if isinstance(event, BackoffElapsed):
            self.waits += 1
        elif isinstance(event, (ModelSucceeded, ModelFailed)):
            self.calls += 1
        elif isinstance(event, ContextAssembled):
            self.waits += (event.context.report or {}).get("assemblyAttempts", 1) - 1
        elif isinstance(event, ToolsCompleted):
            self.tool_steps += len(event.results) + len(event.skipped)

    def _close(self, data: Mapping[str, Any]) -> None:
        if self.state.outcome is None:
            raise Mismatch("finalPhase", data["finalPhase"], self.state.phase.value)
        replayed = closing(self.state)
        for name, value in replayed.items():
            if data.get(name) != value:
                raise Mismatch(name, data.get(name), value)
        self.closed = data
