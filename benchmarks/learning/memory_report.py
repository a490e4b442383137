"""What `trial` finds about each memory, in figures, tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from benchmarks import harness
from benchmarks.learning import peer, pictures
from benchmarks.learning.adaptive import PARTS, AdaptiveMemory, Without, embed
from benchmarks.learning.intervals import Interval, interval, quotient_interval, ratio_interval
from benchmarks.learning.streams import KINDS, Kind, Stream, make_stream
from benchmarks.learning.systems import BM25, FullContext, MemorySystem, Recency, VectorSearch
from benchmarks.learning.trial import (
    Cut,
    K,
    Played,
    Priced,
    Scores,
    cheapest_cut,
    chosen_cut,
    judge,
    play,
    priced,
)

__all__ = ("MemoryTrial", "draw", "kinds_table", "ranking_table", "run", "table")

#: Seeds of the streams on which cuts are chosen and weights are learned.
CHOSEN_ON: Final = range(100, 105)

#: Share of what the lesser of two memories can answer for which both are priced.
_NEARLY: Final = 0.9

Make = Callable[[], MemorySystem]


@dataclass(frozen=True, slots=True)
class MemoryTrial:
    """What a memory is worth: scores for each seed, and the windows they are of."""

    name: str
    cut: Cut
    scores: Sequence[Scores]
    played: Sequence[Played]
    #: what every cut was worth on the streams for choosing; none if there was nothing to choose
    prices: Sequence[Priced] = ()

    def figure(self, of: Callable[[Scores], float]) -> Interval:
        return interval([of(one) for one in self.scores], draws=1_000)

    def tokens_per_right(self) -> Interval:
        """Return the tokens of all windows over the questions answered right."""
        return ratio_interval(*spent(self.scores), draws=1_000)

    def kind(self, kind: Kind) -> Interval:
        return self.figure(lambda one: one.right[kind])


def spent(scores: Sequence[Scores]) -> tuple[list[float], list[float]]:
    """Return for each seed the tokens that were spent, and the right answers."""
    return [float(one.spent) for one in scores], [float(one.answers) for one in scores]


def _taught(streams: Sequence[Stream]) -> dict[str, float]:
    """Return the weights that feedback arrives at on some streams, their mean."""
    weights: list[Mapping[str, float]] = []
    for stream in streams:
        memory = AdaptiveMemory()
        play(stream, memory)
        weights.append(memory.graph.weights())
        memory.close()
    return {name: fmean([one[name] for one in weights]) for name in weights[0] if name != "inhibition"}


def systems(before: Sequence[Stream], *, models: bool = True) -> dict[str, Make]:
    """Return every memory that is tried, by name.

    The whole one, and those that lack one part of it, begin with the weights that it learned before;
    what lacks feedback never learned any.

    Args:
        before: Streams on which weights are learned.
        models: Also try those with the sentence model, where it is installed.
    """
    taught = _taught(before)
    parts = {"full": Without(), **PARTS}
    made: dict[str, Make] = {
        name: partial(AdaptiveMemory, part if part.feedback else replace(part, weights=taught))
        for name, part in parts.items()
    }
    made["full, new"] = AdaptiveMemory
    made |= {
        "BM25": BM25,
        "BM25, overwriting": partial(BM25, overwrite=True),
        "vectors": partial(VectorSearch, embed),
        "vectors, overwriting": partial(VectorSearch, embed, overwrite=True),
        "recency": Recency,
        "full context": FullContext,
    }
    if models and find_spec("wordllama") is not None:
        from adapters.embed import sentence_embedder

        model = sentence_embedder()
        made["full, sentence model"] = partial(AdaptiveMemory, Without(weights=taught), embedder=model)
        made["vectors, sentence model"] = partial(VectorSearch, lambda text: model.embed([text])[0])
    if peer.installed():
        made["polypack-db"] = partial(peer.Polypack, embed)
        made["polypack-db, no recency"] = partial(peer.Polypack, embed, weights={"recency": 0.0})
    return made


#: Memories whose ranking says nothing about what to leave out.
_UNCUT: Final[Mapping[str, Cut]] = {"recency": Cut(), "full context": Cut(most=None)}


def run(*, quick: bool) -> list[MemoryTrial]:
    """Try every memory and print its figures."""
    size = {"chatter": 30, "asked": 3} if quick else {}
    chosen_on = [make_stream(seed, **size) for seed in (CHOSEN_ON[:1] if quick else CHOSEN_ON)]
    streams = [make_stream(seed, **size) for seed in range(2 if quick else 20)]
    trials = []
    for name, make in systems(chosen_on, models=not quick).items():
        prices = [] if name in _UNCUT else priced([_played(stream, make) for stream in chosen_on])
        cut = _UNCUT.get(name) or chosen_cut(prices)
        played = [_played(stream, make) for stream in streams]
        trials.append(MemoryTrial(name, cut, judged(played, cut), played, prices))
    for trial in trials:
        _report(trial, reference(trials, trial))
    return trials


def reference(trials: Sequence[MemoryTrial], trial: MemoryTrial) -> MemoryTrial:
    """Return what a memory is compared with: the full one, with the same model of sentences if it has one."""
    name = "full, sentence model" if trial.name == "vectors, sentence model" else "full"
    return next(one for one in trials if one.name == name)


def judged(played: Sequence[Played], cut: Cut) -> list[Scores]:
    return [judge(answers, texts, cut) for answers, texts in played]


def _played(stream: Stream, make: Make) -> Played:
    memory = make()
    try:
        return play(stream, memory), stream.texts
    finally:
        memory.close()


#: The figures of a memory, each with how it is read off.
FIGURES: Final[Mapping[str, Callable[[Scores], float]]] = {
    "answered": lambda one: one.answered,
    "stale": lambda one: one.stale,
    "useful_tokens": lambda one: one.useful_tokens,
    "tokens": lambda one: one.tokens,
    "recall": lambda one: one.recall,
    "mrr": lambda one: one.mrr,
    "ndcg": lambda one: one.ndcg,
    "abstained": lambda one: one.abstained,
    "silent": lambda one: one.silent,
}


def _report(trial: MemoryTrial, full: MemoryTrial) -> None:
    found: dict[str, Any] = {name: list(trial.figure(of)) for name, of in FIGURES.items()}
    found["tokens_per_right"] = _finite(trial.tokens_per_right())
    if trial is not full:
        found["full_less_this"] = {
            name: list(_difference(full, trial, FIGURES[name])) for name in ("stale", "answered")
        }
        found["tokens_full_over_this"] = list(_over(full, trial))
        if matched := match(full, trial):
            found["as_many_answered"] = {
                "full_less_this": list(matched.answered), "tokens_full_over_this": list(matched.tokens),
            }  # fmt: skip
    harness.report(
        f"R {trial.name}", "questions answered right, each kind alike", found["answered"][0], "share",
        n=len(trial.scores), kinds={kind: trial.kind(kind).value for kind in KINDS},
        cut=list(trial.cut[:2]),
        **found,
    )  # fmt: skip


def _over(one: MemoryTrial, other: MemoryTrial) -> Interval:
    """Return the tokens for a right answer of one memory over those of the other."""
    return quotient_interval(spent(one.scores), spent(other.scores), draws=1_000)


class Match(NamedTuple):
    """Two memories whose windows were chosen to answer equally many questions."""

    #: by how many more the full one answers
    answered: Interval
    #: its tokens for a right answer over the other's
    tokens: Interval


def match(full: MemoryTrial, other: MemoryTrial) -> Match | None:
    """Cut both as cheaply as can be for the share that the lesser of them answers at most.

    On the streams for choosing. None for a memory that is not cut.
    """
    if not other.prices:
        return None
    share = _NEARLY * min(max(one.answered for one in trial.prices) for trial in (full, other))
    mine, theirs = (_cut_for(trial, share) for trial in (full, other))
    pairs = zip(mine, theirs, strict=True)
    return Match(
        interval([ours.answered - others.answered for ours, others in pairs], draws=1_000),
        quotient_interval(spent(mine), spent(theirs), draws=1_000),
    )


def _cut_for(trial: MemoryTrial, share: float) -> list[Scores]:
    cut = cheapest_cut(trial.prices, share)
    if cut is None:
        raise AssertionError(f"{trial.name} answers {share} under no cut")
    return judged(trial.played, cut)


def _finite(one: Interval) -> list[float | None]:
    return [value if isfinite(value) else None for value in one]


def _difference(one: MemoryTrial, other: MemoryTrial, of: Callable[[Scores], float]) -> Interval:
    """Return by how much a figure of one memory is more than the other's, stream by stream."""
    pairs = zip(one.scores, other.scores, strict=True)
    return interval([of(mine) - of(theirs) for mine, theirs in pairs], draws=1_000)


# ------------------------------------------------------------------------------------- tables


def _cell(one: Interval, digits: int = 2) -> str:
    if not isfinite(one.value):
        return "none right"
    return f"{one.value:.{digits}f} ({one.low:.{digits}f} to {one.high:.{digits}f})"


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *[f"| {' | '.join(row)} |" for row in rows]])


def table(trials: Sequence[MemoryTrial]) -> str:
    """Return what counts most: stale answers, tokens for a right one, and full against each."""
    rows = []
    for trial in trials:
        full = reference(trials, trial)
        against = ["", ""]
        if trial is not full:
            matched = match(full, trial)
            against = [
                _cell(_difference(full, trial, FIGURES["stale"])),
                _cell(matched.tokens if matched else _over(full, trial)),
            ]
        rows.append(
            [
                trial.name,
                _cell(trial.figure(FIGURES["answered"])),
                _cell(trial.figure(FIGURES["stale"])),
                _cell(trial.tokens_per_right(), 0),
                _cell(trial.figure(FIGURES["useful_tokens"])),
                *against,
            ]
        )
    heads = ("memory", "answered", "stale", "tokens for a right answer", "useful tokens")
    return _rows((*heads, "full less this: stale", "full over this: tokens for as many right answers"), rows)


def kinds_table(trials: Sequence[MemoryTrial]) -> str:
    rows = [[trial.name, *[f"{trial.kind(kind).value:.2f}" for kind in KINDS]] for trial in trials]
    return _rows(("memory", *KINDS), rows)


def ranking_table(trials: Sequence[MemoryTrial]) -> str:
    rows = [
        [trial.name, *[_cell(trial.figure(FIGURES[name])) for name in ("recall", "mrr", "ndcg", "silent")]]
        for trial in trials
    ]
    return _rows(
        ("memory", f"recall at {K}", "MRR", f"nDCG at {K}", "silent though there is an answer"), rows
    )


# ----------------------------------------------------------------------------------- pictures


def draw(trials: Sequence[MemoryTrial], bars: Path, curve: Path) -> None:
    """Draw the main figures of every memory, and what more tokens buy."""
    shown = [trial for trial in trials if trial.name not in _UNCUT]
    price = "tokens, the full one over this"
    pictures.bars(
        bars,
        {
            "answered right": {trial.name: trial.figure(FIGURES["answered"]) for trial in shown},
            "a stale statement first": {trial.name: trial.figure(FIGURES["stale"]) for trial in shown},
            price: {
                trial.name: found.tokens
                for trial in shown
                if (found := match(reference(trials, trial), trial))
            },
        },
        units=("share of questions", "share of questions about what changed", "for as many right answers"),
        lines={price: 1.0},
    )
    names = (
        "full", "full, sentence model", "BM25", "BM25, overwriting", "vectors", "vectors, sentence model",
        "polypack-db, no recency", "full context",
    )  # fmt: skip
    pictures.points(
        curve,
        {trial.name: _bought(trial) for trial in trials if trial.name in names},
        across="tokens of a window, uncut but for its length",
        up="share of questions answered right",
    )


def _bought(trial: MemoryTrial) -> list[tuple[float, Interval]]:
    cuts = [trial.cut] if trial.cut.most is None else [Cut(most=most) for most in (1, 2, 3, 5, 7, 10)]
    bought = []
    for cut in cuts:
        scores = judged(trial.played, cut)
        answered = interval([one.answered for one in scores], draws=1_000)
        bought.append((fmean([one.tokens for one in scores]), answered))
    return bought
