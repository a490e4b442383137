"""Structure: transition edges that can be walked, dependency edges that order work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphstate import algorithms, guards
from graphstate.errors import ErrorCode, GuardError
from graphstate.events import Draft, is_valid_id
from graphstate.model import Edge, EdgeKind, Enforcement, Topology
from graphstate.results import Ok, Result
from graphstate.store import Store
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.memory import expect, known
from graphstate.verbs.verb import Verbs, query, verb

__all__ = ("Structure",)

EDGE_KINDS = ("transition", "dependency", "reference")
MODES = ("off", "soft", "hard")


class Structure(Verbs):
    """link, depend, unlink and the questions about order."""

    __slots__ = ()

    @verb
    def link(
        self,
        src: str,
        dst: str,
        *,
        id: str | None = None,
        kind: EdgeKind = "transition",
        label: str | None = None,
        guard: str | None = None,
        enforcement: Enforcement | None = None,
        weight: float | None = None,
        upsert: bool = False,
        expect_version: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Edge]:
        """Add an edge and return it.

        Several edges between the same nodes are fine, and so is a transition from a node to
        itself. A dependency that would close a cycle is refused with the path.

        Args:
            id: Made up if absent. A taken id is DuplicateId, unless ``upsert`` is set; an
                edge that gets other ends forgets what was learned about it.
            guard: Condition on the move, see describe()["guardDSL"]; None always passes.
            enforcement: What a failed guard does: off, soft or hard; None inherits
                ``defaultEnforcement``. ``off`` also opens the edge through zones.
            reason: Kept in the event.
            weight: The author's prior, finite and at least 0; 1 if absent.
            expect_version: Fail with Conflict unless the edge is at this version; 0 means
                that it must not exist.
        """
        return _link(
            self, src, dst, id=id, kind=kind, label=label, guard=guard, enforcement=enforcement,
            weight=weight, upsert=upsert, expect_version=expect_version, reason=reason, actor=actor,
            cause=cause,
        )  # fmt: skip

    @verb
    def depend(
        self,
        node: str,
        prereq: str,
        *,
        id: str | None = None,
        label: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Edge]:
        """Let a node depend on another and return the edge from prerequisite to node."""
        return _link(
            self, prereq, node, id=id, kind="dependency", label=label, guard=None, enforcement=None,
            weight=None, upsert=False, expect_version=None, reason=None, actor=actor, cause=cause,
        )  # fmt: skip

    @verb
    def unlink(
        self,
        edge_id: str,
        *,
        expect_version: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[bool]:
        """Remove an edge and what was learned about it.

        Args:
            expect_version: Fail with Conflict unless the edge is at this version.
            reason: Kept in the event.
        """
        edge = known_edge(self.store, edge_id)
        expect(expect_version, edge.version, f"edge {edge_id!r}")
        body = arguments.with_reason({"id": edge.id}, reason)
        self.record(Draft("EdgeRemoved", body), actor=actor, cause=cause)
        return Ok(True)

    @query
    def get_edge(self, edge_id: str) -> Edge | None:
        """Return an edge, None if there is none."""
        return self.store.projection.edge(edge_id) if is_valid_id(edge_id) else None

    @query
    def ready(self, done: Iterable[str] = ()) -> list[str]:
        """Return the active nodes not done whose prerequisites all are done, sorted.

        Raises:
            VerbFailed: InvalidInput.
        """
        return self.store.projection.ready(arguments.identifiers(done, "done"))

    @query
    def topo(self) -> Topology:
        """Return all nodes, prerequisites first."""
        nodes = self.store.projection.node_ids()
        order = algorithms.topological_order(nodes, self.store.projection.edges("dependency"))
        return Topology(order=tuple(order), cyclic=len(order) < len(nodes))

    @query
    def reachable(self, src: str, *, kind: EdgeKind = "transition") -> list[str]:
        """Return the nodes that one or more edges lead to, sorted; itself only on a cycle.

        Raises:
            VerbFailed: InvalidInput.
        """
        return _closure(self.store, src, kind, forward=True)

    @query
    def ancestors(self, of: str, *, kind: EdgeKind = "dependency") -> list[str]:
        """Return everything a node depends on, sorted.

        Raises:
            VerbFailed: InvalidInput.
        """
        return _closure(self.store, of, kind, forward=False)

    @query
    def descendants(self, of: str, *, kind: EdgeKind = "dependency") -> list[str]:
        """Return everything that depends on a node, sorted.

        Raises:
            VerbFailed: InvalidInput.
        """
        return _closure(self.store, of, kind, forward=True)


def known_edge(store: Store, edge_id: object) -> Edge:
    """Return the edge with an id, or fail with NotFound."""
    edge = store.projection.edge(arguments.identifier(edge_id, "edge id"))
    if edge is None:
        refuse(
            f"there is no edge {edge_id!r}", ErrorCode.NOT_FOUND, hint="see legal_moves for the edges at hand"
        )
    return edge


def _closure(store: Store, start: str, kind: str, *, forward: bool) -> list[str]:
    arguments.choice(kind, "kind", EDGE_KINDS)
    step = store.projection.out_ids if forward else store.projection.in_ids
    return sorted(algorithms.closure(arguments.identifier(start, "node id"), lambda node: step(node, kind)))


def _link(
    graph: Verbs, src: str, dst: str, *, id: str | None, kind: str, label: str | None, guard: str | None,
    enforcement: str | None, weight: float | None, upsert: bool, expect_version: int | None,
    reason: str | None, actor: str | None, cause: str | None,
) -> Result[Edge]:  # fmt: skip
    projection = graph.store.projection
    src, dst = known(graph.store, src, "source"), known(graph.store, dst, "target")
    kind = arguments.choice(kind, "kind", EDGE_KINDS)
    prior = 1 if weight is None else arguments.number(weight, "weight", least=0)
    if guard is not None:
        guard = _compiled(guard)
    if enforcement is not None:
        enforcement = arguments.choice(enforcement, "enforcement", MODES)
    old = None if id is None else projection.edge(arguments.identifier(id, "edge id"))
    current = old.version if old else 0
    expect(expect_version, current, f"edge {id!r}")
    if old is not None and not upsert and expect_version is None:
        refuse(f"edge {id!r} exists, from {old.src!r} to {old.dst!r}", ErrorCode.DUPLICATE_ID)
    if kind == "dependency":
        # Replacing an edge moves it, so the edge itself must not count on the path.
        _refuse_cycle(graph.store, src, dst, without=old)
    body: dict[str, Any] = {
        "id": id if id is not None else graph.store.ids.next("G"),
        "src": src,
        "dst": dst,
        "kind": kind,
        "label": "" if label is None else arguments.text(label, "label", arguments.MAX_LABEL),
        "guard": guard,
        "enforcement": enforcement,
        "weight": prior,
    }
    graph.record(Draft("EdgeUpserted", arguments.with_reason(body, reason)), actor=actor, cause=cause)
    edge = projection.edge(body["id"])
    assert edge is not None
    return Ok(edge)


def _compiled(guard: object) -> str:
    try:
        return guards.compile_guard(guard).text
    except GuardError as error:
        refuse(f"guard: {error}", ErrorCode.GUARD_PARSE_ERROR)


def _refuse_cycle(store: Store, src: str, dst: str, *, without: Edge | None) -> None:
    path = store.projection.dependencies.path(dst, src, without=without)
    if path is not None:
        cycle = [src, *path]
        refuse(
            f"{dst!r} cannot depend on {src!r}: {' -> '.join(cycle)}",
            ErrorCode.CYCLE_REJECTED,
            cycle=cycle,
        )
