"""Opening a file: who may, what it is, and laying the tables into a new one."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple, TypeAlias

from graphstate.errors import LockHeld, ReadOnly, shown
from graphstate.events import ChainKey
from graphstate.store import keys, schema
from graphstate.store.db import Database, Durability, SqliteDatabase
from graphstate.store.lock import FileLock, owner

__all__ = ("MEMORY", "LockMode", "Opened", "open_database")

LockMode: TypeAlias = Literal["shared", "exclusive"]

MEMORY = ":memory:"

#: Bytes that a key has at least.
MIN_KEY = 16
#: What SQLite takes: 24 days.
MAX_TIMEOUT_MS = 2**31 - 1


class Opened(NamedTuple):
    """A database that is ours, and what was found out about it."""

    db: Database
    read_only: bool
    #: process, power, memory or read-only: what SQLite reports
    durability: str
    full_text: bool
    lock: FileLock | None


def open_database(
    path: str, *, durability: Durability, lock: LockMode, read_only: bool, busy_timeout_ms: int, fts: bool,
    key: ChainKey | None = None,
) -> Opened:  # fmt: skip
    """Open or make a file; see `Store.open`. Whatever fails is closed again."""
    if durability not in ("process", "power"):
        raise ValueError(f"durability must be 'process' or 'power', not {durability!r}")
    if lock not in ("shared", "exclusive"):
        raise ValueError(f"lock must be 'shared' or 'exclusive', not {lock!r}")
    if key is not None and len(key) < MIN_KEY:
        raise ValueError(f"key must have at least {MIN_KEY} bytes, not {len(key)}")
    if type(busy_timeout_ms) is not int or not 0 <= busy_timeout_ms <= MAX_TIMEOUT_MS:
        raise ValueError(
            f"busy_timeout_ms must be an integer from 0 to {MAX_TIMEOUT_MS}, not {shown(busy_timeout_ms)}"
        )
    read_only = read_only and path != MEMORY
    held = _admitted(path, lock, read_only)
    db: SqliteDatabase | None = None
    try:
        db = SqliteDatabase(path, read_only=read_only, busy_timeout_ms=busy_timeout_ms)
        db.harden()
        ours = schema.inspect(db, path)
        if not ours and read_only:
            raise ReadOnly(f"{path} is empty, and opening it read-only would not fill it")
        level = "read-only" if read_only else db.write_ahead(durability)
        if not ours:
            _lay_tables(db, path, fts, key)
        keys.check(db, path, key)
        return Opened(db, read_only, level, fts and schema.has_full_text(db), held)
    except BaseException:
        if db is not None:
            db.close()
        if held is not None:
            held.release()
        raise


def _admitted(path: str, lock: LockMode, read_only: bool) -> FileLock | None:
    """Take or respect the exclusive lock, and see to it that the file exists."""
    if path == MEMORY:
        return None
    if read_only:
        if not os.path.exists(path):
            raise ReadOnly(f"{path} does not exist, and opening it read-only would not make it")
        return None
    try:
        held = FileLock(path) if lock == "exclusive" else None
        if held is None and (pid := owner(path)) is not None:
            raise LockHeld(f"{path} is owned by process {pid} ({path}.lock)")
    except OSError as error:
        raise ReadOnly(f"{path}.lock cannot be reached: {error.strerror}") from None
    try:
        # Only a file that does not exist is opened here: closing a handle on a database that is
        # in use would drop the locks of this process on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        if held is not None:
            held.release()
        raise ReadOnly(f"{path} cannot be made: {error.strerror}") from None
    return held


def _lay_tables(db: SqliteDatabase, path: str, fts: bool, key: ChainKey | None) -> None:
    db.begin(sync=True)
    try:
        if not schema.inspect(db, path):  # another process may have been first
            schema.create(db, full_text=fts)
            if key is not None:
                keys.mark(db, key)
        db.commit()
    except BaseException:
        db.rollback()
        raise
