"""Playing a stream to a memory, and judging what it showed.

What a memory ranks is cut to a window by three numbers of its own: a score below which nothing is
shown, a share of the best score below which nothing more is, and how many at most. They are chosen on
streams of other seeds than those that are reported, in the same way for every memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias

from agentloop.context.tokens import PIECEWISE
from benchmarks.learning.metrics import first_of, ndcg, recall_at, reciprocal_rank
from benchmarks.learning.streams import KINDS, Kind, Question, Stream
from benchmarks.learning.systems import Hit, MemorySystem

__all__ = (
    "K",
    "Answer",
    "Cut",
    "Played",
    "Priced",
    "Scores",
    "cheapest_cut",
    "chosen_cut",
    "judge",
    "play",
    "priced",
    "window",
)

#: Statements that a window holds at most; metrics "at k" are at this one.
K: Final = 5


class Answer(NamedTuple):
    """A question and what a memory ranked for it."""

    question: Question
    hits: Sequence[Hit]


#: A stream's answers, and its texts by id.
Played: TypeAlias = tuple[Sequence[Answer], Mapping[str, str]]


class Cut(NamedTuple):
    """How much of a ranking is shown."""

    #: scores below it are not
    floor: float = 0.0
    #: nor those below this share of the best
    share: float = 0.0
    #: nor those after so many; None for all
    most: int | None = K


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a memory is worth on the questions of one stream or more."""

    #: share of questions answered right: the first statement in the window that bears on it is
    #: the answer; for ``absent`` nothing is shown
    right: Mapping[Kind, float]
    recall: float
    mrr: float
    ndcg: float
    #: of questions about what changed, and windows that say something about it: the share in which
    #: a wrong statement comes first
    stale: float
    #: tokens of all windows, and right answers to questions that have one
    spent: int
    answers: int
    #: share of the tokens shown that belong to statements which answer
    useful_tokens: float
    #: tokens of a window on average
    tokens: float
    #: share of ``absent`` for which nothing was shown; share of the others, likewise
    abstained: float
    silent: float

    @property
    def answered(self) -> float:
        """Share right of the questions that have an answer, each kind counting alike."""
        return fmean([value for kind, value in self.right.items() if kind != "absent"])


@lru_cache(maxsize=100_000)
def _cost(text: str) -> int:
    return PIECEWISE.count(text)


def play(stream: Stream, system: MemorySystem, *, limit: int = 2 * K) -> list[Answer]:
    """Play a stream to a memory and return what it ranked for each question, in order.

    After each question the memory is told what of its first five was of use.
    """
    answers: list[Answer] = []
    for operation in stream.operations:
        if isinstance(operation, Question):
            hits = system.recall(operation, limit)
            answers.append(Answer(operation, hits))
            system.learn([hit.id for hit in hits[:K]], operation.relevant)
        else:
            system.take(operation)
    return answers


def window(hits: Sequence[Hit], cut: Cut) -> list[str]:
    """Return what of a ranking is shown."""
    if not hits:
        return []
    least = max(cut.floor, cut.share * max(hit.score for hit in hits))
    return [hit.id for hit in hits[: cut.most] if hit.score >= least]


def is_right(question: Question, shown: Sequence[str]) -> bool:
    if question.answer is None:
        return not shown
    return first_of(shown, {question.answer, *question.stale}) == question.answer


def judge(answers: Sequence[Answer], texts: Mapping[str, str], cut: Cut) -> Scores:
    """Judge the answers of a stream by windows cut in one way."""
    shown = [(answer, window(answer.hits, cut)) for answer in answers]
    right: dict[Kind, list[bool]] = defaultdict(list)
    for answer, ids in shown:
        right[answer.question.kind].append(is_right(answer.question, ids))
    answerable = [(answer, ids) for answer, ids in shown if answer.question.answer is not None]
    said = [
        (one.question, first_of(ids, {one.question.answer or "", *one.question.stale}))
        for one, ids in answerable
        if one.question.stale
    ]
    stale = [first in question.stale for question, first in said if first is not None]
    tokens = sum([_cost(texts[one]) for _, ids in shown for one in ids])
    useful = sum(
        [_cost(texts[one]) for answer, ids in shown for one in ids if one in answer.question.relevant]
    )
    ranked = [(answer.question, [hit.id for hit in answer.hits]) for answer, _ in answerable]
    count = sum([is_right(answer.question, ids) for answer, ids in answerable])
    return Scores(
        right={kind: fmean(right[kind]) for kind in KINDS if kind in right},
        recall=fmean([recall_at(ids, one.relevant, K) for one, ids in ranked]),
        mrr=fmean([reciprocal_rank(ids, one.answer or "") for one, ids in ranked]),
        ndcg=fmean([ndcg(ids, one.relevant, K) for one, ids in ranked]),
        stale=fmean(stale) if stale else 0.0,
        spent=tokens,
        answers=count,
        useful_tokens=useful / tokens if tokens else 0.0,
        tokens=tokens / len(shown),
        abstained=fmean(right["absent"]) if "absent" in right else 1.0,
        silent=fmean([not ids for _, ids in answerable]),
    )


#: Share of the right answers that is given for shorter windows.
_GIVEN: Final = 0.05
_SHARES: Final = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_MOST: Final = (1, 2, 3, K)
_FLOORS: Final = 20


class Priced(NamedTuple):
    """What a memory is worth under one cut, on average over streams."""

    cut: Cut
    #: kinds answered right, ``absent`` among them
    right: float
    #: without it
    answered: float
    #: of a window
    tokens: float
    #: for a right answer, over all windows
    tokens_per_right: float


def priced(played: Sequence[Played]) -> list[Priced]:
    """Return what every cut of a memory is worth.

    Args:
        played: Streams played to the memory, with their texts. Report on others.
    """
    best = sorted(
        max(hit.score for hit in answer.hits) for answers, _ in played for answer in answers if answer.hits
    )
    floors = [0.0, *[best[len(best) * step // _FLOORS] for step in range(_FLOORS)]] if best else [0.0]
    return [
        _priced(played, Cut(floor, share, most))
        for floor in dict.fromkeys(floors)
        for share in _SHARES
        for most in _MOST
        if most > 1 or not share
    ]


def _priced(played: Sequence[Played], cut: Cut) -> Priced:
    scores = [judge(answers, texts, cut) for answers, texts in played]
    answers = sum([one.answers for one in scores])
    return Priced(
        cut,
        right=fmean([fmean(one.right.values()) for one in scores]),
        answered=fmean([one.answered for one in scores]),
        tokens=fmean([one.tokens for one in scores]),
        tokens_per_right=sum([one.spent for one in scores]) / answers if answers else inf,
    )


def chosen_cut(prices: Sequence[Priced]) -> Cut:
    """Return the cut under which a memory answers most kinds right, then with the fewest tokens."""
    least = (1 - _GIVEN) * max(one.right for one in prices)
    return min((one for one in prices if one.right >= least), key=lambda one: one.tokens).cut


def cheapest_cut(prices: Sequence[Priced], answered: float) -> Cut | None:
    """Return the cut with the fewest tokens for a right answer of those that answer so many; None if none does."""
    enough = [one for one in prices if one.answered >= answered]
    return min(enough, key=lambda one: one.tokens_per_right).cut if enough else None
