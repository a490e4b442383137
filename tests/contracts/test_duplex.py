"""What every `FrameDuplex` promises, held against each kind there is.

Each maker gives a duplex that sends every TEXT written to it back, and ends its source when its
sink was ended.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio
import pytest

from agentloop.errors import StreamBusy, StreamEnded, StreamError
from agentloop.frames import DONE, Frame
from agentloop.ports import FrameDuplex, Sink, Source
from agentloop.streams import (
    as_object_stream,
    duplex_pair,
    from_object_streams,
    turn_duplex,
)

pytestmark = pytest.mark.anyio

DuplexMaker: TypeAlias = Callable[[], AbstractAsyncContextManager[FrameDuplex]]


async def send_back(source: Source, sink: Sink) -> None:
    try:
        async for frame in source:
            await sink.write(frame)
        sink.end()
    except StreamError:
        source.abort()
        sink.end()


@asynccontextmanager
async def pair() -> AsyncIterator[FrameDuplex]:
    near, far = duplex_pair(limit=4)
    async with anyio.create_task_group() as tasks, near:
        tasks.start_soon(send_back, far.source, far.sink)
        yield near
        await far.aclose()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def turns() -> AsyncIterator[FrameDuplex]:
    async def echo(prompt: list[Frame], ctx: object) -> AsyncIterator[Frame]:
        for frame in prompt:
            yield frame

    async with turn_duplex(echo) as duplex:
        yield duplex


@asynccontextmanager
async def object_streams() -> AsyncIterator[FrameDuplex]:
    send, receive = anyio.create_memory_object_stream[Any](0)
    async with from_object_streams(receive, send) as duplex:
        yield duplex


@asynccontextmanager
async def stream_of_a_pair() -> AsyncIterator[FrameDuplex]:
    async with pair() as inner:
        stream = as_object_stream(inner)
        async with from_object_streams(stream, stream) as duplex:
            yield duplex


DUPLEXES = pytest.mark.parametrize(
    "make", [pair, turns, object_streams, stream_of_a_pair], ids=lambda make: make.__name__
)


async def texts(source: Source, count: int) -> list[str]:
    got: list[str] = []
    while len(got) < count:
        frame = await source.receive()
        if frame.type != DONE:
            got.append(frame.text)
    return got


@DUPLEXES
async def test_it_is_a_frame_duplex(make: DuplexMaker) -> None:
    async with make() as duplex:
        assert isinstance(duplex, FrameDuplex)
        assert not duplex.sink.ended
        assert not duplex.source.ended


@DUPLEXES
async def test_frames_come_back_in_order(make: DuplexMaker) -> None:
    async with make() as duplex:
        for text in "abc":
            assert await duplex.sink.write(text)
        assert await texts(duplex.source, 3) == ["a", "b", "c"]


@DUPLEXES
async def test_closing_the_sink_ends_the_source(make: DuplexMaker) -> None:
    async with make() as duplex:
        assert duplex.sink.end()
        assert not duplex.sink.end()
        with anyio.fail_after(5):
            assert [frame async for frame in duplex.source] == []
        with pytest.raises(StreamEnded):
            await duplex.sink.write("late")


@DUPLEXES
async def test_nothing_to_read_is_not_waited_for_without_wait(make: DuplexMaker) -> None:
    async with make() as duplex:
        with pytest.raises(anyio.WouldBlock):
            duplex.source.receive_nowait()


@DUPLEXES
async def test_there_is_one_reader(make: DuplexMaker) -> None:
    async with make() as duplex, anyio.create_task_group() as tasks:
        tasks.start_soon(duplex.source.receive)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(StreamBusy):
            await duplex.source.receive()
        await duplex.sink.write("for the first")


@DUPLEXES
async def test_a_cancelled_receive_loses_nothing(make: DuplexMaker) -> None:
    async with make() as duplex:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(duplex.source.receive)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await duplex.sink.write("kept")
        assert await texts(duplex.source, 1) == ["kept"]


@DUPLEXES
async def test_statistics_balance(make: DuplexMaker) -> None:
    async with make() as duplex:
        for text in "abc":
            await duplex.sink.write(text)
        await texts(duplex.source, 2)
        stats = duplex.source.statistics()
        assert stats.written == stats.read + stats.dropped + stats.buffered + stats.discarded


@DUPLEXES
async def test_closing_ends_both_halves_and_may_be_repeated(make: DuplexMaker) -> None:
    async with make() as duplex:
        await duplex.sink.write("a")
        for _ in range(2):
            await duplex.aclose()
            assert duplex.sink.ended
            assert [frame async for frame in duplex.source] == []


@DUPLEXES
async def test_an_aborted_source_ends_its_waiting_reader(make: DuplexMaker) -> None:
    async with make() as duplex, anyio.create_task_group() as tasks:

        async def read() -> None:
            assert await duplex.source.collect() == []

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        assert duplex.source.abort()
        assert not duplex.source.abort()


@DUPLEXES
async def test_an_exception_inside_comes_out_as_it_is(make: DuplexMaker) -> None:
    error = KeyError("k")
    with pytest.raises((KeyError, ExceptionGroup)) as caught:
        async with make():
            raise error
    group = caught.value
    while isinstance(group, ExceptionGroup):
        (group,) = group.exceptions
    assert group is error


@DUPLEXES
async def test_a_cancelled_user_leaves_nothing_running(make: DuplexMaker) -> None:
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with make() as duplex:
            await duplex.sink.write("a")
            scope.cancel()
            await anyio.sleep_forever()


@DUPLEXES
async def test_an_abort_is_told_once(make: DuplexMaker) -> None:
    async with make() as duplex:
        await duplex.sink.write("a")
        assert duplex.abort("enough")
        assert not duplex.abort("again")


def unentered_pair() -> FrameDuplex:
    return duplex_pair()[0]


def unentered_turns() -> FrameDuplex:
    async def never(prompt: list[Frame], ctx: object) -> AsyncIterator[str]:
        yield "never"

    return turn_duplex(never)


@pytest.mark.parametrize("make", [unentered_pair, unentered_turns], ids=lambda make: make.__name__)
async def test_v23_a_duplex_that_is_only_dropped_warns_of_nothing(make: Callable[[], FrameDuplex]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        duplex = make()
        await duplex.sink.write("a")
        iterator = aiter(duplex.source)
        with pytest.raises(anyio.WouldBlock):
            duplex.source.receive_nowait()
        del duplex, iterator
        gc.collect()
        await anyio.wait_all_tasks_blocked()
    assert caught == []
