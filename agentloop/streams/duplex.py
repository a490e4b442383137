"""Duplexes made of buffers: connected pairs, and turns served by a function.

`duplex_pair` is for tests and for adapters that have a task of their own. `turn_duplex` makes
a duplex of a function that yields the frames of one turn.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio

from agentloop.errors import StreamAborted, StreamFailed, TurnError
from agentloop.frames import CANCEL, DONE, ERROR, TOOL_CALL, TOOL_RESULT, Frame, FrameLike
from agentloop.streams.buffer import BufferSink, BufferSource, FrameBuffer
from agentloop.streams.queue import Strategy
from agentloop.streams.tasks import OwnedTasks

__all__ = ("BufferDuplex", "TurnDuplex", "TurnFunction", "duplex_pair", "turn_duplex")

#: ``fn(prompt, ctx)`` yields the frames of one turn. A generator receives the TOOL_RESULT of a
#: TOOL_CALL it yields as the value of that ``yield``; if it yields a list of calls, a list.
TurnFunction: TypeAlias = Callable[[list[Frame], Any], AsyncIterator[Any]]


class BufferDuplex:
    """A source and a sink that belong together; each may be used without the other.

    ``async with duplex:`` also owns the source's pipes, and closes both ends when left.
    """

    __slots__ = ("_sink", "_source", "_tasks")

    def __init__(self, source: BufferSource, sink: BufferSink) -> None:
        self._source, self._sink = source, sink
        self._tasks: OwnedTasks | None = None

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
        self._tasks = tasks = await OwnedTasks().__aenter__()
        self._source.start_pumps(tasks.group)
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


class TurnDuplex:
    """A duplex whose turns are calls of a function; inside ``async with`` it serves them.

    The frames found on the sink together are one prompt and start one turn, which ends with
    DONE, or with ERROR if the function raised; the exception itself stands in the frame's
    ``meta["exception"]``, and the next turn may go better. TOOL_RESULT frames answer the
    TOOL_CALLs of the running turn; other frames wait for the next one. CANCEL is `abort`.

    Attributes:
        turn: The function, for a loop that rather calls it in line than through tasks.
    """

    __slots__ = (
        "_answers",
        "_context",
        "_prompts",
        "_scope",
        "_sink",
        "_stopped",
        "_tasks",
        "_waiting",
        "turn",
    )

    def __init__(self, fn: TurnFunction, *, ctx: object = None, limit: int | None = 64) -> None:
        self.turn = fn
        self._context = ctx
        self._prompts = FrameBuffer()
        self._answers = FrameBuffer(limit, "block", reserve=sys.maxsize)
        self._answers.on_abort(self._reader_left)
        self._sink = _TurnSink(self, self._prompts)
        #: Frames that came while a tool result was waited for.
        self._waiting: deque[Frame] = deque()
        #: Of the running turn; None when there is none, or when it was cut.
        self._scope: anyio.CancelScope | None = None
        self._tasks: OwnedTasks | None = None
        self._stopped: anyio.Event | None = None

    @property
    def source(self) -> BufferSource:
        """The frames of the turns."""
        return self._answers.source

    @property
    def sink(self) -> BufferSink:
        """Where prompts and tool results go."""
        return self._sink

    def abort(self, reason: str | None = None, /) -> bool:
        """Cut the running turn and forget the prompts that wait; the next one starts afresh.

        What the cut turn has not said yet it will not say: DONE with finish reason ``aborted``
        is the last of it.

        Returns:
            True if there was something to cut.
        """
        scope, self._scope = self._scope, None
        if scope is None and not self._waiting and not self._prompts.frames:
            return False
        self._waiting.clear()
        while self._prompts.frames:
            self._prompts.pop()
        if scope is not None:
            scope.cancel()
        if not self._answers.ended:
            content = {"finish_reason": "aborted"} | ({"reason": reason} if reason else {})
            self._answers.put_final(Frame(DONE, content))
        return True

    async def aclose(self) -> None:
        """End both halves, cut the running turn, and return when it has stopped.

        If the function has ``aclose``, it is called.
        """
        self._prompts.end()
        self._answers.abort()
        if self._stopped is not None:
            await self._stopped.wait()
        else:  # never served: its turns, if any, were called in line
            await self._close_function()

    async def __aenter__(self) -> Self:
        self._tasks = tasks = await OwnedTasks().__aenter__()
        self._answers.source.start_pumps(tasks.group)
        self._stopped = anyio.Event()
        tasks.group.start_soon(self._serve, self._stopped)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None:
        self._prompts.end()
        self._answers.abort()
        tasks, self._tasks = self._tasks, None
        return await tasks.__aexit__(exc_type, exc, traceback) if tasks else None

    def _reader_left(self, error: BaseException | None) -> None:
        self._prompts.abort(error)
        self.abort()

    async def _serve(self, stopped: anyio.Event) -> None:
        try:
            while True:
                try:
                    prompt = await self._next_prompt()
                except anyio.EndOfStream:
                    self._answers.end()
                    return
                except StreamFailed as failed:
                    self._answers.end(failed.__cause__)
                    return
                if prompt:
                    await self._run(prompt)
        finally:
            self._answers.end(StreamAborted("the duplex was left"))
            await self._close_function()
            stopped.set()

    async def _close_function(self) -> None:
        close = getattr(self.turn, "aclose", None)
        if close is not None:
            with anyio.CancelScope(shield=True):
                await close()

    async def _next_prompt(self) -> list[Frame]:
        source = self._prompts.source
        if not self._waiting:
            self._waiting.append(await source.receive())
        while self._prompts.frames:
            self._waiting.append(source.receive_nowait())
        # A result that nobody waits for any more starts nothing.
        prompt = [frame for frame in self._waiting if frame.type != TOOL_RESULT]
        self._waiting.clear()
        return prompt

    async def _run(self, prompt: list[Frame]) -> None:
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                await self._play(prompt, scope)
            except Exception as error:
                if self._scope is scope and not self._answers.ended:
                    await self._answers.put(_error_frame(error))
        self._scope = None

    async def _play(self, prompt: list[Frame], scope: anyio.CancelScope) -> None:
        frames = self.turn(prompt, self._context)
        send = getattr(frames, "asend", None)
        answer: Any = None
        try:
            while True:
                value = await (anext(frames) if send is None else send(answer))
                made = [Frame.of(item) for item in value] if isinstance(value, list) else [Frame.of(value)]
                for frame in made:
                    if self._scope is not scope:
                        return
                    await self._answers.put(frame)
                    if frame.type == DONE:
                        return
                calls = [frame for frame in made if frame.type == TOOL_CALL]
                answer = None
                if calls and send is not None:
                    results = await self._results(calls)
                    answer = results if isinstance(value, list) else results[0]
        except StopAsyncIteration:
            if self._scope is scope:
                await self._answers.put(Frame(DONE, {}))
        finally:
            close = getattr(frames, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await close()

    async def _results(self, calls: list[Frame]) -> list[Frame]:
        """Wait for a TOOL_RESULT of each call; they may come in another order, or without id."""
        results: list[Frame] = []
        while len(results) < len(calls):
            try:
                frame = await self._prompts.source.receive()
            except anyio.EndOfStream:
                names = ", ".join(str(call.content.get("name")) for call in calls)
                raise TurnError(f"the sink ended before the results of the tool calls: {names}") from None
            (results if frame.type == TOOL_RESULT else self._waiting).append(frame)
        by_id = {result.content.get("id"): result for result in results}
        ids = [call.content.get("id") for call in calls]
        return [by_id[key] for key in ids] if len(by_id) == len(ids) and by_id.keys() == set(ids) else results


class _TurnSink(BufferSink):
    """The sink of a `TurnDuplex`: a CANCEL acts at once, in front of what waits."""

    __slots__ = ("_duplex",)

    def __init__(self, duplex: TurnDuplex, queue: FrameBuffer) -> None:
        super().__init__(queue)
        self._duplex = duplex

    async def write(self, frame: FrameLike, /) -> bool:
        frame = Frame.of(frame)
        if frame.type == CANCEL:
            return self._duplex.abort(frame.content.get("reason"))
        return await super().write(frame)

    def write_nowait(self, frame: FrameLike, /) -> bool:
        frame = Frame.of(frame)
        if frame.type == CANCEL:
            return self._duplex.abort(frame.content.get("reason"))
        return super().write_nowait(frame)


def _error_frame(error: Exception) -> Frame:
    content = {"error_type": type(error).__name__, "message": str(error)[:2_000], "fatal": True}
    return Frame(ERROR, content, meta={"exception": error})


def turn_duplex(fn: TurnFunction, *, ctx: object = None, limit: int | None = 64) -> TurnDuplex:
    """Return a duplex whose turns are calls of a function; serve it with ``async with``.

    Args:
        fn: Called with the frames of a prompt and ``ctx``; see `TurnFunction`.
        ctx: Handed to every call.
        limit: Frames that may wait for the reader before the function waits; None is unbounded.
    """
    return TurnDuplex(fn, ctx=ctx, limit=limit)
