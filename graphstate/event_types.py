"""The facts of a graph's log as a table: what each type holds and what it does to the graph.

The reference page and the tests read it. A type that is not here is stored, hashed and kept, and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ("EVENT_TYPES", "EventType")


class EventType(NamedTuple):
    """One type of event."""

    #: what each key of the payload holds; a name that ends in ? may be absent
    payload: Mapping[str, str]
    effect: str


_NODE, _EDGE, _ZONE = "id of the node", "id of the edge", "name of the zone"
_RULES = "list of [scope, id] of the rules that objected"
_REASON = {"reason?": "why, as the caller said"}
_AT = {"at": "when it happened, in ms; it counts from then on", **_REASON}
#: Whoever has the same rules and vars can decide again and compare.
_WHY = {
    "decision?": "digest of the trace",
    "policy?": "digest of the rules it was decided by",
    "vars?": "digest of what the caller passed as vars",
}

_MOVE = {
    "edgeId": _EDGE,
    "from": "id of the node that was left, or null",
    "to": "id of the node that was entered",
    "clean": "true if the move was allowed without a warning",
    "choice?": "what `step` chose from: scores by edge, and random draws if there were any",
    "cleanRules?": "list of [scope, id] of the rules that were kept",
    **_WHY,
}
_TAKEN_OVER = {
    "origin": "hash of the event all of the origin's logs have in common",
    "from": "the first event of the origin that was looked at",
    "to": "the last one",
    "head": "the origin's head, as seq:hash",
    "leftOut": "how many events were left out",
}

#: Every type of event that this version writes or folds.
EVENT_TYPES: Mapping[str, EventType] = {
    "NodeUpserted": EventType(
        {
            "id": _NODE,
            "kind": "text",
            "label": "text",
            "payload": "any JSON",
            "tags": "list of texts",
            "status": "active, archived or deprecated",
            "embedding?": "base64 of little-endian 32-bit floats, or null for none; absent: as it was",
            "model?": "which model made the vector, if the graph knows one",
            "trust?": "how far it is trusted at most, if its writer did not write all of it",
            "memory?": "all that is known of where it comes from; what was known stays if it is absent",
        },
        "creates the node, or replaces it: its version grows by 1",
    ),
    "NodeStatusChanged": EventType(
        {"id": _NODE, "status": "active, archived or deprecated"}, "sets the status; the version stays"
    ),
    "EdgeUpserted": EventType(
        {
            "id": _EDGE,
            "src": "id of the node it starts at",
            "dst": "id of the node it leads to",
            "kind": "transition, dependency or reference",
            "label": "text",
            "guard": "text, or null",
            "enforcement": "off, soft or hard, or null",
            "weight": "number from 0",
            **_REASON,
        },
        "creates the edge, or replaces it: its version grows by 1; with new ends it forgets what it had learned",
    ),
    "EdgeRemoved": EventType({"id": _EDGE, **_REASON}, "removes the edge and what it had learned"),
    "ZoneDefined": EventType(
        {
            "name": _ZONE,
            "members": "list of ids of nodes",
            "intra": "off, soft or hard",
            "boundary": "off, soft or hard",
            **_REASON,
        },
        "creates the zone, or replaces its members and modes",
    ),
    "ZoneMembership": EventType(
        {"zone": _ZONE, "node": _NODE, "op": "add or remove", **_REASON}, "adds the member, or removes it"
    ),
    "ZoneDeleted": EventType({"name": _ZONE, **_REASON}, "removes the zone"),
    "EnforcementChanged": EventType(
        {
            "scope": "edge, zone-intra or zone-boundary",
            "id": "id of the edge, or name of the zone",
            "mode": "off, soft or hard; null inherits",
            "learned?": "true if experience did it, not an author",
            **_REASON,
        },
        "sets the mode, or with `learned` what was learned on top of it",
    ),
    "PolicyLocked": EventType(
        {
            "scope": "edge, zone, tunables or cursor",
            "id": "what is locked; * for the tunables",
            "reason": "shown to whoever is refused",
        },
        "lets only developers and persons change it",
    ),
    "PolicyUnlocked": EventType(
        {"scope": "edge, zone, tunables or cursor", "id": "what was locked", **_REASON},
        "removes the lock",
    ),
    "CursorMoved": EventType(
        {"set": "list of ids of nodes", **_REASON}, "puts the cursor of the event's actor on these nodes"
    ),
    "TransitionTaken": EventType(
        _MOVE, "moves the cursor of the event's actor; edge and entered node count a visit"
    ),
    "TransitionMerged": EventType(
        _MOVE, "a move that was made in a branch: edge and entered node count a visit, no cursor moves"
    ),
    "BlockedAttempt": EventType(
        {
            "edgeId": _EDGE,
            "from": "id of a node, or null",
            "to": "id of a node",
            "reason": "reasons, joined by a semicolon",
            "count?": "how many attempts this event stands for, 1 if absent",
            "rules?": _RULES,
            **_WHY,
        },
        "the edge counts the blocked attempts; the cursor stays",
    ),
    "SoftViolation": EventType(
        {"edgeId": _EDGE, "reason": "reasons, joined by a semicolon", "rules?": _RULES},
        "the edge and each rule that was violated count a soft violation",
    ),
    "RewardApplied": EventType(
        {
            "scopes": "list of {kind, id, weight}, kind is node or edge",
            "value": "number",
            "alpha": "rate from 0 to 1",
        },
        "each scope counts a success or failure, and its average moves towards the value by alpha times weight",
    ),
    "EdgesReweighted": EventType(
        {"weights": "object: learned weight by id of the edge"}, "sets what was learned on top of the weights"
    ),
    "memory.reinforced": EventType(
        {
            "id": _NODE,
            "amount": "number, may be negative",
            "context?": "name of a context it is reinforced in as well",
            "outcome?": "shown, useful or harmful",
            **_AT,
        },
        "the amount, faded from `at`, is added to the node's score, a share of it to its importance",
    ),
    "memory.suppressed": EventType(
        {
            "id": _NODE,
            "amount": "number, negative to release",
            "context?": "name of the context it is held back in; everywhere if absent",
            **_AT,
        },
        "the amount, faded from `at`, is added to the node's inhibition",
    ),
    "memory.superseded": EventType(
        {"new": _NODE, "old": _NODE, "edgeId": "id of the edge that is drawn", **_AT},
        "draws the edge superseded_by from old to new; new inherits, old is ranked no more",
    ),
    "memory.consolidated": EventType(
        {
            "id": _NODE,
            "sources": "list of ids of nodes",
            "edges": "list of ids of the edges that are drawn, one for each source",
            "amount": "how much each new source is held back",
            **_AT,
        },
        "draws an edge consolidated_from to each new source and suppresses it; the node inherits from all",
    ),
    "memory.replication_began": EventType(
        {}, "from here on the ids of reinforcements and suppressions are kept, so that none counts twice"
    ),
    "memory.feedback": EventType(
        {
            "retrieval_id": "id of the search",
            "id": _NODE,
            "useful": "true or false",
            "lr": "how far weights move",
            "rule": "centred, additive or contrast",
            "scope": "whose weights",
            "signals": "object: what the search showed, each 0 to 1",
            "others?": "object: the mean signals of what was ranked before it, for contrast",
            "at": "when, in milliseconds",
        },
        "moves the weights of these signals, and counts on the node; a second one about both does nothing",
    ),
    "memory.weights_set": EventType(
        {"scope": "whose weights", "weights": "object: weight by signal", "at": "when, in milliseconds"},
        "sets these weights; the others stay",
    ),
    "memory.embedder_set": EventType(
        {
            "provider": "name of the embedder",
            "model": "the model behind it, may be empty",
            "dimensions": "numbers of a vector",
            "version": "changes with the vectors, may be empty",
            **_REASON,
        },
        "vectors are of this model from now on; those of another one are emptied and wait for reembed",
    ),
    "memory.embedded": EventType(
        {"model": "which model made them", "vectors": "object: base64 of 32-bit floats by id of the node"},
        "sets the vectors of these nodes; their versions stay",
    ),
    "ConfigSet": EventType(
        {"key": "name of the tunable", "value": "its value", **_REASON}, "sets the tunable"
    ),
    "CheckpointCreated": EventType(
        {
            "name": "name of the checkpoint",
            "seq": "the event it stands on",
            "snapshotId": "id of its snapshot",
        },
        "none on the graph",
    ),
    "SnapshotTaken": EventType(
        {
            "snapshotId": "id of the snapshot",
            "seq": "the event it was taken at",
            "digest": "SHA-256 of the state, in hex",
        },
        "none on the graph",
    ),
    "Forked": EventType(
        {"seq": "the event of the other graph at which this one left it", "hash": "its hash, in hex"},
        "remembers where this branch began",
    ),
    "Merged": EventType(
        {**_TAKEN_OVER, "merged": "how many events were taken over"},
        "remembers how far the branch is known",
    ),
    "Imported": EventType(
        {
            **_TAKEN_OVER,
            "digest": "SHA-256 of the bundle, in hex",
            "version": "of the bundle's form",
            "imported": "how many events were taken over",
            "pinned": "true if the caller knew the head beforehand",
        },
        "remembers how far the origin is known",
    ),
    "StateRestored": EventType(
        {
            "table": "name of a table",
            "row": "list of its columns",
            "id": "the node, if it is a row of one, or null",
        },
        "puts back a row of the state that a compacted bundle begins with",
    ),
    "Compacted": EventType(
        {
            "seq": "the last event that was removed",
            "hash": "its hash, in hex",
            "count": "how many events were removed",
            "snapshotId": "id of the snapshot a replay begins with, or null",
            "snapshotSeq": "the event it was taken at, or null",
            "digest": "SHA-256 of its state, in hex, or null",
            "checkpoints": "list of objects: name, seq, hash, snapshotId and digest of each one that stays",
        },
        "none on the graph: the log begins after that event",
    ),
    "Migrated": EventType(
        {"kind": "kind of the nodes", "toVersion": "number", "migrated": "how many nodes"},
        "none on the graph: each node has an event of its own",
    ),
}
