"""Memory: the most present of N (M1), one reinforcement, and what it leaves in the file.

    python benchmarks/bench_memory.py [--quick]

The floor of a ranking is one SELECT by hand from an index of a key that does not depend on the time;
beside it a list in that order, numpy and plain Python that fade every node, and `polypack-db`. The
floor of a reinforcement is by hand in SQLite: one event with its hash, one narrow row, one
transaction. A ranking is also taken after a change each time, so that none can be an old answer.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import harness
from benchmarks.memory_floors import KINDS, TOP, ByHand, Indexed, Ordered, Peer, now_ms
from graphstate.adaptogen import Adaptogen

SIZES = (1_000, 10_000, 100_000)


def memories(size: int, path: str = ":memory:") -> Adaptogen:
    """A graph of nodes of every memory class, each reinforced once."""
    random, graph = Random(1), Adaptogen.open(path, seed=False)
    graph.set_tunable("snapshotInterval", 0).unwrap()
    with graph.unit():
        for number in range(size):
            graph.remember(f"n{number}", kind=KINDS[number % len(KINDS)]).unwrap()
            graph.reinforce(f"n{number}", random.random()).unwrap()
    return graph


def times(n: int, call: Callable[[int], object]) -> Callable[[], None]:
    """A work that makes n calls, each with a number that no call before had."""
    count = iter(range(10**9))

    def work() -> None:
        for _ in range(n):
            call(next(count))

    return work


def ranking(size: int, quick: bool) -> float:
    n, few = 200 if quick else 2_000, 2
    graph, indexed, ordered, peer = memories(size), Indexed(size), Ordered(size), Peer(size)

    def changed(number: int) -> None:
        graph.reinforce(f"n{number % size}", 0.1)
        graph.top_activated(limit=TOP)

    def changed_floor(number: int) -> None:
        indexed.add(f"n{number % size}", 0.1, now_ms())
        indexed.top()

    us = harness.measure(
        {
            "ours": times(n, lambda _: graph.top_activated(limit=TOP)),
            "floor": times(n, lambda _: indexed.top()),
            "list": times(n, lambda _: ordered.top()),
        },
        n=n,
    )
    after = harness.measure(
        {"ours": times(n // 4, changed), "floor": times(n // 4, changed_floor)}, n=n // 4, rounds=3
    )
    slow = harness.measure(
        {
            "numpy": times(few, lambda _: ordered.faded_by_numpy()),
            "fade": times(few, lambda _: ordered.faded()),
            "peer": times(few, lambda _: peer.top()),
        },
        n=few,
        rounds=3,
    )
    harness.report(
        "M1", f"the {TOP} most present of {size:,}", us["ours"], "us", floor=us["floor"], n=n,
        must=harness.bar("<= 5 ms", us["ours"] <= 5_000), moonshot=harness.bar("<= 50 us", us["ours"] <= 50),
        peers_us={"a sorted list": us["list"], "numpy": slow["numpy"], "fade every node": slow["fade"],
                  "polypack-db": slow["peer"]},
        faster_than={"numpy": slow["numpy"] / us["ours"], "fade every node": slow["fade"] / us["ours"],
                     "polypack-db": slow["peer"] / us["ours"]},
        with_a_reinforcement_before_each_us=after["ours"], the_same_floor_us=after["floor"],
    )  # fmt: skip
    for one in (graph, indexed, peer):
        one.close()
    return us["ours"]


def reinforcing(quick: bool, place: str) -> None:
    n, size = (300, 1_000) if quick else (2_000, 10_000)
    graph = memories(size, os.path.join(place, "graph.db"))
    floor = ByHand(os.path.join(place, "floor.db"), size)
    peer = Peer(size, os.path.join(place, "peer"))
    works: dict[str, Callable[[], object]] = {
        "ours": times(n, lambda i: graph.reinforce(f"n{i * 7 % size}", 0.1)),
        "floor": times(n, lambda i: floor.reinforce(f"n{i * 7 % size}", 0.1)),
        "peer": times(n, lambda i: peer.reinforce(f"n{i * 7 % size}", 0.1)),
        "context": times(n, lambda i: graph.reinforce(f"n{i * 7 % size}", 0.1, context="here")),
        "suppress": times(n, lambda i: graph.suppress(f"n{i * 7 % size}", 0.1)),
    }

    def together() -> None:
        with graph.unit():
            works["ours"]()

    us = harness.measure(works, n=n, clock="wall", pick="median")
    cpu = harness.measure(
        {name: works[name] for name in ("ours", "floor", "peer")} | {"unit": together}, n=n, rounds=3
    )
    harness.report(
        "M1", f"one reinforcement, durable at NORMAL, {size:,} memories", us["ours"], "us", floor=us["floor"], n=n,
        must=harness.bar("<= 200 us", us["ours"] <= 200), moonshot=harness.bar("<= 1.5x the floor", us["ours"] <= 1.5 * us["floor"]),
        peers_us={"polypack-db, no hashes": us["peer"]}, in_a_context_us=us["context"], suppress_us=us["suppress"],
        cpu_us=cpu["ours"], floor_cpu_us=cpu["floor"], peer_cpu_us=cpu["peer"], one_of_many_in_a_unit_cpu_us=cpu["unit"],
    )  # fmt: skip
    for one in (graph, floor, peer):
        one.close()


def appended(quick: bool, place: str) -> None:
    n, path = 2_000 if quick else 20_000, os.path.join(place, "bytes.db")
    memories(1_000, path).close()
    before = os.path.getsize(path)
    graph = Adaptogen.open(path, seed=False)
    with graph.unit():
        for i in range(n):
            graph.reinforce(f"n{i % 1_000}", 0.1).unwrap()
    bodies = sum(len(row.body) for row in graph.store.read("graph", after=graph.store.head().seq - n)) / n
    graph.close()
    grown = (os.path.getsize(path) - before) / n
    peer = Peer(1_000, os.path.join(place, "peer bytes"))
    taken = peer.bytes()
    for i in range(300):
        peer.reinforce(f"n{i}", 0.1)
    harness.report(
        "M1", "what one reinforcement adds to the file", grown, "bytes", floor=bodies + 32, n=n,
        must=harness.bar("<= 300 bytes", grown <= 300), moonshot=harness.bar("<= 150 bytes", grown <= 150),
        body_bytes=bodies, peers_bytes={"polypack-db": (peer.bytes() - taken) / 300},
    )  # fmt: skip
    peer.close()


def main() -> None:
    quick = harness.quick()
    sizes = SIZES[:2] if quick else SIZES
    us = [ranking(size, quick) for size in sizes]
    harness.report(
        "M1", f"the {TOP} most present: {sizes[-1]:,} over {sizes[0]:,}", us[-1] / us[0], "",
        must=harness.bar("<= 1.3", us[-1] <= 1.3 * us[0]), moonshot=harness.bar("<= 1.1", us[-1] <= 1.1 * us[0]),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
        reinforcing(quick, place)
        appended(quick, place)


if __name__ == "__main__":
    main()
