"""Every Python block of the README and the docs runs, each page as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        blocks = BLOCK.findall(page.read_text("utf-8"))
        found += [(f"{name}#{number}", block) for number, block in enumerate(blocks, 1)]
    return found


@pytest.mark.parametrize(("place", "code"), _blocks(), ids=[place for place, _ in _blocks()])
def test_a_python_block_runs(place: str, code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"{place}: {done.stderr}"
    assert done.stdout, f"{place} shows nothing"


def test_the_readme_has_its_two_commands_and_no_unfinished_part() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = [line for block in COMMAND.findall(readme) for line in block.splitlines()]
    run = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/agentloop run examples/fix-the-tests"
    set_up = "python3 -m venv .venv && .venv/bin/pip install -e '.[test]'"
    assert commands == [run, f"{set_up} && .venv/bin/pytest -n auto --dist worksteal"]
    assert "@@" not in readme


def test_links_between_pages_lead_somewhere() -> None:
    broken: list[str] = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert broken == []
