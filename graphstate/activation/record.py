"""The activation of one memory: raw sums, each beside the moment at which it is right.

A sum is never clamped and never moved without its anchor. What was done at one moment counts at
another by the factor between the two, so a sum does not depend on the order in which its parts
arrive, and reading changes nothing. Values are clamped to 0..1 where they are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field, structs

from graphstate.activation.decay import Curves, HalfLives, clamp, factor, log2

__all__ = ("MAX_LENSES", "Activation", "Lens", "Outcome", "View", "added", "rank_key")

#: Contexts in which one memory has a value of its own; the weakest one makes room.
MAX_LENSES = 32

#: A context whose values have faded below this is dropped.
NEGLIGIBLE = 1e-4

#: What showing a memory came to: it was shown, it helped, it harmed.
Outcome: TypeAlias = Literal["shown", "useful", "harmful"]


def added(value: float, anchor: int, amount: float, at: int, half_life_ms: float) -> tuple[float, int]:
    """Return a sum and its anchor after an amount was added at a moment, which may lie before it."""
    if at >= anchor:
        return value * factor(at - anchor, half_life_ms) + amount, at
    return value + amount * factor(anchor - at, half_life_ms), anchor


def rank_key(value: float, anchor: int, half_life_ms: float) -> float | None:
    """Return what orders faded values of one half-life, the same at every moment; None for none.

    ``value * 0.5 ** ((now - anchor) / half_life)`` sorts as ``log2(value) + anchor / half_life``.
    """
    if not value > 0:
        return None
    fades = half_life_ms > 0 and math.isfinite(half_life_ms)
    return log2(value) + (anchor / half_life_ms if fades else 0.0)


class Lens(Struct, frozen=True):
    """What a memory is worth in one context."""

    score: float = 0.0
    anchor: int = 0
    inhibition: float = 0.0
    #: anchor of the inhibition
    inhibited_at: int | None = None

    def strength(self, now: int, half_lives: HalfLives) -> float:
        """Return the larger of its two values, whatever their signs."""
        score = self.score * factor(now - self.anchor, half_lives.score_ms)
        return max(abs(score), abs(_faded(self, now, half_lives)))


class View(Struct, frozen=True, kw_only=True):
    """The values of a memory at one moment, each from 0 to 1."""

    score: float = 0.0
    importance: float = 0.0
    inhibition: float = 0.0
    #: scores by context, and inhibitions where there are any
    contexts: Mapping[str, float] = field(default_factory=dict)
    inhibitions: Mapping[str, float] = field(default_factory=dict)


class Activation(Struct, frozen=True):
    """The raw record of one memory."""

    score: float = 0.0
    importance: float = 0.0
    #: when score and importance are right
    anchor: int = 0
    inhibition: float = 0.0
    #: when the inhibition is right; None if the memory was never suppressed
    inhibited_at: int | None = None
    reinforcement_count: int = 0
    #: a fact, no anchor
    last_reinforced_at: int | None = None
    shown: int = 0
    useful: int = 0
    harmful: int = 0
    contexts: Mapping[str, Lens] = field(default_factory=dict)

    def reinforced(
        self, amount: float, at: int, curves: Curves, half_lives: HalfLives, *, context: str | None = None,
        outcome: Outcome | None = None,
    ) -> Activation:  # fmt: skip
        """Return the record with an amount added to score and, by the gain, to importance.

        Args:
            at: When it happened; it may lie before what is known already.
            context: The memory is reinforced there too.
            outcome: Counted beside the reinforcement.
        """
        score, anchor = added(self.score, self.anchor, amount, at, half_lives.score_ms)
        gained = curves.importance_gain * amount
        importance, _ = added(self.importance, self.anchor, gained, at, half_lives.importance_ms)
        lenses = self.contexts
        if context is not None:
            lens = lenses.get(context, Lens(anchor=at))
            value, moved = added(lens.score, lens.anchor, amount, at, half_lives.score_ms)
            lens = structs.replace(lens, score=value, anchor=moved)
            lenses = _kept({**lenses, context: lens}, context, max(at, anchor), half_lives)
        return structs.replace(
            self, score=score, importance=importance, anchor=anchor, contexts=lenses,
            reinforcement_count=self.reinforcement_count + 1,
            last_reinforced_at=at if self.last_reinforced_at is None else max(at, self.last_reinforced_at),
            shown=self.shown + (outcome == "shown"), useful=self.useful + (outcome == "useful"),
            harmful=self.harmful + (outcome == "harmful"),
        )  # fmt: skip

    def suppressed(
        self, amount: float, at: int, half_lives: HalfLives, *, context: str | None = None
    ) -> Activation:
        """Return the record with an amount added to its inhibition; a negative one releases.

        With a context only what is seen there is suppressed.
        """
        lens = None if context is None else self.contexts.get(context, Lens(anchor=at))
        subject = lens or self
        anchor = at if subject.inhibited_at is None else subject.inhibited_at
        value, moved = added(subject.inhibition, anchor, amount, at, half_lives.inhibition_ms)
        if lens is None or context is None:
            return structs.replace(self, inhibition=value, inhibited_at=moved)
        lens = structs.replace(lens, inhibition=value, inhibited_at=moved)
        return structs.replace(
            self, contexts=_kept({**self.contexts, context: lens}, context, moved, half_lives)
        )

    def decayed(self, now: int, half_lives: HalfLives) -> View:
        """Return what the record is worth now. The record stays as it is."""
        age = now - self.anchor
        return View(
            score=clamp(self.score * factor(age, half_lives.score_ms)),
            importance=clamp(self.importance * factor(age, half_lives.importance_ms)),
            inhibition=clamp(_faded(self, now, half_lives)),
            contexts={
                name: clamp(lens.score * factor(now - lens.anchor, half_lives.score_ms))
                for name, lens in self.contexts.items()
            },
            inhibitions={
                name: clamp(_faded(lens, now, half_lives))
                for name, lens in self.contexts.items()
                if lens.inhibited_at is not None
            },
        )

    def effective(
        self, now: int, half_lives: HalfLives, *, attention: float = 0.0, context: str | None = None,
        fallback: bool = False,
    ) -> float:  # fmt: skip
        """Return score plus attention less inhibition, from 0 to 1.

        Args:
            context: The score there instead, 0 if the memory was never seen there.
            fallback: Then the score that counts everywhere is taken.
        """
        inhibition = clamp(_faded(self, now, half_lives))
        lens = None if context is None else self.contexts.get(context)
        if lens is not None:
            inhibition += clamp(_faded(lens, now, half_lives))
            base = clamp(lens.score * factor(now - lens.anchor, half_lives.score_ms))
        elif context is None or fallback:
            base = clamp(self.score * factor(now - self.anchor, half_lives.score_ms))
        else:
            base = 0.0
        return clamp(base + attention - inhibition)

    def merged(self, other: Activation, now: int, half_lives: HalfLives) -> Activation:
        """Return the union of two whole records of one memory: of each value the larger.

        For records that share their past, where adding would count it twice. Merging again, in
        any order or grouping, gives the same. Counters do not add up either.
        """
        mine, theirs = self.rebased(now, half_lives), other.rebased(now, half_lives)
        inhibited = mine.inhibited_at is not None or theirs.inhibited_at is not None
        names = {*mine.contexts, *theirs.contexts}
        lenses = {name: _larger(mine.contexts.get(name), theirs.contexts.get(name)) for name in sorted(names)}
        while len(lenses) > MAX_LENSES:
            del lenses[min(lenses, key=lambda name: (lenses[name].strength(now, half_lives), name))]
        times = [at for at in (self.last_reinforced_at, other.last_reinforced_at) if at is not None]
        return Activation(
            score=max(mine.score, theirs.score), importance=max(mine.importance, theirs.importance), anchor=now,
            inhibition=max(mine.inhibition, theirs.inhibition) if inhibited else 0.0,
            inhibited_at=now if inhibited else None,
            reinforcement_count=max(self.reinforcement_count, other.reinforcement_count),
            last_reinforced_at=max(times, default=None), shown=max(self.shown, other.shown),
            useful=max(self.useful, other.useful), harmful=max(self.harmful, other.harmful), contexts=lenses,
        )  # fmt: skip

    def rebased(self, now: int, half_lives: HalfLives) -> Activation:
        """Return the same record with every value and its anchor moved to a moment.

        Reads after that moment are the same, but for rounding.
        """
        age = now - self.anchor
        return structs.replace(
            self,
            score=self.score * factor(age, half_lives.score_ms),
            importance=self.importance * factor(age, half_lives.importance_ms),
            anchor=now,
            inhibition=_faded(self, now, half_lives),
            inhibited_at=None if self.inhibited_at is None else now,
            contexts={
                name: Lens(
                    lens.score * factor(now - lens.anchor, half_lives.score_ms), now,
                    _faded(lens, now, half_lives), None if lens.inhibited_at is None else now,
                )
                for name, lens in self.contexts.items()
            },
        )  # fmt: skip


def _faded(record: Activation | Lens, now: int, half_lives: HalfLives) -> float:
    if record.inhibited_at is None:
        return 0.0
    return record.inhibition * factor(now - record.inhibited_at, half_lives.inhibition_ms)


def _larger(a: Lens | None, b: Lens | None) -> Lens:
    if a is None or b is None:
        found = a or b
        assert found is not None
        return found
    return Lens(
        max(a.score, b.score), a.anchor, max(a.inhibition, b.inhibition),
        a.inhibited_at if a.inhibited_at is not None else b.inhibited_at,
    )  # fmt: skip


def _kept(lenses: dict[str, Lens], newest: str, now: int, half_lives: HalfLives) -> Mapping[str, Lens]:
    """Drop what has faded away and, beyond the cap, the weakest; what was just touched stays."""
    strength = {name: lens.strength(now, half_lives) for name, lens in lenses.items() if name != newest}
    dropped = {name for name, value in strength.items() if value < NEGLIGIBLE}
    left = sorted(strength.keys() - dropped, key=lambda name: (strength[name], name))
    dropped.update(left[: max(0, len(left) + 1 - MAX_LENSES)])
    return {name: lens for name, lens in lenses.items() if name not in dropped} if dropped else lenses
