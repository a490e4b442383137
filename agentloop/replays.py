"""Replaying loops: one agent-evaluator run, and a looping run with those inside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from agentloop._canonical import Json
from agentloop.errors import IllegalTransition
from agentloop.frames import (
    CHILD_RUN,
    ERROR,
    SYMBOLIC_ASSERTED,
    TEXT,
    TICK,
    TOOL_RESULT,
    Frame,
    Role,
)
from agentloop.ledger.reader import Entry
from agentloop.loop.cycle import (
    Aborted,
    AgentEnded,
    ChecksReported,
    CycleConfig,
    CycleState,
    Effect,
    Emit,
    Event,
    Faulted,
    Judged,
    OutcomeRecorded,
    StopAsked,
    Ticked,
    decide,
    event_name,
)
from agentloop.loop.looping import OUTER_DRIVER
from agentloop.loop.record import DRIVER, OutDigest, effect_names
from agentloop.loop.rounds import (
    Answered,
    Began,
    InnerEnded,
    NodeGiven,
    OuterAborted,
    Round,
    RoundEvent,
    RoundOrder,
    RoundsConfig,
    next_round,
)
from agentloop.loop.turns import TurnFold, is_forwarded
from agentloop.messages import NodeStatus
from agentloop.ports import LedgerStore
from agentloop.reproduction import Diverged, Divergence, Progress, ReplayReport, replay, replay_child
from agentloop.verdict import create_default_evaluator_parser

__all__ = (
    "Diverged",
    "Divergence",
    "LOOPS",
    "LoopReplay",
    "OuterReplay",
    "Progress",
    "ReplayReport",
    "replay",
)


def _same(entry: Entry, what: str, replayed: Json) -> None:
    recorded = entry.data.get(what)
    if recorded != replayed:
        raise Diverged(entry, what, recorded, replayed)


def _all_same(entry: Entry, replayed: dict[str, Json]) -> None:
    recorded = entry.data
    for what, value in replayed.items():
        if recorded.get(what) != value:
            raise Diverged(entry, what, recorded.get(what), value)


class LoopReplay:
    """Feeds the facts of an agent-evaluator run to `cycle.decide`."""

    def __init__(self, opened: Mapping[str, Any], progress: Progress, store: LedgerStore) -> None:
        self._progress, self._store = progress, store
        self._config = msgspec.convert(opened["config"], CycleConfig)
        forward = opened["forward_frames"]
        self._forward = None if forward == "*" else frozenset(forward)
        self._state = CycleState()
        self._out = OutDigest()
        self._event: Event | None = None
        self._ordered: Sequence[Effect] = ()
        self._stop: StopAsked | None = None
        self._fold: TurnFold | None = None
        self._usage: dict[str, int] = {}
        self._parse = create_default_evaluator_parser() if progress.recompute else None
        self._handlers: dict[str, Callable[[Entry], None]] = {
            kind: getattr(self, name) for kind, name in _LOOP_ENTRIES.items()
        }

    def take(self, entry: Entry) -> None:
        handler = self._handlers.get(entry.kind)
        if handler is not None:  # a kind that a later version added does not change what this one decided
            handler(entry)

    def _stage(self, frame_type: str, content: Mapping[str, Any]) -> None:
        self._out.add(frame_type, content)
        self._progress.frames = self._out.count
        if self._progress.on_frame is not None:
            self._progress.on_frame(Frame(frame_type, dict(content), seq=self._out.count))

    def _input(self, entry: Entry) -> None:
        kind, data = entry.data["type"], entry.data
        if kind == TICK:
            self._event = Ticked()
        elif kind == "ABORT":
            self._event = Aborted(data["reason"])
        elif kind == "CANCEL":
            self._stop = StopAsked(data["reason"])

    def _prompt(self, entry: Entry) -> None:
        role: Role = "evaluator" if entry.data["role"] == "evaluator" else "agent"
        self._fold = TurnFold(role)
        self._take_frames(entry, self._fold, entry.data.get("about", ()))

    def _frames(self, entry: Entry) -> None:
        fold = self._fold
        if fold is None:
            raise Diverged(entry, "turn", entry.data.get("turn"), None)
        self._take_frames(entry, fold, entry.data.get("frames", ()))

    def _take_frames(
        self, entry: Entry, fold: TurnFold, frames: Sequence[tuple[str, dict[str, Any]]]
    ) -> None:
        for frame_type, content in frames:
            fold.feed(Frame(frame_type, content))
            if frame_type == CHILD_RUN:
                self._child_run(entry, content)
            if is_forwarded(frame_type, self._forward):
                self._stage(frame_type, {**content, "role": fold.role} if frame_type == TEXT else content)

    def _child_run(self, entry: Entry, content: Mapping[str, Any]) -> None:
        """Replay the run that was the agent of this turn, which must be the same to its last entry."""
        replay_child(self._store, self._progress, entry, content)

    def _turn_ended(self, entry: Entry) -> None:
        self._frames(entry)
        fold, self._fold = self._fold, None
        assert fold is not None
        if "error" in entry.data:
            return
        for name, count in fold.usage.items():
            self._usage[name] = self._usage.get(name, 0) + count
        if fold.role == "agent":
            self._event = AgentEnded(fold.text)
        self._ended = fold

    def _tool_result(self, entry: Entry) -> None:
        if self._forward is None or TOOL_RESULT in self._forward:
            self._stage(TOOL_RESULT, entry.data["result"])

    def _checks(self, entry: Entry) -> None:
        report = entry.data["report"]
        self._event = ChecksReported(report["all_passed"], report["evidence"])

    def _verdict(self, entry: Entry) -> None:
        result = entry.data["result"]
        self._event = Judged(NodeStatus(result["status"]), result["evidence"], result.get("parse_error"))
        if self._parse is not None:
            again = self._parse(self._ended.frames)
            for what, value in (("status", again.status.value), ("evidence", again.evidence)):
                if result[what] != value:
                    self._progress.differences.append(
                        Divergence(seq=entry.seq, what=what, recorded=result[what], replayed=value)
                    )

    def _symbolic(self, entry: Entry) -> None:
        names = ("name", "value", "op")
        self._stage(SYMBOLIC_ASSERTED, {name: entry.data[name] for name in names})

    def _callback_failed(self, entry: Entry) -> None:
        error = entry.data["error"]
        if error["fatal"]:
            self._event = Faulted(error["phase"], error["error_type"], error["message"])
        else:
            self._stage(ERROR, error)

    def _outcome_written(self, entry: Entry) -> None:
        fatal = entry.data.get("fatal", False)
        self._event = OutcomeRecorded(entry.data["failure"] if fatal else None)

    def _forked(self, entry: Entry) -> None:
        self._config = msgspec.convert(entry.data["config"], CycleConfig)
        forward = entry.data["forward_frames"]
        self._forward = None if forward == "*" else frozenset(forward)

    def _step(self, entry: Entry) -> None:
        self._progress.steps += 1
        event: Event | None
        if entry.data["event"] == "stop_asked":
            event, self._stop = self._stop, None
        else:
            event, self._event = self._event, None
        before: dict[str, Json] = {
            "n": self._progress.steps,
            "event": None if event is None else event_name(event),
            "out": [*self._out.mark()],
            "from": self._state.phase.value,
        }
        _all_same(entry, before)
        assert event is not None
        try:
            self._state, effects = decide(self._state, event, self._config)
        except IllegalTransition as error:
            raise Diverged(entry, "to", entry.data.get("to"), str(error)) from None
        _all_same(entry, {"to": self._state.phase.value, "effects": effect_names(effects)})
        self._ordered = effects
        for effect in effects:
            if type(effect) is Emit:
                self._stage(effect.type, effect.content)

    def _closed(self, entry: Entry) -> None:
        state, closing = self._state, self._state.closing
        _same(entry, "status", None if closing is None else closing.status.value)
        assert closing is not None
        _same(entry, "reason", closing.reason)
        _same(entry, "evidence", closing.evidence)
        _same(entry, "iterations", state.iteration)
        _same(entry, "retry_count", state.retry_count)
        _same(entry, "usage", self._usage)
        _same(entry, "out", [*self._out.mark()])
        self._progress.result = entry.data


_LOOP_ENTRIES: Final[Mapping[str, str]] = {
    "fact.input": "_input",
    "fact.prompt": "_prompt",
    "fact.frames": "_frames",
    "fact.turn_ended": "_turn_ended",
    "fact.tool_result": "_tool_result",
    "fact.checks": "_checks",
    "fact.verdict": "_verdict",
    "fact.symbolic": "_symbolic",
    "fact.callback_failed": "_callback_failed",
    "fact.outcome_written": "_outcome_written",
    "fact.forked": "_forked",
    "step": "_step",
    "run.closed": "_closed",
}


class OuterReplay:
    """Feeds the facts of a looping run to `rounds.next_round`, and replays its inner runs."""

    def __init__(self, opened: Mapping[str, Any], progress: Progress, store: LedgerStore) -> None:
        self._progress, self._store = progress, store
        self._config = msgspec.convert(opened["config"], RoundsConfig)
        self._state = Round()
        self._event: RoundEvent | None = None
        self._ordered: Sequence[Emit | RoundOrder] = ()

    def take(self, entry: Entry) -> None:
        """Take the next entry."""
        data = entry.data
        match entry.kind:
            case "fact.input":
                self._event = Began() if data["type"] == TICK else OuterAborted(data["reason"])
            case "fact.node":
                self._event = NodeGiven(data["node"] is not None)
            case "fact.child":
                self._event = InnerEnded(NodeStatus(data["status"]), data["reason"])
                self._child(data)
            case "fact.again":
                self._event = Answered(data["again"])
            case "fact.callback_failed":
                error = data["error"]
                self._event = Faulted(error["phase"], error["error_type"], error["message"])
            case "step":
                self._step(entry)
            case "run.closed":
                _same(entry, "iterations", len(self._progress.children))
                self._progress.result = data

    def _child(self, data: Mapping[str, Any]) -> None:
        progress = self._progress
        show = progress.on_frame

        def on_frame(frame: Frame) -> None:
            if show is not None:
                meta = {**frame.meta, "outer_iteration": data["index"]}
                show(msgspec.structs.replace(frame, meta=meta))

        report = replay(self._store, data["run"], recompute=progress.recompute, on_frame=on_frame)
        progress.frames += report.frames
        progress.children.append(report)

    def _step(self, entry: Entry) -> None:
        self._progress.steps += 1
        _same(entry, "n", self._progress.steps)
        event, self._event = self._event, None
        _same(entry, "event", None if event is None else event.__struct_config__.tag)
        assert event is not None
        _same(entry, "from", self._state.phase.value)
        try:
            self._state, effects = next_round(self._state, event, self._config)
        except IllegalTransition as error:
            raise Diverged(entry, "to", entry.data.get("to"), str(error)) from None
        _same(entry, "to", self._state.phase.value)
        _same(entry, "effects", effect_names(effects))
        self._ordered = effects
        for effect in effects:
            if isinstance(effect, Emit):
                self._progress.frames += 1
                if self._progress.on_frame is not None:
                    self._progress.on_frame(Frame(effect.type, effect.content))


#: What replays the runs of a driver.
LOOPS: Final[Mapping[str, type[LoopReplay] | type[OuterReplay]]] = {
    DRIVER: LoopReplay,
    OUTER_DRIVER: OuterReplay,
}
