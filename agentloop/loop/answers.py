"""What a callback gave back: at once, or as something to wait for."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from types import NoneType
from typing import Any, Final, TypeGuard

from agentloop.frames import Frame
from agentloop.messages import CheckReport, EvaluatorResult

__all__ = ("must_wait",)

#: What callbacks nearly always give; asking any value whether it is awaitable takes ten times longer.
_AT_ONCE: Final = frozenset(
    {str, dict, list, tuple, bool, int, NoneType, Frame, CheckReport, EvaluatorResult}
)


def must_wait(answer: Any) -> TypeGuard[Awaitable[Any]]:
    """Return whether the answer is still to be awaited."""
    return type(answer) not in _AT_ONCE and inspect.isawaitable(answer)
