"""Evolution: what experience suggests to change, and the edits themselves.

Nothing here deletes a node or what an edge learned. A node that is set aside keeps its edges,
which sleep until `set_status(id, "active")`; the prior of an edge is the author's alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphstate import algorithms, mining, scoring
from graphstate._canonical import Json, encode
from graphstate.errors import ErrorCode, shown
from graphstate.events import GRAPH, Draft
from graphstate.model import (
    Collected,
    Edge,
    Iteration,
    MergedStates,
    Migrated,
    Node,
    Proposal,
    Reweighted,
    Split,
    Stat,
    to_json,
)
from graphstate.results import Ok, Result
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.memory import _stored_form, expect, known
from graphstate.verbs.soundness import key, violations
from graphstate.verbs.verb import Verbs, query, synced_verb, verb

__all__ = ("Evolution",)

#: Events that a node must have been left alone before `self_iterate` sets it aside.
SETTLED = 200

#: Edges that one event reweights: with the longest ids it stays below the limit of an event.
_AT_ONCE = 4_000

#: Checkpoints of `self_iterate` that are kept.
_KEPT = 3
_OWN_CHECKPOINT = re.compile(r"self-iterate-\d+")
_SPLIT = " (split)"
_MOST_AGE = 2**53


class Evolution(Verbs):
    """optimize, reweight, self_iterate, gc, split_state, merge_states, migrate, pin."""

    __slots__ = ()

    @query
    def optimize(self, *, min_age: int = 0) -> list[Proposal]:
        """Return the edits that experience suggests, the most certain first. Changes nothing.

        Nodes are dead that are active states or tasks, were never visited or left, carry neither
        of the tags ``seed`` and ``pinned``, and to which nothing leads: no cursor of any actor,
        no visited node, no fact, over no kind of edge. While all cursors are empty none is.

        Args:
            min_age: Events that a dead node must have been left alone.

        Raises:
            VerbFailed: InvalidInput.
        """
        return _proposals(self, _age(min_age))

    @verb
    def reweight(self, *, actor: str | None = None, cause: str | None = None) -> Result[Reweighted]:
        """Let the learned weight of every transition edge follow its average reward.

        The learned weight becomes the prior times the average, at least -99 percent of the prior;
        the prior itself stays. Edges whose learned weight is right already are not touched, and
        if all are nothing is recorded.
        """
        weights = _weights(self)
        self.record(*_reweighting(weights), actor=actor, cause=cause)
        return Ok(Reweighted(reweighted=len(weights)))

    @verb
    def gc(
        self, *, min_age: int = 0, actor: str | None = None, cause: str | None = None
    ) -> Result[Collected]:
        """Set the dead nodes that `optimize` finds aside, as deprecated.

        Their edges are kept and sleep; ``set_status(id, "active")`` brings node and edges back.

        Args:
            min_age: Events that a node must have been left alone.
        """
        dead = [node for node, _ in _garbage(self, _age(min_age))]
        self.record(*_collecting(dead), actor=actor, cause=cause)
        return Ok(Collected(deprecated=tuple(dead), dormant_edges=self.store.survey().dormant(dead)))

    @synced_verb
    def self_iterate(
        self, *, min_age: int = SETTLED, actor: str | None = None, cause: str | None = None
    ) -> Result[Iteration]:
        """Learn once from experience, safely: reweight, then apply the safe proposals.

        Dead nodes are set aside, and guards that are violated too often harden as they would by
        themselves. If the edits bring about a violation that was not there before,
        nothing is kept and the answer is Conflict. If there is nothing to do, nothing is
        recorded. The state before is a checkpoint; the last three such checkpoints are kept.

        Args:
            min_age: Events that a node must have been left alone to be set aside.
        """
        before, weights = violations(self), _weights(self)
        chosen = [proposal for proposal in _proposals(self, _age(min_age)) if proposal.kind in _SAFE]
        if not weights and not chosen:
            return Ok(_iteration((), 0, None, len(before), len(before)))
        name = _own_checkpoint(self, actor, cause)
        applied = [draft for proposal in chosen for draft in _SAFE[proposal.kind](proposal)]
        self.record(*_reweighting(weights), *applied, actor=actor)
        after = violations(self)
        known_before = {key(violation) for violation in before}
        if fresh := [violation for violation in after if key(violation) not in known_before]:
            refuse(
                f"the edits would break the graph: {fresh[0].detail}"
                + (f", and {len(fresh) - 1} more" if len(fresh) > 1 else ""),
                ErrorCode.CONFLICT,
                violations=to_json(fresh),
                hint="nothing was kept: see optimize for the edits, and apply the harmless ones one by one",
            )
        return Ok(_iteration(tuple(chosen), len(weights), name, len(before), len(after)))

    @verb
    def split_state(
        self,
        node_id: str,
        new_id: str,
        edge_ids: Iterable[str],
        *,
        expect_version: int | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Split]:
        """Copy a node and let some of the edges that leave it leave the copy instead.

        The copy has kind, payload, tags and vector of the original, stands in the same zones, and
        is active. A moved edge keeps its id, guard, modes and lock, and forgets what it learned of
        rewards, which was learned elsewhere; ids that name no edge of the node are passed over.

        Args:
            expect_version: Fail with Conflict unless the node is at this version.
        """
        node = _node(self, node_id, "node")
        expect(expect_version, node.version, f"node {node.id!r}")
        copy = arguments.identifier(new_id, "new id")
        if self.store.projection.status(copy) is not None:
            refuse(f"node {copy!r} exists", ErrorCode.DUPLICATE_ID)
        wanted = dict.fromkeys(arguments.identifiers(edge_ids, "edge_ids"))
        found = [self.store.projection.edge(edge) for edge in wanted]
        moved = [edge for edge in found if edge is not None and edge.src == node.id]
        label = node.label[: arguments.MAX_LABEL - len(_SPLIT)] + _SPLIT
        drafts = [Draft("NodeUpserted", _node_body(node, id=copy, label=label, status="active"))]
        drafts += _zones_joined(self, node.id, copy)
        for edge in moved:
            drafts += _moved(self, edge, src=copy)
        self.record(*drafts, actor=actor, cause=cause)
        return Ok(Split(from_=node.id, to=copy, moved=tuple(edge.id for edge in moved)))

    @verb
    def merge_states(
        self,
        into: str,
        gone: str,
        *,
        expect_version: int | None = None,
        expect_gone_version: int | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[MergedStates]:
        """Let one node take over another one, which is deprecated.

        Payload objects are joined, the staying node wins; tags are joined; every edge of the
        other node keeps its id and what it learned and belongs to the staying node, except those
        between the two, which vanish; cursors move along, and the staying node joins the zones of
        the other one. What was learned about the two nodes
        is added up. If the dependencies would form a cycle nothing changes: CycleRejected.

        Args:
            into: The node that stays; it must be active.
            expect_version: Fail with Conflict unless that node is at this version.
            expect_gone_version: The same for the other node.
        """
        stays, other = _node(self, into, "node that stays"), _node(self, gone, "node that goes")
        expect(expect_version, stays.version, f"node {stays.id!r}")
        expect(expect_gone_version, other.version, f"node {other.id!r}")
        if stays.id == other.id:
            refuse(f"{into!r} cannot be merged with itself")
        if stays.status != "active":
            refuse(f"{into!r} is {stays.status}, only an active node can take another one over")
        _refuse_merged_cycle(self, stays.id, other.id)
        edges = [self.store.projection.edge(edge) for edge in self.store.survey().edges_at(other.id)]
        drafts = [Draft("NodeUpserted", _joined_body(self, stays, other))]
        drafts += _zones_joined(self, other.id, stays.id)
        moved, dropped = [], []
        for edge in edges:
            assert edge is not None
            if {edge.src, edge.dst} == {stays.id, other.id}:
                dropped.append(edge.id)
                drafts.append(Draft("EdgeRemoved", {"id": edge.id}))
                continue
            moved.append(edge.id)
            ends = {end: stays.id for end in ("src", "dst") if getattr(edge, end) == other.id}
            drafts += _moved(self, edge, stat=self.store.projection.stat("edge", edge.id), **ends)
        drafts += _cursors_to(self, other.id, stays.id)
        drafts.append(Draft("NodeStatusChanged", {"id": other.id, "status": "deprecated"}))
        self.record(*drafts, actor=actor, cause=cause)
        return Ok(MergedStates(into=stays.id, moved=tuple(moved), dropped=tuple(dropped)))

    @synced_verb
    def migrate(
        self,
        kind: str,
        apply: Callable[[Any], Json],
        *,
        to_version: int = 0,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Migrated]:
        """Put the payload of every node of a kind through a function; all of them or none.

        Survives power loss. If the function raises, or answers None or an empty object for a
        payload that was not empty, nothing is changed: MigrationError.

        Args:
            kind: Nodes of this kind, whatever their status.
            apply: Gets a copy of the payload and returns the new one.
            to_version: Written into the event ``Migrated``, for those who read the history.
        """
        clean = arguments.name(kind, "kind")
        version = arguments.whole(to_version, "to_version", least=0, most=2**53)
        if not callable(apply):
            refuse(f"apply must be a function from payload to payload, not {shown(apply)}")
        nodes = self.store.survey().nodes_of_kind(clean)
        bodies = [_migrated(self, node_id, apply) for node_id in nodes]
        changed = [Draft("NodeUpserted", body) for body in bodies if body is not None]
        told = {"kind": clean, "toVersion": version, "migrated": len(nodes)}
        self.record(*changed, Draft("Migrated", told), actor=actor, cause=cause)
        return Ok(Migrated(migrated=len(nodes), changed=len(changed)))

    @verb
    def pin(self, id: str, *, actor: str | None = None, cause: str | None = None) -> Result[Node]:
        """Keep a node, and what it is linked to, out of garbage collection: the tag ``pinned``."""
        return _tagged(self, id, True, actor, cause)

    @verb
    def unpin(self, id: str, *, actor: str | None = None, cause: str | None = None) -> Result[Node]:
        """Take the tag ``pinned`` from a node."""
        return _tagged(self, id, False, actor, cause)


# ------------------------------------------------------------------------------ proposals


def _age(value: object) -> int:
    return arguments.whole(value, "min_age", least=0, most=_MOST_AGE)


def _garbage(graph: Verbs, min_age: int) -> list[tuple[str, int]]:
    last = graph.store.log.head(GRAPH).seq - min_age
    return graph.store.survey().garbage(
        kinds=mining.COLLECTED_KINDS, pins=mining.PINS, changed_before=last
    )  # fmt: skip


def _proposals(graph: Verbs, min_age: int) -> list[Proposal]:
    survey = graph.store.survey()
    threshold = graph.store.projection.tunables()["escalationThreshold"]
    return mining.ranked(
        [
            *mining.dead_nodes(_garbage(graph, min_age), graph.store.log.head(GRAPH).seq),
            *mining.violated_edges(survey.violated_edges(threshold) if threshold else (), threshold),
            *mining.duplicate_edges(survey.duplicates()),
            *mining.blocked_nodes(survey.blocked()),
            *mining.losing_edges(survey.low_value(mining.LEAST_VISITS)),
            *mining.loose_zones(survey.zone_traffic(), threshold),
        ]
    )


def _collecting(nodes: Sequence[str]) -> list[Draft]:
    return [
        Draft("NodeStatusChanged", {"id": node, "status": "deprecated", "reason": "gc"}) for node in nodes
    ]


def _hardening(edge: str) -> list[Draft]:
    """What was learned stands beside the declared mode, and relaxes by itself."""
    return [Draft("EnforcementChanged", {"scope": "edge", "id": edge, "mode": "hard", "learned": True})]


#: What `self_iterate` applies, and how. The others are for a person or a plan to decide.
_SAFE: Mapping[str, Callable[[Proposal], list[Draft]]] = {
    "gc-dead-node": lambda proposal: _collecting([proposal.target]),
    "promote-soft-to-hard": lambda proposal: _hardening(proposal.target),
}


# ------------------------------------------------------------------------------ learning


def _weights(graph: Verbs) -> dict[str, float]:
    """Return the learned weights that are not what experience says now."""
    return {
        edge: learned
        for edge, prior, present, ema in graph.store.survey().learned()
        if (learned := scoring.learned(prior, ema)) != present
    }


def _reweighting(weights: Mapping[str, float]) -> list[Draft]:
    pairs = list(weights.items())
    return [
        Draft("EdgesReweighted", {"weights": dict(pairs[start : start + _AT_ONCE])})
        for start in range(0, len(pairs), _AT_ONCE)
    ]


def _own_checkpoint(graph: Verbs, actor: str | None, cause: str | None) -> str:
    store, by = graph.store, actor or graph.actor
    name = f"self-iterate-{store.log.head(GRAPH).seq}"
    taken = store.snapshot(actor=by, trust=graph.trust, cause=cause)
    graph.record(
        Draft("CheckpointCreated", {"name": name, "seq": taken.head.seq, "snapshotId": taken.id}), actor=by
    )
    own = [old for old, _ in store.snapshots.checkpoints() if _OWN_CHECKPOINT.fullmatch(old)]
    store.snapshots.unmark(own[: 1 - _KEPT])
    store.snapshots.mark(name, taken.head, taken.id, store.now())
    return name


def _iteration(
    applied: tuple[Proposal, ...], reweighted: int, checkpoint: str | None, before: int, after: int
) -> Iteration:
    return Iteration(
        applied=applied, reweighted=reweighted, checkpoint=checkpoint, valid=not after,
        violations_before=before, violations_after=after,
    )  # fmt: skip


# ------------------------------------------------------------------------------ structural edits


def _node(graph: Verbs, id: object, what: str) -> Node:
    node = graph.store.projection.node(known(graph.store, id, what))
    assert node is not None
    return node


def _node_body(node: Node, **changes: Any) -> dict[str, Any]:
    body = {
        "id": node.id, "kind": node.kind, "label": node.label, "payload": node.payload,
        "tags": list(node.tags), "status": node.status,
        "embedding": None if node.embedding is None else list(node.embedding),
    }  # fmt: skip
    return body | changes


def _zones_joined(graph: Verbs, old: str, new: str) -> list[Draft]:
    """Let a node stand in every zone that another one stands in: no edit leads out of a policy."""
    policies = graph.store.projection.policies
    inside = {fence.name for fence in policies.zones_of(new)}
    return [
        Draft("ZoneMembership", {"zone": fence.name, "node": new, "op": "add"})
        for fence in policies.zones_of(old)
        if fence.name not in inside
    ]


def _moved(graph: Verbs, edge: Edge, *, stat: Stat | None = None, **ends: str) -> list[Draft]:
    """Let an edge begin or end elsewhere, as strict as it was; with its statistic, if that is given."""
    body: dict[str, Any] = {
        "id": edge.id, "src": edge.src, "dst": edge.dst, "kind": edge.kind, "label": edge.label,
        "guard": edge.guard, "enforcement": edge.enforcement, "weight": edge.weight,
    } | ends  # fmt: skip
    if stat is not None:
        body |= {"stat": to_json(stat), "learned_weight": edge.learned_weight}
    drafts = [Draft("EdgeRemoved", {"id": edge.id}), Draft("EdgeUpserted", body)]
    if edge.learned_enforcement is not None:
        drafts += _hardening(edge.id)
    lock = graph.store.projection.policies.locks().get(("edge", edge.id))
    if lock is not None:
        drafts.append(Draft("PolicyLocked", {"scope": "edge", "id": edge.id, "reason": lock.reason}))
    return drafts


def _joined_body(graph: Verbs, stays: Node, other: Node) -> dict[str, Any]:
    payload = stays.payload
    if isinstance(stays.payload, Mapping) and isinstance(other.payload, Mapping):
        payload = {**other.payload, **stays.payload}
    body = _node_body(
        stays,
        payload=_stored_form(graph.store, payload),
        tags=arguments.tags([*stays.tags, *other.tags]),
        embedding=next((list(n.embedding) for n in (stays, other) if n.embedding is not None), None),
    )
    mine, theirs = (graph.store.projection.stat("node", node.id) for node in (stays, other))
    if theirs is not None:
        body["stat"] = to_json(scoring.joined(mine or Stat(), theirs))
    return body


def _refuse_merged_cycle(graph: Verbs, one: str, other: str) -> None:
    """A path between the two that passes another node would close when they become one."""
    out, back = graph.store.projection.out_ids, graph.store.projection.in_ids
    between = {one, other}

    def ahead(node: str) -> list[str]:
        return [dst for dst in out(node, "dependency") if {node, dst} != between]

    def behind(node: str) -> list[str]:
        return [src for src in back(node, "dependency") if {node, src} != between]

    for start, goal in ((one, other), (other, one)):
        path = algorithms.find_path(start, goal, ahead, behind)
        if path is not None:
            refuse(
                f"{one!r} and {other!r} cannot become one: {' -> '.join(path)}",
                ErrorCode.CYCLE_REJECTED,
                cycle=path,
            )


def _cursors_to(graph: Verbs, old: str, new: str) -> list[Draft]:
    """Let every cursor on a node stand on another one."""
    drafts = []
    for actor in graph.store.survey().actors_on(old):
        nodes = [new if node == old else node for node in graph.store.projection.cursor(actor).nodes]
        drafts.append(Draft("CursorMoved", {"set": list(dict.fromkeys(nodes)), "cursor": actor}))
    return drafts


def _migrated(graph: Verbs, node_id: str, apply: Callable[[Any], Json]) -> dict[str, Any] | None:
    """Return the node's new body, None if its payload stays as it is."""
    node = _node(graph, node_id, "node")
    before = encode(node.payload)
    try:
        payload = apply(node.payload)
    except Exception as error:
        refuse(
            f"the function failed on node {node_id!r}: {type(error).__name__}: {error}",
            ErrorCode.MIGRATION_ERROR,
            node=node_id,
        )
    if payload is None or (payload == {} and before != b"{}"):
        refuse(
            f"the function answered {shown(payload)} for node {node_id!r}, whose payload is not empty",
            ErrorCode.MIGRATION_ERROR,
            node=node_id,
        )
    value = _stored_form(graph.store, payload)
    return None if encode(value) == before else _node_body(node, payload=value)


def _tagged(graph: Verbs, id: str, pinned: bool, actor: str | None, cause: str | None) -> Result[Node]:
    node = _node(graph, id, "node")
    if ("pinned" in node.tags) == pinned:
        return Ok(node)
    tags = [*node.tags, "pinned"] if pinned else [tag for tag in node.tags if tag != "pinned"]
    body = _node_body(node, tags=arguments.tags(tags))
    graph.record(Draft("NodeUpserted", body), actor=actor, cause=cause)
    return Ok(_node(graph, node.id, "node"))
