from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.learning.orders import FAMILIES, cycles_per_success

CHAIN = FAMILIES["chain"]
#: What a bridge would write if it learned nothing.
NOTHING = dict.fromkeys(("success", "evaluator", "max_iterations", "error", "retry"), 0.0)


def late(costs: list[list[float]]) -> float:
    return fmean([fmean(runs[-3:]) for runs in costs])


def test_runs_teach_the_graph_an_order_that_costs_half_of_the_listed_and_of_a_random_one() -> None:
    by_order = {
        order: late([cycles_per_success(CHAIN, order, seed, runs=10) for seed in range(4)])
        for order in ("graph", "listed", "random")
    }

    assert by_order["graph"] < 1.5
    assert by_order["graph"] < by_order["listed"] / 2
    assert by_order["graph"] < by_order["random"] / 2


def test_without_rewards_the_graph_finds_no_order() -> None:
    untaught = late([cycles_per_success(CHAIN, "graph", seed, runs=10, rewards=NOTHING) for seed in range(4)])

    assert untaught > 2


def test_retries_that_cost_teach_an_order_in_which_nothing_fails() -> None:
    costs = [
        cycles_per_success(
            FAMILIES["slow"], "graph", seed, runs=12, tunables={"ucbC": 0.3}, rewards={"retry": -0.5}
        )
        for seed in range(3)
    ]

    assert late(costs) < 1.1 < fmean([runs[0] for runs in costs])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_trial_is_the_same_each_time_and_costs_at_least_one_cycle_a_success(name: str) -> None:
    for order in ("graph", "random"):
        once, again = (cycles_per_success(FAMILIES[name], order, 7, runs=2) for _ in range(2))
        assert once == again
        assert all(cost >= 1 for cost in once)


def test_what_was_learned_survives_a_restart_after_every_run(tmp_path: Path) -> None:
    through = cycles_per_success(CHAIN, "graph", 1, runs=8)
    broken = cycles_per_success(CHAIN, "graph", 1, runs=8, path=tmp_path / "g.db", restart_every=1)

    assert broken == through
    assert through[-1] == 1 < through[0]
