"""The official suite of JSON Schema 2020-12 through our wrapper: answered right, or refused at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from agentloop._canonical import NotJson, decode
from agentloop.errors import SchemaRefused
from agentloop.schemas import ArgumentSchema
from tests.corpora.read import schema_files
from tests.tally import tally
from tests.work import HANG_S

#: Why a schema of the suite is refused: words of the message, and how many groups are.
REFUSED = {
    "leads out of the schema": 41,
    "names an anchor": 4,
    "$dynamicRef is not supported": 17,
    "patternProperties beside unevaluatedProperties": 1,
    "is not a draft of json-schema.org": 4,
    "is not a 'regex'": 6,
}

#: Optional files whose answers are others here, and why.
OTHERWISE = {
    "optional/dependencies-compatibility.json": "dependencies is of an older draft, and ignored",
    "optional/ecmascript-regex.json": "patterns are Python's: their classes hold more than ASCII",
}


class Group(NamedTuple):
    file: str
    schema: Any
    tests: list[dict[str, Any]]


def groups() -> Iterator[Group]:
    for file in schema_files():
        for group in decode(file.data):
            schema = group["schema"]
            # The arguments of a tool are described by an object.
            whole = {"allOf": [schema]} if isinstance(schema, bool) else schema
            yield Group(file.name, whole, group["tests"])


def prepared(group: Group) -> ArgumentSchema | None:
    try:
        return ArgumentSchema(group.schema)
    except SchemaRefused:
        return None


def test_u15_every_answer_of_the_required_suite_is_right() -> None:
    answered = Counter[bool]()
    compiled = 0
    for group in groups():
        schema = prepared(group)
        if schema is None or group.file in OTHERWISE:
            continue
        compiled += schema.compiled
        for test in group.tests:
            ok = not schema.problems(test["data"])
            assert ok is test["valid"], (group.file, group.schema, test)
            answered[ok] += 1
    assert compiled > 10
    assert sum(answered.values()) > 1_100
    assert min(answered.values()) > 400
    tally("schema answers", sum(answered.values()))


def test_u15_what_the_suite_fetches_or_leaves_open_is_refused_when_it_is_prepared() -> None:
    refused = Counter[str]()
    for group in groups():
        try:
            ArgumentSchema(group.schema)
        except SchemaRefused as error:
            (why,) = [words for words in REFUSED if words in str(error)]
            refused[why] += 1
    assert refused == REFUSED


def test_u15_the_exceptions_are_needed() -> None:
    differing = {
        group.file
        for group in groups()
        if (schema := prepared(group)) is not None
        if any((not schema.problems(test["data"])) is not test["valid"] for test in group.tests)
    }
    assert differing == OTHERWISE.keys()


def deep(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = {"allOf": [inner]}
    return inner


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        # Each reference is right by itself; together they double the work at every level.
        (
            {
                "$ref": "#/$defs/0",
                "$defs": {
                    **{f"{n}": {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)},
                    "40": {"type": "integer"},
                },
            },
            1,
        ),
        # A schema inside with a base of its own, whose references lead elsewhere than they seem to.
        (
            {
                "$id": "https://example.com/a",
                "properties": {
                    "x": {"$id": "b", "$ref": "#/$defs/z", "$defs": {"z": {"allOf": [{"$ref": "#"}]}}}
                },
                "$defs": {"z": True},
            },
            {"x": 1},
        ),
        (deep(5_000, {"type": "integer"}), 1),
        ({"anyOf": [{"minLength": n} for n in range(1, 20_000)]}, ""),
        ({"oneOf": [{"required": [f"p{n}"]} for n in range(10_000)]}, {"p1": 1}),
        ({"items": {"enum": [[n] for n in range(5_000)]}}, [[4_999]] * 5_000),
        ({"contains": {"contains": {"contains": {"const": 1}}}}, [[[0] * 60] * 60] * 60),
        ({"unevaluatedProperties": False, "anyOf": [{"properties": {f"p{n}": True}} for n in range(200)]},
         {f"p{n}": n for n in range(200)}),
        ({"multipleOf": 1e-300}, 1e300),
        ({"type": "object", "propertyNames": {"pattern": "^(a|aa)*$"}}, {"a" * 3_000 + "b": 1}),
        ({"minimum": 10**300}, 10**400),
        ({"anyOf": [{"type": "string"}] * 10_000}, [[*range(1_000)]] * 250),
        ({"anyOf": [{"const": n} for n in range(10_000)]}, [[*range(1_000)]] * 250),
    ],
)  # fmt: skip
def test_u15_pathological_schemas_are_refused_or_answered_within_bounds(schema: Any, value: Any) -> None:
    began = time.process_time()
    try:
        problems = ArgumentSchema(schema).problems(value)
    except (SchemaRefused, NotJson):
        problems = []
    assert time.process_time() - began < HANG_S
    assert all(len(str(one)) < 1_000 for one in problems)
