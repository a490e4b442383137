from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.graph import DEFAULT_REWARDS, GraphBridge, declare_nodes, reward_for
from adapters.graph.names import actor_of, move_id, run_node_id, symbolic_id
from agentloop import AgentLoop, ScriptedAdapter, create_agent_loop, create_default_evaluator_parser
from agentloop.frames import ERROR, NODE_COMPLETED, TREE_FAILED, Frame
from agentloop.messages import LoopResult, NodeStatus, ResultReason, RunOutcome
from graphstate import Adaptogen, VerbFailed
from tests.adapters.graph.doubles import RecordingGraph

pytestmark = pytest.mark.anyio

RETRY = '{"status": "RUNNING", "evidence": "not yet"}'
DONE = '{"status": "SUCCESS", "evidence": "done"}'
FAILED = '{"status": "FAILURE", "evidence": "hopeless"}'


def loop(bridge: GraphBridge, *verdicts: Any, run_id: str = "R", **options: Any) -> AgentLoop:
    return create_agent_loop(
        agent_adapter=ScriptedAdapter(["work"] * len(verdicts)),
        evaluator_adapter=ScriptedAdapter(list(verdicts)),
        build_agent_prompt=lambda ctx: "go",
        build_evaluator_prompt=lambda ctx, history: "judge",
        parse_evaluator_output=create_default_evaluator_parser(),
        graph=bridge,
        run_id=run_id,
        **options,
    )


async def played(made: AgentLoop) -> tuple[LoopResult, list[Frame]]:
    with anyio.fail_after(20):
        async with made:
            await made.sink.write({"type": "TICK"})
            frames = await made.source.collect()
        return await made.wait(), frames


def outcome(
    status: NodeStatus = NodeStatus.SUCCESS,
    reason: ResultReason = "evaluator",
    *,
    node: Any = "build",
    retries: int = 0,
    run_id: str = "R",
) -> RunOutcome:
    return RunOutcome(
        run_id=run_id,
        node=node,
        status=status,
        reason=reason,
        evidence="because",
        iterations=retries + 1,
        retry_count=retries,
    )


@pytest.fixture(params=["process", "power"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adaptogen]:
    with Adaptogen.open(tmp_path / "g.db", seed=False, durability=request.param) as opened:
        declare_nodes(opened, "default", [{"id": "build"}, {"id": "test", "after": ["build"]}])
        yield opened


# -------------------------------------------------------------------------------------- vectors


async def test_v175_facts_are_remembered_and_archived_in_order() -> None:
    graph = RecordingGraph()
    updates = '[{"name": "a", "value": 1}, {"name": "a", "op": "retract"}]'
    verdict = f'{{"status": "SUCCESS", "evidence": "ok", "symbolicUpdates": {updates}}}'
    await played(loop(GraphBridge(graph), verdict))

    assert [call for call in graph.calls if "sym:" in str(call[1])] == [
        ("remember", "sym:default:a"),
        ("archive", "sym:default:a"),
    ]
    assert graph.options[0]["payload"] == {
        "name": "a",
        "value": 1,
        "loop": "R",
        "iteration": 1,
        "by": "evaluator",
    }
    assert graph.options[0]["status"] == "active"


async def test_v176_a_success_after_two_retries_is_worth_nine_tenths() -> None:
    graph = RecordingGraph(nodes=("build",))
    await played(loop(GraphBridge(graph, node_id="build"), RETRY, RETRY, DONE))

    assert graph.calls == [("transition", "build"), ("reward", (0.9, "E1")), ("remember", "run:R")]


async def test_v177_an_abort_is_remembered_and_not_rewarded() -> None:
    graph = RecordingGraph(nodes=("build",))
    made = loop(GraphBridge(graph, node_id="build"), DONE)
    made.abort("enough")
    result, _ = await played(made)

    assert result.reason == "aborted"
    assert graph.calls == [("remember", "run:R")]
    assert graph.options[0]["payload"]["status"] == "aborted"


@pytest.mark.parametrize("strict", [False, True])
async def test_v178_a_write_that_fails_is_reported_or_if_strict_fatal(strict: bool) -> None:
    graph = RecordingGraph(failing=("remember",))
    result, frames = await played(loop(GraphBridge(graph, strict=strict), DONE))

    (error,) = [frame for frame in frames if frame.type == ERROR]
    assert error.content["phase"] == "graph"
    assert error.content["fatal"] is strict
    assert "remember found no room" in error.content["message"]
    assert "free space on the disk" in error.content["message"]
    assert frames[-1].type == (TREE_FAILED if strict else NODE_COMPLETED)
    assert result.reason == ("error" if strict else "evaluator")


async def test_v179_a_denied_move_is_told_and_not_rewarded() -> None:
    graph = RecordingGraph(nodes=("build",), denied=True)
    result, frames = await played(loop(GraphBridge(graph, node_id="build"), DONE))

    assert result.status is NodeStatus.SUCCESS
    assert [verb for verb, _ in graph.calls] == ["transition", "remember"]
    assert graph.options[-1]["payload"]["denied"] is True
    (error,) = [frame for frame in frames if frame.type == ERROR]
    assert (error.content["phase"], error.content["fatal"]) == ("graph", False)
    assert "denied: guard failed: ready" in error.content["message"]


async def test_v179_a_denied_move_in_a_real_graph(graph: Adaptogen) -> None:
    graph.remember("build").unwrap()
    graph.define_zone("fence", ["build"], boundary="hard").unwrap()
    _, frames = await played(loop(GraphBridge(graph, node_id="build"), DONE))

    assert [frame.content["phase"] for frame in frames if frame.type == ERROR] == ["graph"]
    run = graph.get_node("run:R")
    assert run is not None
    assert run.payload["denied"] is True
    stat = graph.get_stat("edge", move_id("start:default", "build"))
    assert stat is not None
    assert (stat.blocks, stat.visits, stat.successes) == (1, 0, 0)


async def test_v180_writing_again_changes_nothing(graph: Adaptogen) -> None:
    bridge = GraphBridge(graph)
    for _ in range(2):
        await bridge.fact("a", 1, op="assert", by="agent", iteration=1, cause="R/3")
        first = await bridge.record_outcome(outcome())
    head = graph.head()
    again = await bridge.record_outcome(outcome())

    assert again == first
    assert graph.head() == head
    node = graph.get_node("sym:default:a")
    assert node is not None
    assert node.version == 1
    stat = graph.get_stat("edge", move_id("start:default", "build"))
    assert stat is not None
    assert (stat.visits, stat.successes) == (1, 1)


# ------------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(
    ("status", "reason", "retries", "value"),
    [
        (NodeStatus.SUCCESS, "checks", 0, 1.0),
        (NodeStatus.SUCCESS, "evaluator", 3, 0.85),
        (NodeStatus.SUCCESS, "evaluator", 60, -1.0),
        (NodeStatus.FAILURE, "evaluator", 0, -1.0),
        (NodeStatus.FAILURE, "evaluator", 5, -1.0),
        (NodeStatus.FAILURE, "max_iterations", 2, -0.6),
        (NodeStatus.FAILURE, "error", 0, -0.5),
        (NodeStatus.FAILURE, "aborted", 4, None),
    ],
)
def test_the_reward_table(
    status: NodeStatus, reason: ResultReason, retries: int, value: float | None
) -> None:
    assert reward_for(outcome(status, reason, retries=retries)) == value


@pytest.mark.parametrize("rewards", [{"sucess": 1.0}, {"error": 2}, {"error": float("nan")}, {"error": True}])
def test_a_reward_table_that_cannot_be_meant_is_refused(rewards: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"rewards has no row|from -1 to 1"):
        GraphBridge(RecordingGraph(), rewards=rewards)


async def test_rewards_can_be_changed(graph: Adaptogen) -> None:
    bridge = GraphBridge(graph, rewards={**DEFAULT_REWARDS, "success": 0.5})
    assert (await bridge.record_outcome(outcome()))["reward"] == 0.5


async def test_the_bridge_moves_its_own_cursor_from_the_start(graph: Adaptogen) -> None:
    graph.set_cursor(["build"]).unwrap()
    done = await GraphBridge(graph).record_outcome(outcome())

    assert done == {
        "run": "run:R",
        "node": "build",
        "edge": move_id("start:default", "build"),
        "applied": True,
        "reward": 1.0,
    }
    assert graph.cursor(actor=actor_of("default")) == ["build"]
    assert graph.cursor() == ["build"]


async def test_of_parallel_edges_the_named_one_is_taken_and_rewarded(graph: Adaptogen) -> None:
    other = graph.link("start:default", "build", id="other").unwrap()
    done = await GraphBridge(graph).record_outcome(outcome(node={"id": "build", "edge_id": other.id}))

    assert done["edge"] == "other"
    assert graph.get_stat("edge", move_id("start:default", "build")) is None


async def test_a_move_without_an_edge_is_a_problem_and_the_run_is_remembered(graph: Adaptogen) -> None:
    graph.remember("island").unwrap()
    done = await GraphBridge(graph).record_outcome(outcome(node="island"))

    assert "no transition edge leads from start:default to 'island'" in str(done["problem"])
    run = graph.get_node("run:R")
    assert run is not None
    assert run.payload["problem"] == done["problem"]
    assert run.status == "active"


@pytest.mark.parametrize("node", [None, 7, "unknown", {"goal": "no id"}])
async def test_a_node_the_graph_does_not_have_moves_nothing(graph: Adaptogen, node: Any) -> None:
    assert await GraphBridge(graph).record_outcome(outcome(node=node)) == {"run": "run:R"}
    assert graph.cursor(actor=actor_of("default")) == []


async def test_an_outcome_that_fails_half_way_leaves_no_trace(
    graph: Adaptogen, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = graph.head()
    bridge = GraphBridge(graph, rewards={"success": 0.5})
    with pytest.raises(VerbFailed, match="PayloadTooLarge"):
        graph.set_tunable("maxPayloadBytes", 64).unwrap()
        head = graph.head()
        await bridge.record_outcome(outcome())

    assert graph.head() == head
    assert graph.cursor(actor=actor_of("default")) == []
    assert graph.get_stat("edge", move_id("start:default", "build")) is None


async def test_a_seal_that_fails_takes_the_outcome_with_it(graph: Adaptogen) -> None:
    head, sealed = graph.head(), []

    def seal(done: Any) -> None:
        sealed.append(done["reward"])
        raise OSError("the ledger is gone")

    with pytest.raises(OSError, match="the ledger is gone"):
        await GraphBridge(graph).record_outcome(outcome(), seal=seal)

    assert sealed == [1.0]
    assert graph.head() == head


# ---------------------------------------------------------------------------------------- facts


async def test_a_fact_asserted_again_after_a_retract_is_active_again(graph: Adaptogen) -> None:
    bridge = GraphBridge(graph, task="docs")
    await bridge.fact("a", 1, op="assert", by="agent", iteration=1, cause="R/1")
    await bridge.fact("a", None, op="retract", by="tool", iteration=1, cause="R/2")
    node = graph.get_node("sym:docs:a")
    assert node is not None
    assert node.status == "archived"
    await bridge.fact("a", 2, op="assert", by="developer", iteration=2, cause="R/3")
    node = graph.get_node("sym:docs:a")
    assert node is not None
    assert (node.status, node.payload["value"]) == ("active", 2)


async def test_a_fact_that_was_never_written_is_retracted_in_silence(graph: Adaptogen) -> None:
    head = graph.head()
    await GraphBridge(graph).fact("a", None, op="retract", by="agent", iteration=1, cause="R/1")

    assert graph.head() == head


async def test_a_fact_carries_the_trust_of_whoever_said_it(graph: Adaptogen) -> None:
    bridge = GraphBridge(graph)
    for number, by in enumerate(("agent", "evaluator", "tool", "developer")):
        await bridge.fact(by, 1, op="assert", by=by, iteration=1, cause=f"R/{number}")
    trusts = [row.trust for row in graph.store.read("graph") if row.cause and row.cause.startswith("R/")]

    assert trusts == ["model", "model", "tool", "developer"]


async def test_a_graph_that_flushes_is_called_in_a_worker(graph: Adaptogen) -> None:
    threads: list[int] = []

    def seal(done: Any) -> None:
        threads.append(threading.get_ident())

    await GraphBridge(graph).record_outcome(outcome(), seal=seal)

    assert (threads == [threading.get_ident()]) is (graph.durability != "power")


# ---------------------------------------------------------------------------------------- names


def test_names_never_become_one_another() -> None:
    names = ["a", "a b", "a--20b", "a-b", "a--b", "-a", "a-", "ä", "", "a:b", "a::b", "x" * 200, "x" * 201]
    ids = [symbolic_id(scope, name) for scope in ("s", "s-t", "s:t", "y" * 99) for name in names]

    assert len(set(ids)) == len(ids)
    assert all(len(found) <= 128 for found in ids)
    assert symbolic_id("fix-the-tests", "tests.passed_now") == "sym:fix-the-tests:tests.passed_now"


def test_the_node_of_an_inner_run_says_whose_it_is() -> None:
    assert run_node_id("01HZX/2") == "run:01HZX:2"
    assert len(run_node_id("x" * 300)) == 128
