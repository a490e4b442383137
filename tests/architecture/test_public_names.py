"""What the packages offer: complete, sorted, documented; defaults by keyword; the trees of errors."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import agentloop
import agentloop.errors
import graphstate
import graphstate.errors
from tests.architecture.sources import ROOT, Module, sources

PACKAGES = [module for module in sources() if module.path.name == "__init__.py"]
#: Packages that import each name on first use: a table instead of imports, and a stub beside it.
LAZY = [package for package in PACKAGES if package.path.with_suffix(".pyi").is_file()]
ON_FIRST_USE = "__all__, __getattr__, __dir__ = on_first_use(__name__, _HOMES)"
FACADES = [agentloop, graphstate]

#: Defaults that may be given by position, as the seeds' own signatures have it: what a call is
#: about when there is just one such thing (`abort("why")`, `open("file.db")`, `transition("n1")`).
BY_POSITION = {
    "error",
    "reason",
    "path",
    "to",
    "done",
    "predicate",
    "initial",
    "default",
    "metadata",
    "max_frames",
    "secrets",
}

#: The same for calls with a habit of their own.
SIGNATURES = {
    "Adaptogen.derive_zone": {"predicate"},
    "Adaptogen.lock_policy": {"id"},
    "Adaptogen.unlock_policy": {"id"},
    "DState.derive_zone": {"predicate"},
    "DState.lock_policy": {"id"},
    "DState.unlock_policy": {"id"},
    "calls_tools": {"order"},
    "trajectory_close_to": {"threshold"},
    "visits_phase": {"should"},
    "create_default_deterministic_checks": {"workspace_dir", "symbolics"},
    "FrameBuffer": {"limit", "strategy"},
    "CounterIds": {"prefix"},
    "ManualClock": {"start_ms"},
    "RunIds": {"clock"},
    "RunNotFound": {"candidates"},
    "ScriptedAdapter.turn": {"ctx"},
    "OrchestratedAgent.turn": {"ctx"},
    "ToolRegistry": {"tools"},
    "tool": {"function"},
    "Store.head": {"stream"},
    "Store.streams": {"prefix"},
    "VerbFailed": {"details"},
    "FrameBuffer.wait": {"wake"},
    "tee": {"count"},
    **{f"{name}.{verb}_policy": {"id"} for name in ("Adaptogen", "DState") for verb in ("lock", "unlock")},
}

DOTTED_NAME = re.compile(r"[│├└─ ]*([A-Z]\w+)(?: \(([\w., ]+)\))?(?:\s|$)")


# ------------------------------------------------------------------------------ packages


@pytest.mark.parametrize("package", PACKAGES, ids=lambda module: module.name)
def test_a_package_file_holds_imports_and_names_only(package: Module) -> None:
    for node in package.tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            text = ast.unparse(node)
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_table = package in LAZY and (text.startswith("_HOMES = {") or text == ON_FIRST_USE)
            assert is_docstring or is_table or text.startswith("__all__ = ("), package.at(node)


@pytest.mark.parametrize("module", sources(), ids=lambda module: module.name)
def test_every_module_says_what_belongs_there(module: Module) -> None:
    assert ast.get_docstring(module.tree)


@pytest.mark.parametrize("module", sources(), ids=lambda module: module.name)
def test_no_module_has_a_name_that_says_nothing(module: Module) -> None:
    assert not {"utils", "util", "helpers", "common", "base", "manager", "misc"} & set(module.name.split("."))


@pytest.mark.parametrize("package", LAZY, ids=lambda module: module.name)
def test_a_package_that_imports_on_first_use_says_the_same_in_its_stub(package: Module) -> None:
    stub = ast.parse(package.path.with_suffix(".pyi").read_text("utf-8"))
    told = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert told == _homes(package)
    assert list(importlib.import_module(package.name).__all__) == sorted(told)


@pytest.mark.parametrize("package", LAZY, ids=lambda module: module.name)
def test_a_package_that_imports_on_first_use_names_only_what_is_below_it(package: Module) -> None:
    """Such an import is invisible to the contracts on layers, so it may not reach elsewhere."""
    assert {home for home in _homes(package).values() if not home.startswith(f"{package.name}.")} == set()


@pytest.mark.parametrize("package", LAZY, ids=lambda module: module.name)
def test_a_public_name_is_what_its_module_calls_so_in_any_order(package: Module) -> None:
    """A module of the same name must not come between, whoever imported it before."""
    lines = [
        f"from {home} import {name} as a; from {package.name} import {name} as b; assert a is b, '{name}'"
        for name, home in _homes(package).items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _homes(package: Module) -> dict[str, str]:
    """Return the table of a package turned round: the module of each name. Read, not imported."""
    assigned = [node for node in package.tree.body if isinstance(node, ast.Assign)]
    (table,) = [node.value for node in assigned if ast.unparse(node).startswith("_HOMES = {")]
    return {name: home for home, names in ast.literal_eval(table).items() for name in names}


@pytest.mark.parametrize("facade", FACADES, ids=lambda module: module.__name__)
def test_every_public_name_is_documented(facade: ModuleType) -> None:
    undocumented = [name for name in facade.__all__ if not _documented(name, getattr(facade, name))]
    assert undocumented == []


def _documented(name: str, value: object) -> bool:
    if inspect.isclass(value) or inspect.isfunction(value):
        return bool(vars(value)["__doc__"] if inspect.isclass(value) else value.__doc__)
    return any(_described_where_defined(name, module) for module in sources())


def _described_where_defined(name: str, module: Module) -> bool:
    """A value or an alias has a `#:` comment above its definition, or a text below it."""
    lines = module.path.read_text("utf-8").splitlines()
    for node in module.tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0] if isinstance(node.targets[0], ast.Name) else None
        if isinstance(target, ast.Name) and target.id == name:
            return lines[node.lineno - 2].lstrip().startswith("#:") or "  #:" in lines[node.lineno - 1]
    return False


# --------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("errors", [agentloop.errors, graphstate.errors], ids=lambda module: module.__name__)
def test_the_tree_of_errors_is_drawn_as_it_is(errors: ModuleType) -> None:
    drawn = dict(_drawn(errors.__doc__ or ""))
    classes = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }
    actual = {name: [_name_of(base) for base in value.__bases__] for name, value in classes.items()}
    root = next(iter(drawn))
    assert drawn == {**actual, root: []}


def _drawn(text: str) -> Iterator[tuple[str, list[str]]]:
    above: list[tuple[int, str]] = []
    for line in text.splitlines()[1:]:
        if not (found := DOTTED_NAME.match(line)) or not (above or re.match(r"\s*\w+Error\s*$", line)):
            continue
        depth, (name, others) = found.start(1), found.groups()
        while above and above[-1][0] >= depth:
            above.pop()
        yield name, [above[-1][1] for _ in above[:1]] + (others.split(", ") if others else [])
        above.append((depth, name))


def _name_of(base: type) -> str:
    return f"anyio.{base.__name__}" if base.__module__.startswith("anyio") else base.__name__


@pytest.mark.parametrize("facade", FACADES, ids=lambda module: module.__name__)
def test_every_error_can_be_caught_by_its_public_name(facade: ModuleType) -> None:
    errors = sys.modules[f"{facade.__name__}.errors"]
    raised = {name for name in errors.__all__ if inspect.isclass(getattr(errors, name))}
    assert raised - set(facade.__all__) == set()


# ----------------------------------------------------------------------------- signatures


def offered() -> Iterator[tuple[str, Any]]:
    """Yield every function and method that a user of the packages and adapters can reach."""
    for package in PACKAGES:
        if package.name.count(".") > package.name.startswith("adapters."):
            continue
        module = importlib.import_module(package.name)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield name, value
            elif inspect.isclass(value):
                yield from ((f"{name}.{key}", member) for key, member in _methods(value))


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    for key, member in inspect.getmembers(cls):
        own = inspect.unwrap(getattr(member, "__func__", member))
        ours = (getattr(own, "__module__", None) or "").partition(".")[0] in {
            "agentloop",
            "graphstate",
            "adapters",
        }
        if inspect.isfunction(own) and ours and (key == "__init__" or not key.startswith("_")):
            yield key, own


@pytest.mark.parametrize("facade", FACADES, ids=lambda module: module.__name__)
def test_every_public_name_that_can_be_called_has_a_signature(facade: ModuleType) -> None:
    asked = 0
    for name in facade.__all__:
        value = getattr(facade, name)
        if inspect.isfunction(value) or (inspect.isclass(value) and value.__module__ != "typing"):
            asked += 1
            with contextlib.suppress(ValueError):  # a class of C, as an enumeration's, may have none
                inspect.signature(value)
    assert asked > 50


def test_what_has_a_default_is_given_by_keyword() -> None:
    wrong = {
        f"{name}({parameter.name})"
        for name, function in offered()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.POSITIONAL_ONLY)
        if parameter.default is not parameter.empty
        if parameter.name not in BY_POSITION | SIGNATURES.get(name.removesuffix(".__init__"), set())
        if not _made_by_dataclass(function)
    }
    assert wrong == set()


def _made_by_dataclass(function: Any) -> bool:
    return bool(function.__code__.co_filename == "<string>")


def test_the_exceptions_are_needed() -> None:
    used = {
        (name.removesuffix(".__init__"), parameter.name)
        for name, function in offered()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is not parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
    }
    assert BY_POSITION - {parameter for _, parameter in used} == set()
    assert {(name, p) for name, names in SIGNATURES.items() for p in names} - used == set()


def test_a_whole_number_of_milliseconds_says_so_in_its_name() -> None:
    unclear = re.compile(r"(timeout|delay|interval|deadline|wait|duration)(_s|_seconds|_secs)?")
    wrong = [
        f"{name}({parameter})"
        for name, function in offered()
        for parameter in inspect.signature(function).parameters
        if unclear.fullmatch(parameter)
    ]
    assert wrong == []
