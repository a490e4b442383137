"""What a run's end teaches the graph's memory: the work that was done, and what the agent was shown.

All of it is written in the transaction of the outcome. What was shown arrives as the retrieval ids
of the run: ``<search>/<node>`` from a memory that searches, or the node alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from adapters.graph.calls import value_of
from adapters.graph.names import write_cause

__all__ = ("REINFORCEMENT", "Reinforcement", "shown_id", "teach", "visit", "zone_of")

#: Memories of one run that get credit, the newest ones that were shown.
_MOST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforcement:
    """How far a run makes memories more or less present.

    Raises:
        ValueError: A gain is no number from 0 to 1.
    """

    #: Added to the node that was worked on; 0 for nothing.
    visit: float = 0.1
    #: Times the reward, added to each memory the agent was shown; 0 for nothing.
    credit: float = 0.1
    #: Tell the search that found a memory whether it was useful, so that its weights learn.
    feedback: bool = True
    #: Let the zone of the node be the context.
    zones: bool = True

    def __post_init__(self) -> None:
        for name in ("visit", "credit"):
            value = getattr(self, name)
            number = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
            if not number or not 0 <= value <= 1:
                raise ValueError(f"{name} must be a number from 0 to 1, not {value!r}")


#: What a bridge does if it is not told otherwise.
REINFORCEMENT: Final = Reinforcement()


def shown_id(retrieval: str, node: str) -> str:
    """Return what a run says of a memory it was shown by a search."""
    return f"{retrieval}/{node}"


def zone_of(graph: Any, node: str | None) -> str | None:
    """Return the first zone of a node by name, None if it is in none."""
    zones = graph.zones_of(node) if node is not None else ()
    return min(zones, default=None)


def visit(graph: Any, node: str, gains: Reinforcement, *, run: str, actor: str) -> None:
    """Reinforce the node a run has worked on.

    Raises:
        VerbFailed, StoreError: The graph did not take it.
    """
    if not gains.visit:
        return
    context = zone_of(graph, node) if gains.zones else None
    cause = write_cause(run, "visit")
    value_of(
        graph.reinforce(node, gains.visit, reason="visit", context=context, actor=actor, cause=cause),
    )


def teach(
    graph: Any,
    shown: Iterable[str],
    reward: float,
    gains: Reinforcement,
    *,
    node: str | None,
    run: str,
    actor: str,
) -> list[str]:
    """Give what the agent was shown its share of the reward, and return the nodes that got one.

    A memory that was shown several times gets it once. One that is gone, or whose search nobody
    remembers, is passed over.

    Args:
        graph: An `Adaptogen`, inside a unit.
        shown: Retrieval ids of the run, in the order they were shown.
        reward: -1 to 1; 0 teaches nothing.
        gains: How much.
        node: What the run worked on; its zone is the context.
        run: The run, for causes.
        actor: Who writes.

    Raises:
        VerbFailed, StoreError: The graph did not take it.
    """
    if not reward:
        return []
    context = zone_of(graph, node) if gains.zones else None
    taught = []
    for search, memory in _newest(shown):
        if graph.get_node(memory) is None:
            continue
        if gains.feedback and search and _showed(graph, search, memory):
            cause = write_cause(run, f"feedback/{memory}")
            value_of(graph.feedback(search, memory, reward > 0, actor=actor, cause=cause))
        if gains.credit:
            cause = write_cause(run, f"credit/{memory}")
            value_of(
                graph.reinforce(
                    memory, gains.credit * reward, reason="reward", context=context, actor=actor, cause=cause
                )
            )
        taught.append(memory)
    return taught


def _newest(shown: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return each memory with the search that showed it last, the newest first."""
    last: dict[str, str] = {}
    for told in shown:
        search, _, memory = told.rpartition("/")
        last.pop(memory, None)
        last[memory] = search
    newest = list(last.items())[: -_MOST - 1 : -1]
    return ((search, memory) for memory, search in newest)


def _showed(graph: Any, search: str, memory: str) -> bool:
    remembered = graph.store.projection.retrievals.get(search)
    return remembered is not None and any(hit.id == memory for hit in remembered.hits)
