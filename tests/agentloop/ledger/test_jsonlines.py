"""The JSON-lines store: what lies on disk, and what becomes of it when something goes wrong."""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentloop._canonical import decode
from agentloop.determinism import ManualClock
from agentloop.errors import DamagedLedger, LedgerConflict, LedgerUnavailable
from agentloop.ledger import NO_ENTRIES, JsonLinesLedgerStore, MemoryLedgerStore, Recorder, RunLedger
from agentloop.ledger import jsonlines as module
from agentloop.ports import LedgerEntry

OPENED = {"version": 2}
LONG = "prompt " * 400


def entries_of(count: int) -> list[LedgerEntry]:
    store = MemoryLedgerStore()
    recorder = Recorder(store, "r", ManualClock(1_700_000_000_000))
    recorder.record("run.opened", OPENED)
    for n in range(1, count):
        recorder.record("step", {"n": n, "text": 'a "quoted"\n} \n line é'})
    recorder.flush(sync=False)
    return list(store.read("r"))


#: Appends of one, three and two entries.
BATCHES = ((0, 1), (1, 4), (4, 6))


def filled(directory: Path) -> Path:
    entries = entries_of(6)
    with JsonLinesLedgerStore(directory) as store:
        for start, end in BATCHES:
            store.append("r", entries[start:end], expected=start, sync=False)
    return directory / "r.jsonl"


def test_a_line_is_json_with_the_bytes_that_were_hashed(tmp_path: Path) -> None:
    path = filled(tmp_path)
    lines = path.read_bytes().splitlines()
    for line, entry in zip(lines, entries_of(6), strict=True):
        read = decode(line)
        assert list(read) == ["seq", "at", "kind", "data", "hash"]
        assert (read["seq"], read["at"], read["kind"]) == (entry.seq, entry.at, entry.kind)
        assert read["hash"] == entry.hash.hex()
        assert b'"data":' + entry.body + b',"hash"' in line


def test_files_belong_to_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "runs"
    with JsonLinesLedgerStore(directory) as store:
        recorder = Recorder(store, "r/1", ManualClock())
        recorder.record("run.opened", OPENED)
        recorder.record("fact.prompt", {"text": LONG})
        recorder.flush(sync=True)
    modes = {path.relative_to(directory): stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}
    assert sorted(modes.values()) == [0o600, 0o600, 0o700]
    assert modes[Path("r%2F1.jsonl")] == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_reading_makes_and_changes_nothing(tmp_path: Path) -> None:
    store = JsonLinesLedgerStore(tmp_path / "runs")
    assert list(store.read("r")) == []
    assert list(store.runs()) == []
    assert store.blob("0" * 64) is None
    assert not (tmp_path / "runs").exists()
    path = filled(tmp_path / "runs")
    path.write_bytes(path.read_bytes()[:-7])
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert [entry.seq for entry in store.read("r")] == [1, 2, 3, 4]
    assert [summary.entries for summary in store.runs()] == [4]
    assert RunLedger(store, "r").verify().ok
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "runs", path]


def test_every_cut_leaves_whole_appends_and_a_file_to_go_on_with(tmp_path: Path) -> None:
    path = filled(tmp_path)
    entries, whole = entries_of(6), path.read_bytes()
    ends = [0]
    for start, end in BATCHES:
        ends.append(ends[-1] + sum(len(line) for line in whole.splitlines(keepends=True)[start:end]))
    assert ends[-1] == len(whole)
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = max(end for (_, end), size in zip(((0, 0), *BATCHES), ends, strict=True) if size <= cut)
        with JsonLinesLedgerStore(tmp_path) as store:
            assert list(store.read("r")) == entries[:kept]
            assert path.read_bytes() == whole[:cut]
            if kept < 6:
                store.append("r", entries[kept:], expected=kept, sync=False)
            assert list(store.read("r")) == entries
            assert store.removed.get("r", 0) == cut - max(size for size in ends if size <= cut)


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80])
def test_every_changed_byte_is_damage_and_nothing_is_written_over_it(tmp_path: Path, flip: int) -> None:
    path = filled(tmp_path)
    entries, whole = entries_of(7), path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= flip
        path.write_bytes(changed)
        with JsonLinesLedgerStore(tmp_path) as store:
            report = RunLedger(store, "r").verify()
            assert not report.ok, place
            assert report.checked < 6
            assert report.first_break is not None
            if place > whole.rfind(b"\n", 0, -1):  # a writer looks at the newest entry
                with pytest.raises(DamagedLedger):
                    store.append("r", entries[6:], expected=6, sync=False)
                assert path.read_bytes() == bytes(changed)


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: lines[:2] + lines[3:],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: [*lines[:3], lines[2], *lines[3:]],
        lambda lines: [*lines, b"\n"],
        lambda lines: [*lines, b"not an entry\n"],
        lambda lines: [lines[0].replace(b"run.opened", b"run\\u002eopened"), *lines[1:]],
        lambda lines: [lines[0].replace(b'"at":1', b'"at":01'), *lines[1:]],
        lambda lines: [lines[0].replace(b'"at":1', b'"at":1' + b"0" * 40), *lines[1:]],
    ],
)
def test_edited_lines_are_damage(tmp_path: Path, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    path = filled(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(edit(lines)))
    assert not RunLedger(JsonLinesLedgerStore(tmp_path), "r").verify().ok


@pytest.mark.parametrize("written", [0, 1, 100, -1])
def test_unwritten_bytes_at_the_end_are_a_cut_off_append(tmp_path: Path, written: int) -> None:
    path = filled(tmp_path)
    entries, whole = entries_of(7), path.read_bytes()
    with JsonLinesLedgerStore(tmp_path) as store:
        store.append("r", entries[6:], expected=6, sync=False)
    line = path.read_bytes()[len(whole) :]
    rest = line[:written] + bytes(4096)
    path.write_bytes(whole + rest)
    with JsonLinesLedgerStore(tmp_path) as store:
        assert list(store.read("r")) == entries[:6]
        store.append("r", entries[6:], expected=6, sync=True)
        assert store.removed == {"r": len(rest)}
        assert list(store.read("r")) == entries


def test_a_second_writer_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    entries = entries_of(4)
    first, second = JsonLinesLedgerStore(tmp_path), JsonLinesLedgerStore(tmp_path)
    with first, second:
        first.append("r", entries[:2], expected=0, sync=False)
        with pytest.raises(LedgerConflict) as caught:
            second.append("r", entries[2:], expected=2, sync=False)
        assert caught.value.actual == 2
        assert list(second.read("r")) == entries[:2]
        first.close()
        second.append("r", entries[2:3], expected=2, sync=False)
        with pytest.raises(LedgerConflict):
            first.append("r", entries[3:], expected=3, sync=False)
        second.close()
        first.append("r", entries[3:], expected=3, sync=False)


def test_the_end_of_a_run_lets_go_of_its_file(tmp_path: Path) -> None:
    store = JsonLinesLedgerStore(tmp_path)
    before = set(os.listdir("/proc/self/fd"))
    for n in range(20):
        recorder = Recorder(store, f"r{n}", ManualClock())
        recorder.record("run.opened", OPENED)
        recorder.flush(sync=False)
        recorder.record("run.closed", {})
        recorder.flush(sync=True)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert all(summary.closed == {} for summary in store.runs())


def test_a_damaged_run_is_listed_as_such_beside_the_others(tmp_path: Path) -> None:
    path = filled(tmp_path)
    (tmp_path / "s.jsonl").write_bytes(path.read_bytes())
    (tmp_path / "t.jsonl").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"hello")
    found = list(JsonLinesLedgerStore(tmp_path).runs())
    assert [summary.run for summary in found] == ["s", "r"]
    assert found[0].damage is not None
    assert "damaged at entry 6" in found[0].damage
    assert found[1].damage is None


def test_a_full_disk_keeps_nothing_of_the_append_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path)
    entries, whole = entries_of(9), path.read_bytes()
    real = os.write
    left = 0

    def write(file: int, data: memoryview) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(file, data[:left])
        left -= count
        return count

    with JsonLinesLedgerStore(tmp_path) as store:
        for room in (0, 1, 100, 300):
            left = room
            monkeypatch.setattr(os, "write", write)
            with pytest.raises(LedgerUnavailable, match="No space left on device"):
                store.append("r", entries[6:], expected=6, sync=True)
            monkeypatch.undo()
            assert path.read_bytes() == whole
            assert list(store.read("r")) == entries[:6]
        store.append("r", entries[6:], expected=6, sync=True)
        assert list(store.read("r")) == entries


@pytest.mark.parametrize("failing", ["_sync_data", "_sync_directory"])
def test_after_a_failed_sync_the_store_takes_nothing_until_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    entries = entries_of(3)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = JsonLinesLedgerStore(tmp_path)
    store.append("r", entries[:1], expected=0, sync=False)
    monkeypatch.setattr(module, failing, fail)
    with pytest.raises(LedgerUnavailable, match="Input/output error"):
        store.append("r", entries[1:2], expected=1, sync=True)
    monkeypatch.undo()
    for expected in (1, 2):
        with pytest.raises(LedgerUnavailable, match="a sync failed"):
            store.append("r", entries[expected:], expected=expected, sync=False)
    with JsonLinesLedgerStore(tmp_path) as again:
        seq, _ = RunLedger(again, "r").verify().head
        again.append("r", entries[seq:], expected=seq, sync=True)


def test_a_place_that_cannot_be_used_is_a_typed_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = JsonLinesLedgerStore(tmp_path / "file")
    with pytest.raises(LedgerUnavailable, match="File exists"):
        store.append("r", entries_of(1), expected=0, sync=False)
    with pytest.raises(LedgerUnavailable, match="Not a directory"):
        list(store.read("r"))
    assert not RunLedger(store, "r").verify().ok
    long = JsonLinesLedgerStore(tmp_path)
    with pytest.raises(LedgerUnavailable, match="File name too long"):
        long.append("r" * 300, [], expected=0, sync=False)


def test_a_file_deleted_under_its_writer_is_a_typed_failure(tmp_path: Path) -> None:
    path, entries = filled(tmp_path), entries_of(8)
    with JsonLinesLedgerStore(tmp_path) as store:
        store.append("r", entries[6:7], expected=6, sync=False)
        path.unlink()
        with pytest.raises(LedgerUnavailable, match="deleted while it was open"):
            store.append("r", entries[7:], expected=7, sync=False)
        with pytest.raises(LedgerConflict):
            store.append("r", entries[7:], expected=7, sync=False)


def test_sync_is_asked_of_the_disk_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(module, "_sync_data", lambda file: asked.append(os.readlink(f"/proc/self/fd/{file}")))
    monkeypatch.setattr(module, "_sync_directory", lambda path: asked.append(str(path)))
    runs = tmp_path / "runs"
    with JsonLinesLedgerStore(runs) as store:
        recorder = Recorder(store, "r", ManualClock())
        recorder.record("run.opened", OPENED)
        recorder.record("fact.prompt", {"text": LONG})
        recorder.flush(sync=False)
        assert asked == []
        recorder.flush(sync=True)
        blob = next((runs / "blobs").iterdir())
        # The text before the entry that refers to it, and every new name with its directory.
        assert asked == [str(blob), str(runs / "blobs"), str(runs / "r.jsonl"), str(runs), str(tmp_path)]
        asked.clear()
        recorder.record("fact.prompt", {"text": LONG})
        recorder.flush(sync=True)
        assert asked == [str(runs / "r.jsonl")]


def test_a_blob_that_was_half_written_is_written_again(tmp_path: Path) -> None:
    for run in ("a", "b"):
        with JsonLinesLedgerStore(tmp_path) as store:
            recorder = Recorder(store, run, ManualClock())
            recorder.record("run.opened", OPENED)
            recorder.record("fact.prompt", {"text": LONG})
            recorder.flush(sync=True)
            assert RunLedger(store, "a").verify().ok
        blob = next((tmp_path / "blobs").iterdir())
        blob.write_bytes(blob.read_bytes()[:100])
        assert not RunLedger(JsonLinesLedgerStore(tmp_path), "a").verify().ok


def test_going_on_with_a_long_run_reads_only_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = entries_of(3000)
    with JsonLinesLedgerStore(tmp_path) as store:
        store.append("r", entries[:2999], expected=0, sync=False)
    read: list[int] = []
    real = os.pread

    def pread(file: int, size: int, at: int) -> bytes:
        read.append(size)
        return real(file, size, at)

    monkeypatch.setattr(os, "pread", pread)
    with JsonLinesLedgerStore(tmp_path) as store:
        store.append("r", entries[2999:], expected=2999, sync=False)
    assert (tmp_path / "r.jsonl").stat().st_size > 300_000
    assert sum(read) <= 64 * 1024


def test_entries_larger_than_the_window_are_found(tmp_path: Path) -> None:
    with JsonLinesLedgerStore(tmp_path) as store:
        recorder = Recorder(store, "r", ManualClock())
        recorder.record("run.opened", OPENED | {"goal": "x" * 300_000})
        recorder.record("step", {"text": "y" * 100_000})
        recorder.flush(sync=False)
    for n in range(3):
        with JsonLinesLedgerStore(tmp_path) as store:
            recorder = Recorder(store, "r", ManualClock(), head=RunLedger(store, "r").verify().head)
            recorder.record("step", {"text": "z" * 70_000 * n})
            recorder.flush(sync=False)
    assert [summary.entries for summary in JsonLinesLedgerStore(tmp_path).runs()] == [5]


WRITER = """
import random, sys
from agentloop.determinism import ManualClock
from agentloop.ledger import JsonLinesLedgerStore, Recorder, RunLedger
directory, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
store = JsonLinesLedgerStore(directory)
recorder = Recorder(store, "r", ManualClock(), head=RunLedger(store, "r").verify().head)
if not recorder.head[0]:
    recorder.record("run.opened", {"version": 2})
while True:
    for _ in range(chance.randint(1, 5)):
        recorder.record("step", {"n": recorder.head[0], "text": "x" * chance.randint(0, 20_000)})
    recorder.record("fact.prompt", {"text": str(chance.random()) * 100})
    recorder.flush(sync=True)
    print(recorder.head[0], recorder.head[1].hex(), flush=True)
"""


def test_killing_the_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    acknowledged = NO_ENTRIES
    for kill in range(20):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(seed + kill)],
            stdout=subprocess.PIPE, cwd=Path(__file__).parents[3], text=True,
        )  # fmt: skip
        assert child.stdout is not None
        with child.stdout as acknowledgements:
            for _ in range(chance.randint(1, 8)):
                seq, digest = next(acknowledgements).split()
                acknowledged = int(seq), bytes.fromhex(digest)
            for _ in range(chance.randint(0, 20_000)):  # a moment that is not at the same place each time
                pass
            child.kill()
            for line in acknowledgements:
                if line.endswith("\n"):
                    seq, digest = line.split()
                    acknowledged = int(seq), bytes.fromhex(digest)
        child.wait()
        report = RunLedger(JsonLinesLedgerStore(tmp_path), "r").verify(expect_head=acknowledged)
        assert report.ok, (seed, kill, report)
        assert report.checked >= acknowledged[0]
    assert acknowledged[0] > 20
