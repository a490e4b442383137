"""Guards against a second reader and a second evaluator, and against whatever a context can hold.

`RELIABILITY=full` tries 10,000 guards, each with ten contexts.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from graphstate.errors import GuardError
from graphstate.guards import GUARD_BUDGET, Evaluation, compile_guard
from tests.properties import guard_reference
from tests.strategies import guard_contexts, guard_texts, guards

FULL = os.environ.get("RELIABILITY") == "full"
pytestmark = pytest.mark.timeout(1_800 if FULL else 120)
many = settings(
    max_examples=10_000 if FULL else 300, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@many
@given(text=guard_texts())
@example(text="[" * 13 + "]" * 13)
@example(text="(" * 12 + "!!a" + ")" * 12)
@example(text="exists in [exists has]")
@example(text="9" * 1_001)
@example(text="9" * 400 + ".5")
@example(text=" " * 2_000 + "1")
def test_the_parser_accepts_what_the_documented_grammar_says(text: str) -> None:
    error = refusal(text)
    event("a guard" if error is None else "not a guard")
    assert (error is None) is (guard_reference.read(text) is not None)
    assert error is None or error.position is None or 0 <= error.position <= len(text)


def refusal(text: str) -> GuardError | None:
    try:
        compile_guard(text)
    except GuardError as error:
        return error
    return None


@many
@given(text=guards(), contexts=st.lists(guard_contexts(), min_size=10, max_size=10))
def test_both_evaluators_say_the_same(text: str, contexts: list[dict[str, Any]]) -> None:
    guard, tree = compile_guard(text), guard_reference.read(text)
    assert tree is not None
    for context in contexts:
        found = guard.evaluate(context)
        assert found == (guard_reference.evaluate(tree, context), found.units, False)


@many
@given(text=guards(), contexts=st.lists(guard_contexts(hostile=True), min_size=10, max_size=10))
def test_every_evaluation_ends_within_its_budget_and_the_same_way_again(
    text: str, contexts: list[dict[str, Any]]
) -> None:
    guard = compile_guard(text)
    for context in contexts:
        found = guard.evaluate(context)
        assert isinstance(found, Evaluation)
        assert 0 < found.units <= GUARD_BUDGET
        assert found.exhausted is False or (found.passed, found.units) == (False, GUARD_BUDGET)
        assert guard.evaluate(context) == found
        if not found.exhausted:
            assert guard.evaluate(context, budget=found.units) == found
            assert guard.evaluate(context, budget=found.units - 1).exhausted


@many
@given(text=guards(), context=st.none() | st.integers() | st.lists(st.integers()) | st.text())
def test_what_is_no_context_has_no_names(text: str, context: Any) -> None:
    guard = compile_guard(text)
    assert guard.evaluate(context) == guard.evaluate({})
