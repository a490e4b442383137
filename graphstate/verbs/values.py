"""What the parts of an event may be, wherever they came from.

Each check fails as the verb would that takes the part as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from graphstate import guards
from graphstate._canonical import Json
from graphstate.errors import ErrorCode, GuardError, shown
from graphstate.store import Store
from graphstate.tunables import refusal
from graphstate.verbs import arguments
from graphstate.verbs.arguments import MAX_LABEL, refuse
from graphstate.verbs.intuition import MAX_REWARD
from graphstate.verbs.memory import STATUSES, known
from graphstate.verbs.structure import EDGE_KINDS, MODES, _refuse_cycle

__all__ = (
    "MAX_INT", "SCOPES", "Body", "check_edge", "check_experience", "check_mode", "check_node", "check_nodes", "check_tunable",
    "field", "whole",
)  # fmt: skip

Body: TypeAlias = dict[str, Json]

MAX_INT = 2**53

#: What a mode can be set for.
SCOPES = ("edge", "zone-intra", "zone-boundary")


def whole(value: object, what: str, least: int = 0) -> int:
    """An integer that a column holds."""
    return arguments.whole(value, what, least=least, most=MAX_INT)


def field(body: Body, key: str) -> Json:
    """A member that must be there."""
    if key not in body:
        refuse(f"the payload lacks {key!r}")
    return body[key]


def check_mode(value: object, what: str) -> None:
    """off, soft or hard."""
    arguments.choice(value, what, MODES)


def check_node(
    store: Store, id: Json, kind: Json, label: Json, payload: Json, tags: Json, status: Json, embedding: Json
) -> None:
    """A node that could have been remembered."""
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


def check_edge(
    store: Store, id: Json, src: Json, dst: Json, kind: Json, label: Json, guard: Json, enforcement: Json,
    weight: Json,
) -> None:  # fmt: skip
    """An edge that could have been linked now: its ends exist, and it closes no cycle."""
    old = store.projection.edge(arguments.identifier(id, "edge id"))
    src, dst = known(store, src, "source"), known(store, dst, "target")
    arguments.choice(kind, "kind", EDGE_KINDS)
    arguments.text(label, "label", MAX_LABEL)
    if guard is not None:
        _guard(guard)
    if enforcement is not None:
        check_mode(enforcement, "enforcement")
    arguments.number(weight, "weight", least=0)
    if kind == "dependency":
        _refuse_cycle(store, src, dst, without=old)


def _guard(value: Json) -> None:
    try:
        guards.compile_guard(value)  # its bound is in characters, and its own
    except GuardError as error:
        refuse(f"the guard {shown(value)} does not compile: {error}", ErrorCode.GUARD_PARSE_ERROR)


def check_experience(counts: Iterable[Json], ema: Json, rewarded_by: Json) -> None:
    """The columns of a statistic."""
    for count in counts:
        whole(count, "a number of experience")
    arguments.number(ema, "ema_reward", least=-MAX_REWARD, most=MAX_REWARD)
    if rewarded_by is not None:
        arguments.text(rewarded_by, "rewarded_by", arguments.MAX_NAME)


def check_nodes(store: Store, nodes: Json, what: str) -> None:
    """A list of ids of nodes that exist."""
    if not isinstance(nodes, list):
        refuse(f"{what} must be a list of nodes, not {shown(nodes)}")
    for node in arguments.identifiers(nodes, what):
        known(store, node)


def check_tunable(key: Json, value: Json) -> None:
    """A setting and its value."""
    problem = refusal(key, value)
    if problem is not None:
        refuse(problem, ErrorCode.INVALID_CONFIG)
