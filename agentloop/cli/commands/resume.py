"""``agentloop resume`` and ``agentloop fork``: go on with a run that was cut off, or branch off one."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentloop.cli.commands.run import set_up, watch
from agentloop.cli.places import find_state, pick_run
from agentloop.cli.terminal import shown_path
from agentloop.errors import TaskError
from agentloop.ledger import RunLedger
from agentloop.tasks import Task, fork_task, load_task, open_memory, resume_task

__all__ = ("execute",)


def execute(arguments: argparse.Namespace) -> int:
    """Go on with the run; exit codes as those of ``agentloop run``."""
    set_up(arguments.debug)
    state = find_state(arguments.db)
    run, labels, ended = _look_up(state, arguments.run)
    workspace = _workspace(state, run, labels, arguments.workspace)
    if arguments.command == "fork":
        task = _task(state, run, labels, arguments.task, arguments.set)
        return watch(lambda view: fork_task(task, run, arguments.at, workspace), as_json=arguments.json)
    if ended:
        raise TaskError(f"run {run} has ended: 'agentloop show' shows it, 'agentloop fork' branches off it")
    task = _task(state, run, labels, arguments.task, labels.get("set", ()))
    return watch(lambda view: resume_task(task, run, workspace, on_node=view.node), as_json=arguments.json)


def _look_up(state: Path, given: str | None) -> tuple[str, Mapping[str, Any], bool]:
    """Return the id of the run, its labels, and whether it has ended."""
    memory = open_memory(state, read_only=True)
    try:
        run = pick_run(memory.ledger, given)
        labels = RunLedger(memory.ledger, run).opened.get("labels") or {}
        ended = any(one.closed is not None for one in memory.ledger.runs(prefix=run) if one.run == run)
    finally:
        memory.close()
    return run, labels, ended


def _task(state: Path, run: str, labels: Mapping[str, Any], given: str | None, settings: Any) -> Task:
    folder = labels.get("folder")
    if given is None and not isinstance(folder, str):
        raise TaskError(f"run {run} does not say where its task lies: name it with --task")
    path = Path(given) if given is not None else state.parent / str(folder)
    task = load_task(path, overrides=[str(setting) for setting in settings])
    return dataclasses.replace(task, state=state.resolve())


def _workspace(state: Path, run: str, labels: Mapping[str, Any], given: str | None) -> Path:
    workspace = Path(given) if given is not None else state.parent / str(labels.get("workspace", ""))
    if not workspace.is_dir() or (given is None and "workspace" not in labels):
        raise TaskError(
            f"the workspace of run {run} is not at {shown_path(workspace)}: name the folder with --workspace"
        )
    return workspace.resolve()
