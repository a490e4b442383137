"""The ``agentloop`` command as a process, and task folders for it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from adapters.graph.project import open_project
from agentloop._canonical import decode
from agentloop.replays import replay

PROGRAM = (sys.executable, "-m", "agentloop.cli")
TIMEOUT = 30


def environment(**more: str) -> dict[str, str]:
    """Return an environment without keys, in which nothing is written beside the sources."""
    kept = ("PATH", "PYTHONPATH", "HOME", "LANG", "TMPDIR")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    return {**env, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", **more}


def agentloop(
    *words: str | Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*PROGRAM, *map(str, words)],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@contextmanager
def running(
    *words: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start the command; kill it if the test did not end it."""
    process = subprocess.Popen(
        [*PROGRAM, *map(str, words)],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ends(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return the exit code of a process and what it still had to say."""
    out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out, err


def json_lines(text: str) -> list[dict[str, Any]]:
    """Return the objects, one a line."""
    return [decode(line.encode()) for line in text.splitlines()]


# ------------------------------------------------------------------------------------ tasks

Turns = Sequence[Mapping[str, Any]]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a recorded model call that asks for one tool."""
    return {"callTools": [{"name": name, "args": arguments}]}


def say(text: str) -> dict[str, Any]:
    """Return a recorded model call that only talks, which ends its turn."""
    return {"say": text}


def toml(text: str) -> str:
    """Return a text as it stands in a TOML file, whatever is in it."""
    plain = (c.isascii() and c.isprintable() and c not in '"\\' for c in text)
    return '"' + "".join(c if ok else f"\\U{ord(c):08x}" for c, ok in zip(text, plain, strict=True)) + '"'


def write_task(
    folder: Path,
    turns: Turns,
    *,
    checks: Sequence[str] = ("file_exists:done.txt",),
    goal: str = "do it",
    evaluator: Turns | None = None,
    more: str = "",
) -> Path:
    """Make a task with a scripted agent; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent.json").write_text(json.dumps(turns), "utf-8")
    lines = [f"checks = [{', '.join(map(toml, checks))}]", "[task]", f"goal = {toml(goal)}"]
    lines += ["[agent]", 'scripted = "agent.json"']
    if evaluator is not None:
        (folder / "evaluator.json").write_text(json.dumps(evaluator), "utf-8")
        lines += ["[evaluator]", 'scripted = "evaluator.json"']
    (folder / "task.toml").write_text("\n".join([*lines, more, ""]), "utf-8")
    return folder


#: An agent that does what `write_task`'s check asks for.
WORKS = (call("fs__write", path="done.txt", content="done\n"), say("Done."))

SHELL = "[tools]\nallow_shell = true\n"


def state_of(task: Path) -> Path:
    """Return the file that keeps a task's runs."""
    return task / ".agentloop" / "state.db"


def runs_of(task: Path) -> list[dict[str, Any]]:
    """Return the runs of a task, newest first, without those inside a run."""
    memory = open_project(state_of(task), read_only=True)
    try:
        return [
            {"run": summary.run, "status": "OPEN", "reason": None, **(summary.closed or {})}
            for summary in memory.ledger.runs()
            if "/" not in summary.run
        ]
    finally:
        memory.close()


def assert_sound(task: Path) -> None:
    """Demand that every ledger replays exactly and the whole file verifies."""
    memory = open_project(state_of(task), read_only=True)
    try:
        for summary in memory.ledger.runs():
            report = replay(memory.ledger, summary.run)
            assert report.ok, report
        found = memory.graph.verify_integrity(deep=True)
        assert found.ok, found
    finally:
        memory.close()


# ------------------------------------------------------------------------------ children


class Children:
    """The processes a run starts: each holds the path open for writing until its death."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "alive"
        os.mkfifo(self.path)
        self._handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.pids: list[int] = []

    def hang(self) -> str:
        """Return a command that reports its process id, starts a grandchild, and never ends."""
        return f"exec 9>'{self.path}'; echo $$ >&9; sleep 600 & exec sleep 600"

    def wait(self) -> int:
        """Return the process id of the child once it runs."""
        ready, _, _ = select.select([self._handle], [], [], TIMEOUT)
        assert ready, "no child was started"
        self.pids.append(int(os.read(self._handle, 64)))
        return self.pids[-1]

    def assert_gone(self) -> None:
        """Demand that nobody holds the path any more."""
        ready, _, _ = select.select([self._handle], [], [], TIMEOUT)
        assert ready, "something still runs"
        assert os.read(self._handle, 64) == b""

    def close(self) -> None:
        """Kill what a failed test left behind."""
        for pid in self.pids:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.close(self._handle)
