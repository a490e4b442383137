"""The one place that decides whether a move may be taken. Pure.

Guards, zones and escalation will be reasons here; without any of them every edge is allowed.
"""

from __future__ import annotations

from graphstate.model import Edge, Trace

__all__ = ("ALLOWED", "decide")

ALLOWED = Trace()


def decide(edge: Edge, soft_violations: int) -> Trace:
    """Return the decision about taking an edge now, with its reasons."""
    if soft_violations:
        return Trace(escalation={"soft_violations": soft_violations, "promoted": False})
    return ALLOWED
