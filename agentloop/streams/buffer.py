"""`FrameBuffer` and its two ends, the sink and the source that everybody holds."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio

from agentloop.frames import Frame, FrameLike
from agentloop.ports import FrameStats
from agentloop.streams.queue import AbortHook, FrameQueue, Strategy
from agentloop.streams.reading import Readable

__all__ = ("BufferSink", "BufferSource", "FrameBuffer")


class FrameBuffer(FrameQueue):
    """A queue of frames with a `sink` to write to and a `source` to read from.

    Memory is what waits, never what passed. A reader that stops reading without a word pauses a
    blocking buffer for good: only `BufferSource.abort` (or leaving its context) tells writers
    that nobody will come. A reader that is cancelled with a frame in its hands gives it back, and
    a blocking buffer then holds one more than its limit. Not for use from several threads.
    """

    __slots__ = ("sink", "source")

    def __init__(
        self,
        limit: int | None = None,
        strategy: Strategy = "drop-oldest",
        *,
        protect_terminal: bool = False,
        reserve: int = 3,
    ) -> None:
        """Make an empty buffer; arguments and exceptions as `FrameQueue`."""
        super().__init__(limit, strategy, protect_terminal=protect_terminal, reserve=reserve)
        self.sink = BufferSink(self)
        self.source = BufferSource(self)


class BufferSink:
    """The end of a buffer that is written to, by any number of tasks."""

    __slots__ = ("_queue",)

    def __init__(self, queue: FrameQueue, /) -> None:
        self._queue = queue

    @property
    def paused(self) -> bool:
        """True while a write would wait."""
        return self._queue.paused

    @property
    def ended(self) -> bool:
        """True once no more frames may be written."""
        return self._queue.ended

    async def write(self, frame: FrameLike, /) -> bool:
        """Write a frame, waiting while paused; False if the overflow rule dropped it.

        A cancelled write delivered nothing. A write that need not wait does not suspend,
        except for one in `queue.BURST`.

        Raises:
            FrameError: Nothing a frame can be made of.
            StreamEnded: After `end`, also while waiting.
            StreamAborted: After the reader aborted, also while waiting.
        """
        queue = self._queue
        if type(frame) is not Frame:
            frame = Frame.of(frame)
        if len(queue.frames) < queue.room:
            queue.frames.append(frame)
            return True
        return await queue.put_slowly(frame)

    def write_nowait(self, frame: FrameLike, /) -> bool:
        """As `write`, but raise ``anyio.WouldBlock`` instead of waiting."""
        queue = self._queue
        if type(frame) is not Frame:
            frame = Frame.of(frame)
        if len(queue.frames) < queue.room:
            queue.frames.append(frame)
            return True
        return queue.put_nowait(frame)

    async def ready(self) -> None:
        """Return when a write would not wait, or would raise."""
        await self._queue.ready()

    def end(self, error: BaseException | None = None, /) -> bool:
        """Say that no more frames come; with an error, buffered frames are thrown away.

        The first end wins and returns True; later ones, or one after an abort, return False.
        """
        return self._queue.end(error)

    def on_abort(self, hook: AbortHook, /) -> Callable[[], object]:
        """Have a hook called once when the reader aborts; return what takes it back."""
        return self._queue.on_abort(hook)

    async def aclose(self) -> None:
        """End normally."""
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.end(exc)


class BufferSource(Readable[Frame]):
    """The end of a buffer that is read, by one task or one pipe at a time."""

    __slots__ = ("_queue",)

    def __init__(self, queue: FrameQueue, /) -> None:
        super().__init__()
        self._queue = queue

    @property
    def ended(self) -> bool:
        """True once no further frame can be read."""
        return self._queue.finished

    async def receive(self) -> Frame:
        """Return the next frame.

        A cancelled receive loses nothing. One that need not wait does not suspend, except
        for one in `queue.BURST`.

        Raises:
            anyio.EndOfStream: After a normal end, or after an abort without error.
            StreamFailed: After an error end; the error is the cause.
            StreamBusy: Somebody else is reading, or the source is piped.
        """
        queue = self._queue
        if queue.frames and queue.read < queue.stop:
            queue.read += 1
            return queue.frames.popleft()
        queue.check_free()
        return await self.take()

    async def __anext__(self) -> Frame:
        # Written out again: one coroutine less for the most travelled path of the package.
        queue = self._queue
        if queue.frames and queue.read < queue.stop:
            queue.read += 1
            return queue.frames.popleft()
        queue.check_free()
        try:
            return await self.take()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def receive_nowait(self) -> Frame:
        """As `receive`, but raise ``anyio.WouldBlock`` instead of waiting."""
        queue = self._queue
        if queue.frames and queue.read < queue.stop:
            queue.read += 1
            return queue.frames.popleft()
        queue.check_free()
        frame = self.take_nowait()
        if queue.yield_due:
            queue.postpone_yield()
        return frame

    async def take(self) -> Frame:
        queue = self._queue
        if not queue.frames or queue.yield_due:
            await queue.wait()
        return queue.pop()

    def take_nowait(self) -> Frame:
        queue = self._queue
        if not queue.frames:
            queue.raise_if_finished()
            raise anyio.WouldBlock
        return queue.pop()

    def abort(self, error: BaseException | None = None, /) -> bool:
        """Discard what waits, fail every writer, tell the hooks. True the first time.

        Later readers see the end, or `StreamFailed` from that error.
        """
        return self._queue.abort(error)

    def statistics(self) -> FrameStats:
        """Return the counts so far; ``written == read + dropped + buffered + discarded``."""
        return self._queue.statistics()

    def watch(self, event: anyio.Event, /) -> bool:
        self._queue.watch(event)
        return True

    def unwatch(self) -> None:
        self._queue.unwatch()

    def check_free(self) -> None:
        self._queue.check_free()

    def claim(self) -> None:
        self._queue.claim()

    def release(self) -> None:
        super().release()
        self._queue.release()
