"""The queue between a sink and a source: limits, overflow, waiting, ends. No protocol objects.

Reading and writing have a fast path each, guarded by one number, so that a frame that can
move at once costs no bookkeeping: a write goes ahead while ``len(frames) < room``, a read
while there are frames and ``read < stop``. Whatever needs more care (an end, a waiting
reader or writer, a pipe, a yield that is due) lowers the guard, and the slow path sorts it out.

Checkpoints: an operation that need not wait does not suspend, but at the latest after
`BURST` of them in a row one does, so neither an endless source nor a tireless writer
can starve the event loop or outrun a cancellation. That yield comes before the frame moves.

Fairness: room wakes one blocked writer, the one that waits longest; it hands the turn on as
soon as it has written. A running writer may overtake a woken one once; after that
nobody passes. So 100 producers cost two task switches a bufferful, not one a frame.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

import anyio
from anyio.lowlevel import checkpoint

from agentloop.errors import StreamAborted, StreamBusy, StreamEnded, StreamFailed
from agentloop.frames import TERMINAL_TYPES, Frame
from agentloop.ports import FrameStats

__all__ = ("BURST", "AbortHook", "FrameQueue", "Strategy", "ending")

Strategy: TypeAlias = Literal["drop-oldest", "drop-newest", "block"]
#: Told once that the reader gave up, and why.
AbortHook: TypeAlias = Callable[[BaseException | None], object]

#: How many operations may follow each other without a yield to the event loop.
BURST: Final = 128


def ending(error: BaseException | None) -> Exception:
    """Return what a reader is told at the end of a stream that ended with this error, or well."""
    if error is None:
        return anyio.EndOfStream()
    failed = StreamFailed(f"the stream ended with {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


class FrameQueue:
    """Frames on their way, with one reader and any number of writers, all on one event loop."""

    __slots__ = (
        "_abort_hooks",
        "_aborted",
        "_discarded",
        "_draining",
        "_dropped",
        "_ended",
        "_error",
        "_first",
        "_limit",
        "_piped",
        "_protect_terminal",
        "_reader",
        "_reading",
        "_reserve",
        "_strategy",
        "_unyielded",
        "_waking",
        "_writers",
        "_yield_at",
        "frames",
        "read",
        "room",
        "stop",
    )

    def __init__(
        self,
        limit: int | None = None,
        strategy: Strategy = "drop-oldest",
        *,
        protect_terminal: bool = False,
        reserve: int = 3,
    ) -> None:
        """Make an empty queue.

        Args:
            limit: Frames that may wait; None is unbounded.
            strategy: What happens to a frame beyond the limit: ``drop-oldest`` makes room for
                it, ``drop-newest`` throws it away, ``block`` lets its writer wait.
            protect_terminal: Where the strategy would lose a terminal frame, lose the next
                frame that is not one.
            reserve: Frames that `put_final` may add beyond the limit of a blocking queue.

        Raises:
            TypeError: The limit is not an int.
            ValueError: The limit is below 1, or the strategy has another name.
        """
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise TypeError(f"limit is an int of at least 1 or None, not {limit!r}")
        if limit is not None and limit < 1:
            raise ValueError(f"limit is at least 1, or None for no limit, not {limit}")
        if strategy not in get_args(Strategy):
            raise ValueError(f"strategy is 'drop-oldest', 'drop-newest' or 'block', not {strategy!r}")
        self._limit, self._strategy = limit, strategy
        if isinstance(reserve, bool) or not isinstance(reserve, int) or reserve < 0:
            raise ValueError(f"reserve is an int of at least 0, not {reserve!r:.80}")
        self._protect_terminal, self._reserve = protect_terminal, reserve
        self.frames: deque[Frame] = deque()
        self.read = self._dropped = self._discarded = 0
        self._ended = self._aborted = self._draining = self._piped = False
        self._error: BaseException | None = None
        self._abort_hooks: list[AbortHook] = []
        #: Set by whoever adds a frame or ends; None once set, or while nobody waits.
        self._reader: anyio.Event | None = None
        #: A reader waits, or was woken and has not run yet: then one frame is in its hands.
        self._reading = False
        self._writers: deque[anyio.Event] = deque()
        #: A writer was woken and has not run yet.
        self._waking = False
        #: The waiting writer that was overtaken once; while it waits nobody passes.
        self._first: anyio.Event | None = None
        self._yield_at, self._unyielded = BURST, 0
        self._set_guards()

    # ------------------------------------------------------------------------------ state

    @property
    def ended(self) -> bool:
        """True once nothing may be written any more."""
        return self._ended or self._aborted

    @property
    def aborted(self) -> bool:
        """True once the reader gave up."""
        return self._aborted

    @property
    def finished(self) -> bool:
        """True once nothing can be read any more."""
        return (self._ended or self._aborted) and not self.frames

    @property
    def paused(self) -> bool:
        """True while a write would wait."""
        return (
            self._strategy == "block"
            and (len(self.frames) >= self._capacity() or self._first is not None)
            and not (self._ended or self._aborted or self._draining)
        )

    def statistics(self) -> FrameStats:
        """Return the counts so far; a frame in the hands of a woken reader counts as read."""
        handed = 1 if self._reading and self.frames else 0
        waiting = len(self.frames)
        return FrameStats(
            buffered=waiting - handed,
            limit=self._limit,
            strategy=self._strategy,
            written=self.read + self._dropped + self._discarded + waiting,
            read=self.read + handed,
            dropped=self._dropped,
            discarded=self._discarded,
            ended=self._ended,
            aborted=self._aborted,
            paused=self.paused,
            piped=self._piped,
        )

    def _capacity(self) -> int:
        if self._limit is None:
            return sys.maxsize
        return self._limit + 1 if self._reading else self._limit

    def _set_guards(self) -> None:
        if self._ended or self._aborted or self._draining or self._reader or self._first:
            self.room = 0
        else:
            burst = len(self.frames) + BURST
            # An unbounded queue is the usual one, and this runs at every frame somebody waited for.
            self.room = burst if self._limit is None else min(self._capacity(), burst)
        careful = self._reading or self._piped or (self._writers and not self._waking)
        self.stop = 0 if careful else self._yield_at

    # ---------------------------------------------------------------------------- writing

    async def put(self, frame: Frame, /) -> bool:
        """Add a frame, waiting for room if the strategy is ``block``; False if it was dropped.

        Raises:
            StreamEnded: After `end`, also while waiting.
            StreamAborted: After `abort`, also while waiting.
        """
        if len(self.frames) < self.room:
            self.frames.append(frame)
            return True
        return await self.put_slowly(frame)

    def put_nowait(self, frame: Frame, /) -> bool:
        """As `put`, but raise ``anyio.WouldBlock`` instead of waiting."""
        if len(self.frames) < self.room:
            self.frames.append(frame)
            return True
        if self.paused:
            raise anyio.WouldBlock
        return self._accept(frame)

    def put_final(self, frame: Frame, /) -> bool:
        """Add one of the last frames of a failed run: never waits, a full queue has a reserve.

        Raises:
            anyio.WouldBlock: The reserve of a blocking queue is used up.
            StreamEnded: After `end`.
            StreamAborted: After `abort`.
        """
        if self.paused and self._limit is not None and len(self.frames) >= self._limit + self._reserve:
            raise anyio.WouldBlock
        return self._accept(frame)

    async def put_slowly(self, frame: Frame, /) -> bool:
        """Do what `put` does when the guard is down."""
        self._unyielded += 1
        if self._unyielded >= BURST or (len(self.frames) >= self.room > 0 and not self._is_full()):
            self._unyielded = 0
            await checkpoint()
        if self.paused:
            await self._wait_for_room()
        accepted = self._accept(frame)
        self._wake_writer()
        return accepted

    def _is_full(self) -> bool:
        return len(self.frames) >= self._capacity()

    def _accept(self, frame: Frame) -> bool:
        if self._ended:
            raise StreamEnded(f"cannot write {frame.type}: the stream has ended")
        if self._aborted:
            raise StreamAborted(f"cannot write {frame.type}: the reader has aborted") from self._error
        if self._draining:
            self.read += 1
            return True
        if self._strategy != "block" and self._is_full() and not self._make_room(frame):
            return False
        self.frames.append(frame)
        if self._reader is not None:
            self._reader.set()
            self._reader = None
        self._set_guards()
        return True

    def _make_room(self, frame: Frame | None) -> bool:
        """Drop one frame by the overflow rule; False if it is the new one (None: there is none)."""
        self._dropped += 1
        victim = self._victim(frame)
        if victim == len(self.frames):
            return False
        del self.frames[victim]
        return True

    def _victim(self, frame: Frame | None) -> int:
        """Return the place of the frame to drop; the new one stands behind all others."""
        newest = len(self.frames) - (frame is None)
        order = range(newest + 1) if self._strategy == "drop-oldest" else range(newest, -1, -1)
        if self._protect_terminal:
            for place in order:
                candidate = self.frames[place] if place < len(self.frames) else frame
                if candidate is not None and candidate.type not in TERMINAL_TYPES:
                    return place
        return order[0]

    async def ready(self) -> None:
        """Return when a write would not wait, or would raise."""
        if self.paused:
            await self._wait_for_room()
            self._set_guards()
            # Whether the caller writes is unknown, so the turn is handed on at once.
            self._wake_writer()

    async def _wait_for_room(self) -> None:
        event = anyio.Event()
        self._writers.append(event)
        while True:
            self._set_guards()
            try:
                await event.wait()
            except BaseException:
                self._leave(event)
                raise
            self._waking = False
            if self._first is event:
                self._first = None
            if not self.paused:
                return
            event = anyio.Event()
            self._first = self._first or event
            self._writers.appendleft(event)

    def _leave(self, event: anyio.Event) -> None:
        """Take a cancelled writer out of the line; if it was its turn, the next one has it."""
        if event.is_set():
            self._waking = False
        else:
            self._writers.remove(event)
        if self._first is event:
            self._first = None
        self._set_guards()
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._writers and not self._waking and not self._is_full():
            self._waking = True
            self._writers.popleft().set()
            self._set_guards()

    # ---------------------------------------------------------------------------- reading

    async def wait(self, wake: anyio.Event | None = None, /) -> None:
        """Return when a frame is there to be popped.

        Raises:
            anyio.EndOfStream: After a normal end, or an abort without error.
            StreamFailed: After an end or abort with an error, which is the cause.
            StreamBusy: Somebody else is waiting.
        """
        if self._reading:
            raise StreamBusy("reading from")
        if self.frames and self.yield_due:
            self.postpone_yield()
            await checkpoint()
        while not self.frames:
            self.raise_if_finished()
            event = anyio.Event()
            self.watch(event)
            try:
                await event.wait()
            except BaseException:
                self.unwatch()
                self._keep_limit()
                raise
            self._reader, self._reading = None, False
            self.postpone_yield()

    @property
    def yield_due(self) -> bool:
        """True if the reader has taken `BURST` frames without suspending."""
        return self.read >= self._yield_at

    def postpone_yield(self) -> None:
        """Count from here to the next yield of the reader, which has just yielded or cannot."""
        self._yield_at = self.read + BURST
        self._set_guards()

    def watch(self, event: anyio.Event, /) -> None:
        """Become the one reader, and have the event set when a frame or an end arrives."""
        if self._reading:
            raise StreamBusy("reading from")
        self._reader, self._reading = event, True
        self._set_guards()

    def unwatch(self) -> None:
        """Stop being the one reader; if a frame came meanwhile, pop it before anybody writes."""
        self._reader, self._reading = None, False
        self._set_guards()

    def _keep_limit(self) -> None:
        """Drop the frame that was beyond the limit in the hands of a reader who then left."""
        if self._strategy != "block" and len(self.frames) > self._capacity():
            self._make_room(None)

    def pop(self) -> Frame:
        """Return the oldest frame; there must be one."""
        self.read += 1
        frame = self.frames.popleft()
        if self._writers:
            self._wake_writer()
        return frame

    def check_free(self) -> None:
        """Raise StreamBusy if the queue has a reader or a pipe."""
        if self._piped:
            raise StreamBusy("reading from (it is piped)")
        if self._reading:
            raise StreamBusy("reading from")

    def claim(self) -> None:
        """Give the queue to a pipe, so that others find it busy.

        Raises:
            StreamBusy: It has a reader or a pipe.
        """
        self.check_free()
        self._piped = True
        self._set_guards()

    def release(self) -> None:
        """Take the queue back from its pipe."""
        self._piped = False
        self._set_guards()

    def raise_if_finished(self) -> None:
        """Raise what a reader sees at the end, if this is the end."""
        if self.finished:
            raise ending(self._error)

    def drain(self) -> None:
        """Count every frame, waiting or to come, as read and forget it."""
        self._draining = True
        self.read += len(self.frames)
        self.frames.clear()
        self._wake_everyone(reader=False)

    # ------------------------------------------------------------------------------- ends

    def end(self, error: BaseException | None = None, /) -> bool:
        """Say that no more frames come; with an error what waits is thrown away. First end wins."""
        if self._ended or self._aborted:
            return False
        self._ended, self._error = True, error
        if error is not None:
            self._discard()
        self._wake_everyone()
        return True

    def abort(self, error: BaseException | None = None, /) -> bool:
        """Throw away what waits, fail all writers, tell the hooks; False if it was over already."""
        if self._aborted or self.finished:
            return False
        self._aborted, self._error = True, error
        self._discard()
        self._wake_everyone()
        hooks, self._abort_hooks = self._abort_hooks, []
        for hook in hooks:
            hook(error)
        return True

    def on_abort(self, hook: AbortHook, /) -> Callable[[], object]:
        """Have a hook called once, synchronously, when the reader aborts; at once if it has.

        Returns:
            A function that takes the hook back; harmless when it was called already.
        """
        if self._aborted:
            hook(self._error)
        else:
            self._abort_hooks.append(hook)

        def forget() -> None:
            if hook in self._abort_hooks:
                self._abort_hooks.remove(hook)

        return forget

    def _discard(self) -> None:
        self._discarded += len(self.frames)
        self.frames.clear()

    def _wake_everyone(self, *, reader: bool = True) -> None:
        while self._writers:
            self._writers.popleft().set()
        if reader and self._reader is not None:
            self._reader.set()
            self._reader = None
        self._set_guards()
