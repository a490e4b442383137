"""What people, models, tools and files say is only text: it never moves the cursor."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import pytest

from agentloop.cli.terminal import line, visible
from tests.agentloop.cli.command import SHELL, agentloop, call, json_lines, say, write_task
from tests.agentloop.cli.terminal import on_a_terminal

#: Clears the screen, sets the title, goes up, deletes, hides what follows, turns the direction.
HOSTILE = (
    "\x1b[2J\x1b[1;1H",
    "\x1b]0;owned\x07",
    "\x9b2J",
    "a\rb\x08\x08c\x7f",
    "\u202egnp.exe\u202c",
    "zero\u200bwidth\u2060\ufeff",
    "line\u2028paragraph\u2029end\x85",
    "tag\U000e0041\U000e0042",
    "\x00\x0b\x0c",
    "[bold red]markup[/] :smile:",
)
TEXT = "".join(HOSTILE)


def assert_harmless(out: str) -> None:
    """Demand that nothing but line ends acts on a terminal."""
    acting = {
        character
        for character in out
        if character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    assert acting == set()


@pytest.fixture
def task(tmp_path: Path) -> Path:
    name = "bad\x1b[2J\u202ename.txt"
    turns = (
        {"say": TEXT, **call("fs__write", path=name, content=TEXT)},
        call("fs__list"),
        call("fs__read", path=name),
        call("fs__read", path=f"missing{TEXT[:40].replace(chr(0), '')}"),
        call(f"tool{TEXT}", x=TEXT),
        call("shell", command=r"printf '\033[2J\033]0;owned\007out'; printf 'bad\033[1A' >&2; exit 3"),
        say(TEXT),
    )
    verdict = {"status": "FAILURE", "evidence": TEXT, "symbolicUpdates": [{"name": "n", "value": TEXT}]}
    return write_task(
        tmp_path,
        turns,
        checks=(f"file_contains:none{TEXT}={TEXT}",),
        goal=TEXT,
        evaluator=(say(json.dumps(verdict)),),
        more=f"{SHELL}[limits]\nmax_retries = 0\n",
    )


def test_every_view_of_a_run_shows_it_as_text(task: Path) -> None:
    seen = [agentloop("run", task, *more, cwd=task) for more in ((), ("--json",))]
    seen += [
        agentloop(*words, cwd=task)
        for words in (
            ("runs",),
            ("runs", "--json"),
            ("show",),
            ("show", "--json"),
            ("show", "--entries"),
            ("show", "--entries", "--json"),
            ("replay",),
            ("replay", "--json"),
        )
    ]

    for done in seen:
        assert "unexpected" not in done.stderr
        assert_harmless(done.stdout)
        assert_harmless(done.stderr)
    assert [done.returncode for done in seen] == [1, 1, *[0] * 8]
    assert r"\u{1b}[2J" in seen[0].stdout
    assert "[bold red]markup[/] :smile:" in seen[0].stdout
    texts = [frame["content"]["text"] for frame in json_lines(seen[1].stdout) if frame["type"] == "TEXT"]
    assert texts[0] == TEXT


def test_a_terminal_is_not_moved_either(task: Path) -> None:
    code, out = on_a_terminal("run", str(task), cwd=task)

    assert code == 1
    for part in (b"\x1b[2J", b"\x1b]0;", b"\x9b", "\u202e".encode(), b"\x07", b"\x08", b"\x1b[1;1H"):
        assert part not in out
    assert rb"\u{1b}[2J" in out
    assert b"[bold red]markup[/] :smile:" in out


@pytest.mark.parametrize(
    "words",
    [
        ["run", TEXT.replace("\x00", "")],
        ["run", ".", "--set", TEXT.replace("\x00", "")],
        ["run", ".", "--set", f"agent.adapter={TEXT}".replace("\x00", "")],
        ["run", ".", "--set", f"x{TEXT}=1".replace("\x00", "")],
        ["runs", "--db", TEXT.replace("\x00", "")],
        ["show", TEXT.replace("\x00", "")],
        ["new", TEXT.replace("\x00", "")],
        [TEXT.replace("\x00", "")],
        [f"--{TEXT}".replace("\x00", "")],
    ],
)
def test_complaints_show_what_was_typed_as_text(tmp_path: Path, words: list[str]) -> None:
    task = write_task(tmp_path, (say("."),))
    done = agentloop(*words, cwd=task)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert_harmless(done.stderr)


def test_folders_with_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    folder = tmp_path / f"f{TEXT}".replace("\x00", "").replace("/", "")
    task = write_task(folder, (call("fs__write", path="done.txt", content=""), say(".")))

    done = agentloop("run", task, cwd=tmp_path)

    assert done.returncode == 0
    assert_harmless(done.stdout)


def test_a_folder_whose_name_is_no_text_is_told(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    task = write_task(folder, (call("fs__write", path="done.txt", content=""), say(".")))

    done = agentloop("run", task, cwd=tmp_path)
    elsewhere = agentloop("run", task, "--db", "state.db", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "SQLite opens no file whose path is not UTF-8" in done.stderr
    assert_harmless(done.stderr)
    assert (elsewhere.returncode, elsewhere.stderr) == (0, "")


def test_every_character_that_acts_becomes_an_escape() -> None:
    for code in range(0x110000):
        character = chr(code)
        shown = visible(character)
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert shown.isascii()
            assert shown.isprintable()
        else:
            assert shown == character


def test_a_line_is_one_line_of_bounded_length() -> None:
    assert line("a\n b\tc\r\n\u2028d") == "a b c d"
    assert line("x" * 300, 10) == "xxxxxxxxx…"
