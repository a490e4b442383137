"""The symbolic state: what is kept, what is refused, who may write and who hears of it."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentloop._canonical import NotJson
from agentloop.errors import BoundExceeded, SymbolicRefused
from agentloop.symbolic import (
    MAX_NAMES,
    MAX_VALUE_BYTES,
    SymbolicChange,
    SymbolicState,
    create_symbolic_state,
    same_value,
)


def recorder(state: SymbolicState) -> list[SymbolicChange]:
    seen: list[SymbolicChange] = []
    state.subscribe(seen.append)
    return seen


# ------------------------------------------------------------------------------------ vectors


def test_v091_an_assert_says_whether_anything_changed() -> None:
    state = create_symbolic_state()
    assert [state.assert_value("a", value) for value in (1, 1, 2)] == [True, False, True]


def test_v092_a_bool_is_no_number_but_an_integral_float_is_the_integer() -> None:
    state = create_symbolic_state({"a": 1})
    assert state.assert_value("a", True)
    assert state.assert_value("a", 1.0)
    assert not state.assert_value("a", 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], {"a": {"b": -math.inf}}])
def test_v093_a_number_that_is_not_finite_is_refused_with_its_place(value: object) -> None:
    state = create_symbolic_state()
    with pytest.raises(ValueError, match=r"not finite, at \$"):
        state.assert_value("a", value)
    assert "a" not in state


def test_v094_a_stored_value_does_not_alias_the_callers() -> None:
    mine: list[Any] = [1, {"b": 2}]
    state = create_symbolic_state({"i": mine})
    state.assert_value("a", mine)
    mine.append(3)
    mine[1]["b"] = 9
    assert state.get_value("a") == state.get_value("i") == [1, {"b": 2}]


def test_v095_a_retract_says_whether_the_fact_was_there() -> None:
    state = create_symbolic_state({"a": 1})
    assert [state.retract_value("a"), state.retract_value("a"), state.get_value("a")] == [True, False, None]


def test_v096_none_is_a_value_and_present() -> None:
    state = create_symbolic_state({"a": None})
    assert "a" in state
    assert state.retract_value("a")
    assert "a" not in state


def test_v097_apply_updates_counts_the_changes() -> None:
    state = create_symbolic_state()
    updates: list[dict[str, Any]] = [
        {"name": "x", "value": 1},
        {"name": "x", "value": 1},
        {"name": "y", "op": "retract"},
    ]
    assert state.apply_updates(updates) == 1


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"name": ""}, ValueError),
        ({"name": "y"}, ValueError),
        ({"name": "y", "value": 1, "op": "zap"}, ValueError),
        ({"name": 7, "value": 1}, TypeError),
        ({"name": "y", "value": {1, 2}}, TypeError),
        ("y=1", TypeError),
    ],
)
def test_v098_one_invalid_update_and_nothing_is_applied(bad: Any, error: type[Exception]) -> None:
    state = create_symbolic_state()
    with pytest.raises(error):
        state.apply_updates([{"name": "x", "value": 1}, bad])
    assert len(state) == 0


def test_v099_set_is_assert_and_another_op_is_an_error() -> None:
    state = create_symbolic_state()
    with pytest.raises(ValueError, match="'delete'"):
        state.apply_update({"name": "a", "value": 1, "op": "delete"})
    assert state.apply_update({"name": "a", "value": 1, "op": "set"})
    assert state.get_value("a") == 1


def test_v100_a_subscriber_removed_during_a_notification_is_not_called_any_more() -> None:
    state, calls = create_symbolic_state(), []
    stops: dict[str, Callable[[], None]] = {}

    def first(_: SymbolicChange) -> None:
        calls.append("f")
        stops["g"]()

    state.subscribe(first)
    stops["g"] = state.subscribe(lambda _: calls.append("g"))
    state.assert_value("a", 1)
    state.assert_value("a", 2)
    assert calls == ["f", "f"]


def test_v101_a_raising_subscriber_disturbs_nobody_and_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    state = create_symbolic_state()
    state.subscribe(lambda _: 1 / 0)
    seen = recorder(state)
    assert state.assert_value("a", 1)
    assert [change.value for change in seen] == [1]
    assert state.get_value("a") == 1
    assert [type(error) for error in state.errors] == [ZeroDivisionError]
    assert "ZeroDivisionError" in caplog.text


def test_v102_a_change_made_by_a_subscriber_is_delivered_after_the_current_one() -> None:
    state = create_symbolic_state()
    state.subscribe(lambda change: state.assert_value("b", 1) if change.name == "a" else None)
    seen = recorder(state)
    state.assert_value("a", 1)
    assert [change.name for change in seen] == ["a", "b"]


def test_v103_a_feedback_loop_ends_in_an_error_and_every_change_was_told() -> None:
    state = create_symbolic_state({"a": 0})
    seen = recorder(state)
    state.subscribe(lambda change: state.assert_value("a", change.value + 1))
    with pytest.raises(RuntimeError, match="feedback loop"):
        state.assert_value("a", 1)
    assert state.get_value("a") == seen[-1].value == 1_001
    assert len(state.errors) == 1


def test_v104_a_retract_tells_the_previous_value() -> None:
    state = create_symbolic_state({"a": 5})
    seen = recorder(state)
    state.retract_value("a")
    assert [(c.op, c.name, c.value, c.previous) for c in seen] == [("retract", "a", None, 5)]


# ------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), 1j, {1: 2}, [{"a": {3}}], {"a": {None: 1}}])
def test_what_is_not_json_is_refused_with_its_place(value: object) -> None:
    state = create_symbolic_state()
    with pytest.raises(TypeError, match=r"at \$"):
        state.assert_value("a", value)
    assert len(state) == 0


def test_the_place_of_a_refused_value_is_its_path() -> None:
    with pytest.raises(TypeError, match=r"a set at \$\.a\[1\]\.b"):
        create_symbolic_state({"x": {"a": [0, {"b": {1}}]}})


@pytest.mark.parametrize("text", ["\ud800", ["\udfff"], {"\ud800": 1}])
def test_a_lone_surrogate_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        create_symbolic_state({"a": text})


def test_the_bound_on_a_value_counts_its_json_bytes() -> None:
    state = create_symbolic_state()
    state.assert_value("a", "x" * (MAX_VALUE_BYTES - 2))
    for size in (MAX_VALUE_BYTES - 1, 100 * MAX_VALUE_BYTES):
        with pytest.raises(BoundExceeded, match="symbolic value bytes"):
            state.assert_value("b", "x" * size)
    with pytest.raises(BoundExceeded, match="symbolic value bytes"):
        state.assert_value("b", "\x01" * (MAX_VALUE_BYTES // 6 + 1))
    with pytest.raises(BoundExceeded, match="symbolic value bytes"):
        state.assert_value("b", [0] * MAX_VALUE_BYTES)
    assert list(state) == ["a"]


def test_a_dag_that_doubles_on_every_level_is_refused_at_once() -> None:
    value: list[Any] = []
    for _ in range(90):
        value = [value, value]
    with pytest.raises(BoundExceeded, match="symbolic value bytes"):
        create_symbolic_state({"a": value})


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def at_depth(frames: int, fn: Callable[[], object]) -> object:
    return fn() if frames == 0 else at_depth(frames - 1, fn)


@pytest.mark.parametrize("frames", [0, 850])
@pytest.mark.parametrize(("levels", "kept"), [(99, True), (100, True), (101, False), (100_000, False)])
def test_the_depth_of_a_value_is_bounded_wherever_the_caller_stands(
    frames: int, levels: int, kept: bool
) -> None:
    assert sys.getrecursionlimit() >= 1_000
    state, value = create_symbolic_state(), nested(levels)

    def attempt() -> str:
        try:
            state.assert_value("a", value)
        except BoundExceeded as error:
            return error.bound
        return "kept"

    assert at_depth(frames, attempt) == ("kept" if kept else "symbolic value depth")
    while value:
        value = value.pop()  # taken apart level by level, so that freeing it needs no stack


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(BoundExceeded, match="contains itself"):
        create_symbolic_state({"a": value})


def test_the_number_of_names_is_bounded() -> None:
    state = create_symbolic_state({f"n{i}": i for i in range(MAX_NAMES)})
    for attempt in (
        lambda: state.assert_value("more", 1),
        lambda: state.apply_updates([{"name": "more", "value": 1}]),
        lambda: create_symbolic_state({f"n{i}": i for i in range(MAX_NAMES + 1)}),
    ):
        with pytest.raises(BoundExceeded, match="symbolic names"):
            attempt()
    assert state.assert_value("n0", 2)


@pytest.mark.parametrize("name", ["\n", "a\x00", "a\u200bb", "\u202eabc", "a\u2028", "x" * 1_025, "\ud800"])
def test_a_name_with_controls_or_hidden_characters_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        create_symbolic_state({name: 1})


@pytest.mark.parametrize("name", ["a", "a.b.c", " padded ", "größe", "名前", "x" * 1_024])
def test_other_names_are_used_as_they_are(name: str) -> None:
    assert list(create_symbolic_state({name: 1})) == [name]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (0, -0.0, True),
        (True, True, True),
        (math.nan, float("nan"), True),
        ([1, 2], (1, 2), True),
        ([1, [True]], [1, [1]], False),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}, True),
        ({"a": None}, {}, False),
        ("1", 1, False),
        (None, "", False),
        (2**53 + 1, float(2**53), False),
        ({}, [], False),
    ],
)
def test_same_value(left: object, right: object, same: bool) -> None:
    assert same_value(left, right) is same
    assert same_value(right, left) is same


# ----------------------------------------------------------------------------- who may write

DECLARED = {"free": "any", "judged": "evaluator", "built": "tool", "said": "agent", "set": "developer"}


def test_only_the_declared_writer_may_write_a_name() -> None:
    state = create_symbolic_state({"judged": False}, declared=DECLARED)
    allowed = {
        (name, by)
        for name in (*DECLARED, "other")
        for by in ("agent", "evaluator", "tool", "developer")
        if state.refusal(name, by) is None
    }
    everybody = {("free", by) for by in ("agent", "evaluator", "tool", "developer")}
    own = {("judged", "evaluator"), ("built", "tool"), ("said", "agent"), ("set", "developer")}
    assert allowed == everybody | own


def test_a_refused_write_names_the_writer_and_changes_nothing() -> None:
    state = create_symbolic_state({"judged": False}, declared=DECLARED)
    seen = recorder(state)
    with pytest.raises(SymbolicRefused, match="tool may not write the fact 'judged': only evaluator may"):
        state.assert_value("judged", True, by="tool")
    with pytest.raises(SymbolicRefused, match="not declared"):
        state.apply_update({"name": "other", "value": 1}, by="evaluator")
    with pytest.raises(SymbolicRefused):
        state.retract_value("judged", by="agent")
    assert (state.get_all(), seen) == ({"judged": False}, [])


def test_every_change_says_who_made_it() -> None:
    state = create_symbolic_state()
    seen = recorder(state)
    state.assert_value("a", 1)
    state.apply_update({"name": "a", "value": 2}, by="evaluator")
    state.retract_value("a", by="tool")
    assert [change.by for change in seen] == ["developer", "evaluator", "tool"]


def test_an_initial_name_must_be_declared_and_a_writer_known() -> None:
    with pytest.raises(SymbolicRefused, match="'typo'"):
        create_symbolic_state({"typo": 1}, declared=DECLARED)
    with pytest.raises(ValueError, match="'robot'"):
        create_symbolic_state(declared={"a": "robot"})


# --------------------------------------------------------------------------- the rest of it


def test_an_unchanged_assert_tells_nobody_but_replaces_the_metadata() -> None:
    state = create_symbolic_state()
    seen = recorder(state)
    state.assert_value("a", 1, {"source": "first"})
    assert not state.assert_value("a", 1, {"source": "second"})
    assert (len(seen), state.get_metadata("a")) == (1, {"source": "second"})
    state.retract_value("a")
    assert state.get_metadata("a") is None


def test_get_all_is_a_new_dict() -> None:
    state = create_symbolic_state({"a": 1})
    state.get_all()["b"] = 2
    assert list(state) == ["a"]
    assert len(state) == 1


def test_a_snapshot_restores_the_same_facts_and_tells_every_change() -> None:
    state = create_symbolic_state({"a": [1], "b": 2})
    kept = state.snapshot()
    kept_again = state.snapshot()
    kept_again["a"].append(9)
    state.assert_value("a", [2])
    state.retract_value("b")
    state.assert_value("c", 3)
    seen = recorder(state)
    assert state.restore(kept) == 3
    assert state.get_all() == {"a": [1], "b": 2}
    assert {(c.op, c.name) for c in seen} == {("retract", "c"), ("assert", "a"), ("assert", "b")}


def test_a_restore_of_bad_data_changes_nothing() -> None:
    state = create_symbolic_state({"a": 1})
    with pytest.raises(ValueError):
        state.restore({"b": 1, "c": math.inf})
    assert state.get_all() == {"a": 1}


def test_to_json_is_canonical_and_names_the_place_of_what_it_cannot_write() -> None:
    state = create_symbolic_state({"b": [1.0], "a": "ä"})
    assert state.to_json() == '{"a":"ä","b":[1]}'
    state.get_value("b").append({1})
    with pytest.raises(NotJson, match=r"at \$\.b\[1\]"):
        state.to_json()


def test_the_same_function_twice_is_called_twice_and_unsubscribe_is_idempotent() -> None:
    state = create_symbolic_state()
    calls: list[SymbolicChange] = []
    first = state.subscribe(calls.append)
    state.subscribe(calls.append)
    state.assert_value("a", 1)
    first()
    first()
    state.assert_value("a", 2)
    assert [change.value for change in calls] == [1, 1, 2]


def test_a_subscriber_added_during_a_notification_hears_of_the_next_change() -> None:
    state = create_symbolic_state()
    late: list[SymbolicChange] = []
    stop = state.subscribe(lambda _: (state.subscribe(late.append), stop()))
    state.assert_value("a", 1)
    state.assert_value("a", 2)
    assert [change.value for change in late] == [2]


def test_a_subscriber_that_is_interrupted_does_not_block_later_changes() -> None:
    state = create_symbolic_state()

    def interrupted(_: SymbolicChange) -> None:
        stop()
        raise KeyboardInterrupt

    stop = state.subscribe(interrupted)
    seen = recorder(state)
    with pytest.raises(KeyboardInterrupt):
        state.assert_value("a", 1)
    state.assert_value("a", 2)
    assert [change.value for change in seen] == [2]


def test_changes_from_several_threads_are_told_once_each_in_their_order() -> None:
    state = create_symbolic_state()
    seen = recorder(state)
    threads = [
        threading.Thread(target=lambda n=n: [state.assert_value(f"t{n}", i) for i in range(200)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 800
    for n in range(4):
        assert [change.value for change in seen if change.name == f"t{n}"] == list(range(200))
