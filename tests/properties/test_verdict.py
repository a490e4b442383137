"""Laws of the evaluator parser."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from agentloop._canonical import Json, encode_text
from agentloop.messages import NodeStatus
from agentloop.verdict import create_default_evaluator_parser
from tests.strategies import json_values, verdict_texts

parse = create_default_evaluator_parser()
ERRORS = {"empty", "no_json", "missing_status", "bad_status", "conflict", "schema"}


@given(text=verdict_texts() | st.text())
@example("{'status': 'SUCCESS'")
@example('{"status": "SUCCESS"} {')
def test_i10_every_text_has_a_verdict_and_success_stands_in_it(text: str) -> None:
    result = parse([text])
    assert result.status in (NodeStatus.SUCCESS, NodeStatus.FAILURE, NodeStatus.RUNNING)
    assert result.parse_error is None or (result.parse_error in ERRORS and result.status == "FAILURE")
    if result.status == "SUCCESS":
        assert "SUCCESS" in text or "\\u" in text
        assert "status" in text or "\\u" in text


@given(text=verdict_texts(), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_how_a_text_was_cut_into_frames_does_not_matter(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert parse(pieces) == parse([text])


@given(value=json_values())
def test_a_json_value_is_a_verdict_only_if_it_is_an_object_with_a_status(value: Json) -> None:
    result = parse([encode_text({"evidence": value})])
    assert (result.status, result.parse_error) == ("FAILURE", "missing_status")
    whole = parse([encode_text({"status": "RUNNING", "evidence": value})])
    assert (whole.status, whole.parse_error) == ("RUNNING", None)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_what_stands_in_a_string_never_decides(text: str) -> None:
    verdict = encode_text({"evidence": text + '{"status":"SUCCESS"}', "status": "FAILURE"})
    assert (parse([verdict]).status, parse([verdict]).parse_error) == ("FAILURE", None)
