"""What a guard's values mean: missing, true, equal, ordered, contained. Charged by work.

A value is JSON or it is missing: a path that leads nowhere is, and so is what is not JSON (an
object, a number that is not finite, an integer too long). Nothing is coerced, nothing but plain
comparison is ever called on a value.

Work is counted in units, so that a guard ends after the same work on every machine. Comparing
two members of lists or objects costs one, comparing texts one per 64 characters, looking for a
text in another one also one per 1,024 pairs of their characters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from graphstate._canonical import MAX_INT_DIGITS, Json

__all__ = (
    "MISSING",
    "Exhausted",
    "Listed",
    "Meter",
    "contains",
    "equal",
    "member",
    "ordered",
    "settled",
    "shape",
    "truth",
)

#: What is left to spend, in one place that all parts of a guard share.
Meter: TypeAlias = list[int]

CHARACTERS_PER_UNIT = 64
PAIRS_PER_UNIT = 1_024
_BITS_PER_UNIT = 8 * CHARACTERS_PER_UNIT
_MAX_BITS = (10**MAX_INT_DIGITS - 1).bit_length()


class Exhausted(Exception):
    """The budget is spent."""


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


class Listed(list[Json]):
    """A list that is written in the guard itself. It equals no other such list."""

    __slots__ = ("partial",)

    def __init__(self, members: list[Json]) -> None:
        super().__init__(members)
        #: a member is missing, so comparing the whole is false
        self.partial: bool = any(m is MISSING or (type(m) is Listed and m.partial) for m in members)


_NUMBER: Final = float
_SHAPES: dict[type, type] = {
    str: str, bool: bool, type(None): type(None), int: _NUMBER, float: _NUMBER, dict: dict, list: list,
    tuple: list, Listed: list,
}  # fmt: skip
_OWN = frozenset({str, bool, type(None), dict, list, tuple, _Missing})


def shape(value: Json) -> type | None:
    """Return which JSON type a value has: str, bool, NoneType, float, dict, list; None if none."""
    kind = type(value)
    found = _SHAPES.get(kind)
    if found is None:
        for parent in (str, int, float, dict, list, tuple):
            if issubclass(kind, parent):
                return _SHAPES[parent]
    return found


def settled(value: Json) -> Json:
    """Return the value as guards see it: itself, as an exact scalar, or MISSING."""
    kind = type(value)
    if kind in _OWN:
        return value
    if kind is int:
        return value if value.bit_length() <= _MAX_BITS else MISSING
    if kind is float:
        return value if math.isfinite(value) else MISSING
    if issubclass(kind, (dict, list, tuple)):
        return value
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int):
        return settled(int.__int__(value))
    return settled(float.__float__(value)) if issubclass(kind, float) else MISSING


def truth(value: Json) -> bool:
    """Missing, null, false, 0 and the empty text are false; everything else is true."""
    kind = type(value)
    if kind is bool or kind is str or kind is int or kind is float:
        return bool(value)
    return value is not None and value is not MISSING


def _spend(meter: Meter, units: int) -> None:
    meter[0] -= units
    if meter[0] < 0:
        raise Exhausted


# ------------------------------------------------------------------------------- equal


def equal(left: Json, right: Json, meter: Meter) -> bool | None:
    """Compare as JSON, by value and without coercion; None if a part is missing."""
    if left is MISSING or right is MISSING:
        return None
    if (type(left) is Listed and left.partial) or (type(right) is Listed and right.partial):
        return None
    return _same(left, right, meter)


def _same(left: Json, right: Json, meter: Meter) -> bool:
    todo = [(left, right)]
    while todo:
        a, b = todo.pop()
        kind = shape(a)
        if kind is None or kind is not shape(b):
            return False
        if kind is list:
            if len(a) != len(b) or type(a) is type(b) is Listed:
                return False
            _spend(meter, len(a))
            todo.extend(zip(a, b, strict=True))
        elif kind is dict:
            if len(a) != len(b) or not _pairs(a, b, todo, meter):
                return False
        elif not _same_scalar(a, b, meter):
            return False
    return True


def _pairs(a: dict[str, Json], b: dict[str, Json], todo: list[tuple[Json, Json]], meter: Meter) -> bool:
    """Put the members of two objects beside each other; False if one has a key of its own."""
    _spend(meter, len(a))
    for key, value in a.items():
        if type(key) is not str:
            return False
        _spend(meter, len(key) // CHARACTERS_PER_UNIT)
        if key not in b:
            return False
        todo.append((value, b[key]))
    return True


def _same_scalar(a: Json, b: Json, meter: Meter) -> bool:
    if isinstance(a, str):
        if len(a) != len(b):
            return False
        _spend(meter, len(a) // CHARACTERS_PER_UNIT)
    elif isinstance(a, int):
        _spend(meter, a.bit_length() // _BITS_PER_UNIT)
    return bool(a == b)


# ----------------------------------------------------------------------------- ordered


def ordered(compare: Callable[[Any, Any], bool], left: Json, right: Json, meter: Meter) -> bool:
    """Compare two numbers, or two texts by code point. Anything else has no order."""
    kind = shape(left)
    if kind is not shape(right):
        return False
    if kind is str:
        _spend(meter, min(len(left), len(right)) // CHARACTERS_PER_UNIT)
        return compare(left, right)
    return kind is _NUMBER and compare(left, right)


# ---------------------------------------------------------------------------- contained


def member(value: Json, members: Json, meter: Meter) -> bool:
    """Whether `members` is a list that holds the value."""
    if value is MISSING or shape(members) is not list:
        return False
    left = meter[0]
    cut = len(members) > left
    place = _position(value, members[:left] if cut else members, meter)
    if place is None and cut:
        raise Exhausted
    _spend(meter, len(members) if place is None else place + 1)
    return place is not None


def _position(value: Json, members: Json, meter: Meter) -> int | None:
    """Return where the value stands first. The members looked at are not charged here."""
    kind = type(value)
    if kind is str and len(value) < CHARACTERS_PER_UNIT:
        for place, item in enumerate(members):
            if type(item) is str and item == value:
                return place
        return None
    if kind is float and value != value:
        return _position_of_nan(members)
    for place, item in enumerate(members):
        if item is not MISSING and equal(value, item, meter):
            return place
    return None


def _position_of_nan(members: Json) -> int | None:
    # A number that is none can only be written in the guard, and only there it finds itself.
    places = (i for i, item in enumerate(members) if type(item) is float and item != item)
    return next(places, None) if type(members) is Listed else None


def contains(whole: Json, part: Json, meter: Meter) -> bool:
    """Whether a list holds the part, an object has it as a key, or a text has it inside."""
    kind = shape(whole)
    if kind is list:
        return member(part, whole, meter)
    if type(part) is not str or kind not in (dict, str):
        return False
    if kind is str:
        pairs = len(whole) * len(part)
        _spend(meter, len(whole) // CHARACTERS_PER_UNIT + pairs // PAIRS_PER_UNIT)
    else:
        _spend(meter, len(part) // CHARACTERS_PER_UNIT)
    return part in whole
