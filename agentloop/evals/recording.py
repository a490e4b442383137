"""From a run that happened to a case: its models become scripts, its tools what they answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agentloop.errors import TaskError
from agentloop.evals.files import CASE_VERSION, CaseFile, GraderLine, RecordedResult, Window
from agentloop.evals.loops import view_loop
from agentloop.evals.running import play_case
from agentloop.evals.views import RunView, view_file
from agentloop.ledger.reader import Entry, RunLedger
from agentloop.loop.resumption import LIMITS
from agentloop.orchestrator.events import (
    BudgetExceeded,
    ContextAssembled,
    Event,
    ModelFailed,
    ModelFrames,
    ModelSucceeded,
    SummaryRecorded,
    ToolExecution,
    ToolStarted,
)
from agentloop.orchestrator.ledger import FileEntry, RunFile, read_run_file
from agentloop.orchestrator.phases import Phase
from agentloop.orchestrator.recording import DRIVER
from agentloop.ports import LedgerStore

__all__ = ("case_of_run", "view_run")

#: Ends that come from outside: no script brings them about.
_OUTSIDE = ("run.cancelled",)


def view_run(store: LedgerStore, run: str, /) -> RunView:
    """Return the view of a recorded run that has ended, orchestrated or a loop.

    Raises:
        TaskError: It has not ended, or is a looping run.
        RunNotFound, DamagedLedger, UnsupportedVersion: As `RunLedger.entries`.
    """
    if RunLedger(store, run).opened.get("driver") != DRIVER:
        return view_loop(store, run)
    file = read_run_file(store, run)
    if file.outcome is None:
        raise TaskError(f"run {run!r} has not ended")
    return view_file(file, store)


async def case_of_run(store: LedgerStore, run: str, /, *, id: str | None = None) -> CaseFile:
    """Return a case that goes the way of a recorded run. It is played once, to be sure of that.

    Args:
        store: Where the run is recorded.
        run: Its id.
        id: The case's; by default the run's.

    Raises:
        TaskError: The run has not ended, was ended from outside, or does not go the same way again.
        RunNotFound, DamagedLedger, UnsupportedVersion: As `RunLedger.entries`.
    """
    view = view_run(store, run)
    if view.error_code in _OUTSIDE:
        raise TaskError(
            f"run {run!r} was ended from outside ({view.error_code}): no script can bring that about"
        )
    ledger = RunLedger(store, run)
    name = id or run.replace("/", "-")
    file = read_run_file(store, run) if ledger.opened.get("driver") == DRIVER else None
    made = _of_loop([*ledger.entries()]) if file is None else _of_file(file, ledger)
    case = CaseFile(
        version=CASE_VERSION,
        id=name,
        description=f"as run {run} went",
        subject="loop" if file is None else "orchestrator",
        graders=tuple(_graders(view, inner_calls=0 if file is None else _inner_calls(file))),
        **made,
    )
    again = await play_case(case.case())
    if again.fingerprint2 != view.fingerprint2:
        raise TaskError(f"run {run!r} does not go the same way again: {_difference(view, again)}")
    return case


def _difference(recorded: RunView, again: RunView) -> str:
    pairs = zip(recorded.phase_trace, again.phase_trace, strict=False)
    for place, (before, now) in enumerate(pairs, 1):
        if before != now:
            return f"step {place} was {before}, is {now}"
    told = [(run.steps, run.status, run.error_code, run.tool_sequence) for run in (recorded, again)]
    return f"{told[0]} became {told[1]}"


def _inner_calls(file: RunFile) -> int:
    """Return how many calls runs inside a call made: what is played is what they answered."""
    return sum(child.tool_calls for execution in file.executions for child in execution.children)


def _graders(view: RunView, *, inner_calls: int) -> Iterable[GraderLine]:
    yield GraderLine(grader="ends-as", args=(view.status,))
    if view.error_code is not None:
        yield GraderLine(grader="fails-with", args=(view.error_code,))
    yield GraderLine(grader="calls-tools", args=(view.tool_sequence, "exact"))
    usage = view.usage
    counters = {
        "modelCalls": usage.model_calls,
        "toolCalls": usage.tool_calls - inner_calls,
        "correctiveTurns": usage.corrective_turns,
        "retries": usage.retries,
    }
    yield GraderLine(grader="usage-equals", args=(counters,))
    yield GraderLine(grader="replays-exactly")


# ---------------------------------------------------------------------------- orchestrated runs


def _of_file(file: RunFile, ledger: RunLedger) -> dict[str, Any]:
    writing = {entry.event.call.name for entry in file.entries if isinstance(entry.event, ToolStarted)}
    return {
        "goal": file.goal,
        "config": msgspec.to_builtins(file.config),
        "script": (*_turns(file.entries), *_hanging_turn(file)),
        "tools": {name: name not in writing for name in ledger.opened.get("tools") or ()},
        "results": tuple(_results(file, ledger)),
        "windows": tuple(_windows(entry.event for entry in file.entries)),
    }


def _turns(entries: Sequence[FileEntry]) -> Iterable[dict[str, Any]]:
    began = 0
    for entry in entries:
        event = entry.event
        if isinstance(event, ModelSucceeded):
            yield _timed(_said(event), entry.at - began)
        elif isinstance(event, ModelFailed):
            yield _timed({"failWith": msgspec.to_builtins(event.error)}, entry.at - began)
        if not isinstance(event, ModelFrames):
            began = entry.at


def _timed(turn: dict[str, Any], took_ms: int) -> dict[str, Any]:
    return turn | ({"waitMs": took_ms} if took_ms > 0 else {})


def _said(event: ModelSucceeded) -> dict[str, Any]:
    turn: dict[str, Any] = {"say": event.message.content}
    if event.message.tool_calls:
        turn["callTools"] = [
            {"id": call.id, "name": call.name, "args": call.arguments or {}}
            for call in event.message.tool_calls
        ]
    return turn | {"usage": msgspec.to_builtins(event.usage), "stopReason": event.stop_reason}


def _out_of_time(file: RunFile) -> Phase | None:
    """Return what was under way when the time of the run was up."""
    last = file.entries[-1]
    late = isinstance(last.event, BudgetExceeded) and last.event.error.code == "budget.wall_clock"
    return last.from_phase if late else None


def _beyond(file: RunFile) -> int:
    """Return a wait that is not over before the time is up."""
    return (file.config.budget.max_wall_clock_ms or 0) + 1


def _hanging_turn(file: RunFile) -> Iterable[dict[str, Any]]:
    if _out_of_time(file) is Phase.MODEL:
        yield {"say": "", "waitMs": _beyond(file)}


def _results(file: RunFile, ledger: RunLedger) -> Iterable[RecordedResult]:
    """Yield what the calls gave, those of a batch that was cut off too, and what never came back."""
    recorded = [
        msgspec.convert(entry.data["result"], ToolExecution)
        for entry in ledger.entries()
        if entry.kind == "fact.tool_result"
    ]
    yield from map(_result, recorded)
    if _out_of_time(file) is Phase.TOOLS:
        answered = {execution.call.id for execution in recorded}
        asked = [entry.event for entry in file.entries if isinstance(entry.event, ModelSucceeded)][-1]
        for call in asked.message.tool_calls:
            if call.id not in answered:
                yield RecordedResult(name=call.name, args=call.arguments, wait_ms=_beyond(file))


def _result(execution: ToolExecution) -> RecordedResult:
    return RecordedResult(
        name=execution.call.name,
        args=execution.call.arguments,
        content=execution.content,
        error=execution.error,
        attempts=tuple(attempt.code for attempt in execution.attempts_log),
        wait_ms=max(0, execution.duration_ms - sum(attempt.waited_ms for attempt in execution.attempts_log)),
    )


def _windows(events: Iterable[Event]) -> Iterable[Window]:
    for event in events:
        if isinstance(event, SummaryRecorded):
            yield Window(summary=event.text, usage=event.usage)
        elif isinstance(event, ContextAssembled):
            context = event.context
            yield Window(
                tokens=context.tokens, report=context.report, max_output_tokens=context.max_output_tokens
            )


# ---------------------------------------------------------------------------------------- loops


def _of_loop(entries: Sequence[Entry]) -> dict[str, Any]:
    opened = entries[0].data
    started = [entry.data for entry in entries if entry.kind == "fact.tool_started"]
    calls = {data["step"]: data["call"] for data in started}
    checks = tuple(entry.data["report"] for entry in entries if entry.kind == "fact.checks")
    return {
        "goal": str((opened.get("labels") or {}).get("goal", "")),
        "config": {name: opened["config"][name] for name in LIMITS if name in opened["config"]},
        "script": tuple(_calls(entries, "agent")),
        "evaluator": tuple(_calls(entries, "evaluator")),
        "tools": {data["call"]["name"]: data["read_only"] for data in started},
        "results": tuple(
            RecordedResult(
                name=result["name"], args=calls.get(entry.data["step"], {}).get("arguments"), frame=result
            )
            for entry in entries
            if entry.kind == "fact.tool_result" and entry.data["step"] in calls
            for result in (entry.data["result"],)
        ),
        "checks": checks if opened["config"].get("has_checks") else None,
    }


def _calls(entries: Sequence[Entry], role: str) -> Iterable[dict[str, Any]]:
    """Yield the model calls of a role; one that asked for tools goes on with the next."""
    open_call: dict[str, Any] = {"say": ""}
    for entry in entries:
        if entry.kind not in ("fact.frames", "fact.turn_ended") or entry.data["role"] != role:
            continue
        for kind, content in entry.data.get("frames", ()):
            if open_call.get("callTools") and kind != "TOOL_CALL":
                yield open_call
                open_call = {"say": ""}
            _take(open_call, kind, content)
        if entry.kind == "fact.turn_ended":
            if open_call.get("callTools"):
                yield open_call
                open_call = {"say": ""}
            error = entry.data.get("error")
            yield open_call if error is None else {"failWith": _failure(error)}
            open_call = {"say": ""}


def _take(call: dict[str, Any], kind: str, content: Mapping[str, Any]) -> None:
    if kind == "TEXT":
        call["say"] += content.get("text", "")
    elif kind == "TOOL_CALL":
        asked = {"name": content["name"], "args": content.get("arguments") or {}}
        call.setdefault("callTools", []).append(asked)
    elif kind == "USAGE":
        call["usage"] = dict(content)


def _failure(error: Mapping[str, Any]) -> dict[str, Any]:
    message = str(error.get("message") or error)
    return {"class": error.get("class", "fatal"), "code": error.get("code", "loop.error"), "message": message}
