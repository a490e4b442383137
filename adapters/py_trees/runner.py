"""A behaviour tree as a duplex: it is ticked, and everything in it is one stream of frames.

The tree is ticked in a worker thread, one tick at a time, when the period has passed or
sooner if a loop in it has ended. The loops live on the runner's own event loop.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal

from adapters.py_trees.behaviour import AgentLoopBehaviour
from adapters.py_trees.door import Behaviour, BehaviourTree, Status
from adapters.py_trees.nodes import path_of
from agentloop.errors import StreamError
from agentloop.frames import ABORT, CANCEL, ERROR, Frame
from agentloop.loop.lifecycle import OneRun
from agentloop.messages import LoopResult, NodeStatus, ResultReason
from agentloop.streams.buffer import FrameBuffer

__all__ = ("TREE_ENDED", "TREE_STATUS", "TREE_TICK", "TreeRunner", "run_tree")

#: The tree was ticked: ``tick`` (1, 2, …) and the root's ``status``.
TREE_TICK: Final = "tree:tick"
#: A behaviour changed: ``behaviour``, ``path``, ``status``, ``previous``, ``tick``, ``feedback``.
TREE_STATUS: Final = "tree:status"
#: The run is over: ``status``, ``reason``, ``ticks``, perhaps ``evidence``. An ABORT may follow.
TREE_ENDED: Final = "tree:ended"

_GRACE_MS: Final = 5_000
_MAX_MESSAGE: Final = 2_000
_TERMINAL: Final = (Status.SUCCESS, Status.FAILURE)

_log = logging.getLogger(__name__)


class TreeRunner(OneRun):
    """Ticks a tree until its root has succeeded or failed; a duplex that serves one run.

    Enter it, write a TICK to start it, read or pipe its source. INPUT goes to every loop that
    runs, or to those of the behaviour named by ``behaviour``. ``abort()``, ABORT and CANCEL
    interrupt the tree; CANCEL with mode ``after_cycle`` lets running loops finish their cycle
    first. Setting the tree up and shutting it down stay with its owner.

    Args:
        root: The tree or its root.
        max_ticks: Fail after so many; None has no limit.
        period_ms: Time between two ticks, unless a loop ends earlier.
        stop_on: At which status of the root the run is over.
        max_buffered_output_frames, output_overflow_strategy: As of a loop.
        raise_errors: Let `wait` and `run` raise what a behaviour raised.

    Attributes:
        source: ``tree:*`` frames, and the frames of every loop with the path of its behaviour
            in ``meta["behaviour"]``. A loop's frames come after its RUNNING and before its end.
        result: None until the end; ``iterations`` are ticks, ``reason`` is ``tree``,
            ``max_iterations``, ``aborted`` or ``error``.
    """

    def __init__(
        self,
        root: Behaviour | BehaviourTree,
        *,
        max_ticks: int | None = None,
        period_ms: int = 50,
        stop_on: tuple[Status, ...] = _TERMINAL,
        max_buffered_output_frames: int | None = None,
        output_overflow_strategy: Literal["drop-oldest", "drop-newest", "block"] = "drop-oldest",
        raise_errors: bool = False,
    ) -> None:
        if max_ticks is not None and max_ticks < 0:
            raise ValueError(f"max_ticks must be at least 0, or None for no limit, not {max_ticks}")
        if period_ms < 0:
            raise ValueError(f"period_ms must be at least 0, not {period_ms}")
        buffer = FrameBuffer(max_buffered_output_frames, output_overflow_strategy)
        super().__init__(buffer, raise_errors=raise_errors, grace_ms=_GRACE_MS)
        buffer.sink.on_abort(lambda error: self.abort("output_aborted"))
        self.tree = root if isinstance(root, BehaviourTree) else BehaviourTree(root)
        self.ticks = 0
        #: Of the root, after the newest tick.
        self.root_status: Status = self.tree.root.status
        self._max_ticks, self._period_ms, self._stop_on = max_ticks, period_ms, stop_on
        self._seen: dict[Any, Status] = {node.id: node.status for node in self.tree.root.iterate()}
        self._portal: BlockingPortal | None = None
        self._changed = anyio.Event()
        self._ticking: anyio.CancelScope | None = None
        self._abandoned = self._winding = False
        self._ticked_through = anyio.Event()
        self._waiting: set[anyio.CancelScope] = set()
        self._ending: ResultReason | None = None
        self._error: Exception | None = None

    @property
    def status(self) -> NodeStatus:
        """PENDING before the TICK, RUNNING until the end, then SUCCESS or FAILURE."""
        if self.result is not None:
            return self.result.status
        return NodeStatus.RUNNING if self._ticked else NodeStatus.PENDING

    # ------------------------------------------------------------------------ as a host

    @property
    def portal(self) -> BlockingPortal:
        """Where the loops of the tree run."""
        assert self._portal is not None
        return self._portal

    async def ready(self) -> None:
        """Return when no tick is going on and what the last one changed was emitted."""
        while self._ticking is not None:
            await self._ticked_through.wait()

    async def forward(self, behaviour: Behaviour, frame: Frame) -> None:
        """Emit a frame of a behaviour's loop."""
        await self._emit(_from(behaviour, frame))

    def forward_now(self, behaviour: Behaviour, frame: Frame) -> None:
        """Emit a frame without waiting for anybody."""
        self._emit_now(_from(behaviour, frame))

    def wake(self) -> None:
        """Tick without waiting for the period to pass."""
        self._changed.set()

    # ------------------------------------------------------------------------ as a duplex

    def _decided(self) -> bool:
        return self._ending is not None

    def _cut(self) -> None:
        for behaviour in self._loops():
            behaviour.abort()
        for scope in self._waiting:
            scope.cancel()
        self.wake()
        if self._ticking is not None:
            self._ticking.cancel()

    def _note(self, frame: Frame) -> bool:
        name = frame.content.get("behaviour")
        taken = [b.take_input(frame) for b in self._loops() if name is None or b.name == name]
        return any(taken)

    def _stop_after_cycle(self, reason: str) -> bool:
        if not super()._stop_after_cycle(reason):
            return False
        self._note(Frame(CANCEL, {"reason": reason, "mode": "after_cycle"}))
        self.wake()
        return True

    def _loops(self) -> list[AgentLoopBehaviour]:
        return [node for node in self.tree.root.iterate() if isinstance(node, AgentLoopBehaviour)]

    # ------------------------------------------------------------------------------- main

    async def _main(self, tasks: TaskGroup) -> None:
        try:
            async with BlockingPortal() as self._portal:
                try:
                    self._ending = await self._live()
                except Exception as error:
                    self._error, self._ending = error, "error"
                finally:
                    self._ending = self._ending or "aborted"
                    with anyio.CancelScope(shield=True):
                        await self._interrupt()
        finally:
            for behaviour in self._loops():
                behaviour.host(None)
            self._close(self._ending or "aborted")

    async def _live(self) -> ResultReason:
        assert self._woken is not None
        await self._woken.wait()
        while self._abort_reason is None:
            if self._stop_reason is not None:
                return await self._let_cycles_end(self._stop_reason)
            if self._max_ticks is not None and self.ticks >= self._max_ticks:
                return "max_iterations"
            await self._tick_once()
            if self._abort_reason is None and self.root_status in self._stop_on:
                return "tree"
            with anyio.move_on_after(self._period_ms / 1000):
                await self._changed.wait()
        return "aborted"

    async def _let_cycles_end(self, reason: str) -> ResultReason:
        while self._abort_reason is None and any(behaviour.busy for behaviour in self._loops()):
            self._changed = anyio.Event()
            await self._changed.wait()
        self._abort_reason = self._abort_reason or reason
        return "aborted"

    async def _tick_once(self) -> None:
        for behaviour in self._loops():
            behaviour.host(self)
        # New before the tick: a loop that ends during it is a reason for the next one.
        self._changed, self._ticked_through = anyio.Event(), anyio.Event()
        self.ticks += 1
        try:
            with anyio.CancelScope() as self._ticking:
                await self._tick_in_thread()
            if self._abandoned:
                raise TimeoutError(f"tick {self.ticks} did not return within {_GRACE_MS} ms after an abort")
            self.root_status = self.tree.root.status
            await self._emit(Frame(TREE_TICK, {"tick": self.ticks, "status": self.root_status.value}))
            for frame in self._news():
                await self._emit(frame)
        finally:
            self._ticking = None
            self._ticked_through.set()

    async def _tick_in_thread(self) -> None:
        """Tick the tree. Cancelled, wait until the tick is over, but not for ever."""
        tick = _Tick(self.tree)
        try:
            await anyio.to_thread.run_sync(tick.run, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                self._abandoned = not await anyio.to_thread.run_sync(tick.call_off, _GRACE_MS / 1000)
            raise

    def _news(self) -> list[Frame]:
        """Return a frame for every behaviour whose status has changed."""
        frames: list[Frame] = []
        for node in self.tree.root.iterate():
            previous = self._seen.get(node.id, Status.INVALID)
            if node.status is previous:
                continue
            self._seen[node.id] = node.status
            content = {
                "behaviour": node.name,
                "path": path_of(node),
                "status": node.status.value,
                "previous": previous.value,
                "tick": self.ticks,
                "feedback": node.feedback_message,
            }
            frames.append(Frame(TREE_STATUS, content))
        return frames

    async def _interrupt(self) -> None:
        """Stop whatever still runs in the tree."""
        self._winding = True
        loops = self._loops()
        if self._abandoned or not (
            self.tree.root.status is Status.RUNNING or any(behaviour.busy for behaviour in loops)
        ):
            return
        # All at once, before the tree waits for one after the other.
        for behaviour in loops:
            behaviour.abort()
        with anyio.move_on_after((len(loops) + 1) * _GRACE_MS / 1000) as scope:
            await anyio.to_thread.run_sync(self.tree.root.stop, Status.INVALID, abandon_on_cancel=True)
        if scope.cancelled_caught:
            _log.warning("the tree %r did not stop and is abandoned", self.tree.root.name)
            return
        for frame in self._news():
            self._emit_now(frame)

    # ------------------------------------------------------------------------------ frames

    async def _emit(self, frame: Frame) -> None:
        if self._abort_reason is None and not self._winding:
            try:
                self._buffer.put_nowait(frame)
                return
            except StreamError:
                return  # the reader has gone
            except anyio.WouldBlock:
                pass
            with anyio.CancelScope() as scope:
                self._waiting.add(scope)
                try:
                    await self._buffer.put(frame)
                except StreamError:
                    """The reader has gone."""
                finally:
                    self._waiting.discard(scope)
            if not scope.cancelled_caught:
                return
        self._emit_now(frame)

    def _emit_now(self, frame: Frame) -> None:
        with suppress(StreamError, anyio.WouldBlock):
            self._buffer.put_final(frame)

    def _close(self, ending: ResultReason) -> None:
        succeeded = ending == "tree" and self.root_status is Status.SUCCESS
        status = NodeStatus.SUCCESS if succeeded else NodeStatus.FAILURE
        evidence = self._evidence()
        if self._error is not None:
            error = {"error_type": type(self._error).__name__, "message": str(self._error)[:_MAX_MESSAGE]}
            self._emit_now(Frame(ERROR, {"phase": "tree", **error, "fatal": True, "iteration": self.ticks}))
            evidence = f"{error['error_type']}: {error['message']}"
        ended = {"status": status.value, "reason": ending, "ticks": self.ticks}
        self._emit_now(Frame(TREE_ENDED, ended if evidence is None else {**ended, "evidence": evidence}))
        if ending == "aborted":
            self._abort_reason = self._abort_reason or "cancelled"
            self._emit_now(Frame(ABORT, {"reason": self._abort_reason}))
        self._finish(
            LoopResult(
                status=status,
                reason=ending,
                evidence=evidence,
                iterations=self.ticks,
                dropped_frames=self._buffer.statistics().dropped,
                error=self._error,
            )
        )

    def _evidence(self) -> str | None:
        tip = self.tree.tip()
        return (tip.feedback_message or None) if tip is not None else None


class _Tick:
    """One tick of a tree in a thread, which either never begins or can be waited for."""

    __slots__ = ("_called_off", "_guard", "_over", "_tree")

    def __init__(self, tree: BehaviourTree) -> None:
        self._tree, self._guard, self._over = tree, threading.Lock(), threading.Event()
        self._called_off = False
        self._over.set()

    def run(self) -> None:
        with self._guard:
            if self._called_off:
                return
            self._over.clear()
        try:
            self._tree.tick()
        finally:
            self._over.set()

    def call_off(self, timeout: float) -> bool:
        """Keep the tick from beginning, or wait for it; False if it takes too long."""
        with self._guard:
            self._called_off = True
        return self._over.wait(timeout)


def _from(behaviour: Behaviour, frame: Frame) -> Frame:
    return msgspec.structs.replace(frame, meta={**frame.meta, "behaviour": path_of(behaviour)})


async def run_tree(
    root: Behaviour | BehaviourTree,
    *,
    max_ticks: int | None = None,
    period_ms: int = 50,
    stop_on: tuple[Status, ...] = _TERMINAL,
) -> Status:
    """Tick a tree until its root's status is one of ``stop_on``, and return that status.

    Loops in it run on this event loop. If the ticks are used up, what still runs is stopped
    and the status of the last tick is returned.

    Raises:
        Exception: What a behaviour raised.
    """
    runner = TreeRunner(root, max_ticks=max_ticks, period_ms=period_ms, stop_on=stop_on, raise_errors=True)
    await runner.run()
    return runner.root_status
