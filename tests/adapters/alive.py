"""Whether anything that a test started still runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread


class Watch:
    """Every process that opens ``path`` for writing holds it until its death."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle = path, handle

    async def all_gone(self) -> bytes:
        """Return what was written once nobody holds the path any more."""
        os.set_blocking(self._handle, True)
        with anyio.fail_after(10):
            written = b""
            while data := await anyio.to_thread.run_sync(os.read, self._handle, 1024, abandon_on_cancel=True):
                written += data
            return written


@contextmanager
def watch(directory: Path) -> Iterator[Watch]:
    path = directory / "alive"
    os.mkfifo(path)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield Watch(path, handle)
    finally:
        os.close(handle)
