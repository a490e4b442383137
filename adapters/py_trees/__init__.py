"""Loops as leaves of py_trees behaviour trees, and trees as sources of frames.

Needs the extra ``py-trees``; importing this module without it raises `MissingExtra`.
"""

from __future__ import annotations

from adapters.py_trees.behaviour import AgentLoopBehaviour
from adapters.py_trees.nodes import tree_node_provider
from adapters.py_trees.runner import TREE_ENDED, TREE_STATUS, TREE_TICK, TreeRunner, run_tree

__all__ = (
    "TREE_ENDED",
    "TREE_STATUS",
    "TREE_TICK",
    "AgentLoopBehaviour",
    "TreeRunner",
    "run_tree",
    "tree_node_provider",
)
