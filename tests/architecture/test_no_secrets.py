"""No key, token or password stands in a file of the project, its examples and test data included.

The redactor's own patterns are the scanner. The tests that hold made-up keys are named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloop.redact import MARK, Redactor
from tests.architecture.sources import ROOT
from tests.corpora.read import json_files, naughty_strings

FOLDERS = ("agentloop", "graphstate", "adapters", "benchmarks", "docs", "examples", "tests", ".ci")
#: Their keys were never anybody's: they are what must not be shown.
MADE_UP = {
    "tests/adapters/test_openai.py",
    "tests/agentloop/cli/test_failures.py",
    "tests/agentloop/test_redact.py",
}
_GENERATED = {"__pycache__", ".agentloop"}


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and not _GENERATED & set(path.parts):
                yield path
    yield from (
        path for path in sorted(ROOT.iterdir()) if path.is_file() and path.suffix in (".md", ".toml", "")
    )


def findings(text: str) -> list[str]:
    """Return each line that holds something with the shape of a secret, the secret marked."""
    redactor = Redactor()
    if redactor.redact_text(text) == text:
        return []
    return [shown for line in text.splitlines() if (shown := redactor.redact_text(line)) != line] or [
        text[:80]
    ]


def test_no_file_holds_a_secret() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in files()
        if (lines := findings(path.read_bytes().decode("utf-8", "replace")))
    }
    assert {name: lines for name, lines in found.items() if name not in MADE_UP} == {}
    assert set(found) >= MADE_UP, "a name that is needed no more"


def test_no_text_of_a_corpus_is_a_secret() -> None:
    for text in (*naughty_strings(), *(file.data.decode("utf-8", "replace") for file in json_files())):
        assert findings(text) == []


@pytest.mark.parametrize(
    "parts", [("gh", "p_", "a1" * 18), ("AK", "IA", "ABCDEFGH12345678"), ("Bear", "er ", "a1" * 12)]
)
def test_the_scanner_finds_one(parts: tuple[str, ...]) -> None:
    (line,) = findings("before\nkey = " + "".join(parts) + "\nafter")
    assert MARK in line
