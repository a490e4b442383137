"""Where a project keeps its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agentloop.errors import TaskError

__all__ = ("STATE", "find_state")

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
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / STATE).is_file():
            return folder / STATE
    raise TaskError(f"no {STATE} here or above: run a task first, or name the file with --db")
