"""Time, ids, randomness and digests, as things that are handed in or the same everywhere.

Nothing else in the package reads a clock, draws a random number or makes an id, so a run
with injected ones is the same run every time.
"""

from __future__ import annotations

import heapq
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from typing import Final, Protocol, TypeVar

import anyio
from anyio.lowlevel import RunVar, checkpoint

from agentloop._canonical import Json, NotJson, encode_text
from agentloop._numbers import MAX_COUNT, check_count
from agentloop.errors import InvariantViolation

__all__ = (
    "Clock",
    "CounterIds",
    "IdFactory",
    "ManualClock",
    "Mulberry32",
    "PrefixedIds",
    "Rng",
    "RunIds",
    "SequentialIds",
    "SystemClock",
    "digest",
    "is_json_value",
    "stands_still",
)


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


class _Sleeper:
    __slots__ = ("deadline_ms", "due", "order", "woken")

    def __init__(self, deadline_ms: int, order: int) -> None:
        self.deadline_ms, self.order, self.due = deadline_ms, order, False
        self.woken = anyio.Event()

    def __lt__(self, other: _Sleeper) -> bool:
        return (self.deadline_ms, self.order) < (other.deadline_ms, other.order)


class ManualClock:
    """Virtual time: it stands still while anything can run, and jumps when everything waits.

    Every reading is the same until `advance`, or until each task of the event loop is blocked:
    then time moves to the earliest sleeper's deadline and that one goes on, alone; sleepers of
    the same moment go on one by one in the order in which they fell asleep. Overlapping sleeps
    overlap, and a sleep of a day takes no time. What waits for the outside world counts as
    blocked; hold the clock meanwhile (`held`).
    """

    def __init__(self, start_ms: int = 0) -> None:
        check_count("start_ms", start_ms, -MAX_COUNT)
        self._now_ms = start_ms
        self._sleepers: list[_Sleeper] = []
        self._order = count()
        self._turning = False
        self._holds = 0
        self._released: anyio.Event | None = None

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, duration_ms: int) -> None:
        """Move time forward and wake whoever was sleeping for it."""
        self._now_ms += max(0, duration_ms)
        while self._sleepers and self._sleepers[0].deadline_ms <= self._now_ms:
            self._wake_first()
        self._release()

    def _release(self) -> None:
        if self._released is not None:
            self._released.set()
            self._released = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no time pass by itself while something outside, as a thread, is at work."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self._release()

    async def sleep_ms(self, duration_ms: int) -> None:
        await self.sleep_until(self._now_ms + max(0, duration_ms))

    async def sleep_until(self, monotonic_ms: int) -> None:
        if monotonic_ms <= self._now_ms:
            await checkpoint()
            return
        sleeper = _Sleeper(monotonic_ms, next(self._order))
        heapq.heappush(self._sleepers, sleeper)
        try:
            while not sleeper.due:
                if self._turning:
                    await sleeper.woken.wait()
                    sleeper.woken = anyio.Event()
                else:
                    await self._turn(sleeper)
        finally:
            if not sleeper.due:
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)
            if self._sleepers and not self._turning:
                self._sleepers[0].woken.set()  # somebody has to watch for the next jump

    async def _turn(self, sleeper: _Sleeper) -> None:
        """Move to the earliest deadline once nothing else can run."""
        self._turning = True
        try:
            await _everything_waits()
            while self._holds and not sleeper.due:
                self._released = self._released or anyio.Event()
                await self._released.wait()
                await _everything_waits()
        finally:
            self._turning = False
        if self._sleepers and not sleeper.due:
            self._now_ms = max(self._now_ms, self._sleepers[0].deadline_ms)
            self._wake_first()

    def _wake_first(self) -> None:
        sleeper = heapq.heappop(self._sleepers)
        sleeper.due = True
        sleeper.woken.set()


def stands_still(clock: Clock | None) -> AbstractContextManager[None]:
    """Return a context in which no virtual time passes, however long a thread works; real time does."""
    return clock.held() if isinstance(clock, ManualClock) else nullcontext()


class _Lookout:
    """Finds out that nothing can run, once for all the clocks of an event loop.

    Two clocks that looked each for themselves would take each other for something that runs.
    """

    def __init__(self) -> None:
        self._looking = False
        #: Those who wait to be told; what one is set to says whether it was found out.
        self._others: list[tuple[anyio.Event, list[bool]]] = []

    async def everything_waits(self) -> None:
        """Return when every task of the event loop is blocked."""
        while self._looking:
            told, found = anyio.Event(), list[bool]()
            self._others.append((told, found))
            await told.wait()
            if found:
                return
        self._looking, still = True, False
        try:
            # On asyncio the wait below looks every tenth of a second; mostly a few rounds are enough.
            for _ in range(20):
                await checkpoint()
            await anyio.wait_all_tasks_blocked()
            still = True
        finally:
            self._looking, others, self._others = False, self._others, []
            for told, found in others:
                if still:
                    found.append(True)
                told.set()


_LOOKOUT: RunVar[_Lookout] = RunVar("agentloop.lookout")


async def _everything_waits() -> None:
    lookout = _LOOKOUT.get(None)
    if lookout is None:
        lookout = _Lookout()
        _LOOKOUT.set(lookout)
    await lookout.everything_waits()


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


class PrefixedIds(Protocol):
    """Makes ids that are unique within one run, counted apart for each prefix."""

    def next(self, prefix: str, /) -> str:
        """Return the next id of that prefix."""

    def count(self, prefix: str, /) -> int:
        """Return how many ids of that prefix were drawn."""


class SequentialIds:
    """``step-0001``, ``step-0002``, ``tool-0001``: four digits at least."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, prefix: str, /) -> str:
        """Return the next id.

        Raises:
            InvariantViolation: The prefix is empty.
        """
        if not prefix:
            raise InvariantViolation("an id needs a prefix")
        self._counts[prefix] = number = self._counts.get(prefix, 0) + 1
        return f"{prefix}-{number:04d}"

    def count(self, prefix: str, /) -> int:
        return self._counts.get(prefix, 0)

    def go_on(self, prefix: str, count: int, /) -> None:
        """Go on after that many ids of the prefix."""
        self._counts[prefix] = count


# ------------------------------------------------------------------------------- randomness

_T = TypeVar("_T")
_U32: Final = 0xFFFFFFFF


class Rng(Protocol):
    """Where chance comes from."""

    def next(self) -> float:
        """Return a number from 0 to 1, 1 excluded."""

    def int(self, low: int, high: int, /) -> int:
        """Return a whole number from low to high, both included."""

    def shuffle(self, items: Sequence[_T], /) -> list[_T]:
        """Return the items in another order; the sequence stays as it is."""


class Mulberry32:
    """A small generator whose numbers are the same everywhere, from 32 bits of state.

    Args:
        seed: A number is reduced to 32 bits; a text is hashed to them (FNV-1a).
    """

    __slots__ = ("state",)

    def __init__(self, seed: int | str) -> None:
        self.state: int = _fnv1a(seed) if isinstance(seed, str) else seed & _U32

    def next(self) -> float:
        """Return a number from 0 to 1, 1 excluded."""
        self.state = t = (self.state + 0x6D2B79F5) & _U32
        t = (t ^ (t >> 15)) * (t | 1) & _U32
        t ^= (t + ((t ^ (t >> 7)) * (t | 61))) & _U32
        return (t ^ (t >> 14)) / 4294967296

    def shuffle(self, items: Sequence[_T], /) -> list[_T]:
        """Return the items in another order; the sequence stays as it is."""
        shuffled = list(items)
        for last in range(len(shuffled) - 1, 0, -1):
            other = math.floor(self.next() * (last + 1))
            shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
        return shuffled

    def int(self, low: int, high: int, /) -> int:
        """Return a whole number from low to high, both included."""
        return low + math.floor(self.next() * (high - low + 1))


# ---------------------------------------------------------------------------------- digests


def _fnv1a(text: str) -> int:
    """Return the 32-bit FNV-1a hash of the text's UTF-16 code units."""
    hashed = 0x811C9DC5
    units = text.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        hashed = ((hashed ^ (low | high << 8)) * 0x01000193) & _U32
    return hashed


def digest(value: Json) -> str:
    """Return eight hexadecimal digits that stand for a JSON value, whatever the order of its keys.

    Short enough to be written down in baselines; not cryptographic. Linear in the value's size.

    Raises:
        NotJson: Not a JSON value.
    """
    return f"{_fnv1a(encode_text(value)):08x}"


def is_json_value(value: object) -> bool:
    """Return whether the value is null, a boolean, a finite number, a text, or made of such.

    Containers are dicts with text keys, lists and tuples. What is nested more than 100 deep, or
    an integer of more than 1,000 digits, is none: it could not be read back.
    """
    try:
        encode_text(value)
    except NotJson:
        return False
    return True


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
