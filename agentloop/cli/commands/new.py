"""``agentloop new``: makes a task folder to start from."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from agentloop.cli.terminal import say
from agentloop.errors import TaskError
from agentloop.tasks import TASK_FILE

__all__ = ("execute",)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_TASK: Final = """\
# A task for 'agentloop run {name}'. Every key: docs/reference/task.md

# Deterministic checks, run in the workspace after each turn of the agent.
# When all of them pass, the task is done and no evaluator is asked.
checks = ["file_contains:greeting.txt=hello"]

[task]
goal = "Write a friendly greeting into greeting.txt. It must contain the word hello."
workspace = "workspace"

[agent]
# Plays recorded turns, so that this runs at once, with no key and no network.
scripted = "agent.json"
# For a real model, take out the line above and put in, with OPENAI_API_KEY set:
# adapter = "openai"
# model = "gpt-5-mini"

[limits]
max_iterations = 5
"""

_SCRIPT: Final = """\
{"calls": [
  {"say": "I write a greeting.",
   "callTools": [{"name": "fs__write", "args": {"path": "greeting.txt", "content": "good day\\n"}}]},
  {"say": "There is a greeting now."},
  {"say": "The check wants the word hello.",
   "callTools": [{"name": "fs__write", "args": {"path": "greeting.txt", "content": "hello, and good day\\n"}}]},
  {"say": "Now it says hello."}
]}
"""


def execute(arguments: argparse.Namespace) -> int:
    """Make the folder; refuse a name that is taken or is no plain name."""
    folder = Path(arguments.name)
    if not _NAME.fullmatch(folder.name):
        raise TaskError(f"{folder.name!r} cannot name a task: use letters, digits, '.', '_' and '-'")
    if folder.exists():
        raise TaskError(f"{folder} exists already: choose another name")
    (folder / "workspace").mkdir(parents=True)
    (folder / "workspace" / "README.md").write_text("The agent works in a copy of this folder.\n", "utf-8")
    (folder / "agent.json").write_text(_SCRIPT, "utf-8")
    (folder / TASK_FILE).write_text(_TASK.format(name=folder.name), "utf-8")
    say(f"made {folder}: try 'agentloop run {folder}', then edit {folder / TASK_FILE}")
    return 0
