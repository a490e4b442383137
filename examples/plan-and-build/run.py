"""Run the task three times in one graph file: it takes fewer cycles, and says why.

    python examples/plan-and-build/run.py [--times N] [--db FILE]

Without --db the graph file is a new one, and thrown away at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "agentloop.cli", "run", str(HERE), "--json"]


def run_once(db: Path) -> list[dict[str, Any]]:
    """Return what the command printed for a program to read: one object a line."""
    done = subprocess.run([*COMMAND, "--db", str(db)], stdout=subprocess.PIPE, text=True, check=False)
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    if not frames:
        sys.exit(done.returncode)
    return frames


def show(number: int, frames: list[dict[str, Any]]) -> bool:
    """Print the way a run took; return whether it succeeded."""
    way = []
    for frame in frames:
        if frame["type"] == "node":
            way.append(frame["content"]["id"])
        elif frame["type"] == "agent_loop:tree_failed":
            way[-1] += " (failed)"
    result = frames[-1]["content"]
    print(f"run {number}: {result['iterations']:>2} cycles: {', '.join(way)}")
    return bool(result["status"] == "SUCCESS")


def main() -> int:
    """Run the task several times; return 0 if every run succeeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--db", type=Path, help="a graph file to begin with and to keep")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = options.db or Path(folder) / "state.db"
        succeeded = True
        for number in range(1, options.times + 1):
            frames = run_once(db)
            succeeded &= show(number, frames)
    print("\nwhy the last run took its way (score = experience + prior + curiosity):")
    for frame in frames:
        if frame["type"] == "node":
            print(f"  {frame['content']['id']}")
            for reason in frame["content"]["why"]:
                print(f"    {reason}")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
