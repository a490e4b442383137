"""Loops in evals: how a scripted loop is run, and its record as graders see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from agentloop._canonical import Json, encode
from agentloop.determinism import ManualClock
from agentloop.errors import ErrorValue, TaskError
from agentloop.evals.views import RunView
from agentloop.factories import create_agent_loop
from agentloop.ledger.reader import Entry, RunLedger
from agentloop.loop.record import DRIVER
from agentloop.messages import NodeStatus
from agentloop.orchestrator.ledger import ToolUse
from agentloop.orchestrator.state import Outcome, Usage
from agentloop.ports import LedgerStore
from agentloop.scripted import ScriptedAdapter, read_script, script_turns
from agentloop.tools import Tool
from agentloop.verdict import create_default_evaluator_parser

__all__ = ("play_loop", "view_loop")

#: Why a loop ended without success, by the reason it gives: class and code.
_FAILURES: Final[Mapping[str, tuple[Any, str]]] = {
    "aborted": ("cancelled", "run.cancelled"),
    "max_iterations": ("budget", "budget.iterations"),
    "error": ("fatal", "loop.error"),
}
_FAILURE: Final = ("correctable", "loop.failure")


def _prompt(*about: object) -> str:
    return "scripted"


def _adapter(script: Sequence[Mapping[str, Any]]) -> ScriptedAdapter:
    return ScriptedAdapter(script_turns(read_script(script)))


async def play_loop(
    run_id: str,
    store: LedgerStore,
    *,
    agent: Sequence[Mapping[str, Any]],
    evaluator: Sequence[Mapping[str, Any]],
    tools: Iterable[Tool],
    checks: Sequence[str] | None,
    judge: Callable[..., Any] | None,
    options: Mapping[str, Any],
    labels: Mapping[str, Json],
) -> RunView:
    """Run a loop on two scripts and return its view.

    Args:
        run_id: Its id.
        store: Where it is recorded.
        agent, evaluator: What the two models say.
        tools: What the agent may call.
        checks: What is asked before the evaluator.
        judge: Answers the checks; by default they are evaluated.
        options: Limits, as of `create_agent_loop`.
        labels: Kept with the record.
    """
    clock = ManualClock()
    loop = create_agent_loop(
        agent_adapter=_adapter(agent),
        evaluator_adapter=_adapter(evaluator),
        build_agent_prompt=_prompt,
        build_evaluator_prompt=_prompt,
        parse_evaluator_output=create_default_evaluator_parser(),
        checks_list=checks,
        deterministic_checks=judge,
        tool_adapters={tool.name: tool for tool in tools},
        ledger=store,
        clock=clock,
        run_id=run_id,
        labels=dict(labels),
        **options,
    )
    await loop.run()
    return view_loop(store, run_id)


def view_loop(store: LedgerStore, run: str) -> RunView:
    """Return the view of a loop's record.

    Raises:
        TaskError: It is no loop, or has not ended.
        RunNotFound, DamagedLedger, UnsupportedVersion: As `RunLedger.entries`.
    """
    entries = [*RunLedger(store, run).entries()]
    driver, last = entries[0].data.get("driver"), entries[-1]
    if driver != DRIVER:
        raise TaskError(
            f"run {run!r} was driven by {driver!r}: a case is made of one loop or one orchestrated run"
        )
    if last.kind != "run.closed":
        raise TaskError(f"run {run!r} has not ended")
    return RunView(
        run,
        store=store,
        outcome=_outcome(last.data, entries),
        usage=_usage(last.data, entries),
        phase_trace=_trace(entries),
        tool_calls=_tool_uses(entries),
        story=lambda: encode([[entry.kind, entry.data] for entry in entries]),
    )


def _outcome(closed: Mapping[str, Any], entries: Sequence[Entry]) -> Outcome:
    if closed["status"] == NodeStatus.SUCCESS.value:
        return Outcome(status="completed", output=_agent_text(entries))
    error_class, code = _FAILURES.get(closed["reason"], _FAILURE)
    message = str(closed.get("evidence") or closed["reason"])
    error = ErrorValue(error_class=error_class, code=code, message=message)
    return Outcome(status="halted" if error_class == "budget" else "failed", error=error)


def _agent_text(entries: Sequence[Entry]) -> str:
    """Return what the agent said in its last turn."""
    turns = [entry.data["turn"] for entry in entries if _is_turn(entry, "agent")]
    return "".join(
        content.get("text", "")
        for entry in entries
        if entry.kind in ("fact.frames", "fact.turn_ended") and turns and entry.data["turn"] == turns[-1]
        for kind, content in entry.data.get("frames", ())
        if kind == "TEXT"
    )


def _is_turn(entry: Entry, role: str) -> bool:
    return entry.kind == "fact.turn_ended" and entry.data["role"] == role


def _usage(closed: Mapping[str, Any], entries: Sequence[Entry]) -> Usage:
    """Return the loop's counters under the names that runs of both kinds have."""
    counted = closed["usage"]
    prompt = counted.get("input_tokens", counted.get("prompt_tokens", 0))
    completion = counted.get("output_tokens", counted.get("completion_tokens", 0))
    turns = sum(entry.kind == "fact.turn_ended" for entry in entries)
    return Usage(
        model_calls=turns,
        model_invocations=turns,
        tool_calls=sum(entry.kind == "fact.tool_result" for entry in entries),
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        corrective_turns=closed["retry_count"],
    )


def _trace(entries: Sequence[Entry]) -> list[str]:
    """Return the steps from phase to phase; writing the outcome to a memory is none of them."""
    trace: list[str] = []
    before = ""
    for entry in entries:
        if entry.kind != "step":
            continue
        came, went = entry.data["from"], entry.data["to"]
        if went == "recording":
            before = came
        else:
            trace.append(f"{before if came == 'recording' else came}->{went}")
    return trace


def _tool_uses(entries: Sequence[Entry]) -> list[ToolUse]:
    arguments = {
        entry.data["step"]: entry.data["call"].get("arguments")
        for entry in entries
        if entry.kind == "fact.tool_started"
    }
    return [
        ToolUse(
            name=result["name"],
            args=arguments.get(entry.data["step"]),
            ok=result["ok"],
            content=result["output"]
            if isinstance(result["output"], str)
            else encode(result["output"]).decode(),
            error_code=result.get("error"),
        )
        for entry in entries
        if entry.kind == "fact.tool_result"
        for result in (entry.data["result"],)
    ]
