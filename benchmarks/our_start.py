"""A cold start of ours: the same one cycle as `naive_start`, through the loop and its ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

from agentloop import (
    Frame,
    LoopContext,
    MemoryLedgerStore,
    Prompt,
    create_agent_loop,
    create_default_evaluator_parser,
)


async def agent(prompt: Prompt, ctx: LoopContext) -> AsyncIterator[Frame]:
    yield Frame("TEXT", {"text": "working on it, "})
    yield Frame("TEXT", {"text": "done"})


async def judge(prompt: Prompt, ctx: LoopContext) -> AsyncIterator[Frame]:
    yield Frame("TEXT", {"text": '{"status": "RUNNING", "evidence": "not yet"}'})


async def main() -> None:
    loop = create_agent_loop(
        agent_adapter=agent,
        evaluator_adapter=judge,
        build_agent_prompt=lambda ctx: "do the next part",
        build_evaluator_prompt=lambda ctx, history: f"judge: {history[-1]['agent_text']}",
        parse_evaluator_output=create_default_evaluator_parser(),
        max_iterations=1,
        ledger=MemoryLedgerStore(),
    )
    await loop.run()


anyio.run(main)
