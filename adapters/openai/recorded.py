"""A model that answers with what a server once said: for tests, examples and evals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from os import PathLike
from pathlib import Path

from adapters.openai.stream import ChatStream
from agentloop.errors import ScriptExhausted
from agentloop.frames import Frame
from agentloop.ports import ModelRequest

__all__ = ("RecordedChat",)


class RecordedChat:
    """Plays recorded answers back, one for each call, through the reader of the live ones.

    Args:
        recording: A file, or its lines: the server-sent events as they came. An answer ends
            with its ``data: [DONE]``.

    Attributes:
        requests: What was asked, in order.
    """

    def __init__(self, recording: str | PathLike[str] | Iterable[str]) -> None:
        if isinstance(recording, (str, PathLike)):
            recording = Path(recording).read_text(encoding="utf-8").split("\n")
        self._answers: list[list[bytes]] = [[]]
        for line in recording:
            self._answers[-1].append(line.rstrip("\n").encode() + b"\n")
            if line.strip() == "data: [DONE]":
                self._answers.append([])
        if not any(line.strip() for line in self._answers[-1]):
            self._answers.pop()
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Frame, None]:
        """Yield the frames of the next recorded answer.

        Raises:
            ScriptExhausted: There is none.
            ModelError: What was recorded is an answer that failed.
        """
        self.requests.append(request)
        if len(self.requests) > len(self._answers):
            raise ScriptExhausted(len(self._answers), len(self.requests))
        stream = ChatStream()
        for line in self._answers[len(self.requests) - 1]:
            for frame in stream.feed(line):
                yield frame
        for frame in stream.end():
            yield frame
