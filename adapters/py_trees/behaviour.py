"""A loop as a leaf of a behaviour tree.

Two threads meet here. The tree is ticked on one of them and must never wait; the loop lives on
the event loop of the portal. Frames and changed facts cross over in containers whose single
operations are atomic, so a tick takes no lock and makes no call into the event loop.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, Protocol

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from adapters.py_trees.door import Access, Behaviour, Status
from agentloop.errors import StreamBusy, StreamError
from agentloop.frames import TICK, Frame
from agentloop.messages import LoopResult, NodeStatus
from agentloop.symbolic import SymbolicChange

__all__ = ("AgentLoopBehaviour", "Host")

#: How long `terminate` waits for an aborted loop to end.
_GRACE_MS: Final = 5_000
#: Frames that may wait for the next tick; further ones wait in the loop's own buffer.
_WAITING: Final = 1_024
#: Frames of the current loop that are kept for looking at, the newest.
_KEPT: Final = 4_096
_FULL_POLL_MS: Final = 10
_MAX_FEEDBACK: Final = 300

_log = logging.getLogger(__name__)


class Host(Protocol):
    """Who ticks the tree and lends its behaviours an event loop; called on that event loop."""

    @property
    def portal(self) -> BlockingPortal: ...

    async def ready(self) -> None:
        """Return when no tick is going on, so that a loop begins after what began it."""

    async def forward(self, behaviour: Behaviour, frame: Frame) -> None:
        """Pass on a frame of a behaviour's loop."""

    def forward_now(self, behaviour: Behaviour, frame: Frame) -> None:
        """As `forward`, where there is no time to wait."""

    def wake(self) -> None:
        """Have the tree ticked soon: there is something to see."""


class AgentLoopBehaviour(Behaviour):
    """A behaviour that runs a loop: RUNNING until it ends, then what its result says.

    Each time it is ticked while it is not RUNNING, a fresh loop begins; interrupted, its loop
    is aborted and waited for.

    Args:
        name: Of the behaviour.
        loop_factory: Called with the behaviour, returns the loop to run; anything that is
            entered, takes a TICK, has a source and then a ``result``.
        portal: Where loops run. Otherwise in the runner's event loop if a `TreeRunner` or
            `run_tree` ticks the tree, else in a thread of its own until `shutdown`.
        blackboard_namespace: Mirror each changed fact to the blackboard under this
            namespace; a dot in a name becomes a slash. A retracted fact is unset.
        max_frames_per_tick: How many frames one tick takes over.

    Attributes:
        loop: The newest loop, None before the first.
        frames: The newest frames of the newest loop, up to 4,096.
    """

    def __init__(
        self,
        name: str,
        loop_factory: Callable[[AgentLoopBehaviour], Any],
        *,
        portal: BlockingPortal | None = None,
        blackboard_namespace: str | None = None,
        max_frames_per_tick: int = 256,
    ) -> None:
        super().__init__(name)
        if max_frames_per_tick < 1:
            raise ValueError(f"max_frames_per_tick must be at least 1, not {max_frames_per_tick}")
        self.loop: Any = None
        self.frames: deque[Frame] = deque(maxlen=_KEPT)
        self._factory, self._portal, self._most = loop_factory, portal, max_frames_per_tick
        self._host: Host | None = None
        self._own: tuple[BlockingPortal, AbstractContextManager[BlockingPortal]] | None = None
        self._error: BaseException | None = None
        self._run: _Run | None = None
        self._board = None
        if blackboard_namespace is not None:
            self._board = self.attach_blackboard_client(name=name, namespace=blackboard_namespace)

    @property
    def result(self) -> LoopResult | None:
        """How the newest loop ended; None while it goes on."""
        return getattr(self.loop, "result", None)

    # --------------------------------------------------------------------- called by py_trees

    def initialise(self) -> None:
        """Begin a fresh loop; what goes wrong is told by the next `update`."""
        self._release()
        self.frames.clear()
        self.feedback_message = ""
        self.loop = self._error = self._run = None
        try:
            self.loop = self._factory(self)
            run = self._run = _Run(self, self.loop, self._where(), self._host, self._board is not None)
            run.future = run.portal.start_task_soon(run.live)
        except Exception as error:
            self._error = error

    def update(self) -> Status:
        """Take over frames and return the status. Never waits, never raises."""
        try:
            return self._look()
        except Exception as error:
            return self._failed(error)

    def terminate(self, new_status: Status) -> None:
        """Abort the loop if it still runs and wait at most 5 s for its end; harmless twice."""
        self._release()

    def shutdown(self) -> None:
        """Stop what runs, close the thread of its own, leave the blackboard."""
        self._release()
        if self._own is not None:
            (_, context), self._own = self._own, None
            context.__exit__(None, None, None)
        if self._board is not None:
            self._board.unregister()

    # ------------------------------------------------------------------------- for the runner

    def host(self, host: Host | None) -> None:
        """Be lent a runner's portal, or give it back."""
        self._host = host

    def abort(self, reason: str = "interrupted") -> None:
        """Abort the loop if it still runs; on the event loop of the portal only."""
        if self._run is not None and not self._run.over:
            self._run.stop(reason)

    def take_input(self, frame: Frame) -> bool:
        """Write a frame to the loop if it still runs; on the event loop of the portal only."""
        return self._run is not None and not self._run.over and self._run.loop.sink.write_nowait(frame)

    @property
    def busy(self) -> bool:
        """Whether a loop of this behaviour still runs."""
        return self._run is not None and not self._run.over

    # -------------------------------------------------------------------------------- inside

    def _where(self) -> BlockingPortal:
        if self._portal is not None:
            return self._portal
        if self._host is not None:
            return self._host.portal
        if self._own is None:
            context = start_blocking_portal(name=f"loops of {self.name}")
            self._own = context.__enter__(), context
        return self._own[0]

    def _look(self) -> Status:
        if self._error is not None:
            return self._failed(self._error)
        run = self._run
        if run is None:
            return self._failed(RuntimeError("update was called before initialise"))
        # Asked first: what comes after the answer belongs to the next tick.
        over = run.over
        for _ in range(min(self._most, len(run.waiting))):
            frame = run.waiting.popleft()
            self.frames.append(frame)
            evidence = frame.content.get("evidence") or frame.content.get("message")
            if isinstance(evidence, str):
                self.feedback_message = _one_line(evidence)
        self._mirror(run)
        if not over or run.waiting:
            return Status.RUNNING
        error = run.error
        if error is not None:
            return self._failed(error)
        result = self.result
        if result is None:
            return self._failed(RuntimeError("the loop ended without a result"))
        if result.evidence:
            self.feedback_message = _one_line(result.evidence)
        return Status.SUCCESS if result.status is NodeStatus.SUCCESS else Status.FAILURE

    def _failed(self, error: BaseException) -> Status:
        self.feedback_message = _one_line(f"{type(error).__name__}: {error}")
        return Status.FAILURE

    def _mirror(self, run: _Run) -> None:
        while run.changes:
            name, change = run.changes.popitem()
            board, key = self._board, name.replace(".", "/")
            assert board is not None
            board.register_key(key=key, access=Access.WRITE)
            if change.op == "assert":
                board.set(key, change.value)
            else:
                board.unset(key)

    def _release(self) -> None:
        run = self._run
        if run is None or run.over or run.future is None:
            return
        if threading.get_ident() == run.thread:
            run.stop("interrupted")  # called on the event loop itself, which cannot wait
            return
        try:
            run.portal.start_task_soon(run.stop, "interrupted")
            run.future.result(_GRACE_MS / 1000)
        except FutureTimeout:
            run.future.cancel()
            _log.warning("the loop of %r did not stop within %d ms and is abandoned", self.name, _GRACE_MS)
        except (RuntimeError, CancelledError):
            """The portal has stopped, or was cancelled, and the loop with it."""


class _Run:
    """One loop of a behaviour, on the event loop of the portal."""

    __slots__ = (
        "_behaviour",
        "_host",
        "_mirrored",
        "_not_yet",
        "changes",
        "error",
        "future",
        "left",
        "loop",
        "over",
        "portal",
        "thread",
        "waiting",
    )

    def __init__(
        self,
        behaviour: AgentLoopBehaviour,
        loop: Any,
        portal: BlockingPortal,
        host: Host | None,
        mirrored: bool,
    ) -> None:
        self._behaviour, self._host, self._mirrored = behaviour, host, mirrored
        self.loop, self.portal = loop, portal
        self.future: Future[None] | None = None
        self.thread: int | None = None
        self.error: BaseException | None = None
        self.over = False
        self._not_yet: anyio.CancelScope | None = None
        #: Nobody will look at the frames any more.
        self.left = False
        #: For the tick to take: appended on one side, popped on the other.
        self.waiting: deque[Frame] = deque()
        #: The newest change of each fact.
        self.changes: dict[str, SymbolicChange] = {}

    async def live(self) -> None:
        self.thread = threading.get_ident()
        unsubscribe = self._subscribe()
        try:
            if self._host is not None and not self.left:
                with anyio.CancelScope() as self._not_yet:
                    await self._host.ready()
            async with self.loop as loop:
                loop.sink.write_nowait(Frame(TICK, {}))
                await self._read(loop)
        except BaseException as error:
            self.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._take_rest()
            unsubscribe()
            self.over = True
            if self._host is not None and not self.left:
                self._host.wake()

    def stop(self, reason: str) -> None:
        """Abort the loop, also one that has not begun."""
        self.left = True
        self.loop.abort(reason)
        if self._not_yet is not None:
            self._not_yet.cancel()

    def _subscribe(self) -> Callable[[], object]:
        symbolics = getattr(self.loop, "symbolics", None)
        if not self._mirrored or symbolics is None:
            return lambda: None

        def note(change: SymbolicChange) -> None:
            self.changes[change.name] = change

        forget: Callable[[], object] = symbolics.subscribe(note)
        return forget

    async def _read(self, loop: Any) -> None:
        try:
            async for frame in loop.source:
                await self._take(frame)
        except StreamBusy:
            await loop.wait()  # the factory has piped it elsewhere

    async def _take(self, frame: Frame) -> None:
        if self._host is not None:
            await self._host.forward(self._behaviour, frame)
        # The tick's thread cannot wake this one without waiting for it, so it is looked at.
        while len(self.waiting) >= _WAITING and not self.left:
            if self._host is not None:
                self._host.wake()
            await anyio.sleep(_FULL_POLL_MS / 1000)
        if not self.left:
            self.waiting.append(frame)

    def _take_rest(self) -> None:
        with suppress(anyio.WouldBlock, anyio.EndOfStream, StreamError):
            while True:
                frame = self.loop.source.receive_nowait()
                self.waiting.append(frame)
                if self._host is not None:
                    self._host.forward_now(self._behaviour, frame)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_FEEDBACK]
