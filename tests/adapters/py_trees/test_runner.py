from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import py_trees
import pytest
from py_trees.common import Status

from adapters.py_trees import (
    TREE_ENDED,
    TREE_STATUS,
    TREE_TICK,
    AgentLoopBehaviour,
    TreeRunner,
    run_tree,
    tree_node_provider,
)
from agentloop import FrameBuffer, FrameDuplex, create_looping_agent_loop
from agentloop.frames import ABORT, ERROR, INPUT, NODE_COMPLETED, TEXT, TICK, TREE_FAILED, Frame
from agentloop.messages import NodeStatus
from tests.adapters.py_trees.loops import SUCCESS, Gate, gated, loop, verdict

pytestmark = pytest.mark.anyio

#: So long that only what happens in the tree leads to the next tick.
NEVER = 60_000


def sequence(*children: py_trees.behaviour.Behaviour, memory: bool = True) -> Any:
    root: Any = py_trees.composites.Sequence("root", memory=memory)
    root.add_children(children)
    return root


def working(name: str, *, evidence: str = "all good") -> AgentLoopBehaviour:
    return AgentLoopBehaviour(name, lambda _: loop([f"{name} done"], [verdict("SUCCESS", evidence)]))


def held(name: str, gate: Gate) -> AgentLoopBehaviour:
    return AgentLoopBehaviour(name, lambda _: gated(gate, text=f"{name} done"))


async def frames_of(runner: TreeRunner) -> list[Frame]:
    with anyio.fail_after(20):
        async with runner:
            await runner.sink.write(TICK_FRAME)
            return [frame async for frame in runner.source]


TICK_FRAME = Frame(TICK, {})


def story(frames: list[Frame]) -> list[str]:
    """One word a frame, ticks left out."""
    told = []
    for frame in frames:
        if frame.type == TREE_STATUS:
            told.append(f"{frame.content['path']}={frame.content['status']}")
        elif frame.type != TREE_TICK:
            where = frame.meta.get("behaviour")
            told.append(f"{where}:{frame.type}" if where else frame.type)
    return told


async def test_a_tree_is_a_duplex() -> None:
    assert isinstance(TreeRunner(sequence(working("a"))), FrameDuplex)


async def test_changes_and_the_frames_of_the_loops_come_in_one_order() -> None:
    runner = TreeRunner(sequence(working("a"), working("b")), period_ms=NEVER)
    frames = await frames_of(runner)

    loop_frames = [TEXT, "agent_loop:node_started", TEXT, NODE_COMPLETED]
    assert story(frames) == [
        "root/a=RUNNING",
        "root=RUNNING",
        *(f"root/a:{kind}" for kind in loop_frames),
        "root/a=SUCCESS",
        "root/b=RUNNING",
        *(f"root/b:{kind}" for kind in loop_frames),
        "root/b=SUCCESS",
        "root=SUCCESS",
        TREE_ENDED,
    ]
    assert [f.content["tick"] for f in frames if f.type == TREE_TICK] == [1, 2, 3]
    assert runner.result is not None
    assert (runner.result.status, runner.result.reason) == (NodeStatus.SUCCESS, "tree")
    assert runner.result.evidence == "all good"
    assert runner.status is NodeStatus.SUCCESS


async def test_loops_run_on_the_runners_own_event_loop() -> None:
    threads: list[int] = []

    def build(ctx: Any) -> str:
        threads.append(threading.get_ident())
        return "go"

    leaf = AgentLoopBehaviour("a", lambda _: loop(["a"], [SUCCESS], build_agent_prompt=build))
    await frames_of(TreeRunner(sequence(leaf), period_ms=NEVER))

    assert threads == [threading.get_ident()]


async def test_a_loop_that_is_stopped_in_the_tick_that_began_it_never_works() -> None:
    root: Any = py_trees.composites.Parallel("root", policy=py_trees.common.ParallelPolicy.SuccessOnAll())
    leaf = working("a")
    root.add_children([leaf, py_trees.behaviours.Failure("broken")])
    with anyio.fail_after(3):
        assert await run_tree(root, period_ms=NEVER) is Status.FAILURE

    assert leaf.result is not None
    assert (leaf.result.reason, leaf.result.iterations) == ("aborted", 0)


async def test_an_abort_interrupts_every_loop_and_ends_the_run_once() -> None:
    gate = Gate()
    root: Any = py_trees.composites.Parallel("root", policy=py_trees.common.ParallelPolicy.SuccessOnAll())
    leaves = [held("a", gate), held("b", gate)]
    root.add_children(leaves)
    runner = TreeRunner(root, period_ms=NEVER)
    with anyio.fail_after(20):
        async with runner:
            runner.sink.write_nowait(TICK_FRAME)
            seen = []
            async for frame in runner.source:
                seen.append(frame)
                if frame.type == TREE_STATUS and frame.content["behaviour"] == "root":
                    assert runner.abort("enough") is (frame.content["status"] == "RUNNING")
                    assert runner.abort("again") is False

    assert [leaf.result.reason for leaf in leaves if leaf.result] == ["aborted", "aborted"]
    assert [frame.content["reason"] for frame in seen if frame.type == ABORT] == [
        "interrupted",
        "interrupted",
        "enough",
    ]
    assert [f.type for f in seen].count(TREE_FAILED) == 2
    assert story(seen)[-5:] == ["root/a=INVALID", "root/b=INVALID", "root=INVALID", TREE_ENDED, ABORT]
    assert runner.result is not None
    assert runner.result.reason == "aborted"


async def test_an_abort_before_the_tick_never_ticks_the_tree() -> None:
    runner = TreeRunner(sequence(working("a")))
    runner.abort("no")
    async with runner:
        frames = await runner.source.collect()

    assert story(frames) == [TREE_ENDED, ABORT]
    assert runner.ticks == 0


async def test_a_higher_branch_interrupts_a_lower_one_and_the_tree_goes_on() -> None:
    gate = Gate()
    alarm = threading.Event()

    class Alarm(py_trees.behaviour.Behaviour):
        def update(self) -> Status:
            return Status.SUCCESS if alarm.is_set() else Status.FAILURE

    lower = held("lower", gate)
    root: Any = py_trees.composites.Selector("root", memory=False)
    root.add_children([sequence(Alarm("alarm"), working("upper")), lower])
    root.children[0].name = "urgent"
    runner = TreeRunner(root, period_ms=1)
    seen: list[Frame] = []
    with anyio.fail_after(20):
        async with runner:
            runner.sink.write_nowait(TICK_FRAME)
            async for frame in runner.source:
                seen.append(frame)
                if frame.type == TREE_STATUS and frame.content["behaviour"] == "lower":
                    alarm.set()

    told = story(seen)
    assert told.index("root/lower=INVALID") > told.index("root/lower=RUNNING")
    assert "root/lower:ABORT" in told
    assert "root/urgent/upper=SUCCESS" in told
    assert lower.result is not None
    assert lower.result.reason == "aborted"
    assert runner.result is not None
    assert runner.result.status is NodeStatus.SUCCESS


async def test_a_pipe_takes_every_frame() -> None:
    buffer = FrameBuffer()
    runner = TreeRunner(sequence(working("a")), period_ms=NEVER)
    runner.source.pipe(buffer.sink)
    with anyio.fail_after(20):
        async with runner:
            runner.sink.write_nowait(TICK_FRAME)
            result = await runner.wait()
            piped = await buffer.source.collect()

    assert result.status is NodeStatus.SUCCESS
    assert story(piped)[-1] == TREE_ENDED
    assert "root/a:agent_loop:node_completed" in story(piped)


async def test_a_slow_reader_holds_up_the_tree_if_it_shall() -> None:
    runner = TreeRunner(
        sequence(working("a"), working("b")),
        period_ms=NEVER,
        max_buffered_output_frames=1,
        output_overflow_strategy="block",
    )
    told = story(await frames_of(runner))

    assert told[-3:] == ["root/b=SUCCESS", "root=SUCCESS", TREE_ENDED]
    assert told.count("root/a:TEXT") == 2


async def test_a_run_that_nobody_reads_can_be_left() -> None:
    runner = TreeRunner(
        sequence(working("a")), max_buffered_output_frames=1, output_overflow_strategy="block"
    )
    with anyio.fail_after(20):
        async with runner:
            runner.sink.write_nowait(TICK_FRAME)
            await anyio.wait_all_tasks_blocked()

    assert runner.result is not None
    assert runner.result.reason == "aborted"


async def test_inputs_reach_the_loops_that_run() -> None:
    inboxes: list[tuple[str, ...]] = []

    def build(ctx: Any) -> str:
        inboxes.append(ctx.inbox)
        return "go"

    leaf = AgentLoopBehaviour("a", lambda _: loop(["a"], [SUCCESS], build_agent_prompt=build))
    runner = TreeRunner(sequence(leaf), period_ms=NEVER)
    with anyio.fail_after(20):
        async with runner:
            assert runner.sink.write_nowait(Frame(INPUT, {"text": "too early"})) is False
            runner.sink.write_nowait(TICK_FRAME)
            async for frame in runner.source:
                if frame.type == TREE_STATUS and frame.content["path"] == "root/a" and leaf.busy:
                    other = {"text": "x", "behaviour": "somebody else"}
                    assert runner.sink.write_nowait(Frame(INPUT, other)) is False
                    assert runner.sink.write_nowait(Frame(INPUT, {"text": "hi", "behaviour": "a"}))
                    assert runner.sink.write_nowait(Frame(INPUT, {"text": "all"}))

    assert inboxes == [("hi", "all")]


async def test_cancel_after_cycle_lets_the_running_cycle_end() -> None:
    gate = Gate()
    runner = TreeRunner(sequence(held("a", gate), working("b")), period_ms=NEVER)
    with anyio.fail_after(20):
        async with runner:
            runner.sink.write_nowait(TICK_FRAME)
            seen = []
            async for frame in runner.source:
                seen.append(frame)
                if frame.type == TREE_STATUS and frame.content["behaviour"] == "root" and not runner.result:
                    await anyio.to_thread.run_sync(gate.wait_until_reached)
                    runner.sink.write_nowait(Frame("CANCEL", {"mode": "after_cycle", "reason": "later"}))
                    gate.open()

    told = story(seen)
    assert "root/a:agent_loop:node_completed" in told
    assert "root/b=RUNNING" not in told
    assert runner.result is not None
    assert runner.result.reason == "aborted"
    assert seen[-1] == Frame(ABORT, {"reason": "later"})


async def test_a_behaviour_that_raises_ends_the_run_with_its_error() -> None:
    class Broken(py_trees.behaviour.Behaviour):
        def update(self) -> Status:
            raise ZeroDivisionError("no way")

    gate = Gate()
    root: Any = py_trees.composites.Parallel("root", policy=py_trees.common.ParallelPolicy.SuccessOnAll())
    leaf = held("a", gate)
    root.add_children([leaf, Broken("broken")])
    runner = TreeRunner(root, period_ms=NEVER)
    frames = await frames_of(runner)

    assert story(frames)[-2:] == [ERROR, TREE_ENDED]
    assert runner.result is not None
    assert isinstance(runner.result.error, ZeroDivisionError)
    assert not leaf.busy
    with pytest.raises(ZeroDivisionError):
        await run_tree(sequence(Broken("broken")))


async def test_cancelling_the_surroundings_leaves_nothing_running() -> None:
    gate = Gate()
    leaf = held("a", gate)
    runner = TreeRunner(sequence(leaf), period_ms=NEVER)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def live() -> None:
                async with runner:
                    runner.sink.write_nowait(TICK_FRAME)
                    await anyio.sleep_forever()

            tasks.start_soon(live)
            await anyio.to_thread.run_sync(gate.wait_until_reached)
            tasks.cancel_scope.cancel()

    assert not leaf.busy
    assert leaf.result is not None
    assert leaf.result.reason == "aborted"
    assert runner.result is not None
    assert runner.result.reason == "aborted"


@pytest.mark.parametrize(
    ("leaf", "status"),
    [
        (lambda: working("a"), Status.SUCCESS),
        (lambda: AgentLoopBehaviour("a", lambda _: loop(["a"], [verdict("FAILURE", "no")])), Status.FAILURE),
        (lambda: py_trees.behaviours.Running("a"), Status.RUNNING),
    ],
    ids=["success", "failure", "out of ticks"],
)
async def test_run_tree_returns_the_roots_status(
    leaf: Callable[[], py_trees.behaviour.Behaviour], status: Status
) -> None:
    with anyio.fail_after(20):
        assert await run_tree(sequence(leaf()), max_ticks=100, period_ms=1) is status


async def test_a_tree_can_be_run_again_after_its_runner_is_gone() -> None:
    root = sequence(working("a"))
    with anyio.fail_after(20):
        assert await run_tree(root) is Status.SUCCESS
        assert await run_tree(root) is Status.SUCCESS


async def test_the_leaves_of_a_tree_are_nodes_of_a_looping_run() -> None:
    root = sequence(working("a"), sequence(working("b"), working("c")))
    seen: list[Any] = []

    def factory(*, node: Any, **options: Any) -> Any:
        seen.append(node)
        return loop(["x"], [SUCCESS], node=node)

    outer = create_looping_agent_loop(
        inner_loop_factory=factory,
        node_provider=tree_node_provider(root),
        should_continue=lambda result, index: True,
    )
    with anyio.fail_after(20):
        result = await outer.run()

    assert [node["path"] for node in seen] == ["root/a", "root/root/b", "root/root/c"]
    assert result.status is NodeStatus.SUCCESS


@pytest.mark.parametrize("options", [{"max_ticks": -1}, {"period_ms": -1}])
async def test_impossible_numbers_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 0"):
        TreeRunner(sequence(working("a")), **options)  # type: ignore[arg-type]  # one of two ints
