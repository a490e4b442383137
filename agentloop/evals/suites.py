"""Suites by name: a Python file with one, its author's code as a test is, or a folder of cases."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from agentloop.errors import TaskError
from agentloop.evals.cases import EvalSuite
from agentloop.modules import load_file

if TYPE_CHECKING:
    from agentloop.evals.live import LiveSuite

__all__ = ("load_live", "load_suite", "suite_file")


def suite_file(path: Path) -> Path:
    """Return the path of a suite; of a Python file the ending may be left out."""
    return path if path.suffix or path.exists() else path.with_suffix(".py")


def load_suite(path: Path) -> EvalSuite:
    """Return the suite of a folder of cases, or the one called ``suite`` in a Python file.

    Raises:
        TaskError: There is no such file or folder, it cannot be loaded, or there is no suite in it.
    """
    if path.is_dir():
        from agentloop.evals.files import load_cases  # only here: a start is paid for by every run

        return load_cases(path)
    module = _module(path)
    suite = getattr(module, "suite", None)
    if not isinstance(suite, EvalSuite):
        more = ", only a live one, which no gate asks" if hasattr(module, "live") else ""
        raise TaskError(f"{path}: it has no EvalSuite called 'suite'{more}")
    return suite


def load_live(path: Path) -> LiveSuite:
    """Return the live suite called ``live`` in a Python file.

    Raises:
        TaskError: There is no such file, it cannot be loaded, or there is no live suite in it.
    """
    from agentloop.evals.live import LiveSuite  # as above

    live = getattr(_module(path), "live", None)
    if not isinstance(live, LiveSuite):
        raise TaskError(f"{path}: it has no LiveSuite called 'live'")
    return live


def _module(path: Path) -> ModuleType:
    file = suite_file(path)
    if not file.is_file():
        raise TaskError(f"there is no suite {str(path)!r}: name a Python file, or a folder of cases")
    try:
        return load_file(f"agentloop_suite_{file.stem}".replace("-", "_"), file.absolute())
    except (Exception, SystemExit) as error:
        raise TaskError(f"{file}: {type(error).__name__}: {error}") from error
