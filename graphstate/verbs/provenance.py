"""Where a memory comes from: what `remember(memory=...)` takes, and what an event may say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphstate._canonical import Json
from graphstate.activation.decay import CLASSES
from graphstate.errors import shown
from graphstate.model import Provenance, to_json
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse

__all__ = ("check_provenance", "provenance")

#: Nodes that one was made of, or that it contradicts.
MAX_REFERENCES = 1_000


def _source(value: object, what: str) -> str:
    text = arguments.text(value, what, arguments.MAX_LABEL)
    if not text:
        refuse(f"{what} must not be empty; leave it out, or give None, if nothing is known")
    return text


def _references(value: object, what: str) -> list[str]:
    ids = list(dict.fromkeys(arguments.identifiers(value, what)))
    if len(ids) > MAX_REFERENCES:
        refuse(f"{what} names {len(ids)} nodes, more than the {MAX_REFERENCES} allowed")
    return ids


_PARTS: Mapping[str, Callable[[object, str], Json]] = {
    "memory_class": lambda value, what: arguments.choice(value, what, CLASSES),
    "confidence": lambda value, what: arguments.number(value, what, least=0, most=1),
    "source": _source,
    "observed_at": lambda value, what: arguments.whole(value, what, least=0, most=2**53),
    "derived_from": _references,
    "supersedes": arguments.identifier,
    "contradicts": _references,
}


def provenance(old: Provenance | None, given: object) -> dict[str, Any]:
    """Return what is known of a node after something was told: None takes a part away."""
    if not isinstance(given, Mapping):
        refuse(f"memory must be an object with any of {', '.join(_PARTS)}, not {shown(given)}")
    known: dict[str, Any] = {} if old is None else to_json(old)
    for part, value in given.items():
        if part not in _PARTS:
            refuse(f"memory has no part {shown(part)}; there are {', '.join(_PARTS)}")
        known.pop(part, None)
        clean = None if value is None else _PARTS[part](value, f"memory.{part}")
        if clean not in (None, []):
            known[part] = clean
    return known


def check_provenance(value: Json) -> None:
    """What an event says of a node's provenance: as `remember` writes it."""
    if provenance(None, value) != value:
        refuse(f"memory must hold what is known and nothing else, not {shown(value)}")
