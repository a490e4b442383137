"""What a task knows from earlier runs: shown in its prompts, added to by its agent.

Texts of a memory are data, whoever wrote them; what was shown is told in a CONTEXT frame, so that
the memory learns from the verdict on the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol, runtime_checkable

from agentloop.context.memory import MemoryQuery, MemoryRecord, MemoryStore
from agentloop.frames import CONTEXT, Frame
from agentloop.loop.context import LoopContext
from agentloop.ports import ProjectMemory
from agentloop.signatures import tool
from agentloop.tasks.file import Task
from agentloop.tasks.prompts import agent_prompt, goal_of
from agentloop.tools import Tool

__all__ = ("RememberingProject", "prompt_with_memory", "remember_tool")

#: Memories a prompt shows.
_SHOWN: Final = 8
_DIGEST: Final = 24


@runtime_checkable
class RememberingProject(ProjectMemory, Protocol):
    """A project whose file also keeps memories."""

    def memory(self, *, task: str) -> MemoryStore:
        """Return the memories of a task."""


def prompt_with_memory(task: Task, store: MemoryStore) -> Callable[[LoopContext], Awaitable[list[Frame]]]:
    """Return the builder of the agent's prompts that shows what the store recalls for the goal."""

    async def build(ctx: LoopContext) -> list[Frame]:
        records = await store.recall(MemoryQuery(text=goal_of(task, ctx.node), limit=_SHOWN))
        frames = agent_prompt(task, memories=[_line(record) for record in records])(ctx)
        told = Frame(
            CONTEXT,
            {
                "report": {"memory": store.name, "shown": [record.id for record in records]},
                "retrieval_ids": [record.retrieval_id or record.id for record in records],
            },
        )
        return [told, *frames]

    return build


def _line(record: MemoryRecord) -> str:
    by = f"{record.trust}, {record.source}" if record.source else record.trust
    return f"({record.kind}, by {by}) {record.text}"


def remember_tool(store: MemoryStore) -> Tool:
    """Return the tool by which the agent keeps what later runs should know."""

    @tool
    async def remember(text: str, kind: Literal["fact", "episode"] = "fact") -> str:
        """Keep something that later runs should know.

        Args:
            text: What to remember, in one or two sentences.
            kind: What is so, or what happened.
        """
        # What is said again is the same memory, and more present for it.
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
        kept = await store.remember(MemoryRecord(id=f"said:{digest}", text=text, kind=kind))
        return f"remembered as {kept.id}"

    return remember
