"""Pipes, throughs, pipelines and tees."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from agentloop.errors import FrameError, StreamAborted, StreamBusy, StreamEnded, StreamFailed
from agentloop.frames import Frame, FrameLike
from agentloop.streams import (
    FrameBuffer,
    Through,
    filter_frames,
    from_aiter,
    map_frames,
    only,
    pipeline,
    source_owner,
    take,
    tee,
)
from agentloop.streams.queue import Strategy

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


class BadSink:
    """A sink that raises on its n-th frame and collects the others."""

    paused = False

    def __init__(self, error: Exception, *, at: int = 1) -> None:
        self.error, self.at = error, at
        self.got: list[Frame] = []
        self.calls = 0
        self.endings: list[BaseException | None] = []

    @property
    def ended(self) -> bool:
        return bool(self.endings)

    async def write(self, frame: FrameLike, /) -> bool:
        return self.write_nowait(frame)

    def write_nowait(self, frame: FrameLike, /) -> bool:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        self.got.append(Frame.of(frame))
        return True

    async def ready(self) -> None:
        return None

    def end(self, error: BaseException | None = None, /) -> bool:
        self.endings.append(error)
        return True


# ------------------------------------------------------------------------------------- pipes


async def test_a_pipe_moves_frames_in_order_and_passes_the_end_on() -> None:
    source, target = filled(*"abc"), FrameBuffer()
    assert source.source.pipe(target.sink) is target.sink
    async with source_owner(source.source):
        assert texts(await target.source.collect()) == ["a", "b", "c"]


async def test_a_pipe_moves_nothing_before_its_owner_is_entered() -> None:
    source, target = filled("a"), FrameBuffer()
    source.source.pipe(target.sink)
    await settle()
    assert source.statistics().buffered == 1
    assert source.statistics().piped


async def test_a_pipe_attached_to_an_owned_source_starts_at_once() -> None:
    source, target = filled("a"), FrameBuffer()
    async with source_owner(source.source):
        source.source.pipe(target.sink)
        assert texts(await target.source.collect()) == ["a"]


async def test_v14_a_piped_source_is_busy() -> None:
    buffer = filled("a", end=False)
    buffer.source.pipe(FrameBuffer().sink)
    with pytest.raises(StreamBusy):
        await buffer.source.receive()
    with pytest.raises(StreamBusy):
        buffer.source.receive_nowait()
    with pytest.raises(StreamBusy):
        [frame async for frame in buffer.source]
    with pytest.raises(StreamBusy):
        buffer.source.pipe(FrameBuffer().sink)
    assert buffer.statistics().buffered == 1


async def test_a_source_with_a_waiting_reader_cannot_be_piped() -> None:
    buffer = FrameBuffer()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(buffer.source.receive)
        await settle()
        with pytest.raises(StreamBusy):
            buffer.source.pipe(FrameBuffer().sink)
        buffer.sink.write_nowait("for the reader")


async def test_an_unknown_on_error_is_refused_and_claims_nothing() -> None:
    buffer = filled("a")
    with pytest.raises(ValueError, match="on_error is 'abort' or 'detach', not 'ignore'"):
        buffer.source.pipe(FrameBuffer().sink, on_error="ignore")
    assert texts(await buffer.source.collect()) == ["a"]


async def test_v19_without_end_only_an_error_end_is_passed_on() -> None:
    good, bad = filled("a"), FrameBuffer()
    kept, failed = FrameBuffer(), FrameBuffer()
    error = ValueError("x")
    async with source_owner(good.source, bad.source):
        good.source.pipe(kept.sink, end=False)
        bad.source.pipe(failed.sink, end=False)
        bad.sink.end(error)
    assert not kept.sink.ended
    assert failed.sink.ended
    with pytest.raises(StreamFailed) as caught:
        await failed.source.receive()
    assert caught.value.__cause__ is error


async def test_a_source_that_fails_is_no_sink_that_was_detached(caplog: pytest.LogCaptureFixture) -> None:
    buffer, target = filled("a", end=False), FrameBuffer()
    buffer.source.pipe(target.sink, on_error="detach")
    buffer.sink.end(ValueError("the source's own"))
    async with source_owner(buffer.source):
        pass
    assert target.sink.ended
    assert caplog.records == []


async def test_v20_a_detached_sink_leaves_the_source_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    buffer = FrameBuffer()
    sink = BadSink(OSError("disk full"))
    buffer.source.pipe(sink, on_error="detach")
    with caplog.at_level(logging.ERROR, logger="agentloop"):
        async with source_owner(buffer.source):
            for text in "abc":
                assert await buffer.sink.write(text)
    assert len(caplog.records) == 1
    assert sink.endings == []
    assert buffer.statistics().buffered == 2
    assert not buffer.statistics().piped
    assert texts(await buffer.source.collect(2)) == ["b", "c"]


async def test_a_failing_sink_aborts_the_source_with_its_error() -> None:
    buffer = FrameBuffer()
    error = OSError("disk full")
    sink = BadSink(error, at=2)
    buffer.source.pipe(sink)
    async with source_owner(buffer.source):
        for text in "abc":
            await buffer.sink.write(text)
    assert texts(sink.got) == ["a"]
    assert sink.endings == [error]
    with pytest.raises(StreamAborted) as caught:
        await buffer.sink.write("late")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("on_error", ["abort", "detach"])
async def test_a_sink_whose_reader_left_aborts_the_source_at_once(on_error: str) -> None:
    buffer, target = FrameBuffer(), FrameBuffer()
    buffer.source.pipe(target.sink, on_error=on_error)
    async with source_owner(buffer.source):
        await settle()
        target.source.abort()
        assert buffer.sink.ended
    with pytest.raises(StreamAborted):
        await buffer.sink.write("late")


async def test_frames_stay_in_the_source_until_the_sink_is_ready() -> None:
    buffer, target = filled(*"abc"), FrameBuffer(1, "block")
    buffer.source.pipe(target.sink)
    async with source_owner(buffer.source):
        await settle()
        assert buffer.statistics().buffered == 2
        assert texts(await target.source.collect()) == ["a", "b", "c"]


async def test_a_cancelled_pipe_tells_both_sides() -> None:
    buffer, target = FrameBuffer(), FrameBuffer()
    buffer.source.pipe(target.sink)
    with anyio.CancelScope() as scope:
        async with source_owner(buffer.source):
            await settle()
            scope.cancel()
            await anyio.sleep_forever()
    with pytest.raises(StreamAborted):
        await buffer.sink.write("late")
    with pytest.raises(StreamFailed):
        await target.source.receive()


async def test_a_finished_pipe_leaves_no_hook_in_a_sink_that_lives_on() -> None:
    target = FrameBuffer()
    for _ in range(3):
        source = filled("a")
        async with source_owner(source.source):
            source.source.pipe(target.sink, end=False)
    assert target._abort_hooks == []


async def test_a_chain_of_pipes_and_throughs_works_link_by_link() -> None:
    source, target = filled("a", {"type": "NOTE"}, "b"), FrameBuffer()
    first = only("TEXT")
    async with source_owner(source.source):
        source.source.pipe(first)
        await settle()
        assert source.statistics().buffered == 3
        first.pipe(map_frames(lambda frame: frame.text.upper())).pipe(target.sink)
        assert texts(await target.source.collect()) == ["A", "B"]


# ----------------------------------------------------------------------------------- throughs


async def test_a_through_is_paused_until_it_has_a_destination() -> None:
    through, target = map_frames(lambda frame: frame), FrameBuffer()
    assert through.paused
    with pytest.raises(anyio.WouldBlock):
        through.write_nowait("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(through.write, "b")
        await settle()
        assert target.statistics().written == 0
        through.pipe(target.sink)
    assert texts(await target.source.collect(1)) == ["b"]
    with pytest.raises(StreamBusy):
        through.pipe(target.sink)


async def test_the_end_of_a_through_reaches_a_destination_that_comes_later() -> None:
    through, target = map_frames(lambda frame: frame), FrameBuffer()
    assert through.end()
    assert not through.end(ValueError())
    through.pipe(target.sink)
    assert target.sink.ended
    with pytest.raises(StreamEnded):
        await through.write("late")


async def test_a_through_passes_an_abort_upstream() -> None:
    source, target = FrameBuffer(), FrameBuffer()
    first = map_frames(lambda frame: frame)
    source.source.pipe(first)
    async with source_owner(source.source):
        first.pipe(filter_frames(lambda frame: True)).pipe(target.sink)
        await settle()
        target.source.abort()
        assert source.sink.ended


async def test_what_a_rule_makes_must_be_a_frame() -> None:
    def broken(frame: Frame) -> Any:
        return 3

    with pytest.raises(FrameError):
        await pipeline(filled("a").source, map_frames(broken), FrameBuffer().sink)


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (lambda: map_frames(lambda frame: frame.text + "!"), ["a!", "b!", "c!"]),
        (lambda: filter_frames(lambda frame: frame.text != "b"), ["a", "c"]),
        (lambda: only("NOTE"), []),
        (lambda: only("TEXT", "NOTE"), ["a", "b", "c"]),
        (lambda: take(0), []),
        (lambda: take(2), ["a", "b"]),
        (lambda: take(9), ["a", "b", "c"]),
    ],
)
async def test_what_each_through_lets_pass(make: Callable[[], Through], left: list[str]) -> None:
    target = FrameBuffer()
    await pipeline(filled(*"abc").source, make(), target.sink)
    assert texts(await target.source.collect()) == left


def test_take_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="at least 0, not -1"):
        take(-1)


# ---------------------------------------------------------------------------------- pipelines


async def test_v17_a_failing_through_ends_the_sink_and_aborts_the_source() -> None:
    source, target = FrameBuffer(), FrameBuffer()
    for text in "abc":
        await source.sink.write(text)
    error = KeyError("second")

    def fails_second(frame: Frame) -> Frame:
        if frame.text == "b":
            raise error
        return frame

    with pytest.raises(KeyError) as caught:
        await pipeline(source.source, map_frames(fails_second), target.sink)
    assert caught.value is error
    assert source.statistics().aborted
    assert target.statistics().written == 1
    with pytest.raises(StreamFailed) as failed:
        await target.source.receive()
    assert failed.value.__cause__ is error


async def test_v17_the_first_frame_had_reached_the_sink() -> None:
    sink = BadSink(OSError("never"), at=99)

    def fails_second(frame: Frame) -> Frame:
        if frame.text == "b":
            raise KeyError
        return frame

    with pytest.raises(KeyError):
        await pipeline(filled(*"abc").source, map_frames(fails_second), sink)
    assert texts(sink.got) == ["a"]
    assert len(sink.endings) == 1
    assert isinstance(sink.endings[0], KeyError)


async def test_v18_take_asks_for_no_frame_more() -> None:
    asked = 0

    async def endless() -> AsyncIterator[str]:
        nonlocal asked
        while True:
            asked += 1
            yield str(asked)

    source, target = from_aiter(endless()), FrameBuffer()
    await pipeline(source, take(2), target.sink)
    assert asked == 2
    assert source.statistics().aborted
    assert texts(await target.source.collect()) == ["1", "2"]


async def test_v18_take_does_not_wait_for_a_frame_more() -> None:
    source, target = FrameBuffer(), FrameBuffer()
    for text in "ab":
        await source.sink.write(text)
    with anyio.fail_after(5):
        await pipeline(source.source, map_frames(lambda frame: frame), take(2), target.sink)
    assert source.statistics().aborted


async def test_pipeline_raises_the_sources_own_error() -> None:
    source, target = FrameBuffer(), FrameBuffer()
    error = ValueError("x")
    source.sink.end(error)
    with pytest.raises(ValueError, match="x") as caught:
        await pipeline(source.source, target.sink)
    assert caught.value is error
    assert target.sink.ended


async def test_pipeline_says_when_the_reader_left() -> None:
    source, target = FrameBuffer(), FrameBuffer()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            with pytest.raises(StreamAborted):
                await pipeline(source.source, target.sink)

        tasks.start_soon(run)
        await settle()
        target.source.abort()
    assert source.statistics().aborted


async def test_a_cancelled_pipeline_aborts_every_stage() -> None:
    source, target = FrameBuffer(), FrameBuffer()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipeline, source.source, map_frames(lambda frame: frame), target.sink)
        await settle()
        tasks.cancel_scope.cancel()
    assert source.statistics().aborted
    with pytest.raises(StreamFailed) as caught:
        await target.source.receive()
    assert isinstance(caught.value.__cause__, StreamAborted)


async def test_pipeline_refuses_a_sink_in_the_middle_and_claims_nothing() -> None:
    source = filled("a")
    with pytest.raises(TypeError, match="only the last stage"):
        await pipeline(source.source, FrameBuffer().sink, FrameBuffer().sink)
    with pytest.raises(TypeError, match="needs a sink"):
        await pipeline(source.source)
    assert len(await source.source.collect()) == 1


# --------------------------------------------------------------------------------------- tees


async def test_v21_an_unread_branch_holds_only_the_last() -> None:
    read, unread = tee(filled(*"abcd").source, 2, limit=1, strategy="drop-oldest")
    assert texts(await read.collect()) == list("abcd")
    assert unread.statistics().buffered == 1
    assert texts(await unread.collect()) == ["d"]


async def test_branches_read_at_once_all_get_everything() -> None:
    source = FrameBuffer()
    got: dict[int, list[str]] = {}

    async def read(index: int) -> None:
        got[index] = texts(await branches[index].collect())

    branches = tee(source.source, 3)
    async with anyio.create_task_group() as tasks:
        for index in range(3):
            tasks.start_soon(read, index)
        for text in "abc":
            await settle()
            await source.sink.write(text)
        source.sink.end()
    assert got == {0: list("abc"), 1: list("abc"), 2: list("abc")}


async def test_with_block_the_slowest_branch_sets_the_pace() -> None:
    fast, slow = tee(filled(*"abc").source, 2, limit=1, strategy="block")
    assert (await fast.receive()).text == "a"
    with pytest.raises(anyio.WouldBlock):
        fast.receive_nowait()
    assert (await slow.receive()).text == "a"
    assert fast.receive_nowait().text == "b"


async def test_a_branch_waits_until_the_slowest_has_room() -> None:
    fast, slow = tee(filled(*"ab").source, 2, limit=1, strategy="block")
    assert (await fast.receive()).text == "a"
    got: list[Frame] = []

    async def read() -> None:
        got.append(await fast.receive())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await settle()
        assert got == []
        assert (await slow.receive()).text == "a"
    assert texts(got) == ["b"]
    assert texts(await slow.collect()) == ["b"]


async def test_a_cancelled_branch_lets_another_one_read_on() -> None:
    source = FrameBuffer()
    leader, follower = tee(source.source, 2)
    got: list[Frame] = []

    async def follow() -> None:
        got.append(await follower.receive())

    async with anyio.create_task_group() as tasks, anyio.create_task_group() as doomed:
        doomed.start_soon(leader.receive)
        await settle()
        tasks.start_soon(follow)
        await settle()
        doomed.cancel_scope.cancel()
        await source.sink.write("a")
    assert texts(got) == ["a"]
    assert (await leader.receive()).text == "a"


async def test_a_branch_aborted_while_it_waits_ends_and_the_other_goes_on() -> None:
    source = FrameBuffer()
    left, right = tee(source.source, 2)
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            assert await left.collect() == []

        tasks.start_soon(read)
        await settle()
        left.abort()
    await source.sink.write("a")
    assert (await right.receive()).text == "a"
    assert not source.sink.ended
    right.abort()
    assert source.sink.ended


async def test_an_error_reaches_every_branch() -> None:
    source = FrameBuffer()
    error = ValueError("x")
    branches = tee(source.source, 2)
    source.sink.end(error)
    for branch in branches:
        with pytest.raises(StreamFailed) as caught:
            await branch.receive()
        assert caught.value.__cause__ is error


async def test_a_branch_has_one_reader_and_the_teed_source_none() -> None:
    source = FrameBuffer()
    branch, _ = tee(source.source, 2)
    with pytest.raises(StreamBusy):
        await source.source.receive()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(branch.receive)
        await settle()
        with pytest.raises(StreamBusy):
            await branch.receive()
        await source.sink.write("a")


async def test_a_branch_can_be_piped() -> None:
    target = FrameBuffer()
    piped, _ = tee(filled(*"ab").source, 2)
    piped.pipe(target.sink)
    async with source_owner(piped):
        assert texts(await target.source.collect()) == ["a", "b"]


@pytest.mark.parametrize("strategy", ["drop-oldest", "drop-newest", "block"])
def test_tee_refuses_to_make_no_branch(strategy: Strategy) -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        tee(FrameBuffer().source, 0, strategy=strategy)
