"""The wire of a streamed chat completion, read into frames.

Bytes go in, frames come out; nothing here waits or knows a connection. Servers differ, so what
is missing is tolerated where the meaning is clear, and what cannot be read is a `ModelError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.openai.faults import broken, reported
from agentloop._canonical import Json, NotJson, decode
from agentloop.errors import ModelError
from agentloop.frames import DONE, REASONING, STOP_REASONS, TEXT, TOOL_CALL, USAGE, Frame

__all__ = ("ChatStream",)

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_LINE: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)


class ChatStream:
    """Reads one answer. Feed it the bytes as they come, then ask for the `end`."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._rest = b""
        self._calls: list[_Call] = []
        self._slots: dict[int | str, _Call] = {}
        self._usage: dict[str, Json] = {}
        self._finish: str | None = None
        self._refused = False
        #: The server said that nothing more follows.
        self.ended = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that these bytes complete.

        Raises:
            ModelError: ``model.stream_broken`` for what is no chat completion, or the error
                that the server reported; after the frames that came before it.
        """
        self._bytes += len(data)
        if self._bytes > self._max_bytes:
            raise broken(f"the answer is larger than {self._max_bytes} bytes")
        # Split by line feeds alone: text may hold the other characters Python calls line ends.
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE:
            raise broken(f"the server sent a line of more than {MAX_LINE} bytes")
        for line in lines:
            if line.startswith(b"data:") and not self.ended:
                event = line[5:].strip()
                if event == b"[DONE]":
                    self.ended = True
                elif event:
                    yield from self._chunk(_read(event), "delta")

    def whole(self, body: bytes) -> Iterator[Frame]:
        """Yield the frames of an answer that the server did not stream.

        Raises:
            ModelError: As `feed`.
        """
        if len(body) > self._max_bytes:
            raise broken(f"the answer is larger than {self._max_bytes} bytes")
        yield from self._chunk(_read(body), "message")
        self.ended = True

    def _chunk(self, chunk: dict[str, Json], part: str) -> Sequence[Frame]:
        frames: Sequence[Frame] = ()
        choices = chunk.get("choices")
        if choices:
            choice = choices[0] if isinstance(choices, list) else None
            if not isinstance(choice, dict):
                raise broken("a chunk's 'choices' is not a list of objects")
            delta = choice.get(part)
            if isinstance(delta, dict):
                frames = self._delta(delta)
            finish = choice.get("finish_reason")
            if isinstance(finish, str) and finish:
                self._finish = finish
        elif error := chunk.get("error"):
            raise reported(error)
        # Some servers repeat the usage so far in every chunk: the last one counts.
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        return frames

    def _delta(self, delta: dict[str, Json]) -> Sequence[Frame]:
        frames: list[Frame] = []
        content = delta.get("content")
        if content:
            frames.append(Frame(TEXT, {"text": content if type(content) is str else _parts(content)}))
            if len(delta) == 1:
                return frames
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            frames.append(Frame(REASONING, {"text": thought}))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            frames.append(Frame(TEXT, {"text": refusal}))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for call in calls:
                self._tool_call(call)
        return frames

    def _tool_call(self, delta: Json) -> None:
        function = delta.get("function") if isinstance(delta, dict) else None
        if not isinstance(function, dict):
            raise broken("a tool call without a function")
        call_id, name = _str(delta.get("id")), _str(function.get("name"))
        index = delta.get("index")
        slot = index if type(index) is int else call_id or len(self._calls) - 1
        call = self._slots.get(slot)
        # Whole calls that share an index are different calls if their ids differ.
        if call is None or (call_id and call.id and call_id != call.id and name):
            call = self._slots[slot] = _Call()
            self._calls.append(call)
        call.id, call.name = call_id or call.id, name or call.name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.parts.append(arguments)
        elif arguments is not None:
            raise broken(f"a tool call's arguments are a {type(arguments).__name__}, not JSON text")

    def end(self) -> Iterator[Frame]:
        """Yield the last frames: tool calls, USAGE and DONE.

        Raises:
            ModelError: The answer broke off; or, after USAGE, the server withheld it
                (``model.filtered``).
        """
        if self._rest:
            yield from self.feed(b"\n")
        if self._finish is None and not self.ended:
            raise broken("the answer ended before it was complete")
        if self._finish == "error":
            raise broken("the server ended the answer with finish reason 'error'")
        for call in self._calls:
            yield _call_frame(call)
        if self._usage:
            yield Frame(USAGE, _usage(self._usage))
        if self._finish == "content_filter":
            raise ModelError(
                "the server's content filter withheld the answer: change the prompt",
                error_class="correctable",
                code="model.filtered",
            )
        yield Frame(DONE, self._done())

    def _done(self) -> dict[str, Any]:
        finish = self._finish or "stop"
        reason = STOP_REASONS.get(finish, finish)
        if self._calls and reason == "end_turn":
            reason = "tool_use"
        return {"finish_reason": reason, "refused": True} if self._refused else {"finish_reason": reason}


def _read(data: bytes) -> dict[str, Json]:
    problem = ""
    try:
        # As text: bytes are first tried as canonical ones, which a server's never are.
        value = decode(str(data, "utf-8"), duplicate_keys=True, repair_surrogates=True)
    except (NotJson, UnicodeDecodeError) as error:
        problem = str(error)
    if problem:  # raised here, so that what the server sent is not attached to the error
        raise broken(f"the server sent what is not JSON: {problem}")
    if not isinstance(value, dict):
        raise broken(f"the server sent a JSON {type(value).__name__} where an object belongs")
    return value


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _parts(content: Json) -> str:
    if not isinstance(content, list):
        raise broken(f"a chunk's 'content' is a {type(content).__name__}, not text")
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _call_frame(call: _Call) -> Frame:
    content: dict[str, Any] = {"id": call.id, "name": call.name}
    written = "".join(call.parts)
    try:
        arguments = decode(written, repair_surrogates=True) if written.strip() else {}
    except NotJson:
        arguments = None
    # What is no object stays as the model wrote it: the loop answers it, nobody repairs it.
    if isinstance(arguments, dict):
        content["arguments"] = arguments
    else:
        content["raw_arguments"] = written
    return Frame(TOOL_CALL, content)


def _usage(usage: dict[str, Json]) -> dict[str, int]:
    def details(name: str) -> dict[str, Json]:
        value = usage.get(name)
        return value if isinstance(value, dict) else {}

    counts = {
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "cached_tokens": details("prompt_tokens_details").get("cached_tokens"),
        "reasoning_tokens": details("completion_tokens_details").get("reasoning_tokens"),
    }
    return {name: count for name, count in counts.items() if type(count) is int}
