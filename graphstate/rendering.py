"""Text for people: one line about an event. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphstate._canonical import encode_text

__all__ = ("summary", "visible")

_SUMMARIES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "TransitionTaken": lambda b: f"{b['from'] or '-'} -> {b['to']} via {b['edgeId']}",
    "BlockedAttempt": lambda b: f"blocked {b['from'] or '-'} -> {b['to']}: {b['reason']}",
    "SoftViolation": lambda b: f"soft violation on {b['edgeId']}: {b['reason']}",
    "RewardApplied": lambda b: f"reward {encode_text(b['value'])} over {len(b['scopes'])} scopes",
    "NodeUpserted": lambda b: f"node {b['id']} ({b['kind']})",
    "NodeStatusChanged": lambda b: f"node {b['id']} is {b['status']}",
    "EdgeUpserted": lambda b: f"edge {b['id']}: {b['src']} -> {b['dst']} [{b['kind']}]",
    "EdgeRemoved": lambda b: f"edge removed {b['id']}",
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
