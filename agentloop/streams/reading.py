"""What every source does the same way: iterating, collecting, closing, piping, being claimed.

A source of its own writes `take`, `take_nowait`, `abort`, `ended` and `statistics`;
`Readable` makes the rest of it. Whoever consumes a source for good (a pipe, a combinator)
claims it, so that everybody else finds it busy, and then reads with `take`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio

from agentloop.errors import StreamBusy
from agentloop.ports import FrameStats, Sink, Source
from agentloop.streams.pump import DetachHook, Pipe, PipeOwner, log_detached

__all__ = ("Readable", "claimed")

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S", bound=Sink)


class Readable(ABC, Generic[T_co]):
    """The base of all sources. It is its own iterator, so leaving a loop early loses nothing."""

    __slots__ = ("__weakref__", "_claimed", "_detached", "_owner", "_pipe")

    def __init__(self) -> None:
        self._owner: PipeOwner | None = None
        self._pipe: Pipe | None = None
        self._claimed = False
        self._detached: DetachHook = log_detached

    @property
    @abstractmethod
    def ended(self) -> bool:
        """True once nothing can be read any more."""

    @abstractmethod
    async def take(self) -> T_co:
        """As `receive`, for the holder of the claim."""

    @abstractmethod
    def take_nowait(self) -> T_co:
        """As `receive_nowait`, for the holder of the claim."""

    @abstractmethod
    def abort(self, error: BaseException | None = None, /) -> bool:
        """Give up reading: discard what waits and tell whoever writes; True the first time."""

    @abstractmethod
    def statistics(self) -> FrameStats:
        """Return the counts so far."""

    async def receive(self) -> T_co:
        """Return the next item.

        Raises:
            anyio.EndOfStream: After a normal end, or after an abort without error.
            StreamFailed: After an error end; the error is the cause.
            StreamBusy: Somebody else is reading, or the source is piped.
        """
        self.check_free()
        return await self.take()

    def receive_nowait(self) -> T_co:
        """As `receive`, but raise ``anyio.WouldBlock`` instead of waiting."""
        self.check_free()
        return self.take_nowait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T_co:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def collect(self, max_frames: int | None = None, /) -> list[T_co]:
        """Read to the end, or that many items.

        What was read is lost if the stream fails meanwhile; iterate to keep it.
        """
        items: list[T_co] = []
        while max_frames is None or len(items) < max_frames:
            try:
                items.append(await self.receive())
            except anyio.EndOfStream:
                break
        return items

    def pipe(self, sink: S, /, *, end: bool = True, on_error: str = "abort") -> S:
        """Attach a sink and return it, so that throughs can be chained.

        Only the link is recorded; the frames move in a task of the owner, from the moment
        the owner is entered (`start_pumps`, `source_owner`). Order is kept, and nothing is
        taken out of the source before the sink is ready for it.

        Args:
            sink: Gets every frame; a through to go on from.
            end: Whether a normal end is passed on. An error end always is.
            on_error: What an exception from the sink does: ``abort`` aborts the source with
                it, ``detach`` drops the pipe, logs it, and lets the source go on alone. A sink
                that was ended or aborted always aborts the source.

        Raises:
            StreamBusy: The source has a pipe or a reader.
            ValueError: Another word for ``on_error``.
        """
        if on_error not in ("abort", "detach"):
            raise ValueError(f"on_error is 'abort' or 'detach', not {on_error!r}")
        self.claim()
        self._pipe = Pipe(self, sink, end=end, detach=self._detached if on_error == "detach" else None)
        if self._owner is not None:
            self._pipe.start(self._owner)
        return sink

    def start_pumps(self, owner: PipeOwner, /) -> None:
        """Be owned: start the pipe there is, and those to come, as tasks of that owner.

        Whoever owns a source calls this once when it is entered, with its task group; the
        tasks end when the source does, or when they are cancelled.
        """
        self._owner = owner
        if self._pipe is not None:
            self._pipe.start(owner)

    def on_detach(self, hook: DetachHook, /) -> None:
        """Have a hook told of sinks that are detached from now on, instead of the log."""
        self._detached = hook

    def check_free(self) -> None:
        """Raise StreamBusy if a pipe or a combinator has the source."""
        if self._claimed:
            raise StreamBusy("reading from (it is piped)")

    def claim(self) -> None:
        """Take the source for good.

        Raises:
            StreamBusy: It has a reader, or somebody has claimed it.
        """
        self.check_free()
        self._claimed = True

    def release(self) -> None:
        """Give the source back to readers."""
        self._claimed, self._pipe = False, None

    def watch(self, event: anyio.Event, /) -> bool:
        """Have an event set when there is something to take; False if the source cannot tell."""
        return False

    def unwatch(self) -> None:
        """Undo `watch`; whoever watched takes at once what came meanwhile."""

    async def aclose(self) -> None:
        """Abort without error."""
        self.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.abort(exc)
        await self.aclose()


class _Foreign:
    """A source that is not ours: it cannot be claimed or watched, only read."""

    __slots__ = ("_source", "abort", "take", "take_nowait")

    def __init__(self, source: Source) -> None:
        self._source = source
        self.take, self.take_nowait, self.abort = source.receive, source.receive_nowait, source.abort

    def release(self) -> None:
        """Nothing was claimed."""

    def watch(self, event: anyio.Event, /) -> bool:
        return False

    def unwatch(self) -> None:
        """Nothing is watched."""

    async def aclose(self) -> None:
        self._source.abort()


def claimed(source: Source | Readable[Any], /) -> Readable[Any] | _Foreign:
    """Claim a source and return what it is read by.

    Raises:
        StreamBusy: It has a reader, a pipe, or belongs to a combinator.
    """
    if not isinstance(source, Readable):
        return _Foreign(source)
    source.claim()
    return source
