"""Files that cannot be used as a project's memory: what is said, and that nothing was changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agentloop.cli.command import WORKS, agentloop, assert_sound, runs_of, say, state_of, write_task


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()


def text(path: Path) -> None:
    path.write_text("these are my notes\n" * 100, "utf-8")


def newer(path: Path) -> None:
    task = write_task(path.parent / "older", WORKS)
    assert agentloop("run", task, "--db", path, cwd=path.parent).returncode == 0
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def contents(folder: Path) -> dict[Path, bytes]:
    # Without SQLite's own working files, which a reader may leave and the next writer removes.
    paths = [path for path in folder.rglob("*") if not path.name.endswith(("-shm", "-wal"))]
    return {path: path.read_bytes() if path.is_file() else b"" for path in paths}


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "foreign": (foreign, "is a SQLite database of another program"),
    "text": (text, "is not a SQLite database; it was left as it is"),
    "newer": (newer, "99"),
    "directory": (Path.mkdir, ""),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_file_that_is_not_ours_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    make, message = UNUSABLE[kind]
    database = tmp_path / "kept" / "data.db"
    database.parent.mkdir()
    make(database)
    before = contents(database.parent)
    task = write_task(tmp_path / "task", WORKS)

    for words in (("run", task), ("runs",)):
        done = agentloop(*words, "--db", database, cwd=tmp_path)

        assert (done.returncode, done.stdout) == (2, ""), words
        assert done.stderr.count("\n") == 1
        assert "data.db" in done.stderr
        assert message in done.stderr
    assert contents(database.parent) == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", WORKS)
    (tmp_path / "file").touch()

    done = agentloop("run", task, "--db", "file/state.db", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "Not a directory" in done.stderr or "File exists" in done.stderr


def overwrite(database: Path, marker: bytes, replacement: bytes) -> None:
    data = database.read_bytes()
    assert marker in data
    assert len(marker) == len(replacement)
    database.write_bytes(data.replace(marker, replacement))


def test_a_changed_entry_is_named_and_nothing_of_the_run_is_believed(tmp_path: Path) -> None:
    task = write_task(tmp_path, (say("the original words"),), checks=("file_missing:x",))
    assert agentloop("run", task, cwd=task).returncode == 0
    run = runs_of(task)[0]["run"]
    overwrite(state_of(task), b"the original words", b"some other phrases")

    replayed = agentloop("replay", cwd=task)
    shown = agentloop("show", cwd=task)
    entries = agentloop("show", "--entries", cwd=task)

    for done in (replayed, shown, entries):
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
    assert f"run {run} is damaged at entry" in replayed.stdout
    assert f"run {run} is damaged at entry" in shown.stderr
    assert f"run {run} is damaged at entry" in entries.stderr


def test_a_broken_page_is_a_message(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    assert agentloop("run", task, cwd=task).returncode == 0
    with open(state_of(task), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for page in range(1, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xde\xad" * 512)
    before = state_of(task).read_bytes()

    for words in (("run", str(task)), ("runs",), ("replay",)):
        done = agentloop(*words, cwd=task)

        assert done.returncode in (1, 2), words
        assert done.stderr.count("\n") == 1, done.stderr
        assert "state.db" in done.stderr
        assert "unexpected" not in done.stderr
    assert state_of(task).read_bytes() == before


def test_a_run_whose_beginning_is_damaged_is_listed_as_such(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS, goal="a goal to be found")
    assert agentloop("run", task, cwd=task).returncode == 0
    assert agentloop("run", task, cwd=task).returncode == 0
    overwrite(state_of(task), b'"driver":"agent_loop"', b'"driver":"agent_loop\\')

    listed = agentloop("runs", cwd=task)

    assert listed.returncode == 0
    assert [line.split()[3] for line in listed.stdout.splitlines()] == ["DAMAGED", "DAMAGED"]


def test_a_database_that_another_process_holds_is_waited_for_and_told(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    assert agentloop("run", task, cwd=task).returncode == 0
    holder = sqlite3.connect(state_of(task), isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        done = agentloop("run", task, cwd=task)
        listed = agentloop("runs", cwd=task)
    finally:
        holder.close()

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "state.db" in done.stderr
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == 1
    assert len(list((task / ".agentloop" / "runs").iterdir())) == 1
    assert_sound(task)
