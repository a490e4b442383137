"""Decisions are numbered without gaps and short; change notes say what kind of change they are."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

DECISIONS = sorted(path for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "README.md")


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name.split("-")[0]) for path in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))
    assert numbers


def test_each_decision_has_a_title_and_fits_on_a_screen() -> None:
    for path in DECISIONS:
        lines = path.read_text("utf-8").splitlines()
        assert lines[0].startswith("# "), path.name
        assert 5 <= len(lines) <= 60, path.name


def test_the_list_of_decisions_names_each_once() -> None:
    text = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    assert re.findall(r"\]\((\d+-[\w-]+\.md)\)", text) == [path.name for path in DECISIONS]


def test_a_change_note_names_its_kind() -> None:
    names = {path.name for path in (ROOT / "docs" / "changes").iterdir()} - {"README.md"}
    kinds = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md")
    assert {name for name in names if not kinds.fullmatch(name)} == set()
