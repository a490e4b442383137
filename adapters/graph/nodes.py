"""Which node comes next: the nodes of a task in a graph, and the order that experience suggests.

`declare_nodes` lays a task into a graph. `GraphNodes` asks the graph for each next node,
`ListedNodes` goes by the list. Both are handed to `create_looping_agent_loop` twice: as
``node_provider`` and, for what became of each node, as ``should_continue``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from adapters.graph.bridge import node_id_of
from adapters.graph.calls import GraphCalls, value_of
from adapters.graph.names import actor_of, dependency_id, move_id, retry_id, start_id
from agentloop._canonical import Json
from agentloop.errors import BoundExceeded, TaskError
from agentloop.messages import LoopResult, NodeStatus
from graphstate import Adaptogen, Suggestion

__all__ = ("MAX_NODES", "GraphNodes", "ListedNodes", "begin_task", "declare_nodes", "graph_node_provider")

#: Nodes of one task, at most: there is an edge between nearly every two of them.
MAX_NODES: Final = 32
#: The prior of trying a failed node again at once; other nodes have 1.
RETRY_WEIGHT: Final = 0.5
#: What a node's label may have of UTF-8.
_LABEL_BYTES: Final = 1_024

#: What a node is given as; ``id`` and perhaps ``after``, the rest is for prompt builders.
Described = Mapping[str, Any]


# ------------------------------------------------------------------------------- declaring


def declare_nodes(graph: Adaptogen, task: str, nodes: Sequence[Described]) -> None:
    """Lay a task into the graph: its nodes, what comes after what, and every possible move.

    Declaring again keeps what was learned; what the task no longer says is taken back. One
    transaction, about 0.1 ms an edge the first time.

    Args:
        graph: Where to.
        task: Its name; runs begin at the node ``start:<task>``.
        nodes: Each with an ``id`` and perhaps ``goal``, ``after`` (ids) and more JSON.

    Raises:
        BoundExceeded: More than 32 nodes.
        TaskError: An id that is missing or given twice, an ``after`` that names no node of
            the task, or nodes that wait for each other.
        VerbFailed, StoreError: The graph did not take it; nothing was changed.
    """
    after = _after(nodes)
    before = _everything_before(after)
    start = start_id(task)
    with graph.unit():
        _remember(graph, start, "start", _label(task), {"task": task})
        for node in nodes:
            label = _label(str(node.get("goal") or node["id"]))
            payload = {"task": task, **{key: _plain(value) for key, value in node.items() if key != "id"}}
            _remember(graph, node["id"], "task", label, payload)
        _take_back(graph, after, before)
        for name, prerequisites in after.items():
            for prerequisite in prerequisites:
                edge = dependency_id(name, prerequisite)
                if graph.get_edge(edge) is None:
                    value_of(graph.depend(name, prerequisite, id=edge))
        for place, target in enumerate(after):
            # Of moves about which nothing is known the one to the first node of the list leads.
            weight = 1 - place / 1_000
            _link(graph, start, target, move_id(start, target), weight=weight)
            _link(graph, target, target, retry_id(target), weight=RETRY_WEIGHT)
            for source in after:
                if target != source and target not in before[source]:
                    _link(graph, source, target, move_id(source, target), weight=weight)


def _take_back(graph: Adaptogen, after: Mapping[str, Sequence[str]], before: Mapping[str, set[str]]) -> None:
    """Remove what an earlier declaration said of these nodes and this one does not.

    Before anything is added: a prerequisite that changed sides would close a cycle.
    """
    for node in after:
        for other in after:
            if other not in after[node]:
                _unlink(graph, dependency_id(node, other))
        for other in before[node]:
            _unlink(graph, move_id(node, other))


def _after(nodes: Sequence[Described]) -> dict[str, tuple[str, ...]]:
    if len(nodes) > MAX_NODES:
        raise BoundExceeded("nodes of one task", MAX_NODES, len(nodes))
    after: dict[str, tuple[str, ...]] = {}
    for position, node in enumerate(nodes, 1):
        name = node.get("id")
        if not isinstance(name, str) or not name:
            raise TaskError(f"node {position} needs an 'id', a text: {dict(node)!r:.120}")
        if name in after:
            raise TaskError(f"two nodes have the id {name!r}")
        given = node.get("after") or ()
        after[name] = (given,) if isinstance(given, str) else tuple(given)
    for name, prerequisites in after.items():
        for prerequisite in prerequisites:
            if prerequisite not in after:
                known = ", ".join(other for other in after if other != name) or "none"
                raise TaskError(
                    f"node {name!r} comes after {prerequisite!r}, which is no node (others: {known})"
                )
    return after


def _everything_before(after: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    before: dict[str, set[str]] = {}
    try:
        for node in TopologicalSorter(after).static_order():
            before[node] = set(after[node]).union(*(before[other] for other in after[node]))
    except CycleError as error:
        raise TaskError(f"nodes wait for each other: {' -> '.join(error.args[1])}") from None
    return before


def _label(text: str) -> str:
    """Return the longest beginning of a text that a label holds."""
    return text.encode(errors="replace")[:_LABEL_BYTES].decode(errors="ignore")


def _remember(graph: Adaptogen, id: str, kind: str, label: str, payload: Mapping[str, Json]) -> None:
    known = graph.get_node(id)
    if known is not None and known.kind != kind:
        return  # somebody else's node: it is worked on, not rewritten
    if known is None or (known.label, known.payload, known.status) != (label, payload, "active"):
        value_of(graph.remember(id, kind=kind, label=label, payload=dict(payload), status="active"))


def _plain(value: Any) -> Json:
    return list(value) if isinstance(value, tuple) else value


def _link(graph: Adaptogen, source: str, target: str, edge: str, *, weight: float) -> None:
    if graph.get_edge(edge) is None:
        value_of(graph.link(source, target, id=edge, weight=weight))


def _unlink(graph: Adaptogen, edge: str) -> None:
    if graph.get_edge(edge) is not None:
        value_of(graph.unlink(edge))


def begin_task(graph: Adaptogen, task: str, *, actor: str | None = None) -> bool:
    """Put the task's cursor on its start; False if the task has none."""
    start = start_id(task)
    if graph.get_node(start) is None:
        return False
    value_of(graph.set_cursor([start], actor=actor or actor_of(task)))
    return True


# -------------------------------------------------------------------------------- choosing


class GraphNodes:
    """Offers the best suggestion that is ready and has not succeeded in this run.

    Both methods may be called for one run after another; the first index begins a run.

    Args:
        graph: Has the nodes and what was learned about the moves between them.
        task: Whose start the cursor is put on; without a start it stays where it is.
        nodes: Offer these only, with what they say; otherwise whatever the moves lead to,
            with what its graph node says.
        actor: Whose cursor it is, if not the task's own; the bridge must have the same.
    """

    def __init__(
        self,
        graph: Adaptogen,
        *,
        task: str = "default",
        nodes: Sequence[Described] | None = None,
        actor: str | None = None,
    ) -> None:
        self._graph, self._task, self._actor = graph, task, actor or actor_of(task)
        self._nodes = None if nodes is None else {node["id"]: node for node in nodes}
        self._call = GraphCalls(graph)
        self._succeeded: set[str] = set()
        self._taken: Suggestion | None = None
        self._ranking: list[tuple[Suggestion, str]] = []

    @property
    def succeeded(self) -> frozenset[str]:
        """The nodes that succeeded in this run."""
        return frozenset(self._succeeded)

    @property
    def complete(self) -> bool:
        """True once every node that was given has succeeded in this run."""
        return self._nodes is not None and self._succeeded >= self._nodes.keys()

    def take_up(self, results: Sequence[LoopResult], node: Any) -> None:
        """Go on with a run: the nodes that succeeded in it are not offered again."""
        self._succeeded = {name for name in map(_succeeded, results) if name is not None}

    async def __call__(self, iteration: int) -> dict[str, Any] | None:
        """Return the next node as a mapping with ``id`` and ``edge_id``; None if there is none."""
        return await self._call(partial(self._next, iteration))

    async def should_continue(self, result: LoopResult, iteration: int) -> bool:
        """Take note of how a node's loop ended; say whether there is another node to offer."""
        return await self._call(partial(self._note, result))

    def _next(self, iteration: int) -> dict[str, Any] | None:
        if iteration == 0:
            self._succeeded.clear()
            begin_task(self._graph, self._task, actor=self._actor)
        self._ranking = self._ranked()
        best = self._taken = next((suggestion for suggestion, why in self._ranking if not why), None)
        if best is None:
            return None
        if self._nodes is not None:
            said: Mapping[str, Any] = self._nodes[best.to]
        else:
            node = self._graph.get_node(best.to)
            said = node.payload if node is not None and isinstance(node.payload, dict) else {}
        return {**said, "id": best.to, "edge_id": best.edge_id}

    def _note(self, result: LoopResult) -> bool:
        node = node_id_of(result.node) or (self._taken.to if self._taken else None)
        if node is None:
            return False
        if result.status is NodeStatus.SUCCESS:
            self._succeeded.add(node)
        elif node in self._graph.cursor(actor=self._actor):
            _link(self._graph, node, node, retry_id(node), weight=RETRY_WEIGHT)
        return any(not why for _, why in self._ranked())

    def _ranked(self) -> list[tuple[Suggestion, str]]:
        """Return the suggestions, each with why it is not to be taken, empty if it may be."""
        return [(s, self._obstacle(s.to)) for s in self._graph.suggest(actor=self._actor)]

    def _obstacle(self, node: str) -> str:
        if self._nodes is not None and node not in self._nodes:
            return "no node of this task"
        if node in self._succeeded:
            return "done in this run"
        waits = [other for other in self._graph.ancestors(node) if other not in self._succeeded]
        return f"waits for {', '.join(waits)}" if waits else ""

    def explain(self) -> list[str]:
        """Return the ranking behind the newest node, best first, a line each in plain words."""
        lines = []
        for place, (s, why) in enumerate(self._ranking, 1):
            terms = s.breakdown
            tried = (
                f"tried {s.visits}x, average reward {_signed(s.ema_reward)}" if s.visits else "never tried"
            )
            remark = " <- taken" if s is self._taken else f" ({why})" if why else ""
            lines.append(
                f"{place}. {s.to}: {_signed(s.score)} = experience {_signed(terms.reward)} ({tried})"
                f" + prior {_signed(terms.weight)} + curiosity {_signed(terms.explore)}{remark}"
            )
        return lines


def _succeeded(result: LoopResult) -> str | None:
    """Return the node of a loop that succeeded."""
    return node_id_of(result.node) if result.status is NodeStatus.SUCCESS else None


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # never "-0.00"


class ListedNodes:
    """Offers the ready nodes in the order of the list, again from its top for those that failed.

    Args:
        nodes: Each with an ``id`` and perhaps ``after``.

    Raises:
        BoundExceeded, TaskError: As `declare_nodes`.
    """

    def __init__(self, nodes: Sequence[Described]) -> None:
        self._nodes = list(nodes)
        self._after = _after(nodes)
        _everything_before(self._after)
        self._succeeded: set[str] = set()
        self._place = -1

    @property
    def succeeded(self) -> frozenset[str]:
        """The nodes that succeeded in this run."""
        return frozenset(self._succeeded)

    @property
    def complete(self) -> bool:
        """True once every node has succeeded in this run."""
        return self._succeeded >= self._after.keys()

    def take_up(self, results: Sequence[LoopResult], node: Any) -> None:
        """Go on with a run: after its newest node, without those that succeeded in it."""
        self._succeeded = {name for name in map(_succeeded, results) if name is not None}
        names = [one["id"] for one in self._nodes]
        newest = node_id_of(node)
        self._place = names.index(newest) if newest in names else -1

    def __call__(self, iteration: int) -> Described | None:
        """Return the next node; None if there is none."""
        if iteration == 0:
            self._succeeded.clear()
            self._place = -1
        place = self._next_place()
        if place is None:
            return None
        self._place = place
        return self._nodes[place]

    def _next_place(self) -> int | None:
        count = len(self._nodes)
        for step in range(1, count + 1):
            place = (self._place + step) % count
            node = self._nodes[place]["id"]
            if node not in self._succeeded and self._succeeded.issuperset(self._after[node]):
                return place
        return None

    def should_continue(self, result: LoopResult, iteration: int) -> bool:
        """Take note of how a node's loop ended; say whether there is another node to offer."""
        if result.status is NodeStatus.SUCCESS:
            self._succeeded.add(self._nodes[self._place]["id"])
        return self._next_place() is not None

    def explain(self) -> list[str]:
        """Return why the newest node was offered."""
        return (
            [] if self._place < 0 else [f"{self._nodes[self._place]['id']}: the next ready node of the list"]
        )


def graph_node_provider(
    graph: Adaptogen,
    *,
    task: str = "default",
    nodes: Sequence[Described] | None = None,
    actor: str | None = None,
) -> GraphNodes:
    """Return a ``node_provider`` that goes by what the graph suggests.

    Example:
        >>> nodes = graph_node_provider(graph, task="docs")          # doctest: +SKIP
        >>> create_looping_agent_loop(                               # doctest: +SKIP
        ...     node_provider=nodes, should_continue=nodes.should_continue,
        ...     graph=GraphBridge(graph, task="docs"), ...)
    """
    return GraphNodes(graph, task=task, nodes=nodes, actor=actor)
