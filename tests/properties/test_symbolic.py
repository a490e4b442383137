"""Laws of the symbolic state."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentloop._canonical import Json, encode
from agentloop.symbolic import SymbolicChange, create_symbolic_state, same_value
from tests.strategies import json_values, symbolic_operations


@given(initial=st.dictionaries(st.sampled_from("abc"), json_values(5)), operations=symbolic_operations())
def test_i9_get_all_is_the_fold_of_the_changes_over_the_initial_values(
    initial: dict[str, Json], operations: list[dict[str, Any]]
) -> None:
    state = create_symbolic_state(initial)
    folded = state.get_all()

    def fold(change: SymbolicChange) -> None:
        assert same_value(change.previous, folded.get(change.name))
        if change.op == "retract":
            del folded[change.name]
        else:
            folded[change.name] = change.value

    state.subscribe(fold)
    for operation in operations:
        state.apply_update(operation)
    assert folded == state.get_all()
    assert not state.errors


@given(operations=symbolic_operations())
def test_applying_a_list_is_applying_each(operations: list[dict[str, Any]]) -> None:
    one, each = create_symbolic_state(), create_symbolic_state()
    assert one.apply_updates(operations) == sum(each.apply_update(operation) for operation in operations)
    assert one.to_json() == each.to_json()


@given(value=json_values())
def test_a_value_comes_back_equal_and_the_same_again_changes_nothing(value: Json) -> None:
    state = create_symbolic_state()
    assert state.assert_value("a", value)
    assert not state.assert_value("a", value)
    assert same_value(state.get_value("a"), value)
    assert encode(state.get_value("a")) == encode(value)


@given(left=json_values(6), right=json_values(6))
def test_the_same_value_has_the_same_canonical_bytes(left: Json, right: Json) -> None:
    assert same_value(left, right) is same_value(right, left)
    assert same_value(left, left)
    if encode(left) == encode(right):
        assert same_value(left, right)


@given(before=symbolic_operations(), after=symbolic_operations())
def test_a_snapshot_restores(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    state = create_symbolic_state()
    state.apply_updates(before)
    kept = state.snapshot()
    state.apply_updates(after)
    state.restore(kept)
    assert state.snapshot() == kept
    assert state.restore(kept) == 0
