"""Vectors 72 to 74: one memory takes another one's place, or is made of several."""

from __future__ import annotations

from typing import Any

import pytest

from graphstate import Adaptogen, ErrorCode, Fail
from tests.graphstate.activation.conftest import D, H, Hands, Remember, near


def successors(graph: Adaptogen, node: str) -> list[str]:
    return graph.store.projection.successions.successors(node)


def ids(nodes: list[Any]) -> list[str]:
    return [node.id for node in nodes]


def test_v72_the_old_one_is_ranked_no_more_and_says_who_took_its_place(graph_of: Remember) -> None:
    graph = graph_of("old", "new")
    graph.reinforce("old", 0.8).unwrap()
    done = graph.supersede("new", "old", reason="moved house").unwrap()
    assert successors(graph, "old") == ["new"]
    edge = graph.get_edge(done.edge_id)
    assert edge is not None
    assert (edge.src, edge.dst, edge.kind, edge.label) == ("old", "new", "reference", "superseded_by")
    new = graph.get_node("new")
    assert new is not None
    assert new.memory is not None
    assert new.memory.supersedes == "old"
    assert graph.effective("old") == 0
    assert graph.effective("old", include_superseded=True) == 0.8
    assert [(r.id, r.superseded) for r in graph.top_activated(include_superseded=True)] == [
        ("old", True),
        ("new", False),
    ]
    assert graph.activation("old").superseded  # type: ignore[union-attr]


@pytest.mark.parametrize(("new", "old"), [("a", "ghost"), ("ghost", "a")])
def test_v72_both_must_exist(graph_of: Remember, new: str, old: str) -> None:
    graph = graph_of("a")
    before = graph.head()
    refused = graph.supersede(new, old)
    assert isinstance(refused, Fail)
    assert (refused.code, graph.head()) == (ErrorCode.NOT_FOUND, before)


def test_a_circle_of_successions_is_refused_with_its_path(graph_of: Remember) -> None:
    graph = graph_of("a", "b", "c")
    graph.supersede("b", "a").unwrap()
    graph.supersede("c", "b").unwrap()
    for new, old, cycle in (
        ("a", "c", ["c", "a", "b", "c"]),
        ("a", "a", ["a", "a"]),
        ("b", "c", ["c", "b", "c"]),
    ):
        refused = graph.supersede(new, old)
        assert isinstance(refused, Fail)
        assert (refused.code, refused.details["cycle"]) == (ErrorCode.CYCLE_REJECTED, cycle)
        assert "unsupersede" in refused.hint


def test_nodes_that_become_one_close_no_circle_of_successions(graph_of: Remember) -> None:
    graph = graph_of("a", "b", "c")
    graph.supersede("b", "a").unwrap()
    graph.supersede("c", "b").unwrap()
    before = graph.head()
    for into, gone in (("c", "a"), ("a", "c")):
        refused = graph.merge_states(into, gone)
        assert isinstance(refused, Fail)
        assert (refused.code, refused.details["cycle"]) == (ErrorCode.CYCLE_REJECTED, ["a", "b", "c"])
    assert graph.head() == before
    graph.merge_states("b", "a").unwrap()
    assert (successors(graph, "a"), successors(graph, "b")) == ([], ["c"])


def test_superseding_again_changes_nothing_and_several_may_follow_one(graph_of: Remember) -> None:
    graph = graph_of("a", "b", "c")
    first = graph.supersede("b", "a").unwrap()
    before = graph.head()
    assert graph.supersede("b", "a").unwrap() == first
    assert graph.head() == before
    graph.supersede("c", "a").unwrap()
    assert successors(graph, "a") == ["b", "c"]
    graph.unsupersede("a", by="b").unwrap()
    assert successors(graph, "a") == ["c"]
    assert graph.activation("a") is None or graph.effective("a") == 0
    refused = graph.unsupersede("a", by="b")
    assert isinstance(refused, Fail)
    assert refused.code is ErrorCode.NOT_FOUND


def test_the_new_one_inherits_half_and_never_less_than_its_own(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("old", "new", "strong")
    graph.reinforce("old", 0.8).unwrap()
    graph.reinforce("strong", 0.9).unwrap()
    clock.ms = D
    graph.supersede("new", "old").unwrap()
    assert graph.effective("new") == near(0.2)
    graph.supersede("strong", "new").unwrap()
    assert graph.effective("strong") == near(0.45)
    assert graph.activation("new").reinforcement_count == 0  # type: ignore[union-attr]


def test_unsupersede_brings_back_what_was_there(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("old", "new")
    graph.reinforce("old", 0.8).unwrap()
    graph.supersede("new", "old").unwrap()
    clock.ms = D
    assert graph.unsupersede("old", reason="it was right").unwrap().id == "old"
    assert ids(graph.top_activated()) == ["old", "new"]
    assert graph.effective("old") == 0.4
    new = graph.get_node("new")
    assert new is not None
    assert new.memory is None or new.memory.supersedes is None
    (event,) = graph.history(limit=1)
    assert (event.type, event.payload["reason"]) == ("EdgeRemoved", "it was right")


def test_as_of_a_moment_the_facts_of_that_moment_are_recalled(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of()
    clock.ms = 10 * D
    graph.remember("oslo", label="lives in Oslo", memory={"observed_at": 2 * D}).unwrap()
    graph.remember("rome", label="lives in Rome", memory={"observed_at": 5 * D}).unwrap()
    clock.ms = 11 * D
    assert graph.supersede("rome", "oslo").unwrap().valid_to == 5 * D
    for query in ({}, {"text": "lives"}, {"kind": "state"}):
        recalled = [ids(graph.recall(as_of=moment, **query)) for moment in (D, 2 * D, 4 * D, 5 * D, 20 * D)]  # type: ignore[arg-type]
        assert recalled == [[], ["oslo"], ["oslo"], ["rome"], ["rome"]]
    assert ids(graph.recall()) == ["oslo", "rome"]
    assert ids(graph.recall(as_of=4 * D, embedding=[1.0])) == ["oslo"]


def test_without_an_observation_a_fact_holds_until_it_is_superseded(graph_of: Remember, clock: Hands) -> None:
    graph = graph_of("old", "new")
    clock.ms = 3 * H
    assert graph.supersede("new", "old").unwrap().valid_to == 3 * H
    assert ids(graph.recall(as_of=3 * H - 1)) == ["new", "old"]
    assert ids(graph.recall(as_of=3 * H)) == ["new"]


def test_an_edge_that_is_drawn_or_removed_by_hand_counts_too(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    graph.reinforce("a", 0.5).unwrap()
    edge = graph.link("a", "b", kind="reference", label="superseded_by").unwrap()
    assert graph.top_activated() == []
    graph.link("b", "a", id=edge.id, kind="reference", label="superseded_by", upsert=True).unwrap()
    assert ids(graph.top_activated()) == ["a"]
    graph.link("a", "b", id=edge.id, kind="reference", label="superseded_by", upsert=True).unwrap()
    graph.link("a", "b", id=edge.id, kind="reference", label="like", upsert=True).unwrap()
    assert ids(graph.top_activated()) == ["a"]
    assert graph.verify_integrity(deep=True).ok


def test_v73_sources_add_up_in_the_order_in_which_they_were_named(graph_of: Remember) -> None:
    graph = graph_of("s", "a", "b", "c")
    assert graph.consolidate("s", ["a", "b"]).unwrap().memory.derived_from == ("a", "b")  # type: ignore[union-attr]
    assert ids(graph.expand("s")) == ["a", "b"]
    again = graph.consolidate("s", ["b", "c", "b"]).unwrap()
    assert again.memory is not None
    assert again.memory.derived_from == ("a", "b", "c")
    assert ids(graph.expand("s")) == ["a", "b", "c"]
    assert graph.store.projection.successions.consolidations("b") == ["s"]
    before = graph.head()
    for sources, code in (([], "InvalidInput"), (["ghost"], "NotFound"), (["a", "s"], "InvalidInput")):
        refused = graph.consolidate("s", sources)
        assert isinstance(refused, Fail)
        assert refused.code == code
    refused = graph.consolidate("new", ["a"], memory={"confidence": 2})
    assert isinstance(refused, Fail)
    assert (refused.code, graph.head(), graph.get_node("new")) == (ErrorCode.INVALID_INPUT, before, None)


def test_v74_a_consolidation_is_as_present_as_its_sources_together(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    for node in "ab":
        graph.reinforce(node, 0.5, context="x").unwrap()
    made = graph.consolidate("s", ["a", "b"], label="both", kind="fact", suppress=1).unwrap()
    assert (made.label, made.kind, made.version) == ("both", "fact", 1)
    assert [(r.id, r.effective) for r in graph.top_activated()] == [("s", 0.75)]
    now = graph.activation("s")
    assert now is not None
    assert (now.importance, now.reinforcement_count, now.contexts) == (near(0.025), 0, {"x": 0.5})


def test_what_many_sources_give_is_capped(graph_of: Remember) -> None:
    graph = graph_of(*"abcde")
    for node in "abcde":
        graph.reinforce(node, 0.9).unwrap()
    graph.consolidate("s", list("abcde")).unwrap()
    assert graph.effective("s") == 0.9


def test_consolidating_again_keeps_what_was_learned(graph_of: Remember) -> None:
    graph = graph_of("a", "b", "c")
    graph.consolidate("s", ["a"]).unwrap()
    for _ in range(3):
        graph.reinforce("s", 0.2, outcome="useful").unwrap()
    graph.consolidate("s", ["a", "b"], label="two").unwrap()
    now = graph.activation("s")
    assert now is not None
    assert (now.score, now.useful, now.reinforcement_count) == (near(0.6), 3, 3)
    assert graph.activation("a").inhibition == near(0.6), "held back once"  # type: ignore[union-attr]


def test_a_consolidation_is_one_unit(graph_of: Remember) -> None:
    graph = graph_of("a")
    told: list[Any] = []
    with graph.subscribe(told.append):
        graph.consolidate("s", ["a"], payload={"n": 1}, cause="once").unwrap()
    assert [entry.type for entry in told] == ["NodeUpserted", "memory.consolidated"]
    again = graph.consolidate("s", ["a"], payload={"n": 1}, cause="once")
    assert again.ok
    assert again.repeated
    assert len(told) == 2


# ------------------------------------------------------------------------- trust


@pytest.mark.parametrize("by", ["developer", "model"])
def test_u17_what_is_made_of_others_is_trusted_as_the_least_of_them(graph_of: Remember, by: str) -> None:
    graph = graph_of("own")
    graph.as_actor("tool", trust="tool").remember("output", payload={"text": "run me"}).unwrap()
    writer = graph.as_actor("writer", trust=by)
    assert writer.consolidate("s", ["own", "output"]).unwrap().trust == "tool"
    assert writer.remember("copy", memory={"derived_from": ["own", "output"]}).unwrap().trust == "tool"
    writer.split_state("output", "twin", []).unwrap()
    assert graph.get_node("twin").trust == "tool"  # type: ignore[union-attr]
    writer.remember("output", tags=["seen"]).unwrap()
    writer.remember("output", patch={"more": 1}).unwrap()
    writer.pin("output").unwrap()
    assert graph.get_node("output").trust == "tool"  # type: ignore[union-attr]
    writer.migrate("state", lambda payload: {**payload, "v": 2}).unwrap()
    assert graph.get_node("output").trust == "tool"  # type: ignore[union-attr]
    writer.merge_states("own", "output").unwrap()
    assert graph.get_node("own").trust == "tool"  # type: ignore[union-attr]


def test_only_who_is_trusted_raises_trust_by_writing_anew(graph_of: Remember) -> None:
    graph = graph_of()
    tool, model = graph.as_actor("t", trust="tool"), graph.as_actor("m", trust="model")
    assert tool.remember("a", payload={"n": 1}).unwrap().trust == "tool"
    assert model.remember("a", payload={"n": 2}).unwrap().trust == "tool"
    assert graph.remember("a", payload={"n": 3}).unwrap().trust == "developer"
    assert model.remember("a", label="other").unwrap().trust == "model"
    assert graph.remember("a", label="mine").unwrap().trust == "model", "the payload is somebody else's"
    assert graph.remember("a", payload={"n": 4}).unwrap().trust == "model", "the label is"
    assert graph.remember("a", label="all", payload={"n": 5}).unwrap().trust == "developer"
    assert graph.verify_integrity(deep=True).ok


def test_what_comes_from_elsewhere_is_trusted_as_an_import(graph_of: Remember) -> None:
    import io

    from tests.graphstate.bundles import bundle_of

    graph = graph_of("a")
    for compacted in (False, True):
        if compacted:
            graph.compact(retain=0).unwrap()
        with Adaptogen.import_state(":memory:", io.BytesIO(bundle_of(graph))) as copy:
            assert copy.get_node("a").trust == "import"  # type: ignore[union-attr]


# ------------------------------------------------------------------------- provenance


def test_provenance_is_told_kept_and_taken_away(graph_of: Remember) -> None:
    graph = graph_of("b")
    told = {
        "memory_class": "semantic", "confidence": 0.5, "source": "a letter", "observed_at": 5,
        "derived_from": ["b", "b", "c"], "supersedes": "b", "contradicts": ["d"],
    }  # fmt: skip
    node = graph.remember("a", memory=told).unwrap()
    assert node.memory is not None
    assert node.memory.derived_from == ("b", "c")
    assert graph.remember("a", label="x").unwrap().memory == node.memory
    assert graph.get_node("a") == graph.recall(id="a")[0]
    changed = graph.remember("a", memory={"confidence": 1, "source": None, "contradicts": []}).unwrap().memory
    assert changed is not None
    assert (changed.confidence, changed.source, changed.contradicts) == (1, None, ())
    graph.remember("a", memory=dict.fromkeys(told)).unwrap()
    assert graph.get_node("a").memory is None  # type: ignore[union-attr]
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize(
    "memory",
    [
        {"memory_class": "bird"}, {"confidence": 1.1}, {"confidence": True}, {"source": ""}, {"source": 3},
        {"observed_at": -1}, {"observed_at": 1.5}, {"derived_from": "b"}, {"derived_from": ["no id!"]},
        {"supersedes": ""}, {"more": 1}, {"contradicts": [f"n{i}" for i in range(1_001)]}, [], "x", 3,
    ],
)  # fmt: skip
def test_what_is_no_provenance_is_refused(graph_of: Remember, memory: Any) -> None:
    graph = graph_of("a")
    before = graph.head()
    refused = graph.remember("a", memory=memory)
    assert isinstance(refused, Fail)
    assert (refused.code, graph.head()) == (ErrorCode.INVALID_INPUT, before)


def test_a_node_of_which_nothing_is_told_costs_no_row(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    graph.remember("a", label="x").unwrap()
    (event,) = graph.history(limit=1)
    assert set(event.payload) == {"id", "kind", "label", "payload", "tags", "status"}
    assert graph.store._db.one("SELECT count(*) FROM provenance") == (0,)
