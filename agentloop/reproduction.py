"""Replaying a run: the recorded facts go through the same pure rules and must give the same.

No adapter, tool, clock or disk beside the ledger is touched. Every decision, the frames it
published, the text that streamed between, and the result are compared with what was recorded;
the first difference is reported with both sides. Here is what replays of all drivers share, and
that of orchestrated runs; those of loops are in `replays`, imported when there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentloop._canonical import Json
from agentloop.errors import LedgerError
from agentloop.frames import Frame
from agentloop.ledger.reader import Entry, RunLedger
from agentloop.orchestrator.folding import Mismatch, RunFold
from agentloop.orchestrator.recording import DRIVER as ORCHESTRATOR
from agentloop.orchestrator.recording import shown_frames
from agentloop.ports import LedgerStore

__all__ = (
    "Diverged",
    "Divergence",
    "OrchestratorReplay",
    "Progress",
    "ReplayReport",
    "replay",
    "replay_child",
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
        make = _replayer(driver)
        if make is None:
            raise LedgerError(f"run {run} was driven by {driver!r}, which this version does not replay")
        replayer = make(opened, progress, store)
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


def replay_child(store: LedgerStore, progress: Progress, entry: Entry, child: Mapping[str, Any]) -> None:
    """Replay a run that was made inside another one: it must be the same to its last entry."""
    report = replay(store, child["run"], recompute=progress.recompute)
    progress.children.append(report)
    if report.ok:
        seq, digest = RunLedger(store, child["run"]).verify().head
        if [child["entries"], child["hash"]] != [seq, digest.hex()]:
            raise Diverged(entry, "child", [child["entries"], child["hash"]], [seq, digest.hex()])


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


class OrchestratorReplay:
    """Feeds the facts of an orchestrated run to its reducer."""

    def __init__(self, opened: Mapping[str, Any], progress: Progress, store: LedgerStore) -> None:
        self._progress, self._store = progress, store
        self._fold = RunFold(opened)

    def take(self, entry: Entry) -> None:
        """Take the next entry."""
        progress = self._progress
        if entry.kind == "fact.tool_result":
            for child in entry.data["result"].get("children", ()):
                replay_child(self._store, progress, entry, child)
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


def _replayer(driver: str) -> Callable[[Mapping[str, Any], Progress, LedgerStore], Any] | None:
    if driver == ORCHESTRATOR:
        return OrchestratorReplay
    from agentloop.replays import LOOPS

    return LOOPS.get(driver)
