"""Words and flags: what the command understands, and what it says of what it does not."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from agentloop.cli.program import COMMANDS
from tests.agentloop.cli.command import PROGRAM, WORKS, agentloop, environment, state_of, write_task

NAMES = [command.name for command in COMMANDS]


def test_help_lists_every_command(tmp_path: Path) -> None:
    done = agentloop("--help", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    for command in COMMANDS:
        assert f"{command.name} " in done.stdout
        assert command.help in done.stdout


def test_without_words_the_help_is_shown(tmp_path: Path) -> None:
    assert agentloop(cwd=tmp_path).stdout == agentloop("--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help(tmp_path: Path, name: str) -> None:
    done = agentloop(name, "--help", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: agentloop {name} ")
    assert "--debug" in done.stdout


def test_the_version_is_printed(tmp_path: Path) -> None:
    done = agentloop("--version", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("agentloop 0.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rum"], "agentloop: no command 'rum': did you mean 'run'?"),
        (["xyzzy"], "agentloop: no command 'xyzzy': there are run, new, runs, show, replay"),
        (["--versoin"], "agentloop: unrecognized arguments: --versoin"),
        (["run"], "agentloop run: the following arguments are required: task"),
        (["run", "a", "b"], "unrecognized arguments: b"),
        (["run", "a", "--jsno"], "unrecognized arguments: --jsno"),
        (["run", "a", "--js"], "unrecognized arguments: --js"),
        (["run", "a", "--set"], "agentloop run: argument --set: expected one argument"),
        (["runs", "--limit", "many"], "argument --limit: invalid number of at least 1 value: 'many'"),
        (["runs", "--limit", "0"], "argument --limit: invalid number of at least 1 value: '0'"),
        (["show", "a", "b"], "unrecognized arguments: b"),
        (["new"], "agentloop new: the following arguments are required: name"),
        (["new", "a b"], "'a b' cannot name a task: use letters, digits, '.', '_' and '-'"),
        (["new", "-x"], "the following arguments are required: name"),
        (["new", "--", "-x"], "'-x' cannot name a task"),
        (["run", "nowhere"], "nowhere: No such file or directory (a task is a folder with a task.toml"),
        (["runs"], "no .agentloop/state.db here or above: run a task first, or name the file with --db"),
        (["show"], "no .agentloop/state.db here or above"),
        (["replay", "x"], "no .agentloop/state.db here or above"),
        (["runs", "--db", "nowhere.db"], "there is no file 'nowhere.db': 'agentloop run TASK' makes one"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_word_is_told_in_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    done = agentloop(*words, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_are_no_text_are_a_usage_error(tmp_path: Path) -> None:
    for words in ([b"\xff\xfe"], [b"run", b"\xff"], [b"runs", b"--db", b"\xff"], [b"new", b"\xff"]):
        done = subprocess.run(
            [*map(os.fsencode, PROGRAM), *words],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.count(b"\n") == 1
        done.stderr.decode()
    assert list(tmp_path.iterdir()) == []


def test_new_makes_a_task_that_runs_at_once(tmp_path: Path) -> None:
    made = agentloop("new", "hello", cwd=tmp_path)
    done = agentloop("run", "hello", cwd=tmp_path)

    assert (made.returncode, made.stderr) == (0, "")
    assert "agentloop run hello" in made.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert "SUCCESS after 2 cycles (checks)" in done.stdout


def test_new_leaves_what_is_there_alone(tmp_path: Path) -> None:
    (tmp_path / "hello").mkdir()

    done = agentloop("new", "hello", cwd=tmp_path)

    assert done.returncode == 2
    assert "hello exists already: choose another name" in done.stderr
    assert list((tmp_path / "hello").iterdir()) == []


def test_new_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = agentloop("new", "file/hello", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert "Not a directory" in done.stderr


def test_what_is_unexpected_is_one_line_unless_debug_is_given(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def make(options, context):\n    return 1 / 0\n", "utf-8")
    task = write_task(tmp_path, ())
    text = (
        (task / "task.toml")
        .read_text("utf-8")
        .replace('scripted = "agent.json"', 'adapter = "python:broken:make"')
    )
    (task / "task.toml").write_text(text, "utf-8")

    done = agentloop("run", task, cwd=tmp_path)
    debugged = agentloop("run", task, "--debug", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "ZeroDivisionError: division by zero (--debug shows where it came from)" in done.stderr
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr
    assert not (task / ".agentloop").exists()


def test_db_keeps_the_runs_elsewhere(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", WORKS)

    done = agentloop("run", "task", "--db", "else/where.db", cwd=tmp_path)

    assert done.returncode == 0
    assert (tmp_path / "else" / "where.db").is_file()
    assert not state_of(task).exists()
    assert agentloop("replay", "--db", "else/where.db", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("where", ["beside", "inside"])
def test_the_commands_to_go_on_with_work_as_they_are_printed(tmp_path: Path, where: str) -> None:
    task = write_task(tmp_path / "a task", WORKS)
    folder = tmp_path if where == "beside" else task

    done = agentloop("run", task, cwd=folder)

    assert done.returncode == 0, done.stderr
    lines = done.stdout[done.stdout.index("\ngo on ") :].replace("go on", "").split("\n")[1:-1]
    assert [line.split()[:2] for line in lines] == [
        ["agentloop", "show"],
        ["agentloop", "replay"],
        ["adaptogen", "status"],
    ]
    for line in lines:
        assert ("--db" in line) == (where == "beside")
        program, rest = line.split(None, 1)
        module = {"agentloop": "agentloop.cli", "adaptogen": "graphstate.cli"}[program]
        words = [PROGRAM[0], "-m", module, *shlex.split(rest)]
        shown = subprocess.run(
            words, cwd=folder, env=environment(), capture_output=True, timeout=30, check=False
        )
        assert shown.returncode == 0, (line, shown.stderr)
