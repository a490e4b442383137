"""The floor of a cold start: one cycle of the naive duplex, with nothing imported but anyio."""

import hashlib
import json

import anyio
import anyio._backends._asyncio  # what anyio.run would import


class Frame:
    __slots__ = ("content", "type")

    def __init__(self, type, content):
        self.type, self.content = type, content


async def serve(prompts, out, texts):
    async for _ in prompts:
        for text in texts:
            await out.send(Frame("TEXT", {"text": text}))
        await out.send(Frame("DONE", {}))


async def main():
    to_agent, agent_in = anyio.create_memory_object_stream(64)
    agent_out, from_agent = anyio.create_memory_object_stream(64)
    to_judge, judge_in = anyio.create_memory_object_stream(64)
    judge_out, from_judge = anyio.create_memory_object_stream(64)

    async def ask(send, receive, text):
        await send.send(Frame("TEXT", {"text": text}))
        texts = []
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
