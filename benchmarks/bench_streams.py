"""S1, S2, S3: what a frame costs on its way, beside hand-written floors and the usual streams.

python benchmarks/bench_streams.py [--quick]
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio

from agentloop.frames import Frame
from agentloop.streams import FrameBuffer, filter_frames, map_frames, pipeline
from benchmarks import harness

LIMIT = 64
FRAME = Frame("TEXT", {"text": "x"})


def main() -> None:
    n = 20_000 if harness.quick() else 100_000
    one_frame(n)
    five_operators(n)
    many_producers(n)
    memory()


# -------------------------------------------------------------------------------------- S1


def one_frame(n: int) -> None:
    async def ours() -> None:
        buffer = FrameBuffer(LIMIT, "block")

        async def produce() -> None:
            write = buffer.sink.write
            for _ in range(n):
                await write(FRAME)
            buffer.sink.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
            async for _ in buffer.source:
                pass

    async def ours_nowait() -> None:
        buffer = FrameBuffer(LIMIT, "block")
        sink, source = buffer.sink, buffer.source

        async def produce() -> None:
            for _ in range(n):
                try:
                    sink.write_nowait(FRAME)
                except anyio.WouldBlock:
                    await sink.write(FRAME)
            sink.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
            try:
                while True:
                    try:
                        source.receive_nowait()
                    except anyio.WouldBlock:
                        await source.receive()
            except anyio.EndOfStream:
                pass

    async def generator() -> None:
        async def produce() -> AsyncIterator[Frame]:
            for _ in range(n):
                yield FRAME

        async for _ in produce():
            pass

    async def anyio_stream() -> None:
        send, receive = anyio.create_memory_object_stream[Frame](LIMIT)

        async def produce() -> None:
            async with send:
                for _ in range(n):
                    await send.send(FRAME)

        async with anyio.create_task_group() as tasks, receive:
            tasks.start_soon(produce)
            async for _ in receive:
                pass

    async def asyncio_queue() -> None:
        queue: asyncio.Queue[Frame | None] = asyncio.Queue(LIMIT)

        async def produce() -> None:
            for _ in range(n):
                await queue.put(FRAME)
            await queue.put(None)

        producer = asyncio.ensure_future(produce())
        while await queue.get() is not None:
            pass
        await producer

    us = measure(
        n,
        ours=ours,
        ours_nowait=ours_nowait,
        generator=generator,
        anyio_stream=anyio_stream,
        asyncio_queue=asyncio_queue,
    )
    value, faster = us["ours"], us["anyio_stream"] / us["ours"]
    harness.report(
        "S1",
        "frame through a bounded (64) source -> sink, two tasks",
        value,
        "us",
        floor=us["generator"],
        must=harness.bar("<= 2.5 us and >= 5x faster than an anyio stream", value <= 2.5 and faster >= 5),
        moonshot=harness.bar(
            "<= 0.8 us and >= 15x faster than an anyio stream", value <= 0.8 and faster >= 15
        ),
        n=n,
        times_faster_than_anyio=faster,
        no_wait_first=us["ours_nowait"],
        peers={name: us[name] for name in ("anyio_stream", "asyncio_queue")},
    )


# -------------------------------------------------------------------------------------- S2


def same(frame: Frame) -> Frame:
    return frame


def yes(frame: Frame) -> bool:
    return True


class Counter:
    """The cheapest sink: what is measured is the operators."""

    paused = ended = False
    count = 0

    async def write(self, frame: Any, /) -> bool:
        self.count += 1
        return True

    def write_nowait(self, frame: Any, /) -> bool:
        self.count += 1
        return True

    async def ready(self) -> None:
        return None

    def end(self, error: BaseException | None = None, /) -> bool:
        self.ended = True
        return True


def five_operators(n: int) -> None:
    async def ours() -> None:
        buffer, sink = full(n), Counter()
        stages = [
            map_frames(same),
            filter_frames(yes),
            map_frames(same),
            filter_frames(yes),
            map_frames(same),
        ]
        await pipeline(buffer.source, *stages, sink)
        assert sink.count == n

    async def generators() -> None:
        async def produce() -> AsyncIterator[Frame]:
            for _ in range(n):
                yield FRAME

        async def mapped(source: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
            async for frame in source:
                yield same(frame)

        async def filtered(source: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
            async for frame in source:
                if yes(frame):
                    yield frame

        async for _ in mapped(filtered(mapped(filtered(mapped(produce()))))):
            pass

    async def aiostream_pipe() -> None:
        from aiostream import pipe, stream

        async def produce() -> AsyncIterator[Frame]:
            for _ in range(n // 10):
                yield FRAME

        chain: Any = stream.iterate(produce())
        for _ in range(2):
            chain = chain | pipe.map(lambda frame, *rest: same(frame)) | pipe.filter(yes)
        async with (chain | pipe.map(lambda frame, *rest: same(frame))).stream() as streamer:
            async for _ in streamer:
                pass

    us = measure(n, ours=ours, generators=generators, aiostream=aiostream_pipe)
    us["aiostream"] *= 10
    value, floor, faster = us["ours"], us["generators"], us["aiostream"] / us["ours"]
    harness.report(
        "S2",
        "frame through five operators (three map, two filter)",
        value,
        "us",
        floor=floor,
        must=harness.bar("<= 4x chained generators", value <= 4 * floor),
        moonshot=harness.bar("<= 2x chained generators", value <= 2 * floor),
        n=n,
        times_faster_than_aiostream=faster,
        peers={"aiostream": us["aiostream"]},
    )


def full(n: int) -> FrameBuffer:
    buffer = FrameBuffer()
    for _ in range(n):
        buffer.put_nowait(FRAME)
    buffer.end()
    return buffer


# -------------------------------------------------------------------------------------- S3

PRODUCERS = 100


def many_producers(n: int) -> None:
    each = n // PRODUCERS

    async def ours() -> None:
        buffer = FrameBuffer(LIMIT, "block")
        left = PRODUCERS

        async def produce() -> None:
            nonlocal left
            write = buffer.sink.write
            for _ in range(each):
                await write(FRAME)
            left -= 1
            if not left:
                buffer.sink.end()

        async with anyio.create_task_group() as tasks:
            for _ in range(PRODUCERS):
                tasks.start_soon(produce)
            async for _ in buffer.source:
                pass

    def queue(limit: int) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            queue: asyncio.Queue[Frame] = asyncio.Queue(limit)

            async def produce() -> None:
                for _ in range(each):
                    await queue.put(FRAME)

            producers = [asyncio.ensure_future(produce()) for _ in range(PRODUCERS)]
            for _ in range(each * PRODUCERS):
                await queue.get()
            await asyncio.gather(*producers)

        return run

    async def anyio_stream() -> None:
        send, receive = anyio.create_memory_object_stream[Frame](LIMIT)

        async def produce(own: Any) -> None:
            async with own:
                for _ in range(each):
                    await own.send(FRAME)

        async with anyio.create_task_group() as tasks, receive:
            for _ in range(PRODUCERS):
                tasks.start_soon(produce, send.clone())
            send.close()
            async for _ in receive:
                pass

    us = measure(
        n, ours=ours, unbounded_queue=queue(0), asyncio_queue=queue(LIMIT), anyio_stream=anyio_stream
    )
    value, faster = us["ours"], us["anyio_stream"] / us["ours"]
    harness.report(
        "S3",
        "frame of one of 100 producers into one bounded (64) sink",
        value,
        "us",
        floor=us["unbounded_queue"],
        must=harness.bar("<= 9 us", value <= 9),
        moonshot=harness.bar("<= 3.5 us and >= 7x faster than anyio", value <= 3.5 and faster >= 7),
        n=n,
        times_faster_than_anyio=faster,
        peers={name: us[name] for name in ("asyncio_queue", "anyio_stream")},
    )


# ---------------------------------------------------------------------------------- memory


def memory() -> None:
    """Bytes that stay per frame after many have passed through a bounded buffer."""
    passed = 20_000

    async def run() -> float:
        buffer = FrameBuffer(LIMIT, "drop-oldest")
        for _ in range(1_000):
            await buffer.sink.write("x")
        tracemalloc.start()
        for number in range(passed):
            await buffer.sink.write("x")
            if number % 3 == 0:
                await buffer.source.receive()
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return grown / passed

    value = anyio.run(run)
    harness.report(
        "S-memory",
        "memory kept per frame that passed",
        value,
        "B",
        must=harness.bar("<= 4 B: does not grow with the stream", value <= 4),
        n=passed,
    )


def measure(n: int, **works: Callable[[], Awaitable[object]]) -> dict[str, float]:
    return harness.measure({name: harness.timed(work) for name, work in works.items()}, n=n)


if __name__ == "__main__":
    main()
