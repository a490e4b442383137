"""Streamed replies: frames become recorded batches, batches fold to the message.

The fold is the only way to a message, so any cutting of the same frames into batches gives the
same one, and a replay of the recorded batches gives it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from agentloop._canonical import Json, NotJson, decode, encode_text
from agentloop.frames import DONE, REASONING, STOP_REASONS, TEXT, TOOL_CALL, USAGE, Frame
from agentloop.messages import Message, ToolCall
from agentloop.ports import ModelReply, TokenUsage

__all__ = ("Batcher", "OpenCall", "Partial", "fold_frames", "wire_frame")

MAX_ARGUMENT_BYTES: Final = 256 * 1024


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as far as it has come."""

    index: int
    id: str = ""
    name: str = ""
    args: str = ""


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """A reply as far as it has come."""

    text: str = ""
    calls: tuple[OpenCall, ...] = ()
    usage: TokenUsage | None = None
    stop_reason: str | None = None
    frames: int = 0

    def reply(self) -> ModelReply:
        """Return the reply the frames so far stand for."""
        calls = tuple(_call(number, call) for number, call in enumerate(self.calls, 1))
        reason = self.stop_reason or ("tool_use" if calls else "end_turn")
        message = Message(role="assistant", content=self.text, tool_calls=calls)
        return ModelReply(message=message, usage=self.usage or TokenUsage(), stop_reason=reason)


def _call(number: int, call: OpenCall) -> ToolCall:
    text = call.args.strip()
    arguments: Json = {}
    raw: str | None = None
    if text:
        try:
            arguments = decode(text, max_bytes=MAX_ARGUMENT_BYTES, repair_surrogates=True)
        except NotJson:
            arguments, raw = None, call.args
        if not isinstance(arguments, dict):
            arguments, raw = None, call.args
    return ToolCall(id=call.id or f"call_{number}", name=call.name, arguments=arguments, raw_arguments=raw)


def fold_frames(partial: Partial | None, frames: Sequence[dict[str, Any]]) -> Partial:
    """Return the reply with these frames added; frame number 1 begins anew."""
    for frame in frames:
        if partial is None or frame["n"] == 1:
            partial = Partial()
        partial = _fold(partial, frame)
    return partial or Partial()


def _fold(partial: Partial, frame: dict[str, Any]) -> Partial:
    replace = msgspec.structs.replace
    number = frame["n"]
    match frame["kind"]:
        case "text":
            return replace(partial, text=partial.text + frame["delta"], frames=number)
        case "tool":
            return replace(partial, calls=_with_call(partial.calls, frame), frames=number)
        case "usage":
            usage = TokenUsage(
                prompt_tokens=frame["promptTokens"], completion_tokens=frame["completionTokens"]
            )
            return replace(partial, usage=usage, frames=number)
        case "stop":
            return replace(partial, stop_reason=frame["reason"], frames=number)
        case _:  # reasoning is shown and recorded; the message does not hold it
            return replace(partial, frames=number)


def _with_call(calls: tuple[OpenCall, ...], frame: dict[str, Any]) -> tuple[OpenCall, ...]:
    index = frame["index"]
    known = next((call for call in calls if call.index == index), None)
    before = known or OpenCall(index=index)
    after = OpenCall(
        index=index,
        id=frame.get("id") or before.id,
        name=frame.get("name") or before.name,
        args=before.args + frame["argsDelta"],
    )
    if known is None:
        return (*calls, after)
    return tuple(after if call is known else call for call in calls)


def wire_frame(number: int, frame: Frame, calls: int) -> dict[str, Any] | None:
    """Return what is recorded of a model's frame; None for one that says nothing here.

    Args:
        number: 1, 2, … within the attempt.
        frame: As a model core yields it.
        calls: How many tool calls the reply has had before.
    """
    content = frame.content
    if frame.type == TEXT:
        return {"n": number, "kind": "text", "delta": frame.text}
    if frame.type == REASONING:
        return {"n": number, "kind": "reasoning", "delta": frame.text}
    if frame.type == TOOL_CALL:
        arguments, raw = content.get("arguments"), content.get("raw_arguments")
        text = encode_text(arguments) if isinstance(arguments, dict) else str(raw or arguments or "")
        named = {"id": content.get("id"), "name": content.get("name")}
        told = {key: str(value) for key, value in named.items() if value}
        return {"n": number, "kind": "tool", "index": content.get("index", calls), **told, "argsDelta": text}
    if frame.type == USAGE:
        prompt, completion = content.get("input_tokens", 0), content.get("output_tokens", 0)
        return {"n": number, "kind": "usage", "promptTokens": prompt, "completionTokens": completion}
    if frame.type == DONE:
        reason = str(content.get("finish_reason") or "")
        if not reason:
            return None
        return {"n": number, "kind": "stop", "reason": STOP_REASONS.get(reason, reason)}
    return None


class Batcher:
    """Gathers frames until a batch is due: after 50 ms, 512 characters, or any but text.

    The rule is applied before anything is recorded, so a replay sees the same batches.
    """

    __slots__ = ("_began_ms", "_characters", "_frames", "max_characters", "max_ms")

    def __init__(self, *, max_ms: int = 50, max_characters: int = 512) -> None:
        self.max_ms, self.max_characters = max_ms, max_characters
        self._frames: list[dict[str, Any]] = []
        self._began_ms = self._characters = 0

    def add(self, frame: dict[str, Any], now_ms: int) -> bool:
        """Add a frame; True if the batch is due."""
        if not self._frames:
            self._began_ms, self._characters = now_ms, 0
        self._frames.append(frame)
        self._characters += len(frame.get("delta", ""))
        return (
            frame["kind"] not in ("text", "reasoning")
            or self._characters >= self.max_characters
            or now_ms - self._began_ms >= self.max_ms
        )

    def take(self) -> tuple[dict[str, Any], ...]:
        """Return the batch and begin another."""
        frames, self._frames = tuple(self._frames), []
        return frames
