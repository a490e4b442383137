"""The standard window in orchestrated runs: on record, replayed, never too large."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentloop import (
    ContextBudget,
    ContextConfig,
    Estimates,
    Item,
    ManualClock,
    MemoryLedgerStore,
    Message,
    Ok,
    Orchestrator,
    ScriptedProvider,
    Section,
    TokenUsage,
    create_assembler,
    expect,
    replay,
    resume,
    tokenizer_from,
)
from agentloop.context.assembler import ContextAssembler
from agentloop.context.tokens import message_text
from agentloop.orchestrator.events import ContextAssembled
from agentloop.orchestrator.options import Deps
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


# ------------------------------------------------------------------------ one system message


class Leading(ScriptedProvider):
    """A model that takes system messages at the beginning of a window only."""

    mid_system = False


async def test_w32_later_system_messages_are_joined_to_the_leading_one_where_a_model_wants_that() -> None:
    note = Section(
        id="late",
        priority=9,
        order=9,
        items=[Item(id="late", message=Message(role="system", content="LATE"))],
    )
    options = {"extra_sections": lambda request: [note]}
    for provider, roles in (
        (ScriptedProvider([T(), A()]), ["system", "system", "user", "assistant", "tool", "system"]),
        (Leading([T(), A()]), ["system", "user", "assistant", "tool"]),
    ):
        result = await play([], [search()], provider=provider, assembler=assembler(2_000, **options))
        sent = provider.requests[-1].messages
        assert [message.role for message in sent] == roles
        assert result.outcome.status == "completed"
        assert replay(result.store, result.run_id).ok
        report = reports(result)[-1]
        assert report.get("systemJoined") == (None if roles[1] == "system" else 2)
    said = sent[0].content.split("\n\n")
    assert (said[0], said[-1]) == ("SYSTEM!", "LATE")


async def test_w32_a_window_that_leads_with_its_system_message_is_left_alone() -> None:
    provider = Leading([A()])
    result = await play([], provider=provider, assembler=assembler(500))
    assert "systemJoined" not in reports(result)[0]


# ------------------------------------------------------------------------------- calibration


GUESS = tokenizer_from("guess", lambda text: len(text) // 2, exact=False)


def calibrated(**options: Any) -> ContextAssembler:
    return create_assembler(
        ContextConfig(budget=ContextBudget(total=10_000), system_prompt="S", tokenizer=GUESS, **options)
    )


def costing(factor: float) -> type[ScriptedProvider]:
    class Costing(ScriptedProvider):
        """Says that a window cost that many times what was counted."""

        async def generate(self, request: Any, call: Any, /) -> Any:
            counted = sum(len(message_text(message)) // 2 for message in request.messages)
            result = await super().generate(request, call)
            usage = TokenUsage(prompt_tokens=round(counted * factor), completion_tokens=1)
            return Ok(msgspec.structs.replace(expect(result), usage=usage))

    return Costing


async def margins(factor: float, **options: Any) -> list[float]:
    turns = [T(say="word " * 100) for _ in range(6)]
    provider = costing(factor)([*turns, A()])
    result = await play([], [search()], provider=provider, assembler=calibrated(**options))
    assert replay(result.store, result.run_id).ok
    return [report["safetyMargin"] for report in reports(result)]


async def test_s4_the_margin_goes_towards_what_the_provider_reports() -> None:
    assert await margins(0.7) == [0.08] * 7
    cheap = await margins(0.7, calibrate=True)
    assert cheap[0] == 0.08
    assert cheap == sorted(cheap, reverse=True)
    assert 0.01 < cheap[-1] < 0.021
    dear = await margins(1.05, calibrate=True)
    assert 0.05 < dear[-1] < 0.065
    assert await margins(1.5, calibrate=True) == [0.08] * 7  # never more than was kept back at first


async def test_s4_what_was_learned_is_in_the_record_of_the_run() -> None:
    """A run that goes on elsewhere makes the same windows."""
    turns = [T(say="word " * 100) for _ in range(4)]
    store = MemoryLedgerStore()
    whole = await play(
        [],
        [search()],
        provider=costing(0.7)([*turns, A()]),
        assembler=calibrated(calibrate=True),
        ledger=store,
    )
    cut = MemoryLedgerStore()
    kept = list(store.read(whole.run_id))[:20]
    cut.append(whole.run_id, kept, expected=0, sync=True, blobs=store._blobs)
    resumed = resume(
        cut, whole.run_id, provider=costing(0.7)([*turns, A()]), tools=[search()],
        assembler=calibrated(calibrate=True), deps=Deps(clock=ManualClock()),
    )  # fmt: skip
    assert isinstance(resumed, Orchestrator)
    again = await resumed.run()
    assert reports(again) == reports(whole)
    assert len(reports(again)) == 5
    assert len(kept) == 20


def test_s4_the_margin_is_between_a_hundredth_and_where_it_began() -> None:
    estimates = Estimates()
    assert estimates.margin(0.08) == 0.08
    for _ in range(10_000):
        estimates = estimates.seen(100, 60)
    assert estimates.margin(0.08) == pytest.approx(0.01, abs=1e-4)
    assert estimates.margin(0.08) >= 0.01
    assert estimates.margin(0.0) == 0.0  # whoever keeps nothing back goes on so
    assert estimates.seen(0, 50).seen(50, 0) == estimates
    assert estimates.seen(100, 104).undercount == pytest.approx(0.04)
