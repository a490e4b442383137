"""A run's ledger as one file: header and decisions, for whoever reads, compares or grades runs.

The file is a projection of what the store holds, and stands alone: `replay_file` feeds its
events to the reducer and compares everything with what was recorded.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from agentloop._canonical import Json, NotJson, decode, encode
from agentloop.determinism import digest
from agentloop.errors import DamagedLedger, InvariantViolation
from agentloop.ledger.reader import RunLedger
from agentloop.ledger.upcasting import Upcasts
from agentloop.orchestrator.config import RunConfig
from agentloop.orchestrator.events import (
    ContextAssembled,
    Event,
    ModelFrames,
    ToolExecution,
    ToolsCompleted,
    event_name,
)
from agentloop.orchestrator.phases import ORCHESTRATION, SELF_LOOPS, Phase
from agentloop.orchestrator.state import Outcome, RunState, Usage
from agentloop.ports import LedgerStore

__all__ = (
    "FileDivergence",
    "FileEntry",
    "FileReplay",
    "RunFile",
    "ToolUse",
    "parse_ledger",
    "read_run_file",
    "replay_file",
)


def _of_the_first_version(file: dict[str, Any]) -> dict[str, Any]:
    """Return a file of version 1, which counted no failed model calls, as one of version 2."""
    events = [entry["event"]["type"] for entry in file["entries"]]
    asked = sum(name in ("model.succeeded", "model.failed") for name in events)
    return {**file, "version": 2, "migratedFrom": 1, "usage": {**file["usage"], "modelInvocations": asked}}


#: Versions of the file.
FILES: Final[Upcasts[dict[str, Any]]] = Upcasts(2, {1: _of_the_first_version})
#: The version that is written.
FILE_VERSION: Final = FILES.current


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, rename={"from_phase": "from"}):
    """One decision."""

    #: 1, 2, 3, … without gaps.
    seq: int
    #: The event's time.
    at: int
    from_phase: Phase
    to: Phase
    event: Event
    #: Kinds of what was ordered.
    effects: tuple[str, ...] = ()


class ToolUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool call that was made, as graders look at it."""

    name: str
    args: dict[str, Any] | None
    ok: bool
    content: str
    error_code: str | None


class RunFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A recorded run."""

    version: int
    run_id: str
    goal: str
    seed: str
    config: RunConfig
    started_at: int
    finished_at: int | None
    final_phase: Phase
    usage: Usage
    outcome: Outcome | None
    entries: tuple[FileEntry, ...]
    #: The older version it was raised from, whose decisions were made by other rules.
    migrated_from: int | msgspec.UnsetType = msgspec.UNSET
    #: A redactor looked at what entered: there may be marks in place of secrets.
    redacted: bool | msgspec.UnsetType = msgspec.UNSET

    def serialise(self) -> bytes:
        """Return the file: canonical JSON, the same bytes for the same run."""
        return encode(msgspec.to_builtins(self))

    @property
    def steps(self) -> list[FileEntry]:
        """The entries that lead on; those that leave the phase as it is are left out."""
        return [entry for entry in self.entries if event_name(entry.event) not in SELF_LOOPS]

    @property
    def phase_trace(self) -> list[str]:
        """``from->to`` of every step."""
        return [f"{entry.from_phase}->{entry.to}" for entry in self.steps]

    @property
    def phase_path(self) -> list[str]:
        """The phases in order, repeated ones once."""
        path: list[str] = []
        for entry in self.steps:
            if not path or path[-1] != entry.to.value:
                path.append(entry.to.value)
        return path

    @property
    def executions(self) -> list[ToolExecution]:
        """All tool calls that were made, in the order of their results."""
        return [
            result
            for entry in self.entries
            if isinstance(entry.event, ToolsCompleted)
            for result in entry.event.results
        ]

    @property
    def tool_sequence(self) -> list[str]:
        """Their names."""
        return [execution.call.name for execution in self.executions]

    @property
    def tool_calls(self) -> list[ToolUse]:
        """What graders ask of them."""
        return [
            ToolUse(
                name=execution.call.name,
                args=execution.call.arguments,
                ok=execution.ok,
                content=execution.content,
                error_code=None if execution.error is None else execution.error.code,
            )
            for execution in self.executions
        ]

    @property
    def context_reports(self) -> list[dict[str, Json]]:
        """The report of every window that has one."""
        return [
            entry.event.context.report
            for entry in self.entries
            if isinstance(entry.event, ContextAssembled) and entry.event.context.report is not None
        ]

    @property
    def frames(self) -> list[dict[str, Any]]:
        """What models said while they said it."""
        return [
            frame
            for entry in self.entries
            if isinstance(entry.event, ModelFrames)
            for frame in entry.event.frames
        ]

    @property
    def elapsed_ms(self) -> int:
        """How long the run took."""
        return (self.started_at if self.finished_at is None else self.finished_at) - self.started_at

    @property
    def fingerprint(self) -> str:
        """Eight digits for the path: phases and tools, not times, contents or counts."""
        return digest([*self.phase_trace, "|", *self.tool_sequence])

    @property
    def fingerprint2(self) -> str:
        """Sixteen digits that also tell apart how calls and the run came out."""
        outcome = self.outcome
        error = None if outcome is None or outcome.error is None else outcome.error.code
        told = {
            "path": self.phase_trace,
            "tools": [[use.name, use.ok, use.error_code] for use in self.tool_calls],
            "outcome": None if outcome is None else [outcome.status, error],
        }
        return hashlib.sha256(encode(told)).hexdigest()[:16]


def parse_ledger(data: bytes | str) -> RunFile:
    """Read a run's file; one of an older version is raised to the newest.

    Raises:
        UnsupportedVersion: It was written by a version that cannot be read.
        DamagedLedger: It is no such file.
    """
    try:
        told = decode(data)
    except NotJson as error:
        raise DamagedLedger("?", 0, f"the file is not JSON: {error}") from error
    version = FILES.check(told.get("version") if isinstance(told, dict) else None)
    try:
        return msgspec.convert(FILES.raised(version, told), RunFile)
    except (msgspec.ValidationError, ValueError, TypeError, KeyError) as error:
        raise DamagedLedger(str(told.get("runId", "?")), 0, f"the file has another form: {error}") from error


def read_run_file(store: LedgerStore, run: str, /) -> RunFile:
    """Return the file of a recorded run, whether it has ended or not. Linear in its length.

    Raises:
        RunNotFound, DamagedLedger, UnsupportedVersion: As `RunLedger.entries`.
        DamagedLedger: It does not replay.
    """
    from agentloop.orchestrator.folding import Mismatch, RunFold

    ledger = RunLedger(store, run)
    fold = RunFold(ledger.opened)
    entries: list[FileEntry] = []
    number = 0
    try:
        for entry in ledger.entries():
            number, before = entry.seq, fold.state.phase
            event = fold.take(entry)
            if event is not None:
                entries.append(
                    FileEntry(
                        seq=fold.steps,
                        at=event.at,
                        from_phase=before,
                        to=fold.state.phase,
                        event=event,
                        effects=tuple(entry.data["effects"]),
                    )
                )
    except (Mismatch, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise DamagedLedger(run, number, f"it does not replay: {error}") from error
    state = fold.state
    return RunFile(
        version=FILE_VERSION,
        run_id=fold.run_id,
        goal=state.goal,
        seed=fold.seed,
        config=fold.config,
        started_at=state.started_at,
        finished_at=None if fold.closed is None else state.now,
        final_phase=state.phase,
        usage=state.usage,
        outcome=state.outcome,
        entries=tuple(entries),
        redacted=True if fold.opened.get("redacted") is True else msgspec.UNSET,
    )


# ----------------------------------------------------------------------------------- replays

DivergenceKind = Literal["phase", "event", "effects", "emit", "state", "truncated", "extra", "illegal"]


class FileDivergence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first place where a replay differs from the file."""

    kind: DivergenceKind
    #: Number of the entry; the number of entries where none is meant.
    seq: int
    #: The entry's event.
    event: str | None = None
    recorded: Json = None
    replayed: Json = None
    #: What differs, as ``usage.totalTokens``.
    path: str | None = None


class FileReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay of a file found."""

    ok: bool
    state: RunState
    divergence: FileDivergence | None
    entries_replayed: int


def replay_file(file: RunFile, *, config: RunConfig | None = None) -> FileReplay:
    """Feed the recorded events to the reducer and compare everything that follows. Never raises.

    A file that was raised from an older version is compared by its phases only.

    Args:
        file: The recorded run.
        config: Another one asks what would have been: a tighter limit diverges where it would
            have halted.
    """
    return _FileReplayer(file, config or file.config).run()


class _FileReplayer:
    def __init__(self, file: RunFile, config: RunConfig) -> None:
        self._file, self._config = file, config
        self._strict = file.migrated_from is msgspec.UNSET
        self._state = RunState.initial(file.run_id, file.goal, file.started_at)
        self._emitted: deque[Event] = deque()
        self._count = 0

    def run(self) -> FileReplay:
        divergence = None
        for entry in self._file.entries:
            divergence = self._entry(entry)
            if divergence is not None:
                break
        divergence = divergence or self._end()
        return FileReplay(
            ok=divergence is None, state=self._state, divergence=divergence, entries_replayed=self._count
        )

    def _entry(self, entry: FileEntry) -> FileDivergence | None:
        from agentloop.orchestrator.recording import effect_kinds
        from agentloop.orchestrator.reducer import reduce

        name, before = event_name(entry.event), self._state.phase

        def differs(kind: DivergenceKind, recorded: Json, replayed: Json, path: str) -> FileDivergence:
            return FileDivergence(
                kind=kind, seq=entry.seq, event=name, recorded=recorded, replayed=replayed, path=path
            )

        if ORCHESTRATION.terminal(before):
            return differs("extra", entry.to.value, before.value, "to")
        if self._strict:
            if entry.seq != self._count + 1:
                return differs("event", entry.seq, self._count + 1, "seq")
            if entry.at != entry.event.at or entry.at < self._state.now:
                return differs("event", entry.at, entry.event.at, "at")
            if entry.from_phase is not before:
                return differs("phase", entry.from_phase.value, before.value, "from")
            wrong = self._emit(entry)
            if wrong is not None:
                return differs("emit", *wrong, "event")
        self._count += 1
        try:
            after, effects, emit = reduce(self._state, entry.event, self._config)
        except InvariantViolation as error:
            return differs("illegal", entry.to.value, str(error), "to")
        self._state = after
        if after.phase is not entry.to:
            return differs("phase", entry.to.value, after.phase.value, "to")
        if self._strict and effect_kinds(effects) != [*entry.effects]:
            return differs("effects", [*entry.effects], effect_kinds(effects), "effects")
        self._emitted.extend(emit)
        return None

    def _emit(self, entry: FileEntry) -> tuple[Json, Json] | None:
        """Return both sides if the event is not the one that had to follow."""
        name = event_name(entry.event)
        if not self._emitted:
            # Nobody but the reducer itself says these.
            return (name, None) if name.startswith("route.") or name == "observations.recorded" else None
        if name in ORCHESTRATION.anywhere and entry.event != self._emitted[0]:
            self._emitted.clear()  # a limit or the caller came between
            return None
        expected = self._emitted.popleft()
        if expected == entry.event:
            return None
        return msgspec.to_builtins(entry.event), msgspec.to_builtins(expected)

    def _end(self) -> FileDivergence | None:
        state, file = self._state, self._file
        last = len(file.entries)
        if not ORCHESTRATION.terminal(state.phase):
            return FileDivergence(
                kind="truncated", seq=last, recorded=file.final_phase.value, replayed=state.phase.value
            )
        for path, recorded, replayed in self._compared():
            if recorded != replayed:
                return FileDivergence(kind="state", seq=last, recorded=recorded, replayed=replayed, path=path)
        return None

    def _compared(self) -> list[tuple[str, Json, Json]]:
        state, file = self._state, self._file
        compared: list[tuple[str, Json, Json]] = [("finalPhase", file.final_phase.value, state.phase.value)]
        if not self._strict:
            return compared
        recorded, replayed = msgspec.to_builtins(file.usage), msgspec.to_builtins(state.usage)
        compared += [(f"usage.{name}", recorded[name], replayed[name]) for name in replayed]
        compared.append(("outcome", _wire(file.outcome), _wire(state.outcome)))
        compared.append(("goal", file.goal, state.goal))
        compared.append(("finishedAt", file.finished_at, state.now))
        return compared


def _wire(outcome: Outcome | None) -> Mapping[str, Json] | None:
    return None if outcome is None else outcome.to_wire()
