"""What every `ModelCore` promises, for every implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import get_args

import pytest

from adapters.openai import OpenAIChat, RecordedChat
from agentloop.errors import ErrorClass, ModelError
from agentloop.frames import DONE, REASONING, TEXT, TOOL_CALL, USAGE, Frame
from agentloop.messages import Message
from agentloop.ports import ModelCore, ModelRequest
from tests.adapters.chat_server import DATA, chat_server, plays, recording

pytestmark = [
    pytest.mark.anyio,
    # On trio the client's transport leaves one of its own generators to the collector when an
    # answer is left early; trio finalises it and says so.
    pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning"),
]

Maker = Callable[[str], AbstractAsyncContextManager[ModelCore]]
ASK = ModelRequest(messages=(Message(role="user", content="hi"),))


@asynccontextmanager
async def recorded(name: str) -> AsyncIterator[ModelCore]:
    yield RecordedChat(DATA / name)


@asynccontextmanager
async def live(name: str) -> AsyncIterator[ModelCore]:
    with chat_server(plays(recording(name))) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            yield core


@asynccontextmanager
async def live_in_single_bytes(name: str) -> AsyncIterator[ModelCore]:
    with chat_server(plays(recording(name), size=1)) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            yield core


cores = pytest.mark.parametrize(
    "make", [recorded, live, live_in_single_bytes], ids=lambda make: make.__name__
)


async def ask(make: Maker, name: str) -> tuple[list[Frame], ModelError | None]:
    frames: list[Frame] = []
    async with make(name) as core:
        try:
            async for frame in core.stream(ASK):
                frames.append(frame)
        except ModelError as error:
            return frames, error
    return frames, None


@cores
@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.sse")))
async def test_an_answer_is_frames_and_then_one_done_or_one_classified_error(make: Maker, name: str) -> None:
    frames, error = await ask(make, name)

    assert {frame.type for frame in frames} <= {TEXT, REASONING, TOOL_CALL, USAGE, DONE}
    if error is None:
        assert [frame.type for frame in frames].index(DONE) == len(frames) - 1
    else:
        assert error.error_class in get_args(ErrorClass)
        assert "." in error.code
        assert all(frame.type != DONE for frame in frames)


@cores
async def test_text_comes_in_the_pieces_the_model_wrote(make: Maker) -> None:
    frames, _ = await ask(make, "text.sse")

    assert [frame.text for frame in frames if frame.type == TEXT] == ["Hello", " wörld\u2028", " 😀."]
    assert frames[-2] == Frame(
        USAGE, {"input_tokens": 11, "output_tokens": 4, "cached_tokens": 8, "reasoning_tokens": 0}
    )
    assert frames[-1] == Frame(DONE, {"finish_reason": "end_turn"})


@cores
async def test_calls_come_whole_and_in_order(make: Maker) -> None:
    frames, _ = await ask(make, "tools.sse")

    assert [frame.content for frame in frames if frame.type == TOOL_CALL] == [
        {"id": "call_a", "name": "fs__read", "arguments": {"path": "a.py"}},
        {"id": "call_b", "name": "shell", "arguments": {"command": "ls"}},
    ]
    assert frames[-1] == Frame(DONE, {"finish_reason": "tool_use"})


@cores
async def test_arguments_that_are_no_strict_json_object_stay_as_written(make: Maker) -> None:
    frames, _ = await ask(make, "bad_arguments.sse")

    calls = [frame.content for frame in frames if frame.type == TOOL_CALL]
    assert calls[0] == {"id": "y1", "name": "a", "raw_arguments": '{"n": 1'}
    assert calls[1] == {"id": "y2", "name": "b", "raw_arguments": '{"n": 1, "n": 2}'}
    assert calls[2] == {"id": "", "name": "c", "arguments": {}}


@cores
async def test_whole_calls_that_share_an_index_are_two_calls(make: Maker) -> None:
    frames, _ = await ask(make, "whole_calls.sse")

    assert [frame.content["id"] for frame in frames if frame.type == TOOL_CALL] == ["x1", "x2"]
    assert frames[-2:] == [
        Frame(USAGE, {"input_tokens": 1, "output_tokens": 2}),
        Frame(DONE, {"finish_reason": "tool_use"}),
    ]


@cores
async def test_a_refusal_is_text_that_says_it_is_one(make: Maker) -> None:
    frames, _ = await ask(make, "refusal.sse")

    assert "".join(frame.text for frame in frames) == "I cannot do that."
    assert frames[-1] == Frame(DONE, {"finish_reason": "end_turn", "refused": True})


@cores
async def test_hidden_reasoning_is_no_text(make: Maker) -> None:
    frames, _ = await ask(make, "reasoning.sse")

    assert [(frame.type, frame.text) for frame in frames[:2]] == [(REASONING, "Let me see."), (TEXT, "42")]
    assert frames[-1] == Frame(DONE, {"finish_reason": "max_tokens"})


@cores
@pytest.mark.parametrize(
    ("name", "error_class", "code"),
    [
        ("filtered.sse", "correctable", "model.filtered"),
        ("error.sse", "transient", "model.unavailable"),
        ("cut_off.sse", "transient", "model.stream_broken"),
        ("garbage.sse", "transient", "model.stream_broken"),
    ],
)
async def test_an_answer_that_fails_keeps_its_text_and_says_why(
    make: Maker, name: str, error_class: str, code: str
) -> None:
    frames, error = await ask(make, name)

    assert frames[0].type == TEXT
    assert error is not None
    assert (error.error_class, error.code) == (error_class, code)


@cores
async def test_leaving_in_the_middle_leaves_nothing_open(make: Maker) -> None:
    async with make("text.sse") as core, aclosing(core.stream(ASK)) as frames:
        assert (await anext(frames)).text == "Hello"
