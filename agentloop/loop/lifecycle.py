"""The life of one run as its user sees it: enter, tick, read, abort, leave.

Both drivers share it. It knows nothing of cycles; a driver says what its main task does and
how what is running is cut.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, cast

import anyio
from anyio.abc import TaskGroup

from agentloop.frames import ABORT, CANCEL, INPUT, TICK, Frame, FrameLike, clean
from agentloop.messages import LoopResult
from agentloop.ports import Sink, Source
from agentloop.streams.buffer import FrameBuffer

__all__ = ("OneRun",)


class OneRun:
    """A duplex that serves one run.

    Attributes:
        source: The Out frames. One reader or one pipe.
        sink: Takes TICK, CANCEL, ABORT and INPUT.
        result: None until the run has ended.
    """

    def __init__(self, buffer: FrameBuffer, *, raise_errors: bool, grace_ms: float) -> None:
        self._buffer = buffer
        self._raise_errors, self._grace_ms = raise_errors, grace_ms
        self.source: Source = buffer.source
        self.sink: Sink = _RunSink(self)
        self.result: LoopResult | None = None
        self._entered = self._ticked = False
        self._abort_reason: str | None = None
        self._stop_reason: str | None = None
        self._woken: anyio.Event | None = None
        self._over: anyio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._stack = AsyncExitStack()

    # --------------------------------------------------------------------- what drivers add

    async def _main(self, tasks: TaskGroup) -> None:
        """Live the run; set `result` and call `_finish` before returning."""
        raise NotImplementedError

    def _cut(self) -> None:
        """Cancel what is running, after `_abort_reason` was set."""

    def _note(self, frame: Frame) -> bool:
        """Take an INPUT frame."""
        return False

    def _decided(self) -> bool:
        """Return whether the end is decided, so that an abort comes too late."""
        return self.result is not None

    async def _prepare(self) -> None:
        """Enter what the run owns, on the task that enters the run."""

    def _entering(self, text: str) -> str:
        """Return a text from outside as the run may keep and show it."""
        return cast(str, clean(text))

    # ------------------------------------------------------------------------------ outside

    def abort(self, reason: str | None = "aborted") -> bool:
        """Stop the run now. Synchronous; legal anywhere, also in the run's own callbacks.

        Returns:
            True the first time; False later and after the end.
        """
        first = self._abort_reason is None and not self._decided()
        if first:
            self._abort_reason = self._entering(str(reason or "aborted"))
        if self.result is None:
            if self._woken is not None:
                self._woken.set()
            self._cut()
        return first

    def abort_from_thread(self, reason: str | None = "aborted") -> bool:
        """As `abort`, from a worker thread that anyio started."""
        from anyio import from_thread

        return from_thread.run_sync(self.abort, reason)

    async def wait(self) -> LoopResult:
        """Return the result once the run has ended.

        Raises:
            RuntimeError: The run was not entered.
            Exception: The original error, if the run failed on one and ``raise_errors`` is set.
        """
        if self._over is None:
            raise RuntimeError("the loop was not entered: use 'async with loop:' or 'await loop.run()'")
        await self._over.wait()
        assert self.result is not None
        if self._raise_errors and self.result.error is not None:
            raise self.result.error
        return self.result

    async def run(self) -> LoopResult:
        """Enter, TICK, read every frame away, leave; return the result.

        Raises:
            Exception: The original error, if the run failed on one and ``raise_errors`` is set.
        """
        async with self:
            if not self._buffer.statistics().piped:
                self._buffer.drain()
            self._tick()
            assert self._over is not None
            await self._over.wait()
        return await self.wait()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a loop serves one run: make a new one for the next")
        self._entered = True
        self._woken, self._over = anyio.Event(), anyio.Event()
        if self._ticked or self._abort_reason is not None:
            self._woken.set()
        try:
            await self._prepare()
        except BaseException:
            await self._stack.aclose()
            raise
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._buffer.source.start_pumps(self._tasks)
        self._tasks.start_soon(self._main, self._tasks)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._tasks is not None
        assert self._over is not None
        self.abort("closed")
        try:
            if isinstance(exc, anyio.get_cancelled_exc_class()):
                await self._tasks.__aexit__(exc_type, exc, traceback)
            else:
                await self._leave(self._tasks, self._over)
        finally:
            await self._stack.aclose()
        return None

    async def _leave(self, tasks: TaskGroup, over: anyio.Event) -> None:
        # The caller's own error is not handed to the task group: it would come back in a group.
        try:
            await over.wait()
            # What is left are pipes; their sinks get a moment to take the last frames.
            tasks.cancel_scope.deadline = anyio.current_time() + self._grace_ms / 1000
        except BaseException as cancelled:
            await tasks.__aexit__(type(cancelled), cancelled, cancelled.__traceback__)
            raise
        await tasks.__aexit__(None, None, None)

    async def aclose(self) -> None:
        """Stop the run if it still goes on and wait until it has ended."""
        self.abort("closed")
        if self._over is not None:
            await self._over.wait()

    # ------------------------------------------------------------------------------- inputs

    def _tick(self) -> bool:
        if self._ticked or self.result is not None or self._abort_reason is not None:
            return False
        self._ticked = True
        if self._woken is not None:
            self._woken.set()
        return True

    def _take(self, frame: Frame) -> bool:
        """Take one frame from the sink; True if it had an effect."""
        if frame.type == TICK:
            return self._tick()
        if frame.type == INPUT:
            return self.result is None and self._note(frame)
        if frame.type not in (CANCEL, ABORT):
            return False
        given = frame.content.get("reason")
        reason = given if isinstance(given, str) and given else _DEFAULT_REASONS[frame.type]
        if frame.type == CANCEL and frame.content.get("mode") == "after_cycle" and self._ticked:
            return self._stop_after_cycle(reason)
        return self.abort(reason)

    def _stop_after_cycle(self, reason: str) -> bool:
        if self._stop_reason is not None or self._abort_reason is not None or self._decided():
            return False
        self._stop_reason = self._entering(reason)
        return True

    def _finish(self, result: LoopResult) -> None:
        """Set the result, then end the stream, then wake whoever waits."""
        self.result = result
        self._buffer.end()
        assert self._over is not None
        self._over.set()


_DEFAULT_REASONS = {CANCEL: "cancelled", ABORT: "aborted"}


class _RunSink:
    """The way into a run."""

    __slots__ = ("_run", "ended")

    paused = False

    def __init__(self, run: OneRun) -> None:
        self._run, self.ended = run, False

    async def write(self, frame: FrameLike, /) -> bool:
        return self.write_nowait(frame)

    def write_nowait(self, frame: FrameLike, /) -> bool:
        return self._run._take(Frame.of(frame))

    async def ready(self) -> None:
        """A run's sink never makes a writer wait."""

    def end(self, error: BaseException | None = None, /) -> bool:
        """Say that no more comes; with an error, abort the run."""
        if self.ended:
            return False
        self.ended = True
        if error is not None:
            self._run.abort(f"input failed: {type(error).__name__}")
        return True

    async def aclose(self) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        self.end()
