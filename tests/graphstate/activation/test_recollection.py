"""Searches, windows and verdicts on a graph: what they find, what they keep, what can be replayed."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, HashingEmbedder, Ok, VerbFailed
from graphstate.activation.embedding import Descriptor
from graphstate.events import GRAPH
from graphstate.store.retrievals import KEPT
from tests.graphstate.activation.test_recollection_vectors import DAY, NOW, Clock, clock, ids, scores
from tests.graphstate.bundles import bundle_of, live, taken_in
from tests.graphstate.conftest import Make

__all__ = ("clock",)

HOUR = 3_600_000


def notes(make: Make, clock: Clock, **texts: str) -> Adaptogen:
    graph = make(now=clock)
    for node, text in texts.items():
        graph.remember(node, kind="fact", payload={"text": text}).unwrap()
    return graph


def code(result: object) -> str:
    assert isinstance(result, Fail), result
    return result.code


# ------------------------------------------------------------------------------ searching


def test_gap_27_words_find_what_has_them_whatever_stands_around_them(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="The build uses ninja.", b="The build uses make!", c="Tea is ready")
    found = graph.pulse("Ninja, build?")
    assert ids(found) == ["a", "b"]
    lexical = {hit.id: hit.signals["lexical"] for hit in found.hits}
    assert lexical["a"] == 1.0
    assert 0 < lexical["b"] < 0.5
    assert "semantic" not in found.hits[0].signals
    assert graph.pulse("?!").hits == ()


def test_gap_27_words_are_found_without_the_index_too(make: Make, clock: Clock) -> None:
    graph = make(now=clock, fts=False)
    for node, text in {"a": "the build uses ninja", "b": "the build uses make"}.items():
        graph.remember(node, payload={"text": text}).unwrap()
    found = graph.pulse("build ninja")
    assert {hit.id: hit.signals["lexical"] for hit in found.hits} == {"a": 1.0, "b": 0.5}


def test_text_is_searched_by_words_and_meaning_where_there_is_an_embedder(make: Make, clock: Clock) -> None:
    graph = make(now=clock, embedder="hashing")
    graph.remember("a", payload={"text": "vector search"}).unwrap()
    (hit,) = graph.pulse("vector").hits
    assert set(hit.signals) == {"semantic", "lexical", "graph", "recency", "usage"}
    assert hit.signals["semantic"] == pytest.approx(2**-0.5, abs=1e-6)
    assert hit.score == pytest.approx((2**-0.5 + 1 + 0 + 1 + 0) / 5, abs=1e-6)


def test_a_vector_brought_along_saves_the_embedder(make: Make, clock: Clock) -> None:
    graph = make(now=clock)
    graph.remember("a", payload={"text": "tea"}, embedding=[1, 0]).unwrap()
    (hit,) = graph.pulse("tea", vector=[1, 0]).hits
    assert (hit.signals["semantic"], hit.signals["lexical"]) == (1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": 9}, {"decay": 1.5}, {"fan_beta": 2}, {"seeds": 0}, {"limit": -1}, {"scope": ""}, {"gamma": -1},
        {"direction": "up"}, {"edge_types": "about"}, {"edge_types": {"about": 2}}, {"vector": [1, 2]},
        {"query": [1, 2, 3]}, {"query": []}, {"context": "\n"}, {"as_of": 1.5},
    ],
)  # fmt: skip
def test_v46_what_cannot_be_searched_for_is_refused(make: Make, clock: Clock, wrong: dict[str, Any]) -> None:
    graph = make(now=clock)
    graph.remember("a", embedding=[1, 0]).unwrap()
    options: dict[str, Any] = {"query": [1, 0]} | wrong
    with pytest.raises(VerbFailed) as raised:
        graph.pulse(**options)
    assert raised.value.code in ("InvalidInput", "EmbeddingMismatch")


def test_equal_scores_are_in_the_order_of_ids(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, z="tea", y="tea", x="tea")
    assert ids(graph.pulse("tea")) == ["x", "y", "z"]
    assert ids(graph.pulse("tea", limit=2)) == ["x", "y"]
    assert graph.pulse("tea", limit=2).found == 3


def test_edges_are_followed_backwards_if_asked(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="cup", c="pot")
    graph.link("b", "a", kind="reference", label="holds").unwrap()
    graph.link("a", "c", kind="dependency").unwrap()
    assert ids(graph.pulse("tea", direction="in")) == ["a", "b"]
    assert ids(graph.pulse("tea", direction="out")) == ["a", "c"]
    assert set(ids(graph.pulse("tea", direction="both"))) == {"a", "b", "c"}
    assert ids(graph.pulse("tea", edge_types=["dependency"])) == ["a", "c"]


def test_gap_05_a_suppressed_memory_receives_and_passes_nothing_on(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="cup", c="pot")
    graph.link("a", "b", kind="reference").unwrap()
    graph.link("b", "c", kind="reference").unwrap()
    assert ids(graph.pulse("tea")) == ["a", "b", "c"]
    graph.suppress("b", 0.6).unwrap()
    assert ids(graph.pulse("tea")) == ["a", "b"]
    clock.ms += 12 * HOUR  # 0.3 of it is left
    assert ids(graph.pulse("tea")) == ["a", "b", "c"]


def test_what_is_set_aside_is_not_found(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="tea", c="tea")
    graph.archive("a").unwrap()
    graph.deprecate("b").unwrap()
    assert ids(graph.pulse("tea")) == ["c"]


def test_gap_09_a_superseded_memory_is_found_only_if_asked_and_its_successor_by_it(
    make: Make, clock: Clock
) -> None:
    graph = notes(make, clock, old="the build uses make", new="ninja is used")
    clock.ms += HOUR
    graph.supersede("new", "old").unwrap()
    found = graph.pulse("make build")
    assert ids(found) == ["new"]  # by the edge superseded_by
    shown = graph.pulse("make build", include_superseded=True)
    assert {hit.id: hit.superseded_by for hit in shown.hits} == {"old": "new", "new": None}
    then = graph.pulse("make build", as_of=NOW)
    assert ids(then)[0] == "old"
    graph.unsupersede("old").unwrap()
    assert ids(graph.pulse("make build"))[0] == "old"


def test_as_of_leaves_out_what_was_not_known_yet(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea")
    clock.ms += HOUR
    graph.remember("b", payload={"text": "tea"}).unwrap()
    graph.remember("c", payload={"text": "tea"}, memory={"observed_at": NOW - DAY}).unwrap()
    assert set(ids(graph.pulse("tea", as_of=NOW))) == {"a", "c"}


def test_gap_10_a_suppressed_source_is_found_as_its_consolidation(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea at four", b="tea at five", c="tea")
    graph.consolidate("s", ["a", "b"], payload={"text": "afternoon habits"}).unwrap()
    found = graph.pulse("tea four")
    assert set(ids(found)) == {"s", "c"}
    (summary,) = (hit for hit in found.hits if hit.id == "s")
    assert set(summary.stands_for) == {"a", "b"}
    assert summary.signals["lexical"] == 1.0
    assert summary.signals["graph"] == 0
    graph.release("a").unwrap()
    assert set(ids(graph.pulse("tea four"))) == {"a", "s", "c"}


def test_gap_28_confidence_decides_between_equals(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="tea")
    graph.remember("a", memory={"confidence": 0.5}).unwrap()
    found = graph.pulse("tea")
    assert ids(found) == ["b", "a"]
    assert scores(found)["a"] == pytest.approx(scores(found)["b"] / 2)
    assert ids(graph.pulse("tea", gamma=0)) == ["a", "b"]


def test_gap_28_a_hit_tells_who_said_it(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea")
    graph.as_actor("robot", trust="tool").remember(
        "b", payload={"text": "tea"}, memory={"source": "a page"}
    ).unwrap()
    told = {hit.id: (hit.trust, hit.source) for hit in graph.pulse("tea").hits}
    assert told == {"a": ("developer", None), "b": ("tool", "a page")}


def test_inhibition_counts_if_it_has_a_weight(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="tea")
    graph.suppress("a", 0.2).unwrap()
    assert ids(graph.pulse("tea")) == ["a", "b"]
    graph.set_weights({"inhibition": 1}).unwrap()
    found = graph.pulse("tea")
    assert ids(found) == ["b", "a"]
    assert scores(found)["b"] - scores(found)["a"] == pytest.approx(0.2)


def test_a_context_is_a_lens_on_usage(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="tea")
    graph.reinforce("a", 10).unwrap()
    graph.reinforce("b", 4, context="x").unwrap()
    assert ids(graph.pulse("tea")) == ["a", "b"]
    found = graph.pulse("tea", context="x")
    assert ids(found) == ["b", "a"]
    assert {hit.id: hit.signals["usage"] for hit in found.hits} == pytest.approx({"b": 0.2, "a": 0})


def test_searching_changes_nothing(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="tea")
    graph.reinforce("a", 0.5).unwrap()
    before = (graph.head(), live(graph))
    for _ in range(3):
        graph.pulse("tea", log=True)
        graph.working_memory(log=True)
        graph.recognise({"text": "tea"})
        graph.explain("a")
        graph.weights(scope="me")
    assert (graph.head(), live(graph)) == before


# ------------------------------------------------------------------------------ absorbing


def test_gap_07_reading_reinforces_nothing_and_absorbing_is_bounded(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, **{f"n{i:02}": "tea" for i in range(30)})
    assert len(graph.absorb("tea").unwrap().amounts) == 20
    assert len(graph.absorb("tea", limit=3).unwrap().amounts) == 3
    capped = graph.absorb("tea", gain=1, most=0.5).unwrap().amounts
    assert sum(capped.values()) == pytest.approx(0.5)


def test_gap_07_being_new_is_no_reason_to_be_absorbed(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="cup", c="pot")
    graph.link("a", "b", kind="reference").unwrap()
    graph.link("b", "c", kind="reference").unwrap()
    graph.set_tunable("absorbThreshold", 0).unwrap()
    found = graph.absorb("tea").unwrap()
    assert ids(found.pulse) == ["a", "b", "c"]
    assert set(found.amounts) == {"a", "b", "c"}
    assert set(graph.absorb("tea", min_graph=0.3).unwrap().amounts) == {"a", "b"}
    graph.suppress("a", 0.6).unwrap()
    assert set(graph.absorb("tea", min_graph=0.3).unwrap().amounts) == set()


def test_gap_07_who_is_present_already_gains_less(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea")
    gains = [graph.absorb("tea", habituate=True).unwrap().amounts["a"] for _ in range(5)]
    assert gains == sorted(gains, reverse=True)
    assert gains[4] < gains[0] / 2


def test_absorbing_is_one_unit_and_happens_once_for_a_cause(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="tea")
    first = graph.absorb("tea", context="x", cause="turn-1")
    again = graph.absorb("tea", context="x", cause="turn-1")
    assert again.unwrap() == first.unwrap()
    assert isinstance(again, Ok)
    assert again.repeated
    state = graph.activation("a")
    assert state is not None
    assert state.contexts == {"x": state.score}
    assert state.reinforcement_count == 1


def test_absorbing_nothing_writes_nothing(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea")
    head = graph.head()
    assert graph.absorb("coffee").unwrap().amounts == {}
    assert graph.head() == head


# ------------------------------------------------------------------------------ windows


def test_a_window_says_why_each_memory_is_in_it(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="one", b="two", c="three")
    graph.reinforce("a", 0.9).unwrap()
    graph.reinforce("b", 0.5).unwrap()
    graph.suppress("a", 0.2).unwrap()
    graph.bump_attention("b", 0.04).unwrap()
    window = graph.working_memory(limit=2, pinned=["c"], token_budget=100)
    first, second = window.items
    assert (first.id, first.decision, first.effective) == ("c", "pinned", 0)
    assert (second.id, second.decision) == ("a", "chosen")
    assert (second.base, second.inhibition, second.effective) == pytest.approx((0.9, 0.2, 0.7))
    assert second.node is not None
    assert second.node.payload == {"text": "one"}
    (third,) = graph.working_memory(limit=1, pinned=["b"]).items
    assert (third.attention, third.effective) == pytest.approx((0.04, 0.54))


def test_gap_04_what_does_not_fit_is_reported_and_the_rest_still_comes(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="a long story " * 30, b="short", c="brief")
    for node, amount in (("a", 0.9), ("b", 0.5), ("c", 0.1)):
        graph.reinforce(node, amount).unwrap()
    window = graph.working_memory(token_budget=40)
    assert [item.id for item in window.items] == ["b", "c"]
    assert [(item.id, item.decision, item.node) for item in window.skipped] == [("a", "too dear", None)]
    assert window.budget_used <= 40


def test_a_window_says_nothing_twice(make: Make, clock: Clock) -> None:
    graph = make(now=clock, embedder="hashing")
    for node, text, amount in (("a", "tea at four", 0.9), ("b", "tea at four", 0.8), ("c", "rain", 0.3)):
        graph.remember(node, payload={"text": text}).unwrap()
        graph.reinforce(node, amount).unwrap()
    assert [item.id for item in graph.working_memory(limit=2).items] == ["a", "b"]
    window = graph.working_memory(limit=2, diversity=0.5)
    assert [item.id for item in window.items] == ["a", "c"]
    other = graph.working_memory(
        limit=2, diversity=0.5, similarity_of=lambda one, two: float("c" in (one.id, two.id))
    )
    assert [item.id for item in other.items] == ["a", "b"]


def test_gap_16_among_memories_that_are_wholly_present_the_more_needed_comes_first(
    make: Make, clock: Clock
) -> None:
    graph = notes(make, clock, a="one", b="two")
    graph.reinforce("a", 1).unwrap()
    graph.reinforce("b", 5).unwrap()
    for options in ({}, {"diversity": 0.2}, {"token_budget": 100}):
        window = graph.working_memory(**options)
        assert [(item.id, item.effective) for item in window.items] == [("b", 1), ("a", 1)]


def test_superseded_memories_stay_out_of_windows(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="one", b="two")
    graph.reinforce("a", 0.8).unwrap()
    graph.supersede("b", "a").unwrap()
    assert [item.id for item in graph.working_memory().items] == ["b"]
    shown = graph.working_memory(include_superseded=True)
    assert [(item.id, item.superseded) for item in shown.items] == [("a", True), ("b", False)]


# ------------------------------------------------------------------------------ verdicts


def test_gap_12_weights_are_learned_by_scope_and_survive_a_restart(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, seed=False, now=clock) as graph:
        graph.remember("a", payload={"text": "tea"}).unwrap()
        found = graph.pulse("tea", scope="agent-1")
        graph.feedback(found.retrieval_id, "a", True).unwrap()
        learned = graph.weights(scope="agent-1")
        assert learned["lexical"] > 1
        assert graph.weights()["lexical"] == graph.weights(scope="agent-2")["lexical"] == 1
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.weights(scope="agent-1") == learned
        assert graph.pulse("tea", scope="agent-1").weights == learned


def test_gap_12_what_others_search_for_does_not_change_a_verdict(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="coffee tea")
    found = graph.pulse("tea")
    graph.pulse("coffee")
    graph.feedback(found.retrieval_id, "b", True).unwrap()
    entry = graph.history(limit=1)[0]
    (hit,) = (hit for hit in found.hits if hit.id == "b")
    assert isinstance(entry.payload, dict)
    assert entry.payload["signals"] == pytest.approx(dict(hit.signals))


def test_a_second_verdict_changes_nothing(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea")
    found = graph.pulse("tea")
    first = graph.feedback(found.retrieval_id, "a", True)
    head = graph.head()
    again = graph.feedback(found.retrieval_id, "a", False)
    assert again.unwrap() == first.unwrap()
    assert graph.head() == head
    state = graph.activation("a")
    assert state is not None
    assert (state.useful, state.harmful, state.reinforcement_count, state.score) == (1, 0, 0, 0)


def test_a_search_that_is_forgotten_needs_its_signals(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="rain")
    assert code(graph.feedback("R-unknown", "a", True)) == "NotFound"
    found = graph.pulse("tea")
    assert code(graph.feedback(found.retrieval_id, "b", True)) == "NotFound"
    assert graph.feedback("R-unknown", "a", True, signals={"lexical": 1, "recency": 0}).ok
    for wrong in ({}, {"novelty": 1}, {"lexical": 2}, {"lexical": True}):
        assert code(graph.feedback("R-other", "a", True, signals=wrong)) == "InvalidInput"
    truth: Any = 1
    assert code(graph.feedback("R-other", "a", truth, signals={"lexical": 1})) == "InvalidInput"


def test_a_window_takes_verdicts_too(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea")
    graph.reinforce("a", 4).unwrap()
    window = graph.working_memory(scope="me")
    taught = graph.feedback(window.retrieval_id, "a", True).unwrap()
    assert taught.scope == "me"
    assert taught.weights["recency"] > 1 > taught.weights["usage"]
    assert graph.weights()["recency"] == 1


def test_gap_30_the_file_remembers_the_newest_searches_that_asked_for_it(
    tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, seed=False, now=clock) as graph:
        graph.remember("a", payload={"text": "tea"}).unwrap()
        with graph.unit():
            logged = [graph.pulse("tea", log=True).retrieval_id for _ in range(KEPT + 5)]
        quiet = graph.pulse("tea").retrieval_id
    with Adaptogen.open(path, seed=False, now=clock) as graph:
        assert (
            code(graph.feedback(quiet, "a", True)) == code(graph.feedback(logged[4], "a", True)) == "NotFound"
        )
        assert graph.feedback(logged[5], "a", True).ok
        assert graph.verify_integrity(deep=True).ok
    with Adaptogen.open(path, seed=False, read_only=True) as graph:
        found = graph.pulse("tea", log=True)
        assert ids(found) == ["a"]
        explained = graph.explain("a")
        assert found.retrieval_id not in [shown.retrieval_id for shown in explained.showings]


def test_gap_30_explain_tells_what_a_memory_is_worth_and_when_it_was_shown(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="more tea")
    graph.remember("a", memory={"confidence": 0.7, "source": "a person"}).unwrap()
    graph.reinforce("a", 0.5, context="x").unwrap()
    found = graph.pulse("tea", log=True)
    graph.feedback(found.retrieval_id, "a", False).unwrap()
    graph.supersede("b", "a").unwrap()
    why = graph.explain("a")
    assert (why.state.score, why.state.effective, why.state.harmful, why.state.usefulness) == (
        0.5,
        0,
        1,
        1 / 3,
    )
    assert why.state.memory_class == "semantic"
    assert (why.score_half_life_ms, why.importance_half_life_ms) == (7 * DAY, 90 * DAY)
    assert why.memory is not None
    assert (why.memory.confidence, why.memory.source) == (0.7, "a person")
    assert (why.superseded_by, why.valid_to) == (("b",), NOW)
    ((shown),) = why.showings
    assert (shown.retrieval_id, shown.place, shown.useful) == (
        found.retrieval_id,
        ids(found).index("a") + 1,
        False,
    )
    assert shown.signals == pytest.approx(dict(found.hits[shown.place - 1].signals))
    with pytest.raises(VerbFailed, match="there is no node 'ghost'"):
        graph.explain("ghost")


def test_gap_17_spaced_use_is_kept_better_than_massed_use(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, massed="tea", spaced="rain")
    for day in range(10):
        clock.ms = NOW + day * DAY
        graph.reinforce("spaced", 0.1).unwrap()
        if day == 0:
            for _ in range(10):
                graph.reinforce("massed", 0.1).unwrap()
    massed, spaced = graph.explain("massed"), graph.explain("spaced")
    assert spaced.retention > massed.retention


# ------------------------------------------------------------------------------ recognising


def test_gap_29_the_same_content_is_known(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="The build uses ninja.", b="The build uses make.")
    known = graph.recognise({"text": "The build uses ninja."}, kind="fact")
    assert (known.known_as, known.by, known.similarity) == ("a", "content", 1)
    assert graph.recognise({"text": "The build uses ninja."}, kind="task").known_as is None
    other = graph.recognise({"text": "The build uses bazel."})
    assert other.known_as is None
    assert {like.id: like.by for like in other.resembles} == {"a": "words", "b": "words"}
    assert graph.recognise({"text": "rain"}).resembles == ()


def test_gap_29_the_same_meaning_is_known(make: Make, clock: Clock) -> None:
    graph = make(now=clock)
    graph.remember("a", payload={"text": "tea"}, embedding=[1, 0.1]).unwrap()
    graph.remember("b", payload={"text": "rain"}, embedding=[1, 1]).unwrap()
    known = graph.recognise({"text": "hot drink"}, vector=[1, 0.15])
    assert (known.known_as, known.by) == ("a", "meaning")
    assert known.similarity >= 0.97
    other = graph.recognise({"text": "hot drink"}, vector=[1, 0.5])
    assert other.known_as is None
    assert {like.id for like in other.resembles} == {"a", "b"}
    assert graph.recognise({"text": "hot drink"}, vector=[1, 0.15], same=1).known_as is None


def test_gap_29_what_is_outdated_is_not_known_any_more(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea", b="coffee")
    graph.supersede("b", "a").unwrap()
    assert graph.recognise({"text": "tea"}).known_as is None


# ------------------------------------------------------------------------------ events


def learned(graph: Adaptogen) -> Adaptogen:
    """Let everything that recollection writes be written."""
    graph.remember("a", payload={"text": "tea"}).unwrap()
    graph.remember("b", payload={"text": "more tea"}).unwrap()
    graph.set_weights({"usage": 0.5, "inhibition": 1}, scope="me").unwrap()
    found = graph.pulse("tea", scope="me", log=True)
    graph.feedback(found.retrieval_id, "a", True).unwrap()
    graph.feedback(found.retrieval_id, "b", False, rate=0.3, rule="additive").unwrap()
    graph.absorb("tea", scope="me", context="x").unwrap()
    graph.set_tunable("signalWeights", {"graph": 2}).unwrap()
    return graph


def test_everything_learned_is_made_again_by_a_replay(make: Make, clock: Clock) -> None:
    graph = learned(make(now=clock))
    before = (live(graph), graph.weights(scope="me"))
    assert graph.verify_integrity(deep=True).ok
    graph.rebuild().unwrap()
    assert (live(graph), graph.weights(scope="me")) == before
    graph.snapshot().unwrap()
    graph.rebuild().unwrap()
    assert (live(graph), graph.weights(scope="me")) == before
    assert graph.verify_integrity(deep=True).ok


def test_a_rollback_unlearns(make: Make, clock: Clock) -> None:
    graph = make(now=clock)
    graph.remember("a", payload={"text": "tea"}).unwrap()
    found = graph.pulse("tea")
    graph.checkpoint("before").unwrap()
    weights = graph.weights()
    graph.feedback(found.retrieval_id, "a", True).unwrap()
    assert graph.weights() != weights
    graph.rollback("before").unwrap()
    assert graph.weights() == weights
    assert not graph.feedback(found.retrieval_id, "a", False).unwrap().useful
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("compacted", [False, True])
def test_what_was_learned_moves_with_a_bundle(make: Make, clock: Clock, compacted: bool) -> None:
    graph = learned(make(now=clock))
    if compacted:
        graph.compact(retain=0).unwrap()
    with taken_in(bundle_of(graph)) as copy:
        assert copy.weights(scope="me") == graph.weights(scope="me")
        assert copy.activation("a", at=NOW) == graph.activation("a", at=NOW)
        assert copy.verify_integrity(deep=True).ok


def test_verdicts_of_a_branch_teach_once(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea")
    found = graph.pulse("tea")
    branch = graph.branch(":memory:").unwrap()
    signals = found.hits[0].signals
    branch.feedback(found.retrieval_id, "a", True, signals=signals).unwrap()
    graph.feedback(found.retrieval_id, "a", True).unwrap()
    weights = graph.weights()
    graph.merge(branch).unwrap()
    branch.discard()
    assert graph.weights() == weights
    assert graph.verify_integrity(deep=True).ok


def test_a_failed_unit_forgets_what_it_learned(make: Make, clock: Clock) -> None:
    graph = notes(make, clock, a="tea")
    found, before = graph.pulse("tea"), graph.weights()
    with pytest.raises(RuntimeError), graph.unit():
        graph.feedback(found.retrieval_id, "a", True).unwrap()
        raise RuntimeError
    assert graph.weights() == before


def test_events_are_the_raw_deed(make: Make, clock: Clock) -> None:
    graph = learned(make(now=clock))
    bodies = {entry.type: entry.payload for entry in reversed(graph.history(limit=100))}
    feedback, weights = bodies["memory.feedback"], bodies["memory.weights_set"]
    assert isinstance(feedback, dict)
    assert {**feedback, "retrieval_id": "", "signals": {}} == {
        "retrieval_id": "", "id": "a", "useful": True, "lr": 0.05, "rule": "centred", "scope": "me",
        "signals": {}, "at": NOW,
    }  # fmt: skip
    assert weights == {"scope": "me", "weights": {"usage": 0.5, "inhibition": 1}, "at": NOW}
    assert all(row.cause is None for row in graph.store.read(GRAPH))


# ------------------------------------------------------------------------------ waiting


class SlowEmbedder:
    def embed(self, texts: Sequence[str], /) -> Awaitable[Sequence[Sequence[float]]]:
        async def answer() -> list[list[float]]:
            return [[1.0, 0.0] for _ in texts]

        return answer()

    def descriptor(self) -> Descriptor:
        return Descriptor(provider="slow", dimensions=2)


@pytest.mark.anyio
async def test_a_search_waits_for_an_embedder_that_answers_later(make: Make, clock: Clock) -> None:
    graph = make(now=clock, embedder=SlowEmbedder())
    graph.remember("a", payload={"text": "tea"}, embedding=[1, 0]).unwrap()
    with pytest.raises(VerbFailed):
        graph.pulse("drink")
    found = await graph.apulse("drink")
    assert ids(found) == ["a"]
    assert found.hits[0].signals["semantic"] == 1


@pytest.mark.anyio
async def test_a_search_that_waits_refuses_vectors_of_another_model_of_as_many_dimensions(make: Make) -> None:
    graph = make(embedder=HashingEmbedder(dimensions=2))
    graph.remember("a", payload={"text": "tea"}).unwrap()
    graph.embedder = SlowEmbedder()  # type: ignore[assignment]  # made for both kinds
    with pytest.raises(VerbFailed, match="EmbeddingMismatch"):
        await graph.apulse("drink")
