"""Moving: cursors, legal moves and transitions along edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphstate import policy
from graphstate._canonical import Json
from graphstate.errors import ErrorCode
from graphstate.events import Draft
from graphstate.model import Edge, Move, Outcome, Trace
from graphstate.results import Ok, Result
from graphstate.store.projection import StatState
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.memory import known
from graphstate.verbs.structure import known_edge
from graphstate.verbs.verb import Verbs, answer, query, verb

__all__ = ("Moving", "candidates", "chosen", "moved", "moving_actor")

NO_EDGE = "see legal_moves for where the cursor can go; link adds an edge, set_cursor moves the cursor"

_RANK = {"allow": 0, "warn": 1, "deny": 2}


class Moving(Verbs):
    """set_cursor, transition and what they would do."""

    __slots__ = ()

    @query
    def cursor(self, *, actor: str | None = None) -> list[str]:
        """Return where an actor stands, none, one or several nodes."""
        return list(self.store.projection.cursor(moving_actor(self, actor)).nodes)

    @verb
    def set_cursor(
        self, nodes: Iterable[str], *, actor: str | None = None, cause: str | None = None
    ) -> Result[list[str]]:
        """Put an actor's cursor on active nodes and return them; none clears it."""
        actor = moving_actor(self, actor)
        wanted = arguments.identifiers(nodes, "nodes")
        for node in wanted:
            known(self.store, node)
            _require_active(self, node)
        self.record(Draft("CursorMoved", {"set": wanted}), actor=actor, cause=cause)
        return Ok(wanted)

    @query
    def legal_moves(self, *, vars: Mapping[str, Json] | None = None, actor: str | None = None) -> list[Move]:
        """Return every edge the cursor may take now, in the order of heads and edges."""
        _check_vars(vars)
        return [
            Move(edge_id=edge.id, to=edge.dst, from_=edge.src, decision=trace.decision,
                 enforcement=trace.effective_enforcement)
            for edge, _, trace in candidates(self, moving_actor(self, actor))
        ]  # fmt: skip

    @verb
    def transition(
        self,
        to: str | None = None,
        *,
        edge_id: str | None = None,
        vars: Mapping[str, Json] | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Outcome]:
        """Move the cursor along an edge.

        Named by target, the best allowed of the edges from the cursor is taken, the oldest of
        equals. Only the head at the start of that edge moves. A denied move is Ok with
        ``applied`` False.

        Args:
            to: The target; may be left out when the edge is named.
            edge_id: The very edge to take.
        """
        actor = moving_actor(self, actor)
        _check_vars(vars)
        edge, trace = chosen(self, to, edge_id, actor)
        return Ok(moved(self, edge, trace, actor=actor, cause=cause))

    @answer
    def explain_transition(
        self,
        to: str | None = None,
        *,
        edge_id: str | None = None,
        vars: Mapping[str, Json] | None = None,
        actor: str | None = None,
    ) -> Result[Trace]:
        """Return the decision a transition would get. Changes nothing."""
        _check_vars(vars)
        return Ok(chosen(self, to, edge_id, moving_actor(self, actor))[1])


def moving_actor(graph: Verbs, actor: str | None) -> str:
    """Return whose cursor is meant."""
    return graph.actor if actor is None else arguments.identifier(actor, "actor")


def _check_vars(vars: object) -> None:
    if vars is not None:
        if not isinstance(vars, Mapping):
            refuse(f"vars must be an object, not {type(vars).__name__}")
        arguments.json_bytes(vars, "vars")


def _require_active(graph: Verbs, node: str) -> None:
    status = graph.store.projection.status(node)
    if status != "active":
        refuse(f"{node!r} is {status}, only an active node can be entered", ErrorCode.ILLEGAL_TRANSITION)


def candidates(graph: Verbs, actor: str) -> list[tuple[Edge, StatState, Trace]]:
    """Return the edges that may be taken, with statistic and decision. Reads memory only."""
    found: list[tuple[Edge, StatState, Trace]] = []
    for edge, stat in graph.store.projection.moves(actor):
        trace = policy.decide(edge, stat.softs)
        if trace.decision != "deny":
            found.append((edge, stat, trace))
    return found


def chosen(graph: Verbs, to: str | None, edge_id: str | None, actor: str) -> tuple[Edge, Trace]:
    """Return the edge a transition takes and the decision about it, or fail."""
    projection = graph.store.projection
    if edge_id is not None:
        edge = known_edge(graph.store, edge_id)
        if to is not None and to != edge.dst:
            refuse(f"edge {edge_id!r} leads to {edge.dst!r}, not to {to!r}")
        to = edge.dst
    elif to is None:
        refuse("say where to: a node, or edge_id")
    else:
        to = known(graph.store, to, "target")
    _require_active(graph, to)
    found: list[tuple[Edge, Trace]] = []
    for head in projection.cursor(actor).nodes:
        for edge in projection.moves_out(head):
            if edge.dst == to and (edge_id is None or edge.id == edge_id):
                found.append((edge, policy.decide(edge, projection.live_stat(edge.id).softs)))
    if not found:
        heads = ", ".join(projection.cursor(actor).nodes) or "nowhere"
        via = f" by edge {edge_id!r}" if edge_id is not None else ""
        refuse(
            f"no transition edge leads from {heads} to {to!r}{via}",
            ErrorCode.ILLEGAL_TRANSITION,
            hint=NO_EDGE,
        )
    return min(found, key=lambda item: _RANK[item[1].decision])


def moved(
    graph: Verbs, edge: Edge, trace: Trace, *, actor: str, cause: str | None, choice: Json = None
) -> Outcome:
    """Record a move, or the attempt if it is denied."""
    reason = "; ".join(trace.reasons)
    if trace.decision == "deny":
        body: dict[str, Any] = {"edgeId": edge.id, "from": edge.src, "to": edge.dst, "reason": reason}
        graph.record(Draft("BlockedAttempt", body), actor=actor, cause=cause)
    else:
        warned = trace.decision == "warn"
        body = {"edgeId": edge.id, "from": edge.src, "to": edge.dst, "clean": not warned}
        if choice is not None:
            body["choice"] = choice
        drafts = [Draft("TransitionTaken", body)]
        if warned:
            drafts.insert(0, Draft("SoftViolation", {"edgeId": edge.id, "reason": reason}))
        graph.record(*drafts, actor=actor, cause=cause)
    return Outcome(
        applied=trace.decision != "deny", soft_warned=trace.decision == "warn", from_=edge.src,
        to=edge.dst, edge_id=edge.id, trace=trace,
    )  # fmt: skip
