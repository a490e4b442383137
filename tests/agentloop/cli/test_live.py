"""The view for people at a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agentloop.cli.command import SHELL, WORKS, Children, agentloop, call, runs_of, say, write_task
from tests.agentloop.cli.terminal import on_a_terminal

SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    watched = Children(tmp_path)
    yield watched
    watched.close()


def lines(out: bytes) -> list[str]:
    """Return the lines that stay: without colours, and without those that were wiped again."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.decode())
    last = [
        part.rsplit("\x1b[2K", 1)[-1].rsplit("\r", 1)[-1] for part in text.replace("\r\n", "\n").split("\n")
    ]
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part) for part in last]


def test_a_terminal_shows_the_same_lines_as_a_pipe_in_colour(tmp_path: Path) -> None:
    task = write_task(tmp_path, (say("Not yet."), *WORKS))

    code, out = on_a_terminal("run", ".", cwd=task)
    plain = agentloop("run", ".", cwd=task).stdout

    assert code == 0
    assert b"\x1b[1;32m" in out
    shown = lines(out)
    for line in plain.splitlines()[3:-3]:
        assert line.replace("taken 2x", "taken 1x").split(", average")[0] in "\n".join(shown), line
    assert out.rindex(SHOW_CURSOR) > out.rindex(HIDE_CURSOR)


def test_a_narrow_terminal_is_enough(tmp_path: Path) -> None:
    code, out = on_a_terminal("run", ".", cwd=write_task(tmp_path, WORKS), columns=20)

    assert code == 0
    assert "SUCCESS after 1 cycle" in "\n".join(lines(out))


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_the_run_and_gives_the_terminal_back(
    tmp_path: Path, children: Children, times: int
) -> None:
    task = write_task(tmp_path / "task", (call("shell", command=children.hang()), say(".")), more=SHELL)
    typed: list[bytes] = []

    def type_now(out: bytes) -> bytes | None:
        if not typed and b"shell runs" in out:
            children.wait()
            typed.append(b"\x03" * times)
            return typed[-1]
        return None

    code, out = on_a_terminal("run", ".", cwd=task, typed=type_now)

    assert typed
    assert code == 130
    assert "stopping; once more to kill what still runs" in "\n".join(lines(out))
    assert "FAILURE after 1 cycle (aborted)" in "\n".join(lines(out))
    assert out.rindex(SHOW_CURSOR) > out.rindex(HIDE_CURSOR)
    children.assert_gone()
    assert [run["reason"] for run in runs_of(task)] == ["aborted"]


def test_what_is_said_is_seen_while_it_is_being_said(tmp_path: Path) -> None:
    task = write_task(tmp_path, ({"say": "I think about it.", **WORKS[0]}, WORKS[1]))

    _, out = on_a_terminal("run", ".", cwd=task)

    assert b"cycle 1: agent I think about it." in out
