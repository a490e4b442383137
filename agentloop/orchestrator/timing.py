"""Time limits by a run's clock, real or virtual."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from agentloop.determinism import Clock, SystemClock

__all__ = ("TimeLimits",)

T = TypeVar("T")


class TimeLimits:
    """Cuts work off after some time by a clock.

    With the system's clock a limit is the deadline of a scope. With another one a task sleeps by
    it meanwhile, but only once the work waits for something: time cannot pass before.

    Attributes:
        tasks: Where such tasks are started; if there is none, each limit opens a group of its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._real = clock, isinstance(clock, SystemClock)
        self.tasks: TaskGroup | None = None

    async def within(
        self, limit_ms: int | None, work: Coroutine[Any, Any, T], *, scope: anyio.CancelScope | None = None
    ) -> T | None:
        """Return what the work returns, or None if it was cut off: by the limit, or by the scope.

        Args:
            limit_ms: None is no limit.
            work: Raises nothing but cancellation.
            scope: What it runs in, so that somebody else can cancel it too.
        """
        with scope or anyio.CancelScope() as scope:
            if limit_ms is not None and not self._real:
                return await self._watched(limit_ms, work, scope)
            if limit_ms is not None:
                scope.deadline = anyio.current_time() + max(0, limit_ms) / 1000
            return await work
        return None

    async def _watched(
        self, limit_ms: int, work: Coroutine[Any, Any, T], scope: anyio.CancelScope
    ) -> T | None:
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        if self.tasks is not None:
            return await self._begin(self.tasks, deadline_ms, work, scope)
        async with anyio.create_task_group() as tasks:
            return await self._begin(tasks, deadline_ms, work, scope)
        return None

    async def _begin(
        self, tasks: TaskGroup, deadline_ms: int, work: Coroutine[Any, Any, T], scope: anyio.CancelScope
    ) -> T:
        watch: anyio.CancelScope | None = None

        def begin_watch() -> None:
            nonlocal watch
            watch = anyio.CancelScope()
            tasks.start_soon(self._expire, deadline_ms, scope, watch)

        try:
            return await _Begun(work, begin_watch)
        finally:
            if watch is not None:
                watch.cancel()

    async def _expire(self, deadline_ms: int, scope: anyio.CancelScope, watch: anyio.CancelScope) -> None:
        with watch:
            await self._clock.sleep_until(deadline_ms)
            scope.cancel()


class _Begun(Generic[T]):
    """Awaits some work, and tells when it waits for the first time, if it ever does."""

    __slots__ = ("_waiting", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], waiting: Callable[[], object]) -> None:
        self._work, self._waiting = work, waiting

    def __await__(self) -> Generator[Any, Any, T]:
        work = self._work
        try:
            awaited = work.send(None)
            self._waiting()
            while True:
                try:
                    answer = yield awaited
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:
                    awaited = work.throw(error)
                else:
                    awaited = work.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
