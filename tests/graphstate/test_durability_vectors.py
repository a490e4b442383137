"""Vectors V130 to V132, V137 to V139 and V142: checkpoints, tunables, views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate import DEFAULTS, TUNABLES, Adaptogen, Fail, VerbFailed
from graphstate.events import GRAPH
from graphstate.store.snapshot import state_bytes
from tests.graphstate.conftest import Make, Tamper


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def test_v130_a_rollback_returns_to_the_checkpoint_and_keeps_what_it_leaves(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1")
    graph.set_cursor(["a"])
    head = graph.head()
    assert graph.checkpoint("cp").unwrap().seq == 4
    graph.transition("b")
    graph.remember("c")
    assert graph.suggest() == []
    back = graph.rollback("cp", reason="did not work", actor="me").unwrap()
    assert (back.seq, back.abandoned) == (4, 4)
    assert graph.head() == head
    assert graph.cursor() == ["a"]
    assert graph.get_stat("edge", "e1") is None
    assert [s.to for s in graph.suggest()] == ["b"]
    assert graph.verify_integrity(deep=True).ok
    assert graph.metrics().cuts == 1
    kept = graph.store._db.all("SELECT no & 0xFF FROM event_abandoned ORDER BY no")
    assert kept == [(5,), (6,), (7,), (8,)]
    assert graph.store._db.all("SELECT actor, trust, reason, from_seq, to_seq FROM cut") == [
        ("me", "developer", "did not work", 8, 4)
    ]
    assert code(graph.rollback("unknown")) == "CheckpointNotFound"
    assert graph.rollback("cp").unwrap().abandoned == 0


def test_the_log_goes_on_after_a_rollback(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    for i in range(3):
        graph.checkpoint("cp").unwrap()
        graph.remember(f"x{i}").unwrap()
        graph.rollback("cp").unwrap()
        graph.remember(f"y{i}").unwrap()
    graph.close()
    again = make(path=path)
    assert [node.id for node in again.recall()] == ["a", "y0", "y1", "y2"]
    assert again.verify_integrity(deep=True).ok


def test_a_checkpoint_on_another_history_is_refused(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    graph.checkpoint("cp")
    graph.close()
    tamper(path, "UPDATE checkpoint SET hash = zeroblob(32)")
    assert code(make(path=path).rollback("cp")) == "IntegrityBroken"


def test_streams_of_runs_are_not_rolled_back(make: Make) -> None:
    from graphstate import GENESIS, Row, row_hash

    graph = make("a")
    graph.checkpoint("cp")
    digest = row_hash(GENESIS, "run:1", 1, 5, None, "run.opened", None, None, None, b"{}")
    graph.store.append("run:1", [Row(1, 5, None, "run.opened", None, None, None, b"{}", digest)])
    graph.remember("b")
    graph.rollback("cp").unwrap()
    assert graph.store.head("run:1").seq == 1


def test_v131_a_name_moves(make: Make) -> None:
    graph = make()
    assert graph.checkpoint("cp").unwrap().seq == 0
    assert graph.checkpoint("cp").unwrap().seq == 2
    assert [(c.name, c.seq) for c in graph.list_checkpoints()] == [("cp", 2)]
    assert code(graph.checkpoint("bad name")) == "InvalidInput"


def test_v132_nothing_of_an_abandoned_time_stays(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    graph.checkpoint("cp").unwrap()
    graph.remember("bad1")
    graph.remember("bad2")
    graph.set_tunable("ucbC", 9)
    graph.checkpoint("later").unwrap()
    graph.rollback("cp").unwrap()
    assert graph.get_tunables()["ucbC"] == 1.4
    assert [c.name for c in graph.list_checkpoints()] == ["cp"]
    assert graph.metrics().estimated_replay_cost == 0
    for i in range(6):
        graph.remember(f"g{i}")
    graph.close()
    again = make(path=path)
    assert [node.id for node in again.recall()] == ["a", "g0", "g1", "g2", "g3", "g4", "g5"]
    assert again.verify_integrity(deep=True).ok


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epsilon", 5), ("epsilon", "0.5"), ("ucbC", 100.1), ("decayHalfLife", 0.5), ("snapshotInterval", 1.5),
        ("retain", -1), ("maxPayloadBytes", 63), ("explore", "ucb2"), ("unknown", 1), ("ucbC", float("nan")),
        ("ucbC", True), ("retain", True), ("retain", 2**53), ("explore", ["ucb"]), (["x"], 1), ("ucbC", 10**400),
    ],
    ids=repr,
)  # fmt: skip
def test_v137_what_a_tunable_does_not_accept(make: Make, key: Any, value: Any) -> None:
    graph = make()
    assert code(graph.set_tunable(key, value)) == "InvalidConfig"
    assert graph.store.head().seq == 0


def test_v137_tunables_are_stored(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make(path=path)
    assert graph.get_tunables() == dict(DEFAULTS)
    graph.set_tunable("ucbC", 0).unwrap()
    assert graph.set_tunable("rewardAlpha", 1).unwrap()["ucbC"] == 0
    graph.close()
    again = make(path=path)
    assert again.get_tunables() == dict(DEFAULTS) | {"ucbC": 0, "rewardAlpha": 1}


def test_every_default_is_accepted() -> None:
    assert all(row.accepts(row.default) for row in TUNABLES.values())


def told(make: Make) -> Any:
    graph = make("a", "b")
    graph.link("a", "b", id="e1")
    graph.set_cursor(["a"])
    graph.transition("b")
    graph.reward(1)
    graph.set_cursor(["a"])
    return graph


def test_v138_history_is_the_newest_events_oldest_first(make: Make) -> None:
    graph = told(make)
    entries = graph.history(limit=3)
    assert [(e.seq, e.summary) for e in entries] == [
        (5, "a -> b via e1"), (6, "reward 1 over 2 scopes"), (7, "CursorMoved"),
    ]  # fmt: skip
    assert entries[0].payload["edgeId"] == "e1"
    assert [e.summary for e in graph.history(node="b")] == ["node b (state)", "a -> b via e1"]
    assert [e.summary for e in graph.history(edge="e1")] == ["edge e1: a -> b [transition]", "a -> b via e1"]
    assert [e.seq for e in graph.history(type="CursorMoved")] == [4, 7]
    assert [e.seq for e in graph.history(from_seq=6)] == [6, 7]
    assert graph.history(type="Unknown") == []


@pytest.mark.parametrize("filters", [{}, {"node": "b"}, {"edge": "e1"}, {"type": "CursorMoved"}])
def test_v139_a_limit_of_none_gives_none(make: Make, filters: dict[str, Any]) -> None:
    graph = told(make)
    assert graph.history(limit=0, **filters) == []
    for bad in (-1, 1_001, 1.5, float("nan"), "1"):
        with pytest.raises(VerbFailed, match="limit must be"):
            graph.history(limit=bad, **filters)


def test_summaries_are_one_visible_line(make: Make) -> None:
    graph = make()
    graph.store.begin()
    from graphstate.events import Draft

    graph.store.record([Draft("Strange\n\x1b[31mred\u202e", {})], actor=None, trust=None)
    graph.store.commit()
    (entry,) = graph.history()
    assert entry.summary == "Strange\\u{a}\\u{1b}[31mred\\u{202e}"


def test_v142_an_empty_store_answers_everything(make: Make) -> None:
    graph = make()
    assert (graph.cursor(), graph.suggest(), graph.ready(), graph.history()) == ([], [], [], [])
    assert (graph.topo().order, graph.topo().cyclic) == ((), False)
    assert (graph.recall(), graph.list_checkpoints(), graph.legal_moves()) == ([], [], [])
    assert graph.verify_integrity(deep=True).ok
    metrics = graph.metrics()
    assert (metrics.nodes["total"], metrics.edges["transition"], metrics.events, metrics.mean_reward) == (
        0,
        0,
        0,
        0,
    )


def test_metrics_count(make: Make) -> None:
    graph = told(make)
    graph.archive("b")
    graph.depend("b", "a")
    metrics = graph.metrics()
    assert metrics.nodes == {"total": 2, "active": 1, "archived": 1, "deprecated": 0}
    assert metrics.edges == {"transition": 1, "dependency": 1}
    assert metrics.hot_transitions == (("e1", 1),)
    assert metrics.mean_reward == pytest.approx(0.3)
    assert (metrics.events, metrics.estimated_replay_cost, metrics.durability) == (9, 9, "memory")


def test_the_readable_views_show_names(make: Make) -> None:
    graph = told(make)
    db = graph.store._db
    row = db.one("SELECT stream, seq, type, actor, trust, hash FROM event_log ORDER BY seq DESC")
    assert row is not None
    assert row[:5] == (GRAPH, 7, "CursorMoved", "developer", "developer")
    assert f"7:{row[5]}" == graph.head()
    assert db.all("SELECT kind, id, visits FROM stat ORDER BY kind") == [("edge", "e1", 1), ("node", "b", 1)]
    assert db.all("SELECT actor, nodes, moves FROM cursor") == [("developer", '["a"]', 1)]


@given(
    weight=st.floats(0, allow_infinity=False, allow_nan=False),
    value=st.floats(-1e6, 1e6),
    label=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    payload=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_infinity=False, allow_nan=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
        ),
        max_leaves=8,
    ),
    vector=st.lists(st.floats(allow_infinity=False, allow_nan=False, width=32), min_size=1, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_every_value_survives_snapshot_rollback_and_replay(
    weight: float, value: float, label: str, payload: Any, vector: list[float]
) -> None:
    with Adaptogen.open(seed=False) as graph:
        graph.remember("a", label=label, payload=payload, embedding=vector, tags=["t", 'q"']).unwrap()
        graph.remember("b").unwrap()
        graph.link("a", "b", id="e1", weight=weight, label=label).unwrap()
        graph.set_cursor(["a"]).unwrap()
        graph.step(reward=value).unwrap()
        before = state_bytes(graph.store._db), graph.get_node("a"), graph.get_edge("e1"), graph.suggest()
        graph.checkpoint("cp").unwrap()
        graph.remember("a", payload=0, label="x").unwrap()
        graph.unlink("e1").unwrap()
        graph.rollback("cp").unwrap()
        assert (
            state_bytes(graph.store._db),
            graph.get_node("a"),
            graph.get_edge("e1"),
            graph.suggest(),
        ) == before
        report = graph.verify_integrity(deep=True)
        assert report.ok, report.detail
        graph.recall(text=label or "x")


def test_a_verb_that_finds_nothing_to_do_takes_no_snapshot_though_one_is_due(tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    with Adaptogen.open(path, seed=False) as graph:
        for number in range(20):
            graph.remember("a", payload={"n": number}).unwrap()
        graph.set_tunable("snapshotInterval", 5).unwrap()
        with Adaptogen.open(path, seed=False) as other:
            head = other.head()
            assert other.reweight().unwrap().reweighted == 0
            assert other.head() == head
            other.remember("b").unwrap()
            assert other.history(limit=1)[0].type == "SnapshotTaken"
