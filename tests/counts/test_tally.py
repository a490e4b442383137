"""What several processes counted is summed, and a run of everything fails below a floor."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CASES = """
import pytest
from tests.tally import FLOORS, tally

@pytest.mark.parametrize("number", range(4))
def test_something(number):
    tally("somethings", 1_000 + number)

def test_what_has_a_floor():
    for what, floor in FLOORS.items():
        tally(what, floor - ("{short}" == what))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "tally.py"):
        shutil.copy(TESTS / name, tmp_path / "tests" / name)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = tests\npythonpath = .\naddopts = --import-mode=importlib\n", "utf-8"
    )
    return tmp_path


def run(project: Path, processes: int, *, short: str = "") -> tuple[int, str]:
    """Run everything there is in the project; its sum of `short` is one below the floor."""
    (project / "tests" / "test_cases.py").write_text(CASES.replace("{short}", short), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", str(processes)],
        cwd=project, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("processes", [0, 2])
def test_the_sums_are_the_same_in_any_number_of_processes(project: Path, processes: int) -> None:
    code, said = run(project, processes)
    assert code == 0, said
    assert "somethings 4,006" in said
    assert "writer kills 200" in said
    assert "below its floor" not in said


@pytest.mark.parametrize("processes", [0, 2])
def test_a_sum_below_its_floor_fails_a_run_of_everything(project: Path, processes: int) -> None:
    code, said = run(project, processes, short="writer kills")
    assert code == 1, said
    assert "below its floor: writer kills: 199 of 200" in said
