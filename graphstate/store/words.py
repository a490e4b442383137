"""What a word is: the one rule by which text is indexed, read without the index, and searched.

Runs of letters and digits, without case and accents. SQLite's own tokenizer knows other
letters than Python does, so it is only given words that it leaves as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from graphstate._canonical import Json, decode, encode_text

__all__ = ("index_text", "indexed", "node_words", "words")

_WORD = r"[^\W_]+"

#: Begins a word that is written by its bytes; no word in ASCII begins with it.
_BYTES = "ω"


def words(text: str) -> list[str]:
    """Return the words of a text in order. Linear, and the same with and without the index."""
    folded = text.lower() if text.isascii() else _folded(text)
    return re.findall(_WORD, folded)


def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFD", text.casefold())
    return "".join(c for c in plain if not unicodedata.combining(c))


def node_words(label: str, payload: Json, tags: Iterable[str]) -> list[str]:
    """Return the words of a node: of its label, the keys and values of its payload, its tags."""
    return words(" ".join((label, *_texts(payload), *tags)))


def _texts(value: Json) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            yield from item
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif isinstance(item, str):
            yield item
        elif item is not None:
            yield encode_text(item)


def index_text(label: str, payload: str, tags: str) -> str:
    """Return what the index is given for a node whose payload and tags are canonical JSON."""
    if "\\" in payload or "\\" in tags or "null" in payload:
        found = node_words(label, decode(payload), decode(tags))
    else:  # the words of the JSON text are those of its keys and values
        found = words(f"{label} {payload} {tags}")
    return " ".join(map(indexed, found))


def indexed(word: str) -> str:
    """Return the word as it stands in the index, where it is one token."""
    return word if word.isascii() else _BYTES + word.encode().hex()
