"""`Ok` and `Fail`: what a verb answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, NoReturn, TypeAlias, TypeVar

from msgspec import Struct, field

from graphstate.errors import HINTS, ErrorCode, VerbFailed

__all__ = ("Fail", "Ok", "Result", "is_err", "is_ok")

T = TypeVar("T")


class Ok(Struct, Generic[T], frozen=True):
    """The verb did it."""

    value: T
    #: True if the `cause` was seen before and this is the answer given then
    repeated: bool = False

    @property
    def ok(self) -> Literal[True]:
        return True

    def unwrap(self) -> T:
        """Return the value."""
        return self.value


class Fail(Struct, frozen=True):
    """The verb did not do it, and nothing changed."""

    code: ErrorCode
    message: str
    #: machine-readable parts, such as the current version or the path of a cycle
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> Literal[False]:
        return False

    @property
    def hint(self) -> str:
        """What to do next."""
        return str(self.details.get("hint", HINTS[self.code]))

    def to_json(self) -> dict[str, Any]:
        """Return code, message, hint and, if there are any, details as JSON."""
        shown = {"code": str(self.code), "message": self.message, "hint": self.hint}
        return {**shown, "details": dict(self.details)} if self.details else shown

    def unwrap(self) -> NoReturn:
        """Raise the failure.

        Raises:
            VerbFailed: Always, with the same code, message and details.
        """
        raise VerbFailed(self.code, self.message, self.details)


#: What every verb answers.
Result: TypeAlias = Ok[T] | Fail


def is_ok(result: Result[Any]) -> bool:
    """Say whether the verb did it."""
    return result.ok


def is_err(result: Result[Any]) -> bool:
    """Say whether the verb failed."""
    return not result.ok
