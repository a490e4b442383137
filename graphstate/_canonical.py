"""Canonical JSON: the one encoder and the one strict reader.

Whatever is hashed or stored is written by `encode`; whatever comes from outside is read by
`decode`. The same value always gives the same bytes: keys sorted by UTF-16 code unit, no
white space, integral floats as integers, ECMAScript number text, nothing non-finite, no lone
surrogates. No other module calls a JSON decoder. `graphstate/_canonical.py` and
`agentloop/_canonical.py` are the same file, so that neither package needs the other.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from json import encoder as _json_encoder
from typing import Any, TypeAlias, TypeVar

__all__ = (
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_INT_DIGITS",
    "Json",
    "NotJson",
    "decode",
    "decode_each",
    "encode",
    "encode_text",
    "quote",
    "repair_text",
)

#: A JSON value: None, bool, int, finite float, str, list or tuple, dict with str keys.
Json: TypeAlias = Any

MAX_DEPTH = 100
MAX_INT_DIGITS = 1_000
MAX_BYTES = 64 * 1024 * 1024

_MAX_INT = 10**MAX_INT_DIGITS

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class NotJson(ValueError):
    """The value or text is not JSON as this library reads and writes it.

    Attributes:
        path: Where in the value, as in ``$.key[2]``; ``$`` if the place is not known.
    """

    def __init__(self, problem: str, path: str = "$") -> None:
        super().__init__(f"{problem} at {path}" if path != "$" else problem)
        self.problem, self.path = problem, path


# ---------------------------------------------------------------------------------- writing

_HARD_KEY = "[\ud800-\U0010ffff]"  # from here UTF-16 order and code point order differ


def _inspect(value: Json) -> bool:
    """Check that the value is JSON; True if a plain encoder would write it canonically.

    Iterative, so that the answer does not depend on how deep the caller stands, and depth
    first, so that a value that contains itself is found after MAX_DEPTH steps.
    """
    plain = True
    todo: list[tuple[Json, int]] = [((value,), 0)]
    while todo:
        members, depth = todo.pop()
        if isinstance(members, dict):
            for key in members:
                if type(key) is not str:
                    raise NotJson(f"a key of type {type(key).__name__} ({key!r:.80})", _place(value, members))
                if plain and not key.isascii() and re.search(_HARD_KEY, key):
                    plain = False
            members = members.values()
        for member in members:
            kind = type(member)
            # Exact types first: they are nearly all there is, and far quicker to recognise.
            if kind is str or kind is bool or member is None:
                continue
            if kind is int and -_MAX_INT < member < _MAX_INT:
                continue
            if kind is dict or kind is list or isinstance(member, (dict, list, tuple)):
                if depth == MAX_DEPTH:
                    raise NotJson(f"nested deeper than {MAX_DEPTH} levels (or contains itself)")
                todo.append((member, depth + 1))
            elif isinstance(member, int):
                if not -_MAX_INT < member < _MAX_INT:
                    raise NotJson(f"an integer of more than {MAX_INT_DIGITS} digits", _place(value, member))
                plain = False  # a subclass, an enum member for instance: written by value below
            elif isinstance(member, float):
                if not math.isfinite(member):
                    raise NotJson(f"the number {member!r} is not finite", _place(value, member))
                # In this range Python's text of a number is ECMAScript's, except for whole numbers.
                plain = plain and kind is float and 1e-4 <= abs(member) < 1e15 and not member.is_integer()
            elif isinstance(member, str):
                plain = False
            else:
                raise NotJson(f"a value of type {kind.__name__}", _place(value, member))
    return plain


def _place(value: Json, refused: Json) -> str:
    """Return the path of the very object that was refused."""
    todo: list[tuple[Json, str]] = [(value, "$")]
    seen: set[int] = set()
    while todo:
        item, path = todo.pop()
        if item is refused:
            return path
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            todo.extend((member, f"{path}.{key}") for key, member in item.items())
        elif isinstance(item, (list, tuple)):
            todo.extend((member, f"{path}[{index}]") for index, member in enumerate(item))
    return "$"


def _number_text(value: float) -> str:
    """ECMAScript shortest form: ``1``, ``1e+21``, ``1e-7``."""
    if value == 0:
        return "0"
    digits, _, exponent_text = repr(abs(value)).partition("e")
    whole, _, fraction = digits.partition(".")
    if fraction == "0":
        fraction = ""
    exponent = int(exponent_text or 0) + len(whole)
    mantissa = (whole + fraction).lstrip("0")
    exponent -= len(whole + fraction) - len(mantissa)
    mantissa = mantissa.rstrip("0")
    count = len(mantissa)
    if count <= exponent <= 21:
        text = mantissa + "0" * (exponent - count)
    elif 0 < exponent <= 21:
        text = f"{mantissa[:exponent]}.{mantissa[exponent:]}"
    elif -6 < exponent <= 0:
        text = f"0.{'0' * -exponent}{mantissa}"
    else:
        point = f".{mantissa[1:]}" if count > 1 else ""
        text = f"{mantissa[0]}{point}e{exponent - 1:+d}"
    return f"-{text}" if value < 0 else text


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def _write(value: Json, out: list[str]) -> None:
    # Depth was bounded by _inspect, so this recursion is at most MAX_DEPTH frames.
    if value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, str):
        out.append(_json_encoder.encode_basestring(str.__str__(value)))
    elif isinstance(value, int):
        out.append(int.__repr__(value))
    elif isinstance(value, float):
        out.append(_number_text(value))
    elif isinstance(value, dict):
        out.append("{")
        for position, key in enumerate(sorted(value, key=_utf16)):
            if position:
                out.append(",")
            out.append(_json_encoder.encode_basestring(key))
            out.append(":")
            _write(value[key], out)
        out.append("}")
    else:
        out.append("[")
        for position, member in enumerate(value):
            if position:
                out.append(",")
            _write(member, out)
        out.append("]")


_plain_text: Callable[[Json], str] = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


def _load_fast() -> tuple[Callable[[Json], bytes], Callable[[bytes], Json], Any, Any] | None:
    # msgspec writes and reads the same bytes several times faster. It is used where the program
    # has loaded it anyway: a one-shot graph command would wait longer for the import than it gains.
    module: Any = sys.modules.get("msgspec.json")
    if not hasattr(module, "Encoder"):
        return None
    writer, reader = module.Encoder(order="sorted"), module.Decoder()
    return writer.encode, reader.decode, writer.encode_lines, reader.decode_lines


_fast = _load_fast()


def _plain_bytes(value: Json) -> bytes:
    global _fast
    if _fast is None:
        _fast = _load_fast()
        if _fast is None:
            return _plain_text(value).encode()
    return _fast[0](value)


def _plain_str(value: Json) -> str:
    try:
        return _plain_bytes(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, which a text may still hold
        return _plain_text(value)


def _with_fresh_stack(function: Callable[[_In], _Out], value: _In) -> _Out:
    """Call the function in a thread: for a caller that stands too deep for MAX_DEPTH more."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as worker:
        return worker.submit(function, value).result()


def _written(value: Json) -> str:
    out: list[str] = []
    _write(value, out)
    return "".join(out)


def encode_text(value: Json) -> str:
    """Return the canonical JSON text of a value.

    Raises:
        NotJson: Not a JSON value, too deep, self-containing, not finite, or an integer too long.
    """
    writer = _plain_str if _inspect(value) else _written
    try:
        return writer(value)
    except RecursionError:
        return _with_fresh_stack(writer, value)


def quote(text: str) -> str:
    """Return the canonical JSON text of a plain str, for who builds JSON from parts it knows.

    A lone surrogate is passed on; it is refused where the result is encoded.
    """
    return _json_encoder.encode_basestring(text)


def encode(value: Json) -> bytes:
    """Return the canonical JSON bytes (UTF-8) of a value. Linear in its size.

    Raises:
        NotJson: As `encode_text`; also for a lone surrogate.
    """
    try:
        if not _inspect(value):
            return encode_text(value).encode()
        try:
            return _plain_bytes(value)
        except RecursionError:
            return _with_fresh_stack(_plain_bytes, value)
    except UnicodeEncodeError as error:
        raise NotJson(f"a lone surrogate U+{ord(error.object[error.start]):04X}") from None


# ---------------------------------------------------------------------------------- reading

# Compiled on first use, by `re` itself: usual input needs none of them.
_STRING = r'(?s)"[^"\\]*(?:\\.[^"\\]*)*"'
_BRACKET = r"[\[\]{}]"
_LONG_INT = rb"[0-9]{%d}" % (MAX_INT_DIGITS + 1)
_TWO_DIGITS = rb"[0-9]{2}"
_SURROGATE = "[\ud800-\udfff]"
_PAIR = "[\ud800-\udbff][\udc00-\udfff]"


def _too_deep(text: str, limit: int) -> bool:
    if text.count("[") + text.count("{") <= limit:
        return False
    depth = 0
    for match in re.finditer(_BRACKET, re.sub(_STRING, '""', text)):
        depth += 1 if match[0] in "[{" else -1
        if depth > limit:
            return True
    return False


def _has_long_int(data: bytes) -> bool:
    if len(data) <= MAX_INT_DIGITS:
        return False
    # A number that long covers two neighbours of every sample taken at half its length.
    return bool(re.search(_TWO_DIGITS, data[:: MAX_INT_DIGITS // 2]) and re.search(_LONG_INT, data))


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def repair_text(text: str) -> str:
    """Join surrogate pairs and replace every lone surrogate by U+FFFD."""
    if text.isascii() or not re.search(_SURROGATE, text):
        return text
    return re.sub(_SURROGATE, "\ufffd", re.sub(_PAIR, _join, text))


def _refuse_constant(name: str) -> Json:
    raise NotJson(f"the number {name} is not finite")


def _read_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotJson(f"the number {text:.40} is not finite")
    return value


def _read_int(text: str) -> int:
    if len(text) > MAX_INT_DIGITS + text.startswith("-"):
        raise NotJson(f"an integer of more than {MAX_INT_DIGITS} digits")
    return int(text)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotJson(f"the key {key!r:.80} stands twice in one object")
            seen.add(key)
    return members


_unique_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_read_float, parse_int=_read_int, parse_constant=_refuse_constant
)
_last_decoder = json.JSONDecoder(
    parse_float=_read_float, parse_int=_read_int, parse_constant=_refuse_constant
)


def _read_unique(text: str) -> Json:
    try:
        return _unique_decoder.decode(text)
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(str(error)) from None


def _read_last(text: str) -> Json:
    try:
        return _last_decoder.decode(text)
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(str(error)) from None


def _repair(value: Json) -> Json:
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, list):
        return [_repair(item) for item in value]
    if isinstance(value, dict):
        return {repair_text(key): _repair(item) for key, item in value.items()}
    return value


def decode(
    data: bytes | str,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    duplicate_keys: bool = False,
    repair_surrogates: bool = False,
) -> Json:
    """Read one JSON value strictly. Linear in the size of the text.

    Args:
        data: Bytes are UTF-8, without a byte-order mark.
        max_bytes: Longer input is refused before anything is decoded.
        max_depth: Deeper nesting is refused before anything is decoded.
        duplicate_keys: Accept a key that stands twice (the last one counts).
        repair_surrogates: Replace lone surrogates by U+FFFD instead of refusing them.

    Raises:
        NotJson: Not JSON, too large, too deep, a key twice, a number that is not finite.
    """
    if len(data) > max_bytes:
        raise NotJson(f"{len(data)} bytes of JSON, more than the {max_bytes} allowed")
    if isinstance(data, (bytes, bytearray, memoryview)):
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise NotJson(f"not UTF-8 at byte {error.start}") from None
    else:
        text = data
    if _too_deep(text, max_depth):
        raise NotJson(f"nested deeper than {max_depth} levels")
    if type(data) is bytes and _fast is not None and not _has_long_int(data):
        try:
            value = _fast[1](data)
            if _fast[0](value) == data:  # so it is canonical: no key twice, nothing not finite
                return value
        except (ValueError, RecursionError):
            pass  # the strict reader says what is wrong
    read = _read_last if duplicate_keys else _read_unique
    try:
        value = read(text)
    except RecursionError:
        value = _with_fresh_stack(read, text)
    if text.isascii() and "\\u" not in text:
        return value
    if repair_surrogates:
        try:
            return _repair(value)
        except RecursionError:
            return _with_fresh_stack(_repair, value)
    try:
        encode_text(value).encode()
    except UnicodeEncodeError as error:
        raise NotJson(f"a lone surrogate U+{ord(error.object[error.start]):04X}") from None
    return value


# Texts that are read together; more at once are not faster and take memory several times.
_TOGETHER = 8 * 1024 * 1024


def decode_each(texts: Sequence[bytes]) -> Iterator[Json]:
    """Yield the value of each text, read as `decode` reads it: twice as fast if all are canonical.

    Raises:
        NotJson: As `decode`, when the turn of the text comes.
    """
    values = _read_together(texts)
    return map(decode, texts) if values is None else iter(values)


def _read_together(texts: Sequence[bytes]) -> list[Json] | None:
    """Return the values of canonical texts; None if they have to be looked at one by one."""
    longest = max(map(len, texts), default=0)
    if _fast is None or longest * len(texts) > _TOGETHER:
        return None
    lines = b"\n".join((*texts, b""))
    try:
        if longest > 2 * MAX_DEPTH and any(map(_exceeds, texts)):  # each level has two brackets
            return None
        values: list[Json] = _fast[3](lines)
        # Canonical JSON has no line break: if there are as many lines as texts, each text is one.
        return values if len(values) == len(texts) and _fast[2](values) == lines else None
    except (ValueError, RecursionError):
        return None


def _exceeds(text: bytes) -> bool:
    """Say whether canonical text is too deep, or may hold a number that is too long."""
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _too_deep(str(text, "utf-8"), MAX_DEPTH):
        return True
    return len(text) > MAX_INT_DIGITS and _has_long_int(text)
