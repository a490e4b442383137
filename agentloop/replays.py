"""Replaying a run: the recorded facts go through the same pure rules and must give the same.

No adapter, tool, clock or disk beside the ledger is touched. Every decision, the frames it
published, the text that streamed between, and the result are compared with what was recorded;
the first difference is reported with both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from agentloop._canonical import Json
from agentloop.errors import IllegalTransition, LedgerError
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
from agentloop.ledger.reader import Entry, RunLedger
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
from agentloop.orchestrator.folding import Mismatch, RunFold
from agentloop.orchestrator.recording import DRIVER as ORCHESTRATOR
from agentloop.orchestrator.recording import shown_frames
from agentloop.ports import LedgerStore
from agentloop.verdict import create_default_evaluator_parser

__all__ = (
    "Diverged",
    "Divergence",
    "LoopReplay",
    "OrchestratorReplay",
    "OuterReplay",
    "Progress",
    "ReplayReport",
    "replay",
)

FrameHook = Callable[[Frame], object]


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where a replay differs from the record."""

    #: Number of the entry; 0 if the ledger could not be read at all.
    seq: int
    #: What differs: ``effects``, ``out``, ``status``, ….
    what: str
    recorded: Json
    replayed: Json

    def __str__(self) -> str:
        return f"entry {self.seq}: {self.what}: recorded {self.recorded!r}, replayed {self.replayed!r}"


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found."""

    run: str
    ok: bool
    #: Whether the ledger has its last entry; one without is a run that goes on or was killed.
    closed: bool = False
    entries: int = 0
    steps: int = 0
    #: Out frames the run has published.
    frames: int = 0
    divergence: Divergence | None = None
    #: The data of ``run.closed``.
    result: Mapping[str, Json] | None = None
    #: With ``recompute``: verdicts the parser reads differently today; they are no failure.
    differences: tuple[Divergence, ...] = ()
    #: Reports of the inner runs of a looping run.
    children: tuple[ReplayReport, ...] = ()


class Diverged(Exception):
    """The replay is somewhere else than the record."""

    def __init__(self, entry: Entry, what: str, recorded: Json, replayed: Json) -> None:
        super().__init__(what)
        self.divergence = Divergence(seq=entry.seq, what=what, recorded=recorded, replayed=replayed)


def _same(entry: Entry, what: str, replayed: Json) -> None:
    recorded = entry.data.get(what)
    if recorded != replayed:
        raise Diverged(entry, what, recorded, replayed)


def replay(
    store: LedgerStore, run: str, /, *, recompute: bool = False, on_frame: FrameHook | None = None
) -> ReplayReport:
    """Replay a recorded run and report whether it is reproduced exactly.

    Linear in the length of the run, constant memory. Never raises on account of what is stored.

    Args:
        store: Where the run is.
        run: Its id.
        recompute: Also read every verdict anew with the default parser and report what differs.
        on_frame: Called with every Out frame, in order, as it is reproduced.
    """
    ledger = RunLedger(store, run)
    progress = Progress(on_frame=on_frame, recompute=recompute)
    try:
        opened = ledger.opened
        driver = str(opened.get("driver"))
        if driver not in _REPLAYERS:
            known = ", ".join(sorted(_REPLAYERS))
            raise LedgerError(f"run {run} was driven by {driver!r}; this version replays {known}")
        replayer = _REPLAYERS[driver](opened, progress, store)
        for entry in ledger.entries():
            progress.entries = entry.seq
            replayer.take(entry)
    except Diverged as diverged:
        progress.divergence = diverged.divergence
    except LedgerError as error:
        seq = getattr(error, "seq", 0)
        progress.divergence = Divergence(seq=seq, what="ledger", recorded=str(error), replayed=None)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        problem = f"{type(error).__name__}: {error}"
        progress.divergence = Divergence(seq=progress.entries, what="form", recorded=problem, replayed=None)
    return progress.report(run)


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a replay has come to so far."""

    on_frame: FrameHook | None = None
    recompute: bool = False
    entries: int = 0
    steps: int = 0
    frames: int = 0
    divergence: Divergence | None = None
    result: Mapping[str, Json] | None = None
    differences: list[Divergence] = field(default_factory=list)
    children: list[ReplayReport] = field(default_factory=list)

    def report(self, run: str) -> ReplayReport:
        return ReplayReport(
            run=run,
            ok=self.divergence is None and all(child.ok for child in self.children),
            closed=self.result is not None,
            entries=self.entries,
            steps=self.steps,
            frames=self.frames,
            divergence=self.divergence,
            result=self.result,
            differences=tuple(self.differences),
            children=tuple(self.children),
        )


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

    def take(self, entry: Entry) -> None:
        handler = _LOOP_ENTRIES.get(entry.kind)
        if handler is not None:  # a kind that a later version added does not change what this one decided
            getattr(self, handler)(entry)

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
        report = replay(self._store, content["run"], recompute=self._progress.recompute)
        self._progress.children.append(report)
        if report.ok:
            seq, digest = RunLedger(self._store, content["run"]).verify().head
            if [content["entries"], content["hash"]] != [seq, digest.hex()]:
                raise Diverged(entry, "child", [content["entries"], content["hash"]], [seq, digest.hex()])

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
        _same(entry, "n", self._progress.steps)
        event: Event | None
        if entry.data["event"] == "stop_asked":
            event, self._stop = self._stop, None
        else:
            event, self._event = self._event, None
        _same(entry, "event", None if event is None else event_name(event))
        assert event is not None
        _same(entry, "out", [*self._out.mark()])
        _same(entry, "from", self._state.phase.value)
        try:
            self._state, effects = decide(self._state, event, self._config)
        except IllegalTransition as error:
            raise Diverged(entry, "to", entry.data.get("to"), str(error)) from None
        _same(entry, "to", self._state.phase.value)
        _same(entry, "effects", effect_names(effects))
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


class OrchestratorReplay:
    """Feeds the facts of an orchestrated run to its reducer."""

    def __init__(self, opened: Mapping[str, Any], progress: Progress, store: LedgerStore) -> None:
        self._progress = progress
        self._fold = RunFold(opened)

    def take(self, entry: Entry) -> None:
        """Take the next entry."""
        progress = self._progress
        streamed = self._fold.state.partial is not None
        try:
            event = self._fold.take(entry)
        except Mismatch as mismatch:
            raise Diverged(entry, mismatch.what, mismatch.recorded, mismatch.replayed) from None
        if entry.kind == "run.closed":
            progress.result = entry.data
        if event is None:
            return
        progress.steps += 1
        for frame in shown_frames(event, streamed=streamed):
            progress.frames += 1
            if progress.on_frame is not None:
                progress.on_frame(frame)


_REPLAYERS: Final[Mapping[str, Any]] = {
    DRIVER: LoopReplay,
    OUTER_DRIVER: OuterReplay,
    ORCHESTRATOR: OrchestratorReplay,
}
