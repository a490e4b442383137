"""Where a call is made from: the answer must not depend on how deep its caller stands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ("CALLERS", "Where", "from_frame_900", "shallow")

T = TypeVar("T")


class Where(Protocol):
    """Calls something from a certain depth of the stack."""

    def __call__(self, call: Callable[[], T], /) -> T: ...


def shallow(call: Callable[[], T], /) -> T:
    return call()


def from_frame_900(call: Callable[[], T], /) -> T:
    depth = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back

    def descend(left: int) -> T:
        return descend(left - 1) if left else call()

    return descend(900 - depth)


CALLERS: tuple[Where, ...] = (shallow, from_frame_900)
