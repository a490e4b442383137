"""Spreading activation: what a few seeds warm up around them.

Every walk of at most ``depth`` edges from a seed adds to the node it ends at, so two ways to a
node count twice. A step is weakened by ``decay``, by the edge's own strength, and by how many
other nodes the step could have gone to: a hub says little about each of its neighbours. One
sum a level replaces the list of walks, so circles need no memory of where a walk has been.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

__all__ = ("FLOOR", "FRONTIER", "MAX_DEPTH", "Link", "Spread", "spread")

#: Walks that would arrive with less end here.
FLOOR = 1e-4

#: Nodes of one level that are kept, the strongest first.
FRONTIER = 5_000

MAX_DEPTH = 8


class Link(NamedTuple):
    """One step that a walk may take."""

    source: str
    target: str
    #: gain of the edge's type times the weight of the edge
    strength: float = 1.0


class Spread(NamedTuple):
    """What reached the nodes around the seeds."""

    #: by id, without the seeds
    reached: Mapping[str, float]
    #: a level had more than the allowed nodes, and the weakest were left out
    truncated: bool = False


def spread(
    seeds: Mapping[str, float],
    links: Callable[[Collection[str]], Iterable[Link]],
    *,
    depth: int = 2,
    decay: float = 0.5,
    fan_beta: float = 0.5,
    floor: float = FLOOR,
    frontier: int = FRONTIER,
) -> Spread:
    """Return the sum over all walks of at most ``depth`` steps from the seeds.

    Args:
        seeds: Strength by id. A seed passes on what reaches it, and is itself left out.
        links: The steps out of some nodes, asked once a level; what must not be passed on is
            not among them. Of several between the same two nodes the strongest counts.
        decay: What one step leaves, 0 to 1.
        fan_beta: 0: every neighbour gets the whole; 1: they share it; between: in between.
        floor: A node with less passes nothing on.
        frontier: Nodes a level.

    Raises:
        ValueError: depth or decay are out of their range.
    """
    if not 0 <= depth <= MAX_DEPTH:
        raise ValueError(f"depth must be 0 to {MAX_DEPTH}, not {depth}")
    if not 0 <= decay <= 1:
        raise ValueError(f"decay must be 0 to 1, not {decay}")
    level, reached, truncated = dict(seeds), dict[str, float](), False
    for _ in range(depth):
        level = _next_level(level, links, decay, fan_beta, floor)
        if len(level) > frontier:
            truncated = True
            level = dict(sorted(level.items(), key=lambda item: (-item[1], item[0]))[:frontier])
        for node, value in level.items():
            if node not in seeds:
                reached[node] = reached.get(node, 0.0) + value
    return Spread(reached, truncated)


def _next_level(
    level: Mapping[str, float],
    links: Callable[[Collection[str]], Iterable[Link]],
    decay: float,
    fan_beta: float,
    floor: float,
) -> dict[str, float]:
    sources = sorted(node for node, value in level.items() if value >= floor)
    steps: dict[str, dict[str, float]] = {}
    for link in links(sources) if sources else ():
        targets = steps.setdefault(link.source, {})
        targets[link.target] = max(link.strength, targets.get(link.target, 0.0))
    arrived: dict[str, float] = {}
    # In the order of ids: sums of floats depend on their order, and equal graphs must agree.
    for source in sources:
        targets = steps.get(source, {})
        share = decay * level[source] / len(targets) ** fan_beta if targets else 0.0
        for target, strength in targets.items():
            if strength > 0:
                arrived[target] = arrived.get(target, 0.0) + share * strength
    return arrived
