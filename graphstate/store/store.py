"""The store: one file, its log, its projection, and the transactions that join them.

A verb runs between `begin` and `commit`, reads, decides, and hands drafts to `record`, which
writes the event and folds it in the same transaction. What is remembered of the file is
dropped whenever a transaction fails or another process wrote.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from graphstate._canonical import decode, encode
from graphstate.errors import (
    ClosedStore,
    ErrorCode,
    ForkedStore,
    IntegrityBroken,
    LockHeld,
    ReadOnly,
    StoreError,
    UnitFailed,
    VerbFailed,
)
from graphstate.events import GENESIS, GRAPH, Draft, Head, IdGen, Row, row_hash
from graphstate.model import IntegrityReport, Recovery
from graphstate.store import schema
from graphstate.store.db import Database, Durability, SqliteDatabase, StorageIo
from graphstate.store.lock import FileLock, owner
from graphstate.store.log import Log
from graphstate.store.projection import Projection
from graphstate.store.snapshot import Snapshots, Taken, state_bytes

__all__ = ("LockMode", "Store", "Unit")

LockMode: TypeAlias = Literal["shared", "exclusive"]

#: UTF-8 bytes of one event's body.
MAX_EVENT_BYTES = 1_048_576

_BROKEN = "SELECT value FROM meta WHERE key = 'broken'"


def _system_rand() -> Callable[[], float]:
    from random import random

    return random


def _system_now() -> int:
    return time.time_ns() // 1_000_000


class Store:
    """One open file (or ``:memory:``). Any thread may use it; one lock keeps them apart."""

    def __init__(
        self, db: Database, path: str, *, read_only: bool, durability: str, full_text: bool, lock: FileLock | None,
        now: Callable[[], int], rand: Callable[[], float], ids: IdGen | None,
    ) -> None:  # fmt: skip
        self.path, self.read_only, self.durability = path, read_only, durability
        self.now, self.rand = now, rand
        self.ids = ids or IdGen(now, rand)
        self.log, self.projection, self.snapshots = Log(db), Projection(db), Snapshots(db)
        self.full_text = full_text
        #: what opening had to repair
        self.recovery = Recovery()
        self._db, self._lock_file = db, lock
        self._guard = threading.RLock()
        self._pid = os.getpid()
        self._on_disk = path != ":memory:"
        self._closed = False
        self._broken: str | None = None
        self._depth = 0
        self._reading = 0
        self._failure: tuple[ErrorCode, str] | None = None
        self._harden = False
        self._snapshot_due = 0
        self._touched_text = False

    # ------------------------------------------------------------------ opening

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = ":memory:",
        *,
        now: Callable[[], int] | None = None,
        rand: Callable[[], float] | None = None,
        ids: IdGen | None = None,
        durability: Durability = "process",
        lock: LockMode = "shared",
        read_only: bool = False,
        busy_timeout_ms: int = 5_000,
        fts: bool = True,
    ) -> Store:
        """Open a file, making it if it does not exist (mode 0600).

        A file whose projection is current is not replayed: the cost does not depend on the
        length of the log.

        Raises:
            ForeignDatabase, UnsupportedVersion: The file is not ours or of another version.
            IntegrityBroken: It is damaged. Open it with ``read_only`` to look at it.
            LockHeld: An exclusive writer owns it.
            Busy, ReadOnly, StorageFull: It cannot be used now.
        """
        name = os.fspath(path)
        on_disk = name != ":memory:"
        read_only = read_only and on_disk
        if durability not in ("process", "power"):
            raise ValueError(f"durability must be 'process' or 'power', not {durability!r}")
        if lock not in ("shared", "exclusive"):
            raise ValueError(f"lock must be 'shared' or 'exclusive', not {lock!r}")
        held = None
        if on_disk and not read_only:
            try:
                held = FileLock(name) if lock == "exclusive" else None
                if held is None and (pid := owner(name)) is not None:
                    raise LockHeld(f"{name} is owned by process {pid} ({name}.lock)")
            except OSError as error:
                raise ReadOnly(f"{name}.lock cannot be reached: {error.strerror}") from None
            _create(name)
        elif on_disk and not os.path.exists(name):
            raise ReadOnly(f"{name} does not exist, and opening it read-only would not make it")
        db: SqliteDatabase | None = None
        try:
            db = SqliteDatabase(name, read_only=read_only, busy_timeout_ms=busy_timeout_ms)
            db.harden()
            ours = schema.inspect(db, name)
            if not ours and read_only:
                raise ReadOnly(f"{name} is empty, and opening it read-only would not fill it")
            level = "read-only" if read_only else db.write_ahead(durability)
            if not ours:
                ours = _create_schema(db, name, fts)
            store = cls(
                db, name, read_only=read_only, durability=level,
                full_text=fts and schema.has_full_text(db), lock=held,
                now=now or _system_now, rand=rand or _system_rand(), ids=ids,
            )  # fmt: skip
            store._recover()
        except BaseException:
            if db is not None:
                db.close()
            if held is not None:
                held.release()
            raise
        return store

    def _recover(self) -> None:
        """Compare projection and log; fold, set aside or refuse what does not match."""
        self.begin_read()
        try:
            applied, head = self.projection.applied(), self.log.head(GRAPH)
            broken = self._db.one(_BROKEN) is not None
        finally:
            self.end_read()
        if self.read_only and applied != head and not broken:
            raise IntegrityBroken(
                f"{self.path} needs repair (its projection holds {applied.seq} events, its log {head.seq}): "
                "open it once for writing"
            )
        if self.read_only or (applied == head and not broken):
            return
        self.begin(sync=True)
        try:
            self._forget()
            self._repair(broken)
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def _repair(self, marked: bool) -> None:
        if marked:
            walk = self.log.walk(GRAPH, Head(0, GENESIS))
            if walk.break_seq is not None:
                raise IntegrityBroken(
                    f"{self.path} is damaged at event {walk.break_seq} ({walk.detail}); "
                    f"events 1 to {walk.head.seq} are good and nothing was deleted"
                )
            self._db.run("DELETE FROM meta WHERE key = 'broken'")
        applied, head = self.projection.applied(), self.log.head(GRAPH)
        if applied == head:
            return
        # Event and projection are committed together: rows beyond the projection were put there
        # by something else. They are folded if they continue the chain, and set aside if not.
        walk = self.log.walk(GRAPH, applied)
        if walk.head.seq < applied.seq:
            raise IntegrityBroken(
                f"{self.path} has lost acknowledged events: its projection holds {applied.seq}, "
                f"its log ends at {head.seq} or differs there"
            )
        trimmed = 0
        if walk.break_seq is not None:
            trimmed = head.seq - walk.head.seq
            self.log.abandon(GRAPH, walk.head, at=self.now(), actor=None, trust=None, reason="torn tail")
        replayed = self._replay(walk.head, after=applied.seq)
        self.recovery = Recovery(trimmed=trimmed, last_good_seq=walk.head.seq, replayed=replayed)

    # ------------------------------------------------------------------ transactions

    def _enter(self) -> None:
        """Take the lock, if the store may be used at all."""
        # Before the lock: in a fork another thread of the parent may have held it for ever.
        if self._pid != os.getpid():
            raise ForkedStore(f"{self.path} was opened by process {self._pid}: open it again after a fork")
        self._guard.acquire()
        if self._closed:
            self._guard.release()
            raise ClosedStore(f"{self.path} was closed")
        if self._db.displaced():
            self._guard.release()
            raise IntegrityBroken(f"{self.path} was replaced, moved or deleted while it was open")

    def _forget(self) -> None:
        self.log.forget()
        self.projection.forget()
        self._snapshot_due = 0

    def begin(self, *, sync: bool = False) -> None:
        """Enter a writing transaction, or the one that is open.

        Raises:
            ReadOnly, IntegrityBroken: The store takes no writes.
            Busy: Another process did not let go in time.
        """
        self._enter()
        try:
            if self.read_only:
                raise ReadOnly(f"{self.path} was opened read-only")
            if self._broken is not None:
                raise IntegrityBroken(self._broken)
            if self._depth == 0:
                if self._db.begin(sync=sync):
                    self._forget()
                    if self._lock_file is None and (pid := owner(self.path)) is not None:
                        self._db.rollback()
                        raise LockHeld(f"{self.path} is owned by process {pid} ({self.path}.lock)")
            elif sync:
                self._harden = True
            self._depth += 1
        except BaseException:
            self._guard.release()
            raise

    def commit(self) -> None:
        """Leave the transaction; the outermost one commits."""
        try:
            if self._depth == 1:
                self.projection.flush()
                self._db.commit()
        except BaseException as error:
            if isinstance(error, StorageIo):
                self._broken = f"a write failed ({error}); close the store and open it again"
            self._undo()
            raise
        else:
            self._depth -= 1
            if self._depth == 0 and self._harden:
                self._harden = False
                # A synced commit flushes the whole log before it, so an empty change is enough.
                self._db.begin(sync=True)
                self._db.run("UPDATE state SET value = value WHERE key = 'head'")
                self._db.commit()
        finally:
            self._guard.release()

    def rollback(self) -> None:
        """Leave the transaction without a trace. Inside a unit the unit fails as a whole."""
        try:
            if self._depth == 1:
                self._undo()
            else:
                self._depth -= 1
        finally:
            self._guard.release()

    def _undo(self) -> None:
        self._depth = 0
        self._harden = False
        self._failure = None
        try:
            self._db.rollback()
        finally:
            self._forget()

    def fail(self, code: ErrorCode, message: str) -> None:
        """Note that a verb failed; an open unit will not commit."""
        if self._depth and self._failure is None:
            self._failure = (code, message)

    @property
    def failed(self) -> tuple[ErrorCode, str] | None:
        """The failure that dooms the open unit."""
        return self._failure

    def begin_read(self) -> None:
        """Enter a reading transaction: everything read until `end_read` is of one moment."""
        self._enter()
        try:
            if self._depth == 0 and self._reading == 0 and self._on_disk:
                try:
                    if self._db.begin_read():
                        self._forget()
                except BaseException:
                    self._db.rollback()
                    raise
            self._reading += 1
        except BaseException:
            self._guard.release()
            raise

    def end_read(self) -> None:
        """Leave the reading transaction."""
        try:
            self._reading -= 1
            if self._depth == 0 and self._reading == 0 and self._on_disk:
                self._db.rollback()
        finally:
            self._guard.release()

    def unit(self, *, sync: bool = False) -> Unit:
        """Join several verbs and appends in one transaction and one commit."""
        return Unit(self, sync)

    # ------------------------------------------------------------------ writing

    def record(
        self, drafts: Sequence[Draft], *, actor: str | None, trust: str | None, cause: str | None = None
    ) -> list[Row]:
        """Append events to the graph's stream and fold them. The cause goes on the first.

        Raises:
            VerbFailed: PayloadTooLarge for an event of more than 1 MiB.
            StoreError: It could not be written.
        """
        seq, previous = self.log.head(GRAPH)
        rows: list[Row] = []
        for draft in drafts:
            seq += 1
            body = encode(draft.body)
            if len(body) > MAX_EVENT_BYTES:
                raise VerbFailed(
                    ErrorCode.PAYLOAD_TOO_LARGE,
                    f"an event of {len(body)} bytes, more than the {MAX_EVENT_BYTES} allowed",
                )
            at = self.now()
            row_id = self.ids.next("E")
            previous = row_hash(previous, GRAPH, seq, at, row_id, draft.type, actor, trust, cause, body)
            rows.append(Row(seq, at, row_id, draft.type, actor, trust, cause, body, previous))
            cause = None
        head = self.log.extend(GRAPH, rows)
        for row, draft in zip(rows, drafts, strict=True):
            self.projection.apply(row, draft.body)
            self._touched_text = self._touched_text or row.type == "NodeUpserted"
        self.projection.set_applied(head)
        return rows

    def append(
        self, stream: str, rows: Sequence[Row], *, expected: int | None = None, sync: bool = False
    ) -> Head:
        """Append rows made elsewhere to a stream that is not the graph's, and return its head.

        Joins the open unit, else it is one transaction. About 5 us a row in batches.

        Args:
            rows: Encoded and hashed by their maker (`row_hash`); checked here.
            expected: The number the stream must be at; None accepts any.
            sync: The commit survives power loss, whatever the durability of the store.

        Raises:
            Conflict: The stream is elsewhere; read it again.
            IntegrityBroken: A row does not continue the chain.
        """
        if stream == GRAPH:
            raise ValueError("the stream 'graph' is written by verbs only")
        self.begin(sync=sync)
        try:
            head = self.log.append(stream, rows, expected=expected)
        except BaseException as error:
            self.fail(getattr(error, "code", ErrorCode.INTEGRITY_BROKEN), str(error))
            self.rollback()
            raise
        self.commit()
        return head

    def read(self, stream: str, *, after: int = 0) -> Iterator[Row]:
        """Yield the rows of a stream after a number. Other calls may come in between."""
        while True:
            self.begin_read()
            try:
                page = [row for row, _ in zip(self.log.read(stream, after=after), range(500), strict=False)]
            finally:
                self.end_read()
            yield from page
            if len(page) < 500:
                return
            after = page[-1].seq

    def streams(self, prefix: str = "") -> list[str]:
        """Return the names of the streams that begin with a prefix, sorted."""
        self.begin_read()
        try:
            return self.log.streams(prefix)
        finally:
            self.end_read()

    def head(self, stream: str = GRAPH) -> Head:
        """Return the newest (seq, hash) of a stream."""
        self.begin_read()
        try:
            return self.log.head(stream)
        finally:
            self.end_read()

    # ------------------------------------------------------------------ snapshots and rebuilding

    def snapshot_if_due(self, *, actor: str | None, trust: str | None) -> None:
        """Take a snapshot if enough events passed since the last one.

        Enough is ``snapshotInterval``, and at least as many as there are live rows, so that
        snapshots cost each event about one row, however large the graph is.
        """
        head = self.log.head(GRAPH).seq
        if head < self._snapshot_due:
            return
        interval = self.projection.tunables()["snapshotInterval"]
        last = self.projection.mark("snapshot")
        self._snapshot_due = last + interval
        if not interval or head < self._snapshot_due:
            self._snapshot_due = self._snapshot_due if interval else head + 1_000
            return
        self._snapshot_due = last + max(interval, self.projection.size())
        if head >= self._snapshot_due:
            self.snapshot(actor=actor, trust=trust)

    def snapshot(self, *, actor: str | None, trust: str | None, cause: str | None = None) -> Taken:
        """Keep the state of the head, and record that with its digest."""
        head, name = self.log.head(GRAPH), self.ids.next("S")
        self.projection.flush()
        digest = self.snapshots.take(name, head, self.now())
        body = {"snapshotId": name, "seq": head.seq, "digest": digest.hex()}
        self.record([Draft("SnapshotTaken", body)], actor=actor, trust=trust, cause=cause)
        self.projection.set_mark("snapshot", head.seq)
        self._snapshot_due = 0
        return Taken(name, head)

    def _replay(self, upto: Head, *, after: int) -> int:
        count = 0
        for row in self.log.read(GRAPH, after=after, upto=upto.seq):
            self.projection.apply(row, decode(row.body))
            count += 1
        self.projection.set_applied(upto)
        return count

    def rebuild(self, upto: Head) -> Recovery:
        """Make the projection of an event again: newest good snapshot before it, then the rest."""
        self.projection.clear()
        for taken in self.snapshots.before(upto.seq):
            state = self.snapshots.read(taken.id)
            if state is not None and self.log.hash_at(GRAPH, taken.head.seq) == taken.head.hash:
                self.snapshots.load(state)
                count = self._replay(upto, after=taken.head.seq)
                return Recovery(last_good_seq=upto.seq, replayed=count, snapshot_id=taken.id)
        return Recovery(last_good_seq=upto.seq, replayed=self._replay(upto, after=0))

    def cut(self, to: Head, *, actor: str | None, trust: str | None, reason: str) -> int:
        """Return to an earlier event; later ones are set aside with who and why."""
        count = self.log.head(GRAPH).seq - to.seq
        no = self.log.abandon(GRAPH, to, at=self.now(), actor=actor, trust=trust, reason=reason)
        self.snapshots.drop_after(to.seq)
        self.rebuild(to)
        self.projection.set_mark("cut", no)
        self.projection.set_mark("text", -1)
        newest = self.snapshots.before(to.seq)
        self.projection.set_mark("snapshot", newest[0].head.seq if newest else 0)
        self._snapshot_due = 0
        return count

    # ------------------------------------------------------------------ integrity

    def verify(self, *, deep: bool = False) -> IntegrityReport:
        """Check the chains from where they were last verified, or with ``deep`` everything.

        A break makes the store refuse writes from then on, here and after reopening.
        """
        self.begin_read()
        try:
            report = self._verify_chains(deep)
            if report.ok and deep:
                report = self._verify_state(report)
        finally:
            self.end_read()
        if not self.read_only:
            self._note(report)
        return report

    def _verify_chains(self, deep: bool) -> IntegrityReport:
        rows = 0
        graph = Head(0, GENESIS)
        self._verified: dict[str, Head] = {}
        for stream in self.log.streams(""):
            start = Head(0, GENESIS) if deep else self.log.verified(stream)
            walk = self.log.walk(stream, start)
            rows += walk.rows
            if walk.break_seq is not None:
                return IntegrityReport(
                    ok=False, checked_events=rows, verified_seq=walk.head.seq, stream=stream,
                    first_break_seq=walk.break_seq, detail=walk.detail, deep=deep,
                )  # fmt: skip
            if walk.head != start:
                self._verified[stream] = walk.head
            if stream == GRAPH:
                graph = walk.head
        applied = self.projection.applied()
        if applied != graph:
            return IntegrityReport(
                ok=False, checked_events=rows, verified_seq=graph.seq, stream=GRAPH, deep=deep,
                first_break_seq=min(applied.seq, graph.seq) + 1,
                detail=f"the log ends at {graph.seq}, but {applied.seq} events were acknowledged",
            )  # fmt: skip
        return IntegrityReport(ok=True, checked_events=rows, verified_seq=graph.seq, deep=deep)

    def _verify_state(self, report: IntegrityReport) -> IntegrityReport:
        problem = None
        (check,) = self._db.one("PRAGMA integrity_check(1)") or ("no answer",)
        if check != "ok":
            problem = f"SQLite finds damage: {check}"
        elif damaged := self.snapshots.damaged():
            problem = f"snapshot {damaged[0]} does not have its digest"
        else:
            again = SqliteDatabase(":memory:", read_only=False, busy_timeout_ms=0)
            try:
                schema.create(again, full_text=False)
                fresh = Projection(again)
                for row in self.log.read(GRAPH):
                    fresh.apply(row, decode(row.body))
                fresh.flush()
                if state_bytes(again) != state_bytes(self._db):
                    problem = "the projection differs from a replay of the log"
            finally:
                again.close()
        if problem is None:
            return report
        return IntegrityReport(
            ok=False, checked_events=report.checked_events, verified_seq=report.verified_seq,
            detail=problem, stream=GRAPH, deep=True,
        )  # fmt: skip

    def _note(self, report: IntegrityReport) -> None:
        if self._broken is not None:
            return
        if not report.ok:
            where = f"event {report.first_break_seq} of stream {report.stream!r}"
            said = f"{self.path} is damaged at {where}: {report.detail}"
            self.begin()
            try:
                self._db.run("INSERT OR REPLACE INTO meta VALUES ('broken', ?)", (said,))
            except BaseException:
                self.rollback()
                raise
            self.commit()
            self._broken = said
        elif self._verified:
            self.begin()
            try:
                for stream, head in self._verified.items():
                    self.log.set_verified(stream, head)
            except BaseException:
                self.rollback()
                raise
            self.commit()

    # ------------------------------------------------------------------ full text and closing

    def refresh_text(self) -> None:
        """Bring the full-text index up to date, in the open transaction."""
        if self.full_text:
            self.projection.refresh_text(self.log.head(GRAPH).seq)
        self._touched_text = False

    def text_is_current(self) -> bool:
        """Say whether the full-text index can answer."""
        return self.full_text and not self.projection.text_lags(self.log.head(GRAPH).seq)

    def catch_up_text(self) -> None:
        """Refresh the full-text index if that is needed and possible now."""
        if self.read_only or self._broken is not None or not self.full_text:
            return
        self.begin_read()
        try:
            current = self.text_is_current()
        finally:
            self.end_read()
        if current:
            return
        try:
            self.begin()
        except StoreError:
            return  # somebody else is writing: the query reads the nodes instead
        try:
            self.refresh_text()
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def settle_text(self) -> None:
        """Refresh the index at the end of the outermost unit that changed nodes."""
        if self._depth == 1 and self._touched_text:
            self.refresh_text()

    def close(self) -> None:
        """Close the file. Closing twice is harmless; a unit that is open is lost."""
        if self._pid != os.getpid() or self._closed:
            return
        with self._guard:
            try:
                if self._touched_text and self.full_text and self._broken is None and not self._depth:
                    self.begin()
                    try:
                        self.refresh_text()
                    except BaseException:
                        self.rollback()
                        raise
                    self.commit()
            except StoreError:
                pass  # the index catches up from the log, at the next text recall
            finally:
                self._closed = True
                self._db.close()
                if self._lock_file is not None:
                    self._lock_file.release()


class Unit:
    """Several verbs in one transaction. Leaving it commits; an exception or a failed verb
    keeps nothing.

    Raises:
        UnitFailed: On leaving, if a verb inside failed.
    """

    def __init__(self, store: Store, sync: bool) -> None:
        self._store, self._sync = store, sync

    def __enter__(self) -> Unit:
        self._store.begin(sync=self._sync)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        store = self._store
        failed = store.failed
        if kind is None and failed is None:
            try:
                store.settle_text()
            except BaseException:
                store.rollback()
                raise
            store.commit()
            return
        if kind is not None:
            store.fail(ErrorCode.CONFLICT, f"the unit was left by {kind.__name__}: {error}")
        store.rollback()
        if kind is None and failed is not None:
            raise UnitFailed(*failed)


def _create(path: str) -> None:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise ReadOnly(f"{path} cannot be made: {error.strerror}") from None
    os.close(handle)


def _create_schema(db: SqliteDatabase, path: str, fts: bool) -> bool:
    db.begin(sync=True)
    try:
        if not schema.inspect(db, path):  # another process may have been first
            schema.create(db, full_text=fts)
        db.commit()
    except BaseException:
        db.rollback()
        raise
    return True
