"""The values verbs take and give: nodes, edges, statistics, moves, outcomes, reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, convert, field, to_builtins

from graphstate._canonical import Json

__all__ = (
    "ActivationState",
    "Attended",
    "Blocked",
    "Breakdown",
    "Changes",
    "Checkpoint",
    "Collected",
    "Compaction",
    "Cut",
    "Delta",
    "DeltaPart",
    "Deltas",
    "DeltasImported",
    "Edge",
    "EdgeKind",
    "Enforcement",
    "Exported",
    "HistoryEntry",
    "Imported",
    "IntegrityReport",
    "Iteration",
    "Lock",
    "LockScope",
    "MergedStates",
    "MergeConflict",
    "Merged",
    "Metrics",
    "Migrated",
    "Move",
    "Node",
    "Orientation",
    "OnConflict",
    "Outcome",
    "MemoryClass",
    "Planned",
    "Provenance",
    "Ranked",
    "Reinforced",
    "Superseded",
    "Proposal",
    "ProposalKind",
    "Recovery",
    "Reembedded",
    "Repair",
    "Rewarded",
    "Reweighted",
    "Rollback",
    "Split",
    "Snapshot",
    "Stat",
    "Status",
    "Step",
    "Suggestion",
    "Topology",
    "Trace",
    "Trust",
    "Validation",
    "Violation",
    "ViolationKind",
    "Zone",
    "ZoneProposal",
    "from_json",
    "to_json",
    "Absorbed",
    "Explanation",
    "Likeness",
    "Pulse",
    "PulseHit",
    "Recognition",
    "Showing",
    "Spread",
    "Taught",
    "Window",
    "WindowItem",
)

Status: TypeAlias = Literal["active", "archived", "deprecated"]
EdgeKind: TypeAlias = Literal["transition", "dependency", "reference"]
Enforcement: TypeAlias = Literal["off", "soft", "hard"]
LockScope: TypeAlias = Literal["edge", "zone", "tunables", "cursor"]
T = TypeVar("T")

#: What a merge does where both sides changed something.
OnConflict: TypeAlias = Literal["fail", "ours", "theirs"]

Trust: TypeAlias = Literal["developer", "person", "model", "tool", "import"]


MemoryClass: TypeAlias = Literal["episodic", "semantic", "procedural", "entity"]


class Provenance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of where a memory comes from and how far it holds."""

    #: how it fades; None as its kind does
    memory_class: MemoryClass | None = None
    #: 0..1; None is not tracked, which ranks as 1
    confidence: float | None = None
    source: str | None = None
    #: milliseconds since the epoch; when it was true, which may be before it was remembered
    observed_at: int | None = None
    #: nodes it was made of
    derived_from: tuple[str, ...] = ()
    #: the node whose place it took last
    supersedes: str | None = None
    contradicts: tuple[str, ...] = ()


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
    #: as 32 bits hold it
    embedding: tuple[float, ...] | None = None
    #: how far what it holds is trusted: as its writer, and no more than what it was derived from
    trust: Trust = "developer"
    #: None if nothing is known
    memory: Provenance | None = None


class ActivationState(Struct, frozen=True, kw_only=True):
    """How present a memory is at one moment. Values are from 0 to 1."""

    id: str
    #: the moment, in milliseconds since the epoch
    at: int
    #: short-term worth, faded to the moment
    score: float
    #: long-term worth
    importance: float
    #: what is subtracted from the score
    inhibition: float
    #: what this process has noticed and not yet remembered
    attention: float
    #: score plus attention less inhibition; 0 if another node took its place
    effective: float
    reinforcement_count: int
    last_reinforced_at: int | None
    #: how often it was shown, helped and harmed, as callers said
    shown: int = 0
    useful: int = 0
    harmful: int = 0
    memory_class: MemoryClass | None = None
    superseded: bool = False
    #: score and inhibition by context, where there are any
    contexts: Mapping[str, float] = field(default_factory=dict)
    inhibitions: Mapping[str, float] = field(default_factory=dict)

    @property
    def usefulness(self) -> float:
        """The chance that it helps, by what callers said: one half if nobody said anything."""
        return (1 + self.useful) / (2 + self.useful + self.harmful)


class Ranked(Struct, frozen=True):
    """A place in the order of what is present now."""

    id: str
    effective: float
    #: before inhibition and attention
    score: float
    superseded: bool = False


class Reinforced(Struct, frozen=True, kw_only=True):
    """How many reinforcements were recorded together."""

    count: int


class Attended(Struct, frozen=True, kw_only=True):
    """What became of a node's attention."""

    id: str
    #: what is left of it here
    attention: float
    #: it became a reinforcement
    promoted: bool


class Superseded(Struct, frozen=True, kw_only=True):
    """A node that took another one's place."""

    new: str
    old: str
    edge_id: str
    #: the moment up to which the old one was valid
    valid_to: int


class PulseHit(Struct, frozen=True, kw_only=True):
    """One memory that a search found."""

    id: str
    score: float
    kind: str = "state"
    label: str = ""
    #: semantic, lexical, graph, recency, usage, each 0..1; without those that the query cannot have
    signals: Mapping[str, float] = field(default_factory=dict)
    #: what each signal adds to the score, before confidence and inhibition
    shares: Mapping[str, float] = field(default_factory=dict)
    #: None is not tracked and counts as 1
    confidence: float | None = None
    source: str | None = None
    trust: Trust = "developer"
    inhibition: float = 0.0
    #: what took its place, if it was asked for all the same
    superseded_by: str | None = None
    #: suppressed sources that were found instead of this, their consolidation
    stands_for: tuple[str, ...] = ()


class Pulse(Struct, frozen=True, kw_only=True):
    """What a search found, best first."""

    #: what feedback refers to
    retrieval_id: str
    at: int
    scope: str
    weights: Mapping[str, float]
    hits: tuple[PulseHit, ...]
    #: how many there were before the limit
    found: int
    #: how many nodes resembled the query itself
    seeds: int
    #: spreading met more nodes than it looks at
    truncated: bool = False


class Absorbed(Struct, frozen=True, kw_only=True):
    """A search, and how much each memory was reinforced by it."""

    pulse: Pulse
    amounts: Mapping[str, float]


class WindowItem(Struct, frozen=True, kw_only=True):
    """One memory in a window, or one that did not fit, and why."""

    id: str
    #: base plus attention less inhibition
    effective: float
    base: float
    attention: float
    inhibition: float
    #: likeness to the most similar one chosen before it
    max_similarity: float
    #: what it was ranked by
    value: float
    #: None if nothing asked for it
    cost: float | None
    decision: Literal["pinned", "chosen", "too dear"]
    #: absent for what did not fit
    node: Node | None = None
    superseded: bool = False


class Window(Struct, frozen=True, kw_only=True):
    """What belongs into a context window now."""

    #: what feedback refers to
    retrieval_id: str
    at: int
    items: tuple[WindowItem, ...]
    skipped: tuple[WindowItem, ...]
    budget_used: float
    #: memories that were looked at
    looked_at: int


class Taught(Struct, frozen=True, kw_only=True):
    """A verdict, and the weights that hold after it."""

    retrieval_id: str
    id: str
    useful: bool
    scope: str
    weights: Mapping[str, float]


class Likeness(Struct, frozen=True, kw_only=True):
    """A memory that resembles something."""

    id: str
    #: 0..1
    similarity: float
    #: words or meaning
    by: Literal["words", "meaning"]


class Recognition(Struct, frozen=True, kw_only=True):
    """Whether something is known already, and what it might replace."""

    #: the memory that holds the same, None if none does
    known_as: str | None
    by: Literal["content", "meaning"] | None
    similarity: float
    #: what is about the same but says something else, most similar first: candidates for `supersede`
    resembles: tuple[Likeness, ...]


class Spread(Struct, frozen=True, kw_only=True):
    """What some nodes warm up around them."""

    #: by id, the warmest first, without the nodes it began at
    reached: Mapping[str, float]
    #: nodes that were reached, of which the warmest are shown
    found: int
    #: a level had too many nodes, and its weakest were left out
    truncated: bool


class Showing(Struct, frozen=True, kw_only=True):
    """One search that showed a memory."""

    retrieval_id: str
    at: int
    #: 1 is the best
    place: int
    score: float
    signals: Mapping[str, float]
    #: what was said about it, None if nothing was
    useful: bool | None


class Explanation(Struct, frozen=True, kw_only=True):
    """What a memory is worth now, and where that comes from."""

    state: ActivationState
    #: in milliseconds; 0 never fades
    score_half_life_ms: float
    importance_half_life_ms: float
    #: how well it is kept if every use fades by a power of its age, 0..1; half-lives know no history
    retention: float
    #: where it comes from, None if nothing is known
    memory: Provenance | None
    trust: Trust
    superseded_by: tuple[str, ...]
    #: until when it held, None if it still does
    valid_to: int | None
    sources: tuple[str, ...]
    consolidated_into: tuple[str, ...]
    #: newest searches in the file that showed it
    showings: tuple[Showing, ...]


class DeltaPart(Struct, frozen=True, kw_only=True):
    """One event that added something to a memory."""

    #: of the event, the same in every replica
    id: str
    #: when it happened, and when it was written down (ms)
    at: int
    written_at: int
    amount: float
    reason: str | None = None
    outcome: Literal["shown", "useful", "harmful"] | None = None
    actor: str | None = None
    trust: str | None = None


class Delta(Struct, frozen=True, kw_only=True):
    """What was added to one memory in one way."""

    node: str
    kind: Literal["reinforced", "suppressed"]
    context: str | None = None
    #: sum of the parts, as they were when each was made
    amount: float
    parts: tuple[DeltaPart, ...]


class Deltas(Struct, frozen=True, kw_only=True):
    """What an export has for other replicas."""

    ops: tuple[Delta, ...]
    #: what to export from the next time
    cursor: str
    #: events that wait until their sum is large enough
    carried: int
    #: there is more: export again
    more: bool


class DeltasImported(Struct, frozen=True, kw_only=True):
    """What became of deltas."""

    #: parts that were added
    applied: int
    #: parts that had been added before
    known: int
    #: nodes that do not exist here; their parts were left out
    unknown: tuple[str, ...] = ()
    #: how far the clock of who made them is ahead of this one, in ms
    skew_ms: int = 0


class Reembedded(Struct, frozen=True, kw_only=True):
    """What `reembed` did."""

    #: nodes whose vector was made
    embedded: int
    #: nodes that still have none
    left: int
    model: str


class Edge(Struct, frozen=True, kw_only=True, gc=False):
    """A link. For a dependency, `src` is the prerequisite and `dst` what depends on it."""

    id: str
    src: str
    dst: str
    kind: EdgeKind = "transition"
    label: str = ""
    guard: str | None = None
    #: as the author set it; None inherits the default
    enforcement: Enforcement | None = None
    #: the author's prior
    weight: float = 1.0
    #: what experience added to the prior
    learned_weight: float = 0.0
    version: int = 1
    created_seq: int = 0
    updated_seq: int = 0
    #: hard after too many soft violations; relaxes by itself, and with every change of the rule
    learned_enforcement: Literal["hard"] | None = None


class Zone(Struct, frozen=True, kw_only=True):
    """A set of nodes with a rule for moves inside it and one for moves in or out."""

    name: str
    #: moves between two members
    intra: Enforcement = "soft"
    #: moves with one end among the members
    boundary: Enforcement = "hard"
    #: sorted
    members: tuple[str, ...] = ()
    #: hard after too many soft violations, as on an edge
    learned_intra: Literal["hard"] | None = None
    learned_boundary: Literal["hard"] | None = None
    #: +1 whenever it is defined, its members change or a mode is set; what it learns does not count
    version: int = 1
    created_seq: int = 0
    updated_seq: int = 0


class ZoneProposal(Struct, frozen=True, kw_only=True):
    """The nodes that `derive_zone` found, and the zone if it was asked to define one."""

    members: tuple[str, ...]
    zone: Zone | None = None


class Lock(Struct, frozen=True, kw_only=True):
    """A piece of policy that models, tools and imports cannot change."""

    scope: LockScope
    #: an edge, a zone, an actor; "*" for the tunables
    id: str
    reason: str
    #: who locked it, and when (ms)
    actor: str | None
    at: int
    #: the last event that locked or changed it
    seq: int


class Stat(Struct, frozen=True, kw_only=True, gc=False):
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
    #: of the rules that objected; `promoted` if this move is the one that hardens any of them
    escalation: Mapping[str, Json] = field(default_factory=lambda: {"soft_violations": 0, "promoted": False})
    #: every reason found, also those that were lifted
    reasons: tuple[str, ...] = ()
    #: HardBlocked if the move is denied
    code: Literal["HardBlocked"] | None = None


class Move(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One edge the cursor may take now."""

    edge_id: str
    to: str
    from_: str
    decision: Literal["allow", "warn", "deny"]
    enforcement: Enforcement


class Blocked(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One edge from the cursor that is denied now."""

    edge_id: str
    to: str
    from_: str
    reasons: tuple[str, ...]


class Breakdown(Struct, frozen=True, gc=False):
    """The three terms of a score."""

    reward: float
    weight: float
    explore: float


class Suggestion(Struct, frozen=True, gc=False, rename={"from_": "from"}):
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


class Snapshot(Struct, frozen=True, kw_only=True):
    """The live state of one event, kept in the file."""

    id: str
    seq: int
    #: SHA-256 of the state, in hexadecimal; the log records it
    digest: str


class Compaction(Struct, frozen=True, kw_only=True):
    """What a compaction removed."""

    #: events removed now
    pruned: int
    #: the last event that is gone, now and before together
    seq: int
    #: what a replay begins with; None if nothing was removed
    snapshot_id: str | None = None


class Cut(Struct, frozen=True, kw_only=True):
    """Events that a rollback or a recovery set aside. They are kept in `event_abandoned`."""

    no: int
    stream: str
    #: milliseconds since the epoch
    at: int
    #: who did it; None for a recovery
    actor: str | None
    trust: str | None
    reason: str
    #: where the log ended before, and where it ends since then, as ``seq:hash``
    left: str
    returned_to: str
    #: events set aside
    rows: int


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


class Changes(Struct, frozen=True, kw_only=True):
    """What is new in the log, and what to ask with the next time."""

    #: oldest first
    events: tuple[HistoryEntry, ...]
    #: the last event that is known now: the next `after`
    seq: int
    #: rollbacks so far: the next `cuts`
    cuts: int
    #: a rollback led back to here, and the events after it are no longer the ones that were read
    back_to: int | None = None


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


ViolationKind: TypeAlias = Literal[
    "DagCycle", "DanglingEdge", "CursorOnDeadNode", "OrphanStat", "DanglingZoneMember", "HashChainBreak"
]


class Violation(Struct, frozen=True, kw_only=True):
    """One thing in the graph that cannot be right."""

    kind: ViolationKind
    #: where, by named parts: edge, node, actor, zone, stat, nodes, stream, seq
    locus: Mapping[str, Json]
    detail: str
    #: `repair` can put it right without losing what was learned
    fixable: bool


class Validation(Struct, frozen=True, kw_only=True):
    """What `validate` found; `ok` if it found no violation."""

    ok: bool
    violations: tuple[Violation, ...] = ()
    #: what is allowed and probably not meant
    warnings: tuple[str, ...] = ()


class Repair(Struct, frozen=True, kw_only=True):
    """What `repair` did, after looking again."""

    #: nothing is left
    ok: bool
    fixed: tuple[Violation, ...] = ()
    #: what only a person can decide, such as which edge of a cycle is wrong
    quarantined: tuple[Violation, ...] = ()
    #: what should have been fixable and is still there
    residue: tuple[Violation, ...] = ()


ProposalKind: TypeAlias = Literal[
    "gc-dead-node",
    "promote-soft-to-hard",
    "merge-duplicate-edge",
    "release-blocked-node",
    "prune-low-value-edge",
    "tighten-zone-boundary",
    "tighten-zone-intra",
]


class Proposal(Struct, frozen=True, kw_only=True):
    """One edit that experience suggests."""

    kind: ProposalKind
    #: the node, edge or zone it is about
    target: str
    detail: str
    #: 0..1; the highest comes first
    score: float


class Collected(Struct, frozen=True, kw_only=True):
    """What `gc` set aside; `set_status(id, "active")` brings a node back with its edges."""

    deprecated: tuple[str, ...]
    #: edges that lead nowhere while their node is set aside; they and what they learned are kept
    dormant_edges: int


class Reweighted(Struct, frozen=True, kw_only=True):
    """How many edges got another learned weight."""

    reweighted: int


class Iteration(Struct, frozen=True, kw_only=True):
    """What one `self_iterate` changed."""

    applied: tuple[Proposal, ...]
    reweighted: int
    #: the state before, for `rollback`; None if there was nothing to do
    checkpoint: str | None
    #: no violation is left
    valid: bool
    violations_before: int
    violations_after: int


class Split(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Which edges now leave the new node."""

    from_: str
    to: str
    moved: tuple[str, ...]


class MergedStates(Struct, frozen=True, kw_only=True):
    """Which edges now belong to the node that stays, and which vanished between the two."""

    into: str
    moved: tuple[str, ...]
    dropped: tuple[str, ...]


class Migrated(Struct, frozen=True, kw_only=True):
    """How many nodes were given to the function, and how many it changed."""

    migrated: int
    changed: int


class Planned(Struct, frozen=True, kw_only=True):
    """The ids of what a plan declared, in its order."""

    nodes: tuple[str, ...]
    transitions: tuple[str, ...]
    deps: tuple[str, ...]
    cursor: tuple[str, ...] | None


class Orientation(Struct, frozen=True, kw_only=True):
    """All that is needed to decide what to do next, of one moment."""

    cursor: tuple[str, ...]
    suggestions: tuple[Suggestion, ...]
    legal_moves: tuple[Move, ...]
    blocked: tuple[Blocked, ...]
    #: nodes whose prerequisites have all been visited, less the visited ones
    ready: tuple[str, ...]
    #: what `validate` would list of the graph itself
    violations: int
    #: no damage is known and there is no violation; only `validate` reads the log
    integrity_ok: bool
    #: up to here the log has been verified
    verified_seq: int
    recent: tuple[HistoryEntry, ...]
    seq: int
    fts_enabled: bool
    tunables: Mapping[str, Json]
    #: no legal move is left
    done: bool


def to_json(value: Any) -> Json:
    """Return a value of this module, or a list of them, as plain JSON."""
    return to_builtins(value)


def from_json(cls: type[T], data: Json) -> T:
    """Return the value that `to_json` turned into this JSON."""
    return convert(data, cls)
