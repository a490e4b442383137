"""The way in: what models, tools and assemblers say is repaired, redacted and checked here, once.

Whoever comes later, the model of the next turn included, sees what was let in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentloop._canonical import NotJson, encode_text, repair_text
from agentloop.errors import ClassifiedError, ErrorValue
from agentloop.frames import TEXT, Frame, clean
from agentloop.messages import Message
from agentloop.outcome import fatal
from agentloop.ports import Context

if TYPE_CHECKING:
    from agentloop.redact import Redactor

__all__ = ("Ingress",)

_S = TypeVar("_S", bound=msgspec.Struct)


class Ingress:
    """Lets values in.

    Args:
        redactor: None lets secrets in too.
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        #: Messages of the transcript that were let in; it holds them, so their ids stay theirs.
        self._known: set[int] = set()
        self._counted = 0

    def text(self, text: str) -> str:
        """Return a text as it may be kept."""
        text = repair_text(text)
        return text if self._redactor is None else self._redactor.redact_text(text)

    def struct(self, value: _S, code: str) -> _S:
        """Return a struct as it may be kept.

        Raises:
            ClassifiedError: It holds something that is not JSON; fatal, with that code.
        """
        try:
            data = clean(msgspec.to_builtins(value))
            # What cannot be written down later would be lost with everything after it.
            encode_text(data)
            if self._redactor is not None:
                data = self._redactor.redact_value(data)
            return msgspec.convert(data, type(value))
        except (NotJson, TypeError, msgspec.ValidationError, RecursionError) as error:
            raise ClassifiedError(fatal(code, f"not a value that can be kept: {error}")) from error

    def error(self, error: ErrorValue) -> ErrorValue:
        """Return an error as it may be kept; details that are not JSON are left out."""
        try:
            return self.struct(error, "error.bad_value")
        except ClassifiedError:
            bare = msgspec.structs.replace(error, detail={}, message=self.text(str(error.message)))
            return self.struct(bare, "error.bad_value")

    def context(self, context: Context, transcript: Sequence[Message]) -> Context:
        """Return a window as it may be kept; messages of the run's transcript are not looked at."""
        self._known.update(id(message) for message in transcript[self._counted :])
        self._counted = len(transcript)
        messages = tuple(
            message if id(message) in self._known else self.struct(message, "context.bad_message")
            for message in context.messages
        )
        bare = self.struct(msgspec.structs.replace(context, messages=()), "context.bad_report")
        return msgspec.structs.replace(bare, messages=messages)

    def stream(self) -> StreamIngress:
        """Return the way in for the frames of one reply."""
        return StreamIngress(self._redactor)


class StreamIngress:
    """Lets in the frames of one reply, in order.

    A text that ends in half a character, or in what could begin a known secret, is held back
    until the next one decides it.
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self._stream = None if redactor is None else redactor.stream()
        self._half = ""

    def take(self, frame: Frame) -> Iterator[Frame]:
        """Yield what this frame makes visible."""
        if frame.type == TEXT:
            text = self._half + frame.text
            self._half = ""
            if text and "\ud800" <= text[-1] <= "\udbff":
                text, self._half = text[:-1], text[-1]
            text = repair_text(text)
            if self._stream is not None:
                text = self._stream.feed(text)
            if text:
                yield Frame(TEXT, {"text": text})
            return
        yield from self.rest()
        content: dict[str, Any] = clean(frame.to_dict()["content"])
        if self._redactor is not None:
            content = self._redactor.redact_value(content)
        yield Frame(frame.type, content)

    def rest(self) -> Iterator[Frame]:
        """Yield what was held back."""
        text = "" if self._stream is None else self._stream.flush()
        if self._half:
            text, self._half = text + "\ufffd", ""
        if text:
            yield Frame(TEXT, {"text": text})
