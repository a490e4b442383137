"""The values and names of facts: which are refused, how they are copied, when they are the same."""

from __future__ import annotations

import math
import unicodedata
from typing import Any, Final, TypeAlias

from agentloop._canonical import MAX_DEPTH, MAX_INT_DIGITS, Json, encode
from agentloop.errors import BoundExceeded

__all__ = ("MAX_NAME", "MAX_VALUE_BYTES", "check_name", "copied", "same_value")

#: One value as canonical JSON in UTF-8, at most.
MAX_VALUE_BYTES: Final = 256 * 1024
#: Characters of one name, at most.
MAX_NAME: Final = 1_024
_MAX_INT: Final = 10**MAX_INT_DIGITS
#: Controls, format characters (bidi and zero-width among them), surrogates, line separators.
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def same_value(left: Json, right: Json) -> bool:
    """Return whether two JSON values are the same fact.

    A bool is never a number, ``1`` is ``1.0``, a list is a tuple of the same content. Linear
    and iterative, so depth is no matter.
    """
    todo = [(left, right)]
    while todo:
        a, b = todo.pop()
        if a is b:
            continue
        if isinstance(a, bool) or isinstance(b, bool):
            return False
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            if a != b and not (a != a and b != b):
                return False
        elif isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            todo.extend((item, b[key]) for key, item in a.items())
        elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            if len(a) != len(b):
                return False
            todo.extend(zip(a, b, strict=True))
        elif not (isinstance(a, str) and isinstance(b, str) and a == b):
            return False
    return True


#: Where an item stands: the place of its container, its key there, how deep it is.
_Place: TypeAlias = tuple[Any, str | int, int]


def _path(place: _Place) -> str:
    parts: list[str] = []
    while place[2]:
        parts.append(f"[{place[1]}]" if isinstance(place[1], int) else f".{place[1]}")
        place = place[0]
    return "$" + "".join(reversed(parts))


def _text(value: str) -> str:
    if not value.isascii():
        value.encode()  # a lone surrogate raises; the caller says where
    return str.__str__(value)


def _scalar(item: Json) -> Json:
    if isinstance(item, str):
        return _text(item)
    if item is None or isinstance(item, bool):
        return item
    if isinstance(item, int):
        if not -_MAX_INT < item < _MAX_INT:
            raise ValueError(f"an integer of more than {MAX_INT_DIGITS} digits")
        return int(item)
    if isinstance(item, float):
        if not math.isfinite(item):
            raise ValueError(f"the number {item!r}, which is not finite")
        return float(item)
    raise TypeError(f"a {type(item).__name__}, which is not JSON")


def _deep_copy(value: Json) -> Json:
    """Copy and check in one walk that stops at the first bound, so a refusal stays cheap."""
    root: list[Json] = [None]
    todo: list[tuple[Json, Any, _Place]] = [(value, root, (None, 0, 0))]
    size = 0  # of the JSON text, from below: at least a sixth of it
    while todo:
        item, owner, place = todo.pop()
        depth = place[2] + 1
        fresh: Json
        try:
            if isinstance(item, dict):
                size += 2 + 4 * len(item) + sum(map(len, item))
                fresh = {_text(key): None for key in item} if size <= MAX_VALUE_BYTES else {}
            elif isinstance(item, (list, tuple)):
                size += 2 + 2 * len(item)
                fresh = [None] * len(item) if size <= MAX_VALUE_BYTES else []
            else:
                fresh = _scalar(item)
                size += len(fresh) if isinstance(fresh, str) else len(repr(fresh)) - 1
        except UnicodeEncodeError as error:
            raise ValueError(f"a lone surrogate in the text at {_path(place)}: {error.reason}") from None
        except (AttributeError, TypeError):
            what = "a key that is not a str" if isinstance(item, dict) else f"a {type(item).__name__}"
            raise TypeError(f"a fact is a JSON value, but there is {what} at {_path(place)}") from None
        except ValueError as error:
            raise ValueError(f"a fact is a JSON value, but there is {error}, at {_path(place)}") from None
        if size > MAX_VALUE_BYTES:
            raise BoundExceeded("symbolic value bytes", MAX_VALUE_BYTES, f"at least {size:,}")
        owner[place[1]] = fresh
        if not isinstance(fresh, (dict, list)):
            continue
        if depth > MAX_DEPTH:
            raise BoundExceeded("symbolic value depth", MAX_DEPTH, "more levels (or it contains itself)")
        members = item.items() if isinstance(item, dict) else enumerate(item)
        todo.extend((member, fresh, (place, key, depth)) for key, member in members)
    if size * 6 > MAX_VALUE_BYTES and (exact := len(encode(root[0]))) > MAX_VALUE_BYTES:
        raise BoundExceeded("symbolic value bytes", MAX_VALUE_BYTES, exact)
    return root[0]


def copied(value: Json) -> Json:
    """Return a deep copy of a JSON value; plain values as they are.

    Raises:
        TypeError: Not a JSON value; names the place.
        ValueError: A number that is not finite, an integer too long, a lone surrogate.
        BoundExceeded: Above `MAX_VALUE_BYTES`, too deep, or containing itself.
    """
    kind = type(value)
    if value is None or kind is bool or (kind is str and len(value) < 256 and value.isascii()):
        return value
    if kind is int and -(2**63) <= value < 2**63:
        return value
    return _deep_copy(value)


def check_name(name: object) -> str:
    """Return the name if a fact may have it.

    Raises:
        TypeError: No str.
        ValueError: Empty, too long, or with control or hidden characters.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a fact is a str, not {type(name).__name__}: {name!r:.80}")
    if not name:
        raise ValueError("the name of a fact is not empty")
    if len(name) > MAX_NAME:
        raise BoundExceeded("symbolic name characters", MAX_NAME, len(name))
    if not name.isprintable():
        for character in name:
            if unicodedata.category(character) in _REFUSED_CATEGORIES:
                raise ValueError(f"the name of a fact has no U+{ord(character):04X}: {name!a:.80}")
    return name
