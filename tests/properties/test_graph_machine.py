"""Every verb of the graph in any order, against a model in dictionaries, through two handles on one file.

To the verbs of every day come those that reshape, learn, lock, mend and carry a graph over.
`RELIABILITY=full` runs many more and longer programs.
"""

from __future__ import annotations

import copy
import io
import math
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from graphstate import Adaptogen, ErrorCode, Fail, Result
from graphstate.manifest import VERBS
from tests.graphstate.bundles import bundle_of, live, taken_in
from tests.properties.graph_machine import EDGES, HANDLES, MODES, NODES, PAYLOADS, ZONES
from tests.properties.graph_model import STAMPS, Failed
from tests.properties.memory_machine import MemoryMachine
from tests.properties.memory_model import MemoryModel

FULL = os.environ.get("RELIABILITY") == "full"

#: Nodes that a split makes; they are nodes like others from then on.
COPIES = st.sampled_from(["e", "f", "g"])
ANY_NODE = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
LOCKED = st.sampled_from([("edge", "e1"), ("edge", "e2"), ("edge", "e5"), ("zone", "z"), ("zone", "y")])


class EveryVerb(MemoryMachine):
    """The verbs that are rare in a day and dangerous in a life."""

    # ------------------------------------------------------------------ composing and reshaping

    @rule(
        handle=HANDLES, node=ANY_NODE, other=NODES, data=st.data(), upsert=st.booleans(),
        heads=st.none() | st.lists(NODES, max_size=2),
    )  # fmt: skip
    def plan(
        self, handle: int, node: str, other: str, data: st.DataObject, upsert: bool, heads: list[str] | None
    ) -> None:  # fmt: skip
        free = sorted({f"e{number}" for number in range(1, 7)} - set(self.model.edges))
        edge = data.draw(EDGES)
        dependency = data.draw(st.sampled_from(3 * free + [edge]))
        spec: dict[str, Any] = {
            "nodes": [node],
            "transitions": [[node, other, {"id": edge, "upsert": upsert}]],
            "deps": [{"node": other, "prereq": node, "id": dependency}],
        }
        if heads is not None:
            spec["cursor"] = heads
        with self.expecting(lambda: self.graphs[handle].plan(spec)) as value:
            model = copy.deepcopy(self.model)
            model.declare(node, handle)
            model.put_edge(node, other, "transition", edge, upsert=upsert)
            model.put_edge(node, other, "dependency", dependency)
            if heads is not None:
                model.stand("developer", heads)
            self.model = model
            planned = value()
            assert (planned.nodes, planned.transitions, planned.deps) == ((node,), (edge,), (dependency,))

    @rule(handle=HANDLES, node=ANY_NODE, new=COPIES, edges=st.lists(EDGES, max_size=3))
    def split_state(self, handle: int, node: str, new: str, edges: list[str]) -> None:
        with self.expecting(lambda: self.graphs[handle].split_state(node, new, edges)) as value:
            moved = self.model.split(node, new, edges)
            assert value().moved == tuple(moved)

    @precondition(lambda self: any(name.startswith("G") for name in self.model.edges))
    @rule(
        handle=HANDLES, data=st.data(), new=COPIES, other=NODES,
        way=st.sampled_from(["split", "merge", "merge a chain"]),
    )  # fmt: skip
    def reshape_a_tie(self, handle: int, data: st.DataObject, new: str, other: str, way: str) -> None:
        """Supersessions and consolidations move with their nodes, as all edges do."""
        ties = sorted(name for name in self.model.edges if name.startswith("G"))
        edge = self.model.edges[data.draw(st.sampled_from(ties))]
        if way == "split":
            self.split_state(handle, edge["src"], new, ties)
            return
        if way == "merge a chain":  # which closes a circle, if that was a supersession
            self.supersede(handle, other, edge["dst"])
        self.merge_states(handle, other, edge["src"])

    @rule(handle=HANDLES, into=ANY_NODE, gone=ANY_NODE)
    def merge_states(self, handle: int, into: str, gone: str) -> None:
        with self.expecting(lambda: self.graphs[handle].merge_states(into, gone)) as value:
            moved, dropped = self.model.merge(into, gone)
            assert (value().moved, value().dropped) == (tuple(moved), tuple(dropped))

    @rule(
        handle=HANDLES,
        kind=st.sampled_from(["state", "fact", "task"]),
        fails=st.booleans(),
        x=st.integers(0, 2),
    )
    def migrate(self, handle: int, kind: str, fails: bool, x: int) -> None:
        nodes = {name: node for name, node in self.model.nodes.items() if node["kind"] == kind}
        last = max(nodes, default="")

        def apply(payload: Any) -> Any:
            seen.append(payload)
            if fails and len(seen) == len(nodes):
                raise KeyError(last)
            return {**payload, "x": x}

        seen: list[Any] = []
        with self.expecting(lambda: self.graphs[handle].migrate(kind, apply)) as value:
            if fails and nodes:
                raise Failed(ErrorCode.MIGRATION_ERROR)
            changed = [name for name, node in nodes.items() if node["payload"].get("x", "none") != x]
            for name in changed:
                self.model.change_payload(name, {**nodes[name]["payload"], "x": x})
                self.model.nodes[name]["version"] += 1
            assert (value().migrated, value().changed) == (len(nodes), len(changed))

    # ------------------------------------------------------------------ learning and collecting

    @rule(handle=HANDLES, id=ANY_NODE, pinned=st.booleans())
    def pin(self, handle: int, id: str, pinned: bool) -> None:
        graph = self.graphs[handle]
        with self.expecting(lambda: graph.pin(id) if pinned else graph.unpin(id)) as value:
            if id not in self.model.nodes:
                raise Failed(ErrorCode.NOT_FOUND)
            node = self.model.nodes[id]
            if ("pinned" in node["tags"]) != pinned:
                others = [tag for tag in node["tags"] if tag != "pinned"]
                node["tags"] = [*others, "pinned"] if pinned else others
                node["version"] += 1
            assert list(value().tags) == node["tags"]

    @rule(handle=HANDLES)
    def reweight(self, handle: int) -> None:
        graph = self.graphs[handle]
        graph.reweight().unwrap()
        self.weights_are_learned(graph)
        head = graph.head()
        assert graph.reweight().unwrap().reweighted == 0
        assert graph.head() == head

    def weights_are_learned(self, graph: Adaptogen) -> None:
        for name, expected in self.model.edges.items():
            edge, stat = graph.get_edge(name), self.model.stats.get(("edge", name))
            assert edge is not None
            if edge.kind == "transition":
                learned = expected["weight"] * max(-0.99, stat.ema if stat else 0)
                assert math.isclose(edge.learned_weight, learned, abs_tol=1e-9)

    @rule(handle=HANDLES)
    def gc(self, handle: int) -> None:
        dead = self.model.dead()
        touching = [e for e in self.model.edges.values() if {e["src"], e["dst"]} & set(dead)]
        done = self.graphs[handle].gc().unwrap()
        assert (done.deprecated, done.dormant_edges) == (tuple(dead), len(touching))
        self.set_all_aside(dead)

    def set_all_aside(self, nodes: list[str]) -> None:
        for node in nodes:
            self.model.nodes[node]["status"] = "deprecated"

    @rule(handle=HANDLES)
    def self_iterate(self, handle: int) -> None:
        graph, dead = self.graphs[handle], self.model.dead()
        name, head = f"self-iterate-{graph.store.head().seq}", graph.head()
        done = graph.self_iterate(min_age=0).unwrap()
        collected = [proposal.target for proposal in done.applied if proposal.kind == "gc-dead-node"]
        assert collected == dead
        assert [proposal.kind for proposal in done.applied] == ["gc-dead-node"] * len(dead)
        assert done.checkpoint == (name if dead or done.reweighted else None)
        if done.checkpoint is None:
            assert graph.head() == head
        else:
            self.settle(handle)
            own = [key for key in self.checkpoints if key.startswith("self-iterate-")]
            for old in sorted(own, key=lambda key: self.checkpoints[key][0])[:-2]:
                del self.checkpoints[old]
            seq = {made.name: made.seq for made in graph.list_checkpoints()}[name]
            self.checkpoints[name] = (seq, copy.deepcopy(self.model))
            self.marks.append((seq + 2, name, self.checkpoints[name]))
            self.set_all_aside(dead)
        self.weights_are_learned(graph)

    @precondition(lambda self: self.checkpoints)
    @rule(handle=HANDLES, data=st.data())
    def rollback_anywhere(self, handle: int, data: st.DataObject) -> None:
        self.rollback(handle, data.draw(st.sampled_from(sorted(self.checkpoints))))

    # ------------------------------------------------------------------ locks

    @rule(handle=HANDLES, place=LOCKED)
    def lock_policy(self, handle: int, place: tuple[str, str]) -> None:
        scope: Any = place[0]
        with self.expecting(lambda: self.graphs[handle].lock_policy(scope, place[1], reason="kept")) as value:
            self.refuse_nothing(place)
            self.model.locks[place] = next(STAMPS)
            assert (value().scope, value().id) == place

    @rule(handle=HANDLES, place=LOCKED)
    def unlock_policy(self, handle: int, place: tuple[str, str]) -> None:
        scope: Any = place[0]
        with self.expecting(lambda: self.graphs[handle].unlock_policy(scope, place[1])) as value:
            self.refuse_nothing(place)
            if place not in self.model.locks:
                raise Failed(ErrorCode.NOT_FOUND)
            del self.model.locks[place]
            assert value() is True

    def refuse_nothing(self, place: tuple[str, str]) -> None:
        scope, name = place
        if scope == "edge" and name not in self.model.edges:
            raise Failed(ErrorCode.NOT_FOUND)
        if scope == "zone" and name not in self.model.zones:
            raise Failed(ErrorCode.ZONE_NOT_FOUND)

    @precondition(lambda self: "e2" in self.model.edges and "z" in self.model.zones)
    @rule(handle=HANDLES, mode=MODES, edge=st.booleans(), zone=st.booleans())
    def go_through_a_gate(self, handle: int, mode: Any, edge: bool, zone: bool) -> None:
        """A gate opens a locked zone only if it is locked itself."""
        self.set_enforcement(handle, "e2", "off")
        self.set_zone_enforcement(handle, "z", "zone-boundary", mode)
        for place, locked in ((("edge", "e2"), edge), (("zone", "z"), zone)):
            (self.lock_policy if locked else self.unlock_policy)(handle, place)
        gate = self.model.edges["e2"]
        if gate["kind"] == "transition" and self.model.active(gate["src"]):
            self.set_cursor(handle, [gate["src"]], "developer")
            self.transition_by_edge(handle, "e2", "developer", True)

    @precondition(lambda self: self.model.locks)
    @rule(handle=HANDLES, data=st.data(), node=NODES)
    def what_is_locked_binds_models(self, handle: int, data: st.DataObject, node: str) -> None:
        place: Any = data.draw(st.sampled_from(sorted(self.model.locks)))
        scope, name = place
        answers: list[Result[Any]]
        bound = self.graphs[handle].as_actor("robot", trust="model")
        head = bound.head()
        if scope == "edge":
            edge = self.model.edges[name]
            src, dst, kind = edge["src"], edge["dst"], edge["kind"]
            answers = [
                bound.set_enforcement(name, "off"),
                bound.unlink(name),
                bound.plan({"transitions": [[src, dst, {"id": name, "kind": kind, "upsert": True}]]}),
            ]
        else:
            answers = [
                bound.define_zone(name, [], intra="off", boundary="off"),
                bound.set_zone_enforcement(name, intra="off"),
                bound.delete_zone(name),
                bound.remove_from_zone(name, node),
            ]
        answers += [bound.unlock_policy(scope, name), bound.lock_policy(scope, name)]
        assert [answer.code for answer in answers if isinstance(answer, Fail)] == ["Locked"] * len(answers)
        assert bound.head() == head

    @rule(handle=HANDLES, seed=ANY_NODE, name=ZONES, mode=MODES)
    def derive_zone(self, handle: int, seed: str, name: str, mode: Any) -> None:
        graph, model = self.graphs[handle], self.model
        with self.expecting(
            lambda: graph.derive_zone(seed, ratify=True, name=name, intra=mode, boundary=mode)
        ) as value:
            if seed not in model.nodes:
                raise Failed(ErrorCode.NOT_FOUND)
            reached, todo = {seed}, [seed]
            while todo:
                node = todo.pop()
                for edge in model.edges.values():
                    if edge["kind"] == "transition" and edge["src"] == node and edge["dst"] not in reached:
                        reached.add(edge["dst"])
                        todo.append(edge["dst"])
            members = {node for node in reached if model.active(node)}
            model.zones[name] = {"members": members, "zone-intra": mode, "zone-boundary": mode}
            self.forget_rules(name, "zone-intra", "zone-boundary")
            model.touch("zone", name)
            assert set(value().members) == members

    # ------------------------------------------------------------------ mending and carrying over

    @rule(handle=HANDLES)
    def repair(self, handle: int) -> None:
        graph, wrong = self.graphs[handle], self.model.dead_heads()
        assert [found.kind for found in graph.validate().violations] == ["CursorOnDeadNode"] * wrong
        done = graph.repair().unwrap()
        assert (done.ok, len(done.fixed), done.residue, done.quarantined) == (True, wrong, (), ())
        for cursor in self.model.cursors.values():
            cursor.nodes = [node for node in cursor.nodes if self.model.active(node)]
        assert graph.validate().ok

    @rule(handle=HANDLES)
    def carry_over(self, handle: int) -> None:
        graph = self.graphs[handle]
        exported = graph.export(io.BytesIO())
        if isinstance(exported, Fail):  # a rollback set aside what names a state
            assert exported.code == "Conflict"
            graph.snapshot().unwrap()
        with taken_in(bundle_of(graph), now=self.now) as other:
            assert without_locks(live(other)) == without_locks(live(graph))
            assert other.locks() == []
            assert other.verify_integrity(deep=True).ok

    @rule(handle=HANDLES, id=NODES, payload=PAYLOADS, both=st.booleans())
    def branch_and_merge(self, handle: int, id: str, payload: dict[str, Any], both: bool) -> None:
        graph = self.graphs[handle]
        with graph.branch(":memory:").unwrap() as branch:
            branch.remember(id, payload=payload).unwrap()
            assert branch.verify_integrity(deep=True).ok
            if both:
                self.remember(handle, id, None, None, "payload", {"z": "ours"}, None, None, None)
            with self.expecting(lambda: graph.merge(branch)) as value:
                if both:
                    raise Failed(ErrorCode.CONFLICT)
                merged(self.model, id, payload, handle)
                assert value().merged == 1
            if not both:
                assert graph.merge(branch).unwrap().merged == 0


def merged(model: MemoryModel, id: str, payload: dict[str, Any], handle: int) -> None:
    version = model.nodes[id]["version"] + 1 if id in model.nodes else 1
    model.declare(id, handle)
    model.put_node(id, {**model.nodes[id], "payload": payload, "version": version}, handle)


def without_locks(state: dict[str, Any]) -> dict[str, Any]:
    """A bundle leaves out locks, and what they bound."""
    return {key: rows for key, rows in state.items() if key != "policy_lock"}


def test_no_verb_is_left_out() -> None:
    rules = {name for name in dir(EveryVerb) if hasattr(getattr(EveryVerb, name), "hypothesis_stateful_rule")}
    #: Verbs whose rule has another name.
    named = {
        "archive": "set_aside", "deprecate": "set_aside", "set_status": "remember", "add_to_zone": "change_members",
        "remove_from_zone": "change_members", "merge": "branch_and_merge", "unpin": "pin",
    }  # fmt: skip
    changing = {
        name for names in VERBS.values() for name in names if getattr(Adaptogen, name).verb == "changes"
    }
    assert {named.get(name, name) for name in changing} <= rules


TestGraphMachine = EveryVerb.TestCase
TestGraphMachine.settings = settings(
    max_examples=3_000 if FULL else 60,
    stateful_step_count=60 if FULL else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
# A failure is shrunk before it is reported.
TestGraphMachine.pytestmark = [pytest.mark.timeout(600 if not FULL else 7_200)]  # type: ignore[attr-defined]
