"""Compaction: what is removed, what stays, and what works afterwards (V17 to V20, V109, D2, D5 to D7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, IntegrityBroken, Result
from graphstate._canonical import decode
from graphstate.events import GRAPH
from graphstate.store.snapshot import state_bytes
from tests.graphstate.conftest import Make, Tamper
from tests.graphstate.test_store import run_rows


def code(result: Result[Any]) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def kept(graph: Adaptogen) -> list[tuple[int, str]]:
    return [(row.seq, row.type) for row in graph.store.read(GRAPH)]


def whole(graph: Adaptogen) -> bool:
    report = graph.verify_integrity(deep=True)
    assert report.ok, report.detail
    return True


def lived(make: Make, path: Path | str = ":memory:", **options: Any) -> Adaptogen:
    """A graph with a bit of everything, and a checkpoint in the middle."""
    graph = make("a", "b", "c", path=path, **options)
    graph.link("a", "b", id="ab").unwrap()
    graph.link("b", "c", id="bc").unwrap()
    graph.depend("c", "a", id="dep").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.transition("b").unwrap()
    graph.checkpoint("middle").unwrap()
    graph.transition("c").unwrap()
    graph.reward(1).unwrap()
    graph.set_tunable("ucbC", 2).unwrap()
    graph.remember("d", payload={"text": "needle"}, tags=["t"]).unwrap()
    return graph


def test_v17_everything_but_the_record_goes(make: Make) -> None:
    graph = make("a", "b")
    done = graph.compact(retain=0).unwrap()
    assert (done.pruned, done.seq) == (2, 2)
    assert kept(graph) == [(3, "SnapshotTaken"), (4, "Compacted")]
    assert whole(graph)
    assert graph.compact(retain=1000).unwrap().pruned == 0
    assert kept(graph) == [(3, "SnapshotTaken"), (4, "Compacted")]
    assert graph.metrics().nodes["total"] == 2


def test_v18_the_newest_events_stay(make: Make) -> None:
    graph = make(*(f"n{i}" for i in range(20)))
    assert graph.compact(retain=5).unwrap().pruned == 15
    assert [seq for seq, _ in kept(graph)] == list(range(16, 23))
    assert whole(graph)


def test_v19_d6_older_snapshots_leave_no_gap(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    graph.snapshot().unwrap()
    for node in "bcd":
        graph.remember(node).unwrap()
    assert graph.compact(retain=0).unwrap().pruned == 5
    assert kept(graph) == [(6, "SnapshotTaken"), (7, "Compacted")]
    graph.close()
    again = make(path=path)
    assert again.recovery.trimmed == 0
    assert [node.id for node in again.recall()] == list("abcd")
    assert whole(again)
    assert again.remember("e").ok


def test_v20_d7_a_checkpoint_after_a_compaction_is_reached(make: Make) -> None:
    graph = make("a", "b")
    graph.compact(retain=0).unwrap()
    assert graph.checkpoint("x").unwrap().seq == 4
    graph.archive("a").unwrap()
    assert graph.rollback("x").unwrap().seq == 4
    assert [node.status for node in graph.recall()] == ["active", "active"]
    assert whole(graph)


def test_v109_d5_a_trace_reaches_back_over_removed_moves(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "b", id="ab")
    graph.link("b", "c", id="bc")
    graph.set_cursor(["a"])
    graph.transition("b").unwrap()
    graph.transition("c").unwrap()
    graph.compact(retain=0).unwrap()
    assert graph.reward(1, trace=True).unwrap().scopes == 4
    first, second = graph.get_stat("edge", "ab"), graph.get_stat("edge", "bc")
    assert first is not None
    assert second is not None
    assert 0 < first.ema_reward < second.ema_reward
    assert whole(graph)


def test_retain_is_the_tunable_unless_given(make: Make) -> None:
    graph = make(*(f"n{i}" for i in range(30)))
    graph.set_tunable("retain", 10).unwrap()
    done = graph.compact().unwrap()
    assert (done.pruned, done.seq) == (21, 21)
    for bad in (-1, 1.5, True, "3"):
        assert code(graph.compact(retain=bad)) == "InvalidInput"  # type: ignore[arg-type]
    assert graph.compact(retain=10, cause="c").unwrap().pruned == 2
    again = graph.compact(retain=10, cause="c")
    assert again.ok
    assert again.repeated
    assert again.unwrap().pruned == 2


def test_the_record_names_what_was_removed_and_what_to_believe(make: Make) -> None:
    graph = lived(make)
    last = str(graph.store.log.hash_at(GRAPH, 13).hex())  # type: ignore[union-attr]
    done = graph.compact(retain=1, actor="keeper").unwrap()
    row = list(graph.store.read(GRAPH))[-1]
    body = decode(row.body)
    assert (row.type, row.actor) == ("Compacted", "keeper")
    assert (body["seq"], body["hash"], body["count"], body["snapshotId"]) == (13, last, 13, done.snapshot_id)
    assert [pin["name"] for pin in body["checkpoints"]] == ["middle"]
    assert len(body["digest"]) == len(body["checkpoints"][0]["digest"]) == 64
    assert graph.history()[-1].summary == "the log begins after 13, 13 events removed"


@pytest.mark.parametrize("retain", [0, 1, 3, 7, 12])
def test_everything_works_on_a_compacted_log(make: Make, tmp_path: Path, retain: int) -> None:
    path = tmp_path / "g.db"
    graph = lived(make, path)
    graph.store.append("run:1", run_rows(5))
    before = state_bytes(graph.store._db), graph.suggest(), graph.cursor()
    graph.compact(retain=retain).unwrap()
    assert (state_bytes(graph.store._db), graph.suggest(), graph.cursor()) == before
    assert [node.id for node in graph.recall(text="needle")] == ["d"]
    assert len(graph.history(limit=1000)) == retain + 2
    assert graph.verify_integrity().ok
    made = graph.rebuild().unwrap()
    assert (made.replayed, made.last_good_seq) == (2, 16)
    assert state_bytes(graph.store._db) == before[0]
    assert [node.id for node in graph.recall(text="needle")] == ["d"]
    graph.remember("e", label="needle two").unwrap()
    assert {node.id for node in graph.recall(text="needle")} == {"d", "e"}
    graph.close()
    again = make(path=path)
    assert again.recovery.replayed == 0
    assert state_bytes(again.store._db) != before[0]
    assert again.verify_integrity().checked_events <= 3
    assert [row.seq for row in again.store.read("run:1")] == [1, 2, 3, 4, 5]
    assert again.compact(retain=0).unwrap().pruned == retain + 3
    assert whole(again)
    reader = make(path=path, read_only=True)
    assert whole(reader)


@pytest.mark.parametrize("retain", [0, 2, 5, 6, 8])
def test_d7_a_checkpoint_whose_events_are_gone_is_reached_from_its_snapshot(
    make: Make, tmp_path: Path, retain: int
) -> None:
    path = tmp_path / "g.db"
    graph = lived(make, path)
    pin = graph.store.snapshots.checkpoints()["middle"]
    state = graph.store.snapshots.read(pin.snapshot)
    assert state is not None
    graph.compact(retain=retain).unwrap()
    held = len(kept(graph))
    done = graph.rollback("middle", reason="enough").unwrap()
    assert done.seq == pin.head.seq == 8
    assert done.abandoned == min(held, 16 - 8)
    assert state_bytes(graph.store._db) == state.encode()
    assert graph.cursor() == ["b"]
    assert graph.get_node("d") is None
    assert graph.recall(text="needle") == []
    assert kept(graph)[-1] == (9, "Compacted")  # where the log begins must stand in the log
    assert whole(graph)
    graph.remember("z").unwrap()
    graph.close()
    again = make(path=path)
    assert whole(again)
    assert [c.name for c in again.list_checkpoints()] == ["middle"]
    assert again.rollback("middle").unwrap().abandoned == 2
    assert whole(again)
    assert again.rebuild().unwrap().snapshot_id == pin.snapshot
    again.remember("y").unwrap()
    again.compact(retain=0).unwrap()
    assert again.rollback("middle").ok
    assert whole(again)


def test_d7_the_empty_beginning_can_be_a_checkpoint_too(make: Make) -> None:
    graph = make()
    graph.checkpoint("nothing").unwrap()
    graph.remember("a").unwrap()
    graph.compact(retain=0).unwrap()
    assert graph.rollback("nothing").unwrap().seq == 0
    assert graph.recall() == []
    assert kept(graph) == [(1, "Compacted")]
    assert whole(graph)
    assert graph.remember("b").ok
    assert whole(graph)


def test_d7_without_its_snapshot_a_removed_checkpoint_is_refused(make: Make) -> None:
    graph = lived(make)
    graph.compact(retain=0).unwrap()
    before = graph.head()
    pin = graph.store.snapshots.checkpoints()["middle"]
    graph.store.begin()
    graph.store._db.run("UPDATE snapshot SET data = zeroblob(9) WHERE id = ?", (pin.snapshot,))
    graph.store.commit()
    refused = graph.rollback("middle")
    assert code(refused) == "IntegrityBroken"
    assert isinstance(refused, Fail)
    assert "removed by a compaction" in refused.message
    assert graph.head() == before
    assert graph.get_node("d") is not None


def test_d3_a_name_that_moved_returns_to_its_older_place(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("cp").unwrap()
    graph.remember("b").unwrap()
    graph.checkpoint("between").unwrap()
    graph.remember("c").unwrap()
    graph.checkpoint("cp").unwrap()
    graph.rollback("between").unwrap()
    assert [(c.name, c.seq) for c in graph.list_checkpoints()] == [("cp", 1), ("between", 4)]
    assert whole(graph)
    graph.rollback("cp").unwrap()
    assert [node.id for node in graph.recall()] == ["a"]
    assert whole(graph)


DAMAGES: tuple[tuple[str, str], ...] = (
    ("chain", "UPDATE event SET at = at + 1 WHERE no & 0xFF = 2"),
    ("projection", "UPDATE node SET label = 'x' WHERE id = 'a'"),
    ("snapshot", "UPDATE snapshot SET data = zeroblob(9)"),
    ("checkpoint", "UPDATE checkpoint SET seq = 3"),
)


@pytest.mark.parametrize(("what", "change"), DAMAGES)
def test_d6_what_does_not_hold_is_not_compacted(
    make: Make, tamper: Tamper, tmp_path: Path, what: str, change: str
) -> None:
    path = tmp_path / "g.db"
    lived(make, path).close()
    tamper(path, change)
    graph = make(path=path)
    before = kept(graph), graph.head()
    refused = graph.compact(retain=0)
    assert code(refused) == "IntegrityBroken", what
    assert isinstance(refused, Fail)
    assert "nothing was removed" in refused.message
    assert (kept(graph), graph.head()) == before


def test_d2_damaged_snapshots_fall_back_to_older_ones_and_then_to_the_log(make: Make) -> None:
    graph = make("a")
    older = graph.snapshot().unwrap()
    graph.remember("b").unwrap()
    newer = graph.snapshot().unwrap()
    graph.remember("c").unwrap()
    store = graph.store

    def spoil(id: str) -> None:
        store.begin()
        store._db.run("UPDATE snapshot SET data = zeroblob(9) WHERE id = ?", (id,))
        store.commit()

    assert graph.rebuild().unwrap().snapshot_id == newer.id
    spoil(newer.id)
    assert graph.rebuild().unwrap().snapshot_id == older.id
    spoil(older.id)
    made = graph.rebuild().unwrap()
    assert (made.snapshot_id, made.replayed) == (None, 5)
    assert [node.id for node in graph.recall()] == ["a", "b", "c"]


def test_d2_a_compacted_log_without_a_good_snapshot_is_refused_with_what_is_missing(
    make: Make, tamper: Tamper, tmp_path: Path
) -> None:
    path = tmp_path / "g.db"
    graph = make("a", "b", path=path)
    graph.compact(retain=0).unwrap()
    graph.close()
    tamper(path, "UPDATE snapshot SET data = zeroblob(9)")
    graph = make(path=path)
    refused = graph.rebuild()
    assert code(refused) == "IntegrityBroken"
    assert "no snapshot from which it could start is intact" in refused.message  # type: ignore[union-attr]
    assert graph.get_node("a") is not None
    report = graph.verify_integrity(deep=True)
    assert (report.ok, "snapshot" in str(report.detail)) == (False, True)
    graph.close()
    with pytest.raises(IntegrityBroken, match="removed by a compaction"):
        make(path=path)
    assert make(path=path, read_only=True).get_node("b") is not None


def test_a_forged_snapshot_is_not_loaded(make: Make) -> None:
    """D4: the digest of a snapshot is in the log, so replacing both bytes and digest does not help."""
    import hashlib
    import zlib

    graph = make("a")
    taken = graph.snapshot().unwrap()
    state = state_bytes(graph.store._db).replace(b'"a"', b'"x"')
    graph.store.begin()
    graph.store._db.run(
        "UPDATE snapshot SET data = ?, digest = ?",
        (zlib.compress(state), hashlib.sha256(state).digest()),
    )
    graph.store.commit()
    assert graph.rebuild().unwrap().snapshot_id is None
    assert graph.get_node("x") is None
    report = graph.verify_integrity(deep=True)
    assert not report.ok
    assert taken.id in str(report.detail)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE stream SET start_seq = start_seq + 1, start_hash = (SELECT hash FROM event WHERE no & 0xFF = 14)",
        "UPDATE stream SET start_record = start_record - 1",
        "UPDATE stream SET start_record = 0",
        "UPDATE stream SET start_seq = 0",
        "UPDATE stream SET start_hash = zeroblob(32)",
        "DELETE FROM event WHERE no & 0xFF = 14",
    ],
)
def test_where_a_log_begins_is_believed_only_as_its_record_says(
    make: Make, tamper: Tamper, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "g.db"
    graph = lived(make, path)
    graph.compact(retain=1).unwrap()
    graph.close()
    tamper(path, change)
    try:
        report = make(path=path).verify_integrity(deep=True)
    except IntegrityBroken:
        return
    assert not report.ok
    assert report.stream == GRAPH


def test_removing_a_prefix_and_moving_the_start_is_found(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make("a", "b", "c", path=path).close()
    tamper(path, "UPDATE stream SET start_seq = 2, start_hash = (SELECT hash FROM event WHERE no & 0xFF = 2)")
    tamper(path, "DELETE FROM event WHERE no & 0xFF < 3")
    report = make(path=path).verify_integrity()
    assert (report.ok, report.first_break_seq) == (False, 3)
    assert "no event of it says that this was a compaction" in str(report.detail)


def test_a_compaction_inside_a_unit_that_fails_removes_nothing(make: Make) -> None:
    graph = lived(make)
    before = kept(graph), state_bytes(graph.store._db)
    with pytest.raises(ZeroDivisionError), graph.unit():
        graph.compact(retain=0).unwrap()
        assert len(kept(graph)) == 2
        _ = 1 / 0
    assert (kept(graph), state_bytes(graph.store._db)) == before
    assert whole(graph)


def test_causes_are_remembered_over_a_compaction(make: Make) -> None:
    graph = make("a")
    graph.archive("a", cause="c").unwrap()
    graph.compact(retain=0).unwrap()
    again = graph.archive("a", cause="c")
    assert again.ok
    assert again.repeated


CHANGES: tuple[tuple[str, Callable[[Adaptogen], object]], ...] = (
    ("remember", lambda graph: graph.remember("new")),
    ("checkpoint", lambda graph: graph.checkpoint("later")),
    ("moved checkpoint", lambda graph: graph.checkpoint("middle")),
    ("rollback", lambda graph: graph.rollback("middle")),
    ("snapshot", lambda graph: graph.snapshot()),
    ("compact", lambda graph: graph.compact(retain=0)),
    ("compact a little", lambda graph: graph.compact(retain=4)),
    ("step", lambda graph: graph.step(reward=1)),
    ("rebuild", lambda graph: graph.rebuild()),
)


@pytest.mark.parametrize("seed", range(25))
def test_any_order_of_checkpoints_compactions_and_rollbacks_holds(make: Make, seed: int) -> None:
    import random

    rng = random.Random(seed)
    graph = lived(make)
    graph.set_tunable("snapshotInterval", 5).unwrap()
    done: list[str] = []
    for _ in range(14):
        name, change = rng.choice(CHANGES)
        done.append(name)
        change(graph)
        report = graph.verify_integrity(deep=True)
        assert report.ok, (done, report.detail)
        state = state_bytes(graph.store._db)
        graph.rebuild().unwrap()
        assert state_bytes(graph.store._db) == state, done
        assert {c.name for c in graph.list_checkpoints()} >= {"middle"}


# ---------------------------------------------------------------------------------- cuts


def test_d1_what_was_set_aside_is_listed(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    assert graph.cuts() == []
    graph.checkpoint("cp").unwrap()
    head = graph.head()
    graph.remember("b").unwrap()
    left = graph.head()
    graph.rollback("cp", reason="did not work", actor="me").unwrap()
    (cut,) = graph.cuts()
    assert (cut.no, cut.stream, cut.actor, cut.reason, cut.rows) == (1, GRAPH, "me", "did not work", 3)
    assert (cut.left, cut.returned_to) == (left, graph.head())
    assert head != left
    graph.close()
    tamper(
        path,
        "INSERT INTO event SELECT no + 1, at, 'torn', type, actor, trust, NULL, '{}', hash FROM event",
    )
    again = make(path=path)
    assert again.recovery.trimmed == 1
    assert [(c.reason, c.actor, c.rows) for c in again.cuts()] == [
        ("did not work", "me", 3),
        ("torn tail", None, 1),
    ]
    assert whole(again)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE event_abandoned SET body = '{}' WHERE no & 0xFF = 4",
        "DELETE FROM event_abandoned WHERE no & 0xFF = 4",
        "DELETE FROM event_abandoned",
        "UPDATE event_abandoned SET actor = NULL",
        "UPDATE cut SET to_hash = zeroblob(32)",
        "UPDATE cut SET from_hash = zeroblob(32)",
    ],
)
def test_what_was_set_aside_is_verified_too(make: Make, tamper: Tamper, tmp_path: Path, change: str) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    graph.checkpoint("cp").unwrap()
    graph.remember("b").unwrap()
    graph.rollback("cp").unwrap()
    assert whole(graph)
    graph.close()
    tamper(path, change)
    report = make(path=path).verify_integrity(deep=True)
    assert not report.ok
    assert report.detail


def test_d7_a_name_that_moved_after_a_compaction_returns_to_its_recorded_place(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("before").unwrap()
    graph.remember("b").unwrap()
    graph.checkpoint("between").unwrap()
    graph.compact(retain=0).unwrap()
    graph.remember("c").unwrap()
    graph.checkpoint("before").unwrap()
    graph.rollback("between").unwrap()
    assert whole(graph)
    assert [(c.name, c.seq) for c in graph.list_checkpoints()] == [("before", 1), ("between", 4)]
    assert graph.rollback("before").ok
    assert [node.id for node in graph.recall()] == ["a"]
    assert whole(graph)
