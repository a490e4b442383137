"""Dependencies: the check on insert, the path on refusal, the order as a list (C8).

    python benchmarks/bench_order.py [--quick]

A hundred thousand nodes with two random dependencies each. They agree with an order that nobody
knows, so that edges arrive pointing forwards and backwards; those that are measured are new in
every round, and stay. The floor of an insert is two dictionaries of lists without any check; that
of the ordered list is Kahn's sort. Then the same behind the verb `depend`, with the
order in memory and with a search in the tables, which is what a process does that adds one edge.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from graphstate.adaptogen import Adaptogen
from graphstate.algorithms import closure, topological_order
from graphstate.ordering import Ordering

Pair = tuple[str, str]


def drawn(nodes: int, edges: int, seed: int) -> list[Pair]:
    """Random edges that agree with one hidden order, the same for every seed."""
    names = [f"n{i}" for i in range(nodes)]
    random.Random(0).shuffle(names)
    rand = random.Random(seed)
    pairs = [sorted(rand.sample(range(nodes), 2)) for _ in range(edges)]
    return [(names[low], names[high]) for low, high in pairs]


class Unchecked:
    """Edges in two dictionaries of lists."""

    def __init__(self, edges: list[Pair]) -> None:
        self.ahead: dict[str, list[str]] = {}
        self.behind: dict[str, list[str]] = {}
        for src, dst in edges:
            self.ahead.setdefault(src, []).append(dst)
            self.behind.setdefault(dst, []).append(src)

    def insert(self, edges: list[Pair]) -> None:
        ahead, behind = self.ahead, self.behind
        for src, dst in edges:
            ahead.setdefault(src, []).append(dst)
            behind.setdefault(dst, []).append(src)


def insert(order: Ordering, edges: list[Pair]) -> None:
    path, add = order.path, order.add
    for src, dst in edges:
        assert path(dst, src) is None
        add(src, dst)


def closing(edges: list[Pair], count: int) -> list[Pair]:
    """Edges that close a circle, over as long ways as there are."""
    ahead = Unchecked(edges).ahead
    rand = random.Random(9)
    found: list[Pair] = []
    while len(found) < count:
        start = rand.choice(edges)[0]
        found.append((closure(start, lambda node: ahead.get(node, ()))[-1], start))
    return found


def refused(order: Ordering, edges: list[Pair]) -> None:
    for src, dst in edges:
        assert order.path(dst, src) is not None


def in_memory(nodes: int) -> None:
    known, n = drawn(nodes, 2 * nodes, 1), nodes // 10
    fresh = [drawn(nodes, n, seed) for seed in range(2, 10)]
    ours, floors = iter(fresh), iter(fresh)
    order, unchecked = Ordering.of(known), Unchecked(known)
    assert order is not None
    bad = closing(known, 1_000)
    us = harness.measure(
        {"insert": lambda: insert(order, next(ours)), "floor": lambda: unchecked.insert(next(floors))}, n=n
    )
    harness.report(
        "C8",
        f"check and note a dependency, {nodes:,} nodes / {2 * nodes:,} dependencies",
        us["insert"],
        "us",
        floor=us["floor"],
        n=n,
        must=harness.bar("<= 4x no check", us["insert"] <= 4 * us["floor"]),
        moonshot=harness.bar("<= 2x no check", us["insert"] <= 2 * us["floor"]),
    )
    us = harness.measure({"refused": lambda: refused(order, bad)}, n=len(bad))
    harness.report(
        "C8",
        "refuse a dependency that closes a circle, and name it",
        us["refused"],
        "us",
        n=len(bad),
        must=harness.bar("<= 100 us", us["refused"] <= 100),
        moonshot=harness.bar("<= 12 us", us["refused"] <= 12),
    )
    names = sorted(f"n{i}" for i in range(nodes))
    works: dict[str, Callable[[], object]] = {
        "list": lambda: list(order),
        "kahn": lambda: topological_order(names, known),
        "load": lambda: Ordering.of(known),
    }
    ms = harness.measure(works, n=1, scale=1e3)
    harness.report(
        "C8",
        "the kept order as a list (not what `topo` answers, whose ties go by id)",
        ms["list"],
        "ms",
        floor=ms["kahn"],
        n=1,
        moonshot=harness.bar("<= 1/10 of a Kahn sort", ms["list"] <= ms["kahn"] / 10),
        load_ms=ms["load"],
    )


@contextmanager
def stored(edges: list[Pair], nodes: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        path = f"{folder}/graph.db"
        with Adaptogen.open(path, seed=False) as graph, graph.unit():
            for i in range(nodes):
                graph.remember(f"n{i}").unwrap()
            for src, dst in edges:
                graph.depend(dst, src).unwrap()
        yield path


def depend(graph: Adaptogen, edges: Iterator[Pair], n: int) -> Callable[[], None]:
    def work() -> None:
        with graph.unit():
            for _ in range(n):
                src, dst = next(edges)
                graph.depend(dst, src).unwrap()

    return work


def depend_refused(graph: Adaptogen, edges: list[Pair]) -> Callable[[], None]:
    def work() -> None:
        for src, dst in edges:
            assert not graph.depend(dst, src).ok

    return work


def one_edge(path: str, edge: Pair) -> Callable[[], None]:
    """What one command does: open, add, close."""

    def work() -> None:
        with Adaptogen.open(path, seed=False) as graph:
            src, dst = edge
            graph.depend(dst, src).unwrap()

    return work


def behind_the_verb(nodes: int, n: int) -> None:
    known, more = drawn(nodes, nodes, 1), iter(drawn(nodes, 20 * n, 2))
    bad = closing(known, 20)
    with stored(known, nodes) as path, Adaptogen.open(path, seed=False) as graph:
        dependencies = graph.store.projection.dependencies
        asking = {"tables": depend(graph, more, n), "one": one_edge(path, next(more))}
        us = harness.measure(asking | {"refused": depend_refused(graph, bad[:3])}, n=1)
        dependencies.load()
        kept = {"kept": depend(graph, more, n), "refused": depend_refused(graph, bad)}
        kept_us = harness.measure(kept, n=1)
    ratio = (us["tables"] / n) / (kept_us["kept"] / n)
    harness.report(
        "C8",
        f"`depend` in a unit, the order in memory, {nodes:,} nodes",
        kept_us["kept"] / n,
        "us",
        n=n,
        from_tables_us=us["tables"] / n,
        from_tables_over_kept=ratio,
    )
    harness.report(
        "C8",
        "`depend` refused, the order in memory",
        kept_us["refused"] / len(bad),
        "us",
        n=len(bad),
        must=harness.bar("<= 100 us", kept_us["refused"] / len(bad) <= 100),
        from_tables_us=us["refused"] / 3,
        open_add_one_and_close_us=us["one"],
    )


def main() -> None:
    quick = harness.quick()
    in_memory(10_000 if quick else 100_000)
    behind_the_verb(3_000 if quick else 100_000, 100 if quick else 500)


if __name__ == "__main__":
    main()
