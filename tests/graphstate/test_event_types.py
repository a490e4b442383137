"""The table of events says what is written: every type, every key."""

from __future__ import annotations

import ast

import pytest

from graphstate.activation.embedding import HashingEmbedder
from graphstate.event_types import EVENT_TYPES
from graphstate.rendering import summary
from tests.architecture.sources import sources
from tests.graphstate.bundles import bundle_of, taken_in
from tests.graphstate.conftest import Make

#: Types that are not drafted by a verb, but taken over from elsewhere under another name.
ADOPTED = {"StateRestored", "TransitionMerged"}


def written() -> set[str]:
    """Every type that some verb makes a draft of, or an import takes over."""
    return ADOPTED | {
        node.args[0].value
        for module in sources()
        if module.name.startswith("graphstate.")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Draft"
        and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }  # fmt: skip


def test_every_type_that_is_written_is_in_the_table_and_the_other_way_round() -> None:
    assert written() == set(EVENT_TYPES)


def test_every_type_that_is_folded_is_in_the_table(make: Make) -> None:
    assert set(make().store.projection.folds) <= set(EVENT_TYPES)


def test_payloads_have_the_keys_of_the_table(make: Make) -> None:
    graph = make("a", "b", "c")
    edge = graph.link("a", "b").unwrap()
    graph.link("a", "c", id="ac", guard="false", enforcement="soft").unwrap()
    graph.link("b", "a", id="ba", guard="false", enforcement="hard").unwrap()
    graph.link("c", "a", id="ca").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.transition("c").unwrap()
    graph.transition("a").unwrap()
    graph.step("b", reward=1).unwrap()
    graph.transition("a").unwrap()
    graph.define_zone("z", ["a"]).unwrap()
    graph.add_to_zone("z", "b").unwrap()
    graph.delete_zone("z").unwrap()
    graph.set_enforcement(edge.id, "hard", reason="why").unwrap()
    graph.lock_policy("edge", edge.id, reason="why").unwrap()
    graph.unlock_policy("edge", edge.id, reason="why").unwrap()
    graph.reweight().unwrap()
    graph.migrate("state", lambda payload: {"v": 1}, to_version=2).unwrap()
    graph.export_deltas().unwrap()
    graph.embedder = HashingEmbedder(dimensions=4)
    graph.reembed().unwrap()
    graph.remember("a", label="words").unwrap()
    graph.unlink("ba").unwrap()
    graph.archive("c").unwrap()
    graph.set_tunable("ucbC", 1).unwrap()
    graph.remember("a", memory={"source": "somebody"}).unwrap()
    graph.reinforce("a", 0.5, reason="why", context="here", outcome="useful").unwrap()
    graph.suppress("a", 0.5, reason="why", context="here").unwrap()
    graph.set_weights({"usage": 2}).unwrap()
    graph.feedback(graph.pulse("words").retrieval_id, "a", True).unwrap()
    graph.supersede("b", "a", reason="why").unwrap()
    graph.consolidate("c", ["b"], reason="why").unwrap()
    graph.checkpoint("cp").unwrap()
    branch = graph.branch(":memory:").unwrap()
    branch.set_cursor(["a"]).unwrap()
    branch.transition("b").unwrap()
    graph.merge(branch).unwrap()
    entries = [*branch.history(limit=1_000), *graph.history(limit=1_000)]
    branch.discard()
    graph.compact(retain=0).unwrap()
    with taken_in(bundle_of(graph)) as copy:
        entries += copy.history(limit=1_000)
    seen = set()
    for entry in [*entries, *graph.history(limit=1_000)]:
        keys = EVENT_TYPES[entry.type].payload
        needed = {key for key in keys if not key.endswith("?")}
        assert isinstance(entry.payload, dict)
        assert needed <= set(entry.payload) <= {key.removesuffix("?") for key in keys}, entry
        assert len(entry.summary.splitlines()) == 1
        seen.add(entry.type)
    assert seen == set(EVENT_TYPES)


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_a_summary_needs_no_key_and_no_type_of_value(name: str) -> None:
    assert summary(name, {}).isprintable()
    strange = {key.removesuffix("?"): "\x1b[2J\n\u202e" for key in EVENT_TYPES[name].payload}
    assert summary(name, strange).isprintable()
    assert summary(name, {key: [1, {"a": None}] for key in strange}).isprintable()


@pytest.mark.parametrize(
    ("name", "body", "line"),
    [
        ("TransitionTaken", {"from": None, "to": "b", "edgeId": "e"}, "- -> b via e"),
        (
            "BlockedAttempt",
            {"from": "a", "to": "b", "edgeId": "e", "reason": "guard failed"},
            "blocked a -> b: guard failed",
        ),
        ("SoftViolation", {"edgeId": "e", "reason": "x"}, "soft violation on e: x"),
        ("RewardApplied", {"value": 0.5, "scopes": [1, 2]}, "reward 0.5 over 2 scopes"),
        ("NodeUpserted", {"id": "a", "kind": "task"}, "node a (task)"),
        (
            "EdgeUpserted",
            {"id": "e", "src": "a", "dst": "b", "kind": "reference"},
            "edge e: a -> b [reference]",
        ),
        ("EdgeRemoved", {"id": "e"}, "edge removed e"),
        ("ZoneDefined", {"name": "z", "members": ["a", "b"]}, "zone z (2 members)"),
        ("EnforcementChanged", {"scope": "edge", "id": "e", "mode": "hard"}, "enforcement edge e -> hard"),
        ("CheckpointCreated", {"name": "cp", "seq": 3}, "checkpoint cp @ 3"),
        ("memory.reinforced", {"id": "a", "amount": 0.5}, "a reinforced by 0.5"),
        ("memory.superseded", {"new": "b", "old": "a"}, "b takes the place of a"),
        ("memory.consolidated", {"id": "s", "sources": ["a", "b"]}, "s stands for 2 nodes"),
        ("CursorMoved", {"set": []}, "CursorMoved"),
        ("Elsewhere", {}, "Elsewhere"),
    ],
)
def test_summaries(name: str, body: dict[str, object], line: str) -> None:
    assert summary(name, body) == line
