"""Large texts of prompts, kept once under the digest of their bytes.

The same goal, instructions and history stand in prompt after prompt. In the data of a
``fact.prompt`` every text above the limit is replaced by ``{"$blob": digest}``; the chain
covers the digest and the digest covers the text. A value of the prompt that looks like such
a reference becomes a blob itself, so a reference in a stored prompt is always one of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from agentloop._canonical import MAX_DEPTH, Json, NotJson, encode

__all__ = ("BLOB_LIMIT", "BLOB_MARK", "PROMPT", "blob_digest", "join_blobs", "split_blobs")

#: The one kind of entry whose texts may be blobs.
PROMPT = "fact.prompt"
#: Texts of more characters than this become blobs.
BLOB_LIMIT = 1024

_MARK = "$blob"
#: Stands in the bytes of every data with a reference; without it and below the limit there is none.
BLOB_MARK = b'"$blob"'


def blob_digest(blob: bytes) -> str:
    """Return the name of a blob: the hexadecimal SHA-256 of its bytes."""
    return hashlib.sha256(blob).hexdigest()


def _is_reference(value: dict[str, Json]) -> bool:
    return len(value) == 1 and _MARK in value


def _rebuild(value: Json, replace: Callable[[Json], Json]) -> Json:
    """Return a copy in which `replace` has had every text and reference. Iterative."""
    root = [value]
    todo: list[tuple[Json, int]] = [(root, 0)]
    while todo:
        container, depth = todo.pop()
        places = container.items() if isinstance(container, dict) else enumerate(container)
        for place, member in list(places):
            if isinstance(member, str) or (isinstance(member, dict) and _is_reference(member)):
                container[place] = replace(member)
            elif isinstance(member, (dict, list, tuple)):
                if depth == MAX_DEPTH:
                    raise NotJson(f"nested deeper than {MAX_DEPTH} levels (or contains itself)")
                copy = dict(member) if isinstance(member, dict) else list(member)
                container[place] = copy
                todo.append((copy, depth + 1))
    return root[0]


def split_blobs(value: Json, blobs: dict[str, bytes]) -> Json:
    """Return the value with its large texts replaced, adding what they were to ``blobs``.

    Raises:
        NotJson: A replaced text is not JSON, or the value is nested too deep.
    """

    def shorten(member: Json) -> Json:
        if isinstance(member, str) and len(member) <= BLOB_LIMIT:
            return member
        blob = encode(member)
        digest = blob_digest(blob)
        blobs[digest] = blob
        return {_MARK: digest}

    return _rebuild(value, shorten)


def join_blobs(value: Json, load: Callable[[str], Json]) -> Json:
    """Return the value with every reference replaced by what ``load`` gives for its digest."""
    return _rebuild(value, lambda member: member if isinstance(member, str) else load(member[_MARK]))
