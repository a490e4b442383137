"""Laws of bundles and branches over generated graphs.

A bundle makes the graph it came from. A merge leaves a sound graph, moves no cursor, counts
nothing twice, and writes nothing where it finds a conflict that it was not told how to solve.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from graphstate import Adaptogen, Fail
from tests.graphstate.bundles import bundle_of, invariants, live, prune, taken_in
from tests.strategies import graph_steps

FULL = os.environ.get("RELIABILITY") == "full"
SEVERAL = settings(max_examples=1_000 if FULL else 50, deadline=None)
MANY = settings(max_examples=1_000 if FULL else 100, deadline=None)

pytestmark = pytest.mark.timeout(1_800 if FULL else 120)

Steps = Sequence[tuple[str, dict[str, Any]]]


def perform(graph: Adaptogen, steps: Steps) -> None:
    for verb, arguments in steps:
        getattr(graph, verb)(**arguments)


def sown() -> Adaptogen:
    graph = Adaptogen.open(seed=False, now=lambda: 5)
    for node in "abc":
        graph.remember(node).unwrap()
    graph.link("a", "b", id="e1").unwrap()
    graph.link("b", "a", id="e2").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.checkpoint("here").unwrap()
    return graph


@SEVERAL
@given(before=graph_steps(), after=graph_steps(8), compacted=st.booleans(), back=st.booleans())
def test_a_bundle_makes_the_graph_it_came_from(
    before: Steps, after: Steps, compacted: bool, back: bool
) -> None:
    with sown() as graph:
        perform(graph, before)
        if back:
            graph.rollback("here").unwrap()
        if compacted:
            prune(graph)
        perform(graph, after)
        bundle = bundle_of(graph)
        assert bundle_of(graph) == bundle
        with taken_in(bundle, now=lambda: 5) as copy:
            assert live(copy) == live(graph)
            invariants(copy)
            for actor in ("developer", "robot"):
                assert copy.suggest(actor=actor) == graph.suggest(actor=actor)
            perform(copy, after)
            perform(graph, after)
            assert live(copy) == live(graph)
            invariants(copy)


@MANY
@given(
    before=graph_steps(12), ours=graph_steps(8), theirs=graph_steps(12), later=graph_steps(6),
    strategy=st.sampled_from(["fail", "ours", "theirs"]),
)  # fmt: skip
def test_a_merge_leaves_a_sound_graph(
    before: Steps, ours: Steps, theirs: Steps, later: Steps, strategy: Literal["fail", "ours", "theirs"]
) -> None:
    with sown() as main:
        perform(main, before)
        with main.branch(":memory:").unwrap() as child:
            perform(main, ours)
            perform(child, theirs)
            merge_and_compare(main, child, strategy)
            perform(child, later)
            perform(main, later)
            merge_and_compare(main, child, strategy)
            invariants(child)


def merge_and_compare(main: Adaptogen, child: Adaptogen, strategy: Literal["fail", "ours", "theirs"]) -> None:
    cursors = main.cursor(), main.cursor(actor="robot")
    before, other = live(main), live(child)
    head = main.head()
    merged = main.merge(child, on_conflict=strategy)
    event(f"{strategy}: {'refused' if isinstance(merged, Fail) else 'merged'}")
    if isinstance(merged, Fail):
        assert merged.code in ("Conflict", "CycleRejected", "NotFound"), merged
        assert (main.head(), live(main)) == (head, before)
    else:
        again = main.head()
        assert main.merge(child, on_conflict=strategy).unwrap().merged == 0
        assert main.head() == again
        if strategy == "fail":
            assert merged.value.conflicts == ()
    assert (main.cursor(), main.cursor(actor="robot")) == cursors
    assert live(child) == other
    invariants(main)


@SEVERAL
@given(ours=graph_steps(12), theirs=graph_steps(12), strategy=st.sampled_from(["fail", "ours", "theirs"]))
def test_an_import_into_a_graph_leaves_a_sound_graph(ours: Steps, theirs: Steps, strategy: str) -> None:
    from graphstate import VerbFailed
    from graphstate.verbs.importing import take_in

    with sown() as main, Adaptogen.open(seed=False) as other:
        perform(main, ours)
        other.remember("z").unwrap()
        perform(other, theirs)
        bundle, before, cursor = bundle_of(other), live(main), main.cursor()

        def take() -> int:
            options: Any = {"merge": True, "on_conflict": strategy, "expect_head": None}
            return take_in(main, io.BytesIO(bundle), **options).imported

        try:
            take()
        except VerbFailed:
            assert live(main) == before
        else:
            head = main.head()
            assert (take(), main.head()) == (0, head)
        assert main.cursor() == cursor
        invariants(main)
