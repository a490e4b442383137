"""The source files of the three packages, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ("PACKAGES", "ROOT", "Module", "calls", "dotted", "imports", "sources")

ROOT = Path(__file__).parents[2]
PACKAGES = ("agentloop", "graphstate", "adapters")


class Module(NamedTuple):
    """One source file."""

    #: as it is imported: `agentloop.loop.cycle`, a package without `.__init__`
    name: str
    path: Path
    tree: ast.Module

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


@cache
def sources() -> tuple[Module, ...]:
    """Return every module of the packages, sorted by path."""
    return tuple(_read(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))


def _read(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, ast.parse(path.read_text("utf-8"), str(path)))


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each import statement with each module it names, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node, node.module or "."


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call with the dotted name that is called, as far as it is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, dotted(node.func)


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression; what is not a name becomes empty: `.b.c`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""
