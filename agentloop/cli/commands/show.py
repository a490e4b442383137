"""``agentloop show``: reads a run again, as it was seen."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from agentloop.cli.places import find_state, pick_run
from agentloop.cli.terminal import complain, line, say, shown_path
from agentloop.cli.view import JsonView, PlainView
from agentloop.frames import CYCLE_STARTED, Frame
from agentloop.ledger import RunLedger
from agentloop.ports import ProjectLedger
from agentloop.reproduction import replay
from agentloop.tasks import open_memory

__all__ = ("execute",)

#: What is said of a run before its frames.
_LABELS: Final = ("task", "node", "goal")


def execute(arguments: argparse.Namespace) -> int:
    """Show the frames of a run, or with ``--entries`` its ledger."""
    state = find_state(arguments.db)
    memory = open_memory(state, read_only=True)
    try:
        run = pick_run(memory.ledger, arguments.run)
        if arguments.entries:
            return _show_entries(memory.ledger, run, as_json=arguments.json)
        return _show_frames(memory.ledger, run, state, as_json=arguments.json)
    finally:
        memory.close()


def _show_entries(ledger: ProjectLedger, run: str, *, as_json: bool) -> int:
    for entry in RunLedger(ledger, run).entries():
        data = json.dumps(entry.data, separators=(",", ":"))
        if as_json:
            say(f'{{"seq":{entry.seq},"at":{entry.at},"kind":"{entry.kind}","data":{data}}}')
        else:
            say(f"{entry.seq:>5}  {entry.kind:<20} {line(data, 160)}")
    return 0


def _show_frames(ledger: ProjectLedger, run: str, state: Path, *, as_json: bool) -> int:
    view = JsonView() if as_json else PlainView()
    labels: dict[str, Any] = RunLedger(ledger, run).opened.get("labels") or {}
    head: dict[str, str] = {name: str(labels[name]) for name in _LABELS if name in labels}
    if "workspace" in labels:
        head["workspace"] = shown_path(state.absolute().parent / str(labels["workspace"]))
    view.begin({"run": run, **head})
    nodes = _nodes(ledger, run)
    cycles, shown = 0, None

    def show(frame: Frame) -> None:
        nonlocal cycles, shown
        index = frame.meta.get("outer_iteration")
        if index != shown and index in nodes:
            view.node(nodes[index], [f"run {run}/{index + 1}"])
        cycles, shown = cycles + (frame.type == CYCLE_STARTED), index
        view.frame(frame)

    report = replay(ledger, run, on_frame=show)
    if report.divergence is not None:
        complain(f"agentloop: {report.divergence}")
        return 1
    result = report.result or {"status": "OPEN", "reason": "not ended: it goes on, or was killed"}
    view.end({**result, "iterations": cycles}, (), ())
    return 0


def _nodes(ledger: ProjectLedger, run: str) -> dict[int, str]:
    """Return the node of each inner run, by index; nothing for a run that is one loop."""
    given = (entry.data for entry in RunLedger(ledger, run).entries() if entry.kind == "fact.node")
    return {
        data["index"]: str(data["node"]["id"])
        for data in given
        if isinstance(data, dict) and isinstance(data["node"], dict)
    }
