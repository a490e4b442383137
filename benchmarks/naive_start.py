"""The floor of a cold start: one cycle of the naive duplex, with nothing imported but anyio."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import anyio
import anyio._backends._asyncio  # what anyio.run would import


class Frame:
    __slots__ = ("content", "type")

    def __init__(self, type: str, content: dict[str, str]) -> None:
        self.type, self.content = type, content


async def serve(prompts: Any, out: Any, texts: list[str]) -> None:
    async for _ in prompts:
        for text in texts:
            await out.send(Frame("TEXT", {"text": text}))
        await out.send(Frame("DONE", {}))


async def main() -> None:
    to_agent, agent_in = anyio.create_memory_object_stream[Frame](64)
    agent_out, from_agent = anyio.create_memory_object_stream[Frame](64)
    to_judge, judge_in = anyio.create_memory_object_stream[Frame](64)
    judge_out, from_judge = anyio.create_memory_object_stream[Frame](64)

    async def ask(send: Any, receive: Any, text: str) -> str:
        await send.send(Frame("TEXT", {"text": text}))
        texts: list[str] = []
        while (frame := await receive.receive()).type != "DONE":
            texts.append(frame.content["text"])
        return "".join(texts)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, agent_in, agent_out, ["working on it, ", "done"])
        tasks.start_soon(serve, judge_in, judge_out, ['{"status": "RUNNING", "evidence": "not yet"}'])
        text = await ask(to_agent, from_agent, "do the next part")
        verdict = json.loads(await ask(to_judge, from_judge, f"judge: {text}"))
        body = json.dumps({"text": text, **verdict}, sort_keys=True).encode()
        hashlib.sha256(bytes(32) + body).digest()
        tasks.cancel_scope.cancel()
    for stream in (to_agent, agent_in, agent_out, from_agent, to_judge, judge_in, judge_out, from_judge):
        stream.close()


anyio.run(main)
