"""Cases of loops: scripts for both roles, and the same questions as of orchestrated runs."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop.evals.graders import (
    calls_tools,
    ends_as,
    fails_with,
    output_contains,
    replays_exactly,
    usage_equals,
    visits_phase,
)
from agentloop.evals.grades import Grader
from agentloop.evals.running import play_case, run_case
from agentloop.tools import Tool
from tests.agentloop.evals.cases import case

pytestmark = pytest.mark.anyio

ASK = {"say": "", "callTools": [{"name": "search", "args": {"q": "x"}}]}
SAY = {"say": "it is done", "usage": {"promptTokens": 5, "completionTokens": 2}}


def verdict(status: str) -> dict[str, Any]:
    return {"say": f'{{"status": "{status}", "evidence": "seen"}}'}


def search() -> list[Tool]:
    async def found(q: str) -> str:
        return f"found {q}"

    return [Tool(name="search", handler=found)]


def loop_case(*graders: Grader, **more: Any) -> Any:
    given = {"script": [ASK, SAY], "evaluator": [verdict("SUCCESS")], "tools": search, **more}
    return case("loop", *graders, replays_exactly(), subject="loop", **given)


async def test_a_loop_that_succeeds_is_completed() -> None:
    result = await run_case(
        loop_case(
            ends_as("completed"),
            output_contains("done"),
            calls_tools(["search"], "exact"),
            visits_phase("evaluator"),
            usage_equals({"modelCalls": 2, "toolCalls": 1, "totalTokens": 7, "correctiveTurns": 0}),
        ),
        twice=True,
    )
    assert [grade for grade in result.grades if not grade.passed] == []
    assert (result.error, result.deterministic) == (None, True)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"evaluator": [verdict("FAILURE")]}, "failed", "loop.failure"),
        ({"evaluator": [verdict("RUNNING")], "config": {"max_iterations": 1}}, "halted", "budget.iterations"),
        ({"script": []}, "failed", "loop.error"),
    ],
)
async def test_how_a_loop_that_does_not_succeed_is_called(change: Any, status: Any, code: str) -> None:
    result = await run_case(loop_case(ends_as(status), fails_with(code), **change))
    assert [grade for grade in result.grades if not grade.passed] == []
    assert result.error is None


async def test_checks_and_retries() -> None:
    judge = lambda: lambda names, trace: (bool(trace), "searched" if trace else "not searched")  # noqa: E731
    given = {"checks": ["searched"], "judge": judge, "evaluator": [], "script": [SAY, ASK, SAY]}
    run = await play_case(loop_case(**given))
    assert (run.status, run.usage.corrective_turns, run.usage.model_calls) == ("completed", 1, 2)
    assert "evaluator" not in run.phase_path
    assert [(use.name, use.args, use.ok, use.content) for use in run.tool_calls] == [
        ("search", {"q": "x"}, True, "found x")
    ]
