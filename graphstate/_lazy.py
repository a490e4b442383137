"""Public names that are imported on first use, so that a start pays only for what it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules

__all__ = ("on_first_use",)


def on_first_use(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its name.
        homes: Module to the public names that live there. The package's ``.pyi`` says the
            same to type checkers; a test compares the two.
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    public = tuple(sorted(home_of))

    def find(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(modules[package], name, value)
        return value

    return public, find, lambda: sorted({*vars(modules[package]), *public})
