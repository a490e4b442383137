"""What steps, replays, resuming and cases cost in calls, and that no run's length changes it: no clock is read."""

from __future__ import annotations

import anyio

from agentloop import MemoryLedgerStore, create_default_evaluator_parser, replay, resume, run_suite
from agentloop.orchestrator.events import RunStarted
from agentloop.orchestrator.reducer import reduce
from agentloop.orchestrator.state import RunState
from benchmarks import bench_evals, bench_orchestrator, cycle_work
from benchmarks.bench_orchestrator import FREE, STEPS_A_TURN, walk
from tests.work import calls_of


def test_a_step_costs_the_same_after_ten_thousand_steps() -> None:
    start = reduce(RunState.initial("r", "g", 0), RunStarted(at=0, goal="g"), FREE).state
    late = walk(start, 10_000 // STEPS_A_TURN)
    early = calls_of(lambda: walk(start, 100)) / (100 * STEPS_A_TURN)
    assert early <= 32
    assert calls_of(lambda: walk(late, 100)) / (100 * STEPS_A_TURN) <= 1.01 * early


def test_an_entry_costs_a_replay_the_same_in_a_long_run() -> None:
    short, long = _replayed(40), _replayed(400)
    assert long <= 1.05 * short
    assert long <= 60


def _replayed(turns: int) -> float:
    store = MemoryLedgerStore()
    run = anyio.run(bench_orchestrator.whole, turns, store)
    return calls_of(lambda: replay(store, run)) / sum(1 for _ in store.read(run))


def test_an_entry_costs_resuming_the_same_in_a_long_run() -> None:
    short, long = _resumed(30), _resumed(300)
    assert long <= 1.05 * short
    assert long <= 60


def _resumed(cycles: int) -> float:
    store = MemoryLedgerStore()
    anyio.run(cycle_work.in_line(cycles, ledger=store))
    (run,) = [each.run for each in store.runs()]

    def again() -> None:
        resume(
            store, run, agent_adapter=cycle_work.agent_turn, evaluator_adapter=cycle_work.evaluator_turn,
            build_agent_prompt=str, build_evaluator_prompt=str,
            parse_evaluator_output=create_default_evaluator_parser(),
            deterministic_checks=cycle_work.failing_check, checks_list=["exit_code:0"],
        )  # fmt: skip

    return calls_of(again) / sum(1 for _ in store.read(run))


def test_a_case_costs_the_same_among_many() -> None:
    _played(20)  # what is imported and kept on first use
    few, many = _played(20), _played(100)
    assert many <= 1.05 * few
    assert many <= 3_000


def _played(n: int) -> float:
    cases = bench_evals.suite(n)
    return calls_of(lambda: anyio.run(run_suite, cases)) / n
