"""Frames: what they hold, how they are written down, and what is repaired on the way in."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from agentloop import Frame, FrameError
from agentloop.frames import MAX_CONTENT_DEPTH, TEXT, TOOL_RESULT


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_a_frame_is_frozen_and_what_it_was_made_of_may_change() -> None:
    given: dict[str, Any] = {"type": "TEXT", "content": {"text": "a"}, "lane": 1}
    frame = Frame.of(given)
    given["content"]["text"] = "b"
    assert (frame.text, frame.meta) == ("a", {"lane": 1})
    with pytest.raises(AttributeError):
        frame.type = "TICK"  # type: ignore[misc]  # the mistake under test


@pytest.mark.parametrize("text", [None, 5, ["a"], {}])
def test_a_text_that_is_no_text_counts_as_empty(text: Any) -> None:
    assert Frame(TEXT, {"text": text}).text == ""


def test_an_unhashable_content_has_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(Frame(TEXT, {"text": ["a"]}))


def test_a_frame_comes_back_from_its_dict_and_from_its_wire_form() -> None:
    content = {"id": "k1", "exit_code": 0, "timed_out": False, "output": {"exit_code": [1, None, 1.5]}}
    frame = Frame(TOOL_RESULT, content, id="f1", seq=3, meta={"outer_iteration": 0})
    wire = frame.to_wire()
    assert wire["content"]["exitCode"] == 0
    assert wire["content"]["output"] == {"exit_code": [1, None, 1.5]}, "what a tool said is not renamed"
    for data in (frame.to_dict(), wire):
        back = Frame.from_dict(json.loads(json.dumps(data)))
        assert back == frame
        assert (back.id, back.seq, back.meta) == ("f1", 3, {"outer_iteration": 0})
    assert Frame(TEXT).to_dict() == {"type": "TEXT", "content": {}}
    with pytest.raises(FrameError, match="'content' is a mapping"):
        Frame.from_dict({"type": "TEXT", "content": [1]})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, None),
        (-math.inf, None),
        (b"a\xff", "a\ufffd"),
        ("\ud83d\ude00 \ud800", "\U0001f600 \ufffd"),
        ((1, "a"), [1, "a"]),
        ({1}, {"__repr__": "{1}"}),
        ({1: 2}, {"__repr__": "{1: 2}"}),
        (Hostile(), {"__repr__": "<Hostile whose repr raised RuntimeError>"}),
    ],
)
def test_what_json_cannot_say_is_shown_as_it_looks(value: Any, shown: Any) -> None:
    data = Frame("X", {"value": value, "deep": [value]}).to_dict()
    assert data["content"] == {"value": shown, "deep": [shown]}
    json.dumps(data, allow_nan=False).encode()


def test_what_is_shown_of_a_value_is_bounded() -> None:
    class Long:
        def __repr__(self) -> str:
            return "x" * 5_000

    assert Frame("X", {"value": Long()}).to_dict()["content"] == {"value": {"__repr__": "x" * 1_000}}
    nested: Any = "core"
    for _ in range(500):
        nested = [nested]
    deepest: Any = Frame("X", {"value": nested}).to_dict()["content"]["value"]
    levels = 1
    while isinstance(deepest, list):
        deepest, levels = deepest[0], levels + 1
    assert levels == MAX_CONTENT_DEPTH
    assert len(deepest["__repr__"]) <= 1_000


def test_text_is_repaired_on_the_way_in() -> None:
    assert Frame.of("a\ud800").text == "a\ufffd"
    assert Frame.of("\ud83d\ude00").text == "\U0001f600"
    frame = Frame.of({"type": "X", "content": {"a": ["\udfff", {"b": b"\xff"}], "n": 1}})
    assert frame.content == {"a": ["\ufffd", {"b": "\ufffd"}], "n": 1}
