"""Fixtures for every test: backend-neutral tests run on asyncio and on trio.

The run closes with what the reliability tests counted, in all its processes; see `tests/tally.py`.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.tally import TALLY, missing


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend = request.param
    assert isinstance(backend, str)
    return backend


def _is_everything(config: pytest.Config) -> bool:
    chosen = (
        config.getoption(name, None) for name in ("keyword", "markexpr", "deselect", "lf", "collectonly")
    )
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(chosen)


def pytest_collection_finish() -> None:
    """Look for garbage among what the tests make, not again and again among the tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    gc.unfreeze()
    sent = getattr(session.config, "workeroutput", None)
    if sent is not None:  # one of several processes: the floors are for their sum
        sent["counted"] = dict(TALLY)
    elif exitstatus == pytest.ExitCode.OK and _is_everything(session.config) and missing():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add what another process counted; one that crashed sent nothing."""
    TALLY.update(getattr(node, "workeroutput", {}).get("counted", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if TALLY:
        terminalreporter.section("counted")
        terminalreporter.line(", ".join(f"{what} {count:,}" for what, count in sorted(TALLY.items())))
    if _is_everything(config):
        for line in missing():
            terminalreporter.line(f"below its floor: {line}", red=True)
