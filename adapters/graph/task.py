"""Everything a task needs of a graph, from one file: ledger, bridge and order of nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from adapters.graph.bridge import GraphBridge
from adapters.graph.ledgers import GraphLedgerStore
from adapters.graph.nodes import GraphNodes, ListedNodes, begin_task, declare_nodes
from graphstate import Adaptogen

__all__ = ("TaskGraph", "open_task_graph")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """An open graph, prepared for one task. Close it, or use it with ``with``."""

    graph: Adaptogen
    #: Keeps the run's ledger in the same file.
    ledger: GraphLedgerStore
    #: The loop's ``graph=``.
    bridge: GraphBridge
    #: ``node_provider`` and, by `should_continue`, the rest; None for a task of one loop.
    nodes: GraphNodes | ListedNodes | None

    def close(self) -> None:
        """Close the file."""
        self.graph.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def open_task_graph(
    path: str | os.PathLike[str],
    *,
    task: str = "default",
    nodes: Sequence[Mapping[str, Any]] = (),
    order: Literal["listed", "graph"] = "graph",
    node: str | None = None,
    durability: Literal["process", "power"] = "power",
    strict: bool = False,
) -> TaskGraph:
    """Open a graph file, lay the task into it, and return what a run is given.

    Args:
        path: The file, made if it is not there, without the nodes a new graph would get.
        task: Scope of the facts, start of the nodes, owner of the cursor.
        nodes: Of a looping run, as `declare_nodes` takes them.
        order: Who says which node is next.
        node: Of a run that is one loop: the node its outcome is credited to.
        durability: What a commit survives.
        strict: Let a failed write end the run.

    Raises:
        ValueError: Another word for ``order``.
        BoundExceeded, TaskError: Something is wrong with the nodes.
        GraphStateError: The file cannot be used; the message says why.
    """
    if order not in ("listed", "graph"):
        raise ValueError(f"order must be 'listed' or 'graph', not {order!r}")
    graph = Adaptogen.open(path, seed=False, durability=durability)
    try:
        if nodes:
            declare_nodes(graph, task, nodes)
        elif node is not None:
            declare_nodes(graph, task, [{"id": node}])
        begin_task(graph, task)
        provider: GraphNodes | ListedNodes | None = None
        if nodes:
            provider = ListedNodes(nodes) if order == "listed" else GraphNodes(graph, task=task, nodes=nodes)
        return TaskGraph(
            graph=graph,
            ledger=GraphLedgerStore(graph.store),
            bridge=GraphBridge(graph, task=task, node_id=None if nodes else node, strict=strict),
            nodes=provider,
        )
    except BaseException:
        graph.close()
        raise
