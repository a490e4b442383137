"""What the memory costs, in bytes, events and steps of SQLite's machine: no clock is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphstate import Adaptogen
from tests.counts.test_graph_counts import work_of

ROOT = Path(__file__).parents[2]
KINDS = ("fact", "episode", "instruction", "entity", "state")


def memories(count: int, path: Path | str = ":memory:") -> Adaptogen:
    graph = Adaptogen.open(path, seed=False)
    graph.set_tunable("snapshotInterval", 0).unwrap()
    with graph.unit():
        for i in range(count):
            graph.remember(f"n{i:05}", kind=KINDS[i % len(KINDS)], payload={"text": f"about {i}"}).unwrap()
            graph.reinforce(f"n{i:05}", 0.3 + i / count / 2).unwrap()
    return graph


@pytest.mark.parametrize("context", [None, "a task of some length"])
def test_a_reinforcement_is_one_event_of_less_than_300_bytes(tmp_path: Path, context: str | None) -> None:
    path, times = tmp_path / "memory.db", 3_000
    memories(300, path).close()
    before = path.stat().st_size
    with Adaptogen.open(path, seed=False) as graph:
        head = graph.store.head().seq
        with graph.unit():
            for i in range(times):
                graph.reinforce(f"n{i % 300:05}", 0.1, context=context).unwrap()
        assert graph.store.head().seq - head == times
    assert (path.stat().st_size - before) / times <= 300


def test_a_reinforcement_costs_the_same_among_many_memories() -> None:
    spent: list[tuple[int, int]] = []
    for count in (100, 2_000):
        with memories(count) as graph:
            graph.reinforce("n00050", 0.1).unwrap()
            with work_of(graph) as work:
                for _ in range(20):
                    graph.reinforce("n00050", 0.1).unwrap()
            spent.append((work.statements, work.steps))
    assert spent[0] == spent[1]
    assert spent[0][0] == 20 * 6  # begin, event, find, write, state, commit


def test_a_memory_with_very_many_references_costs_what_any_other_does() -> None:
    with memories(1_500) as graph:
        with graph.unit():
            for i in range(1, 1_500):
                graph.link("n00000", f"n{i:05}", kind="reference", label="about").unwrap()
                graph.link(f"n{i:05}", "n00001", kind="reference", label="about").unwrap()
        graph.suppress("n00002", 0.1).unwrap()
        spent: list[int] = []
        for node in ("n00000", "n00001", "n00700"):
            with work_of(graph) as work:
                graph.reinforce(node, 0.1).unwrap()
                graph.suppress(node, 0.1).unwrap()
                graph.store.projection.surroundings.summaries([node])
                graph.store.projection.surroundings.facts([node], context=None, as_of=None)
            spent.append(work.steps)
    assert max(spent) - min(spent) < 20  # rows lie at other places of the trees


def test_a_ranking_reads_as_much_of_many_memories_as_of_few_and_writes_nothing() -> None:
    spent: list[int] = []
    for count in (500, 5_000):
        with memories(count) as graph:
            head = graph.head()
            with work_of(graph) as work:
                first = graph.top_activated(limit=8)
            assert [row.id for row in first] == [f"n{i:05}" for i in range(count - 1, count - 9, -1)]
            assert work.statements
            spent.append(work.steps)
            with work_of(graph) as work:
                assert [row.id for row in graph.top_activated(limit=8)] == [row.id for row in first]
            assert work.statements == 0
            graph.reinforce("n00003", 5).unwrap()
            with work_of(graph) as work:
                assert graph.top_activated(limit=8)[0].id == "n00003"
            assert work.statements == 0
            assert graph.head() != head
    assert spent[0] == spent[1]


def test_a_window_reads_as_much_of_many_memories_as_of_few() -> None:
    spent: list[tuple[int, int]] = []
    for count in (1_000, 5_000):
        with memories(count) as graph, work_of(graph) as work:
            assert graph.working_memory(limit=10, diversity=0.5, token_budget=2_000).items
        spent.append((work.statements, work.steps))
    assert spent[0] == spent[1]


def test_opening_a_memory_imports_neither_numpy_nor_what_only_replicas_and_bundles_need() -> None:
    told = """
from graphstate import Adaptogen
with Adaptogen.open(":memory:", seed=False) as graph:
    graph.remember("a", payload={"text": "a"}).unwrap()
    graph.reinforce("a", 0.5).unwrap()
    graph.working_memory(limit=3, diversity=0.5)
    graph.pulse("a")
import sys
print(*{"numpy", "dataclasses", "graphstate.bundle", "graphstate.verbs.admission"} & {*sys.modules})
"""
    done = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
