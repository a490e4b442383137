"""A task put together and run, without the command."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import TaskError
from agentloop.frames import Frame
from agentloop.ledger import RunLedger
from agentloop.messages import LoopResult, NodeStatus
from agentloop.tasks import TaskRun, begin_task, load_task, open_memory
from graphstate import Adaptogen
from tests.agentloop.cli.command import SHELL, WORKS, call, say, write_task

pytestmark = pytest.mark.anyio


async def play(
    folder: Path, environ: Mapping[str, str] | None = None, **options: Any
) -> tuple[TaskRun, LoopResult, list[Frame]]:
    """Run a task to its end; return the run, its result and its frames."""
    run = begin_task(load_task(folder), environ=environ, **options)
    try:
        frames = []
        async with run.loop as loop:
            await loop.sink.write({"type": "TICK"})
            async for frame in loop.source:
                frames.append(frame)
        await run.aclose()
    finally:
        run.close()
    assert run.loop.result is not None
    return run, run.loop.result, frames


def edit(task: Path, old: str, new: str) -> None:
    text = (task / "task.toml").read_text("utf-8")
    assert old in text
    (task / "task.toml").write_text(text.replace(old, new), "utf-8")


def results(frames: Sequence[Frame]) -> list[Mapping[str, Any]]:
    return [frame.content for frame in frames if frame.type == "TOOL_RESULT"]


# ------------------------------------------------------------------------------- workspaces


async def test_the_workspace_is_a_copy_without_caches_and_with_links(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    edit(task, "[task]\n", '[task]\nworkspace = "work"\n')
    for name in ("a/b.txt", "__pycache__/x.pyc", ".pytest_cache/y", ".agentloop/z", ".git/config"):
        (task / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (task / "work" / name).write_text(name, "utf-8")
    (task / "work" / "link").symlink_to("a/b.txt")

    run, result, _ = await play(task)

    assert run.succeeded(result)
    assert run.workspace == task / ".agentloop" / "runs" / run.run_id / "workspace"
    found = sorted(str(path.relative_to(run.workspace)) for path in run.workspace.rglob("*"))
    assert found == [".git", ".git/config", "a", "a/b.txt", "done.txt", "link"]
    assert (run.workspace / "link").is_symlink()
    assert not (task / "work" / "done.txt").exists()


async def test_a_workspace_that_cannot_be_copied_leaves_no_half_of_it(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    edit(task, "[task]\n", '[task]\nworkspace = "work"\n')
    (task / "work").mkdir()
    (task / "work" / "a.txt").touch()
    os.mkfifo(task / "work" / "pipe")  # nobody can copy it

    with pytest.raises(TaskError, match=r"the workspace cannot be copied to .*pipe"):
        begin_task(load_task(task))

    assert list((task / ".agentloop" / "runs").iterdir()) == []


# ------------------------------------------------------------------------------ environment


async def test_commands_find_this_python_first(tmp_path: Path) -> None:
    print_python = call("shell", command="python3 -c 'import sys; print(sys.prefix)'")
    task = write_task(tmp_path, (print_python, *WORKS), more=SHELL)
    other = tmp_path / "other"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\necho another\n", "utf-8")
    (other / "python3").chmod(0o755)

    _, _, frames = await play(task, {"PATH": f"{other}{os.pathsep}/usr/bin{os.pathsep}/bin"})

    assert results(frames)[0]["stdout"] == f"{sys.prefix}\n"


async def test_a_path_that_leads_to_this_python_is_left_as_it_is(tmp_path: Path) -> None:
    task = write_task(tmp_path, (call("shell", command='echo "$PATH"'), *WORKS), more=SHELL)
    path = f"/nowhere{os.pathsep}{os.path.dirname(sys.executable)}{os.pathsep}/bin"
    assert os.path.dirname(shutil.which("python3", path=path) or "") == os.path.dirname(sys.executable)

    _, _, frames = await play(task, {"PATH": path})

    assert results(frames)[0]["stdout"] == f"{path}\n"


async def test_secrets_of_the_environment_stay_out_of_everything(tmp_path: Path) -> None:
    secret = "canary-7d1f0b2c9e"
    turns = (call("fs__write", path="done.txt", content=f"<{secret}>"), say(f"I saw {secret}."))
    task = write_task(tmp_path, turns)

    _, result, frames = await play(task, {**os.environ, "SOME_TOKEN": secret})

    assert secret not in result.agent_text
    assert all(secret not in repr(frame.to_dict()) for frame in frames)
    kept = (task / ".agentloop" / "state.db").read_bytes()
    assert secret.encode() not in kept


# ------------------------------------------------------------------------------------- nodes

NODES = """
order = "{order}"
[limits]
inner_max_iterations = 2
[[nodes]]
id = "second"
after = ["first"]
checks = ["file_exists:done.txt"]
[[nodes]]
id = "first"
goal = "begin"
checks = ["file_exists:begun.txt"]
"""


def node_task(folder: Path, turns: Sequence[Mapping[str, Any]], *, order: str = "listed") -> Path:
    nodes = NODES.format(order=order)
    head, _, tables = nodes.partition("[limits]")
    task = write_task(folder, turns, more=f"[limits]{tables}")
    text = (task / "task.toml").read_text("utf-8")
    (task / "task.toml").write_text(head + text, "utf-8")
    return task


@pytest.mark.parametrize("order", ["listed", "graph"])
async def test_nodes_come_after_what_they_wait_for_and_all_have_to_succeed(
    tmp_path: Path, order: str
) -> None:
    begin = call("fs__write", path="begun.txt", content="")
    turns = ({**begin, "usage": {"input_tokens": 3}}, say("Begun."), say("Not yet."), *WORKS)
    chosen: list[str] = []

    run, result, _ = await play(
        node_task(tmp_path, turns, order=order), on_node=lambda name, why: chosen.append(name)
    )

    assert run.succeeded(result)
    assert chosen == ["first", "second"]
    assert (run.cycles(), run.usage()) == (3, {"input_tokens": 3})


async def test_a_task_fails_when_one_of_its_nodes_never_succeeds(tmp_path: Path) -> None:
    begin = call("fs__write", path="begun.txt", content="")
    task = node_task(tmp_path, (begin, say("Begun."), *(say("Not yet.") for _ in range(20))))

    run, result, _ = await play(task)

    assert not run.succeeded(result)
    assert run.cycles() == 15  # 1 for the first node, 7 inner loops of 2 for the other


async def test_a_node_without_checks_has_those_of_the_task(tmp_path: Path) -> None:
    task = node_task(tmp_path, (say("Nothing."), *WORKS, say("Already there.")))
    edit(task, 'checks = ["file_exists:begun.txt"]\n', "")

    run, result, frames = await play(task)

    assert run.succeeded(result)
    assert frames[-1].content["evidence"] == "PASS file_exists:done.txt"


async def test_nodes_end_with_an_error_that_would_meet_all_of_them(tmp_path: Path) -> None:
    refused = {"failWith": {"class": "fatal", "code": "auth.invalid_key", "message": "the key was refused"}}

    run, result, _ = await play(node_task(tmp_path, (refused, *WORKS)))

    assert not run.succeeded(result)
    assert (result.reason, run.cycles()) == ("error", 1)


async def test_nodes_go_on_after_an_error_that_may_pass(tmp_path: Path) -> None:
    broken = {"failWith": {"class": "transient", "code": "model.stream_broken", "message": "broke off"}}
    begin = call("fs__write", path="begun.txt", content="")

    run, result, _ = await play(node_task(tmp_path, (broken, begin, say("Begun."), *WORKS)))

    assert run.succeeded(result)
    assert run.cycles() == 3


# -------------------------------------------------------------------------------------- rest


async def test_a_fact_that_was_declared_for_somebody_else_is_refused(tmp_path: Path) -> None:
    verdict = '{"status": "SUCCESS", "symbolicUpdates": [{"name": "mine", "value": 2}, {"name": "yours", "value": 3}]}'
    more = '[symbolics]\ninitial = { mine = 1, yours = 1 }\ndeclared = { mine = "evaluator", yours = "developer" }\n'
    task = write_task(tmp_path, (say("."),), checks=(), evaluator=(say(verdict),), more=more)

    _, result, _ = await play(task)

    assert result.symbolics == {"mine": 2, "yours": 1}


async def test_an_agent_written_beside_the_task_is_told_everything(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from agentloop import Frame\n"
        "def make(options, context):\n"
        "    assert options == {'a': 1} and context.base.name and not context.workspace.exists()\n"
        "    async def turn(prompt, ctx):\n"
        "        result = yield Frame('TOOL_CALL', {'name': 'fs__write', 'arguments':\n"
        "            {'path': 'done.txt', 'content': prompt[-1].text}})\n"
        "        yield Frame('TEXT', {'text': result.content['output']})\n"
        "    return turn\n",
        "utf-8",
    )
    task = write_task(tmp_path, (), goal="say so")
    edit(task, 'scripted = "agent.json"', 'adapter = "python:mine:make"\noptions = { a = 1 }')

    run, result, _ = await play(task)

    assert run.succeeded(result)
    assert result.agent_text == "wrote 12 bytes to done.txt"
    assert (run.workspace / "done.txt").read_text("utf-8") == "Goal: say so"


async def test_the_agent_is_told_why_it_has_to_try_again(tmp_path: Path) -> None:
    task = write_task(tmp_path, (say("I did nothing."), *WORKS), goal="work")
    edit(task, "[agent]\n", '[agent]\ninstructions = "Be careful."\n')

    run, _, _ = await play(task)

    adapter: Any = run.adapters[0]
    first, second = adapter.prompts
    assert [(frame.content["role"], frame.text) for frame in first] == [
        ("system", "Be careful."),
        ("user", "Goal: work"),
    ]
    assert second[1].text == (
        "Goal: work\n\nThe last attempt was not good enough:\nFAIL file_exists:done.txt: does not exist\n\n"
        "What was tried so far:\nCycle 1: I did nothing."
    )


async def test_the_evaluator_is_shown_what_was_done_and_what_was_checked(tmp_path: Path) -> None:
    verdict = '{"status": "SUCCESS", "evidence": "fine"}'
    turns = (call("fs__write", path="a.txt", content="x"), say("There it is."))
    task = write_task(
        tmp_path, turns, goal="work", evaluator=(say(verdict),), more="[limits]\nmax_retries = 0\n"
    )

    run, _, _ = await play(task)

    adapter: Any = run.adapters[1]
    ((prompt,),) = adapter.prompts
    for part in (
        "Goal: work",
        "The agent says:\nThere it is.",
        "Tool fs__write: ok\nwrote 1 bytes to a.txt",
        "Checks:\nFAIL file_exists:done.txt: does not exist",
        'Answer with one JSON object and nothing else: {"status": "SUCCESS" | "RUNNING" | "FAILURE"',
    ):
        assert part in prompt.text


async def test_the_memory_can_be_read_while_a_run_writes_it(tmp_path: Path) -> None:
    run = begin_task(load_task(write_task(tmp_path, WORKS)))
    seen: list[int] = []
    try:
        async with run.loop as loop:
            await loop.sink.write({"type": "TICK"})
            async for _ in loop.source:
                reader = open_memory(run.task.state, read_only=True)
                seen.append(sum(summary.entries for summary in reader.ledger.runs()))
                reader.close()
    finally:
        run.close()

    assert seen == sorted(seen)
    assert seen[-1] > 0


# ------------------------------------------------------------------------------- memory

MEMORY = "[graph]\nmemory = true\n"


def asked(task: Path, run: TaskRun) -> str:
    """Return the first thing the agent was asked in a run, as it is on record."""
    memory = open_memory(load_task(task).state, read_only=True)
    try:
        entries = RunLedger(memory.ledger, run.run_id).entries()
        return str(next(entry.data for entry in entries if entry.kind == "fact.prompt"))
    finally:
        memory.close()


async def test_what_an_agent_remembers_is_shown_to_the_next_run(tmp_path: Path) -> None:
    task = write_task(tmp_path, (call("remember", text="do it with the copper kettle"), *WORKS), more=MEMORY)
    first, result, frames = await play(task)
    assert result.status is NodeStatus.SUCCESS
    assert [answer["ok"] for answer in results(frames)] == [True, True]
    second, again, _ = await play(task)
    assert again.status is NodeStatus.SUCCESS
    assert "copper kettle" not in asked(task, first)
    assert "(fact, by model) do it with the copper kettle" in asked(task, second)
    with Adaptogen.open(load_task(task).state, seed=False, read_only=True) as graph:
        (kettle,) = graph.recall(text="kettle", kind="semantic")
        state = graph.activation(kettle.id)
        assert state is not None
        assert state.useful == 1


async def test_without_memory_there_is_no_tool_for_it(tmp_path: Path) -> None:
    task = write_task(tmp_path, (call("remember", text="x"), *WORKS))
    _, result, frames = await play(task)
    assert result.status is NodeStatus.SUCCESS
    assert [answer["ok"] for answer in results(frames)] == [False, True]
