"""Every ledger that was ever recorded replays, and what no version knows is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentloop import (
    JsonLinesLedgerStore,
    MemoryLedgerStore,
    ResumeError,
    RunLedger,
    UnsupportedVersion,
    fork,
    parse_ledger,
    replay,
    replay_file,
    resume,
)
from agentloop._canonical import decode, encode
from agentloop.determinism import SystemClock
from agentloop.ledger.recorder import LEDGER_VERSION, Recorder
from agentloop.ledger.upcasting import ENTRIES
from tests.agentloop.loop.scenes import loop_options

FOLDER = Path(__file__).parent
RUNS = [
    (folder, summary.run)
    for folder in sorted(FOLDER.glob("version-*"))
    for summary in JsonLinesLedgerStore(folder).runs()
]
FILES = sorted(FOLDER.glob("**/*.json"))


def newest() -> JsonLinesLedgerStore:
    return JsonLinesLedgerStore(FOLDER / f"version-{LEDGER_VERSION}")


def rewritten(run: str, change: Any) -> MemoryLedgerStore:
    """Return a store with the run as another version would have recorded it."""
    store = MemoryLedgerStore()
    recorder = Recorder(store, run, SystemClock())
    for entry in RunLedger(newest(), run).entries():
        recorder.record(*change(entry.kind, entry.data))
    recorder.flush(sync=False)
    return store


def test_the_current_version_has_recorded_every_driver() -> None:
    drivers = {summary.opened["driver"] for summary in newest().runs()}
    assert drivers == {"agent_loop", "looping_agent_loop", "orchestrator"}


@pytest.mark.parametrize(("folder", "run"), RUNS, ids=lambda value: getattr(value, "name", value))
def test_every_recorded_run_replays(folder: Path, run: str) -> None:
    report = replay(JsonLinesLedgerStore(folder), run)
    assert report.ok, report.divergence
    assert report.closed
    assert report.entries > 10


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_p5_they_replay_to_the_same_in_another_process_place_and_time(seed: str) -> None:
    """Another hash seed, time zone and locale; and then the other backend does not matter either."""
    program = (
        "from tests.ledgers.test_ledgers import RUNS, told\n"
        "import sys; sys.stdout.write('\\n'.join(told(*run) for run in RUNS))"
    )
    environment = {
        **os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "utf-8",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=FOLDER.parents[1], env=environment, capture_output=True,
        text=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [told(*run) for run in RUNS]


def told(folder: Path, run: str) -> str:
    """Return everything a replay says, frames included, as one line."""
    frames: list[Any] = []
    store = JsonLinesLedgerStore(folder)
    report = replay(store, run, on_frame=lambda frame: frames.append(frame.to_dict()))
    return encode({"report": msgspec.to_builtins(report), "frames": frames}).decode()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_replays_and_keeps_its_meaning(path: Path) -> None:
    file = parse_ledger(path.read_bytes())
    assert replay_file(file).ok
    assert parse_ledger(file.serialise()) == file
    assert file.fingerprint == parse_ledger((newest_file()).read_bytes()).fingerprint


def newest_file() -> Path:
    return FOLDER / f"version-{LEDGER_VERSION}" / "answered.file.json"


def test_a_file_of_the_first_version_is_raised_to_the_second() -> None:
    old, new = FOLDER / "file-1.json", newest_file()
    assert decode(old.read_bytes())["version"] == 1
    raised, recorded = parse_ledger(old.read_bytes()), parse_ledger(new.read_bytes())
    assert (raised.version, raised.migrated_from) == (2, 1)
    assert raised.usage.model_invocations == recorded.usage.model_invocations == 6
    assert raised.outcome == recorded.outcome
    # Its own rules decided: whatever came later is not held against it.
    assert [entry.to for entry in raised.entries] == [entry.to for entry in recorded.steps]


def test_an_unknown_newer_version_is_refused_by_everybody() -> None:
    def newer(kind: str, data: Any) -> tuple[str, Any]:
        return kind, {**data, "version": LEDGER_VERSION + 1} if kind == "run.opened" else data

    for run in ("judged", "looping", "answered"):
        store = rewritten(run, newer)
        with pytest.raises(UnsupportedVersion, match=f"version {LEDGER_VERSION + 1} cannot be read"):
            list(RunLedger(store, run).entries())
        with pytest.raises(UnsupportedVersion):
            resume(store, run)
        with pytest.raises(UnsupportedVersion):
            fork(store, run, at=2)
        report = replay(store, run)
        assert report.divergence is not None
        assert "cannot be read" in str(report.divergence.recorded)
    file = decode(newest_file().read_bytes())
    with pytest.raises(UnsupportedVersion, match="only 1 to 2"):
        parse_ledger(encode({**file, "version": 3}))


# A form that never was: verdicts had another kind, and a step told the two halves of ``out`` apart.


def as_before(kind: str, data: Any) -> tuple[str, Any]:
    if kind == "run.opened":
        return kind, {**data, "version": 1}
    if kind == "fact.verdict":
        return "fact.judgement", data
    if kind == "step":
        count, digest = data["out"]
        return kind, {
            **{name: data[name] for name in data if name != "out"},
            "count": count,
            "digest": digest,
        }
    return kind, data


def raised(entry: tuple[str, Any]) -> tuple[str, Any]:
    kind, data = entry
    if kind == "fact.judgement":
        return "fact.verdict", data
    if kind == "step":
        rest = {name: data[name] for name in data if name not in ("count", "digest")}
        return kind, {**rest, "out": [data["count"], data["digest"]]}
    return kind, data


def test_an_older_run_replays_through_its_upcast_and_goes_on_as_a_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = rewritten("judged", as_before)
    assert not replay(store, "judged").ok
    monkeypatch.setattr(ENTRIES, "_steps", {1: raised})
    report = replay(store, "judged")
    assert report.ok, report.divergence
    assert report.closed
    assert RunLedger(store, "judged").verify().ok  # what is stored is what is hashed
    options = {name: value for name, value in loop_options([], []).items() if name != "initial_symbolics"}
    with pytest.raises(ResumeError, match="version 1 recorded it: fork it"):
        resume(store, "judged", **options)
    fork(store, "judged", at=30, run_id="forked", **options)
    forked = RunLedger(store, "forked")
    assert (forked.opened["version"], forked.version) == (LEDGER_VERSION, LEDGER_VERSION)
    assert "fact.judgement" not in {entry.kind for entry in store.read("forked")}
    assert replay(store, "forked").ok
