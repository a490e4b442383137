"""FrameBuffer and its ends: order, limits, ends, one reader, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from agentloop.errors import StreamAborted, StreamBusy, StreamEnded, StreamFailed
from agentloop.frames import NODE_COMPLETED, Frame
from agentloop.streams.buffer import FrameBuffer
from agentloop.streams.queue import BURST, Strategy

pytestmark = pytest.mark.anyio


def frames(count: int, *, start: int = 1) -> list[Frame]:
    return [Frame("TEXT", {"text": f"f{n}"}) for n in range(start, start + count)]


async def settle() -> None:
    await anyio.wait_all_tasks_blocked()


def balanced(buffer: FrameBuffer) -> bool:
    stats = buffer.statistics()
    return stats.written == stats.read + stats.dropped + stats.buffered + stats.discarded


async def test_v01_frames_come_out_in_order_until_the_end() -> None:
    buffer = FrameBuffer()
    for frame in frames(3):
        assert await buffer.sink.write(frame)
    buffer.sink.end()
    assert [frame async for frame in buffer.source] == frames(3)
    stats = buffer.statistics()
    assert (stats.written, stats.read, stats.buffered) == (3, 3, 0)
    assert buffer.source.ended


async def test_v02_drop_oldest_keeps_the_newest_frames() -> None:
    buffer = FrameBuffer(2, "drop-oldest")
    assert [await buffer.sink.write(frame) for frame in frames(5)] == [True] * 5
    buffer.sink.end()
    assert await buffer.source.collect() == frames(2, start=4)
    assert buffer.statistics().dropped == 3


async def test_v03_drop_newest_keeps_the_oldest_frames() -> None:
    buffer = FrameBuffer(2, "drop-newest")
    assert [await buffer.sink.write(frame) for frame in frames(5)] == [True, True, False, False, False]
    buffer.sink.end()
    assert await buffer.source.collect() == frames(2)
    assert buffer.statistics().dropped == 3


async def test_v04_a_waiting_reader_gets_every_frame_of_a_tiny_buffer() -> None:
    buffer = FrameBuffer(1, "drop-oldest")
    got: list[Frame] = []

    async def read() -> None:
        got.extend([frame async for frame in buffer.source])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for frame in frames(3):
            await settle()
            buffer.sink.write_nowait(frame)
        await settle()
        buffer.sink.end()
    assert got == frames(3)
    assert buffer.statistics().dropped == 0


@pytest.mark.parametrize("strategy", ["drop-oldest", "drop-newest", "block"])
async def test_a_frame_handed_to_a_waiting_reader_does_not_count_against_the_limit(
    strategy: Strategy,
) -> None:
    buffer = FrameBuffer(1, strategy)
    got: list[Frame] = []

    async def read() -> None:
        got.append(await buffer.source.receive())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await settle()
        assert [buffer.sink.write_nowait(frame) for frame in frames(2)] == [True, True]
        assert (buffer.statistics().read, buffer.statistics().buffered) == (1, 1)
    assert got == frames(1)
    assert await buffer.source.receive() == frames(2)[1]
    assert balanced(buffer)


async def test_v05_a_full_blocking_buffer_refuses_until_a_frame_is_read() -> None:
    buffer = FrameBuffer(2, "block")
    one, two, three = frames(3)
    buffer.sink.write_nowait(one)
    buffer.sink.write_nowait(two)
    with pytest.raises(anyio.WouldBlock):
        buffer.sink.write_nowait(three)
    assert buffer.sink.paused
    assert await buffer.source.receive() == one
    assert not buffer.statistics().paused
    assert buffer.sink.write_nowait(three)
    assert balanced(buffer)


async def test_v06_an_abort_wakes_a_blocked_writer() -> None:
    buffer = FrameBuffer(1, "block")
    await buffer.sink.write("one")
    caught: list[Exception] = []

    async def write() -> None:
        try:
            await buffer.sink.write("two")
        except StreamAborted as error:
            caught.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await settle()
        assert buffer.source.abort()
    assert len(caught) == 1
    with pytest.raises(anyio.EndOfStream):
        await buffer.source.receive()
    assert buffer.statistics().discarded == 1
    assert balanced(buffer)


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (2.0, TypeError)]
)
def test_v07_a_limit_is_an_int_of_at_least_one(limit: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="limit is"):
        FrameBuffer(limit)


def test_v08_an_unknown_strategy_names_the_three_legal_words() -> None:
    with pytest.raises(ValueError, match="'drop-oldest', 'drop-newest' or 'block', not 'drop'"):
        FrameBuffer(1, "drop")  # type: ignore[arg-type]  # the mistake under test


async def test_v09_the_first_end_wins() -> None:
    buffer = FrameBuffer()
    for frame in frames(2):
        await buffer.sink.write(frame)
    assert buffer.sink.end()
    assert not buffer.sink.end(ValueError())
    assert await buffer.source.collect() == frames(2)


async def test_v10_an_error_end_throws_away_what_waits() -> None:
    buffer = FrameBuffer()
    for frame in frames(2):
        await buffer.sink.write(frame)
    error = ValueError("x")
    buffer.sink.end(error)
    for _ in range(2):
        with pytest.raises(StreamFailed, match="ValueError: x") as caught:
            await buffer.source.receive()
        assert caught.value.__cause__ is error
    with pytest.raises(StreamFailed):
        [frame async for frame in buffer.source]
    assert buffer.statistics().discarded == 2
    assert balanced(buffer)


async def test_v11_writing_after_the_end_is_an_error() -> None:
    buffer = FrameBuffer()
    buffer.sink.end()
    with pytest.raises(StreamEnded) as caught:
        await buffer.sink.write("late")
    assert isinstance(caught.value, anyio.ClosedResourceError)
    with pytest.raises(StreamEnded):
        buffer.sink.write_nowait("late")
    assert buffer.statistics().written == 0


async def test_v12_writing_after_the_abort_is_an_error() -> None:
    buffer = FrameBuffer()
    error = ValueError("enough")
    buffer.source.abort(error)
    with pytest.raises(StreamAborted) as caught:
        await buffer.sink.write("late")
    assert isinstance(caught.value, anyio.BrokenResourceError)
    assert caught.value.__cause__ is error
    with pytest.raises(StreamFailed):
        await buffer.source.receive()
    assert not buffer.sink.end()


async def test_v13_a_second_reader_is_turned_away_and_disturbs_nobody() -> None:
    buffer = FrameBuffer()
    got: list[Frame] = []

    async def first() -> None:
        got.append(await buffer.source.receive())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await settle()
        with pytest.raises(StreamBusy):
            await buffer.source.receive()
        with pytest.raises(StreamBusy):
            buffer.source.receive_nowait()
        await buffer.sink.write("hello")
        with pytest.raises(StreamBusy):  # the frame is in the hands of the first reader
            buffer.source.receive_nowait()
    assert [frame.text for frame in got] == ["hello"]


async def test_v15_a_later_loop_goes_on_where_the_first_left() -> None:
    buffer = FrameBuffer()
    for frame in frames(4):
        await buffer.sink.write(frame)
    buffer.sink.end()
    seen = []
    async for frame in buffer.source:
        seen.append(frame)
        if len(seen) == 2:
            break
    assert [frame async for frame in buffer.source] == frames(2, start=3)


async def test_v16_iterating_an_ended_source_yields_nothing() -> None:
    buffer = FrameBuffer()
    await buffer.sink.write("only")
    buffer.sink.end()
    assert len(await buffer.source.collect()) == 1
    with anyio.fail_after(5):
        for _ in range(2):
            assert [frame async for frame in buffer.source] == []


async def test_v22_a_cancelled_reader_loses_nothing() -> None:
    buffer = FrameBuffer()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(buffer.source.receive)
        await settle()
        tasks.cancel_scope.cancel()
    await buffer.sink.write("kept")
    assert (await buffer.source.receive()).text == "kept"
    assert balanced(buffer)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("strategy", "left"), [("drop-oldest", ["b"]), ("drop-newest", ["a"]), ("block", ["a", "b"])]
)
async def test_a_reader_cancelled_with_a_frame_in_its_hands_leaves_what_the_limit_allows(
    strategy: Strategy, left: list[str]
) -> None:
    # Only asyncio's own cancel() can strike between the wake-up and the run of a task.
    buffer = FrameBuffer(1, strategy)
    reader = asyncio.ensure_future(buffer.source.receive())
    await settle()
    assert [buffer.sink.write_nowait(text) for text in "ab"] == [True, True]
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert [frame.text for frame in buffer.frames] == left
    assert balanced(buffer)


async def test_a_cancelled_writer_delivered_nothing_and_lets_the_next_one_go() -> None:
    buffer = FrameBuffer(1, "block")
    await buffer.sink.write("one")
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await buffer.sink.write("never")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancelled)
        await settle()
        tasks.start_soon(buffer.sink.write, "two")
        await settle()
        scope.cancel()
        await settle()
        assert (await buffer.source.receive()).text == "one"
        assert (await buffer.source.receive()).text == "two"
    assert buffer.statistics().written == 2


async def test_a_writer_cancelled_when_its_turn_has_come_hands_the_turn_on() -> None:
    buffer = FrameBuffer(1, "block")
    await buffer.sink.write("one")
    scope = anyio.CancelScope()

    async def leave_when_ready() -> None:
        with scope:
            await buffer.sink.ready()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave_when_ready)
        await settle()
        tasks.start_soon(buffer.sink.write, "two")
        await settle()
        assert (await buffer.source.receive()).text == "one"
        scope.cancel()
        with anyio.fail_after(5):
            assert (await buffer.source.receive()).text == "two"


@pytest.mark.parametrize("wait", ["write", "ready"])
async def test_an_end_wakes_whoever_waits_for_room(wait: str) -> None:
    buffer = FrameBuffer(1, "block")
    await buffer.sink.write("one")
    caught: list[StreamEnded] = []
    waits: dict[str, Callable[[], Awaitable[object]]] = {
        "write": lambda: buffer.sink.write("two"),
        "ready": buffer.sink.ready,
    }

    async def waiter() -> None:
        try:
            await waits[wait]()
        except StreamEnded as error:
            caught.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiter)
        await settle()
        buffer.sink.end()
    assert len(caught) == (1 if wait == "write" else 0)
    assert [frame.text for frame in await buffer.source.collect()] == ["one"]


async def test_blocked_writers_go_in_the_order_they_came() -> None:
    buffer = FrameBuffer(1, "block")
    await buffer.sink.write("0")
    async with anyio.create_task_group() as tasks:
        for number in range(1, 6):
            tasks.start_soon(buffer.sink.write, str(number))
            await settle()
        got = [(await buffer.source.receive()).text for _ in range(6)]
    assert got == list("012345")


async def test_a_writer_that_was_overtaken_once_is_not_overtaken_again() -> None:
    buffer = FrameBuffer(1, "block")
    buffer.sink.write_nowait("first")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(buffer.sink.write, "waiting")
        await settle()
        buffer.source.receive_nowait()
        buffer.sink.write_nowait("overtakes")
        await settle()
        buffer.source.receive_nowait()
        with pytest.raises(anyio.WouldBlock):
            buffer.sink.write_nowait("may not")
        assert buffer.sink.paused
    assert buffer.source.receive_nowait().text == "waiting"
    assert not buffer.sink.paused


async def test_a_reader_of_a_full_source_lets_other_tasks_run() -> None:
    buffer = FrameBuffer()
    for _ in range(3 * BURST):
        buffer.sink.write_nowait("x")
    read_when_other_ran: list[int] = []

    async def other() -> None:
        read_when_other_ran.append(buffer.statistics().read)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for _ in range(3 * BURST):
            await buffer.source.receive()
    assert read_when_other_ran[0] <= 2 * BURST  # trio may let one yield pass


@pytest.mark.parametrize("limit", [None, 1, 10_000])
async def test_a_tireless_writer_lets_other_tasks_run(limit: int | None) -> None:
    buffer = FrameBuffer(limit)
    written_when_other_ran: list[int] = []

    async def other() -> None:
        written_when_other_ran.append(buffer.statistics().written)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for _ in range(6 * BURST):
            await buffer.sink.write("x")
    assert written_when_other_ran[0] <= 3 * BURST


async def test_a_tireless_pair_in_one_task_can_be_cancelled() -> None:
    buffer = FrameBuffer(1, "block")
    with anyio.move_on_after(0.01):
        while True:
            await buffer.sink.write("x")
            await buffer.source.receive()
    assert balanced(buffer)


async def test_an_abort_is_told_to_the_hooks_once() -> None:
    buffer = FrameBuffer()
    told: list[BaseException | None] = []
    buffer.sink.on_abort(told.append)
    forget = buffer.sink.on_abort(lambda error: told.append(KeyError("taken back")))
    forget()
    error = ValueError("enough")
    assert buffer.source.abort(error)
    assert not buffer.source.abort()
    assert told == [error]
    buffer.on_abort(told.append)
    assert told == [error, error]


async def test_aborting_what_has_ended_and_is_read_changes_nothing() -> None:
    buffer = FrameBuffer()
    await buffer.sink.write("one")
    buffer.sink.end()
    await buffer.source.receive()
    assert not buffer.source.abort()
    assert not buffer.statistics().aborted


async def test_aborting_what_has_ended_discards_the_rest() -> None:
    buffer = FrameBuffer()
    await buffer.sink.write("one")
    buffer.sink.end()
    assert buffer.source.abort()
    assert await buffer.source.collect() == []
    with pytest.raises(StreamEnded):
        await buffer.sink.write("two")
    assert buffer.statistics().discarded == 1


async def test_an_abort_by_another_task_ends_a_waiting_reader() -> None:
    buffer = FrameBuffer()
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            assert await buffer.source.collect() == []

        tasks.start_soon(read)
        await settle()
        buffer.source.abort()


def test_a_final_frame_may_exceed_a_blocking_limit_by_the_reserve() -> None:
    buffer = FrameBuffer(1, "block", reserve=2)
    buffer.put_nowait(Frame("a"))
    assert buffer.put_final(Frame("b"))
    assert buffer.put_final(Frame("c"))
    with pytest.raises(anyio.WouldBlock):
        buffer.put_final(Frame("d"))
    assert buffer.statistics().buffered == 3


TERMINAL = Frame(NODE_COMPLETED)


@pytest.mark.parametrize(
    ("strategy", "limit", "written", "left"),
    [
        ("drop-newest", 2, ["a", "b", TERMINAL], ["a", TERMINAL]),
        ("drop-newest", 2, ["a", TERMINAL, "ABORT"], ["a", TERMINAL]),
        ("drop-newest", 1, [TERMINAL, TERMINAL, TERMINAL], [TERMINAL]),
        ("drop-oldest", 2, ["a", "b", TERMINAL], ["b", TERMINAL]),
        ("drop-oldest", 1, [TERMINAL, "ABORT"], [TERMINAL]),
        ("drop-oldest", 2, [TERMINAL, "a", "b"], [TERMINAL, "b"]),
        ("drop-oldest", 1, ["a", TERMINAL], [TERMINAL]),
    ],
)
def test_a_protected_terminal_frame_stays_within_the_limit(
    strategy: Strategy, limit: int, written: list[Frame | str], left: list[Frame | str]
) -> None:
    buffer = FrameBuffer(limit, strategy, protect_terminal=True)
    for frame in written:
        buffer.sink.write_nowait(frame)
    assert list(buffer.frames) == [Frame.of(frame) for frame in left]
    assert buffer.statistics().dropped == len(written) - len(left)
    assert balanced(buffer)


async def test_a_drained_buffer_counts_frames_as_read_and_keeps_none() -> None:
    buffer = FrameBuffer(1, "block")
    await buffer.sink.write("one")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(buffer.sink.write, "two")
        await settle()
        buffer.drain()
    assert await buffer.sink.write("three")
    buffer.sink.end()
    stats = buffer.statistics()
    assert (stats.written, stats.read, stats.buffered) == (3, 3, 0)
    assert await buffer.source.collect() == []


async def test_the_sink_as_a_context_ends_normally_or_with_the_exception() -> None:
    good, bad = FrameBuffer(), FrameBuffer()
    async with good.sink as sink:
        await sink.write("one")
    assert len(await good.source.collect()) == 1
    with pytest.raises(KeyError):
        async with bad.sink:
            raise KeyError("k")
    with pytest.raises(StreamFailed) as caught:
        await bad.source.receive()
    assert isinstance(caught.value.__cause__, KeyError)


async def test_the_source_as_a_context_aborts() -> None:
    buffer = FrameBuffer()
    async with buffer.source:
        pass
    with pytest.raises(StreamAborted):
        await buffer.sink.write("late")
    await buffer.sink.aclose()
    await buffer.source.aclose()


async def test_collect_stops_after_that_many_frames() -> None:
    buffer = FrameBuffer()
    for frame in frames(3):
        await buffer.sink.write(frame)
    assert await buffer.source.collect(2) == frames(2)
    assert await buffer.source.collect(0) == []
    buffer.sink.end()
    assert await buffer.source.collect(5) == frames(1, start=3)
