"""The live view, as the process that it is: it follows other writers and ends as it should."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyte
import pytest

from graphstate._canonical import decode
from graphstate.adaptogen import Adaptogen
from graphstate.cli import main

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "graphstate.cli", "watch", "--interval-ms", "10")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "graph.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Adaptogen]:
    with Adaptogen.open(path, seed=False) as graph:
        graph.remember("first").unwrap()
        yield graph


def interruptible() -> None:
    """Tests may run in the background, where the shell lets SIGINT be ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Watch:
    """A watching process whose output is a pipe."""

    def __init__(self, path: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--db", str(path), *words], cwd=ROOT, text=True, preexec_fn=interruptible,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().removesuffix("\n")

    def ended(self) -> tuple[int, str]:
        assert self.process.stderr is not None
        return self.process.wait(30), self.process.stderr.read()


Start = Callable[..., Watch]


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    started: list[Watch] = []

    def begin(*words: str) -> Watch:
        started.append(Watch(path, *words))
        return started[-1]

    yield begin
    for watch in started:
        watch.process.kill()
        watch.process.wait()
        for stream in (watch.process.stdout, watch.process.stderr):
            if stream is not None:
                stream.close()


def test_it_tells_what_another_process_commits_in_order_and_ends_on_sigint(
    start: Start, writer: Adaptogen
) -> None:
    watch = start("--after", "0")
    assert watch.line() == "1\tNodeUpserted\tnode first (state)"
    for number in range(20):
        writer.remember(f"n{number}").unwrap()
    assert [watch.line() for _ in range(20)] == [
        f"{number + 2}\tNodeUpserted\tnode n{number} (state)" for number in range(20)
    ]
    writer.link("n0", "n1", id="e", label="\x1b[2J").unwrap()
    assert watch.line() == "22\tEdgeUpserted\tedge e: n0 -> n1 [transition]"
    watch.process.send_signal(signal.SIGINT)
    assert watch.ended() == (130, "")
    assert writer.verify_integrity(deep=True).ok


def test_json_is_one_line_for_each_event_with_nothing_that_steers(start: Start, writer: Adaptogen) -> None:
    watch = start("--json", "--after", "0", "--limit", "2")
    first = decode(watch.line())
    assert (first["seq"], first["type"], first["payload"]["id"]) == (1, "NodeUpserted", "first")
    writer.remember("b", label="\x1b[31m\u202e").unwrap()
    line = watch.line()
    assert line.isprintable()
    assert decode(line)["payload"]["label"] == "\x1b[31m\u202e"
    assert watch.ended() == (0, "")


def test_a_rollback_is_told(start: Start, writer: Adaptogen) -> None:
    writer.checkpoint("cp").unwrap()
    watch = start("--after", "0")
    assert [watch.line().split("\t")[1] for _ in range(3)] == [
        "NodeUpserted",
        "SnapshotTaken",
        "CheckpointCreated",
    ]
    writer.rollback("cp").unwrap()
    assert watch.line() == "1\trollback\tback to event 1"
    writer.remember("new").unwrap()
    assert watch.line() == "2\tNodeUpserted\tnode new (state)"
    watch.process.send_signal(signal.SIGTERM)
    assert watch.ended() == (143, "")


def test_a_reader_that_leaves_ends_it_quietly_although_nothing_happens(
    start: Start, writer: Adaptogen
) -> None:
    watch = start("--after", "0")
    assert watch.line()
    assert watch.process.stdout is not None
    watch.process.stdout.close()
    assert watch.ended() == (0, "")


def test_a_full_disk_is_exit_code_1_with_a_message(path: Path, writer: Adaptogen) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "--db", str(path), "--after", "0"],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "adaptogen: standard output: No space left on device\n")


class Terminal:
    """A watching process whose output is a terminal."""

    def __init__(self, path: Path, *words: str) -> None:
        self.screen = pyte.Screen(100, 24)
        self._stream = pyte.ByteStream(self.screen)
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, "--db", str(path), *words],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, preexec_fn=interruptible,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "24"},
        )  # fmt: skip
        os.close(theirs)

    def until(self, text: str) -> list[str]:
        while not any(text in line for line in self.screen.display):
            self._stream.feed(os.read(self._ours, 4_096))
        return [line.rstrip() for line in self.screen.display]

    def interrupted(self) -> tuple[int, bytes]:
        self.process.send_signal(signal.SIGINT)
        assert self.process.stderr is not None
        return self.process.wait(30), self.process.stderr.read()

    def close(self) -> None:
        os.close(self._ours)
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


def test_a_terminal_gets_a_picture_that_follows(path: Path, writer: Adaptogen) -> None:
    with closing(Terminal(path, "--after", "0")) as terminal:
        assert "cursor: (none)" in terminal.until("node first (state)")
        writer.set_cursor(["first"]).unwrap()
        writer.remember("mark", label="\x1b]0;title\x07\x1b[2J").unwrap()
        shown = terminal.until("node mark (state)")
        assert "cursor: first" in shown
        assert "3  NodeUpserted  node mark (state)" in shown
        assert "seq: 3" in shown
        assert terminal.screen.title == ""
        assert terminal.interrupted() == (130, b"")


def test_a_terminal_gets_the_working_memory_while_it_changes_and_fades(path: Path, writer: Adaptogen) -> None:
    writer.set_tunable("scoreHalfLifeMs", 2_000).unwrap()
    with closing(Terminal(path, "--present")) as terminal:
        terminal.until("(nothing)")
        writer.remember("mark", label="\x1b]0;title\x07[red]").unwrap()
        writer.reinforce("mark", 0.5).unwrap()
        shown = terminal.until("mark  ")
        assert shown[0] == "present now"
        assert any("memory.reinforced" in line for line in terminal.until("memory.reinforced"))
        terminal.until("0.3")  # by itself
        assert "[red]" in "".join(shown)
        assert terminal.screen.title == ""
        assert terminal.interrupted() == (130, b"")


def test_the_working_memory_is_told_whenever_it_changes(start: Start, writer: Adaptogen) -> None:
    writer.remember("b").unwrap()
    watch = start("--present")
    assert watch.line() == "(nothing)"
    writer.reinforce("b", 0.5).unwrap()
    assert watch.line() == "b 0.500"
    writer.set_status("b", "active").unwrap()  # an event that changes nothing here
    writer.reinforce("first", 0.75, context="x").unwrap()
    assert watch.line() == "first 0.750\tb 0.500"
    writer.supersede("b", "first").unwrap()
    assert watch.line() == "b 0.500"
    there = start("--present", "--context", "x", "--json", "--limit", "1")
    assert decode(there.line())["present"] == [{"effective": 0.5, "id": "b"}]
    writer.suppress("b", 1).unwrap()
    assert watch.line() == "(nothing)"
    assert decode(there.line())["present"] == []
    assert there.ended() == (0, "")
    watch.process.send_signal(signal.SIGINT)
    assert watch.ended() == (130, "")


@pytest.mark.parametrize(
    "words",
    [
        ("--interval-ms", "9"), ("--interval-ms", "60001"), ("--limit", "1" * 30), ("--context", "x"),
        ("--present", "--context", "\x1b"),
    ],
)  # fmt: skip
def test_bounds_are_typed_failures(
    words: tuple[str, ...], path: Path, writer: Adaptogen, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "--db", str(path), *words]) == 1
    answer: dict[str, Any] = decode(capsys.readouterr().out)
    assert answer["code"] == "InvalidInput"
