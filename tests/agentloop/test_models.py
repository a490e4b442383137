from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from agentloop.errors import AgentLoopConfigError, ModelError, TurnError
from agentloop.frames import DONE, REASONING, TEXT, TOOL_CALL, TOOL_RESULT, USAGE, Frame
from agentloop.messages import Message, ToolCall
from agentloop.models import MAX_TOOL_TEXT, ModelTurn, Retry, read_options
from agentloop.ports import ModelRequest, ToolSpec

pytestmark = pytest.mark.anyio

PROMPT = [Frame(TEXT, {"text": "do it"})]
END = Frame(DONE, {"finish_reason": "end_turn"})


class FakeCore:
    """Answers each call with the next list of frames; an exception in it is raised."""

    def __init__(self, *answers: Sequence[Frame | Exception]) -> None:
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.open = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Frame, None]:
        self.requests.append(request)
        self.open += 1
        try:
            for item in self.answers.pop(0):
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.open -= 1


@dataclass
class NoWait:
    """A clock whose waits are over at once, and remembered."""

    waits: list[int] = field(default_factory=list)

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    async def sleep_ms(self, duration_ms: int) -> None:
        self.waits.append(duration_ms)

    async def sleep_until(self, monotonic_ms: int) -> None:
        self.waits.append(monotonic_ms)


@dataclass
class Context:
    tools: Sequence[ToolSpec] = ()


def text(value: str) -> Frame:
    return Frame(TEXT, {"text": value})


def call(name: str, call_id: str = "", **arguments: Any) -> Frame:
    return Frame(TOOL_CALL, {"id": call_id, "name": name, "arguments": arguments})


def result(**content: Any) -> Frame:
    return Frame(TOOL_RESULT, {"ok": True, "output": "", **content})


def down(**options: Any) -> ModelError:
    return ModelError("down", **{"error_class": "transient", "code": "model.unavailable", **options})


async def play(
    turn: ModelTurn,
    *answers: Frame | list[Frame] | None,
    prompt: Sequence[Frame] = PROMPT,
    ctx: object = None,
) -> list[Frame | list[Frame]]:
    """Run a turn to its end, answering its calls in order; return what it yielded."""
    seen: list[Frame | list[Frame]] = []
    queue = list(answers)
    frames = turn(prompt, ctx)
    answer: Frame | list[Frame] | None = None
    try:
        while True:
            item = await frames.asend(answer)
            seen.append(item)
            asked = isinstance(item, list) or item.type == TOOL_CALL
            answer = queue.pop(0) if asked else None
    except StopAsyncIteration:
        return seen
    finally:
        await frames.aclose()


async def test_a_turn_passes_on_what_the_model_says() -> None:
    frames = [text("a"), Frame(REASONING, {"text": "r"}), text("b"), Frame(USAGE, {"input_tokens": 1}), END]

    assert await play(ModelTurn(FakeCore(frames))) == frames


async def test_answers_go_back_to_the_model_until_it_asks_for_nothing_more() -> None:
    core = FakeCore(
        [text("look"), call("fs__read", "c1", path="a"), Frame(DONE, {"finish_reason": "tool_use"})],
        [text("done"), END],
    )

    seen = await play(ModelTurn(core, system="be brief"), result(output="content"))

    assert seen == [text("look"), call("fs__read", "c1", path="a"), text("done"), END]
    assert core.requests[1].messages == (
        Message(role="system", content="be brief"),
        Message(role="user", content="do it"),
        Message(
            role="assistant",
            content="look",
            tool_calls=(ToolCall(id="c1", name="fs__read", arguments={"path": "a"}),),
        ),
        Message(role="tool", content="content", call_id="c1", name="fs__read"),
    )


async def test_calls_made_at_once_are_asked_for_at_once_and_get_ids() -> None:
    core = FakeCore([call("a"), call("b", "own"), END], [END])

    seen = await play(ModelTurn(core), [result(output="1"), result(output="2")])

    assert seen[0] == [call("a", "call_1"), call("b", "own")]
    answers = core.requests[1].messages[-2:]
    assert [(message.call_id, message.content) for message in answers] == [("call_1", "1"), ("own", "2")]


@pytest.mark.parametrize("answer", [None, [], [result()]])
async def test_a_call_without_its_answer_fails_the_turn(answer: list[Frame] | None) -> None:
    core = FakeCore([call("a"), call("b"), END])

    with pytest.raises(TurnError, match=r"2 tool calls \(a, b\) got"):
        await play(ModelTurn(core), answer)


async def test_a_call_that_was_cut_off_is_not_asked_for() -> None:
    cut = Frame(TOOL_CALL, {"id": "c", "name": "a", "raw_arguments": '{"x'})
    end = Frame(DONE, {"finish_reason": "max_tokens"})

    assert await play(ModelTurn(FakeCore([text("t"), cut, end]))) == [text("t"), end]


async def test_arguments_that_are_no_json_are_asked_for_as_they_are() -> None:
    bad = Frame(TOOL_CALL, {"id": "c", "name": "a", "raw_arguments": "{,"})
    core = FakeCore([bad, END], [END])

    seen = await play(ModelTurn(core), result(ok=False, error="invalid_arguments", message="not JSON"))

    assert seen[0] == bad
    answer = core.requests[1].messages[-1]
    assert (answer.content, answer.is_error) == ("not JSON", True)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"output": {"b": 1, "a": None}}, '{"a":null,"b":1}'),
        ({"output": "x", "stdout": "x", "exit_code": 0}, "x\nexit code: 0"),
        (
            {"output": "", "stdout": "o", "stderr": "e", "exit_code": 3},
            "stdout:\no\nstderr:\ne\nexit code: 3",
        ),
        ({"ok": False, "error": "timeout", "message": "too slow", "output": "too slow"}, "too slow"),
    ],
)
async def test_what_a_model_reads_of_a_tool_result(content: dict[str, Any], expected: str) -> None:
    core = FakeCore([call("a"), END], [END])

    await play(ModelTurn(core), result(**content))

    assert core.requests[1].messages[-1].content == expected
    assert core.requests[1].messages[-1].role == "tool"


async def test_a_long_tool_result_is_cut_with_a_visible_mark() -> None:
    core = FakeCore([call("a"), END], [END])

    await play(ModelTurn(core), result(output="x" * (MAX_TOOL_TEXT + 7)))

    shown = core.requests[1].messages[-1].content
    assert "[… 7 characters cut …]" in shown
    assert len(shown) < MAX_TOOL_TEXT + 100


# ------------------------------------------------------------------------------------ retries


async def test_failures_before_the_first_frame_are_tried_again_with_growing_waits() -> None:
    clock = NoWait()
    core = FakeCore([down()], [down()], [down()], [text("up"), END])

    seen = await play(ModelTurn(core, clock=clock, retry=Retry(base_ms=100)))

    assert seen == [text("up"), END]
    assert clock.waits == [100, 200, 400]
    assert len({request.messages for request in core.requests}) == 1


async def test_the_wait_a_server_asks_for_is_kept_up_to_the_bound() -> None:
    clock = NoWait()
    core = FakeCore([down(retry_after_ms=700)], [down(retry_after_ms=99_000)], [END])

    await play(ModelTurn(core, clock=clock, retry=Retry(base_ms=100, max_ms=1_000)))

    assert clock.waits == [700, 1_000]


async def test_attempts_are_bounded_and_the_last_error_is_raised() -> None:
    last = down()
    core = FakeCore([down()], [last])

    with pytest.raises(ModelError) as caught:
        await play(ModelTurn(core, clock=NoWait(), retry=Retry(attempts=2)))

    assert caught.value is last
    assert last.detail == {"attempts": 2}


@pytest.mark.parametrize(
    "error",
    [
        down(error_class="fatal", code="auth.invalid_key"),
        down(error_class="budget", code="provider.quota"),
        down(code="context.length_exceeded"),
    ],
    ids=lambda error: error.code,
)
async def test_what_repeating_cannot_help_is_not_repeated(error: ModelError) -> None:
    core, clock = FakeCore([error]), NoWait()

    with pytest.raises(ModelError):
        await play(ModelTurn(core, clock=clock))

    assert (len(core.requests), clock.waits) == (1, [])


@pytest.mark.parametrize("first", [text("a"), Frame(REASONING, {"text": "r"}), call("a")])
async def test_a_call_is_never_repeated_after_its_first_frame(first: Frame) -> None:
    core, clock = FakeCore([first, down(code="model.stream_broken")]), NoWait()

    with pytest.raises(ModelError, match="down"):
        await play(ModelTurn(core, clock=clock))

    assert (len(core.requests), clock.waits) == (1, [])


async def test_an_answer_the_server_filtered_ends_the_turn_as_truncated() -> None:
    filtered = ModelError("no", error_class="correctable", code="model.filtered")

    seen = await play(ModelTurn(FakeCore([text("a"), filtered])))

    assert seen == [text("a"), Frame(DONE, {"finish_reason": "content_filter"})]


async def test_leaving_a_turn_closes_the_call() -> None:
    core = FakeCore([text("a"), text("b"), END])
    frames = ModelTurn(core)(PROMPT)

    assert await anext(frames) == text("a")
    assert core.open == 1
    await frames.aclose()

    assert core.open == 0


@pytest.mark.parametrize("options", [{"attempts": 0}, {"base_ms": -1}, {"base_ms": 9, "max_ms": 8}])
def test_a_retry_that_makes_no_sense_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(AgentLoopConfigError, match="Retry needs"):
        Retry(**options)


# ------------------------------------------------------------------------------------ prompts


async def test_prompt_frames_become_messages() -> None:
    core = FakeCore([END])
    prompt = [
        Frame(TEXT, {"text": "rules", "role": "system"}),
        Frame(TEXT, {"text": "before", "role": "assistant"}),
        Frame(TEXT, {"text": "now", "role": "agent"}),
        Frame("HISTORY", {"messages": [{"role": "user", "content": "more"}]}),
    ]

    await play(ModelTurn(core), prompt=prompt)

    assert [(message.role, message.content) for message in core.requests[0].messages] == [
        ("system", "rules"),
        ("assistant", "before"),
        ("user", "now"),
        ("user", "more"),
    ]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "no frame at all"),
        ([Frame(TEXT, {"text": ""})], "got TEXT"),
        ([Frame(TEXT, {"text": "s", "role": "system"})], "says nothing to the model"),
        ([Frame("X", {"messages": [{"role": "robot"}]})], "'messages' cannot be used"),
    ],
)
async def test_a_prompt_that_says_nothing_fails_the_turn(prompt: list[Frame], message: str) -> None:
    core = FakeCore([END])

    with pytest.raises(TurnError, match=message):
        await play(ModelTurn(core), prompt=prompt)

    assert core.requests == []


async def test_the_tools_of_the_loop_are_offered_unless_others_were_given() -> None:
    offered, own = ToolSpec(name="a"), ToolSpec(name="b")
    core = FakeCore([END], [END])

    await play(ModelTurn(core), ctx=Context([offered]))
    await play(ModelTurn(core, tools=[own]), ctx=Context([offered]))

    assert [request.tools for request in core.requests] == [(offered,), (own,)]


@pytest.mark.parametrize("name", ["fs.read", "", "x" * 65, "é", "a\n"])
async def test_a_tool_name_that_servers_refuse_is_refused_before_the_call(name: str) -> None:
    with pytest.raises(AgentLoopConfigError, match="cannot be offered"):
        ModelTurn(FakeCore(), tools=[ToolSpec(name=name)])
    with pytest.raises(AgentLoopConfigError, match="tool__method"):
        await play(ModelTurn(FakeCore()), ctx=Context([ToolSpec(name=name)]))


# ------------------------------------------------------------------------------------ options


class Form(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    model: str
    limit: int = 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "m", "limt": 2}, "the thing has no option 'limt': did you mean 'limit'"),
        ({"model": "m", "zzz": 2}, "known are model, limit"),
        ({"limit": 2}, "model"),
        ({"model": "m", "limit": "2"}, "limit"),
        ({"model": "m", "limit": True}, "limit"),
    ],
)
def test_options_are_checked_against_their_form(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AgentLoopConfigError, match=message):
        read_options("the thing", Form, options)


def test_options_become_their_form() -> None:
    assert read_options("the thing", Form, {"model": "m"}).limit == 1
