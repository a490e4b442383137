"""Modules that somebody named by their file: a task's factory, a suite of evals."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ("load_file",)


def load_file(name: str, path: Path) -> ModuleType:
    """Return the module in a file that its author named on the command line or in a task."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the module look themselves up there
    spec.loader.exec_module(module)
    return module
