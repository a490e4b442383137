"""The order in which memories are present, against looking at every one of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from graphstate import Adaptogen
from graphstate.store import activation as tables
from tests.graphstate.activation.conftest import H, Hands, Remember
from tests.graphstate.test_costs import steps

KINDS = ("fact", "episode", "instruction", "entity", "state")


def brute(graph: Adaptogen, now: int, **wanted: Any) -> list[tuple[float, str]]:
    acts, places = graph.store.projection.activations, []
    for node in graph.store.projection.node_ids():
        found = acts.find(node)
        assert found is not None
        attention = graph.store.attention.of(node, now, 300_000)
        effective = found.record.effective(now, found.half_lives, attention=attention, **wanted)
        if found.active and not found.superseded and effective > 0:
            places.append((-effective, node))
    return sorted(places)


def change(graph: Adaptogen, random: Random, nodes: list[str], clock: Hands) -> None:
    """One thing that happens, mostly a reinforcement."""
    node, context = random.choice(nodes), random.choice([None, None, "x"])
    what = random.random()
    clock.ms += random.randrange(H)
    if what < 0.55:
        graph.reinforce(node, random.random() * 0.5, context=context).unwrap()
    elif what < 0.85:
        graph.suppress(node, random.random(), context=context).unwrap()
    elif what < 0.9:
        graph.set_status(node, random.choice(["active", "archived"])).unwrap()
    elif what < 0.95:
        graph.remember(node, kind=random.choice(KINDS)).unwrap()
    else:
        graph.supersede(node, random.choice(nodes))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("head", [2, 64], ids=["few remembered", "all remembered"])
def test_ranks_follow_everything_that_happens(
    graph_of: Remember, clock: Hands, monkeypatch: pytest.MonkeyPatch, seed: int, head: int
) -> None:
    monkeypatch.setattr(tables, "_HEAD", head)
    random, graph = Random(seed), graph_of()
    graph.set_tunable("snapshotInterval", 0).unwrap()
    nodes = [f"n{number:02}" for number in range(40)]
    for number, node in enumerate(nodes):
        graph.remember(node, kind=KINDS[number % len(KINDS)]).unwrap()
        graph.reinforce(node, random.random()).unwrap()
    for _ in range(60):
        change(graph, random, nodes, clock)
        graph.bump_attention(random.choice(nodes), 0.03).unwrap()
        for wanted in ({}, {"context": "x"}, {"context": "x", "fallback": True}):
            options = {
                "context_fallback" if key == "fallback" else key: value for key, value in wanted.items()
            }
            best = brute(graph, clock.ms, **wanted)
            for limit in (1, 4):
                ranked = graph.top_activated(limit=limit, **options)  # type: ignore[arg-type]
                assert [r.effective for r in ranked] == pytest.approx(
                    [-v for v, _ in best[:limit]], abs=1e-12
                )
                assert {r.id for r in ranked} <= {node for _, node in best}
    assert graph.verify_integrity(deep=True).ok


def test_what_is_held_back_at_the_head_of_one_order_hides_nothing_behind_it(graph_of: Remember) -> None:
    graph = graph_of("held1", "held2", "held3", "best")
    for place, node in enumerate(("held1", "held2", "held3", "best")):
        graph.reinforce(node, 0.9 - place / 10).unwrap()
        if node != "best":
            graph.suppress(node, 1).unwrap()
    for node, amount in (("other1", 0.5), ("other2", 0.4), ("other3", 0.3)):
        graph.remember(node, kind="fact").unwrap()
        graph.reinforce(node, amount).unwrap()
    for limit in range(1, 6):
        ranked = [r.id for r in graph.top_activated(limit=limit)]
        assert ranked == ["best", "other1", "other2", "other3"][:limit]


def test_v58_equal_memories_stand_by_what_is_behind_the_cut_and_then_by_id(graph_of: Remember) -> None:
    graph = graph_of("z", "y", "x", "strong", "weak")
    for node in "zyx":
        graph.reinforce(node, 1).unwrap()
    graph.reinforce("strong", 1.5).unwrap()
    graph.reinforce("weak", 0.5).unwrap()
    assert [r.id for r in graph.top_activated()] == ["strong", "x", "y", "z", "weak"]
    assert [r.id for r in graph.top_activated(limit=2)] == ["strong", "x"]
    assert [r.id for r in graph.top_activated(min_score=0.5)] == ["strong", "x", "y", "z"]
    assert graph.top_activated(limit=0) == []


def test_many_equal_memories_are_cut_by_id(graph_of: Remember) -> None:
    graph = graph_of(*(f"n{number:03}" for number in range(199, -1, -1)))
    for number in range(199, -1, -1):
        graph.reinforce(f"n{number:03}", 0.5).unwrap()
    assert [r.id for r in graph.top_activated(limit=5)] == [f"n{number:03}" for number in range(5)]
    graph.reinforce("n150", 0.5).unwrap()
    graph.reinforce("n002", -0.1).unwrap()
    assert [r.id for r in graph.top_activated(limit=4)] == ["n150", "n000", "n001", "n003"]


def test_an_order_holds_at_every_moment_within_a_class(graph_of: Remember, clock: Hands) -> None:
    random, graph = Random(1), graph_of(*"abcdefgh")
    for node in "abcdefgh":
        graph.reinforce(node, random.random() * 0.1).unwrap()
        clock.ms += 3 * H
    now = [r.id for r in graph.top_activated()]
    assert all([r.id for r in graph.top_activated(at=clock.ms + days * 24 * H)] == now for days in (1, 7, 40))


def test_reading_the_first_costs_the_same_of_ten_times_as_many(graph_of: Remember) -> None:
    def full(size: int) -> Adaptogen:
        graph = graph_of()
        graph.set_tunable("snapshotInterval", 0).unwrap()
        with graph.unit():
            for number in range(size):
                graph.remember(f"n{number}", kind=KINDS[number % len(KINDS)]).unwrap()
                graph.reinforce(f"n{number}", number % 97 / 100).unwrap()
        return graph

    few, many = full(600), full(6_000)
    for read in (lambda graph: graph.top_activated(limit=8), lambda graph: graph.effective("n5")):
        assert 0 < steps(many, read) <= steps(few, read) * 1.05


def test_reading_again_reads_no_table(graph_of: Remember) -> None:
    graph = graph_of("a", "b")
    graph.reinforce("a", 0.5).unwrap()
    graph.top_activated(limit=8)
    asked: list[str] = []
    connection = graph.store._db._connection  # type: ignore[attr-defined]

    def note(cursor: Any, sql: str, bindings: Any) -> bool:
        asked.append(sql)
        return True

    connection.exec_trace = note
    graph.top_activated(limit=8)
    connection.exec_trace = None
    assert asked == []
    graph.reinforce("b", 0.6).unwrap()
    assert [r.id for r in graph.top_activated(limit=8)] == ["b", "a"]


@pytest.mark.parametrize(
    "wanted", [{"limit": -1}, {"limit": 1_001}, {"min_score": "x"}, {"context": ""}, {"at": 1.5}]
)
def test_what_is_no_limit_no_score_no_context_and_no_moment_is_refused(
    graph_of: Remember, wanted: Any
) -> None:
    from graphstate import VerbFailed

    with pytest.raises(VerbFailed, match="InvalidInput"):
        graph_of("a").top_activated(**wanted)
