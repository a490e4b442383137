"""What bounds a run: budgets, retries, deadlines. Checked once, when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from agentloop._numbers import check_count
from agentloop.errors import AgentLoopConfigError

__all__ = ("Budget", "RetryPolicy", "RunConfig", "read_config")


def _check(owner: msgspec.Struct, name: str, least: int, *, optional: bool = True) -> None:
    try:
        check_count(name, getattr(owner, name), least, optional=optional)
    except (TypeError, ValueError) as error:
        raise AgentLoopConfigError(f"config.invalid: {error}") from None


class Budget(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The limits of a run. None takes a limit away; everything else is a finite whole number.

    Raises:
        AgentLoopConfigError: ``config.invalid``, names the limit.
    """

    #: Completed model calls.
    max_steps: int | None = 12
    #: Executed tool calls; 0 offers no tools.
    max_tool_calls: int | None = 48
    #: Prompt and completion tokens, as the provider reports them.
    max_total_tokens: int | None = 200_000
    #: Milliseconds from the start to the end of the run.
    max_wall_clock_ms: int | None = 120_000
    #: Turns in a row that gave nothing but errors.
    max_consecutive_failures: int | None = 3
    #: Attempts at one model call.
    max_model_attempts: int = 3
    #: Attempts at one call of a tool that only reads; others are made once.
    max_tool_attempts: int = 2
    #: Model calls, failed ones included; None means three for each step.
    max_model_invocations: int | None = None
    #: A window that leaves fewer tokens for the answer is not sent.
    min_output_tokens: int = 1

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_total_tokens", "max_wall_clock_ms", "max_consecutive_failures"):
            _check(self, name, 1)
        _check(self, "max_tool_calls", 0)
        _check(self, "max_model_invocations", 1)
        for name in ("max_model_attempts", "max_tool_attempts"):
            _check(self, name, 0, optional=False)
        _check(self, "min_output_tokens", 1, optional=False)

    @property
    def model_invocations(self) -> int | None:
        """The limit that holds for model calls, failed ones included."""
        if self.max_model_invocations is not None or self.max_steps is None:
            return self.max_model_invocations
        return 3 * self.max_steps


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How long to wait before something is tried again.

    Raises:
        AgentLoopConfigError: ``config.invalid``, names the number.
    """

    #: Before the second attempt; doubled for each further one.
    base_delay_ms: int = 250
    #: No wait is longer.
    max_delay_ms: int = 20_000
    #: The share by which a wait may be longer or shorter, by chance; below 1.
    jitter: float = 0.25

    def __post_init__(self) -> None:
        _check(self, "base_delay_ms", 0, optional=False)
        _check(self, "max_delay_ms", 0, optional=False)
        jitter: object = self.jitter
        if isinstance(jitter, bool) or not isinstance(jitter, (int, float)) or not 0 <= jitter < 1:
            raise AgentLoopConfigError(f"config.invalid: jitter is from 0 up to below 1, not {jitter!r:.80}")

    def delay_ms(self, attempt: int) -> int:
        """Return the wait after that failed attempt (1, 2, …), before chance."""
        # 2**40 times the smallest base is beyond any sensible limit, and keeps the number small.
        return min(self.max_delay_ms, self.base_delay_ms << min(max(0, attempt - 1), 40))

    def jittered_ms(self, delay_ms: int, chance: float) -> int:
        """Return the wait for a number from 0 to 1; never longer than `max_delay_ms`."""
        spread = delay_ms * self.jitter
        waited = math.floor(delay_ms - spread + chance * spread * 2 + 0.5)
        return max(0, min(self.max_delay_ms, waited))


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Everything that decides how a run goes on, beside what it is given.

    Raises:
        AgentLoopConfigError: ``config.invalid``, names the number.
    """

    budget: Budget = Budget()
    retry: RetryPolicy = RetryPolicy()
    #: Deadline of one model call in milliseconds; the run's own deadline always holds too.
    model_timeout_ms: int | None = 120_000
    #: Deadline of one tool call that has none of its own.
    tool_timeout_ms: int | None = 30_000
    #: Tools that only read and run at the same time, at most.
    max_concurrent_tools: int = 8
    #: Tokens of one tool result that the model is shown, at four characters each.
    max_result_tokens: int | None = 4_000

    def __post_init__(self) -> None:
        for name in ("model_timeout_ms", "tool_timeout_ms", "max_result_tokens"):
            _check(self, name, 1)
        _check(self, "max_concurrent_tools", 1, optional=False)


_NAMES: Final = {
    field.name: field.encode_name
    for form in (RunConfig, Budget, RetryPolicy)
    for field in msgspec.structs.fields(form)
}


def read_config(given: RunConfig | Mapping[str, Any] | None) -> RunConfig:
    """Return the config, merged key by key over the defaults.

    Args:
        given: A mapping may use Python's names or the wire's, as ``{"budget": {"maxSteps": 3}}``.

    Raises:
        AgentLoopConfigError: A key is unknown or a value out of range.
    """
    if given is None:
        return RunConfig()
    if isinstance(given, RunConfig):
        return given
    try:
        return msgspec.convert(_wire(given), RunConfig)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, AgentLoopConfigError):
            raise error.__cause__ from None
        raise AgentLoopConfigError(f"config.invalid: {error}") from None


def _wire(given: Any) -> Any:
    if isinstance(given, (Budget, RetryPolicy)):
        return msgspec.to_builtins(given)
    if not isinstance(given, Mapping):
        return given
    return {_NAMES.get(name, name): _wire(value) for name, value in given.items()}
