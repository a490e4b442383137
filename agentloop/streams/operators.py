"""The one door to aiostream, which is for asyncio only and licensed GPL-3.0-or-later.

Nothing imports this module but `bridges`, and only when somebody asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiostream
from aiostream.core import Stream, Streamer

from agentloop.frames import Frame, FrameLike
from agentloop.ports import Source
from agentloop.streams.bridges import as_aiter
from agentloop.streams.combinators import from_aiter
from agentloop.streams.reading import Readable

__all__ = ("source_of", "stream_of")


def stream_of(source: Source) -> Stream[Frame]:
    """Return an aiostream stream over a source. Stopping early neither ends nor aborts it."""
    return aiostream.stream.iterate(_OnAsyncio(source))


def source_of(stream: Stream[Any]) -> Readable[Frame]:
    """Return a source over an aiostream stream, entered at the first receive."""
    return from_aiter(_Streamed(stream))


def _need_asyncio() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "aiostream needs asyncio, and this is another event loop: "
            "use merge, zip, chunks, timeout and the throughs of agentloop instead"
        ) from None


class _OnAsyncio:
    """An async iterable over a source that says clearly where it cannot work."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __aiter__(self) -> AsyncIterator[Frame]:
        _need_asyncio()
        return as_aiter(self._source)


class _Streamed(AsyncIterator[FrameLike]):
    """An iterator over a stream that holds the stream's context open until it is over."""

    def __init__(self, stream: Stream[Any]) -> None:
        self._stream = stream
        self._streamer: Streamer[Any] | None = None

    async def __anext__(self) -> FrameLike:
        _need_asyncio()
        if self._streamer is None:
            self._streamer = self._stream.stream()
            await self._streamer.__aenter__()
        try:
            item: FrameLike = await anext(self._streamer)
        except BaseException:
            await self.aclose()
            raise
        return item

    async def aclose(self) -> None:
        """Leave the stream's context."""
        streamer, self._streamer = self._streamer, None
        if streamer is not None:
            await streamer.__aexit__(None, None, None)
