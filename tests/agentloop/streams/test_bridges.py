"""Bridges to anyio object streams, bare iterators and aiostream."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import pytest

from agentloop.errors import MissingExtra, StreamFailed
from agentloop.frames import Frame
from agentloop.streams import (
    FrameBuffer,
    as_aiter,
    as_object_stream,
    duplex_pair,
    from_aiostream,
    from_object_streams,
    pipeline,
    to_aiostream,
)

pytestmark = pytest.mark.anyio


def filled(*texts: str) -> FrameBuffer:
    buffer = FrameBuffer()
    for text in texts:
        buffer.sink.write_nowait(text)
    buffer.sink.end()
    return buffer


# ----------------------------------------------------------------------- anyio object streams


async def test_a_duplex_as_an_object_stream_sends_receives_and_ends() -> None:
    left, right = duplex_pair()
    stream = as_object_stream(left)
    await stream.send(Frame("TEXT", {"text": "there"}))
    assert (await right.source.receive()).text == "there"
    await right.sink.write("back")
    assert (await stream.receive()).text == "back"
    await stream.send_eof()
    assert await right.source.collect() == []
    right.sink.end()
    assert [frame async for frame in stream] == []
    await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.receive()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send(Frame("TEXT"))


async def test_an_error_end_breaks_the_object_stream() -> None:
    left, right = duplex_pair()
    error = ValueError("x")
    right.sink.end(error)
    with pytest.raises(anyio.BrokenResourceError) as caught:
        await as_object_stream(left).receive()
    assert caught.value.__cause__ is error
    await left.aclose()


async def test_object_streams_as_a_duplex_move_frames_both_ways() -> None:
    send_in, receive_in = anyio.create_memory_object_stream[Any](1)
    send_out, receive_out = anyio.create_memory_object_stream[Any](1)
    async with send_in, receive_out:
        async with from_object_streams(receive_in, send_out) as duplex:
            await send_in.send("in")
            assert (await duplex.source.receive()).text == "in"
            await duplex.sink.write("out")
            assert (await receive_out.receive()).text == "out"
            await duplex.sink.write("delivered on leaving")
        assert (await receive_out.receive()).text == "delivered on leaving"
        with pytest.raises(anyio.EndOfStream):
            await receive_out.receive()
        with pytest.raises(anyio.BrokenResourceError):
            await send_in.send("late")


async def test_what_breaks_an_object_stream_fails_the_source() -> None:
    send_in, receive_in = anyio.create_memory_object_stream[Any](1)
    send_out, receive_out = anyio.create_memory_object_stream[Any](1)
    async with send_in, receive_out, from_object_streams(receive_in, send_out) as duplex:
        await send_in.send(3)  # nothing a frame can be made of
        with pytest.raises(StreamFailed, match="FrameError"):
            await duplex.source.receive()


async def test_a_peer_that_stops_receiving_fails_the_writer() -> None:
    send_in, receive_in = anyio.create_memory_object_stream[Any](1)
    send_out, receive_out = anyio.create_memory_object_stream[Any](1)
    async with send_in, from_object_streams(receive_in, send_out) as duplex:
        await receive_out.aclose()
        with pytest.raises(anyio.BrokenResourceError):
            for _ in range(5):
                await duplex.sink.write("x")
                await anyio.wait_all_tasks_blocked()


async def test_aborting_an_object_stream_duplex_closes_both_streams() -> None:
    send_in, receive_in = anyio.create_memory_object_stream[Any](1)
    send_out, receive_out = anyio.create_memory_object_stream[Any](1)
    async with send_in, receive_out:
        async with from_object_streams(receive_in, send_out) as duplex:
            assert duplex.abort("enough")
            assert not duplex.abort()
        with pytest.raises(anyio.EndOfStream):
            await receive_out.receive()


async def test_there_and_back_again() -> None:
    left, right = duplex_pair()
    stream = as_object_stream(left)
    async with right, from_object_streams(stream, stream) as duplex:
        await duplex.sink.write("a")
        assert (await right.source.receive()).text == "a"
        await right.sink.write("b")
        assert (await duplex.source.receive()).text == "b"


async def test_a_bare_iterator_cannot_close_its_source() -> None:
    buffer = filled("a", "b")
    iterator = as_aiter(buffer.source)
    assert not hasattr(iterator, "aclose")
    assert (await anext(iterator)).text == "a"
    assert [frame.text async for frame in iterator] == ["b"]


# ----------------------------------------------------------------------------------- aiostream


ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
ON_TRIO = pytest.mark.parametrize("anyio_backend", ["trio"])


@ON_ASYNCIO
async def test_every_operator_of_aiostream_works_on_a_source() -> None:
    from aiostream import pipe

    numbered = to_aiostream(filled(*"abcd").source) | pipe.skip(1) | pipe.enumerate() | pipe.take(2)
    async with numbered.stream() as streamer:
        assert [(number, frame.text) async for number, frame in streamer] == [(0, "b"), (1, "c")]


@ON_ASYNCIO
async def test_a_stream_that_stops_early_leaves_the_source_open() -> None:
    from aiostream import pipe

    buffer = filled(*"abc")
    first = await (to_aiostream(buffer.source) | pipe.take(1))
    assert first.text == "a"
    assert [frame.text for frame in await buffer.source.collect()] == ["b", "c"]


@ON_ASYNCIO
async def test_a_stream_of_aiostream_is_a_source() -> None:
    from aiostream import pipe, stream

    words = stream.iterate(["a", "b", "c"]) | pipe.map(lambda word, *rest: word.upper())
    target = FrameBuffer()
    await pipeline(from_aiostream(words), target.sink)
    assert [frame.text for frame in await target.source.collect()] == ["A", "B", "C"]


@ON_ASYNCIO
async def test_leaving_a_source_of_aiostream_leaves_the_stream() -> None:
    from aiostream import stream

    async with from_aiostream(stream.repeat("x", interval=0)) as source:
        assert (await source.receive()).text == "x"
    assert source.ended


@ON_ASYNCIO
async def test_an_error_in_aiostream_fails_the_source() -> None:
    from aiostream import stream

    source = from_aiostream(stream.throw(ValueError("x")))
    with pytest.raises(StreamFailed, match="ValueError: x"):
        await source.receive()


@ON_TRIO
async def test_on_trio_the_bridge_says_what_to_use_instead() -> None:
    from aiostream import stream

    with pytest.raises(StreamFailed, match=r"aiostream needs asyncio.*use merge"):
        await from_aiostream(stream.iterate("ab")).receive()
    with pytest.raises(RuntimeError, match="aiostream needs asyncio"):
        async with to_aiostream(filled("a").source).stream() as streamer:
            await anext(streamer)


def test_without_aiostream_the_bridge_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiostream", None)
    with pytest.raises(MissingExtra, match=r"loopwright\[aiostream\]"):
        to_aiostream(FrameBuffer().source)
    with pytest.raises(MissingExtra, match=r"loopwright\[aiostream\]"):
        from_aiostream(object())  # type: ignore[arg-type]  # never looked at


def test_the_streams_import_neither_aiostream_nor_asyncio_of_their_own() -> None:
    code = "import sys, agentloop.streams; print('aiostream' in sys.modules, 'agentloop.streams.operators' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
