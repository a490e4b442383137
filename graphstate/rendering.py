"""Text for people: one line about an event, a picture of the moment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphstate._canonical import Json, encode_text
from graphstate.model import Suggestion

__all__ = ("picture", "summary", "visible")

_SUMMARIES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "TransitionTaken": lambda b: f"{b['from'] or '-'} -> {b['to']} via {b['edgeId']}",
    "BlockedAttempt": lambda b: f"blocked {b['from'] or '-'} -> {b['to']}: {b['reason']}",
    "SoftViolation": lambda b: f"soft violation on {b['edgeId']}: {b['reason']}",
    "RewardApplied": lambda b: f"reward {encode_text(b['value'])} over {len(b['scopes'])} scopes",
    "NodeUpserted": lambda b: f"node {b['id']} ({b['kind']})",
    "NodeStatusChanged": lambda b: f"node {b['id']} is {b['status']}",
    "EdgeUpserted": lambda b: f"edge {b['id']}: {b['src']} -> {b['dst']} [{b['kind']}]",
    "EdgeRemoved": lambda b: f"edge removed {b['id']}",
    "TransitionMerged": lambda b: f"{b['from']} -> {b['to']} via {b['edgeId']}, in a branch",
    "StateRestored": lambda b: f"a row of table {b['table']}",
    "Forked": lambda b: f"branches off at {b['seq']}",
    "Merged": lambda b: f"{b['merged']} events of a branch, its {b['from']} to {b['to']}",
    "Imported": lambda b: f"{b['imported']} events of a bundle, its {b['from']} to {b['to']}",
    "CheckpointCreated": lambda b: f"checkpoint {b['name']} @ {b['seq']}",
}


def visible(text: str) -> str:
    """Return text as one line in which nothing is hidden or acts on a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c == " " or c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)


def summary(type: str, body: Mapping[str, Any]) -> str:
    """Return one line about an event; its type if there is nothing more to say."""
    describe = _SUMMARIES.get(type)
    return visible(describe(body) if describe else type)


def picture(
    cursor: Sequence[str],
    moves: Sequence[Suggestion],
    ready: Sequence[str],
    rewards: Iterable[tuple[int, Json]],
    seq: int,
) -> str:
    """Return where the cursor stands, where it can go, and what was learned last.

    Args:
        rewards: (event, value) of the last rewards, oldest first.
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
    return "\n".join((*lines, f"seq: {seq}"))
