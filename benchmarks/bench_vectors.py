"""Search by meaning: over all vectors (M3), and above 50,000 by clusters of them (M4).

    python benchmarks/bench_vectors.py [--quick]

Vectors of 384 numbers around 200 topics, the queries near one of them; one edge a node, every fifth
reinforced. The floor is one product of the matrix with the query and the 50 best of it, by numpy in the
same turns; all with one thread, since how long a second one waits is no figure. Recall is the share of
the ten nearest that a search by clusters finds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks import harness
from benchmarks.memory_floors import Peer
from graphstate.adaptogen import Adaptogen
from graphstate.store.matrix import Matrix

SIZE, TWICE = 50_000, 100_000
DIMENSIONS, TOPICS, SEEDS, CALLS = 384, 200, 50, 20

Vectors = np.ndarray[Any, np.dtype[np.float32]]


def vectors(size: int, *, topics: int = TOPICS) -> tuple[Vectors, list[list[float]]]:
    """Vectors of length one, and queries near some of them; without topics nothing but noise."""
    draw = np.random.default_rng(size)
    found = draw.normal(size=(size, DIMENSIONS))
    if topics:
        found += draw.normal(size=(topics, DIMENSIONS))[draw.integers(0, topics, size)]
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    asked = found[:: max(1, size // CALLS)][:CALLS] + draw.normal(scale=0.03, size=(CALLS, DIMENSIONS))
    return found.astype(np.float32), [query.tolist() for query in asked]


def remember(graph: Adaptogen, kept: Vectors, first: int) -> None:
    for start in range(first, len(kept), 2_000):
        with graph.unit():
            for i in range(start, min(len(kept), start + 2_000)):
                payload = {"text": f"about {i}"}
                graph.remember(f"n{i}", kind="fact", payload=payload, embedding=kept[i].tolist()).unwrap()
                if i % 5 == 0:
                    graph.reinforce(f"n{i}", 0.5).unwrap()
                if i:
                    graph.link(f"n{i}", f"n{i * 7919 % i}", kind="reference", label="about").unwrap()


def floor(kept: Vectors, query: Sequence[float]) -> list[int]:
    near = kept @ np.array(query, np.float32)
    best = np.argpartition(near, -SEEDS)[-SEEDS:]
    found: list[int] = best[np.argsort(-near[best])].tolist()
    return found


def each(call: Callable[[list[float]], object], queries: Sequence[list[float]]) -> Callable[[], None]:
    def work() -> None:
        for query in queries:
            call(query)

    return work


def exact(graph: Adaptogen, kept: Vectors, queries: Sequence[list[float]]) -> None:
    search = graph.store.projection.vectors.search
    for query in queries:  # the same answer, or the comparison is none
        assert [hit.id for hit in search(query, SEEDS)] == [f"n{i}" for i in floor(kept, query)]
    ms = harness.measure(
        {
            "pulse": each(graph.pulse, queries),
            "recall": each(lambda query: graph.recall(embedding=query, limit=10), queries),
            "floor": each(lambda query: floor(kept, query), queries),
        },
        n=len(queries),
        scale=1e3,
    )
    # A product leaves the cache as it likes: the peer takes its turn alone.
    few, peer = queries[:2], Peer(min(len(kept), 10_000), vectors=kept[:10_000].tolist())
    theirs = harness.measure(
        {"peer": each(lambda query: peer.engine.pulse(query, top_k=SEEDS), few)},
        n=len(few), rounds=3, scale=1e3,
    )  # fmt: skip
    peer.close()
    value, least, judged = ms["pulse"], ms["floor"], len(kept) == SIZE
    harness.report(
        "M3", f"pulse over {len(kept):,} vectors of {DIMENSIONS}", value, "ms", floor=least, n=len(kept),
        must=harness.bar("<= 1.5x", value <= 1.5 * least) if judged else None,
        moonshot=harness.bar("<= 1.2x", value <= 1.2 * least) if judged else None,
        recall_ms=ms["recall"], peers_ms={"polypack-db, of 10,000": theirs["peer"]},
    )  # fmt: skip


def found_of(answers: Sequence[list[str]], right: Sequence[list[str]]) -> float:
    hits = sum(len({*one} & {*other}) for one, other in zip(answers, right, strict=True))
    return hits / sum(map(len, right))


def approximate(graph: Adaptogen, kept: Vectors, queries: Sequence[list[float]]) -> None:
    search = graph.store.projection.vectors.search
    right = [[hit.id for hit in search(query, 10, exact=True)] for query in queries]
    started = time.process_time()
    search(queries[0], 10)
    built = time.process_time() - started
    recall = found_of([[hit.id for hit in search(query, 10)] for query in queries], right)
    ms = harness.measure(
        {
            "clusters": each(lambda query: search(query, 10), queries),
            "exact": each(lambda query: search(query, 10, exact=True), queries),
            "pulse": each(graph.pulse, queries),
            "floor": each(lambda query: floor(kept, query), queries),
        },
        n=len(queries),
        scale=1e3,
    )
    harness.report(
        "M4", f"the ten nearest of {len(kept):,} by clusters", ms["clusters"], "ms", floor=ms["floor"], n=len(kept),
        must=harness.bar("<= 1x, recall >= 0.95", ms["clusters"] <= ms["floor"] and recall >= 0.95),
        moonshot=harness.bar("<= 0.2x, recall >= 0.99", ms["clusters"] <= 0.2 * ms["floor"] and recall >= 0.99),
        recall_at_10=recall, exact_ms=ms["exact"], pulse_ms=ms["pulse"], first_search_s=built,
    )  # fmt: skip


def noise(size: int) -> None:
    """What clusters cannot help: vectors that are near to nothing."""
    kept, queries = vectors(size, topics=0)
    matrix = Matrix(DIMENSIONS)
    matrix.update((i, f"n{i}", kept[i].tobytes()) for i in range(size))

    def nearest(query: list[float], *, exact: bool) -> list[str]:
        hits = matrix.nearest(query, 10, None, None, exact=exact)
        return [hit.id for hit in sorted(hits, key=lambda hit: -hit.similarity)[:10]]

    right = [nearest(query, exact=True) for query in queries]
    recall = found_of([nearest(query, exact=False) for query in queries], right)
    own = sum(
        answer[0] == nearest(query, exact=False)[0] for query, answer in zip(queries, right, strict=True)
    )
    harness.report(
        "M4", f"recall at 10 in noise, {size:,} vectors", recall, "", n=size,
        the_node_that_was_meant=own / len(queries),
    )  # fmt: skip


def main() -> None:
    size = 10_000 if harness.quick() else SIZE
    kept, queries = vectors(size if harness.quick() else TWICE)
    with Adaptogen.open(":memory:", seed=False) as graph:
        graph.set_tunable("snapshotInterval", 0).unwrap()
        remember(graph, kept[:size], 0)
        exact(graph, kept[:size], queries)
        if not harness.quick():
            remember(graph, kept, size)
            approximate(graph, kept, queries)
            noise(SIZE + 10_000)


if __name__ == "__main__":
    main()
