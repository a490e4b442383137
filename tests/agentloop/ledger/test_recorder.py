"""The recorder: encoding and chaining at once, storing later."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from agentloop._canonical import MAX_BYTES, Json, NotJson, encode
from agentloop.determinism import ManualClock
from agentloop.errors import LedgerConflict, LedgerUnavailable
from agentloop.ledger import NO_ENTRIES, MemoryLedgerStore, Recorder, RunLedger, chain_hash
from agentloop.ledger.chain import Chain
from agentloop.ports import Head, LedgerEntry

OPENED = {"version": 2}


class FailingStore(MemoryLedgerStore):
    """Fails as often as it is told to, and notes what it was asked."""

    blocking = True

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.failures = failures
        self.calls: list[tuple[int, int, bool]] = []

    def append(
        self,
        run: str,
        entries: Sequence[LedgerEntry],
        /,
        *,
        expected: int,
        sync: bool,
        blobs: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Head:
        self.calls.append((expected, len(entries), sync))
        if self.failures:
            self.failures -= 1
            raise LedgerUnavailable(run, "no space left")
        return super().append(run, entries, expected=expected, sync=sync, blobs=blobs)


def test_recording_does_no_io_until_the_flush() -> None:
    store = FailingStore()
    recorder = Recorder(store, "r", ManualClock(5))
    assert (recorder.pending, recorder.head, recorder.blocking) == (0, NO_ENTRIES, True)
    recorder.record("run.opened", OPENED)
    recorder.record("step", {"n": 1})
    assert (recorder.pending, recorder.head[0], store.calls) == (2, 2, [])
    recorder.flush(sync=False)
    assert (recorder.pending, store.calls) == (0, [(0, 2, False)])
    assert recorder.head == (2, list(store.read("r"))[-1].hash)


def test_what_is_changed_after_recording_is_not_recorded() -> None:
    store = MemoryLedgerStore()
    recorder = Recorder(store, "r", ManualClock())
    data: dict[str, Json] = {"version": 2}
    recorder.record("run.opened", data)
    data["version"] = 3
    recorder.flush(sync=False)
    assert RunLedger(store, "r").opened == {"version": 2}


def test_a_flush_without_entries_asks_the_store_only_for_a_sync_that_is_due() -> None:
    store = FailingStore()
    recorder = Recorder(store, "r", ManualClock())
    recorder.flush(sync=True)
    assert store.calls == []
    recorder.record("run.opened", OPENED)
    recorder.flush(sync=False)
    recorder.flush(sync=False)
    recorder.flush(sync=True)
    recorder.flush(sync=True)
    assert store.calls == [(0, 1, False), (1, 0, True)]


def test_entries_of_a_failed_flush_wait_in_order_for_the_next() -> None:
    store = FailingStore(failures=1)
    recorder = Recorder(store, "r", ManualClock())
    recorder.record("run.opened", OPENED)
    recorder.record("fact.prompt", {"text": "x" * 2000})
    with pytest.raises(LedgerUnavailable):
        recorder.flush(sync=True)
    assert recorder.pending == 2
    recorder.record("step", {"n": 1})
    recorder.flush(sync=True)
    assert [entry.kind for entry in RunLedger(store, "r").entries()] == ["run.opened", "fact.prompt", "step"]


def test_what_is_recorded_during_a_failing_flush_stands_after_what_was_flushed() -> None:
    class RecordsMeanwhile(FailingStore):
        def append(
            self,
            run: str,
            entries: Sequence[LedgerEntry],
            /,
            *,
            expected: int,
            sync: bool,
            blobs: Mapping[str, bytes] = MappingProxyType({}),
        ) -> Head:
            if self.failures:
                recorder.record("step", {"n": 1})
            return super().append(run, entries, expected=expected, sync=sync, blobs=blobs)

    store = RecordsMeanwhile(failures=1)
    recorder = Recorder(store, "r", ManualClock())
    recorder.record("run.opened", OPENED)
    with pytest.raises(LedgerUnavailable):
        recorder.flush(sync=True)
    recorder.flush(sync=True)
    assert [entry.kind for entry in RunLedger(store, "r").entries()] == ["run.opened", "step"]


def test_entries_recorded_on_another_thread_during_flushes_are_all_kept() -> None:
    store = MemoryLedgerStore()
    recorder = Recorder(store, "r", ManualClock())
    recorder.record("run.opened", OPENED)
    done = threading.Event()

    def flush() -> None:
        while not done.is_set():
            recorder.flush(sync=False)

    flusher = threading.Thread(target=flush)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        flusher.start()
        for n in range(3_000):
            recorder.record("fact.prompt", {"n": n, "text": "x" * (1_020 + n % 10)})
    finally:
        done.set()
        flusher.join()
        sys.setswitchinterval(interval)
    recorder.flush(sync=False)
    assert recorder.pending == 0
    report = RunLedger(store, "r").verify()
    assert (report.ok, report.checked) == (True, 3_001)


def test_two_recorders_of_one_run_cannot_both_win() -> None:
    store = MemoryLedgerStore()
    first, second = (Recorder(store, "r", ManualClock()) for _ in range(2))
    first.record("run.opened", OPENED)
    second.record("run.opened", OPENED)
    first.flush(sync=False)
    with pytest.raises(LedgerConflict):
        second.flush(sync=False)


def test_without_a_store_nothing_is_kept_or_checked() -> None:
    recorder = Recorder(None, "r", ManualClock())
    recorder.record("step", {"n": object()})
    recorder.flush(sync=True)
    assert (recorder.pending, recorder.head, recorder.blocking) == (0, NO_ENTRIES, False)


@pytest.mark.parametrize("data", [{"x": float("nan")}, {"x": b""}, {"x": "\ud800"}, {1: 2}])
def test_what_is_not_json_leaves_the_chain_as_it_was(data: Json) -> None:
    store = MemoryLedgerStore()
    recorder = Recorder(store, "r", ManualClock())
    recorder.record("run.opened", OPENED)
    head = recorder.head
    with pytest.raises(NotJson):
        recorder.record("step", data)
    with pytest.raises(NotJson):
        recorder.record("fact.prompt", {"frames": [data, {"x": data}]})
    assert (recorder.head, recorder.pending) == (head, 1)


def test_an_entry_too_large_to_be_read_back_is_not_recorded() -> None:
    recorder = Recorder(MemoryLedgerStore(), "r", ManualClock())
    with pytest.raises(NotJson, match="more than the 67108864"):
        recorder.record("step", "x" * MAX_BYTES)
    assert recorder.head == NO_ENTRIES


def test_a_prompt_that_contains_itself_is_refused() -> None:
    loop: list[Json] = []
    loop.extend([loop, loop])
    with pytest.raises(NotJson, match="contains itself"):
        Recorder(MemoryLedgerStore(), "r", ManualClock()).record("fact.prompt", {"frames": loop})


@pytest.mark.parametrize("run", ["r", "01J/2", 'Lauf "ü"\n'])
@pytest.mark.parametrize("kind", ["step", "fact.frames", 'é"\n'])
def test_the_fast_hash_is_the_hash_of_the_row(run: str, kind: str) -> None:
    for previous, seq, at, body in [(bytes(32), 1, 0, b"{}"), (b"\xff" * 32, 10**9, -5, encode("é"))]:
        row = chain_hash(previous, f"run:{run}", seq, at, None, kind, None, None, None, body)
        assert Chain(run).hash(previous, seq, at, kind, body) == row


def test_every_column_of_a_row_is_hashed() -> None:
    row: dict[str, Any] = {
        "previous": bytes(32), "stream": "graph", "seq": 1, "at": 2, "id": "E1", "kind": "NodeUpserted",
        "actor": "me", "trust": "developer", "cause": "c", "body": b"{}",
    }  # fmt: skip
    changed = row | {"previous": b"x" * 32, "body": b"[]"} | {
        name: value + 1 if isinstance(value, int) else f"{value}x"
        for name, value in row.items()
        if name not in ("previous", "body")
    }  # fmt: skip
    hashes = {chain_hash(**(row | {name: changed[name]})) for name in row}
    assert len(hashes | {chain_hash(**row)}) == len(row) + 1


def test_a_record_costs_few_calls() -> None:
    store = MemoryLedgerStore()
    recorder = Recorder(store, "r", ManualClock())
    recorder.record("step", {"n": 1})
    data = {
        "n": 3,
        "from": "agent",
        "to": "checks",
        "event": "agent.ended",
        "effects": ["RunChecks"],
        "out": 12,
    }
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        recorder.record("step", data)
    finally:
        sys.setprofile(None)
    assert calls <= 40
