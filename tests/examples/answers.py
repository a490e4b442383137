"""Recorded model calls as a chat server streams them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.adapters.chat_server import Handler


def streamed(call: dict[str, Any]) -> Callable[[Handler], None]:
    """Answer as a chat server does: the text in pieces, then the tool calls, the reason, the usage."""
    words = re.findall(r"\S+\s*", call.get("say", ""))
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        *({"content": word} for word in words),
    ]
    for index, asked in enumerate(call.get("callTools", ())):
        function = {"name": asked["name"], "arguments": json.dumps(asked["args"])}
        deltas.append(
            {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}
        )
    reason = "tool_calls" if "callTools" in call else "stop"
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": len(words)}})

    def answer(handler: Handler) -> None:
        handler.begin()
        for chunk in chunks:
            handler.piece(
                b"data: "
                + json.dumps({"id": "x", "object": "chat.completion.chunk", **chunk}).encode()
                + b"\n\n"
            )
        handler.piece(b"data: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")

    return answer
