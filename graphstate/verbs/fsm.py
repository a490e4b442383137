"""Moving: cursors, legal moves and transitions along edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from graphstate import policy
from graphstate._canonical import Json, decode
from graphstate.errors import ErrorCode
from graphstate.events import Draft
from graphstate.model import Blocked, Edge, Move, Outcome, Trace, to_json
from graphstate.policy import Decision, Rule
from graphstate.results import Ok, Result
from graphstate.store.projection import StatState
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.judge import Judge
from graphstate.verbs.memory import known
from graphstate.verbs.structure import known_edge
from graphstate.verbs.verb import Verbs, answer, query, verb

__all__ = (
    "Moving", "candidates", "checked_vars", "chosen", "denied", "moved", "moving_actor", "settle_attempts",
)  # fmt: skip

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
        self,
        nodes: Iterable[str],
        *,
        expect_nodes: Iterable[str] | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[list[str]]:
        """Put an actor's cursor on active nodes and return them; none clears it.

        This is no move: guards and zones are not asked. It is recorded with who did it and
        why. What is locked holds: models, tools and imports cannot set a locked cursor, nor
        carry one over the boundary of a locked zone.

        Args:
            expect_nodes: Fail with Conflict unless the cursor stands on these nodes now, in any
                order; none means nowhere.
            reason: Kept in the event.
        """
        actor = moving_actor(self, actor)
        _expect_nodes(self, actor, expect_nodes)
        wanted = arguments.identifiers(nodes, "nodes")
        for node in wanted:
            known(self.store, node)
            _require_active(self, node)
        body = arguments.with_reason({"set": wanted}, reason)
        self.record(Draft("CursorMoved", body), actor=actor, cause=cause)
        return Ok(wanted)

    @query
    def legal_moves(self, *, vars: Mapping[str, Json] | None = None, actor: str | None = None) -> list[Move]:
        """Return every edge the cursor may take now, in the order of heads and edges.

        Denied ones are left out; `explain_transition` says why.

        Args:
            vars: What guards read as ``vars``.
        """
        return [
            Move(edge_id=edge.id, to=edge.dst, from_=edge.src, decision=trace.decision,
                 enforcement=trace.effective_enforcement)
            for edge, _, trace in candidates(self, moving_actor(self, actor), checked_vars(vars))
        ]  # fmt: skip

    @verb
    def transition(
        self,
        to: str | None = None,
        *,
        edge_id: str | None = None,
        head: str | None = None,
        vars: Mapping[str, Json] | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Outcome]:
        """Move the cursor along an edge.

        Named by target, the best allowed of the edges from the cursor is taken, the oldest of
        equals. Only the head at the start of that edge moves. A denied move is Ok with
        ``applied`` False and the code HardBlocked in its trace; the attempt is recorded, at
        most 10 for an edge and minute, the others as one sum.

        Where a rule applied, the event holds digests of the decision and of the rules that
        led to it, and one of ``vars`` where they were given, never ``vars`` themselves.

        Args:
            to: The target; may be left out when the edge is named.
            edge_id: The very edge to take.
            head: The head that shall move, if the cursor has several.
            vars: What guards read as ``vars``.
        """
        actor = moving_actor(self, actor)
        judge = Judge(self.store.projection, checked_vars(vars))
        edge, decision = chosen(self, judge, to, edge_id, actor, head=head)
        return Ok(moved(self, judge, edge, decision, actor=actor, cause=cause))

    @answer
    def explain_transition(
        self,
        to: str | None = None,
        *,
        edge_id: str | None = None,
        head: str | None = None,
        vars: Mapping[str, Json] | None = None,
        actor: str | None = None,
    ) -> Result[Trace]:
        """Return the decision a transition would get. Changes nothing."""
        judge = Judge(self.store.projection, checked_vars(vars))
        return Ok(chosen(self, judge, to, edge_id, moving_actor(self, actor), head=head)[1].trace)


def moving_actor(graph: Verbs, actor: str | None) -> str:
    """Return whose cursor is meant."""
    return graph.actor if actor is None else arguments.identifier(actor, "actor")


def checked_vars(vars: object) -> Mapping[str, Json] | None:
    """Return what guards shall read as ``vars``, or fail with InvalidInput."""
    if not vars and (vars is None or isinstance(vars, Mapping)):
        return None
    if not isinstance(vars, Mapping):
        refuse(f"vars must be an object, not {type(vars).__name__}")
    data = arguments.json_bytes(vars, "vars")
    if len(data) > arguments.MAX_VARS:
        refuse(f"vars have {len(data)} bytes, more than the {arguments.MAX_VARS} allowed")
    return decode_object(data)


def decode_object(data: bytes) -> Mapping[str, Json]:
    """Return the object as it is written down: the guards see what the digest is made of."""
    value: Mapping[str, Json] = decode(data)
    return value


def _expect_nodes(graph: Verbs, actor: str, expected: Iterable[str] | None) -> None:
    stands = graph.store.projection.cursor(actor).nodes
    if expected is not None and set(arguments.identifiers(expected, "expect_nodes")) != set(stands):
        place = f"on {', '.join(stands)}" if stands else "nowhere"
        refuse(f"the cursor of {actor!r} stands {place}", ErrorCode.CONFLICT, current=list(stands))


def _require_active(graph: Verbs, node: str) -> None:
    status = graph.store.projection.status(node)
    if status != "active":
        refuse(f"{node!r} is {status}, only an active node can be entered", ErrorCode.ILLEGAL_TRANSITION)


def candidates(
    graph: Verbs, actor: str, vars: Mapping[str, Json] | None = None
) -> list[tuple[Edge, StatState, Trace]]:
    """Return the edges that may be taken, with statistic and decision.

    Reads memory only, and the payloads of both ends where an edge has a guard.
    """
    projection, allowed = graph.store.projection, policy.ALLOWED.trace
    moves = projection.moves(actor)
    if not projection.policies.fences():
        free = [(edge, stat, allowed) for edge, stat in moves if edge.guard is None]
        if len(free) == len(moves):
            return free
    judge = Judge(projection, vars)
    judged = [(edge, stat, judge.decide(edge).trace) for edge, stat in moves]
    return [move for move in judged if move[2].decision != "deny"]


def denied(graph: Verbs, actor: str, vars: Mapping[str, Json] | None = None) -> list[Blocked]:
    """Return the edges from an actor's cursor that are denied now, with the reasons."""
    judge = Judge(graph.store.projection, vars)
    found = [(edge, judge.decide(edge).trace) for edge, _ in graph.store.projection.moves(actor)]
    return [
        Blocked(edge_id=edge.id, to=edge.dst, from_=edge.src, reasons=trace.reasons)
        for edge, trace in found
        if trace.decision == "deny"
    ]


def chosen(
    graph: Verbs, judge: Judge, to: str | None, edge_id: str | None, actor: str, *, head: str | None = None
) -> tuple[Edge, Decision]:
    """Return the edge a transition takes and the decision about it, or fail."""
    projection, named = graph.store.projection, None
    if edge_id is not None:
        edge = named = known_edge(graph.store, edge_id)
        if to is not None and to != edge.dst:
            refuse(f"edge {edge_id!r} leads to {edge.dst!r}, not to {to!r}")
        to = edge.dst
    elif to is None:
        refuse("say where to: a node, or edge_id")
    else:
        to = known(graph.store, to, "target")
    _require_active(graph, to)
    heads = projection.cursor(actor).nodes
    if head is not None:
        arguments.identifier(head, "head")
        heads = tuple(node for node in heads if node == head)
    if named is not None:
        if named.src in heads and named.kind == "transition" and projection.status(named.src) == "active":
            return named, judge.decide(named)
        _refuse_no_edge(graph, to, edge_id, heads, head)
    found: list[tuple[Edge, Decision]] = []
    for node in heads:
        if projection.status(node) == "active":
            found += [(edge, judge.decide(edge)) for edge in projection.moves_out(node) if edge.dst == to]
    if not found:
        _refuse_no_edge(graph, to, edge_id, heads, head)
    return found[0] if len(found) == 1 else min(found, key=lambda item: _RANK[item[1].trace.decision])


def _refuse_no_edge(
    graph: Verbs, to: str, edge_id: str | None, heads: Iterable[str], head: str | None
) -> NoReturn:
    via = f" by edge {edge_id!r}" if edge_id is not None else ""
    nowhere = "nowhere" if head is None else f"{head!r}, where no head stands,"
    shown = ", ".join(
        node if (status := graph.store.projection.status(node)) == "active" else f"{node} ({status})"
        for node in heads
    )
    refuse(
        f"no transition edge leads from {shown or nowhere} to {to!r}{via}",
        ErrorCode.ILLEGAL_TRANSITION,
        hint=NO_EDGE,
    )


def moved(
    graph: Verbs,
    judge: Judge,
    edge: Edge,
    decision: Decision,
    *,
    actor: str,
    cause: str | None,
    choice: Json = None,
) -> Outcome:
    """Record a move with what it teaches the rules, or the attempt if it is denied."""
    trace = decision.trace
    if trace.decision == "deny":
        _record_attempt(graph, judge, edge, decision, actor=actor, cause=cause)
    else:
        body: dict[str, Any] = {
            "edgeId": edge.id, "from": edge.src, "to": edge.dst, "clean": trace.decision != "warn",
        }  # fmt: skip
        if choice is not None:
            body["choice"] = choice
        if judge.vars:
            body["vars"] = policy.digest(judge.vars)
        if decision.basis is None:
            drafts = [Draft("TransitionTaken", body)]
        else:
            drafts = _governed(judge, edge, decision, body)
        graph.record(*drafts, actor=actor, cause=cause)
    return Outcome(
        applied=trace.decision != "deny", soft_warned=trace.decision == "warn", from_=edge.src,
        to=edge.dst, edge_id=edge.id, trace=trace,
    )  # fmt: skip


def _governed(judge: Judge, edge: Edge, decision: Decision, body: dict[str, Any]) -> list[Draft]:
    """Return the events of a move that rules had a say in."""
    body |= _digests(decision)
    drafts = [Draft("TransitionTaken", body)]
    if decision.clean:
        body["cleanRules"] = _listed(decision.clean)
    if decision.trace.decision == "warn":
        reason = "; ".join(decision.trace.reasons)
        violation = {"edgeId": edge.id, "reason": reason, "rules": _listed(decision.objecting)}
        drafts.insert(0, Draft("SoftViolation", violation))
    for mode, rules in (("hard", judge.hardened(decision)), (None, judge.relaxed(decision))):
        for rule in rules:
            change = {"scope": rule.scope, "id": rule.id, "mode": mode, "learned": True}
            drafts.append(Draft("EnforcementChanged", change))
    return drafts


def _digests(decision: Decision) -> dict[str, Json]:
    return {"decision": policy.digest(to_json(decision.trace)), "policy": policy.digest(decision.basis)}


def _listed(rules: Iterable[Rule]) -> list[Json]:
    return [list(rule) for rule in rules]


def _record_attempt(
    graph: Verbs, judge: Judge, edge: Edge, decision: Decision, *, actor: str, cause: str | None
) -> None:
    policies, now = graph.store.projection.policies, graph.store.now()
    settle_attempts(graph, now)
    if not policies.attempt(edge, now):
        return
    body: dict[str, Any] = {
        "edgeId": edge.id, "from": edge.src, "to": edge.dst, "reason": "; ".join(decision.trace.reasons),
    } | _digests(decision)  # fmt: skip
    if judge.vars:
        body["vars"] = policy.digest(judge.vars)
    if decision.objecting:
        body["rules"] = _listed(decision.objecting)
    graph.record(Draft("BlockedAttempt", body), actor=actor, cause=cause)


def settle_attempts(graph: Verbs, now: int | None = None) -> None:
    """Record one event for the attempts on each edge that have none; only of past minutes with ``now``."""
    projection = graph.store.projection
    for edge_id, count in projection.policies.due(now):
        edge = known_edge(graph.store, edge_id)
        reason = f"{count} more attempts"
        body = {"edgeId": edge.id, "from": edge.src, "to": edge.dst, "count": count, "reason": reason}
        graph.record(Draft("BlockedAttempt", body))
        projection.policies.told(edge_id)
