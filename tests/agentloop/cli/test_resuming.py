"""``agentloop resume`` and ``fork``: runs that are really killed, and go on in another process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from adapters.graph.project import open_project
from agentloop.ledger import RunLedger
from tests.agentloop.cli.command import (
    SHELL,
    agentloop,
    assert_sound,
    call,
    json_lines,
    runs_of,
    say,
    state_of,
    write_task,
)

#: Each command leaves a mark each time it runs; one kills the whole program while it runs.
COUNT = "echo {} >> ../../../../marks.txt"
KILL = " ; kill -9 $PPID; sleep 5"


def marks(folder: Path) -> list[str]:
    path = folder / "task" / "marks.txt"
    return path.read_text("utf-8").split() if path.exists() else []


def a_run_that_is_killed(folder: Path, *, during: str) -> tuple[Path, str]:
    """Make a task of three turns that kills itself during one of its commands; run it."""
    steps = ["one", "two", "three"]
    turns: list[dict[str, Any]] = []
    for step in steps:
        command = COUNT.format(step) + (KILL if step == during else "")
        turns += [call("shell", command=command), say(f"Did {step}.")]
    turns[-2]["callTools"].append({"name": "fs__write", "args": {"path": "done.txt", "content": "x"}})
    task = write_task(folder / "task", turns, more=SHELL)
    died = agentloop("run", task, cwd=folder)
    assert died.returncode == -9, died
    assert marks(folder) == steps[: steps.index(during) + 1]
    (run,) = runs_of(task)
    assert run["status"] == "OPEN"
    return task, run["run"]


@pytest.mark.parametrize("during", ["one", "two", "three"])
def test_a_killed_run_goes_on_and_repeats_nothing(tmp_path: Path, during: str) -> None:
    task, run = a_run_that_is_killed(tmp_path, during=during)
    done = agentloop("resume", run[:12], "--db", state_of(task), "--json", cwd=tmp_path)
    assert done.returncode == 0, done
    assert marks(tmp_path) == ["one", "two", "three"]  # not once more what nobody knows about
    end = json_lines(done.stdout)[-1]["content"]
    assert end["run"] == run
    assert end["status"] == "SUCCESS"
    assert any("not known" in warning for warning in end["warnings"])
    (now,) = runs_of(task)
    assert (now["run"], now["status"]) == (run, "SUCCESS")
    assert_sound(task)
    memory = open_project(state_of(task), read_only=True)
    try:
        kinds = [entry.kind for entry in RunLedger(memory.ledger, run).entries()]
    finally:
        memory.close()
    assert kinds.count("fact.resumed") == 1
    assert kinds.count("run.opened") == kinds.count("run.closed") == 1
    again = agentloop("resume", run, "--db", state_of(task), cwd=tmp_path)
    assert again.returncode == 2
    assert "has ended" in again.stderr
    assert_sound(task)


def test_a_project_that_was_moved_resumes_there(tmp_path: Path) -> None:
    task, _ = a_run_that_is_killed(tmp_path, during="two")
    there = tmp_path / "elsewhere"
    shutil.move(task, there / "task")
    done = agentloop("resume", cwd=there / "task")
    assert done.returncode == 0, done
    assert marks(there) == ["one", "two", "three"]
    assert_sound(there / "task")


def test_a_run_without_its_workspace_or_task_says_what_is_missing(tmp_path: Path) -> None:
    task, run = a_run_that_is_killed(tmp_path, during="two")
    workspace = state_of(task).parent / "runs" / run / "workspace"
    moved = tmp_path / "kept"
    shutil.move(workspace, moved)
    lost = agentloop("resume", run, "--db", state_of(task), cwd=tmp_path)
    assert (lost.returncode, lost.stdout) == (2, "")
    assert "--workspace" in lost.stderr
    (task / "task.toml").rename(task / "other.toml")
    lost = agentloop("resume", run, "--db", state_of(task), "--workspace", moved, cwd=tmp_path)
    assert lost.returncode == 2
    assert "task.toml" in lost.stderr
    (run_before,) = runs_of(task)
    assert run_before["status"] == "OPEN"
    done = agentloop(
        "resume",
        run,
        "--db",
        state_of(task),
        "--workspace",
        moved,
        "--task",
        task / "other.toml",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done
    assert (moved / "done.txt").exists()


def test_a_fork_goes_another_way_in_a_copy_of_the_workspace(tmp_path: Path) -> None:
    turns = [
        call("fs__write", path="one.txt", content="1"), say("Wrote one."),
        call("fs__write", path="two.txt", content="2"), say("Wrote two."),
    ]  # fmt: skip
    task = write_task(tmp_path / "task", turns, more="[limits]\nmax_iterations = 2\n")
    failed = agentloop("run", task, cwd=tmp_path)
    assert failed.returncode == 1, failed
    (first,) = runs_of(task)
    shown = agentloop("show", first["run"], "--entries", "--json", "--db", state_of(task), cwd=tmp_path)
    ended = [entry["seq"] for entry in json_lines(shown.stdout) if entry["kind"] == "fact.turn_ended"]
    write_task(
        tmp_path / "task",
        [*turns, call("fs__write", path="done.txt", content="3"), say("Wrote it.")],
        more="[limits]\nmax_iterations = 2\n",
    )
    at = str(ended[1])
    forked = agentloop(
        "fork",
        first["run"],
        "--at",
        at,
        "--set",
        "limits.max_iterations=3",
        "--db",
        state_of(task),
        cwd=tmp_path,
    )
    assert forked.returncode == 0, forked
    newest, oldest = runs_of(task)
    assert (oldest["run"], oldest["status"]) == (first["run"], "FAILURE")
    assert (newest["status"], newest["iterations"]) == ("SUCCESS", 3)
    folders = state_of(task).parent / "runs"
    assert sorted(p.name for p in (folders / newest["run"] / "workspace").iterdir()) == [
        "done.txt", "one.txt", "two.txt",
    ]  # fmt: skip
    assert sorted(p.name for p in (folders / oldest["run"] / "workspace").iterdir()) == ["one.txt", "two.txt"]
    assert_sound(task)


@pytest.mark.parametrize("at", ["0", "-1", "x", "100000"])
def test_a_fork_at_no_entry_changes_nothing(tmp_path: Path, at: str) -> None:
    task = write_task(tmp_path / "task", [call("fs__write", path="done.txt", content="1"), say("Done.")])
    assert agentloop("run", task, cwd=tmp_path).returncode == 0
    (run,) = runs_of(task)
    refused = agentloop("fork", run["run"], f"--at={at}", "--db", state_of(task), cwd=tmp_path)
    assert refused.returncode == 2, refused
    assert len(refused.stderr.splitlines()) <= 2
    assert len(runs_of(task)) == 1
    assert [path.name for path in (state_of(task).parent / "runs").iterdir()] == [run["run"]]


def test_a_killed_run_over_nodes_goes_on_with_the_others(tmp_path: Path) -> None:
    turns = [
        call("shell", command=COUNT.format("a") + " ; touch a.txt"), say("a"),
        call("shell", command=COUNT.format("b") + KILL), say("b"),
        call("shell", command=COUNT.format("b2") + " ; touch b.txt"), say("b again"),
        call("shell", command=COUNT.format("c") + " ; touch c.txt"), say("c"),
    ]  # fmt: skip
    nodes = "".join(
        f'\n[[nodes]]\nid = "{name}"\ngoal = "{name}"\nchecks = ["file_exists:{name}.txt"]\n'
        for name in "abc"
    )
    task = write_task(tmp_path / "task", turns, checks=(), more=SHELL + nodes)
    died = agentloop("run", task, "--set", "order=listed", cwd=tmp_path)
    assert died.returncode == -9, died
    assert marks(tmp_path) == ["a", "b"]
    done = agentloop("resume", "--json", cwd=task)
    assert done.returncode == 0, done
    assert marks(tmp_path) == ["a", "b", "b2", "c"]
    assert_sound(task)
