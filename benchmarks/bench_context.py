"""The window: finding passages (D1), adding one (D2), packing sections (D3).

    python benchmarks/bench_context.py [--quick]

The floor of D1 is a dictionary of postings with ready-made scores, written by hand for a
collection that never changes: the scores of a query's words are added up and the ten best are
taken. Peers are timed where they are installed; none is needed. D2 adds a document to a
collection that is there. The floor of D3 is a plain pass over tuples whose costs are known:
pinned sections first, then shares by priority, then items until the share is used up; no caps,
no notes, no report.
"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from agentloop.context.bm25 import Bm25Index, Document
from agentloop.context.packer import ContextBudget, pack
from agentloop.context.sections import Item, Section
from agentloop.context.tokens import PIECEWISE, CountedTexts
from agentloop.messages import Message
from agentloop.outcome import expect
from benchmarks import harness

VOCABULARY = [f"word{number}" for number in range(20_000)]
#: The n-th word is about 1/n as frequent as the first, as in prose.
WEIGHTS = [1 / (rank + 3) for rank in range(len(VOCABULARY))]


def documents(count: int, rng: random.Random) -> list[Document]:
    return [
        Document(f"d{number}", " ".join(rng.choices(VOCABULARY, WEIGHTS, k=rng.randint(20, 100))))
        for number in range(count)
    ]


def queries(count: int, rng: random.Random) -> list[str]:
    """Three words each, drawn as the documents' are."""
    return [" ".join(rng.choices(VOCABULARY, WEIGHTS, k=3)) for _ in range(count)]


# ----------------------------------------------------------------------------------- D1, D2


def ready_postings(texts: Sequence[Document]) -> Mapping[str, Sequence[tuple[int, float]]]:
    split = [document.text.split() for document in texts]
    average = sum(map(len, split)) / len(split)
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, words in enumerate(split):
        for word, times in Counter(words).items():
            found[word].append((number, times))
    ready = {}
    for word, holders in found.items():
        idf = math.log(1 + (len(split) - len(holders) + 0.5) / (len(holders) + 0.5))
        ready[word] = [
            (number, idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(split[number]) / average)))
            for number, times in holders
        ]
    return ready


def by_hand(postings: Mapping[str, Sequence[tuple[int, float]]], query: str) -> list[tuple[int, float]]:
    scores: dict[int, float] = {}
    get = scores.get
    for word in query.split():
        for number, score in postings.get(word, ()):
            scores[number] = get(number, 0.0) + score
    return nlargest(10, scores.items(), key=lambda item: item[1])


def search(count: int) -> None:
    rng = random.Random(count)
    texts, asked = documents(count, rng), queries(20 if harness.quick() else 50, rng)
    index, changing = Bm25Index(), Bm25Index()
    for document in texts:
        index.add(document)
        changing.add(document)
    postings = ready_postings(texts)
    for query in asked:
        ours = [passage.score for passage in index.search(query, 10)]
        theirs = [score for _, score in by_hand(postings, query)]
        assert all(math.isclose(one, other) for one, other in zip(ours, theirs, strict=True)), query
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: [index.search(query, 10) for query in asked],
        "floor": lambda: [by_hand(postings, query) for query in asked],
        "changed": lambda: [_after_a_change(changing, query) for query in asked],
    }
    peers = peers_of(texts, asked)
    taken = harness.measure({**works, **peers}, n=len(asked), scale=1e3)
    ratio = taken["ours"] / taken["floor"]
    harness.report(
        "D1", f"the ten best of {count:,} documents", taken["ours"], "ms", floor=taken["floor"], n=len(asked),
        must=harness.bar("<= 1.5x dict postings", ratio <= 1.5),
        moonshot=harness.bar("<= 0.5x dict postings at 100k", ratio <= 0.5),
        after_a_change=taken["changed"], peers={name: taken[name] for name in peers},
    )  # fmt: skip


def _after_a_change(index: Bm25Index, query: str) -> object:
    index.add(Document("new", query))
    found = index.search(query, 10)
    index.remove("new")
    return found


def peers_of(texts: Sequence[Document], asked: Sequence[str]) -> dict[str, Callable[[], object]]:
    if importlib.util.find_spec("rank_bm25") is None or importlib.util.find_spec("numpy") is None:
        return {}
    from rank_bm25 import BM25Okapi

    peer: Any = BM25Okapi([document.text.split() for document in texts])
    few = list(asked[:5])

    def ask() -> None:
        for query in few * (len(asked) // len(few)):
            peer.get_top_n(query.split(), texts, n=10)

    return {"rank-bm25": ask}


def adding(count: int) -> None:
    rng = random.Random(2)
    index = Bm25Index()
    for document in documents(count, rng):
        index.add(document)
    more = 200 if harness.quick() else 1_000
    new = [Document(f"n{number}", document.text) for number, document in enumerate(documents(more, rng))]

    def add() -> float:
        index.search(new[0].text, 1)  # an add that has scores to forget
        started = harness.CLOCKS["cpu"]()
        for document in new:
            index.add(document)
        elapsed = harness.CLOCKS["cpu"]() - started
        assert index.search(new[-1].text, 1)[0].id == new[-1].id, "visible at once"
        for document in new:
            index.remove(document.id)
        return elapsed

    taken = harness.measure({"ours": add}, n=more)["ours"]
    harness.report(
        "D2", f"add a document of 20 to 100 words to {count:,}", taken, "us", n=more,
        must=harness.bar("<= 150 us", taken <= 150),
        moonshot=harness.bar("<= 80 us, visible at once", taken <= 80),
    )  # fmt: skip


# --------------------------------------------------------------------------------------- D3

SHARES = 1_000
ITEMS = 3


def sections(rng: random.Random) -> list[Section]:
    made = []
    for number in range(SHARES):
        items = [
            Item(
                id=f"{number}.{item}",
                message=Message(role="user", content=" ".join(rng.choices(VOCABULARY, k=20))),
            )
            for item in range(ITEMS)
        ]
        made.append(
            Section(id=f"s{number}", priority=rng.randint(0, 50), pinned=number % 100 == 0, items=items)
        )
    return made


def plain_pass(
    parts: Sequence[tuple[int, str, bool, Sequence[Message]]], costs: Mapping[str, int], usable: int
) -> tuple[list[Message], int]:
    wants = {name: sum([costs[message.content] for message in messages]) for _, name, _, messages in parts}
    pool = usable - sum([wants[name] for _, name, pinned, _ in parts if pinned])
    shares = {}
    ordered = sorted(parts, key=lambda part: (part[0], part[1]))
    for _, name, pinned, _ in ordered:
        shares[name] = wants[name] if pinned else min(wants[name], pool)
        pool -= 0 if pinned else shares[name]
    shown, used = [], 0
    for _, name, _, messages in ordered:
        room = shares[name]
        for message in messages:
            cost = costs[message.content]
            if cost <= room:
                shown.append(message)
                room -= cost
                used += cost
    return shown, used


def _again(rounds: int, work: Callable[[], object]) -> None:
    for _ in range(rounds):
        work()


def packing() -> None:
    rng = random.Random(3)
    made = sections(rng)
    counts = CountedTexts(PIECEWISE)
    total = sum(counts.text(item.message.content) for section in made for item in section.items)
    budget = ContextBudget(total=total * 2 // 3, safety_margin=0.0)
    parts = [
        (int(section.priority), section.id, section.pinned, [item.message for item in section.items])
        for section in made
    ]
    costs = {message.content: counts.text(message.content) for part in parts for message in part[3]}
    packed = expect(pack(made, budget, counts))
    assert packed.tokens >= plain_pass(parts, costs, budget.total)[1]
    counted = counts.counted
    rounds = 5 if harness.quick() else 20
    taken = harness.measure(
        {
            "ours": lambda: _again(rounds, lambda: pack(made, budget, counts)),
            "floor": lambda: _again(rounds, lambda: plain_pass(parts, costs, budget.total)),
            "counting anew": lambda: [pack(made, budget, CountedTexts(PIECEWISE))],
        },
        n=rounds,
        scale=1e3,
    )
    assert counts.counted == counted, "no text was counted twice"
    ratio = taken["ours"] / taken["floor"]
    harness.report(
        "D3", f"pack {SHARES:,} sections of {ITEMS} items with the full report, counts known", taken["ours"], "ms",
        floor=taken["floor"], n=rounds,
        must=harness.bar("<= 3x floor", ratio <= 3),
        moonshot=harness.bar("<= 1.5x floor", ratio <= 1.5),
        counting_anew=taken["counting anew"] * rounds,
    )  # fmt: skip


def main() -> None:
    for count in (10_000,) if harness.quick() else (10_000, 100_000):
        search(count)
    adding(10_000)
    packing()


if __name__ == "__main__":
    main()
