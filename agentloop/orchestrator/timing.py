"""Time limits by a run's clock, real or virtual."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from agentloop.determinism import Clock, SystemClock

__all__ = ("time_limit",)


@asynccontextmanager
async def time_limit(clock: Clock, limit_ms: int | None) -> AsyncIterator[anyio.CancelScope]:
    """Cancel what is inside after that long; its scope then says ``cancelled_caught``.

    What is inside must not raise but for cancellation. With the system's clock this is a plain
    scope; with another one a task sleeps by it meanwhile.
    """
    if limit_ms is None or isinstance(clock, SystemClock):
        with anyio.CancelScope() as scope:
            if limit_ms is not None:
                scope.deadline = anyio.current_time() + max(0, limit_ms) / 1000
            yield scope
        return
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_expire, clock, clock.monotonic_ms() + limit_ms, scope)
            yield scope
        tasks.cancel_scope.cancel()


async def _expire(clock: Clock, deadline_ms: int, scope: anyio.CancelScope) -> None:
    await clock.sleep_until(deadline_ms)
    scope.cancel()
