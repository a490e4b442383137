"""How a run comes apart: what is fatal in which phase, and what is shown of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import anyio

from agentloop.frames import clean

__all__ = ("MESSAGE_LIMIT", "Failed", "Stopped", "error_content", "message_of", "signal_of", "unwrap")

MESSAGE_LIMIT: Final = 2_000


class Failed(Exception):
    """Something raised that the run cannot do without; carries the phase and the original."""

    def __init__(self, phase: str, error: BaseException) -> None:
        super().__init__(phase)
        self.phase, self.error = phase, unwrap(error)


class Stopped(Exception):
    """The run was aborted; unwinds a driver to where it winds down."""


def unwrap(error: BaseException) -> BaseException:
    """Return the one real error of an exception group, at any depth; a real group stays one."""
    while isinstance(error, BaseExceptionGroup):
        cancelled = anyio.get_cancelled_exc_class()
        members = [member for member in error.exceptions if not isinstance(member, cancelled)]
        if len(members) != 1:
            break
        error = members[0]
    return error


def signal_of(error: BaseException) -> Failed | Stopped | None:
    """Return the run's own signal in an error or in a group of calls that overlapped, if there is one."""
    if isinstance(error, (Failed, Stopped)):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    signals = [signal for member in error.exceptions if (signal := signal_of(member)) is not None]
    return next((signal for signal in signals if isinstance(signal, Failed)), signals[0] if signals else None)


def message_of(error: BaseException) -> str:
    """Return the error's text, repaired and cut; also of one whose text raises."""
    try:
        return cast(str, clean(str(error)))[:MESSAGE_LIMIT]
    except Exception as broken:
        return f"(the text of this {type(error).__name__} raised {type(broken).__name__})"


def error_content(phase: str, error: BaseException, *, fatal: bool, iteration: int) -> Mapping[str, Any]:
    """Return the content of an ERROR frame."""
    return {
        "phase": phase,
        "error_type": type(error).__name__,
        "message": message_of(error),
        "fatal": fatal,
        "iteration": iteration,
    }
