"""Who is told of committed events.

Telling reads the log behind a place each listener keeps, so everybody gets every event once
and in its order, whoever wrote it: this object, another thread or another process. It happens
after the outermost commit, outside of every transaction and lock of the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Protocol

from graphstate.errors import Misuse, StoreError, SubscriberFailed
from graphstate.events import GRAPH, Row
from graphstate.store.log import Log

__all__ = ("AT_ONCE", "MAX_SUBSCRIPTIONS", "Feed", "Subscription")

#: Subscriptions of one store.
MAX_SUBSCRIPTIONS = 64

#: Events one subscription is given after a commit or in a poll; the rest follows at the next one.
AT_ONCE = 1_000

_PAGE = 100


class _Reads(Protocol):
    log: Log
    feed: Feed

    def begin_read(self) -> None: ...
    def end_read(self) -> None: ...


class Subscription:
    """A running subscription. Leaving a ``with`` block closes it.

    Attributes:
        seq: The last event that was told.
        error: What the function raised, if it did. It was told nothing since.
    """

    def __init__(
        self,
        store: _Reads,
        tell: Callable[[Row], object],
        rolled_back: Callable[[int], object] | None,
        seq: int,
        cut: int,
    ) -> None:
        self._store, self._tell, self._rolled_back = store, tell, rolled_back
        self.seq, self._cut = seq, cut
        self.error: Exception | None = None
        self._open = True
        self._reported = False

    def poll(self) -> int:
        """Tell what was committed since, by other processes too, and return how many events that were.

        Zero also if another thread is telling just now, or if the call comes from a subscriber.

        Raises:
            SubscriberFailed: Once, if the function has raised.
            StoreError: The file cannot be read now.
        """
        told = self._store.feed.tell(only=self) if self._open else 0
        self._report()
        return told

    def is_open(self) -> bool:
        """Say whether the function is still told."""
        return self._open

    def close(self) -> None:
        """End the subscription; a call that is running in another thread still ends.

        Raises:
            SubscriberFailed: If the function has raised and `poll` has not said so.
        """
        self._end()
        self._report()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end()
        if error is None:
            self._report()

    def _end(self) -> None:
        self._open = False
        self._store.feed.drop(self)

    def _report(self) -> None:
        if self.error is not None and not self._reported:
            self._reported = True
            raise SubscriberFailed(self.error) from self.error

    def catch_up(self, most: int) -> int:
        """Tell at most so many events, and return how many that were. The feed's lock is held."""
        told = 0
        while told < most and self.is_open():
            rows = self._unread(min(_PAGE, most - told))
            if not rows:
                break
            for row in rows:
                if not self.is_open():
                    break
                self.seq = row.seq
                told += 1
                self._call(partial(self._tell, row))
        return told

    def _unread(self, most: int) -> list[Row]:
        store = self._store
        store.begin_read()
        try:
            cut, back = store.log.cuts_after(GRAPH, self._cut)
            self._cut = cut
            gone = back is not None and back < self.seq
            self.seq = min(self.seq, self.seq if back is None else back)
            rows = list(islice(store.log.read(GRAPH, after=self.seq), most))
        finally:
            store.end_read()
        if gone and self._rolled_back is not None:
            self._call(partial(self._rolled_back, self.seq))
        return rows

    def _call(self, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception as error:
            self.error = error
            self._end()


class Feed:
    """The subscriptions of one store."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []
        self._telling = threading.Lock()
        self._more = False

    @property
    def wanted(self) -> bool:
        """Say whether anybody listens."""
        return bool(self._subscriptions)

    def add(
        self,
        store: _Reads,
        tell: Callable[[Row], object],
        rolled_back: Callable[[int], object] | None,
        after: int | None,
    ) -> Subscription:
        """Begin a subscription behind an event, or behind the head.

        Raises:
            Misuse: There are too many.
        """
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise Misuse(f"{MAX_SUBSCRIPTIONS} subscriptions are open, more are not allowed: close some")
        store.begin_read()
        try:
            head = store.log.head(GRAPH).seq
            cut, _ = store.log.cuts_after(GRAPH, 0)
        finally:
            store.end_read()
        seq = head if after is None else min(after, head)
        subscription = Subscription(store, tell, rolled_back, seq, cut)
        self._subscriptions = [*self._subscriptions, subscription]
        return subscription

    def drop(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._subscriptions = [kept for kept in self._subscriptions if kept is not subscription]

    def tell(self, *, only: Subscription | None = None) -> int:
        """Tell everybody, or one, what is new, and return how many events that were.

        One thread at a time does so for all. A call while another one is telling, in another
        thread or from a subscriber, leaves the work to that one.
        """
        left: dict[Subscription, int] = {}
        self._more = True
        # The flag is set before the lock is tried and cleared after it is taken, so that no
        # commit falls between the last look of one thread and the first of another.
        while self._more and self._telling.acquire(blocking=False):
            try:
                self._more = False
                for subscription in self._subscriptions if only is None else [only]:
                    most = left.get(subscription, AT_ONCE)
                    left[subscription] = most - subscription.catch_up(most)
            finally:
                self._telling.release()
        return sum(AT_ONCE - most for most in left.values())

    def tell_after_commit(self) -> None:
        """Tell everybody; a file that cannot be read now is read the next time."""
        try:
            self.tell()
        except StoreError:
            return
