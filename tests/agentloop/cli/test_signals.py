"""Runs that are stopped from outside: by a signal, by a kill, by a reader that leaves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agentloop.cli.command import (
    PROGRAM,
    SHELL,
    TIMEOUT,
    WORKS,
    Children,
    agentloop,
    assert_sound,
    call,
    ends,
    environment,
    json_lines,
    running,
    runs_of,
    say,
    state_of,
    write_task,
)


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    watched = Children(tmp_path)
    yield watched
    watched.close()


def hanging_tool(folder: Path, children: Children) -> Path:
    """Return a task whose agent runs a command that never ends."""
    turns = (say("I begin."), call("shell", command=children.hang()), say("Never said."))
    return write_task(folder / "task", turns[1:], more=SHELL)


def hanging_agent(folder: Path, children: Children) -> Path:
    """Return a task whose agent is a command that never ends, and does not listen to SIGTERM."""
    task = folder / "task"
    task.mkdir()
    agent = task / "agent.sh"
    agent.write_text(f"#!/bin/sh\ntrap '' TERM\n{children.hang()}\n", "utf-8")
    agent.chmod(0o755)
    (task / "task.toml").write_text(
        'checks = ["file_exists:done.txt"]\n[task]\ngoal = "x"\n[agent]\nadapter = "command"\n'
        'options = { argv = ["./agent.sh"], grace_ms = 60000 }\n[limits]\ncleanup_timeout_ms = 1000\n',
        "utf-8",
    )
    return task


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_as_aborted(
    tmp_path: Path, children: Children, signum: signal.Signals, code: int
) -> None:
    task = hanging_tool(tmp_path, children)
    with running("run", task, "--json", cwd=tmp_path) as process:
        children.wait()
        process.send_signal(signum)
        ended, out, err = ends(process)

    frames = json_lines(out)
    assert (ended, err) == (code, "stopping; once more to kill what still runs\n")
    assert [frame["type"] for frame in frames[-3:]] == ["agent_loop:tree_failed", "ABORT", "result"]
    assert frames[-2]["content"] == {"reason": "interrupted"}
    assert (frames[-1]["content"]["status"], frames[-1]["content"]["reason"]) == ("FAILURE", "aborted")
    children.assert_gone()
    assert [(run["status"], run["reason"]) for run in runs_of(task)] == [("FAILURE", "aborted")]
    assert (task / ".agentloop" / "runs" / frames[0]["content"]["run"] / "workspace").is_dir()
    assert_sound(task)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_the_run_leaves_nothing_begun(
    tmp_path: Path, children: Children, signum: signal.Signals, code: int
) -> None:
    task = write_task(tmp_path / "task", ())
    (task / "slow.py").write_text(
        # Closed by a statement: an exception raised while an object is finalized is swallowed.
        f"import os, time\nwith open({str(children.path)!r}, 'w') as out:\n    out.write(str(os.getpid()))\n"
        "time.sleep(600)\n",
        "utf-8",
    )
    text = (task / "task.toml").read_text("utf-8")
    (task / "task.toml").write_text(
        text.replace('scripted = "agent.json"', 'adapter = "python:slow:make"'), "utf-8"
    )
    with running("run", task, cwd=tmp_path) as process:
        assert children.wait() == process.pid
        process.send_signal(signum)
        assert ends(process) == (code, "", "")

    assert not (task / ".agentloop").exists()


def test_a_second_signal_kills_what_does_not_listen(tmp_path: Path, children: Children) -> None:
    task = hanging_agent(tmp_path, children)
    with running("run", task, "--json", cwd=tmp_path) as process:
        children.wait()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline() == "stopping; once more to kill what still runs\n"
        process.send_signal(signal.SIGINT)
        code, out, err = ends(process)

    assert (code, err) == (130, "")
    assert json_lines(out)[-1]["content"]["reason"] == "aborted"
    children.assert_gone()
    assert [run["reason"] for run in runs_of(task)] == ["aborted"]
    assert_sound(task)


def test_a_killed_run_is_not_ended_and_replays_to_its_last_entry(tmp_path: Path, children: Children) -> None:
    turns = (*WORKS[:1], call("shell", command=children.hang()))
    task = write_task(tmp_path / "task", turns, more=SHELL)
    with running("run", task, cwd=tmp_path) as process:
        pid = children.wait()
        process.send_signal(signal.SIGKILL)
        assert ends(process)[0] == -signal.SIGKILL
    os.killpg(pid, signal.SIGKILL)  # nobody is left who could end the child

    listed = agentloop("runs", cwd=task)
    shown = agentloop("show", cwd=task)
    replayed = agentloop("replay", cwd=task)

    assert listed.returncode == shown.returncode == replayed.returncode == 0
    assert " OPEN     task " in listed.stdout
    assert "not ended: it goes on, or was killed" in listed.stdout
    assert "call      fs__write(" in shown.stdout
    assert shown.stdout.splitlines()[-1].startswith("OPEN after 1 cycle (not ended")
    assert "reproduced exactly" in replayed.stdout
    assert "not ended" in replayed.stdout
    assert_sound(task)

    again = agentloop("run", write_task(task, WORKS), cwd=task)
    cleaned = agentloop("runs", "--clean", cwd=task)

    assert again.returncode == 0
    assert [run["status"] for run in runs_of(task)] == ["SUCCESS", "OPEN"]
    assert cleaned.stdout == "removed 1 scratch folder\n"
    left = [path.name for path in (task / ".agentloop" / "runs").iterdir()]
    assert left == [runs_of(task)[1]["run"]]


# ---------------------------------------------------------------------------------- readers


def test_a_reader_that_leaves_ends_the_run_quietly(tmp_path: Path, children: Children) -> None:
    turns = [call("fs__write", path=f"{n}.txt", content="x") for n in range(20)]
    task = write_task(tmp_path / "task", [*turns, say("Done.")], checks=("file_exists:19.txt",))
    words = [*PROGRAM, "run", str(task)]
    with subprocess.Popen(
        words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("run ")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(TIMEOUT) == 1

    assert [(run["status"], run["reason"]) for run in runs_of(task)] == [("FAILURE", "aborted")]
    assert_sound(task)


def test_a_reader_of_a_list_may_leave(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    assert agentloop("run", task, cwd=task).returncode == 0
    read, write = os.pipe()
    os.close(read)
    try:
        for words in (
            ("runs",),
            ("show",),
            ("show", "--entries"),
            ("replay",),
            ("--help",),
            ("run", "--help"),
        ):
            done = agentloop(*words, cwd=task, stdout=write)
            assert (done.returncode, done.stderr) == (1, ""), words
    finally:
        os.close(write)


def test_a_full_disk_behind_the_output_is_told(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    assert agentloop("run", task, cwd=task).returncode == 0
    with open("/dev/full", "wb") as full:
        for words in (("runs",), ("show",), ("replay",), ("--help",), ("--version",), ("run", str(task))):
            done = agentloop(*words, cwd=task, stdout=full)
            assert done.returncode == 1, words
            assert done.stderr == "agentloop: No space left on device\n", words

    assert [run["reason"] for run in runs_of(task)] == ["aborted", "checks"]
    assert_sound(task)


def test_without_any_output_the_run_still_happens(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    done = subprocess.run(
        f'"{PROGRAM[0]}" -m agentloop.cli run . >&-',
        shell=True,
        cwd=task,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert state_of(task).is_file()
    assert_sound(task)
