"""What the graph should hold, in the plainest form: dictionaries, and what verbs do to them.

Every method raises `Failed` with the code that the verb must answer, before it changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import networkx as nx

from graphstate import ErrorCode

__all__ = (
    "DEMOTION",
    "ESCALATION",
    "RECORDED_A_MINUTE",
    "STAMPS",
    "Cursor",
    "Failed",
    "Model",
    "Rule",
    "Stat",
)

#: Set at the start of every program.
ESCALATION, DEMOTION = 2, 2
RECORDED_A_MINUTE = 10
TRAIL = 64

#: Each says when something locked was changed last; none is given twice.
STAMPS = count(1)


class Failed(Exception):
    """The model's verdict that a verb must fail."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Stat:
    visits: int = 0
    successes: int = 0
    failures: int = 0
    softs: int = 0
    blocks: int = 0
    ema: float = 0.0


@dataclass
class Cursor:
    nodes: list[str] = field(default_factory=list)
    trail: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Rule:
    """What happened to a rule since it last changed, and whether it is hardened."""

    violations: int = 0
    clean: int = 0
    hard: bool = False


@dataclass
class Model:
    """What the graph should hold, in the plainest form."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: dict[str, dict[str, Any]] = field(default_factory=dict)
    cursors: dict[str, Cursor] = field(default_factory=lambda: {"developer": Cursor(), "robot": Cursor()})
    stats: dict[tuple[str, str], Stat] = field(default_factory=dict)
    zones: dict[str, dict[str, Any]] = field(default_factory=dict)
    rules: dict[tuple[str, str], Rule] = field(default_factory=dict)
    alpha: float = 0.3
    causes: dict[str, tuple[str, Any]] = field(default_factory=dict)
    #: what is locked, and when it was locked, or changed while it was
    locks: dict[tuple[str, str], int] = field(default_factory=dict)

    def active(self, node: str) -> bool:
        return bool(self.nodes[node]["status"] == "active")

    def edges_out(self, actor: str) -> Iterator[tuple[str, str, str]]:
        """(edge, from, to) of the edges an actor's cursor could take if no rule objected."""
        for head in self.cursors[actor].nodes:
            for name, edge in self.edges.items():
                ends = self.active(head) and edge["src"] == head and edge["kind"] == "transition"
                if ends and self.active(edge["dst"]):
                    yield name, head, edge["dst"]

    def out(self, actor: str, *, ok: bool = False) -> Iterator[tuple[str, str, str]]:
        """Those of them that are not denied."""
        for name, src, dst in self.edges_out(actor):
            if self.decision(name, ok)[0] < 2:
                yield name, src, dst

    def rule(self, scope: str, name: str) -> Rule:
        return self.rules.setdefault((scope, name), Rule())

    def decision(self, name: str, ok: bool) -> tuple[int, list[tuple[str, str]], list[tuple[str, str]]]:
        """0 allow, 1 warn, 2 deny; the rules that decided; hardened ones that had nothing to say."""
        edge, found, clean = self.edges[name], dict[tuple[str, str], int](), list[tuple[str, str]]()
        strictness = {"off": 0, "soft": 1, "hard": 2}
        stat = self.stats.get(("edge", name), Stat())
        passed = {None: True, "vars.ok == true": ok, "stat.visits < 2": stat.visits < 2}[edge["guard"]]
        if not passed:
            mode = strictness[edge["enforcement"] or "soft"]
            found["edge", name] = 2 if self.rule("edge", name).hard else mode
        elif self.rule("edge", name).hard:
            clean.append(("edge", name))
        for zone, state in self.zones.items():
            inside = {end in state["members"] for end in (edge["src"], edge["dst"])}
            if inside == {False}:
                continue
            speaks, silent = (
                ("zone-intra", "zone-boundary") if inside == {True} else ("zone-boundary", "zone-intra")
            )
            mode = 2 if self.rule(speaks, zone).hard else strictness[state[speaks]]
            yields = ("edge", name) in self.locks or ("zone", zone) not in self.locks
            found[speaks, zone] = 0 if edge["enforcement"] == "off" and yields else mode
            if self.rule(silent, zone).hard:
                clean.append((silent, zone))
        worst = max(found.values(), default=0)
        objecting = [rule for rule, mode in found.items() if mode == worst > 0]
        return worst, self.learning(objecting), self.learning(clean) if not worst else []

    def learning(self, rules: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of some rules that nobody locked."""
        return [
            (scope, name)
            for scope, name in rules
            if ("edge" if scope == "edge" else "zone", name) not in self.locks
        ]

    def touch(self, scope: str, name: str) -> None:
        """Something that may be locked was changed."""
        if (scope, name) in self.locks:
            self.locks[scope, name] = next(STAMPS)

    def teach(self, name: str, ok: bool) -> int:
        """What a move along an edge, or its denial, does to statistic and rules."""
        worst, objecting, clean = self.decision(name, ok)
        if worst == 1:
            self.stats.setdefault(("edge", name), Stat()).softs += 1
        for key in objecting:
            rule = self.rule(*key)
            rule.clean = 0
            if worst == 1:
                rule.violations += 1
                if rule.violations >= ESCALATION:
                    self.rules[key] = Rule(hard=True)
        for key in clean:
            self.rule(*key).clean += 1
            if self.rule(*key).clean >= DEMOTION:
                self.rules[key] = Rule()
        return worst

    def dependencies(self, *, without: str | None = None) -> nx.DiGraph:
        graph = nx.DiGraph()
        graph.add_nodes_from(self.nodes)
        for name, edge in self.edges.items():
            if edge["kind"] == "dependency" and name != without:
                graph.add_edge(edge["src"], edge["dst"])
        return graph

    def put_node(self, node: str, state: dict[str, Any], handle: int) -> None:
        """A handle remembered a node, which became this."""
        self.nodes[node] = state

    def without_circles(self) -> list[nx.DiGraph]:
        """What no merge of nodes may close."""
        return [self.dependencies()]

    def declare(self, node: str, handle: int) -> None:
        """A node that is named alone is made if it is not there."""
        if node not in self.nodes:
            made = {"kind": "state", "payload": {}, "tags": [], "status": "active", "version": 1}
            self.put_node(node, {**made, "label": node}, handle)

    def put_edge(
        self, src: str, dst: str, kind: str, name: str, *, label: str = "", weight: float = 1,
        upsert: bool = False, guard: str | None = None, mode: str | None = None,
    ) -> None:  # fmt: skip
        if src not in self.nodes or dst not in self.nodes:
            raise Failed(ErrorCode.NOT_FOUND)
        old = self.edges.get(name)
        if old is not None and not upsert:
            raise Failed(ErrorCode.DUPLICATE_ID)
        if kind == "dependency" and nx.has_path(self.dependencies(without=name), dst, src):
            raise Failed(ErrorCode.CYCLE_REJECTED)
        if old is not None and (old["src"], old["dst"]) != (src, dst):
            self.stats.pop(("edge", name), None)
        new = {"src": src, "dst": dst, "guard": guard, "enforcement": mode}
        if old is None or any(old[key] != item for key, item in new.items()):
            self.rules.pop(("edge", name), None)
        version = (old["version"] if old else 0) + 1
        self.edges[name] = {**new, "kind": kind, "label": label, "weight": weight, "version": version}
        self.touch("edge", name)

    def drop_edge(self, name: str) -> None:
        del self.edges[name]
        self.stats.pop(("edge", name), None)
        self.rules.pop(("edge", name), None)
        self.locks.pop(("edge", name), None)

    def stand(self, actor: str, nodes: list[str]) -> None:
        for node in nodes:
            if node not in self.nodes:
                raise Failed(ErrorCode.NOT_FOUND)
            if not self.active(node):
                raise Failed(ErrorCode.ILLEGAL_TRANSITION)
        self.cursors[actor].nodes = list(dict.fromkeys(nodes))

    # ------------------------------------------------------------------ reshaping

    def join_zones(self, old: str, new: str) -> None:
        for name, zone in self.zones.items():
            if old in zone["members"] and new not in zone["members"]:
                zone["members"].add(new)
                self.touch("zone", name)

    def move_edge(self, name: str, *, keeps_statistic: bool, **ends: str) -> None:
        """Let an edge be made anew with other ends, as strict and as locked as it was."""
        edge, stat, lock = self.edges[name], self.stats.get(("edge", name)), ("edge", name) in self.locks
        hard = self.rule("edge", name).hard
        self.drop_edge(name)
        self.edges[name] = {**edge, **ends, "version": 1}
        if hard:
            self.rules["edge", name] = Rule(hard=True)
        if lock:
            self.locks["edge", name] = next(STAMPS)
        if keeps_statistic and stat is not None:
            self.stats["edge", name] = stat

    def split(self, node: str, new: str, edges: list[str]) -> list[str]:
        if node not in self.nodes:
            raise Failed(ErrorCode.NOT_FOUND)
        if new in self.nodes:
            raise Failed(ErrorCode.DUPLICATE_ID)
        old = self.nodes[node]
        self.nodes[new] = {**old, "label": f"{old['label']} (split)", "status": "active", "version": 1}
        self.join_zones(node, new)
        moved = [
            name for name in dict.fromkeys(edges) if name in self.edges and self.edges[name]["src"] == node
        ]
        for name in moved:
            self.move_edge(name, keeps_statistic=False, src=new)
        return moved

    def merge(self, into: str, gone: str) -> tuple[list[str], list[str]]:
        if into not in self.nodes or gone not in self.nodes:
            raise Failed(ErrorCode.NOT_FOUND)
        if into == gone or not self.active(into):
            raise Failed(ErrorCode.INVALID_INPUT)
        for relation in self.without_circles():
            joined = nx.contracted_nodes(relation, into, gone, self_loops=False)
            if not nx.is_directed_acyclic_graph(joined):
                raise Failed(ErrorCode.CYCLE_REJECTED)
        stays, other = self.nodes[into], self.nodes[gone]
        tags = list(dict.fromkeys([*stays["tags"], *other["tags"]]))
        payload = {**other["payload"], **stays["payload"]}
        self.nodes[into] = {**stays, "payload": payload, "tags": tags, "version": stays["version"] + 1}
        self.join_statistics(into, gone)
        self.join_zones(gone, into)
        moved, dropped = [], []
        touching = [name for name, edge in self.edges.items() if gone in (edge["src"], edge["dst"])]
        for name in sorted(touching, key=lambda name: self.edges[name]["src"] != gone):
            edge = self.edges[name]
            if {edge["src"], edge["dst"]} == {into, gone}:
                self.drop_edge(name)
                dropped.append(name)
            else:
                ends_ = {end: into for end in ("src", "dst") if edge[end] == gone}
                self.move_edge(name, keeps_statistic=True, **ends_)
                moved.append(name)
        for cursor in self.cursors.values():
            cursor.nodes = list(dict.fromkeys(into if node == gone else node for node in cursor.nodes))
        other["status"] = "deprecated"
        return moved, dropped

    def join_statistics(self, into: str, gone: str) -> None:
        theirs = self.stats.get(("node", gone))
        if theirs is None:
            return
        mine = self.stats.get(("node", into), Stat())
        weights = [stat.successes + stat.failures for stat in (mine, theirs)]
        self.stats["node", into] = Stat(
            visits=mine.visits + theirs.visits,
            successes=mine.successes + theirs.successes,
            failures=mine.failures + theirs.failures,
            softs=mine.softs + theirs.softs,
            blocks=mine.blocks + theirs.blocks,
            ema=(mine.ema * weights[0] + theirs.ema * weights[1]) / max(1, sum(weights)),
        )

    def dead(self) -> list[str]:
        """The active nodes that nothing leads to."""
        heads = {node for cursor in self.cursors.values() for node in cursor.nodes}
        if not heads:
            return []
        live = heads | {
            name
            for name, node in self.nodes.items()
            if node["kind"] not in ("state", "task") or {"pinned", "seed"} & set(node["tags"])
        }
        for (kind, name), stat in self.stats.items():
            if kind == "node" and (stat.visits or stat.successes or stat.failures):
                live.add(name)
            elif kind == "edge" and stat.visits:
                live.add(self.edges[name]["src"])
        leads = nx.DiGraph()
        leads.add_nodes_from(live)
        for edge in self.edges.values():
            leads.add_edge(edge["src"], edge["dst"])
            if edge["kind"] != "transition":
                leads.add_edge(edge["dst"], edge["src"])
        reached = live.union(*(nx.descendants(leads, node) for node in live))
        return sorted(node for node in self.nodes if self.active(node) and node not in reached)

    def dead_heads(self) -> int:
        return sum(not self.active(node) for cursor in self.cursors.values() for node in cursor.nodes)

    def ready(self, done: set[str]) -> list[str]:
        graph = self.dependencies()
        return sorted(
            node
            for node in self.nodes
            if self.active(node) and node not in done and set(graph.predecessors(node)) <= done
        )

    def move(self, actor: str, edge: str, src: str, dst: str) -> None:
        cursor = self.cursors[actor]
        cursor.nodes = [node for node in cursor.nodes if node != src or node == dst]
        if dst not in cursor.nodes:
            cursor.nodes.append(dst)
        cursor.trail = [(edge, dst), *cursor.trail][:TRAIL]
        for scope in (("edge", edge), ("node", dst)):
            self.stats.setdefault(scope, Stat()).visits += 1

    def credit(self, moves: list[tuple[str, str]], value: float, fade: float) -> None:
        weight = 1.0
        for edge, dst in moves:
            for scope in (("edge", edge), ("node", dst)):
                if scope[1] in (self.edges if scope[0] == "edge" else self.nodes):
                    stat = self.stats.setdefault(scope, Stat())
                    stat.ema += self.alpha * weight * (value - stat.ema)
                    stat.successes += value >= 0
                    stat.failures += value < 0
            weight *= fade
