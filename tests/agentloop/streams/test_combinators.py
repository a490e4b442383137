"""Sources made of sources."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from agentloop.errors import StreamAborted, StreamBusy, StreamFailed
from agentloop.frames import Frame, FrameLike
from agentloop.ports import Source
from agentloop.streams import FrameBuffer, chunks, from_aiter, merge, source_owner, tee, timeout
from agentloop.streams import zip as zip_sources
from agentloop.streams.queue import BURST
from agentloop.streams.reading import Readable

pytestmark = pytest.mark.anyio


def texts(frames: list[Frame]) -> list[str]:
    return [frame.text for frame in frames]


def filled(*frames: FrameLike, end: bool = True) -> FrameBuffer:
    buffer = FrameBuffer()
    for frame in frames:
        buffer.sink.write_nowait(frame)
    if end:
        buffer.sink.end()
    return buffer


async def settle() -> None:
    await anyio.wait_all_tasks_blocked()


class Foreign:
    """A source of somebody else's making, over one of ours."""

    def __init__(self, source: Readable[Frame]) -> None:
        self._source = source
        self.receive, self.receive_nowait = source.receive, source.receive_nowait
        self.abort, self.statistics, self.collect = source.abort, source.statistics, source.collect
        self.pipe = source.pipe

    @property
    def ended(self) -> bool:
        return self._source.ended

    def __aiter__(self) -> AsyncIterator[Frame]:
        return aiter(self._source)


def ours(buffer: FrameBuffer) -> Source:
    return buffer.source


def foreign(buffer: FrameBuffer) -> Source:
    return Foreign(buffer.source)


def branch(buffer: FrameBuffer) -> Source:
    return tee(buffer.source, 1)[0]


KINDS = pytest.mark.parametrize("kind", [ours, foreign, branch])


# ------------------------------------------------------------------------------------- merge


@KINDS
async def test_merge_takes_fair_turns_and_ends_with_the_last(kind: object) -> None:
    assert callable(kind)
    merged = merge(kind(filled(*"abc")), kind(filled(*"xy")))
    assert texts(await merged.collect()) == ["a", "x", "b", "y", "c"]
    assert merged.ended
    assert await merged.collect() == []


@KINDS
async def test_merge_waits_for_whoever_is_first(kind: object) -> None:
    assert callable(kind)
    quiet, busy = FrameBuffer(), FrameBuffer()
    merged = merge(kind(quiet), kind(busy))
    got: list[str] = []

    async def read() -> None:
        async for frame in merged:
            got.append(frame.text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for text in "abc":
            await settle()
            busy.sink.write_nowait(text)
        await settle()
        assert got == ["a", "b", "c"]
        quiet.sink.write_nowait("d")
        quiet.sink.end()
        busy.sink.end()
    assert got == ["a", "b", "c", "d"]


@KINDS
async def test_a_cancelled_merge_loses_nothing(kind: object) -> None:
    assert callable(kind)
    buffers = [FrameBuffer(1), FrameBuffer(1)]
    merged = merge(*(kind(buffer) for buffer in buffers))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(merged.receive)
        await settle()
        tasks.cancel_scope.cancel()
    for buffer in buffers:
        buffer.sink.write_nowait("kept")
        buffer.sink.end()
    assert texts(await merged.collect()) == ["kept", "kept"]


@KINDS
async def test_a_failing_source_fails_the_merge_and_aborts_the_others(kind: object) -> None:
    assert callable(kind)
    bad, good = FrameBuffer(), FrameBuffer()
    merged = merge(kind(bad), kind(good))
    error = ValueError("x")

    async def read() -> None:
        for _ in range(2):
            with pytest.raises(StreamFailed) as caught:
                await merged.receive()
            assert caught.value.__cause__ is error

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await settle()
        bad.sink.end(error)
    with pytest.raises(StreamAborted):
        await good.sink.write("late")


async def test_a_merge_reader_is_handed_frames_beyond_a_tiny_limit() -> None:
    buffer = FrameBuffer(1, "drop-oldest")
    merged = merge(buffer.source)
    got: list[str] = []

    async def read() -> None:
        got.append((await merged.receive()).text)
        got.append((await merged.receive()).text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await settle()
        buffer.sink.write_nowait("a")
        buffer.sink.write_nowait("b")
    assert got == ["a", "b"]


async def test_what_a_merge_was_handed_does_not_stay_beyond_the_limits() -> None:
    buffers = [FrameBuffer(1, "drop-oldest") for _ in range(2)]
    merged = merge(*(buffer.source for buffer in buffers))
    got: list[str] = []

    async def read() -> None:
        got.append((await merged.receive()).text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await settle()
        for buffer in buffers:
            for text in "ab":
                buffer.sink.write_nowait(text)
    assert got == ["a"]
    assert [buffer.statistics().buffered for buffer in buffers] == [1, 1]
    assert [merged.receive_nowait().text for _ in range(3)] == ["a", "b", "b"]


async def test_merge_of_merges_waits_too() -> None:
    inner, outer = FrameBuffer(), FrameBuffer()
    merged = merge(merge(inner.source), outer.source)
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            assert texts(await merged.collect()) == ["a"]

        tasks.start_soon(read)
        await settle()
        inner.sink.write_nowait("a")
        inner.sink.end()
        outer.sink.end()


async def test_aborting_a_merge_ends_its_waiting_reader_and_its_sources() -> None:
    buffer = FrameBuffer()
    merged = merge(buffer.source)
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            assert await merged.collect() == []

        tasks.start_soon(read)
        await settle()
        assert merged.abort()
        assert not merged.abort()
    assert buffer.sink.ended
    stats = merged.statistics()
    assert (stats.aborted, stats.ended, stats.written) == (True, True, 0)


async def test_a_merge_of_nothing_ends_at_once() -> None:
    assert await merge().collect() == []


async def test_a_merged_source_is_taken_and_a_merge_has_one_reader() -> None:
    buffer = FrameBuffer()
    merged = merge(buffer.source)
    with pytest.raises(StreamBusy):
        await buffer.source.receive()
    with pytest.raises(StreamBusy):
        merge(buffer.source)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(merged.receive)
        await settle()
        with pytest.raises(StreamBusy):
            await merged.receive()
        with pytest.raises(StreamBusy):
            merged.receive_nowait()
        buffer.sink.write_nowait("a")


async def test_a_merge_can_be_piped() -> None:
    target = FrameBuffer()
    merged = merge(filled(*"ab").source, filled("x").source)
    merged.pipe(target.sink)
    with pytest.raises(StreamBusy):
        await merged.receive()
    async with source_owner(merged):
        assert sorted(texts(await target.source.collect())) == ["a", "b", "x"]


async def test_reading_a_full_merge_lets_other_tasks_run() -> None:
    merged = merge(filled(*["x"] * 3 * BURST).source)
    read_when_other_ran: list[int] = []

    async def other() -> None:
        read_when_other_ran.append(merged.statistics().read)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await merged.collect()
    assert read_when_other_ran[0] <= 2 * BURST


# --------------------------------------------------------------------------------------- zip


@KINDS
async def test_zip_pairs_frames_and_the_shortest_ends_it(kind: object) -> None:
    assert callable(kind)
    zipped = zip_sources(kind(filled(*"abc")), kind(filled(*"xy")))
    assert [(a.text, b.text) async for a, b in zipped] == [("a", "x"), ("b", "y")]
    assert zipped.ended


async def test_a_cancelled_zip_keeps_the_row_it_had_begun() -> None:
    left, right = FrameBuffer(), FrameBuffer()
    zipped = zip_sources(left.source, right.source)
    left.sink.write_nowait("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(zipped.receive)
        await settle()
        tasks.cancel_scope.cancel()
    with pytest.raises(anyio.WouldBlock):
        zipped.receive_nowait()
    right.sink.write_nowait("x")
    assert texts(list(zipped.receive_nowait())) == ["a", "x"]


async def test_the_longer_source_of_a_zip_is_aborted() -> None:
    longer = filled(*"abc", end=False)
    assert len(await zip_sources(filled("x").source, longer.source).collect()) == 1
    assert longer.statistics().aborted
    assert await zip_sources().collect() == []


# ------------------------------------------------------------------------------------ chunks


@KINDS
async def test_chunks_cut_a_stream_into_lists(kind: object) -> None:
    assert callable(kind)
    assert [texts(chunk) async for chunk in chunks(kind(filled(*"abcde")), 2)] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert await chunks(kind(filled()), 2).collect() == []


async def test_a_chunk_of_what_is_there() -> None:
    buffer = filled(*"abc", end=False)
    chunked = chunks(buffer.source, 2, within_ms=0)
    assert [texts(await chunked.receive()) for _ in range(2)] == [["a", "b"], ["c"]]


async def test_a_chunk_that_takes_too_long_comes_short() -> None:
    buffer = filled("a", end=False)
    assert texts(await chunks(buffer.source, 5, within_ms=10).receive()) == ["a"]


async def test_a_cancelled_chunk_is_kept() -> None:
    buffer = filled("a", end=False)
    chunked = chunks(buffer.source, 2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chunked.receive)
        await settle()
        tasks.cancel_scope.cancel()
    with pytest.raises(anyio.WouldBlock):
        chunked.receive_nowait()
    buffer.sink.write_nowait("b")
    assert texts(chunked.receive_nowait()) == ["a", "b"]


def test_a_chunk_has_at_least_one_frame() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        chunks(FrameBuffer().source, 0)


# ----------------------------------------------------------------------------------- timeout


async def test_timeout_lets_frames_pass_that_come_in_time() -> None:
    assert texts(await timeout(filled(*"ab").source, 1_000).collect()) == ["a", "b"]


@KINDS
async def test_timeout_fails_and_aborts_a_source_that_is_silent(kind: object) -> None:
    assert callable(kind)
    buffer = filled("a", end=False)
    timed = timeout(kind(buffer), 10)
    assert (await timed.receive()).text == "a"
    for _ in range(2):
        with pytest.raises(StreamFailed, match="timeout_ms=10") as caught:
            await timed.receive()
        assert isinstance(caught.value.__cause__, TimeoutError)
    assert buffer.sink.ended


async def test_timeout_counts_only_while_somebody_waits() -> None:
    buffer = FrameBuffer()
    timed = timeout(buffer.source, 1_000)
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            assert (await timed.receive()).text == "a"

        tasks.start_soon(read)
        await settle()
        buffer.sink.write_nowait("a")


def test_timeout_needs_a_positive_time() -> None:
    with pytest.raises(ValueError, match="above 0, not 0"):
        timeout(FrameBuffer().source, 0)


# -------------------------------------------------------------------------------- from_aiter


async def test_from_aiter_makes_frames_of_what_is_yielded() -> None:
    async def three() -> AsyncIterator[FrameLike]:
        yield "a"
        yield {"type": "NOTE"}
        yield Frame("DONE")

    source = from_aiter(three())
    assert [frame.type for frame in await source.collect()] == ["TEXT", "NOTE", "DONE"]
    with pytest.raises(anyio.EndOfStream):
        source.receive_nowait()


async def test_from_aiter_ends_with_the_iterators_exception() -> None:
    async def fails() -> AsyncIterator[str]:
        yield "a"
        raise KeyError("k")

    source = from_aiter(fails())
    assert (await source.receive()).text == "a"
    with pytest.raises(StreamFailed) as caught:
        await source.receive()
    assert isinstance(caught.value.__cause__, KeyError)


async def test_leaving_a_from_aiter_source_closes_the_generator() -> None:
    closed = False

    async def endless() -> AsyncIterator[str]:
        nonlocal closed
        try:
            while True:
                yield "a"
        finally:
            await anyio.lowlevel.checkpoint()
            closed = True

    async with from_aiter(endless()) as source:
        await source.receive()
    assert closed


async def test_a_generator_cancelled_half_way_is_a_failure_not_an_end() -> None:
    async def stuck() -> AsyncIterator[str]:
        await anyio.sleep_forever()
        yield "never"

    source = from_aiter(stuck())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.receive)
        await settle()
        with pytest.raises(anyio.WouldBlock):
            merge(from_aiter(stuck())).receive_nowait()
        tasks.cancel_scope.cancel()
    with pytest.raises(StreamFailed, match="cancelled"):
        await source.receive()
