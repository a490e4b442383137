"""The leaves of a tree as the nodes of a looping run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from adapters.py_trees.door import Behaviour

__all__ = ("path_of", "tree_node_provider")


def path_of(behaviour: Behaviour) -> str:
    """Return the names from the root to a behaviour, joined by slashes."""
    names = [behaviour.name]
    while behaviour.parent is not None:
        behaviour = behaviour.parent
        names.append(behaviour.name)
    return "/".join(reversed(names))


def _leaves(behaviour: Behaviour) -> Iterator[Behaviour]:
    todo = [behaviour]
    while todo:
        found = todo.pop()
        if found.children:
            todo.extend(reversed(found.children))
        else:
            yield found


def tree_node_provider(root: Behaviour) -> Callable[[int], dict[str, Any] | None]:
    """Return a ``node_provider`` over the leaves of a tree, from left to right, each once.

    A node is ``{"id": name, "path": names from the root}``. The tree is read now, not ticked.
    """
    nodes = [{"id": leaf.name, "path": path_of(leaf)} for leaf in _leaves(root)]

    def node_at(index: int) -> dict[str, Any] | None:
        return nodes[index] if index < len(nodes) else None

    return node_at
