"""Vectors V110 to V124 as they hold here: learning, garbage, structural edits, migration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import graphstate.verbs.evolution as evolution
from graphstate import Adaptogen, Edge, Fail, Migrated, Node, Ok, Proposal, Stat
from graphstate.mining import Traffic, ZoneTraffic, loose_zones
from graphstate.scoring import joined, learned
from tests.graphstate.conftest import Make


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def types(graph: Adaptogen, after: int = 0) -> list[str]:
    return [entry.type for entry in graph.history(from_seq=after + 1, limit=1_000)]


def the_node(graph: Adaptogen, id: str) -> Node:
    node = graph.get_node(id)
    assert node is not None
    return node


def the_edge(graph: Adaptogen, id: str) -> Edge:
    edge = graph.get_edge(id)
    assert edge is not None
    return edge


def the_stat(graph: Adaptogen, kind: str, id: str) -> Stat:
    stat = graph.get_stat(kind, id)
    assert stat is not None
    return stat


def seq(graph: Adaptogen) -> int:
    return graph.store.head().seq


@pytest.fixture
def sound(make: Make) -> Iterator[Make]:
    """The fixture F; at the end every graph is valid, and its tables are the replay of its log."""
    made: list[Adaptogen] = []

    def tracked(*ids: str, **options: Any) -> Adaptogen:
        made.append(make(*ids, **options))
        return made[-1]

    yield tracked
    for graph in made:
        report = graph.verify_integrity(deep=True)
        assert report.ok, report
        assert graph.validate().ok, graph.validate()


def walk(graph: Adaptogen, src: str, edge: str, reward: float | None = None, times: int = 1) -> None:
    for _ in range(times):
        graph.set_cursor([src]).unwrap()
        assert graph.transition(edge_id=edge).unwrap().applied
        if reward is not None:
            graph.reward(reward, edge_id=edge).unwrap()


# ------------------------------------------------------------------------------ reweight


def test_v110_the_learned_weight_follows_the_average_and_the_prior_stays(sound: Make) -> None:
    graph = sound("a", "b", "c")
    graph.link("a", "b", id="won").unwrap()
    graph.link("a", "c", id="unrewarded").unwrap()
    walk(graph, "a", "won", 1)
    head = seq(graph)
    assert graph.reweight().unwrap().reweighted == 1
    assert types(graph, head) == ["EdgesReweighted"]
    edge, stat = the_edge(graph, "won"), the_stat(graph, "edge", "won")
    assert (edge.weight, edge.version) == (1, 1)
    assert edge.weight + edge.learned_weight == pytest.approx(1.3)
    assert (stat.visits, stat.successes) == (1, 1)
    untouched = the_edge(graph, "unrewarded")
    assert (untouched.weight, untouched.learned_weight) == (1, 0)


@pytest.mark.parametrize(
    ("prior", "ema", "effective"),
    [(1, 0.3, 1.3), (1, -0.657, 0.343), (1, 0, 1), (1, -5, 0.01), (3, -5, 0.03), (2, 0.5, 3), (0, 5, 0)],
)
def test_v110_the_numbers_of_the_learned_weight(prior: float, ema: float, effective: float) -> None:
    assert prior + learned(prior, ema) == pytest.approx(effective)


def test_d28_ranking_adds_the_learned_weight_to_the_author_s_prior(sound: Make) -> None:
    graph = sound("a", "b")
    graph.link("a", "b", id="e", weight=3).unwrap()
    walk(graph, "a", "e", 1)
    graph.set_cursor(["a"]).unwrap()
    before = graph.suggest()[0].breakdown.weight
    graph.reweight().unwrap()
    assert the_edge(graph, "e").weight == 3
    assert graph.suggest()[0].breakdown.weight == pytest.approx(before + 0.262364264467491)


def test_v111_d28_self_iterate_leaves_an_author_s_weight(sound: Make) -> None:
    graph = sound("a", "b")
    graph.link("a", "b", id="e", weight=3).unwrap()
    graph.set_cursor(["a"]).unwrap()
    assert graph.self_iterate().unwrap().reweighted == 0
    edge = the_edge(graph, "e")
    assert (edge.weight, edge.learned_weight) == (3, 0)


def test_d37_reweight_records_only_what_changed(sound: Make) -> None:
    graph = sound("a", "b", "c")
    graph.link("a", "b", id="e1").unwrap()
    graph.link("b", "c", id="e2").unwrap()
    walk(graph, "a", "e1", 1)
    graph.reweight().unwrap()
    head = seq(graph)
    assert graph.reweight().unwrap().reweighted == 0
    assert seq(graph) == head
    walk(graph, "b", "e2", -1)
    graph.reweight().unwrap()
    (entry,) = graph.history(type="EdgesReweighted", from_seq=head + 1)
    assert set(entry.payload["weights"]) == {"e2"}


def test_d37_many_weights_are_several_events_of_one_transaction(
    sound: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = sound("a", "b")
    for number in range(5):
        graph.link("a", "b", id=f"e{number}").unwrap()
        walk(graph, "a", f"e{number}", 1)
    monkeypatch.setattr(evolution, "_AT_ONCE", 2)
    head = seq(graph)
    assert graph.reweight(cause="once").unwrap().reweighted == 5
    assert types(graph, head) == ["EdgesReweighted"] * 3
    assert {the_edge(graph, f"e{number}").learned_weight for number in range(5)} == {0.3}


def test_an_edge_with_other_ends_forgets_its_learned_weight(sound: Make) -> None:
    graph = sound("a", "b", "c")
    graph.link("a", "b", id="e").unwrap()
    walk(graph, "a", "e", 1)
    graph.reweight().unwrap()
    assert graph.link("a", "c", id="e", upsert=True).unwrap().learned_weight == 0
    assert graph.reweight().unwrap().reweighted == 0


# ------------------------------------------------------------------------------ optimize and gc


def proposals(graph: Adaptogen, **options: Any) -> list[tuple[str, str]]:
    head = seq(graph)
    found = graph.optimize(**options)
    assert seq(graph) == head, "optimize changes nothing"
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)
    return [(p.kind, p.target) for p in found]


def test_v112_dead_nodes_and_duplicate_edges_in_the_order_of_their_scores(sound: Make) -> None:
    graph = sound("a", "b", "dead")
    graph.link("a", "b", id="e1").unwrap()
    graph.link("a", "b", id="e2").unwrap()
    graph.set_cursor(["a"]).unwrap()
    assert proposals(graph) == [("gc-dead-node", "dead"), ("merge-duplicate-edge", "e2")]
    assert [p.score for p in graph.optimize()] == [0.9, 0.7]


@pytest.mark.parametrize("other", [{"label": "again"}, {"guard": "vars.ok == true"}, {"enforcement": "hard"}])
def test_an_edge_that_differs_repeats_none(sound: Make, other: dict[str, Any]) -> None:
    graph = sound("a", "b")
    graph.link("a", "b").unwrap()
    graph.link("a", "b", **other).unwrap()
    graph.set_cursor(["a"]).unwrap()
    assert proposals(graph) == []


def test_v113_an_edge_that_loses(sound: Make) -> None:
    graph = sound("a", "b")
    graph.link("a", "b", id="e").unwrap()
    walk(graph, "a", "e", -1, times=3)
    (proposal,) = graph.optimize()
    assert proposal == Proposal(
        kind="prune-low-value-edge", target="e", detail="ema -0.66 over 3 visits", score=0.6
    )


def test_v114_gc_sets_aside_what_nothing_leads_to(sound: Make) -> None:
    graph = sound("a", "orphan")
    graph.set_cursor(["a"]).unwrap()
    head = seq(graph)
    assert graph.gc().unwrap().deprecated == ("orphan",)
    assert types(graph, head) == ["NodeStatusChanged"]
    assert graph.gc().unwrap().deprecated == ()
    assert seq(graph) == head + 1
    assert the_node(graph, "a").status == "active"


def test_v115_d27_a_fact_behind_a_dependency_lives(sound: Make) -> None:
    graph = sound("a", "b")
    graph.remember("fact", kind="fact", payload={"x": 1}).unwrap()
    graph.link("a", "b").unwrap()
    graph.depend("b", "fact", id="d").unwrap()
    graph.set_cursor(["a"]).unwrap()
    assert proposals(graph) == []
    graph.self_iterate(min_age=0).unwrap()
    assert graph.gc().unwrap().deprecated == ()
    assert graph.get_edge("d") is not None


def test_v115_d27_nothing_is_garbage_while_nobody_stands_anywhere(sound: Make) -> None:
    graph = sound("a", "b")
    assert graph.gc().unwrap().deprecated == ()
    assert proposals(graph) == []


@pytest.mark.parametrize(
    "life",
    [
        lambda g: g.link("a", "x"),
        lambda g: g.link("x", "a", kind="reference"),
        lambda g: g.link("a", "x", kind="reference"),
        lambda g: g.depend("a", "x"),
        lambda g: g.depend("x", "a"),
        lambda g: g.set_cursor(["x"], actor="robot"),
        lambda g: g.pin("x"),
        lambda g: g.remember("x", tags=["seed"]),
        lambda g: g.remember("x", kind="fact"),
        lambda g: g.remember("f", kind="fact").ok and g.link("f", "x", kind="reference"),
        lambda g: (g.link("x", "a", id="xa"), walk(g, "x", "xa")),  # type: ignore[func-returns-value]
    ],
    ids=[
        "transition to it", "it refers", "referred to", "waited for", "waiting", "another cursor", "pin", "seed",
        "kind", "a fact refers", "start of an edge that was used",
    ],
)  # fmt: skip
def test_d27_what_keeps_a_node(sound: Make, life: Any) -> None:
    graph = sound("a", "x")
    graph.set_cursor(["a"]).unwrap()
    assert proposals(graph) == [("gc-dead-node", "x")]
    life(graph)
    assert graph.gc().unwrap().deprecated == ()


def test_d27_a_visit_keeps_a_node_and_what_it_leads_to(sound: Make) -> None:
    graph = sound("a", "x", "y")
    graph.link("a", "x", id="ax").unwrap()
    graph.link("x", "y").unwrap()
    walk(graph, "a", "ax")
    graph.unlink("ax").unwrap()
    graph.set_cursor(["a"]).unwrap()
    assert proposals(graph) == []


def test_d27_a_young_node_is_left_alone(sound: Make) -> None:
    graph = sound("a", "old")
    graph.set_cursor(["a"]).unwrap()
    for number in range(3):
        graph.remember("a", payload={"n": number}).unwrap()
    graph.remember("young").unwrap()
    assert proposals(graph, min_age=3) == [("gc-dead-node", "old")]
    assert graph.gc(min_age=3).unwrap().deprecated == ("old",)
    assert graph.self_iterate().unwrap().applied == ()
    assert code(graph.gc(min_age=-1)) == "InvalidInput"


def test_d27_what_gc_set_aside_comes_back_with_its_edges(sound: Make) -> None:
    graph = sound("a", "x", "y")
    graph.link("x", "y", id="xy").unwrap()
    graph.link("x", "a", id="xa", weight=2).unwrap()
    graph.set_cursor(["a"]).unwrap()
    edges = [graph.get_edge(edge) for edge in ("xy", "xa")]
    collected = graph.gc().unwrap()
    assert (collected.deprecated, collected.dormant_edges) == (("x", "y"), 2)
    for node in collected.deprecated:
        graph.set_status(node, "active").unwrap()
    assert [graph.get_edge(edge) for edge in ("xy", "xa")] == edges
    graph.set_cursor(["x"]).unwrap()
    assert [move.to for move in graph.legal_moves()] == ["y", "a"]


def test_pins_are_a_tag_that_is_set_once(sound: Make) -> None:
    graph = sound("a")
    graph.remember("a", tags=["t"]).unwrap()
    assert graph.pin("a").unwrap().tags == ("t", "pinned")
    head = seq(graph)
    assert graph.pin("a").unwrap().version == 3
    assert seq(graph) == head
    assert graph.unpin("a").unwrap().tags == ("t",)
    assert code(graph.pin("x")) == "NotFound"


def test_a_node_that_waits_for_one_that_was_set_aside(sound: Make) -> None:
    graph = sound("a", "b")
    graph.depend("b", "a", id="d").unwrap()
    graph.archive("a").unwrap()
    (proposal,) = graph.optimize()
    assert (proposal.kind, proposal.target) == ("release-blocked-node", "d")
    assert "archived" in proposal.detail


# ------------------------------------------------------------------------------ self_iterate


def test_v116_an_empty_store(sound: Make) -> None:
    graph = sound()
    done = graph.self_iterate().unwrap()
    assert (done.applied, done.reweighted, done.checkpoint, done.valid) == ((), 0, None, True)
    assert seq(graph) == 0


def test_v116_one_pass(sound: Make) -> None:
    graph = sound("a", "b", "dead")
    graph.link("a", "b", id="e").unwrap()
    walk(graph, "a", "e", 1)
    graph.set_cursor(["a"]).unwrap()
    head = seq(graph)
    done = graph.self_iterate(min_age=0, cause="episode 1").unwrap()
    assert types(graph, head) == [
        "SnapshotTaken",
        "CheckpointCreated",
        "EdgesReweighted",
        "NodeStatusChanged",
    ]
    assert [(p.kind, p.target) for p in done.applied] == [("gc-dead-node", "dead")]
    assert (done.reweighted, done.checkpoint, done.valid) == (1, f"self-iterate-{head}", True)
    assert (done.violations_before, done.violations_after) == (0, 0)
    assert [row.cause for row in graph.store.read("graph", after=head)] == ["episode 1", None, None, None]
    again = graph.self_iterate(min_age=0, cause="episode 1")
    assert again == Ok(done, repeated=True)
    graph.rollback(f"self-iterate-{head}").unwrap()
    assert the_node(graph, "dead").status == "active"
    assert the_edge(graph, "e").learned_weight == 0


def test_d37_iterating_again_records_nothing_and_checkpoints_stay_few(sound: Make) -> None:
    graph = sound("a", "b")
    graph.link("a", "b", id="e").unwrap()
    for number in range(6):
        walk(graph, "a", "e", number)
        graph.self_iterate().unwrap()
        head = seq(graph)
        assert graph.self_iterate().unwrap().checkpoint is None
        assert seq(graph) == head
    graph.checkpoint("mine").unwrap()
    walk(graph, "a", "e", -1)
    graph.self_iterate().unwrap()
    names = [checkpoint.name for checkpoint in graph.list_checkpoints()]
    assert len(names) == 4
    assert "mine" in names


def test_v117_d29_an_archived_target_does_not_stop_it(sound: Make) -> None:
    graph = sound("a", "b")
    graph.link("a", "b", id="e").unwrap()
    walk(graph, "a", "e", 1)
    graph.set_cursor(["a"]).unwrap()
    graph.archive("b").unwrap()
    assert graph.self_iterate().unwrap().reweighted == 1


def test_v117_d29_a_violation_that_was_there_does_not_stop_it(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e").unwrap()
    walk(graph, "a", "e", 1)
    graph.archive("b").unwrap()
    done = graph.self_iterate().unwrap()
    assert (done.reweighted, done.valid, done.violations_before, done.violations_after) == (1, False, 1, 1)


def test_v117_a_regression_keeps_nothing(sound: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sound("a", "b")
    graph.link("a", "b", id="e").unwrap()
    walk(graph, "a", "e", 1)
    head = graph.store.head()
    counts = [graph.store._db.one(f"SELECT count(*) FROM {table}") for table in ("snapshot", "checkpoint")]
    monkeypatch.setattr(evolution, "_garbage", lambda *_: [("b", 1)])  # the head: nobody may stand on it then
    refused = graph.self_iterate()
    assert code(refused) == "Conflict"
    assert isinstance(refused, Fail)
    assert [v["kind"] for v in refused.details["violations"]] == ["CursorOnDeadNode"]
    assert graph.store.head() == head
    after = [graph.store._db.one(f"SELECT count(*) FROM {table}") for table in ("snapshot", "checkpoint")]
    assert after == counts
    assert the_edge(graph, "e").learned_weight == 0


def test_v118_d30_a_reward_for_an_edge_that_is_gone_leaves_no_statistic(sound: Make) -> None:
    graph = sound("a", "b")
    graph.link("a", "b", id="e").unwrap()
    walk(graph, "a", "e")
    graph.unlink("e").unwrap()
    graph.reward(1).unwrap()
    assert graph.validate().ok
    assert graph.self_iterate().ok


# ------------------------------------------------------------------------------ split


def test_v120_split(sound: Make) -> None:
    graph = sound("b")
    graph.remember("a", label="A", payload={"x": 1}, tags=["t"], embedding=[1, 2], kind="task").unwrap()
    graph.link("a", "b", id="e1", weight=2).unwrap()
    graph.link("a", "b", id="e2").unwrap()
    graph.link("b", "a", id="back").unwrap()
    walk(graph, "a", "e1", 1)
    made = graph.split_state("a", "a2", ["e1", "unknown", "back"]).unwrap()
    assert (made.from_, made.to, made.moved) == ("a", "a2", ("e1",))
    copy, edge = the_node(graph, "a2"), the_edge(graph, "e1")
    assert (copy.label, copy.payload, copy.tags, copy.kind) == ("A (split)", {"x": 1}, ("t",), "task")
    assert list(copy.embedding or ()) == [1, 2]
    assert (edge.src, edge.version, edge.weight, edge.learned_weight) == ("a2", 1, 2, 0)
    assert graph.get_stat("edge", "e1") is None
    assert the_edge(graph, "e2").src == "a"


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (("x", "n", []), {}, "NotFound"),
        (("a", "b", []), {}, "DuplicateId"),
        (("a", "bad id", []), {}, "InvalidInput"),
        (("a", "n", ["bad id"]), {}, "InvalidInput"),
        (("a", "n", "e1"), {}, "InvalidInput"),
        (("a", "n", []), {"expect_version": 2}, "Conflict"),
    ],
)
def test_v120_refused_splits_change_nothing(sound: Make, arguments: Any, options: Any, expected: str) -> None:
    graph = sound("a", "b")
    assert code(graph.split_state(*arguments, **options)) == expected
    assert seq(graph) == 2


def test_a_long_label_is_split_too(sound: Make) -> None:
    graph = sound()
    graph.remember("a", label="x" * 1_024).unwrap()
    graph.split_state("a", "a2", []).unwrap()
    label = the_node(graph, "a2").label
    assert (len(label), label[-9:]) == (1_024, "x (split)")


# ------------------------------------------------------------------------------ merge


def test_v121_merge(sound: Make) -> None:
    graph = sound("s", "t")
    graph.remember("a", payload={"x": 1, "k": "A"}, tags=["t1"]).unwrap()
    graph.remember("b", payload={"y": 2, "k": "B"}, tags=["t2", "t1"]).unwrap()
    for name, src, dst in (("sb", "s", "b"), ("bt", "b", "t"), ("ba", "b", "a")):
        graph.link(src, dst, id=name).unwrap()
    graph.set_cursor(["b"]).unwrap()
    head = seq(graph)
    done = graph.merge_states("a", "b").unwrap()
    node, gone = the_node(graph, "a"), the_node(graph, "b")
    assert node.payload == {"x": 1, "y": 2, "k": "A"}
    assert (node.tags, gone.status, graph.cursor()) == (("t1", "t2"), "deprecated", ["a"])
    assert {(e.src, e.dst) for e in map(graph.get_edge, done.moved) if e} == {("a", "t"), ("s", "a")}
    assert (done.moved, done.dropped) == (("bt", "sb"), ("ba",))
    assert types(graph, head) == [
        "NodeUpserted", "EdgeRemoved", "EdgeUpserted", "EdgeRemoved", "EdgeRemoved", "EdgeUpserted",
        "CursorMoved", "NodeStatusChanged",
    ]  # fmt: skip


def test_d31_merging_carries_what_was_learned(sound: Make) -> None:
    graph = sound("a", "b", "t")
    graph.link("a", "t", id="at").unwrap()
    graph.link("b", "t", id="bt").unwrap()
    graph.link("t", "b", id="tb").unwrap()
    graph.link("t", "a", id="ta").unwrap()
    walk(graph, "b", "bt", 1, times=2)
    walk(graph, "t", "tb", 1)
    walk(graph, "t", "ta", -1)
    graph.reweight().unwrap()
    edge, stat = the_edge(graph, "bt"), the_stat(graph, "edge", "bt")
    node, other = the_stat(graph, "node", "a"), the_stat(graph, "node", "b")
    graph.merge_states("a", "b").unwrap()
    kept, carried = the_edge(graph, "bt"), the_stat(graph, "edge", "bt")
    assert (kept.src, kept.learned_weight) == ("a", edge.learned_weight)
    assert (carried.visits, carried.successes, carried.ema_reward) == (2, 2, stat.ema_reward)
    both = the_stat(graph, "node", "a")
    assert (both.visits, both.successes, both.failures) == (2, 1, 1)
    assert both.ema_reward == pytest.approx((node.ema_reward + other.ema_reward) / 2)
    graph.reward(1, trace=True).unwrap()  # the way there is still known by its edges
    assert the_stat(graph, "edge", "bt").successes == 4


def test_what_two_statistics_say_together() -> None:
    one = Stat(visits=2, successes=3, ema_reward=0.5, last_seq=4, rewarded_by="x", rewarded_move=1)
    other = Stat(visits=1, failures=1, ema_reward=-0.5, last_seq=9, rewarded_by="y", rewarded_move=7)
    both = joined(one, other)
    assert (both.visits, both.successes, both.failures, both.ema_reward) == (3, 3, 1, 0.25)
    assert (both.last_seq, both.rewarded_by, both.rewarded_move) == (9, "y", 7)
    assert joined(one, Stat(visits=5, last_seq=20)).rewarded_by == "x"
    assert joined(Stat(), Stat()) == Stat()


def test_every_cursor_moves_along_by_whoever_merges(sound: Make) -> None:
    graph = sound("a", "b")
    graph.set_cursor(["a", "b"]).unwrap()
    graph.set_cursor(["b"], actor="robot").unwrap()
    graph.merge_states("a", "b", actor="lead").unwrap()
    assert (graph.cursor(), graph.cursor(actor="robot"), graph.cursor(actor="lead")) == (["a"], ["a"], [])
    assert {entry.actor for entry in graph.history(from_seq=5)} == {"lead"}


def test_v122_d31_a_merge_that_closes_a_cycle_is_refused(sound: Make) -> None:
    graph = sound("a", "b", "x")
    graph.depend("x", "a").unwrap()
    graph.depend("b", "x").unwrap()
    head = seq(graph)
    for pair in (("a", "b"), ("b", "a")):
        refused = graph.merge_states(*pair)
        assert code(refused) == "CycleRejected"
        assert isinstance(refused, Fail)
        assert refused.details["cycle"] == ["a", "x", "b"]
    assert seq(graph) == head


def test_d31_a_dependency_between_the_two_vanishes(sound: Make) -> None:
    graph = sound("a", "b", "x")
    graph.depend("b", "a", id="ab").unwrap()
    graph.depend("x", "b", id="bx").unwrap()
    graph.link("b", "b", id="again").unwrap()
    done = graph.merge_states("a", "b").unwrap()
    assert (done.dropped, sorted(done.moved)) == (("ab",), ["again", "bx"])
    assert graph.ancestors("x") == ["a"]
    loop = the_edge(graph, "again")
    assert (loop.src, loop.dst) == ("a", "a")


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (("a", "a"), {}, "InvalidInput"),
        (("a", "x"), {}, "NotFound"),
        (("x", "a"), {}, "NotFound"),
        (("a", "big"), {}, "PayloadTooLarge"),
        (("a", "tagged"), {}, "InvalidInput"),
        (("asleep", "a"), {}, "InvalidInput"),
        (("a", "big"), {"expect_version": 7}, "Conflict"),
        (("a", "big"), {"expect_gone_version": 7}, "Conflict"),
    ],
)
def test_v122_d31_refused_merges_change_nothing(
    sound: Make, arguments: Any, options: Any, expected: str
) -> None:
    graph = sound("asleep")
    graph.archive("asleep").unwrap()
    graph.remember("a", payload={"x": "x" * 60}, tags=[f"t{n}" for n in range(40)]).unwrap()
    graph.remember("big", payload={"y": "y" * 60}).unwrap()
    graph.remember("tagged", tags=[f"u{n}" for n in range(40)]).unwrap()
    graph.set_tunable("maxPayloadBytes", 100).unwrap()
    head = seq(graph)
    assert code(graph.merge_states(*arguments, **options)) == expected
    assert seq(graph) == head


# ------------------------------------------------------------------------------ migrate


def test_v123_migrate(sound: Make) -> None:
    graph = sound("other")
    for name in ("d1", "d2"):
        graph.remember(name, kind="doc", payload={"v": 1}).unwrap()
    graph.archive("d2").unwrap()
    done = graph.migrate("doc", lambda payload: payload | {"v": payload["v"] + 1}, to_version=2).unwrap()
    assert (done.migrated, done.changed) == (2, 2)
    assert [the_node(graph, n).payload for n in ("d1", "d2")] == [{"v": 2}] * 2
    assert the_node(graph, "d2").status == "archived"
    assert the_node(graph, "other").version == 1
    (entry,) = graph.history(type="Migrated")
    assert entry.payload == {"kind": "doc", "toVersion": 2, "migrated": 2}
    assert graph.migrate("nothing", lambda payload: payload).unwrap().migrated == 0
    head = seq(graph)
    assert graph.migrate("doc", lambda payload: payload).unwrap().changed == 0
    assert types(graph, head) == ["Migrated"]


def test_v124_d31_a_migration_is_all_or_nothing(sound: Make) -> None:
    graph = sound()
    for name in ("d1", "d2"):
        graph.remember(name, kind="doc", payload={"name": name}).unwrap()

    def fails(payload: Any) -> Any:
        payload["seen"] = True
        if payload["name"] == "d2":
            raise KeyError("no v")
        return payload

    refused = graph.migrate("doc", fails)
    assert code(refused) == "MigrationError"
    assert isinstance(refused, Fail)
    assert "node 'd2': KeyError('no v')" in refused.message
    assert the_node(graph, "d1").payload == {"name": "d1"}
    assert seq(graph) == 2


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda payload: None, "MigrationError"),
        (lambda payload: {}, "MigrationError"),
        (lambda payload: {"x": object()}, "InvalidInput"),
        (lambda payload: {"x": "x" * 300_000}, "PayloadTooLarge"),
        ("not a function", "InvalidInput"),
    ],
)
def test_v124_d31_empty_and_bad_results_are_refused(sound: Make, function: Any, expected: str) -> None:
    graph = sound()
    graph.remember("d", kind="doc", payload={"v": 1}).unwrap()
    assert code(graph.migrate("doc", function)) == expected
    assert seq(graph) == 1


def test_an_empty_payload_may_stay_empty(sound: Make) -> None:
    graph = sound()
    graph.remember("d", kind="doc").unwrap()
    assert graph.migrate("doc", lambda payload: payload).unwrap() == Migrated(migrated=1, changed=0)


# ------------------------------------------------------------------------------ policy


NONE = Traffic()


def zone(
    intra: Any = "off", boundary: Any = "off", inside: Traffic = NONE, crossing: Traffic = NONE
) -> list[tuple[str, str]]:
    found = loose_zones([ZoneTraffic("z", intra, boundary, inside, crossing)], 3)
    return [(p.kind, p.detail) for p in found]


def test_zone_tightening_where_nobody_would_miss_the_looser_mode() -> None:
    assert zone() == []
    assert zone(inside=Traffic(2)) == []
    assert zone(inside=Traffic(3)) == [
        ("tighten-zone-boundary", "off -> soft: never crossed in 3 moves inside")
    ]
    assert zone(boundary="soft", inside=Traffic(3)) == [
        ("tighten-zone-boundary", "soft -> hard: never crossed in 3 moves inside")
    ]
    assert zone(boundary="hard", inside=Traffic(3)) == []
    assert zone(crossing=Traffic(2, 0, 2)) == [
        ("tighten-zone-boundary", "off -> soft: 2 crossings, 2 failures, no success")
    ]
    assert zone(crossing=Traffic(2, 1, 2), inside=Traffic(9)) == []
    assert zone(boundary="soft", crossing=Traffic(5, 5, 0, 3)) == [
        ("tighten-zone-boundary", "soft -> hard: 3 soft violations, 3 are enough")
    ]
    assert zone(inside=Traffic(2, 0, 1), crossing=Traffic(1)) == [
        ("tighten-zone-intra", "off -> soft: 2 moves inside, 1 failures, no success")
    ]


def guarded(graph: Adaptogen) -> None:
    """An edge whose guard was violated three times while nothing could harden."""
    graph.link("a", "b", id="e", guard="vars.ok == true").unwrap()
    graph.set_tunable("escalationThreshold", 0).unwrap()
    walk(graph, "a", "e", times=3)
    graph.set_tunable("escalationThreshold", 3).unwrap()


def test_a_guard_that_is_violated_too_often_hardens_as_if_learned(sound: Make) -> None:
    graph = sound("a", "b")
    guarded(graph)
    assert proposals(graph) == [("promote-soft-to-hard", "e")]
    (applied,) = graph.self_iterate().unwrap().applied
    assert applied.detail == "3 soft violations, 3 are enough"
    edge = the_edge(graph, "e")
    assert (edge.enforcement, edge.learned_enforcement) == (None, "hard")
    assert proposals(graph) == []
    graph.set_cursor(["a"]).unwrap()
    assert not graph.transition("b").unwrap().applied


@pytest.mark.parametrize("mode", ["off", "hard", "soft"])
def test_v119_d28_an_author_s_mode_is_not_argued_with(sound: Make, mode: Any) -> None:
    graph = sound("a", "b")
    guarded(graph)
    graph.set_enforcement("e", mode).unwrap()
    assert proposals(graph) == []
    assert graph.self_iterate().unwrap().applied == ()
    assert the_edge(graph, "e").enforcement == mode


def test_a_locked_guard_is_not_argued_with(sound: Make) -> None:
    graph = sound("a", "b")
    guarded(graph)
    graph.lock_policy("edge", "e", reason="audited").unwrap()
    assert proposals(graph) == []


def test_zones_are_mined(sound: Make) -> None:
    graph = sound("a", "b", "out")
    graph.link("a", "b", id="ab").unwrap()
    graph.link("b", "a", id="ba").unwrap()
    graph.link("b", "out", id="exit").unwrap()
    graph.define_zone("z", ["a", "b"], intra="off", boundary="off").unwrap()
    walk(graph, "a", "ab", 1, times=2)
    walk(graph, "b", "ba", 1)
    (found,) = graph.optimize()
    assert (found.kind, found.target, found.detail) == (
        "tighten-zone-boundary", "z", "off -> soft: never crossed in 3 moves inside",
    )  # fmt: skip
    walk(graph, "b", "exit", 1)
    assert proposals(graph) == []
    assert graph.self_iterate().unwrap().applied == ()
    graph.unlink("exit").unwrap()
    graph.lock_policy("zone", "z", reason="audited").unwrap()
    assert proposals(graph) == []


def test_a_copy_and_a_merged_node_stand_in_the_zones_of_the_original(sound: Make) -> None:
    graph = sound("a", "b", "c", "out")
    graph.link("a", "out", id="exit").unwrap()
    graph.define_zone("z", ["a", "b"], intra="off").unwrap()
    graph.split_state("a", "a2", ["exit"]).unwrap()
    assert graph.zones_of("a2") == ["z"]
    graph.set_cursor(["a2"]).unwrap()
    assert not graph.transition("out").unwrap().applied, "splitting leads nowhere out of a zone"
    graph.merge_states("c", "a2").unwrap()
    assert graph.zones_of("c") == ["z"]
    assert not graph.transition("out").unwrap().applied


def test_modes_and_locks_move_along_with_an_edge(sound: Make) -> None:
    graph = sound("a", "b", "c")
    guarded(graph)
    graph.self_iterate().unwrap()
    graph.lock_policy("edge", "e", reason="audited").unwrap()
    graph.split_state("a", "a2", ["e"]).unwrap()
    graph.merge_states("c", "a2").unwrap()
    edge = the_edge(graph, "e")
    assert (edge.src, edge.guard, edge.learned_enforcement) == ("c", "vars.ok == true", "hard")
    assert [(lock.scope, lock.id, lock.reason) for lock in graph.locks()] == [("edge", "e", "audited")]


def test_whom_a_lock_binds_cannot_lift_it_by_an_edit(sound: Make) -> None:
    graph = sound("a", "b", "c", "out")
    graph.link("a", "b", id="e").unwrap()
    graph.define_zone("z", ["a"]).unwrap()
    graph.set_cursor(["c"]).unwrap()
    graph.lock_policy("edge", "e", reason="audited").unwrap()
    graph.lock_policy("cursor", "developer", reason="audited").unwrap()
    graph.lock_policy("zone", "z", reason="audited").unwrap()
    model = graph.as_actor("robot", trust="model")
    head = seq(graph)
    assert code(model.split_state("a", "a2", ["e"])) == "Locked"
    assert code(model.merge_states("out", "b")) == "Locked"
    assert code(model.merge_states("out", "c")) == "Locked", "the cursor of somebody else"
    assert code(model.split_state("a", "a2", [])) == "Locked", "a zone gets no other member"
    assert seq(graph) == head
