"""``agentloop show``: reads a run again, as it was seen."""

from __future__ import annotations

import argparse
import json
from typing import Any

from agentloop.cli.places import find_state
from agentloop.cli.terminal import complain, line, say
from agentloop.cli.view import JsonView, PlainView
from agentloop.frames import Frame
from agentloop.ledger import RunLedger, find_run
from agentloop.ports import ProjectLedger
from agentloop.replay import replay
from agentloop.tasks import open_memory

__all__ = ("execute",)


def execute(arguments: argparse.Namespace) -> int:
    """Show the frames of a run, or with ``--entries`` its ledger."""
    memory = open_memory(find_state(arguments.db), read_only=True)
    try:
        run = find_run(memory.ledger, arguments.run)
        if arguments.entries:
            return _show_entries(memory.ledger, run, as_json=arguments.json)
        return _show_frames(memory.ledger, run, as_json=arguments.json)
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


def _show_frames(ledger: ProjectLedger, run: str, *, as_json: bool) -> int:
    view = JsonView() if as_json else PlainView()
    opened = RunLedger(ledger, run).opened
    labels: dict[str, Any] = opened.get("labels") or {}
    view.begin({"run": run, **{name: str(value) for name, value in labels.items()}})

    def show(frame: Frame) -> None:
        view.frame(frame)

    report = replay(ledger, run, on_frame=show)
    if report.divergence is not None:
        complain(f"agentloop: {report.divergence}")
        return 1
    result = report.result or {"status": "OPEN", "reason": "not ended", "iterations": report.steps}
    view.end(result, (), ())
    return 0
