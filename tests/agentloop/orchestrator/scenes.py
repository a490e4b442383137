"""Runs as the tests make them: scripts of a few letters, virtual time, chance from the seed "test"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentloop import ManualClock, Mulberry32, SequentialIds, Tool, run
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.providers import ScriptedProvider
from agentloop.orchestrator.runtime import RunResult

__all__ = ("FAIL", "SEARCH", "A", "F", "T", "deps", "play", "search")

SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {"q": {"type": "string"}},
    "required": ["q"],
    "additionalProperties": False,
}


def A(say: str = "the answer", **more: Any) -> dict[str, Any]:  # noqa: N802 - as the vectors call it
    return {"say": say, **more}


def T(*names: str, args: Mapping[str, Any] | None = None, say: str = "", **more: Any) -> dict[str, Any]:  # noqa: N802
    given = {"q": "x"} if args is None else dict(args)
    return {"say": say, "callTools": [{"name": name, "args": given} for name in names or ("search",)], **more}


def F(error_class: str = "transient", code: str = "x.y", **more: Any) -> dict[str, Any]:  # noqa: N802
    return {"failWith": {"class": error_class, "code": code, "message": f"a {error_class} failure", **more}}


FAIL = F()


async def _found(q: str) -> str:
    return f"found {q}"


def search(name: str = "search", handler: Any = _found, **options: Any) -> Tool:
    given = {"read_only": True, "description": "Search the index.", "schema": SEARCH, **options}
    return Tool(name=name, handler=handler, **given)


def deps(clock: ManualClock | None = None, seed: str = "test") -> Deps:
    return Deps(clock=clock or ManualClock(), rng=Mulberry32(seed), ids=SequentialIds())


async def play(
    turns: Sequence[Mapping[str, Any]],
    tools: Iterable[Tool] = (),
    *,
    goal: str = "the goal",
    clock: ManualClock | None = None,
    seed: str = "test",
    repeat: bool = False,
    budget: Mapping[str, Any] | None = None,
    retry: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> RunResult:
    clock = clock or ManualClock()
    provider = options.pop("provider", None) or ScriptedProvider(
        turns, on_exhausted="repeat-last" if repeat else "fail", clock=clock
    )
    whole = {"budget": budget or {}, "retry": retry or {}, **(config or {})}
    given = {"deps": deps(clock, seed), **options}
    return await run(goal, provider=provider, tools=tools, config=whole, **given)
