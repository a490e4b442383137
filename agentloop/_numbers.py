"""Counts and durations that a program passes: checked where they enter, in the same words everywhere.

NaN passes most comparisons by failing them, and True is an int to Python: neither may decide
when a run ends.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = (
    "MAX_COUNT",
    "MAX_DURATION_MS",
    "check_amount",
    "check_count",
    "check_duration",
    "check_finite",
    "check_share",
)

#: What every reader of JSON keeps exactly; no count is larger.
MAX_COUNT: Final = 2**53
#: 285,000 years.
MAX_DURATION_MS: Final = 2**53


def check_count(name: str, value: object, least: int, *, optional: bool = False) -> None:
    """Demand an int from ``least`` to `MAX_COUNT`, or None if that is allowed.

    Raises:
        TypeError: Something else than an int; a bool is none.
        ValueError: Out of range.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}: {value!r:.80}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if value > MAX_COUNT:
        raise ValueError(f"{name} must be at most {MAX_COUNT}, not an int of {value.bit_length()} bits")


def check_duration(name: str, value: object, *, optional: bool = False, zero: bool = False) -> None:
    """Demand milliseconds above 0 (or from 0), finite; or None if that is allowed.

    Raises:
        TypeError: No number; a bool is none.
        ValueError: Not finite or out of range.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of milliseconds, not {type(value).__name__}: {value!r:.80}")
    infinite = isinstance(value, float) and not math.isfinite(value)
    if infinite or value < 0 or (value == 0 and not zero):
        least = "from 0" if zero else "above 0"
        no_limit = " (None for no limit)" if optional else ""
        raise ValueError(f"{name} must be a finite number {least}{no_limit}, not {value!r:.80}")
    if value > MAX_DURATION_MS:
        raise ValueError(f"{name} must be at most {MAX_DURATION_MS} ms")


def check_amount(name: str, value: object, *, optional: bool = False) -> None:
    """Demand a finite number from 0, or None if that is allowed.

    Raises:
        TypeError: No number; a bool is none.
        ValueError: Not finite, below 0, or beyond every float.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}: {value!r:.80}")
    if not 0 <= value <= MAX_COUNT:
        raise ValueError(f"{name} must be a number from 0 to {MAX_COUNT}")


def check_finite(name: str, value: object, *, optional: bool = False) -> None:
    """Demand a finite number, or None if that is allowed.

    Raises:
        TypeError: No number; a bool is none.
        ValueError: Not finite, or beyond every float.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}: {value!r:.80}")
    if not -MAX_COUNT <= value <= MAX_COUNT:
        raise ValueError(f"{name} must be a number from -{MAX_COUNT} to {MAX_COUNT}")


def check_share(name: str, value: object, *, optional: bool = False) -> None:
    """Demand a number from 0 to 1, or None if that is allowed.

    Raises:
        TypeError: No number; a bool is none.
        ValueError: Not within.
    """
    check_finite(name, value, optional=optional)
    if value is not None and not 0 <= value <= 1:  # type: ignore[operator]
        raise ValueError(f"{name} must be from 0 to 1, not {value!r:.80}")
