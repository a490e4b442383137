"""Graders: their ids, formulas, and what passes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.errors import AgentLoopConfigError
from agentloop.evals import graders as g
from agentloop.evals.grades import Grade, Grader
from agentloop.evals.running import play_case
from agentloop.evals.views import RunView
from tests.agentloop.evals.cases import answering, case, view


def ask(one: Grader, run: RunView) -> Grade:
    grade = one.grade(run)
    assert isinstance(grade, Grade)
    return grade


def scored(one: Grader, run: RunView) -> Any:
    grade = ask(one, run)
    return grade.score, grade.passed


SEVEN = view("search", "lookup", "search", failed=[1])


@pytest.mark.parametrize(
    ("one", "id", "holds"),
    [
        (g.ends_as("completed"), "ends-as:completed", True),
        (g.ends_as("halted"), "ends-as:halted", False),
        (g.fails_with("x.y"), "fails-with:x.y", False),
        (g.output_contains("answer"), "output-contains:answer", True),
        (g.output_contains("question"), "output-contains:question", False),
        (g.output_matches("^the a"), "output-matches:^the a", True),
        (g.output_matches("^a"), "output-matches:^a", False),
        (g.never_calls("mail", "shell"), "never-calls:mail,shell", True),
        (g.never_calls("mail", "lookup"), "never-calls:mail,lookup", False),
        (g.visits_phase("model"), "visits-phase:model", True),
        (g.visits_phase("init"), "visits-phase:init", False),
        (g.visits_phase("tools", False), "avoids-phase:tools", True),
        (g.visits_phase("model", False), "avoids-phase:model", False),
        (g.usage_equals({"modelCalls": 0, "retries": 0}), "usage-equals:modelCalls=0,retries=0", True),
        (g.usage_equals({"modelCalls": 1}), "usage-equals:modelCalls=1", False),
        (g.context_within_budget(), "context-within-budget", True),
        (g.context_invariant("none", lambda reports: not reports, "no windows"), "context:none", True),
        (g.context_invariant("some", bool, "some windows"), "context:some", False),
    ],
)
def test_yes_or_no(one: Grader, id: str, holds: bool) -> None:
    assert one.id == id
    assert scored(one, SEVEN) == (1 if holds else 0, holds)


@pytest.mark.anyio
async def test_graders_of_a_run_that_failed() -> None:
    failing = {"failWith": {"class": "fatal", "code": "x.y", "message": "no"}}
    run = await play_case(case(script=[failing]))
    assert scored(g.fails_with("x.y"), run) == (1, True)
    assert scored(g.ends_as("failed"), run) == (1, True)
    assert scored(g.output_contains("answer"), run) == (0, False)
    assert scored(g.output_matches("^$"), run) == (1, True)  # its output is empty
    assert scored(g.replays_exactly(), run) == (1, True)


def test_v155_tools_in_order_as_a_set_and_exactly() -> None:
    wanted = ["search", "lookup"]
    assert scored(g.calls_tools(wanted), view("search")) == (0.5, False)
    assert scored(g.calls_tools(wanted, "set"), view("search")) == (0.5, False)
    assert scored(g.calls_tools(wanted, "exact"), view(*wanted)) == (1, True)
    assert scored(g.calls_tools(wanted, "exact"), view("lookup", "search")) == (0, False)
    assert scored(g.calls_tools(wanted, "set"), view("lookup", "search")) == (1, True)
    assert scored(g.calls_tools(wanted), view("lookup", "search")) == (0.5, False)
    assert scored(g.calls_tools(wanted), view("search", "other", "lookup")) == (1, True)
    assert scored(g.calls_tools(["a", "a", "b"], "set"), view("b")) == (pytest.approx(1 / 3), False)
    for order in ("exact", "set", "subsequence"):
        assert scored(g.calls_tools([], order), view()) == (1, True)
    assert g.calls_tools(wanted).id == "calls-tools:subsequence:search>lookup"
    assert g.calls_tools(wanted, "exact").id == "calls-tools:exact:search>lookup"


@pytest.mark.parametrize(
    ("actual", "limit", "score"), [(3, 2, 0.5), (12, 10, 0.8), (7, 5, 0.6), (4, 2, 0), (1, 0, 0), (2, 2, 1)]
)
def test_v156_what_lies_beyond_a_limit_scores(actual: int, limit: int, score: float) -> None:
    assert g.budget_score(actual, limit) == pytest.approx(score)
    for one, counter in (
        (g.within_steps(limit), "model_calls"),
        (g.within_tool_calls(limit), "tool_calls"),
        (g.within_tokens(limit), "total_tokens"),
        (g.within_corrective_turns(limit), "corrective_turns"),
        (g.within_retries(limit), "retries"),
    ):
        assert one.id.endswith(f":{limit}")
        assert scored(one, view(usage={counter: actual})) == (pytest.approx(score), actual <= limit)


def test_w41_the_hyperbolic_curve_never_saturates() -> None:
    one = g.within_steps(2, curve="hyperbolic")
    assert [ask(one, view(usage={"model_calls": n})).score for n in (2, 4, 8)] == [1, 0.5, 0.25]
    assert [ask(g.within_steps(2), view(usage={"model_calls": n})).score for n in (4, 8)] == [0, 0]


def test_v157_how_close_a_trajectory_is() -> None:
    one = g.trajectory_close_to(["s", "s", "s"])
    assert one.id == "trajectory-close-to:3"
    assert scored(one, view("s")) == (pytest.approx(1 / 3), False)
    assert scored(g.trajectory_close_to(["s", "s", "s"], 0.3), view("s"))[1]
    assert scored(g.trajectory_close_to([]), view()) == (1, True)
    assert g.edit_distance("kitten", "sitting") == 3
    assert g.edit_distance([], ["a", "b", "c"]) == 3


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_an_edit_distance_is_a_distance(left: list[str], right: list[str]) -> None:
    distance = g.edit_distance(left, right)
    assert distance == g.edit_distance(right, left)
    assert abs(len(left) - len(right)) <= distance <= max(len(left), len(right))
    assert (distance == 0) == (left == right)


def test_a_share_of_failed_calls() -> None:
    one = g.all_tool_calls_succeeded()
    assert scored(one, SEVEN) == (pytest.approx(2 / 3), False)
    assert "lookup (x.y)" in ask(one, SEVEN).reason
    assert scored(one, view()) == (1, True)


def window(used: int = 5, **starved: bool) -> Mapping[str, Any]:
    return {
        "used": used,
        "usable": 10,
        "sections": [{"id": name, "starved": s} for name, s in starved.items()],
    }


def test_windows_within_their_budget_and_starved_sections() -> None:
    run = view(reports=[window(5, recent=False, memory=True), window(11, recent=False, memory=False)])
    assert scored(g.context_within_budget(), run) == (0, False)
    assert scored(g.section_never_starved("recent"), run) == (1, True)
    assert scored(g.section_never_starved("memory"), run) == (0.5, False)
    assert scored(g.section_never_starved("retrieval"), run) == (0, False)


@pytest.mark.anyio
async def test_a_record_that_was_changed_does_not_replay() -> None:
    run = await answering()
    assert scored(g.replays_exactly(), run) == (1, True)
    kept = run.store._runs[run.run_id]  # type: ignore[attr-defined]
    kept[2] = msgspec.structs.replace(kept[2], at=kept[2].at + 1)
    run.__dict__.pop("replayed")
    grade = ask(g.replays_exactly(), run)
    assert (grade.score, grade.passed) == (0, False)
    assert grade.detail


@pytest.mark.parametrize(
    "make",
    [
        lambda: g.calls_tools(["a"], "backwards"),  # type: ignore[arg-type]
        lambda: g.output_matches("(a"),
        lambda: g.usage_equals({"model_calls": 1}),
        lambda: g.within_steps(3, curve="steep"),  # type: ignore[arg-type]
        lambda: dataclasses.replace(g.ends_as("completed"), weight=-1),
        lambda: dataclasses.replace(g.ends_as("completed"), weight=float("nan")),
    ],
)
def test_options_that_cannot_be(make: Any) -> None:
    with pytest.raises(AgentLoopConfigError):
        make()


def test_every_grader_that_data_can_name_is_called_so() -> None:
    made = {
        "ends-as": ("completed",),
        "fails-with": ("x",),
        "output-contains": ("x",),
        "output-matches": ("x",),
        "calls-tools": (["x"],),
        "never-calls": ("x",),
        "visits-phase": ("x",),
        "trajectory-close-to": (["x"],),
        "usage-equals": ({"toolCalls": 1},),
        "section-never-starved": ("x",),
    }
    for name, make in g.GRADERS.items():
        arguments: Any = made.get(name, (1,) if name.startswith("within") else ())
        json.dumps(arguments)
        assert make(*arguments).id.partition(":")[0] == name
