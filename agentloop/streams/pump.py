"""Moving frames from a source into a sink: the pump, the pipe that waits for it, its owner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeAlias

import anyio

from agentloop.errors import StreamAborted, StreamEnded, StreamFailed
from agentloop.ports import Sink
from agentloop.streams.queue import BURST, AbortHook
from agentloop.streams.tasks import OwnedTasks

__all__ = (
    "DetachHook",
    "Pipe",
    "PipeOwner",
    "Pumpable",
    "log_detached",
    "pump",
    "source_owner",
    "when_aborted",
)

_log = logging.getLogger(__name__)

#: Is told, synchronously, what a sink raised that was detached for it.
DetachHook: TypeAlias = Callable[[Exception], object]


class PipeOwner(Protocol):
    """Whose tasks the pumps are; an anyio task group is one."""

    def start_soon(self, func: Callable[[], Coroutine[Any, Any, Any]], /) -> object: ...


class Pumpable(Protocol):
    """What the pump needs of a source that was claimed for it."""

    async def take(self) -> Any:
        """As `Source.receive`, for the holder of the claim."""

    def take_nowait(self) -> Any:
        """As `Source.receive_nowait`, for the holder of the claim."""

    def abort(self, error: BaseException | None = None, /) -> bool: ...

    def release(self) -> None: ...

    async def aclose(self) -> None: ...


def when_aborted(sink: Sink, hook: AbortHook) -> Callable[[], object]:
    """Have a hook called when the sink's reader aborts; return what takes the hook back.

    Sinks that cannot tell are found out at the next write.
    """
    on_abort: Callable[[AbortHook], Callable[[], object]] | None = getattr(sink, "on_abort", None)
    return on_abort(hook) if on_abort is not None else (lambda: None)


async def pump(
    source: Pumpable, sink: Sink, *, end: bool = True, detach: DetachHook | None = None
) -> BaseException | None:
    """Move every frame, pass on how it ended, and return the error that ended it, if one did.

    A frame is taken only once the sink is ready, so that what waits stays in the source.
    Whatever fails, both sides learn of it; cancelled, both are told so as well.

    Args:
        source: Claimed by the caller.
        sink: Its end or abort aborts the source.
        end: Whether a normal end is passed on.
        detach: If the sink raises, give the source back and tell this, instead of aborting it.
    """
    left: list[BaseException | None] = []

    def reader_left(error: BaseException | None) -> None:
        left.append(error)
        source.abort(error)

    forget = when_aborted(sink, reader_left)
    moved, take_nowait, write = 0, source.take_nowait, sink.write
    try:
        while not sink.ended:
            if sink.paused:
                await sink.ready()
            moved += 1
            try:
                try:
                    # The waiting way now and then, because it also yields.
                    frame = take_nowait() if moved % BURST else await source.take()
                except anyio.WouldBlock:
                    frame = await source.take()
            except anyio.EndOfStream:
                if end:
                    sink.end()
                break
            except StreamFailed as failed:
                reason = failed.__cause__ or failed
                sink.end(reason)
                return reason
            await write(frame)
    except (StreamAborted, StreamEnded) as error:
        source.abort(error.__cause__)
        return error
    except Exception as error:
        if detach is not None:
            source.release()
            detach(error)
            return error
        source.abort(error)
        sink.end(error)
        return error
    except BaseException:
        source.abort()
        sink.end(StreamAborted("the pipe was cancelled before its source ended"))
        raise
    finally:
        forget()
    await source.aclose()
    return StreamAborted("the sink's reader has aborted") if left else None


class Pipe:
    """A link from a source to a sink, started once by the source's owner."""

    __slots__ = ("_detach", "_end", "_sink", "_source", "_started")

    def __init__(self, source: Pumpable, sink: Sink, *, end: bool, detach: DetachHook | None) -> None:
        self._source, self._sink, self._end, self._detach = source, sink, end, detach
        self._started = False

    def start(self, owner: PipeOwner) -> None:
        """Run the pump as a task of the owner; the second start changes nothing."""
        if not self._started:
            self._started = True
            owner.start_soon(self._run)

    async def _run(self) -> None:
        await pump(self._source, self._sink, end=self._end, detach=self._detach)


def log_detached(error: Exception) -> None:
    """Write to the log that a sink failed and was detached from its source."""
    _log.error("a sink failed and was detached from its source: %r", error, exc_info=error)


class _Owned(Protocol):
    def start_pumps(self, owner: PipeOwner, /) -> None: ...


def source_owner(*sources: _Owned) -> _SourceOwner:
    """Own sources that nothing else owns: ``async with source_owner(a, b): …`` runs their pipes.

    Leaving waits until the pipes are done; leaving with an exception cancels them.
    """
    return _SourceOwner(sources)


class _SourceOwner(OwnedTasks):
    __slots__ = ("_sources",)

    def __init__(self, sources: tuple[_Owned, ...]) -> None:
        self._sources = sources

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        for source in self._sources:
            source.start_pumps(self.group)
        return self
