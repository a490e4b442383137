"""Every file of the JSON parsing corpus: as JSON, as a whole verdict, as the arguments of a tool."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import anyio
import pytest

import agentloop._canonical
import graphstate._canonical
from agentloop._canonical import Json, NotJson, decode
from agentloop.messages import ToolCall, ToolResult
from agentloop.tools import create_tool_adapter_wrapper
from agentloop.verdict import create_default_evaluator_parser
from tests.callers import CALLERS, Where
from tests.corpora.read import json_files
from tests.tally import tally

#: Legal JSON that this library refuses on purpose.
REFUSED = {
    "y_object_duplicated_key.json": "a key twice says two things",
    "y_object_duplicated_key_and_value.json": "a key twice, whatever its value",
}

#: What is left to a reader, and how ours decides it.
DECIDED = {
    "i_number_double_huge_neg_exp.json": "is 0, as in ECMAScript",
    "i_number_real_underflow.json": "is 0, as in ECMAScript",
    "i_number_too_big_neg_int.json": "is exact, up to 1,000 digits",
    "i_number_too_big_pos_int.json": "is exact, up to 1,000 digits",
    "i_number_very_big_negative_int.json": "is exact, up to 1,000 digits",
    "i_number_huge_exp.json": "not finite",
    "i_number_neg_int_huge_exp.json": "not finite",
    "i_number_pos_double_huge_exp.json": "not finite",
    "i_number_real_neg_overflow.json": "not finite",
    "i_number_real_pos_overflow.json": "not finite",
    "i_object_key_lone_2nd_surrogate.json": "lone surrogate",
    "i_string_1st_surrogate_but_2nd_missing.json": "lone surrogate",
    "i_string_1st_valid_surrogate_2nd_invalid.json": "lone surrogate",
    "i_string_incomplete_surrogate_and_escape_valid.json": "lone surrogate",
    "i_string_incomplete_surrogate_pair.json": "lone surrogate",
    "i_string_incomplete_surrogates_escape_valid.json": "lone surrogate",
    "i_string_invalid_lonely_surrogate.json": "lone surrogate",
    "i_string_invalid_surrogate.json": "lone surrogate",
    "i_string_inverted_surrogates_U+1D11E.json": "lone surrogate",
    "i_string_lone_second_surrogate.json": "lone surrogate",
    "i_string_UTF-16LE_with_BOM.json": "not UTF-8",
    "i_string_UTF-8_invalid_sequence.json": "not UTF-8",
    "i_string_UTF8_surrogate_U+D800.json": "not UTF-8",
    "i_string_invalid_utf-8.json": "not UTF-8",
    "i_string_iso_latin_1.json": "not UTF-8",
    "i_string_lone_utf8_continuation_byte.json": "not UTF-8",
    "i_string_not_in_unicode_range.json": "not UTF-8",
    "i_string_overlong_sequence_2_bytes.json": "not UTF-8",
    "i_string_overlong_sequence_6_bytes.json": "not UTF-8",
    "i_string_overlong_sequence_6_bytes_null.json": "not UTF-8",
    "i_string_truncated-utf-8.json": "not UTF-8",
    "i_string_utf16BE_no_BOM.json": "not UTF-8",
    "i_string_utf16LE_no_BOM.json": "not UTF-8",
    "i_structure_500_nested_arrays.json": "nested deeper than 100 levels",
    "i_structure_UTF-8_BOM_empty_object.json": "Expecting value",
}


def is_read(name: str) -> bool:
    """Say whether a file of this name is to be accepted."""
    if name.startswith("i_"):
        return DECIDED[name].startswith("is ")
    return name.startswith("y_") and name not in REFUSED


def answer(module: ModuleType, data: bytes | str) -> str:
    """Return the value that was read in canonical form, or what is wrong."""
    try:
        text: str = module.encode_text(module.decode(data))
    except module.NotJson as error:
        return f"refused: {error}"
    return text


def test_the_tables_name_every_file_that_needs_a_decision() -> None:
    names = {file.name for file in json_files()}
    assert set(DECIDED) == {name for name in names if name.startswith("i_")}
    assert set(REFUSED) <= names


@pytest.mark.parametrize("module", [agentloop._canonical, graphstate._canonical])
@pytest.mark.parametrize("where", CALLERS)
@pytest.mark.parametrize("fast", [True, False])
def test_every_file_is_decided(
    module: ModuleType, where: Where, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fast:
        module.encode({})  # finds msgspec, which this process has loaded
        assert module._fast is not None
    else:
        monkeypatch.setattr(module, "_fast", None)
        monkeypatch.setattr(module, "_load_fast", lambda: None)
    for file in json_files():
        read = where(partial(answer, module, file.data))
        assert read.startswith("refused: ") != is_read(file.name), (file.name, read)
        if is_read(file.name):
            assert answer(module, read) == read, "the canonical form reads as itself"
        else:
            assert DECIDED.get(file.name, "") in read
    tally("JSON files read", len(json_files()))


def texts(data: bytes) -> set[str]:
    """What a model's client may have made of the bytes: repaired, kept as surrogates, misread."""
    return {data.decode("utf-8", "replace"), data.decode("utf-8", "surrogateescape"), data.decode("latin-1")}


@pytest.mark.parametrize("where", CALLERS)
@pytest.mark.parametrize("conflict", ["fail", "last", "first"])
def test_no_file_is_a_verdict(where: Where, conflict: str) -> None:
    parse = create_default_evaluator_parser(lenient_status=True, conflict=conflict)  # type: ignore[arg-type]
    for file in json_files():
        for text in texts(file.data):
            result = where(partial(parse, [text]))
            assert result.status == "FAILURE", file.name
            assert result.parse_error in ("empty", "no_json", "missing_status", "conflict"), file.name
            result.evidence.encode()
    tally("JSON files as verdicts", len(json_files()))


@pytest.mark.parametrize("where", CALLERS)
def test_a_file_is_the_arguments_of_a_tool_only_if_it_is_an_object_that_strict_json_allows(
    where: Where,
) -> None:
    got: list[dict[str, Json]] = []

    async def tool(**arguments: Json) -> str:
        got.append(arguments)
        return "done"

    tools = create_tool_adapter_wrapper({"t": tool})

    def called(text: str) -> ToolResult:
        return anyio.run(tools.call, ToolCall(id="1", name="t", raw_arguments=text))

    for file in json_files():
        for text in texts(file.data):
            got.clear()
            result = where(partial(called, text))
            expected = read_as_arguments(text)
            if expected is None:
                assert (result.ok, got) == (False, []), (file.name, result)
                assert result.error is not None
                assert result.error.code == "tool.invalid_arguments"
            else:
                assert (result.ok, got) == (True, [expected]), (file.name, result)
    tally("JSON files as tool arguments", len(json_files()))


def read_as_arguments(text: str) -> dict[str, Json] | None:
    if not text.strip():
        return {}
    try:
        value = decode(text, repair_surrogates=True)
    except NotJson:
        return None
    return value if isinstance(value, dict) else None
