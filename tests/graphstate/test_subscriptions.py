"""Who is told of committed events: each one once, in order, outside of any transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, HistoryEntry, Misuse, SubscriberFailed, UnitFailed, VerbFailed
from graphstate.store.feed import AT_ONCE, MAX_SUBSCRIPTIONS
from tests.graphstate.conftest import Make

Told = list[HistoryEntry]


def seqs(told: Told) -> list[int]:
    return [entry.seq for entry in told]


def test_a_function_is_told_of_what_is_committed_after_it_was_subscribed(make: Make) -> None:
    graph, told = make("a"), Told()
    subscription = graph.subscribe(told.append)
    graph.remember("b").unwrap()
    graph.link("a", "b", id="e").unwrap()
    assert told == graph.history(from_seq=2)
    assert [entry.summary for entry in told] == ["node b (state)", "edge e: a -> b [transition]"]
    subscription.close()
    graph.remember("c").unwrap()
    assert (seqs(told), subscription.seq, subscription.is_open()) == ([2, 3], 3, False)


def test_it_may_begin_at_an_earlier_event(make: Make) -> None:
    graph, told = make("a", "b", "c"), Told()
    with graph.subscribe(told.append, after=1) as subscription:
        assert told == []
        assert subscription.poll() == 2
        assert subscription.poll() == 0
    assert seqs(told) == [2, 3]
    with graph.subscribe(told.append, after=99) as subscription:
        assert (subscription.seq, subscription.poll()) == (3, 0)


def test_it_is_called_outside_of_any_transaction_and_may_call_verbs(make: Make) -> None:
    graph, order = make("a"), list[tuple[str, int]]()

    def first(entry: HistoryEntry) -> None:
        assert graph.store._depth == graph.store._reading == 0
        assert graph.store.head().seq >= entry.seq
        order.append(("first", entry.seq))
        if entry.payload.get("id") == "b":
            assert graph.remember("echo").ok

    graph.subscribe(first)
    graph.subscribe(lambda entry: order.append(("second", entry.seq)))
    graph.remember("b").unwrap()
    assert order == [("first", 2), ("first", 3), ("second", 2), ("second", 3)]


def test_events_of_a_unit_come_together_when_it_has_committed(make: Make) -> None:
    graph, told = make(), Told()
    graph.subscribe(told.append)
    with graph.unit():
        graph.remember("a").unwrap()
        with graph.unit():
            graph.remember("b").unwrap()
        assert told == []
    assert seqs(told) == [1, 2]


def test_what_was_not_committed_is_never_told(make: Make) -> None:
    graph, told = make("a"), Told()
    graph.subscribe(told.append)
    assert isinstance(graph.link("a", "nowhere"), Fail)
    with pytest.raises(UnitFailed), graph.unit():
        graph.remember("b").unwrap()
        graph.link("a", "nowhere")
    with pytest.raises(ZeroDivisionError), graph.unit():
        graph.remember("c").unwrap()
        raise ZeroDivisionError
    assert told == []
    graph.remember("d").unwrap()
    assert [entry.summary for entry in told] == ["node d (state)"]


def test_after_a_rollback_the_cut_events_are_not_told_and_new_ones_are(make: Make) -> None:
    graph, told, back = make("a"), Told(), list[int]()
    graph.checkpoint("cp").unwrap()
    late = graph.subscribe(told.append, after=0)
    eager = Told()
    graph.subscribe(eager.append, on_rollback=back.append)
    with graph.unit():
        graph.remember("cut").unwrap()
    assert seqs(eager) == [4]
    assert late.seq == 4
    told.clear()
    with graph.unit():
        graph.remember("gone").unwrap()
        graph.rollback("cp").unwrap()
    assert told == []
    assert back == [1]
    graph.remember("new").unwrap()
    assert [(entry.seq, entry.summary) for entry in told] == [(2, "node new (state)")]
    assert [entry.summary for entry in eager] == ["node cut (state)", "node new (state)"]


def test_a_rollback_behind_a_subscriber_that_lags_is_none_to_it(make: Make) -> None:
    graph, told, back = make("a"), Told(), list[int]()
    graph.checkpoint("cp").unwrap()
    graph.remember("cut").unwrap()
    subscription = graph.subscribe(told.append, after=0, on_rollback=back.append)
    graph.rollback("cp").unwrap()
    assert (seqs(told), back) == ([1], [])
    assert subscription.seq == 1


def test_a_subscriber_that_raises_ends_alone_and_is_reported_once(make: Make) -> None:
    graph, told = make(), Told()

    def broken(entry: HistoryEntry) -> None:
        raise ZeroDivisionError("mine")

    failing = graph.subscribe(broken)
    graph.subscribe(told.append)
    assert graph.remember("a").ok
    assert graph.remember("b").ok
    assert seqs(told) == [1, 2]
    assert isinstance(failing.error, ZeroDivisionError)
    assert (failing.seq, failing.is_open()) == (1, False)
    with pytest.raises(SubscriberFailed, match=r"ZeroDivisionError: .*mine") as caught:
        failing.poll()
    assert caught.value.__cause__ is failing.error
    assert failing.poll() == 0
    failing.close()


def test_leaving_a_block_reports_the_failure_unless_another_one_is_on_its_way(make: Make) -> None:
    graph = make()
    with pytest.raises(SubscriberFailed), graph.subscribe(lambda entry: 1 / 0):
        graph.remember("a").unwrap()
    with pytest.raises(KeyError), graph.subscribe(lambda entry: 1 / 0):
        graph.remember("b").unwrap()
        raise KeyError


def test_a_subscriber_that_answers_itself_is_bounded(make: Make) -> None:
    graph, count = make(), 0

    def echo(entry: HistoryEntry) -> None:
        nonlocal count
        count += 1
        graph.set_status("a", "active").unwrap()

    graph.remember("a").unwrap()
    subscription = graph.subscribe(echo)
    graph.set_status("a", "active").unwrap()
    assert count == AT_ONCE
    subscription.close()


def test_a_subscriber_may_end_itself(make: Make) -> None:
    graph, told = make(), Told()

    def once(entry: HistoryEntry) -> None:
        told.append(entry)
        subscription.close()

    subscription = graph.subscribe(once)
    with graph.unit():
        graph.remember("a").unwrap()
        graph.remember("b").unwrap()
    assert seqs(told) == [1]


def test_other_writers_are_told_in_their_place(make: Make, tmp_path: Path) -> None:
    path, told = tmp_path / "g.db", Told()
    ours, theirs = make("a", path=path), make(path=path)
    subscription = ours.subscribe(told.append)
    theirs.remember("b").unwrap()
    assert told == []
    assert subscription.poll() == 1
    theirs.remember("c").unwrap()
    ours.remember("d").unwrap()
    assert seqs(told) == [2, 3, 4]
    assert told == ours.history(from_seq=2)


def test_a_reader_polls_what_others_write(make: Make, tmp_path: Path) -> None:
    path, told = tmp_path / "g.db", Told()
    writer = make("a", path=path)
    reader = make(path=path, read_only=True)
    with reader.subscribe(told.append) as subscription:
        writer.remember("b").unwrap()
        assert subscription.poll() == 1
    assert seqs(told) == [2]


def test_threads_get_one_order_without_gaps_or_repeats(make: Make) -> None:
    graph, told, inside = make(), Told(), threading.Lock()

    def one_at_a_time(entry: HistoryEntry) -> None:
        assert inside.acquire(blocking=False)
        told.append(entry)
        inside.release()

    subscription = graph.subscribe(one_at_a_time)

    def write(name: str) -> None:
        for number in range(40):
            graph.remember(f"{name}{number}").unwrap()

    threads = [threading.Thread(target=write, args=(name,)) for name in "pqrs"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert subscription.error is None
    assert seqs(told) == list(range(1, 161))


@pytest.mark.parametrize(
    "subscribe",
    [
        lambda graph: graph.subscribe(3),
        lambda graph: graph.subscribe(print, on_rollback=3),
        lambda graph: graph.subscribe(print, after=-1),
        lambda graph: graph.subscribe(print, after=True),
    ],
    ids=["fn", "on_rollback", "negative", "bool"],
)
def test_bad_arguments_are_refused(make: Make, subscribe: Callable[[Any], object]) -> None:
    graph = make()
    with pytest.raises((Misuse, VerbFailed)):
        subscribe(graph)
    assert not graph.store.feed.wanted


def test_there_is_a_bound_on_subscriptions(make: Make) -> None:
    graph = make()
    open_ones = [graph.subscribe(print) for _ in range(MAX_SUBSCRIPTIONS)]
    with pytest.raises(Misuse, match=str(MAX_SUBSCRIPTIONS)):
        graph.subscribe(print)
    open_ones[0].close()
    graph.subscribe(print).close()


def test_a_closed_graph_still_lets_its_subscriptions_go() -> None:
    graph = Adaptogen.open(seed=False)
    subscription = graph.subscribe(print)
    graph.close()
    subscription.close()
    assert subscription.poll() == 0
