"""The values verbs take and give: nodes, edges, statistics, moves, outcomes, reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, convert, field, to_builtins

from graphstate._canonical import Json

__all__ = (
    "Breakdown",
    "Checkpoint",
    "Edge",
    "EdgeKind",
    "Enforcement",
    "Exported",
    "HistoryEntry",
    "Imported",
    "IntegrityReport",
    "MergeConflict",
    "Merged",
    "Metrics",
    "Move",
    "Node",
    "OnConflict",
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
T = TypeVar("T")

#: What a merge does where both sides changed something.
OnConflict: TypeAlias = Literal["fail", "ours", "theirs"]

Trust: TypeAlias = Literal["developer", "person", "model", "tool", "import"]


class Node(Struct, frozen=True, kw_only=True):
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


class Edge(Struct, frozen=True, kw_only=True):
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


class Stat(Struct, frozen=True, kw_only=True):
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


class Trace(Struct, frozen=True, kw_only=True):
    """Why a move is allowed, warned about or denied."""

    decision: Literal["allow", "warn", "deny"] = "allow"
    enforcement_source: Literal["edge", "zone", "global", "none"] = "none"
    effective_enforcement: Enforcement = "off"
    guard: Mapping[str, Json] = field(default_factory=lambda: {"present": False, "passed": True})
    boundary: Mapping[str, Json] = field(default_factory=lambda: {"crossing": False, "gated": False})
    escalation: Mapping[str, Json] = field(default_factory=lambda: {"soft_violations": 0, "promoted": False})
    reasons: tuple[str, ...] = ()


class Move(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One edge the cursor may take now."""

    edge_id: str
    to: str
    from_: str
    decision: Literal["allow", "warn", "deny"]
    enforcement: Enforcement


class Breakdown(Struct, frozen=True):
    """The three terms of a score."""

    reward: float
    weight: float
    explore: float


class Suggestion(Struct, frozen=True, rename={"from_": "from"}):
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


class Outcome(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """What became of a transition."""

    applied: bool
    soft_warned: bool
    from_: str
    to: str
    edge_id: str
    trace: Trace


class Rewarded(Struct, frozen=True, kw_only=True):
    """How many edges and nodes a reward credited."""

    scopes: int


class Step(Struct, frozen=True, kw_only=True):
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


class Topology(Struct, frozen=True, kw_only=True):
    """Nodes so that prerequisites come first; `cyclic` if some could not be placed."""

    order: tuple[str, ...]
    cyclic: bool


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A named place in the log."""

    name: str
    seq: int


class Rollback(Struct, frozen=True, kw_only=True):
    """Where the log ends now, and how many events were set aside."""

    seq: int
    abandoned: int


class Exported(Struct, frozen=True, kw_only=True):
    """What a bundle holds."""

    #: where the log ended, as ``seq:hash``; pin the bundle to it with ``expect_head``
    head: str
    events: int
    #: rows of the state before the first event; 0 if the log begins with event 1
    base_rows: int
    bytes: int
    #: hexadecimal SHA-256 of everything before the last line
    digest: str


class MergeConflict(Struct, frozen=True, kw_only=True):
    """An event that was not taken over because it contradicts this graph."""

    #: node, edge, zone, tunable or lock: both sides changed it; cycle, size, locked, missing:
    #: this graph refuses it
    kind: str
    id: str
    #: the event's number in its origin
    seq: int
    reason: str


class Merged(Struct, frozen=True, kw_only=True):
    """What came of a merge. All zero if there was nothing new."""

    merged: int
    #: events about cursors, about what a conflict left out, and calls that were made on both sides
    left_out: int
    origin: str
    from_seq: int
    to_seq: int
    conflicts: tuple[MergeConflict, ...] = ()


class Imported(Struct, frozen=True, kw_only=True):
    """What came of an import."""

    imported: int
    left_out: int
    #: hexadecimal hash of the origin's first event; of version 1 the digest
    origin: str
    #: where the origin's log ended
    head: str
    #: hexadecimal SHA-256 of the bundle
    digest: str
    version: int
    #: the head was the one that ``expect_head`` demanded
    pinned: bool
    conflicts: tuple[MergeConflict, ...] = ()


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One event, for reading."""

    seq: int
    at: int
    type: str
    summary: str
    actor: str | None
    payload: Json


class IntegrityReport(Struct, frozen=True, kw_only=True):
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


class Recovery(Struct, frozen=True, kw_only=True):
    """What opening found to repair. All zero and None in the ordinary case."""

    #: rows after the last committed one, set aside
    trimmed: int = 0
    last_good_seq: int = 0
    #: events folded again because the projection was behind
    replayed: int = 0
    snapshot_id: str | None = None


class Metrics(Struct, frozen=True, kw_only=True):
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
    return to_builtins(value)


def from_json(cls: type[T], data: Json) -> T:
    """Return the value that `to_json` turned into this JSON."""
    return convert(data, cls)
