"""What leaves a run: frames are numbered when they are decided and published when they may be.

Between the two lies the commit of the entry behind them. Publishing goes, frame by frame, to
the taps and the memory, then into the lossy buffer, then to ``on_progress``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import anyio

from agentloop.errors import StreamAborted, StreamEnded
from agentloop.frames import ABORT, ERROR, PROGRESS_TYPES, SYMBOLIC_ASSERTED, TERMINAL_TYPES, Frame
from agentloop.loop.answers import must_wait
from agentloop.loop.record import RunRecord
from agentloop.ports import Tap
from agentloop.streams.buffer import FrameBuffer

__all__ = ("Complaint", "Output", "deliver_now")

_LAST: Final = TERMINAL_TYPES | {ABORT}


def deliver_now(buffer: FrameBuffer, frame: Frame) -> bool:
    """Put a frame into the buffer without waiting; False if it found no room and is lost."""
    try:
        # How a run ends: a full ``block`` buffer has a reserve for that, and for nothing else.
        if frame.type in _LAST or (frame.type == ERROR and frame.content.get("fatal")):
            buffer.put_final(frame)
        else:
            buffer.put_nowait(frame)
    except anyio.WouldBlock:
        return False
    except (StreamAborted, StreamEnded):
        """Nobody reads any more: what is not wanted is no loss."""
    return True


class Complaint(Protocol):
    """Takes note of a failure while publishing; raises if it is fatal."""

    def __call__(
        self, phase: str, error: Exception, /, *, fatal: bool = False, once_per: str = ""
    ) -> None: ...


class Output:
    """The way out of one run."""

    __slots__ = (
        "_buffer",
        "_complain",
        "_fact",
        "_free",
        "_hurried",
        "_progress",
        "_publishing",
        "_record",
        "_staged",
        "_tapped",
        "_taps",
        "blocks",
        "ended",
        "lost",
    )

    def __init__(
        self,
        buffer: FrameBuffer,
        record: RunRecord,
        *,
        taps: Sequence[Tap],
        fact: Callable[[Frame], Awaitable[None]] | None,
        on_progress: Callable[[str, dict[str, Any]], Any] | None,
        complain: Complaint,
    ) -> None:
        self._buffer, self._record, self._taps = buffer, record, tuple(taps)
        self._fact, self._progress, self._complain = fact, on_progress, complain
        self._staged: deque[Frame] = deque()
        self._tapped = 0
        #: Somebody is in the middle of a frame; who else comes waits for ``_free``.
        self._publishing = False
        self._free: anyio.Event | None = None
        self._hurried = False
        #: A full buffer makes its writer wait, and `room` whoever reads what is to be written.
        self.blocks = buffer.statistics().strategy == "block"
        #: Frames that no reader made room for before the run was cut.
        self.lost = 0
        #: A terminal frame has been staged: no further ERROR may follow.
        self.ended = False

    def stage(self, frame_type: str, content: dict[str, Any], meta: dict[str, Any] | None = None) -> None:
        """Number a frame and queue it for `publish`."""
        record = self._record
        if record.on:
            record.out.add(frame_type, content)
        else:
            record.out.count += 1
        frame = Frame(frame_type, content, seq=record.out.count)
        if frame_type in TERMINAL_TYPES:
            self.ended = True
        self._staged.append(frame)

    def again(self, frame: Frame) -> None:
        """Queue a frame that was numbered before and may not have reached everybody."""
        if frame.type in TERMINAL_TYPES:
            self.ended = True
        self._staged.append(frame)

    @property
    def staged(self) -> Sequence[Frame]:
        """The frames that wait."""
        return self._staged

    async def publish(self) -> None:
        """Publish what was staged, in order; waits for taps, a memory, a full ``block`` buffer.

        Cancelled while it waits, it can be called again: a tap that was interrupted sees its
        frame again, nobody else does.
        """
        while self._staged:
            if self._publishing:  # calls that overlap: one frame after the other, whoever staged it
                self._free = self._free or anyio.Event()
                await self._free.wait()
                continue
            self._publishing = True
            try:
                await self._publish_first()
            finally:
                self._publishing = False
                if self._free is not None:
                    self._free.set()
                    self._free = None

    async def room(self) -> None:
        """Return when the buffer has room, or nobody reads it any more."""
        await self._buffer.ready()

    async def _publish_first(self) -> None:
        frame = self._staged[0]
        if self._taps:
            await self._tap(frame)
        if self._fact is not None and frame.type == SYMBOLIC_ASSERTED:
            await self._fact(frame)
        if not self._staged or self._staged[0] is not frame:
            return  # `publish_now` did not wait for a tap
        await self._deliver(frame)
        self._staged.popleft()
        self._tapped = 0
        if self._progress is not None and frame.type in PROGRESS_TYPES:
            await self._tell(frame)

    async def _deliver(self, frame: Frame) -> None:
        if self._hurried:
            self.lost += not deliver_now(self._buffer, frame)
            return
        try:
            await self._buffer.put(frame)
        except StreamAborted:
            """The reader has left: what it does not want is counted and thrown away."""

    async def _tap(self, frame: Frame) -> None:
        while self._tapped < len(self._taps):
            tap = self._taps[self._tapped]
            try:
                await tap.write(frame)
            except Exception as error:
                if tap.fatal:  # it is not asked again: what follows is the end of the run
                    self._taps = tuple(other for other in self._taps if other is not tap)
                    self._complain("sink", error, fatal=True)
                    continue
                self._complain("sink", error, once_per=repr(tap))
            self._tapped += 1

    async def _tell(self, frame: Frame) -> None:
        assert self._progress is not None
        try:
            answer = self._progress(frame.type, dict(frame.content))
            if must_wait(answer):
                await answer
        except Exception as error:
            self._complain("on_progress", error, once_per=frame.type)

    def unstage(self) -> None:
        """Take back what was staged and not published: it never was."""
        self._record.out.count -= len(self._staged)
        self._staged.clear()
        self._tapped = 0
        self.ended = False

    def forget_memory(self) -> None:
        """Write no more facts: the memory has failed."""
        self._fact = None

    def hurry(self) -> None:
        """Wait for no reader any more: the run winds down."""
        self._hurried = True

    def publish_now(self) -> None:
        """Put what is left into the buffer without waiting for anybody."""
        while self._staged:
            self.lost += not deliver_now(self._buffer, self._staged.popleft())
