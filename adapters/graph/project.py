"""A project's one file: the ledgers of its runs, and the graph that remembers what they taught."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from adapters.graph.bridge import GraphBridge
from adapters.graph.ledgers import GraphLedgerStore
from adapters.graph.nodes import GraphNodes, ListedNodes, begin_task, declare_nodes
from adapters.graph.recollection import GraphWorkingMemory
from agentloop.errors import TaskError
from graphstate import Adaptogen, GraphStateError

__all__ = ("GraphProject", "open_project")


class GraphProject:
    """Serves `agentloop.ports.ProjectMemory` from one graphstate file."""

    def __init__(self, graph: Adaptogen) -> None:
        self.graph = graph
        self.ledger = GraphLedgerStore(graph.store)

    def bridge(self, *, task: str, node: str | None) -> GraphBridge:
        """Return the bridge of a run that stands for a node; with None, of a run with its own nodes."""
        if node is not None:
            with _translated(self.graph.store.path):
                declare_nodes(self.graph, task, [{"id": node}])
                begin_task(self.graph, task)
        return GraphBridge(self.graph, task=task, node_id=node)

    def memory(self, *, task: str) -> GraphWorkingMemory:
        """Return what is remembered in the graph, and how present it is for this task."""
        return GraphWorkingMemory(self.graph, task=task)

    def order(
        self, *, task: str, nodes: Sequence[Mapping[str, Any]], by: str, resumed: bool = False
    ) -> GraphNodes | ListedNodes:
        """Lay the nodes into the graph and return their order, ``listed`` or ``graph``."""
        with _translated(self.graph.store.path):
            declare_nodes(self.graph, task, nodes)
            if not resumed:
                begin_task(self.graph, task)
        if by == "listed":
            return ListedNodes(nodes)
        return GraphNodes(self.graph, task=task, nodes=nodes)

    def learned(self) -> list[str]:
        """Return the moves that were taken most often, best first, a line each."""
        known = []
        for hot, _ in self.graph.metrics().hot_transitions:
            edge, stat = self.graph.get_edge(hot), self.graph.get_stat("edge", hot)
            if edge is not None and stat is not None:
                known.append((stat.ema_reward, stat.visits, f"{edge.src} -> {edge.dst}"))
        known.sort(key=lambda move: (-move[0], move[2]))
        return [f"{move}: taken {visits}x, average reward {ema:+.2f}" for ema, visits, move in known]

    def close(self) -> None:
        """Write what waits and close the file."""
        self.graph.close()


def open_project(path: str | os.PathLike[str], *, read_only: bool = False) -> GraphProject:
    """Open a project's file, made if it is not there: the entry point ``graph`` of the bridges.

    Raises:
        TaskError: The file cannot be used; the message says why, and nothing was changed.
    """
    with _translated(path):
        if read_only:
            return GraphProject(Adaptogen.open(path, seed=False, read_only=True))
        return GraphProject(Adaptogen.open(path, seed=False, durability="power"))


@contextmanager
def _translated(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the graph's failures into the task's: the file cannot be used, and the message says why."""
    try:
        yield
    except GraphStateError as error:
        text = str(error)
        raise TaskError(text if os.fspath(path) in text else f"{os.fspath(path)}: {text}") from error
