"""Deadlines, enforced by one sleeper a run.

The driver only writes a number when a turn begins or ends; no timeout scope is opened for a
turn. The sleeper wakes at the earliest deadline it knew of, looks again, and acts if it has
really passed. What then refuses to stop gets a grace period, after which the run ends without it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import anyio

__all__ = ("Watchdog",)

_NEVER = (math.inf, "")


class Watchdog:
    """Calls ``on_due`` when a deadline has passed and ``on_overdue`` if that did not help.

    Args:
        grace_ms: How long after being cut the run may take to wind down.
        on_due: Called once per deadline; cuts what is running.
        on_overdue: Awaited at most once; ends the run although something still runs.
    """

    __slots__ = (
        "_changed",
        "_deadline",
        "_grace",
        "_late",
        "_limit",
        "_on_due",
        "_on_overdue",
        "_overdue_at",
        "_scope",
        "_stopped",
        "_wakes_at",
    )

    def __init__(
        self, *, grace_ms: float, on_due: Callable[[], None], on_overdue: Callable[[], Awaitable[None]]
    ) -> None:
        self._grace, self._on_due, self._on_overdue = grace_ms / 1000, on_due, on_overdue
        #: The deadline of the whole run in seconds of the event loop's clock.
        self._limit = math.inf
        self._deadline = self._overdue_at = self._wakes_at = math.inf
        #: What stops by itself at its deadline: when that has failed, and its name.
        self._late: dict[str, tuple[float, str]] = {}
        self._changed = anyio.Event()
        #: Made by `run`: a loop may be made where no event loop runs.
        self._scope: anyio.CancelScope | None = None
        self._stopped = False

    @property
    def deadline(self) -> float:
        """The earliest deadline in force, in seconds of the event loop's clock."""
        return min(self._deadline, self._limit)

    @property
    def limit_passed(self) -> bool:
        """Whether the whole run has had its time."""
        return anyio.current_time() >= self._limit

    def limit(self, duration_ms: float) -> None:
        """Give the whole run that long from now."""
        self._limit = anyio.current_time() + duration_ms / 1000
        self._changed.set()

    def allow(self, duration_ms: float | None) -> None:
        """Give what begins now that long; None for no limit of its own."""
        self._deadline = math.inf if duration_ms is None else anyio.current_time() + duration_ms / 1000
        if self._deadline < self._wakes_at:
            self._changed.set()

    def pause(self) -> float:
        """Stop the current deadline and return the milliseconds it had left."""
        left = (self._deadline - anyio.current_time()) * 1000
        self._deadline = math.inf
        return left

    def expect(self, key: str, name: str, duration_ms: float) -> None:
        """Say that what begins now has a deadline of its own: if it does not keep it, it never will."""
        late_at = anyio.current_time() + duration_ms / 1000 + self._grace
        self._late[key] = (late_at, name)
        if late_at < self._wakes_at:
            self._changed.set()

    def arrived(self, key: str) -> None:
        """Say that it did."""
        self._late.pop(key, None)

    @property
    def late(self) -> str | None:
        """The name of what did not keep its own deadline."""
        late_at, name = min(self._late.values(), default=(math.inf, None))
        return name if anyio.current_time() >= late_at else None

    def release(self) -> None:
        """Forget the current deadline."""
        self._deadline = math.inf

    def cut(self) -> None:
        """Say that the run was told to stop now: the grace period begins."""
        self._overdue_at = min(self._overdue_at, anyio.current_time() + self._grace)
        self._changed.set()

    def stop(self) -> None:
        """End the sleeper, also one that was not started yet."""
        if self._scope is not None:
            self._scope.cancel()
        self._stopped = True

    async def run(self) -> None:
        """Sleep and act until stopped. Shielded, so that it outlives a cancelled run."""
        with anyio.CancelScope(shield=True) as self._scope:
            while not self._stopped:
                late_at = min(self._late.values(), default=_NEVER)[0]
                self._wakes_at = min(self.deadline, self._overdue_at, late_at)
                with anyio.CancelScope(deadline=self._wakes_at):
                    await self._changed.wait()
                if self._changed.is_set():
                    self._changed = anyio.Event()
                now = anyio.current_time()
                if now >= self._overdue_at or self.late is not None:
                    await self._on_overdue()
                    return
                if now >= self.deadline:
                    self._on_due()
                    self._deadline = self._limit = math.inf
                    self.cut()
