"""``agentloop runs``: lists the runs of a project."""

from __future__ import annotations

import argparse
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

from agentloop.cli.places import find_state
from agentloop.cli.terminal import line, say, visible
from agentloop.ports import RunSummary
from agentloop.tasks import open_memory, runs_folder

__all__ = ("execute",)


def execute(arguments: argparse.Namespace) -> int:
    """List the runs, newest first; with ``--clean`` delete the scratch folders of those that are over."""
    state = find_state(arguments.db)
    memory = open_memory(state, read_only=True)
    try:
        if arguments.clean:
            return _clean(
                state, {summary.run for summary in memory.ledger.runs() if summary.closed is not None}
            )
        shown = 0
        for summary in memory.ledger.runs():
            if "/" in summary.run:  # an inner run is shown with the run it belongs to
                continue
            say(json.dumps(_facts(summary)) if arguments.json else _line(summary))
            shown += 1
            if shown == arguments.limit:
                break
        if not shown and not arguments.json:
            say("no runs yet")
    finally:
        memory.close()
    return 0


def _facts(summary: RunSummary) -> dict[str, Any]:
    if summary.damage is not None:
        return {"run": summary.run, "status": "DAMAGED", "reason": summary.damage}
    closed = summary.closed or {}
    labels = summary.opened.get("labels") or {}
    return {
        "run": summary.run,
        "task": labels.get("task"),
        "status": closed.get("status", "OPEN"),
        "reason": closed.get("reason"),
        "iterations": closed.get("iterations"),
        "opened_at": summary.opened_at,
        "closed_at": summary.closed_at,
        "entries": summary.entries,
    }


def _line(summary: RunSummary) -> str:
    facts = _facts(summary)
    when = f"{datetime.fromtimestamp(summary.opened_at / 1000):%Y-%m-%d %H:%M:%S}"
    ended = facts["reason"] or "not ended: it goes on, or was killed"
    task = visible(str(facts.get("task") or "-"))
    return f"{facts['run']}  {when}  {facts['status']:<7}  {task:<20}  {line(str(ended))}"


def _clean(state: Path, closed: set[str]) -> int:
    folder = runs_folder(state, "")
    removed = 0
    for scratch in folder.iterdir() if folder.is_dir() else ():
        # Only what a closed run of this very file left behind; anything else is not ours.
        if scratch.name in closed and scratch.is_dir() and not scratch.is_symlink():
            shutil.rmtree(scratch)
            removed += 1
    say(f"removed {removed} scratch {'folder' if removed == 1 else 'folders'}")
    return 0
