"""What an event from elsewhere must look like, one row for each type.

An event of our own is made by a verb that checked its arguments. One that comes in a bundle or
from a branch is checked here against the graph as it is at that moment: ids and sizes, words
and numbers, and that what it refers to exists. Keys that nobody knows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from graphstate._canonical import Json, NotJson, decode
from graphstate.bundle import parsed_head
from graphstate.errors import ErrorCode, shown
from graphstate.store import Store
from graphstate.store.projection import TRAIL
from graphstate.tunables import refusal
from graphstate.verbs import arguments
from graphstate.verbs.arguments import MAX_LABEL, MAX_NAME, refuse
from graphstate.verbs.intuition import MAX_REWARD
from graphstate.verbs.memory import STATUSES, known
from graphstate.verbs.structure import EDGE_KINDS, MODES, _refuse_cycle, known_edge

__all__ = ("EVENTS", "LOCKS", "OWN_AFFAIRS", "STATE", "STATE_LEFT_OUT", "Event", "Key", "admit", "touched")

#: What an event changes: (node, id), (edge, id), (zone, name), (lock, what) or (tunable, key).
Key: TypeAlias = tuple[str, str]

Body: TypeAlias = dict[str, Json]

MAX_TEXT = 65_536
MAX_GUARD = 2_000
MAX_SCOPES = 100_000
_MAX_INT = 2**53


class Event(NamedTuple):
    """How one type of event is checked, and what it changes."""

    check: Callable[[Store, Body], None]
    #: None for what adds up and so never contradicts anything
    touches: Callable[[Body], Key] | None = None
    #: the actor's cursor moves
    moves: bool = False


def _field(body: Body, key: str) -> Json:
    if key not in body:
        refuse(f"the payload lacks {key!r}")
    return body[key]


def _mode(value: object, what: str) -> None:
    arguments.choice(value, what, MODES)


# ------------------------------------------------------------------------- nodes and edges


def _node_upserted(store: Store, body: Body) -> None:
    _node(
        store, _field(body, "id"), _field(body, "kind"), _field(body, "label"), _field(body, "payload"),
        _field(body, "tags"), _field(body, "status"), _field(body, "embedding"),
    )  # fmt: skip


def _node(
    store: Store, id: Json, kind: Json, label: Json, payload: Json, tags: Json, status: Json, embedding: Json
) -> None:
    arguments.identifier(id)
    arguments.name(kind, "kind")
    arguments.text(label, "label", MAX_LABEL)
    size, most = len(arguments.json_bytes(payload, "payload")), store.projection.tunables()["maxPayloadBytes"]
    if size > most:
        refuse(f"the payload has {size} bytes, maxPayloadBytes is {most}", ErrorCode.PAYLOAD_TOO_LARGE)
    if not isinstance(tags, list) or arguments.tags(tags) != tags:
        refuse(f"tags must be a list of different texts, not {shown(tags)}")
    arguments.choice(status, "status", STATUSES)
    if embedding is not None:
        if not isinstance(embedding, list):
            refuse(f"embedding must be a list of numbers, not {shown(embedding)}")
        arguments.embedding(embedding)


def _node_status_changed(store: Store, body: Body) -> None:
    known(store, _field(body, "id"))
    arguments.choice(_field(body, "status"), "status", STATUSES)


def _edge_upserted(store: Store, body: Body) -> None:
    _edge(
        store, _field(body, "id"), _field(body, "src"), _field(body, "dst"), _field(body, "kind"),
        _field(body, "label"), _field(body, "guard"), _field(body, "enforcement"), _field(body, "weight"),
    )  # fmt: skip


def _edge(
    store: Store, id: Json, src: Json, dst: Json, kind: Json, label: Json, guard: Json, enforcement: Json,
    weight: Json,
) -> None:  # fmt: skip
    old = store.projection.edge(arguments.identifier(id, "edge id"))
    src, dst = known(store, src, "source"), known(store, dst, "target")
    arguments.choice(kind, "kind", EDGE_KINDS)
    arguments.text(label, "label", MAX_LABEL)
    if guard is not None:
        _guard(guard)
    if enforcement is not None:
        _mode(enforcement, "enforcement")
    arguments.number(weight, "weight", least=0)
    if kind == "dependency":
        _refuse_cycle(store, src, dst, without=old)


def _guard(value: Json) -> None:
    text = arguments.text(value, "guard", MAX_GUARD)
    try:
        guards: Any = import_module("graphstate.guards")
    except ModuleNotFoundError:
        refuse("guards are not evaluated yet, so none can be stored", ErrorCode.GUARD_PARSE_ERROR)
    try:
        guards.compile_guard(text)
    except guards.GuardError as error:
        refuse(f"the guard {shown(text)} does not compile: {error}", ErrorCode.GUARD_PARSE_ERROR)


def _edge_removed(store: Store, body: Body) -> None:
    known_edge(store, _field(body, "id"))


# ------------------------------------------------------------------------- zones and modes


def _zone_defined(store: Store, body: Body) -> None:
    arguments.identifier(_field(body, "name"), "zone name")
    for node in arguments.identifiers(_field(body, "members"), "members"):
        known(store, node)
    _mode(_field(body, "intra"), "intra")
    _mode(_field(body, "boundary"), "boundary")


def _zone_membership(store: Store, body: Body) -> None:
    arguments.identifier(_field(body, "zone"), "zone name")
    known(store, _field(body, "node"))
    arguments.choice(_field(body, "op"), "op", ("add", "remove"))


_SCOPES = ("edge", "zone-intra", "zone-boundary")


def _enforcement_changed(store: Store, body: Body) -> None:
    scope = arguments.choice(_field(body, "scope"), "scope", _SCOPES)
    if scope == "edge":
        known_edge(store, _field(body, "id"))
    else:
        arguments.identifier(_field(body, "id"), "zone name")
    if _field(body, "mode") is not None:
        _mode(body["mode"], "mode")
    _flag(body.get("learned", False), "learned")


def _zone_deleted(store: Store, body: Body) -> None:
    arguments.identifier(_field(body, "name"), "zone name")


def _policy_locked(store: Store, body: Body) -> None:
    _policy_unlocked(store, body)
    arguments.text(_field(body, "reason"), "reason", MAX_LABEL)


def _policy_unlocked(store: Store, body: Body) -> None:
    arguments.choice(_field(body, "scope"), "scope", ("edge", "zone", "tunables", "cursor"))
    arguments.text(_field(body, "id"), "id", MAX_NAME)


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
    nodes = _field(body, "set")
    if not isinstance(nodes, list):
        refuse(f"set must be a list of nodes, not {shown(nodes)}")
    for node in arguments.identifiers(nodes, "set"):
        known(store, node)


def _ends(store: Store, body: Body) -> None:
    edge = known_edge(store, _field(body, "edgeId"))
    ends = (_field(body, "from"), _field(body, "to"))
    if edge.kind != "transition" or ends not in ((edge.src, edge.dst), (None, edge.dst)):
        refuse(f"edge {edge.id!r} is a {edge.kind} from {edge.src!r} to {edge.dst!r}, not {shown(ends)}")


def _transition_taken(store: Store, body: Body) -> None:
    _ends(store, body)
    _flag(_field(body, "clean"), "clean")
    _rules(body.get("cleanRules", []))


def _blocked_attempt(store: Store, body: Body) -> None:
    _ends(store, body)
    arguments.text(_field(body, "reason"), "reason", MAX_TEXT)
    arguments.whole(body.get("count", 1), "count", least=1, most=_MAX_INT)
    _rules(body.get("rules", []))


def _soft_violation(store: Store, body: Body) -> None:
    known_edge(store, _field(body, "edgeId"))
    arguments.text(_field(body, "reason"), "reason", MAX_TEXT)
    _rules(body.get("rules", []))


def _reward_applied(store: Store, body: Body) -> None:
    arguments.number(_field(body, "value"), "value", least=-MAX_REWARD, most=MAX_REWARD)
    arguments.number(_field(body, "alpha"), "alpha", least=0, most=1)
    scopes = _field(body, "scopes")
    if not isinstance(scopes, list) or len(scopes) > MAX_SCOPES:
        refuse(f"scopes must be a list of at most {MAX_SCOPES}, not {shown(scopes)}")
    for scope in scopes:
        if not isinstance(scope, dict):
            refuse(f"a scope must be an object, not {shown(scope)}")
        arguments.choice(_field(scope, "kind"), "kind of a scope", ("node", "edge"))
        # A reward may reach back to an edge that is gone; it then teaches nothing.
        arguments.identifier(_field(scope, "id"), "id of a scope")
        arguments.number(_field(scope, "weight"), "weight of a scope", least=0, most=1)


# ------------------------------------------------------------------------- settings and notes


def _config_set(store: Store, body: Body) -> None:
    problem = refusal(_field(body, "key"), _field(body, "value"))
    if problem is not None:
        refuse(problem, ErrorCode.INVALID_CONFIG)


def _edges_reweighted(store: Store, body: Body) -> None:
    weights = _field(body, "weights")
    if not isinstance(weights, dict):
        refuse(f"weights must be an object, not {shown(weights)}")
    for edge, weight in weights.items():
        arguments.identifier(edge, "edge id")
        arguments.number(weight, "weight")


def _migrated(store: Store, body: Body) -> None:
    arguments.name(_field(body, "kind"), "kind")
    _field(body, "toVersion")
    arguments.whole(_field(body, "migrated"), "migrated", least=0, most=_MAX_INT)


def _merged(store: Store, body: Body) -> None:
    _taken_over(body, "merged")


def _imported(store: Store, body: Body) -> None:
    _taken_over(body, "imported")


def _taken_over(body: Body, count: str) -> None:
    arguments.identifier(_field(body, "origin"), "origin")
    for number in ("from", count):
        arguments.whole(_field(body, number), number, least=0, most=_MAX_INT)
    upto = arguments.whole(_field(body, "to"), "to", least=0, most=_MAX_INT)
    if parsed_head(_field(body, "head")) is None and upto:
        refuse(f"head must be a number and 64 hexadecimal digits, not {shown(body['head'])}")


# ------------------------------------------------------------------------- rows of a base


def _state_restored(store: Store, body: Body) -> None:
    table, row = _field(body, "table"), _field(body, "row")
    check = STATE.get(table) if isinstance(table, str) else None
    if check is None:
        refuse(f"there is no table {shown(table)} in a base; there are {', '.join(STATE)}")
    if not isinstance(row, list):
        refuse(f"a row must be a list, not {shown(row)}")
    try:
        check(store, row)
    except (ValueError, TypeError) as error:  # too few columns, or text that is not JSON
        refuse(f"a row of table {table!r} is not what it should be: {error}")


def _json_column(value: Json, what: str) -> Json:
    if not isinstance(value, str):
        refuse(f"{what} must be JSON text, not {shown(value)}")
    try:
        return decode(value)
    except NotJson as error:
        refuse(f"{what} is not JSON: {error}")


def _whole(value: Json, what: str, least: int = 0) -> int:
    return arguments.whole(value, what, least=least, most=_MAX_INT)


def _node_row(store: Store, row: list[Json]) -> None:
    no, name, kind, label, payload, tags, status, version, created, updated, *times = row[:12]
    _node(
        store, name, kind, label, _json_column(payload, "payload"), _json_column(tags, "tags"), status,
        None if row[12] is None else _json_column(row[12], "embedding"),
    )  # fmt: skip
    if store.projection.status(name) is not None:
        refuse(f"node {name!r} stands twice in the base")
    for value, what in ((no, "no"), (version, "version")):
        _whole(value, what, 1)
    for value, what in ((created, "created_seq"), (updated, "updated_seq")):
        _whole(value, what)
    for value in times:
        _whole(value, "a time", -_MAX_INT)


def _edge_row(store: Store, row: list[Json]) -> None:
    no, name, src, dst, kind, label, guard, enforcement, weight, learned, version, created, updated = row[:13]
    if store.projection.edge(arguments.identifier(name, "edge id")) is not None:
        refuse(f"edge {name!r} stands twice in the base")
    _edge(store, name, src, dst, kind, label, guard, enforcement, weight)
    arguments.number(learned, "learned_weight")
    for mode in row[13:]:
        _learned(mode)
    for value, what in ((no, "no"), (version, "version")):
        _whole(value, what, 1)
    for value, what in ((created, "created_seq"), (updated, "updated_seq")):
        _whole(value, what)


def _experience_row(store: Store, row: list[Json]) -> None:
    no, visits, successes, failures, softs, blocks, ema, last, rewarded_by, rewarded_move = row[:10]
    for value in (no, visits, successes, failures, softs, blocks, last, rewarded_move):
        _whole(value, "a number of experience")
    arguments.number(ema, "ema_reward", least=-MAX_REWARD, most=MAX_REWARD)
    if rewarded_by is not None:
        arguments.text(rewarded_by, "rewarded_by", MAX_NAME)


def _state_row(store: Store, row: list[Json]) -> None:
    key, text = row
    value = _json_column(text, "value")
    if not isinstance(key, str) or not isinstance(value, dict):
        refuse(f"a row of state must be a key and an object, not {shown(row)}")
    kind, _, name = key.partition("/")
    if kind == "cursor":
        arguments.identifier(name, "actor")
        _whole(_field(value, "moves"), "moves")
        _cursor_moved(store, {"set": _field(value, "nodes")})
    elif kind == "trail":
        actor, _, slot = name.rpartition("/")
        arguments.identifier(actor, "actor")
        if slot not in _SLOTS:
            refuse(f"a trail has places 0 to {TRAIL - 1}, not {shown(slot)}")
        _whole(_field(value, "move"), "move")
        for end in ("edge", "to"):
            arguments.identifier(_field(value, end), end)
    elif kind == "origin":
        _whole(_field(value, "seq"), "seq")
        if not isinstance(_field(value, "hash"), str):
            refuse(f"hash must be text, not {shown(value['hash'])}")
    else:
        refuse(f"a base holds no state {shown(key)}")


_SLOTS = frozenset(str(slot) for slot in range(TRAIL))


def _tunable_row(store: Store, row: list[Json]) -> None:
    key, value = row
    _config_set(store, {"key": key, "value": _json_column(value, "value")})


def _zone_row(store: Store, row: list[Json]) -> None:
    no, name, intra, boundary, learned_intra, learned_boundary, version, created, updated = row[:9]
    arguments.identifier(name, "zone name")
    for mode in (intra, boundary):
        _mode(mode, "mode")
    for mode in (learned_intra, learned_boundary):
        _learned(mode)
    for value, what in ((no, "no"), (version, "version")):
        _whole(value, what, 1)
    for value, what in ((created, "created_seq"), (updated, "updated_seq")):
        _whole(value, what)


def _learned(mode: Json) -> None:
    if mode is not None:
        _mode(mode, "learned mode")


def _zone_member_row(store: Store, row: list[Json]) -> None:
    zone, node = row
    arguments.identifier(zone, "zone name")
    known(store, node)


def _rule_row(store: Store, row: list[Json]) -> None:
    scope, name, violations, clean = row
    arguments.choice(scope, "scope", _SCOPES)
    arguments.identifier(name, "id of a rule")
    for value in (violations, clean):
        _whole(value, "a number of a rule")


#: Every table that a base may hold, with the check of one of its rows.
STATE: Mapping[str, Callable[[Store, list[Json]], None]] = {
    "node": _node_row,
    "edge": _edge_row,
    "experience": _experience_row,
    "state": _state_row,
    "tunable": _tunable_row,
    "zone": _zone_row,
    "zone_member": _zone_member_row,
    "rule": _rule_row,
}

#: Tables of a base that are left out.
STATE_LEFT_OUT = frozenset({"policy_lock"})


# ------------------------------------------------------------------------- the table


def _of(kind: str, field: str) -> Callable[[Body], Key]:
    return lambda body: (kind, str(body.get(field)))


def _of_scope(body: Body) -> Key:
    return ("edge" if body.get("scope") == "edge" else "zone", str(body.get("id")))


#: Which column of which table names what a row is about.
_NAMED: Mapping[str, tuple[str, int]] = {
    "node": ("node", 1), "edge": ("edge", 1), "zone": ("zone", 1), "tunable": ("tunable", 0),
}  # fmt: skip


def _of_row(body: Body) -> Key:
    kind, column = _NAMED.get(body["table"], ("state", 0))
    return kind, str(body["row"][column])


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
    "StateRestored": Event(_state_restored, _of_row),
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
