"""The reference pages are what the tables say, and say what the program does."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from graphstate.cli import main
from graphstate.cli.commands import COMMANDS
from graphstate.manifest import VERBS

DOCS = Path(__file__).parents[3] / "docs"
PAGES = runpy.run_path(str(DOCS / "generate.py"))["PAGES"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_tables_say(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run python docs/generate.py"


def test_the_pages_hold_every_command_and_every_verb() -> None:
    commands = PAGES["reference/adaptogen.md"]()
    verbs = PAGES["reference/graph-verbs.md"]()
    assert set(re.findall(r"^### (.+)$", commands, re.MULTILINE)) == set(COMMANDS)
    assert set(re.findall(r"^### (.+)$", verbs, re.MULTILINE)) == {
        n for names in VERBS.values() for n in names
    }


def test_the_session_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^\$ adaptogen (.+)$", PAGES["reference/adaptogen.md"](), re.MULTILINE)
    assert len(lines) == 6
    for line in lines:
        assert main(shlex.split(line)) == 0, line
    assert "cursor: draft" in capsys.readouterr().out
