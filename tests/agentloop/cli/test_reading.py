"""Runs that are over, listed and read again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agentloop.cli.command import (
    TIMEOUT,
    WORKS,
    agentloop,
    environment,
    json_lines,
    runs_of,
    say,
    state_of,
    write_task,
)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """Return a task that failed once and then succeeded."""
    task = write_task(tmp_path / "task", (say("No."),), more="[limits]\nmax_iterations = 1\n")
    assert agentloop("run", task, cwd=task).returncode == 1
    write_task(task, WORKS)
    assert agentloop("run", task, cwd=task).returncode == 0
    return task


def test_runs_are_listed_newest_first(task: Path) -> None:
    listed = agentloop("runs", cwd=task)
    newest = agentloop("runs", "--limit", "1", "--json", cwd=task)

    assert [line.split()[3:] for line in listed.stdout.splitlines()] == [
        ["SUCCESS", "task", "checks"],
        ["FAILURE", "task", "max_iterations"],
    ]
    (facts,) = json_lines(newest.stdout)
    assert (facts["run"], facts["status"], facts["iterations"]) == (runs_of(task)[0]["run"], "SUCCESS", 1)
    assert facts["closed_at"] >= facts["opened_at"]


def test_the_nearest_project_above_is_looked_at(task: Path) -> None:
    below = task / "a" / "b"
    below.mkdir(parents=True)

    assert agentloop("runs", cwd=below).stdout == agentloop("runs", cwd=task).stdout
    assert agentloop("runs", cwd=task.parent).returncode == 2


@pytest.mark.parametrize("command", ["show", "replay"])
def test_the_newest_run_is_meant_if_none_is_named(task: Path, command: str) -> None:
    newest, older = (run["run"] for run in runs_of(task))

    assert agentloop(command, cwd=task).stdout == agentloop(command, newest, cwd=task).stdout
    assert older in agentloop(command, older, cwd=task).stdout


def test_the_beginning_of_an_id_is_enough_if_it_is_the_only_one(task: Path) -> None:
    newest, older = (run["run"] for run in runs_of(task))
    common = next(n for n in range(26) if newest[n] != older[n])

    shown = agentloop("show", older[: common + 1], cwd=task)
    unclear = agentloop("show", older[:common], cwd=task)
    unknown = agentloop("show", "ZZ", cwd=task)

    assert shown.stdout.startswith(f"run        {older}\n")
    assert (unclear.returncode, unclear.stdout) == (1, "")
    assert f"is not unique: it could be {older}, {newest}" in unclear.stderr
    assert (unknown.returncode, unknown.stderr) == (1, "agentloop: no run begins with 'ZZ'\n")


def test_a_run_is_shown_as_it_was_seen(tmp_path: Path) -> None:
    task = write_task(tmp_path, (say("Not yet."), *WORKS))

    seen = agentloop("run", task, cwd=task).stdout.splitlines()
    shown = agentloop("show", cwd=task).stdout.splitlines()
    as_json = agentloop("show", "--json", cwd=task)

    first, last = seen.index("cycle 1"), next(n for n, line in enumerate(seen) if line.startswith("SUCCESS"))
    # The ledger keeps arguments in the order of their names.
    given = "(path='done.txt', content='done\\n')"
    kept = "(content='done\\n', path='done.txt')"
    assert shown[shown.index("cycle 1") :] == [line.replace(given, kept) for line in seen[first : last + 1]]
    types = [frame["type"] for frame in json_lines(as_json.stdout)]
    assert types[0] == "run"
    assert types[-2:] == ["agent_loop:node_completed", "result"]


def test_entries_are_the_ledger_itself(task: Path) -> None:
    done = agentloop("show", "--entries", "--json", cwd=task)

    entries = json_lines(done.stdout)
    assert [entry["seq"] for entry in entries] == [*range(1, len(entries) + 1)]
    assert (entries[0]["kind"], entries[-1]["kind"]) == ("run.opened", "run.closed")
    assert entries[0]["data"]["labels"]["task"] == "task"


def test_a_replay_is_a_report_for_programs_too(task: Path) -> None:
    (report,) = json_lines(agentloop("replay", "--json", "--recompute", cwd=task).stdout)

    assert (report["ok"], report["closed"], report["divergence"]) == (True, True, None)
    assert report["run"] == runs_of(task)[0]["run"]


@pytest.mark.parametrize("where", [{"PYTHONHASHSEED": "1", "TZ": "Asia/Kathmandu", "LC_ALL": "C"},
                                   {"PYTHONHASHSEED": "2", "TZ": "America/St_Johns", "PYTHONOPTIMIZE": "2"}])  # fmt: skip
def test_a_replay_is_the_same_in_every_process(task: Path, where: dict[str, str]) -> None:
    here = agentloop("replay", "--json", "--recompute", cwd=task)
    there = agentloop("replay", "--json", "--recompute", cwd=task, env=where)

    assert (there.returncode, there.stderr) == (0, "")
    assert there.stdout == here.stdout


def test_reading_changes_no_byte_of_the_file(task: Path) -> None:
    before = state_of(task).read_bytes()

    for words in (("runs",), ("show",), ("show", "--entries"), ("replay",)):
        assert agentloop(*words, cwd=task).returncode == 0

    assert state_of(task).read_bytes() == before


def test_cleaning_removes_only_what_runs_have_left(task: Path) -> None:
    runs = task / ".agentloop" / "runs"
    (runs / "mine").mkdir()

    cleaned = agentloop("runs", "--clean", cwd=task)
    again = agentloop("runs", "--clean", cwd=task)

    assert cleaned.stdout == "removed 2 scratch folders\n"
    assert again.stdout == "removed 0 scratch folders\n"
    assert [path.name for path in runs.iterdir()] == ["mine"]
    assert len(runs_of(task)) == 2


def test_the_installed_program_tells_its_own_path_if_it_is_not_on_the_path(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("agentloop")
    task = write_task(tmp_path, WORKS)

    def run(path: str) -> str:
        done = subprocess.run(
            [program, "run", str(task)],
            cwd=task,
            env=environment(PATH=path),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f"\ngo on      {program} show " in run("/usr/bin:/bin")
    assert "\ngo on      agentloop show " in run(f"{program.parent}:/usr/bin:/bin")
