"""One turn of an adapter: how it is asked, read, answered and cut.

`as_adapter` makes every accepted kind of adapter speak one small protocol. Functions and
generators are pulled in line, with no task and no queue between; duplexes are written to and
read from. `TurnFold` is the pure half: what a turn's frames add up to, live or replayed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import anyio
import anyio.to_thread

from agentloop.errors import AdapterEnded, StreamAborted, StreamEnded, StreamFailed, TurnError
from agentloop.frames import (
    ABORT,
    DONE,
    ERROR,
    REASONING,
    TEXT,
    TOOL_CALL,
    USAGE,
    Frame,
    FrameLike,
    Role,
)
from agentloop.loop.answers import must_wait
from agentloop.ports import FrameDuplex
from agentloop.tools import is_async

__all__ = ("Adapter", "AdapterLike", "Prompt", "Turn", "TurnFold", "as_adapter", "is_forwarded")


#: What the types of the run's own frames begin with.
OWN_PREFIX: Final = "agent_loop:"


class Prompt(tuple[Frame, ...]):
    """The frames of one prompt; ``prompt.text`` is the text of all of them."""

    __slots__ = ()

    @property
    def text(self) -> str:
        return "".join(frame.text for frame in self)


class Turn(Protocol):
    """One turn that was begun."""

    #: Whether `answer` may come while `next` waits, so that calls can overlap with reading.
    concurrent: bool

    async def next(self) -> Frame | list[Frame] | None:
        """Return the next frame, a list of tool calls asked for at once, or None at the end."""

    async def answer(self, results: list[Frame]) -> None:
        """Hand over the TOOL_RESULTs of the calls that were just returned by `next`."""

    async def close(self) -> None:
        """Release what the turn holds, whether it ended or was cut."""


class Adapter(Protocol):
    """Whoever can take turns."""

    async def begin(self, prompt: Prompt, ctx: Any, role: Role) -> Turn:
        """Begin a turn.

        Raises:
            AdapterEnded: It cannot take another one.
        """

    def abort(self, reason: str) -> None:
        """Tell whoever is behind the adapter that its turn was cut."""


@runtime_checkable
class _TakesTurns(Protocol):
    def turn(self, prompt: Any, ctx: Any, /) -> AsyncIterator[Any]: ...


#: What `as_adapter` accepts.
AdapterLike: TypeAlias = FrameDuplex | _TakesTurns | Callable[..., Any]


def as_adapter(adapter: AdapterLike | object) -> Adapter:
    """Return an adapter for the loop.

    Accepts a `FrameDuplex`; an object with ``turn(prompt, ctx)``; an async generator function,
    a coroutine function or a plain function ``(prompt, ctx)`` that gives frames, strings,
    mappings, or a list of them. Plain functions run in a worker thread. An async generator
    receives the TOOL_RESULT frame of a TOOL_CALL it yields as the value of that ``yield``; if
    it yields a list of calls, it receives the list of their results.

    Raises:
        TypeError: Anything else.
    """
    if isinstance(adapter, (_TurnAdapter, _DuplexAdapter)):
        return adapter
    if isinstance(adapter, _TakesTurns):
        return _TurnAdapter(adapter.turn, getattr(adapter, "abort", None), in_thread=False)
    if isinstance(adapter, FrameDuplex):
        return _DuplexAdapter(adapter)
    if not callable(adapter):
        raise TypeError(_NOT_AN_ADAPTER.format(type(adapter).__name__))
    return _TurnAdapter(adapter, None, in_thread=not is_async(adapter))


_NOT_AN_ADAPTER = (
    "an adapter is a FrameDuplex, an object with turn(prompt, ctx), or a function (prompt, ctx), not {}"
)


# --------------------------------------------------------------------------------- functions


class _TurnAdapter:
    __slots__ = ("_abort", "_function", "_in_thread")

    def __init__(
        self, function: Callable[..., Any], abort: Callable[..., Any] | None, *, in_thread: bool
    ) -> None:
        self._function, self._abort, self._in_thread = function, abort, in_thread

    async def begin(self, prompt: Prompt, ctx: Any, role: Role) -> Turn:
        if self._in_thread:
            (value,) = await anyio.to_thread.run_sync(self._boxed, prompt, ctx, abandon_on_cancel=True)
        else:
            value = self._function(prompt, ctx)
        if not hasattr(value, "asend") and must_wait(value):
            value = await value
        if hasattr(value, "asend"):
            return _GeneratorTurn(cast("AsyncGenerator[Any, Any]", value))
        if isinstance(value, AsyncIterator):
            return _IteratorTurn(value)
        return _ListTurn(_frames_of(value))

    def _boxed(self, prompt: Prompt, ctx: Any) -> tuple[Any]:
        return (self._function(prompt, ctx),)  # trio refuses a coroutine that a thread gives back

    def abort(self, reason: str) -> None:
        if self._abort is not None:
            self._abort(reason)


def _frames_of(value: object) -> list[Frame]:
    if isinstance(value, (Frame, str, Mapping)):
        return [_frame_of(value)]
    if isinstance(value, Iterable):
        return [_frame_of(item) for item in value]
    raise TurnError(
        f"an adapter function must give a frame, a str, a mapping or a list of them, not {type(value).__name__}"
    )


def _frame_of(value: FrameLike) -> Frame:
    # A str is taken as it is: half a surrogate pair at its end may be completed by the next.
    return Frame(TEXT, {"text": value}) if type(value) is str else Frame.of(value)


def _frame_or_calls(value: FrameLike | list[FrameLike]) -> Frame | list[Frame]:
    if isinstance(value, list):
        return [_frame_of(item) for item in value]
    return value if type(value) is Frame else _frame_of(value)


class _GeneratorTurn:
    __slots__ = ("_answer", "_generator", "_many")

    concurrent = False

    def __init__(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generator = generator
        self._answer: Frame | list[Frame] | None = None
        self._many = False

    async def next(self) -> Frame | list[Frame] | None:
        answer, self._answer = self._answer, None
        try:
            value = await self._generator.asend(answer)
        except StopAsyncIteration:
            return None
        self._many = isinstance(value, list)
        return _frame_or_calls(value)

    async def answer(self, results: list[Frame]) -> None:
        self._answer = results if self._many else results[0]

    async def close(self) -> None:
        await self._generator.aclose()


class _IteratorTurn:
    __slots__ = ("_iterator",)

    concurrent = False

    def __init__(self, iterator: AsyncIterator[Any]) -> None:
        self._iterator = iterator

    async def next(self) -> Frame | list[Frame] | None:
        try:
            return _frame_or_calls(await anext(self._iterator))
        except StopAsyncIteration:
            return None

    async def answer(self, results: list[Frame]) -> None:
        """An iterator has no way in: the results stand in the trace and the history."""

    async def close(self) -> None:
        close: Callable[[], Awaitable[None]] | None = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()


class _ListTurn:
    __slots__ = ("_frames", "_position")

    concurrent = False

    def __init__(self, frames: list[Frame]) -> None:
        self._frames, self._position = frames, 0

    async def next(self) -> Frame | None:
        if self._position == len(self._frames):
            return None
        self._position += 1
        return self._frames[self._position - 1]

    async def answer(self, results: list[Frame]) -> None:
        """A finished list has no way in: the results stand in the trace and the history."""

    async def close(self) -> None:
        """Nothing is held."""


# ---------------------------------------------------------------------------------- duplexes


class _DuplexAdapter:
    __slots__ = ("_duplex", "ended")

    def __init__(self, duplex: FrameDuplex) -> None:
        self._duplex, self.ended = duplex, False

    async def begin(self, prompt: Prompt, ctx: Any, role: Role) -> Turn:
        source, sink = self._duplex.source, self._duplex.sink
        try:
            while True:  # what an earlier turn that was cut off left behind
                source.receive_nowait()
        except anyio.WouldBlock:
            pass
        except anyio.EndOfStream:
            self.ended = True
        if self.ended:
            raise AdapterEnded(role)
        try:
            for frame in prompt:
                await sink.write(frame)
        except (StreamEnded, StreamAborted) as error:
            raise AdapterEnded(role) from error
        return _DuplexTurn(self, self._duplex)

    def abort(self, reason: str) -> None:
        self._duplex.abort(reason)


class _DuplexTurn:
    __slots__ = ("_adapter", "_sink", "_source")

    concurrent = True

    def __init__(self, adapter: _DuplexAdapter, duplex: FrameDuplex) -> None:
        self._adapter, self._source, self._sink = adapter, duplex.source, duplex.sink

    async def next(self) -> Frame | None:
        try:
            return await self._source.receive()
        except anyio.EndOfStream:
            self._adapter.ended = True
            return None
        except StreamFailed as failure:
            raise failure.__cause__ or failure from None

    async def answer(self, results: list[Frame]) -> None:
        for result in results:
            await self._sink.write(result)

    async def close(self) -> None:
        """The duplex stays with whoever owns it."""


# -------------------------------------------------------------------------------------- fold


def is_forwarded(frame_type: str, wanted: frozenset[str] | None) -> bool:
    """Return whether a frame of an adapter is shown to the reader; None wants all of them.

    What the run says itself cannot be said by an adapter.
    """
    if wanted is not None:
        return frame_type in wanted
    return frame_type not in (ABORT, ERROR) and not frame_type.startswith(OWN_PREFIX)


class TurnFold:
    """What the frames of one turn add up to. Pure: fed live by the loop, or from a ledger.

    Attributes:
        usage: Sums of the USAGE frames and of DONE.
        finish_reason: As DONE gave it.
        calls: How many TOOL_CALL frames there were.
        frames: All frames but DONE, for the parser; kept for the evaluator only.
        retrieval_ids: From CONTEXT frames.
    """

    __slots__ = ("_final", "_texts", "calls", "finish_reason", "frames", "retrieval_ids", "role", "usage")

    def __init__(self, role: Role) -> None:
        self.role = role
        self._texts: list[str] = []
        self._final: str | None = None
        self.usage: dict[str, int] = {}
        self.finish_reason: str | None = None
        self.calls = 0
        self.frames: list[Frame] = []
        self.retrieval_ids: list[str] = []

    def feed(self, frame: Frame) -> None:
        """Take one frame of the turn."""
        kind = frame.type
        if kind == TEXT:
            self._texts.append(frame.text)
            if frame.content.get("final") is True:
                self._final = frame.text
        elif kind == TOOL_CALL:
            self.calls += 1
        elif kind == USAGE:
            self._count(frame.content)
        elif kind == DONE:
            reason = frame.content.get("finish_reason")
            self.finish_reason = reason if isinstance(reason, str) else None
            usage = frame.content.get("usage")
            if usage is not None and isinstance(usage, Mapping):
                self._count(usage)
        elif kind != REASONING and (ids := frame.content.get("retrieval_ids")):
            self.retrieval_ids += [str(item) for item in ids]
        if kind != DONE and self.role == "evaluator":
            self.frames.append(frame)

    def _count(self, usage: Mapping[str, Any]) -> None:
        for name, value in usage.items():
            if isinstance(value, int) and not isinstance(value, bool):
                self.usage[name] = self.usage.get(name, 0) + value

    @property
    def text(self) -> str:
        """The turn's text: the last final TEXT if there is one, else all of them joined."""
        return "".join(self._texts) if self._final is None else self._final

    @property
    def truncated(self) -> bool:
        """Whether the model stopped for want of tokens or because it was filtered."""
        return self.finish_reason in ("length", "max_tokens", "content_filter")

    @property
    def empty(self) -> bool:
        """Whether the turn had neither text nor a tool call."""
        return not self.calls and not self.text
