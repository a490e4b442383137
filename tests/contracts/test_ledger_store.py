"""What every ledger store promises, whatever it keeps its entries in."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from adapters.graph.ledgers import GraphLedgerStore
from agentloop._canonical import encode
from agentloop.determinism import ManualClock
from agentloop.errors import DamagedLedger, LedgerConflict, RunNotFound
from agentloop.ledger import (
    NO_ENTRIES,
    JsonLinesLedgerStore,
    MemoryLedgerStore,
    Recorder,
    RunLedger,
    find_run,
)
from agentloop.ports import LedgerEntry, LedgerStore, RunIndex

OPENED = {"version": 2, "driver": "loop", "goal": "make the tests pass"}


class Store(LedgerStore, RunIndex, Protocol):
    """A store that is also an index."""


#: Opens the same medium again.
Opener = Callable[[], Store]


def memory(tmp_path: Path, stack: ExitStack) -> Opener:
    store = MemoryLedgerStore()
    return lambda: store


def jsonlines(tmp_path: Path, stack: ExitStack) -> Opener:
    return lambda: stack.enter_context(JsonLinesLedgerStore(tmp_path / "runs"))


def graph(tmp_path: Path, stack: ExitStack) -> Opener:
    return lambda: stack.enter_context(GraphLedgerStore(tmp_path / "state.db"))


STORES = [memory, jsonlines, graph]


@pytest.fixture(params=STORES, ids=lambda make: make.__name__)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    with ExitStack() as stack:
        yield request.param(tmp_path, stack)


@pytest.fixture
def store(reopen: Opener) -> Store:
    return reopen()


def made(run: str, *bodies: tuple[str, object], clock: ManualClock | None = None) -> list[LedgerEntry]:
    """Entries of a run as a recorder makes them."""
    kept = MemoryLedgerStore()
    recorder = Recorder(kept, run, clock or ManualClock(1_700_000_000_000))
    for kind, data in bodies:
        recorder.record(kind, data)
    recorder.flush(sync=False)
    return list(kept.read(run))


def five(run: str) -> list[LedgerEntry]:
    return made(
        run,
        ("run.opened", OPENED),
        *(("step", {"n": n, "to": "é\n"}) for n in range(1, 4)),
        ("run.closed", {}),
    )


def close(store: Store) -> None:
    getattr(store, "close", lambda: None)()


def test_what_is_appended_is_read_back_byte_for_byte(store: Store, reopen: Opener) -> None:
    entries = five("r")
    assert store.append("r", entries[:1], expected=0, sync=False) == (1, entries[0].hash)
    assert store.append("r", entries[1:], expected=1, sync=True) == (5, entries[4].hash)
    assert list(store.read("r")) == entries
    close(store)
    assert list(reopen().read("r")) == entries


def test_the_hash_is_over_previous_hash_header_line_feed_and_body(store: Store) -> None:
    recorder = Recorder(store, "r", ManualClock(7))
    recorder.record("run.opened", OPENED)
    recorder.record("step", {"n": 1})
    recorder.flush(sync=False)
    previous = bytes(32)
    for entry in store.read("r"):
        header = encode(["run:r", entry.seq, 7, None, entry.kind, None, None, None])
        previous = hashlib.sha256(previous + header + b"\n" + entry.body).digest()
        assert entry.hash == previous


@pytest.mark.parametrize("after", range(7))
def test_reading_starts_after_a_number(store: Store, after: int) -> None:
    entries = five("r")
    store.append("r", entries, expected=0, sync=False)
    assert list(store.read("r", after=after)) == entries[after:]


def test_an_unknown_run_has_no_entries(store: Store) -> None:
    assert list(store.read("r")) == []
    assert list(store.read("r", after=3)) == []
    assert list(store.runs()) == []


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_an_append_that_expects_another_head_is_refused(store: Store, expected: int) -> None:
    entries = five("r")
    store.append("r", entries[:2], expected=0, sync=False)
    with pytest.raises(LedgerConflict) as caught:
        store.append("r", entries[2:], expected=expected, sync=False)
    assert (caught.value.expected, caught.value.actual) == (expected, 2)
    assert list(store.read("r")) == entries[:2]
    store.append("r", entries[2:], expected=2, sync=False)


def test_an_append_to_an_unknown_run_must_expect_nothing(store: Store) -> None:
    with pytest.raises(LedgerConflict):
        store.append("r", five("r")[2:], expected=2, sync=False)
    assert list(store.read("r")) == []


def broken(name: str, entries: list[LedgerEntry]) -> list[LedgerEntry]:
    changed: dict[str, dict[str, object]] = {
        "number": {"seq": 4},
        "time": {"at": 1},
        "kind": {"kind": "fact.clock"},
        "body": {"body": b"{}"},
        "hash": {"hash": bytes(32)},
    }
    return [entries[0], msgspec.structs.replace(entries[1], **changed[name]), entries[2]]


@pytest.mark.parametrize("field", ["number", "time", "kind", "body", "hash"])
def test_entries_that_do_not_continue_the_chain_are_refused_whole(store: Store, field: str) -> None:
    entries = five("r")
    store.append("r", entries[:1], expected=0, sync=False)
    with pytest.raises(DamagedLedger):
        store.append("r", broken(field, entries[1:4]), expected=1, sync=False)
    assert list(store.read("r")) == entries[:1]
    store.append("r", entries[1:], expected=1, sync=False)
    assert RunLedger(store, "r").verify().ok


def test_entries_of_another_run_are_refused(store: Store) -> None:
    with pytest.raises(DamagedLedger):
        store.append("other", five("r"), expected=0, sync=False)
    assert list(store.read("other")) == []


def test_an_append_without_entries_only_syncs(store: Store) -> None:
    assert store.append("r", [], expected=0, sync=True) == NO_ENTRIES
    entries = five("r")
    store.append("r", entries[:3], expected=0, sync=False)
    assert store.append("r", [], expected=3, sync=True) == (3, entries[2].hash)
    with pytest.raises(LedgerConflict):
        store.append("r", [], expected=2, sync=True)


def test_another_writer_that_is_behind_is_refused(store: Store, reopen: Opener) -> None:
    entries = five("r")
    store.append("r", entries[:3], expected=0, sync=False)
    with pytest.raises(LedgerConflict) as caught:
        reopen().append("r", entries[2:], expected=2, sync=False)
    assert caught.value.actual == 3
    store.append("r", entries[3:], expected=3, sync=False)


def test_a_run_goes_on_in_a_store_opened_again(store: Store, reopen: Opener) -> None:
    recorder = Recorder(store, "r", ManualClock())
    recorder.record("run.opened", OPENED)
    recorder.flush(sync=True)
    close(store)
    again = reopen()
    recorder = Recorder(again, "r", ManualClock(), head=RunLedger(again, "r").verify().head)
    recorder.record("step", {"n": 1})
    recorder.flush(sync=True)
    assert [entry.kind for entry in RunLedger(again, "r").entries()] == ["run.opened", "step"]


@pytest.mark.parametrize("run", ["01J/1", "..", "a b%2F", "Läufe", "x" * 100])
def test_a_run_may_have_any_name(store: Store, run: str) -> None:
    entries = five(run)
    store.append(run, entries, expected=0, sync=True)
    assert list(store.read(run)) == entries
    assert [summary.run for summary in store.runs()] == [run]


def test_blobs_are_kept_once_for_all_runs(store: Store, reopen: Opener) -> None:
    text = "goal " * 1000
    for run in ("r1", "r2"):
        recorder = Recorder(store, run, ManualClock())
        recorder.record("run.opened", OPENED)
        recorder.record("fact.prompt", {"turn": 1, "frames": [{"text": text}, {"text": f"{run} {text}"}]})
        recorder.flush(sync=True)
    close(store)
    again = reopen()
    bodies = [list(again.read(run))[1].body for run in ("r1", "r2")]
    assert all(len(body) < 300 for body in bodies)
    digest = hashlib.sha256(encode(text)).hexdigest()
    assert again.blob(digest) == encode(text)
    assert all(digest.encode() in body for body in bodies)
    for run in ("r1", "r2"):
        prompt = list(RunLedger(again, run).entries())[1].data
        assert prompt == {"turn": 1, "frames": [{"text": text}, {"text": f"{run} {text}"}]}


def test_a_blob_that_was_never_kept_is_none(store: Store) -> None:
    assert store.blob("0" * 64) is None
    assert store.blob("../../etc/passwd") is None


def test_a_refused_append_keeps_no_entry_even_with_blobs(store: Store) -> None:
    blob = encode("x" * 2000)
    with pytest.raises(LedgerConflict):
        store.append("r", five("r"), expected=3, sync=True, blobs={hashlib.sha256(blob).hexdigest(): blob})
    assert list(store.read("r")) == []


def test_runs_are_listed_from_the_newest_id_with_their_ends(store: Store) -> None:
    for number, run in enumerate(["01B", "01A", "02C", "01A/1"]):
        bodies = [
            ("run.opened", OPENED | {"goal": run}),
            ("step", {"n": 1}),
            ("run.closed", {"outcome": "SUCCESS"}),
        ]
        entries = made(run, *bodies[: 3 if run == "01B" else 2], clock=ManualClock(number))
        store.append(run, entries, expected=0, sync=False)
    found = list(store.runs())
    assert [summary.run for summary in found] == ["02C", "01B", "01A/1", "01A"]
    assert [summary.run for summary in store.runs(prefix="01")] == ["01B", "01A/1", "01A"]
    assert [summary.run for summary in store.runs(limit=2)] == ["02C", "01B"]
    closed, opened = found[1], found[3]
    assert (closed.entries, closed.opened_at, closed.closed_at) == (3, 0, 0)
    assert closed.closed == {"outcome": "SUCCESS"}
    assert opened.opened["goal"] == "01A"
    assert (opened.entries, opened.closed, opened.damage) == (2, None, None)


def test_a_run_is_found_by_a_unique_beginning_of_its_id(store: Store) -> None:
    for run in ["01AX", "01AX/1", "01AX/2", "01AY", "02", "02B"]:
        store.append(run, five(run), expected=0, sync=False)
    assert find_run(store, "01AX") == "01AX"
    assert find_run(store, "01AY") == "01AY"
    assert find_run(store, "01AX/2") == "01AX/2"
    assert find_run(store, "02") == "02"
    with pytest.raises(RunNotFound) as caught:
        find_run(store, "01A")
    assert caught.value.candidates == ("01AX", "01AY")
    with pytest.raises(RunNotFound, match="no run begins with '9'"):
        find_run(store, "9")


def test_every_store_is_an_entry_point() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    named = project["project"]["entry-points"]["agentloop.ledgers"]
    loaded = {}
    for name, place in named.items():
        module, _, attribute = place.partition(":")
        loaded[name] = getattr(import_module(module), attribute)
    assert loaded == {
        "memory": MemoryLedgerStore,
        "jsonlines": JsonLinesLedgerStore,
        "graph": GraphLedgerStore,
    }
