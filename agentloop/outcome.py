"""What a port answers: `Ok` with a value, or `Err` with an error a machine can route on.

Whatever decides how a run goes on is such a value. Exceptions mean that the program is wrong,
or carry an error value through a function that cannot return one (`ClassifiedError`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import anyio
import msgspec

from agentloop.errors import ClassifiedError, ErrorClass, ErrorValue, InvariantViolation

__all__ = (
    "REMEDIES",
    "Err",
    "Ok",
    "Remedy",
    "Result",
    "budget_exceeded",
    "cancelled",
    "correctable",
    "expect",
    "fail",
    "fatal",
    "is_err",
    "is_ok",
    "map_ok",
    "to_error",
    "transient",
)

_T = TypeVar("_T")
_U = TypeVar("_U")
_T_co = TypeVar("_T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Ok(Generic[_T_co]):
    """It went well."""

    value: _T_co

    @property
    def ok(self) -> Literal[True]:
        return True


@dataclass(frozen=True, slots=True)
class Err:
    """It did not."""

    error: ErrorValue

    @property
    def ok(self) -> Literal[False]:
        return False


Result: TypeAlias = Ok[_T] | Err


def is_ok(outcome: Result[Any]) -> bool:
    """Return whether it went well."""
    return isinstance(outcome, Ok)


def is_err(outcome: Result[Any]) -> bool:
    """Return whether it did not."""
    return isinstance(outcome, Err)


def map_ok(outcome: Result[_T], change: Callable[[_T], _U]) -> Result[_U]:
    """Return the outcome with its value changed; an error stays as it is."""
    return Ok(change(outcome.value)) if isinstance(outcome, Ok) else outcome


def expect(outcome: Result[_T]) -> _T:
    """Return the value.

    Raises:
        ClassifiedError: There is none; carries the error.
    """
    if isinstance(outcome, Err):
        raise ClassifiedError(outcome.error)
    return outcome.value


# ------------------------------------------------------------------------------ error values

Remedy: TypeAlias = Literal["retry", "reprompt", "abort", "halt"]

#: Each class has one remedy: who can do something about it says what is done.
REMEDIES: Final[Mapping[ErrorClass, Remedy]] = MappingProxyType(
    {
        "transient": "retry",
        "correctable": "reprompt",
        "fatal": "abort",
        "budget": "halt",
        "cancelled": "abort",
    }
)

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def fail(
    error_class: ErrorClass,
    code: str,
    message: str,
    *,
    detail: Mapping[str, Any] = _NOTHING,
    source: str | None = None,
) -> ErrorValue:
    """Return an error of that class."""
    return ErrorValue(error_class=error_class, code=code, message=message, detail=dict(detail), source=source)


def transient(
    code: str, message: str, *, detail: Mapping[str, Any] = _NOTHING, source: str | None = None
) -> ErrorValue:
    """Return an error that may be gone when the same is tried again."""
    return fail("transient", code, message, detail=detail, source=source)


def correctable(
    code: str, message: str, *, detail: Mapping[str, Any] = _NOTHING, source: str | None = None
) -> ErrorValue:
    """Return an error that the model can put right when it reads it."""
    return fail("correctable", code, message, detail=detail, source=source)


def fatal(
    code: str, message: str, *, detail: Mapping[str, Any] = _NOTHING, source: str | None = None
) -> ErrorValue:
    """Return an error that nobody in this run can do anything about."""
    return fail("fatal", code, message, detail=detail, source=source)


def budget_exceeded(
    code: str, message: str, *, detail: Mapping[str, Any] = _NOTHING, source: str | None = None
) -> ErrorValue:
    """Return the error of a declared limit that was reached."""
    return fail("budget", code, message, detail=detail, source=source)


def cancelled(message: str) -> ErrorValue:
    """Return the error of a run that its caller stopped."""
    return fail("cancelled", "run.cancelled", message)


def to_error(thrown: object, *, source: str | None = None) -> ErrorValue:
    """Return what was raised as an error value. Never raises itself.

    A carrier gives what it carries, with the source filled in only if it has none. Whatever
    else was raised is fatal: `InvariantViolation` as ``invariant.violated``, an exception as
    ``unknown.<its name>``, anything else as ``unknown.throw``.

    Raises:
        BaseException: ``thrown`` itself, if it is a cancellation: that is no failure.
    """
    if isinstance(thrown, BaseException) and _is_cancellation(thrown):
        raise thrown
    if isinstance(thrown, ClassifiedError):
        error = thrown.error
        return error if error.source is not None else msgspec.structs.replace(error, source=source)
    if isinstance(thrown, InvariantViolation):
        return fatal("invariant.violated", _text(thrown), detail=thrown.detail, source=source)
    if isinstance(thrown, BaseException):
        name = "error" if type(thrown) is Exception else type(thrown).__name__
        return fatal(f"unknown.{name}", _text(thrown) or type(thrown).__name__, source=source)
    return fatal("unknown.throw", _text(thrown), source=source)


def _is_cancellation(thrown: BaseException) -> bool:
    try:
        return isinstance(thrown, anyio.get_cancelled_exc_class())
    except RuntimeError:
        return False  # outside an event loop nothing is cancelled


def _text(thrown: object) -> str:
    try:
        return str(thrown)[:2_000]
    except Exception as broken:  # a text that raises is still only a failure
        return f"{type(thrown).__name__} (its text raised {type(broken).__name__})"
