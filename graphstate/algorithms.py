"""Graph algorithms over neighbour functions. Pure and iterative; nothing here reads a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

__all__ = ("closure", "find_cycle", "find_path", "topological_order")

Neighbours: TypeAlias = Callable[[str], Iterable[str]]


def find_path(start: str, goal: str, forward: Neighbours, backward: Neighbours) -> list[str] | None:
    """Return the nodes of a path from start to goal, None if there is none.

    Searches from both ends and always grows the smaller side, so that an edge at the rim of a
    large graph costs a handful of look-ups.
    """
    if start == goal:
        return [start]
    seen: tuple[dict[str, str | None], dict[str, str | None]] = ({start: None}, {goal: None})
    edge: list[list[str]] = [[start], [goal]]
    grow = (forward, backward)
    while edge[0] and edge[1]:
        side = 0 if len(edge[0]) <= len(edge[1]) else 1
        mine, theirs, fresh = seen[side], seen[1 - side], []
        for node in edge[side]:
            for other in grow[side](node):
                if other in mine:
                    continue
                mine[other] = node
                if other in theirs:
                    return _join(other, *seen)
                fresh.append(other)
        edge[side] = fresh
    return None


def _join(meeting: str, ahead: dict[str, str | None], behind: dict[str, str | None]) -> list[str]:
    path: list[str] = []
    node: str | None = meeting
    while node is not None:
        path.append(node)
        node = ahead[node]
    path.reverse()
    node = behind[meeting]
    while node is not None:
        path.append(node)
        node = behind[node]
    return path


def closure(start: str, neighbours: Neighbours) -> list[str]:
    """Return what is reached by one or more steps; the start itself only on a cycle."""
    found: dict[str, None] = {}
    stack = [start]
    while stack:
        for other in neighbours(stack.pop()):
            if other not in found:
                found[other] = None
                stack.append(other)
    return list(found)


def topological_order(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[str]:
    """Return the nodes, prerequisites first; those on or behind a cycle are missing.

    Kahn's algorithm. Nodes that become free together come in the order of their ids.
    """
    dependents: dict[str, list[str]] = {}
    waiting = dict.fromkeys(nodes, 0)
    for src, dst in edges:
        dependents.setdefault(src, []).append(dst)
        waiting[dst] += 1
    queue = deque(sorted(node for node, count in waiting.items() if not count))
    order: list[str] = []
    while queue:
        node = queue.popleft()
        order.append(node)
        freed: list[str] = []
        for dependent in dependents.get(node, ()):
            waiting[dependent] -= 1
            if not waiting[dependent]:
                freed.append(dependent)
        queue.extend(sorted(freed))
    return order


def find_cycle(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[str] | None:
    """Return the nodes of one cycle, its first node again at the end; None if there is none.

    Edges whose ends are not among the nodes do not count.
    """
    among = set(nodes)
    whole = [edge for edge in edges if among.issuperset(edge)]
    stuck = among.difference(topological_order(nodes, whole))
    if not stuck:
        return None
    # Each of them waits for another one of them, so walking back must come round.
    before = {dst: src for src, dst in whole if src in stuck and dst in stuck}
    node, place, walked = min(stuck), dict[str, int](), list[str]()
    while node not in place:
        place[node] = len(walked)
        walked.append(node)
        node = before[node]
    cycle = walked[place[node] :][::-1]
    start = cycle.index(min(cycle))
    return [*cycle[start:], *cycle[:start], cycle[start]]
