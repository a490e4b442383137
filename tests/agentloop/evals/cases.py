"""Cases as the tests make them: one answer, graders of one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentloop.evals.cases import EvalCase
from agentloop.evals.grades import Grade, Grader, grader
from agentloop.evals.running import CaseResult, SuiteResult, play_case
from agentloop.evals.views import RunView
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.orchestrator.ledger import ToolUse
from agentloop.orchestrator.state import Outcome, Usage

__all__ = ("answering", "case", "gives", "result", "suite_result", "view")


def gives(score: Any, passed: bool | None = None, *, id: str = "fixed", weight: float = 1) -> Grader:
    """A grader that says the same of every run."""
    passes = score == 1 if passed is None else passed
    return grader(id, lambda run: Grade(score=score, passed=passes, reason="told so"), weight=weight)


def case(id: str = "one", *graders: Grader, **more: Any) -> EvalCase:
    given = {"goal": "the goal", "script": [{"say": "the answer"}], **more}
    return EvalCase(id=id, graders=graders or (gives(1),), **given)


async def answering(say: str = "the answer") -> RunView:
    """A real run that was completed with this answer."""
    return await play_case(case(script=[{"say": say}]))


def view(
    *tools: str,
    failed: Sequence[int] = (),
    reports: Sequence[Mapping[str, Any]] = (),
    usage: Mapping[str, int] | None = None,
) -> RunView:
    """A run with these calls, reports and counters; nothing of it is on record."""
    return RunView(
        "run-x",
        store=MemoryLedgerStore(),
        outcome=Outcome(status="completed", output="the answer"),
        usage=Usage(**(usage or {})),
        phase_trace=("init->assemble", "assemble->model", "model->done"),
        tool_calls=[
            ToolUse(
                name=name,
                args={},
                ok=place not in failed,
                content="",
                error_code="x.y" if place in failed else None,
            )
            for place, name in enumerate(tools)
        ],
        context_reports=reports,
    )


def result(id: str = "one", score: float = 1, passed: bool | None = None, **more: Any) -> CaseResult:
    """A case that came out so."""
    given: dict[str, Any] = {
        "critical": False,
        "weight": 1,
        "grades": (),
        "outcome_status": "completed",
        "usage": Usage(),
        "fingerprint": "00000000",
        "fingerprint2": "0000000000000000",
        **more,
    }
    return CaseResult(case_id=id, score=score, passed=score == 1 if passed is None else passed, **given)


def suite_result(*cases: CaseResult, id: str = "suite") -> SuiteResult:
    return SuiteResult.of(id, cases)
