"""Each change of the memory is events of the graph's log, and lives as everything else does.

Every verb is found in the manifest: one that is new has no events here and fails.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, Ok, to_json
from graphstate._canonical import encode
from tests.graphstate.activation.calls import VERBS_OF_MEMORY, ordinary, sown
from tests.graphstate.activation.conftest import D, H, Hands
from tests.graphstate.bundles import bundle_of, live
from tests.graphstate.conftest import Make

#: The events that an ordinary call of each verb is.
EVENTS: Mapping[str, Sequence[str]] = {
    "remember": ["NodeUpserted"],
    "reinforce": ["memory.reinforced"],
    "reinforce_all": ["memory.reinforced"],
    "suppress": ["memory.suppressed"],
    "release": ["memory.suppressed"],
    "bump_attention": ["memory.reinforced"],
    "register_memory_class": ["ConfigSet"],
    "supersede": ["memory.superseded"],
    "unsupersede": ["EdgeRemoved"],
    "consolidate": ["NodeUpserted", "memory.consolidated"],
    "absorb": ["memory.reinforced"] * 3,
    "feedback": ["memory.feedback"],
    "set_weights": ["memory.weights_set"],
    "reembed": ["memory.embedded"],
    "export_deltas": [],
    "import_deltas": ["memory.reinforced"],
}

CHANGES = [verb for verb in VERBS_OF_MEMORY if getattr(Adaptogen, verb).__dict__["verb"] == "changes"]
READS = [verb for verb in VERBS_OF_MEMORY if verb not in CHANGES]

LATER = 10 * D


class Scene:
    """A graph that is ready for the ordinary call of a verb, on a clock that stands."""

    def __init__(self, make: Make, verb: str, **options: Any) -> None:
        self.clock = Hands()
        self.clock.ms = 1_000_000
        self.verb = verb
        self.graph = sown(make, now=self.clock, **options)
        self.graph.set_tunable("snapshotInterval", 0).unwrap()
        if verb == "reembed":
            self.graph.remember("bare", embed=False).unwrap()
        self.arguments = ordinary(self.graph, verb)
        if verb == "import_deltas":
            self.arguments["deltas"] = _foreign(self.arguments["deltas"])
        self.clock.ms += H

    def do(self, graph: Adaptogen | None = None) -> Any:
        done = getattr(graph or self.graph, self.verb)(**self.arguments)
        assert not isinstance(done, Ok) or not done.repeated
        return done.unwrap() if hasattr(done, "unwrap") else done

    def types(self) -> list[str]:
        return [row.type for row in self.graph.store.read("graph")]

    def present(self, graph: Adaptogen | None = None) -> Any:
        return present(graph or self.graph)


def _foreign(deltas: dict[str, Any]) -> dict[str, Any]:
    """Let what this graph did look like what another one did."""
    ops = [
        {**op, "parts": [{**part, "id": f"{part['id']}-elsewhere"} for part in op["parts"]]}
        for op in deltas["ops"]
    ]
    return {**deltas, "ops": ops}


def present(graph: Adaptogen) -> Any:
    """Everything that can be read of the memory, as of one moment."""
    ids = sorted(graph.store.projection.node_ids())
    return to_json(
        [
            [graph.activation(node, at=LATER) for node in ids],
            [graph.expand(node) and [source.id for source in graph.expand(node)] for node in ids],
            [(node.memory, node.embedding) for node in map(graph.get_node, ids) if node is not None],
            graph.top_activated(at=LATER, include_superseded=True),
            graph.weights(scope="me"), graph.weights(), graph.get_tunables()["memoryClasses"],
        ]
    )  # fmt: skip


def test_the_events_of_every_verb_that_changes_the_memory_are_known() -> None:
    assert set(EVENTS) == set(CHANGES)


@pytest.mark.parametrize("verb", READS)
def test_a_read_appends_nothing_and_changes_no_row(make: Make, verb: str) -> None:
    scene = Scene(make, verb)
    before = (scene.graph.head(), live(scene.graph))
    first = scene.do()
    assert (scene.graph.head(), live(scene.graph)) == before
    encode(to_json(first))


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_is_its_events_and_no_more(make: Make, verb: str) -> None:
    scene = Scene(make, verb)
    before, seen = len(scene.types()), scene.present()
    scene.do()
    added = scene.types()[before:]
    assert added == list(EVENTS[verb])
    assert (scene.present() != seen) == bool(added)
    for row in list(scene.graph.store.read("graph"))[before:]:
        if row.type.startswith("memory.") and row.type != "memory.embedded":
            assert len(row.body) <= 300, "an event holds what was done, not what came of it"


@pytest.mark.parametrize("verb", CHANGES)
def test_a_replay_a_snapshot_and_a_compaction_give_what_a_change_left(make: Make, verb: str) -> None:
    scene = Scene(make, verb)
    graph = scene.graph
    scene.do()
    left = (live(graph), scene.present())
    assert graph.verify_integrity(deep=True).ok
    for step in (
        graph.rebuild,
        graph.snapshot,
        graph.rebuild,
        lambda: graph.compact(retain=0),
        graph.rebuild,
    ):
        step().unwrap()
        assert (live(graph), scene.present()) == left
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("verb", CHANGES)
def test_a_rollback_takes_a_change_back(make: Make, verb: str) -> None:
    scene = Scene(make, verb)
    graph = scene.graph
    graph.checkpoint("before").unwrap()
    before = (live(graph), scene.present())
    scene.do()
    graph.rollback("before").unwrap()
    assert (live(graph), scene.present()) == before
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("verb", CHANGES)
def test_a_unit_that_fails_keeps_nothing_of_a_change(make: Make, verb: str) -> None:
    scene = Scene(make, verb)
    before = (scene.graph.head(), live(scene.graph), scene.present())
    with pytest.raises(RuntimeError), scene.graph.unit():
        scene.do()
        raise RuntimeError
    assert (scene.graph.head(), live(scene.graph), scene.present()) == before


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_in_a_branch_comes_back_with_the_merge(make: Make, verb: str) -> None:
    scene, direct = Scene(make, verb), Scene(make, verb)
    graph, before = scene.graph, scene.present()
    branch = graph.branch(":memory:").unwrap()
    branch.embedder = graph.embedder
    scene.do(branch)
    assert scene.present() == before, "a branch is apart"
    graph.merge(branch).unwrap()
    branch.discard()
    direct.do()
    assert scene.present() == direct.present()
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("compacted", [False, True], ids=["all events", "a base"])
@pytest.mark.parametrize("verb", CHANGES)
def test_a_bundle_carries_a_change(make: Make, verb: str, compacted: bool) -> None:
    scene = Scene(make, verb)
    graph = scene.graph
    scene.do()
    if compacted:
        graph.compact(retain=0).unwrap()
    with Adaptogen.import_state(":memory:", io.BytesIO(bundle_of(graph)), now=scene.clock) as copy:
        assert live(copy) == live(graph)
        assert scene.present(copy) == scene.present()
        assert copy.verify_integrity(deep=True).ok


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_is_in_the_file_and_told_to_whoever_subscribed(
    make: Make, tmp_path: Path, verb: str
) -> None:
    path = tmp_path / "graph.db"
    scene, told = Scene(make, verb, path=path), list[str]()
    with scene.graph.subscribe(lambda entry: told.append(entry.type)):
        scene.do()
    left = scene.present()
    scene.graph.close()
    with Adaptogen.open(path, seed=False, now=scene.clock, read_only=True) as again:
        assert scene.present(again) == left
    assert told == list(EVENTS[verb])
