"""Numbers that nobody should pass, and what is none."""

from __future__ import annotations

import math
from typing import Any

__all__ = ("NUMBERS", "is_never_a_number")

NUMBERS: dict[str, Any] = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "minus zero": -0.0,
    "2**53 + 1": 2**53 + 1,
    "2**63": 2**63,
    "10**400": 10**400,
    "True": True,
    "text": "1",
    "None": None,
}


def is_never_a_number(value: object) -> bool:
    """Say whether every place that wants a number has to refuse it."""
    return isinstance(value, (bool, str)) or (isinstance(value, float) and not math.isfinite(value))
