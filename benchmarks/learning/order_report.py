"""What `orders` finds, in figures, a table and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from benchmarks import harness
from benchmarks.learning import pictures
from benchmarks.learning.intervals import Interval, interval, ratio_interval
from benchmarks.learning.orders import FAMILIES, Family, Order, cycles_per_success

__all__ = ("CHOSEN_ON", "VARIANTS", "OrderTrial", "Variant", "draw", "run", "table", "tune")

#: Runs at the end over which a figure is taken.
LATE: Final = 5
#: Seeds on which the second setting was chosen; none of them is reported.
CHOSEN_ON: Final = range(100, 106)


class Variant(NamedTuple):
    """One way to order the nodes."""

    name: str
    order: Order
    tunables: Mapping[str, Any] = {}
    rewards: Mapping[str, float] = {}


#: Less curiosity, and retries that count: the best of `tune`.
SETTLED: Final = Variant("graph, less curious", "graph", {"ucbC": 0.3}, {"retry": -0.5})
VARIANTS: Final = (
    Variant("graph", "graph"),
    SETTLED,
    Variant("listed", "listed"),
    Variant("random", "random"),
)


@dataclass(frozen=True, slots=True)
class OrderTrial:
    """Cycles per success in one family: by variant, for each seed, in each run."""

    family: Family
    costs: Mapping[str, Sequence[Sequence[float]]]

    def late(self, variant: str) -> list[float]:
        """Return for each seed the mean of the last runs."""
        return [fmean(runs[-LATE:]) for runs in self.costs[variant]]

    def whole(self, variant: str) -> list[float]:
        """Return for each seed the mean of all runs, the price of learning included."""
        return [fmean(runs) for runs in self.costs[variant]]

    def first(self, variant: str) -> list[float]:
        return [runs[0] for runs in self.costs[variant]]

    def curve(self, variant: str) -> list[Interval]:
        """Return the mean over the seeds in each run."""
        seeds = self.costs[variant]
        return [interval([runs[place] for runs in seeds], draws=500) for place in range(len(seeds[0]))]


def run(*, quick: bool) -> list[OrderTrial]:
    """Try every family and print its figures."""
    names = ("chain",) if quick else tuple(FAMILIES)
    seeds, runs = (3, 8) if quick else (20, 30)
    trials = []
    for name in names:
        family = FAMILIES[name]
        costs = {
            variant.name: [_costs(family, variant, seed, runs) for seed in range(seeds)]
            for variant in VARIANTS
        }
        trials.append(OrderTrial(family, costs))
        _report(trials[-1])
    return trials


def _costs(family: Family, variant: Variant, seed: int, runs: int) -> list[float]:
    return cycles_per_success(
        family, variant.order, seed, runs=runs, tunables=variant.tunables, rewards=variant.rewards
    )


def _report(trial: OrderTrial) -> None:
    ours = interval(trial.late("graph"))
    against = {name: ratio_interval(trial.late("graph"), trial.late(name)) for name in ("listed", "random")}
    harness.report(
        f"O {trial.family.name}", f"cycles per success in the last {LATE} runs: {trial.family.what}", ours.value,
        "cycles", floor=1.0, n=len(trial.costs["graph"]),
        must=harness.bar("below the random and the listed order, by the whole interval",
                         all(one.high < 1 for one in against.values())),
        interval=list(ours[1:]),
        first_run=fmean(trial.first("graph")),
        all_runs={name: fmean(trial.whole(name)) for name in trial.costs},
        late={name: list(interval(trial.late(name))) for name in trial.costs},
        over={name: list(one) for name, one in against.items()},
        settled_over={
            name: list(ratio_interval(trial.late(SETTLED.name), trial.late(name))) for name in ("listed", "random")
        },
    )  # fmt: skip


def table(trials: Sequence[OrderTrial]) -> str:
    heads = (
        "family", "first run", f"last {LATE}: graph", "less curious", "listed", "random",
        "all runs, graph : listed", "graph : random", "less curious : listed",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for trial in trials:
        late = {name: interval(trial.late(name)) for name in trial.costs}
        cells = [
            trial.family.name,
            f"{fmean(trial.first('graph')):.2f}",
            *[_cell(late[variant.name]) for variant in VARIANTS],
            *[
                _cell(ratio_interval(trial.whole("graph"), trial.whole(name)))
                for name in ("listed", "random")
            ],
            _cell(ratio_interval(trial.whole(SETTLED.name), trial.whole("listed"))),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(one: Interval) -> str:
    return f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})"


def draw(trials: Sequence[OrderTrial], path: Path) -> None:
    """Draw the cycles per success over the runs, a panel for each family."""
    pictures.curves(
        path,
        {
            f"{trial.family.name}": {variant.name: trial.curve(variant.name) for variant in VARIANTS}
            for trial in trials
        },
        across="run",
        up="cycles per success",
        logarithmic=True,
    )


def tune() -> None:
    """Print what each setting costs on the seeds that are for choosing, best first."""
    found = []
    for curiosity in (1.4, 0.7, 0.3, 0.1):
        for retry in (-0.05, -0.2, -0.5):
            variant = Variant("", "graph", {"ucbC": curiosity}, {"retry": retry})
            costs = [
                fmean(_costs(FAMILIES[name], variant, seed, 30))
                for name in ("hidden", "slow", "flaky", "changing")
                for seed in CHOSEN_ON
            ]
            found.append((fmean(costs), curiosity, retry))
    for cost, curiosity, retry in sorted(found):
        harness.report("O tune", f"ucbC {curiosity}, retry {retry}", cost, "cycles", n=len(CHOSEN_ON))
