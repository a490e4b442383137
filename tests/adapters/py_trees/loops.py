"""Loops for behaviours: scripted ones, and one that works until a gate is opened."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import anyio

from agentloop import AgentLoop, create_agent_loop, create_default_evaluator_parser
from agentloop.scripted import ScriptedAdapter

__all__ = ("SUCCESS", "Gate", "gated", "loop", "verdict")


def verdict(status: str, evidence: str) -> str:
    return f'{{"status": "{status}", "evidence": "{evidence}"}}'


SUCCESS = verdict("SUCCESS", "all good")


def loop(agent: Any, evaluator: Sequence[Any], **options: Any) -> AgentLoop:
    given: dict[str, Any] = {
        "agent_adapter": agent if isinstance(agent, ScriptedAdapter) else ScriptedAdapter(agent),
        "evaluator_adapter": ScriptedAdapter(evaluator),
        "build_agent_prompt": lambda ctx: "go",
        "build_evaluator_prompt": lambda ctx, history: "judge",
        "parse_evaluator_output": create_default_evaluator_parser(),
    }
    return create_agent_loop(**{**given, **options})


class Gate:
    """Holds an agent until it is opened, from whatever thread."""

    def __init__(self) -> None:
        self._opened, self._reached = threading.Event(), threading.Event()

    def open(self) -> None:
        self._opened.set()

    def wait_until_reached(self) -> None:
        assert self._reached.wait(10), "no agent came to the gate"

    async def passed(self) -> None:
        self._reached.set()
        while not self._opened.is_set():  # noqa: ASYNC110 - it is opened on another thread
            await anyio.sleep(0.001)


class GatedAdapter(ScriptedAdapter):
    def __init__(self, gate: Gate, text: str) -> None:
        super().__init__([[text]])
        self._gate = gate

    async def turn(self, prompt: Any, ctx: object = None) -> Any:
        await self._gate.passed()
        async with aclosing(super().turn(prompt, ctx)) as inner:
            async for frame in inner:
                yield frame


def gated(
    gate: Gate, *, text: str = "done", adapters: list[ScriptedAdapter] | None = None, **options: Any
) -> AgentLoop:
    """Return a loop whose agent waits at the gate and which then succeeds."""
    adapter = GatedAdapter(gate, text)
    if adapters is not None:
        adapters.append(adapter)
    return loop(adapter, [SUCCESS], **options)
