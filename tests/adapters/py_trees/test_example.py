from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "tree-runner" / "run.py"


def told(hash_seed: str) -> list[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=60, env=env, check=True
    )
    assert done.stderr == ""
    return [line.strip() for line in done.stdout.splitlines()]


def test_the_example_tells_the_same_story_each_time() -> None:
    story = told("1")

    assert story == told("2")
    in_order = [
        "agent research: noted: keep it short",
        "agent write: draft 1",
        "----  an incident is reported",
        "stop  write: interrupted",
        "tree  write: RUNNING -> INVALID",
        "agent handle incident: restarted the server",
        "agent write: draft 2",
        "end   SUCCESS (tree) after 6 ticks",
        "----  somebody presses stop",
        "end   FAILURE (aborted) after 2 ticks",
        "stop  the tree: stopped by hand",
    ]
    places = [story.index(line) for line in in_order]
    assert places == sorted(places)
