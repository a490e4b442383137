"""Replays in a process of their own: what a run owes to the process it was made in shows there.

``python -m agentloop.evals.fresh FOLDER`` replays every run of a folder of JSON lines and prints
what does not replay, as a JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from agentloop._canonical import decode
from agentloop.errors import AgentLoopError
from agentloop.ledger.jsonlines import JsonLinesLedgerStore
from agentloop.reproduction import replay

__all__ = ("replay_afresh", "replay_folder")

_TIMEOUT_S: Final = 600


class FreshReplayFailed(AgentLoopError):
    """The process that was to replay the runs did not."""


def replay_folder(folder: Path) -> dict[str, str]:
    """Replay every run of the folder; return what is wrong with those that do not replay."""
    wrong: dict[str, str] = {}
    with JsonLinesLedgerStore(folder) as store:
        for summary in store.runs():
            report = replay(store, summary.run)
            if not report.ok:
                wrong[summary.run] = str(report.divergence)
    return wrong


def replay_afresh(folder: Path) -> dict[str, str]:
    """As `replay_folder`, in a new process that hashes texts otherwise than this one.

    Raises:
        FreshReplayFailed: The process failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "agentloop.evals.fresh", str(folder)],
        env={**os.environ, "PYTHONHASHSEED": "random", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise FreshReplayFailed(f"the process that replays the runs failed: {done.stderr[-2000:]}")
    wrong: dict[str, str] = decode(done.stdout)
    return wrong


if __name__ == "__main__":
    sys.stdout.write(json.dumps(replay_folder(Path(sys.argv[1]))))
