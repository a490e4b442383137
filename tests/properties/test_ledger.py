"""Laws of the ledger, for any data and any history of appends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agentloop._canonical import Json, encode
from agentloop.determinism import ManualClock
from agentloop.ledger import JsonLinesLedgerStore, MemoryLedgerStore, Recorder, RunLedger
from agentloop.ports import LedgerEntry
from tests.strategies import json_values

OPENED = {"version": 2}
KINDS = st.sampled_from(["step", "fact.frames", "fact.prompt", "fact.verdict"])
#: Data, and whether the entry is flushed at once.
HISTORIES = st.lists(st.tuples(KINDS, json_values(), st.booleans()), max_size=8)


class Edited(MemoryLedgerStore):
    def __init__(self, entries: list[LedgerEntry], original: MemoryLedgerStore) -> None:
        super().__init__()
        self.entries, self.original = entries, original

    def read(self, run: str, /, *, after: int = 0) -> Iterator[LedgerEntry]:
        return iter(self.entries[after:])

    def blob(self, digest: str, /) -> bytes | None:
        return self.original.blob(digest)


def record(store: MemoryLedgerStore | JsonLinesLedgerStore, history: list[tuple[str, Json, bool]]) -> None:
    recorder = Recorder(store, "r", ManualClock(3))
    recorder.record("run.opened", OPENED)
    for kind, data, flush in history:
        recorder.record(kind, data)
        if flush:
            recorder.flush(sync=False)
    recorder.flush(sync=False)


@given(HISTORIES)
def test_every_store_keeps_the_same_bytes_and_gives_the_data_back(
    history: list[tuple[str, Json, bool]],
) -> None:
    memory = MemoryLedgerStore()
    record(memory, history)
    with tempfile.TemporaryDirectory() as directory, JsonLinesLedgerStore(directory) as files:
        record(files, history)
        assert list(files.read("r")) == list(memory.read("r"))
        assert RunLedger(files, "r").verify() == RunLedger(memory, "r").verify()
        read = [(entry.kind, encode(entry.data)) for entry in RunLedger(files, "r").entries()]
    assert read == [("run.opened", encode(OPENED))] + [(kind, encode(data)) for kind, data, _ in history]


@given(HISTORIES.filter(lambda history: len(history) >= 2), st.data())
def test_any_change_before_the_last_entry_is_reported_where_it_is(
    history: list[tuple[str, Json, bool]], data: st.DataObject
) -> None:
    original = MemoryLedgerStore()
    record(original, history)
    entries = list(original.read("r"))
    place = data.draw(st.integers(0, len(entries) - 2))
    entry = entries[place]
    change = data.draw(st.sampled_from(["drop", "double", "swap", "at", "kind", "body", "hash"]))
    if change == "drop":
        del entries[place]
    elif change == "double":
        entries.insert(place, entry)
        place += 1
    elif change == "swap":
        entries[place], entries[place + 1] = entries[place + 1], entry
    else:
        other: dict[str, object] = {
            "at": entry.at + 1, "kind": entry.kind + "x", "body": entry.body + b" ", "hash": bytes(32),
        }  # fmt: skip
        entries[place] = msgspec.structs.replace(entry, **{change: other[change]})
    report = RunLedger(Edited(entries, original), "r").verify()
    assert (report.ok, report.first_break) == (False, place + 1)


@given(HISTORIES, st.data())
def test_a_cut_file_holds_a_beginning_of_what_was_appended(
    history: list[tuple[str, Json, bool]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        with JsonLinesLedgerStore(directory) as store:
            record(store, history)
            entries = list(store.read("r"))
        path = Path(directory) / "r.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        with JsonLinesLedgerStore(directory) as store:
            kept = list(store.read("r"))
            assert kept == entries[: len(kept)]
            store.append("r", entries[len(kept) :], expected=len(kept), sync=False)
            assert list(store.read("r")) == entries
