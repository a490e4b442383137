#!/usr/bin/env python3
"""A command-line agent: reads a prompt, fixes one thing in the current folder, says what it did.

It prints JSON lines, one frame each: text as it comes, and at the end what it used.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

#: By the group of tests that fails: what is wrong, the code now, the code as it should be.
FIXES = {
    "Discount": (
        "discount() cuts half a cent off instead of rounding it up",
        "    return total * percent // 100\n",
        "    return (total * percent + 50) // 100\n",
    ),
    "Split": (
        "split() loses the cents that do not divide",
        "    return [total // people] * people\n",
        "    share, left = divmod(total, people)\n    return [share + 1] * left + [share] * (people - left)\n",
    ),
}


def say(text: str) -> None:
    print(json.dumps({"type": "TEXT", "content": {"text": text}}), flush=True)


def main() -> int:
    prompt = sys.stdin.read()
    say("I run the tests. " if "last attempt" not in prompt else "Not good enough, so I look again. ")
    tests = [sys.executable, "-B", "-m", "unittest"]
    report = subprocess.run(tests, capture_output=True, text=True, check=False).stderr
    failing = re.search(r"^FAIL: \w+ \(test_invoice\.(\w+)", report, re.MULTILINE)
    if failing is None:
        say("Nothing fails.")
    else:
        problem, old, new = FIXES[failing.group(1)]
        code = Path("invoice.py")
        code.write_text(code.read_text("utf-8").replace(old, new), "utf-8")
        say(f"I have fixed this: {problem}.")
    print(json.dumps({"type": "USAGE", "content": {"input_tokens": len(prompt) // 4, "output_tokens": 30}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
