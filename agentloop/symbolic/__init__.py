"""Symbolic state: the named facts of a run, and what a fact may be."""

from agentloop.symbolic.state import (
    MAX_NAMES,
    SymbolicChange,
    SymbolicState,
    Writer,
    create_symbolic_state,
)
from agentloop.symbolic.values import MAX_VALUE_BYTES, same_value

__all__ = (
    "MAX_NAMES",
    "MAX_VALUE_BYTES",
    "SymbolicChange",
    "SymbolicState",
    "Writer",
    "create_symbolic_state",
    "same_value",
)
