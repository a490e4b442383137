"""The memory when it is asked: a window with diversity (M1), and a search by words, meaning and edges.

    python benchmarks/bench_recollection.py [--quick]

Nodes of ten words each, drawn so that a few are very common, with vectors of 64 numbers around a
hundred topics, one edge each, and every fifth reinforced. The floor of a window is what any such
choice has to do: read the best 64 of an index, take their vectors out of a matrix, and choose ten
greedily with numpy. The floor of a search is one full-text query for its two rarest words and one
product of all vectors with the query. Both are written by hand over tables of their own. Up to 10,000
nodes `polypack-db` is asked the same, by meaning only: it has no words.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks import harness
from benchmarks.memory_floors import Peer
from graphstate.adaptogen import Adaptogen

SIZES = (1_000, 10_000, 100_000)
DIMENSIONS, TOPICS, WORDS = 64, 100, 20_000
PLACES, POOL, SEEDS = 10, 64, 50
CALLS = 20


class Corpus:
    """Texts, vectors, edges and scores of so many nodes, the same for every run."""

    def __init__(self, size: int) -> None:
        rand, draw = random.Random(size), np.random.default_rng(size)
        centres = draw.normal(size=(TOPICS, DIMENSIONS))
        noisy = centres[draw.integers(0, TOPICS, size)] + 0.7 * draw.normal(size=(size, DIMENSIONS))
        self.vectors = (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)
        self.texts = [
            " ".join(f"w{min(WORDS, int(rand.paretovariate(0.8)))}" for _ in range(10)) for _ in range(size)
        ]
        self.links = [(i, rand.randrange(i)) for i in range(1, size)]
        self.scores = {i: rand.random() for i in range(0, size, 5)}

    def queries(self) -> list[tuple[str, list[float]]]:
        """Two words of a node and the two most common ones, with the node's vector."""
        step = max(1, len(self.texts) // CALLS)
        found = []
        for node in range(0, step * CALLS, step):
            rarest = sorted(self.texts[node].split(), key=lambda word: -int(word[1:]))[:2]
            found.append((" ".join([*rarest, "w1", "w2"]), self.vectors[node].tolist()))
        return found


def graph_of(corpus: Corpus) -> Adaptogen:
    graph = Adaptogen.open(":memory:", seed=False)
    size = len(corpus.texts)
    for start in range(0, size, 2_000):
        with graph.unit():
            for i in range(start, min(size, start + 2_000)):
                payload = {"text": corpus.texts[i]}
                graph.remember(
                    f"n{i}", kind="fact", payload=payload, embedding=corpus.vectors[i].tolist()
                ).unwrap()
                if i in corpus.scores:
                    graph.reinforce(f"n{i}", corpus.scores[i]).unwrap()
    for start in range(0, len(corpus.links), 2_000):
        with graph.unit():
            for src, dst in corpus.links[start : start + 2_000]:
                graph.link(f"n{src}", f"n{dst}", kind="reference", label="about").unwrap()
    return graph


class Floor:
    """The least that answers the same questions."""

    def __init__(self, corpus: Corpus) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE TABLE score (node INTEGER PRIMARY KEY, score REAL)")
        self._db.execute("CREATE INDEX by_score ON score (score DESC)")
        self._db.execute("CREATE TABLE payload (node INTEGER PRIMARY KEY, text TEXT)")
        self._db.execute("CREATE VIRTUAL TABLE words USING fts5(text, content='')")
        self._db.executemany("INSERT INTO score VALUES (?, ?)", corpus.scores.items())
        self._db.executemany("INSERT INTO payload VALUES (?, ?)", enumerate(corpus.texts))
        self._db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", enumerate(corpus.texts, 1))
        self._vectors = corpus.vectors

    def window(self) -> list[Any]:
        rows = self._db.execute(
            "SELECT node, score FROM score ORDER BY score DESC LIMIT ?", (POOL,)
        ).fetchall()
        scores, vectors = np.array([score for _, score in rows]), self._vectors[[node for node, _ in rows]]
        likest, chosen = np.zeros(len(rows)), list[int]()
        for _ in range(min(PLACES, len(rows))):
            value = 0.5 * scores - 0.5 * likest
            value[chosen] = -np.inf
            best = int(np.argmax(value))
            likeness = vectors @ vectors[best]
            likest = likeness if not chosen else np.maximum(likest, likeness)
            chosen.append(best)
        nodes = ",".join(str(rows[place][0]) for place in chosen)
        return self._db.execute(f"SELECT text FROM payload WHERE node IN ({nodes})").fetchall()

    def search(self, text: str, vector: list[float]) -> Any:
        match = " OR ".join(text.split()[:2])
        rows = self._db.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (match, SEEDS)
        ).fetchall()
        near = self._vectors @ np.array(vector, dtype=np.float32)
        return rows, np.argpartition(near, -SEEDS)[-SEEDS:]


def _each(calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run


def peers(work: Callable[[], object] | None) -> dict[str, float]:
    """What the published package takes, in milliseconds; it is asked twice."""
    if work is None:
        return {}
    taken = harness.measure({"theirs": _each([work] * 2)}, n=2, rounds=3, scale=1e3)
    return {"polypack_db": taken["theirs"]}


def windows(graph: Adaptogen, floor: Floor, peer: Peer | None, size: int) -> None:
    full = partial(graph.working_memory, limit=PLACES, diversity=0.5, token_budget=2_000)
    taken = harness.measure(
        {
            "ours": _each([full] * CALLS),
            "plain": _each([partial(graph.working_memory, limit=PLACES)] * CALLS),
            "floor": _each([floor.window] * CALLS),
        },
        n=CALLS,
        scale=1e3,
    )
    harness.report(
        "M1", f"window of {PLACES} with diversity and a budget, of {size:,} nodes", taken["ours"], "ms", n=size,
        floor=taken["floor"], plain=taken["plain"],
        **peers(None if peer is None else partial(peer.engine.working_memory, limit=PLACES, diversity_lambda=0.5, token_budget=2_000)),
        must=harness.bar("<= 50 ms", taken["ours"] <= 50),
        moonshot=harness.bar("<= 5 ms", taken["ours"] <= 5),
    )  # fmt: skip


def searches(graph: Adaptogen, floor: Floor, peer: Peer | None, corpus: Corpus, size: int) -> None:
    queries = corpus.queries()
    taken = harness.measure(
        {
            "ours": _each([partial(graph.pulse, text, vector=vector) for text, vector in queries]),
            "meaning": _each([partial(graph.pulse, vector) for _, vector in queries]),
            "words": _each([partial(graph.pulse, text) for text, _ in queries]),
            "floor": _each([partial(floor.search, *query) for query in queries]),
        },
        n=CALLS,
        scale=1e3,
    )
    harness.report(
        "M2", f"pulse by words, meaning and edges, of {size:,} nodes", taken["ours"], "ms", n=size,
        floor=taken["floor"], by_words_alone=taken["words"], by_meaning_alone=taken["meaning"],
        **peers(None if peer is None else partial(peer.engine.pulse, queries[0][1], top_k=SEEDS)),
        must=harness.bar("<= 3x", taken["ours"] <= 3 * taken["floor"]),
        moonshot=harness.bar("<= 1.5x", taken["ours"] <= 1.5 * taken["floor"]),
    )  # fmt: skip


def main() -> None:
    for size in SIZES[:2] if harness.quick() else SIZES:
        corpus = Corpus(size)
        floor, peer = Floor(corpus), Peer(size, vectors=corpus.vectors.tolist()) if size <= SIZES[1] else None
        with graph_of(corpus) as graph:
            windows(graph, floor, peer, size)
            if size > SIZES[0]:
                searches(graph, floor, peer, corpus, size)


if __name__ == "__main__":
    main()
