"""What joins a run to a graph: its ledger kept in the graph's file, its facts and outcomes
written through, its next node chosen by what was learned."""

from __future__ import annotations

from adapters.graph.bridge import DEFAULT_REWARDS, GraphBridge, reward_for
from adapters.graph.learning import Reinforcement
from adapters.graph.ledgers import GraphLedgerStore
from adapters.graph.memory import GraphMemory
from adapters.graph.nodes import GraphNodes, ListedNodes, begin_task, declare_nodes, graph_node_provider
from adapters.graph.project import GraphProject, open_project
from adapters.graph.recollection import GraphWorkingMemory
from adapters.graph.retriever import GraphRetriever

__all__ = (
    "DEFAULT_REWARDS",
    "GraphBridge",
    "GraphLedgerStore",
    "GraphMemory",
    "GraphNodes",
    "GraphProject",
    "GraphRetriever",
    "GraphWorkingMemory",
    "ListedNodes",
    "Reinforcement",
    "begin_task",
    "declare_nodes",
    "graph_node_provider",
    "open_project",
    "reward_for",
)
