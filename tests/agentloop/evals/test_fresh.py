"""Replays in a process of their own find what does not replay, and name the run."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from agentloop.evals.cases import EvalSuite
from agentloop.evals.fresh import FreshReplayFailed, replay_afresh, replay_folder
from agentloop.evals.running import run_suite
from agentloop.ledger.jsonlines import JsonLinesLedgerStore
from tests.agentloop.evals.cases import case


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two recorded runs; one has a name that is none of a file."""
    suite = EvalSuite(id="s", cases=[case("good"), case("a b/ü")])
    with JsonLinesLedgerStore(tmp_path) as store:
        result = anyio.run(lambda: run_suite(suite, store=store))
    assert (result.passed, [one.error for one in result.cases]) == (2, [None, None])
    return tmp_path


def test_what_replays_here_replays_afresh(folder: Path) -> None:
    assert replay_folder(folder) == replay_afresh(folder) == {}


def test_a_record_that_was_changed_is_named(folder: Path) -> None:
    (path,) = folder.glob("run-good*")
    path.write_text(path.read_text("utf-8").replace("the answer", "the question"), "utf-8")
    wrong = replay_afresh(folder)
    assert list(wrong) == ["run-good"]
    assert wrong == replay_folder(folder)


def test_a_process_that_fails_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FreshReplayFailed, match="failed"):
        replay_afresh(tmp_path / "file")
