"""How values fade: one exponential curve, and which half-lives a memory has.

A value halves with every half-life that passes after its anchor, the moment at which it was
right. One `Curves` object answers for reads and for writes, so that touching a memory never
weakens it. Nothing here reads a clock.

What is folded from a log must come out the same, bit for bit, on every machine. The libraries of
C differ in the last digit of powers and logarithms, so both are made here of sums, products and
square roots, which IEEE 754 rounds in one way only. They are right to about 1e-15.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = (
    "CLASSES",
    "CLASS_HALF_LIVES",
    "DAY_MS",
    "FLAT",
    "HOUR_MS",
    "KIND_CLASSES",
    "Curves",
    "HalfLives",
    "clamp",
    "factor",
    "log2",
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

#: The memory classes; a node without one fades by the flat half-lives.
CLASSES = ("episodic", "semantic", "procedural", "entity")

#: Milliseconds in which score and importance of each class halve; 0 never fades.
CLASS_HALF_LIVES: Mapping[str, Mapping[str, float]] = {
    "episodic": {"score": 12 * HOUR_MS, "importance": 7 * DAY_MS},
    "semantic": {"score": 7 * DAY_MS, "importance": 90 * DAY_MS},
    "procedural": {"score": 7 * DAY_MS, "importance": 60 * DAY_MS},
    "entity": {"score": 30 * DAY_MS, "importance": 0},
}

#: The class of a kind of node, unless the node says another one.
KIND_CLASSES: Mapping[str, str] = {
    "fact": "semantic",
    "episode": "episodic",
    "instruction": "procedural",
    "entity": "entity",
}


def _roots() -> tuple[float, ...]:
    """Return 0.5 ** (i / 64) for i from 0 to 63."""
    root, bits = 0.5, []
    for _ in range(6):
        root = math.sqrt(root)
        bits.append(root)
    return tuple(math.prod(bit for place, bit in enumerate(bits) if i & 32 >> place) for i in range(64))


_ROOTS = _roots()
_LN_2 = 0.6931471805599453
# Of exp(-x ln 2) for x below 1/64: the next term is below 1e-17.
_EXP = tuple(math.prod([-_LN_2] * n) / math.factorial(n) for n in range(6, 0, -1))
# Of log2 through atanh, odd powers from the 23rd down, where |t| is below 0.172.
_ATANH = tuple(2.0 / (_LN_2 * n) for n in range(23, 0, -2))
_HALF_ROOT = math.sqrt(0.5)


def _half_to(power: float) -> float:
    if power > 1_100:
        return 0.0
    whole = int(power)
    steps = int((power - whole) * 64)
    rest = power - whole - steps / 64
    a, b, c, d, e, f = _EXP
    series = 1.0 + rest * (f + rest * (e + rest * (d + rest * (c + rest * (b + rest * a)))))
    return math.ldexp(_ROOTS[steps] * series, -whole)


def log2(value: float) -> float:
    """Return the binary logarithm of a positive number."""
    mantissa, exponent = math.frexp(value)
    if mantissa < _HALF_ROOT:
        mantissa, exponent = mantissa * 2, exponent - 1
    t = (mantissa - 1) / (mantissa + 1)
    square, total = t * t, 0.0
    for coefficient in _ATANH:
        total = total * square + coefficient
    return exponent + t * total


def factor(elapsed_ms: float, half_life_ms: float) -> float:
    """Return which share of a value is left: 0.5 ** (elapsed / half-life), at most 1.

    Nothing has faded if no time has passed, as after a clock that was set back, or if the
    half-life is 0, negative or infinite.
    """
    if not (elapsed_ms > 0 and half_life_ms > 0) or math.isinf(elapsed_ms) or math.isinf(half_life_ms):
        return 1.0
    return _half_to(elapsed_ms / half_life_ms)


def clamp(value: float) -> float:
    """Return the value, but 0 for less and 1 for more."""
    return 0.0 if value <= 0 else 1.0 if value >= 1 else value


class HalfLives(NamedTuple):
    """In how many milliseconds the values of a memory halve; 0 never."""

    score_ms: float = DAY_MS
    importance_ms: float = 30 * DAY_MS
    inhibition_ms: float = 12 * HOUR_MS


#: Those of a memory without a class.
FLAT = HalfLives()


class Curves:
    """Which half-lives each memory has.

    Args:
        flat: Those of a memory without a class.
        classes: Score and importance by class, each of which may be absent; those then are flat.
        kinds: The class of a kind of node.
        importance_gain: The share of each reinforcement that is added to the importance.
    """

    __slots__ = ("_by_class", "_kinds", "flat", "importance_gain")

    def __init__(
        self,
        *,
        flat: HalfLives = FLAT,
        classes: Mapping[str, Mapping[str, float]] = CLASS_HALF_LIVES,
        kinds: Mapping[str, str] = KIND_CLASSES,
        importance_gain: float = 0.05,
    ) -> None:
        self.flat, self.importance_gain = flat, importance_gain
        self._kinds = dict(kinds)
        self._by_class: dict[str | None, HalfLives] = {
            name: flat._replace(
                score_ms=own.get("score", flat.score_ms),
                importance_ms=own.get("importance", flat.importance_ms),
            )
            for name, own in classes.items()
        }

    @classmethod
    def of(cls, tunables: Mapping[str, Any]) -> Curves:
        """Return the curves that a graph's settings describe."""
        flat = HalfLives(
            tunables["scoreHalfLifeMs"], tunables["importanceHalfLifeMs"], tunables["inhibitionHalfLifeMs"]
        )
        return cls(
            flat=flat, classes=tunables["classHalfLives"], kinds=tunables["memoryClasses"],
            importance_gain=tunables["importanceGain"],
        )  # fmt: skip

    def class_of(self, memory_class: str | None, kind: str) -> str | None:
        """Return the class of a node: its own, else that of its kind, else None."""
        return memory_class or self._kinds.get(kind)

    def half_lives(self, memory_class: str | None) -> HalfLives:
        """Return the half-lives of a class; None is no class."""
        return self._by_class.get(memory_class, self.flat)

    def resolve(self, memory_class: str | None, kind: str) -> HalfLives:
        """Return the half-lives of a node by its own class and its kind."""
        return self.half_lives(self.class_of(memory_class, kind))
