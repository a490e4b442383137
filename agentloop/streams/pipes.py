"""Whole chains of streams at once: `pipeline` in the calling task, and `tee` to split a source."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import anyio

from agentloop._numbers import check_count
from agentloop.errors import StreamBusy, StreamFailed
from agentloop.ports import Sink, Source
from agentloop.streams.buffer import BufferSource
from agentloop.streams.pump import pump
from agentloop.streams.queue import FrameQueue, Strategy
from agentloop.streams.reading import Readable, claimed
from agentloop.streams.throughs import Through

__all__ = ("pipeline", "tee")


async def pipeline(source: Source | Readable[Any], /, *stages: Sink) -> None:
    """Run a chain of throughs into a sink in the calling task, until the sink was ended.

    Cancelled, it aborts the source and ends the sink with `StreamAborted`.

    Args:
        source: Read to its end, or aborted if a later stage needs no more.
        stages: Throughs, and last the sink.

    Raises:
        StreamBusy: The source or a through is in use.
        TypeError: No sink, or one that is no through in front of another.
        StreamAborted: The sink's reader gave up.
        Exception: The first error of the source, a through or the sink, as it is.
    """
    if not stages:
        raise TypeError("pipeline needs a sink after the source")
    for stage in stages[:-1]:
        if not isinstance(stage, Through):
            raise TypeError(f"only the last stage of a pipeline can be a {type(stage).__name__}")
    head = claimed(source)
    for stage, after in pairwise(stages):
        if isinstance(stage, Through):
            stage.pipe(after)
    error = await pump(head, stages[0])
    if error is not None:
        raise error


#: Sources that one `tee` makes, at most.
MAX_BRANCHES: Final = 1_000


def tee(
    source: Source | Readable[Any],
    count: int = 2,
    /,
    *,
    limit: int | None = None,
    strategy: Strategy = "drop-oldest",
) -> tuple[BufferSource, ...]:
    """Return sources that each give every frame of one source, through a buffer of their own.

    No task is needed: whoever reads first reads for all. With ``block`` the slowest sets the
    pace. A source that is aborted takes no more part; when all are, the original is aborted.

    Args:
        source: Belongs to the new ones from now on.
        count: How many.
        limit: Frames that may wait for one of them; None is unbounded.
        strategy: What happens beyond the limit, as in `FrameBuffer`.

    Raises:
        StreamBusy: The source is in use.
        ValueError: A count below 1 or above 1,000.
    """
    check_count("the count of tee", count, 1)
    if count > MAX_BRANCHES:
        raise ValueError(f"the count of tee must be at most {MAX_BRANCHES}, not {count}")
    queues = tuple(FrameQueue(limit, strategy) for _ in range(count))
    split = _Split(claimed(source), queues)
    return tuple(_Branch(queue, split) for queue in queues)


class _Split:
    """What the branches of a `tee` share: the source, and the turn to read it."""

    __slots__ = ("_queues", "_source", "_turn")

    def __init__(self, source: Any, queues: tuple[FrameQueue, ...]) -> None:
        self._source, self._queues = source, queues
        self._turn = anyio.Lock()
        for queue in queues:
            queue.on_abort(self._branch_aborted)

    async def advance(self, queue: FrameQueue) -> None:
        """Put the next frame into all queues, unless somebody did so while this one waited."""
        async with self._turn:
            if queue.frames or queue.finished:
                return
            for other in self._queues:
                await other.ready()
            try:
                frame = await self._source.take()
            except anyio.EndOfStream:
                self._end(None)
            except StreamFailed as failed:
                self._end(failed.__cause__ or failed)
            else:
                self._spread(frame)

    def advance_nowait(self) -> None:
        """Put a frame into all queues if one is there and no queue is full."""
        if self._turn.locked() or any(queue.paused for queue in self._queues):
            raise anyio.WouldBlock
        try:
            frame = self._source.take_nowait()
        except anyio.EndOfStream:
            self._end(None)
        except StreamFailed as failed:
            self._end(failed.__cause__ or failed)
        else:
            self._spread(frame)

    def _spread(self, frame: Any) -> None:
        for queue in self._queues:
            if not queue.ended:
                queue.put_nowait(frame)

    def _end(self, error: BaseException | None) -> None:
        for queue in self._queues:
            queue.end(error)

    def _branch_aborted(self, error: BaseException | None) -> None:
        if all(queue.aborted for queue in self._queues):
            self._source.abort(error)


class _Branch(BufferSource):
    """One of the sources of a `tee`."""

    __slots__ = ("_split", "_waiting")

    def __init__(self, queue: FrameQueue, split: _Split) -> None:
        super().__init__(queue)
        self._split = split
        self._waiting: anyio.CancelScope | None = None

    async def take(self) -> Any:
        if self._waiting is not None:
            raise StreamBusy("reading from")
        while not self._queue.frames and not self._queue.finished:
            try:
                self._split.advance_nowait()
            except anyio.WouldBlock:
                with anyio.CancelScope() as self._waiting:
                    try:
                        await self._split.advance(self._queue)
                    finally:
                        self._waiting = None
        return await super().take()

    def take_nowait(self) -> Any:
        if self._waiting is not None:
            raise StreamBusy("reading from")
        if not self._queue.frames and not self._queue.finished:
            self._split.advance_nowait()
        return super().take_nowait()

    def abort(self, error: BaseException | None = None, /) -> bool:
        if self._waiting is not None:
            self._waiting.cancel()
        return super().abort(error)

    def watch(self, event: anyio.Event, /) -> bool:
        # What would arrive is in the original source, which nobody may be reading.
        return False
