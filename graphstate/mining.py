"""What experience suggests to change: proposals from what a survey of the graph found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from graphstate.model import Enforcement, Proposal, ProposalKind

__all__ = (
    "COLLECTED_KINDS", "LEAST_VISITS", "PINS", "Traffic", "ZoneTraffic", "blocked_nodes", "dead_nodes",
    "duplicate_edges", "losing_edges", "loose_zones", "ranked", "violated_edges",
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


class Traffic(NamedTuple):
    """Moves along some edges, and what came of them."""

    visits: int = 0
    successes: int = 0
    failures: int = 0
    violations: int = 0


class ZoneTraffic(NamedTuple):
    """A zone with its modes in force, and the moves inside it and over its boundary."""

    name: str
    intra: Enforcement
    boundary: Enforcement
    inside: Traffic
    crossing: Traffic


_STRICTER: Mapping[Enforcement, Enforcement] = MappingProxyType({"off": "soft", "soft": "hard"})


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


def loose_zones(zones: Iterable[ZoneTraffic], threshold: int) -> list[Proposal]:
    """Propose the next stricter mode where nobody would miss the looser one.

    That is a boundary that is never crossed while there are moves inside, and a policy whose moves
    all failed or that was violated ``threshold`` times (0: violations do not count).
    """
    found: list[Proposal] = []
    for zone in zones:
        unused = None
        if zone.crossing.visits == 0 and zone.inside.visits >= LEAST_VISITS:
            unused = f"never crossed in {zone.inside.visits} moves inside"
        why = unused or _regretted(zone.crossing, threshold, "crossings")
        if why and zone.boundary != "hard":
            change = f"{zone.boundary} -> {_STRICTER[zone.boundary]}"
            found.append(_proposal("tighten-zone-boundary", zone.name, f"{change}: {why}"))
        why = _regretted(zone.inside, threshold, "moves inside")
        if why and zone.intra != "hard":
            change = f"{zone.intra} -> {_STRICTER[zone.intra]}"
            found.append(_proposal("tighten-zone-intra", zone.name, f"{change}: {why}"))
    return found


def _regretted(moves: Traffic, threshold: int, what: str) -> str | None:
    if moves.failures and not moves.successes:
        return f"{moves.visits} {what}, {moves.failures} failures, no success"
    if 0 < threshold <= moves.violations:
        return f"{moves.violations} soft violations, {threshold} are enough"
    return None
