"""Vectors V133 to V136 and the defects D5, D33 and D34: branches, merges, exports, imports."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Merged, Misuse, VerbFailed, export_state, import_state
from graphstate._canonical import Json, decode, encode
from graphstate.events import GRAPH
from tests.graphstate.bundles import (
    bundle_of,
    invariants,
    live,
    populate,
    prune,
    rechained,
    rows_of,
    taken_in,
)
from tests.graphstate.conftest import Clock, Golden, Make

Branch = Callable[..., Adaptogen]


@pytest.fixture
def branch() -> Any:
    """Branch off, and close what was opened."""
    opened: list[Adaptogen] = []

    def off(graph: Adaptogen, file: str | Path = ":memory:") -> Adaptogen:
        opened.append(graph.branch(file).unwrap())
        return opened[-1]

    yield off
    for graph in opened:
        graph.close()


def failure(result: Any) -> Fail:
    assert isinstance(result, Fail), result
    assert result.hint
    return result


def kinds(result: Any) -> list[tuple[str, str]]:
    return [(c["kind"], c["id"]) for c in failure(result).details["conflicts"]]


# ------------------------------------------------------------------------------------ V133


def test_v133_a_branch_is_independent_and_knows_where_it_left(make: Make, branch: Branch) -> None:
    main = make("a", "b")
    child = branch(main)
    assert child.fork() == main.head()
    assert child.head().split(":")[0] == "3"
    assert main.fork() is None
    child.remember("c").unwrap()
    child.link("a", "c", id="ac").unwrap()
    main.remember("d").unwrap()
    assert (main.get_node("c"), child.get_node("d")) == (None, None)
    merged = main.merge(child).unwrap()
    assert (merged.merged, merged.left_out, merged.conflicts) == (2, 0, ())
    assert [node.id for node in main.recall()] == ["a", "b", "c", "d"]
    assert main.fork() is None
    assert child.get_node("d") is None
    invariants(main)
    invariants(child)


def test_v133_only_a_branch_of_this_graph_can_be_merged(make: Make, branch: Branch) -> None:
    main, stranger = make("a", "b"), make("a", "b")
    child = branch(main)
    grandchild = branch(child)
    other = branch(stranger)
    head = main.head()
    child.remember("c").unwrap()
    for wrong in (stranger, other, main, grandchild, "branch.db", None):
        if wrong is other:
            stranger.remember("x").unwrap()
            wrong = branch(stranger)
        assert failure(main.merge(wrong)).code == "Conflict"  # type: ignore[arg-type]
    assert failure(child.merge(main)).code == "Conflict"
    assert failure(grandchild.merge(child)).code == "Conflict"
    assert main.head() == head
    grandchild.remember("g").unwrap()
    assert child.merge(grandchild).unwrap().merged == 1
    assert main.merge(child).unwrap().merged == 3  # c, g and the note of the merge


def test_v133_a_file_that_exists_is_no_place_for_a_branch(make: Make, branch: Branch, tmp_path: Path) -> None:
    main = make("a")
    taken = tmp_path / "taken.db"
    taken.write_bytes(b"mine")
    assert failure(main.branch(taken)).code == "Conflict"
    assert taken.read_bytes() == b"mine"
    assert failure(main.branch(tmp_path / "no" / "such.db")).code == "ReadOnly"
    assert [p.name for p in tmp_path.iterdir()] == ["taken.db"]
    with main.unit():
        main.remember("b")
        assert failure(main.branch(tmp_path / "new.db")).code == "Conflict"
        assert failure(main.export(tmp_path / "new.jsonl")).code == "Conflict"
    assert [p.name for p in tmp_path.iterdir()] == ["taken.db"]


def test_v133_a_branch_on_disk_stays_a_branch_and_can_be_discarded(make: Make, tmp_path: Path) -> None:
    main = make("a", path=tmp_path / "main.db")
    main.store.append("run:1", [])
    child = main.branch(tmp_path / "child.db").unwrap()
    assert (tmp_path / "child.db").stat().st_mode & 0o777 == 0o600
    child.remember("b").unwrap()
    child.close()
    with Adaptogen.open(tmp_path / "child.db", seed=False) as again:
        assert again.fork() == main.head()
        assert main.merge(again).unwrap().merged == 1
        with pytest.raises(Misuse, match="as_actor"):
            again.as_actor("x").discard()
        assert failure(main.discard()).code == "Conflict"
        assert again.discard().unwrap()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["main.db", "main.db-shm", "main.db-wal"]
    assert main.get_node("b") is not None


def test_a_branch_leaves_streams_of_runs_behind(make: Make, branch: Branch, tmp_path: Path) -> None:
    from graphstate import GENESIS, Row, row_hash

    main = make("a", path=tmp_path / "main.db")
    digest = row_hash(GENESIS, "run:1", 1, 5, None, "run.opened", None, None, None, b"{}")
    main.store.append("run:1", [Row(1, 5, None, "run.opened", None, None, None, b"{}", digest)])
    child = branch(main, tmp_path / "child.db")
    assert (main.store.streams(), child.store.streams()) == (["graph", "run:1"], ["graph"])
    assert child.recall(text="a")[0].id == "a"
    invariants(child)


# ------------------------------------------------------------------------------------ V134, D33


def test_v134_d33_what_both_sides_changed_is_a_conflict(make: Make, branch: Branch) -> None:
    main = make("a", "b")
    child = branch(main)
    child.remember("a", label="theirs").unwrap()
    child.remember("c").unwrap()
    main.remember("a", label="ours").unwrap()
    head = main.head()
    assert kinds(main.merge(child)) == [("node", "a")]
    assert (main.head(), main.get_node("c")) == (head, None)
    ours = main.merge(child, on_conflict="ours").unwrap()
    assert (ours.merged, ours.left_out, [c.id for c in ours.conflicts]) == (1, 1, ["a"])
    assert [(n.id, n.label) for n in main.recall()] == [("a", "ours"), ("b", "b"), ("c", "c")]
    invariants(main)


def test_v134_d33_theirs_lets_the_branch_win(make: Make, branch: Branch) -> None:
    main = make("a", "b")
    child = branch(main)
    child.remember("a", label="theirs").unwrap()
    child.set_tunable("epsilon", 0.5).unwrap()
    main.remember("a", label="ours").unwrap()
    main.set_tunable("epsilon", 0.2).unwrap()
    assert kinds(main.merge(child)) == [("node", "a"), ("tunable", "epsilon")]
    assert main.merge(child, on_conflict="theirs").unwrap().merged == 2
    node = main.get_node("a")
    assert node is not None
    assert (node.label, main.get_tunables()["epsilon"]) == ("theirs", 0.5)
    invariants(main)


def test_v134_d33_a_second_merge_changes_nothing_and_rewards_nothing_twice(
    make: Make, branch: Branch
) -> None:
    main = make("a", "b")
    main.link("a", "b", id="ab").unwrap()
    main.set_cursor(["a"]).unwrap()
    child = branch(main)
    child.step(reward=1).unwrap()
    first = main.merge(child).unwrap()
    assert first.merged == 2
    stat, head = main.get_stat("edge", "ab"), main.head()
    assert stat is not None
    assert (stat.visits, stat.successes, stat.ema_reward) == (1, 1, 0.3)
    assert main.merge(child).unwrap() == Merged(
        merged=0, left_out=0, origin=first.origin, from_seq=8, to_seq=7
    )
    assert (main.head(), main.get_stat("edge", "ab")) == (head, stat)
    child.reward(1).unwrap()
    assert main.merge(child).unwrap().merged == 1
    again = main.get_stat("edge", "ab")
    assert again is not None
    assert (again.visits, again.successes) == (1, 2)
    invariants(main)


def test_v134_d33_the_cursor_stays_where_it_is(make: Make, branch: Branch) -> None:
    main = make("a", "b", "c")
    main.link("a", "b", id="ab").unwrap()
    main.set_cursor(["a"]).unwrap()
    child = branch(main)
    child.transition("b").unwrap()
    child.set_cursor(["c"]).unwrap()
    child.as_actor("robot").set_cursor(["b"]).unwrap()
    merged = main.merge(child).unwrap()
    assert (merged.merged, merged.left_out) == (1, 2)
    assert (main.cursor(), main.cursor(actor="robot")) == (["a"], [])
    assert failure(main.reward(1)).code == "NotFound"  # nobody has moved here
    invariants(main)


def test_v134_d33_opposing_dependencies_are_a_conflict_not_a_cycle(make: Make, branch: Branch) -> None:
    main = make("a", "b", "c")
    child = branch(main)
    child.depend("b", "a", id="child").unwrap()
    child.depend("c", "b", id="fine").unwrap()
    main.depend("a", "b", id="main").unwrap()
    assert kinds(main.merge(child)) == [("cycle", "child")]
    assert failure(main.merge(child, on_conflict="theirs")).code == "CycleRejected"
    merged = main.merge(child, on_conflict="ours").unwrap()
    assert (merged.merged, merged.left_out) == (1, 1)
    assert (main.get_edge("child"), main.topo().cyclic) == (None, False)
    invariants(main)


def test_d33_what_does_not_fit_here_is_a_conflict_with_all_that_hangs_on_it(
    make: Make, branch: Branch
) -> None:
    main = make("a")
    child = branch(main)
    child.remember("big", payload="x" * 100).unwrap()
    child.link("a", "big", id="to-big").unwrap()
    child.set_cursor(["a"]).unwrap()
    child.step(reward=1).unwrap()
    main.set_tunable("maxPayloadBytes", 64).unwrap()
    assert kinds(main.merge(child)) == [("size", "big"), ("missing", "to-big")]
    assert failure(main.merge(child, on_conflict="theirs")).code == "PayloadTooLarge"
    assert main.merge(child, on_conflict="ours").unwrap().merged == 1  # the reward, which teaches nothing
    assert (main.get_node("big"), main.get_stat("edge", "to-big")) == (None, None)
    invariants(main)


def test_d33_an_edge_that_is_gone_here_learns_nothing(make: Make, branch: Branch) -> None:
    main = make("a", "b")
    main.link("a", "b", id="ab").unwrap()
    main.set_cursor(["a"]).unwrap()
    child = branch(main)
    child.step(reward=1).unwrap()
    main.unlink("ab").unwrap()
    merged = main.merge(child).unwrap()
    assert (merged.merged, merged.left_out) == (1, 1)
    assert main.get_edge("ab") is None
    invariants(main)


def test_d33_a_call_made_on_both_sides_counts_once(make: Make, branch: Branch) -> None:
    main = make("a", "b")
    main.link("a", "b", id="ab").unwrap()
    main.set_cursor(["a"]).unwrap()
    child = branch(main)
    child.step(reward=1, cause="run-7/step").unwrap()
    child.remember("n", cause="run-7/note").unwrap()
    main.step(reward=1, cause="run-7/step").unwrap()
    merged = main.merge(child).unwrap()
    assert (merged.merged, merged.left_out) == (1, 2)
    stat = main.get_stat("edge", "ab")
    assert stat is not None
    assert (stat.visits, stat.successes) == (1, 1)
    again = main.remember("n", cause="run-7/note")
    assert again.ok
    assert again.repeated


def test_d33_a_merge_with_a_cause_happens_once(make: Make, branch: Branch) -> None:
    main = make("a")
    child = branch(main)
    child.remember("b").unwrap()
    first = main.merge(child, cause="m")
    child.remember("c").unwrap()
    second = main.merge(child, cause="m")
    assert first.unwrap() == second.unwrap()
    assert main.get_node("c") is None
    assert failure(main.remember("x", cause="m")).message.startswith("the cause 'm' was used by merge")


def test_d33_the_result_has_the_lowest_trust_and_keeps_ids_times_and_actors(
    make: Make, branch: Branch
) -> None:
    main = make("a")
    child = branch(main)
    child.as_actor("robot", trust="model").remember("b").unwrap()
    child.remember("c").unwrap()
    robot, mine = list(child.store.read(GRAPH))[-2:]
    main.as_actor("helper", trust="person").merge(child).unwrap()
    first, second, note = list(main.store.read(GRAPH))[-3:]
    assert (first.id, first.at, first.actor, first.trust) == (robot.id, robot.at, "robot", "model")
    assert (second.id, second.at, second.actor, second.trust) == (mine.id, mine.at, "developer", "person")
    assert (note.type, note.actor, note.trust) == ("Merged", "helper", "model")
    body = decode(note.body)
    assert (body["from"], body["to"], body["merged"]) == (3, 4, 2)
    assert body["head"] == child.head()
    assert first.cause is not None
    assert first.cause.startswith("merge/")


def test_d33_a_merge_inside_a_unit_goes_with_the_unit(make: Make, branch: Branch) -> None:
    main = make("a")
    child = branch(main)
    child.remember("b").unwrap()
    head = main.head()
    with pytest.raises(RuntimeError), main.unit():
        main.merge(child).unwrap()
        raise RuntimeError
    assert (main.head(), main.get_node("b")) == (head, None)
    assert main.merge(child).unwrap().merged == 1
    invariants(main)


def test_d33_a_rollback_on_either_side_is_noticed(make: Make, branch: Branch) -> None:
    main = make("a")
    child = branch(main)
    child.checkpoint("early").unwrap()
    child.remember("b").unwrap()
    assert main.merge(child).unwrap().merged == 1
    child.rollback("early").unwrap()
    assert "rolled back" in failure(main.merge(child)).message
    child.remember("x").unwrap()
    child.remember("y").unwrap()
    child.remember("z").unwrap()
    assert "rolled back" in failure(main.merge(child)).message
    main.checkpoint("late").unwrap()
    main.remember("m").unwrap()
    late = branch(main)
    late.remember("n").unwrap()
    main.rollback("late").unwrap()
    main.remember("other").unwrap()
    assert "rolled back since" in failure(main.merge(late)).message
    invariants(main)


def test_d33_after_a_rollback_of_the_merge_it_can_be_merged_again(make: Make, branch: Branch) -> None:
    main = make("a")
    main.checkpoint("before").unwrap()
    child = branch(main)
    child.remember("b").unwrap()
    main.merge(child).unwrap()
    main.rollback("before").unwrap()
    assert main.get_node("b") is None
    assert failure(main.merge(child)).code == "Conflict"  # the branch left after the checkpoint


@pytest.mark.parametrize("wrong", ["both", "", None, 1])
def test_a_merge_knows_three_ways(make: Make, branch: Branch, wrong: Any) -> None:
    main = make("a")
    child = branch(main)
    assert failure(main.merge(child, on_conflict=wrong)).code == "InvalidInput"


# ------------------------------------------------------------------------------------ V135, D5


def test_v135_an_import_makes_the_same_graph_without_snapshots_and_checkpoints(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("cp").unwrap()
    graph.remember("b").unwrap()
    with taken_in(bundle_of(graph), now=Clock(), rand=Golden()) as copy:
        assert graph.head().split(":")[0] == "4"
        assert copy.head().split(":")[0] == "3"  # two events and the note of the import
        assert copy.imported is not None
        assert copy.imported.imported == 2
        assert copy.list_checkpoints() == []
        assert live(copy) == live(graph)
        invariants(copy)


def test_v135_everything_arrives(make: Make, tmp_path: Path) -> None:
    graph = populate(make())
    report = graph.export(tmp_path / "b.jsonl").unwrap()
    assert report.bytes == (tmp_path / "b.jsonl").stat().st_size
    with Adaptogen.import_state(tmp_path / "copy.db", tmp_path / "b.jsonl") as copy:
        assert live(copy) == live(graph)
        assert [s.score for s in copy.suggest()] == [s.score for s in graph.suggest()]
        assert [n.id for n in copy.recall(text="alpha")] == ["a"]
        node, original = copy.get_node("a"), graph.get_node("a")
        assert node is not None
        assert original is not None
        assert (node.created_at, node.updated_at) == (original.created_at, original.updated_at)
        invariants(copy)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.jsonl", "copy.db"]


def test_v135_equal_logs_give_equal_bytes_and_a_file_is_not_replaced_unasked(
    make: Make, tmp_path: Path
) -> None:
    one, two = populate(make()), populate(make())
    one.export(tmp_path / "one").unwrap()
    two.export(tmp_path / "two").unwrap()
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    two.remember("more").unwrap()
    before = (tmp_path / "one").read_bytes()
    assert failure(two.export(tmp_path / "one")).code == "Conflict"
    assert (tmp_path / "one").read_bytes() == before
    two.export(tmp_path / "one", overwrite=True).unwrap()
    assert (tmp_path / "one").read_bytes() != before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]


def test_v135_an_export_that_fails_leaves_nothing(make: Make, tmp_path: Path) -> None:
    graph = make("a")
    graph.store.begin()
    graph.store._db.run("UPDATE event SET body = '{}'")
    graph.store.commit()
    assert failure(graph.export(tmp_path / "b")).code == "IntegrityBroken"
    assert failure(graph.export(tmp_path / "no" / "b")).code == "ReadOnly"
    assert failure(graph.export("a\0b")).code == "InvalidInput"
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_carries_that_who_was_no_member_was_taken_out(make: Make) -> None:
    graph = make("a")
    graph.define_zone("z", ["a"]).unwrap()
    graph.remove_from_zone("z", "nobody").unwrap()
    with taken_in(bundle_of(graph)) as copy:
        assert live(copy) == live(graph)


def test_a_member_of_a_zone_that_is_not_there_is_refused(make: Make) -> None:
    graph = make("a")
    graph.define_zone("z", ["a"]).unwrap()
    graph.remember("b").unwrap()
    graph.add_to_zone("z", "b").unwrap()
    rows = [row for row in rows_of(bundle_of(graph)) if row.type != "ZoneDefined"]
    with pytest.raises(VerbFailed, match="there is no zone 'z'"):
        taken_in(rechained(rows))


@pytest.mark.parametrize("retain", [4, 5, 6, 7])
def test_d5_a_compacted_log_can_be_exported_after_a_rollback(make: Make, retain: int) -> None:
    graph = make(*"abcde")
    graph.checkpoint("here").unwrap()
    graph.rollback("here").unwrap()  # what names the checkpoint's state is set aside
    for node in "fghij":
        graph.remember(node).unwrap()
    graph.compact(retain=retain).unwrap()
    with taken_in(bundle_of(graph)) as copy:
        assert live(copy) == live(graph)
        invariants(copy)


def test_d5_where_no_event_names_a_state_any_more_a_snapshot_helps(make: Make) -> None:
    graph = make(*"abcde")
    graph.compact(retain=0).unwrap()
    graph.checkpoint("here").unwrap()
    graph.checkpoint("there").unwrap()
    graph.rollback("here").unwrap()
    invariants(graph)
    failed = graph.export(io.BytesIO())
    assert isinstance(failed, Fail)
    assert (failed.code, failed.hint) == ("Conflict", "call snapshot, then export")
    graph.snapshot().unwrap()
    with taken_in(bundle_of(graph)) as copy:
        assert live(copy) == live(graph)


def test_d5_an_export_of_a_compacted_log_carries_the_state_before_it(make: Make) -> None:
    graph = populate(make())
    before = live(graph)
    prune(graph)
    graph.step(reward=1).unwrap()
    after = live(graph)
    report = graph.export(io.BytesIO()).unwrap()
    assert (report.events, report.base_rows > 10) == (4, True)
    with taken_in(bundle_of(graph)) as copy:
        assert live(copy) == after != before
        assert [n.id for n in copy.recall(text="alpha")] == ["a"]
        invariants(copy)
        copy.step(reward=1).unwrap()
        with taken_in(bundle_of(copy)) as third:
            assert live(third) == live(copy)
            invariants(third)
        copy.remember("a", label="again").unwrap()
        prune(copy)
        with taken_in(bundle_of(copy)) as fourth:
            assert live(fourth) == live(copy)


def test_d5_a_base_is_proved_by_the_event_that_recorded_it(make: Make) -> None:
    graph = populate(make())
    prune(graph)
    graph.remember("d").unwrap()
    lines = bundle_of(graph).splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if b'"table":"node"' in line and b"alpha" in line)
    forged = lines.copy()
    forged[place] = lines[place].replace(b"alpha", b"omega")
    import hashlib

    digest = hashlib.sha256(b"".join(forged[:-1])).hexdigest()
    trailer = decode(forged[-1])
    forged[-1] = encode(trailer | {"digest": digest}) + b"\n"
    with pytest.raises(VerbFailed, match="recorded the base"):
        taken_in(b"".join(forged))
    with taken_in(b"".join(lines)) as copy:
        assert copy.get_node("a") is not None


def test_d5_a_branch_works_from_a_compacted_log(make: Make, branch: Branch, tmp_path: Path) -> None:
    main = populate(make(path=tmp_path / "main.db"))
    prune(main)
    child = branch(main, tmp_path / "child.db")
    assert live(child) == live(main)
    child.remember("d").unwrap()
    assert main.merge(child).unwrap().merged == 1
    old = branch(main)
    main.remember("e").unwrap()
    prune(main, "again")
    assert "does not reach back" in failure(main.merge(old)).message
    child.remember("f").unwrap()
    prune(child)
    assert failure(main.merge(child)).code == "Conflict"


# ------------------------------------------------------------------------------------ V136, D34


def test_v136_d34_a_graph_that_is_not_empty_takes_a_bundle_only_if_asked(make: Make, tmp_path: Path) -> None:
    bundle = bundle_of(make("a", "b"))
    path = tmp_path / "g.db"
    make("pre", path=path).close()
    before = path.read_bytes()
    with pytest.raises(VerbFailed) as refused:
        taken_in(bundle, path)
    assert refused.value.code == "Conflict"
    assert path.read_bytes() == before
    with taken_in(bundle, path, merge=True) as graph:
        assert [node.id for node in graph.recall()] == ["a", "b", "pre"]
        invariants(graph)


def test_v136_d34_unknown_types_are_refused(make: Make) -> None:
    rows = rows_of(bundle_of(make("a")))
    strange = rows[0]._replace(type="NodeExploded")
    with pytest.raises(VerbFailed, match="NodeExploded") as refused:
        taken_in(rechained([*rows, strange]))
    assert refused.value.details["line"] == 3


def test_d34_provenance_is_recorded(make: Make) -> None:
    graph = populate(make())
    bundle = bundle_of(graph)
    with taken_in(bundle, expect_head=graph.head()) as copy:
        kept, (*events, note) = list(graph.store.read(GRAPH)), list(copy.store.read(GRAPH))
        carried = [row for row in kept if row.type not in ("SnapshotTaken", "CheckpointCreated")]
        assert [(r.id, r.at, r.type, r.actor, r.body) for r in events] == [
            (r.id, r.at, r.type, r.actor, r.body) for r in carried
        ]
        assert {row.trust for row in events} == {"import"}
        assert (note.type, note.actor, note.trust) == ("Imported", "import", "import")
        body, report = decode(note.body), copy.imported
        assert report is not None
        assert (body["head"], body["digest"], body["imported"]) == (graph.head(), report.digest, len(carried))
        assert (report.pinned, report.origin) == (True, kept[0].hash.hex())
    with taken_in(bundle) as copy:
        assert copy.imported is not None
        assert not copy.imported.pinned


def test_d34_a_pin_refuses_every_other_bundle(make: Make, tmp_path: Path) -> None:
    graph = make("a")
    pin = graph.head()
    graph.remember("b").unwrap()
    for wrong in (pin, "1", "", graph.head().upper()):
        with pytest.raises(VerbFailed, match="head") as refused:
            taken_in(bundle_of(graph), tmp_path / "new.db", expect_head=wrong)
        assert refused.value.code == "Conflict"
    assert list(tmp_path.iterdir()) == []


def test_d34_the_same_bundle_twice_and_a_later_one_add_only_what_is_new(make: Make) -> None:
    origin = populate(make())
    first = bundle_of(origin)
    origin.remember("later").unwrap()
    origin.step(reward=1).unwrap()
    second = bundle_of(origin)
    target = make("own", path=":memory:")
    target.set_cursor(["own"]).unwrap()
    from graphstate.verbs.importing import take_in

    def take(bundle: bytes) -> Any:
        return take_in(target, io.BytesIO(bundle), merge=True, on_conflict="fail", expect_head=None)

    assert take(first).imported > 0
    head = target.head()
    assert (take(first).imported, target.head()) == (0, head)
    assert take(second).imported == 3
    assert (take(second).imported, take(first).imported) == (0, 0)
    stat, theirs = target.get_stat("edge", "ab"), origin.get_stat("edge", "ab")
    assert stat is not None
    assert theirs is not None
    assert (stat.visits, stat.successes) == (theirs.visits, theirs.successes)
    assert target.cursor() == ["own"]
    invariants(target)


def test_d34_what_a_bundle_and_the_graph_both_hold_is_a_conflict(make: Make, tmp_path: Path) -> None:
    bundle = bundle_of(make("a", "b"))
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    graph.remember("a", label="mine").unwrap()
    graph.close()
    before = path.read_bytes()
    with pytest.raises(VerbFailed) as refused:
        taken_in(bundle, path, merge=True)
    assert [(c["kind"], c["id"]) for c in refused.value.details["conflicts"]] == [("node", "a")]
    assert path.read_bytes() == before
    with taken_in(bundle, path, merge=True, on_conflict="ours") as graph:
        node = graph.get_node("a")
        assert node is not None
        assert (node.label, graph.get_node("b") is not None) == ("mine", True)
        assert graph.imported is not None
        assert len(graph.imported.conflicts) == 1
        invariants(graph)


def test_d34_a_bundle_with_a_base_needs_an_empty_graph(make: Make) -> None:
    graph = populate(make())
    prune(graph)
    bundle = bundle_of(graph)
    from graphstate.verbs.importing import take_in

    with pytest.raises(VerbFailed, match="compacted"):
        take_in(make("x"), io.BytesIO(bundle), merge=True, on_conflict="ours", expect_head=None)
    with taken_in(bundle) as copy:
        again = bundle_of(copy)
    rows = rows_of(again)
    assert rows[0].type == "StateRestored"
    with taken_in(again) as copy:
        assert live(copy) == live(graph)
    with pytest.raises(VerbFailed, match="empty graph"):
        take_in(make("x"), io.BytesIO(again), merge=True, on_conflict="ours", expect_head=None)
    kinds_of_rows = [decode(row.body).get("table") for row in rows]
    for forged in (
        [rows[0], *rows],
        [*rows, rows[0]],
        [*rows[:3], rows[2], *rows[3:]],
        rows[1:],
        [row for row, kind in zip(rows, kinds_of_rows, strict=True) if kind != "edge"],
        [*rows, rows[kinds_of_rows.index("state")]],
    ):
        with pytest.raises(VerbFailed):
            taken_in(rechained(forged))


def test_d34_bundles_of_version_1_are_read(make: Make) -> None:
    events = [{"type": row.type, "payload": decode(row.body)} for row in rows_of(bundle_of(populate(make())))]
    events = [event for event in events if event["type"] not in ("SnapshotTaken", "CheckpointCreated")][:12]
    document = {"schema_version": 1, "events": events}
    for text in (encode(document), encode(document).replace(b",", b",\n ")):
        with taken_in(text, actor="me") as copy:
            assert copy.imported is not None
            assert (copy.imported.version, copy.imported.imported) == (1, 12)
            assert copy.cursor() == ["a"]
            invariants(copy)
    wrongs: tuple[Json, ...] = (
        {"schema_version": 2, "events": []},
        {"schema_version": True, "events": []},
        {"schema_version": 1},
        {"schema_version": 1, "events": {}},
        {"schema_version": 1, "events": [1]},
        {"schema_version": 1, "events": [{"type": "NodeUpserted"}]},
        {"schema_version": 1, "events": [{"type": 1, "payload": {}}]},
        {"schema_version": 1, "events": [{"type": "NodeUpserted", "payload": []}]},
        {"schema_version": 1, "events": [{"type": "NodeExploded", "payload": {}}]},
        {"schema_version": 1, "events": [{"type": "NodeUpserted", "payload": {"id": "a"}}]},
        [],
    )
    for wrong in wrongs:
        with pytest.raises(VerbFailed):
            taken_in(encode(wrong))
    with pytest.raises(VerbFailed, match="version 1 does not tell"):
        taken_in(encode(document), expect_head="1:" + "0" * 64)


def test_d34_a_bundle_that_is_not_there(tmp_path: Path) -> None:
    for wrong in (tmp_path / "none", tmp_path, "a\0b"):
        with pytest.raises(VerbFailed) as refused:
            Adaptogen.import_state(tmp_path / "g.db", wrong)
        assert refused.value.code == "InvalidBundle"
    with pytest.raises(TypeError):
        Adaptogen.import_state(tmp_path / "g.db", io.StringIO("{}"))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------ one moment


class Interrupted(io.BytesIO):
    """Somebody else writes whenever a line goes out."""

    def __init__(self, other: Adaptogen) -> None:
        super().__init__()
        self.other, self.lines = other, 0

    def write(self, line: Any, /) -> int:
        self.lines += 1
        self.other.remember(f"late-{self.lines}").unwrap()
        return super().write(line)


def test_an_export_shows_one_moment_whoever_writes_meanwhile(make: Make, tmp_path: Path) -> None:
    graph = populate(make(path=tmp_path / "g.db"))
    before, wanted = bundle_of(graph), live(graph)
    with Adaptogen.open(tmp_path / "g.db", seed=False) as other:
        file = Interrupted(other)
        graph.export(file).unwrap()
    assert file.lines > 10
    assert file.getvalue() == before
    with taken_in(before) as copy:
        assert live(copy) == wanted
    assert live(graph) != wanted


def test_a_verb_of_the_module_does_the_same(make: Make, tmp_path: Path) -> None:
    graph = make("a")
    assert export_state(graph, tmp_path / "b").unwrap() == graph.export(io.BytesIO()).unwrap()
    with import_state(":memory:", tmp_path / "b") as copy:
        assert live(copy) == live(graph)
