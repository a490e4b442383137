"""How much work something is, without a clock: what is counted does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

__all__ = ("HANG_S", "calls_of")

#: Seconds of CPU beyond which something hangs, on any machine: for work inside one call of C
#: code, which nothing can count. What must never be quadratic takes minutes if it is.
HANG_S: Final = 30


def calls_of(call: Callable[[], object]) -> int:
    """Call it, and return how many calls it made in this thread, of functions of Python and of C."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
    return calls
