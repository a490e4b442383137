from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.learning import peer, pictures
from benchmarks.learning.adaptive import AdaptiveMemory, Without, embed
from benchmarks.learning.intervals import Interval
from benchmarks.learning.regret import losses
from benchmarks.learning.streams import Question, make_stream
from benchmarks.learning.systems import BM25, MemorySystem
from benchmarks.learning.trial import Cut, Scores, judge, play

STREAM = make_stream(3, chatter=60, asked=8)
ALL = Cut(most=10)


def scores(memory: MemorySystem, *kinds: str) -> Scores:
    try:
        answers = play(STREAM, memory)
    finally:
        memory.close()
    return judge([one for one in answers if one.question.kind in kinds], STREAM.texts, ALL)


def test_the_adaptive_memory_plays_a_stream_the_same_way_each_time() -> None:
    one, other = AdaptiveMemory(), AdaptiveMemory()
    assert play(STREAM, one) == play(STREAM, other)
    assert one.graph.weights() == other.graph.weights()
    assert one.graph.verify_integrity(deep=True).ok
    for memory in (one, other):
        memory.close()


def test_what_was_superseded_is_never_shown_before_what_replaced_it() -> None:
    assert scores(AdaptiveMemory(), "updated").stale == 0
    assert scores(AdaptiveMemory(Without(succession=True)), "updated").stale > 0.2
    assert scores(BM25(), "updated").stale > 0.2


def test_without_suppression_more_wrong_statements_come_first() -> None:
    kept = scores(AdaptiveMemory(), "retracted").stale
    assert kept < scores(AdaptiveMemory(Without(inhibition=True)), "retracted").stale


def test_feedback_pays_and_survives_a_restart(tmp_path: Path) -> None:
    through = losses(1, rounds=40)
    broken = losses(1, rounds=40, path=tmp_path / "m.db")

    assert broken == through
    assert through.regret[-1] < -0.5
    assert through.weights["lexical"] > 1 > through.weights["recency"]


@pytest.mark.skipif(not peer.installed(), reason="the extra bench is not installed")
def test_the_peer_lives_in_the_time_of_the_stream() -> None:
    memory = peer.Polypack(embed, weights={"recency": 0.0})
    answers = play(STREAM, memory)
    memory.close()

    asked = [op for op in STREAM.operations if isinstance(op, Question)]
    assert [one.question for one in answers] == asked
    assert judge(answers, STREAM.texts, ALL).mrr > 0.1


def test_pictures_are_small_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    line = [Interval(2, 1, 3), Interval(1.5, 1, 2), Interval(1, 1, 1)]
    for name in ("one.png", "other.png"):
        pictures.curves(tmp_path / name, {"a": {"x": line}, "b": {"x": line}}, across="run", up="cost")
    first = (tmp_path / "one.png").read_bytes()

    assert first.startswith(b"\x89PNG")
    assert len(first) < 60_000
    assert (tmp_path / "other.png").read_bytes() == first
