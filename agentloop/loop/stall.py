"""A look-out for code that blocks the event loop: no deadline and no abort can act meanwhile."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.lowlevel

__all__ = ("StallWatch",)


class StallWatch:
    """Reports, once a run, what has blocked its event loop for longer than a while.

    A thread knocks at the event loop again and again; when it is not let in, the stack of the
    loop's thread says who is in the way. A run that is shorter than the while costs one thread.

    Args:
        after_ms: How long the event loop may be blocked.
        report: Called on another thread with the stack, at most once.
    """

    def __init__(self, after_ms: float, report: Callable[[str], object]) -> None:
        self._after, self._report = after_ms / 1000, report
        self._over = threading.Event()
        self._loop_thread = threading.get_ident()
        self._token = anyio.lowlevel.current_token()
        # Daemons: a loop that ends while somebody knocks must not keep the process alive.
        self._thread = threading.Thread(target=self._watch, name="agentloop-stall-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; does not wait."""
        self._over.set()

    def _watch(self) -> None:
        from anyio import from_thread

        while not self._over.wait(self._after):
            alarm = threading.Timer(self._after, self._tell)
            alarm.daemon = True
            alarm.start()
            try:
                from_thread.run_sync(_knock, token=self._token)
            except RuntimeError:  # the event loop is gone
                return
            finally:
                alarm.cancel()

    def _tell(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if self._over.is_set() or frame is None:
            return
        self._over.set()
        stack = "".join(traceback.format_stack(frame)[-12:])
        with suppress(Exception):  # whoever is told must not end this thread with a traceback of its own
            self._report(stack)


def _knock() -> None:
    """Nothing: that it runs says that the event loop does."""
