"""The judge of one verb: gathers what a decision needs and asks `policy.decide`.

An edge without a guard, between nodes without a zone, is allowed without reading anything.
All guards that one verb evaluates share one budget of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphstate import guards
from graphstate._canonical import Json
from graphstate.errors import GuardError
from graphstate.model import Edge, Node
from graphstate.policy import (
    ALLOWED,
    Counts,
    Decision,
    GuardReport,
    Rule,
    decide,
    escalation,
    settled,
    speaks,
)
from graphstate.store.projection import Projection

__all__ = ("VERB_BUDGET", "Judge", "target_context")

#: Units of guard work for all that one verb evaluates.
VERB_BUDGET = 1_000_000


class Judge:
    """Decides about edges for one verb.

    Args:
        projection: Where rules, statistics and nodes are read.
        vars: What guards read as ``vars``.
    """

    __slots__ = ("_nodes", "_projection", "_units", "vars")

    def __init__(self, projection: Projection, vars: Mapping[str, Json] | None) -> None:
        self._projection = projection
        self.vars: Mapping[str, Json] = vars or {}
        self._units = VERB_BUDGET
        self._nodes: dict[str, Node | None] = {}

    def decide(self, edge: Edge) -> Decision:
        """Return the decision about an edge, escalation included."""
        policies = self._projection.policies
        if edge.guard is None and not policies.fences():
            return ALLOWED
        source, target = policies.zones_of(edge.src), policies.zones_of(edge.dst)
        if edge.guard is None and source == target and not any(map(speaks, source)):
            return ALLOWED
        decision = decide(
            edge,
            None if edge.guard is None else self.report(edge.guard, self._context(edge)),
            source,
            target,
            default=self._projection.tunables()["defaultEnforcement"],
            locked=("edge", edge.id) in policies.locks(),
        )
        return escalation(decision, *self._history(decision.objecting, "escalationThreshold"))[0]

    def hardened(self, decision: Decision) -> tuple[Rule, ...]:
        """Return the rules that the move hardens."""
        return escalation(decision, *self._history(decision.objecting, "escalationThreshold"))[1]

    def relaxed(self, decision: Decision) -> tuple[Rule, ...]:
        """Return the rules that the move relaxes."""
        return settled(decision, *self._history(decision.clean, "demotionCleanRuns"))

    def _history(self, rules: tuple[Rule, ...], tunable: str) -> tuple[dict[Rule, Counts], int]:
        counts = {rule: self._projection.policies.counts(rule) for rule in rules}
        threshold: int = self._projection.tunables()[tunable]
        return counts, threshold

    def report(self, text: str, context: Mapping[str, Any]) -> GuardReport:
        """Return what comes of a guard; what cannot be evaluated has failed."""
        try:
            guard = guards.compile_guard(text)
        except GuardError:
            return GuardReport(text, False, "guard does not compile")
        budget = min(guards.GUARD_BUDGET, self._units)
        found = guard.evaluate(context, budget=budget)
        self._units -= min(found.units, budget)
        if found.exhausted:
            return GuardReport(text, False, "guard_budget")
        return GuardReport(text, found.passed)

    @property
    def exhausted(self) -> bool:
        """Whether the work of the whole verb is used up."""
        return self._units <= 0

    def node(self, id: str) -> Node | None:
        """Return a node, read once for each verb."""
        if id not in self._nodes:
            self._nodes[id] = self._projection.node(id)
        return self._nodes[id]

    def _context(self, edge: Edge) -> dict[str, Any]:
        stat = self._projection.live_stat(edge.id)
        return {
            **target_context(self.node(edge.src), self.node(edge.dst), self.vars),
            "edge": {"id": edge.id, "label": edge.label, "weight": edge.weight},
            "stat": {
                "visits": stat.visits,
                "emaReward": stat.ema,
                "successes": stat.successes,
                "failures": stat.failures,
            },
        }


def target_context(source: Node | None, target: Node | None, vars: Mapping[str, Json]) -> dict[str, Any]:
    """Return the part of a guard's context that tells of two nodes."""
    context: dict[str, Any] = {"vars": vars}
    for name, node in (("from", source), ("to", target)):
        if node is not None:
            context[name] = node.payload
            context[f"{name}Id"] = node.id
            context[f"{name}Tags"] = list(node.tags)
            context[f"{name}Kind"] = node.kind
    if target is not None:
        context["payload"], context["tags"], context["kind"] = target.payload, context["toTags"], target.kind
    return context
