"""The one door to SQLite: a connection, its settings, and its errors in our words.

`Database` is what the store asks of a backend. Everything that differs between database
systems lives in an implementation of it, so that a second one touches no verb.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from graphstate.errors import (
    Busy,
    ClosedStore,
    ForeignDatabase,
    IntegrityBroken,
    Misuse,
    ReadOnly,
    StorageFull,
)

if TYPE_CHECKING:
    import apsw

__all__ = ("Database", "Durability", "SqliteDatabase", "SqlValue")

# 16 MB of write-ahead log; it goes when the last process closes the file.
_CHECKPOINTS = "PRAGMA wal_autocheckpoint=4000"

SqlValue: TypeAlias = int | float | str | bytes | None
Durability: TypeAlias = Literal["process", "power"]


class Database(Protocol):
    """A transactional SQL database with one connection."""

    def one(self, sql: str, values: Sequence[SqlValue] = ()) -> tuple[Any, ...] | None:
        """Return the first row, or None."""

    def all(self, sql: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """Return every row."""

    def each(self, sql: str, values: Sequence[SqlValue] = ()) -> Iterable[tuple[Any, ...]]:
        """Yield rows as they are read. The statement stays open until it is exhausted."""

    def run(self, sql: str, values: Sequence[SqlValue] = ()) -> None:
        """Execute a statement."""

    def many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Execute a statement once for each row."""

    def begin(self, *, sync: bool) -> bool:
        """Start a writing transaction, and say whether somebody else has written since the last.

        With ``sync`` the commit survives power loss.
        """

    def begin_read(self) -> bool:
        """Start a reading transaction, one moment until it ends, and say the same."""

    def wrote(self) -> bool:
        """Say whether the open writing transaction changed a row, as far as that is known."""

    def commit(self) -> None:
        """Commit."""

    def rollback(self) -> None:
        """Roll back. Harmless if the database has already done it."""

    def copy_from(self, other: Database) -> None:
        """Replace everything by the content of another database of the same kind."""

    def displaced(self) -> bool:
        """Say whether the file under its name is not the one that was opened."""

    def log_displaced(self) -> bool:
        """Say whether the write-ahead log under its name is not the one that is written."""

    def close(self) -> None:
        """Close; uncommitted work is lost."""


def _translate(error: Exception) -> Exception:
    import apsw

    text = str(error)
    for kinds, ours in (
        ((apsw.BusyError, apsw.LockedError, apsw.ProtocolError, apsw.SchemaChangeError), Busy),
        ((apsw.FullError,), StorageFull),
        ((apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError), ReadOnly),
        ((apsw.CorruptError, apsw.NotADBError, apsw.FormatError), IntegrityBroken),
    ):
        if isinstance(error, kinds):
            return ours(f"SQLite says: {text}")
    if isinstance(error, (apsw.ConnectionClosedError, apsw.CursorClosedError)):
        return ClosedStore("the store was closed")
    if isinstance(error, (apsw.IOError, apsw.CantOpenError)):
        return StorageIo(f"SQLite could not reach the file: {text}")
    if isinstance(error, apsw.NoMemError):
        return MemoryError(text)
    if isinstance(error, UnicodeDecodeError):
        return IntegrityBroken(f"the file holds a text that is none: {text}")
    if isinstance(error, apsw.SQLError) and "malformed JSON" in text:
        return IntegrityBroken(f"the file holds JSON that is none: {text}")
    if isinstance(error, apsw.SQLError) and text.startswith(("no such table", "no such column")):
        return IntegrityBroken(f"the file lost a part of its schema while it was open: {text}")
    return Misuse(f"SQLite refused a statement: {type(error).__name__}: {text}")


class StorageIo(IntegrityBroken):
    """A read, write or sync failed. The store takes no more writes until it is opened again."""


class SqliteDatabase:
    """One SQLite connection.

    Args:
        path: A file, or ``:memory:``.
        read_only: Change no byte. Without a write-ahead log to read and without the right
            to create one, the file is taken as it is.
        busy_timeout_ms: How long a lock of another process is waited for.

    Raises:
        ForeignDatabase: The file is not a SQLite database.
        ReadOnly: It cannot be written.
        Busy: It is locked.
    """

    def __init__(self, path: str, *, read_only: bool, busy_timeout_ms: int) -> None:
        import apsw

        self._error = apsw.Error
        self._in_memory = path == ":memory:"
        # SQLite removes the log when the last connection closes; while we are open it stays.
        self._log_path, self._log_inode = f"{path}-wal", 0
        self._busy_timeout_ms = busy_timeout_ms
        self._synced = False
        self._connection = self._connect(path, read_only)
        self._connection.set_busy_timeout(busy_timeout_ms)
        # Else SQLite plans a joining statement anew for every value that is bound, 20 us each time.
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._cursor = self._connection.cursor()
        # What the two change counters said last: of writing and of reading transactions.
        self._written = self._read = -1
        self._changes = 0  # rows ever changed, when the open transaction began
        self._raised = self._closed = False
        # SQLite compares device and inode, and writes its answer into this integer.
        self._has_moved, self._answer = apsw.SQLITE_FCNTL_HAS_MOVED, array("i", [0])

    def _connect(self, path: str, read_only: bool) -> apsw.Connection:
        import apsw

        readable, writable = apsw.SQLITE_OPEN_READONLY, apsw.SQLITE_OPEN_READWRITE
        try:
            if not read_only:
                connection = apsw.Connection(path, flags=writable)
                connection.set_busy_timeout(self._busy_timeout_ms)
                connection.execute("PRAGMA application_id").fetchall()  # reads the header: ours or foreign
                return connection
            try:
                connection = apsw.Connection(path, flags=readable)
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            except (apsw.CantOpenError, apsw.ReadOnlyError):
                if os.path.exists(f"{path}-wal") or not os.path.exists(path):
                    raise
                from urllib.parse import quote

                uri = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
                connection = apsw.Connection(uri, flags=readable | apsw.SQLITE_OPEN_URI)
            return connection
        except apsw.NotADBError:
            raise ForeignDatabase(f"{path} is not a SQLite database; it was left as it is") from None
        except apsw.CantOpenError as error:
            raise ReadOnly(f"{path} cannot be opened: {error}") from None
        except apsw.Error as error:
            raise _translate(error) from error

    def harden(self) -> None:
        """Trust nothing that the file says about itself."""
        import apsw

        self._connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        self._connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        self.run("PRAGMA cell_size_check=ON")
        self.run("PRAGMA mmap_size=0")

    def write_ahead(self, level: Durability) -> str:
        """Switch to write-ahead logging and return the durability that SQLite reports.

        Raises:
            ReadOnly: SQLite stayed with another journal.
        """
        (mode,) = self.one("PRAGMA journal_mode=WAL") or ("",)
        if self._in_memory:
            return "memory"
        if mode != "wal":
            raise ReadOnly(f"SQLite keeps journal mode {mode!r} and refuses write-ahead logging here")
        # A step of a large graph changes pages all over the file. Each checkpoint waits for the disk
        # and writes a page once, however often it changed: fewer of them halve the time of a step.
        self.run(_CHECKPOINTS)
        self.run("PRAGMA synchronous=FULL" if level == "power" else "PRAGMA synchronous=NORMAL")
        (reported,) = self.one("PRAGMA synchronous") or (0,)
        self._synced = reported >= 2
        return "power" if self._synced else "process"

    # ------------------------------------------------------------------ statements

    def one(self, sql: str, values: Sequence[SqlValue] = ()) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = self._cursor.execute(sql, values).fetchone()
        except (self._error, UnicodeDecodeError) as error:
            raise _translate(error) from error
        return row

    def all(self, sql: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        try:
            rows: list[tuple[Any, ...]] = self._cursor.execute(sql, values).fetchall()
        except (self._error, UnicodeDecodeError) as error:
            raise _translate(error) from error
        return rows

    def each(self, sql: str, values: Sequence[SqlValue] = ()) -> Iterable[tuple[Any, ...]]:
        try:
            yield from self._connection.cursor().execute(sql, values)
        except (self._error, UnicodeDecodeError) as error:
            raise _translate(error) from error

    def run(self, sql: str, values: Sequence[SqlValue] = ()) -> None:
        try:
            self._cursor.execute(sql, values)
        except self._error as error:
            raise _translate(error) from error

    def many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        try:
            self._cursor.executemany(sql, rows)
        except self._error as error:
            raise _translate(error) from error

    # ------------------------------------------------------------------ transactions

    def begin(self, *, sync: bool) -> bool:
        if sync and not self._synced and not self._in_memory:
            self.run("PRAGMA synchronous=FULL")
            self._raised = True
        try:
            self.run("BEGIN IMMEDIATE")
        except BaseException:
            self._ended()
            raise
        self._changes = self._connection.total_changes()
        # The pager's own counter, read without a statement; our commits count too, see _ended.
        return not self._in_memory and self._connection.data_version() != self._written

    def begin_read(self) -> bool:
        self.run("BEGIN")
        (version,) = self.one("PRAGMA data_version") or (0,)  # this also fixes the moment
        moved: bool = version != self._read
        self._read = version
        return moved

    def wrote(self) -> bool:
        # After some errors SQLite has already rolled back; then nobody knows what it was.
        connection = self._connection
        return not connection.in_transaction or connection.total_changes() != self._changes

    def commit(self) -> None:
        self.run("COMMIT")
        self._ended()

    def rollback(self) -> None:
        # A second rollback would be an error.
        if not self._closed and self._connection.in_transaction:
            self.run("ROLLBACK")
        self._ended()

    def _ended(self) -> None:
        if self._closed:
            return
        if not self._in_memory:
            self._written = self._connection.data_version()
        if self._raised:
            self._raised = False
            self.run("PRAGMA synchronous=NORMAL")

    def copy_from(self, other: Database) -> None:
        if not isinstance(other, SqliteDatabase):
            raise Misuse("a SQLite database copies from a SQLite database only")
        try:
            with self._connection.backup("main", other._connection, "main") as backup:
                backup.step()
        except self._error as error:
            raise _translate(error) from error

    def displaced(self) -> bool:
        if self._in_memory:
            return False
        self._connection.file_control("main", self._has_moved, self._answer.buffer_info()[0])
        return self._answer[0] != 0

    def log_displaced(self) -> bool:
        if self._in_memory:
            return False
        try:
            inode = os.stat(self._log_path).st_ino
        except FileNotFoundError:
            inode = -1
        if self._log_inode == 0 and inode > 0:
            self._log_inode = inode
        return self._log_inode not in (0, inode)

    def close(self) -> None:
        import apsw

        self._closed = True
        self._cursor.close()
        with suppress(apsw.IOError, apsw.FullError):  # what is not written back stays in the log beside
            self._connection.close()
