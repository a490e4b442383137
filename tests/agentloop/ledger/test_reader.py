"""Reading a run: strict, and total where it decides."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from agentloop._canonical import Json, encode
from agentloop.determinism import ManualClock
from agentloop.errors import DamagedLedger, RunNotFound, UnsupportedVersion
from agentloop.ledger import NO_ENTRIES, Chain, Entry, MemoryLedgerStore, Recorder, RunLedger
from agentloop.ledger.blobs import BLOB_LIMIT, blob_digest
from agentloop.ports import LedgerEntry


class Edited(MemoryLedgerStore):
    """A store whose content somebody else changes."""

    def __init__(self, entries: list[LedgerEntry], blobs: dict[str, bytes]) -> None:
        super().__init__()
        self.entries, self.blobs = entries, blobs

    def read(self, run: str, /, *, after: int = 0) -> Iterator[LedgerEntry]:
        return iter(self.entries[after:])

    def blob(self, digest: str, /) -> bytes | None:
        return self.blobs.get(digest)


def recorded(*bodies: tuple[str, Json]) -> MemoryLedgerStore:
    store = MemoryLedgerStore()
    recorder = Recorder(store, "r", ManualClock(9))
    for kind, data in bodies:
        recorder.record(kind, data)
    recorder.flush(sync=False)
    return store


WHOLE = (
    ("run.opened", {"version": 2, "driver": "loop"}),
    ("fact.clock", {"now": 1}),
    ("step", {"n": 1}),
    ("step", {"n": 2}),
    ("run.closed", {"outcome": "SUCCESS"}),
)


def test_entries_are_decoded_in_order() -> None:
    ledger = RunLedger(recorded(*WHOLE), "r")
    assert next(ledger.entries()) == Entry(
        seq=1, at=9, kind="run.opened", data={"version": 2, "driver": "loop"}
    )
    assert [(entry.kind, entry.data) for entry in ledger.entries()] == list(WHOLE)
    assert [entry.data["n"] for entry in ledger.steps()] == [1, 2]
    assert ledger.opened == {"version": 2, "driver": "loop"}
    assert ledger.closed == {"outcome": "SUCCESS"}
    assert RunLedger(recorded(*WHOLE[:-1]), "r").closed is None


def test_a_run_nobody_recorded_is_not_found() -> None:
    ledger = RunLedger(MemoryLedgerStore(), "r")
    for read in (lambda: list(ledger.entries()), lambda: ledger.opened, lambda: ledger.closed):
        with pytest.raises(RunNotFound):
            read()
    report = ledger.verify()
    assert (report.ok, report.checked, report.first_break) == (False, 0, None)
    assert report.problem == "no run begins with 'r'"


@pytest.mark.parametrize(
    ("opened", "error"),
    [
        (("run.opened", {"version": 3}), UnsupportedVersion),
        (("run.opened", {"version": 1}), DamagedLedger),
        (("run.opened", {"version": "2"}), DamagedLedger),
        (("run.opened", {"version": True}), DamagedLedger),
        (("run.opened", {}), DamagedLedger),
        (("run.opened", [2]), DamagedLedger),
        (("step", {"n": 1}), DamagedLedger),
    ],
)
def test_a_run_must_open_with_a_version_this_library_reads(
    opened: tuple[str, Json], error: type[Exception]
) -> None:
    ledger = RunLedger(recorded(opened), "r")
    with pytest.raises(error):
        list(ledger.entries())
    assert not ledger.verify().ok


def test_nothing_stands_after_the_end() -> None:
    ledger = RunLedger(recorded(*WHOLE, ("step", {"n": 3})), "r")
    assert ledger.verify().first_break == 6
    with pytest.raises(DamagedLedger, match=r"entry 6: it stands after run\.closed"):
        _ = ledger.closed


def test_an_end_that_is_no_object_is_damage() -> None:
    assert RunLedger(recorded(WHOLE[0], ("run.closed", [])), "r").verify().first_break == 2


@pytest.mark.parametrize("seq", range(1, 6))
@pytest.mark.parametrize(
    "change", [{"at": 8}, {"kind": "stop"}, {"body": b'{"n":7}'}, {"hash": b"x" * 32}, {"seq": 99}], ids=str
)
def test_one_changed_field_is_reported_at_its_entry(seq: int, change: dict[str, object]) -> None:
    entries = list(recorded(*WHOLE).read("r"))
    entries[seq - 1] = msgspec.structs.replace(entries[seq - 1], **change)
    report = RunLedger(Edited(entries, {}), "r").verify()
    assert (report.ok, report.checked, report.first_break) == (False, seq - 1, seq)
    assert report.head == ((seq - 1, entries[seq - 2].hash) if seq > 1 else NO_ENTRIES)


def test_a_chained_body_that_is_not_strict_json_is_damage() -> None:
    first = next(recorded(WHOLE[0]).read("r"))
    for body in (b"{", b'{"a":1,"a":2}', b"NaN", b"\xff"):
        hashed = Chain("r").hash(first.hash, 2, 0, "step", body)
        entry = LedgerEntry(seq=2, at=0, kind="step", body=body, hash=hashed)
        assert RunLedger(Edited([first, entry], {}), "r").verify().first_break == 2


def test_removed_entries_show_only_against_a_head_kept_elsewhere() -> None:
    entries = list(recorded(*WHOLE).read("r"))
    kept = RunLedger(Edited(entries, {}), "r").verify().head
    for length in range(1, 5):
        ledger = RunLedger(Edited(entries[:length], {}), "r")
        assert ledger.verify().ok
        report = ledger.verify(expect_head=kept)
        assert not report.ok
        assert report.problem is not None
        assert "expected head" in report.problem
        assert RunLedger(Edited(entries, {}), "r").verify(expect_head=(length, entries[length - 1].hash)).ok
    assert RunLedger(Edited(entries, {}), "r").verify(expect_head=NO_ENTRIES).ok


LONG = "ä" * (BLOB_LIMIT + 1)


@pytest.mark.parametrize(
    "prompt",
    [
        {"frames": [{"text": LONG}, {"text": LONG, "more": [LONG, "short"]}]},
        {"frames": LONG},
        {"frames": [{"$blob": "not a digest"}, {"$blob": blob_digest(encode(LONG))}, {"$blob": LONG}]},
        {"frames": {"$blob": {"$blob": 1}}, "x": ("a", LONG)},
        {"$blob": "whole"},
        LONG,
        {"frames": "x" * BLOB_LIMIT},
    ],
)
def test_prompts_come_back_as_they_were_recorded(prompt: Json) -> None:
    store = recorded(WHOLE[0], ("fact.prompt", prompt))
    stored = list(store.read("r"))[1].body
    assert len(stored) < BLOB_LIMIT + 100
    assert encode(list(RunLedger(store, "r").entries())[1].data) == encode(prompt)


def test_only_prompts_have_blobs() -> None:
    data = {"text": LONG, "like": {"$blob": "x"}}
    store = recorded(WHOLE[0], ("fact.frames", data))
    assert list(store.read("r"))[1].body == encode(data)
    assert list(RunLedger(store, "r").entries())[1].data == data


def test_a_missing_or_changed_text_is_damage_at_its_entry() -> None:
    entries = list(recorded(WHOLE[0], ("fact.prompt", {"text": LONG})).read("r"))
    digest = blob_digest(encode(LONG))
    assert RunLedger(Edited(entries, {digest: encode(LONG)}), "r").verify().ok
    for blobs, problem in (({}, "is missing"), ({digest: encode("other")}, "was changed")):
        report = RunLedger(Edited(entries, blobs), "r").verify()
        assert report.first_break == 2
        assert report.problem is not None
        assert report.problem.endswith(problem)
