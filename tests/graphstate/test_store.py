"""The store: opening, appending, joining, faults, and several processes on one file."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from graphstate import (
    GENESIS,
    Adaptogen,
    Busy,
    ClosedStore,
    Conflict,
    Fail,
    ForeignDatabase,
    ForkedStore,
    Head,
    IntegrityBroken,
    Misuse,
    ReadOnly,
    Row,
    Store,
    UnitFailed,
    UnsupportedVersion,
    VerbFailed,
    row_hash,
)
from graphstate.store import db as door
from graphstate.store import opening
from graphstate.store.schema import FORMAT_VERSION
from tests.graphstate.conftest import Make, Tamper


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


EMPTY = Head(0, GENESIS)


def run_rows(count: int, *, stream: str = "run:1", after: Head = EMPTY) -> list[Row]:
    rows, seq, previous = [], after.seq, after.hash
    for _ in range(count):
        seq += 1
        body = f'{{"n":{seq}}}'.encode()
        previous = row_hash(previous, stream, seq, 1_000 + seq, None, "fact.x", None, None, None, body)
        rows.append(Row(seq, 1_000 + seq, None, "fact.x", None, None, None, body, previous))
    return rows


# ---------------------------------------------------------------------------------- opening


def test_a_new_file_belongs_to_its_owner_alone(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make(path=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("asked", "level"), [("process", "process"), ("power", "power")])
def test_durability_is_what_sqlite_reports(make: Make, tmp_path: Path, asked: str, level: str) -> None:
    graph = make(path=tmp_path / "g.db", durability=asked)
    assert graph.durability == level
    (synchronous,) = graph.store._db.one("PRAGMA synchronous") or (None,)
    assert synchronous == {"process": 1, "power": 2}[level]
    assert make().durability == "memory"


def text_file(path: Path) -> None:
    path.write_text("not a database, but longer than a header of one hundred bytes" * 5)


def other_program(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    connection.close()


def other_application(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA application_id=7")
    connection.close()


@pytest.mark.parametrize("build", [text_file, other_program, other_application], ids=lambda f: f.__name__)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_foreign_file_is_refused_and_left_as_it_was(
    tmp_path: Path, build: Callable[[Path], None], read_only: bool
) -> None:
    path = tmp_path / "theirs.db"
    build(path)
    before = digest(path)
    with pytest.raises(ForeignDatabase, match="left as it"):
        Adaptogen.open(path, read_only=read_only)
    assert digest(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["theirs.db"]


def test_a_newer_file_names_both_versions_and_is_left_as_it_was(
    make: Make, tamper: Tamper, tmp_path: Path
) -> None:
    path = tmp_path / "g.db"
    make("a", path=path).close()
    tamper(path, "PRAGMA user_version=99")
    before = digest(path)
    with pytest.raises(UnsupportedVersion, match=rf"version 99.*version {FORMAT_VERSION}") as caught:
        Adaptogen.open(path)
    assert (caught.value.found, caught.value.supported) == (99, FORMAT_VERSION)
    assert "upgrade the program" in str(caught.value)
    assert "import that" in str(UnsupportedVersion("old.db", FORMAT_VERSION - 1, FORMAT_VERSION))
    assert digest(path) == before


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TRIGGER evil AFTER INSERT ON event BEGIN DELETE FROM node; END",
        "CREATE TABLE more (x)",
        "CREATE VIEW v AS SELECT 1",
        "DROP VIEW cursor",
        "ALTER TABLE edge ADD COLUMN extra TEXT",
    ],
)
def test_a_schema_that_is_not_ours_is_refused(
    make: Make, tamper: Tamper, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "g.db"
    make("a", path=path).close()
    tamper(path, change)
    with pytest.raises(IntegrityBroken, match=r"did not create|lacks"):
        Adaptogen.open(path)


def test_a_damaged_file_is_refused_with_a_typed_exception(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make(*(f"n{i}" for i in range(300)), path=path).close()
    data = bytearray(path.read_bytes())
    data[100:4096] = os.urandom(4096 - 100)
    path.write_bytes(data)
    before = digest(path)
    with pytest.raises(IntegrityBroken):
        Adaptogen.open(path)
    assert digest(path) == before


@pytest.mark.parametrize("page", [1, 3, 5, 8, 13])
def test_a_damaged_page_never_crashes_and_verify_finds_it(make: Make, tmp_path: Path, page: int) -> None:
    path = tmp_path / "g.db"
    make(*(f"n{i}" for i in range(300)), path=path).close()
    data = bytearray(path.read_bytes())
    data[4096 * page : 4096 * page + 400] = b"\xa5" * 400
    path.write_bytes(data)
    try:
        graph = make(path=path)
        assert not graph.verify_integrity(deep=True).ok
    except IntegrityBroken:
        pass


def test_opening_twice_finds_everything_and_replays_nothing(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    first = make(seed=True, path=path)
    first.transition("working").unwrap()
    first.reward(1).unwrap()
    expected = first.suggest()
    first.close()
    again = make(seed=True, path=path)
    assert again.store.head().seq == 13
    assert again.recovery.replayed == 0
    assert again.suggest() == expected


def test_the_projection_is_made_again_if_it_is_behind(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make("a", path=path).close()
    tamper(path, "DELETE FROM state WHERE key = 'head'")
    tamper(path, "DELETE FROM node")
    with pytest.raises(IntegrityBroken, match="open it once for writing"):
        make(path=path, read_only=True)
    again = make(path=path)
    assert again.recovery.replayed == 1
    assert again.get_node("a") is not None


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(ValueError, match="durability"):
        Adaptogen.open(durability="always")  # type: ignore[arg-type]  # what nobody should pass
    with pytest.raises(ValueError, match="lock"):
        Adaptogen.open(lock="both")  # type: ignore[arg-type]
    with pytest.raises(VerbFailed, match="trust"):
        Adaptogen.open(trust="full")
    with pytest.raises(VerbFailed, match="actor"):
        Adaptogen.open(actor="a b")


def test_places_that_cannot_hold_a_file(tmp_path: Path) -> None:
    with pytest.raises(ReadOnly, match="cannot be made"):
        Adaptogen.open(tmp_path / "missing" / "g.db")
    with pytest.raises(ReadOnly):
        Adaptogen.open(tmp_path)
    with pytest.raises(ReadOnly, match="does not exist"):
        Adaptogen.open(tmp_path / "g.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------- reading


def test_reading_changes_no_byte(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make(seed=True, path=path).close()
    before = digest(path)
    graph = make(seed=True, path=path, read_only=True)
    assert graph.durability == "read-only"
    graph.suggest()
    graph.recall(text="waiting")
    graph.history()
    graph.metrics()
    assert graph.verify_integrity(deep=True).ok
    for refused in (graph.remember("x"), graph.step(), graph.checkpoint("c"), graph.set_tunable("ucbC", 1)):
        assert isinstance(refused, Fail)
        assert refused.code == "ReadOnly"
    with pytest.raises(ReadOnly):
        graph.store.append("run:1", run_rows(1))
    graph.close()
    assert digest(path) == before


def _look(path: Path) -> int:
    """Read as somebody who may write nothing there; 0 if that left no trace."""
    if os.geteuid() == 0:
        os.setuid(65_534)
    graph = Adaptogen.open(path, read_only=True)
    found = graph.get_node("a") is not None and graph.verify_integrity(deep=True).ok
    beside = [entry.name for entry in path.parent.iterdir()]
    graph.close()
    return 0 if found and beside == ["g.db"] else 1


def test_a_folder_that_cannot_be_written_gets_no_file(make: Make) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make("a", path=place / "g.db").close()
        (place / "g.db").chmod(0o444)
        place.chmod(0o555)
        child = os.fork()
        if child == 0:
            try:
                os._exit(_look(place / "g.db"))
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        place.chmod(0o755)


def test_a_reader_sees_what_another_connection_wrote(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    writer = make("a", "b", path=path)
    reader = make(path=path, read_only=True)
    assert reader.get_node("c") is None
    assert reader.cursor() == []
    writer.remember("c")
    writer.link("a", "c")
    writer.set_cursor(["a"])
    assert reader.get_node("c") is not None
    assert [move.to for move in reader.legal_moves()] == ["c"]
    writer.transition("c")
    assert reader.cursor() == ["c"]


# ---------------------------------------------------------------------------------- appending


def test_streams_keep_their_rows_apart(make: Make) -> None:
    store = make("a").store
    store.append("run:1", run_rows(3), expected=0)
    store.append("run:2", run_rows(2, stream="run:2"), expected=0)
    head = store.append("run:1", run_rows(1, after=store.head("run:1")), expected=3)
    assert head.seq == 4
    assert [row.seq for row in store.read("run:1")] == [1, 2, 3, 4]
    assert [row.seq for row in store.read("run:1", after=2)] == [3, 4]
    assert next(iter(store.read("run:1"))) == run_rows(1)[0]
    assert store.streams("run:") == ["run:1", "run:2"]
    assert store.streams() == ["graph", "run:1", "run:2"]
    assert store.streams("run:%") == []
    assert store.head("run:9") == Head(0, GENESIS)
    assert store.verify(deep=True).ok


def test_an_append_compares_the_head(make: Make) -> None:
    store = make().store
    store.append("run:1", run_rows(2), expected=0)
    with pytest.raises(Conflict, match="is at 2, not at the expected 0") as caught:
        store.append("run:1", run_rows(1), expected=0)
    assert (caught.value.expected, caught.value.current, caught.value.stream) == (0, 2, "run:1")
    assert store.head("run:1").seq == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: row._replace(hash=bytes(32)),
        lambda row: row._replace(body=b"{}"),
        lambda row: row._replace(seq=row.seq + 1),
        lambda row: row._replace(at=0),
        lambda row: row._replace(type="other"),
        lambda row: row._replace(id="x"),
        lambda row: row._replace(cause="x"),
    ],
)
def test_a_row_that_does_not_continue_the_chain_is_refused(make: Make, spoil: Callable[[Row], Row]) -> None:
    store = make().store
    rows = run_rows(3)
    with pytest.raises(IntegrityBroken, match="does not continue"):
        store.append("run:1", [rows[0], spoil(rows[1]), rows[2]])
    assert store.head("run:1").seq == 0
    store.append("run:1", rows)


def test_the_graphs_own_stream_is_written_by_verbs_only(make: Make) -> None:
    with pytest.raises(ValueError, match="graph"):
        make().store.append("graph", [])


def test_reading_pages_while_others_write(make: Make) -> None:
    store = make().store
    store.append("run:1", run_rows(1_200))
    seen = []
    for row in store.read("run:1"):
        seen.append(row.seq)
        if row.seq == 700:
            store.append("run:1", run_rows(1, after=store.head("run:1")))
    assert seen == list(range(1, 1_202))


def test_a_run_that_was_tampered_with_is_named(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    graph.store.append("run:1", run_rows(5))
    graph.close()
    tamper(path, "UPDATE event SET body = '{}' WHERE no & 0xFF = 3 AND no >> 40 = 2")
    report = make(path=path).verify_integrity()
    assert (report.ok, report.stream, report.first_break_seq) == (False, "run:1", 3)


def test_verification_starts_where_the_last_one_ended(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make(*(f"n{i}" for i in range(20)), path=path)
    assert graph.verify_integrity().checked_events == 20
    assert graph.verify_integrity().checked_events == 0
    graph.remember("x")
    assert (graph.verify_integrity().checked_events, graph.verify_integrity().verified_seq) == (1, 21)
    graph.close()
    again = make(path=path)
    assert again.verify_integrity().checked_events == 0
    assert again.verify_integrity(deep=True).checked_events == 21


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE node SET payload = '{\"x\":2}' WHERE id = 'a'", "UPDATE node SET status = 'archived'",
        "DELETE FROM edge", "UPDATE experience SET ema_reward = 9.0", "UPDATE state SET value = '{\"moves\":9,\"nodes\":[\"b\"]}' WHERE key GLOB 'cursor/*'",
        "UPDATE tunable SET value = '9'", "UPDATE snapshot SET digest = zeroblob(32)",
    ],
)  # fmt: skip
def test_deep_verification_finds_an_edited_projection(
    make: Make, tamper: Tamper, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "g.db"
    graph = make("a", "b", path=path)
    graph.link("a", "b")
    graph.set_cursor(["a"])
    graph.step(reward=1)
    graph.set_tunable("ucbC", 2)
    graph.checkpoint("cp")
    assert graph.verify_integrity(deep=True).ok
    graph.close()
    tamper(path, change)
    again = make(path=path)
    report = again.verify_integrity(deep=True)
    assert not report.ok
    assert report.detail
    refused = again.remember("c")
    assert isinstance(refused, Fail)
    assert refused.code == "IntegrityBroken"
    again.close()
    # The log is whole, so what is made from it is made again.
    repaired = make(path=path)
    assert repaired.recovery.last_good_seq == 9
    assert repaired.remember("c").ok
    assert repaired.verify_integrity(deep=True).ok
    assert repaired.get_node("a").payload == {}  # type: ignore[union-attr]  # it is there


# ---------------------------------------------------------------------------------- causes


def test_a_repeated_cause_gives_the_first_answer_and_changes_nothing(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", "b", path=path)
    calls: list[tuple[str, Callable[[Adaptogen], Any]]] = [
        ("remember", lambda g: g.remember("a", payload={"x": [1, {"y": None}]}, tags=["t"], cause="1")),
        ("link", lambda g: g.link("a", "b", cause="2")),
        ("set_cursor", lambda g: g.set_cursor(["a"], cause="3")),
        ("transition", lambda g: g.transition("b", cause="4")),
        ("reward", lambda g: g.reward(1, cause="5")),
        ("set_cursor again", lambda g: g.set_cursor(["a"], cause="6")),
        ("step", lambda g: g.step(reward=1, cause="7")),
        ("tunable", lambda g: g.set_tunable("ucbC", 2, cause="8")),
        ("archive", lambda g: g.archive("a", cause="9")),
        ("checkpoint", lambda g: g.checkpoint("cp", cause="10")),
        ("unlink", lambda g: g.unlink(next(iter(g.history(type="EdgeUpserted"))).payload["id"], cause="11")),
    ]
    first = {name: call(graph) for name, call in calls}
    assert all(result.ok and not result.repeated for result in first.values()), first
    head = graph.head()
    graph.close()
    again = make(path=path)
    for name, call in calls:
        repeated = call(again)
        assert repeated.repeated, name
        assert type(repeated.value) is type(first[name].value)
        assert repeated.value == first[name].value, name
    assert again.head() == head


def test_a_cause_belongs_to_one_verb(make: Make) -> None:
    graph = make("a")
    graph.remember("b", cause="c").unwrap()
    refused = graph.archive("a", cause="c")
    assert isinstance(refused, Fail)
    assert refused.code == "Conflict"


def test_a_failed_call_leaves_its_cause_free(make: Make) -> None:
    graph = make()
    assert not graph.archive("a", cause="c").ok
    graph.remember("a")
    assert graph.archive("a", cause="c").ok


def test_a_rolled_back_cause_is_free_again(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("cp")
    graph.remember("b", cause="c").unwrap()
    assert graph.rollback("cp", cause="r").unwrap().abandoned == 3
    assert graph.rollback("cp", cause="r").repeated  # type: ignore[union-attr]  # it is Ok
    again = graph.remember("b", cause="c")
    assert again.ok
    assert not again.repeated
    assert graph.verify_integrity(deep=True).ok


# ---------------------------------------------------------------------------------- units


def test_a_unit_is_one_commit_of_verbs_and_appends(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", "b", path=path)
    watching = make(path=path, read_only=True)
    with graph.unit():
        graph.link("a", "b").unwrap()
        graph.set_cursor(["a"]).unwrap()
        assert graph.suggest()[0].to == "b"
        graph.transition("b").unwrap()
        graph.reward(1).unwrap()
        graph.store.append("run:1", run_rows(2), expected=0)
        assert graph.recall(text="b")
        assert watching.store.head().seq == 2
        assert watching.store.head("run:1").seq == 0
    assert watching.store.head().seq == 6
    assert watching.store.head("run:1").seq == 2
    assert graph.verify_integrity(deep=True).ok


def test_a_failed_verb_takes_the_whole_unit_back(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1")
    graph.set_cursor(["a"])
    before = graph.head(), graph.suggest(), graph.cursor()
    with pytest.raises(UnitFailed, match="NotFound") as caught, graph.unit():
        graph.transition("b").unwrap()
        graph.store.append("run:1", run_rows(1))
        assert not graph.archive("missing").ok
        later = graph.remember("c")
        assert isinstance(later, Fail)
        assert later.code == "Conflict"
        with pytest.raises(UnitFailed):
            graph.store.append("run:2", run_rows(1, stream="run:2"))
    assert caught.value.code == "NotFound"
    assert (graph.head(), graph.suggest(), graph.cursor()) == before
    assert graph.store.head("run:1").seq == 0
    assert graph.get_node("c") is None
    assert graph.remember("c").ok
    assert graph.verify_integrity(deep=True).ok


def test_an_exception_takes_the_whole_unit_back(make: Make) -> None:
    graph = make("a")
    with pytest.raises(ZeroDivisionError), graph.unit():
        graph.remember("b").unwrap()
        _ = 1 / 0
    assert graph.get_node("b") is None
    assert graph.remember("b").ok


def test_an_exception_that_was_caught_inside_still_fails_the_unit(make: Make) -> None:
    graph = make("a")
    with pytest.raises(UnitFailed), graph.unit():
        graph.remember("b").unwrap()
        with pytest.raises(Conflict):
            graph.store.append("run:1", run_rows(1), expected=5)
    assert graph.get_node("b") is None


def test_a_synced_unit_notices_what_others_wrote_meanwhile(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph, other = make("a", path=path), make(path=path)
    for i in range(3):
        with graph.unit():
            graph.remember(f"mine{i}").unwrap()
            graph.checkpoint("cp").unwrap()
        other.remember(f"other{i}").unwrap()
    assert graph.store.head().seq == 1 + 3 * 4
    assert graph.verify_integrity(deep=True).ok


def test_units_nest(make: Make) -> None:
    graph = make()
    with graph.unit():
        graph.remember("a").unwrap()
        with graph.unit(sync=True):
            graph.remember("b").unwrap()
        graph.remember("c").unwrap()
    assert len(graph.recall()) == 3
    with pytest.raises(UnitFailed), graph.unit():
        graph.remember("d").unwrap()
        with pytest.raises(ZeroDivisionError), graph.unit():
            _ = 1 / 0
    assert graph.get_node("d") is None


def test_a_failing_read_does_not_fail_a_unit(make: Make) -> None:
    graph = make()
    with graph.unit():
        graph.remember("a").unwrap()
        with pytest.raises(VerbFailed):
            graph.recall(limit=-1)
    assert graph.get_node("a") is not None


def test_rolling_back_inside_a_unit(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("cp")
    graph.remember("b")
    with graph.unit():
        graph.remember("c").unwrap()
        graph.rollback("cp").unwrap()
        graph.remember("d").unwrap()
    assert [node.id for node in graph.recall()] == ["a", "d"]
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("level", ["process", "power"])
def test_a_synced_append_raises_the_level_for_its_commit_only(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    store = make(path=tmp_path / "g.db", durability=level).store
    seen: list[tuple[str, int]] = []
    original = store._db.run

    def watch(sql: str, values: Any = ()) -> None:
        if sql == "COMMIT":
            seen.append((sql, (store._db.one("PRAGMA synchronous") or (0,))[0]))
        original(sql, values)

    monkeypatch.setattr(store._db, "run", watch)
    store.append("run:1", run_rows(1), sync=True)
    store.append("run:1", run_rows(1, after=store.head("run:1")))
    with store.unit():
        store.append("run:1", run_rows(1, after=store.head("run:1")), sync=True)
    normal = {"process": 1, "power": 2}[level]
    # The unit began before it was asked to sync: an empty synced commit after it flushes the log.
    assert [synchronous for _, synchronous in seen] == [2, normal, normal, 2]
    assert (store._db.one("PRAGMA synchronous") or (0,))[0] == normal


# ---------------------------------------------------------------------------------- misuse and faults


def test_a_closed_store_says_so(make: Make) -> None:
    graph = make("a")
    graph.close()
    graph.close()
    for use in (lambda: graph.remember("b"), graph.cursor, graph.unit().__enter__, graph.verify_integrity,
                lambda: list(graph.store.read("graph"))):  # fmt: skip
        with pytest.raises(ClosedStore):
            use()


def test_closing_inside_a_unit_loses_it_with_a_typed_error(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    with pytest.raises(ClosedStore), graph.unit():
        graph.remember("b").unwrap()
        graph.close()
    assert make(path=path).get_node("b") is None


def test_dropping_a_store_warns_and_loses_nothing(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    held = [Adaptogen.open(path, seed=False)]
    held[0].remember("a").unwrap()
    with pytest.warns(ResourceWarning, match=r"g\.db was not closed"):
        held.clear()
    assert make(path=path).get_node("a") is not None


def test_a_view_for_another_actor_is_not_closed(make: Make) -> None:
    graph = make("a")
    with pytest.raises(Misuse, match="as_actor"):
        graph.as_actor("other").close()


def test_a_fork_is_told_to_open_again(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        names = []
        for use in (lambda: graph.remember("b"), graph.cursor, graph.close):
            try:
                use()
                names.append("ok")
            except ForkedStore as error:
                names.append(type(error).__name__)
        os.write(writing, " ".join(names).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert os.read(reading, 100) == b"ForkedStore ForkedStore ok"
    os.close(reading)
    assert graph.remember("b").ok
    assert make(path=path).get_node("b") is not None


@pytest.mark.parametrize("manipulate", ["delete", "replace", "move"])
def test_a_file_that_is_not_the_one_that_was_opened(make: Make, tmp_path: Path, manipulate: str) -> None:
    path, other = tmp_path / "g.db", tmp_path / "other.db"
    graph = make("a", path=path)
    make("z", path=other).close()
    if manipulate == "delete":
        path.unlink()
    elif manipulate == "replace":
        other.replace(path)
    else:
        path.rename(tmp_path / "moved.db")
    refused = graph.remember("b")
    assert isinstance(refused, Fail)
    assert refused.code == "IntegrityBroken"
    with pytest.raises(IntegrityBroken, match="replaced, moved or deleted"):
        graph.cursor()


def test_a_writer_waits_no_longer_than_it_was_told(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path, busy_timeout_ms=50)
    holder = make(path=path)
    with holder.unit():
        holder.remember("b").unwrap()
        refused = graph.remember("c")
        assert isinstance(refused, Fail)
        assert refused.code == "Busy"
        assert graph.get_node("a") is not None  # readers are not blocked
        with pytest.raises(Busy):
            graph.store.append("run:1", run_rows(1))
    assert graph.remember("c").ok
    assert graph.verify_integrity(deep=True).ok


def test_an_exclusive_owner_stops_a_writer_that_was_open_before(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    early = make("a", path=path)
    owner = make(path=path, lock="exclusive")
    owner.remember("b").unwrap()
    refused = early.remember("c")
    assert isinstance(refused, Fail)
    assert refused.code == "LockHeld"
    owner.close()
    assert early.remember("c").ok


def test_a_lock_of_a_dead_owner_is_taken_over(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    script = (
        "import os, sys; from graphstate import Adaptogen;"
        "Adaptogen.open(sys.argv[1], lock='exclusive').remember('a'); os._exit(9)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", script, str(path)], cwd=root, check=False).returncode == 9
    assert (tmp_path / "g.db.lock").exists()
    assert make(path=path, lock="exclusive").get_node("a") is not None


def test_a_full_disk_is_a_typed_failure_and_changes_nothing(make: Make, tmp_path: Path) -> None:
    graph = make("a", path=tmp_path / "g.db")
    (pages,) = graph.store._db.one("PRAGMA page_count") or (0,)
    graph.store._db.run(f"PRAGMA max_page_count={pages}")
    big = {"x": "y" * 100_000}
    before = graph.head()
    refused = graph.remember("b", payload=big)
    assert isinstance(refused, Fail)
    assert refused.code == "StorageFull"
    assert graph.head() == before
    assert graph.get_node("b") is None
    graph.store._db.run("PRAGMA max_page_count=1000000")
    assert graph.remember("b", payload=big).ok
    assert graph.verify_integrity(deep=True).ok


def test_every_error_of_the_driver_has_a_translation() -> None:
    kinds = {
        value for name, value in vars(apsw).items()
        if isinstance(value, type) and issubclass(value, apsw.Error) and value is not apsw.Error
    }  # fmt: skip
    assert len(kinds) > 30
    for kind in kinds:
        ours = door._translate(kind("what it said"))
        assert not isinstance(ours, apsw.Error), kind
        assert "what it said" in str(ours) or isinstance(ours, ClosedStore), kind


def test_threads_share_a_store(make: Make, tmp_path: Path) -> None:
    graph = make(path=tmp_path / "g.db")
    failures: list[object] = []

    def work(name: str) -> None:
        for i in range(25):
            result = graph.remember(f"{name}{i}", cause=f"{name}{i}")
            if not result.ok or graph.get_node(f"{name}{i}") is None:
                failures.append(result)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert graph.store.head().seq == 100
    assert graph.verify_integrity(deep=True).ok


def _write(path: str, name: str, count: int) -> None:
    with Adaptogen.open(path, seed=False) as graph:
        for i in range(count):
            graph.remember(f"{name}-{i}", payload={"i": i}).unwrap()
            while True:
                try:
                    head = graph.store.head("run:shared")
                    graph.store.append(
                        "run:shared", run_rows(1, stream="run:shared", after=head), expected=head.seq
                    )
                    break
                except Conflict:
                    continue


def test_processes_write_one_file_without_gap_or_loss(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make(path=path).close()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(str(path), f"w{i}", 40)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    graph = make(path=path)
    assert graph.store.head().seq == 160
    assert [row.seq for row in graph.store.read("run:shared")] == list(range(1, 161))
    assert len(graph.recall(limit=1_000)) == 160
    assert graph.verify_integrity(deep=True).ok


def test_the_process_that_dies_inside_a_unit_leaves_nothing_half_done(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    script = (
        "import os, sys; from graphstate import Adaptogen\n"
        "graph = Adaptogen.open(sys.argv[1], seed=False)\n"
        "graph.remember('kept').unwrap()\n"
        "with graph.unit():\n"
        "    graph.remember('lost').unwrap()\n"
        "    os._exit(9)\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script, str(path)], cwd=root, check=False)
    graph = make(path=path)
    assert [node.id for node in graph.recall()] == ["kept"]
    assert graph.recovery.trimmed == 0
    assert graph.verify_integrity(deep=True).ok


def test_opening_a_long_file_costs_what_a_short_one_costs(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make(path=path)
    with graph.unit():
        for i in range(2_000):
            graph.remember(f"n{i % 50}", payload={"i": i}).unwrap()
    graph.close()
    statements: list[str] = []
    original = door.SqliteDatabase.all

    class Counting(door.SqliteDatabase):
        def all(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
            rows = original(self, sql, values)
            statements.append(sql)
            assert len(rows) < 100
            return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "SqliteDatabase", Counting)
        again = Store.open(path)
    assert again.recovery.replayed == 0
    assert len(statements) <= 3
    again.close()
