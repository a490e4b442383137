"""What can stand for a frame, and when two frames are equal."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop.errors import FrameError
from agentloop.frames import TEXT, TICK, Frame


def test_v24_what_stands_for_a_frame() -> None:
    assert Frame.of("hi") == Frame(TEXT, {"text": "hi"})
    assert Frame.of({"type": "TICK"}) == Frame(TICK, {})


@pytest.mark.parametrize("value", [{"type": ""}, 3, None, {}, {"type": 3}, b"bytes"])
def test_v24_what_cannot_be_a_frame(value: Any) -> None:
    with pytest.raises(FrameError, match="a frame"):
        Frame.of(value)


def test_v25_seq_meta_and_id_do_not_count_in_comparisons() -> None:
    one = Frame(TEXT, {"text": "a"}, seq=1, meta={"k": 1}, id="x")
    two = Frame(TEXT, {"text": "a"}, seq=2, meta={"k": 2}, id="y")
    assert one == two
    assert hash(one) == hash(two)
    assert one != Frame(TEXT, {"text": "b"})
