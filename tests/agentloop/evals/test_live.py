"""Live suites: several runs of a case, judges that are waited for, and an interval; never a gate."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.errors import AgentLoopConfigError
from agentloop.evals.grades import Grade, Grader, grader
from agentloop.evals.live import LiveCase, LiveSuite, bootstrap, run_live
from agentloop.evals.recording import case_of_run
from agentloop.evals.reports import live_report, suite_json
from agentloop.evals.views import RunView
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.orchestrator.providers import ScriptedProvider
from agentloop.outcome import Result
from agentloop.ports import ModelCall, ModelReply, ModelRequest, Provider

pytestmark = pytest.mark.anyio


class Answers:
    """A model that answers with its seed."""

    name = "answers"

    def __init__(self, seed: str) -> None:
        self._inner = ScriptedProvider([{"say": seed, "usage": {"promptTokens": 60, "completionTokens": 40}}])

    async def generate(self, request: ModelRequest, call: ModelCall, /) -> Result[ModelReply]:
        return await self._inner.generate(request, call)


async def judged(run: RunView) -> Grade:
    """A judge that likes even seeds."""
    await anyio.lowlevel.checkpoint()
    even = int(run.output[-1]) % 2 == 0
    return Grade(score=float(even), passed=even, reason=f"answered {run.output}")


def live(id: str = "one", *graders: Grader, provider: Any = Answers, **more: Any) -> LiveCase:
    return LiveCase(id=id, goal="go", provider=provider, graders=graders or [grader("judge", judged)], **more)


async def test_each_seed_is_a_run_of_its_own_and_judges_are_waited_for() -> None:
    result = await run_live(LiveSuite(id="s", cases=[live("a"), live("b")], seeds=4))
    assert [case.case_id for case in result.cases] == ["a", "b"]
    for case in result.cases:
        assert [run.seed for run in case.runs] == [f"{case.case_id}#{n}" for n in (1, 2, 3, 4)]
        assert [run.score for run in case.runs] == [0, 1, 0, 1]
        assert all(run.grades[0].awaited for run in case.runs)
        assert (case.passed, case.skipped) == (2, 0)
        assert case.score is not None
        assert case.score.mean == 0.5
        assert 0 <= case.score.low < 0.5 < case.score.high <= 1
    assert result.score is not None
    assert result.score.mean == 0.5
    assert result.total_tokens == 800


async def test_no_run_is_begun_once_the_tokens_are_spent() -> None:
    suite = LiveSuite(id="s", cases=[live("a"), live("b")], seeds=3, max_total_tokens=250)
    result = await run_live(suite, parallel=1)
    assert [(len(case.runs), case.skipped) for case in result.cases] == [(2, 1), (1, 2)]
    assert result.total_tokens == 300
    nothing = await run_live(LiveSuite(id="s", cases=[]))
    assert (nothing.cases, nothing.score) == ((), None)


async def test_runs_overlap_under_a_limit() -> None:
    now = most = 0

    async def slow(run: RunView) -> Grade:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.wait_all_tasks_blocked()
        now -= 1
        return Grade(score=1, passed=True, reason="")

    suite = LiveSuite(id="s", cases=[live("a", grader("slow", slow))], seeds=6)
    await run_live(suite, parallel=3)
    assert 1 < most <= 3


async def test_a_model_that_cannot_be_made_is_a_failing_run() -> None:
    def broken(seed: str) -> Provider:
        raise LookupError("no key")

    result = await run_live(LiveSuite(id="s", cases=[live(provider=broken)], seeds=2))
    assert [run.error for run in result.cases[0].runs] == ["LookupError: no key"] * 2
    assert result.cases[0].passed == 0
    assert "one#1: error: LookupError: no key" in live_report(result)


async def test_a_run_worth_keeping_becomes_a_scripted_case() -> None:
    store = MemoryLedgerStore()
    await run_live(LiveSuite(id="s", cases=[live()], seeds=1), store=store)
    (summary,) = store.runs()
    case = await case_of_run(store, summary.run, id="kept")
    assert case.script[0]["say"] == "one#1"


async def test_reports_say_how_sure_one_can_be() -> None:
    result = await run_live(LiveSuite(id="s", cases=[live()], seeds=2))
    text = live_report(result)
    assert "s — live, 200 tokens" in text
    assert "0.500 (0.000 to 1.000)  one: 1 of 2 passed" in text
    assert "one#1: ✗ judge: answered one#1" in text
    assert '"score": {' in suite_json(result)


async def test_suites_that_cannot_be_are_refused() -> None:
    with pytest.raises(AgentLoopConfigError, match="two cases called"):
        LiveSuite(id="s", cases=[live(), live()])
    with pytest.raises(AgentLoopConfigError, match="no graders"):
        LiveSuite(id="s", cases=[LiveCase(id="x", goal="go", provider=Answers, graders=())])
    for wrong in ({"seeds": 0}, {"max_total_tokens": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            LiveSuite(id="s", cases=[live()], **wrong)
    with pytest.raises(ValueError, match="at least 1"):
        await run_live(LiveSuite(id="s", cases=[live()]), seeds=0)
    with pytest.raises(ValueError, match="at least 1"):
        await run_live(LiveSuite(id="s", cases=[live()]), parallel=0)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=3), min_size=1, max_size=2))
def test_an_interval_holds_its_mean_and_is_the_same_for_the_same_seed(groups: list[list[float]]) -> None:
    told = bootstrap(groups, seed="s")
    assert told == bootstrap(groups, seed="s")
    low, high = min(map(min, groups)), max(map(max, groups))
    assert low - 1e-9 <= told.low <= told.high <= high + 1e-9
    if all(len({*group}) == 1 for group in groups):
        assert told.low == told.high == pytest.approx(told.mean)


def test_more_runs_make_an_interval_narrower() -> None:
    few, many = (bootstrap([[0.0, 1.0] * times], seed="s") for times in (2, 40))
    assert many.high - many.low < few.high - few.low
    assert many.low == pytest.approx(0.4, abs=0.03)
    assert many.high == pytest.approx(0.6, abs=0.03)
