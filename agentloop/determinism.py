"""Time, ids and randomness, as things that are handed in.

Nothing else in the package reads a clock, draws a random number or makes an id, so a run
with injected ones is the same run every time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

import anyio

from agentloop._numbers import MAX_COUNT, check_count

__all__ = ("Clock", "CounterIds", "IdFactory", "ManualClock", "RunIds", "SystemClock")


class Clock(Protocol):
    """Where time comes from. All readings and durations are integer milliseconds."""

    def now_ms(self) -> int:
        """Return the wall-clock time since 1970. It may jump; never order by it."""

    def monotonic_ms(self) -> int:
        """Return a time that never goes back, for durations and deadlines."""

    async def sleep_ms(self, duration_ms: int) -> None:
        """Return after that long; a negative duration is zero."""

    async def sleep_until(self, monotonic_ms: int) -> None:
        """Return when `monotonic_ms` has reached that value."""


class SystemClock:
    """The real time."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    async def sleep_ms(self, duration_ms: int) -> None:
        await anyio.sleep(max(0, duration_ms) / 1000)

    async def sleep_until(self, monotonic_ms: int) -> None:
        await self.sleep_ms(monotonic_ms - self.monotonic_ms())


class ManualClock:
    """A clock that stands still until it is moved; every reading is the same until then."""

    def __init__(self, start_ms: int = 0) -> None:
        check_count("start_ms", start_ms, -MAX_COUNT)
        self._now_ms = start_ms
        self._moved = anyio.Event()

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, duration_ms: int) -> None:
        """Move time forward and wake whoever was sleeping for it."""
        self._now_ms += max(0, duration_ms)
        self._moved.set()
        self._moved = anyio.Event()

    async def sleep_ms(self, duration_ms: int) -> None:
        await self.sleep_until(self._now_ms + max(0, duration_ms))

    async def sleep_until(self, monotonic_ms: int) -> None:
        while self._now_ms < monotonic_ms:
            await self._moved.wait()


class IdFactory(Protocol):
    """Makes ids that are unique within one run."""

    def __call__(self) -> str: ...


class CounterIds:
    """``c1``, ``c2``, ``c3`` and so on."""

    __slots__ = ("_count", "_prefix")

    def __init__(self, prefix: str = "c") -> None:
        self._prefix, self._count = prefix, 0

    def __call__(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def _base32(value: int, length: int) -> str:
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))


class RunIds:
    """Run ids of 26 characters that sort by time of creation: 48 bits of clock, 80 of randomness.

    Two ids of one factory within one millisecond still sort in the order they were drawn.
    """

    def __init__(
        self, clock: Clock | None = None, *, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._clock = clock or SystemClock()
        self._random_bytes = random_bytes
        self._last_ms = -1
        self._last_tail = 0

    def __call__(self) -> str:
        now_ms = max(self._clock.now_ms(), self._last_ms)
        if now_ms == self._last_ms:
            self._last_tail += 1
        else:
            # The top bit stays free so that counting up within the millisecond cannot overflow.
            self._last_tail = int.from_bytes(self._random_bytes(10), "big") >> 1
        self._last_ms = now_ms
        return _base32(now_ms, 10) + _base32(self._last_tail, 16)
