"""Run the task twice in one graph file: the second run remembers what the first one found out.

    python examples/remember/run.py [--times N] [--db FILE]

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

from graphstate import Adaptogen

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "agentloop.cli", "run", str(HERE), "--json"]


def run_once(number: int, db: Path) -> bool:
    """Run the task, print what it took; return whether it succeeded."""
    done = subprocess.run([*COMMAND, "--db", str(db)], stdout=subprocess.PIPE, text=True, check=False)
    frames: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    if not frames:
        sys.exit(done.returncode)
    result = frames[-1]["content"]
    said = [frame["content"]["text"] for frame in frames if frame["type"] == "TEXT"]
    print(f"run {number}: {result['iterations']} cycles: {' '.join(''.join(said).split())}")
    return bool(result["status"] == "SUCCESS")


def main() -> int:
    """Run the task several times; return 0 if every run succeeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=2, help="how often (default 2)")
    parser.add_argument("--db", type=Path, help="a graph file to begin with and to keep")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = options.db or Path(folder) / "state.db"
        succeeded = True
        for number in range(1, options.times + 1):
            succeeded &= run_once(number, db)
        print("\nwhat is remembered, and how present it is:")
        with Adaptogen.open(db, read_only=True) as graph:
            for memory in graph.working_memory(limit=3).items:
                if memory.node is not None and memory.id.startswith("memory:"):
                    state = graph.activation(memory.id)
                    print(f"  {memory.base:.2f}  {memory.node.payload['text']} (useful {state.useful}x)")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
