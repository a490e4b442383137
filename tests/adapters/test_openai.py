from __future__ import annotations

import socket
import traceback
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anyio
import httpx2
import openai
import pytest

from adapters.openai import OpenAIChat, openai_adapter
from adapters.openai.faults import CODES, STATUS
from agentloop._canonical import encode
from agentloop.errors import AgentLoopConfigError, ModelError
from agentloop.frames import DONE, TEXT, USAGE, Frame
from agentloop.messages import Message, ToolCall
from agentloop.models import AdapterContext, ModelTurn, Retry
from agentloop.ports import ModelRequest, ToolSpec
from tests.adapters.chat_server import (
    DATA,
    Answer,
    answers_whole,
    breaks_after,
    chat_server,
    hangs_after,
    plays,
    recording,
    refuses,
)

pytestmark = [
    pytest.mark.anyio,
    # On trio the client's transport leaves one of its own generators to the collector when an
    # answer is left early; trio finalises it and says so.
    pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning"),
]

ASK = ModelRequest(messages=(Message(role="user", content="hi"),))
FIRST = b"\n".join(recording("text.sse").split(b"\n")[:4]) + b"\n"
KEY = "sk-canary-4711-do-not-show"


async def collect(frames: AsyncIterator[Frame]) -> list[Frame]:
    return [frame async for frame in frames]


async def failure_of(*answers: Answer, **options: Any) -> ModelError:
    with chat_server(*answers) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}, **options) as core:
            with pytest.raises(ModelError) as caught:
                await collect(core.stream(ASK))
            assert len(server.requests) == 1, "the client's own retries are off"
    return caught.value


def body(**error: Any) -> bytes:
    return encode({"error": error})


@pytest.mark.parametrize(
    ("status", "error", "error_class", "code"),
    [
        (400, {"message": "no such field"}, "fatal", "provider.bad_request"),
        (400, {"code": "context_length_exceeded"}, "transient", "context.length_exceeded"),
        (400, {"message": "exceeds the available context size"}, "transient", "context.length_exceeded"),
        (400, {"code": "content_filter"}, "correctable", "model.filtered"),
        (401, {"message": "bad key"}, "fatal", "auth.invalid_key"),
        (403, {}, "fatal", "auth.invalid_key"),
        (404, {"message": "no model m"}, "fatal", "provider.bad_request"),
        (408, {}, "transient", "model.timeout"),
        (409, {}, "transient", "model.unavailable"),
        (418, {}, "fatal", "provider.bad_request"),
        (422, {}, "fatal", "provider.bad_request"),
        (425, {}, "transient", "model.unavailable"),
        (429, {}, "transient", "model.rate_limited"),
        (429, {"code": "insufficient_quota"}, "budget", "provider.quota"),
        (500, {}, "transient", "model.unavailable"),
        (503, {}, "transient", "model.unavailable"),
    ],
)
async def test_what_a_server_answers_is_classified(
    status: int, error: Mapping[str, Any], error_class: str, code: str
) -> None:
    failure = await failure_of(refuses(status, body(**error)))

    assert (failure.error_class, failure.code, failure.detail) == (error_class, code, {"status": status})
    assert str(status) in str(failure)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "2"}, 2_000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after-ms": "70", "retry-after": "2"}, 70),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
async def test_the_wait_a_server_asks_for_is_read(headers: Mapping[str, str], expected: int | None) -> None:
    failure = await failure_of(refuses(429, headers=headers))

    assert failure.retry_after_ms == expected


async def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with OpenAIChat(model="m", base_url=f"http://127.0.0.1:{port}/v1", environ={}) as core:
        with pytest.raises(ModelError, match=f"http://127.0.0.1:{port}/v1 could not be reached") as caught:
            await collect(core.stream(ASK))

    assert (caught.value.error_class, caught.value.code) == ("transient", "model.unavailable")


async def test_a_connection_that_breaks_after_the_first_token_is_a_broken_stream() -> None:
    seen: list[Frame] = []
    with chat_server(breaks_after(FIRST)) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            with pytest.raises(ModelError) as caught:
                async for frame in core.stream(ASK):
                    seen.append(frame)

    assert seen == [Frame(TEXT, {"text": "Hello"})]
    assert (caught.value.error_class, caught.value.code) == ("transient", "model.stream_broken")


@pytest.mark.parametrize("said", [b"", FIRST], ids=["before the first token", "after it"])
async def test_a_silent_server_is_given_up_after_the_timeout(said: bytes) -> None:
    failure = await failure_of(hangs_after(said), timeout_ms=150)

    assert (failure.error_class, failure.code) == ("transient", "model.timeout")
    assert "150 ms" in str(failure)


async def test_a_server_that_never_begins_to_answer_times_out() -> None:
    failure = await failure_of(lambda handler: void(handler.server.over.wait(30)), timeout_ms=150)

    assert (failure.error_class, failure.code) == ("transient", "model.timeout")


def void(_: object) -> None:
    return None


async def test_a_connection_left_open_after_the_last_word_is_not_waited_for() -> None:
    with chat_server(hangs_after(recording("text.sse"))) as server, anyio.fail_after(5):
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            frames = await collect(core.stream(ASK))

    assert frames[-1].type == DONE


async def test_cancelling_a_call_closes_it() -> None:
    with chat_server(hangs_after(FIRST)) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            with anyio.CancelScope() as scope:
                async for frame in core.stream(ASK):
                    assert frame.text == "Hello"
                    scope.cancel()

    assert scope.cancelled_caught


async def test_a_connection_is_used_again() -> None:
    ports = set()

    def answer(handler: Any) -> None:
        ports.add(handler.client_address)
        plays(recording("text.sse"))(handler)

    with chat_server(answer, answer) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            await collect(core.stream(ASK))
            await collect(core.stream(ASK))

    assert len(ports) == 1


async def test_a_server_without_the_usage_option_is_asked_without_it_from_then_on() -> None:
    ok = plays(recording("text.sse"))
    refusal = refuses(400, body(message="Unknown parameter: 'stream_options'."))
    with chat_server(refusal, ok, ok) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            first = await collect(core.stream(ASK))
            second = await collect(core.stream(ASK))

    assert first == second
    assert ["stream_options" in request for request in server.requests] == [True, False, False]


async def test_an_answer_that_was_not_streamed_is_read_as_well() -> None:
    whole = {
        "choices": [{"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    with chat_server(answers_whole(encode(whole))) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            frames = await collect(core.stream(ASK))

    assert frames == [
        Frame(TEXT, {"text": "Hi."}),
        Frame(USAGE, {"input_tokens": 1, "output_tokens": 2}),
        Frame(DONE, {"finish_reason": "end_turn"}),
    ]


async def test_a_request_carries_messages_tools_and_limits() -> None:
    call = ToolCall(id="c1", name="fs__read", arguments={"path": "a"})
    request = ModelRequest(
        messages=(
            Message(role="system", content="s"),
            Message(role="user", content="u"),
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content="no such file", call_id="c1", name="fs__read", is_error=True),
        ),
        tools=(ToolSpec(name="fs__read", description="d", schema={"type": "object"}),),
        temperature=0.0,
    )
    with chat_server(plays(recording("text.sse"))) as server:
        async with OpenAIChat(
            model="m",
            base_url=server.base_url,
            environ={},
            max_output_tokens=7,
            temperature=1.0,
            extra_body={"top_k": 3},
        ) as core:
            await collect(core.stream(request))

    assert server.requests == [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "u"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "fs__read", "arguments": '{"path":"a"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "ERROR: no such file"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "fs__read",
                        "description": "d",
                        "parameters": {"type": "object", "properties": {}},
                    },
                }
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 7,
            "temperature": 0,
            "top_k": 3,
        }
    ]


async def test_a_client_of_ones_own_is_used_and_left_open() -> None:
    with chat_server(refuses(500), plays(recording("text.sse"))) as server:
        async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=5) as client:
            async with OpenAIChat(model="m", client=client, environ={}) as core:
                with pytest.raises(ModelError):
                    await collect(core.stream(ASK))
            assert not client.is_closed()
    assert len(server.requests) == 1


# --------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("given", ["option", "environment"])
@pytest.mark.parametrize(
    "answer",
    [
        refuses(400, body(message=f"you sent Bearer {KEY}")),
        refuses(401, body(message=f"Incorrect API key provided: {KEY}")),
        refuses(500, KEY.encode()),
        plays(b"data: " + body(message=KEY, code=KEY) + b"\n\n"),
        plays(b"data: " + KEY.encode() + b"\n\n"),
    ],
)
async def test_a_key_reaches_the_server_and_nothing_else(given: str, answer: Answer) -> None:
    options: dict[str, Any] = {"api_key": KEY, "environ": {}}
    if given == "environment":
        options = {"environ": {"OPENAI_API_KEY": KEY}}
    with chat_server(answer) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, **options) as core:
            with pytest.raises(ModelError) as caught:
                await collect(core.stream(ASK))

    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    shown = [repr(core), str(core), str(vars(core)), repr(error), repr(error.detail), repr(error.args)]
    shown += traceback.format_exception(error)
    assert not [text for text in shown if KEY in text]


def test_without_a_key_the_variable_and_the_way_without_one_are_named() -> None:
    with pytest.raises(AgentLoopConfigError, match=r"OPENAI_API_KEY.*scripted"):
        OpenAIChat(model="m", environ={})
    with pytest.raises(AgentLoopConfigError, match="OTHER_KEY"):
        OpenAIChat(model="m", base_url="https://example.test/v1", api_key_env="OTHER_KEY", environ={})


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:1"])
def test_a_server_on_this_machine_needs_no_key(host: str) -> None:
    assert host.split(":")[0] in repr(OpenAIChat(model="m", base_url=f"http://{host}/v1", environ={}))


def test_a_password_in_the_address_is_not_shown() -> None:
    core = OpenAIChat(model="m", base_url=f"http://user:{KEY}@localhost/v1", environ={})

    assert repr(core) == "OpenAIChat(model='m', server='http://localhost/v1')"


@pytest.mark.parametrize("address", ["localhost:80", "ftp://localhost", "http://", "http://localhost:x"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(AgentLoopConfigError, match="base_url must be an http or https address"):
        OpenAIChat(model="m", base_url=address, environ={})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modle": "m"}, "did you mean 'model'"),
        ({"base_url": "http://localhost/v1"}, "needs 'model'.*OPENAI_MODEL"),
        ({"model": "m", "timeout_ms": "soon"}, "timeout_ms"),
        ({"model": "m", "api_key": KEY}, "no option 'api_key'"),
    ],
)
def test_options_of_a_task_file_are_checked(options: Mapping[str, Any], message: str) -> None:
    context = AdapterContext(workspace=DATA, base=DATA)

    with pytest.raises(AgentLoopConfigError, match=message) as caught:
        openai_adapter(options, context)
    assert KEY not in str(caught.value)


# ------------------------------------------------------------------------------- with retries


class NoWait:
    """A clock whose waits are over at once, and remembered."""

    def __init__(self) -> None:
        self.waits: list[int] = []

    def now_ms(self) -> int:
        return 0

    monotonic_ms = now_ms

    async def sleep_ms(self, duration_ms: int) -> None:
        self.waits.append(duration_ms)

    async def sleep_until(self, monotonic_ms: int) -> None:
        self.waits.append(monotonic_ms)


async def test_a_turn_outlasts_a_server_that_comes_back() -> None:
    clock = NoWait()
    answers = (
        refuses(503),
        refuses(429, headers={"retry-after": "3"}),
        plays(b"data: <html>\n\n"),
        plays(recording("text.sse")),
    )
    with chat_server(*answers) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            turn = ModelTurn(core, clock=clock)
            frames = [frame async for frame in turn([Frame(TEXT, {"text": "hi"})])]

    assert frames[-1] == Frame(DONE, {"finish_reason": "end_turn"})
    assert clock.waits == [500, 3_000, 2_000]


async def test_a_turn_never_repeats_a_call_that_had_begun_to_answer() -> None:
    clock = NoWait()
    with chat_server(breaks_after(FIRST)) as server:
        async with OpenAIChat(model="m", base_url=server.base_url, environ={}) as core:
            turn = ModelTurn(core, clock=clock, retry=Retry(attempts=9))
            with pytest.raises(ModelError):
                async for _ in turn([Frame(TEXT, {"text": "hi"})]):
                    pass

    assert (len(server.requests), clock.waits) == (1, [])


# ---------------------------------------------------------------------------------- the tables


def test_every_error_of_the_client_is_mapped() -> None:
    core = OpenAIChat(model="m", base_url="http://localhost/v1", environ={})
    request = httpx2.Request("POST", "http://localhost/v1")
    pending = [openai.OpenAIError]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        error = kind.__new__(kind)
        Exception.__init__(error, "text")
        if isinstance(error, openai.APIStatusError):
            error.status_code, error.body = 400, {}
            error.response = httpx2.Response(400, request=request)
        assert isinstance(core._fault(error), ModelError), kind


def test_every_error_of_the_transport_is_mapped_or_a_misuse() -> None:
    core = OpenAIChat(model="m", base_url="http://localhost/v1", environ={})
    misuse = {"HTTPError", "HTTPStatusError", "InvalidURL", "CookieConflict", "StreamError"}
    kinds = [kind for kind in vars(httpx2).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert kinds
    for kind in kinds:
        error = kind.__new__(kind)
        known = isinstance(core._fault(error), ModelError)
        assert known or misuse & {parent.__name__ for parent in kind.__mro__}, kind


def test_codes_and_statuses_use_known_classes() -> None:
    classes = {"transient", "correctable", "fatal", "budget"}

    assert {row[0] for row in [*STATUS.values(), *CODES.values()]} <= classes
