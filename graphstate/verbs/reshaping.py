"""Reshaping: edits of the structure that keep what was learned and what is forbidden.

An edge that gets another end keeps its id, guard, modes and lock; a node that takes over another
one, or is its copy, stands in the same zones. So no edit leads out of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import structs

from graphstate import algorithms, scoring
from graphstate._canonical import Json, encode
from graphstate.errors import ErrorCode, shown
from graphstate.events import Draft
from graphstate.model import Edge, MergedStates, Migrated, Node, Split, Stat, to_json
from graphstate.policy import TRUST, lowest
from graphstate.results import Ok, Result
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.embedding import copied_vector, outdated
from graphstate.verbs.memory import _stored_form, expect, known
from graphstate.verbs.verb import Verbs, synced_verb, verb

__all__ = ("Reshaping", "hardening", "node_body", "the_node")

_SPLIT = " (split)"


class Reshaping(Verbs):
    """split_state, merge_states, migrate."""

    __slots__ = ()

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
        node = the_node(self, node_id, "node")
        expect(expect_version, node.version, f"node {node.id!r}")
        copy = arguments.identifier(new_id, "new id")
        if self.store.projection.status(copy) is not None:
            refuse(f"node {copy!r} exists", ErrorCode.DUPLICATE_ID)
        wanted = dict.fromkeys(arguments.identifiers(edge_ids, "edge_ids"))
        found = [self.store.projection.edge(edge) for edge in wanted]
        moved = [edge for edge in found if edge is not None and edge.src == node.id]
        label = arguments.shortened(node.label, arguments.MAX_LABEL - len(_SPLIT)) + _SPLIT
        body = node_body(node, id=copy, label=label, status="active")
        if node.memory is not None:
            body["memory"] = to_json(node.memory)
        body |= copied_vector(self.store, node.embedding)
        drafts = [Draft("NodeUpserted", body)]
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
        is added up. If dependencies or supersessions would form a cycle nothing changes: CycleRejected.

        Args:
            into: The node that stays; it must be active.
            expect_version: Fail with Conflict unless that node is at this version.
            expect_gone_version: The same for the other node.
        """
        stays, other = the_node(self, into, "node that stays"), the_node(self, gone, "node that goes")
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


def the_node(graph: Verbs, id: object, what: str) -> Node:
    node = graph.store.projection.node(known(graph.store, id, what))
    assert node is not None
    return node


def node_body(node: Node, **changes: Any) -> dict[str, Any]:
    body = {
        "id": node.id, "kind": node.kind, "label": node.label, "payload": node.payload,
        "tags": list(node.tags), "status": node.status,
    }  # fmt: skip
    # Who copies or edits what others wrote does not vouch for it.
    return body | ({} if node.trust == TRUST[0] else {"trust": node.trust}) | changes


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
        drafts += hardening(edge.id)
    lock = graph.store.projection.policies.locks().get(("edge", edge.id))
    if lock is not None:
        drafts.append(Draft("PolicyLocked", {"scope": "edge", "id": edge.id, "reason": lock.reason}))
    return drafts


def _joined_body(graph: Verbs, stays: Node, other: Node) -> dict[str, Any]:
    payload = stays.payload
    if isinstance(stays.payload, Mapping) and isinstance(other.payload, Mapping):
        payload = {**other.payload, **stays.payload}
    body = _with_payload(graph, stays, _stored_form(graph.store, payload))
    body["tags"] = arguments.tags([*stays.tags, *other.tags])
    if stays.embedding is None and other.embedding is not None:
        body |= copied_vector(graph.store, other.embedding)
    if other.trust != TRUST[0]:
        body["trust"] = lowest(stays.trust, other.trust)
    mine, theirs = (graph.store.projection.stat("node", node.id) for node in (stays, other))
    if theirs is not None:
        body["stat"] = to_json(scoring.joined(mine or Stat(), theirs))
    return body


def _refuse_merged_cycle(graph: Verbs, one: str, other: str) -> None:
    """A path between the two that passes another node would close when they become one.

    So of dependencies, and of supersessions, which would leave no node on it in its place.
    """
    projection = graph.store.projection
    relations: tuple[tuple[Callable[[str], list[str]], Callable[[str], list[str]]], ...] = (
        (
            lambda node: projection.out_ids(node, "dependency"),
            lambda node: projection.in_ids(node, "dependency"),
        ),
        (projection.successions.successors, projection.successions.predecessors),
    )
    between = {one, other}
    for out, back in relations:

        def ahead(node: str, out: Callable[[str], list[str]] = out) -> list[str]:
            return [dst for dst in out(node) if {node, dst} != between]

        def behind(node: str, back: Callable[[str], list[str]] = back) -> list[str]:
            return [src for src in back(node) if {node, src} != between]

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


def _with_payload(graph: Verbs, node: Node, payload: Json) -> dict[str, Any]:
    body = node_body(node, payload=payload)
    if outdated(graph.store, node, structs.replace(node, payload=payload)):
        body["embedding"] = None
    return body


def _migrated(graph: Verbs, node_id: str, apply: Callable[[Any], Json]) -> dict[str, Any] | None:
    """Return the node's new body, None if its payload stays as it is."""
    node = the_node(graph, node_id, "node")
    before = encode(node.payload)
    try:
        payload = apply(node.payload)
    except Exception as error:
        refuse(
            f"the function failed on node {node_id!r}: {shown(error)}",
            ErrorCode.MIGRATION_ERROR,
            node=node_id,
        )
    if payload is None or (payload == {} and before != b"{}"):
        refuse(
            f"the function answered {shown(payload)} for node {node_id!r}: it must return the new payload, "
            "and cannot empty one",
            ErrorCode.MIGRATION_ERROR,
            node=node_id,
        )
    value = _stored_form(graph.store, payload)
    return None if encode(value) == before else _with_payload(graph, node, value)


def hardening(edge: str) -> list[Draft]:
    """What was learned stands beside the declared mode, and relaxes by itself."""
    return [Draft("EnforcementChanged", {"scope": "edge", "id": edge, "mode": "hard", "learned": True})]
