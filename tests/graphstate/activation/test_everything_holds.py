"""What is true of the whole graph is true of its memory: kept, moved, merged and verified with it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, VerbFailed
from graphstate._canonical import decode, encode
from graphstate.events import Draft
from tests.graphstate.activation.conftest import D, H, Hands, Remember, near
from tests.graphstate.bundles import bundle_of, live
from tests.graphstate.conftest import Tamper


def lived(graph: Adaptogen, clock: Hands) -> Adaptogen:
    """A graph in which everything has happened once."""
    for node, kind in (("a", "fact"), ("b", "episode"), ("c", "entity"), ("d", "state")):
        graph.remember(node, kind=kind, memory={"source": "test", "confidence": 0.9}).unwrap()
        graph.reinforce(node, 0.5, context="x", outcome="shown").unwrap()
        clock.ms += H
    graph.suppress("b", 0.2).unwrap()
    graph.suppress("c", 0.2, context="x").unwrap()
    graph.supersede("a", "d").unwrap()
    graph.consolidate("s", ["b", "c"]).unwrap()
    graph.register_memory_class("state", "procedural").unwrap()
    graph.set_tunable("scoreHalfLifeMs", 6 * H).unwrap()
    return graph


def present(graph: Adaptogen, at: int) -> list[Any]:
    return [graph.activation(node, at=at) for node in "abcds"] + graph.top_activated(
        at=at, include_superseded=True
    )


def test_reopening_a_file_reads_what_was_written(tmp_path: Path, clock: Hands) -> None:
    path = tmp_path / "g.db"
    with Adaptogen.open(path, seed=False, now=clock) as graph:
        before = present(lived(graph, clock), clock.ms)
    with Adaptogen.open(path, seed=False, now=clock) as graph:
        assert present(graph, clock.ms) == before
        assert graph.verify_integrity(deep=True).ok
        graph.bump_attention("a", 0.04).unwrap()
    with Adaptogen.open(path, seed=False, now=clock) as graph:
        assert present(graph, clock.ms) == before, "attention is in no file"


def test_another_process_sees_what_was_written(tmp_path: Path, clock: Hands) -> None:
    path = tmp_path / "g.db"
    with (
        Adaptogen.open(path, seed=False, now=clock) as one,
        Adaptogen.open(path, seed=False, now=clock) as two,
    ):
        lived(one, clock)
        assert present(two, clock.ms) == present(one, clock.ms)
        two.reinforce("b", 3).unwrap()
        assert one.top_activated(limit=1) == two.top_activated(limit=1)
        two.set_tunable("classHalfLives", {}).unwrap()
        one.reinforce("c", 0.1).unwrap()
        assert present(one, clock.ms + D) == present(two, clock.ms + D)
        assert one.verify_integrity(deep=True).ok


def test_a_failed_unit_leaves_nothing(graph_of: Remember, clock: Hands) -> None:
    graph = lived(graph_of(), clock)
    before, seen = live(graph), present(graph, clock.ms)
    with pytest.raises(RuntimeError), graph.unit():
        graph.reinforce("a", 5, context="y").unwrap()
        graph.consolidate("t", ["a", "s"]).unwrap()
        graph.supersede("t", "a").unwrap()
        raise RuntimeError
    assert (live(graph), present(graph, clock.ms)) == (before, seen)


def test_a_rollback_brings_the_memory_back_too(graph_of: Remember, clock: Hands) -> None:
    graph = lived(graph_of(), clock)
    graph.checkpoint("cp").unwrap()
    before, seen = live(graph), present(graph, clock.ms)
    graph.reinforce("a", 5, context="y").unwrap()
    graph.unsupersede("d").unwrap()
    graph.set_tunable("classHalfLives", {}).unwrap()
    graph.remember("b", memory={"confidence": None, "memory_class": "entity"}).unwrap()
    assert present(graph, clock.ms) != seen
    graph.rollback("cp").unwrap()
    assert (live(graph), present(graph, clock.ms)) == (before, seen)


def test_a_rebuild_a_snapshot_and_a_compaction_change_nothing(graph_of: Remember, clock: Hands) -> None:
    graph = lived(graph_of(), clock)
    before, seen = live(graph), present(graph, clock.ms)
    for change in (
        graph.rebuild,
        graph.snapshot,
        graph.rebuild,
        lambda: graph.compact(retain=0),
        graph.rebuild,
    ):
        change().unwrap()
        assert (live(graph), present(graph, clock.ms)) == (before, seen)
        assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("retain", [None, 0], ids=["whole", "compacted"])
def test_a_bundle_carries_the_memory(graph_of: Remember, clock: Hands, retain: int | None) -> None:
    graph = lived(graph_of(), clock)
    if retain is not None:
        graph.compact(retain=retain).unwrap()
    with Adaptogen.import_state(":memory:", io.BytesIO(bundle_of(graph)), now=clock) as copy:
        assert live(copy) == live(graph)
        assert present(copy, clock.ms) == present(graph, clock.ms)
        assert copy.verify_integrity(deep=True).ok
        copy.reinforce("a", 0.1).unwrap()


def test_a_branch_comes_back_with_all_it_learned(graph_of: Remember, clock: Hands) -> None:
    graph = lived(graph_of(), clock)
    graph.remember("e").unwrap()
    branch = graph.branch(":memory:").unwrap()
    branch.reinforce("a", 0.2, context="y").unwrap()
    branch.suppress("s", 0.1).unwrap()
    branch.supersede("e", "c").unwrap()
    branch.consolidate("t", ["a", "b"], payload={"n": 1}).unwrap()
    graph.reinforce("b", 0.1).unwrap()
    merged = graph.merge(branch).unwrap()
    assert (merged.conflicts, graph.merge(branch).unwrap().merged) == ((), 0)
    assert [node.id for node in graph.expand("t")] == ["a", "b"]
    assert graph.activation("a").contexts["y"] == near(0.2)  # type: ignore[union-attr]
    assert graph.activation("c").superseded  # type: ignore[union-attr]
    assert graph.verify_integrity(deep=True).ok
    branch.discard()


def test_two_sides_that_superseded_the_same_memory_are_a_conflict(graph_of: Remember) -> None:
    graph = graph_of("old", "x", "y")
    branch = graph.branch(":memory:").unwrap()
    graph.supersede("x", "old").unwrap()
    branch.supersede("y", "old").unwrap()
    refused = graph.merge(branch)
    assert not refused.ok
    assert "both sides changed it" in refused.message
    assert graph.merge(branch, on_conflict="ours").unwrap().left_out == 1
    branch.discard()


def test_two_sides_that_superseded_each_other_are_a_circle(graph_of: Remember) -> None:
    graph = graph_of("x", "y")
    branch = graph.branch(":memory:").unwrap()
    graph.supersede("x", "y").unwrap()
    branch.supersede("y", "x").unwrap()
    refused = graph.merge(branch)
    assert not refused.ok
    assert refused.details["conflicts"][0]["kind"] == "cycle"
    branch.discard()


EVENTS: dict[str, dict[str, Any]] = {
    "memory.reinforced": {"id": "a", "amount": 0.5, "at": 1},
    "memory.suppressed": {"id": "a", "amount": 0.5, "at": 1, "context": "x"},
    "memory.superseded": {"new": "a", "old": "b", "edgeId": "e1", "at": 1},
    "memory.consolidated": {"id": "a", "sources": ["b"], "edges": ["e1"], "amount": 0.5, "at": 1},
    "NodeUpserted": {
        "id": "a", "kind": "state", "label": "", "payload": {}, "tags": [], "status": "active", "embedding": None,
        "memory": {"confidence": 0.5}, "trust": "tool",
    },
}  # fmt: skip

WRONG = [
    ("memory.reinforced", "amount", None), ("memory.reinforced", "amount", 1e9), ("memory.reinforced", "at", "x"),
    ("memory.reinforced", "id", "ghost"), ("memory.reinforced", "context", ""), ("memory.reinforced", "outcome", "x"),
    ("memory.suppressed", "at", None), ("memory.suppressed", "context", 3), ("memory.superseded", "old", "a"),
    ("memory.superseded", "new", "ghost"), ("memory.superseded", "edgeId", ""), ("memory.consolidated", "sources", []),
    ("memory.consolidated", "sources", ["a"]), ("memory.consolidated", "edges", ["e1", "e2"]),
    ("memory.consolidated", "amount", "x"), ("NodeUpserted", "memory", {"confidence": 2}),
    ("NodeUpserted", "memory", {"confidence": None}), ("NodeUpserted", "trust", "god"),
]  # fmt: skip


def admitted(graph: Adaptogen, type: str, body: dict[str, Any]) -> None:
    from graphstate.verbs.admission import admit

    admit(graph.store, type, "somebody", decode(encode(body)))


@pytest.mark.parametrize("type", EVENTS)
def test_an_event_as_a_verb_writes_it_is_admitted(graph_of: Remember, type: str) -> None:
    admitted(graph_of("a", "b"), type, EVENTS[type])


@pytest.mark.parametrize(("type", "key", "value"), WRONG)
def test_an_event_that_no_verb_writes_is_refused(graph_of: Remember, type: str, key: str, value: Any) -> None:
    graph = graph_of("a", "b")
    with pytest.raises(VerbFailed):
        admitted(graph, type, EVENTS[type] | {key: value})
    if value is None:
        with pytest.raises(VerbFailed, match=key):
            admitted(graph, type, {name: part for name, part in EVENTS[type].items() if name != key})


@pytest.mark.parametrize("column", ["score", "anchor", "inhibition", "rank_key", "reinforcement_count"])
def test_deep_verification_finds_a_changed_row(
    tmp_path: Path, tamper: Tamper, clock: Hands, column: str
) -> None:
    path = tmp_path / "g.db"
    with Adaptogen.open(path, seed=False, now=clock) as graph:
        lived(graph, clock)
    tamper(path, f"UPDATE activation SET {column} = {column} + 1 WHERE id = 'a'")
    with Adaptogen.open(path, seed=False, now=clock) as graph:
        assert not graph.verify_integrity(deep=True).ok


def test_rows_of_a_base_are_ranked_by_their_sums_not_by_the_keys_they_bring(
    graph_of: Remember, clock: Hands
) -> None:
    graph = graph_of()
    graph.remember("b", kind="episode").unwrap()
    row = [1, "b", 3, 1e9, 0.5, 0.1, 12 * H, 0.0, None, 1, 12 * H, 0, 0, 0]
    with graph.unit():
        graph.record(Draft("StateRestored", {"table": "activation", "row": row, "id": None}))
    assert graph.store._db.one("SELECT lane, rank_key FROM activation") == (1, 0.0)
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("vector", [None, "[1.0, 0.5]"])
def test_a_row_of_a_node_from_before_nodes_had_trust_is_an_import(
    graph_of: Remember, vector: str | None
) -> None:
    graph = graph_of()
    row = [1, "a", "state", "a", "{}", "[]", "active", 1, 1, 1, 5, 5, vector]
    body: dict[str, Any] = {"table": "node", "row": row, "id": "a"}
    from graphstate.verbs.admission import admit

    admit(graph.store, "StateRestored", "somebody", body)
    graph.record(Draft("StateRestored", body))
    node = graph.get_node("a")
    assert node is not None
    assert (node.trust, node.embedding) == ("import", None)
    assert graph.verify_integrity(deep=True).ok
    for wrong in (row[:12], [*row[:12], "god"], [*row[:12], 3]):
        with pytest.raises(VerbFailed, match="InvalidInput"):
            admitted(graph, "StateRestored", {"table": "node", "row": wrong})
