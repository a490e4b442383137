"""Time limits: what never waits costs no task, what waits is cut at the moment, whatever the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from agentloop.determinism import Clock, ManualClock, SystemClock
from agentloop.orchestrator.timing import TimeLimits

pytestmark = pytest.mark.anyio
CLOCKS = pytest.mark.parametrize("make", [ManualClock, SystemClock])
Make = Callable[[], Clock]


class NoTasks:
    def start_soon(self, *anything: object) -> None:
        raise AssertionError("a task was started")


async def answer() -> str:
    return "done"


async def hang() -> str:
    await anyio.sleep_forever()
    return "never"


@CLOCKS
@pytest.mark.parametrize("limit_ms", [None, 0, 5])
async def test_work_that_never_waits_returns_its_value_and_starts_no_task(
    make: Make, limit_ms: int | None
) -> None:
    limits = TimeLimits(make())
    limits.tasks = cast(TaskGroup, NoTasks())
    assert await limits.within(limit_ms, answer()) == "done"


@CLOCKS
@pytest.mark.parametrize("grouped", [True, False])
async def test_work_that_hangs_is_cut_off_and_cleans_up(make: Make, grouped: bool) -> None:
    clock, told = make(), list[str]()
    limits = TimeLimits(clock)

    async def work() -> str:
        try:
            return await hang()
        finally:
            told.append("cleaned up")

    began = clock.monotonic_ms()
    async with anyio.create_task_group() as tasks:
        limits.tasks = tasks if grouped else None
        assert await limits.within(20, work()) is None
    assert told == ["cleaned up"]
    assert clock.monotonic_ms() - began >= 20
    if isinstance(clock, ManualClock):
        assert clock.monotonic_ms() == 20


@CLOCKS
async def test_work_that_waits_but_not_too_long_returns_its_value(make: Make) -> None:
    clock = make()
    limits = TimeLimits(clock)

    async def work() -> str:
        await checkpoint()
        await clock.sleep_ms(1)
        with anyio.CancelScope() as inner:
            inner.cancel()
            await checkpoint()
        await checkpoint()
        return "done"

    async with anyio.create_task_group() as tasks:
        limits.tasks = tasks
        assert await limits.within(60_000, work()) == "done"
    # The limit that was not reached has not moved the time.
    assert not isinstance(clock, ManualClock) or clock.now_ms() == 1


@CLOCKS
async def test_another_scope_cancels_it_before_the_limit(make: Make) -> None:
    clock = make()
    limits, scope = TimeLimits(clock), anyio.CancelScope()

    async def stop() -> None:
        await checkpoint()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        limits.tasks = tasks
        tasks.start_soon(stop)
        assert await limits.within(60_000, hang(), scope=scope) is None
    assert not isinstance(clock, ManualClock) or clock.now_ms() == 0


@CLOCKS
async def test_cancellation_of_the_caller_is_passed_on(make: Make) -> None:
    limits, reached = TimeLimits(make()), False
    with anyio.CancelScope() as outer:
        async with anyio.create_task_group() as tasks:
            limits.tasks = tasks

            async def stop() -> None:
                await checkpoint()
                outer.cancel()

            tasks.start_soon(stop)
            await limits.within(60_000, hang())
            reached = True
    assert (outer.cancelled_caught, reached) == (True, False)


async def test_limits_within_limits_end_the_inner_work_first() -> None:
    clock = ManualClock()
    limits = TimeLimits(clock)

    async def outer() -> str | None:
        return await limits.within(10, hang()) or f"inner over at {clock.now_ms()}"

    async with anyio.create_task_group() as tasks:
        limits.tasks = tasks
        assert await limits.within(30, outer()) == "inner over at 10"
        assert await limits.within(5, outer()) is None
    assert clock.now_ms() == 15


@CLOCKS
async def test_what_the_work_raises_gets_out_when_it_had_waited(make: Make) -> None:
    limits = TimeLimits(make())

    async def work() -> str:
        await checkpoint()
        raise LookupError("lost")

    async with anyio.create_task_group() as tasks:
        limits.tasks = tasks
        with pytest.raises(LookupError, match="lost"):
            await limits.within(60_000, work())
