"""A behaviour tree that puts agents to work, tells them what it learns, and is interrupted.

    pip install '.[py-trees]'
    python examples/tree-runner/run.py

The tree: if there is an incident, handle it; otherwise write the report, step by step.

    root (selector)
    ├── urgent (sequence, over when the incident is)
    │   ├── incident?          has somebody reported one?
    │   └── handle incident    a loop
    └── report (sequence)
        ├── research           a loop
        └── write              a loop

Three things happen. A note is piped into the loop that does the research. While the report is
being written an incident is reported: the tree takes the work away from the writer, whose loop
is aborted, has the incident handled, and begins the report anew. At last a tree is run again
and stopped from outside. No model and no network: the agents play a script.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Selector
from py_trees.composites import Sequence as InOrder
from py_trees.decorators import SuccessIsFailure

from adapters.py_trees import TREE_ENDED, TREE_STATUS, AgentLoopBehaviour, TreeRunner
from agentloop import AgentLoop, Frame, FrameBuffer, create_agent_loop, create_default_evaluator_parser

#: Long: the tree is ticked when something in it has ended, so the story is the same every time.
PERIOD_MS = 60_000


class Office:
    """What the agents and the tree share."""

    def __init__(self) -> None:
        self.incident = False
        self.drafts = 0


class Incident(Behaviour):
    """SUCCESS while an incident is open."""

    def __init__(self, office: Office) -> None:
        super().__init__("incident?")
        self._office = office

    def update(self) -> Status:
        self.feedback_message = "yes" if self._office.incident else "no"
        return Status.SUCCESS if self._office.incident else Status.FAILURE


class Worker:
    """A scripted agent: says its lines, one at a time, and may wait to be disturbed."""

    def __init__(self, lines: Sequence[str], *, waits: bool = False) -> None:
        self._lines, self._waits = lines, waits

    async def turn(self, prompt: Sequence[Frame], ctx: Any = None) -> AsyncGenerator[Any, Any]:
        for note in ctx.inbox:
            yield f"noted: {note}"
        for line in self._lines:
            yield line
        if self._waits:
            await anyio.sleep_forever()
        yield {"type": "DONE"}

    def abort(self, reason: str | None = None) -> bool:
        return True


class Judge:
    """A scripted evaluator: content with everything."""

    async def turn(self, prompt: Sequence[Frame], ctx: Any = None) -> AsyncGenerator[Any, Any]:
        yield '{"status": "SUCCESS", "evidence": "good enough"}'
        yield {"type": "DONE"}

    def abort(self, reason: str | None = None) -> bool:
        return True


def loop(worker: Worker) -> AgentLoop:
    return create_agent_loop(
        agent_adapter=worker,
        evaluator_adapter=Judge(),
        build_agent_prompt=lambda ctx: "do your part",
        build_evaluator_prompt=lambda ctx, history: "is it good enough?",
        parse_evaluator_output=create_default_evaluator_parser(),
    )


def grow(office: Office) -> Behaviour:
    def write(_: AgentLoopBehaviour) -> AgentLoop:
        office.drafts += 1
        return loop(Worker([f"draft {office.drafts}"], waits=office.drafts == 1))

    def handle(_: AgentLoopBehaviour) -> AgentLoop:
        return loop(Worker(["restarted the server"]))

    def research(_: AgentLoopBehaviour) -> AgentLoop:
        return loop(Worker(["read three papers"]))

    root: Any = Selector("root", memory=False)
    urgent: Any = InOrder("urgent", memory=True)
    report: Any = InOrder("report", memory=True)
    urgent.add_children([Incident(office), AgentLoopBehaviour("handle incident", handle)])
    report.add_children([AgentLoopBehaviour("research", research), AgentLoopBehaviour("write", write)])
    # An incident that was handled is no reason to stop: the selector goes on to the report.
    root.add_children([SuccessIsFailure("urgent work", urgent), report])
    return root  # type: ignore[no-any-return]


def tell(frame: Frame) -> None:
    """Print what a person wants to know of a frame."""
    content = frame.content
    who = str(frame.meta.get("behaviour", "")).rpartition("/")[2]
    if frame.type == TREE_STATUS:
        print(f"  tree  {content['behaviour']}: {content['previous']} -> {content['status']}")
    elif frame.type == "TEXT" and content["role"] == "agent":
        print(f"  agent {who}: {content['text']}")
    elif frame.type == "ABORT":
        print(f"  stop  {who or 'the tree'}: {content['reason']}")
    elif frame.type == TREE_ENDED:
        print(f"  end   {content['status']} ({content['reason']}) after {content['ticks']} ticks")


async def first_act(office: Office) -> None:
    runner = TreeRunner(grow(office), period_ms=PERIOD_MS)
    notes = FrameBuffer()
    notes.source.pipe(runner.sink, end=False)
    async with anyio.create_task_group() as pipes, runner:
        notes.source.start_pumps(pipes)
        await notes.sink.write({"type": "TICK"})
        async for frame in runner.source:
            tell(frame)
            if frame.type == TREE_STATUS and frame.content["status"] == "RUNNING":
                if frame.content["behaviour"] == "research":
                    await notes.sink.write({"type": "INPUT", "content": {"text": "keep it short"}})
            elif frame.text == "draft 1":
                print("  ----  an incident is reported")
                office.incident = True
                runner.wake()
            elif frame.text == "restarted the server":
                office.incident = False
        notes.sink.end()


async def second_act(office: Office) -> None:
    office.drafts = 0
    runner = TreeRunner(grow(office), period_ms=PERIOD_MS)
    async with runner:
        runner.sink.write_nowait({"type": "TICK"})
        async for frame in runner.source:
            tell(frame)
            if frame.text == "draft 1":
                print("  ----  somebody presses stop")
                runner.abort("stopped by hand")


async def main() -> None:
    office = Office()
    print("The report, with an incident in between:")
    await first_act(office)
    print("The same tree, stopped from outside:")
    await second_act(office)


if __name__ == "__main__":
    anyio.run(main)
