"""The pytest plugin: every case of a suite is a test.

Installed with the package and loaded by every pytest, so nothing of the harness is imported
before a suite is named.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ("pytest_addoption", "pytest_configure")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("agentloop", "eval cases")
    group.addoption(
        "--agentloop-suite",
        action="append",
        default=[],
        metavar="PATH",
        help="also collect the eval cases of this Python file, or folder of case files",
    )
    group.addoption(
        "--agentloop-baseline", metavar="FILE", help="compare eval cases with what this baseline expects"
    )
    parser.addini(
        "agentloop_suites", "Python files and folders of case files with eval cases", "paths", default=[]
    )
    parser.addini("agentloop_baseline", "the baseline that eval cases are compared with", "string")


def pytest_configure(config: pytest.Config) -> None:
    here = config.invocation_params.dir
    named: list[Path] = [here / path for path in config.getoption("agentloop_suite")]
    usual: list[Path] = config.getini("agentloop_suites")
    if not (named or usual):
        return
    from agentloop.evals.collection import CaseCollection

    given, baseline = config.getoption("agentloop_baseline"), config.getini("agentloop_baseline")
    home = config.rootpath if config.inipath is None else config.inipath.parent
    expected = here / given if given else home / baseline if baseline else None
    collection = CaseCollection([*named, *usual], expected)
    config.pluginmanager.register(collection, "agentloop-cases")
    # Paths that were typed choose among the usual suites as they choose among the usual tests.
    chosen = config.args_source is pytest.Config.ArgsSource.ARGS
    for path in map(str, collection.paths(named if chosen else [*named, *usual])):
        if path not in config.args:
            config.args.append(path)
