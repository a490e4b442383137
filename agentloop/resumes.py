"""Going on with a recorded run: `resume` where it was cut off, `fork` from any of its steps.

The ledger is replayed through the same rules that replays use, and what a driver has to know
is gathered on the way: no turn that was finished is asked for again, no tool call that was
answered is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from agentloop._numbers import MAX_COUNT, check_count
from agentloop.checks.trace import trace_entry
from agentloop.determinism import RunIds
from agentloop.errors import ResumeError, RunNotFound
from agentloop.factories import go_on, split_looping_options
from agentloop.frames import SYMBOLIC_ASSERTED, TOOL_CALL, Frame, Role
from agentloop.ledger.chain import NO_ENTRIES
from agentloop.ledger.reader import Entry, RunLedger
from agentloop.ledger.recorder import Recorder
from agentloop.ledger.summaries import CLOSED, OPENED
from agentloop.ledger.upcasting import ENTRIES
from agentloop.loop.agent import AgentLoop, cycle_config, shown_forward
from agentloop.loop.cycle import Emit, Order
from agentloop.loop.history import turn_entry
from agentloop.loop.looping import OUTER_DRIVER, LoopingAgentLoop, LoopingOptions
from agentloop.loop.options import LoopOptions
from agentloop.loop.record import DRIVER
from agentloop.loop.resumption import LIMITS, OpenTurn, OuterResumption, RecordedCall, Resumption
from agentloop.loop.rounds import RoundOrder, RoundsConfig
from agentloop.messages import (
    CheckReport,
    LoopResult,
    NodeStatus,
    SymbolicUpdate,
    ToolCall,
    ToolResult,
)
from agentloop.orchestrator.recording import DRIVER as ORCHESTRATOR
from agentloop.orchestrator.resumption import fork_run, resume_run
from agentloop.ports import Head, LedgerStore
from agentloop.replays import Diverged, LoopReplay, OuterReplay, Progress, ReplayReport

__all__ = ("OUTER_REFUSED", "REFUSED", "fork", "resume")

#: What the record of a single run decides, and no option can.
REFUSED: Final = (*LIMITS, "node", "labels", "initial_symbolics", "forward_frames", "ledger", "run_id")
#: The same of a looping run; each inner run has a record of its own.
OUTER_REFUSED: Final = ("max_iterations", "labels", "ledger", "run_id")


class _Standing(LoopReplay):
    """A replay that keeps what the driver of the run had in its hands."""

    def __init__(self, opened: Mapping[str, Any], progress: Progress, store: LedgerStore) -> None:
        super().__init__(opened, progress, store)
        self.opened = opened
        self.kept = Resumption(
            run=str(opened["run"]), head=NO_ENTRIES, config=self._config, node=opened["node"],
            labels=opened["labels"], forward=opened["forward_frames"], state=self._state, out=self._out,
            steps=0,
        )  # fmt: skip
        self.kept.facts = {name: (value, "developer") for name, value in opened["symbolics"].items()}
        self._asked: list[Mapping[str, Any]] = []
        self._calls: dict[str, RecordedCall] = {}
        self._before = OpenTurn(role="agent")
        self._prompt_frames: list[Frame] | None = None
        self._turn_role: Role | None = None
        #: What was told when the last decision was on record, and what was found out since.
        self._told: list[Frame] = []
        self._fresh: list[Frame] = []

    def standing(self) -> Resumption:
        """Return where the run stands after the entries taken."""
        kept = self.kept
        kept.config, kept.state, kept.steps = self._config, self._state, self._progress.steps
        kept.usage = self._usage
        kept.event = self._event
        kept.stop_reason = None if self._stop is None else self._stop.reason
        orders: list[Order] = [effect for effect in self._ordered if not isinstance(effect, Emit)]
        kept.order = orders[0] if orders else None
        kept.unpublished = [*self._told, *self._fresh]
        if self._turn_role is not None:
            kept.open_turn = OpenTurn(role=self._turn_role, prompt=self._prompt_frames, calls=self._pending())
        return kept

    # ------------------------------------------------------------------------------- entries

    def _input(self, entry: Entry) -> None:
        super()._input(entry)
        if entry.data["type"] == "INPUT":
            self.kept.inbox.append(entry.data["text"])

    def _prompt(self, entry: Entry) -> None:
        was_open = self._turn_role is not None
        super()._prompt(entry)
        assert self._fold is not None
        self.kept.turns = entry.data["turn"]
        self._turn_role = self._fold.role
        if not was_open:
            frames = entry.data.get("frames")
            about = entry.data.get("about", ())
            self._prompt_frames = frames and [Frame(kind, content) for kind, content in (*about, *frames)]
        # A turn that was cut off is asked for again: what it had called is still not to be repeated.
        self._before = OpenTurn(role=self._fold.role, calls=self._pending() if was_open else [])
        self._asked, self._calls = [], {}

    def _pending(self) -> list[RecordedCall]:
        """Return the calls of the open turn, those first that it has not asked for again."""
        return [*self._before.calls, *self._calls.values()]

    def _frames(self, entry: Entry) -> None:
        super()._frames(entry)
        self._asked += [content for kind, content in entry.data.get("frames", ()) if kind == TOOL_CALL]

    def _child_run(self, entry: Entry, content: Mapping[str, Any]) -> None:
        """Leave the run of a finished turn alone: nothing of it is needed to go on."""

    def _tool_started(self, entry: Entry) -> None:
        data = entry.data
        asked = data["call"]
        call = ToolCall(
            id=asked["id"], name=asked["name"], arguments=asked.get("arguments"),
            raw_arguments=asked.get("raw"), step_id=data["step"], key=data["key"],
        )  # fmt: skip
        self._before.take(call)
        self._calls[data["step"]] = RecordedCall(step=data["step"], call=call, read_only=data["read_only"])

    def _tool_result(self, entry: Entry) -> None:
        super()._tool_result(entry)
        step, result = entry.data["step"], entry.data["result"]
        known = self._calls.get(step) or self._left(step)
        if known is None:  # refused, or answered from an interrupted turn: never begun in this one
            content = self._asked[int(step.rpartition(".")[2]) - 1]
            arguments, raw = content.get("arguments"), content.get("raw_arguments")
            call = ToolCall(
                id=result["id"], name=result["name"],
                arguments=arguments if isinstance(arguments, dict) else None,
                raw_arguments=raw if isinstance(raw, str) else arguments if isinstance(arguments, str) else None,
                step_id=step,
            )  # fmt: skip
            self._before.take(call)
            known = self._calls[step] = RecordedCall(step=step, call=call)
        known.result = result

    def _left(self, step: str) -> RecordedCall | None:
        """Return the call of an earlier life that was answered now, as unknown."""
        return next((known for known in self._before.calls if known.step == step), None)

    def _turn_ended(self, entry: Entry) -> None:
        super()._turn_ended(entry)
        if "error" in entry.data:
            return  # what follows from it was not decided: the turn is asked for again
        fold, kept = self._ended, self.kept
        self._turn_role = None
        kept.finished[fold.role] = kept.finished.get(fold.role, 0) + 1
        kept.retrieval_ids += fold.retrieval_ids
        if fold.role == "evaluator":
            kept.judging = tuple(fold.frames)
            return
        results = self._results()
        kept.trace += results
        kept.history.append(turn_entry(self._state.iteration, fold, results))

    def _results(self) -> list[dict[str, Any]]:
        """Return the turn's trace entries in the order of its calls."""
        found, seen = [], dict[str, int]()
        for known in sorted(self._calls.values(), key=lambda known: _number(known.step)):
            assert known.result is not None  # a turn does not end before its calls are answered
            call = known.call
            again = seen[call.id] = seen.get(call.id, 0) + 1
            result = msgspec.structs.replace(
                ToolResult.from_content(known.result), id=call.id if again == 1 else f"{call.id}#{again}"
            )
            arguments = call.arguments if call.arguments is not None else (call.raw_arguments or {})
            cycle, index = self._state.iteration, _number(known.step) - 1
            found.append(trace_entry(result, cycle=cycle, index=index, arguments=arguments))
        return found

    def _checks(self, entry: Entry) -> None:
        super()._checks(entry)
        report = entry.data["report"]
        self.kept.last_checks = CheckReport(all_passed=report["all_passed"], evidence=report["evidence"])
        self.kept.history[-1]["checks"] = dict(report)

    def _verdict(self, entry: Entry) -> None:
        super()._verdict(entry)
        result, kept = entry.data["result"], self.kept
        kept.judging = None
        kept.updates = msgspec.convert(result.get("symbolic_updates", ()), tuple[SymbolicUpdate, ...])
        kept.history[-1]["evaluation"] = {"status": result["status"], "evidence": result["evidence"]}

    def _symbolic(self, entry: Entry) -> None:
        super()._symbolic(entry)
        name, value = entry.data["name"], entry.data["value"]
        if entry.data["op"] == "retract":
            self.kept.facts.pop(name, None)
        else:
            self.kept.facts[name] = value, entry.data["by"]
        content = {"name": name, "value": value, "op": entry.data["op"]}
        self._fresh.append(Frame(SYMBOLIC_ASSERTED, content, seq=self._out.count))

    def _step(self, entry: Entry) -> None:
        super()._step(entry)
        kept = self.kept
        kept.updates, kept.judging, self._turn_role = (), None, None
        if self._ordered:
            kept.inbox = []
        # Told once the step was on record, which is the last thing that is known.
        emitted = [effect for effect in self._ordered if isinstance(effect, Emit)]
        first = self._out.count - len(emitted) + 1
        frames = [Frame(one.type, one.content, seq=first + place) for place, one in enumerate(emitted)]
        self._told, self._fresh = [*self._fresh, *frames], []

    def _forked(self, entry: Entry) -> None:
        super()._forked(entry)
        self.kept.forward = entry.data["forward_frames"]

    def take(self, entry: Entry) -> None:
        """Take one more entry."""
        super().take(entry)
        if entry.kind == "fact.tool_started":
            self._tool_started(entry)
        elif entry.kind == CLOSED:
            self.kept.closed = True


def _number(step: str) -> int:
    return int(step.rpartition(".")[2])


class _OuterStanding(OuterReplay):
    """The same for a looping run."""

    def __init__(self, opened: Mapping[str, Any], progress: Progress, store: LedgerStore) -> None:
        super().__init__(opened, progress, store)
        self.kept = OuterResumption(run=str(opened["run"]), head=NO_ENTRIES, state=self._state, steps=0)

    def standing(self) -> OuterResumption:
        """Return where the run stands after the entries taken."""
        kept = self.kept
        kept.state, kept.steps, kept.event = self._state, self._progress.steps, self._event
        orders: list[RoundOrder] = [effect for effect in self._ordered if not isinstance(effect, Emit)]
        kept.order = orders[0] if orders else None
        kept.unpublished = [Frame(one.type, one.content) for one in self._ordered if isinstance(one, Emit)]
        return kept

    def take(self, entry: Entry) -> None:
        """Take one more entry."""
        super().take(entry)
        if entry.kind == "fact.node":
            self.kept.node, self.kept.nodes = entry.data["node"], self.kept.nodes + 1
        elif entry.kind == CLOSED:
            self.kept.closed = True

    def _child(self, data: Mapping[str, Any]) -> None:
        standing, closed = _read(self._store, data["run"], _Standing, DRIVER, None)
        kept = self.kept
        kept.facts = standing.facts
        for role, count in standing.finished.items():
            kept.finished[role] = kept.finished.get(role, 0) + count
        kept.results.append(_result(standing, closed or data))
        self._progress.children.append(ReplayReport(run=standing.run, ok=True, closed=standing.closed))


def _result(run: Resumption, ended: Mapping[str, Any]) -> LoopResult:
    """Return the result of an inner run that has ended."""
    return LoopResult(
        status=NodeStatus(ended["status"]),
        reason=ended["reason"],
        evidence=ended.get("evidence"),
        iterations=run.state.iteration,
        retry_count=run.state.retry_count,
        agent_text=run.state.agent_text,
        symbolics={name: value for name, (value, _) in run.facts.items()},
        usage=run.usage,
        node=run.node,
        run_id=run.run,
    )


def _read(
    store: LedgerStore, run: str, fold: Callable[..., Any], driver: str, upto: int | None
) -> tuple[Any, Mapping[str, Any] | None]:
    """Return where a run stands and, if it has ended, the data of its last entry."""
    ledger = RunLedger(store, run)
    opened = ledger.opened
    if opened.get("driver") != driver:
        raise ResumeError(run, f"it was driven by {opened.get('driver')!r}, not by {driver!r}")
    progress = Progress()
    head = NO_ENTRIES
    try:
        replayed = fold(opened, progress, store)
        for entry, digest in ledger.hashed_entries():
            if upto is not None and entry.seq > upto:
                break
            replayed.take(entry)
            head = entry.seq, digest
    except Diverged as diverged:
        raise ResumeError(run, f"it does not replay, at {diverged.divergence}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, msgspec.ValidationError) as error:
        raise ResumeError(run, f"it does not replay, at entry {head[0] + 1}: {error}") from error
    standing = replayed.standing()
    standing.head = head
    return standing, progress.result


def resume(store: LedgerStore, run: str, /, **options: Any) -> AgentLoop | LoopingAgentLoop | Any:
    """Return a loop, or an `Orchestrator`, that goes on with a recorded run where it was cut off.

    Turns that were finished are not asked for again, tool calls that were answered are not made
    again. A turn that was cut off is asked for again with a note of what it had called; a call
    of it that only reads, or that takes an idempotency key, may be made again, another one is
    answered with ``unknown_outcome``. A run that has ended gives its result at once. What the
    newest frames told may be told again.

    Reading the run is linear in its length, about 10 us an entry.

    Args:
        store: Where the run is recorded; it goes on there.
        run: Its id.
        **options: As for `create_agent_loop`, `create_looping_agent_loop` or
            `agentloop.run`: adapters, builders, parser, checks, tools, provider. What the record decides (limits, facts,
            node, labels, forwarded frames) cannot be given. An adapter with a method
            ``skip(turns)`` is told how many of its turns were finished; a node provider with
            ``take_up(results, node)`` is told how the nodes so far ended.

    Raises:
        RunNotFound: The store has no such run.
        ResumeError: It cannot be gone on with; as one of an older version, which can be forked.
        LedgerError: The ledger is damaged, or of a newer version.
        TypeError: An option that the record decides.
    """
    ledger = RunLedger(store, run)
    driver = ledger.opened.get("driver")
    if ledger.version != ENTRIES.current:
        # Entries of two versions under one head could not be told apart.
        raise ResumeError(run, f"version {ledger.version} recorded it: fork it, and go on with the fork")
    if driver == ORCHESTRATOR:
        return resume_run(store, run, **options)
    for name in OUTER_REFUSED if driver == OUTER_DRIVER else REFUSED:
        if name in options:
            raise TypeError(f"resume goes on with the recorded {name}: to change it, fork the run")
    if driver == OUTER_DRIVER:
        return _resume_outer(store, run, options)
    standing, _ = _read(store, run, _Standing, DRIVER, None)
    return go_on(standing, {**options, "ledger": store})


def fork(
    store: LedgerStore, run: str, /, *, at: int, run_id: str | None = None, **options: Any
) -> AgentLoop | Any:
    """Return a loop, or an `Orchestrator`, that begins a new run as a recorded one had begun.

    The two are the same up to one of its entries.

    The new run holds the entries it shares with the old one, so it replays and resumes by
    itself; the old one is not touched. Whatever is given may differ from then on: adapters,
    prompts, checks, limits. Limits that are not given stay as they were.

    Args:
        store: Where the run is recorded; the new one goes there too.
        run: The id of a single or an orchestrated run.
        at: The number of the last entry that is shared, from 1.
        run_id: The new run's; by default one that sorts by time.
        **options: As for `create_agent_loop`, but for ``initial_symbolics`` and ``ledger``; or as
            for `agentloop.run`, but for ``goal``, ``seed`` and ``ledger``.

    Raises:
        RunNotFound: The store has no such run.
        ResumeError: It is a looping run, does not replay, or has ended at that entry.
        LedgerConflict: There is a run with the new id.
        ValueError: There is no entry of that number.
        TypeError: An option that the record decides, or ``at`` is no int.
    """
    check_count("at", at, -MAX_COUNT)
    if RunLedger(store, run).opened.get("driver") == ORCHESTRATOR:
        return fork_run(store, run, at=at, run_id=run_id, **options)
    for name in ("initial_symbolics", "ledger"):
        if name in options:
            raise TypeError(f"fork goes on with the recorded {name}")
    standing, _ = _read(store, run, _Standing, DRIVER, at)
    if at < 1 or standing.head[0] != at:
        raise ValueError(f"run {run} has the entries 1 to {_last(store, run)}, and none is number {at}")
    if standing.closed:
        raise ResumeError(run, f"it has ended at entry {at}: fork it at an earlier one")
    given = LoopOptions(**{**standing.recorded_options(), **options, "ledger": store, "run_id": run_id})
    if run_id is None:
        given = msgspec.structs.replace(given, run_id=RunIds(given.clock)())
    standing.head = _begin_fork(store, run, at, given)
    standing.config = cycle_config(given)
    return AgentLoop(given, resumption=standing)


def _begin_fork(store: LedgerStore, run: str, at: int, given: LoopOptions) -> Head:
    """Begin the new run with the entries it shares with the old one, and return its head."""
    new = given.run_id
    assert new is not None
    recorder = Recorder(store, new, given.clock)
    own = {"run": new, "node": given.node, "labels": dict(given.labels)}
    for entry in islice(RunLedger(store, run).entries(), at):
        recorder.record(entry.kind, {**entry.data, **own} if entry.kind == OPENED else entry.data)
    config = msgspec.structs.asdict(cycle_config(given))
    forked = {"run": run, "at": at, "config": config, "forward_frames": shown_forward(given)}
    recorder.record("fact.forked", forked)
    recorder.flush(sync=True)
    return recorder.head


def _last(store: LedgerStore, run: str) -> int:
    return sum(1 for _ in RunLedger(store, run).entries())


def _resume_outer(store: LedgerStore, run: str, options: dict[str, Any]) -> LoopingAgentLoop:
    standing, _ = _read(store, run, _OuterStanding, OUTER_DRIVER, None)
    opened = RunLedger(store, run).opened
    recorded = msgspec.convert(opened["config"], RoundsConfig)
    if recorded.has_provider is not (options.get("node_provider") is not None):
        problem = (
            f"it was begun with{'' if recorded.has_provider else 'out'} node_provider, and has to go on so"
        )
        raise ResumeError(run, problem)

    def inner(inner_run: str) -> Resumption | None:
        try:
            inside: Resumption = _read(store, inner_run, _Standing, DRIVER, None)[0]
        except RunNotFound:
            return None
        return inside

    standing.inner = inner
    outer, within = split_looping_options(
        {**options, "max_iterations": recorded.max_iterations, "labels": opened["labels"]}
    )
    return LoopingAgentLoop(
        LoopingOptions(**{**outer, "ledger": store, "run_id": run}, inner_options=within), resumption=standing
    )
