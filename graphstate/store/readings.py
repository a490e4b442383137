"""What a program may put in the place of clock and chance, checked at every reading.

A reading that is no number would be written as NULL, or would break ids and scores much later.
"""

from __future__ import annotations

from collections.abc import Callable

from graphstate.errors import Misuse, shown

__all__ = ("MAX_TIME_MS", "checked_clock", "checked_random")

#: The last millisecond, before and after the epoch, that JSON readers everywhere keep exactly.
MAX_TIME_MS = 2**53


def checked_clock(now: Callable[[], int]) -> Callable[[], int]:
    """Return the clock; a reading that is no whole number in range raises Misuse."""

    def read() -> int:
        at = now()
        if type(at) is not int or not -MAX_TIME_MS <= at <= MAX_TIME_MS:
            raise Misuse(f"now() must return whole milliseconds since the epoch, not {shown(at)}")
        return at

    return read


def checked_random(rand: Callable[[], float]) -> Callable[[], float]:
    """Return the source; a draw outside [0, 1) raises Misuse."""

    def draw() -> float:
        value = rand()
        if type(value) not in (float, int) or not 0 <= value < 1:
            raise Misuse(f"rand() must return a number from 0 to below 1, not {shown(value)}")
        return value

    return draw
