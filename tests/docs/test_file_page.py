"""The page about the file names every table, view and column, and its questions have answers."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from graphstate import Adaptogen

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "file.md").read_text("utf-8")
CELLS = re.compile(r"^\| `(\w+)` \| `(\w+)` \|", re.MULTILINE)
QUESTIONS = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "graph.db"
    with Adaptogen.open(path, seed=False) as graph:
        graph.remember("z").unwrap()
        graph.compact(retain=0).unwrap()
        graph.remember("a", payload={"text": "first"}, tags=["red"]).unwrap()
        graph.remember("b").unwrap()
        graph.link("a", "b").unwrap()
        graph.depend("b", "a").unwrap()
        graph.set_cursor(["a"]).unwrap()
        graph.checkpoint("cp").unwrap()
        graph.remember("c").unwrap()
        graph.rollback("cp", reason="as an example").unwrap()
        graph.step(reward=1).unwrap()
    return path


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def test_every_column_is_named(file: Path) -> None:
    db = opened(file)
    names = db.execute(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
        " AND name NOT GLOB 'node_text*' AND name NOT GLOB 'sqlite_*'"
    )
    found = {
        (name, column) for (name,) in names.fetchall()
        for _, column, *_ in db.execute(f"PRAGMA table_info({name})")
    }  # fmt: skip
    ids = db.execute("PRAGMA application_id").fetchone()
    db.close()
    assert set(CELLS.findall(PAGE)) == found
    assert f"is {ids[0]} " in PAGE


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_an_answer(file: Path, question: str) -> None:
    db = opened(file)
    rows = db.execute(question).fetchall()
    db.close()
    assert rows
    if '"head"' in question or "AS head" in question:
        with Adaptogen.open(file, seed=False, read_only=True) as graph:
            assert rows == [(graph.head(),)]


def test_there_are_questions() -> None:
    assert len(QUESTIONS) >= 10
