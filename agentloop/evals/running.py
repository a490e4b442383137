"""Running cases: the same clock, chance and ids every time, so the same run every time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import anyio
import msgspec

from agentloop._numbers import check_count
from agentloop.determinism import ManualClock, Mulberry32, SequentialIds
from agentloop.evals.cases import EvalCase, EvalSuite
from agentloop.evals.grades import Grade, grade_run, score_of, weighted_mean
from agentloop.evals.views import RunStatus, RunView, view_file
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.orchestrator.config import read_config
from agentloop.orchestrator.ledger import FILE_VERSION, FileEntry, RunFile
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.providers import ScriptedProvider
from agentloop.orchestrator.runtime import run
from agentloop.orchestrator.state import Usage
from agentloop.ports import LedgerStore

__all__ = ("CaseResult", "SuiteResult", "play_case", "run_case", "run_suite")


class CaseResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How one case came out."""

    case_id: str
    passed: bool
    #: 0..1: the mean of the grades with their weights.
    score: float
    critical: bool
    weight: float
    grades: tuple[Grade, ...]
    outcome_status: RunStatus
    usage: Usage
    fingerprint: str
    fingerprint2: str = ""
    #: As of `RunView.path`.
    path: str = ""
    tags: tuple[str, ...] = ()
    #: Why there was no run to grade.
    error: str | None = None
    #: Whether a second run had the same record; None if there was none.
    deterministic: bool | None = None


class SuiteResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the cases of a suite came out, in the order of the suite."""

    suite_id: str
    cases: tuple[CaseResult, ...]
    #: The mean of the cases with their weights; 1 of no cases.
    score: float
    #: How many cases passed.
    passed: int
    failed: int
    #: The critical cases that failed.
    critical_failures: tuple[str, ...]

    @classmethod
    def of(cls, suite_id: str, cases: Sequence[CaseResult]) -> SuiteResult:
        """Sum up the results of cases."""
        passed = sum(case.passed for case in cases)
        return cls(
            suite_id=suite_id,
            cases=tuple(cases),
            score=weighted_mean([(case.score, case.weight) for case in cases], empty=1.0),
            passed=passed,
            failed=len(cases) - passed,
            critical_failures=tuple(case.case_id for case in cases if case.critical and not case.passed),
        )


async def play_case(case: EvalCase, *, store: LedgerStore | None = None) -> RunView:
    """Run a case once and return its run, not graded yet. Time is virtual.

    Args:
        case: What to run.
        store: Where it is recorded; by default in memory.
    """
    store = MemoryLedgerStore() if store is None else store
    if case.subject == "loop":
        return await _play_loop(case, store)
    clock, config = ManualClock(), read_config(case.config)
    # The decisions as they are put on record: reading them back would cost as much as the run.
    entries: list[FileEntry] = []
    result = await run(
        case.goal,
        provider=ScriptedProvider(case.script, on_exhausted=case.on_exhausted, clock=clock),
        tools=case.tools(),
        assembler=case.assembler(),
        config=config,
        on_entry=entries.append,
        deps=Deps(clock=clock, rng=Mulberry32(case.id), ids=SequentialIds()),
        seed=case.id,
        run_id=f"run-{case.id}",
        ledger=store,
    )
    state = result.state
    file = RunFile(
        version=FILE_VERSION,
        run_id=state.run_id,
        goal=state.goal,
        seed=case.id,
        config=config,
        started_at=state.started_at,
        finished_at=state.now,
        final_phase=state.phase,
        usage=state.usage,
        outcome=state.outcome,
        entries=tuple(entries),
        redacted=True,
    )
    return view_file(file, store)


async def _play_loop(case: EvalCase, store: LedgerStore) -> RunView:
    # Most runs need no loop, and it is slow to import.
    from agentloop.evals.loops import play_loop

    tools = case.tools()
    if not isinstance(tools, Iterable):
        raise TypeError("the tools of a loop are a list of them")
    return await play_loop(
        f"run-{case.id}",
        store,
        agent=case.script,
        evaluator=case.evaluator,
        tools=tools,
        checks=case.checks,
        judge=None if case.judge is None else case.judge(),
        options=case.config,
        labels={"goal": case.goal},
    )


async def run_case(case: EvalCase, *, twice: bool = False, store: LedgerStore | None = None) -> CaseResult:
    """Run a case and grade its run. Nothing a run or a grader raises gets out, but cancellation.

    Args:
        case: What to run.
        twice: Run it again, and compare the two records; the first one is graded.
        store: Where the first run is recorded; by default in memory.
    """
    try:
        view = await play_case(case, store=store)
        same = (await play_case(case)).story == view.story if twice else None
    except Exception as error:
        return _blown_up(case, error)
    grades = await grade_run(case.graders, view)
    return CaseResult(
        case_id=case.id,
        passed=all(grade.passed for grade in grades),
        score=score_of(case.graders, grades),
        critical=case.critical,
        weight=case.weight,
        grades=grades,
        outcome_status=view.status,
        usage=view.usage,
        fingerprint=view.fingerprint,
        fingerprint2=view.fingerprint2,
        path=view.path,
        tags=tuple(case.tags),
        deterministic=same,
    )


def _blown_up(case: EvalCase, error: Exception) -> CaseResult:
    return CaseResult(
        case_id=case.id,
        passed=False,
        score=0,
        critical=case.critical,
        weight=case.weight,
        grades=(),
        outcome_status="failed",
        usage=Usage(),
        fingerprint="",
        tags=tuple(case.tags),
        error=f"{type(error).__name__}: {error!s:.1000}",
    )


async def run_suite(
    suite: EvalSuite, *, parallel: int = 8, twice: bool = False, store: LedgerStore | None = None
) -> SuiteResult:
    """Run the cases of a suite; the result has the suite's order, whichever case ends first.

    Args:
        suite: What to run.
        parallel: How many cases may be under way at the same time.
        twice: As of `run_case`.
        store: As of `run_case`; all runs are recorded in it.

    Raises:
        ValueError: ``parallel`` is below 1.
    """
    check_count("parallel", parallel, 1)
    results: list[CaseResult | None] = [None] * len(suite.cases)
    waiting = iter(enumerate(suite.cases))

    async def work() -> None:
        for place, case in waiting:
            results[place] = await run_case(case, twice=twice, store=store)

    async with anyio.create_task_group() as tasks:
        for _ in range(min(parallel, len(suite.cases))):
            tasks.start_soon(work)
    return SuiteResult.of(suite.id, [result for result in results if result is not None])
