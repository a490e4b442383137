"""What a search says of the graph is the sum over every single walk, with all that lets or holds back."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate import Adaptogen

FULL = os.environ.get("RELIABILITY") == "full"

NODES = [f"n{number}" for number in range(6)]
node = st.sampled_from(NODES)

#: (source, target, kind, label, weight)
EDGES = st.lists(
    st.tuples(
        node, node,
        st.sampled_from([("transition", ""), ("transition", "t"), ("reference", "about"), ("reference", "")]),
        st.sampled_from([0, 0.5, 1, 3]),
    ),
    max_size=14,
)  # fmt: skip

GAINS = st.none() | st.dictionaries(
    st.sampled_from(["transition", "about", "reference", "superseded_by"]), st.sampled_from([0, 0.5, 1])
)

Edge = tuple[str, str, str, float]


def walks(
    edges: list[Edge], seeds: dict[str, float], barred: set[str], successor: dict[str, str], *,
    gains: dict[str, float] | None, direction: str, depth: int, decay: float, beta: float,
) -> dict[str, float]:  # fmt: skip
    """Add up every single walk, one after the other."""

    def gain(kind: str) -> float:
        return 1.0 if gains is None else gains.get(kind, 0.0)

    targets: dict[str, dict[str, float]] = {}
    for source, target, kind, weight in edges:
        ends = [(source, target)] * (direction != "in") + [(target, source)] * (direction != "out")
        for near, far in ends:
            value = gain(kind) * min(1.0, weight)
            if value > 0:
                found = targets.setdefault(near, {})
                found[far] = max(value, found.get(far, 0.0))
    for name in barred:
        taker = successor.get(name)
        targets[name] = {taker: 1.0} if taker is not None and gain("superseded_by") else {}
    total: dict[str, float] = {}

    def walk(at: str, value: float, left: int) -> None:
        for far, strength in targets.get(at, {}).items() if left else ():
            arrived = value * decay * strength / len(targets[at]) ** beta
            if far not in seeds:
                total[far] = total.get(far, 0.0) + arrived
            walk(far, arrived, left - 1)

    for seed, strength in seeds.items():
        walk(seed, strength, depth)
    return total


@settings(max_examples=600 if FULL else 60, deadline=None)
@given(
    EDGES, st.sets(node, max_size=2), st.lists(st.tuples(node, node), max_size=2), GAINS,
    st.sampled_from(["out", "in", "both"]), st.integers(0, 3), st.sampled_from([0.5, 1.0]),
    st.sampled_from([0, 0.5, 1]), st.booleans(),
)  # fmt: skip
def test_the_graph_signal_of_a_search_is_the_sum_over_all_walks(
    drawn: list[tuple[str, str, tuple[str, str], float]], suppressed: set[str],
    superseded: list[tuple[str, str]], gains: dict[str, float] | None, direction: Any, depth: int,
    decay: float, beta: float, two: bool,
) -> None:  # fmt: skip
    seeds = {"n0": 1.0} | ({"n1": 0.6} if two else {})
    with Adaptogen.open(seed=False, now=lambda: 1_000) as graph:
        for name in NODES:
            graph.remember(
                name, embedding=[1, 0] if name == "n0" else [0.6, 0.8] if name in seeds else None
            ).unwrap()
        edges: list[Edge] = []
        for source, target, (kind, label), weight in drawn:
            made: Any = graph.link(source, target, kind=kind, label=label, weight=weight)  # type: ignore[arg-type]
            if made.ok:
                edges.append((source, target, label if kind == "reference" and label else kind, weight))
        successor: dict[str, str] = {}
        for new, old in superseded:
            if old not in successor and graph.supersede(new, old).ok:
                successor[old] = new
                edges.append((old, new, "superseded_by", 1.0))
        for name in suppressed:
            graph.suppress(name, 0.5).unwrap()
        found = graph.pulse(
            [1, 0], depth=depth, decay=decay, fan_beta=beta, edge_types=gains, direction=direction, limit=1_000,
            include_superseded=True, gamma=0,
        )  # fmt: skip
        alone = graph.spread(
            seeds, depth=depth, decay=decay, fan_beta=beta, edge_types=gains, direction=direction, limit=1_000
        )
    expected = walks(
        edges, seeds, suppressed | set(successor), successor, gains=gains, direction=direction, depth=depth,
        decay=decay, beta=beta,
    )  # fmt: skip
    told = {hit.id: hit.signals["graph"] for hit in found.hits}
    assert told == pytest.approx(
        dict.fromkeys(seeds, 0.0) | {name: min(1.0, value) for name, value in expected.items()}, abs=1e-6
    )
    assert dict(alone.reached) == pytest.approx(expected, abs=1e-6)
    assert list(alone.reached) == sorted(alone.reached, key=lambda name: (-alone.reached[name], name))
    assert (alone.found, alone.truncated, found.truncated) == (len(expected), False, False)
