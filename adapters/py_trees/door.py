"""The one place that imports py_trees, so that doing without it fails with a sentence."""

from __future__ import annotations

from agentloop.errors import MissingExtra

try:
    from py_trees.behaviour import Behaviour
    from py_trees.common import Access, Status
    from py_trees.trees import BehaviourTree
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "py_trees":
        raise
    raise MissingExtra("py_trees", "py-trees", "a behaviour tree") from error

__all__ = ("Access", "Behaviour", "BehaviourTree", "Status")
