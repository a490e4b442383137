"""Handing a run's entries to its store without stalling the event loop."""

from __future__ import annotations

import anyio
import anyio.to_thread

from agentloop.determinism import stands_still
from agentloop.ledger.recorder import Recorder

__all__ = ("Commits",)


class Commits:
    """Hands what a recorder holds to its store, one call at a time.

    What waits for a disk to sync goes through a worker; what does not is cheaper than the hop
    there.

    Attributes:
        may_give_up: A cancellation leaves a worker behind that does not come back. Without it a
            commit that has begun is done or has failed, whoever is cancelled.
    """

    __slots__ = ("_recorder", "_slot", "_sync", "may_give_up")

    def __init__(self, recorder: Recorder, *, sync: bool) -> None:
        self._recorder, self._sync, self.may_give_up = recorder, sync, False
        self._slot: anyio.CapacityLimiter | None = None

    async def __call__(self) -> None:
        """Hand over everything recorded so far."""
        if not (self._sync and self._recorder.blocking):
            self._recorder.flush(sync=self._sync)
            return
        if self._slot is None:
            self._slot = anyio.CapacityLimiter(1)
        with stands_still(self._recorder.clock):
            await anyio.to_thread.run_sync(self.now, limiter=self._slot, abandon_on_cancel=self.may_give_up)

    def now(self) -> None:
        """The same on the calling thread."""
        self._recorder.flush(sync=self._sync)
