"""Who may not write, several processes on one file, forks, and a file that changes under our hands."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from graphstate import Adaptogen, Busy, Fail
from graphstate.manifest import VERBS
from tests.integration.fault_script import folder, left, opened, play


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that becomes the name of a file shall make none here."""
    monkeypatch.chdir(tmp_path)


FULL = os.environ.get("RELIABILITY") == "full"
ROOT = Path(__file__).parents[2]

# ---------------------------------------------------------------------------------- who may not write


#: Verbs that look before they change anything, and answer what they see.
LOOK_FIRST = ("explain_transition", "merge", "repair", "reembed", "bump_attention")
#: What a verb needs to change something, beside its words.
MORE: dict[str, dict[str, Any]] = {"derive_zone": {"ratify": True, "name": "z"}}


def called(name: str, words: list[str]) -> Callable[[Adaptogen], object]:
    return lambda graph: getattr(graph, name)(*words, **MORE.get(name, {}))


def changing() -> Iterator[tuple[str, Callable[[Adaptogen], object]]]:
    """Yield every verb that changes something, called with a word for each thing it needs."""
    for names in VERBS.values():
        for name in names:
            method = getattr(Adaptogen, name)
            if method.verb == "changes" and name not in LOOK_FIRST:
                parameters = list(inspect.signature(method).parameters.values())[1:]
                yield name, called(name, ["a" for p in parameters if p.default is p.empty])


CHANGING = tuple(changing())


def refused(result: object) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return str(result.code)


def bytes_of(place: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in sorted(place.iterdir()) if entry.suffix == ".db"}


def test_f10_a_read_only_graph_refuses_every_change_and_no_byte_changes(tmp_path: Path) -> None:
    play(tmp_path / "g.db", lambda _: None)
    before = bytes_of(tmp_path)
    with opened(tmp_path / "g.db", read_only=True) as graph:
        assert len(CHANGING) > 15
        for name, call in CHANGING:
            assert refused(call(graph)) == "ReadOnly", name
        assert graph.verify_integrity(deep=True).ok
        assert graph.get_node("a") is not None
    assert bytes_of(tmp_path) == before


def test_f11_every_change_waits_as_long_as_it_was_told_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    play(path, lambda _: None)
    with opened(path, busy_timeout_ms=20) as graph, opened(path) as holder, holder.unit():
        holder.remember("held").unwrap()
        before = left(graph)
        for name, call in CHANGING:
            began = time.monotonic()
            assert refused(call(graph)) == "Busy", name
            assert 0.015 < time.monotonic() - began < 4, name  # 5 s are the default
        assert left(graph) == before
    with opened(path) as graph:
        assert graph.get_node("held") is not None
        assert graph.verify_integrity(deep=True).ok


def test_f11_a_file_that_another_program_locked_is_busy_at_once_and_at_the_first_read(tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    play(path, lambda _: None)
    holder = apsw.Connection(str(path))
    holder.execute("PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE; DELETE FROM meta").fetchall()
    for options in ({}, {"read_only": True}):
        with pytest.raises(Busy):
            opened(path, busy_timeout_ms=20, **options)
    holder.close()
    with opened(path) as graph:
        assert graph.verify_integrity(deep=True).ok


def test_f9_a_graph_that_was_found_damaged_refuses_every_change(tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    play(path, lambda _: None)
    db = apsw.Connection(str(path))
    db.execute("UPDATE event SET at = at + 1 WHERE no >> 40 = 1")
    db.close()
    with opened(path) as graph:
        assert not graph.verify_integrity(deep=True).ok
        before = left(graph)
        for name, call in CHANGING:
            assert refused(call(graph)) == "IntegrityBroken", name
        assert left(graph) == before


# ---------------------------------------------------------------------------------- several processes


PAIRS = 250 if FULL else 40


def write_pairs(path: Path, name: str, told: Callable[[int], object]) -> None:
    graph = Adaptogen.open(path, seed=False, busy_timeout_ms=60_000)
    for i in range(PAIRS):
        with graph.unit():
            graph.remember("u1", payload=f"{name}{i}", tags=["pair"]).unwrap()
            graph.remember("u2", payload=f"{name}{i}", tags=["pair"]).unwrap()
        told(i)
        if name == "mortal" and i == PAIRS // 2:
            os.kill(os.getpid(), 9)
    graph.close()


def test_f12_readers_see_whole_units_of_several_writers_one_of_which_dies(disk: Path) -> None:
    path = disk / "g.db"
    with Adaptogen.open(path, seed=False) as graph:
        graph.remember("u1", payload="", tags=["pair"]).unwrap()
        graph.remember("u2", payload="", tags=["pair"]).unwrap()
    told: dict[str, int] = {}
    threads = [
        threading.Thread(target=lambda name=name: told.update({name: writer(path, name)}))
        for name in ("one", "two", "mortal")
    ]
    for thread in threads:
        thread.start()
    looks = 0
    with Adaptogen.open(path, seed=False, read_only=True) as reader:
        while any(thread.is_alive() for thread in threads):
            first, second = reader.recall(tag="pair")
            assert first.payload == second.payload
            looks += 1
    assert looks > 5
    with Adaptogen.open(path, seed=False) as graph:
        assert told == {"one": PAIRS, "two": PAIRS, "mortal": PAIRS // 2 + 1}
        assert graph.store.head().seq - 2 >= 2 * sum(told.values())
        assert graph.verify_integrity(deep=True).ok
        assert graph.recovery.trimmed == 0


def writer(path: Path, name: str) -> int:
    """Let a process of its own write pairs, and return how many it acknowledged."""
    code = (
        "import sys, os; from pathlib import Path\n"
        "from tests.integration.test_graph_neighbours import write_pairs\n"
        "write_pairs(Path(sys.argv[1]), sys.argv[2], lambda i: os.write(1, b'.'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), name],
        cwd=ROOT, stdout=subprocess.PIPE, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return len(done.stdout)


FORKS = """
import multiprocessing, os, sys
from graphstate import Adaptogen, ForkedStore

graph = Adaptogen.open(sys.argv[1], seed=False, lock=sys.argv[2])

def misuse():
    try:
        graph.remember("child")
    except ForkedStore:
        return
    os._exit(7)

def ends(how):
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (1 if how == "exception" else 0)
        return
    misuse()
    if how == "_exit":
        os._exit(0)
    if how == "exception":
        sys.stderr = open(os.devnull, "w")
        raise RuntimeError("on purpose")
    sys.exit(0)

for i in range(int(sys.argv[3])):
    graph.remember(f"n{i}").unwrap()
    how = ("_exit", "exception", "exit", "multiprocessing")[i % 4]
    if how == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=misuse)
        process.start()
        process.join()
        assert process.exitcode == 0
    else:
        ends(how)
    assert os.path.exists(sys.argv[1] + "-wal"), how
    assert os.path.exists(sys.argv[1] + ".lock") == (sys.argv[2] == "exclusive"), how
    if sys.argv[2] == "exclusive":
        try:
            Adaptogen.open(sys.argv[1], seed=False)
        except Exception as error:
            assert type(error).__name__ == "LockHeld"
        else:
            raise AssertionError("a child gave the lock away")
os._exit(0)
"""


@pytest.mark.parametrize("lock", ["shared", "exclusive"])
def test_f13_children_of_a_writer_neither_write_nor_unlock(disk: Path, lock: str) -> None:
    path, count = disk / "g.db", 100 if FULL else 12
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(path), lock, str(count)],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Adaptogen.open(path, seed=False) as graph:
        assert len(graph.recall(limit=1_000)) == count
        assert graph.verify_integrity(deep=True).ok


# ---------------------------------------------------------------------------------- a file under our hands


def drop(name: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        db = apsw.Connection(str(path))
        db.execute(f"DROP TABLE {name}")
        db.close()

    return change


def log_removed(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def log_replaced(path: Path) -> None:
    log_removed(path)
    Path(f"{path}-wal").write_bytes(b"")


MANIPULATIONS: tuple[tuple[str, Callable[[Path], object]], ...] = (
    ("deleted", lambda path: path.unlink()),
    ("moved", lambda path: path.rename(path.with_suffix(".moved"))),
    ("replaced", lambda path: path.with_suffix(".other").replace(path)),
    ("log removed", log_removed),
    ("log replaced", log_replaced),
    ("folder moved", lambda path: path.parent.rename(path.parent.with_suffix(".moved"))),
    ("node dropped", drop("node")),
    ("event dropped", drop("event")),
    ("state dropped", drop("state")),
    ("snapshot dropped", drop("snapshot")),
)


@pytest.mark.parametrize(("what", "change"), MANIPULATIONS, ids=[what for what, _ in MANIPULATIONS])
def test_f14_a_manipulated_file_is_noticed_at_the_next_lasting_verb(
    tmp_path: Path, what: str, change: Callable[[Path], object]
) -> None:
    place = folder(tmp_path, 1)
    path = place / "g.db"
    with Adaptogen.open(path.with_suffix(".other"), seed=False) as other:
        other.remember("z").unwrap()
    graph = Adaptogen.open(path, seed=False)
    graph.remember("a").unwrap()
    change(path)
    assert refused(graph.checkpoint("cp")) == "IntegrityBroken", what
    graph.close()


def test_f14_a_second_name_for_the_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    with opened(path) as graph:
        graph.remember("a").unwrap()
        (tmp_path / "second.db").hardlink_to(path)
        assert graph.remember("b").ok
        assert graph.verify_integrity(deep=True).ok
