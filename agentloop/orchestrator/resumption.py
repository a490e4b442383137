"""Going on with a recorded run, from where it was cut off or from any of its entries.

What was answered is not asked again: the reducer is where the record left it, and only the
effects that nothing has answered yet are performed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from agentloop.determinism import Clock, Mulberry32, RunIds, SequentialIds, SystemClock
from agentloop.errors import ResumeError
from agentloop.ledger.chain import NO_ENTRIES
from agentloop.ledger.reader import RunLedger
from agentloop.ledger.recorder import Recorder
from agentloop.ledger.summaries import CLOSED, OPENED
from agentloop.orchestrator.config import RunConfig, read_config
from agentloop.orchestrator.folding import Mismatch, RunFold
from agentloop.orchestrator.options import Deps, RunOptions, read_options
from agentloop.orchestrator.recording import DRIVER
from agentloop.orchestrator.runtime import Orchestrator
from agentloop.ports import Head, LedgerStore

__all__ = ("RECORDED", "fork_run", "read_standing", "resume_run")

#: What the record decides, and no option can.
RECORDED: Final = ("goal", "config", "seed", "run_id", "ledger", "labels")


def _fold(store: LedgerStore, run: str) -> tuple[RunFold, Head]:
    ledger = RunLedger(store, run)
    opened = ledger.opened
    if opened.get("driver") != DRIVER:
        raise ResumeError(run, f"it was driven by {opened.get('driver')!r}, not by {DRIVER!r}")
    head = NO_ENTRIES
    try:
        fold = RunFold(opened)
        for entry, digest in ledger.hashed_entries():
            fold.take(entry)
            head = entry.seq, digest
    except Mismatch as mismatch:
        found = f"{mismatch.what}: recorded {mismatch.recorded!r}, replayed {mismatch.replayed!r}"
        raise ResumeError(run, f"it does not replay, at entry {head[0] + 1}: {found}") from None
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise ResumeError(run, f"it does not replay, at entry {head[0] + 1}: {error}") from error
    return fold, head


def _deps(given: Deps | None, fold: RunFold) -> Deps:
    """Return the parts that have to be where the record left them."""
    given = given or Deps()
    rng = given.rng
    if rng is None:
        rng = Mulberry32(fold.seed)
        for _ in range(fold.waits):
            rng.next()
    ids = given.ids
    if ids is None:
        ids = SequentialIds()
        ids.go_on("step", fold.calls)
        ids.go_on("tool", fold.tool_steps)
    return Deps(clock=given.clock, rng=rng, ids=ids)


def resume_run(store: LedgerStore, run: str, /, **options: Any) -> Orchestrator:
    """Return a run that goes on where a recorded one was cut off; see `agentloop.resume`."""
    given, fold, head = read_standing(store, run, **options)
    return Orchestrator(given, standing=fold, head=head)


def read_standing(store: LedgerStore, run: str, /, **options: Any) -> tuple[RunOptions, RunFold, Head]:
    """Return what a recorded run is given when it goes on, where it stands, and its newest entry."""
    for name in RECORDED:
        if name in options:
            raise TypeError(f"resume goes on with the recorded {name}: to change it, fork the run")
    fold, head = _fold(store, run)
    given = read_options(
        fold.state.goal,
        config=fold.config,
        seed=fold.seed,
        run_id=fold.run_id,
        ledger=store,
        labels=fold.opened.get("labels") or {},
        **{**options, "deps": _deps(options.get("deps"), fold)},
    )
    skip = getattr(given.provider, "skip", None)
    if skip is not None and fold.calls:
        skip(fold.calls)
    return given, fold, head


def fork_run(
    store: LedgerStore,
    run: str,
    /,
    *,
    at: int,
    run_id: str | None = None,
    config: RunConfig | Mapping[str, Any] | None = None,
    **options: Any,
) -> Orchestrator:
    """Return a new run that begins as a recorded one had begun; see `agentloop.fork`."""
    for name in ("goal", "seed", "ledger"):
        if name in options:
            raise TypeError(f"fork goes on with the recorded {name}")
    fold, head = _fold(store, run)
    if not 1 <= at <= head[0]:
        raise ValueError(f"run {run} has the entries 1 to {head[0]}, and none is number {at}")
    if fold.closed is not None and at == head[0]:
        raise ResumeError(run, f"it has ended at entry {at}: fork it at an earlier one")
    clock = (options.get("deps") or Deps()).clock or SystemClock()
    new = run_id or RunIds(clock)()
    labels = options.pop("labels", None)
    _begin(store, run, at, new, clock, labels, read_config(config) if config is not None else None)
    return resume_run(store, new, **options)


def _begin(
    store: LedgerStore,
    run: str,
    at: int,
    new: str,
    clock: Clock,
    labels: Mapping[str, Any] | None,
    config: RunConfig | None,
) -> None:
    """Begin the new run with the entries it shares with the old one."""
    recorder = Recorder(store, new, clock)
    own: dict[str, Any] = {"run": new} if labels is None else {"run": new, "labels": dict(labels)}
    recorded: Any = None
    for entry in islice(RunLedger(store, run).entries(), at):
        assert entry.kind != CLOSED, "it is the last entry, which is not shared"
        if entry.kind == OPENED or entry.kind == "fact.forked":
            recorded = entry.data["config"]
        recorder.record(entry.kind, {**entry.data, **own} if entry.kind == OPENED else entry.data)
    told = recorded if config is None else msgspec.to_builtins(config)
    recorder.record("fact.forked", {"run": run, "at": at, "config": told})
    recorder.flush(sync=True)
