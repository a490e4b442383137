from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.graph import (
    GraphBridge,
    GraphNodes,
    ListedNodes,
    declare_nodes,
    graph_node_provider,
    open_project,
)
from adapters.graph.names import actor_of, dependency_id, move_id, retry_id
from agentloop import (
    LoopingAgentLoop,
    RunLedger,
    ScriptedAdapter,
    create_agent_loop,
    create_default_evaluator_parser,
    create_looping_agent_loop,
)
from agentloop.errors import BoundExceeded, TaskError
from agentloop.frames import ERROR
from agentloop.messages import LoopResult, NodeStatus
from graphstate import Adaptogen

pytestmark = pytest.mark.anyio

PLAN: list[dict[str, Any]] = [
    {"id": "plan"},
    {"id": "build", "after": ["plan"]},
    {"id": "docs", "goal": "write it down"},
]
TASK = "t"


def memory_graph() -> Adaptogen:
    return Adaptogen.open(":memory:", seed=False)


class Hidden:
    """Work that fails for three cycles while something it secretly needs is not done."""

    def __init__(self, needs: Mapping[str, set[str]]) -> None:
        self.needs, self.done, self.order, self.cycles = needs, set[str](), list[str](), 0

    def loop(self, *, node: Any, **options: Any) -> Any:
        name = node["id"]
        ready = self.needs.get(name, set()) <= self.done
        self.order.append(name if ready else f"{name}!")
        self.cycles += 1 if ready else 3
        if ready:
            self.done.add(name)
        words = ["SUCCESS"] if ready else ["RUNNING"] * 3
        return create_agent_loop(
            agent_adapter=ScriptedAdapter(["work"] * len(words)),
            evaluator_adapter=ScriptedAdapter([f'{{"status": "{word}"}}' for word in words]),
            build_agent_prompt=lambda ctx: "go",
            build_evaluator_prompt=lambda ctx, history: "judge",
            parse_evaluator_output=create_default_evaluator_parser(),
            max_iterations=len(words),
            node=node,
            **options,
        )


def looping(work: Hidden, nodes: Any, run: str, **options: Any) -> LoopingAgentLoop:
    return create_looping_agent_loop(
        inner_loop_factory=work.loop,
        node_provider=nodes,
        should_continue=nodes.should_continue,
        max_iterations=40,
        run_id=run,
        **options,
    )


async def run_once(
    graph: Adaptogen, nodes: Sequence[Mapping[str, Any]], needs: Mapping[str, set[str]], run: str
) -> Hidden:
    work = Hidden(needs)
    order = GraphNodes(graph, task=TASK, nodes=nodes)
    result = await looping(work, order, run, graph=GraphBridge(graph, task=TASK)).run()
    assert result.status is NodeStatus.SUCCESS
    assert order.complete
    return work


# ------------------------------------------------------------------------------------ choosing


async def test_nodes_come_when_they_are_ready_and_the_run_ends_when_all_succeeded() -> None:
    with memory_graph() as graph:
        declare_nodes(graph, TASK, PLAN)
        work = await run_once(graph, PLAN, {}, "r1")

        assert work.order == ["plan", "build", "docs"]
        assert graph.cursor(actor=actor_of(TASK)) == ["docs"]
        run = graph.get_node("run:r1:3")
        assert run is not None
        assert (run.payload["node"], run.payload["reward"]) == ("docs", 1.0)


async def test_a_failed_node_comes_again_after_the_others() -> None:
    with memory_graph() as graph:
        nodes: list[dict[str, Any]] = [{"id": "first"}, {"id": "second"}]
        declare_nodes(graph, TASK, nodes)
        work = await run_once(graph, nodes, {"first": {"second"}}, "r1")

        assert work.order == ["first!", "second", "first"]


async def test_the_only_node_left_is_tried_again_by_an_edge_to_itself() -> None:
    with memory_graph() as graph:
        graph.remember("here").unwrap()
        graph.remember("there").unwrap()
        graph.link("here", "there").unwrap()
        graph.set_cursor(["here"], actor=actor_of(TASK)).unwrap()
        order, bridge = graph_node_provider(graph, task=TASK), GraphBridge(graph, task=TASK)
        tries = 0

        def factory(*, node: Any, **options: Any) -> Any:
            nonlocal tries
            tries += 1
            return Hidden({} if tries == 3 else {"there": {"luck"}}).loop(node=node, **options)

        result = await create_looping_agent_loop(
            inner_loop_factory=factory,
            node_provider=order,
            should_continue=order.should_continue,
            run_id="r",
            graph=bridge,
        ).run()

        assert (result.status, tries) == (NodeStatus.SUCCESS, 3)
        edge = graph.get_edge(retry_id("there"))
        assert edge is not None
        assert edge.weight < 1
        assert (edge.src, edge.dst) == ("there", "there")


async def test_each_run_begins_at_the_start_with_nothing_done() -> None:
    with memory_graph() as graph:
        declare_nodes(graph, TASK, PLAN)
        order = GraphNodes(graph, task=TASK, nodes=PLAN)
        for run in ("r1", "r2"):
            work = Hidden({})
            await looping(work, order, run, graph=GraphBridge(graph, task=TASK)).run()
            assert sorted(work.order) == ["build", "docs", "plan"]


async def test_a_graph_without_moves_offers_nothing() -> None:
    with memory_graph() as graph:
        order = graph_node_provider(graph)
        result = await looping(Hidden({}), order, "r").run()

        assert result.reason == "no_nodes"
        assert order.explain() == []


async def test_the_node_carries_what_was_said_about_it_and_the_edge() -> None:
    with memory_graph() as graph:
        nodes: list[dict[str, Any]] = [{"id": "docs", "goal": "write it down"}]
        declare_nodes(graph, TASK, nodes)
        expected = {"goal": "write it down", "id": "docs", "edge_id": move_id("start:t", "docs")}

        assert await GraphNodes(graph, task=TASK, nodes=nodes)(0) == expected
        assert await GraphNodes(graph, task=TASK)(0) == {"task": TASK, **expected}


async def test_an_explanation_tells_each_term_and_what_stands_in_the_way() -> None:
    with memory_graph() as graph:
        declare_nodes(graph, TASK, PLAN)
        await run_once(graph, PLAN, {}, "r1")
        order = GraphNodes(graph, task=TASK, nodes=PLAN)
        node = await order(0)

        assert node is not None
        assert node["id"] == "docs"
        assert order.explain() == [
            "1. build: +1.16 = experience +0.00 (never tried) + prior +0.00 + curiosity +1.17 (waits for plan)",
            "2. docs: +1.16 = experience +0.00 (never tried) + prior +0.00 + curiosity +1.17 <- taken",
            "3. plan: +1.12 = experience +0.30 (tried 1x, average reward +0.30) + prior +0.00 + curiosity +0.82",
        ]


async def test_cycles_per_success_fall_over_three_runs_and_below_the_fixed_order() -> None:
    cycles, fixed = [0, 0, 0], 0
    for seed in range(20):
        rng = random.Random(seed)
        names = [f"n{number}" for number in range(4)]
        right = rng.sample(names, len(names))
        needs = {later: {sooner} for sooner, later in pairwise(right) if rng.random() < 0.6}
        nodes: list[dict[str, Any]] = [{"id": name} for name in names]
        with memory_graph() as graph:
            declare_nodes(graph, TASK, nodes)
            for run in range(3):
                cycles[run] += (await run_once(graph, nodes, needs, f"r{run}")).cycles
        listed = Hidden(needs)
        await looping(listed, ListedNodes(nodes), "listed").run()
        fixed += listed.cycles

    assert cycles[0] > cycles[1] > cycles[2]
    assert cycles[2] < fixed


# -------------------------------------------------------------------------------------- listed


async def test_the_list_is_followed_and_failed_nodes_come_round_again() -> None:
    nodes: list[dict[str, Any]] = [{"id": "c"}, {"id": "a"}, {"id": "b", "after": "a"}]
    order = ListedNodes(nodes)
    work = Hidden({"c": {"b"}})
    result = await looping(work, order, "r").run()

    assert work.order == ["c!", "a", "b", "c"]
    assert result.status is NodeStatus.SUCCESS
    assert order.complete
    assert order.explain() == ["c: the next ready node of the list"]


async def test_a_list_whose_last_node_keeps_failing_never_is_complete() -> None:
    order = ListedNodes([{"id": "a"}, {"id": "b"}])
    for index in range(5):
        node = order(index)
        assert node is not None
        status = NodeStatus.SUCCESS if node["id"] == "a" else NodeStatus.FAILURE
        assert order.should_continue(LoopResult(status=status, reason="evaluator", node=node), index)
    assert not order.complete
    assert order.succeeded == {"a"}


# ------------------------------------------------------------------------------------ declaring


def test_declaring_again_changes_nothing_and_keeps_what_was_learned() -> None:
    with memory_graph() as graph:
        declare_nodes(graph, TASK, PLAN)
        edge = move_id("start:t", "plan")
        graph.reward(1.0, edge_id=edge).unwrap()
        head = graph.head()
        declare_nodes(graph, TASK, PLAN)

        assert graph.head() == head
        assert graph.get_stat("edge", edge) is not None


def test_moves_lead_everywhere_dependencies_allow() -> None:
    with memory_graph() as graph:
        declare_nodes(graph, TASK, PLAN)

        assert graph.get_edge(move_id("plan", "build")) is not None
        assert graph.get_edge(move_id("docs", "plan")) is not None
        assert graph.get_edge(move_id("build", "plan")) is None
        assert graph.ancestors("build") == ["plan"]


def test_a_dependency_that_changed_sides_replaces_the_old_one() -> None:
    with memory_graph() as graph:
        declare_nodes(graph, TASK, PLAN)
        turned: list[dict[str, Any]] = [{"id": "plan", "after": ["build"]}, {"id": "build"}]
        declare_nodes(graph, TASK, turned)

        assert graph.ancestors("plan") == ["build"]
        assert graph.get_edge(dependency_id("build", "plan")) is None
        assert graph.get_edge(move_id("build", "plan")) is not None
        assert graph.get_edge(move_id("plan", "build")) is None


def test_a_node_of_somebody_else_is_used_and_not_rewritten() -> None:
    with memory_graph() as graph:
        graph.remember("plan", kind="idea", payload={"mine": True}).unwrap()
        declare_nodes(graph, TASK, PLAN)
        node = graph.get_node("plan")

        assert node is not None
        assert (node.kind, node.payload, node.version) == ("idea", {"mine": True}, 1)


@pytest.mark.parametrize(
    ("nodes", "error", "text"),
    [
        ([{"id": f"n{number}"} for number in range(33)], BoundExceeded, "at most 32 allowed, found 33"),
        ([{"id": "a"}, {"id": "a"}], TaskError, "two nodes have the id 'a'"),
        ([{"goal": "x"}], TaskError, "node 1 needs an 'id'"),
        ([{"id": "a", "after": ["b"]}], TaskError, "comes after 'b', which is no node"),
        ([{"id": "a", "after": ["b"]}, {"id": "b", "after": ["a"]}], TaskError, "wait for each other: "),
    ],
)
def test_nodes_that_make_no_task_are_refused(
    nodes: list[dict[str, Any]], error: type[Exception], text: str
) -> None:
    with memory_graph() as graph:
        with pytest.raises(error, match=text):
            declare_nodes(graph, TASK, nodes)
        assert graph.store.head().seq == 0


def test_thirty_two_nodes_are_allowed() -> None:
    with memory_graph() as graph:
        declare_nodes(graph, TASK, [{"id": f"n{number}"} for number in range(32)])
        assert len(graph.legal_moves(actor=actor_of(TASK))) == 0
        assert graph.metrics().edges["transition"] == 32 + 32 + 32 * 31


# ------------------------------------------------------------------------------------- one file


@pytest.mark.parametrize("by", ["listed", "graph"])
async def test_a_project_keeps_ledger_and_memory_in_one_file(tmp_path: Path, by: str) -> None:
    project = open_project(tmp_path / "s.db")
    try:
        order = project.order(task=TASK, nodes=PLAN, by=by)
        bridge = project.bridge(task=TASK, node=None)
        with anyio.fail_after(30):
            outer = looping(Hidden({"plan": {"docs"}}), order, "R", graph=bridge, ledger=project.ledger)
            async with outer:
                await outer.sink.write({"type": "TICK"})
                frames = await outer.source.collect()

        assert outer.result is not None
        assert outer.result.status is NodeStatus.SUCCESS
        assert order.complete
        assert [frame for frame in frames if frame.type == ERROR] == []
        assert RunLedger(project.ledger, "R/1").verify().ok
        node = project.graph.get_node("run:R:1")
        assert node is not None
        assert node.payload["reward"] == -0.6
    finally:
        project.close()


async def test_a_task_of_one_loop_credits_the_way_from_the_start_each_time(tmp_path: Path) -> None:
    for run in ("r1", "r2"):
        project = open_project(tmp_path / "s.db")
        bridge = project.bridge(task=TASK, node="fix")
        await Hidden({}).loop(node={"id": "whatever"}, graph=bridge, run_id=run).run()
        stat = project.graph.get_stat("edge", move_id("start:t", "fix"))
        project.close()
    assert stat is not None
    assert (stat.visits, stat.successes) == (2, 2)
