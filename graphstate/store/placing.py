"""New files that appear whole or not at all: written under another name beside their place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from graphstate.errors import ErrorCode, ReadOnly, StorageFull, StoreError, VerbFailed

__all__ = ("placed", "remove_database", "translated")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: What SQLite and the exclusive lock put beside a database file.
BESIDE = ("-wal", "-shm", "-journal", ".lock")


@contextmanager
def placed(path: str, *, overwrite: bool = False) -> Iterator[str]:
    """Yield the name of an empty file (mode 0600) that is at ``path`` when the block ends well.

    The file and its folder are flushed to the disk. If the block fails nothing is left.

    Raises:
        VerbFailed: Conflict if something has the name and ``overwrite`` is not set.
        ReadOnly, StorageFull: The folder cannot be written.
    """
    from tempfile import mkstemp  # slow to import, and most processes never place a file

    if "\0" in path:
        raise VerbFailed(ErrorCode.INVALID_INPUT, f"the name of a file cannot hold NUL: {path!r:.80}")
    if not overwrite and os.path.lexists(path):
        raise _taken(path)
    folder = os.path.dirname(os.path.abspath(path))
    with translated(path):
        descriptor, draft = mkstemp(prefix=f".{os.path.basename(path)[:64]}.", suffix=".part", dir=folder)
        os.close(descriptor)
    try:
        yield draft
        with translated(path):
            _sync(draft)
            _move(draft, path, overwrite)
            _sync(folder)
    finally:
        remove_database(draft)


def _move(draft: str, path: str, overwrite: bool) -> None:
    if overwrite:
        os.replace(draft, path)
        return
    try:
        os.link(draft, path)  # unlike a rename it never replaces what came in between
    except FileExistsError:
        raise _taken(path) from None
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise _taken(path) from None
        os.rename(draft, path)


def _taken(path: str) -> VerbFailed:
    hint = "name a file that does not exist"
    return VerbFailed(ErrorCode.CONFLICT, f"{path} exists already", {"hint": hint})


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_database(path: str) -> None:
    """Delete a file and what a database has beside it, whatever of it exists."""
    for ending in ("", *BESIDE):
        with suppress(FileNotFoundError):
            os.unlink(path + ending)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn an error of the operating system into one of the store's."""
    try:
        yield
    except OSError as error:
        raise _store_error(path, error) from None


def _store_error(path: str, error: OSError) -> StoreError:
    kind = StorageFull if error.errno in _FULL else ReadOnly
    return kind(f"{path}: {error.strerror or error}")
