"""Rows of the state that a compacted log begins with, as they come from a bundle.

A base is a snapshot of the projection. Its rows are put back one event each, so they are
checked like events: what a row refers to stands before it, and no key stands twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphstate._canonical import Json, NotJson, decode
from graphstate.errors import shown
from graphstate.policy import TRUST
from graphstate.similarity import unpacked
from graphstate.store import Store
from graphstate.store.projection import REWARDS, TRAIL
from graphstate.store.tables import FOLDED
from graphstate.store.vectors import Space
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.intuition import MAX_REWARD
from graphstate.verbs.learning import checked_weights
from graphstate.verbs.memory import known
from graphstate.verbs.provenance import check_provenance
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
    whole,
)

__all__ = ("STATE", "STATE_LEFT_OUT", "Order", "about", "check_row")


def check_row(store: Store, body: Body) -> None:
    """Check the row of one event ``StateRestored``."""
    table, row = field(body, "table"), field(body, "row")
    check = STATE.get(table) if isinstance(table, str) else None
    if check is None:
        refuse(f"there is no table {shown(table)} in a base; there are {', '.join(STATE)}")
    if not isinstance(row, list):
        refuse(f"a row must be a list, not {shown(row)}")
    try:
        check(store, row)
    except (ValueError, TypeError, IndexError) as error:  # too few columns, or text that is not JSON
        refuse(f"a row of table {table!r} is not what it should be: {error}")


#: Which column of which table names what a row is about.
_NAMED: Mapping[str, tuple[str, int]] = {
    "node": ("node", 1), "edge": ("edge", 1), "zone": ("zone", 1), "tunable": ("tunable", 0),
}  # fmt: skip


def about(body: Body) -> tuple[str, str]:
    """Return what a row is about: (node, id), (edge, id), (zone, name), (tunable, key), or state."""
    kind, column = _NAMED.get(body["table"], ("state", 0))
    return kind, str(body["row"][column])


def _json_column(value: Json, what: str) -> Json:
    if not isinstance(value, str):
        refuse(f"{what} must be JSON text, not {shown(value)}")
    try:
        return decode(value)
    except NotJson as error:
        refuse(f"{what} is not JSON: {error}")


def _node_row(store: Store, row: list[Json]) -> None:
    if row[12] is None or (isinstance(row[12], str) and row[12][:1] == "["):
        row[12] = TRUST[-1]  # from a file that knew no trust of nodes and had their vectors there
    no, name, kind, label, payload, tags, status, version, created, updated, *times = row[:12]
    check_node(
        store, name, kind, label, _json_column(payload, "payload"), _json_column(tags, "tags"), status, None
    )  # fmt: skip
    arguments.choice(row[12], "trust", TRUST)
    if store.projection.status(name) is not None:
        refuse(f"node {name!r} stands twice in the base")
    for value, what in ((no, "no"), (version, "version")):
        whole(value, what, 1)
    for value, what in ((created, "created_seq"), (updated, "updated_seq")):
        whole(value, what)
    for value in times:
        whole(value, "a time", -MAX_INT)


def _vector_row(store: Store, row: list[Json]) -> None:
    no, seq, data = row
    whole(no, "no", 1)
    whole(seq, "the event of a vector")
    if not isinstance(data, str):
        refuse(f"a vector must be hexadecimal text, not {shown(data)}")
    if data:
        arguments.embedding(unpacked(bytes.fromhex(data)))


def _delta_row(store: Store, row: list[Json]) -> None:
    name, at = row
    arguments.name(name, "the id of an event")
    whole(at, "at", -MAX_INT)


def _embedder(value: Json) -> None:
    if not isinstance(value, dict) or set(value) != set(Space._fields):
        refuse(f"the model of vectors must have {', '.join(Space._fields)}, not {shown(value)}")
    for name in ("provider", "model", "version"):
        arguments.text(value[name], name, arguments.MAX_NAME)
    arguments.whole(value["dimensions"], "dimensions", least=1, most=arguments.MAX_EMBEDDING)


def _edge_row(store: Store, row: list[Json]) -> None:
    no, name, src, dst, kind, label, guard, enforcement, weight, learned, version, created, updated = row[:13]
    if store.projection.edge(arguments.identifier(name, "edge id")) is not None:
        refuse(f"edge {name!r} stands twice in the base")
    check_edge(store, name, src, dst, kind, label, guard, enforcement, weight)
    arguments.number(learned, "learned_weight")
    for mode in row[13:]:
        _learned(mode)
    for value, what in ((no, "no"), (version, "version")):
        whole(value, what, 1)
    for value, what in ((created, "created_seq"), (updated, "updated_seq")):
        whole(value, what)


def _experience_row(store: Store, row: list[Json]) -> None:
    no, visits, successes, failures, softs, blocks, ema, last, rewarded_by, rewarded_move = row[:10]
    check_experience((no, visits, successes, failures, softs, blocks, last, rewarded_move), ema, rewarded_by)


def _state_row(store: Store, row: list[Json]) -> None:
    key, text = row
    value = _json_column(text, "value")
    if key in _SMALL:
        _SMALL[key](value)
        return
    if not isinstance(key, str) or not isinstance(value, dict):
        refuse(f"a row of state must be a key and an object, not {shown(row)}")
    kind, _, name = key.partition("/")
    if kind == "cursor":
        arguments.identifier(name, "actor")
        whole(field(value, "moves"), "moves")
        check_nodes(store, field(value, "nodes"), "nodes")
    elif kind == "trail":
        actor, _, slot = name.rpartition("/")
        arguments.identifier(actor, "actor")
        if slot not in _SLOTS:
            refuse(f"a trail has places 0 to {TRAIL - 1}, not {shown(slot)}")
        whole(field(value, "move"), "move")
        for end in ("edge", "to"):
            arguments.identifier(field(value, end), end)
    elif kind == "origin":
        whole(field(value, "seq"), "seq")
        if not isinstance(field(value, "hash"), str):
            refuse(f"hash must be text, not {shown(value['hash'])}")
    else:
        refuse(f"a base holds no state {shown(key)}")


def _rewards(value: Json) -> None:
    if not isinstance(value, list) or len(value) > REWARDS:
        refuse(f"rewards must be a list of at most {REWARDS}, not {shown(value)}")
    for seq, reward in value:
        whole(seq, "the event of a reward")
        arguments.number(reward, "a reward", least=-MAX_REWARD, most=MAX_REWARD)


_SMALL: Mapping[Json, Callable[[Json], None]] = {"rewards": _rewards, "embedder": _embedder}

_SLOTS = frozenset(str(slot) for slot in range(TRAIL))


def _tunable_row(store: Store, row: list[Json]) -> None:
    key, value = row
    check_tunable(key, _json_column(value, "value"))


def _zone_row(store: Store, row: list[Json]) -> None:
    no, name, intra, boundary, learned_intra, learned_boundary, version, created, updated = row[:9]
    arguments.identifier(name, "zone name")
    for mode in (intra, boundary):
        check_mode(mode, "mode")
    for mode in (learned_intra, learned_boundary):
        _learned(mode)
    for value, what in ((no, "no"), (version, "version")):
        whole(value, what, 1)
    for value, what in ((created, "created_seq"), (updated, "updated_seq")):
        whole(value, what)


def _learned(mode: Json) -> None:
    if mode is not None:
        check_mode(mode, "learned mode")


def _zone_member_row(store: Store, row: list[Json]) -> None:
    zone, node = row
    arguments.identifier(zone, "zone name")
    known(store, node)


def _rule_row(store: Store, row: list[Json]) -> None:
    scope, name, violations, clean = row
    arguments.choice(scope, "scope", SCOPES)
    arguments.identifier(name, "id of a rule")
    for value in (violations, clean):
        whole(value, "a number of a rule")


def _provenance_row(store: Store, row: list[Json]) -> None:
    _, memory_class, confidence, source, observed, derived, supersedes, contradicts = row
    told = {
        "memory_class": memory_class, "confidence": confidence, "source": source, "observed_at": observed,
        "derived_from": _json_column(derived, "derived_from"), "supersedes": supersedes,
        "contradicts": _json_column(contradicts, "contradicts"),
    }  # fmt: skip
    check_provenance({part: value for part, value in told.items() if value not in (None, [])})


def _activation_row(store: Store, row: list[Json]) -> None:
    _, name, _, _, score, importance, anchor, inhibition, inhibited, count, reinforced, *outcomes = row
    known(store, name)
    for value in (score, importance, inhibition):
        arguments.number(value, "a sum")
    for value in (anchor, inhibited, reinforced):
        if value is not None:
            whole(value, "a time", -MAX_INT)
    whole(anchor, "anchor", -MAX_INT)
    for value in (count, *outcomes):
        whole(value, "a number of activation")
    if len(outcomes) != 3:
        refuse("a row of activation counts three outcomes")


def _lens_row(store: Store, row: list[Json]) -> None:
    _, context, name, _, _, score, anchor, inhibition, inhibited = row
    known(store, name)
    arguments.name(context, "context")
    for value in (score, inhibition):
        arguments.number(value, "a sum")
    whole(anchor, "anchor", -MAX_INT)
    if inhibited is not None:
        whole(inhibited, "inhibited_at", -MAX_INT)


def _succession_row(store: Store, row: list[Json]) -> None:
    _, at = row
    whole(at, "at", -MAX_INT)


def _signal_weight_row(store: Store, row: list[Json]) -> None:
    scope, signal, weight = row
    arguments.name(scope, "scope")
    checked_weights({signal: weight})


def _verdict_row(store: Store, row: list[Json]) -> None:
    retrieval, node, useful = row
    arguments.identifier(retrieval, "retrieval")
    known(store, node)
    arguments.whole(useful, "useful", least=0, most=1)


#: Every table that a base may hold, with the check of one of its rows.
STATE: Mapping[str, Callable[[Store, list[Json]], None]] = {
    "node": _node_row,
    "vector": _vector_row,
    "delta": _delta_row,
    "edge": _edge_row,
    "experience": _experience_row,
    "state": _state_row,
    "tunable": _tunable_row,
    "zone": _zone_row,
    "zone_member": _zone_member_row,
    "rule": _rule_row,
    "provenance": _provenance_row,
    "activation": _activation_row,
    "lens": _lens_row,
    "succession": _succession_row,
    "signal_weight": _signal_weight_row,
    "verdict": _verdict_row,
}

#: Tables of a base that are left out.
STATE_LEFT_OUT = frozenset({"policy_lock"})


class Order:
    """The rows of a base as they come: each key once, and experience only of what is there."""

    #: columns of the key, where it is not one
    _KEYS: Mapping[str, int] = {"zone_member": 2, "rule": 2, **{table.name: table.key for table in FOLDED}}
    _ABOUT: Mapping[str, str] = {table.name: table.about for table in FOLDED if table.about}

    def __init__(self) -> None:
        self._last: dict[str, list[Json]] = {}
        self._known: set[int] = set()

    def check(self, table: str, row: list[Json]) -> None:
        key = row[: self._KEYS.get(table, 1)]
        if table in self._last and not self._last[table] < key:
            refuse(f"the rows of table {table!r} are not in order")
        self._last[table] = key
        if table in ("node", "edge"):
            self._known.add(2 * row[0] + (table == "edge"))
        elif table == "experience" and row[0] not in self._known:
            refuse(f"experience {row[0]} is of no node or edge")
        elif table in self._ABOUT:
            of_edge = self._ABOUT[table] == "edge"
            if type(row[0]) is not int or 2 * row[0] + of_edge not in self._known:
                refuse(f"row {shown(row[0])} of {table} is of no {self._ABOUT[table]}")
