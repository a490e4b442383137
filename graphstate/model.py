"""The values verbs take and give: nodes, edges, statistics, moves, outcomes, reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from graphstate._canonical import Json

__all__ = (
    "Breakdown",
    "Checkpoint",
    "Edge",
    "EdgeKind",
    "Enforcement",
    "HistoryEntry",
    "IntegrityReport",
    "Metrics",
    "Move",
    "Node",
    "Outcome",
    "Recovery",
    "Rewarded",
    "Rollback",
    "Stat",
    "Status",
    "Step",
    "Suggestion",
    "Topology",
    "Trace",
    "Trust",
    "from_json",
    "to_json",
)

Status: TypeAlias = Literal["active", "archived", "deprecated"]
EdgeKind: TypeAlias = Literal["transition", "dependency", "reference"]
Enforcement: TypeAlias = Literal["off", "soft", "hard"]
Trust: TypeAlias = Literal["developer", "person", "model", "tool", "import"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A memory cell."""

    id: str
    kind: str = "state"
    label: str = ""
    payload: Json = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    status: Status = "active"
    #: +1 for every remember; a change of status leaves it
    version: int = 1
    created_seq: int = 0
    updated_seq: int = 0
    #: milliseconds since the epoch
    created_at: int = 0
    updated_at: int = 0
    embedding: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A link. For a dependency, `src` is the prerequisite and `dst` what depends on it."""

    id: str
    src: str
    dst: str
    kind: EdgeKind = "transition"
    label: str = ""
    guard: str | None = None
    #: None inherits the default
    enforcement: Enforcement | None = None
    #: the author's prior
    weight: float = 1.0
    #: what experience added to the prior
    learned_weight: float = 0.0
    version: int = 1
    created_seq: int = 0
    updated_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What experience says about a node or an edge."""

    visits: int = 0
    successes: int = 0
    failures: int = 0
    soft_violations: int = 0
    blocks: int = 0
    ema_reward: float = 0.0
    #: the last event that touched this
    last_seq: int = 0
    #: whose cursor earned the last reward, and how many moves that cursor had made
    rewarded_by: str | None = None
    rewarded_move: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Why a move is allowed, warned about or denied."""

    decision: Literal["allow", "warn", "deny"] = "allow"
    enforcement_source: Literal["edge", "zone", "global", "none"] = "none"
    effective_enforcement: Enforcement = "off"
    guard: Mapping[str, Json] = field(default_factory=lambda: {"present": False, "passed": True})
    boundary: Mapping[str, Json] = field(default_factory=lambda: {"crossing": False, "gated": False})
    escalation: Mapping[str, Json] = field(default_factory=lambda: {"soft_violations": 0, "promoted": False})
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One edge the cursor may take now."""

    edge_id: str
    to: str
    from_: str
    decision: Literal["allow", "warn", "deny"]
    enforcement: Enforcement


# Made four at a time in every step: a named tuple costs a quarter of a frozen dataclass.
class Breakdown(NamedTuple):
    """The three terms of a score."""

    reward: float
    weight: float
    explore: float


class Suggestion(NamedTuple):
    """A legal move with its rank; the best comes first."""

    edge_id: str
    from_: str
    to: str
    score: float
    #: 0..1, by visits alone
    confidence: float
    enforcement: Enforcement
    visits: int
    ema_reward: float
    breakdown: Breakdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a transition."""

    applied: bool
    soft_warned: bool
    from_: str
    to: str
    edge_id: str
    trace: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarded:
    """How many edges and nodes a reward credited."""

    scopes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What `step` did: suggestion, move, reward."""

    to: str
    suggestion: Suggestion | None
    applied: bool
    denied: bool
    soft_warned: bool
    outcome: Outcome
    reward: Rewarded | None
    #: no legal move is left
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Nodes so that prerequisites come first; `cyclic` if some could not be placed."""

    order: tuple[str, ...]
    cyclic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A named place in the log."""

    name: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Where the log ends now, and how many events were set aside."""

    seq: int
    abandoned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One event, for reading."""

    seq: int
    at: int
    type: str
    summary: str
    actor: str | None
    payload: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityReport:
    """What verification found. `first_break_seq` and `detail` are None if all is well."""

    ok: bool
    #: rows read and hashed by this call
    checked_events: int
    #: up to here the chain is known to hold, this call and earlier ones together
    verified_seq: int
    first_break_seq: int | None = None
    detail: str | None = None
    #: the stream of the break
    stream: str | None = None
    #: everything was checked: all streams, snapshots, projection, the file itself
    deep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What opening found to repair. All zero and None in the ordinary case."""

    #: rows after the last committed one, set aside
    trimmed: int = 0
    last_good_seq: int = 0
    #: events folded again because the projection was behind
    replayed: int = 0
    snapshot_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Counts of the whole graph. Cost: one pass over nodes, edges and statistics."""

    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    events: int
    hot_transitions: tuple[tuple[str, int], ...]
    blocks: int
    soft_violations: int
    mean_reward: float
    estimated_replay_cost: int
    fts_enabled: bool
    durability: str
    cuts: int


def to_json(value: Any) -> Json:
    """Return a value of this module, or a list of them, as plain JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (Suggestion, Breakdown)):
        return {name.rstrip("_"): to_json(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return value


_NESTED: Mapping[str, Mapping[str, type]] = {
    "Outcome": {"trace": Trace},
    "Suggestion": {"breakdown": Breakdown},
    "Step": {"suggestion": Suggestion, "outcome": Outcome, "reward": Rewarded},
}


def from_json(cls: type, data: Json) -> Any:
    """Return the value that `to_json` turned into this JSON."""
    names: Sequence[str] = getattr(cls, "_fields", None) or [f.name for f in fields(cls)]
    nested = _NESTED.get(cls.__name__, {})
    members: dict[str, Any] = {}
    for name in names:
        item = data[name.rstrip("_")]
        if name in nested:
            item = None if item is None else from_json(nested[name], item)
        elif isinstance(item, list) and name != "payload":
            item = tuple(item)
        members[name] = item
    return cls(**members)
