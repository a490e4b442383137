"""Vectors V1 to V24: the log, its chain, recovery and snapshots."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from graphstate import (
    Adaptogen,
    IdGen,
    IntegrityBroken,
    LockHeld,
    Row,
    row_hash,
)
from graphstate._canonical import encode
from graphstate.events import GRAPH, Draft
from graphstate.store.snapshot import state_bytes
from tests.graphstate.conftest import Make, Tamper

SEQ = "no & 0xFFFFFFFFFF"


def rows(graph: Adaptogen) -> list[Row]:
    return list(graph.store.read(GRAPH))


def types(graph: Adaptogen) -> list[str]:
    return [row.type for row in rows(graph)]


def rebuilt(graph: Adaptogen) -> tuple[bytes, bytes]:
    """The projection as it is, and as a rebuild makes it."""
    store = graph.store
    before = state_bytes(store._db)
    store.begin()
    store.rebuild(store.log.head(GRAPH))
    store.commit()
    return before, state_bytes(store._db)


def test_v1_the_first_event_has_its_place_time_id_and_canonical_body(make: Make) -> None:
    (row,) = rows(make("a"))
    assert (row.seq, row.at, row.id, row.type) == (1, 1_000_001, "E000000YGJ20000KRVQKE", "NodeUpserted")
    assert row.body == (
        b'{"embedding":null,"id":"a","kind":"state","label":"a","payload":{},"status":"active","tags":[]}'
    )
    header = b'["graph",1,1000001,"E000000YGJ20000KRVQKE","NodeUpserted","developer","developer",null]'
    assert row.hash == hashlib.sha256(bytes(32) + header + b"\n" + row.body).digest()


def test_v2_the_second_event_continues_the_chain(make: Make) -> None:
    graph = make("a")
    graph.remember("b", payload={"z": 1, "a": [True, None, 1.5]}, tags=["t"])
    first, second = rows(graph)
    assert second.at == 1_000_003
    assert b'"payload":{"a":[true,null,1.5],"z":1}' in second.body
    assert second.hash == row_hash(first.hash, GRAPH, *second[:8])


def test_v3_canonical_json_sorts_at_every_level() -> None:
    assert encode({"b": 1, "a": {"d": [3, {"z": 1, "y": 2}], "c": None}}) == (
        b'{"a":{"c":null,"d":[3,{"y":2,"z":1}]},"b":1}'
    )


def test_v4_ids_count_within_a_tick() -> None:
    ids = IdGen(lambda: 1_000_001, lambda: 0.5)
    assert [ids.next("E"), ids.next("E"), ids.next("G")] == [
        "E000000YGJ10000G00000",
        "E000000YGJ10001G00000",
        "G000000YGJ10002G00000",
    ]


def test_ids_sort_in_their_order_even_if_the_clock_goes_back() -> None:
    times = iter([50, 49, 48, 51])
    ids = IdGen(lambda: next(times), lambda: 0.999)
    made = [ids.next("E") for _ in range(4)]
    assert made == sorted(made)
    assert len(set(made)) == 4


def test_v5_seqs_are_contiguous(make: Make) -> None:
    graph = make("a", "b", "c")
    assert [row.seq for row in rows(graph)] == [1, 2, 3]
    report = graph.verify_integrity()
    assert (report.ok, report.checked_events) == (True, 3)


@pytest.mark.parametrize(
    ("vector", "change", "breaks_at"),
    [
        ("v6", 'UPDATE event SET body = \'{"id":"HACKED"}\' WHERE no & 0xFF = 2', 2),
        ("v6 not JSON", "UPDATE event SET body = '{\"id\":' WHERE no & 0xFF = 2", 2),
        ("v7 hash", "UPDATE event SET hash = zeroblob(32) WHERE no & 0xFF = 1", 1),
        ("v7 type", "UPDATE event SET type = actor WHERE no & 0xFF = 2", 2),
        ("v9 id", "UPDATE event SET id = 'E0' WHERE no & 0xFF = 2", 2),
        ("at", "UPDATE event SET at = at + 1 WHERE no & 0xFF = 2", 2),
        ("actor", "UPDATE event SET actor = type WHERE no & 0xFF = 2", 2),
        ("actor gone", "UPDATE event SET actor = NULL WHERE no & 0xFF = 2", 2),
        ("trust", "UPDATE event SET trust = type WHERE no & 0xFF = 2", 2),
        ("cause", "UPDATE event SET cause = 'x' WHERE no & 0xFF = 2", 2),
        ("term", "UPDATE term SET text = 'NodeUpsertee' WHERE text = 'NodeUpserted'", 1),
        ("no such term", "UPDATE event SET type = 99 WHERE no & 0xFF = 3", 3),
        ("not UTF-8", "UPDATE event SET body = CAST(x'ff' AS TEXT) WHERE no & 0xFF = 2", 2),
        ("v8 removed", "DELETE FROM event WHERE no & 0xFF = 2", 3),
    ],
)
def test_v6_v7_v8_v9_every_change_is_found_where_it_is(
    make: Make, tamper: Tamper, tmp_path: Path, vector: str, change: str, breaks_at: int
) -> None:
    path = tmp_path / "g.db"
    make("a", "b", "c", path=path).close()
    tamper(path, change)
    graph = make(path=path)
    report = graph.verify_integrity()
    assert (report.ok, report.first_break_seq, report.stream) == (False, breaks_at, GRAPH), vector
    assert report.detail
    # Nothing was deleted, and nothing more is written, here or after reopening.
    assert graph.get_node("c") is not None
    refused = graph.remember("d")
    assert not refused.ok
    assert refused.code == "IntegrityBroken"
    graph.close()
    with pytest.raises(IntegrityBroken, match=f"damaged at event {breaks_at}"):
        make(path=path)
    looked_at = make(path=path, read_only=True)
    assert looked_at.get_node("c") is not None


def test_v8_a_gap_is_named(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make("a", "b", "c", path=path).close()
    tamper(path, "DELETE FROM event WHERE no & 0xFF = 2")
    assert make(path=path).verify_integrity().detail == "seq gap: expected 2, got 3"


def test_a_file_whose_bytes_were_restored_is_writable_again(
    make: Make, tamper: Tamper, tmp_path: Path
) -> None:
    path = tmp_path / "g.db"
    make("a", "b", path=path).close()
    tamper(path, "UPDATE event SET at = at + 1 WHERE no & 0xFF = 2")
    graph = make(path=path)
    assert not graph.verify_integrity().ok
    graph.close()
    tamper(path, "UPDATE event SET at = at - 1 WHERE no & 0xFF = 2")
    again = make(path=path)
    assert again.remember("c").ok
    assert again.verify_integrity(deep=True).ok


def test_v9_the_last_event_cannot_be_cut_off_while_the_projection_has_it(
    make: Make, tamper: Tamper, tmp_path: Path
) -> None:
    path = tmp_path / "g.db"
    make("a", "b", "c", path=path).close()
    tamper(path, "DELETE FROM event WHERE no & 0xFF = 3")
    with pytest.raises(IntegrityBroken, match="lost acknowledged events"):
        make(path=path)


def test_v9_cutting_log_and_projection_alike_is_not_seen_without_a_head_kept_elsewhere(
    make: Make, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    make("a", path=old).close()
    graph = make("a", "b", path=new)
    kept = graph.head()
    graph.close()
    replaced = make(path=old)
    assert replaced.verify_integrity(deep=True).ok
    assert replaced.head() != kept


def test_v9_the_first_events_cannot_be_removed(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make("a", "b", "c", path=path).close()
    tamper(path, "DELETE FROM event WHERE no & 0xFF < 3")
    assert make(path=path).verify_integrity().first_break_seq == 3


def test_v10_an_empty_store_is_whole(make: Make) -> None:
    report = make().verify_integrity()
    assert (report.ok, report.checked_events, report.first_break_seq, report.detail) == (True, 0, None, None)


def test_v11_a_row_that_was_never_committed_by_us_is_set_aside(
    make: Make, tamper: Tamper, tmp_path: Path
) -> None:
    path = tmp_path / "g.db"
    make("a", "b", path=path).close()
    tamper(
        path,
        "INSERT INTO event SELECT no + 1, at, 'torn', type, actor, trust, NULL, '{}', hash FROM event WHERE no & 0xFF = 2",
    )
    graph = make(path=path)
    assert (graph.recovery.trimmed, graph.recovery.last_good_seq, graph.recovery.snapshot_id) == (1, 2, None)
    assert graph.verify_integrity(deep=True).ok
    assert graph.store._db.all("SELECT id FROM event_abandoned") == [("torn",)]


def test_rows_that_continue_the_chain_are_folded(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", "b", path=path)
    second = rows(graph)[1]
    body = encode({"id": "a", "status": "archived"})
    digest = row_hash(second.hash, GRAPH, 3, 5, None, "NodeStatusChanged", None, None, None, body)
    graph.close()
    tamper(path, "INSERT INTO term (text) VALUES ('NodeStatusChanged')")
    tamper(
        path,
        "INSERT INTO event SELECT (1 << 40) + 3, 5, NULL, no, NULL, NULL, NULL, ?, ? FROM term"
        " WHERE text = 'NodeStatusChanged'",
        body.decode(), digest,
    )  # fmt: skip
    again = make(path=path)
    assert again.recovery.replayed == 1
    node = again.get_node("a")
    assert node is not None
    assert node.status == "archived"
    assert again.verify_integrity(deep=True).ok


@pytest.mark.parametrize(
    ("type", "body", "why"),
    [
        ("TransitionTaken", b'{"edgeId":"e","from":"a","to":5}', "TypeError"),
        ("TransitionTaken", b'{"edgeId":"e","from":"a","to":["b"]}', "TypeError"),
        ("TransitionTaken", b'{"edgeId":"e","to":"b"}', "KeyError"),
        ("RewardApplied", b'{"alpha":0.3,"scopes":[],"value":1' + b"0" * 400 + b"}", "OverflowError"),
        ("RewardApplied", b'{"alpha":0.3,"scopes":[5],"value":1}', "TypeError"),
        ("NodeStatusChanged", b'{"id":"a","id":"b","status":"active"}', "NotJson"),
        ("NodeStatusChanged", b"5", "TypeError"),
    ],
)
def test_a_row_that_cannot_be_folded_is_named_wherever_it_stands(
    make: Make, type: str, body: bytes, why: str
) -> None:
    store, good = make("a", "b").store, encode({"id": "a", "status": "active"})
    store.begin()
    head = store.log.head(GRAPH)
    for seq in range(3, 204):
        kind, data = (type, body) if seq == 103 else ("NodeStatusChanged", good)
        digest = row_hash(head.hash, GRAPH, seq, 5, None, kind, "ann", None, None, data)
        row = Row(seq, 5, None, kind, "ann", None, None, data, digest)
        head = store.log.append(GRAPH, [row], expected=seq - 1)
    with pytest.raises(IntegrityBroken, match=f"^event 103 cannot be folded: {why}: "):
        store.rebuild(head)
    store.rollback()


def test_v12_an_altered_row_in_the_middle_deletes_nothing(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make(*(f"n{i}" for i in range(10)), path=path).close()
    tamper(path, "UPDATE event SET body = replace(body, 'n2', 'x2') WHERE no & 0xFF = 3")
    graph = make(path=path)
    report = graph.verify_integrity()
    assert (report.first_break_seq, report.verified_seq) == (3, 2)
    assert len(graph.recall(limit=100)) == 10
    assert len(rows(graph)) == 10


def test_v13_a_body_that_is_no_json_is_a_break_and_no_exception(
    make: Make, tamper: Tamper, tmp_path: Path
) -> None:
    path = tmp_path / "g.db"
    make("a", "b", path=path).close()
    tamper(path, "UPDATE event SET body = '{' WHERE no & 0xFF = 2")
    report = make(path=path).verify_integrity()
    assert (report.ok, report.first_break_seq) == (False, 2)


def test_v14_a_rebuild_starts_at_the_newest_snapshot(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("cp").unwrap()
    graph.remember("b")
    store = graph.store
    store.begin()
    recovery = store.rebuild(store.log.head(GRAPH))
    store.commit()
    assert (recovery.last_good_seq, recovery.trimmed, recovery.replayed) == (4, 0, 3)
    assert recovery.snapshot_id is not None
    assert {node.id for node in graph.recall()} == {"a", "b"}


def test_a_damaged_snapshot_is_passed_over(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("cp").unwrap()
    graph.remember("b")
    graph.store.begin()
    graph.store._db.run("UPDATE snapshot SET data = zeroblob(10)")
    recovery = graph.store.rebuild(graph.store.log.head(GRAPH))
    graph.store.commit()
    assert (recovery.snapshot_id, recovery.replayed) == (None, 4)
    assert not graph.verify_integrity(deep=True).ok


def test_v15_a_rebuild_changes_nothing(make: Make) -> None:
    graph = make(seed=True)
    for _ in range(8):
        graph.step(reward=0.7).unwrap()
    graph.reward(-1, trace=True).unwrap()
    graph.remember("idle", payload={"n": 1.0, "s": -0.0}, tags=["x", "seed"], embedding=[1, 2.5])
    graph.set_tunable("ucbC", 2)
    graph.depend("done", "idle").unwrap()
    graph.unlink(graph.legal_moves()[0].edge_id).unwrap()
    before, after = rebuilt(graph)
    assert before == after
    assert graph.verify_integrity(deep=True).ok


def test_v16_a_snapshot_is_due_after_an_interval_of_events_of_any_type(make: Make) -> None:
    graph = make()
    graph.set_tunable("snapshotInterval", 3)
    for node in "abcd":
        graph.remember(node).unwrap()
    upserted = "NodeUpserted"
    assert types(graph) == ["ConfigSet", upserted, upserted, "SnapshotTaken", upserted, upserted]
    assert len(graph.store._db.all("SELECT id FROM snapshot")) == 1


def test_snapshots_are_pruned_and_cost_no_more_than_a_row_for_each_event(make: Make) -> None:
    graph = make()
    graph.set_tunable("snapshotInterval", 10)
    for i in range(300):
        graph.remember(f"n{i % 40}").unwrap()
    assert types(graph).count("SnapshotTaken") <= 300 // 40 + 3
    assert len(graph.store._db.all("SELECT id FROM snapshot")) == 2


def test_v21_a_batch_that_fails_leaves_head_and_chain_as_they_were(make: Make) -> None:
    graph = make("a")
    store = graph.store
    good, bad = Draft("NodeStatusChanged", {"id": "a", "status": "archived"}), Draft("CursorMoved", {})
    store.begin()
    with pytest.raises(KeyError):
        store.record([good, bad], actor=None, trust=None)
    store.rollback()
    assert store.head().seq == 1
    graph.remember("b").unwrap()
    assert [row.seq for row in rows(graph)] == [1, 2]
    assert graph.verify_integrity(deep=True).ok


def test_v22_an_exclusive_owner_keeps_others_out_until_it_closes(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    lock = tmp_path / "g.db.lock"
    owner = make("a", path=path, lock="exclusive")
    assert lock.read_text() == str(os.getpid())
    for mode in ("exclusive", "shared"):
        with pytest.raises(LockHeld, match=str(os.getpid())):
            make(path=path, lock=mode)
    assert make(path=path, read_only=True).get_node("a") is not None
    owner.close()
    assert not lock.exists()
    assert make(path=path, lock="exclusive").get_node("a") is not None


def test_v23_two_writers_on_one_file_both_succeed_in_turn(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    first, second = make(path=path), make(path=path)
    for i in range(5):
        assert first.remember(f"a{i}").ok
        assert second.remember(f"b{i}").ok
    assert [row.seq for row in rows(first)] == list(range(1, 11))
    assert first.verify_integrity(deep=True).ok


def test_v24_the_live_projection_holds_what_a_replay_holds(make: Make) -> None:
    graph = make()
    graph.remember(
        "a", payload={"__proto__": {"x": 1}, "n": 1e21, "t": (1, 2.0), "é🦊": "\u2028\x00"}
    ).unwrap()
    before, after = rebuilt(graph)
    assert before == after
    node = graph.get_node("a")
    assert node is not None
    assert node.payload == {"__proto__": {"x": 1}, "n": 1e21, "t": [1, 2], "é🦊": "\u2028\x00"}
