"""The tunables: one row each with default, accepted values and meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from graphstate._canonical import Json
from graphstate.activation.composite import DEFAULT_WEIGHTS
from graphstate.activation.decay import CLASS_HALF_LIVES, CLASSES, DAY_MS, HOUR_MS, KIND_CLASSES
from graphstate.activation.spreading import MAX_DEPTH
from graphstate.errors import shown

__all__ = ("DEFAULTS", "TUNABLES", "Tunable", "refusal")

_MAX = 2.0**53 - 1


class Tunable(NamedTuple):
    """One setting that is stored in the file."""

    default: Json
    accepted: str
    meaning: str
    accepts: Callable[[Json], bool]


def _one_of(*choices: str) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, str) and value in choices


def _whole(low: int) -> Callable[[Json], bool]:
    return lambda value: type(value) is int and low <= value <= _MAX


def _number(low: float, high: float) -> Callable[[Json], bool]:
    return lambda value: type(value) in (int, float) and low <= value <= high


def _half_life(value: Json) -> bool:
    # Below a second the keys that rank memories would lose their precision.
    return type(value) is int and (value == 0 or 1_000 <= value <= _MAX)


def _class_half_lives(value: Json) -> bool:
    return isinstance(value, dict) and all(
        name in CLASSES
        and isinstance(own, dict)
        and all(part in ("score", "importance") and _half_life(ms) for part, ms in own.items())
        for name, own in value.items()
    )


def _kind_classes(value: Json) -> bool:
    if not isinstance(value, dict) or len(value) > 1_000:
        return False
    return all(
        0 < len(kind) <= 128 and kind.isprintable() and name in CLASSES for kind, name in value.items()
    )


def _signal_weights(value: Json) -> bool:
    return isinstance(value, dict) and all(
        name in DEFAULT_WEIGHTS and _number(0, 1e6)(weight) for name, weight in value.items()
    )


_HALF_LIFE = "an integer: 0 for never, or from 1000"

#: Every setting of a graph with its default and range, by name.
TUNABLES: Mapping[str, Tunable] = {
    "defaultEnforcement": Tunable(
        "soft",
        "off, soft or hard",
        "mode of a failed guard on an edge without one",
        _one_of("off", "soft", "hard"),
    ),
    "escalationThreshold": Tunable(
        3, "an integer >= 0", "soft violations before an edge hardens; 0 disables", _whole(0)
    ),
    "demotionCleanRuns": Tunable(
        5, "an integer >= 0", "clean moves before a learned hardening relaxes; 0 disables", _whole(0)
    ),
    "decayHalfLife": Tunable(
        200, "a number from 1 to 2^53-1", "moves of a cursor over which its reward halves", _number(1, _MAX)
    ),
    "ucbC": Tunable(1.4, "a number from 0 to 100", "weight of exploration", _number(0, 100)),
    "explore": Tunable(
        "ucb", "ucb, epsilon or greedy", "strategy of suggest", _one_of("ucb", "epsilon", "greedy")
    ),
    "epsilon": Tunable(0.1, "a number from 0 to 1", "chance to explore with epsilon", _number(0, 1)),
    "rewardAlpha": Tunable(0.3, "a number from 0 to 1", "how fast an average follows rewards", _number(0, 1)),
    "snapshotInterval": Tunable(
        200,
        "an integer >= 0",
        "events between automatic snapshots, at least the live rows; 0 disables",
        _whole(0),
    ),
    "retain": Tunable(1000, "an integer >= 0", "events that compact keeps", _whole(0)),
    "maxPayloadBytes": Tunable(262_144, "an integer >= 64", "UTF-8 bytes of a payload", _whole(64)),
    "scoreHalfLifeMs": Tunable(
        DAY_MS, _HALF_LIFE, "milliseconds in which the score of a memory without a class halves", _half_life
    ),
    "importanceHalfLifeMs": Tunable(30 * DAY_MS, _HALF_LIFE, "the same of its importance", _half_life),
    "inhibitionHalfLifeMs": Tunable(
        12 * HOUR_MS, _HALF_LIFE, "milliseconds in which a suppression halves", _half_life
    ),
    "attentionHalfLifeMs": Tunable(
        300_000, _HALF_LIFE, "milliseconds in which attention that was not promoted halves", _half_life
    ),
    "classHalfLives": Tunable(
        {name: dict(own) for name, own in CLASS_HALF_LIVES.items()},
        f"an object of {', '.join(CLASSES)}, each with score and importance as half-lives, or without",
        "half-lives of the memory classes; what is absent is as without a class",
        _class_half_lives,
    ),
    "memoryClasses": Tunable(
        dict(KIND_CLASSES),
        f"an object of kinds, each with one of {', '.join(CLASSES)}",
        "memory class of nodes that have none of their own, by kind",
        _kind_classes,
    ),
    "importanceGain": Tunable(
        0.05,
        "a number from 0 to 1",
        "share of a reinforcement that is added to the importance",
        _number(0, 1),
    ),
    "minReinforceDelta": Tunable(
        0.05, "a number from 0 to 1", "attention from which on it is a reinforcement", _number(0, 1)
    ),
    "recencyHalfLifeMs": Tunable(
        7 * DAY_MS, _HALF_LIFE, "milliseconds in which being new halves in a search", _half_life
    ),
    "spreadDepth": Tunable(
        2,
        f"an integer from 0 to {MAX_DEPTH}",
        "edges that activation spreads over in a search",
        lambda value: _whole(0)(value) and value <= MAX_DEPTH,
    ),
    "spreadDecay": Tunable(0.5, "a number from 0 to 1", "what one edge leaves of it", _number(0, 1)),
    "signalWeights": Tunable(
        dict(DEFAULT_WEIGHTS),
        f"an object of {', '.join(DEFAULT_WEIGHTS)}, each a number from 0 to 1000000, or without",
        "weights of signals in a search where none were set or learned; what is absent is as by default",
        _signal_weights,
    ),
    "pulseThreshold": Tunable(
        0, "a number from 0 to 1", "score above which a search shows a memory", _number(0, 1)
    ),
    "absorbThreshold": Tunable(
        0.3, "a number from 0 to 1", "score from which on absorb reinforces a memory", _number(0, 1)
    ),
    "absorbGain": Tunable(0.05, "a number from 0 to 1", "share of the score by which it does", _number(0, 1)),
}

#: The value of each setting in a new graph.
DEFAULTS: Mapping[str, Json] = {key: row.default for key, row in TUNABLES.items()}


def refusal(key: object, value: Json) -> str | None:
    """Return why a setting is not accepted, None if it is."""
    row = TUNABLES.get(key) if isinstance(key, str) else None
    if row is None:
        return f"unknown tunable {shown(key)}; there are {', '.join(TUNABLES)}"
    return None if row.accepts(value) else f"{key} must be {row.accepted}, not {shown(value)}"
