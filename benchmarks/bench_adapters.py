"""One streamed chunk of a chat model (A1): the adapter beside the client's own parsing.

    python benchmarks/bench_adapters.py [--quick]

All sides read the same recorded chunks from the same transport in this process, one event at a
time. The floor is written by hand: the HTTP library's lines and `json.loads`. `turn_us` is the
adapter behind its duplex face, `parse_us` its reading of the bytes alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai

sys.path.insert(0, str(Path(__file__).parents[1]))

from adapters.openai import ChatStream, OpenAIChat
from agentloop.frames import TEXT, Frame
from agentloop.messages import Message
from agentloop.models import ModelTurn
from agentloop.ports import ModelRequest
from benchmarks import harness

URL = "http://localhost/v1"


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    value = {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion.chunk",
        "created": 1741569952,
        "model": "gpt-4.1-2025-04-14",
        "service_tier": "default",
        "system_fingerprint": "fp_f7a5d4b1c2",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
    }
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


class Recorded(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class LocalTransport(httpx2.AsyncBaseTransport):
    """Answers every request with the recorded chunks."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=Recorded(self._pieces), request=request)


def main() -> None:
    n = 500 if harness.quick() else 4_000
    pieces = [chunk({"content": f" word{number % 10}"}) for number in range(n)]
    pieces += [chunk({}, "stop"), b"data: [DONE]\n\n"]
    http = httpx2.AsyncClient(transport=LocalTransport(pieces))
    client = openai.AsyncOpenAI(api_key="none", base_url=URL, http_client=http, max_retries=0)
    core = OpenAIChat(model="m", client=client, environ={})
    request = ModelRequest(messages=(Message(role="user", content="hi"),))
    messages: Any = [{"role": "user", "content": "hi"}]

    async def ours() -> None:
        texts = [frame.text async for frame in core.stream(request) if frame.type == TEXT]
        assert len(texts) == n

    async def turn() -> None:
        prompt = [Frame(TEXT, {"text": "hi"})]
        frames = [frame async for frame in ModelTurn(core)(prompt) if isinstance(frame, Frame)]
        assert sum(frame.type == TEXT for frame in frames) == n

    async def sdk() -> None:
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        texts = [part.choices[0].delta.content async for part in stream if part.choices]
        assert len(texts) == n + 1

    async def floor() -> None:
        texts = []
        async with http.stream("POST", f"{URL}/chat/completions", json={"messages": messages}) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    texts.append(json.loads(line[6:])["choices"][0]["delta"].get("content"))
        assert len(texts) == n + 1

    def parse() -> None:
        stream = ChatStream()
        assert sum(1 for piece in pieces for _ in stream.feed(piece)) == n

    us = harness.measure(
        {
            "ours": harness.timed(ours),
            "turn": harness.timed(turn),
            "sdk": harness.timed(sdk),
            "floor": harness.timed(floor),
            "parse": parse,
        },
        n=n,
    )
    harness.report(
        "A1",
        "one streamed chunk of a chat completion, CPU",
        us["ours"],
        "us",
        floor=us["floor"],
        must=harness.bar("<= 40 us", us["ours"] <= 40),
        moonshot=harness.bar(
            "<= 26 us and >= 10x faster than the client's own parsing",
            us["ours"] <= 26 and us["sdk"] / us["ours"] >= 10,
        ),
        n=n,
        peers={"openai_client_us": us["sdk"]},
        times_faster_than_the_client=us["sdk"] / us["ours"],
        turn_us=us["turn"],
        parse_us=us["parse"],
    )


if __name__ == "__main__":
    main()
