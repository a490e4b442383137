"""The reader of the wire on its own, with what servers should not send."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.openai import ChatStream, RecordedChat
from adapters.openai.stream import MAX_LINE
from agentloop._canonical import encode
from agentloop.errors import ModelError, ScriptExhausted
from agentloop.frames import DONE, TEXT, TOOL_CALL, Frame
from agentloop.messages import Message
from agentloop.ports import ModelRequest
from tests.adapters.chat_server import DATA, recording

STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'


def read(*pieces: bytes) -> list[Frame]:
    stream = ChatStream()
    frames = [frame for piece in pieces for frame in stream.feed(piece)]
    return [*frames, *stream.end()]


@given(st.lists(st.integers(1, 2_000), max_size=30), st.sampled_from(["text.sse", "tools.sse"]))
def test_how_the_bytes_were_cut_makes_no_difference(cuts: list[int], name: str) -> None:
    data = recording(name)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]

    assert read(*pieces) == read(data)


def test_windows_line_ends_and_a_missing_last_one_are_read() -> None:
    data = recording("text.sse").replace(b"\n", b"\r\n")

    assert read(data) == read(recording("text.sse"))
    assert read(recording("text.sse").rstrip(b"\n")) == read(recording("text.sse"))


def test_text_may_hold_what_python_calls_a_line_end() -> None:
    chunk = 'data: {"choices":[{"delta":{"content":"a\u2028b\x85c"}}]}\n\n'.encode()

    assert read(chunk, STOP)[0] == Frame(TEXT, {"text": "a\u2028b\x85c"})


def test_a_lone_surrogate_is_repaired() -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"a\\ud83d!"}}]}\n\n'

    assert read(chunk, STOP)[0] == Frame(TEXT, {"text": "a\ufffd!"})


def test_content_in_parts_is_text() -> None:
    chunk = b'data: {"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"x"}]}}]}\n\n'

    assert read(chunk, STOP)[0] == Frame(TEXT, {"text": "a"})


def test_what_follows_the_end_is_ignored() -> None:
    frames = read(recording("text.sse"), b"data: nonsense\n\n")

    assert frames[-1] == Frame(DONE, {"finish_reason": "end_turn"})


def test_a_long_argument_in_many_pieces_is_put_together() -> None:
    def piece(text: str) -> bytes:
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": text}}
        return b"data: " + encode({"choices": [{"delta": {"tool_calls": [call]}}]}) + b"\n"

    frames = read(piece('{"a":"'), *[piece("xyz")] * 5_000, piece('"}'), STOP)

    assert frames[0] == Frame(TOOL_CALL, {"id": "c", "name": "f", "arguments": {"a": "xyz" * 5_000}})


@pytest.mark.parametrize(
    "data",
    [
        b"data: 5\n",
        b"data: [1]\n",
        b"data: {\n",
        b"data: \xff\n",
        b'data: {"choices": 3}\n',
        b'data: {"choices": [3]}\n',
        b'data: {"choices": [{"delta": {"content": 3}}]}\n',
        b'data: {"choices": [{"delta": {"tool_calls": [3]}}]}\n',
        b'data: {"choices": [{"delta": {"tool_calls": [{"function": 3}]}}]}\n',
        b'data: {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {}}}]}}]}\n',
        b'data: {"choices": [{"delta": {}, "finish_reason": "error"}]}\n',
        b"data: " + b"[" * 200 + b"]" * 200 + b"\n",
        b"x" * (MAX_LINE + 1),
        b"",
    ],
)
def test_what_is_no_answer_is_a_broken_stream(data: bytes) -> None:
    with pytest.raises(ModelError) as caught:
        read(data)

    assert (caught.value.error_class, caught.value.code) == ("transient", "model.stream_broken")


def test_an_answer_is_bounded() -> None:
    stream = ChatStream(max_bytes=100)

    with pytest.raises(ModelError, match="larger than 100 bytes"):
        list(stream.feed(b"x" * 101))


def outcome(data: bytes) -> str:
    try:
        read(data)
    except ModelError as error:
        return error.code
    return "frames"


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_classified_error(data: bytes) -> None:
    assert outcome(b"data: " + data + b"\n")


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text(max_size=5)
ANY = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=3), SCALARS, max_size=2)


def form(**members: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """An object of that form, in which each member may be missing or anything else."""
    return ANY | st.fixed_dictionaries({}, optional={name: ANY | given for name, given in members.items()})


FUNCTION = form(name=ANY, arguments=ANY)
CALLS = ANY | st.lists(form(index=ANY, id=ANY, function=FUNCTION), max_size=3)
DELTA = form(content=ANY, reasoning=ANY, refusal=ANY, tool_calls=CALLS)
CHOICES = ANY | st.lists(form(delta=DELTA, finish_reason=ANY), max_size=2)
USAGE = form(prompt_tokens=ANY, prompt_tokens_details=form(cached_tokens=ANY))
ERROR = form(code=ANY, type=ANY, message=ANY)


@given(st.lists(form(choices=CHOICES, usage=USAGE, error=ERROR), max_size=3))
def test_any_json_is_frames_or_a_classified_error(chunks: list[object]) -> None:
    data = b"".join(b"data: " + encode(chunk) + b"\n" for chunk in chunks)

    assert outcome(data + STOP)


@pytest.mark.anyio
async def test_recorded_answers_are_played_in_order_and_run_out() -> None:
    lines = (recording("text.sse") + recording("tools.sse")).decode().split("\n")
    core = RecordedChat(lines)
    ask = ModelRequest(messages=(Message(role="user", content="hi"),))

    first = [frame async for frame in core.stream(ask)]
    second = [frame async for frame in core.stream(ask)]

    assert (first, second) == (read(recording("text.sse")), read(recording("tools.sse")))
    with pytest.raises(ScriptExhausted, match="turn 3 was asked of a script of 2 turns"):
        await anext(core.stream(ask))
    assert core.requests == [ask] * 3
    assert [frame async for frame in RecordedChat(DATA / "text.sse").stream(ask)] == first
