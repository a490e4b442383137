"""What chain, key and kept head show, change by change; the page about it says the same.

`TABLE` is the page's table. Each change is made by somebody who can write the file and knows its
format, but not the key, and each is looked for with the chain alone, with a key, and with a head
that was kept before. What is not shown is asserted too, so that nobody promises it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw
import pytest

from graphstate import Adaptogen, Head, IntegrityBroken, WrongKey, row_hash
from graphstate.events import GRAPH, ChainKey
from graphstate.store.integrity import check_chains, head_problem
from tests.graphstate.conftest import Make

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "what-the-chain-proves.md"
KEY = b"a secret of sixteen bytes or more"
FULL = os.environ.get("RELIABILITY") == "full"

Regime = Literal["chain", "key", "head"]
Change = Callable[[Path], None]


# ------------------------------------------------------------------- what somebody could do


def sql(path: Path, *statements: str) -> None:
    db = apsw.Connection(str(path))
    for statement in statements:
        db.execute(statement)
    db.close()


def rehash(path: Path) -> None:
    """Compute all hashes again without the key, and let projection and marks agree with them."""
    with Adaptogen.open(path, seed=False, read_only=True, key=_key_of(path)) as graph:
        start = graph.store.log.start(GRAPH)
        rows = list(graph.store.read(GRAPH))
    db, seq, previous = apsw.Connection(str(path)), start.seq, start.hash
    for row in rows:
        seq, previous = row.seq, row_hash(previous, GRAPH, *row[:8])
        db.execute("UPDATE event SET hash = ? WHERE no = (1 << 40) + ?", (previous, seq))
    head = f'{{"hash":"{previous.hex()}","seq":{seq}}}'
    db.execute("UPDATE state SET value = ? WHERE key = 'head'", (head,))
    db.execute("UPDATE stream SET verified_seq = ?, verified_hash = ? WHERE no = 1", (seq, previous))
    db.execute(
        "UPDATE checkpoint SET hash = coalesce((SELECT hash FROM event WHERE no = (1 << 40) + seq), hash)"
    )
    db.execute(
        "UPDATE snapshot SET hash = coalesce((SELECT hash FROM event WHERE no = (1 << 40) + seq), hash)"
    )
    db.close()


def _key_of(path: Path) -> bytes | None:
    return KEY if "keyed" in path.name else None


def field_changed(path: Path) -> None:
    sql(path, "UPDATE event SET at = at + 1 WHERE no & 0xFF = 3")


def event_inserted(path: Path) -> None:
    sql(
        path,
        "UPDATE event SET no = -no - 1 WHERE no & 0xFF >= 4",
        "UPDATE event SET no = -no WHERE no < 0",
        "INSERT INTO event SELECT no + 1, at, id, type, actor, trust, cause, body, hash FROM event WHERE no & 0xFF = 3",
    )


def event_removed(path: Path) -> None:
    sql(
        path,
        "DELETE FROM event WHERE no & 0xFF = 3",
        "UPDATE event SET no = -no + 1 WHERE no & 0xFF > 3",
        "UPDATE event SET no = -no WHERE no < 0",
    )


def events_swapped(path: Path) -> None:
    sql(
        path,
        "UPDATE event SET no = 0 WHERE no & 0xFF = 3",
        "UPDATE event SET no = no - 1 WHERE no & 0xFF = 4",
        "UPDATE event SET no = (1 << 40) + 4 WHERE no = 0",
    )


def rewritten_from_a_field_on(path: Path) -> None:
    field_changed(path)
    sql(
        path, "UPDATE node SET updated_at = updated_at + 1, created_at = created_at + 1 WHERE created_seq = 3"
    )
    rehash(path)


def replaced_by_another_history(path: Path) -> None:
    _rewritten(path, "z", 20)


def _rewritten(path: Path, name: str, count: int) -> None:
    """Put another valid file in the place of this one, with this one's statement about a key."""
    db = apsw.Connection(str(path))
    statement = db.execute("SELECT value FROM meta WHERE key = 'chain'").fetchone()
    db.close()
    path.unlink()
    with Adaptogen.open(path, seed=False) as graph:
        for i in range(count):
            graph.remember(f"{name}{i}").unwrap()
    if statement is not None:
        db = apsw.Connection(str(path))
        db.execute("INSERT INTO meta VALUES ('chain', ?)", statement)
        db.close()


def old_copy_put_back(path: Path) -> None:
    shutil.copy(path.with_suffix(".old"), path)


def oldest_removed_as_if_compacted(path: Path) -> None:
    """As the library does it, but with hashes that are made without the key."""
    with Adaptogen.open(path, seed=False, key=_key_of(path)) as graph:
        graph.remember("n1", label="so that the kept head is not the last one removed").unwrap()
        graph.compact(retain=0).unwrap()
    if _key_of(path) is not None:
        rehash(path)


def snapshot_edited(path: Path) -> None:
    db = apsw.Connection(str(path))
    ((name, data),) = db.execute("SELECT id, data FROM snapshot LIMIT 1").fetchall()
    assert isinstance(data, bytes)
    state = zlib.decompress(data).replace(b"n1", b"x1")
    values = zlib.compress(state), hashlib.sha256(state).digest(), name
    db.execute("UPDATE snapshot SET data = ?, digest = ? WHERE id = ?", values)
    db.close()


def checkpoint_edited(path: Path) -> None:
    sql(path, "UPDATE checkpoint SET seq = 2, hash = (SELECT hash FROM event WHERE no & 0xFF = 2)")


def checkpoint_removed(path: Path) -> None:
    sql(path, "DELETE FROM checkpoint")


def tunable_edited(path: Path) -> None:
    sql(path, "UPDATE tunable SET value = '9'")


def projection_edited(path: Path) -> None:
    sql(path, "UPDATE node SET label = 'other' WHERE id = 'n1'")


def nothing_changed(path: Path) -> None:
    """Another history that its owner wrote, or false content, is no change of the file."""
    with Adaptogen.open(path, seed=False, key=_key_of(path)) as graph:
        graph.remember("n1", payload="a lie").unwrap()


class Row(NamedTuple):
    """One row of the page: the words, and what shows it."""

    words: str
    changes: tuple[Change, ...]
    chain: bool
    key: bool
    head: bool


TABLE: tuple[Row, ...] = (
    Row(
        "A field of an event is changed; an event is inserted, removed or swapped with another; the hashes "
        "after it are left",
        (field_changed, event_inserted, event_removed, events_swapped),
        chain=True, key=True, head=True,
    ),
    Row(
        "The same, and all hashes after it are computed again; the whole log is replaced by another valid one",
        (rewritten_from_a_field_on, replaced_by_another_history),
        chain=False, key=True, head=True,
    ),
    Row(
        "The newest events are removed from log and projection; an old copy of the file is put back",
        (old_copy_put_back,),
        chain=False, key=False, head=True,
    ),
    Row(
        "The oldest events are removed as a compaction would, the kept head among them",
        (oldest_removed_as_if_compacted,),
        chain=False, key=True, head=True,
    ),
    Row(
        "A snapshot, a checkpoint or a tunable is edited",
        (snapshot_edited, checkpoint_edited, checkpoint_removed, tunable_edited),
        chain=True, key=True, head=True,
    ),
    Row("A node, an edge, a statistic or a cursor is edited", (projection_edited,), chain=True, key=True, head=True),
    Row("False content is written with the ordinary verbs", (nothing_changed,), chain=False, key=False, head=False),
)  # fmt: skip


def lived(path: Path, key: bytes | None) -> str:
    """Write a file and an older copy of it, and return the head that somebody keeps."""
    with Adaptogen.open(path, seed=False, key=key) as graph:
        for i in range(6):
            graph.remember(f"n{i}").unwrap()
        graph.set_tunable("ucbC", 2).unwrap()
        graph.checkpoint("cp").unwrap()
    shutil.copy(path, path.with_suffix(".old"))
    with Adaptogen.open(path, seed=False, key=key) as graph:
        for i in range(6, 9):
            graph.remember(f"n{i}").unwrap()
        return graph.head()


def shown(path: Path, key: bytes | None, head: str | None) -> bool:
    """Open and verify as thoroughly as the regime allows; say whether anything was noticed."""
    try:
        with Adaptogen.open(path, seed=False, key=key, expect_head=head) as graph:
            return not graph.verify_integrity(deep=True, expect_head=head).ok
    except IntegrityBroken:
        return True


CASES = [
    (row, change, regime) for row in TABLE for change in row.changes for regime in ("chain", "key", "head")
]


@pytest.mark.parametrize(
    ("row", "change", "regime"), CASES, ids=[f"{change.__name__}-{regime}" for _, change, regime in CASES]
)
def test_the_table_of_the_page_is_true(row: Row, change: Change, regime: Regime, tmp_path: Path) -> None:
    key = KEY if regime == "key" else None
    path = tmp_path / ("keyed.db" if key else "plain.db")
    head = lived(path, key)
    assert not shown(path, key, head if regime == "head" else None)
    change(path)
    assert shown(path, key, head if regime == "head" else None) == getattr(row, regime)


def test_the_page_holds_this_table() -> None:
    cells = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")
    ]  # fmt: skip
    words = {True: "yes", False: "**no**"}
    for row in TABLE:
        assert (row.words, words[row.chain], words[row.key], words[row.head]) in cells


def test_a_kept_head_that_still_stands_does_not_show_a_compaction(tmp_path: Path) -> None:
    path = tmp_path / "plain.db"
    head = lived(path, None)
    with Adaptogen.open(path, seed=False) as graph:
        graph.compact(retain=1).unwrap()
    assert not shown(path, None, head)
    with Adaptogen.open(path, seed=False, read_only=True) as graph:
        assert graph.history()[-1].type == "Compacted"


def test_two_histories_show_only_when_their_heads_are_compared(tmp_path: Path) -> None:
    first, second = tmp_path / "plain-1.db", tmp_path / "plain-2.db"
    lived(first, None)
    shutil.copy(first, second)
    for path, text in ((first, "one thing"), (second, "another")):
        with Adaptogen.open(path, seed=False) as graph:
            graph.remember("n1", payload=text).unwrap()
            head = graph.head()
    assert not shown(first, None, None)
    assert not shown(second, None, None)
    assert shown(first, None, head)


# ------------------------------------------------------------------- 200 events, byte by byte


@pytest.fixture(scope="module")
def long() -> Iterator[Adaptogen]:
    with Adaptogen.open(seed=False, now=lambda: 1_000_000) as graph:
        for i in range(10):
            graph.remember(f"n{i}", label=f"nöde {i}", payload={"i": i}, cause=f"call-{i}").unwrap()
        for i in range(9):
            graph.link(f"n{i}", f"n{i + 1}", id=f"e{i}").unwrap()
        graph.set_tunable("snapshotInterval", 0).unwrap()
        for _ in range(60):
            graph.set_cursor(["n0"]).unwrap()
            graph.step(reward=0.5).unwrap()
        assert graph.store.head().seq == 200
        yield graph


def first_break(graph: Adaptogen, after: int = 0) -> int | None:
    log = graph.store.log
    start = Head(after, log.hash_at(GRAPH, after) or b"")
    return log.walk(GRAPH, start).break_seq


class Cell(NamedTuple):
    column: str
    #: SQL for the changed value, with one parameter
    sql: str
    values: Callable[[Any], Iterator[Any]]


def flipped(value: Any) -> Iterator[bytes]:
    data = value.encode() if isinstance(value, str) else value
    for index in range(len(data)):
        for bit in range(8) if FULL else (index % 8,):
            yield data[:index] + bytes([data[index] ^ (1 << bit)]) + data[index + 1 :]


def flipped_number(value: int) -> Iterator[int]:
    return (value ^ (1 << bit) for bit in range(0, 40, 1 if FULL else 4))


COLUMNS: Mapping[str, Cell] = {
    "at": Cell("at", "?", flipped_number),
    "id": Cell("id", "CAST(? AS TEXT)", flipped),
    "type": Cell("type", "?", flipped_number),
    "actor": Cell("actor", "?", flipped_number),
    "trust": Cell("trust", "?", flipped_number),
    "cause": Cell("cause", "CAST(? AS TEXT)", flipped),
    "body": Cell("body", "CAST(? AS TEXT)", flipped),
    "hash": Cell("hash", "?", flipped),
}
WRITES = {
    name: f"UPDATE event SET {name} = {cell.sql} WHERE no = (1 << 40) + ?" for name, cell in COLUMNS.items()
}


@pytest.mark.parametrize("column", COLUMNS)
def test_every_byte_of_every_column_is_reported_at_its_event(long: Adaptogen, column: str) -> None:
    db, write, count = long.store._db, WRITES[column], 0
    for seq in range(1, 201):
        (value,) = db.one(f"SELECT {column} FROM event WHERE no = (1 << 40) + ?", (seq,)) or (None,)
        if value is None:
            continue
        for changed in COLUMNS[column].values(value):
            db.run("SAVEPOINT flip")
            db.run(write, (changed, seq))
            assert first_break(long, seq - 1) == seq, (seq, changed)
            db.run("ROLLBACK TO flip")
            db.run("RELEASE flip")
            count += 1
    assert count >= (10 if column == "cause" else 200)
    assert first_break(long) is None


def edits(seq: int) -> Iterator[tuple[str, list[str], int]]:
    """Yield (what, statements, where it must be reported)."""
    key = f"(1 << 40) + {seq}"
    up = f"UPDATE event SET no = -no - 1 WHERE no > {key}"
    down = f"UPDATE event SET no = -no + 1 WHERE no > {key}"
    back = "UPDATE event SET no = -no WHERE no < 0"
    copy = f"INSERT INTO event SELECT no + 1, at, id, type, actor, trust, cause, body, hash FROM event WHERE no = {key}"
    remove = f"DELETE FROM event WHERE no = {key}"
    yield "removed, the number left free", [remove], seq + 1
    yield "removed, the others moved up", [remove, down, back], seq
    yield "duplicated", [up, back, copy], seq + 1
    swap = [f"UPDATE event SET no = -1 WHERE no = {key}", f"UPDATE event SET no = {key} WHERE no = {key} + 1",
            f"UPDATE event SET no = {key} + 1 WHERE no = -1"]  # fmt: skip
    yield "swapped with the next", swap, seq


def test_every_event_removed_duplicated_or_swapped_is_reported_where_it_was(long: Adaptogen) -> None:
    db = long.store._db
    for seq in range(1, 200):  # the last one removed is a truncation
        for what, statements, expected in edits(seq):
            db.run("SAVEPOINT edit")
            for statement in statements:
                db.run(statement)
            assert first_break(long) == expected, (seq, what)
            db.run("ROLLBACK TO edit")
            db.run("RELEASE edit")
    assert first_break(long) is None


def test_every_truncation_is_shown_by_a_kept_head_and_by_nothing_else(long: Adaptogen) -> None:
    store = long.store
    kept = store.head()
    for length in range(200):
        store.begin()
        to = Head(length, store.log.hash_at(GRAPH, length) or b"")
        store.rebuild(to)
        store.projection.flush()
        store._db.run("DELETE FROM event WHERE no > (1 << 40) + ?", (length,))
        store.log.forget()
        report, _ = check_chains(store.log, store.projection.applied(), deep=True)
        assert report.ok
        assert report.verified_seq == length
        assert head_problem(store.log, kept) == f"event 200 is absent: the log ends at {length}"
        store.rollback()
    assert store.verify(deep=True, expect_head=kept).ok


# ------------------------------------------------------------------- heads, keys, anchors


def test_an_expected_head_is_compared_at_open_and_at_verification(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", "b", path=path)
    kept = graph.head()
    graph.remember("c").unwrap()
    newest = graph.head()
    assert graph.verify_integrity(expect_head=kept).ok
    graph.close()
    assert make(path=path, expect_head=kept).head() == newest
    other = f"2:{'0' * 64}"
    with pytest.raises(IntegrityBroken, match="event 2 is not the one that was kept"):
        make(path=path, expect_head=other)
    with pytest.raises(IntegrityBroken, match="absent: the log ends at 3"):
        make(path=path, expect_head=f"9:{'0' * 64}", read_only=True)
    graph = make(path=path)
    report = graph.verify_integrity(expect_head=other)
    assert (report.ok, report.first_break_seq, report.stream) == (False, 2, GRAPH)
    assert graph.remember("d").ok  # who expects something may be wrong
    assert graph.verify_integrity(deep=True, expect_head=newest).ok


def test_after_a_compaction_its_start_can_still_be_expected(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    first = graph.head()
    graph.remember("b").unwrap()
    second = graph.head()
    graph.compact(retain=0).unwrap()
    assert graph.verify_integrity(expect_head=second).ok
    report = graph.verify_integrity(expect_head=first)
    assert "event 1 was removed by a compaction" in str(report.detail)
    assert second in str(report.detail)
    graph.close()
    with pytest.raises(IntegrityBroken, match="removed by a compaction"):
        make(path=path, expect_head=first)


@pytest.mark.parametrize(
    "text", ["", "3", "3:", f"3:{'0' * 63}", f"-1:{'0' * 64}", f"3:{'0' * 64}\n", f"3:{'Z' * 64}", 3]
)
def test_what_is_no_head_is_refused(make: Make, tmp_path: Path, text: Any) -> None:
    from graphstate import VerbFailed

    graph = make("a")
    with pytest.raises(VerbFailed, match="expect_head"):
        graph.verify_integrity(expect_head=text)
    path = tmp_path / "g.db"
    with pytest.raises(VerbFailed, match="expect_head"):
        make(path=path, expect_head=text)
    assert not path.exists()


def test_a_keyed_file_opens_with_its_key_alone(make: Make, tmp_path: Path) -> None:
    path, plain = tmp_path / "keyed.db", tmp_path / "plain.db"
    make("a", path=path, key=KEY).close()
    make("a", path=plain).close()
    before = path.read_bytes(), plain.read_bytes()
    with pytest.raises(WrongKey, match="is keyed: open it with the key"):
        make(path=path)
    with pytest.raises(WrongKey, match="another key"):
        make(path=path, key=KEY + b"x")
    with pytest.raises(WrongKey, match="is not keyed"):
        make(path=plain, key=KEY)
    with pytest.raises(ValueError, match="at least 16 bytes, not 3"):
        make(path=tmp_path / "new.db", key=b"abc")
    assert (path.read_bytes(), plain.read_bytes()) == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["keyed.db", "plain.db"]
    graph = make(path=path, key=KEY)
    graph.remember("b").unwrap()
    graph.checkpoint("cp").unwrap()
    graph.remember("c").unwrap()
    graph.rollback("cp").unwrap()
    graph.compact(retain=0).unwrap()
    assert graph.verify_integrity(deep=True).ok
    assert make(path=path, key=KEY, read_only=True).verify_integrity(deep=True).ok


def test_a_key_shows_itself_nowhere(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "keyed.db"
    graph = make("a", path=path, key=KEY)
    seen = [
        repr(graph),
        repr(graph.store),
        repr(graph.store.log),
        repr(vars(graph.store)),
        str(ChainKey(KEY)),
    ]
    seen += [f"{ChainKey(KEY)}", repr(vars(graph.store.log)), repr(graph.describe())]
    with pytest.raises(WrongKey) as caught:
        make(path=path, key=KEY + b"y")
    seen.append(str(caught.value))
    graph.close()
    assert all("secret" not in text for text in seen)
    for file in tmp_path.iterdir():
        assert KEY not in file.read_bytes()
        assert KEY.hex().encode() not in file.read_bytes()


def test_a_keyed_chain_is_the_hmac_of_the_same_bytes(make: Make) -> None:
    import hmac

    graph = make("a", key=KEY)
    (row,) = graph.store.read(GRAPH)
    header = f'["graph",1,{row.at},"{row.id}","NodeUpserted","developer","developer",null]\n'.encode()
    assert row.hash == hmac.digest(KEY, bytes(32) + header + row.body, "sha256")
    assert row.hash == row_hash(bytes(32), GRAPH, *row[:8], key=KEY)


def test_streams_of_runs_keep_the_plain_hash(make: Make) -> None:
    from tests.graphstate.test_store import run_rows

    graph = make("a", key=KEY)
    graph.store.append("run:1", run_rows(3), expected=0)
    assert graph.verify_integrity(deep=True).ok


def test_a_mark_of_verification_that_was_not_made_with_the_key_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keyed.db"
    with Adaptogen.open(path, seed=False, key=KEY) as graph:
        for i in range(5):
            graph.remember(f"n{i}").unwrap()
        assert graph.verify_integrity().checked_events == 5
        assert graph.verify_integrity().checked_events == 0
    with Adaptogen.open(path, seed=False, key=KEY) as graph:
        assert graph.verify_integrity().checked_events == 0
    sql(
        path,
        "UPDATE stream SET verified_hash = (SELECT hash FROM event ORDER BY no DESC LIMIT 1) WHERE no = 1",
    )
    with Adaptogen.open(path, seed=False, key=KEY) as graph:
        assert graph.verify_integrity().checked_events == 5


def test_a_rewritten_keyed_file_is_refused_at_open_and_can_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "keyed.db"
    lived(path, KEY)
    replaced_by_another_history(path)
    with pytest.raises(IntegrityBroken, match="event 20 was not written with the key"):
        Adaptogen.open(path, seed=False, key=KEY)
    with Adaptogen.open(path, seed=False, key=KEY, read_only=True) as graph:
        assert graph.verify_integrity().first_break_seq == 1


def test_an_anchor_is_told_at_checkpoints_at_close_and_every_so_many_events(make: Make) -> None:
    told: list[str] = []
    graph = make(anchor=told.append, anchor_every=5)
    for i in range(4):
        graph.remember(f"n{i}").unwrap()
    assert told == []
    graph.remember("n4").unwrap()
    assert told == [graph.head()]
    graph.checkpoint("cp").unwrap()
    assert told[1:] == [graph.head()]
    graph.remember("n5").unwrap()
    graph.rollback("cp").unwrap()
    assert told[2:] == [graph.head()]
    graph.compact(retain=0).unwrap()
    assert told[3:] == [graph.head()]
    graph.remember("n6").unwrap()
    head = graph.head()
    graph.close()
    assert told[4:] == [head]


def test_an_anchor_in_a_file_is_a_line_for_each_head(make: Make, tmp_path: Path) -> None:
    path, log = tmp_path / "g.db", tmp_path / "heads.txt"
    graph = make("a", path=path, anchor=log)
    graph.checkpoint("cp").unwrap()
    first = graph.head()
    graph.remember("b").unwrap()
    last = graph.head()
    graph.close()
    assert log.read_text().splitlines() == [first, last]
    make(path=path, anchor=log).close()
    assert log.read_text().splitlines() == [first, last]  # nothing new, nothing told
    assert make(path=path, expect_head=log.read_text().splitlines()[-1]).head() == last


def test_an_anchor_hears_of_nothing_that_was_not_committed(make: Make) -> None:
    told: list[str] = []
    graph = make("a", anchor=told.append, anchor_every=1)
    told.clear()
    with pytest.raises(ZeroDivisionError), graph.unit():
        graph.checkpoint("cp").unwrap()
        assert told == []
        _ = 1 / 0
    assert told == []


def test_a_failing_anchor_takes_nothing_back_and_warns_once(make: Make) -> None:
    told: list[str] = []
    works = False

    def anchor(head: str) -> None:
        if not works:
            raise OSError("the other disk is full")
        told.append(head)

    graph = make(anchor=anchor, anchor_every=1)
    with pytest.warns(RuntimeWarning, match="OSError: the other disk is full"):
        assert graph.remember("a").ok
    assert graph.remember("b").ok
    works = True
    assert graph.remember("c").ok
    assert told == [graph.head()]


def test_an_anchor_may_use_the_graph(make: Make) -> None:
    told: list[tuple[str, str]] = []
    graphs: list[Adaptogen] = []

    def anchor(head: str) -> None:
        graphs[0].remember("anchored", payload=head).unwrap()
        told.append((head, graphs[0].head()))

    graph = make(anchor=anchor, anchor_every=1)
    graphs.append(graph)
    graph.remember("a").unwrap()
    assert len(told) == 1
    assert graph.verify_integrity(deep=True).ok
    graph.store._anchor = None


def test_an_interval_of_an_anchor_is_a_number_of_events() -> None:
    with pytest.raises(ValueError, match="anchor_every must be at least 1"):
        Adaptogen.open(anchor=print, anchor_every=0)
