"""Whatever stands in whatever argument of a verb of the memory: an answer or a typed refusal, never more.

Numbers that are none are tried on every verb in `tests.graphstate.test_hostile_numbers`, tools of the
protocol in `tests.adapters.mcp.test_hostile_arguments`, words of the command line in
`tests.graphstate.cli`; here it is every kind of value in every argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Ok, VerbFailed, to_json
from graphstate._canonical import encode
from tests.graphstate.activation.calls import ORDINARY, VERBS_OF_MEMORY, ordinary, sown
from tests.graphstate.conftest import Make

HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**400, float("nan"), float("-inf"), "", " ", "\x00", "\x1b[2J", "a\u202eb", "\ud800",
    "x" * 5_000, "'; DROP TABLE node; --", "../../etc/passwd", "nowhere", b"a", [], [[]], [None], ["\ud800"], ["\x1b"],
    {}, {"": None}, {"a": {"b": [1]}}, {1: 2}, object(), {1, 2}, 2**63, -(2**63), 1e308, ["a"] * 2_000,
)  # fmt: skip


def with_value(given: Any, value: Any) -> Iterator[Any]:
    """Put a value in the place of another one, and of each one that it holds."""
    yield value
    if isinstance(given, dict):
        for name, inner in given.items():
            for changed in with_value(inner, value):
                yield {**given, name: changed}
        if isinstance(value, str):
            yield {**given, value: 1}
    elif isinstance(given, list) and given:
        for changed in with_value(given[0], value):
            yield [changed, *given[1:]]


def answer(graph: Adaptogen, verb: str, arguments: Mapping[str, Any]) -> tuple[bool, Any]:
    try:
        said = getattr(graph, verb)(**arguments)
    except VerbFailed as error:
        return False, str(error)
    if isinstance(said, Fail):
        assert said.hint
        return False, said.to_json()
    return True, to_json(said.value if isinstance(said, Ok) else said)


def test_there_is_an_ordinary_call_of_each_verb_with_all_its_arguments() -> None:
    assert set(ORDINARY) == set(VERBS_OF_MEMORY)
    for verb in VERBS_OF_MEMORY:
        signature = inspect.signature(getattr(Adaptogen, verb))
        assert {*ORDINARY[verb], "actor", "cause"} >= {*signature.parameters} - {"self"}, verb
        assert {*ORDINARY[verb]} <= {*signature.parameters}, verb


@pytest.mark.parametrize("verb", VERBS_OF_MEMORY)
def test_an_ordinary_call_succeeds(make: Make, verb: str) -> None:
    graph = sown(make)
    done, said = answer(graph, verb, ordinary(graph, verb))
    assert done, said


@pytest.mark.parametrize("verb", VERBS_OF_MEMORY)
def test_a_hostile_value_is_refused_and_changes_nothing_or_is_just_data(make: Make, verb: str) -> None:
    graph = sown(make)
    for name in ordinary(graph, verb):
        for value in HOSTILE:
            given = ordinary(graph, verb)
            for changed in with_value(given[name], value):
                before = graph.head()
                done, said = answer(graph, verb, given | {name: changed})
                if not done:
                    assert graph.head() == before, (name, changed)
                encode(said)
    assert graph.verify_integrity(deep=True).ok
    assert graph.remember("afterwards").ok
