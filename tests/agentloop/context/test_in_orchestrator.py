"""The standard window in orchestrated runs: on record, replayed, never too large."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop import ContextBudget, ContextConfig, create_assembler, replay
from agentloop.context.assembler import ContextAssembler
from agentloop.orchestrator.events import ContextAssembled
from agentloop.orchestrator.runtime import RunResult
from tests.agentloop.context.packing import CHARS
from tests.agentloop.orchestrator.scenes import A, T, play, search

pytestmark = pytest.mark.anyio


def assembler(total: int, **options: Any) -> ContextAssembler:
    return create_assembler(
        ContextConfig(budget=ContextBudget(total=total), system_prompt="SYSTEM!", tokenizer=CHARS, **options)
    )


def reports(result: RunResult) -> list[dict[str, Any]]:
    """Return the reports of the windows, from the run's own record."""
    windows = [entry.event for entry in result.ledger.entries if isinstance(entry.event, ContextAssembled)]
    return [window.context.report for window in windows if window.context.report is not None]


async def test_v140_a_run_whose_pinned_sections_do_not_fit_fails_with_that_code() -> None:
    result = await play([A()], goal="GOAL", assembler=assembler(6))
    error = result.outcome.error
    assert result.outcome.status == "failed"
    assert error is not None
    assert (error.code, error.source) == ("context.pinned_overflow", "context")


async def test_every_window_of_a_long_run_is_within_its_budget_and_reported() -> None:
    turns = [T("search", say=f"look {number}") for number in range(8)]
    result = await play(
        [*turns, A("found it")],
        [search(handler=lambda q: "result " * 40)],
        assembler=assembler(900),
        budget={"maxSteps": 20, "maxToolCalls": 20},
    )
    assert result.outcome.status == "completed"
    found = reports(result)
    assert len(found) == 9
    assert all(report["used"] <= report["usable"] for report in found)
    assert found[-1]["droppedItems"] > 0
    report = replay(result.store, result.run_id)
    assert report.ok, report
