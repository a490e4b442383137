"""Cases and suites are run the same every time; graders cannot break the harness."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop.determinism import ManualClock
from agentloop.errors import AgentLoopConfigError, ClassifiedError, ErrorValue
from agentloop.evals.cases import EvalSuite
from agentloop.evals.grades import Grade, grader
from agentloop.evals.running import run_case, run_suite
from agentloop.evals.views import RunView
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.tools import Tool
from tests.agentloop.evals.cases import case, gives

pytestmark = pytest.mark.anyio


async def test_v151_a_case_scores_the_mean_of_its_grades_with_their_weights() -> None:
    result = await run_case(case("c", gives(1, weight=3), gives(0, weight=1)))
    assert (result.score, result.passed, result.error) == (0.75, False, None)
    assert [grade.grader_id for grade in result.grades] == ["fixed", "fixed#2"]  # W40
    weightless = await run_case(case("c", gives(1, weight=0)))
    assert (weightless.score, weightless.passed) == (0, True)


async def test_v152_a_suite_scores_the_mean_of_its_cases_with_their_weights() -> None:
    cases = [case("good", gives(1), weight=3), case("bad", gives(0), critical=True)]
    result = await run_suite(EvalSuite(id="s", cases=cases))
    assert (result.score, result.passed, result.failed) == (0.75, 1, 1)
    assert result.critical_failures == ("bad",)
    empty = await run_suite(EvalSuite(id="empty", cases=[]))
    assert (empty.score, empty.passed, empty.failed) == (1, 0, 0)


def _raises(run: RunView) -> Grade:
    raise RuntimeError("no idea")


async def _rejects(run: RunView) -> Grade:
    raise RuntimeError("no idea")


@pytest.mark.parametrize("grade", [_raises, _rejects])
async def test_v153_a_grader_that_raises_fails_its_case_only(grade: Any) -> None:
    result = await run_case(case("c", grader("odd", grade), gives(1)))
    odd, good = result.grades
    assert (odd.score, odd.passed, good.passed) == (0, False, True)
    assert "grader threw" in odd.reason
    assert "no idea" in odd.reason
    assert (result.error, result.passed) == (None, False)


async def test_v154_async_graders_are_awaited_one_by_one() -> None:
    clock, order = ManualClock(), list[tuple[str, int]]()

    def late(name: str, delay_ms: int) -> Any:
        async def grade(run: RunView) -> Grade:
            await clock.sleep_ms(delay_ms)
            order.append((name, clock.now_ms()))
            return Grade(score=1, passed=True, reason="in the end")

        return grader(name, grade)

    result = await run_case(case("c", late("first", 6), late("second", 3), late("third", 0)))
    assert result.passed
    assert order == [("first", 6), ("second", 9), ("third", 9)]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -0.1, 1.1, True, "1", None])
async def test_v170_a_score_that_is_none_is_an_error_of_the_grader(score: Any) -> None:
    result = await run_case(case("c", gives(score, True)))
    (grade,) = result.grades
    assert (grade.score, grade.passed, result.passed, result.score) == (0, False, False, 0)
    assert "grader error" in grade.reason


async def test_what_is_no_grade_is_an_error_of_the_grader() -> None:
    result = await run_case(case("c", grader("odd", lambda run: 1)))  # type: ignore[arg-type,return-value]
    assert "grader error" in result.grades[0].reason


async def test_w40_a_case_without_graders_is_no_case() -> None:
    bare = case("bare")
    with pytest.raises(AgentLoopConfigError, match="no graders"):
        EvalSuite(id="s", cases=[type(bare)(id="bare", goal="g", script=[], graders=())])
    with pytest.raises(AgentLoopConfigError, match="two cases"):
        EvalSuite(id="s", cases=[case("a"), case("a")])
    for weight in (-1, float("nan"), float("inf")):
        with pytest.raises(AgentLoopConfigError, match="weight"):
            case("a", weight=weight)
    with pytest.raises(AgentLoopConfigError, match="id"):
        case("")


async def test_a_case_that_cannot_be_run_has_an_error_and_no_grades() -> None:
    result = await run_case(case("c", gives(1), config={"budget": {"maxSteps": 0}}, tags=["t"]))
    assert (result.passed, result.score, result.grades, result.fingerprint) == (False, 0, (), "")
    assert result.outcome_status == "failed"
    assert "maxSteps" in (result.error or "") or "max_steps" in (result.error or "")
    assert result.tags == ("t",)


def _sleeping(name: str, clock: ManualClock, order: list[str], delay_ms: int) -> Any:
    async def grade(run: RunView) -> Grade:
        await clock.sleep_ms(delay_ms)
        order.append(name)
        return Grade(score=1, passed=True, reason="slept")

    return case(name, grader("sleeps", grade))


@pytest.mark.parametrize(("parallel", "takes_ms", "ends"), [(1, 75, "abc"), (2, 45, "bac"), (3, 30, "bca")])
async def test_w43_cases_overlap_under_a_limit_and_keep_their_order(
    parallel: int, takes_ms: int, ends: str
) -> None:
    clock, order = ManualClock(), list[str]()
    cases = [
        _sleeping("a", clock, order, 30),
        _sleeping("b", clock, order, 20),
        _sleeping("c", clock, order, 25),
    ]
    result = await run_suite(EvalSuite(id="s", cases=cases), parallel=parallel)
    assert [one.case_id for one in result.cases] == ["a", "b", "c"]
    assert ("".join(order), clock.now_ms()) == (ends, takes_ms)


async def test_no_cases_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match="parallel"):
        await run_suite(EvalSuite(id="s", cases=[case()]), parallel=0)


async def test_w44_a_second_run_that_differs_is_told() -> None:
    count = 0

    async def next_number() -> int:
        nonlocal count
        count += 1
        return count

    counting = Tool(name="next", handler=next_number)
    script = [{"say": "", "callTools": [{"name": "next", "args": {}}]}, {"say": "done"}]
    result = await run_case(case("c", script=script, tools=lambda: [counting]), twice=True)
    assert result.deterministic is False
    assert (await run_case(case("c"), twice=True)).deterministic is True
    assert (await run_case(case("c"))).deterministic is None


async def test_a_run_is_named_seeded_and_timed_by_its_case() -> None:
    store = MemoryLedgerStore()
    fails = {"failWith": {"class": "transient", "code": "x.y", "message": "later"}}
    waited = case("c", script=[fails, {"say": "done"}])
    first = await run_case(waited, store=store)
    second = await run_case(waited)
    assert first == second
    (summary,) = store.runs()
    assert summary.run == "run-c"
    assert summary.opened_at == 0
    assert first.usage.retries == 1


async def test_a_tool_may_fail_by_class() -> None:
    async def broken() -> None:
        raise ClassifiedError(ErrorValue(error_class="fatal", code="disk.gone", message="no disk"))

    script = [{"say": "", "callTools": [{"name": "write", "args": {}}]}, {"say": "done"}]
    given = case("c", script=script, tools=lambda: [Tool(name="write", handler=broken)])
    result = await run_case(given)
    assert result.outcome_status == "failed"
