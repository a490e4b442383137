"""The suite that gates this project passes whole, on the paths that are known for its cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentloop.evals.baseline import read_baseline
from agentloop.evals.gate import gate
from agentloop.evals.running import play_case, run_case, run_suite
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.orchestrator.ledger import read_run_file
from tests.evals.suite import suite

pytestmark = pytest.mark.anyio

#: entries, status, error, model calls / tool calls / corrective turns / retries, fingerprint
PATHS = {
    "direct-answer": (5, "completed", None, (1, 0, 0, 0), "ed485d24"),
    "single-tool-then-answer": (10, "completed", None, (2, 1, 0, 0), "b8979d4d"),
    "parallel-readonly-tools": (10, "completed", None, (2, 2, 0, 0), "1ab1a55b"),
    "unknown-tool-recovery": (15, "completed", None, (3, 2, 1, 0), "882e212b"),
    "bad-arguments-recovery": (15, "completed", None, (3, 2, 1, 0), "49bf230e"),
    "empty-response-repair": (9, "completed", None, (2, 0, 1, 0), "795dfa0c"),
    "transient-retry": (7, "completed", None, (1, 0, 0, 1), "50ed27ca"),
    "retry-exhaustion": (7, "failed", "model.retries_exhausted", (0, 0, 0, 2), "68578973"),
    "readonly-tool-retried-by-runtime": (10, "completed", None, (2, 1, 0, 1), "bd19d95b"),
    "write-tool-never-retried": (10, "completed", None, (2, 1, 1, 0), "f3aa5034"),
    "fatal-not-retried": (3, "failed", "auth.invalid_key", (0, 0, 0, 0), "d78703e7"),
    "step-budget-halts-a-loop": (21, "halted", "budget.steps", (4, 4, 0, 0), "0234d462"),
    "tool-budget-refuses-an-overrunning-batch": (4, "halted", "budget.tool_calls", (1, 0, 0, 0), "252dc58d"),
    "context-report-is-recorded": (10, "completed", None, (2, 1, 0, 0), "b8979d4d"),
    "context-under-pressure": (10, "completed", None, (2, 1, 0, 0), "b8979d4d"),
    "trajectory-shape-is-stable": (15, "completed", None, (3, 2, 0, 0), "d8197754"),
}
CASES = {case.id: case for case in suite.cases}


def test_every_case_has_its_path() -> None:
    assert list(CASES) == list(PATHS)
    assert sum(case.critical for case in suite.cases) == 7


@pytest.mark.parametrize("name", PATHS)
async def test_v174_the_path_of_each_case(name: str) -> None:
    run = await play_case(CASES[name])
    usage = run.usage
    spent = (usage.model_calls, usage.tool_calls, usage.corrective_turns, usage.retries)
    assert (run.steps, run.status, run.error_code, spent, run.fingerprint) == PATHS[name]


@pytest.mark.parametrize("name", PATHS)
async def test_what_is_graded_is_what_is_on_record(name: str) -> None:
    store = MemoryLedgerStore()
    run = await play_case(CASES[name], store=store)
    assert run.story == read_run_file(store, run.run_id).serialise()


@pytest.mark.parametrize("name", PATHS)
async def test_v174_each_case_passes_and_is_the_same_twice(name: str) -> None:
    result = await run_case(CASES[name], twice=True)
    assert [grade for grade in result.grades if not grade.passed] == []
    assert (result.error, result.passed, result.score, result.deterministic) == (None, True, 1, True)


async def test_the_gate_stands_open_without_a_word() -> None:
    baseline = read_baseline(Path(__file__).with_name("baseline.json"))
    assert baseline is not None
    report = gate(await run_suite(suite), baseline, strict_trajectory=True)
    assert (report.ok, report.findings) == (True, ())
    assert {name: one.fingerprint for name, one in baseline.cases.items()} == {
        name: path[-1] for name, path in PATHS.items()
    }


async def test_w45_equal_paths_that_came_out_differently_are_told_apart() -> None:
    alike = [await play_case(CASES[name]) for name in ("unknown-tool-recovery", "bad-arguments-recovery")]
    assert len({run.fingerprint2 for run in alike}) == 2
