"""What arguments must look like. Every function returns the clean value or raises
`VerbFailed` with a message that names the argument, the bound and the value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from graphstate._canonical import Json, NotJson, encode
from graphstate.errors import ErrorCode, VerbFailed, shown
from graphstate.events import Head, is_valid_id
from graphstate.similarity import LARGEST

__all__ = (
    "choice", "embedding", "function", "head", "identifier", "identifiers", "json_bytes", "limit", "name", "number", "refuse",
    "shortened", "tags", "text", "whole", "with_reason",
)  # fmt: skip

# Of texts and JSON: UTF-8 bytes, what a text costs in the file and in the log.
MAX_LABEL = 1_024
MAX_NAME = 128
MAX_SEARCH = 1_024
MAX_REASON = 1_024
MAX_VARS = 262_144
# Of lists: how many.
MAX_TAGS = 64
MAX_EMBEDDING = 8_192
MAX_RESULTS = 1_000
MAX_IDS = 100_000

# From here on the digits of a float's value are another JSON text than the float.
_WHOLE = 1e15


def refuse(message: str, code: ErrorCode = ErrorCode.INVALID_INPUT, **details: Any) -> NoReturn:
    """Fail the verb."""
    raise VerbFailed(code, message, details)


def identifier(value: object, what: str = "id") -> str:
    """An id: 1 to 128 of A-Z a-z 0-9 . _ : -, the first a letter or digit."""
    if not is_valid_id(value):
        refuse(
            f"{what} must be 1 to 128 of A-Z a-z 0-9 . _ : - beginning with a letter or digit, not {shown(value)}"
        )
    return str(value)


def identifiers(values: object, what: str) -> list[str]:
    """A list of ids."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        refuse(f"{what} must be a list of ids, not {shown(values)}")
    listed = list(values)
    if len(listed) > MAX_IDS:
        refuse(f"{what} holds {len(listed)} ids, more than the {MAX_IDS} allowed")
    return [identifier(value, f"{what}[{index}]") for index, value in enumerate(listed)]


def text(value: object, what: str, most: int) -> str:
    """Free text up to a number of UTF-8 bytes."""
    if not isinstance(value, str):
        refuse(f"{what} must be text, not {type(value).__name__}")
    size = len(value)
    if size <= most and not value.isascii():
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            refuse(f"{what} holds a lone surrogate at character {error.start}")
    if size > most:
        refuse(f"{what} is longer than the {most} bytes allowed")
    return str(value)


def shortened(value: str, most: int) -> str:
    """The longest beginning of a text that has at most so many UTF-8 bytes."""
    return value.encode()[:most].decode(errors="ignore")


def name(value: object, what: str) -> str:
    """A short text that people compare: no controls, separators, bidi or zero-width characters."""
    clean = text(value, what, MAX_NAME)
    if not clean or not clean.isprintable():
        refuse(f"{what} must be 1 to {MAX_NAME} bytes of printable characters, not {shown(value)}")
    return clean


def tags(values: object) -> list[str]:
    """At most 64 tags, each once, in the order given."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        refuse(f"tags must be a list of texts, not {shown(values)}")
    clean = list(dict.fromkeys(name(value, "a tag") for value in values))
    if len(clean) > MAX_TAGS:
        refuse(f"{len(clean)} tags, more than the {MAX_TAGS} allowed")
    return clean


def choice(value: object, what: str, choices: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        refuse(f"{what} must be one of {', '.join(choices)}, not {shown(value)}")
    return str(value)


def function(value: object, what: str) -> None:
    """A function, or None."""
    if value is not None and not callable(value):
        refuse(f"{what} must be a function, not {shown(value)}")


def number(value: object, what: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number; booleans and texts are none.

    A whole number is returned as an int: JSON writes both the same, an int five times as fast.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(f"{what} must be a number, not {shown(value)}")
    try:
        clean = float(value)
    except OverflowError:
        clean = math.inf
    if not math.isfinite(clean) or not least <= clean <= most:
        bounds = "" if least == -math.inf and most == math.inf else f" from {least:g} to {most:g}"
        refuse(f"{what} must be a finite number{bounds}, not {shown(value)}")
    return int(clean) if clean.is_integer() and abs(clean) < _WHOLE else clean  # -0.0 becomes 0


def whole(value: object, what: str, *, least: int, most: int) -> int:
    """An integer in a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        refuse(f"{what} must be an integer from {least} to {most}, not {shown(value)}")
    return int(value)


def limit(value: object, default: int) -> int:
    """How many results are wanted: 0 to 1,000."""
    return default if value is None else whole(value, "limit", least=0, most=MAX_RESULTS)


def head(value: object, what: str) -> Head:
    """The end of a log, as the verb `head` says it."""
    if not isinstance(value, str):
        refuse(f"{what} must be text, not {type(value).__name__}")
    try:
        return Head.parse(value)
    except ValueError as error:
        refuse(f"{what}: {error}")


def embedding(value: object) -> list[float]:
    """A vector of 1 to 8,192 numbers that are finite in 32 bits."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        refuse(f"embedding must be a list of numbers, not {shown(value)}")
    clean = [
        number(item, f"embedding[{index}]", least=-LARGEST, most=LARGEST) for index, item in enumerate(value)
    ]
    if not 0 < len(clean) <= MAX_EMBEDDING:
        refuse(f"embedding has {len(clean)} numbers, it must have 1 to {MAX_EMBEDDING}")
    return clean


def json_bytes(value: Json, what: str) -> bytes:
    """The canonical bytes of a JSON value."""
    try:
        return encode(value)
    except NotJson as error:
        refuse(f"{what} is not JSON: {error}")


def with_reason(body: dict[str, Json], reason: object) -> dict[str, Json]:
    """The body of an event, with the reason if one was given."""
    return body if reason is None else {**body, "reason": text(reason, "reason", MAX_REASON)}
