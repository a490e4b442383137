"""The same scenarios in the graph and in the published package polypack-db, side by side.

Ratios of one run alone count. The package keeps its nodes in Python objects and writes nothing
until it is told to; the graph is in memory too, but every change is a hashed event in its log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from benchmarks import harness
from benchmarks.learning import peer
from graphstate import Adaptogen

__all__ = ("Timed", "run", "table")


class Timed(NamedTuple):
    """One scenario at one size, in microseconds."""

    scenario: str
    size: int
    ours: float
    theirs: float


DIMENSIONS: Final = 64
PLACES: Final = 8
_TOGETHER: Final = 4_000
_EDGES: Final = 2


def _vectors(count: int) -> list[list[float]]:
    rng = random.Random(count)
    return [[rng.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(count)]


def _ours(vectors: Sequence[Sequence[float]], amounts: Sequence[float]) -> Adaptogen:
    graph = Adaptogen.open(":memory:", seed=False)
    graph.set_tunable("snapshotInterval", 0).unwrap()
    for first in range(0, len(vectors), _TOGETHER):
        with graph.unit():
            for place in range(first, min(len(vectors), first + _TOGETHER)):
                graph.remember(
                    f"n{place}", kind="fact", payload={"text": f"note {place}"}, embedding=vectors[place]
                ).unwrap()
                for step in range(1, _EDGES + 1):
                    if place >= step * step:
                        target = f"n{place - step * step}"
                        graph.link(f"n{place}", target, kind="reference", label="about").unwrap()
            graph.reinforce_all(
                [
                    {"id": f"n{place}", "amount": amounts[place]}
                    for place in range(first, min(len(vectors), first + _TOGETHER))
                ]
            ).unwrap()
    return graph


def _theirs(vectors: Sequence[Sequence[float]], amounts: Sequence[float]) -> tuple[Any, Any]:
    library = peer.library()
    graph = library.PolyGraph()
    now = 1_700_000_000_000
    for place, vector in enumerate(vectors):
        graph.add_node(
            {
                "id": f"n{place}", "type": "fact", "data": {"text": f"note {place}"}, "insertedAt": now,
                "updatedAt": now, "memoryClass": "semantic", "vector": list(vector),
            }
        )  # fmt: skip
        for step in range(1, _EDGES + 1):
            if place >= step * step:
                graph.add_edge(f"n{place}", "about", f"n{place - step * step}")
        graph.reinforce_node(f"n{place}", amounts[place])
    return graph, library.ActivationEngine(graph)


def run(*, quick: bool) -> list[Timed]:
    """Print ours over theirs for each scenario and size, and return them as measured in us."""
    if not peer.installed():
        return []
    found: list[Timed] = []
    for size in (1_000,) if quick else (1_000, 10_000, 100_000):
        found += _sized(size)
    return found


def table(found: Sequence[Timed]) -> str:
    """Return ours over theirs, a row for each scenario."""
    sizes = sorted({one.size for one in found})
    ratios = {(one.scenario, one.size): f"{one.ours / one.theirs:.2g}" for one in found}
    rows = [
        f"| {' | '.join([name, *[ratios[name, size] for size in sizes]])} |"
        for name in dict.fromkeys(one.scenario for one in found)
    ]
    heads = ["ours over theirs", *[f"{size:,} nodes" for size in sizes]]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


def _sized(size: int) -> list[Timed]:
    rng = random.Random(7)
    vectors = _vectors(size)
    amounts = [rng.random() for _ in range(size)]
    graph = _ours(vectors, amounts)
    theirs, engine = _theirs(vectors, amounts)
    asked = _vectors(5)
    chosen = [f"n{rng.randrange(size)}" for _ in range(200)]
    scenarios: dict[str, tuple[int, Callable[[], object], Callable[[], object]]] = {
        "reinforce": (
            len(chosen),
            lambda: [graph.reinforce(one, 0.01) for one in chosen],
            lambda: [theirs.reinforce_node(one, 0.01) for one in chosen],
        ),
        f"working memory of {PLACES}": (
            3,
            lambda: [graph.working_memory(limit=PLACES) for _ in range(3)],
            lambda: [engine.working_memory(PLACES) for _ in range(3)],
        ),
        "pulse with 50 seeds": (
            len(asked),
            lambda: [graph.pulse(vector, seeds=50) for vector in asked],
            lambda: [engine.pulse(vector, top_k=50) for vector in asked],
        ),
    }
    found = []
    for name, (count, ours, others) in scenarios.items():
        taken = harness.measure({"ours": ours, "theirs": others}, n=count, rounds=3)
        harness.report(
            f"P {name}", f"of {size:,} nodes", taken["ours"], "us", n=count,
            peers={"polypack-db": taken["theirs"]}, ours_over_theirs=taken["ours"] / taken["theirs"],
        )  # fmt: skip
        found.append(Timed(name, size, taken["ours"], taken["theirs"]))
    graph.close()
    return found
