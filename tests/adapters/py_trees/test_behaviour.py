from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import py_trees
import pytest
from py_trees.common import Status

from adapters.py_trees import AgentLoopBehaviour
from agentloop import AgentLoop, ScriptedAdapter
from agentloop.frames import NODE_COMPLETED, TEXT
from tests.adapters.py_trees.loops import SUCCESS, Gate, gated, loop, verdict

#: Seconds until a test gives up waiting for another thread.
PATIENCE = 10.0


@contextmanager
def behaviour(factory: Callable[[AgentLoopBehaviour], Any], **options: Any) -> Iterator[AgentLoopBehaviour]:
    made = AgentLoopBehaviour("work", factory, **options)
    try:
        yield made
    finally:
        made.stop(Status.INVALID)
        made.shutdown()


def ticked(leaf: AgentLoopBehaviour) -> list[Status]:
    """Tick until the behaviour is no longer RUNNING; return every status."""
    statuses: list[Status] = []
    deadline = time.monotonic() + PATIENCE
    while not statuses or statuses[-1] is Status.RUNNING:
        assert time.monotonic() < deadline, "the behaviour is still RUNNING"
        leaf.tick_once()
        statuses.append(leaf.status)
        time.sleep(0.001)  # the other thread's turn
    return statuses


def test_v169_a_behaviour_is_running_until_its_loop_succeeds() -> None:
    gate = Gate()
    with behaviour(lambda _: gated(gate)) as leaf:
        leaf.tick_once()
        assert leaf.status is Status.RUNNING
        gate.open()
        statuses = ticked(leaf)

        assert statuses[-1] is Status.SUCCESS
        assert leaf.feedback_message == "all good"
        assert [frame.type for frame in leaf.frames][-1] == NODE_COMPLETED
        assert leaf.result is not None
        assert leaf.result.evidence == "all good"


@pytest.mark.parametrize(
    ("make", "evidence"),
    [
        (lambda: loop(["a"], [verdict("FAILURE", "two tests fail")]), "two tests fail"),
        (lambda: loop(["a"], [verdict("RUNNING", "not yet")], max_iterations=1), "not yet"),
        (lambda: loop([RuntimeError("no model")], []), "agent: no model"),
    ],
    ids=["node_failed", "max_iterations", "error"],
)
def test_v170_every_failure_of_the_loop_is_failure(make: Callable[[], AgentLoop], evidence: str) -> None:
    with behaviour(lambda _: make()) as leaf:
        assert ticked(leaf)[-1] is Status.FAILURE
        assert leaf.feedback_message == evidence


def test_v171_a_stopped_behaviour_aborts_its_loop_once() -> None:
    gate = Gate()
    adapters: list[ScriptedAdapter] = []
    with behaviour(lambda _: gated(gate, adapters=adapters)) as leaf:
        leaf.tick_once()
        gate.wait_until_reached()
        leaf.stop(Status.INVALID)
        first = leaf.result
        leaf.stop(Status.INVALID)

        assert first is not None
        assert first.reason == "aborted"
        assert leaf.result is first
        assert adapters[0].aborts == ["interrupted"]
        assert leaf.status is Status.INVALID


def test_v172_a_factory_that_raises_is_a_failure_with_its_message() -> None:
    def factory(_: AgentLoopBehaviour) -> AgentLoop:
        raise LookupError("no such plan")

    with behaviour(factory) as leaf:
        leaf.tick_once()

        assert leaf.status is Status.FAILURE
        assert leaf.feedback_message == "LookupError: no such plan"


def test_v173_after_success_a_tick_begins_a_fresh_loop() -> None:
    with behaviour(lambda _: loop(["a"], [SUCCESS])) as leaf:
        ticked(leaf)
        first = leaf.loop
        ticked(leaf)

        assert leaf.loop is not first
        assert leaf.result is not None
        assert leaf.result.iterations == 1
        assert [frame.type for frame in leaf.frames].count(NODE_COMPLETED) == 1


def test_v174_a_memoryless_sequence_keeps_the_running_loop() -> None:
    gate = Gate()
    made: list[AgentLoop] = []

    def factory(_: AgentLoopBehaviour) -> AgentLoop:
        made.append(gated(gate))
        return made[-1]

    with behaviour(factory) as leaf:
        root: Any = py_trees.composites.Sequence("root", memory=False)
        root.add_children([py_trees.behaviours.Success("always"), leaf])
        for _ in range(3):
            root.tick_once()
            assert root.status is Status.RUNNING
            assert leaf.loop is made[0]
        gate.open()
        deadline = time.monotonic() + PATIENCE
        while root.status is Status.RUNNING:
            assert time.monotonic() < deadline
            root.tick_once()

        assert root.status is Status.SUCCESS
        assert len(made) == 1


def test_a_tick_does_not_wait_for_a_loop_that_is_stuck() -> None:
    gate = Gate()
    with behaviour(lambda _: gated(gate)) as leaf:
        leaf.tick_once()
        gate.wait_until_reached()
        began = time.monotonic()
        for _ in range(100):
            leaf.tick_once()

        assert leaf.status is Status.RUNNING
        assert time.monotonic() - began < PATIENCE


def test_one_tick_takes_over_no_more_frames_than_allowed() -> None:
    texts = [f"t{number}" for number in range(10)]
    with behaviour(lambda _: loop([texts], [SUCCESS]), max_frames_per_tick=3) as leaf:
        leaf.tick_once()
        seen = len(leaf.frames)
        assert seen <= 3
        deadline = time.monotonic() + PATIENCE
        while leaf.status is Status.RUNNING:
            assert time.monotonic() < deadline
            leaf.tick_once()
            assert len(leaf.frames) - seen <= 3
            seen = len(leaf.frames)

        assert [f.text for f in leaf.frames if f.type == TEXT and f.content["role"] == "agent"] == texts


def test_a_loop_with_more_frames_than_may_wait_loses_none() -> None:
    texts = [f"t{number}" for number in range(3_000)]
    with behaviour(lambda _: loop([texts], [SUCCESS])) as leaf:
        ticked(leaf)

        assert [f.text for f in leaf.frames if f.type == TEXT and f.content["role"] == "agent"] == texts


def test_changed_facts_are_mirrored_to_the_blackboard_and_unset() -> None:
    updates = '[{"name": "tests.passed", "value": 3}, {"name": "gone", "value": 1}, {"name": "gone", "op": "retract"}]'
    judged = f'{{"status": "SUCCESS", "evidence": "ok", "symbolicUpdates": {updates}}}'
    with behaviour(lambda _: loop(["a"], [judged]), blackboard_namespace="run") as leaf:
        ticked(leaf)

        assert py_trees.blackboard.Blackboard.get("/run/tests/passed") == 3
        assert not py_trees.blackboard.Blackboard.exists("/run/gone")
    assert "/run/tests/passed" not in py_trees.blackboard.Blackboard.clients


def test_a_loop_that_its_factory_has_piped_is_waited_for() -> None:
    taken: list[str] = []

    class Sink:
        paused = ended = False

        async def write(self, frame: Any, /) -> bool:
            taken.append(frame.type)
            return True

        def end(self, error: BaseException | None = None, /) -> bool:
            return True

    def factory(_: AgentLoopBehaviour) -> AgentLoop:
        made = loop(["a"], [SUCCESS])
        made.source.pipe(Sink())  # type: ignore[arg-type]  # as little of a sink as the pump needs
        return made

    with behaviour(factory) as leaf:
        assert ticked(leaf)[-1] is Status.SUCCESS
        assert taken[-1] == NODE_COMPLETED


def test_shutdown_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    gate = Gate()
    with behaviour(lambda _: gated(gate)) as leaf:
        leaf.tick_once()
        gate.wait_until_reached()
        assert threading.active_count() > before
    assert threading.active_count() == before
    assert leaf.result is not None
    assert leaf.result.reason == "aborted"


def test_an_error_inside_update_is_failure_and_stops_the_loop() -> None:
    gate = Gate()
    with behaviour(lambda _: gated(gate), blackboard_namespace="taken") as leaf:
        owner = py_trees.blackboard.Client(name="owner", namespace="taken")
        owner.register_key(key="busy", access=py_trees.common.Access.EXCLUSIVE_WRITE)
        try:
            leaf.tick_once()
            gate.wait_until_reached()
            leaf.loop.symbolics.assert_value("busy", True)
            leaf.tick_once()

            assert leaf.status is Status.FAILURE
            assert "busy" in leaf.feedback_message
            assert leaf.result is not None
            assert leaf.result.reason == "aborted"
        finally:
            owner.unregister()


def test_without_py_trees_the_import_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['py_trees'] = None\n"
        "from agentloop.errors import MissingExtra\n"
        "try:\n    import adapters.py_trees\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert "loopwright[py-trees]" in said.stdout
