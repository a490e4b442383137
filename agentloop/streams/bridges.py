"""Bridges to other people's streams: anyio object streams, async iterators, aiostream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream, ObjectStream

from agentloop._numbers import check_duration
from agentloop.errors import MissingExtra, StreamEnded, StreamFailed
from agentloop.frames import Frame
from agentloop.ports import FrameDuplex, Source
from agentloop.streams.buffer import BufferSink, BufferSource, FrameBuffer
from agentloop.streams.reading import Readable
from agentloop.streams.tasks import OwnedTasks

if TYPE_CHECKING:
    from aiostream.core import Stream

__all__ = ("as_aiter", "as_object_stream", "from_aiostream", "from_object_streams", "to_aiostream")


def as_object_stream(duplex: FrameDuplex, /) -> ObjectStream[Frame]:
    """Return an anyio object stream that writes to the sink and reads from the source.

    An error end is a ``BrokenResourceError`` whose cause is the error. Closing it closes the
    duplex.
    """
    return _DuplexStream(duplex)


class _DuplexStream(ObjectStream[Frame]):
    def __init__(self, duplex: FrameDuplex) -> None:
        self._duplex, self._closed = duplex, False

    async def send(self, item: Frame) -> None:
        await self._duplex.sink.write(item)

    async def send_eof(self) -> None:
        self._duplex.sink.end()

    async def receive(self) -> Frame:
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            return await self._duplex.source.receive()
        except StreamFailed as failed:
            raise anyio.BrokenResourceError from failed.__cause__ or failed

    async def aclose(self) -> None:
        self._closed = True
        await self._duplex.aclose()


def from_object_streams(
    receive: ObjectReceiveStream[Any],
    send: ObjectSendStream[Any],
    /,
    *,
    limit: int = 1,
    close_timeout_ms: int = 5_000,
) -> ObjectStreamDuplex:
    """Return a duplex over a pair of object streams; it moves frames inside ``async with``.

    What is received may be anything a frame can be made of. Leaving delivers what was written
    and closes both streams.

    Args:
        receive: Becomes the source. Its end is the end; if it breaks, the source fails.
        send: Gets what is written to the sink, and is closed when that ends.
        limit: Frames that may wait in each direction.
        close_timeout_ms: How long leaving waits for a peer that does not receive.
    """
    check_duration("close_timeout_ms", close_timeout_ms, zero=True)
    return ObjectStreamDuplex(receive, send, limit, close_timeout_ms)


class ObjectStreamDuplex:
    """A duplex over two object streams, with a buffer and a task for each direction."""

    __slots__ = (
        "_close_timeout_ms",
        "_delivered",
        "_incoming",
        "_outgoing",
        "_receive",
        "_scopes",
        "_send",
        "_tasks",
    )

    def __init__(
        self,
        receive: ObjectReceiveStream[Any],
        send: ObjectSendStream[Any],
        limit: int,
        close_timeout_ms: int,
    ) -> None:
        self._receive, self._send, self._close_timeout_ms = receive, send, close_timeout_ms
        self._incoming = FrameBuffer(limit, "block")
        self._outgoing = FrameBuffer(limit, "block")
        self._scopes: list[anyio.CancelScope] = []
        self._tasks: OwnedTasks | None = None

    @property
    def source(self) -> BufferSource:
        """What the receiving stream brings."""
        return self._incoming.source

    @property
    def sink(self) -> BufferSink:
        """What the sending stream takes."""
        return self._outgoing.sink

    def abort(self, reason: str | None = None, /) -> bool:
        """Stop both directions and throw away what waits; True the first time."""
        ended = self._outgoing.end(StreamEnded(reason or "aborted"))
        aborted = self._incoming.abort()
        for scope in self._scopes:
            scope.cancel()
        return ended or aborted

    async def aclose(self) -> None:
        """Stop both directions and close both streams."""
        self.abort()
        with anyio.CancelScope(shield=True):
            await self._receive.aclose()
            await self._send.aclose()

    async def __aenter__(self) -> Self:
        self._tasks = tasks = await OwnedTasks().__aenter__()
        self._delivered = anyio.Event()
        tasks.group.start_soon(self._bring)
        tasks.group.start_soon(self._deliver)
        self._incoming.source.start_pumps(tasks.group)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None:
        """Deliver what was written, if nothing went wrong, then close."""
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return None
        try:
            if exc is None:
                self._outgoing.end()
                # Received and forgotten: a peer that waits for us would never get to receive.
                self._incoming.drain()
                with anyio.move_on_after(self._close_timeout_ms / 1000):
                    await self._delivered.wait()
            tasks.group.cancel_scope.cancel()
            return await tasks.__aexit__(exc_type, exc, traceback)
        finally:
            await self.aclose()

    async def _bring(self) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            self._incoming.on_abort(lambda error: scope.cancel())
            try:
                while True:
                    await self._incoming.put(Frame.of(await self._receive.receive()))
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._incoming.end()
            except Exception as error:
                self._incoming.end(error)

    async def _deliver(self) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            try:
                async for frame in self._outgoing.source:
                    await self._send.send(frame)
            except StreamFailed:
                pass  # an error end cannot travel through an object stream; closing must say it
            except Exception as error:
                self._outgoing.abort(error)
        with anyio.CancelScope(shield=True):
            await self._send.aclose()
        self._delivered.set()


def as_aiter(source: Source, /) -> AsyncIterator[Frame]:
    """Return a bare async iterator over a source; whoever closes iterators cannot end it."""
    return _Frames(source)


class _Frames(AsyncIterator[Frame]):
    __slots__ = ("_source",)

    def __init__(self, source: Source) -> None:
        self._source = source

    async def __anext__(self) -> Frame:
        try:
            return await self._source.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def to_aiostream(source: Source, /) -> Stream[Frame]:
    """Return an aiostream stream over a source, to be used with all operators of aiostream.

    Raises:
        MissingExtra: aiostream is not installed.
        RuntimeError: On another event loop than asyncio, when it is iterated.
    """
    _need_aiostream()
    from agentloop.streams import operators

    return operators.stream_of(source)


def from_aiostream(stream: Stream[Any], /) -> Readable[Frame]:
    """Return a source of what an aiostream stream yields, made into frames.

    `aclose`, the context protocol and the end of a pipe close the stream; `abort` alone does not.

    Raises:
        MissingExtra: aiostream is not installed.
        RuntimeError: On another event loop than asyncio, when it is read.
    """
    _need_aiostream()
    from agentloop.streams import operators

    return operators.source_of(stream)


def _need_aiostream() -> None:
    try:
        import aiostream  # noqa: F401  (only to see whether it is there)
    except ImportError:
        raise MissingExtra("aiostream", "aiostream", "a bridge to aiostream") from None
