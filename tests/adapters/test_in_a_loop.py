"""The adapters where they are used: in a real loop, with real processes and a real server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from adapters.command import CommandAgent, create_command_adapter
from adapters.openai import OpenAIChat, create_openai_adapter
from adapters.tools import files
from agentloop import NodeStatus, create_agent_loop, create_default_evaluator_parser
from agentloop._canonical import encode_text
from agentloop.frames import DONE, TEXT, TICK, TOOL_CALL, TOOL_RESULT, Frame
from agentloop.models import ModelTurn
from agentloop.streams import TurnDuplex
from tests.adapters.alive import watch
from tests.adapters.chat_server import Answer, chat_server, plays, recording, refuses

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning"),
]


def asks_to_write(path: str, content: str) -> Answer:
    arguments = encode_text({"path": path, "content": content})
    call = {"index": 0, "id": "c1", "function": {"name": "fs__write", "arguments": arguments}}
    chunk = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    return plays(f"data: {encode_text(chunk)}\n\ndata: [DONE]\n\n".encode())


JUDGE = """
import os
found = os.path.exists("made.txt") and open("made.txt").read()
print('{"status": "%s", "evidence": "%s"}' % ("SUCCESS" if found else "RUNNING", found))
"""


@pytest.mark.parametrize("served", [False, True])
async def test_a_model_works_with_tools_and_a_command_judges(tmp_path: Path, served: bool) -> None:
    answers = (
        refuses(503, headers={"retry-after-ms": "1"}),
        plays(recording("text.sse")),  # the first cycle only talks
        asks_to_write("made.txt", "well"),
        plays(recording("text.sse")),
    )
    judge = CommandAgent([sys.executable, "-c", JUDGE], cwd=tmp_path)
    with chat_server(*answers) as server:
        agent = create_openai_adapter(model="m", base_url=server.base_url, environ={})
        loop = create_agent_loop(
            agent_adapter=agent,
            evaluator_adapter=judge,
            tool_adapters={tool.name: tool for tool in files(tmp_path)},
            build_agent_prompt=lambda ctx: "make it",
            build_evaluator_prompt=lambda ctx, turn: "judge it",
            parse_evaluator_output=create_default_evaluator_parser(),
            own_adapters=served,
        )
        result = await loop.run()
        await agent.aclose()

    assert (result.status, result.evidence, result.iterations) == (NodeStatus.SUCCESS, "well", 2)
    assert result.usage["input_tokens"] == 22
    offered = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert "fs__write" in offered
    assert server.requests[-1]["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "wrote 4 bytes to made.txt",
    }


@pytest.mark.parametrize("served", [False, True])
async def test_aborting_a_loop_ends_the_family_of_its_command(tmp_path: Path, served: bool) -> None:
    with watch(tmp_path) as alive:
        code = f"exec 3>{alive.path}; (sleep 60) & echo ready; sleep 60"
        agent = create_command_adapter(["/bin/sh", "-c", code])
        async with create_agent_loop(
            agent_adapter=agent,
            evaluator_adapter=CommandAgent(["true"]),
            build_agent_prompt=lambda ctx: "go",
            build_evaluator_prompt=lambda ctx, turn: "judge",
            parse_evaluator_output=create_default_evaluator_parser(),
            own_adapters=served,
        ) as loop:
            await loop.sink.write(Frame(TICK))
            assert (await loop.source.receive()).text == "ready\n"
            loop.abort("stop")
        await alive.all_gone()

    assert loop.result is not None
    assert loop.result.reason == "aborted"


async def test_a_served_duplex_talks_over_its_streams_and_closes_its_client() -> None:
    with chat_server(asks_to_write("a", "b"), plays(recording("text.sse"))) as server:
        async with create_openai_adapter(model="m", base_url=server.base_url, environ={}) as duplex:
            await duplex.sink.write(Frame(TEXT, {"text": "hi"}))
            call = await duplex.source.receive()
            assert call.type == TOOL_CALL
            await duplex.sink.write(Frame(TOOL_RESULT, {"id": "c1", "ok": True, "output": "done"}))
            frames = [await duplex.source.receive()]
            while frames[-1].type != DONE:
                frames.append(await duplex.source.receive())
            assert isinstance(duplex, TurnDuplex)
            assert isinstance(duplex.turn, ModelTurn)
            core = cast("OpenAIChat", duplex.turn.core)
            client = core._client
            assert client is not None
        assert client.is_closed()

    assert frames[0] == Frame(TEXT, {"text": "Hello"})
