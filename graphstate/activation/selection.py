"""What goes into a context window: the best memories that fit, without saying things twice.

Greedy maximal marginal relevance. A candidate's value is ``(1 - diversity) * score - diversity *
its greatest similarity to what is chosen already``. Whatever does not fit the budget is skipped,
not the end. Equal values are ordered by score, then id, so the order in which candidates come
does not matter.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

__all__ = ("SMALL", "Choice", "Decision", "Selection", "cosine", "pool_size", "select")

Decision = Literal["pinned", "chosen", "too dear"]

#: So many candidates are all looked at; of more only the best.
SMALL = 512


class Choice(NamedTuple):
    """One memory, and why it is in or out."""

    id: str
    score: float
    #: greatest similarity to what was chosen before it
    max_similarity: float
    #: what it was ranked by
    value: float
    #: None if no budget asked for it
    cost: float | None
    decision: Decision


class Selection(NamedTuple):
    """What was chosen, in that order, and what did not fit."""

    chosen: tuple[Choice, ...]
    skipped: tuple[Choice, ...]
    budget_used: float
    #: how many candidates were looked at
    looked_at: int


def pool_size(limit: int, candidates: int) -> int:
    """Return how many of the best candidates are looked at: all of a few, else 4 for each place."""
    return candidates if candidates <= SMALL else max(4 * limit, 64)


def cosine(one: Sequence[float] | None, other: Sequence[float] | None) -> float:
    """Return how alike two directions are, -1 to 1; 0 if one is absent or has no length.

    Raises:
        ValueError: They have different lengths.
    """
    if one is None or other is None:
        return 0.0
    if len(one) != len(other):
        raise ValueError(f"vectors of {len(one)} and {len(other)} numbers cannot be compared")
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(x * y for x, y in zip(one, other, strict=True)) / norms if norms else 0.0


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


class _Entry:
    """A candidate while it waits: how similar it is to the first ``compared`` of the chosen."""

    __slots__ = ("compared", "cost", "id", "place", "score", "similarity")

    def __init__(self, id: str, score: float, place: int, cost: float | None) -> None:
        self.id, self.score, self.place, self.cost = id, score, place, cost
        self.compared, self.similarity = 0, -math.inf

    @property
    def max_similarity(self) -> float:
        return self.similarity if self.compared else 0.0


class _Packer:
    """The state of one selection."""

    def __init__(
        self,
        limit: int,
        budget: float | None,
        cost_of: Callable[[str], float],
        diversity: float,
        similarity: Callable[[str, str], float],
        density: bool,
    ) -> None:
        self._limit, self._budget, self._density = limit, budget, density
        self._cost_of, self._diversity, self._similarity = cost_of, diversity, similarity
        self.chosen: list[Choice] = []
        self.skipped: list[Choice] = []
        self.used: float = 0

    @property
    def full(self) -> bool:
        return len(self.chosen) >= self._limit

    def entry(self, id: str, score: float, place: int) -> _Entry:
        return _Entry(id, score, place, self._cost(id) if self._density else None)

    def _cost(self, id: str) -> float:
        cost = self._cost_of(id)
        if not _finite(cost) or cost < 0:
            raise ValueError(f"the cost of {id!r} must be a finite number from 0, not {cost!r}")
        return cost

    def _likeness(self, one: str, other: str) -> float:
        likeness = self._similarity(one, other)
        if not _finite(likeness):
            raise ValueError(f"how alike {one!r} and {other!r} are must be a finite number, not {likeness!r}")
        return likeness

    def compare(self, entry: _Entry) -> None:
        """Let an entry know of everything chosen since it was compared last."""
        if self._diversity:
            for choice in self.chosen[entry.compared :]:
                entry.similarity = max(entry.similarity, self._likeness(entry.id, choice.id))
        entry.compared = len(self.chosen)

    def value(self, entry: _Entry) -> float:
        """Return what an entry is ranked by, as far as it was compared."""
        worth = entry.score
        if self._diversity:
            worth = (1 - self._diversity) * worth - self._diversity * entry.max_similarity
        if not self._density:
            return worth
        cost = max(entry.cost or 0.0, 1e-9)
        return worth / cost if worth >= 0 else worth * cost

    def take(self, entry: _Entry, decision: Decision) -> None:
        """Choose an entry, or skip it if it does not fit."""
        cost = entry.cost
        if self._budget is not None and cost is None:
            cost = self._cost(entry.id)
        fits = self._budget is None or cost is None or self.used + cost <= self._budget
        similarity = entry.max_similarity if self._diversity else 0.0
        choice = Choice(
            entry.id, entry.score, similarity, self.value(entry), cost, decision if fits else "too dear"
        )
        if fits:
            self.used += cost or 0
        (self.chosen if fits else self.skipped).append(choice)


def select(
    scores: Mapping[str, float],
    *,
    limit: int,
    budget: float | None = None,
    cost_of: Callable[[str], float] = lambda _: 1.0,
    diversity: float = 0.0,
    similarity: Callable[[str, str], float] = lambda _one, _other: 0.0,
    pinned: Iterable[str] = (),
    density: bool = False,
    ties: Mapping[str, float] | None = None,
) -> Selection:
    """Choose at most ``limit`` candidates whose costs together stay within the budget.

    Args:
        scores: By id; any order.
        budget: None is no bound, and then no cost is asked for unless by ``density``.
        cost_of: Asked once for whatever might be chosen.
        diversity: 0 ranks by score alone, 1 by difference alone.
        similarity: Of two ids, -1 to 1; less than 0 counts in favour.
        pinned: These first, in this order, as far as they are candidates and fit.
        density: Rank by value for each unit of cost: more, smaller memories.
        ties: By id, what decides between equal scores before the id does; the larger first.

    Raises:
        ValueError: limit, budget, diversity, a cost or a similarity is out of its range.
    """
    if limit < 0 or not 0 <= diversity <= 1 or (budget is not None and not budget >= 0):
        raise ValueError(
            f"limit and budget must be from 0, diversity 0 to 1, not {limit}, {budget}, {diversity}"
        )
    packer = _Packer(limit, budget, cost_of, diversity, similarity, density)
    first = [pin for pin in dict.fromkeys(pinned) if pin in scores]
    for pin in first:
        if packer.full:
            break
        entry = packer.entry(pin, scores[pin], 0)
        packer.compare(entry)
        packer.take(entry, "pinned")
    fixed = set(first)
    decide = ties or {}
    free = [(-score, -decide.get(name, 0.0), name) for name, score in scores.items() if name not in fixed]
    pool = heapq.nsmallest(pool_size(limit, len(free)), free)
    _fill(packer, [(name, -score) for score, _, name in pool])
    return Selection(tuple(packer.chosen), tuple(packer.skipped), packer.used, len(first) + len(pool))


def _fill(packer: _Packer, pool: Sequence[tuple[str, float]]) -> None:
    """Choose from the pool, which is in the order of score and id.

    Once an entry was compared with something, more of that only lowers its value. So the first
    in the queue is the best of all as soon as its own value is up to date, and most entries are
    never compared with most of what is chosen.
    """
    entries = [packer.entry(name, score, place) for place, (name, score) in enumerate(pool)]
    entries.sort(key=lambda entry: (-packer.value(entry), entry.place))
    waiting = iter(entries)
    while not packer.chosen and not packer.full and (entry := next(waiting, None)):
        packer.take(entry, "chosen")
    queue: list[tuple[float, int, _Entry]] = []
    for entry in waiting:
        packer.compare(entry)
        queue.append((-packer.value(entry), entry.place, entry))
    heapq.heapify(queue)
    while queue and not packer.full:
        entry = queue[0][2]
        if entry.compared < len(packer.chosen):
            packer.compare(entry)
            heapq.heapreplace(queue, (-packer.value(entry), entry.place, entry))
        else:
            heapq.heappop(queue)
            packer.take(entry, "chosen")
