"""Schemas: what is wrong with a value, in which words and order; what is refused, and how fast."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop import ArgumentSchema, SchemaRefused
from agentloop.schemas import MAX_WORK, Problem, render_schema
from tests.work import calls_of

QUERY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "scope": {"type": "string", "enum": ["docs", "code", "all"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["query"],
    "additionalProperties": False,
}
#: The same, checked by the library.
SLOW_QUERY: dict[str, Any] = {**QUERY, "$defs": {}}


def said(schema: dict[str, Any], value: Any) -> list[str]:
    return [str(problem) for problem in ArgumentSchema(schema).problems(value)]


def test_both_ways_are_taken() -> None:
    assert ArgumentSchema(QUERY).compiled
    assert not ArgumentSchema(SLOW_QUERY).compiled


@pytest.mark.parametrize("schema", [QUERY, SLOW_QUERY], ids=["compiled", "library"])
def test_v091_all_problems_in_order(schema: dict[str, Any]) -> None:
    assert said(schema, {"limit": 0, "scope": "wrong", "tags": [1, 2]}) == [
        '$ missing required property "query"',
        "$.limit below minimum 1",
        '$.scope expected one of "docs", "code", "all"',
        "$.tags[0] expected string, got number",
        "$.tags[1] expected string, got number",
    ]


@pytest.mark.parametrize("schema", [QUERY, SLOW_QUERY], ids=["compiled", "library"])
@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"query": "x", "nope": True}, ['$ unexpected property "nope"']),
        ({"query": "x", "limit": 2.5}, ["$.limit expected an integer"]),
        ({"query": "x", "limit": 5.0}, []),
        ({"query": "x", "limit": 51}, ["$.limit above maximum 50"]),
        ({"query": "x", "limit": True}, ["$.limit expected integer, got boolean"]),
        ({"query": ""}, ["$.query shorter than minLength 1"]),
        ({"query": 3}, ["$.query expected string, got number"]),
        ({"query": None}, ["$.query expected string, got null"]),
        ([], ["$ expected object, got array"]),
        (None, ["$ expected object, got null"]),
    ],
)
def test_v092_v093_v094_each_problem_in_its_words(
    schema: dict[str, Any], value: Any, problems: list[str]
) -> None:
    assert said(schema, value) == problems


def test_v094_the_root_need_not_be_an_object() -> None:
    assert said({"type": "string"}, 3) == ["$ expected string, got number"]


def test_lengths_count_characters() -> None:
    assert said({"type": "string", "maxLength": 1}, "\U0001f600") == []
    assert said({"type": "string", "maxLength": 1}, "ab") == ["$ longer than maxLength 1"]
    schema = {"type": "array", "minItems": 1, "maxItems": 2}
    assert said(schema, []) == ["$ fewer than minItems 1"]
    assert said(schema, [1, 2, 3]) == ["$ more than maxItems 2"]


@pytest.mark.parametrize(
    ("schema", "value", "problems"),
    [
        ({"type": ["string", "null"]}, 3, ["$ expected string or null, got number"]),
        ({"const": 3}, 4, ["$ 3 was expected"]),
        ({"pattern": "^a+$"}, "b", ["$ does not match ^a+$"]),
        ({"pattern": "^a+$"}, "aaa", []),
        ({"uniqueItems": True}, [1, True, "1"], []),
        ({"uniqueItems": True}, [1, 1.0], ["$ has an item twice"]),
        ({"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}, {"x1": "a"}, []),
        (
            {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False},
            {"x1": 1, "y": 2},
            ['$ unexpected property "y"', "$.x1 expected string, got number"],
        ),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, ["$.a expected string, got number"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"minimum": 3}}}, 1, ["$ below minimum 3"]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}, "x", []),
    ],
)
def test_w21_the_whole_language_is_understood(
    schema: dict[str, Any], value: Any, problems: list[str]
) -> None:
    assert said(schema, value) == problems


TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}


def test_a_schema_may_describe_a_tree() -> None:
    assert said(TREE, {"name": "a", "children": [{"name": "b"}]}) == []
    assert said(TREE, {"name": "a", "children": [{}]}) == ['$.children[0] missing required property "name"']


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "nonsense"}, "nonsense"),
        ({"properties": 3}, "properties"),
        ({"type": "string", "minLength": -1}, "minLength"),
        ({"$ref": "#"}, "leads back"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}}, "leads back"),
        ({"$ref": "https://example.com/schema"}, "out of the schema"),
        ({"$ref": "#/$defs/none"}, "nowhere"),
        ({"$ref": "#anchor"}, "anchor"),
        ({"$dynamicRef": "#x"}, "dynamicRef"),
        ({"pattern": r"(a)\1"}, "refused"),
        ({"pattern": "("}, "pattern"),
        ({"patternProperties": {"(?=a)b": {}}}, "refused"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "unevaluated"),
        ({"description": "x" * 300_000}, "bytes"),
        ({"default": float("nan")}, "finite"),
    ],
)
def test_u15_what_could_hang_or_fetch_is_refused(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaRefused, match=says):
        ArgumentSchema(schema)


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


BOMB: dict[str, Any] = {
    "$defs": {
        "n": {"anyOf": [{"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["b"]} for _ in range(3)]}
    },
    "$ref": "#/$defs/n",
}


@pytest.mark.parametrize(
    ("schema", "value", "says"),
    [
        ({"pattern": r"^(a+)+$"}, "a" * 60 + "b", "does not match"),
        ({"pattern": r"^(a+)+$"}, "a" * 5_000, "longer than the 4096"),
        ({"uniqueItems": True}, [{"n": n} for n in range(3_000)], "256 items"),
        (BOMB, nested(20), "steps to check"),
    ],
)
def test_u15_hostile_values_are_answered_within_bounds(schema: dict[str, Any], value: Any, says: str) -> None:
    prepared, found = ArgumentSchema(schema), list[Problem]()
    assert calls_of(lambda: found.extend(prepared.problems(value))) < 50 * MAX_WORK
    assert [says in problem.message for problem in found] == [True]


def test_v095_a_schema_as_a_model_reads_it() -> None:
    described = {
        **QUERY,
        "properties": {**QUERY["properties"], "query": {"type": "string", "description": "d"}},
    }
    assert render_schema(described) == (
        '{ query: string — d; limit?: integer; scope?: "docs"|"code"|"all"; tags?: string[] }'
    )
    assert render_schema({"type": "object", "properties": {}}) == "{  }"


def test_w22_limits_are_shown_on_demand() -> None:
    schema = {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "minimum": 1, "maximum": 50},
            "note": {"type": "string", "maxLength": 80},
            "least": {"type": "number", "minimum": 2},
            "scopes": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        },
    }
    assert render_schema(schema, bounds=True) == (
        '{ limit?: integer 1..50; note?: string ≤ 80; least?: number ≥ 2; scopes?: ("a"|"b")[] }'
    )
    assert '"a"|"b"[]' in render_schema(schema)
