"""The way in: what an adapter says is repaired and redacted here, once, before anybody sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agentloop._canonical import repair_text
from agentloop.frames import TEXT, Frame, clean

if TYPE_CHECKING:
    from agentloop.redact import Redactor

__all__ = ("Ingress",)


class Ingress:
    """Takes the frames of one turn after another.

    A TEXT that ends in half a surrogate pair, or in what could begin a known secret, is held
    back until the next one decides it, so a frame may come out later than it went in.
    """

    __slots__ = ("_half", "_redactor", "_stream")

    def __init__(self, redactor: Redactor | None, *, kept: bool) -> None:
        """Make the way in of a run; one that is kept has a redactor in any case.

        What is kept is kept for long: by default nothing that looks like a key gets there.
        """
        if redactor is None and kept:
            from agentloop.redact import Redactor

            redactor = Redactor()
        self._redactor = redactor
        self._half = ""
        self._stream = redactor.stream() if redactor is not None else None

    @property
    def hides(self) -> bool:
        """Whether anything is looked for that must not be shown."""
        return self._redactor is not None

    def begin(self) -> None:
        """Forget what a turn that was cut left behind."""
        self._half = ""
        if self._stream is not None:
            self._stream.flush()

    def take(self, frame: Frame) -> Sequence[Frame]:
        """Return what this frame makes visible, in order."""
        content = frame.content
        if frame.type != TEXT:
            return (*self.rest(), frame if not content and frame.type.isascii() else self.shown(frame))
        text = content.get("text")
        if type(text) is str and text.isascii() and not self._half and len(content) == 1:
            shown = text if self._stream is None else self._stream.feed(text)
            if shown == text:
                return (frame,)
            return (Frame(TEXT, {"text": shown}, meta=frame.meta),) if shown else ()
        return self._slowly(frame)

    def _slowly(self, frame: Frame) -> Sequence[Frame]:
        rest = {key: item for key, item in frame.to_dict()["content"].items() if key != "text"}
        if frame.content.get("final") is True:
            before = self.rest()
            return (*before, Frame(TEXT, self.redact({"text": clean(frame.text), **rest}), meta=frame.meta))
        text = self._half + frame.text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        text = repair_text(text)
        if self._stream is not None:
            text = self._stream.feed(text)
        if not text and frame.text and not rest:
            return ()
        return (Frame(TEXT, {"text": text, **self.redact(rest)}, meta=frame.meta),)

    def rest(self) -> Sequence[Frame]:
        """Return what was held back, now that nothing can decide it any more."""
        if not self._half and self._stream is None:
            return ()
        text = self._stream.flush() if self._stream is not None else ""
        if self._half:
            text, self._half = text + "\ufffd", ""
        return (Frame(TEXT, {"text": text}),) if text else ()

    def shown(self, frame: Frame) -> Frame:
        """Return the frame as it may be kept and shown: JSON, whole characters, no secrets."""
        content = self.redact(frame.to_dict()["content"])
        return Frame(self.text(frame.type), content, meta=frame.meta)

    def text(self, text: str) -> str:
        """Return a text from outside as it may be kept and shown."""
        return self.redact_text(text if text.isascii() else repair_text(text))

    def prompt(self, frames: Iterable[Frame]) -> list[Frame]:
        """Return the frames of a prompt as they may be kept; they are sent as they are."""
        return [frame if self._is_plain(frame) else self.shown(frame) for frame in frames]

    def _is_plain(self, frame: Frame) -> bool:
        """Return whether a frame can be kept as it is: a text with nothing to repair or hide."""
        text = frame.content.get("text")
        return (
            type(text) is str
            and len(frame.content) == 1
            and text.isascii()
            and frame.type.isascii()
            and (self._redactor is None or self._redactor.redact_text(text) is text)
        )

    def redact(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return the content without secrets."""
        return content if self._redactor is None else self._redactor.redact_value(content)

    def redact_text(self, text: str) -> str:
        """Return the text without secrets."""
        return text if self._redactor is None else self._redactor.redact_text(text)
