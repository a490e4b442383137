"""What an event from elsewhere must look like, one row for each type.

An event of our own is made by a verb that checked its arguments. One that comes in a bundle or
from a branch is checked here against the graph as it is at that moment: ids and sizes, words
and numbers, and that what it refers to exists. Keys that nobody knows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from graphstate.bundle import parsed_head
from graphstate.errors import ErrorCode, shown
from graphstate.store import Store
from graphstate.verbs import arguments
from graphstate.verbs.arguments import MAX_LABEL, MAX_NAME, refuse
from graphstate.verbs.intuition import MAX_REWARD
from graphstate.verbs.memory import STATUSES, known
from graphstate.verbs.restoring import about, check_row
from graphstate.verbs.structure import known_edge
from graphstate.verbs.values import (
    MAX_INT,
    SCOPES,
    Body,
    check_edge,
    check_experience,
    check_mode,
    check_node,
    check_nodes,
    check_tunable,
    field,
)

__all__ = ("EVENTS", "LOCKS", "OWN_AFFAIRS", "Event", "Key", "admit", "touched")

#: What an event changes: (node, id), (edge, id), (zone, name), (lock, what) or (tunable, key).
Key: TypeAlias = tuple[str, str]

MAX_TEXT = 65_536
MAXSCOPES = 100_000


class Event(NamedTuple):
    """How one type of event is checked, and what it changes."""

    check: Callable[[Store, Body], None]
    #: None for what adds up and so never contradicts anything
    touches: Callable[[Body], Key] | None = None
    #: the actor's cursor moves
    moves: bool = False


# ------------------------------------------------------------------------- nodes and edges


def _node_upserted(store: Store, body: Body) -> None:
    check_node(
        store, field(body, "id"), field(body, "kind"), field(body, "label"), field(body, "payload"),
        field(body, "tags"), field(body, "status"), field(body, "embedding"),
    )  # fmt: skip
    _inherited(body)


_COUNTS = ("visits", "successes", "failures", "soft_violations", "blocks", "rewarded_move")


def _inherited(body: Body) -> None:
    """What a node or an edge takes over from others, where two became one or an end moved."""
    stat = body.get("stat")
    if stat is not None:
        if not isinstance(stat, dict):
            refuse(f"stat must be an object, not {shown(stat)}")
        counts = [field(stat, name) for name in _COUNTS]
        check_experience(counts, field(stat, "ema_reward"), field(stat, "rewarded_by"))
    arguments.number(body.get("learned_weight", 0), "learned_weight")


def _node_status_changed(store: Store, body: Body) -> None:
    known(store, field(body, "id"))
    arguments.choice(field(body, "status"), "status", STATUSES)


def _edge_upserted(store: Store, body: Body) -> None:
    check_edge(
        store, field(body, "id"), field(body, "src"), field(body, "dst"), field(body, "kind"),
        field(body, "label"), field(body, "guard"), field(body, "enforcement"), field(body, "weight"),
    )  # fmt: skip
    _inherited(body)


def _edge_removed(store: Store, body: Body) -> None:
    known_edge(store, field(body, "id"))


# ------------------------------------------------------------------------- zones and modes


def _zone_defined(store: Store, body: Body) -> None:
    arguments.identifier(field(body, "name"), "zone name")
    for node in arguments.identifiers(field(body, "members"), "members"):
        known(store, node)
    check_mode(field(body, "intra"), "intra")
    check_mode(field(body, "boundary"), "boundary")


def _zone_membership(store: Store, body: Body) -> None:
    name = arguments.identifier(field(body, "zone"), "zone name")
    node = arguments.identifier(field(body, "node"), "node")
    if arguments.choice(field(body, "op"), "op", ("add", "remove")) == "add":
        known(store, node)
    if name not in store.projection.policies.fences():
        refuse(f"there is no zone {name!r}", ErrorCode.ZONE_NOT_FOUND)


def _enforcement_changed(store: Store, body: Body) -> None:
    scope = arguments.choice(field(body, "scope"), "scope", SCOPES)
    if scope == "edge":
        known_edge(store, field(body, "id"))
    else:
        arguments.identifier(field(body, "id"), "zone name")
    if field(body, "mode") is not None:
        check_mode(body["mode"], "mode")
    _flag(body.get("learned", False), "learned")


def _zone_deleted(store: Store, body: Body) -> None:
    arguments.identifier(field(body, "name"), "zone name")


def _policy_locked(store: Store, body: Body) -> None:
    _policy_unlocked(store, body)
    arguments.text(field(body, "reason"), "reason", MAX_LABEL)


def _policy_unlocked(store: Store, body: Body) -> None:
    arguments.choice(field(body, "scope"), "scope", ("edge", "zone", "tunables", "cursor"))
    arguments.text(field(body, "id"), "id", MAX_NAME)


def _flag(value: object, what: str) -> None:
    if not isinstance(value, bool):
        refuse(f"{what} must be true or false, not {shown(value)}")


def _rules(rules: object) -> None:
    if not isinstance(rules, list):
        refuse(f"rules must be a list, not {shown(rules)}")
    for rule in rules:
        if not isinstance(rule, list) or len(rule) != 2 or not all(isinstance(part, str) for part in rule):
            refuse(f"a rule must be a scope and an id, not {shown(rule)}")


# ------------------------------------------------------------------------- moves and rewards


def _cursor_moved(store: Store, body: Body) -> None:
    check_nodes(store, field(body, "set"), "set")
    if "cursor" in body:
        arguments.identifier(body["cursor"], "actor")


def _ends(store: Store, body: Body) -> None:
    edge = known_edge(store, field(body, "edgeId"))
    ends = (field(body, "from"), field(body, "to"))
    if edge.kind != "transition" or ends not in ((edge.src, edge.dst), (None, edge.dst)):
        refuse(f"edge {edge.id!r} is a {edge.kind} from {edge.src!r} to {edge.dst!r}, not {shown(ends)}")


def _transition_taken(store: Store, body: Body) -> None:
    _ends(store, body)
    _flag(field(body, "clean"), "clean")
    _rules(body.get("cleanRules", []))


def _blocked_attempt(store: Store, body: Body) -> None:
    _ends(store, body)
    arguments.text(field(body, "reason"), "reason", MAX_TEXT)
    arguments.whole(body.get("count", 1), "count", least=1, most=MAX_INT)
    _rules(body.get("rules", []))


def _soft_violation(store: Store, body: Body) -> None:
    known_edge(store, field(body, "edgeId"))
    arguments.text(field(body, "reason"), "reason", MAX_TEXT)
    _rules(body.get("rules", []))


def _reward_applied(store: Store, body: Body) -> None:
    arguments.number(field(body, "value"), "value", least=-MAX_REWARD, most=MAX_REWARD)
    arguments.number(field(body, "alpha"), "alpha", least=0, most=1)
    scopes = field(body, "scopes")
    if not isinstance(scopes, list) or len(scopes) > MAXSCOPES:
        refuse(f"scopes must be a list of at most {MAXSCOPES}, not {shown(scopes)}")
    for scope in scopes:
        if not isinstance(scope, dict):
            refuse(f"a scope must be an object, not {shown(scope)}")
        arguments.choice(field(scope, "kind"), "kind of a scope", ("node", "edge"))
        # A reward may reach back to an edge that is gone; it then teaches nothing.
        arguments.identifier(field(scope, "id"), "id of a scope")
        arguments.number(field(scope, "weight"), "weight of a scope", least=0, most=1)


# ------------------------------------------------------------------------- settings and notes


def _config_set(store: Store, body: Body) -> None:
    check_tunable(field(body, "key"), field(body, "value"))


def _edges_reweighted(store: Store, body: Body) -> None:
    weights = field(body, "weights")
    if not isinstance(weights, dict):
        refuse(f"weights must be an object, not {shown(weights)}")
    for edge, weight in weights.items():
        arguments.identifier(edge, "edge id")
        arguments.number(weight, "weight")


def _migrated(store: Store, body: Body) -> None:
    arguments.name(field(body, "kind"), "kind")
    field(body, "toVersion")
    arguments.whole(field(body, "migrated"), "migrated", least=0, most=MAX_INT)


def _merged(store: Store, body: Body) -> None:
    _taken_over(body, "merged")


def _imported(store: Store, body: Body) -> None:
    _taken_over(body, "imported")


def _taken_over(body: Body, count: str) -> None:
    arguments.identifier(field(body, "origin"), "origin")
    for number in ("from", count):
        arguments.whole(field(body, number), number, least=0, most=MAX_INT)
    upto = arguments.whole(field(body, "to"), "to", least=0, most=MAX_INT)
    if parsed_head(field(body, "head")) is None and upto:
        refuse(f"head must be a number and 64 hexadecimal digits, not {shown(body['head'])}")


# ------------------------------------------------------------------------- the table


def _of(kind: str, field: str) -> Callable[[Body], Key]:
    return lambda body: (kind, str(body.get(field)))


def _of_scope(body: Body) -> Key:
    return ("edge" if body.get("scope") == "edge" else "zone", str(body.get("id")))


def _of_lock(body: Body) -> Key:
    return "lock", f"{body.get('scope')} {body.get('id')}"


#: Every type of event that is taken over. Others are refused.
EVENTS: Mapping[str, Event] = {
    "NodeUpserted": Event(_node_upserted, _of("node", "id")),
    "NodeStatusChanged": Event(_node_status_changed, _of("node", "id")),
    "EdgeUpserted": Event(_edge_upserted, _of("edge", "id")),
    "EdgeRemoved": Event(_edge_removed, _of("edge", "id")),
    "ZoneDefined": Event(_zone_defined, _of("zone", "name")),
    "ZoneMembership": Event(_zone_membership, _of("zone", "zone")),
    "EnforcementChanged": Event(_enforcement_changed, _of_scope),
    "ZoneDeleted": Event(_zone_deleted, _of("zone", "name")),
    "PolicyLocked": Event(_policy_locked, _of_lock),
    "PolicyUnlocked": Event(_policy_unlocked, _of_lock),
    "EdgesReweighted": Event(_edges_reweighted),
    "CursorMoved": Event(_cursor_moved, moves=True),
    "TransitionTaken": Event(_transition_taken, moves=True),
    "TransitionMerged": Event(_transition_taken),
    "BlockedAttempt": Event(_blocked_attempt),
    "SoftViolation": Event(_soft_violation),
    "RewardApplied": Event(_reward_applied, moves=True),
    "ConfigSet": Event(_config_set, _of("tunable", "key")),
    "Migrated": Event(_migrated),
    "Imported": Event(_imported),
    "Merged": Event(_merged),
    "StateRestored": Event(check_row, about),
}

#: Types that speak of their own file (its snapshots, its checkpoints, its fork) and stay there.
OWN_AFFAIRS = frozenset({"SnapshotTaken", "CheckpointCreated", "Compacted", "Forked"})

#: Nobody is bound by what a bundle says is locked.
LOCKS = frozenset({"PolicyLocked", "PolicyUnlocked"})


def admit(store: Store, type: str, actor: str | None, body: Body) -> None:
    """Check one event against the graph as it is now.

    Raises:
        VerbFailed: What is wrong with it, with the code that a verb would answer.
    """
    event = EVENTS.get(type)
    if event is None:
        refuse(f"events of type {shown(type)} are not known; known are {', '.join(EVENTS)}")
    if event.moves:
        arguments.identifier(actor, "actor")
    elif actor is not None:
        arguments.text(actor, "actor", MAX_NAME)
    event.check(store, body)


def touched(type: str, body: Body) -> Key | None:
    """Return what an event changes, None for what adds up or changes nothing."""
    event = EVENTS.get(type)
    return None if event is None or event.touches is None else event.touches(body)
