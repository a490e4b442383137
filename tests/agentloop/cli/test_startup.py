"""What the command imports before it does anything: agents call it once for every question."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agentloop.cli.command import PROGRAM, WORKS, agentloop, environment, write_task

#: Slow to import, and needed only by some runs.
HEAVY = ("openai", "httpx2", "rich", "jsonschema", "aiostream", "py_trees", "trio", "asyncio")


def imported(*words: str, cwd: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *PROGRAM[1:], *words],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines())
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("run", "--help"), ("new", "made")])
def test_what_needs_no_memory_imports_nothing_heavy(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert not imported(*words, cwd=tmp_path) & {*HEAVY, "graphstate", "apsw"}


def test_looking_at_runs_imports_nothing_heavy(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    assert agentloop("run", task, cwd=task).returncode == 0

    for words in (("runs",), ("show",), ("replay", "--json")):
        modules = imported(*words, cwd=task)
        assert "graphstate" in modules
        assert not modules & {*HEAVY} - {"asyncio"}


def test_a_run_in_a_pipe_imports_neither_models_nor_the_view_for_terminals(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)

    assert not imported("run", ".", cwd=task) & {"openai", "httpx2", "rich", "aiostream", "py_trees", "trio"}
