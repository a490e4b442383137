"""Laws of the deterministic checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.checks import create_default_deterministic_checks, tool_trace_view
from agentloop.symbolic import create_symbolic_state
from tests.strategies import check_strings, trace_entries

STATE = create_symbolic_state({"a": 1, "b": "text", "c": [True, None], "d": False})


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("outer") / "ws"
    (root / "sub").mkdir(parents=True)
    (root / "out.txt").write_text("inside")
    (root / "sub" / "in.json").write_text("{}")
    (root.parent / "secret").write_text("outside")
    for name, target in (
        ("link", "out.txt"),
        ("up", ".."),
        ("far", "/etc"),
        ("loop", "loop"),
        ("sub/self", "."),
    ):
        (root / name).symlink_to(target)
    return root


@given(
    checks_list=st.lists(check_strings() | st.none() | st.integers(), max_size=6),
    trace=st.lists(trace_entries() | st.integers(), max_size=5),
)
def test_i11_checks_never_raise_and_say_the_same_when_asked_twice(
    workspace: Path, checks_list: list[object], trace: list[Any]
) -> None:
    checks = create_default_deterministic_checks(workspace, STATE, glob_limit=200)
    report = checks(checks_list, trace)
    assert report == checks(checks_list, trace)
    assert len(report.evidence.split("\n")) == max(1, len(checks_list))
    assert len(report.results) == len(checks_list)
    assert report.all_passed is all(result.passed for result in report.results)


@given(check=check_strings(), trace=st.lists(trace_entries(), max_size=4))
def test_a_check_and_its_opposite_never_both_pass(workspace: Path, check: str, trace: list[Any]) -> None:
    checks = create_default_deterministic_checks(workspace, STATE, glob_limit=200)
    outcomes = checks([check, f"!{check}"], trace).results
    assert not (outcomes[0].passed and outcomes[1].passed)


@given(
    path=st.lists(
        st.sampled_from(
            ["sub", "..", ".", "up", "far", "link", "out.txt", "secret", "self", "ws", "passwd", "*", "**"]
        ),
        max_size=7,
    ).map("/".join)
)
def test_i12_no_path_that_passes_resolves_outside(workspace: Path, path: str) -> None:
    outcome = create_default_deterministic_checks(workspace)([f"file_exists:{path}"]).results[0]
    if outcome.passed:
        found = outcome.detail.removeprefix("matched by ") if "*" in path else path
        assert (workspace / found).resolve().is_relative_to(workspace.resolve())


@given(trace=st.lists(trace_entries(), max_size=8))
def test_the_latest_view_has_the_newest_of_equal_calls_in_order(trace: list[dict[str, Any]]) -> None:
    trace = [{**entry, "index": index} for index, entry in enumerate(trace)]
    newest = {(entry["name"], str(entry["arguments"])): entry["index"] for entry in trace}
    assert [entry["index"] for entry in tool_trace_view(trace)] == sorted(newest.values())
