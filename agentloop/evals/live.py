"""Live suites: real models asked several times, and how sure one can be of what they score.

Nothing here is the same twice, so no gate and no baseline ever asks it; that is what scripted
cases are for. Judges, graders that ask a model themselves, belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from agentloop._numbers import check_count
from agentloop.determinism import Mulberry32
from agentloop.evals.cases import check_cases
from agentloop.evals.grades import Grade, Grader, grade_run, score_of, weighted_mean
from agentloop.evals.views import RunStatus, view_file
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.orchestrator.assembly import PassthroughAssembler
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.registry import ToolHost
from agentloop.orchestrator.runtime import run
from agentloop.orchestrator.state import Usage
from agentloop.ports import Assembler, LedgerStore, Provider
from agentloop.tools import Tool

__all__ = (
    "Interval",
    "LiveCase",
    "LiveCaseResult",
    "LiveResult",
    "LiveRun",
    "LiveSuite",
    "bootstrap",
    "run_live",
)

#: How often scores are drawn anew to see how far their mean moves.
RESAMPLES: Final = 2_000
#: The share of these means that an interval holds.
CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCase:
    """A goal that a real model works on, and the graders that look at it; they may be async."""

    id: str
    goal: str
    #: Makes the model, from the text that chance begins with.
    provider: Callable[[str], Provider]
    graders: Sequence[Grader]
    description: str = ""
    #: Makes the tools.
    tools: Callable[[], ToolHost | Iterable[Tool]] = tuple
    #: Makes what makes the windows.
    assembler: Callable[[], Assembler] = PassthroughAssembler
    #: As `agentloop.run` takes it; its budget bounds each run.
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSuite:
    """Cases that are run several times each.

    Raises:
        AgentLoopConfigError: Two cases share an id, or a case has no graders.
        ValueError: A number is below 1.
    """

    id: str
    cases: Sequence[LiveCase]
    #: How often each case is run, each time with another seed.
    seeds: int = 5
    #: Tokens after which no further run is begun; those under way go on to their own limits.
    max_total_tokens: int | None = None

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds, 1)
        if self.max_total_tokens is not None:
            check_count("max_total_tokens", self.max_total_tokens, 1)
        check_cases(self.id, self.cases)


class LiveRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How one run of a case came out."""

    seed: str
    passed: bool
    score: float
    grades: tuple[Grade, ...] = ()
    outcome_status: RunStatus = "failed"
    usage: Usage = Usage()
    #: Why there was no run to grade.
    error: str | None = None


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A mean, and between what it would lie in 95 of 100 suites like this one."""

    mean: float
    low: float
    high: float


class LiveCaseResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the runs of one case came out."""

    case_id: str
    runs: tuple[LiveRun, ...]
    #: None if no run was begun.
    score: Interval | None
    #: How many runs passed.
    passed: int
    #: Runs that were not begun: the suite's tokens were spent.
    skipped: int


class LiveResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a live suite came out, in the order of the suite."""

    suite_id: str
    cases: tuple[LiveCaseResult, ...]
    #: The mean of the cases that were run.
    score: Interval | None
    total_tokens: int


def bootstrap(groups: Sequence[Sequence[float]], *, seed: str) -> Interval:
    """Return the mean of the groups' means, and how far it moves if each group is drawn anew.

    The percentile bootstrap, the same for the same seed. Linear in all scores, times 2,000.
    """
    rng = Mulberry32(seed)

    def drawn(group: Sequence[float]) -> float:
        return _mean([group[rng.int(0, len(group) - 1)] for _ in group])

    means = sorted(_mean([drawn(group) for group in groups]) for _ in range(RESAMPLES))
    outside = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Interval(
        mean=_mean([_mean(group) for group in groups]), low=means[outside], high=means[-1 - outside]
    )


def _mean(scores: Sequence[float]) -> float:
    return weighted_mean([(score, 1) for score in scores], empty=0)


async def run_live(
    suite: LiveSuite, *, seeds: int | None = None, parallel: int = 4, store: LedgerStore | None = None
) -> LiveResult:
    """Run a live suite. What a run or a grader raises is a failing run, not an error.

    Args:
        suite: What to run.
        seeds: How often each case is run; by default as the suite says.
        parallel: How many runs may be under way at the same time.
        store: Where the runs are recorded; by default in memory. `agentloop eval record` makes a
            scripted case of one that is worth keeping.

    Raises:
        ValueError: ``seeds`` or ``parallel`` is below 1.
    """
    times = suite.seeds if seeds is None else seeds
    check_count("seeds", times, 1)
    check_count("parallel", parallel, 1)
    store = MemoryLedgerStore() if store is None else store
    runs: dict[tuple[str, int], LiveRun] = {}
    # Every case once before any of them again: what is left out when the tokens are spent is spread.
    waiting = iter([(case, number) for number in range(1, times + 1) for case in suite.cases])
    spent = 0

    async def work() -> None:
        nonlocal spent
        for case, number in waiting:
            if suite.max_total_tokens is not None and spent >= suite.max_total_tokens:
                return
            runs[case.id, number] = one = await _run(case, f"{case.id}#{number}", store)
            spent += one.usage.total_tokens

    async with anyio.create_task_group() as tasks:
        for _ in range(min(parallel, times * len(suite.cases))):
            tasks.start_soon(work)
    return _sum_up(suite, runs, times)


async def _run(case: LiveCase, seed: str, store: LedgerStore) -> LiveRun:
    try:
        result = await run(
            case.goal,
            provider=case.provider(seed),
            tools=case.tools(),
            assembler=case.assembler(),
            config=case.config,
            deps=Deps(rng=Mulberry32(seed)),
            seed=seed,
            ledger=store,
        )
        view = view_file(result.ledger, store)
    except Exception as error:
        return LiveRun(seed=seed, passed=False, score=0, error=f"{type(error).__name__}: {error!s:.1000}")
    grades = await grade_run(case.graders, view)
    return LiveRun(
        seed=seed,
        passed=all(grade.passed for grade in grades),
        score=score_of(case.graders, grades),
        grades=grades,
        outcome_status=view.status,
        usage=view.usage,
    )


def _sum_up(suite: LiveSuite, runs: Mapping[tuple[str, int], LiveRun], times: int) -> LiveResult:
    cases: list[LiveCaseResult] = []
    for case in suite.cases:
        own = [runs[case.id, number] for number in range(1, times + 1) if (case.id, number) in runs]
        told = LiveCaseResult(
            case_id=case.id,
            runs=tuple(own),
            score=bootstrap([[one.score for one in own]], seed=case.id) if own else None,
            passed=sum(one.passed for one in own),
            skipped=times - len(own),
        )
        cases.append(told)
    groups = [[one.score for one in case.runs] for case in cases if case.runs]
    return LiveResult(
        suite_id=suite.id,
        cases=tuple(cases),
        score=bootstrap(groups, seed=suite.id) if groups else None,
        total_tokens=sum(one.usage.total_tokens for one in runs.values()),
    )
