"""Where a project keeps its runs."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from agentloop.cli.terminal import shown_path
from agentloop.errors import TaskError
from agentloop.ledger import find_run
from agentloop.ports import ProjectLedger

__all__ = ("STATE", "find_state", "go_on_with", "pick_run")

STATE: Final = Path(".agentloop") / "state.db"


def find_state(given: str | None) -> Path:
    """Return the file given, else the nearest one upwards from the current folder.

    Raises:
        TaskError: There is none.
    """
    if given is not None:
        path = Path(given)
        if not path.is_file():
            raise TaskError(f"there is no file {given!r}: 'agentloop run TASK' makes one beside the task")
        return path
    nearest = _nearest()
    if nearest is None:
        raise TaskError(f"no {STATE} here or above: run a task first, or name the file with --db")
    return nearest


def pick_run(ledger: ProjectLedger, given: str | None) -> str:
    """Return the id of the run that begins with the given text, or of the newest one.

    Raises:
        RunNotFound: There is none that begins so, or more than one.
        TaskError: There is none at all.
    """
    if given is not None:
        return find_run(ledger, given)
    # An inner run is newer than the one it belongs to, and not what was asked for.
    for summary in ledger.runs():
        if "/" not in summary.run:
            return summary.run
    raise TaskError("there are no runs yet: 'agentloop run TASK' makes one")


def _nearest() -> Path | None:
    here = Path.cwd()
    return next(
        (folder / STATE for folder in (here, *here.parents) if (folder / STATE).is_file()),
        None,
    )


def go_on_with(state: Path, *, run: str, task: str) -> list[str]:
    """Return the commands that look at a run, as they have to be typed in the current folder."""
    nearest = _nearest()
    here = nearest is not None and nearest.samefile(state)
    file = "" if here else f" --db {shlex.quote(shown_path(state))}"
    agentloop, adaptogen = _typed("agentloop"), _typed("adaptogen")
    return [
        f"{agentloop} show {run}{file}",
        f"{agentloop} replay {run}{file}",
        f"{adaptogen} status --actor task:{task}{file}",
    ]


def _typed(program: str) -> str:
    """Return what has to be typed for a program that is installed beside this one."""
    beside, found = Path(sys.argv[0]).absolute().with_name(program), shutil.which(program)
    if not beside.is_file() or (found is not None and beside.samefile(found)):
        return program
    return shlex.quote(shown_path(beside))
