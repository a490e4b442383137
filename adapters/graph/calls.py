"""Calling a graph, which is synchronous, from a loop, which is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

__all__ = ("Graph", "GraphCalls", "value_of")

T = TypeVar("T")


class Graph(Protocol):
    """What the bridge needs of a graph; `graphstate.Adaptogen` has it.

    ``unit()``, ``as_actor()``, ``cursor()`` and ``durability`` are used where there are any.
    """

    @property
    def remember(self) -> Callable[..., Any]: ...
    @property
    def archive(self) -> Callable[..., Any]: ...
    @property
    def get_node(self) -> Callable[..., Any]: ...
    @property
    def set_cursor(self) -> Callable[..., Any]: ...
    @property
    def transition(self) -> Callable[..., Any]: ...
    @property
    def reward(self) -> Callable[..., Any]: ...


def value_of(result: Any) -> Any:
    """Return the value of a verb's answer.

    Raises:
        VerbFailed: The verb failed; the message says what to do.
    """
    if not getattr(result, "ok", True):
        result.unwrap()
    return getattr(result, "value", result)


class GraphCalls:
    """Runs calls where they hold up nobody.

    Without a disk flush they run in line, which costs less than a thread would; a graph that
    survives power loss flushes with every commit and is called through one worker slot.
    """

    __slots__ = ("_blocking", "_slot")

    def __init__(self, graph: object) -> None:
        self._blocking = getattr(graph, "durability", None) == "power"
        # One slot for each event loop: several may share a graph, its own lock keeps them apart.
        self._slot: RunVar[anyio.CapacityLimiter] = RunVar("graph slot")

    async def __call__(self, call: Callable[[], T], /) -> T:
        """Return what the call returns; a call that was begun is never interrupted."""
        if not self._blocking:
            return call()
        slot = self._slot.get(None)
        if slot is None:
            slot = anyio.CapacityLimiter(1)
            self._slot.set(slot)
        return await anyio.to_thread.run_sync(call, limiter=slot)
