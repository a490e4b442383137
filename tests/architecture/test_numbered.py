"""What has a number has a test of that number: properties of runs, known weaknesses, vectors of the orchestrator."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

FOLDERS = ("agentloop", "properties", "evals")
#: Whose vectors are those of the agent-evaluator loop or of the memory, with numbers of their own.
OF_OTHERS = re.compile(r"agentloop/(loop|streams|checks)/|test_(symbolic|verdict|frames|activation)\.py")


def numbered(kind: str, *, without: re.Pattern[str] | None = None) -> set[int]:
    """Return the numbers that names of tests have behind this word."""
    found: set[int] = set()
    for folder in FOLDERS:
        for path in (ROOT / "tests" / folder).rglob("test_*.py"):
            if without is not None and without.search(path.as_posix()):
                continue
            for name in re.findall(r"def (test_\w+)", path.read_text("utf-8")):
                found |= {
                    int(number) for number in re.findall(rf"(?<![a-z0-9]){kind}_?(\d+)(?![0-9a-z])", name)
                }
    return found


def test_each_property_of_runs_is_a_test() -> None:
    assert numbered("property") == {*range(1, 13)}


def test_each_known_weakness_is_a_test() -> None:
    assert numbered("w") == {*range(1, 46)}


def test_each_vector_of_the_orchestrator_is_a_test() -> None:
    assert numbered("v", without=OF_OTHERS) == {*range(1, 175)}
