"""Every vector of the adaptive memory is a test of its number; every known weakness has tests or a reason."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

#: Where the vectors of the memory are tested; other parts have numbers of their own.
VECTORS = (
    *sorted((ROOT / "tests" / "graphstate" / "activation").glob("test_*.py")),
    ROOT / "tests" / "adapters" / "mcp" / "test_memory.py",
    ROOT / "tests" / "properties" / "test_activation.py",
)


def test_each_vector_of_the_memory_is_a_test() -> None:
    found = {
        int(number)
        for path in VECTORS
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
        for number in re.findall(r"(?<![a-z0-9])v(\d+)(?![0-9a-z])", name)
    }
    assert found == {*range(1, 82)}


def test_each_known_weakness_of_memories_has_tests_that_exist() -> None:
    (page,) = (ROOT / "docs" / "decisions").glob("*-weaknesses-of-memories.md")
    rows = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", page.read_text("utf-8"), re.M)
    assert [int(number) for number, _ in rows] == [*range(1, 32)]
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    }
    named = {name for _, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert all(re.search(r"`test_\w+`", cell) for _, cell in rows)
    assert named - tests == set()
