"""Models: one model call becomes one turn of a duplex.

A `ModelCore` does one call, streamed and never retried. `ModelTurn` makes a turn of it: the
prompt becomes messages, tool calls are handed out and their answers sent back until the model
asks for nothing more, and a call that failed before its first frame is tried again. What a
server's wire looks like is the adapter's business.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from agentloop._canonical import Json, encode_text
from agentloop._numbers import check_count
from agentloop.determinism import Clock, SystemClock
from agentloop.errors import AgentLoopConfigError, ModelError, TurnError
from agentloop.frames import DONE, TEXT, TOOL_CALL, Frame
from agentloop.messages import Message, ToolCall
from agentloop.ports import FrameDuplex, ModelCore, ModelRequest, ToolSpec
from agentloop.redact import Redactor
from agentloop.streams.duplex import turn_duplex

__all__ = ("AdapterContext", "ModelTurn", "Retry", "ToolContext", "as_duplex", "read_options")

#: Characters of one tool result that a model is shown.
MAX_TOOL_TEXT: Final = 100_000

#: What a turn yields, and what it is sent back for a call or a list of calls.
TurnFrames: TypeAlias = AsyncGenerator[Frame | list[Frame], Frame | list[Frame] | None]

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterContext:
    """What a factory named by an entry point is told beside its options.

    Factories of the groups ``agentloop.adapters`` and ``agentloop.tools`` are called as
    ``factory(options, context)``.
    """

    #: The folder the run works in.
    workspace: Path
    #: The folder of the task file; relative names in options start here.
    base: Path
    #: The environment to read keys from; never shown.
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Told every secret the adapter learns, so that it never reaches a frame or a ledger.
    redactor: Redactor | None = None
    tools: Sequence[ToolSpec] = ()


#: What the factory of a tool is told: the same.
ToolContext: TypeAlias = AdapterContext

_Options = TypeVar("_Options", bound=msgspec.Struct)


def read_options(owner: str, form: type[_Options], options: Mapping[str, Json]) -> _Options:
    """Return the options an entry point was given, checked against their form.

    Args:
        owner: The adapter or tool, for messages.
        form: A struct with one field for each option.
        options: As they stand in the task file.

    Raises:
        AgentLoopConfigError: An option is unknown (names the nearest one), missing, or of the
            wrong type.
    """
    known = [field.encode_name for field in msgspec.structs.fields(form)]
    for name in options:
        if name not in known:
            import difflib  # for a message nobody should have to see

            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise AgentLoopConfigError(f"{owner} has no option {name!r}: {hint}")
    try:
        return msgspec.convert(dict(options), form)
    except msgspec.ValidationError as error:
        raise AgentLoopConfigError(f"{owner}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a model call is tried again: only for a transport error before its first frame."""

    #: Calls in all, the first one included.
    attempts: int = 4
    #: Wait before the second attempt; doubled for each further one.
    base_ms: int = 500
    #: No wait is longer, also when the server asks for more.
    max_ms: int = 30_000

    def __post_init__(self) -> None:
        try:
            check_count("attempts", self.attempts, 1)
            check_count("base_ms", self.base_ms, 0)
            check_count("max_ms", self.max_ms, 0)
        except (TypeError, ValueError) as error:
            raise AgentLoopConfigError(
                f"Retry needs attempts >= 1 and 0 <= base_ms <= max_ms: {error}"
            ) from None
        if self.attempts < 1 or self.base_ms < 0 or self.max_ms < self.base_ms:
            raise AgentLoopConfigError(
                f"Retry needs attempts >= 1 and 0 <= base_ms <= max_ms, not attempts={self.attempts}, "
                f"base_ms={self.base_ms}, max_ms={self.max_ms}"
            )

    def wait_ms(self, error: ModelError, attempt: int) -> int | None:
        """Return how long to wait after that failed attempt (1, 2, …), or None to give up."""
        # A prompt that is too long stays too long: only who assembles it can help.
        if error.error_class != "transient" or error.code == "context.length_exceeded":
            return None
        if attempt >= self.attempts:
            return None
        backoff_ms = self.base_ms << min(attempt - 1, 30)
        return min(self.max_ms, max(backoff_ms, error.retry_after_ms or 0))


def _messages(prompt: Sequence[Frame], system: str | None) -> list[Message]:
    messages = [Message(role="system", content=system)] if system else []
    for frame in prompt:
        given = frame.content.get("messages")
        if given is not None:
            messages.extend(_given_messages(given))
        elif frame.text:
            role = frame.content.get("role")
            messages.append(
                Message(role=role if role in ("system", "assistant") else "user", content=frame.text)
            )
    if not any(message.role != "system" for message in messages):
        kinds = ", ".join(frame.type for frame in prompt) or "no frame at all"
        raise TurnError(f"the prompt says nothing to the model: it needs a TEXT or 'messages', got {kinds}")
    return messages


def _given_messages(given: object) -> list[Message]:
    try:
        return msgspec.convert([_wire_names(message) for message in cast(list[Any], given)], list[Message])
    except (msgspec.ValidationError, TypeError) as error:
        raise TurnError(f"the prompt's 'messages' cannot be used: {error}") from None


_WIRE_NAMES: Final = {
    "tool_calls": "toolCalls",
    "call_id": "callId",
    "is_error": "isError",
    "arguments": "args",
    "raw_arguments": "raw",
}


def _wire_names(message: Any) -> Any:
    """Return a message or a call, given under Python's names or the wire's, under the wire's."""
    if not isinstance(message, Mapping):
        return message
    named = {_WIRE_NAMES.get(name, name): value for name, value in message.items()}
    if isinstance(calls := named.get("toolCalls"), list):
        named["toolCalls"] = [_wire_names(call) for call in calls]
    return named


def _check_names(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    for tool in tools:
        if not _TOOL_NAME.fullmatch(tool.name):
            raise AgentLoopConfigError(
                f"the tool name {tool.name!r} cannot be offered to a model: use 1 to 64 letters, digits, "
                "'_' or '-' (a method of a tool is written 'tool__method')"
            )
    return tuple(tools)


def _cut(text: str) -> str:
    if len(text) <= MAX_TOOL_TEXT:
        return text
    half = MAX_TOOL_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters cut …]\n{text[-half:]}"


def _answers(calls: Sequence[ToolCall], results: Frame | list[Frame] | None) -> list[Message]:
    given = results if isinstance(results, list) else [results] if results is not None else []
    if len(given) != len(calls):
        names = ", ".join(call.name for call in calls)
        raise TurnError(
            f"{len(calls)} tool calls ({names}) got {len(given)} answers: send one TOOL_RESULT each"
        )
    return [_answer(call, result) for call, result in zip(calls, given, strict=True)]


def _answer(call: ToolCall, result: Frame) -> Message:
    """Return the message that tells the model what its call gave."""
    content = result.content
    output = content.get("output", "")
    parts = [output if isinstance(output, str) else encode_text(output)]
    for name in ("stdout", "stderr"):
        text = content.get(name)
        if text and text != output:
            parts.append(f"{name}:\n{text}")
    if content.get("exit_code") is not None:
        parts.append(f"exit code: {content['exit_code']}")
    failed = not content.get("ok", True)
    message = content.get("message")
    if failed and message and message != output:
        parts.insert(0, str(message))
    text = _cut("\n".join(part for part in parts if part))
    return Message(role="tool", content=text, call_id=call.id, name=call.name, is_error=failed)


class ModelTurn:
    """A turn function over a `ModelCore`; see `as_duplex` for the options."""

    def __init__(
        self,
        core: ModelCore,
        *,
        tools: Sequence[ToolSpec] = (),
        system: str | None = None,
        retry: Retry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.core = core
        self._tools = _check_names(tools)
        self._system = system
        self._retry = retry or Retry()
        self._clock = clock or SystemClock()

    async def __call__(self, prompt: Sequence[Frame], ctx: object = None) -> TurnFrames:
        """Yield the frames of one turn.

        A TOOL_CALL is answered through ``asend`` with its TOOL_RESULT. Calls the model made at
        once are yielded as one list and answered with a list in the same order.

        Raises:
            ModelError: The model could not be asked, or broke off.
            TurnError: The prompt is empty, or a call was not answered.
        """
        messages = _messages(prompt, self._system)
        tools = self._tools or _check_names(getattr(ctx, "tools", ()))
        names = _call_ids()
        while True:
            text: list[str] = []
            asked: list[Frame] = []
            done = Frame(DONE, {"finish_reason": "end_turn"})
            request = ModelRequest(messages=tuple(messages), tools=tools)
            async with aclosing(self._call(request)) as frames:
                async for frame in frames:
                    if frame.type == TOOL_CALL:
                        asked.append(frame)
                    elif frame.type == DONE:
                        done = frame
                    else:
                        if frame.type == TEXT:
                            text.append(frame.text)
                        yield frame
            calls = _calls(asked, done, names)
            if not calls:
                yield done
                return
            messages.append(
                Message(role="assistant", content="".join(text), tool_calls=tuple(call for call, _ in calls))
            )
            frames_asked = [frame for _, frame in calls]
            answers = yield (frames_asked if len(calls) > 1 else frames_asked[0])
            messages += _answers([call for call, _ in calls], answers)

    async def aclose(self) -> None:
        """Close what the core holds, if it can be closed."""
        close = getattr(self.core, "aclose", None)
        if close is not None:
            await close()

    async def _call(self, request: ModelRequest) -> AsyncGenerator[Frame, None]:
        """Yield the frames of one model call, trying again while there were none."""
        attempt, wait_ms = 0, None
        while True:
            attempt, started = attempt + 1, False
            try:
                async with aclosing(self.core.stream(request)) as frames:
                    async for frame in frames:
                        started = True
                        yield frame
                return
            except ModelError as error:
                if error.code == "model.filtered":
                    yield Frame(DONE, {"finish_reason": "content_filter"})
                    return
                wait_ms = None if started else self._retry.wait_ms(error, attempt)
                if wait_ms is None:
                    error.detail["attempts"] = attempt
                    raise
            await self._clock.sleep_ms(wait_ms)


def _call_ids() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"call_{number}"


def _calls(asked: Sequence[Frame], done: Frame, names: Iterator[str]) -> list[tuple[ToolCall, Frame]]:
    """Return the calls to make; those that were cut off are left out."""
    truncated = done.content.get("finish_reason") in ("max_tokens", "content_filter")
    calls = []
    for frame in asked:
        content = frame.content
        arguments = content.get("arguments")
        if truncated and not isinstance(arguments, dict):
            continue
        if not content.get("id"):
            frame = Frame(TOOL_CALL, {**content, "id": next(names)})
        call = ToolCall(
            id=frame.content["id"],
            name=str(content.get("name", "")),
            arguments=arguments,
            raw_arguments=content.get("raw_arguments"),
        )
        calls.append((call, frame))
    return calls


def as_duplex(
    core: ModelCore,
    *,
    tools: Sequence[ToolSpec] = (),
    system: str | None = None,
    retry: Retry | None = None,
    clock: Clock | None = None,
) -> FrameDuplex:
    """Return a duplex whose turns are conversations with the model.

    Every turn starts afresh from its prompt. A TEXT frame is a user message, or the role its
    content names (``system``, ``assistant``); a frame with ``messages`` in its content stands
    for those. USAGE frames are passed on call by call. An answer the server filtered ends the
    turn with finish reason ``content_filter`` and keeps the text so far.

    Args:
        core: Asked once for every model call. If it has ``aclose``, closing the duplex closes it.
        tools: What the model may call; without any, what the loop offers (``ctx.tools``).
        system: A system message put before every prompt.
        retry: Which failures are tried again, and how long to wait in between.
        clock: What the waiting is measured by; the system's if None.

    Raises:
        AgentLoopConfigError: A tool has a name that no model server accepts.
    """
    turn = ModelTurn(core, tools=tools, system=system, retry=retry, clock=clock)
    return turn_duplex(turn)
