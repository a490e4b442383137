"""The page that the benchmark writes has a place for each of its tables, and all of them are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import bench_learning

NAMES = ("orders", "memory", "kinds", "ranking", "feedback", "speed")


def test_every_table_stands_in_the_page() -> None:
    page = bench_learning.PAGE.read_text("utf-8")

    for name in NAMES:
        found = re.search(f"<!-- {name} -->\n\n(\\|.*?)\n\n<!-- end of {name} -->", page, re.DOTALL)
        assert found, name
        assert found[1].count("\n") > 2


def test_a_table_takes_the_place_of_the_one_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n", "utf-8")
    monkeypatch.setattr(bench_learning, "PAGE", page)

    for _ in range(2):
        bench_learning.put("a", "| \\1 new |")
        assert page.read_text("utf-8") == "before\n<!-- a -->\n\n| \\1 new |\n\n<!-- end of a -->\nafter\n"
    with pytest.raises(SystemExit, match="no marks for the table 'b'"):
        bench_learning.put("b", "")


def test_pictures_are_small_enough_to_keep() -> None:
    names = set(re.findall(r"\.\./images/([^)]+)\)", bench_learning.PAGE.read_text("utf-8")))

    assert names == {"orders.png", "memory.png", "memory-tokens.png", "feedback.png"}
    assert all((bench_learning.IMAGES / name).stat().st_size < 80_000 for name in names)
