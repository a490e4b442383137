"""The exclusive writer's lock: an OS lock on a sibling file, released by death."""

from __future__ import annotations

import fcntl
import os

from graphstate.errors import LockHeld

__all__ = ("FileLock", "owner")


def _path(database: str) -> str:
    return f"{database}.lock"


def owner(database: str) -> str | None:
    """Return the process id of the live exclusive owner, None if there is none."""
    try:
        handle = os.open(_path(database), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(handle)
    return None


class FileLock:
    """Exclusive ownership of a database by this process.

    Raises:
        LockHeld: Another live process, or this one, owns it already.
    """

    def __init__(self, database: str) -> None:
        self._path = _path(database)
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
                os.close(handle)
                raise LockHeld(f"{database} is owned by process {pid} ({self._path})") from None
            if self._is_current(handle):
                break
            os.close(handle)  # the owner before us removed the file while we waited for it
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        self._handle = handle

    def _is_current(self, handle: int) -> bool:
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        held = os.fstat(handle)
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)

    def release(self) -> None:
        """Give up ownership and remove the file."""
        os.unlink(self._path)
        os.close(self._handle)
