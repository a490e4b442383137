"""Tools that hand a part of the work to a run of its own, within the budget of the one that calls.

The inner run has its own record, named after the call (``<run>/<step>``) in the same store; what
it spent is spent of the outer budget, and the outer record names its last entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from agentloop._canonical import Json
from agentloop._numbers import check_share
from agentloop.errors import AgentLoopConfigError, InvariantViolation, RunNotFound
from agentloop.orchestrator.config import Budget, RunConfig, read_config
from agentloop.orchestrator.events import ChildRun
from agentloop.orchestrator.options import Deps, Finalizer, read_options
from agentloop.orchestrator.registry import Allowance, ToolRegistry, ToolRun
from agentloop.orchestrator.resumption import read_standing
from agentloop.orchestrator.runtime import Orchestrator
from agentloop.orchestrator.state import RunState
from agentloop.outcome import Err, Ok, Result, correctable
from agentloop.ports import Assembler, Provider, TokenUsage
from agentloop.tools import Tool

__all__ = ("delegate",)

_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "goal": {"type": "string", "minLength": 1, "description": "what to do, complete in itself"}
    },
    "required": ["goal"],
    "additionalProperties": False,
}
#: What an inner run may take to end after its own limit of time, before its call is cut off.
_GRACE_MS: Final = 5_000

MakesProvider: TypeAlias = Provider | Callable[[], Provider]


def delegate(
    name: str,
    *,
    provider: MakesProvider,
    description: str,
    tools: Iterable[Tool] = (),
    assembler: Assembler | None = None,
    finalizer: Finalizer | None = None,
    config: RunConfig | Mapping[str, Any] | None = None,
    share: float = 0.5,
) -> Tool:
    """Return a tool whose calls are runs of a model with tools of their own.

    Its only argument is the ``goal``, its value the run's output. A run that is not completed is a
    correctable failure, which the calling model reads. Only runs of the orchestrator can call it;
    one that goes on after a crash goes on with the inner run too.

    Args:
        name: What the model calls it.
        provider: The model, or what makes one for each run.
        description: What the model is told it is good for.
        tools: What the inner model may call; other delegates too.
        assembler: Makes the windows of the inner run.
        finalizer: Turns its draft into the output.
        config: Its limits. It gets no more than these, and no more than what is left.
        share: 0..1: of the tokens left to the calling run, so many at most.

    Raises:
        AgentLoopConfigError: The config or the share is out of range.
        InvariantViolation: A tool is malformed.
    """
    check_share("share", share)
    if not share:
        raise AgentLoopConfigError("config.invalid: a share of 0 leaves nothing to delegate")
    given, host = read_config(config), ToolRegistry(tools)
    parts: dict[str, Any] = {"tools": host, "assembler": assembler, "finalizer": finalizer}

    # The key is not looked at: the id of the call is in the inner run's, which is found again by it.
    async def work(goal: str, *, ctx: ToolRun | None = None, key: str = "") -> Result[Json]:
        allowed = getattr(ctx, "allowance", None)
        if ctx is None or allowed is None:
            raise InvariantViolation(f"{name} delegates, which only runs of the orchestrator can do")
        budget = _carved(given.budget, allowed, share)
        if budget is None:
            return Err(
                correctable("delegate.no_budget", f"too little is left of the budget to delegate to {name}")
            )
        made = provider if hasattr(provider, "generate") else provider()
        options = {**parts, "provider": made, "redactor": allowed.redactor, "durability": allowed.durability}
        run = _begun(goal, msgspec.structs.replace(given, budget=budget), options, ctx, allowed)
        try:
            result = await run.run()
        finally:
            ctx.children.append(_child(run))
        return _answer(name, result.state)

    most_ms = given.budget.max_wall_clock_ms
    return Tool(
        name=name,
        description=description,
        schema=_SCHEMA,
        handler=work,
        timeout_ms=None if most_ms is None else most_ms + _GRACE_MS,
        accepts_key=True,
    )


def _carved(own: Budget, allowed: Allowance, share: float) -> Budget | None:
    """Return the limits of an inner run; None if nothing is left for one."""
    tokens = None if allowed.tokens is None else int(allowed.tokens * share)
    left = {
        "max_total_tokens": _least(own.max_total_tokens, tokens),
        "max_tool_calls": _least(own.max_tool_calls, allowed.tool_calls),
        "max_wall_clock_ms": _least(own.max_wall_clock_ms, allowed.time_ms),
    }
    if any(
        left[limit] is not None and left[limit] < 1 for limit in ("max_total_tokens", "max_wall_clock_ms")
    ):
        return None
    return msgspec.structs.replace(own, **left)


def _least(*limits: int | None) -> Any:
    return min((limit for limit in limits if limit is not None), default=None)


def _begun(
    goal: str, config: RunConfig, options: Mapping[str, Any], ctx: ToolRun, allowed: Allowance
) -> Orchestrator:
    """Return the run of a call: a new one, or the one that an interrupted call had begun."""
    run_id, deps = f"{ctx.run_id}/{ctx.step_id}", Deps(clock=ctx.clock)
    try:
        given, fold, head = read_standing(allowed.ledger, run_id, deps=deps, **options)
    except RunNotFound:
        told = read_options(
            goal, run_id=run_id, ledger=allowed.ledger, config=config, seed=run_id, deps=deps, **options
        )
        return Orchestrator(told)
    return Orchestrator(given, standing=fold, head=head)


def _child(run: Orchestrator) -> ChildRun:
    seq, digest = run.head
    usage = run.state.usage
    return ChildRun(
        run=run.run_id,
        entries=seq,
        hash=digest.hex(),
        usage=TokenUsage(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens),
        tool_calls=usage.tool_calls,
    )


def _answer(name: str, state: RunState) -> Result[Json]:
    outcome = state.outcome
    assert outcome is not None
    if outcome.status == "completed":
        return Ok(outcome.output)
    assert outcome.error is not None
    text = f"{name} did not finish, it {outcome.status}: {outcome.error.message}"
    if outcome.partial:
        text += f"\nSo far it had said: {outcome.partial}"
    detail = {"run": state.run_id, "status": outcome.status, "code": outcome.error.code}
    return Err(correctable(f"delegate.{outcome.status}", text, detail=detail))
