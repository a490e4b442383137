"""The ledger in the graph's file: one transaction with the graph, and its failures translated."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from adapters.graph.ledgers import GraphLedgerStore
from agentloop.determinism import ManualClock
from agentloop.errors import DamagedLedger, LedgerConflict, LedgerUnavailable
from agentloop.ledger import JsonLinesLedgerStore, Recorder, RunLedger
from graphstate.errors import ClosedStore
from graphstate.store import Store

LONG = "prompt " * 400


def recorder_of(store: GraphLedgerStore, run: str = "r") -> Recorder:
    recorder = Recorder(store, run, ManualClock(7))
    recorder.record("run.opened", {"version": 2})
    recorder.record("fact.prompt", {"text": LONG})
    return recorder


def test_entries_and_blobs_join_the_unit_that_is_open() -> None:
    with closing(Store.open(":memory:")) as graph:
        ledgers = GraphLedgerStore(graph)
        recorder = recorder_of(ledgers)
        with pytest.raises(RuntimeError), graph.unit():
            recorder.flush(sync=True)
            raise RuntimeError("the bridge failed")
        assert list(ledgers.read("r")) == []
        assert graph.streams("blob:") == []
        recorder = recorder_of(ledgers)
        with graph.unit():
            recorder.flush(sync=True)
        assert RunLedger(ledgers, "r").verify().checked == 2
        assert len(graph.streams("blob:")) == 1


def test_a_refused_append_keeps_no_blob_either() -> None:
    with closing(Store.open(":memory:")) as graph:
        ledgers = GraphLedgerStore(graph)
        recorder_of(ledgers).flush(sync=False)
        again = Recorder(ledgers, "r", ManualClock())
        again.record("fact.prompt", {"text": LONG + "!"})
        with pytest.raises(LedgerConflict):
            again.flush(sync=False)
        assert len(graph.streams("blob:")) == 1


def test_a_sync_without_entries_reaches_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Store.open(tmp_path / "state.db")) as graph:
        recorder = recorder_of(GraphLedgerStore(graph))
        recorder.flush(sync=False)
        asked: list[bool] = []
        begin = graph.begin

        def note(*, sync: bool = False) -> None:
            asked.append(sync)
            begin(sync=sync)

        monkeypatch.setattr(graph, "begin", note)
        recorder.flush(sync=True)
        assert asked == [False, True]  # a unit, and in it the append that hardens it


def test_the_graph_verifies_runs_with_its_own_rows(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "state.db")) as graph:
        recorder_of(GraphLedgerStore(graph)).flush(sync=True)
        assert graph.verify(deep=True).ok


@pytest.mark.parametrize(
    ("change", "kind", "seq"),
    [
        ("UPDATE event SET body = '{\"n\":2}'", "step", 3),
        ("UPDATE event SET actor = type", "fact.prompt", 2),
        ("DELETE FROM event", "run.opened", 1),
    ],
)
def test_a_row_changed_in_the_file_is_damage_at_its_entry(
    tmp_path: Path, change: str, kind: str, seq: int
) -> None:
    path = tmp_path / "state.db"
    with GraphLedgerStore(path) as ledgers:
        recorder = recorder_of(ledgers)
        recorder.record("step", {"n": 1})
        recorder.flush(sync=True)
    connection = apsw.Connection(str(path))
    connection.execute(f"{change} WHERE type = (SELECT no FROM term WHERE text = ?)", (kind,))
    connection.close()
    with GraphLedgerStore(path) as ledgers:
        assert RunLedger(ledgers, "r").verify().first_break == seq
        with pytest.raises(DamagedLedger):
            list(RunLedger(ledgers, "r").entries())


def test_what_the_graph_refuses_is_a_failure_of_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with GraphLedgerStore(path) as ledgers:
        recorder_of(ledgers).flush(sync=False)
    with (
        closing(Store.open(path, read_only=True)) as graph,
        pytest.raises(LedgerUnavailable, match="read-only"),
    ):
        recorder_of(GraphLedgerStore(graph), "s").flush(sync=False)


def test_a_store_that_was_handed_in_stays_open(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "state.db")) as graph:
        with GraphLedgerStore(graph) as ledgers:
            recorder_of(ledgers).flush(sync=True)
        assert ledgers.blocking
        assert len(list(ledgers.runs())) == 1
    with pytest.raises(ClosedStore):
        list(ledgers.read("r"))
    with closing(Store.open(":memory:")) as graph:
        assert not GraphLedgerStore(graph).blocking


def test_the_bytes_are_those_of_the_other_stores(tmp_path: Path) -> None:
    with GraphLedgerStore(tmp_path / "state.db") as ledgers, JsonLinesLedgerStore(tmp_path / "runs") as files:
        for store in (ledgers, files):
            recorder = Recorder(store, "r", ManualClock(7))
            recorder.record("run.opened", {"version": 2})
            recorder.record("fact.prompt", {"text": LONG, "é": [1.0, 1e-7]})
            recorder.flush(sync=False)
        assert list(ledgers.read("r")) == list(files.read("r"))
