"""Tasks whose order matters, done by real runs: does the graph find the order that costs least?

A world is a set of nodes. Some say what they come after; some need another one that they do not
name, and fail until it is done. Every attempt is a run of an agent-evaluator loop with a scripted
agent and evaluator, driven by `create_looping_agent_loop`; with the order ``graph`` its outcomes
are written by `GraphBridge`, and `GraphNodes` chooses what comes next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import anyio

from adapters.graph import DEFAULT_REWARDS, GraphBridge, GraphNodes, ListedNodes, declare_nodes
from agentloop import (
    ScriptedAdapter,
    create_agent_loop,
    create_default_evaluator_parser,
    create_looping_agent_loop,
)
from agentloop.messages import LoopResult, NodeStatus
from graphstate import Adaptogen

__all__ = ("FAMILIES", "ORDERS", "Family", "Order", "World", "cycles_per_success")

Order: TypeAlias = Literal["graph", "listed", "random"]
ORDERS: Final[tuple[Order, ...]] = ("graph", "listed", "random")

#: Cycles after which an attempt is given up.
PATIENCE: Final = 3
_TASK: Final = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One task of a family: what is said about its nodes, and what is not."""

    nodes: Sequence[Mapping[str, Any]]
    #: not said: an attempt fails after three cycles until these are done
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: not said: an attempt takes three cycles instead of one until these are done
    helps: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: chance that an attempt fails though nothing is missing
    flaky: float = 0.0

    def verdicts(self, node: str, done: set[str], rng: random.Random) -> list[str]:
        """Return what the evaluator says in each cycle of an attempt."""
        fails = rng.random() < self.flaky
        if fails or not self.needs.get(node, frozenset()) <= done:
            return ["RUNNING"] * PATIENCE
        slow = not self.helps.get(node, frozenset()) <= done
        return ["RUNNING"] * (PATIENCE - 1) * slow + ["SUCCESS"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A distribution of worlds."""

    name: str
    what: str
    #: the world of a run, by the seed's generator and whether the change has happened
    make: Callable[[random.Random], World]
    #: another world with the same nodes takes its place after half of the runs
    changes: bool = False


def _secret(rng: random.Random, count: int, share: float, said: float) -> tuple[list[Any], dict[str, Any]]:
    """Return nodes in no particular order, and what each needs by an order that nobody is told."""
    names = [f"n{number:02d}" for number in range(count)]
    right = rng.sample(names, count)
    after: dict[str, list[str]] = {}
    needs: dict[str, frozenset[str]] = {}
    for place, name in enumerate(right[1:], 1):
        sooner = rng.choice(right[:place])
        if rng.random() < said:
            after[name] = [sooner]
        elif rng.random() < share:
            needs[name] = frozenset([sooner])
    return [{"id": name, "after": after.get(name, [])} for name in names], needs


def _hidden(rng: random.Random) -> World:
    nodes, needs = _secret(rng, 8, 0.6, 0.15)
    return World(nodes=nodes, needs=needs)


def _long(rng: random.Random) -> World:
    nodes, needs = _secret(rng, 16, 0.6, 0.15)
    return World(nodes=nodes, needs=needs)


def _chain(rng: random.Random) -> World:
    names = [f"n{number:02d}" for number in range(6)]
    right = rng.sample(names, len(names))
    needs = {later: frozenset([sooner]) for sooner, later in pairwise(right)}
    return World(nodes=[{"id": name} for name in names], needs=needs)


def _slow(rng: random.Random) -> World:
    nodes, helps = _secret(rng, 8, 0.6, 0.15)
    return World(nodes=nodes, helps=helps)


def _flaky(rng: random.Random) -> World:
    nodes, needs = _secret(rng, 8, 0.6, 0.15)
    return World(nodes=nodes, needs=needs, flaky=0.15)


def _free(rng: random.Random) -> World:
    nodes, _ = _secret(rng, 8, 0.0, 0.3)
    return World(nodes=nodes)


def _changing(rng: random.Random) -> World:
    nodes, needs = _secret(rng, 8, 0.6, 0.0)
    return World(nodes=nodes, needs=needs)


FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family
    for family in (
        Family(name="hidden", what="8 nodes, of which 15 % say what they come after and half do not", make=_hidden),
        Family(name="chain", what="6 nodes, each of which secretly needs the one before", make=_chain),
        Family(name="long", what="16 nodes, else as hidden", make=_long),
        Family(name="slow", what="as hidden, but a node out of order succeeds late instead of failing", make=_slow),
        Family(name="flaky", what="as hidden, and 15 % of all attempts fail for no reason", make=_flaky),
        Family(name="changing", what="as hidden; after half of the runs other needs hold", make=_changing, changes=True),
        Family(name="free", what="8 nodes that need nothing they do not name: nothing to learn", make=_free),
    )
}  # fmt: skip


class RandomNodes(ListedNodes):
    """Offers any ready node, each as likely as the others."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], rng: random.Random) -> None:
        super().__init__(nodes)
        self._rng = rng

    def _next_place(self) -> int | None:
        ready = [
            place
            for place, node in enumerate(self._nodes)
            if node["id"] not in self._succeeded and self._succeeded.issuperset(self._after[node["id"]])
        ]
        return self._rng.choice(ready) if ready else None


class _Work:
    """Makes the inner loop of each attempt, and knows what is done in this run."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._done: set[str] = set()

    def loop(self, *, node: Any, **options: Any) -> Any:
        words = self._world.verdicts(node["id"], self._done, self._rng)
        if words[-1] == "SUCCESS":
            self._done.add(node["id"])
        return create_agent_loop(
            agent_adapter=ScriptedAdapter(["worked"] * len(words)),
            evaluator_adapter=ScriptedAdapter([f'{{"status": "{word}"}}' for word in words]),
            build_agent_prompt=lambda ctx: "work",
            build_evaluator_prompt=lambda ctx, history: "judge",
            parse_evaluator_output=create_default_evaluator_parser(),
            max_iterations=PATIENCE,
            node=node,
            **options,
        )


async def _one_run(world: World, provider: Any, rng: random.Random, run: str, **options: Any) -> float:
    outer = create_looping_agent_loop(
        inner_loop_factory=_Work(world, rng).loop,
        node_provider=provider,
        should_continue=provider.should_continue,
        max_iterations=50 * len(world.nodes),
        run_id=run,
        **options,
    )
    await outer.run()
    if not provider.complete:
        raise AssertionError(f"{run}: {sorted(provider.succeeded)} of {len(world.nodes)} succeeded")
    return _cycles(outer.results) / len(world.nodes)


def _cycles(results: Sequence[LoopResult]) -> int:
    return sum([max(1, result.iterations) for result in results if result.status is not NodeStatus.PENDING])


@contextmanager
def _graph(path: str, tunables: Mapping[str, Any]) -> Iterator[Adaptogen]:
    with Adaptogen.open(path, seed=False) as graph:
        for name, value in tunables.items():
            graph.set_tunable(name, value).unwrap()
        yield graph


def cycles_per_success(
    family: Family,
    order: Order,
    seed: int,
    *,
    runs: int,
    path: Path | None = None,
    tunables: Mapping[str, Any] | None = None,
    rewards: Mapping[str, float] | None = None,
    restart_every: int | None = None,
) -> list[float]:
    """Return what a success cost in each of a number of runs after one another, in cycles.

    The same for the same arguments. The least is 1.

    Args:
        family: Which worlds.
        order: Who says what comes next.
        seed: Which world.
        runs: How many of it.
        path: The graph's file; in memory if not given.
        tunables: Of the graph, where they shall not be the defaults.
        rewards: Of the bridge, where they shall not be the defaults.
        restart_every: Close the file and open it again after that many runs.
    """
    world_rng = random.Random(f"{family.name}/{seed}")
    worlds = [family.make(world_rng)]
    if family.changes:
        worlds.append(family.make(world_rng))
    luck = random.Random(f"{family.name}/{seed}/{order}")
    half = (runs + 1) // 2
    costs: list[float] = []

    def world(run: int) -> World:
        return worlds[run // half] if family.changes else worlds[0]

    async def some(first: int, last: int, graph: Adaptogen | None) -> None:
        if graph is not None:
            declare_nodes(graph, _TASK, worlds[0].nodes)
        for run in range(first, last):
            now = world(run)
            if graph is not None:
                bridge = GraphBridge(graph, task=_TASK, rewards={**DEFAULT_REWARDS, **(rewards or {})})
                nodes = GraphNodes(graph, task=_TASK, nodes=now.nodes)
                costs.append(await _one_run(now, nodes, luck, f"r{run}", graph=bridge))
            else:
                other = ListedNodes(now.nodes) if order == "listed" else RandomNodes(now.nodes, luck)
                costs.append(await _one_run(now, other, luck, f"r{run}"))

    if order != "graph":
        anyio.run(some, 0, runs, None)
        return costs
    step = runs if restart_every is None else restart_every
    for first in range(0, runs, step):
        with _graph(":memory:" if path is None else str(path), tunables or {}) as graph:
            anyio.run(some, first, min(first + step, runs), graph)
    return costs
