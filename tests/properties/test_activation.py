"""The laws of activation: no reading weakens, no order matters, a replay is what was, ranks are exact.

`RELIABILITY=full` tries many more.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate import Adaptogen, Result
from graphstate.activation.decay import FLAT, HOUR_MS, Curves
from graphstate.activation.record import NEGLIGIBLE, Activation, View
from graphstate.store.snapshot import state_bytes
from tests.graphstate.bundles import bundle_of, live
from tests.strategies import activation_records, activation_steps, memory_programs

FULL = os.environ.get("RELIABILITY") == "full"
CURVES = Curves()
LATER = 500 * HOUR_MS

Step = tuple[str, float, int, str | None]


def done(record: Activation, step: Step) -> Activation:
    what, amount, at, context = step
    if what == "reinforce":
        return record.reinforced(amount, at, CURVES, FLAT, context=context)
    return record.suppressed(amount, at, FLAT, context=context)


def numbers(view: View) -> list[float]:
    values = [view.score, view.importance, view.inhibition]
    for context in ("x", "y", "z"):
        values += [view.contexts.get(context, 0.0), view.inhibitions.get(context, 0.0)]
    return values


@given(activation_steps(), st.lists(st.integers(0, LATER), max_size=12), st.randoms(use_true_random=False))
def test_v12_moving_the_anchors_at_any_moments_changes_no_later_read(
    steps: list[Step], moments: list[int], random: Random
) -> None:
    steps = sorted(steps, key=lambda step: step[2])
    plain = moved = Activation()
    for step in steps:
        plain = done(plain, step)
        while moments and random.random() < 0.5:
            moved = moved.rebased(min(max(moments.pop(), latest(moved)), step[2]), FLAT)
        moved = done(moved, step)
    assert numbers(moved.decayed(LATER, FLAT)) == pytest.approx(
        numbers(plain.decayed(LATER, FLAT)), abs=1e-12
    )


def latest(record: Activation) -> int:
    """A record is moved forward only: a value before its own anchor has no history."""
    lenses = record.contexts.values()
    anchors = [
        record.anchor,
        record.inhibited_at,
        *(lens.anchor for lens in lenses),
        *(lens.inhibited_at for lens in lenses),
    ]
    return max(anchor for anchor in anchors if anchor is not None)


@given(activation_records(), st.lists(st.integers(400 * HOUR_MS, LATER), max_size=8))
def test_v12_a_record_read_in_many_steps_is_one_read_at_once(record: Activation, moments: list[int]) -> None:
    again = record
    for moment in sorted(moments):
        again = again.rebased(moment, FLAT)
    assert numbers(again.decayed(LATER, FLAT)) == pytest.approx(
        numbers(record.decayed(LATER, FLAT)), abs=1e-12
    )


@given(activation_steps(), st.randoms(use_true_random=False))
def test_v68_whatever_arrives_in_whatever_order_adds_up_alike(steps: list[Step], random: Random) -> None:
    shuffled = list(steps)
    random.shuffle(shuffled)
    first, second = Activation(), Activation()
    for step in steps:
        first = done(first, step)
    for step in shuffled:
        second = done(second, step)
    # A context that had faded away in between was dropped with what little was left of it.
    few = len(steps) * NEGLIGIBLE
    assert numbers(second.decayed(LATER, FLAT)) == pytest.approx(numbers(first.decayed(LATER, FLAT)), abs=few)
    assert numbers(second.decayed(LATER, FLAT))[:3] == pytest.approx(
        numbers(first.decayed(LATER, FLAT))[:3], abs=1e-12
    )
    assert second.reinforcement_count == first.reinforcement_count
    assert second.last_reinforced_at == first.last_reinforced_at


def same(a: Activation, b: Activation) -> bool:
    facts = (
        "anchor",
        "inhibited_at",
        "reinforcement_count",
        "last_reinforced_at",
        "shown",
        "useful",
        "harmful",
    )
    sums = [a.score, a.importance, a.inhibition, *(v for n in sorted(a.contexts) for v in _sums(a, n))]
    others = [b.score, b.importance, b.inhibition, *(v for n in sorted(b.contexts) for v in _sums(b, n))]
    return (
        all(getattr(a, fact) == getattr(b, fact) for fact in facts)
        and a.contexts.keys() == b.contexts.keys()
        and sums == pytest.approx(others, abs=1e-12)
    )


def _sums(record: Activation, context: str) -> tuple[float, float]:
    return record.contexts[context].score, record.contexts[context].inhibition


@given(activation_records(), activation_records(), activation_records())
def test_merging_whole_records_knows_no_sides_no_grouping_and_no_repetition(
    a: Activation, b: Activation, c: Activation
) -> None:
    def merge(x: Activation, y: Activation) -> Activation:
        return x.merged(y, LATER, FLAT)

    assert same(merge(a, b), merge(b, a))
    assert same(merge(merge(a, b), c), merge(a, merge(b, c)))
    assert same(merge(merge(a, b), b), merge(a, b))
    assert same(merge(a, a), a.rebased(LATER, FLAT))


# ------------------------------------------------------------------------- whole graphs


class Life:
    """A graph on which a program of words is carried out."""

    def __init__(self, graph: Adaptogen, clock: list[int]) -> None:
        self.graph, self.clock = graph, clock
        self.calls: Mapping[str, Callable[..., Result[Any]]] = {
            "reinforce": lambda node, amount, context: graph.reinforce(
                node, float(amount), context=context or None
            ),
            "suppress": lambda node, amount, context: graph.suppress(
                node, float(amount), context=context or None
            ),
            "release": lambda node, context: graph.release(node, context=context or None),
            "remember": lambda node, kind: graph.remember(node, kind=kind),
            "class": lambda node, name: graph.remember(node, memory={"memory_class": name or None}),
            "status": graph.set_status,
            "supersede": graph.supersede,
            "unsupersede": graph.unsupersede,
            "consolidate": lambda node, *sources: graph.consolidate(node, sources),
            "kind": lambda kind, name: graph.register_memory_class(kind, name or None),
            "half-life": lambda ms: graph.set_tunable("scoreHalfLifeMs", int(ms)),
            "link": lambda src, dst: graph.link(src, dst, kind="reference"),
            "merge_states": graph.merge_states,
            "split_state": lambda node: graph.split_state(node, f"{node}{graph.store.head().seq}", []),
        }

    def run(self, program: Sequence[tuple[str, ...]]) -> None:
        for word, *values in program:
            if word == "wait":
                self.clock[0] += int(values[0]) * 60_000
            else:
                self.calls[word](*values)


def alive(program: Sequence[tuple[str, ...]]) -> Life:
    clock = [1_000_000]
    graph = Adaptogen.open(seed=False, now=lambda: clock[0])
    life = Life(graph, clock)
    for node in "abcdef":
        graph.remember(node).unwrap()
    life.run(program)
    return life


def folded(graph: Adaptogen) -> bytes:
    graph.store.projection.flush()
    return state_bytes(graph.store._db)


def present(graph: Adaptogen) -> list[Any]:
    return [graph.activation(node, at=10**10) for node in "abcdef"]


@settings(max_examples=500 if FULL else 25, deadline=None)
@given(memory_programs())
def test_a_replay_a_snapshot_and_a_compaction_give_what_was_live(program: list[tuple[str, ...]]) -> None:
    graph = alive(program).graph
    before, seen = folded(graph), present(graph)
    assert graph.verify_integrity(deep=True).ok
    graph.rebuild().unwrap()
    assert (folded(graph), present(graph)) == (before, seen)
    graph.snapshot().unwrap()
    graph.rebuild().unwrap()
    assert (folded(graph), present(graph)) == (before, seen)
    graph.compact(retain=0).unwrap()
    graph.rebuild().unwrap()
    assert (folded(graph), present(graph)) == (before, seen)
    assert graph.verify_integrity(deep=True).ok
    graph.close()


@settings(max_examples=500 if FULL else 25, deadline=None)
@given(memory_programs(), memory_programs())
def test_a_rollback_and_a_bundle_bring_all_of_it_back(
    first: list[tuple[str, ...]], then: list[tuple[str, ...]]
) -> None:
    life = alive(first)
    graph = life.graph
    graph.set_tunable("snapshotInterval", 0).unwrap()
    graph.checkpoint("cp").unwrap()
    before, seen = live(graph), present(graph)
    life.run(then)
    graph.rollback("cp").unwrap()
    assert (live(graph), present(graph)) == (before, seen)
    for compacted in (False, True):
        if compacted:
            graph.compact(retain=0).unwrap()
        with Adaptogen.import_state(
            ":memory:", io.BytesIO(bundle_of(graph)), now=lambda: life.clock[0]
        ) as copy:
            assert live(copy) == live(graph)
            assert present(copy) == seen
            assert copy.verify_integrity(deep=True).ok
    graph.close()


@settings(max_examples=500 if FULL else 40, deadline=None)
@given(
    memory_programs(), st.integers(1, 7), st.sampled_from([None, "x"]), st.booleans(), st.booleans(),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 0.04), max_size=3),
)  # fmt: skip
def test_ranks_are_those_of_looking_at_every_memory(
    program: list[tuple[str, ...]], limit: int, context: str | None, fallback: bool, superseded: bool,
    attention: dict[str, float],
) -> None:  # fmt: skip
    life = alive(program)
    graph = life.graph
    graph.top_activated(limit=2, context=context)  # what is remembered of the order must follow what comes
    life.run(program[::-1])
    for node, amount in attention.items():
        graph.bump_attention(node, amount).unwrap()
    ranked = graph.top_activated(
        limit=limit, context=context, context_fallback=fallback, include_superseded=superseded
    )
    now, places = life.clock[0], []
    acts = graph.store.projection.activations
    for node in graph.store.projection.node_ids():
        found = acts.find(node)
        assert found is not None
        effective = found.record.effective(
            now, found.half_lives, attention=graph.store.attention.of(node, now, 300_000), context=context,
            fallback=fallback,
        )  # fmt: skip
        if found.active and (superseded or not found.superseded) and effective > 0:
            places.append((effective, node))
    best = sorted(places, reverse=True)
    assert [place.effective for place in ranked] == pytest.approx(
        [value for value, _ in best[:limit]], abs=1e-12
    )
    worth = {node: value for value, node in places}
    assert len({place.id for place in ranked}) == len(ranked)
    assert all(place.effective == pytest.approx(worth[place.id], abs=1e-12) for place in ranked)
    graph.close()
