"""The tool trace: which results a check may see."""

from __future__ import annotations

from typing import cast

import pytest

from agentloop.checks import (
    ToolTrace,
    TraceScope,
    create_default_deterministic_checks,
    tool_trace_view,
    trace_entry,
)
from agentloop.checks.trace import TraceEntry
from agentloop.messages import ToolError, ToolResult


def entry(cycle: int, name: str, code: int, **arguments: object) -> TraceEntry:
    result = ToolResult(id=f"{cycle}{name}", name=name, ok=code == 0, exit_code=code)
    return trace_entry(result, cycle=cycle, index=0, arguments=arguments)


def meets(check: str, trace: list[TraceEntry], scope: TraceScope, cycle: int) -> bool:
    view = tool_trace_view(trace, scope, cycle=cycle)
    return create_default_deterministic_checks()([check], view).all_passed


def test_v128_a_stale_pass_does_not_outlive_a_newer_failure_of_the_same_call() -> None:
    trace = [entry(1, "t", 0), entry(2, "t", 1)]
    assert not meets("exit_code:0", trace, "latest", 2)
    assert meets("exit_code:0", trace, "all", 2)


def test_v129_another_call_of_an_earlier_cycle_still_counts_unless_the_scope_is_the_cycle() -> None:
    trace = [entry(1, "t", 0, a=1), entry(2, "u", 5)]
    assert meets("exit_code:0", trace, "latest", 2)
    assert not meets("exit_code:0", trace, "cycle", 2)
    assert meets("exit_code:5", trace, "cycle", 2)


def test_equal_arguments_are_equal_values_in_any_order() -> None:
    trace = [entry(1, "t", 1, a=1, b=2), entry(1, "t", 2, b=2.0, a=1), entry(1, "t", 3, a=True, b=2)]
    assert [item["exit_code"] for item in tool_trace_view(trace)] == [2, 3]


def test_the_newest_result_stands_last() -> None:
    trace = [entry(1, "t", 1), entry(1, "u", 2), entry(2, "t", 3)]
    assert [item["exit_code"] for item in tool_trace_view(trace)] == [2, 3]


def test_arguments_that_are_not_json_never_replace_each_other() -> None:
    trace = [entry(1, "t", 1, a={1}), entry(1, "t", 2, a={1})]
    assert len(tool_trace_view(trace)) == 2


def test_a_cycle_without_calls_shows_nothing() -> None:
    trace = ToolTrace("cycle")
    trace.append(entry(1, "t", 0))
    assert trace.view(2) == ()
    assert len(trace.view(1)) == 1


@pytest.mark.parametrize("scope", ["latest", "cycle"])
def test_a_long_run_keeps_no_more_than_its_scope_needs(scope: TraceScope) -> None:
    trace = ToolTrace(scope)
    for cycle in range(1, 1_001):
        trace.append(entry(cycle, "t", 1))
    assert len(trace) == 1
    assert trace.view(1_000)[0]["cycle"] == 1_000
    assert trace.view(1_000) == trace.view(1_000)


def test_a_view_that_was_handed_out_does_not_change() -> None:
    trace = ToolTrace("all")
    trace.append(entry(1, "t", 0))
    before = trace.view()
    trace.append(entry(1, "t", 1))
    assert (len(before), len(trace.view())) == (1, 2)


def test_an_unknown_scope_is_refused() -> None:
    with pytest.raises(ValueError, match="'newest'"):
        ToolTrace(cast("TraceScope", "newest"))


def test_an_entry_has_every_key_and_the_short_word_of_its_error() -> None:
    failed = ToolResult(
        id="x",
        name="t",
        ok=False,
        output="slow",
        timed_out=True,
        error=ToolError(error_class="transient", code="tool.timeout", message="slow"),
    )
    assert trace_entry(failed, cycle=2, index=3, arguments={"a": 1}) == {
        "cycle": 2,
        "index": 3,
        "call_id": "x",
        "name": "t",
        "arguments": {"a": 1},
        "ok": False,
        "output": "slow",
        "stdout": None,
        "stderr": None,
        "exit_code": None,
        "error": "timeout",
        "timed_out": True,
    }
