"""What a verdict teaches by contrast, and where a search spreads from."""

from __future__ import annotations

import math

import pytest

from graphstate import Adaptogen
from graphstate.activation.composite import DEFAULT_WEIGHTS, contrasted, taught
from graphstate.verbs.pulsing import ANCHORS

EVEN = {"semantic": 1.0, "lexical": 1.0, "graph": 1.0, "recency": 1.0, "usage": 1.0}


def filled(path: str = ":memory:") -> Adaptogen:
    """Return a graph with a note that answers, and newer ones that share a word less."""
    now = [1_000_000_000]
    graph = Adaptogen.open(path, seed=False, now=lambda: now[0])
    graph.remember("answer", payload={"text": "the build uses ninja"}).unwrap()
    now[0] += 30 * 86_400_000
    for number in range(3):
        graph.remember(f"other{number}", payload={"text": f"the lunch {number} was late"}).unwrap()
    return graph


def test_contrast_moves_weights_by_what_the_useful_one_has_more_of() -> None:
    weights = contrasted(
        {"semantic": 1.0, "lexical": 1.0}, {"semantic": 0.5, "lexical": 0.9}, {"semantic": 0.5, "lexical": 0.1}, rate=0.5
    )  # fmt: skip
    grown = math.exp(0.5 * 0.8)

    assert weights["semantic"] == pytest.approx(2 / (1 + grown))
    assert weights["lexical"] == pytest.approx(2 * grown / (1 + grown))


def test_contrast_keeps_what_is_as_high_in_all_and_stays_in_its_bounds() -> None:
    same = dict.fromkeys(EVEN, 0.7)
    assert contrasted(EVEN, same, same, rate=5) == pytest.approx(EVEN)
    far = contrasted(EVEN, {**same, "lexical": 1.0}, {**same, "lexical": 0.0, "recency": 1.0}, rate=10)
    assert max(far.values()) == 3
    assert min(far.values()) == 0.05


def test_contrast_learns_nothing_from_the_first_and_nothing_from_the_useless() -> None:
    signals, others = {"lexical": 0.9}, {"lexical": 0.1}
    assert taught("contrast", EVEN, signals, useful=True, rate=1) == EVEN
    assert taught("contrast", EVEN, signals, useful=False, rate=1, others=others) == EVEN


def test_a_verdict_by_contrast_is_against_what_was_ranked_before() -> None:
    with filled() as graph:
        graph.set_weights({"recency": 3.0}).unwrap()
        found = graph.pulse("the build")
        assert [hit.id for hit in found.hits][-1] == "answer"
        taught_now = graph.feedback(found.retrieval_id, "answer", True, rule="contrast", rate=1).unwrap()

        assert taught_now.weights["lexical"] > 1 > taught_now.weights["usage"]
        assert taught_now.weights["recency"] < 3
        (row,) = [row for row in graph.store.log.read("graph") if row.type == "memory.feedback"]
        assert b'"others"' in bytes(row.body)
        learned = graph.weights()
        assert graph.verify_integrity(deep=True).ok
        assert graph.weights() == learned


def test_verdicts_by_contrast_bring_the_answer_to_the_top() -> None:
    with filled() as graph:
        graph.set_weights({"recency": 3.0}).unwrap()
        for _ in range(10):
            found = graph.pulse("the build")
            graph.feedback(found.retrieval_id, "answer", True, rule="contrast", rate=1).unwrap()

        assert graph.pulse("the build").hits[0].id == "answer"


def test_a_useless_first_one_does_not_teach_that_fitting_is_bad() -> None:
    with filled() as graph:
        for _ in range(20):
            found = graph.pulse("the build")
            graph.feedback(found.retrieval_id, found.hits[0].id, False, rule="contrast", rate=1).unwrap()

        assert {name: graph.weights()[name] for name in EVEN} == {
            name: DEFAULT_WEIGHTS[name] for name in EVEN
        }


def test_what_fits_less_than_the_best_few_gains_by_its_neighbours_too() -> None:
    with Adaptogen.open(":memory:", seed=False) as graph:
        for number in range(ANCHORS):
            graph.remember(f"best{number}", payload={"text": "kettle kettle"}).unwrap()
        for name in ("near", "far"):
            graph.remember(name, payload={"text": f"a {name} pot beside what is no kettle at all"}).unwrap()
        graph.link("best0", "near", kind="reference", label="see").unwrap()
        hits = {hit.id: hit.signals for hit in graph.pulse("kettle").hits}

        assert hits["near"]["lexical"] == pytest.approx(hits["far"]["lexical"])
        assert hits["near"]["graph"] == pytest.approx(0.5)
        assert hits["far"]["graph"] == 0
        assert hits["best0"]["graph"] == 0
