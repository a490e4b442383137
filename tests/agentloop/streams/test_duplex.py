"""Connected duplexes, and duplexes whose turns are calls of a function."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import pytest

from agentloop.errors import StreamAborted, StreamEnded, StreamFailed
from agentloop.frames import CANCEL, DONE, ERROR, TEXT, TOOL_CALL, TOOL_RESULT, Frame
from agentloop.streams import FrameBuffer, TurnDuplex, duplex_pair, turn_duplex

pytestmark = pytest.mark.anyio


async def settle() -> None:
    await anyio.wait_all_tasks_blocked()


async def turn_of(duplex: TurnDuplex) -> list[Frame]:
    """Read one turn, its last frame included."""
    frames: list[Frame] = []
    while not frames or frames[-1].type not in (DONE, ERROR):
        frames.append(await duplex.source.receive())
    return frames


async def echo(prompt: list[Frame], ctx: object) -> AsyncIterator[str]:
    for frame in prompt:
        yield frame.text


def call(name: str) -> Frame:
    return Frame(TOOL_CALL, {"id": name, "name": name, "arguments": {}})


def result(name: str) -> Frame:
    return Frame(TOOL_RESULT, {"id": name, "name": name, "ok": True})


# -------------------------------------------------------------------------------------- pairs


async def test_what_is_written_on_one_is_read_on_the_other() -> None:
    left, right = duplex_pair()
    async with left, right:
        await left.sink.write("ping")
        assert (await right.source.receive()).text == "ping"
        await right.sink.write("pong")
        assert (await left.source.receive()).text == "pong"


async def test_the_two_directions_are_independent() -> None:
    left, right = duplex_pair(limit=1)
    left.sink.write_nowait("full")
    assert left.sink.paused
    assert not right.sink.paused
    left.sink.end()
    await right.sink.write("still open")
    assert (await left.source.receive()).text == "still open"


async def test_closing_one_side_lets_the_other_read_the_rest() -> None:
    left, right = duplex_pair()
    await left.sink.write("last")
    await left.aclose()
    assert [frame.text for frame in await right.source.collect()] == ["last"]
    with pytest.raises(StreamAborted):
        await right.sink.write("late")


async def test_aborting_one_side_breaks_both_directions() -> None:
    left, right = duplex_pair()
    await left.sink.write("lost")
    assert left.abort("enough")
    assert not left.abort()
    with pytest.raises(StreamFailed, match="enough"):
        await right.source.receive()
    with pytest.raises(StreamAborted):
        await right.sink.write("late")
    with pytest.raises(StreamEnded):
        await left.sink.write("late")


async def test_leaving_with_an_exception_breaks_the_other_side() -> None:
    left, right = duplex_pair()
    with pytest.raises(KeyError):
        async with left:
            raise KeyError("k")
    with pytest.raises(StreamFailed, match="KeyError"):
        await right.source.receive()


async def test_an_entered_side_owns_the_pipes_of_its_source() -> None:
    left, right = duplex_pair()
    target = FrameBuffer()
    async with left:
        left.source.pipe(target.sink)
        await right.sink.write("a")
        right.sink.end()
        assert [frame.text for frame in await target.source.collect()] == ["a"]


# -------------------------------------------------------------------------------------- turns


async def test_every_batch_of_frames_starts_a_turn() -> None:
    async with turn_duplex(echo) as duplex:
        for batch in (["a", "b"], ["c"]):
            for text in batch:
                await duplex.sink.write(text)
            turn = await turn_of(duplex)
            assert [frame.text for frame in turn[:-1]] == batch
            assert turn[-1] == Frame(DONE, {})


async def test_the_function_gets_the_context_and_is_an_attribute() -> None:
    async def tell(prompt: list[Frame], ctx: object) -> AsyncIterator[str]:
        yield str(ctx)

    async with turn_duplex(tell, ctx="context") as duplex:
        assert duplex.turn is tell
        await duplex.sink.write("go")
        assert (await turn_of(duplex))[0].text == "context"


async def test_nothing_follows_the_functions_own_done() -> None:
    closed = False

    async def chatty(prompt: list[Frame], ctx: object) -> AsyncIterator[Any]:
        nonlocal closed
        try:
            yield Frame(DONE, {"finish_reason": "end_turn"})
            yield "never"
        finally:
            closed = True

    async with turn_duplex(chatty) as duplex:
        await duplex.sink.write("go")
        assert await turn_of(duplex) == [Frame(DONE, {"finish_reason": "end_turn"})]
        await settle()
        assert duplex.source.statistics().buffered == 0
    assert closed


async def test_a_raising_function_gives_an_error_frame_and_the_next_turn_works() -> None:
    error = ValueError("x")

    async def fails_once(prompt: list[Frame], ctx: object) -> AsyncIterator[str]:
        if prompt[0].text == "bad":
            raise error
        yield "fine"

    async with turn_duplex(fails_once) as duplex:
        await duplex.sink.write("bad")
        (failed,) = await turn_of(duplex)
        assert failed == Frame(ERROR, {"error_type": "ValueError", "message": "x", "fatal": True})
        assert failed.meta["exception"] is error
        await duplex.sink.write("good")
        assert [frame.type for frame in await turn_of(duplex)] == [TEXT, DONE]


async def test_a_tool_result_is_sent_into_the_function() -> None:
    async def asks(prompt: list[Frame], ctx: object) -> AsyncGenerator[Any, Any]:
        answer = yield call("a")
        yield f"got {answer.content['id']}"

    async with turn_duplex(asks) as duplex:
        await duplex.sink.write("go")
        assert (await duplex.source.receive()).type == TOOL_CALL
        await duplex.sink.write(result("a"))
        assert [frame.text for frame in await turn_of(duplex)] == ["got a", ""]


async def test_calls_made_at_once_are_answered_in_their_order() -> None:
    async def asks(prompt: list[Frame], ctx: object) -> AsyncGenerator[Any, Any]:
        answers = yield [call("a"), call("b")]
        yield " ".join(answer.content["id"] for answer in answers)

    async with turn_duplex(asks) as duplex:
        await duplex.sink.write("go")
        assert [(await duplex.source.receive()).type for _ in range(2)] == [TOOL_CALL, TOOL_CALL]
        for name in "ba":
            await duplex.sink.write(result(name))
        assert (await turn_of(duplex))[0].text == "a b"


async def test_other_frames_that_come_while_a_result_is_waited_for_start_the_next_turn() -> None:
    async def asks(prompt: list[Frame], ctx: object) -> AsyncGenerator[Any, Any]:
        if prompt[0].text == "ask":
            yield call("a")
        yield prompt[0].text

    async with turn_duplex(asks) as duplex:
        await duplex.sink.write("ask")
        await duplex.source.receive()
        await duplex.sink.write("next")
        await duplex.sink.write(result("a"))
        assert (await turn_of(duplex))[0].text == "ask"
        assert (await turn_of(duplex))[0].text == "next"


async def test_a_result_nobody_waits_for_starts_no_turn() -> None:
    async with turn_duplex(echo) as duplex:
        await duplex.sink.write(result("late"))
        await settle()
        assert duplex.source.statistics().written == 0
        await duplex.sink.write("go")
        assert (await turn_of(duplex))[0].text == "go"


async def test_a_plain_iterator_is_not_stopped_for_its_tool_calls() -> None:
    class Calls:
        def __init__(self) -> None:
            self.left = [call("a"), Frame(TEXT, {"text": "on"})]

        def __aiter__(self) -> Calls:
            return self

        async def __anext__(self) -> Frame:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    async with turn_duplex(lambda prompt, ctx: Calls()) as duplex:
        await duplex.sink.write("go")
        assert [frame.type for frame in await turn_of(duplex)] == [TOOL_CALL, TEXT, DONE]


class Stuck:
    """A turn function that says one word, hangs, and tells what became of it."""

    def __init__(self) -> None:
        self.turns = 0
        self.cancelled = 0

    async def __call__(self, prompt: list[Frame], ctx: object) -> AsyncIterator[str]:
        self.turns += 1
        if prompt[0].text == "answer":
            yield "fine"
            return
        try:
            yield "word"
            await anyio.sleep_forever()
        finally:
            self.cancelled += 1


@pytest.mark.parametrize("by_frame", [False, True])
async def test_an_abort_cuts_the_turn_and_the_next_one_starts_afresh(by_frame: bool) -> None:
    stuck = Stuck()
    async with turn_duplex(stuck) as duplex:
        await duplex.sink.write("hang")
        await settle()
        if by_frame:
            assert duplex.sink.write_nowait({"type": CANCEL, "content": {"reason": "enough"}})
            assert not await duplex.sink.write({"type": CANCEL})
        else:
            assert duplex.abort("enough")
            assert not duplex.abort()
        await duplex.sink.write("answer")
        cut = await turn_of(duplex)
        assert cut[-1] == Frame(DONE, {"finish_reason": "aborted", "reason": "enough"})
        assert [frame.text for frame in cut[:-1]] == ["word"]
        assert (await turn_of(duplex))[0].text == "fine"
    assert (stuck.turns, stuck.cancelled) == (2, 1)


async def test_what_a_cut_turn_goes_on_saying_is_not_heard() -> None:
    async def cuts_itself(prompt: list[Frame], ctx: object) -> AsyncIterator[str]:
        yield "before"
        duplex.abort()
        yield "after"

    async with turn_duplex(cuts_itself) as duplex:
        await duplex.sink.write("go")
        assert [frame.type for frame in await turn_of(duplex)] == [TEXT, DONE]
        await settle()
        assert duplex.source.statistics().buffered == 0


async def test_an_abort_forgets_prompts_that_wait() -> None:
    duplex = turn_duplex(echo)
    await duplex.sink.write("forgotten")
    assert duplex.abort()
    async with duplex:
        assert await turn_of(duplex) == [Frame(DONE, {"finish_reason": "aborted"})]
        await settle()
        assert duplex.source.statistics().buffered == 0


async def test_a_slow_reader_makes_the_function_wait() -> None:
    made = 0

    async def counts(prompt: list[Frame], ctx: object) -> AsyncIterator[str]:
        nonlocal made
        for _ in range(5):
            made += 1
            yield "x"

    async with turn_duplex(counts, limit=1) as duplex:
        await duplex.sink.write("go")
        await settle()
        assert made == 2
        assert len(await turn_of(duplex)) == 6


async def test_a_reader_that_leaves_stops_the_turn_and_refuses_prompts() -> None:
    stuck = Stuck()
    async with turn_duplex(stuck) as duplex:
        await duplex.sink.write("hang")
        await settle()
        duplex.source.abort()
        await settle()
        assert stuck.cancelled == 1
        with pytest.raises(StreamAborted):
            await duplex.sink.write("late")


async def test_ending_the_sink_lets_the_turn_finish_and_ends_the_source() -> None:
    async with turn_duplex(echo) as duplex:
        await duplex.sink.write("last")
        duplex.sink.end()
        assert [frame.type for frame in await duplex.source.collect()] == [TEXT, DONE]


async def test_ending_the_sink_while_a_result_is_waited_for_is_an_error() -> None:
    async def asks(prompt: list[Frame], ctx: object) -> AsyncGenerator[Any, Any]:
        yield call("a")

    async with turn_duplex(asks) as duplex:
        await duplex.sink.write("go")
        await settle()
        duplex.sink.end()
        frames = await duplex.source.collect()
        assert [frame.type for frame in frames] == [TOOL_CALL, ERROR]
        assert frames[1].content["error_type"] == "TurnError"


async def test_closing_stops_the_turn_and_closes_the_function() -> None:
    class Closes(Stuck):
        closed = False

        async def aclose(self) -> None:
            await anyio.lowlevel.checkpoint()
            self.closed = True

    fn = Closes()
    async with turn_duplex(fn) as duplex:
        await duplex.sink.write("hang")
        await settle()
        await duplex.aclose()
        assert fn.closed
        assert fn.cancelled == 1


async def test_a_cancelled_owner_leaves_nothing_running() -> None:
    stuck = Stuck()
    with anyio.CancelScope() as scope:
        async with turn_duplex(stuck) as duplex:
            await duplex.sink.write("hang")
            await settle()
            scope.cancel()
            await anyio.sleep_forever()
    assert stuck.cancelled == 1
