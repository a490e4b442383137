"""Each memory that lacks a part lacks that part alone, and none is told an answer before it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.learning import memory_report
from benchmarks.learning.adaptive import PARTS, AdaptiveMemory, Without, embed
from benchmarks.learning.memory_report import MemoryTrial, judged, match
from benchmarks.learning.streams import Question, Stream, make_stream
from benchmarks.learning.systems import BM25, FullContext, Hit, MemorySystem, Recency, VectorSearch
from benchmarks.learning.trial import (
    Answer,
    Cut,
    Played,
    Priced,
    cheapest_cut,
    chosen_cut,
    play,
    priced,
)

STREAM = make_stream(3, chatter=40, asked=6)
#: What depends on which memories were found useful, and so on what was ranked.
LEARNED = {"memory.feedback", "memory.reinforced"}


def events(without: Without) -> Counter[str]:
    """Return how often each thing was written while the stream was played."""
    memory = AdaptiveMemory(without)
    play(STREAM, memory)
    written = Counter(event.type for event in memory.graph.history(limit=1_000))
    memory.close()
    return written


def told(written: Counter[str]) -> Counter[str]:
    return Counter({name: count for name, count in written.items() if name not in LEARNED})


FULL = events(Without())


@pytest.mark.parametrize(
    ("name", "missing", "added"),
    [
        ("no decay", set(), {"ConfigSet"}),
        ("no spread", set(), set()),
        ("no inhibition", {"memory.suppressed"}, set()),
        ("no feedback", LEARNED, set()),
        ("no succession", {"memory.superseded"}, set()),
    ],
)
def test_what_is_written_without_a_part_differs_in_that_part_alone(
    name: str, missing: set[str], added: set[str]
) -> None:
    written = events(PARTS[name])

    assert set(FULL) - set(written) == missing
    assert set(written) - set(FULL) == added
    common = set(FULL) & set(written)
    assert {key: told(FULL)[key] for key in common} == {key: told(written)[key] for key in common}


def last_search(without: Without) -> tuple[AdaptiveMemory, list[dict[str, float]]]:
    """Play the stream, ask once more, and return the signals of what was found."""
    memory = AdaptiveMemory(without)
    play(STREAM, memory)
    last = next(op for op in reversed(STREAM.operations) if isinstance(op, Question) and op.as_of is None)
    found = memory.graph.pulse(last.text, limit=100, direction="both", depth=0 if without.spread else None)
    return memory, [dict(hit.signals) for hit in found.hits]


def test_without_spread_nothing_has_a_signal_of_the_graph() -> None:
    whole, found = last_search(Without())
    flat, others = last_search(PARTS["no spread"])
    whole.close()
    flat.close()

    assert any(one["graph"] for one in found)
    assert others
    assert not any(one["graph"] for one in others)


def test_without_decay_everything_is_as_new_as_the_newest() -> None:
    whole, found = last_search(Without())
    ageless, others = last_search(PARTS["no decay"])
    whole.close()
    ageless.close()

    assert len({one["recency"] for one in found}) > 10
    assert {one["recency"] for one in others} == {1.0}


def test_without_feedback_weights_stay_as_they_were() -> None:
    whole, untaught = AdaptiveMemory(), AdaptiveMemory(PARTS["no feedback"])
    before = untaught.graph.weights()
    assert whole.graph.weights() == before
    for memory in (whole, untaught):
        play(STREAM, memory)
    after = whole.graph.weights(), untaught.graph.weights()
    for memory in (whole, untaught):
        memory.close()

    assert after[0] != before
    assert after[1] == before


def test_parts_are_taken_from_a_memory_with_the_weights_of_the_full_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights = {"lexical": 2.0}
    monkeypatch.setattr(memory_report, "_taught", lambda streams: weights)
    made = memory_report.systems([], models=False)
    begun = {}
    for name in ("full", *PARTS, "full, new"):
        memory = made[name]()
        assert isinstance(memory, AdaptiveMemory)
        begun[name] = memory.graph.weights()["lexical"]
        memory.close()

    assert begun == {**dict.fromkeys(["full", *PARTS], 2.0), "no feedback": 1.0, "full, new": 1.0}


# --------------------------------------------------------------------------- no answer is told


def unanswered(stream: Stream, *, all_of_them: bool) -> Stream:
    """Return the stream with questions that do not know their answers: all, or the last one."""
    operations = list(stream.operations)
    places = [place for place, op in enumerate(operations) if isinstance(op, Question)]
    for place in places if all_of_them else places[-1:]:
        asked = operations[place]
        assert isinstance(asked, Question)
        operations[place] = replace(
            asked, answer=None, relevant=frozenset(), stale=frozenset(), kind="absent"
        )
    return replace(stream, operations=operations)


def ranked(stream: Stream, make: Callable[[], MemorySystem]) -> list[list[Hit]]:
    memory = make()
    try:
        return [list(answer.hits) for answer in play(stream, memory)]
    finally:
        memory.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: AdaptiveMemory(Without(feedback=True)),
        BM25,
        lambda: BM25(overwrite=True),
        lambda: VectorSearch(embed),
        Recency,
        FullContext,
    ],
    ids=["adaptive without feedback", "bm25", "bm25 that overwrites", "vectors", "recency", "full context"],
)
def test_what_is_ranked_does_not_depend_on_the_answers(make: Callable[[], MemorySystem]) -> None:
    assert ranked(STREAM, make) == ranked(unanswered(STREAM, all_of_them=True), make)


def test_a_memory_that_learns_is_told_an_answer_only_after_its_own() -> None:
    assert ranked(STREAM, AdaptiveMemory) == ranked(unanswered(STREAM, all_of_them=False), AdaptiveMemory)
    assert ranked(STREAM, AdaptiveMemory) != ranked(unanswered(STREAM, all_of_them=True), AdaptiveMemory)


# ------------------------------------------------------------------------------------ pricing

TEXTS = {"a": "one two three four", "b": "five"}


def question(answer: str) -> Question:
    return Question(at=0, kind="single", text="?", answer=answer, relevant=frozenset([answer]))


def test_the_cheapest_cut_is_one_of_those_that_answer_enough() -> None:
    prices = [
        Priced(Cut(most=most), answered, answered, 0.0, tokens)
        for most, answered, tokens in ((1, 0.3, 10.0), (2, 0.5, 14.0), (3, 0.5, 12.0), (5, 0.6, 30.0))
    ]

    assert cheapest_cut(prices, 0.3) == Cut(most=1)
    assert cheapest_cut(prices, 0.4) == Cut(most=3)
    assert cheapest_cut(prices, 0.6) == Cut(most=5)
    assert cheapest_cut(prices, 0.7) is None


def trial(name: str, *orders: str) -> MemoryTrial:
    answers = [Answer(question(order[-1]), [Hit(one, 1.0) for one in order]) for order in orders]
    played: list[Played] = [(answers, TEXTS)] * 3
    prices = priced(played)
    cut = chosen_cut(prices)
    return MemoryTrial(name, cut, judged(played, cut), played, prices)


def test_memories_are_compared_where_they_answer_equally_many() -> None:
    # One shows the answer alone, the other something longer before it.
    short, long = trial("short", "b"), trial("long", "ab")
    found = match(short, long)

    assert found is not None
    assert list(found.answered) == [0.0, 0.0, 0.0]
    assert 0 < found.tokens.value < 0.5
    assert match(long, long) == ((0, 0, 0), (1, 1, 1))
    assert match(short, MemoryTrial("uncut", Cut(most=None), short.scores, short.played)) is None


def test_the_same_seeds_give_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"full": AdaptiveMemory, "BM25": BM25}
    monkeypatch.setattr(memory_report, "systems", lambda before, *, models: chosen)
    once, again = memory_report.run(quick=True), memory_report.run(quick=True)

    assert [(one.name, one.cut, one.scores) for one in once] == [
        (one.name, one.cut, one.scores) for one in again
    ]
    assert memory_report.table(once) == memory_report.table(again)
