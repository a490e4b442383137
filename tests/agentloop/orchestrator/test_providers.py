"""Providers: scripted, recording, streamed, and a model core as one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentloop import (
    Err,
    Frame,
    ManualClock,
    Message,
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    RecordingProvider,
    StreamingProvider,
    TaskError,
    ToolSpec,
    as_provider,
    expect,
)
from agentloop.orchestrator.providers import ChunkedProvider, ScriptedProvider
from agentloop.orchestrator.streaming import Batcher, Partial, fold_frames, wire_frame
from agentloop.scripted import load_script, script_turns
from tests.agentloop.orchestrator.scenes import A, F, T, play, search

pytestmark = pytest.mark.anyio

REQUEST = ModelRequest(messages=(Message(role="user", content="x" * 30),))
CALL = ModelCall()


async def reply(provider: Any, request: ModelRequest = REQUEST) -> ModelReply:
    made: ModelReply = expect(await provider.generate(request, CALL))
    return made


async def test_v098_reasons_to_stop() -> None:
    provider = ScriptedProvider([T(), A()])
    assert [(await reply(provider)).stop_reason for _ in range(2)] == ["tool_use", "end_turn"]


async def test_v099_ids_of_calls() -> None:
    calls = (await reply(ScriptedProvider([T("a", "b")]))).message.tool_calls
    assert [call.id for call in calls] == ["call-01-01", "call-01-02"]


async def test_v100_what_a_scripted_call_costs() -> None:
    usage = (await reply(ScriptedProvider([T("a", say="hello world")]))).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (8, 27)
    request = msgspec.structs.replace(REQUEST, tools=(ToolSpec(name="ab", description="cd"),))
    usage = (await reply(ScriptedProvider([A("", usage={"completionTokens": 5})]), request)).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (9, 5)


async def test_v101_the_end_of_a_script() -> None:
    provider = ScriptedProvider([T()])
    await reply(provider)
    result = await provider.generate(REQUEST, CALL)
    assert isinstance(result, Err)
    assert (result.error.error_class, result.error.code) == ("fatal", "scripted.exhausted")
    assert result.error.detail == {"turnsDefined": 1, "requested": 2}
    assert provider.turns_consumed == 1
    provider = ScriptedProvider([T()], on_exhausted="repeat-last")
    ids = [(await reply(provider)).message.tool_calls[0].id for _ in range(2)]
    assert (ids, provider.turns_consumed) == (["call-01-01", "call-02-01"], 2)
    empty = await ScriptedProvider([], on_exhausted="repeat-last").generate(REQUEST, CALL)
    assert isinstance(empty, Err)


async def test_v102_a_failing_turn_is_a_turn() -> None:
    provider = ScriptedProvider([F("budget", "gateway.quota", detail={"x": 1}), A()])
    result = await provider.generate(REQUEST, CALL)
    assert isinstance(result, Err)
    assert (result.error.error_class, result.error.code) == ("budget", "gateway.quota")
    assert (provider.turns_consumed, provider.requests) == (1, [REQUEST])
    await reply(provider)
    assert provider.requests == [REQUEST, REQUEST]


async def test_v103_what_was_recorded_is_played_again() -> None:
    recorder = RecordingProvider(ScriptedProvider([T(), F("fatal", "a.b")]))
    assert recorder.name == "recording(scripted)"
    first = await play([], [search()], provider=recorder)
    assert len(recorder.script) == 2
    assert recorder.script[0]["callTools"] == [{"name": "search", "args": {"q": "x"}}]
    again = await play(recorder.script, [search()])
    assert again.ledger.serialise() == first.ledger.serialise()
    assert script_turns(recorder.script)  # the adapter reads it too


async def test_a_script_is_a_file_of_the_one_format(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"calls": [{"say": "hi", "waitMs": 5}]}')
    clock = ManualClock()
    assert (await reply(ScriptedProvider(path, clock=clock))).message.content == "hi"
    assert clock.now_ms() == 5
    assert len(load_script(path)) == 1
    for wrong in ('{"calls": [{"sya": "hi"}]}', '[{"callTools": [{}]}]', "3"):
        path.write_text(wrong)
        with pytest.raises(TaskError, match=r"script\.json"):
            ScriptedProvider(path)
    with pytest.raises(TaskError):
        ScriptedProvider([{"waitMs": "long"}])


# --------------------------------------------------------------------------------- streaming


class Core:
    """A model core that yields what it was given, and fails where it was given a failure."""

    def __init__(self, *items: Any) -> None:
        self.items, self.requests, self.closed = items, list[ModelRequest](), False

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[Frame, None]:
        self.requests.append(request)
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield Frame.of(item)

    async def aclose(self) -> None:
        self.closed = True


USAGE = {"type": "USAGE", "content": {"input_tokens": 7, "output_tokens": 3}}
LOOK = {"type": "TOOL_CALL", "content": {"id": "c1", "name": "search", "arguments": {"q": "x"}}}


async def test_a_core_is_a_provider() -> None:
    provider = as_provider(
        Core("let ", "me", LOOK, USAGE, {"type": "DONE", "content": {"finish_reason": "tool_calls"}})
    )
    assert isinstance(provider, StreamingProvider)
    made = await reply(provider)
    assert (made.message.content, made.stop_reason) == ("let me", "tool_use")
    assert [(call.id, call.name, call.arguments) for call in made.message.tool_calls] == [
        ("c1", "search", {"q": "x"})
    ]
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (7, 3)
    await provider.aclose()
    assert provider.core.closed  # type: ignore[attr-defined]


async def test_a_limit_no_model_can_reach_is_not_sent() -> None:
    core = Core("x")
    provider = as_provider(core, max_output_tokens=100)
    for limit in (99, 101, None):
        await reply(provider, msgspec.structs.replace(REQUEST, max_output_tokens=limit))
    assert [request.max_output_tokens for request in core.requests] == [99, None, None]


async def test_the_failure_of_a_core_keeps_its_class() -> None:
    error = ModelError("slow", error_class="transient", code="model.rate_limited", retry_after_ms=9)
    result = await as_provider(Core("half", error)).generate(REQUEST, CALL)
    assert isinstance(result, Err)
    assert (result.error.code, result.error.detail) == ("model.rate_limited", {"retryAfterMs": 9})
    provider = as_provider(Core("half", error))
    run = await play([], provider=provider, budget={"maxModelAttempts": 1})
    assert run.outcome.error is not None
    assert run.outcome.error.detail == {"attempts": 1, "lastCode": "model.rate_limited"}
    assert [frame["delta"] for frame in run.ledger.frames] == ["half"]


async def test_a_filtered_answer_is_put_right_by_the_model() -> None:
    core = Core("half", {"type": "DONE", "content": {"finish_reason": "content_filter"}})
    run = await play([], provider=as_provider(core), budget={"maxConsecutiveFailures": 1})
    assert run.ledger.steps[2].event.error.code == "model.filtered"  # type: ignore[union-attr]


async def test_arguments_in_pieces() -> None:
    frames: list[dict[str, Any]] = [
        {"n": 1, "kind": "tool", "index": 0, "id": "a", "name": "search", "argsDelta": '{"q"'},
        {"n": 2, "kind": "tool", "index": 1, "name": "other", "argsDelta": ""},
        {"n": 3, "kind": "tool", "index": 0, "argsDelta": ': "x"}'},
        {"n": 4, "kind": "reasoning", "delta": "hm"},
    ]
    whole = fold_frames(None, frames)
    assert whole == fold_frames(fold_frames(None, frames[:2]), frames[2:])
    calls = whole.reply().message.tool_calls
    assert [(call.id, call.arguments) for call in calls] == [("a", {"q": "x"}), ("call_2", {})]
    broken = fold_frames(None, [{**frames[0], "argsDelta": "{"}]).reply().message.tool_calls[0]
    assert (broken.arguments, broken.raw_arguments) == (None, "{")
    assert Partial().reply().message == Message(role="assistant")


def test_batches() -> None:
    batcher = Batcher()
    text = {"n": 1, "kind": "text", "delta": "x" * 200}
    assert [batcher.add(text, now) for now in (0, 10, 20)] == [False, False, True]
    assert (len(batcher.take()), batcher.take()) == (3, ())
    assert [batcher.add({**text, "delta": "x"}, now) for now in (100, 149, 150)] == [False, False, True]
    batcher.take()
    assert batcher.add({"n": 1, "kind": "usage"}, 200)


def test_frames_that_say_nothing_here_are_left_out() -> None:
    assert wire_frame(1, Frame("DONE"), 0) is None
    assert wire_frame(1, Frame("OTHER", {"x": 1}), 0) is None
    assert wire_frame(1, Frame("REASONING", {"text": "hm"}), 0) == {
        "n": 1,
        "kind": "reasoning",
        "delta": "hm",
    }


async def test_chunks_of_a_failure() -> None:
    provider = ChunkedProvider(ScriptedProvider([F()]))
    with pytest.raises(Exception, match="transient failure") as raised:
        async for _ in provider.stream(REQUEST, CALL):
            raise AssertionError("a failure has no frames")
    assert raised.value.error.code == "x.y"  # type: ignore[attr-defined]
    provider.skip(3)
    assert isinstance(await provider.generate(REQUEST, CALL), Err)
