"""What experience suggests to change: proposals from what a survey of the graph found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from graphstate.model import Proposal, ProposalKind

__all__ = (
    "COLLECTED_KINDS", "LEAST_VISITS", "PINS", "blocked_nodes", "dead_nodes", "duplicate_edges", "losing_edges",
    "ranked", "violated_edges",
)  # fmt: skip

#: Only nodes of these kinds are garbage when nothing leads to them: a fact needs no way to it.
COLLECTED_KINDS = ("state", "task")

#: A node with one of these tags is kept, with all that it is linked to.
PINS = ("seed", "pinned")

#: Visits from which on an average says something.
LEAST_VISITS = 3

_SCORES: Mapping[ProposalKind, float] = MappingProxyType(
    {
        "gc-dead-node": 0.9,
        "promote-soft-to-hard": 0.8,
        "merge-duplicate-edge": 0.7,
        "release-blocked-node": 0.65,
        "prune-low-value-edge": 0.6,
        "tighten-zone-boundary": 0.5,
        "tighten-zone-intra": 0.5,
    }
)


def _proposal(kind: ProposalKind, target: str, detail: str) -> Proposal:
    return Proposal(kind=kind, target=target, detail=detail, score=_SCORES[kind])


def ranked(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Return the proposals, the highest score first; equals stay in their order."""
    return sorted(proposals, key=lambda proposal: -proposal.score)


def dead_nodes(rows: Iterable[tuple[str, int]], head: int) -> list[Proposal]:
    """From (node, event of its last change)."""
    return [
        _proposal(
            "gc-dead-node", node, f"never visited, nothing leads to it, unchanged for {head - seq} events"
        )
        for node, seq in rows
    ]


def violated_edges(rows: Iterable[tuple[str, int, str | None]], threshold: int) -> list[Proposal]:
    """From (edge, soft violations, declared mode)."""
    return [
        _proposal(
            "promote-soft-to-hard",
            edge,
            f"{count} soft violations, {threshold} are enough" + (f"; declared {mode}" if mode else ""),
        )
        for edge, count, mode in rows
    ]


def duplicate_edges(rows: Iterable[tuple[str, str]]) -> list[Proposal]:
    """From (edge, the older edge it repeats)."""
    return [_proposal("merge-duplicate-edge", edge, f"repeats edge {first!r}") for edge, first in rows]


def blocked_nodes(rows: Iterable[tuple[str, str, str, str]]) -> list[Proposal]:
    """From (dependency edge, node, prerequisite, status of the prerequisite)."""
    return [
        _proposal(
            "release-blocked-node", edge, f"{node!r} waits for {prereq!r}, which is {status} and undone"
        )
        for edge, node, prereq, status in rows
    ]


def losing_edges(rows: Iterable[tuple[str, float, int]]) -> list[Proposal]:
    """From (edge, average reward, visits)."""
    return [
        _proposal("prune-low-value-edge", edge, f"ema {ema:.2f} over {visits} visits")
        for edge, ema, visits in rows
    ]
