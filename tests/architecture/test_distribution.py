"""What is shipped: types, the schema, extras that messages name, commands, plug-ins, one namespace."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT, calls, sources

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ADAPTERS = sorted(path.name for path in (ROOT / "adapters").iterdir() if (path / "__init__.py").is_file())
ENTRIES = [
    (group, name, target)
    for group, entries in {**PROJECT["entry-points"], "scripts": PROJECT["scripts"]}.items()
    for name, target in entries.items()
]


@pytest.mark.parametrize("package", ["agentloop", "graphstate", *(f"adapters/{name}" for name in ADAPTERS)])
def test_each_package_declares_its_types(package: str) -> None:
    assert (ROOT / package / "py.typed").read_bytes() == b""


def test_the_supported_versions_are_declared_alike() -> None:
    prefix = "Programming Language :: Python :: "
    versions = [line.removeprefix(prefix) for line in PROJECT["classifiers"] if line.startswith(prefix)]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={versions[0]}"


@pytest.mark.parametrize(("group", "name", "target"), ENTRIES, ids=[f"{g}:{n}" for g, n, _ in ENTRIES])
def test_every_entry_point_exists(group: str, name: str, target: str) -> None:
    module, _, attribute = target.partition(":")
    # What pytest loads is a module of hooks.
    found = getattr(importlib.import_module(module), attribute or "pytest_configure")
    assert callable(found), f"{group}: {name} = {target}"


def test_the_extras_that_messages_name_exist() -> None:
    extras = [call.args[1] for m in sources() for call, name in calls(m.tree) if name == "MissingExtra"]
    assert all(isinstance(extra, ast.Constant) for extra in extras)
    named = {extra.value for extra in extras if isinstance(extra, ast.Constant)}
    named |= {
        extra
        for module in sources()
        for extra in re.findall(r"loopwright\[([a-z-]+)\]", module.path.read_text("utf-8"))
    }
    assert named
    assert named - set(PROJECT["optional-dependencies"]) == set()


def test_the_extra_all_takes_every_extra_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(re.findall(r"[a-z-]+", everything.partition("[")[2])) == set(extras) - {"all", "bench", "test"}


# -------------------------------------------------------------------------- the namespace


def run(code: str, *places: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=places[-1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_adapters_is_a_namespace_and_leaves_its_name_to_others() -> None:
    assert not (ROOT / "adapters" / "__init__.py").exists()
    assert list((ROOT / "adapters").glob("*.py")) == []


def test_adapters_live_beside_another_project_of_that_name(tmp_path: Path) -> None:
    """Two folders on the path, neither with a package file: both parts are found."""
    other = tmp_path / "adapters" / "of_somebody_else"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("WHO = 'somebody else'\n", "utf-8")
    code = (
        "import adapters.tools, adapters.of_somebody_else as o; print(adapters.tools.files.__name__, o.WHO)"
    )
    for places in ((tmp_path, ROOT), (ROOT, tmp_path)):
        done = run(code, *places)
        assert done.stdout.split() == ["files", "somebody", "else"], done.stderr


def test_adapters_survive_a_regular_package_installed_over_them(tmp_path: Path) -> None:
    """The other project has a package file and is installed into the same folder."""
    for package in ("agentloop", "graphstate", "adapters"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "adapters" / "__init__.py").write_text("WHO = 'somebody else'\n", "utf-8")
    (tmp_path / "adapters" / "theirs.py").write_text("", "utf-8")
    code = "import adapters, adapters.theirs, adapters.command as c; print(adapters.WHO, c.__file__)"
    done = run(code, tmp_path)
    assert done.stdout.strip() == f"somebody else {tmp_path / 'adapters' / 'command' / '__init__.py'}", (
        done.stderr
    )


def test_the_root_holds_what_belongs_there() -> None:
    """A test that makes files where it is run leaves them here."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()]
    expected = {
        ".ci", ".git", ".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "adapters", "agentloop", "benchmarks",
        "docs", "examples", "graphstate", "pyproject.toml", "tests", "uv.lock",
    }  # fmt: skip
    found = {
        path.name for path in ROOT.iterdir() if not any(fnmatch(path.name, pattern) for pattern in ignored)
    }
    assert found <= expected
