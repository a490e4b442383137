"""Sources made of sources: `merge`, `zip`, `chunks`, `timeout`, and `from_aiter`.

Each is a plain object that works inside its own `receive`: no task, task group or cancel
scope outlives the call, so leaving a loop half way needs no clean-up, and a cancelled
receive loses nothing. They hold the claim on what they read; aborting one aborts its sources.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from agentloop._numbers import check_count, check_duration
from agentloop.errors import StreamBusy, StreamError, StreamFailed
from agentloop.frames import Frame, FrameLike
from agentloop.ports import FrameStats, Source
from agentloop.streams.queue import BURST, ending
from agentloop.streams.reading import Readable, claimed

__all__ = ("chunks", "from_aiter", "merge", "timeout", "zip")

T_co = TypeVar("T_co", covariant=True)


class _Derived(Readable[T_co]):
    """A source whose items come from elsewhere when they are asked for."""

    __slots__ = ("_aborted", "_busy", "_error", "_over", "_read", "_sources")

    def __init__(self, sources: tuple[Source | Readable[Any], ...]) -> None:
        super().__init__()
        self._sources = [claimed(source) for source in sources]
        self._read = 0
        self._busy = self._over = self._aborted = False
        self._error: BaseException | None = None

    @abstractmethod
    async def _next(self) -> T_co:
        """Return the next item, raise EndOfStream, or fail with any other exception."""

    @abstractmethod
    def _next_nowait(self) -> T_co:
        """As `_next`, but raise WouldBlock instead of waiting."""

    @property
    def ended(self) -> bool:
        return self._over

    async def take(self) -> T_co:
        if self._busy:
            raise StreamBusy("reading from")
        self._raise_if_over()
        self._busy = True
        try:
            if self._read % BURST == BURST - 1:
                await checkpoint()
            item = await self._next()
        except Exception as error:
            self._finish(error)
            self._raise_if_over()
            raise
        finally:
            self._busy = False
        if self._aborted:
            self._raise_if_over()
        self._read += 1
        return item

    def take_nowait(self) -> T_co:
        if self._busy:
            raise StreamBusy("reading from")
        self._raise_if_over()
        try:
            item = self._next_nowait()
        except anyio.WouldBlock:
            raise
        except Exception as error:
            self._finish(error)
            self._raise_if_over()
            raise
        self._read += 1
        return item

    def abort(self, error: BaseException | None = None, /) -> bool:
        if self._over:
            return False
        self._over = self._aborted = True
        self._error = error
        self._abort_sources(error)
        return True

    def statistics(self) -> FrameStats:
        """Return the items given out so far; nothing is buffered, so nothing is dropped."""
        return FrameStats(
            buffered=0,
            limit=None,
            strategy="block",
            written=self._read,
            read=self._read,
            dropped=0,
            discarded=0,
            ended=self._over,
            aborted=self._aborted,
            paused=False,
            piped=self._pipe is not None,
        )

    def _finish(self, error: Exception) -> None:
        if self._over:
            return
        self._over = True
        if isinstance(error, StreamFailed):
            self._error = error.__cause__ or error
        elif not isinstance(error, anyio.EndOfStream):
            self._error = error
        self._abort_sources(self._error)

    def _abort_sources(self, error: BaseException | None) -> None:
        for source in self._sources:
            source.abort(error)

    def _raise_if_over(self) -> None:
        if self._over:
            raise ending(self._error)


class _Merged(_Derived[Frame]):
    __slots__ = ("_came", "_failed", "_live")

    def __init__(self, sources: tuple[Source, ...]) -> None:
        super().__init__(sources)
        self._live = deque(self._sources)
        #: Taken while waiting and not given out yet, at most one of each source.
        self._came: deque[Frame] = deque()
        self._failed: StreamFailed | None = None

    async def _next(self) -> Frame:
        while True:
            try:
                return self._next_nowait()
            except anyio.WouldBlock:
                await self._wait()

    def _next_nowait(self) -> Frame:
        for _ in range(len(self._live)):
            if self._came or self._failed:
                break
            self._live.rotate(-1)
            self._take_from(self._live[-1])
        if self._failed is not None:
            raise self._failed
        if self._came:
            return self._came.popleft()
        raise anyio.WouldBlock if self._live else anyio.EndOfStream

    def _take_from(self, source: Any) -> None:
        try:
            self._came.append(source.take_nowait())
        except anyio.WouldBlock:
            pass
        except anyio.EndOfStream:
            self._live.remove(source)
        except StreamFailed as error:
            self._failed = error

    async def _wait(self) -> None:
        """Wait until a source may have something, and keep what came."""
        event = anyio.Event()
        watched: list[Any] = []
        try:
            for source in self._live:
                if not source.watch(event):
                    break
                watched.append(source)
            else:
                await event.wait()
                return
        finally:
            for source in watched:
                source.unwatch()
                self._take_from(source)
        await self._race()

    async def _race(self) -> None:
        """Wait with a task a source, for those that cannot be watched."""

        async def receive(source: Any) -> None:
            try:
                self._came.append(await source.take())
            except anyio.EndOfStream:
                self._live.remove(source)
            except StreamFailed as error:
                self._failed = error
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for source in tuple(self._live):
                tasks.start_soon(receive, source)


class _Zipped(_Derived[tuple[Frame, ...]]):
    __slots__ = ("_row",)

    def __init__(self, sources: tuple[Source, ...]) -> None:
        super().__init__(sources)
        self._row: list[Frame] = []

    async def _next(self) -> tuple[Frame, ...]:
        # One after the other is as fast as all at once: a row takes as long as its slowest.
        while len(self._row) < len(self._sources):
            self._row.append(await self._sources[len(self._row)].take())
        return self._full_row()

    def _next_nowait(self) -> tuple[Frame, ...]:
        while len(self._row) < len(self._sources):
            self._row.append(self._sources[len(self._row)].take_nowait())
        return self._full_row()

    def _full_row(self) -> tuple[Frame, ...]:
        if not self._row:
            raise anyio.EndOfStream
        row, self._row = tuple(self._row), []
        return row


class _Chunked(_Derived[list[Frame]]):
    __slots__ = ("_chunk", "_last", "_size", "_within_ms")

    def __init__(self, source: Source, size: int, within_ms: int | None) -> None:
        super().__init__((source,))
        self._size, self._within_ms = size, within_ms
        self._chunk: list[Frame] = []
        self._last = False

    async def _next(self) -> list[Frame]:
        if self._within_ms is None:
            return await self._fill()
        if not self._chunk and not self._last:
            self._chunk.append(await self._sources[0].take())
        try:
            return self._next_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(self._within_ms / 1000):
                return await self._fill()
        return self._cut()

    async def _fill(self) -> list[Frame]:
        while len(self._chunk) < self._size and not self._last:
            try:
                self._chunk.append(await self._sources[0].take())
            except anyio.EndOfStream:
                self._last = True
        return self._cut()

    def _next_nowait(self) -> list[Frame]:
        while len(self._chunk) < self._size and not self._last:
            try:
                self._chunk.append(self._sources[0].take_nowait())
            except anyio.EndOfStream:
                self._last = True
        return self._cut()

    def _cut(self) -> list[Frame]:
        if not self._chunk:
            raise anyio.EndOfStream
        chunk, self._chunk = self._chunk, []
        return chunk


class _Timed(_Derived[Frame]):
    __slots__ = ("_timeout_ms",)

    def __init__(self, source: Source, timeout_ms: int) -> None:
        super().__init__((source,))
        self._timeout_ms = timeout_ms

    async def _next(self) -> Frame:
        try:
            return self._next_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(self._timeout_ms / 1000):
                frame: Frame = await self._sources[0].take()
                return frame
        raise TimeoutError(f"no frame came within timeout_ms={self._timeout_ms}")

    def _next_nowait(self) -> Frame:
        frame: Frame = self._sources[0].take_nowait()
        return frame


class _Iterated(_Derived[Frame]):
    __slots__ = ("_iterator",)

    def __init__(self, iterable: AsyncIterable[FrameLike]) -> None:
        super().__init__(())
        self._iterator: AsyncIterator[FrameLike] = aiter(iterable)

    async def _next(self) -> Frame:
        try:
            return Frame.of(await anext(self._iterator))
        except StopAsyncIteration:
            raise anyio.EndOfStream from None
        except Exception:
            raise
        except BaseException:
            # A generator does not survive this; later readers must not take it for its end.
            self._finish(StreamError("the iterator was cancelled while it made a frame"))
            raise

    def _next_nowait(self) -> Frame:
        raise anyio.WouldBlock

    async def aclose(self) -> None:
        """Abort without error, and close the iterator if it can be closed."""
        self.abort()
        close = getattr(self._iterator, "aclose", None)
        if close is not None and not self._busy:
            with anyio.CancelScope(shield=True):
                await close()


def merge(*sources: Source) -> Readable[Frame]:
    """Return a source of the frames of all sources as they come, in fair turns.

    It ends when all have ended, and fails, aborting the others, when one fails. Waiting costs
    one event for buffers, and a task a source if there are sources of other kinds.
    """
    return _Merged(sources)


def zip(*sources: Source) -> Readable[tuple[Frame, ...]]:  # noqa: A001  (the name everybody looks for)
    """Return a source of tuples with one frame of each source; the shortest ends it."""
    return _Zipped(sources)


def chunks(source: Source, size: int, /, *, within_ms: int | None = None) -> Readable[list[Frame]]:
    """Return a source of lists of 1 to ``size`` frames; only the last may be shorter.

    Args:
        source: Of the frames.
        size: Frames a list.
        within_ms: Give out a shorter list when that long has passed since its first frame was
            read; 0 gives out what is there. None waits for a full one.

    Raises:
        ValueError: A size below 1, or a time below 0.
    """
    check_count("the size of chunks", size, 1)
    check_duration("within_ms", within_ms, optional=True, zero=True)
    return _Chunked(source, size, within_ms)


def timeout(source: Source, timeout_ms: int, /) -> Readable[Frame]:
    """Return a source that fails with TimeoutError if the next frame takes longer to come.

    Only the time somebody waits in `receive` counts. The failing one aborts the source.

    Raises:
        ValueError: No positive time.
    """
    check_duration("timeout_ms", timeout_ms)
    return _Timed(source, timeout_ms)


def from_aiter(iterable: AsyncIterable[FrameLike], /) -> Readable[Frame]:
    """Return a source of what an async iterator yields, made into frames.

    It is pulled, never read ahead; its exception is the stream's error end. `aclose`, the
    context protocol and the end of a pipe close a generator; `abort` alone leaves it to the
    event loop. Unlike everywhere else, cancelling a receive breaks a generator, and the
    stream fails.
    """
    return _Iterated(iterable)
