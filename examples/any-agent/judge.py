#!/usr/bin/env python3
"""A command-line evaluator: believes nobody, runs the tests itself, and answers with a verdict."""

from __future__ import annotations

import json
import re
import subprocess
import sys


def main() -> int:
    sys.stdin.read()  # the goal, what the agent says, and what was checked: a model would read it
    tests = [sys.executable, "-B", "-m", "unittest"]
    done = subprocess.run(tests, capture_output=True, text=True, check=False)
    failing = re.findall(r"^(?:FAIL|ERROR): (\w+)", done.stderr, re.MULTILINE)
    if done.returncode == 0:
        verdict = {"status": "SUCCESS", "evidence": "the whole suite passes"}
    else:
        verdict = {"status": "RUNNING", "evidence": f"still failing: {', '.join(failing)}"}
    print(json.dumps(verdict))
    return 0


if __name__ == "__main__":
    sys.exit(main())
