"""The graph against a model in dictionaries, through two handles on one file: the verbs of every day.

Every rule runs a verb on either handle and on the model and compares the answers. After every
rule the chains are verified, the projection is compared with a replay of the log, and every
node, edge, cursor, statistic and order is compared with the model. networkx is the oracle for
cycles and order.
"""

from __future__ import annotations

import copy
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from graphstate import Adaptogen, ErrorCode, Fail, HistoryEntry, Ok, Result, Subscription, UnitFailed
from tests.properties.graph_model import DEMOTION, ESCALATION, RECORDED_A_MINUTE, Failed, Model, Stat

ACTORS = st.sampled_from(["developer", "developer", "developer", "robot"])
NODES = st.sampled_from(["a", "b", "c", "d", "e"])
EDGES = st.sampled_from(["e1", "e2", "e3", "e4", "e5", "e6"])
EDGE_KINDS = st.sampled_from(["transition", "transition", "dependency", "dependency", "reference"])
STATUSES = st.sampled_from(["active", "active", "archived", "deprecated"])
NAMES = st.sampled_from(["before", "between"])
CAUSES = st.none() | st.sampled_from(["cause 1", "cause 2"])
HANDLES = st.integers(0, 1)
PAYLOADS = st.dictionaries(
    st.sampled_from("xyz"), st.none() | st.integers(-3, 3) | st.text(max_size=3), max_size=3
)
WEIGHTS = st.sampled_from([0, 0.5, 1, 2])
MODES = st.sampled_from(["off", "soft", "soft", "hard"])
GUARDS = st.sampled_from([None, None, "vars.ok == true", "stat.visits < 2"])
ZONES = st.sampled_from(["y", "z"])
OK = st.booleans()
#: Clean moves (+) and violations (-) in a row: harden, relax, insist.
PATTERNS = st.sampled_from(["+", "-", "--", "++", "--++-", "--+-+++", "-+-", "--" + "-" * 12])
REWARDS = st.sampled_from([-1, 0, 0.5, 1])


class GraphMachine(RuleBasedStateMachine):
    """Verbs on two handles and on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="graph-machine-")
        self.path = os.path.join(self.folder, "graph.db")
        self.clock = 1_000_000
        self.graphs = [self.open(handle) for handle in range(2)]
        self.model = Model()
        self.checkpoints: dict[str, tuple[int, Model]] = {}
        #: denied attempts of (edge, its first event) that have an event, and that have none yet
        self.attempts: dict[tuple[str, int], list[int]] = {}
        # The events that name checkpoints, as (number, name, where it stands), oldest first.
        self.marks: list[tuple[int, str, tuple[int, Model]]] = []
        self.record = 0  # the event that says where a compacted log begins
        #: number and type of every event that was told
        self.heard: list[tuple[int, str]] = []
        self.listening = self.listen()

    def open(self, handle: int) -> Adaptogen:
        return Adaptogen.open(self.path, seed=False, now=self.now)

    def listen(self) -> Subscription:
        def hears(entry: HistoryEntry) -> None:
            self.heard.append((entry.seq, entry.type))

        def forgets(seq: int) -> None:
            self.heard = [entry for entry in self.heard if entry[0] <= seq]

        return self.graphs[0].subscribe(hears, on_rollback=forgets)

    def now(self) -> int:
        self.clock += 1
        return self.clock

    def teardown(self) -> None:
        for graph in self.graphs:
            graph.close()
        shutil.rmtree(self.folder)

    @contextmanager
    def expecting(self, result: Callable[[], Result[Any]]) -> Iterator[Callable[[], Any]]:
        """Run the model's half in the block; it takes the verb's value, or raises `Failed`."""
        answers: list[Result[Any]] = []

        def value() -> Any:
            if not answers:
                answers.append(result())
            assert isinstance(answers[0], Ok), answers[0]
            return answers[0].value

        try:
            yield value
        except Failed as failed:
            code = failed.code
        else:
            assert answers, "the model must ask for the value"
            return
        answer = result()
        assert isinstance(answer, Fail), answer
        assert (answer.code, bool(answer.hint)) == (code, True), answer

    # ------------------------------------------------------------------ memory

    @initialize(handle=HANDLES)
    def begin_with_a_ring(self, handle: int) -> None:
        for node in ("a", "b", "c", "d"):
            self.remember(handle, node, None, None, "keep", {}, None, None, None)
            handle = 1 - handle
        ring = (("e1", "a", "b"), ("e2", "b", "c"), ("e3", "c", "a"), ("e4", "a", "b"))
        for name, src, dst in ring:
            self.link(handle, src, dst, "transition", name, 1, False, None, None)
        self.link(handle, "a", "b", "transition", "e1", 1, True, "vars.ok == true", "soft")
        self.link(handle, "a", "b", "transition", "e4", 1, True, "vars.ok == true", "hard")
        self.define_zone(handle, "z", ["c"], "off", "soft")
        self.depend(handle, "b", "a", "e5")
        self.set_cursor(handle, ["a"], "developer")
        self.set_tunable(handle, "snapshotInterval", 5)
        for key, value in (("escalationThreshold", ESCALATION), ("demotionCleanRuns", DEMOTION)):
            self.graphs[handle].set_tunable(key, value).unwrap()

    @rule(
        handle=HANDLES,
        id=NODES,
        label=st.none() | st.text(max_size=4),
        kind=st.none() | st.sampled_from(["fact", "task"]),
        way=st.sampled_from(["keep", "payload", "patch"]),
        payload=PAYLOADS,
        tags=st.none() | st.lists(st.sampled_from(["p", "q"]), max_size=3),
        status=st.none() | STATUSES,
        version=st.none() | st.integers(0, 3),
        cause=CAUSES,
    )
    def remember(
        self, handle: int, id: str, label: str | None, kind: str | None, way: str, payload: dict[str, Any],
        tags: list[str] | None, status: str | None, version: int | None, cause: str | None = None,
    ) -> None:  # fmt: skip
        given: dict[str, Any] = {"label": label, "kind": kind, "tags": tags, "status": status}
        given |= {} if way == "keep" else {way: payload}
        given |= {"expect_version": version, "cause": cause}
        graph, model = self.graphs[handle], self.model
        with self.expecting(lambda: graph.remember(id, **given)) as value:
            if cause in model.causes:
                verb, first = model.causes[cause]
                if verb != "remember":
                    raise Failed(ErrorCode.CONFLICT)
                assert value() == first
                return
            default = {
                "kind": "state",
                "label": id,
                "payload": {},
                "tags": [],
                "status": "active",
                "version": 0,
            }
            node = dict(model.nodes.get(id, default))
            if version is not None and version != node["version"]:
                raise Failed(ErrorCode.CONFLICT)
            node["version"] += 1
            node |= {key: given[key] for key in ("label", "kind", "status") if given[key] is not None}
            if tags is not None:
                node["tags"] = list(dict.fromkeys(tags))
            if way == "payload":
                node["payload"] = payload
            elif way == "patch":
                merged = node["payload"] | payload
                node["payload"] = {
                    key: item for key, item in merged.items() if payload.get(key, 0) is not None
                }
            model.put_node(id, node, handle)
            answer = value()
            assert shown(answer) == node
            if cause is not None:
                model.causes[cause] = ("remember", answer)

    @rule(handle=HANDLES, id=NODES, verb=st.sampled_from(["archive", "deprecate"]))
    def set_aside(self, handle: int, id: str, verb: str) -> None:
        with self.expecting(lambda: getattr(self.graphs[handle], verb)(id)) as value:
            if id not in self.model.nodes:
                raise Failed(ErrorCode.NOT_FOUND)
            self.model.nodes[id]["status"] = f"{verb}d"
            assert shown(value()) == self.model.nodes[id]

    # ------------------------------------------------------------------ structure

    @rule(
        handle=HANDLES, src=NODES, dst=NODES, kind=EDGE_KINDS, id=EDGES, weight=WEIGHTS, upsert=st.booleans(),
        guard=GUARDS, mode=st.none() | MODES,
    )  # fmt: skip
    def link(
        self, handle: int, src: str, dst: str, kind: Any, id: str, weight: float, upsert: bool,
        guard: str | None, mode: Any,
    ) -> None:  # fmt: skip
        graph, model = self.graphs[handle], self.model
        with self.expecting(
            lambda: graph.link(
                src, dst, kind=kind, id=id, weight=weight, upsert=upsert, guard=guard, enforcement=mode
            )
        ) as value:
            try:
                model.put_edge(src, dst, kind, id, weight=weight, upsert=upsert, guard=guard, mode=mode)
            except Failed as failed:
                if failed.code == ErrorCode.CYCLE_REJECTED:
                    self.check_cycle(graph.link(src, dst, kind=kind, id=id, upsert=upsert), src, dst, id)
                raise
            assert self.shows(value(), id)

    def check_cycle(self, refused: Result[Any], src: str, dst: str, id: str) -> None:
        assert isinstance(refused, Fail)
        cycle = refused.details["cycle"]
        assert (cycle[0], cycle[1], cycle[-1]) == (src, dst, src)
        graph = self.model.dependencies(without=id)
        assert all(graph.has_edge(*step) for step in pairwise(cycle[1:]))

    @precondition(lambda self: self.model.dependencies().edges)
    @rule(handle=HANDLES, data=st.data(), id=EDGES)
    def close_a_cycle(self, handle: int, data: st.DataObject, id: str) -> None:
        dependencies = self.model.dependencies()
        first = data.draw(st.sampled_from(sorted(src for src, _ in dependencies.edges)))
        last = data.draw(st.sampled_from(sorted(nx.descendants(dependencies, first))))
        self.link(handle, last, first, "dependency", id, 1, True, None, None)

    @rule(handle=HANDLES, node=NODES, prereq=NODES, id=EDGES)
    def depend(self, handle: int, node: str, prereq: str, id: str) -> None:
        graph, model = self.graphs[handle], self.model
        with self.expecting(lambda: graph.depend(node, prereq, id=id)) as value:
            model.put_edge(prereq, node, "dependency", id)
            assert self.shows(value(), id)

    @rule(handle=HANDLES, id=EDGES)
    def unlink(self, handle: int, id: str) -> None:
        with self.expecting(lambda: self.graphs[handle].unlink(id)) as value:
            if id not in self.model.edges:
                raise Failed(ErrorCode.NOT_FOUND)
            self.model.drop_edge(id)
            assert value() is True

    @rule(handle=HANDLES, id=EDGES, mode=st.none() | MODES)
    def set_enforcement(self, handle: int, id: str, mode: Any) -> None:
        with self.expecting(lambda: self.graphs[handle].set_enforcement(id, mode)) as value:
            if id not in self.model.edges:
                raise Failed(ErrorCode.NOT_FOUND)
            self.model.edges[id]["enforcement"] = mode
            self.model.rules.pop(("edge", id), None)
            self.model.touch("edge", id)
            assert self.shows(value(), id)

    def shows(self, edge: Any, id: str) -> bool:
        learned = "hard" if self.model.rule("edge", id).hard else None
        return edge_shown(edge) == self.model.edges[id] | {"learned_enforcement": learned}

    # ------------------------------------------------------------------ zones

    @rule(handle=HANDLES, name=ZONES, members=st.lists(NODES, max_size=3), intra=MODES, boundary=MODES)
    def define_zone(self, handle: int, name: str, members: list[str], intra: Any, boundary: Any) -> None:
        graph, model = self.graphs[handle], self.model
        with self.expecting(
            lambda: graph.define_zone(name, members, intra=intra, boundary=boundary)
        ) as value:
            if any(node not in model.nodes for node in members):
                raise Failed(ErrorCode.NOT_FOUND)
            model.zones[name] = {"members": set(members), "zone-intra": intra, "zone-boundary": boundary}
            self.forget_rules(name, "zone-intra", "zone-boundary")
            model.touch("zone", name)
            assert zone_shown(value()) == model.zones[name]

    @rule(handle=HANDLES, name=ZONES, node=NODES, add=st.booleans())
    def change_members(self, handle: int, name: str, node: str, add: bool) -> None:
        graph, model = self.graphs[handle], self.model
        with self.expecting(
            lambda: graph.add_to_zone(name, node) if add else graph.remove_from_zone(name, node)
        ) as value:
            if name not in model.zones:
                raise Failed(ErrorCode.ZONE_NOT_FOUND)
            if add and node not in model.nodes:
                raise Failed(ErrorCode.NOT_FOUND)
            members = model.zones[name]["members"]
            members.add(node) if add else members.discard(node)
            model.touch("zone", name)
            assert zone_shown(value()) == model.zones[name]

    @rule(handle=HANDLES, name=ZONES, scope=st.sampled_from(["zone-intra", "zone-boundary"]), mode=MODES)
    def set_zone_enforcement(self, handle: int, name: str, scope: str, mode: Any) -> None:
        options = {scope.removeprefix("zone-"): mode}
        with self.expecting(lambda: self.graphs[handle].set_zone_enforcement(name, **options)) as value:
            if name not in self.model.zones:
                raise Failed(ErrorCode.ZONE_NOT_FOUND)
            self.model.zones[name][scope] = mode
            self.forget_rules(name, scope)
            self.model.touch("zone", name)
            assert zone_shown(value()) == self.model.zones[name]

    @rule(handle=HANDLES, name=ZONES)
    def delete_zone(self, handle: int, name: str) -> None:
        with self.expecting(lambda: self.graphs[handle].delete_zone(name)) as value:
            if name not in self.model.zones:
                raise Failed(ErrorCode.ZONE_NOT_FOUND)
            del self.model.zones[name]
            self.forget_rules(name, "zone-intra", "zone-boundary")
            self.model.locks.pop(("zone", name), None)
            assert value() is True

    def forget_rules(self, name: str, *scopes: str) -> None:
        for scope in scopes:
            self.model.rules.pop((scope, name), None)

    # ------------------------------------------------------------------ moving and learning

    @rule(handle=HANDLES, nodes=st.lists(NODES, max_size=3), actor=ACTORS)
    def set_cursor(self, handle: int, nodes: list[str], actor: str) -> None:
        model = self.model
        with self.expecting(lambda: self.graphs[handle].set_cursor(nodes, actor=actor)) as value:
            model.stand(actor, nodes)
            assert value() == nodes

    @rule(handle=HANDLES, to=NODES, actor=ACTORS, ok=OK)
    def transition(self, handle: int, to: str, actor: str, ok: bool) -> None:
        graph = self.graphs[handle]
        with self.expecting(lambda: graph.transition(to, actor=actor, vars={"ok": ok})) as value:
            edge, src = self.chosen(to, actor, ok)
            applied = self.take(actor, edge, src, to, ok)
            outcome = value()
            assert (outcome.applied, outcome.edge_id, outcome.from_, outcome.to) == (applied, edge, src, to)

    def take(self, actor: str, edge: str, src: str, to: str, ok: bool) -> bool:
        """Move in the model, or count the attempt; say whether the move is applied."""
        model, known = self.model, self.graphs[0].get_edge(edge)
        assert known is not None
        if model.decision(edge, ok)[0] < 2:
            model.teach(edge, ok)
            model.move(actor, edge, src, to)
            return True
        count = self.attempts.setdefault((edge, known.created_seq), [0, 0])
        if count[0] < RECORDED_A_MINUTE:
            count[0] += 1
            model.teach(edge, ok)
            model.stats.setdefault(("edge", edge), Stat()).blocks += 1
        else:
            count[1] += 1
        return False

    def chosen(self, to: str, actor: str, ok: bool) -> tuple[str, str]:
        if to not in self.model.nodes:
            raise Failed(ErrorCode.NOT_FOUND)
        if not self.model.active(to):
            raise Failed(ErrorCode.ILLEGAL_TRANSITION)
        ways = [(edge, src) for edge, src, dst in self.model.edges_out(actor) if dst == to]
        if not ways:
            raise Failed(ErrorCode.ILLEGAL_TRANSITION)
        return min(ways, key=lambda way: self.model.decision(way[0], ok)[0])

    @rule(handle=HANDLES, id=EDGES, actor=ACTORS, ok=OK)
    def transition_by_edge(self, handle: int, id: str, actor: str, ok: bool) -> None:
        model, graph = self.model, self.graphs[handle]
        with self.expecting(lambda: graph.transition(edge_id=id, actor=actor, vars={"ok": ok})) as value:
            if id not in model.edges:
                raise Failed(ErrorCode.NOT_FOUND)
            possible = {edge: (src, dst) for edge, src, dst in model.edges_out(actor)}
            if id not in possible:
                raise Failed(ErrorCode.ILLEGAL_TRANSITION)
            applied = self.take(actor, id, *possible[id], ok)
            assert (value().edge_id, value().applied) == (id, applied)

    @precondition(lambda self: any(self.model.edges_out("developer")))
    @rule(handle=HANDLES, data=st.data(), count=st.integers(1, 4), ok=OK)
    def walk(self, handle: int, data: st.DataObject, count: int, ok: bool) -> None:
        for _ in range(count):
            possible = list(self.model.edges_out("developer"))
            if possible:
                edge, src, to = data.draw(st.sampled_from(possible))
                outcome = self.graphs[handle].transition(to, edge_id=edge, vars={"ok": ok}).unwrap()
                applied = self.take("developer", edge, src, to, ok)
                assert (outcome.applied, outcome.edge_id, outcome.from_) == (applied, edge, src)

    @rule(handle=HANDLES, data=st.data(), pattern=PATTERNS)
    def go_again(self, handle: int, data: st.DataObject, pattern: str) -> None:
        """Along one edge, from its start each time: violations and clean moves in a row."""
        model = self.model
        walkable = [
            name
            for name, edge in model.edges.items()
            if edge["kind"] == "transition" and model.active(edge["src"]) and model.active(edge["dst"])
        ]
        if not walkable:
            return
        telling = [name for name in walkable if model.edges[name]["guard"] == "vars.ok == true"]
        edge = data.draw(st.sampled_from(walkable + 3 * telling))
        src, to = model.edges[edge]["src"], model.edges[edge]["dst"]
        for letter in pattern:
            ok = letter == "+"
            self.set_cursor(handle, [src], "developer")
            outcome = self.graphs[handle].transition(edge_id=edge, vars={"ok": ok}).unwrap()
            assert outcome.applied == self.take("developer", edge, src, to, ok)

    @rule(handle=HANDLES, to=st.none() | NODES, reward=st.none() | REWARDS, actor=ACTORS, ok=OK)
    def step(self, handle: int, to: str | None, reward: float | None, actor: str, ok: bool) -> None:
        graph, model = self.graphs[handle], self.model
        ranked = graph.suggest(actor=actor, vars={"ok": ok})
        with self.expecting(lambda: graph.step(to, reward=reward, actor=actor, vars={"ok": ok})) as value:
            if not model.cursors[actor].nodes:
                raise Failed(ErrorCode.INVALID_INPUT)
            best = next((move for move in ranked if to is None or move.to == to), None)
            if best is not None:
                edge, src, target = best.edge_id, best.from_, best.to
            elif to is None:
                raise Failed(ErrorCode.NO_MOVES)
            else:
                target = to
                edge, src = self.chosen(to, actor, ok)
            applied = self.take(actor, edge, src, target, ok)
            if reward is not None and applied:
                model.credit([(edge, target)], reward, 1)
            taken = value()
            assert (taken.to, taken.suggestion, taken.outcome.edge_id) == (target, best, edge)
            assert (taken.applied, taken.reward is None) == (applied, reward is None or not applied)
            assert taken.done == (not list(model.out(actor, ok=ok)))

    @rule(
        handle=HANDLES,
        value=REWARDS,
        id=st.none() | st.none() | EDGES,
        trace=st.booleans(),
        actor=ACTORS,
        depth=st.integers(0, 4),
    )
    def reward(self, handle: int, value: float, id: str | None, trace: bool, actor: str, depth: int) -> None:
        graph, model = self.graphs[handle], self.model
        with self.expecting(
            lambda: graph.reward(value, edge_id=id, trace=trace, depth=depth, lambda_=0.5, actor=actor)
        ) as answer:
            if id is not None:
                if id not in model.edges:
                    raise Failed(ErrorCode.NOT_FOUND)
                moves, fade = [(id, model.edges[id]["dst"])], 1.0
            else:
                moves, fade = model.cursors[actor].trail[: depth if trace else 1], 0.5
            if not moves:
                raise Failed(ErrorCode.NOT_FOUND)
            model.credit(moves, value, fade)
            assert answer().scopes == 2 * len(moves)

    @precondition(lambda self: len(self.model.cursors["developer"].trail) > 1)
    @rule(handle=HANDLES, value=REWARDS, depth=st.integers(0, 4))
    def reward_the_way(self, handle: int, value: float, depth: int) -> None:
        self.reward(handle, value, None, True, "developer", depth)

    @rule(
        handle=HANDLES,
        key=st.sampled_from(["rewardAlpha", "snapshotInterval", "nothing"]),
        value=st.sampled_from([0, 0.5, 1, -1, 3]),
    )
    def set_tunable(self, handle: int, key: str, value: float) -> None:
        with self.expecting(lambda: self.graphs[handle].set_tunable(key, value)) as answer:
            good = {"rewardAlpha": 0 <= value <= 1, "snapshotInterval": value in (0, 1, 3, 5)}
            if not good.get(key):
                raise Failed(ErrorCode.INVALID_CONFIG)
            if key == "rewardAlpha":
                self.model.alpha = value
            assert answer()[key] == value

    # ------------------------------------------------------------------ time and units

    @rule(handle=HANDLES, name=NAMES)
    def checkpoint(self, handle: int, name: str) -> None:
        self.settle(handle)
        made = self.graphs[handle].checkpoint(name).unwrap()
        self.checkpoints[name] = (made.seq, copy.deepcopy(self.model))
        self.marks.append((made.seq + 2, name, self.checkpoints[name]))

    def settle(self, handle: int) -> None:
        """A checkpoint counts the attempts that have no event yet."""
        for (edge, seq), count in self.attempts.items():
            known = self.graphs[handle].get_edge(edge)
            if known is not None and known.created_seq == seq and count[1]:
                self.model.stats.setdefault(("edge", edge), Stat()).blocks += count[1]
                count[1] = 0

    @precondition(lambda self: self.checkpoints)
    @rule(handle=HANDLES, name=NAMES)
    def rollback(self, handle: int, name: str) -> None:
        with self.expecting(lambda: self.graphs[handle].rollback(name)) as value:
            if name not in self.checkpoints:
                raise Failed(ErrorCode.CHECKPOINT_NOT_FOUND)
            seq, model = self.checkpoints[name]
            if any(model.locks.get(key) != stamp for key, stamp in self.model.locks.items()):
                raise Failed(ErrorCode.LOCKED)
            self.model = copy.deepcopy(model)
            self.checkpoints = {key: kept for key, kept in self.checkpoints.items() if kept[0] <= seq}
            self.marks = [mark for mark in self.marks if mark[0] <= seq]
            assert value().seq == seq
            # A name that had moved on returns, if the snapshot of its older place is still kept.
            marks = sorted(self.marks, key=lambda mark: mark[0])
            older = {key: place for _, key, place in marks if key not in self.checkpoints}
            for listed in self.graphs[handle].list_checkpoints():
                if listed.name in older:
                    assert older[listed.name][0] == listed.seq
                    self.checkpoints[listed.name] = older[listed.name]
            if self.record > seq:
                self.recorded(seq + 1)
            assert self.graphs[handle].store.head().seq == max(seq, self.record)

    def recorded(self, at: int) -> None:
        """A record of where the log begins names all checkpoints again."""
        self.record = at
        self.marks += [(place[0] + 2, name, place) for name, place in self.checkpoints.items()]

    @rule(handle=HANDLES, retain=st.none() | st.integers(0, 12))
    def compact(self, handle: int, retain: int | None) -> None:
        graph = self.graphs[handle]
        head, start = graph.store.head().seq, graph.store.log.start("graph").seq
        done = graph.compact(retain=retain).unwrap()
        pruned = max(0, head - (1_000 if retain is None else retain) - start)
        assert done.pruned == pruned
        if pruned:
            assert done.seq == start + pruned
            self.marks = [mark for mark in self.marks if mark[0] > done.seq]
            self.recorded(head + 2)

    @rule(handle=HANDLES)
    def snapshot(self, handle: int) -> None:
        head = self.graphs[handle].store.head().seq
        assert self.graphs[handle].snapshot().unwrap().seq == head

    @rule(handle=HANDLES)
    def rebuild(self, handle: int) -> None:
        head = self.graphs[handle].store.head().seq
        assert self.graphs[handle].rebuild().unwrap().last_good_seq == head

    @rule(handle=HANDLES, id=NODES, way=st.sampled_from(["good", "failing verb", "exception"]))
    def unit(self, handle: int, id: str, way: str) -> None:
        graph, before = self.graphs[handle], copy.deepcopy(self.model)
        if way == "good":
            with graph.unit():
                self.remember(handle, id, "in a unit", None, "keep", {}, None, "active", None)
                self.set_cursor(handle, [id], "robot")
            return
        error = UnitFailed if way == "failing verb" else KeyError
        with pytest.raises(error), graph.unit():
            self.remember(handle, id, "in a unit", None, "keep", {}, None, "active", None)
            self.set_cursor(handle, [id], "robot")
            if way == "exception":
                raise KeyError(id)
            assert not graph.link(id, "nowhere").ok
            assert not graph.remember(id).ok
        self.model = before

    @rule(handle=HANDLES)
    def reopen(self, handle: int) -> None:
        self.listening.poll()
        self.graphs[handle].close()
        self.graphs[handle] = self.open(handle)
        if handle == 0:
            self.listening = self.listen()
        assert self.graphs[handle].recovery.trimmed == 0

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def chains_hold_and_the_projection_is_the_replay(self) -> None:
        report = self.graphs[0].verify_integrity(deep=True)
        assert report.ok, report

    @invariant()
    def every_event_was_told_once_and_in_order(self) -> None:
        self.listening.poll()
        rows = [(row.seq, row.type) for row in self.graphs[1].store.read("graph")]
        assert self.heard[-len(rows) :] == rows if rows else not self.heard

    @invariant()
    def both_handles_show_the_model(self) -> None:
        for graph in self.graphs:
            assert {node.id: shown(node) for node in graph.recall(limit=1_000)} == self.model.nodes
            for number in range(1, 7):
                edge = graph.get_edge(f"e{number}")
                assert (edge is None) == (f"e{number}" not in self.model.edges)
                assert edge is None or self.shows(edge, f"e{number}")
            assert {zone.name: zone_shown(zone) for zone in graph.zones()} == self.model.zones
            for zone in graph.zones():
                learned = (("zone-intra", zone.learned_intra), ("zone-boundary", zone.learned_boundary))
                for scope, mode in learned:
                    assert (mode == "hard") == self.model.rule(scope, zone.name).hard

    @invariant()
    def moves_and_statistics_are_those_of_the_model(self) -> None:
        graph = self.graphs[1]
        for actor, cursor in self.model.cursors.items():
            assert graph.cursor(actor=actor) == cursor.nodes
            for ok in (True, False):
                legal = graph.legal_moves(actor=actor, vars={"ok": ok})
                moves = [(move.edge_id, move.from_, move.to) for move in legal]
                assert moves == list(self.model.out(actor, ok=ok))
            ranked = graph.suggest(actor=actor)
            assert [move.edge_id for move in ranked] == [
                move.edge_id for move in sorted(ranked, key=lambda move: (-move.score, move.edge_id))
            ]
            assert sorted(move.edge_id for move in ranked) == sorted(move[0] for move in moves)
        for kind, ids in (("node", self.model.nodes), ("edge", self.model.edges)):
            for name in ids:
                stat, expected = graph.get_stat(kind, name), self.model.stats.get((kind, name))
                assert (stat is None) == (expected is None), (kind, name)
                if stat is not None and expected is not None:
                    counts = (expected.visits, expected.successes, expected.failures)
                    assert (stat.visits, stat.successes, stat.failures) == counts
                    assert (stat.soft_violations, stat.blocks) == (expected.softs, expected.blocks)
                    assert math.isclose(stat.ema_reward, expected.ema, abs_tol=1e-9)

    @invariant()
    def order_is_that_of_networkx(self) -> None:
        graph, dependencies = self.graphs[0], self.model.dependencies()
        topology = graph.topo()
        assert not topology.cyclic
        assert nx.is_directed_acyclic_graph(dependencies)
        place = {node: index for index, node in enumerate(topology.order)}
        assert place.keys() == self.model.nodes.keys()
        assert all(place[src] < place[dst] for src, dst in dependencies.edges)
        assert graph.ready() == self.model.ready(set())
        assert graph.ready(["a", "b"]) == self.model.ready({"a", "b"})
        for node in self.model.nodes:
            assert graph.ancestors(node) == sorted(nx.ancestors(dependencies, node))

    @invariant()
    def checkpoints_are_those_of_the_model(self) -> None:
        listed = {checkpoint.name: checkpoint.seq for checkpoint in self.graphs[1].list_checkpoints()}
        assert listed == {name: seq for name, (seq, _) in self.checkpoints.items()}


def shown(node: Any) -> dict[str, Any]:
    return {
        "kind": node.kind, "label": node.label, "payload": node.payload, "tags": list(node.tags),
        "status": node.status, "version": node.version,
    }  # fmt: skip


def edge_shown(edge: Any) -> dict[str, Any]:
    keys = ("src", "dst", "kind", "label", "weight", "version", "guard", "enforcement", "learned_enforcement")
    return {key: getattr(edge, key) for key in keys}


def zone_shown(zone: Any) -> dict[str, Any]:
    return {"members": set(zone.members), "zone-intra": zone.intra, "zone-boundary": zone.boundary}
