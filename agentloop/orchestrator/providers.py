"""Providers: what says what a script says, what writes down what was said, what asks a model.

A script is a list of model calls, in the form that scripted adapters and tasks read too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from agentloop._canonical import Json
from agentloop._numbers import check_count
from agentloop.determinism import Clock, SystemClock
from agentloop.errors import ClassifiedError, ErrorValue, TaskError
from agentloop.frames import DONE, TEXT, TOOL_CALL, USAGE, Frame
from agentloop.messages import Message, ToolCall
from agentloop.orchestrator.streaming import Partial, fold_frames, wire_frame
from agentloop.outcome import Err, Ok, Result, fatal
from agentloop.ports import ModelCall, ModelCore, ModelReply, ModelRequest, Provider, TokenUsage
from agentloop.scripted import read_script

__all__ = (
    "ChunkedProvider",
    "CoreProvider",
    "RecordingProvider",
    "ScriptedProvider",
    "ScriptedTurn",
    "as_provider",
)

#: ``{"say", "callTools"?, "usage"?, "stopReason"?}`` or ``{"failWith": error}``.
ScriptedTurn: TypeAlias = Mapping[str, Any]


def prompt_tokens(request: ModelRequest) -> int:
    """Return what a scripted provider says a request cost: a token for four characters."""
    messages = sum(len(message.content) for message in request.messages)
    tools = sum(len(tool.name) + len(tool.description) for tool in request.tools)
    return -(-(messages + tools) // 4)


class ScriptedProvider:
    """Says what it was told to say, one turn for each call.

    Args:
        turns: Model calls, or a file of them, as `agentloop.scripted.script_turns` describes
            them. A turn may have ``waitMs``, to take time by the clock.
        on_exhausted: What comes after the last turn: the error ``scripted.exhausted``, or that
            turn again.
        clock: What ``waitMs`` is measured by.

    Attributes:
        requests: Every request, in order.
        turns_consumed: How many turns were taken, failing ones included.
    """

    def __init__(
        self,
        turns: Sequence[ScriptedTurn] | Path,
        *,
        name: str = "scripted",
        on_exhausted: Literal["fail", "repeat-last"] = "fail",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._turns: list[dict[str, Any]] = read_script(turns)
        self._on_exhausted, self._clock = on_exhausted, clock or SystemClock()
        self.requests: list[ModelRequest] = []
        self.turns_consumed = 0

    def skip(self, turns: int) -> None:
        """Leave out turns that were taken before a run was resumed."""
        self.turns_consumed += turns

    async def generate(self, request: ModelRequest, call: ModelCall, /) -> Result[ModelReply]:
        self.requests.append(request)
        cursor = self.turns_consumed
        if cursor >= len(self._turns) and (self._on_exhausted == "fail" or not self._turns):
            detail = {"turnsDefined": len(self._turns), "requested": cursor + 1}
            text = f"call {cursor + 1} was made of a script of {len(self._turns)}"
            return Err(fatal("scripted.exhausted", text, detail=detail))
        turn = self._turns[min(cursor, len(self._turns) - 1)]
        self.turns_consumed += 1
        if turn.get("waitMs"):
            await self._clock.sleep_ms(int(turn["waitMs"]))
        if "failWith" in turn:
            return Err(_failure(turn["failWith"]))
        return Ok(_reply(turn, self.turns_consumed, request))


def _failure(given: Json) -> ErrorValue:
    told = {"class": "fatal", "code": "scripted.failed", "message": "scripted failure", **given}
    try:
        return msgspec.convert(told, ErrorValue)
    except msgspec.ValidationError as error:
        raise TaskError(f"a scripted failure is an error with class, code and message: {error}") from None


def _reply(turn: ScriptedTurn, number: int, request: ModelRequest) -> ModelReply:
    say, asked = str(turn.get("say") or ""), turn.get("callTools") or ()
    calls = tuple(
        ToolCall(
            id=str(item.get("id") or f"call-{number:02d}-{place:02d}"),
            name=item["name"],
            arguments=dict(item.get("args") or {}),
        )
        for place, item in enumerate(asked, 1)
    )
    usage = {
        "promptTokens": prompt_tokens(request),
        "completionTokens": -(-len(say) // 4) + 24 * len(calls),
        **(turn.get("usage") or {}),
    }
    return ModelReply(
        message=Message(role="assistant", content=say, tool_calls=calls),
        usage=msgspec.convert(usage, TokenUsage),
        stop_reason=str(turn.get("stopReason") or ("tool_use" if calls else "end_turn")),
    )


class RecordingProvider:
    """Passes calls on and writes down a script of them; what raises is not written down.

    Attributes:
        script: Turns a `ScriptedProvider` plays. Ids of tool calls are left out.
    """

    def __init__(self, inner: Provider) -> None:
        self.inner, self.name = inner, f"recording({inner.name})"
        self.script: list[dict[str, Any]] = []

    async def generate(self, request: ModelRequest, call: ModelCall, /) -> Result[ModelReply]:
        result = await self.inner.generate(request, call)
        if isinstance(result, Err):
            self.script.append({"failWith": msgspec.to_builtins(result.error)})
            return result
        reply = result.value
        turn: dict[str, Any] = {"say": reply.message.content}
        if reply.message.tool_calls:
            turn["callTools"] = [
                {"name": asked.name, "args": dict(asked.arguments or {})}
                for asked in reply.message.tool_calls
            ]
        turn |= {"usage": msgspec.to_builtins(reply.usage), "stopReason": reply.stop_reason}
        self.script.append(turn)
        return result


class CoreProvider:
    """A model core as a provider; see `as_provider`."""

    #: The server is told the tools by itself.
    native_tools = True

    def __init__(self, core: ModelCore, *, name: str, max_output_tokens: int) -> None:
        check_count("max_output_tokens", max_output_tokens, 1)
        self.core, self.name, self._most = core, name, max_output_tokens
        self.mid_system = bool(getattr(core, "mid_system", True))

    def _sent(self, request: ModelRequest) -> ModelRequest:
        limit = request.max_output_tokens
        if limit is None or limit <= self._most:
            return request
        return msgspec.structs.replace(request, max_output_tokens=None)

    def stream(self, request: ModelRequest, call: ModelCall, /) -> AsyncGenerator[Frame, None]:
        return self.core.stream(self._sent(request))

    async def generate(self, request: ModelRequest, call: ModelCall, /) -> Result[ModelReply]:
        """Return the fold of the stream: there is one implementation of both."""
        partial = Partial()
        try:
            async with aclosing(self.stream(request, call)) as frames:
                async for frame in frames:
                    wired = wire_frame(partial.frames + 1, frame, len(partial.calls))
                    if wired is not None:
                        partial = fold_frames(partial, [wired])
        except ClassifiedError as error:
            return Err(error.error)
        return Ok(partial.reply())

    async def aclose(self) -> None:
        """Close what the core holds, if it can be closed."""
        close = getattr(self.core, "aclose", None)
        if close is not None:
            await close()


def as_provider(core: ModelCore, *, name: str = "model", max_output_tokens: int = 4_096) -> CoreProvider:
    """Return a provider that asks a model core. Its failures keep their class and code.

    Args:
        core: Asked once for every attempt.
        name: For people.
        max_output_tokens: What the model can write in one answer. A run's remaining budget is
            sent as the limit of an answer only where it is smaller: servers refuse larger ones.
    """
    return CoreProvider(core, name=name, max_output_tokens=max_output_tokens)


class ChunkedProvider:
    """Streams the replies of a provider that does not, in pieces of a few characters."""

    def __init__(self, inner: Provider, *, characters: int = 16) -> None:
        check_count("characters", characters, 1)
        self.inner, self.name, self._characters = inner, inner.name, characters

    def skip(self, turns: int) -> None:
        """Pass on to a scripted provider that turns were taken before."""
        skip = getattr(self.inner, "skip", None)
        if skip is not None:
            skip(turns)

    async def generate(self, request: ModelRequest, call: ModelCall, /) -> Result[ModelReply]:
        return await self.inner.generate(request, call)

    async def stream(self, request: ModelRequest, call: ModelCall, /) -> AsyncGenerator[Frame, None]:
        result = await self.inner.generate(request, call)
        if isinstance(result, Err):
            raise ClassifiedError(result.error)
        reply, step = result.value, self._characters
        text = reply.message.content
        for start in range(0, len(text), step):
            yield Frame(TEXT, {"text": text[start : start + step]})
        for asked in reply.message.tool_calls:
            content = {"id": asked.id, "name": asked.name, "arguments": asked.arguments}
            if asked.raw_arguments is not None:
                content["raw_arguments"] = asked.raw_arguments
            yield Frame(TOOL_CALL, content)
        usage = reply.usage
        yield Frame(USAGE, {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens})
        yield Frame(DONE, {"finish_reason": reply.stop_reason})
