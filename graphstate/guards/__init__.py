"""Guards: conditions on a move, written as text, evaluated without ever running code."""

from __future__ import annotations

from graphstate.errors import GuardError
from graphstate.guards.guard import Evaluation, Guard, compile_guard, eval_guard
from graphstate.guards.language import CONTEXT, EXAMPLES, GRAMMAR, GUARD_BUDGET, OPERATORS, guide

__all__ = (
    "CONTEXT",
    "EXAMPLES",
    "GRAMMAR",
    "GUARD_BUDGET",
    "OPERATORS",
    "Evaluation",
    "Guard",
    "GuardError",
    "compile_guard",
    "eval_guard",
    "guide",
)
