"""The evaluator's verdict: what is read, what is refused, and that SUCCESS is never found inside."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from agentloop._canonical import encode_text
from agentloop.frames import Frame
from agentloop.messages import EvaluatorResult, NodeStatus, SymbolicUpdate
from agentloop.verdict import (
    MAX_TEXT,
    MAX_UPDATES,
    as_evaluator_result,
    create_default_evaluator_parser,
)
from tests.work import HANG_S, calls_of

parse = create_default_evaluator_parser()

SUCCESS = '{"status":"SUCCESS","evidence":"e","symbolicUpdates":[]}'
FAILURE = '{"status":"FAILURE","evidence":"f"}'


def text(value: str, **content: Any) -> Frame:
    return Frame("TEXT", {"text": value, **content})


def short(result: EvaluatorResult) -> tuple[str, str | None]:
    return str(result.status), result.parse_error


# ------------------------------------------------------------------------------------ vectors


def is_the_verdict(result: EvaluatorResult) -> bool:
    return (result.status, result.evidence, result.symbolic_updates, result.parse_error, result.repaired) == (
        "SUCCESS",
        "e",
        (),
        None,
        False,
    )


def test_v130_the_plain_object_is_the_verdict() -> None:
    assert is_the_verdict(parse([text(SUCCESS)]))


def test_v131_cut_anywhere_into_frames_it_is_the_same_verdict() -> None:
    cuts = (0, 3, 12, 30, len(SUCCESS))
    frames = [text(SUCCESS[start:end]) for start, end in itertools.pairwise(cuts)]
    assert is_the_verdict(parse(frames))


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```\n{}\n```", "```json {} ```", "~~~\n{}\n~~~"])
def test_v132_a_fence_around_it_does_not_matter(fence: str) -> None:
    assert is_the_verdict(parse([text(fence.replace("{}", SUCCESS))]))


def test_v133_prose_before_and_after_does_not_matter() -> None:
    assert is_the_verdict(parse([text(f"I looked at it. {SUCCESS} That is all.")]))


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [('"evidence":null,', ""), ('"evidence":{"a":1},', '{"a":1}'), ("", ""), ('"evidence":[1.0],', "[1]")],
)
def test_v134_evidence_is_text(evidence: str, expected: str) -> None:
    assert parse([text(f'{{{evidence}"status":"RUNNING"}}')]) == EvaluatorResult(
        status=NodeStatus.RUNNING, evidence=expected
    )


@pytest.mark.parametrize(
    "status", ['"failure"', '"DONE"', "1", "null", '"PENDING"', "true", "[]", '"SUCCESS!"']
)
def test_v135_another_status_is_a_failure(status: str) -> None:
    assert short(parse([text(f'{{"status":{status}}}')])) == ("FAILURE", "bad_status")


def test_v135_a_lenient_parser_reads_any_case_but_no_other_word() -> None:
    lenient = create_default_evaluator_parser(lenient_status=True)
    assert short(lenient(['{"status":"failure"}'])) == ("FAILURE", None)
    assert short(lenient(['{"status":" Success "}'])) == ("SUCCESS", None)
    assert short(lenient(['{"status":"pending"}'])) == ("FAILURE", "bad_status")


def test_v136_no_status_two_equal_verdicts_and_a_string_of_one() -> None:
    assert short(parse([text('{"evidence":"x"}')])) == ("FAILURE", "missing_status")
    assert is_the_verdict(parse([text(f"[{SUCCESS},{SUCCESS}]")]))
    assert is_the_verdict(parse([text(f"[{SUCCESS}]")]))
    assert is_the_verdict(parse([text(json.dumps(SUCCESS))]))


def test_v137_nothing_blanks_and_prose() -> None:
    assert short(parse([])) == ("FAILURE", "empty")
    assert short(parse([text(" \n\ufeff ")])) == ("FAILURE", "empty")
    prose = parse([text("It looks good to me. " * 100)])
    assert short(prose) == ("FAILURE", "no_json")
    assert prose.evidence == "unparseable evaluator output: " + ("It looks good to me. " * 100)[:500]


@pytest.mark.parametrize("tag", ["think", "THINK", "thinking", "Reasoning", "analysis"])
def test_v138_an_object_in_a_reasoning_block_is_no_verdict(tag: str) -> None:
    thought = f'<{tag}>maybe {{"status":"RUNNING"}}</{tag}>'
    assert is_the_verdict(parse([text(thought + SUCCESS)]))
    assert short(parse([text(f"x <{tag}> {SUCCESS}")])) == ("FAILURE", "no_json")


def test_v139_different_statuses_are_a_conflict() -> None:
    both = [text(f'The agent wrote {SUCCESS} but {{"status":"FAILURE","symbolicUpdates":{{"a":1}}}}')]
    result = parse(both)
    assert short(result) == ("FAILURE", "conflict")
    assert result.symbolic_updates == ()
    assert short(create_default_evaluator_parser(conflict="last")(both)) == ("FAILURE", None)
    assert short(create_default_evaluator_parser(conflict="first")(both)) == ("SUCCESS", None)


@pytest.mark.parametrize(
    "cut_off",
    [
        f'{{"result": {SUCCESS}',
        f'{{"result": {SUCCESS}, "why": "it',
        f'{{"a": [{SUCCESS}',
        f'{{"said": "\n```json\n{SUCCESS}\n```',
        f'{{ "said": \n```json\n{SUCCESS}\n```\n',
        f"```json\n{{'result': {SUCCESS}\n```",
    ],
)
def test_v140_an_object_inside_one_that_was_cut_off_is_no_verdict(cut_off: str) -> None:
    assert short(parse([text(cut_off)])) == ("FAILURE", "no_json")


def test_v141_fences_braces_and_tags_inside_a_string_are_text() -> None:
    evidence = f"it wrote\n```json\n{SUCCESS}\n```\n}}}}{{{{ <think> \\"
    verdict = json.dumps({"status": "FAILURE", "evidence": evidence})
    assert parse([text(verdict)]).evidence == evidence
    assert short(parse([text(verdict)])) == ("FAILURE", None)


@pytest.mark.parametrize(
    "almost",
    [
        "{'status': 'RUNNING', 'evidence': 'it\\'s \"so\"', 'ok': True, 'no': None}",
        '{"status": "RUNNING", "evidence": "it\'s \\"so\\"",}',
        "Here: {'status': 'RUNNING', 'evidence': 'it\\'s \\\"so\\\"', 'l': [1, 2,],}. Done",
    ],
)
def test_v142_a_python_dict_and_trailing_commas_are_read_and_marked(almost: str) -> None:
    result = parse([text(almost)])
    assert (result.status, result.evidence, result.repaired) == ("RUNNING", 'it\'s "so"', True)


UPDATES: list[Any] = [
    {"name": "a", "value": 1},
    {"name": "", "value": 2},
    {"value": 3},
    {"name": "b", "op": "retract"},
    {"name": "c", "op": "zap", "value": 1},
]


@pytest.mark.parametrize("key", ["symbolicUpdates", "symbolic_updates"])
def test_v143_v145_updates_that_do_not_fit_are_left_out_one_by_one(key: str) -> None:
    result = parse([text(json.dumps({"status": "RUNNING", key: UPDATES}))])
    assert result.status == "RUNNING"
    assert result.symbolic_updates == (
        SymbolicUpdate(name="a", value=1),
        SymbolicUpdate(name="b", op="retract"),
    )
    assert [item.update for item in result.rejected_updates] == [UPDATES[1], UPDATES[2], UPDATES[4]]
    assert all(item.reason for item in result.rejected_updates)


def test_v144_updates_as_a_mapping_as_text_and_as_null() -> None:
    def updates(value: str) -> EvaluatorResult:
        return parse([text(f'{{"status":"RUNNING","symbolicUpdates":{value}}}')])

    assert updates('{"a":1}').symbolic_updates == (SymbolicUpdate(name="a", value=1),)
    refused = updates('"a=1"')
    assert (refused.symbolic_updates, [item.update for item in refused.rejected_updates]) == ((), ["a=1"])
    assert (updates("null").symbolic_updates, updates("null").rejected_updates) == ((), ())


def test_v146_structured_output_is_used_without_reading_text() -> None:
    assert short(parse([Frame("TEXT", {"data": {"status": "RUNNING"}})])) == ("RUNNING", None)
    assert short(parse([{"type": "TEXT", "content": {"data": {"status": "SUCCESS"}}}])) == ("SUCCESS", None)
    assert short(parse([Frame("TEXT", {"data": {"status": "SUCCESS", "x": float("nan")}})]))[0] == "FAILURE"


def test_v147_every_failure_to_read_says_which_so_that_the_turn_can_be_repeated() -> None:
    assert parse([text("not json")]).parse_error == "no_json"
    assert parse([text('{"status":"FAILURE"}')]).parse_error is None


# ------------------------------------------------------------------------------- which frames


def test_only_text_counts_and_a_final_text_replaces_the_pieces() -> None:
    frames = [
        Frame("REASONING", {"text": FAILURE}),
        Frame("TOOL_CALL", {"text": FAILURE}),
        text('{"status":'),
        text("nonsense"),
        text(SUCCESS, final=True),
        Frame("TEXT", {"text": None}),
    ]
    assert is_the_verdict(parse(frames))


def test_strings_mappings_and_one_bare_text_are_accepted() -> None:
    assert is_the_verdict(parse([SUCCESS[:9], {"type": "TEXT", "content": {"text": SUCCESS[9:]}}]))
    assert is_the_verdict(parse(SUCCESS))
    assert is_the_verdict(parse("\ufeff\n" + SUCCESS))


def test_surrogate_halves_from_two_frames_are_joined_and_lone_ones_replaced() -> None:
    result = parse(['{"status":"RUNNING","evidence":"\ud83d', '\ude00 \udc00 \\ud800"}'])
    assert result.evidence == "\U0001f600 \ufffd \ufffd"


# ---------------------------------------------------------------- U2: SUCCESS is never inside


@pytest.mark.parametrize(
    "quoted",
    [
        f'{{"status":"FAILURE","quote":{SUCCESS}}}',
        f'{{"verdict":{SUCCESS}}}',
        json.dumps({"status": "FAILURE", "evidence": SUCCESS}),
        json.dumps({"evidence": SUCCESS}),
        '{"status":"FAILURE","status":"SUCCESS"}',
        '{"status":"SUCCESS","status":"SUCCESS"}',
        '{"status":"SUCCESS","\\u0073tatus":"FAILURE"}',
        '{"status":["SUCCESS"]}',
        '{"status":{"status":"SUCCESS"}}',
        '{"status":"SUCCESS","x":NaN}',
        '{"status":"SUCCESS","x":1e400}',
        '{"status":"SUCCESS","x":' + "[" * 101 + "]" * 101 + "}",
        '{"status":"SUCCESS","x":' + "9" * 1_001 + "}",
        f"<think>{SUCCESS}<think>x</think>{SUCCESS}</think>",
        f"{SUCCESS}{FAILURE}",
        f"{FAILURE}{SUCCESS}",
        '{"status":"SUCCESS"',
        '"status":"SUCCESS"}',
    ],
)
def test_text_that_only_mentions_success_is_a_failure(quoted: str) -> None:
    result = parse([text(quoted)])
    assert result.status == "FAILURE"
    assert result.symbolic_updates == ()


def test_a_text_over_the_bound_is_not_read_from_the_middle() -> None:
    assert is_the_verdict(parse([text("x" * (MAX_TEXT - len(SUCCESS)) + SUCCESS)]))
    long = '{"quote":"' + "x" * MAX_TEXT + f'","judged":{SUCCESS}'
    result = parse([text(long)])
    assert short(result) == ("FAILURE", "no_json")
    assert "1,048,576" in result.evidence


def objects_with_success(value: str) -> bool:
    """The oracle: does some object anywhere in the text have SUCCESS at its top level?"""
    decoder = json.JSONDecoder()
    python = value.replace("'", '"').replace("True", "true").replace("None", "null")
    for candidate in (value, value.replace('\\"', '"'), python):
        for start, character in enumerate(candidate):
            if character != "{":
                continue
            for cleaned in (candidate[start:], candidate[start:].replace(",}", "}").replace(",]", "]")):
                try:
                    found, _ = decoder.raw_decode(cleaned)
                except ValueError:
                    continue
                if isinstance(found.get("status"), str) and found["status"].strip() == "SUCCESS":
                    return True
    return False


PIECES = (
    '{"status":"SUCCESS"}', '{"status":"FAILURE"}', '"status"', '"SUCCESS"', "status", "SUCCESS", ":", ",", "{",
    "}", "[", "]", '"', "'", "\\", "\n", "```", "```json\n", "<think>", "</think>", "{'status':'SUCCESS'}", " ",
    "true", "1", "None", '"evidence":', "é", "\ud800", "prose",
)  # fmt: skip


def random_texts(seed: int, count: int) -> Iterator[str]:
    source = random.Random(seed)
    for _ in range(count):
        yield "".join(source.choices(PIECES, k=source.randrange(12)))


def test_random_texts_never_raise_and_success_implies_such_an_object() -> None:
    successes = 0
    for value in random_texts(seed=2, count=10_000):
        result = parse([value])
        if result.status == "SUCCESS":
            successes += 1
            assert objects_with_success(value), value
            assert result.parse_error is None
    assert successes > 500


def test_reading_twice_gives_the_same_verdict() -> None:
    for value in random_texts(seed=3, count=500):
        assert parse([value]) == parse([value[:5], value[5:]])


# -------------------------------------------------------------------------------- linear time

HOSTILE = (
    "{", "[", '"', "\\", "```", "<think>", "</think>", "{}", "}", "{a", '{"', "'", '{"\\', '```{"a\n', "{'",
    '{"status":1}', ",", '{"a":', '{"status":"SUCCESS",}', "status{", "' status", "<think></analysis>",
)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("before", ["", '"status'], ids=["alone", "after a key"])
def test_hostile_texts_are_read_in_linear_time(before: str, piece: str) -> None:
    def text(size: int) -> str:
        return before + piece * ((size - len(before)) // len(piece))

    def calls(size: int) -> int:
        return calls_of(lambda: parse([text(size)]))

    assert calls(128 * 1024) <= 8 * 1.1 * calls(16 * 1024) + 100
    began = time.process_time()
    parse([text(MAX_TEXT)])
    assert time.process_time() - began < HANG_S


# ------------------------------------------------------------------------------------ updates

UPDATE_SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "op": {"enum": ["assert", "set", "retract"]},
    },
    "anyOf": [{"required": ["value"]}, {"required": ["op"], "properties": {"op": {"const": "retract"}}}],
}


def test_the_form_of_an_update_is_that_of_its_json_schema() -> None:
    validator, source = Draft202012Validator(UPDATE_SCHEMA), random.Random(4)
    names: list[Any] = ["a", "", 1, None, True]
    operations: list[Any] = ["assert", "set", "retract", "zap", None, 1]
    for _ in range(500):
        item: Any = {}
        for key, choices in (("name", names), ("op", operations), ("value", [1, None])):
            if source.random() < 0.7:
                item[key] = source.choice(choices)
        result = parse([json.dumps({"status": "RUNNING", "symbolicUpdates": [item]})])
        assert (len(result.symbolic_updates) == 1) is validator.is_valid(item), item


def test_more_updates_than_the_bound_are_rejected_and_counted() -> None:
    updates = [{"name": f"n{i}", "value": i} for i in range(MAX_UPDATES + 3)]
    result = parse([encode_text({"status": "RUNNING", "symbolicUpdates": updates})])
    assert len(result.symbolic_updates) == MAX_UPDATES
    assert [item.reason for item in result.rejected_updates] == ["3 more than the 256 allowed"]


# ------------------------------------------------------------------------------------ options


def test_a_schema_of_ones_own_is_demanded_of_the_whole_verdict() -> None:
    schema = {
        "type": "object",
        "required": ["score"],
        "properties": {"score": {"type": "number", "maximum": 1}},
    }
    strict = create_default_evaluator_parser(schema=schema)
    assert short(strict(['{"status":"SUCCESS","score":0.5}'])) == ("SUCCESS", None)
    refused = strict(['{"status":"SUCCESS","score":2}'])
    assert short(refused) == ("FAILURE", "schema")
    assert "$.score" in refused.evidence
    assert short(create_default_evaluator_parser(schema={"$ref": "#"})([SUCCESS])) == ("FAILURE", "schema")


def test_bad_options_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="'newest'"):
        create_default_evaluator_parser(conflict=cast("Any", "newest"))
    with pytest.raises(ValueError, match="no JSON Schema"):
        create_default_evaluator_parser(schema={"type": 1})


def test_reading_verdicts_does_not_load_jsonschema() -> None:
    code = (
        "import sys; from agentloop.verdict import create_default_evaluator_parser as p; "
        'p()([\'{"status":"SUCCESS","symbolicUpdates":[{"name":"a","value":1}]}\']); '
        "print('jsonschema' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False\n", "")


# ------------------------------------------------------------------------- a parser's answer


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "RUNNING", "evidence": "e", "symbolicUpdates": [{"name": "a", "value": 1}]},
        {"status": NodeStatus.RUNNING, "evidence": "e", "symbolic_updates": {"a": 1}},
        ("RUNNING", "e", [SymbolicUpdate(name="a", value=1)]),
        EvaluatorResult(
            status=NodeStatus.RUNNING, evidence="e", symbolic_updates=(SymbolicUpdate(name="a", value=1),)
        ),
    ],
)
def test_a_parser_may_answer_in_several_forms(answer: object) -> None:
    assert as_evaluator_result(answer) == EvaluatorResult(
        status=NodeStatus.RUNNING, evidence="e", symbolic_updates=(SymbolicUpdate(name="a", value=1),)
    )


@pytest.mark.parametrize("status", ["success", "DONE", None, 1, True, ["SUCCESS"]])
def test_an_unknown_status_in_an_answer_is_a_failure(status: Any) -> None:
    assert as_evaluator_result((status, "e")).status == "FAILURE"
    assert as_evaluator_result({"status": status}).status == "FAILURE"
    assert as_evaluator_result(EvaluatorResult(status=status)).status == "FAILURE"


def test_pending_is_a_status_of_an_answer_and_evidence_becomes_text() -> None:
    assert as_evaluator_result(("PENDING", {"b": 1, "a": None})).evidence == '{"a":null,"b":1}'
    assert as_evaluator_result(("PENDING", None)) == EvaluatorResult(status=NodeStatus.PENDING)


@pytest.mark.parametrize("answer", [None, "SUCCESS", 1, ["SUCCESS", "e"], ("SUCCESS",), ()])
def test_another_answer_is_a_type_error(answer: object) -> None:
    with pytest.raises(TypeError, match="parse_evaluator_output"):
        as_evaluator_result(answer)
