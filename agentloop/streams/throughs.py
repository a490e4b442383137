"""Throughs: sinks that hand on what a rule makes of each frame. They hold nothing back.

A chain of throughs runs as one loop over its rules inside the first one's `write`, so an
operator costs a function call a frame, and neither a task nor a queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import anyio

from agentloop._numbers import check_count
from agentloop.errors import StreamBusy, StreamEnded
from agentloop.frames import Frame, FrameLike
from agentloop.ports import Sink
from agentloop.streams.pump import when_aborted
from agentloop.streams.queue import AbortHook

__all__ = ("Through", "filter_frames", "map_frames", "only", "take")

S = TypeVar("S", bound=Sink)


class _Quota:
    """How many frames may still pass a `take`."""

    __slots__ = ("left",)

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, frame: Frame) -> bool:
        self.left -= 1
        return True


#: A function, and whether it says if the frame is kept (else it gives the frame to hand on).
#: A plain tuple: those unpack faster than named ones.
_Rule: TypeAlias = tuple[Callable[[Frame], Any], bool]


@dataclass(frozen=True, slots=True)
class _Route:
    """The way from a through to the first sink that is none."""

    rules: tuple[_Rule, ...]
    quotas: tuple[_Quota, ...]
    target: Sink
    passes_end: bool
    write: Callable[[Frame], Awaitable[bool]]


class Through:
    """A sink that hands on what its rule makes of each frame; paused until it has a destination.

    An exception of the rule is raised to the writer; a pipe then aborts its source and ends
    the destination with it.
    """

    __slots__ = ("_end", "_ending", "_hooks", "_linked", "_route", "_rule", "_target")

    def __init__(self, rule: _Rule) -> None:
        self._rule = rule
        self._target: Sink | None = None
        self._end = True
        self._route: _Route | None = None
        self._linked: anyio.Event | None = None
        #: How it was ended, as an error or None; empty while it was not.
        self._ending: list[BaseException | None] = []
        self._hooks: list[AbortHook] = []

    @property
    def paused(self) -> bool:
        """True while it has no destination, or that is paused."""
        route = self._route or self._find_route()
        return (route is None or route.target.paused) and not self._ending

    @property
    def ended(self) -> bool:
        """True once no more frames may be written."""
        route = self._route or self._find_route()
        return (route is not None and route.target.ended) or bool(self._ending)

    def pipe(self, sink: S, /, *, end: bool = True) -> S:
        """Attach the destination and return it; what it raises is raised to the writer.

        Args:
            sink: Gets what the rule lets through.
            end: Whether a normal end is passed on. An error end always is.

        Raises:
            StreamBusy: It has a destination already.
        """
        if self._target is not None:
            raise StreamBusy("piping (the through has a destination already)")
        self._target, self._end = sink, end
        for hook in self._hooks:
            when_aborted(sink, hook)
        for error in self._ending:
            self._pass_end(error)
        if self._linked is not None:
            self._linked.set()
        return sink

    async def write(self, frame: FrameLike, /) -> bool:
        """Write what the rule makes of a frame, waiting while paused; True if it kept none.

        Raises:
            StreamEnded: After `end`, or after the last frame of a `take`.
            Exception: Whatever the rule or the destination raises.
        """
        route = self._route or await self._wait_for_route()
        if self._ending:
            raise StreamEnded("cannot write to a through that has ended")
        result = frame if type(frame) is Frame else Frame.of(frame)
        for call, keeps in route.rules:  # as in _apply; written out because a call a frame shows
            if not keeps:
                result = call(result)
                if type(result) is not Frame:
                    result = Frame.of(result)
            elif not call(result):
                return True
        accepted = await route.write(result)
        if route.quotas:
            self._end_if_taken(route)
        return accepted

    def write_nowait(self, frame: FrameLike, /) -> bool:
        """As `write`, but raise ``anyio.WouldBlock`` instead of waiting."""
        route = self._route or self._find_route()
        # Asked before the rules run: one that counts must not count a frame twice.
        if route is None or (route.target.paused and not self._ending):
            raise anyio.WouldBlock
        kept = self._apply(route, frame)
        if kept is None:
            return True
        accepted = route.target.write_nowait(kept)
        self._end_if_taken(route)
        return accepted

    async def ready(self) -> None:
        """Return when it has a destination and that is ready."""
        if not self._ending:
            await (self._route or await self._wait_for_route()).target.ready()

    def end(self, error: BaseException | None = None, /) -> bool:
        """End the destination, now or when it is attached. The first end wins."""
        if self.ended:
            return False
        self._ending.append(error)
        self._pass_end(error)
        return True

    def on_abort(self, hook: AbortHook, /) -> Callable[[], object]:
        """Have a hook called when the destination's reader aborts; return what takes it back."""
        if self._target is not None:
            return when_aborted(self._target, hook)
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook)

    def _apply(self, route: _Route, frame: FrameLike) -> Frame | None:
        if self._ending:
            raise StreamEnded("cannot write to a through that has ended")
        result = frame if type(frame) is Frame else Frame.of(frame)
        for call, keeps in route.rules:
            if not keeps:
                result = call(result)
                if type(result) is not Frame:
                    result = Frame.of(result)
            elif not call(result):
                return None
        return result

    def _pass_end(self, error: BaseException | None) -> None:
        if self._target is not None and (error is not None or self._end):
            self._target.end(error)

    def _find_route(self) -> _Route | None:
        rules: list[_Rule] = []
        passes_end = True
        stage: Sink | None = self
        while isinstance(stage, Through):
            rules.append(stage._rule)
            passes_end = passes_end and stage._end
            stage = stage._target
        if stage is None:
            return None
        quotas = tuple(call for call, _ in rules if isinstance(call, _Quota))
        self._route = route = _Route(tuple(rules), quotas, stage, passes_end, stage.write)
        self._end_if_taken(route)
        return route

    def _end_if_taken(self, route: _Route) -> None:
        if any(quota.left <= 0 for quota in route.quotas) and not self._ending:
            self._ending.append(None)
            if route.passes_end:
                route.target.end()

    async def _wait_for_route(self) -> _Route:
        while (route := self._find_route()) is None:
            last = self
            while isinstance(last._target, Through):
                last = last._target
            last._linked = last._linked or anyio.Event()
            await last._linked.wait()
        return route


def map_frames(fn: Callable[[Frame], FrameLike], /) -> Through:
    """Return a through that hands on what a function makes of each frame."""
    return Through((fn, False))


def filter_frames(keep: Callable[[Frame], object], /) -> Through:
    """Return a through that hands on the frames for which a function says yes."""
    return Through((keep, True))


def only(*types: str) -> Through:
    """Return a through that hands on the frames of these types."""
    wanted = frozenset(types)
    return filter_frames(lambda frame: frame.type in wanted)


def take(count: int, /) -> Through:
    """Return a through that hands on that many frames and then ends.

    A pipe into it aborts its source right after the last of them, without asking for one more.

    Raises:
        ValueError: A negative count.
    """
    check_count("the count of take", count, 0)
    return Through((_Quota(count), True))
