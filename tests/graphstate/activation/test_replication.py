"""Vectors 68 to 71 between replicas: nothing is lost, nothing counts twice, no order matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate import Adaptogen, Delta, DeltaPart, Deltas, Fail, to_json
from graphstate.events import GRAPH
from tests.graphstate.bundles import bundle_of, live, taken_in
from tests.graphstate.conftest import Golden, Make

DAY = 86_400_000


class Hands:
    """A clock that is set by hand, in ms."""

    def __init__(self, at: int = 0) -> None:
        self.at = at

    def __call__(self) -> int:
        return self.at


Replica = tuple[Adaptogen, Hands]
Pair = Callable[..., tuple[Replica, Replica]]


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    return result.code


@pytest.fixture
def pair(make: Make) -> Pair:
    """Two graphs with the same nodes that have begun to replicate."""

    def both(*ids: str) -> tuple[Replica, Replica]:
        made = []
        for seed in (3, 7):
            clock, chance = Hands(), Golden()
            chance.k = seed
            graph = make(*ids, now=clock, rand=chance)
            graph.export_deltas().unwrap()
            made.append((graph, clock))
        return made[0], made[1]

    return both


def sync(source: Adaptogen, target: Adaptogen, since: str | None = None, **options: Any) -> Deltas:
    deltas = source.export_deltas(since=since, **options).unwrap()
    target.import_deltas(deltas).unwrap()
    return deltas


def score(graph: Adaptogen, id: str = "m") -> float:
    state = graph.activation(id)
    assert state is not None
    return state.score


def test_v68_the_order_of_deltas_does_not_matter_though_one_overshoots(pair: Pair) -> None:
    (a, _), (b, _) = pair("m")
    for graph, amounts in ((a, (0.9, 0.3, -0.5)), (b, (0.9, -0.5, 0.3))):
        for amount in amounts:
            graph.reinforce("m", amount).unwrap()
    assert score(a) == pytest.approx(score(b)) == pytest.approx(0.7)


def test_v69_both_replicas_add_both_deltas(pair: Pair) -> None:
    (a, _), (b, _) = pair("m")
    a.reinforce("m", 0.2).unwrap()
    b.reinforce("m", 0.3).unwrap()
    to_b, to_a = a.export_deltas().unwrap(), b.export_deltas().unwrap()
    b.import_deltas(to_b).unwrap()
    a.import_deltas(to_a).unwrap()
    assert score(a) == pytest.approx(score(b)) == pytest.approx(0.5)


def test_v70_small_deltas_wait_until_they_add_up_and_none_is_lost(pair: Pair) -> None:
    (a, _), (b, _) = pair("m")
    since, sent = None, []
    for _ in range(5):
        a.reinforce("m", 0.04).unwrap()
        deltas = sync(a, b, since)
        since = deltas.cursor
        sent.append([round(delta.amount, 9) for delta in deltas.ops])
    assert sent == [[], [0.08], [], [0.08], []]
    last = sync(a, b, since, flush=True)
    assert ([delta.amount for delta in last.ops], last.carried) == ([0.04], 0)
    assert score(b) == pytest.approx(0.2)
    a.reinforce("m", 0.01).unwrap()
    deltas = sync(a, b, last.cursor)
    assert (deltas.ops, deltas.carried) == ((), 1)
    a.reinforce("m", 0.2).unwrap()
    (delta,) = sync(a, b, deltas.cursor).ops
    assert delta.amount == pytest.approx(0.21)


def test_v71_a_late_delta_counts_as_of_when_it_was_made(pair: Pair) -> None:
    (a, there), (b, here) = pair("m")
    a.reinforce("m", 0.3).unwrap()
    deltas = a.export_deltas().unwrap()
    there.at = here.at = DAY
    b.import_deltas(deltas).unwrap()
    assert score(a) == pytest.approx(0.15)
    assert score(b) == pytest.approx(0.15)


def test_a_delta_counts_once_however_often_and_by_whatever_way_it_comes(pair: Pair) -> None:
    (a, _), (b, _) = pair("m")
    a.reinforce("m", 0.2, context="x", outcome="useful", reason="read").unwrap()
    first = a.export_deltas().unwrap()
    done = b.import_deltas(first).unwrap()
    assert (done.applied, done.known, done.unknown) == (1, 0, ())
    again = b.import_deltas(to_json(first)).unwrap()
    assert (again.applied, again.known) == (0, 1)
    echo = b.export_deltas().unwrap()  # what came from elsewhere is passed on
    assert [part.id for delta in echo.ops for part in delta.parts] == [first.ops[0].parts[0].id]
    assert a.import_deltas(echo).unwrap().applied == 0
    assert a.activation("m") == b.activation("m")
    assert b.history(limit=1, type="memory.reinforced")[0].payload == {
        "id": "m", "amount": 0.2, "at": 0, "context": "x", "outcome": "useful", "reason": "read",
    }  # fmt: skip


def test_a_node_that_is_not_there_yet_gets_its_deltas_later(pair: Pair) -> None:
    (a, _), (b, _) = pair("m")
    a.remember("new").unwrap()
    a.reinforce("new", 0.3).unwrap()
    a.reinforce("m", 0.1).unwrap()
    deltas = a.export_deltas().unwrap()
    done = b.import_deltas(deltas).unwrap()
    assert (done.applied, done.unknown) == (1, ("new",))
    b.remember("new").unwrap()
    assert b.import_deltas(deltas).unwrap().applied == 1
    assert score(b, "new") == pytest.approx(0.3)


def test_a_clock_that_is_ahead_is_reported(pair: Pair) -> None:
    (a, there), (b, _) = pair("m")
    there.at = 5_000
    a.reinforce("m", 0.3).unwrap()
    assert b.import_deltas(a.export_deltas().unwrap()).unwrap().skew_ms == 5_000
    there.at = 0
    assert a.import_deltas(b.export_deltas().unwrap()).unwrap().skew_ms == 0


def test_imported_deltas_are_trusted_no_more_than_who_imports_them(pair: Pair) -> None:
    (a, _), (b, _) = pair("m")
    a.reinforce("m", 0.3, actor="ada").unwrap()
    b.as_actor("sync", trust="import").import_deltas(a.export_deltas().unwrap()).unwrap()
    (row,) = [row for row in b.store.read(GRAPH) if row.type == "memory.reinforced"]
    assert (row.actor, row.trust) == ("ada", "import")


def test_what_began_after_an_event_sends_nothing_from_before(make: Make) -> None:
    graph = make("m")
    graph.reinforce("m", 0.5).unwrap()
    first = graph.export_deltas().unwrap()
    assert first == Deltas(ops=(), cursor=first.cursor, carried=0, more=False)
    assert [row.type for row in graph.store.read(GRAPH)][-1] == "memory.replication_began"
    assert graph.export_deltas(since=first.cursor).unwrap().cursor == first.cursor
    assert graph.metrics().events == 3


def test_after_a_rollback_all_is_sent_again_and_nothing_counts_twice(pair: Pair) -> None:
    (a, _), (b, _) = pair("m")
    a.reinforce("m", 0.2).unwrap()
    a.checkpoint("cp").unwrap()
    a.reinforce("m", 0.4).unwrap()
    since = sync(a, b).cursor
    a.rollback("cp").unwrap()
    a.reinforce("m", 0.1).unwrap()
    sync(a, b, since)
    assert score(b) == pytest.approx(0.7)  # what was sent cannot be called back
    sync(b, a)
    assert score(a) == pytest.approx(0.7)


@pytest.mark.parametrize("since", ["x", "0", "0/1/", "0/1/x", "0/99", "0/1/1", "0/2/1", "00/2", "0/2/2,", 7])
def test_a_cursor_that_is_none_is_refused(pair: Pair, since: Any) -> None:
    (a, _), _ = pair("m")
    assert code(a.export_deltas(since=since)) == "InvalidInput"


def part(**changes: Any) -> dict[str, Any]:
    told = {"id": "E1", "at": 0, "written_at": 0, "amount": 0.1} | changes
    delta = {"node": "m", "kind": "reinforced", "amount": 0.1, "parts": [told]}
    return {"ops": [delta], "cursor": "0/1", "carried": 0, "more": False}


@pytest.mark.parametrize(
    "deltas",
    [
        [], "x", {}, {"ops": 1, "cursor": "", "carried": 0, "more": False}, part(amount="1"), part(amount=1e9),
        part(at="x"), part(at=2**60), part(written_at=2**60), part(id=""), part(id="\n"), part(actor="x" * 200),
        part(reason="x" * 2_000), part(outcome="great"),
    ],
)  # fmt: skip
def test_deltas_that_are_none_are_refused_and_nothing_is_kept(pair: Pair, deltas: Any) -> None:
    (a, _), _ = pair("m")
    before = a.head()
    assert code(a.import_deltas(deltas)) == "InvalidInput"
    assert a.head() == before


def test_what_waits_has_a_bound(make: Make) -> None:
    graph = make(*(f"n{number}" for number in range(1_001)))
    graph.export_deltas().unwrap()
    graph.reinforce_all([{"id": f"n{number}", "amount": 0.01} for number in range(1_000)]).unwrap()
    deltas = graph.export_deltas().unwrap()
    assert (len(deltas.ops), deltas.carried) == (0, 1_000)
    graph.reinforce("n1000", 0.01).unwrap()
    assert len(graph.export_deltas(since=deltas.cursor).unwrap().ops) == 1_001


def test_compacted_deltas_are_missed_and_not_passed_over_in_silence(pair: Pair) -> None:
    (a, _), _ = pair("m")
    since = a.export_deltas().unwrap().cursor
    a.reinforce("m", 0.2).unwrap()
    a.compact(retain=0).unwrap()
    assert code(a.export_deltas(since=since)) == "Conflict"


@pytest.mark.parametrize("compacted", [False, True], ids=["all events", "a base"])
def test_a_bundle_brings_what_is_known(pair: Pair, compacted: bool) -> None:
    (a, _), (b, _) = pair("m")
    a.reinforce("m", 0.2).unwrap()
    deltas = a.export_deltas().unwrap()
    b.import_deltas(deltas).unwrap()
    if compacted:
        b.compact(retain=0).unwrap()
    with taken_in(bundle_of(b)) as copy:
        assert live(copy)["delta"] == live(b)["delta"]
        assert copy.import_deltas(deltas).unwrap().applied == 0
        assert len(live(copy)["activation"]) == 1
        assert copy.verify_integrity(deep=True).ok


def test_a_merge_leaves_out_what_came_as_a_delta(pair: Pair) -> None:
    (a, _), _ = pair("m")
    branch = a.branch(":memory:").unwrap()
    branch.reinforce("m", 0.2).unwrap()
    a.import_deltas(branch.export_deltas().unwrap()).unwrap()
    a.merge(branch).unwrap()
    assert score(a) == pytest.approx(0.2)
    branch.discard()


# ------------------------------------------------------------------------------------ any order

NODES = ("m", "n")
DONE = st.tuples(
    st.integers(0, 2), st.sampled_from(NODES), st.floats(-1, 1, width=32), st.sampled_from([None, "x"]),
    st.booleans(), st.integers(0, 3 * DAY),
)  # fmt: skip


def opened(seed: int, clock: Hands) -> Adaptogen:
    chance = Golden()
    chance.k = seed
    graph = Adaptogen.open(seed=False, now=clock, rand=chance)
    for node in NODES:
        graph.remember(node).unwrap()
    graph.export_deltas().unwrap()
    return graph


def grouped(deliveries: list[Deltas], ends: list[bool]) -> Iterator[Deltas]:
    """Put what follows each other into one delivery, up to each end; operations of it may repeat."""
    ops: list[Delta] = []
    for place, deltas in enumerate(deliveries, 1):
        ops += deltas.ops
        if ends[place % len(ends)] or place == len(deliveries):
            yield Deltas(ops=tuple(ops), cursor="", carried=0, more=False)
            ops = []


@settings(max_examples=40, deadline=None)
@given(st.lists(DONE, max_size=14), st.data())
def test_any_order_grouping_and_repetition_of_deliveries_gives_the_same_everywhere(
    done: list[tuple[int, str, float, str | None, bool, int]], data: st.DataObject
) -> None:
    clock = Hands()
    graphs = [opened(seed, clock) for seed in (1, 100, 200)]
    for who, node, amount, context, suppresses, ms in done:
        clock.at = ms
        act = graphs[who].suppress if suppresses else graphs[who].reinforce
        act(node, amount, context=context).unwrap()
    clock.at = 3 * DAY
    parts = [
        Deltas(ops=(Delta(node=d.node, kind=d.kind, context=d.context, amount=p.amount, parts=(p,)),),
               cursor="", carried=0, more=False)
        for graph in graphs for d in graph.export_deltas(flush=True).unwrap().ops for p in d.parts
    ]  # fmt: skip
    assert len(parts) == len(done)
    for graph in graphs:
        order = data.draw(st.permutations(parts)) + data.draw(
            st.lists(st.sampled_from(parts), max_size=5) if parts else st.just([])
        )
        for deltas in grouped(order, data.draw(st.lists(st.booleans(), min_size=30, max_size=30))):
            graph.import_deltas(deltas).unwrap()
    try:
        for node in NODES:
            seen = [to_json(graph.activation(node)) for graph in graphs]
            for other in seen[1:]:
                assert flat(other) == pytest.approx(flat(seen[0]), abs=1e-9)
        assert graphs[0].verify_integrity(deep=True).ok
    finally:
        for graph in graphs:
            graph.close()


def flat(value: Any, name: str = "") -> dict[str, float]:
    if isinstance(value, dict):
        return {
            key: number
            for part, item in value.items()
            for key, number in flat(item, f"{name}.{part}").items()
        }
    return {name: float(value)} if isinstance(value, (int, float)) else {}


def test_a_part_holds_what_an_event_holds() -> None:
    assert DeltaPart(id="E1", at=1, written_at=2, amount=0.5).trust is None
