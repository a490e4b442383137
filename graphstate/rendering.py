"""Text for people: one line about an event, a picture of the moment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphstate._canonical import Json, encode_text
from graphstate.model import Suggestion

__all__ = ("picture", "summary", "visible")


class _Shown(dict[str, str]):
    """The values of a payload as texts; a dash for what is absent."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__((key, _value(value)) for key, value in body.items())

    def __missing__(self, key: str) -> str:
        return "-"


def _value(value: Json) -> str:
    """A text as it is, a dash for null, how many a list or object holds, anything else as JSON."""
    if value is None:
        return "-"
    return (
        value
        if isinstance(value, str)
        else str(len(value))
        if isinstance(value, (list, dict))
        else encode_text(value)
    )


_SUMMARIES: Mapping[str, Callable[[_Shown], str]] = {
    "TransitionTaken": lambda b: f"{b['from']} -> {b['to']} via {b['edgeId']}",
    "BlockedAttempt": lambda b: f"blocked {b['from']} -> {b['to']}: {b['reason']}",
    "SoftViolation": lambda b: f"soft violation on {b['edgeId']}: {b['reason']}",
    "RewardApplied": lambda b: f"reward {b['value']} over {b['scopes']} scopes",
    "NodeUpserted": lambda b: f"node {b['id']} ({b['kind']})",
    "NodeStatusChanged": lambda b: f"node {b['id']} is {b['status']}",
    "EdgeUpserted": lambda b: f"edge {b['id']}: {b['src']} -> {b['dst']} [{b['kind']}]",
    "EdgeRemoved": lambda b: f"edge removed {b['id']}",
    "EdgesReweighted": lambda b: f"{b['weights']} edges reweighted",
    "Migrated": lambda b: f"{b['migrated']} nodes of kind {b['kind']} migrated to {b['toVersion']}",
    "ZoneDefined": lambda b: f"zone {b['name']} ({b['members']} members)",
    "ZoneMembership": lambda b: f"zone {b['zone']}: {b['op']} {b['node']}",
    "ZoneDeleted": lambda b: f"zone deleted {b['name']}",
    "EnforcementChanged": lambda b: (
        f"enforcement {b['scope']} {b['id']} -> {b['mode'].replace('-', 'inherited')}"
    ),
    "PolicyLocked": lambda b: f"locked {b['scope']} {b['id']}: {b['reason']}",
    "PolicyUnlocked": lambda b: f"unlocked {b['scope']} {b['id']}",
    "TransitionMerged": lambda b: f"{b['from']} -> {b['to']} via {b['edgeId']}, in a branch",
    "StateRestored": lambda b: f"a row of table {b['table']}",
    "Forked": lambda b: f"branches off at {b['seq']}",
    "Merged": lambda b: f"{b['merged']} events of a branch, its {b['from']} to {b['to']}",
    "Imported": lambda b: f"{b['imported']} events of a bundle, its {b['from']} to {b['to']}",
    "memory.reinforced": lambda b: f"{b['id']} reinforced by {b['amount']}",
    "memory.suppressed": lambda b: f"{b['id']} suppressed by {b['amount']}",
    "memory.superseded": lambda b: f"{b['new']} takes the place of {b['old']}",
    "memory.consolidated": lambda b: f"{b['id']} stands for {b['sources']} nodes",
    "memory.feedback": lambda b: f"{b['id']} in {b['retrieval_id']}: useful {b['useful']}",
    "memory.weights_set": lambda b: f"weights of {b['scope']}: {b['weights']}",
    "memory.embedder_set": lambda b: f"vectors are of {b['provider']}/{b['dimensions']}",
    "memory.embedded": lambda b: f"vectors of {b['vectors']} nodes",
    "CheckpointCreated": lambda b: f"checkpoint {b['name']} @ {b['seq']}",
    "SnapshotTaken": lambda b: f"snapshot {b['snapshotId']} @ {b['seq']}",
    "Compacted": lambda b: f"the log begins after {b['seq']}, {b['count']} events removed",
}


def visible(text: str) -> str:
    """Return text as one line in which nothing is hidden or acts on a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c == " " or c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)


def summary(type: str, body: Mapping[str, Any]) -> str:
    """Return one line about an event, whatever it holds; its type if there is nothing more to say."""
    describe = _SUMMARIES.get(type)
    return visible(describe(_Shown(body)) if describe else type)


def picture(
    cursor: Sequence[str],
    moves: Sequence[Suggestion],
    ready: Sequence[str],
    rewards: Iterable[Sequence[Json]],
    violations: int,
    seq: int,
) -> str:
    """Return where the cursor stands, where it can go, and what was learned last.

    Args:
        rewards: (event, value) of the last rewards, oldest first.
        violations: How many things in the graph cannot be right.
        seq: The end of the log.
    """
    lines = [f"cursor: {', '.join(cursor) or '(none)'}", f"moves ({len(moves)}):"]
    lines += [
        f"  -> {move.to} [{move.enforcement}] score={move.score:.2f} conf={move.confidence:.2f}"
        f" visits={move.visits} ema={move.ema_reward:.2f}"
        for move in moves
    ] or ["  (none)"]
    lines.append(f"ready: {', '.join(ready) or '(none)'}")
    given = [f"  {encode_text(value)} @ seq {at}" for at, value in rewards]
    if given:
        lines += ["recent rewards:", *given]
    return "\n".join(visible(line) for line in (*lines, f"violations: {violations}", f"seq: {seq}"))
