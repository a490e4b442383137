"""Canonical JSON: number text, key order, refusals, and depth wherever the caller stands."""

from __future__ import annotations

import struct
import sys
from enum import IntEnum, StrEnum
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import _canonical
from agentloop._canonical import (
    MAX_DEPTH,
    Json,
    NotJson,
    decode,
    decode_each,
    encode,
    encode_text,
    repair_text,
)
from agentloop.determinism import digest
from tests.callers import CALLERS, Where
from tests.strategies import json_values


@pytest.mark.parametrize("name", ["_canonical.py", "_lazy.py"])
def test_the_two_copies_are_the_same_file(name: str) -> None:
    root = Path(_canonical.__file__).parent.parent
    assert (root / "graphstate" / name).read_bytes() == (root / "agentloop" / name).read_bytes()


# The sample of RFC 8785, appendix B, as bit patterns.
@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
        ("3f50624dd2f1a9fc", "0.001"),
        ("3ff0000000000000", "1"),
        ("3fb999999999999a", "0.1"),
    ],
)
def test_numbers_have_ecmascript_text(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert encode_text(value) == text
    assert encode([value]) == f"[{text}]".encode()
    assert float(text) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_text_reads_back_and_is_written_once(value: float) -> None:
    text = encode_text({"n": value})
    read = decode(text)["n"]
    assert float(read) == value  # whole numbers beyond 2**53 have the digits ECMAScript gives them
    assert encode_text({"n": read}) == text


def test_keys_are_ordered_by_utf16_code_units() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    order = list(decode(encode(dict.fromkeys(keys, 0))))
    assert order == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_text_escapes_only_what_json_demands() -> None:
    assert encode('\x00\x1f\x7f\b\t\n\f\r"\\/\u2028é😀') == (
        '"\\u0000\\u001f\x7f\\b\\t\\n\\f\\r\\"\\\\/\u2028é😀"'.encode()
    )


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


def test_enum_members_subclasses_and_tuples_are_written_by_value() -> None:
    class Frozen(dict[str, Json]):
        pass

    value = Frozen(colour=Colour.RED, size=Size.BIG, pair=(1, 2.0), flag=True)
    assert encode(value) == b'{"colour":"red","flag":true,"pair":[1,2],"size":3}'


@given(json_values())
def test_every_writer_gives_the_same_bytes(value: Json) -> None:
    written = encode(value)
    assert encode_text(value).encode() == written
    out: list[str] = []
    _canonical._write(value, out)
    assert "".join(out).encode() == written
    assert encode(decode(written)) == written
    assert decode(written.decode()) == decode(written)


def _turned_round(value: Json) -> Json:
    """Return an equal value whose keys stand in the other order."""
    if isinstance(value, dict):
        return {name: _turned_round(value[name]) for name in reversed(value)}
    return [_turned_round(item) for item in value] if isinstance(value, list) else value


def _exact(value: Json) -> Json:
    """Return the value without floats whose digits in ECMAScript are not their exact value."""
    if isinstance(value, float):
        return value if abs(value) < 2**53 or abs(value) >= 1e21 else 0
    if isinstance(value, dict):
        return {name: _exact(item) for name, item in value.items()}
    return [*map(_exact, value)] if isinstance(value, list) else value


@given(json_values().map(_exact))
def test_property_7_canonical_json_reads_back_whatever_the_order_of_keys(value: Json) -> None:
    written = encode(value)
    assert decode(written) == value
    assert encode(_turned_round(value)) == written
    assert digest(_turned_round(value)) == digest(value) == digest(decode(written))


def test_without_msgspec_the_bytes_and_values_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"b": [1, 2.5, "é", None, True], "a": {"k": 2**70}}
    written = encode(value)
    monkeypatch.setattr(_canonical, "_fast", None)
    monkeypatch.setitem(sys.modules, "msgspec.json", None)
    assert encode(value) == written
    assert decode(written) == value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "the number nan is not finite"),
        ({"a": [1, float("inf")]}, "the number inf is not finite at $.a[1]"),
        ({"a": {"b": object()}}, "a value of type object at $.a.b"),
        ({"a": {1: 2}}, "a key of type int (1) at $.a"),
        ([b"x"], "a value of type bytes at $[0]"),
        ([{1, 2}], "a value of type set at $[0]"),
        (10**1000, "an integer of more than 1000 digits"),
        ([True, -(10**1000)], "an integer of more than 1000 digits at $[1]"),
        (["\ud800"], "a lone surrogate U+D800"),
        ({"\udfff": 1.0}, "a lone surrogate U+DFFF"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(value: Json, problem: str) -> None:
    with pytest.raises(NotJson) as caught:
        encode(value)
    assert str(caught.value) == problem


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_value_that_contains_itself_is_refused_at_once(width: int) -> None:
    loop: list[Json] = []
    loop.extend([loop] * width)
    with pytest.raises(NotJson, match="contains itself"):
        encode({"a": loop})


NOT_STRICT = [
    "",
    " ",
    "NaN",
    "[Infinity]",
    "[-Infinity]",
    "1e400",
    "[1e400]",
    '{"a":1,"a":2}',
    '{"a":{"b":1,"b":1}}',
    "[1,]",
    "[01]",
    "'a'",
    '"\\ud800"',
    '"\x01"',
    "1" * 1001,
    "-" + "1" * 1001,
    "1" * 5000,
    "[] x",
    "\ufeff[]",
]


@pytest.mark.parametrize("text", NOT_STRICT)
def test_what_is_not_strict_json_is_not_read(text: str) -> None:
    with pytest.raises(NotJson):
        decode(text)
    with pytest.raises(NotJson):
        decode(text.encode())


def test_integers_of_1000_digits_are_written_and_read() -> None:
    for value in (10**1000 - 1, 1 - 10**1000):
        assert decode(encode([value])) == decode(encode_text([value])) == [value]


def test_reading_is_bounded_in_bytes_and_says_where_utf8_breaks() -> None:
    assert decode("[1]", max_bytes=3) == [1]
    with pytest.raises(NotJson, match="4 bytes of JSON, more than the 3 allowed"):
        decode("[11]", max_bytes=3)
    with pytest.raises(NotJson, match="not UTF-8 at byte 1"):
        decode(b'"\xff"')


def test_duplicates_and_surrogates_are_accepted_only_when_asked_for() -> None:
    assert decode('{"a":1,"a":2}', duplicate_keys=True) == {"a": 2}
    assert decode(b'{"a":1,"a":2}', duplicate_keys=True) == {"a": 2}
    assert decode('["\\ud800x","\\ud83d\\ude00"]', repair_surrogates=True) == ["\ufffdx", "😀"]
    assert repair_text("a\ud83d\ude00\udc00") == "a😀\ufffd"


def nested(depth: int, innermost: Json) -> Json:
    value = innermost
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def nested_text(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("where", CALLERS)
@pytest.mark.parametrize("innermost", ["x", 1, 1.5, 10**30, "é", {}, Colour.RED], ids=repr)
def test_depth_100_is_written_and_101_refused_from_any_caller(where: Where, innermost: Json) -> None:
    levels = MAX_DEPTH - (innermost == {})
    for depth in (levels - 1, levels):
        written = where(partial(encode, nested(depth, innermost)))
        assert where(partial(decode, written)) == nested(depth, innermost)
    for depth in (levels + 1, 1_000, 100_000):
        value = nested(depth, innermost)
        with pytest.raises(NotJson, match="nested deeper than 100"):
            where(partial(encode, value))
        while isinstance(value, (dict, list)) and value:  # taken apart level by level
            value = value["k"] if isinstance(value, dict) else value[0]


@pytest.mark.parametrize("where", CALLERS)
def test_depth_100_is_read_and_101_refused_from_any_caller(where: Where) -> None:
    for depth in (99, 100):
        text = nested_text(depth)
        assert encode_text(where(partial(decode, text))) == text
        assert encode_text(where(partial(decode, f" {text}".encode()))) == text
        surrogate = text.replace("[]", '["\\ud800"]')
        repaired = where(partial(decode, surrogate, repair_surrogates=True))
        assert encode_text(repaired) == text.replace("[]", '["\ufffd"]')
    for depth in (101, 1_000, 100_000):
        with pytest.raises(NotJson, match="nested deeper than 100"):
            where(partial(decode, nested_text(depth)))


@pytest.mark.parametrize("start", range(0, 1000, 37))
def test_a_number_too_long_is_refused_wherever_it_stands(start: int) -> None:
    with pytest.raises(NotJson, match="more than 1000 digits"):
        decode(encode(["x" * start, 0])[:-2] + b"9" * 1001 + b"]")


@given(st.lists(json_values(), max_size=5), st.data())
def test_texts_read_together_have_the_values_they_have_alone(values: list[Json], data: st.DataObject) -> None:
    texts = [encode(value) for value in values]
    if data.draw(st.booleans()):  # canonical or not, as long as it is JSON
        texts.insert(data.draw(st.integers(0, len(texts))), b' {"b": 1.0,\n"a": [] } ')
    assert repr([*decode_each(texts)]) == repr([decode(text) for text in texts])


@pytest.mark.parametrize(
    "bad", [*(text.encode() for text in NOT_STRICT), b"1\n2", b"1\n", b"\n", b"[1", b"\xff", b"\n2\n"]
)
@pytest.mark.parametrize("after", [(), (b"2",), (b"]",), (b"2]",), (b"",)], ids=repr)
def test_a_bad_text_among_good_ones_is_refused_at_its_turn(bad: bytes, after: tuple[bytes, ...]) -> None:
    try:
        alone = repr(decode(bad))
    except NotJson as error:
        alone = str(error)
    found = decode_each([b"0", b'{"a":1}', bad, *after])
    assert [next(found), next(found)] == [0, {"a": 1}]
    try:
        together = repr(next(found))
    except NotJson as error:
        together = str(error)
    assert together == alone


@pytest.mark.parametrize("wide", [False, True])
def test_texts_read_together_are_bounded_in_depth_as_alone(wide: bool) -> None:
    def nested(depth: int) -> bytes:
        middle = encode("x" * 5_000) if wide else b""
        return b"[" * depth + middle + b"]" * depth

    assert [*decode_each([nested(MAX_DEPTH)] * 2)] == [decode(nested(MAX_DEPTH))] * 2
    with pytest.raises(NotJson, match="nested deeper than 100"):
        [*decode_each([b"1", nested(MAX_DEPTH + 1)])]


def test_many_long_texts_are_read_one_by_one() -> None:
    texts = [encode("x" * 3_000_000)] * 3
    assert [len(text) for text in decode_each(texts)] == [3_000_000] * 3
