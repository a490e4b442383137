"""What a memory costs in a context window: an estimate, until the caller brings a tokenizer.

A quarter of the UTF-8 bytes of a node's JSON. Good for English and code; scripts of three bytes
a character count as three quarters of a token a character, which is about what models charge.
"""

from __future__ import annotations

from graphstate._canonical import Json, encode_text

__all__ = ("estimate_node", "estimate_text")


def estimate_text(text: str) -> int:
    """Return about how many tokens a text has, at least 1: its UTF-8 bytes divided by 4, rounded up."""
    return max(1, -(-len(text.encode()) // 4))


def estimate_node(id: str, kind: str, payload: Json, *, label: str = "") -> int:
    """Return about how many tokens a node has when shown as compact JSON: id, kind, payload.

    A label that says more than the id is part of what is shown.
    """
    named = f'"label":{encode_text(label)},' if label and label != id else ""
    return estimate_text(
        f'{{"id":{encode_text(id)},"type":{encode_text(kind)},{named}"data":{encode_text(payload)}}}'
    )
