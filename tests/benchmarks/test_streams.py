from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.learning.streams import (
    DAY,
    KINDS,
    Connect,
    Question,
    Remember,
    Retract,
    Stream,
    Supersede,
    make_stream,
)
from benchmarks.learning.systems import BM25, FullContext, Hit, MemorySystem, Recency, VectorSearch
from benchmarks.learning.trial import Answer, Cut, chosen_cut, judge, play, priced, window

STREAMS = [make_stream(seed) for seed in range(3)]
streams = pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: str(stream.seed))


def questions(stream: Stream, kind: str) -> list[Question]:
    return [op for op in stream.operations if isinstance(op, Question) and op.kind == kind]


def told(stream: Stream) -> dict[str, Remember]:
    return {op.id: op for op in stream.operations if isinstance(op, Remember)}


def test_a_seed_makes_one_stream() -> None:
    assert make_stream(1) == make_stream(1)
    assert make_stream(1) != make_stream(2)


@streams
def test_everything_happens_in_order_and_is_said_before_it_is_asked_for(stream: Stream) -> None:
    times = [op.at for op in stream.operations]
    assert times == sorted(times)
    known: set[str] = set()
    for op in stream.operations:
        if isinstance(op, Remember):
            assert op.id not in known
            known.add(op.id)
        elif isinstance(op, Supersede):
            assert {op.new, op.old} <= known
        elif isinstance(op, Retract):
            assert op.id in known
        elif isinstance(op, Connect):
            assert {op.source, op.target} <= known
        else:
            assert op.relevant | op.stale <= known
    assert Counter(op.kind for op in stream.operations if isinstance(op, Question)) == dict.fromkeys(
        KINDS, 12
    )


@streams
def test_the_answer_to_what_was_replaced_is_what_replaces_it(stream: Stream) -> None:
    replaced = {op.old: op.new for op in stream.operations if isinstance(op, Supersede)}
    for question in questions(stream, "updated"):
        assert question.answer not in replaced
        assert question.stale
        for old in question.stale:
            newest = old
            while newest in replaced:
                newest = replaced[newest]
            assert newest == question.answer


@streams
def test_what_held_then_had_been_said_and_was_replaced_later(stream: Stream) -> None:
    replaced = {op.old: op.at for op in stream.operations if isinstance(op, Supersede)}
    for question in questions(stream, "as_of"):
        assert question.answer is not None
        assert question.as_of is not None
        assert told(stream)[question.answer].at <= question.as_of < replaced[question.answer] <= question.at


@streams
def test_nobody_says_that_an_unmarked_fact_was_replaced(stream: Stream) -> None:
    marked = {one for op in stream.operations if isinstance(op, Supersede) for one in (op.new, op.old)}
    for question in questions(stream, "unmarked"):
        assert question.answer is not None
        assert not marked & {question.answer, *question.stale}
        assert all(told(stream)[old].at < told(stream)[question.answer].at for old in question.stale)


@streams
def test_a_hop_is_answered_by_what_does_not_name_what_is_asked_about(stream: Stream) -> None:
    facts = told(stream)
    links = {(op.source, op.target) for op in stream.operations if isinstance(op, Connect)}
    for question in questions(stream, "hops"):
        assert question.answer is not None
        (bridge,) = question.relevant - {question.answer}
        assert (bridge, question.answer) in links
        assert set(facts[bridge].about) & set(facts[question.answer].about)
        asked = [name for name in facts[bridge].about if name.removeprefix("e:") in question.text.split()]
        assert len(asked) == 1
        assert asked[0].removeprefix("e:") not in facts[question.answer].text.split()


@streams
def test_what_was_called_wrong_is_newer_and_was_called_so_within_two_days(stream: Stream) -> None:
    called = {op.id: op.at for op in stream.operations if isinstance(op, Retract)}
    for question in questions(stream, "retracted"):
        assert question.answer is not None
        (mistake,) = question.stale
        assert 0 < question.at - called[mistake] <= 2 * DAY
        assert told(stream)[question.answer].at < told(stream)[mistake].at


@streams
def test_what_is_absent_was_never_said(stream: Stream) -> None:
    keys = {
        tuple(sorted(question.text.split())) for kind in ("single", "updated") for question in questions(stream, kind)
    }  # fmt: skip
    for question in questions(stream, "absent"):
        assert (question.answer, question.relevant) == (None, frozenset())
        assert tuple(sorted(question.text.split())) not in keys


# ----------------------------------------------------------------------------------- judging


def ask(kind: str, answer: str | None, *stale: str) -> Question:
    relevant = frozenset() if answer is None else frozenset([answer])
    return Question(
        at=0, kind=kind, text="?", answer=answer, relevant=relevant, stale=frozenset(stale)  # type: ignore[arg-type]
    )  # fmt: skip


TEXTS = {"new": "one two", "old": "three four five", "other": "six"}


def test_scores_of_three_answers_by_hand() -> None:
    answers = [
        Answer(ask("updated", "new", "old"), [Hit("other", 3), Hit("old", 2), Hit("new", 1)]),
        Answer(ask("single", "new"), [Hit("new", 4)]),
        Answer(ask("absent", None), []),
    ]
    cost = {name: judge([Answer(ask("single", name), [Hit(name, 1)])], TEXTS, Cut()).tokens for name in TEXTS}
    scores = judge(answers, TEXTS, Cut())

    assert scores.right == {"single": 1, "updated": 0, "absent": 1}
    assert scores.answered == 0.5
    assert (scores.recall, scores.stale, scores.abstained, scores.silent) == (1, 1, 1, 0)
    assert scores.mrr == pytest.approx((1 / 3 + 1) / 2)
    assert scores.ndcg == pytest.approx((0.5 + 1) / 2)
    spent = 2 * cost["new"] + cost["old"] + cost["other"]
    assert (scores.spent, scores.answers) == (spent, 1)
    assert scores.useful_tokens == pytest.approx(2 * cost["new"] / spent)


def test_a_window_is_cut_below_its_floor_and_below_a_share_of_the_best() -> None:
    hits = [Hit("a", 10), Hit("b", 6), Hit("c", 4)]

    assert window(hits, Cut()) == ["a", "b", "c"]
    assert window(hits, Cut(share=0.5)) == ["a", "b"]
    assert window(hits, Cut(floor=7)) == ["a"]
    assert window(hits, Cut(floor=11)) == []
    assert window(hits, Cut(most=1)) == ["a"]
    assert window([], Cut()) == []


def test_a_cut_is_chosen_that_shows_nothing_where_nothing_answers() -> None:
    answers = [
        Answer(ask("single", "new"), [Hit("new", 5), Hit("other", 1)]),
        Answer(ask("single", "old"), [Hit("old", 4), Hit("other", 1)]),
        Answer(ask("absent", None), [Hit("other", 2)]),
    ]
    cut = chosen_cut(priced([(answers, TEXTS)]))

    assert [window(answer.hits, cut) for answer in answers] == [["new"], ["old"], []]


# ------------------------------------------------------------------------------ plain memories


def letters(text: str) -> list[float]:
    counts = [float(text.count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]
    length = sum(count * count for count in counts) ** 0.5 or 1.0
    return [count / length for count in counts]


SMALL = Stream(
    seed=0,
    operations=[
        Remember(at=1, id="x", text="the port of nova is 80"),
        Remember(at=2, id="y", text="the port of nova is 443"),
        Remember(at=2, id="e", text="nova, a service", memory_class="entity"),
        Supersede(at=2, new="y", old="x"),
        Remember(at=3, id="z", text="lunch was late"),
        Question(at=4, kind="updated", text="port of nova", answer="y", stale=frozenset("x")),
        Question(at=5, kind="as_of", text="port of nova", answer="x", stale=frozenset("y"), as_of=1),
    ],
)


@pytest.mark.parametrize(
    ("system", "now", "then"),
    [
        (Recency(), ["z", "y"], ["x"]),
        (FullContext(), ["z", "y", "x"], ["x"]),
        (BM25(), ["y", "x"], ["x"]),
        (BM25(overwrite=True), ["y"], []),
        (VectorSearch(letters), ["y", "x"], ["x"]),
        (VectorSearch(letters, overwrite=True), ["y", "z"], []),
    ],
    ids=["recency", "full context", "bm25", "bm25 that overwrites", "vectors", "vectors that overwrite"],
)
def test_plain_memories_rank_what_they_keep(system: MemorySystem, now: list[str], then: list[str]) -> None:
    answers = play(SMALL, system, limit=2)

    assert [[hit.id for hit in answer.hits] for answer in answers] == [now, then]
