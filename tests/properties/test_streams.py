"""Laws of streams: nothing is lost silently, limits hold, order is kept, counts balance."""

from __future__ import annotations

from collections import deque
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.errors import StreamAborted, StreamEnded, StreamFailed
from agentloop.frames import TERMINAL_TYPES, Frame
from agentloop.streams import FrameBuffer
from tests.strategies import buffer_steps, frames, limits, overflow_strategies, stream_steps

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def numbered(number: int, writer: int = 0) -> Frame:
    return Frame("TEXT", {"n": number, "writer": writer})


def balanced(buffer: FrameBuffer) -> bool:
    stats = buffer.statistics()
    return stats.written == stats.read + stats.dropped + stats.buffered + stats.discarded


class Model:
    """The obvious buffer: a list and four counters."""

    def __init__(self, limit: int | None, strategy: str) -> None:
        self.limit, self.strategy = limit, strategy
        self.waiting: list[Frame] = []
        self.written = self.read = self.dropped = self.discarded = 0
        self.over: str | None = None

    def write(self, frame: Frame) -> bool | str:
        if self.over:
            return "aborted" if self.over == "abort" else "ended"
        full = self.limit is not None and len(self.waiting) >= self.limit
        if full and self.strategy == "block":
            return "would block"
        self.written += 1
        if not full:
            self.waiting.append(frame)
            return True
        self.dropped += 1
        if self.strategy == "drop-newest":
            return False
        self.waiting = [*self.waiting[1:], frame]
        return True

    def receive(self) -> Frame | str:
        if self.waiting:
            self.read += 1
            return self.waiting.pop(0)
        return {None: "would block", "fail": "failed"}.get(self.over, "end")

    def finish(self, how: str) -> bool:
        finished = self.over in ("abort", "fail") or (self.over == "end" and not self.waiting)
        if finished or (self.over == "end" and how != "abort"):
            return False
        # Whoever ended it first decides what a late writer is told.
        self.over = self.over if self.over == "end" else how
        if how != "end":
            self.discarded += len(self.waiting)
            self.waiting = []
        return True


def attempt(action: Any, *args: Any) -> Any:
    try:
        return action(*args)
    except anyio.WouldBlock:
        return "would block"
    except anyio.EndOfStream:
        return "end"
    except StreamFailed:
        return "failed"
    except StreamEnded:
        return "ended"
    except StreamAborted:
        return "aborted"


@given(limits(), overflow_strategies(), buffer_steps())
def test_i7_i8_a_buffer_behaves_like_a_list_with_counters(
    limit: int | None, strategy: Any, steps: list[str]
) -> None:
    buffer, model = FrameBuffer(limit, strategy), Model(limit, strategy)
    for number, step in enumerate(steps):
        frame = numbered(number)
        if step == "write":
            assert attempt(buffer.sink.write_nowait, frame) == model.write(frame)
        elif step == "read":
            assert attempt(buffer.source.receive_nowait) == model.receive()
        elif step == "abort":
            assert buffer.source.abort() == model.finish("abort")
        else:
            error = ValueError() if step == "fail" else None
            assert buffer.sink.end(error) == model.finish(step)
        stats = buffer.statistics()
        assert (stats.written, stats.read, stats.dropped, stats.buffered, stats.discarded) == (
            model.written,
            model.read,
            model.dropped,
            len(model.waiting),
            model.discarded,
        )
        assert limit is None or stats.buffered <= limit
        assert list(buffer.frames) == model.waiting


@given(st.sampled_from([1, 2, 3, 10]), st.sampled_from(["drop-oldest", "drop-newest"]), st.lists(frames()))
def test_i7_a_protected_terminal_frame_is_lost_only_to_another_one(
    limit: int, strategy: Any, written: list[Frame]
) -> None:
    buffer = FrameBuffer(limit, strategy, protect_terminal=True)
    for frame in written:
        buffer.sink.write_nowait(frame)
        assert len(buffer.frames) <= limit
    terminal = [frame for frame in written if frame.type in TERMINAL_TYPES]
    kept = [frame for frame in buffer.frames if frame.type in TERMINAL_TYPES]
    if len(terminal) <= limit:
        assert kept == terminal
    else:
        assert len(kept) == limit
    assert balanced(buffer)


async def play(limit: int | None, strategy: Any, steps: list[tuple[str, int]]) -> None:
    """Play the steps around one buffer and check that each frame is accounted for."""
    buffer = FrameBuffer(limit, strategy)
    accepted: dict[int, list[int]] = {0: [], 1: [], 2: []}
    offered = dict.fromkeys(accepted, 0)
    got: list[tuple[int, int]] = []
    running: dict[object, anyio.CancelScope] = {}

    async def write(writer: int, number: int, scope: anyio.CancelScope) -> None:
        with scope:
            if await buffer.sink.write(numbered(number, writer)):
                accepted[writer].append(number)
        del running[writer]

    async def read(scope: anyio.CancelScope) -> None:
        with scope:
            frame = await buffer.source.receive()
            got.append((frame.content["writer"], frame.content["n"]))
        del running["reader"]

    # A reader that is cancelled with a frame in its hands gives it back, and none is ever lost.
    given_back = strategy == "block" and any(step == "cancel_read" for step, _ in steps)
    async with anyio.create_task_group() as tasks:
        for step, argument in steps:
            if step == "write" and argument not in running:
                running[argument] = anyio.CancelScope()
                offered[argument] += 1
                tasks.start_soon(write, argument, offered[argument], running[argument])
            elif step == "read" and "reader" not in running:
                running["reader"] = anyio.CancelScope()
                tasks.start_soon(read, running["reader"])
            elif step == "cancel_write" and argument in running:
                running[argument].cancel()
            elif step == "cancel_read" and "reader" in running:
                running["reader"].cancel()
            elif step == "run":
                for _ in range(argument):
                    await anyio.lowlevel.checkpoint()
            stats = buffer.statistics()
            assert stats.written == stats.read + stats.dropped + stats.buffered + stats.discarded
            assert limit is None or stats.buffered <= limit + given_back
        # Nobody waits while the other side is there: what is left waiting lacks its counterpart.
        await anyio.wait_all_tasks_blocked()
        writers = [name for name in running if name != "reader"]
        stats = buffer.statistics()
        if writers:
            assert limit is not None
            assert limit <= stats.buffered <= limit + given_back
            assert "reader" not in running
        if "reader" in running:
            assert stats.buffered == 0
        for scope in running.values():
            scope.cancel()
    buffer.sink.end()
    got += [(frame.content["writer"], frame.content["n"]) for frame in await buffer.source.collect()]
    stats = buffer.statistics()
    assert stats.written == len(got) + stats.dropped
    for writer, numbers in accepted.items():
        mine = [number for who, number in got if who == writer]
        assert mine == sorted(mine)
        if not stats.dropped:
            assert mine == numbers


@BACKENDS
@settings(max_examples=60, deadline=None)
@given(limits(), overflow_strategies(), stream_steps())
def test_i8_random_interleavings_lose_nothing_and_leave_nobody_waiting(
    backend: str, limit: int | None, strategy: Any, steps: list[tuple[str, int]]
) -> None:
    anyio.run(play, limit, strategy, steps, backend=backend)


# ------------------------------------------------------------------- slow and vanished readers


@BACKENDS
@pytest.mark.parametrize("strategy", ["drop-oldest", "drop-newest", "block"])
def test_f21_a_slow_reader_costs_at_most_the_limit(backend: str, strategy: Any) -> None:
    count, limit = (100_000 if strategy != "block" else 5_000), 16

    async def main() -> None:
        buffer = FrameBuffer(limit, strategy)
        peak = read = 0

        async def slow() -> None:
            nonlocal read
            async for _ in buffer.source:
                read += 1
                for _ in range(3 if strategy == "block" else 1_000):
                    await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            for number in range(count):
                await buffer.sink.write(numbered(number))
                peak = max(peak, buffer.statistics().buffered)
            buffer.sink.end()
            if strategy != "block":
                tasks.cancel_scope.cancel()
        stats = buffer.statistics()
        assert peak == limit
        assert stats.written == count
        assert balanced(buffer)
        if strategy == "block":
            assert read == count
            assert stats.dropped == 0

    anyio.run(main, backend=backend)


@BACKENDS
@pytest.mark.parametrize("how", ["stops", "is cancelled", "closes", "leaves its loop"])
def test_f22_a_vanished_reader_wakes_the_writer_or_leaves_it_waiting_as_promised(
    backend: str, how: str
) -> None:
    async def vanish_after(position: int) -> None:
        buffer = FrameBuffer(2, "block")
        outcome: list[str] = []

        async def write() -> None:
            try:
                for number in range(6):
                    await buffer.sink.write(numbered(number))
                outcome.append("done")
            except StreamAborted:
                outcome.append("aborted")

        async def read() -> None:
            left = position
            while left and how != "leaves its loop":
                await buffer.source.receive()
                left -= 1
            if left:
                async for _ in buffer.source:
                    left -= 1
                    if not left:
                        break
            if how == "closes":
                await buffer.source.aclose()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            async with anyio.create_task_group() as reader:
                reader.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                if how == "is cancelled":
                    reader.cancel_scope.cancel()
            await anyio.wait_all_tasks_blocked()
            if how == "closes":
                # Whoever had room for all its frames may have finished just before.
                assert outcome == ["aborted"] or (position >= 4 and outcome == ["done"])
            elif position < 4:
                assert outcome == []  # backpressure: only an abort says that nobody will come
                assert [frame.content["n"] for frame in await buffer.source.collect(6 - position)] == list(
                    range(position, 6)
                )
        assert balanced(buffer)

    for position in range(7):
        anyio.run(vanish_after, position, backend=backend)


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
@pytest.mark.parametrize("strategy", ["drop-oldest", "drop-newest", "block"])
def test_f23_a_full_buffer_keeps_exactly_the_promised_frames(limit: int, strategy: Any) -> None:
    async def main() -> None:
        for count in range(51):
            buffer = FrameBuffer(limit, strategy)
            written = [numbered(number) for number in range(count)]
            kept: deque[Frame] = deque(written[:limit])
            if strategy == "drop-oldest":
                kept = deque(written, maxlen=limit)
            for frame in written[: limit if strategy == "block" else count]:
                await buffer.sink.write(frame)
            assert buffer.sink.paused == (strategy == "block" and count >= limit)
            buffer.sink.end()
            assert await buffer.source.collect() == list(kept)
            assert buffer.source.ended
            assert balanced(buffer)

    anyio.run(main)
