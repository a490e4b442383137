"""Guards: conditions on a move, written as text, evaluated without ever running code.

Names are imported on first use: most sessions never see a guard.
"""

from __future__ import annotations

from graphstate._lazy import on_first_use

#: Where each public name lives; `__init__.pyi` says the same to type checkers.
_HOMES = {
    "graphstate.guards.guard": (
        "Evaluation",
        "Guard",
        "compile_guard",
        "eval_guard",
    ),
    "graphstate.guards.language": (
        "CONTEXT",
        "EXAMPLES",
        "GRAMMAR",
        "GUARD_BUDGET",
        "OPERATORS",
        "guide",
    ),
}

__all__, __getattr__, __dir__ = on_first_use(__name__, _HOMES)
