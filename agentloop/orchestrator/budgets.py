"""The limits of a run, each checked where its counter moves.

A limit is an error value of class ``budget``; whoever gets one halts the run with it.
"""

from __future__ import annotations

import msgspec

from agentloop.errors import ErrorValue
from agentloop.orchestrator.config import RunConfig
from agentloop.orchestrator.state import RunState, Usage
from agentloop.outcome import budget_exceeded
from agentloop.ports import TokenUsage

__all__ = (
    "before_turn",
    "invocations_used_up",
    "offers_tools",
    "output_room",
    "spent",
    "too_many_calls",
    "wall_clock",
    "window_too_dear",
)


def before_turn(state: RunState, config: RunConfig) -> ErrorValue | None:
    """Return the limit that stands against another turn, the first in the order of the docs."""
    budget, usage = config.budget, state.usage
    if budget.max_steps is not None and state.step >= budget.max_steps:
        return _reached("steps", "model calls", state.step, budget.max_steps)
    if budget.max_total_tokens is not None and usage.total_tokens >= budget.max_total_tokens:
        return _reached("tokens", "tokens", usage.total_tokens, budget.max_total_tokens, "totalTokens")
    late = wall_clock(state.now - state.started_at, config)
    if late is not None:
        return late
    most = budget.max_consecutive_failures
    if most is not None and state.consecutive_failures >= most:
        name = "consecutiveFailures"
        return _reached(
            "consecutive_failures", "failed turns in a row", state.consecutive_failures, most, name
        )
    return invocations_used_up(usage, config)


def _reached(code: str, what: str, count: int, limit: int, name: str | None = None) -> ErrorValue:
    detail = {name or code: count, "limit": limit}
    return budget_exceeded(f"budget.{code}", f"{count} {what} of at most {limit}", detail=detail)


def invocations_used_up(usage: Usage, config: RunConfig) -> ErrorValue | None:
    """Return the limit of model calls, failed ones included, if it is reached."""
    most = config.budget.model_invocations
    if most is None or usage.model_invocations < most:
        return None
    name = "modelInvocations"
    what = "model calls, failed ones included,"
    return _reached("model_invocations", what, usage.model_invocations, most, name)


def wall_clock(elapsed_ms: int, config: RunConfig) -> ErrorValue | None:
    """Return the limit of time, if it is reached."""
    most = config.budget.max_wall_clock_ms
    if most is None or elapsed_ms < most:
        return None
    return _reached("wall_clock", "milliseconds", elapsed_ms, most, "elapsedMs")


def offers_tools(usage: Usage, config: RunConfig) -> bool:
    """Return whether another tool call may be made."""
    most = config.budget.max_tool_calls
    return most is None or usage.tool_calls < most


def too_many_calls(usage: Usage, requested: int, config: RunConfig) -> ErrorValue | None:
    """Return the limit of tool calls, if that many more go beyond it."""
    most = config.budget.max_tool_calls
    if most is None or usage.tool_calls + requested <= most:
        return None
    detail = {"requested": requested, "spent": usage.tool_calls, "limit": most}
    text = f"{requested} tool calls after {usage.tool_calls}, at most {most} are allowed"
    return budget_exceeded("budget.tool_calls", text, detail=detail)


def output_room(state: RunState, tokens: int, config: RunConfig) -> int | None:
    """Return the tokens left for an answer after a window of that size; None without a limit."""
    most = config.budget.max_total_tokens
    return None if most is None else most - state.usage.total_tokens - tokens


def window_too_dear(state: RunState, tokens: int, config: RunConfig) -> ErrorValue | None:
    """Return the limit of tokens, if the window leaves too few for an answer."""
    room, limit = output_room(state, tokens, config), config.budget.max_total_tokens
    if room is None or room >= config.budget.min_output_tokens:
        return None
    spent_already = state.usage.total_tokens
    detail = {"assembled": tokens, "spent": spent_already, "limit": limit}
    text = f"a window of {tokens} tokens after {spent_already} leaves {room} of {limit} for the answer"
    return budget_exceeded("budget.tokens", text, detail=detail)


def spent(usage: Usage, more: TokenUsage | None, config: RunConfig) -> Usage:
    """Return the usage with the tokens of one more model call, answered or not."""
    invocations = usage.model_invocations + 1
    if more is None:
        return msgspec.structs.replace(usage, model_invocations=invocations)
    return paid(msgspec.structs.replace(usage, model_invocations=invocations), more, config)


def paid(usage: Usage, more: TokenUsage, config: RunConfig) -> Usage:
    """Return the usage with these tokens; what goes beyond the limit is written down."""
    total = usage.total_tokens + more.prompt_tokens + more.completion_tokens
    most = config.budget.max_total_tokens
    return msgspec.structs.replace(
        usage,
        prompt_tokens=usage.prompt_tokens + more.prompt_tokens,
        completion_tokens=usage.completion_tokens + more.completion_tokens,
        total_tokens=total,
        budget_overrun=0 if most is None else max(0, total - most),
    )
