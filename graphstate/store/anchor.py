"""Telling the head of the log to somebody outside the file, who could compare it one day.

Only a head that is kept elsewhere shows that the newest events were cut off or that the whole
file was put back. An anchor that fails takes nothing back: what was committed stays committed.
It warns once, and is told again at the next occasion.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TypeAlias

from graphstate.events import Head

__all__ = ("Anchor", "Sink")

#: Takes the head as text, or names the file to which it is appended, one line each.
Sink: TypeAlias = Callable[[str], object] | str | os.PathLike[str]


def _appends_to(path: str) -> Callable[[str], None]:
    def append(head: str) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, f"{head}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    return append


class Anchor:
    """Tells a sink the head: when it is due, and every so many events.

    Args:
        sink: A function, or the file to append to.
        every: Events between two tellings that nobody asked for.
        told: The head when the store was opened.
    """

    def __init__(self, sink: Sink, every: int, told: Head) -> None:
        self._tell = sink if callable(sink) else _appends_to(os.path.abspath(os.fspath(sink)))
        self._every, self._told = every, told
        self._busy = self._warned = False
        #: asked for, by a checkpoint for example; told after the commit
        self.due = False

    def offer(self, head: Head) -> None:
        """Tell the head, if that is due."""
        far = head.seq - self._told.seq >= self._every or head.seq < self._told.seq
        if self._busy or head == self._told or not (self.due or far):
            return
        self._busy = True
        try:
            self._tell(str(head))
        except Exception as error:
            self._warn(error)
        else:
            self._told, self.due = head, False
        finally:
            self._busy = False

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            text = f"the anchor failed and does not know the newest head: {type(error).__name__}: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=4)
