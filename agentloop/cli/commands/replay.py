"""``agentloop replay``: verifies that a run is reproduced from its ledger alone."""

from __future__ import annotations

import argparse
import json

import msgspec

from agentloop.cli.places import find_state, pick_run
from agentloop.cli.terminal import line, say
from agentloop.reproduction import ReplayReport, replay
from agentloop.tasks import open_memory

__all__ = ("execute",)


def execute(arguments: argparse.Namespace) -> int:
    """Replay the run; return 0 if every decision and frame is the same, else 1."""
    memory = open_memory(find_state(arguments.db), read_only=True)
    try:
        run = pick_run(memory.ledger, arguments.run)
        report = replay(memory.ledger, run, recompute=arguments.recompute)
    finally:
        memory.close()
    if arguments.json:
        say(json.dumps(msgspec.to_builtins(report)))
    else:
        _show(report)
    return 0 if report.ok else 1


def _show(report: ReplayReport, indent: str = "") -> None:
    state = "" if report.closed else ", not ended"
    verdict = "reproduced exactly" if report.ok else "NOT reproduced"
    say(
        f"{indent}{report.run}: {verdict} ({report.entries} entries, {report.steps} decisions, "
        f"{report.frames} frames{state})"
    )
    if report.divergence is not None:
        say(f"{indent}  {line(str(report.divergence), 400)}")
    for difference in report.differences:
        say(f"{indent}  read differently today: {line(str(difference), 400)}")
    for child in report.children:
        _show(child, indent + "  ")
