"""Faults below the store: death, full disk and failing disk at every write, torn and flipped bytes.

The script of `fault_script` is run once to see what it leaves after each step; whatever happens,
a file must then hold exactly what one of its steps left. `RELIABILITY=full` makes every cut and
many more flips.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw
import pytest

from graphstate import Fail, GraphStateError
from tests.integration.fault_script import STEPS, Left, folder, left, opened, play
from tests.integration.fault_vfs import FaultySystem, Kind

FULL = os.environ.get("RELIABILITY") == "full"
CHUNKS = 8


@lru_cache
def reference() -> tuple[Left, ...]:
    """What the script leaves when opened and after each step."""
    with tempfile.TemporaryDirectory() as name:
        path, seen = Path(name) / "g.db", []
        graph = opened(path)
        seen.append(left(graph))
        for _, step in STEPS:
            step(graph)
            seen.append(left(graph))
        graph.close()
    return tuple(seen)


def in_child(work: Callable[[Callable[[int], object]], object]) -> int:
    """Run something in a process that may die any time; return the last number it told, or -1."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            work(lambda number: os.write(writing, bytes([number])))
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    told = b""
    while data := os.read(reading, 1_000):
        told += data
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9), code
    return told[-1] if told else -1


def dies_at(number: int) -> Callable[[int, Kind, str], None]:
    def on_call(count: int, kind: Kind, name: str) -> None:
        if count == number:
            os._exit(9)

    return on_call


def killed(path: Path, number: int, *, torn: bool = False, **options: Any) -> int:
    """Run the script in a process that dies before its n-th write; return the acknowledged steps."""

    def work(told: Callable[[int], object]) -> None:
        with FaultySystem(dies_at(number), torn=number if torn else 0):
            play(path, told, **options)

    return in_child(work)


@lru_cache
def writes(durability: str) -> int:
    """How often the whole script writes."""
    with tempfile.TemporaryDirectory() as name, FaultySystem(lambda *_: None) as system:
        play(Path(name) / "g.db", lambda _: None, durability=durability)
        return system.count


def check(path: Path, acknowledged: int, **options: Any) -> None:
    """Demand that the file holds what the last acknowledged step left, or the one after it."""
    expected = reference()
    with opened(path, **options) as graph:
        report = graph.verify_integrity(deep=True)
        assert report.ok, report
        assert graph.recovery.trimmed == 0
        found = left(graph)
        allowed = expected[max(acknowledged, 0) : acknowledged + 2]
        assert found in allowed, (acknowledged, found.head, [a.head for a in allowed])
        assert graph.remember("afterwards").ok
        assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("durability", ["process", "power"])
def test_f1_death_at_every_write(disk: Path, chunk: int, durability: str) -> None:
    total = writes(durability)
    assert total > 200
    # At level `process` the positions are the same but for the syncs, so a few of them are enough.
    step = CHUNKS * (1 if FULL else 3 if durability == "power" else 12)
    for number in range(1 + chunk, total + 1, step):
        place = folder(disk, number)
        acknowledged = killed(place / "g.db", number, torn=number % 2 == 0, durability=durability)
        check(place / "g.db", acknowledged, durability=durability)
        assert sorted(entry.name for entry in place.iterdir()) == ["g.db"]
        shutil.rmtree(place)


# ---------------------------------------------------------------------------------- recovery


def torn(path: Path) -> None:
    """Leave a file that opening has to repair: rows beyond the projection, and a mark of damage."""
    play(path, lambda _: None)
    db = apsw.Connection(str(path))
    db.execute(
        "INSERT INTO event SELECT no + 1, at, 'torn', type, actor, trust, NULL, '{}', hash FROM event"
        " WHERE no >> 40 = 1 ORDER BY no DESC LIMIT 1"
    )
    db.close()


def marked(path: Path) -> None:
    """Leave a file that was found damaged in what is made from the log: opening makes it again."""
    play(path, lambda _: None)
    db = apsw.Connection(str(path))
    db.execute("UPDATE node SET label = 'x'; DELETE FROM checkpoint; INSERT INTO meta VALUES ('broken', 'x')")
    db.close()


def opens_in_child(path: Path, number: int) -> None:
    """Open and close the file in a process that dies before its n-th write."""

    def work(told: Callable[[int], object]) -> None:
        with FaultySystem(dies_at(number)):
            opened(path).close()

    in_child(work)


def opening_writes(path: Path) -> int:
    with FaultySystem(lambda *_: None) as system:
        opened(path).close()
        return system.count


@pytest.mark.parametrize("build", [torn, marked], ids=lambda f: f.__name__)
def test_f3_recovery_can_die_any_number_of_times(disk: Path, build: Callable[[Path], None]) -> None:
    original, whole = disk / "original.db", disk / "whole.db"
    build(original)
    shutil.copy(original, whole)
    total = opening_writes(whole)
    assert total > 8
    with opened(whole) as graph:
        expected = left(graph)._replace(aside=0)
    firsts = range(1, total + 1, 1 if FULL else 5)
    seconds = range(1, total + 1, 3 if FULL else 17)
    for number, (first, second) in enumerate((f, s) for f in firsts for s in seconds):
        place = folder(disk, number)
        shutil.copy(original, place / "g.db")
        opens_in_child(place / "g.db", first)
        opens_in_child(place / "g.db", second)
        with opened(place / "g.db") as graph:
            assert left(graph)._replace(aside=0) == expected, (first, second)
            assert graph.verify_integrity(deep=True).ok
        shutil.rmtree(place)


def test_f3_death_while_a_dead_writers_file_is_taken_over(disk: Path) -> None:
    total = writes("process")
    for number in range(40, total, 29 if FULL else 97):
        for second in range(1, 60, 7 if FULL else 23):
            place = folder(disk, number * 1_000 + second)
            acknowledged = killed(place / "g.db", number)
            opens_in_child(place / "g.db", second)
            check(place / "g.db", acknowledged)
            shutil.rmtree(place)


# ---------------------------------------------------------------------------------- torn and flipped bytes


@lru_cache
def dead() -> tuple[bytes, bytes]:
    """The database and the write-ahead log of a process that died before it could close."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "g.db"

        def work(told: Callable[[int], object]) -> None:
            def tell(number: int) -> None:
                told(number)
                if number == len(STEPS):
                    os._exit(9)

            play(path, tell)

        assert in_child(work) == len(STEPS)
        return path.read_bytes(), (path.parent / "g.db-wal").read_bytes()


def put(place: Path, database: bytes, log: bytes | None = None) -> Path:
    path = place / "g.db"
    path.write_bytes(database)
    if log is not None:
        (place / "g.db-wal").write_bytes(log)
    return path


def test_f6_a_torn_write_ahead_log_leaves_whole_steps(disk: Path) -> None:
    database, log = dead()
    expected, found = reference(), set()
    for length in range(0, len(log), 211 if FULL else 4_211):
        place = folder(disk, length)
        try:
            with opened(put(place, database, log[:length])) as graph:
                assert graph.recovery.trimmed == 0
                assert graph.verify_integrity(deep=True).ok
                found.add(left(graph).head)
                assert left(graph) in expected
        except GraphStateError:
            assert length < 4_200  # before the first commit there is no file of ours yet
        shutil.rmtree(place)
    assert len(found) > 10


def answers(path: Path) -> Left | None:
    """What the file says if a deep verification is content, None after a typed refusal."""
    try:
        with opened(path) as graph:
            if not graph.verify_integrity(deep=True).ok:
                assert isinstance(graph.remember("x"), Fail)
                return None
            for node in graph.recall(limit=1_000):
                assert graph.get_node(node.id) == node
            graph.history(limit=1_000)
            graph.recall(text="xxx")
            graph.render()
            return left(graph)
    except GraphStateError:
        return None


FLIPS = 5_000 if FULL else 250


@pytest.mark.timeout(1_200 if FULL else 120)
def test_f7_a_flipped_bit_of_the_database_is_found_or_changes_no_answer(disk: Path) -> None:
    rng, seen = random.Random(7), 0
    path = disk / "whole.db"
    play(path, lambda _: None)
    whole = path.read_bytes()
    expected = answers(path)
    assert expected is not None
    for number in range(FLIPS):
        place, at = folder(disk, number), rng.randrange(len(whole))
        changed = whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :]
        found = answers(put(place, changed))
        assert found is None or found == expected, at
        seen += found is None
        shutil.rmtree(place)
    assert seen > FLIPS / 10


@pytest.mark.timeout(1_200 if FULL else 120)
def test_f7_a_flipped_bit_of_the_write_ahead_log_leaves_whole_steps(disk: Path) -> None:
    rng, (database, log) = random.Random(8), dead()
    expected, shorter = reference(), 0
    for number in range(FLIPS // 2):
        place, at = folder(disk, number), rng.randrange(len(log))
        changed = log[:at] + bytes([log[at] ^ (1 << rng.randrange(8))]) + log[at + 1 :]
        found = answers(put(place, database, changed))
        assert found is None or found in expected, at
        shorter += found is not None and found != expected[-1]
        shutil.rmtree(place)
    # SQLite ends the log at the damaged frame without a word: only a kept head could tell.
    assert shorter > FLIPS / 10


# ---------------------------------------------------------------------------------- failing disks


class Failing:
    """Refuses the n-th call that writes, or all from there on, until it is mended."""

    def __init__(self, number: int, error: type[apsw.Error], *, once: bool) -> None:
        self.number, self.error, self.once, self.mended = number, error, once, False
        self.synced = False

    def __call__(self, count: int, kind: Kind, name: str) -> None:
        if self.mended or count < self.number or (self.once and count > self.number):
            return
        self.synced = self.synced or kind == "sync"
        raise self.error("injected")


def attempt(work: Callable[[], Any]) -> bool:
    try:
        work()
    except GraphStateError:
        return False
    return True


@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError], ids=["full", "io"])
def test_f8_f9_a_failing_disk_at_every_write(disk: Path, error: type[apsw.Error], once: bool) -> None:
    expected, failed = reference(), 0
    for number in range(1, writes("power"), 1 if FULL else 7):
        place = folder(disk, number)
        fault = Failing(number, error, once=once)
        with FaultySystem(fault):
            failed += survives(place / "g.db", fault, expected)
        with opened(place / "g.db") as graph:
            assert graph.verify_integrity(deep=True).ok
        shutil.rmtree(place)
    assert failed > 20


def survives(path: Path, fault: Failing, expected: tuple[Left, ...]) -> bool:
    """Run the script until a step fails, and look at the state then; say whether one did."""
    try:
        graph = opened(path, durability="power")
    except GraphStateError:
        return True
    done = 0
    for number, (_, step) in enumerate(STEPS):
        if not attempt(lambda step=step: step(graph)):  # type: ignore[misc]  # bound at once
            break
        done = number + 1
    failed = done < len(STEPS)
    assert left(graph) == expected[done]  # reads go on, and nothing half done is to be seen
    fault.mended = True
    again = graph.remember("again")
    if isinstance(again, Fail):  # a failed sync may have lost what SQLite believes to be there
        assert failed
        assert fault.error is apsw.IOError
        assert again.code == "IntegrityBroken"
    elif fault.error is apsw.IOError:
        assert not (failed and fault.synced)
    graph.close()
    if failed:
        with opened(path) as graph:
            assert left(graph).head in {expected[done].head, expected[done + 1].head} or again.ok
    return failed
