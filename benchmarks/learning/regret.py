"""What feedback is worth: 500 questions, with weights that learn and with equal ones.

The memory is filled once; then the same questions are put to two of it. One is told after each
which of the first five statements was of use, the other is not. The loss of a question is 1 less
the reciprocal of the place of its answer. Half-way the file that learns is closed and opened.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

from benchmarks import harness
from benchmarks.learning import pictures
from benchmarks.learning.adaptive import RATE, AdaptiveMemory, Without
from benchmarks.learning.intervals import Interval, interval
from benchmarks.learning.metrics import reciprocal_rank
from benchmarks.learning.streams import DAY, Question, make_stream
from benchmarks.learning.trial import K

__all__ = ("ROUNDS", "Losses", "draw", "losses", "run", "table")

ROUNDS: Final = 500
_LIMIT: Final = 20
#: Kinds that are asked; what they ask for does not depend on when.
_KINDS: Final = ("single", "updated", "unmarked", "hops")


class Losses(NamedTuple):
    """The loss of each round."""

    learned: Sequence[float]
    equal: Sequence[float]
    #: of the signals, at the end
    weights: dict[str, float]

    @property
    def regret(self) -> list[float]:
        """Loss so far, less that of equal weights: below 0 learning has paid."""
        return list(
            accumulate([ours - theirs for ours, theirs in zip(self.learned, self.equal, strict=True)])
        )


def _filled(seed: int, path: Path | None) -> tuple[AdaptiveMemory, list[Question]]:
    memory = AdaptiveMemory(Without(feedback=True), path=path)
    questions = []
    for operation in make_stream(seed).operations:
        if not isinstance(operation, Question):
            memory.take(operation)
        elif operation.kind in _KINDS:
            questions.append(operation)
    return memory, questions


def _loss(memory: AdaptiveMemory, question: Question, *, teach: bool) -> float:
    ranked = [hit.id for hit in memory.recall(question, _LIMIT)]
    if teach:
        for one in ranked[:K]:
            if one in question.relevant:
                memory.graph.feedback(memory.retrieval, one, True, rate=RATE, rule="contrast").unwrap()
    return 1 - reciprocal_rank(ranked, question.answer or "")


def losses(seed: int, *, rounds: int = ROUNDS, path: Path | None = None) -> Losses:
    """Return the losses of one seed; the same for the same arguments.

    Args:
        rounds: Questions.
        path: A file for the memory that learns, closed and opened again half-way; in memory and
            without a break if not given.
    """
    memory, questions = _filled(seed, path)
    fixed, _ = _filled(seed, None)
    rng = random.Random(f"regret/{seed}")
    learned, equal = [], []
    for number in range(rounds):
        if path is not None and number == rounds // 2:
            memory.close()
            memory = AdaptiveMemory(Without(feedback=True), path=path, fresh=False)
        asked = rng.choice(questions)
        question = Question(
            at=60 * DAY + number,
            kind=asked.kind,
            text=asked.text,
            answer=asked.answer,
            relevant=asked.relevant,
        )
        learned.append(_loss(memory, question, teach=True))
        equal.append(_loss(fixed, question, teach=False))
    weights = memory.graph.weights()
    memory.close()
    fixed.close()
    return Losses(learned, equal, weights)


def run(*, quick: bool) -> list[Losses]:
    """Put the questions, print what came of it."""
    seeds, rounds = (2, 30) if quick else (20, ROUNDS)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            found.append(losses(seed, rounds=rounds, path=Path(folder) / f"{seed}.db"))
    total, late = interval([one.regret[-1] for one in found]), _late(found)
    harness.report(
        "F", f"regret of learned weights over {rounds} rounds, against equal ones", total.value, "loss", n=seeds,
        must=harness.bar("below 0 by the whole interval", total.high < 0),
        interval=list(total[1:]), last_fifth={name: list(one) for name, one in late.items()},
        weights={name: fmean([one.weights[name] for one in found]) for name in found[0].weights},
    )  # fmt: skip
    return found


def _late(found: Sequence[Losses]) -> dict[str, Interval]:
    """Return the mean loss in the last fifth of the rounds."""
    last = len(found[0].learned) // 5
    return {
        "learned": interval([fmean(one.learned[-last:]) for one in found]),
        "equal": interval([fmean(one.equal[-last:]) for one in found]),
    }


def table(found: Sequence[Losses]) -> str:
    """Return the loss with and without learning, and the weights that were learned."""
    late = {name: f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})" for name, one in _late(found).items()}
    total = interval([one.regret[-1] for one in found])
    weights = {
        name: interval([one.weights[name] for one in found])
        for name in found[0].weights
        if name != "inhibition"
    }
    learned = ", ".join([f"{name} {one.value:.2f}" for name, one in weights.items()])
    return "\n".join(
        [
            "| | learned | equal |",
            "|---|---|---|",
            f"| mean loss of the last {len(found[0].learned) // 5} of {len(found[0].learned)} rounds | {late['learned']} | {late['equal']} |",
            f"| regret after all rounds | {total.value:.1f} ({total.low:.1f} to {total.high:.1f}) | 0 |",
            f"| weights at the end | {learned} | 1 each |",
        ]
    )


def draw(found: Sequence[Losses], path: Path) -> None:
    """Draw the regret over the rounds."""
    rounds = range(len(found[0].learned))
    line: list[Interval] = [interval([one.regret[place] for one in found], draws=200) for place in rounds]
    pictures.curves(
        path, {"": {"learned less equal weights": line}}, across="question", up="sum of 1 - 1/place so far"
    )
