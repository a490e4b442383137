"""What a guard's values mean: missing, true, equal, ordered, contained. Charged by work.

A value is JSON or it is missing: a path that leads nowhere is, and so is what is not JSON (an
object, a number that is not finite, an integer too long). Nothing is coerced, nothing but plain
comparison is ever called on a value.

Work is counted in units, so that a guard ends after the same work on every machine:

- one for each member of a list that is looked at for a value,
- eight for comparing two lists or two objects, and one for each member and each key of both,
- one for each 64 characters of what is compared, and of a text that is searched,
- one for each 1,024 pairs of characters of a text and one looked for in it: texts can be made
  so that the search takes that many steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from graphstate._canonical import MAX_INT_DIGITS, Json

__all__ = (
    "CHARACTERS_PER_UNIT",
    "MISSING",
    "PAIRS_PER_UNIT",
    "PER_PAIR",
    "Exhausted",
    "Listed",
    "Meter",
    "contains",
    "equal",
    "is_partial",
    "member",
    "ordered",
    "settled",
    "shape",
    "truth",
)

#: What is left to spend, in one place that all parts of a guard share.
Meter: TypeAlias = list[int]

#: compared, or searched for another text
CHARACTERS_PER_UNIT = 64
#: of a text and one that is looked for in it
PAIRS_PER_UNIT = 1_024
#: for two lists or two objects, before their members
PER_PAIR = 8
_BITS_PER_UNIT = 8 * CHARACTERS_PER_UNIT
_MAX_INT = 10**MAX_INT_DIGITS


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
        self.partial = any(map(is_partial, members))


def is_partial(value: Json) -> bool:
    """Whether a value is missing, or a list written in the guard with a member that is."""
    return value is MISSING or (type(value) is Listed and value.partial)


_NUMBER: Final = float
_SHAPES: dict[type, type] = {
    str: str, bool: bool, type(None): type(None), int: _NUMBER, float: _NUMBER, dict: dict, list: list,
    tuple: list, Listed: list,
}  # fmt: skip
#: the types whose values can be equal to one of a type, where no text is long
_KINDS: dict[type, tuple[type, ...]] = {
    str: (str,), bool: (bool,), type(None): (type(None),), int: (int, float), float: (int, float),
}  # fmt: skip
#: of these every value is JSON (or missing), and exactly what it seems
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
        return value if -_MAX_INT < value < _MAX_INT else MISSING
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
    return None if is_partial(left) or is_partial(right) else _same(left, right, meter)


def _same(left: Json, right: Json, meter: Meter) -> bool:
    todo = [(left, right)]
    while todo:
        a, b = todo.pop()
        kind = _SHAPES.get(type(a)) or shape(a)
        if kind is None or kind is not (_SHAPES.get(type(b)) or shape(b)):
            return False
        if kind is list or kind is dict:
            if len(a) != len(b) or type(a) is type(b) is Listed:
                return False
            if not (_pair_members if kind is list else _pair_values)(a, b, todo, meter):
                return False
        elif not _same_scalar(a, b, meter):
            return False
    return True


_Pairs: TypeAlias = list[tuple[Json, Json]]


def _pair_members(a: list[Json], b: list[Json], todo: _Pairs, meter: Meter) -> bool:
    """Put the members of two lists of one length beside each other."""
    _spend(meter, PER_PAIR + 2 * len(a))
    todo.extend(zip(a, b, strict=True))
    return True


def _pair_values(a: dict[str, Json], b: dict[str, Json], todo: _Pairs, meter: Meter) -> bool:
    """Put the values of two objects beside each other; False if they differ in a key."""
    _spend(meter, PER_PAIR + 4 * len(a))
    for key, value in a.items():
        if type(key) is not str or key not in b:
            return False
        _spend(meter, len(key) // CHARACTERS_PER_UNIT)
        todo.append((value, b[key]))
    return True


def _same_scalar(a: Json, b: Json, meter: Meter) -> bool:
    if isinstance(a, str):
        if len(a) != len(b):
            return False
        _spend(meter, len(a) // CHARACTERS_PER_UNIT)
    elif isinstance(a, int):
        if a.bit_length() > _BITS_PER_UNIT:
            _spend(meter, a.bit_length() // _BITS_PER_UNIT)
            return settled(a) is not MISSING and bool(a == b)
    elif isinstance(a, float) and not math.isfinite(a):
        return False
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
    place = _place(value, members[:left] if cut else members, meter)
    if place is None and cut:
        raise Exhausted
    _spend(meter, len(members) if place is None else place + 1)
    return place is not None


def _place(value: Json, members: Json, meter: Meter) -> int | None:
    """Return where the value stands first. The members looked at are not charged here."""
    kind = type(value)
    if kind is float and value != value:
        return _place_of_nan(members)
    if kind is str and len(value) >= CHARACTERS_PER_UNIT:
        return _place_of_long(value, members, meter)
    if kind not in _KINDS:
        return _place_of_whole(value, members, meter)
    kinds = _KINDS[kind]
    for place, item in enumerate(members):
        if item == value if type(item) in kinds else _is_like(item, value, meter):
            return place
    return None


def _place_of_long(value: str, members: Json, meter: Meter) -> int | None:
    size, cost = len(value), len(value) // CHARACTERS_PER_UNIT
    for place, item in enumerate(members):
        if type(item) is str:
            if len(item) == size:
                _spend(meter, cost)
                if item == value:
                    return place
        elif _is_like(item, value, meter):
            return place
    return None


def _place_of_whole(value: Json, members: Json, meter: Meter) -> int | None:
    kind, size = shape(value), len(value)
    for place, item in enumerate(members):
        alike = (_SHAPES.get(type(item)) or shape(item)) is kind and len(item) == size
        if alike and equal(value, item, meter):
            return place
    return None


def _is_like(item: Json, value: Json, meter: Meter) -> bool:
    """Whether an item of an unusual type, an enum's member for instance, equals a scalar."""
    return type(item) not in _SHAPES and equal(settled(item), value, meter) is True


def _place_of_nan(members: Json) -> int | None:
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
    if kind is dict:
        _spend(meter, len(part) // CHARACTERS_PER_UNIT)
    elif len(part) > len(whole):
        return False
    else:
        pairs = len(part) * len(whole)
        _spend(meter, len(whole) // CHARACTERS_PER_UNIT + pairs // PAIRS_PER_UNIT)
    return part in whole
