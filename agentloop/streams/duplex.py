"""Two connected duplexes in memory, for tests and for writing adapters."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from agentloop.errors import StreamAborted
from agentloop.streams.buffer import BufferSink, BufferSource, FrameBuffer
from agentloop.streams.queue import Strategy

__all__ = ("BufferDuplex", "duplex_pair")


class BufferDuplex:
    """A source and a sink that belong together; each may be used without the other.

    ``async with duplex:`` also owns the source's pipes, and closes both ends when left.
    """

    __slots__ = ("_sink", "_source", "_tasks")

    def __init__(self, source: BufferSource, sink: BufferSink) -> None:
        self._source, self._sink = source, sink
        self._tasks: TaskGroup | None = None

    @property
    def source(self) -> BufferSource:
        """What the other side writes."""
        return self._source

    @property
    def sink(self) -> BufferSink:
        """What the other side reads."""
        return self._sink

    def abort(self, reason: str | None = None, /) -> bool:
        """Break both directions: the other side's reads fail, its writes raise StreamAborted.

        Returns:
            True the first time; False if both directions were over already.
        """
        error = StreamAborted(reason or "the other side aborted")
        ended = self._sink.end(error)
        return self._source.abort() or ended

    async def aclose(self) -> None:
        """End the sink normally, so that the other side reads the rest, and abort the source."""
        self._sink.end()
        self._source.abort()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._source.start_pumps(self._tasks)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None:
        if exc is None:
            await self.aclose()
        else:
            self.abort(f"the other side was left with {exc!r:.200}")
        tasks, self._tasks = self._tasks, None
        return await tasks.__aexit__(exc_type, exc, traceback) if tasks else None


def duplex_pair(
    *, limit: int | None = None, strategy: Strategy = "block"
) -> tuple[BufferDuplex, BufferDuplex]:
    """Return two connected duplexes: what is written on one is read on the other.

    Args:
        limit: Frames that may wait in each direction; None is unbounded.
        strategy: What happens beyond the limit, as in `FrameBuffer`.
    """
    there, back = FrameBuffer(limit, strategy), FrameBuffer(limit, strategy)
    return BufferDuplex(back.source, there.sink), BufferDuplex(there.source, back.sink)
