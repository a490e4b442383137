"""The store: one file, its log, its projection, and the transactions that join them.

A verb runs between `begin` and `commit`, reads, decides, and hands drafts to `record`, which
writes the event and folds it in the same transaction. What is remembered of the file is
dropped whenever a transaction fails or another process wrote.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from graphstate._canonical import Json, encode
from graphstate.errors import (
    Busy,
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
from graphstate.events import GENESIS, GRAPH, ChainKey, Draft, Head, IdGen, Row, row_hash
from graphstate.model import Compaction, IntegrityReport, Recovery
from graphstate.store import rebuilding, recorded, schema
from graphstate.store.anchor import Anchor, Sink
from graphstate.store.db import Durability, StorageIo
from graphstate.store.feed import Feed
from graphstate.store.integrity import check_chains, head_problem, verify_state
from graphstate.store.lock import owner
from graphstate.store.log import TORN, Log
from graphstate.store.opening import MEMORY, LockMode, Opened, open_database
from graphstate.store.projection import Projection
from graphstate.store.readings import checked_clock, checked_random
from graphstate.store.snapshot import Snapshots, Taken
from graphstate.store.survey import Flaw, Survey
from graphstate.store.unit import Unit

if TYPE_CHECKING:
    from graphstate.bundle import Base

__all__ = ("MAX_EVENT_BYTES", "Adopted", "Store")

#: UTF-8 bytes of one event's body.
MAX_EVENT_BYTES = 1_048_576

# Adopted rows are written when there are so many, or so many bytes of them.
_BATCH, _BATCH_BYTES = 500, 4 * MAX_EVENT_BYTES

# Rows read at once while others may write in between.
_PAGE = 500

_BROKEN = "SELECT value FROM meta WHERE key = 'broken'"
_MARK_BROKEN = "INSERT OR REPLACE INTO meta VALUES ('broken', ?)"
_UNMARK_BROKEN = "DELETE FROM meta WHERE key = 'broken'"
_CHANGE_NOTHING = "UPDATE state SET value = value WHERE key = 'head'"


class Adopted(NamedTuple):
    """An event that was made elsewhere and keeps its id, time and actor here."""

    at: int
    id: str
    type: str
    actor: str | None
    trust: str | None
    cause: str | None
    body: dict[str, Json]


def _system_rand() -> Callable[[], float]:
    from random import random

    return random


def _event_bytes(body: dict[str, Json]) -> bytes:
    data = encode(body)
    if len(data) > MAX_EVENT_BYTES:
        raise VerbFailed(
            ErrorCode.PAYLOAD_TOO_LARGE,
            f"an event of {len(data)} bytes, more than the {MAX_EVENT_BYTES} allowed",
        )
    return data


# Asked anew after a fork only: asking the system costs as much as a part of a suggestion.
_process = os.getpid()


def _forked() -> None:
    global _process
    _process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _system_now() -> int:
    return time.time_ns() // 1_000_000


class Store:
    """One open file (or ``:memory:``). Any thread may use it; one lock keeps them apart."""

    def __init__(
        self, path: str, opened: Opened, *, now: Callable[[], int], rand: Callable[[], float],
        ids: IdGen | None, key: ChainKey | None = None,
    ) -> None:  # fmt: skip
        db = opened.db
        self.path, self.read_only, self.durability = path, opened.read_only, opened.durability
        self.full_text = opened.full_text
        self.now, self.rand = now, rand
        self.ids = ids or IdGen(now, rand)
        self.log, self.projection, self.snapshots = Log(db, key), Projection(db), Snapshots(db)
        #: what opening had to repair
        self.recovery = Recovery()
        self._db, self._lock_file, self._key = db, opened.lock, key
        self._survey = Survey(db)
        self._guard = threading.RLock()
        self._pid = _process
        self._on_disk = path != MEMORY
        self._closed = False
        self._broken: str | None = None
        self._depth = self._reading = 0
        self._failure: tuple[ErrorCode, str] | None = None
        #: The open transaction survives power loss by itself; something in it asked for that.
        self._synced = self._harden = False
        self._snapshot_due = 0
        self._touched_text = False
        #: who is told of committed events
        self.feed = Feed()
        #: The open transaction changes the graph's log.
        self._news = False
        self._cause: str | None = None
        self._anchor: Anchor | None = None

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
        key: bytes | None = None,
        expect_head: Head | None = None,
        anchor: Sink | None = None,
        anchor_every: int = 1_000,
    ) -> Store:
        """Open a file, making it if it does not exist (mode 0600).

        A file whose projection is current is not replayed: the cost does not depend on the
        length of the log.

        Raises:
            ForeignDatabase, UnsupportedVersion: The file is not ours or of another version.
            WrongKey: It is keyed otherwise.
            IntegrityBroken: It is damaged. Open it with ``read_only`` to look at it.
            LockHeld: An exclusive writer owns it.
            Busy, ReadOnly, StorageFull: It cannot be used now.
        """
        if anchor_every < 1:
            raise ValueError(f"anchor_every must be at least 1, not {anchor_every}")
        name, secret = os.fspath(path), None if key is None else ChainKey(key)
        opened = open_database(
            name, durability=durability, lock=lock, read_only=read_only,
            busy_timeout_ms=busy_timeout_ms, fts=fts, key=secret,
        )  # fmt: skip
        clock = checked_clock(now) if now else _system_now
        chance = checked_random(rand) if rand else _system_rand()
        store = cls(name, opened, now=clock, rand=chance, ids=ids, key=secret)
        try:
            store._recover()
            store._compare(expect_head)
            if anchor is not None:
                store._anchor = Anchor(anchor, anchor_every, store.head())
        except BaseException:
            store.close()
            raise
        return store

    def _compare(self, expected: Head | None) -> None:
        """Compare the log with a head kept elsewhere, and its end with the key."""
        self.begin_read()
        try:
            self._db.log_displaced()  # remembers which file it is
            head = self.log.head(GRAPH)
            problem = None if expected is None else head_problem(self.log, expected)
            keyed = self._key is not None and not self.read_only and head.seq > self.log.start(GRAPH).seq
            if keyed and not self.log.row_holds(GRAPH, head.seq):
                problem = f"event {head.seq} was not written with the key"
        finally:
            self.end_read()
        if problem is not None:
            raise IntegrityBroken(f"{self.path} is not what it was: {problem}")

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
            self._clear_mark()
            return
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
            self.log.abandon(GRAPH, walk.head, at=self.now(), actor=None, trust=None, reason=TORN)
        replayed = rebuilding.replay(self.log, self.projection, after=applied.seq, upto=walk.head)
        self.recovery = Recovery(trimmed=trimmed, last_good_seq=walk.head.seq, replayed=replayed)

    def _clear_mark(self) -> None:
        """Take a file back that was found damaged, if its truth is whole: the rest is made again."""
        report, _ = check_chains(self.log, self.projection.applied(), deep=True)
        problem = report.detail or schema.structure_problem(self._db)
        if problem is not None:
            place = "" if report.ok else f" at event {report.first_break_seq} of stream {report.stream!r}"
            raise IntegrityBroken(
                f"{self.path} is damaged{place} ({problem}); nothing was deleted, and the graph is good "
                f"up to event {report.verified_seq if report.stream in (None, GRAPH) else 'its head'}"
            )
        differing, unknown, bad = recorded.damage(self.log, self.snapshots)
        self.snapshots.drop(bad)
        for name in unknown:
            self.snapshots.unmark(name)
        for name, pin in differing.items():
            self.snapshots.mark(name, pin.head, pin.snapshot, self.now())
        self.recovery = self.rebuild(self.log.head(GRAPH))
        self._db.run(_UNMARK_BROKEN)

    # ------------------------------------------------------------------ transactions

    def _enter(self) -> None:
        """Take the lock, if the store may be used at all."""
        # Before the lock: in a fork another thread of the parent may have held it for ever.
        if self._pid != _process:
            raise ForkedStore(f"{self.path} was opened by process {self._pid}: open it again after a fork")
        self._guard.acquire()
        if self._closed:
            self._guard.release()
            raise ClosedStore(f"{self.path} was closed")
        if self._on_disk and self._db.displaced():
            self._guard.release()
            raise IntegrityBroken(f"{self.path} was replaced, moved or deleted while it was open")

    def _forget(self) -> None:
        self.log.forget()
        self.projection.forget()
        self._snapshot_due = 0

    def begin(self, *, sync: bool = False, though_broken: bool = False) -> None:
        """Enter a writing transaction, or the one that is open.

        Raises:
            ReadOnly, IntegrityBroken: The store takes no writes.
            Busy: Another process did not let go in time.
        """
        self._enter()
        try:
            if self.read_only:
                raise ReadOnly(f"{self.path} was opened read-only")
            if self._broken is not None and not though_broken:
                raise IntegrityBroken(self._broken)
            if self._depth == 0:
                self._synced = sync
                # Once a sync: asking the file system costs as much as a small part of a verb.
                if (sync or self.durability == "power") and self._db.log_displaced():
                    raise IntegrityBroken(f"{self.path}-wal was replaced, moved or deleted while it was open")
                if self._db.begin(sync=sync):
                    self._forget()
                    if self._lock_file is None and (pid := owner(self.path)) is not None:
                        self._db.rollback()
                        raise LockHeld(f"{self.path} is owned by process {pid} ({self.path}.lock)")
            elif sync and not self._synced:
                self._harden = True
            self._depth += 1
        except BaseException:
            self._guard.release()
            raise

    def commit(self) -> None:
        """Leave the transaction; the outermost one commits, and subscribers are told."""
        news = False
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
            if self._depth == 0:
                news = self._news and self._reading == 0
                self._news = self._news and not news
                if self._harden:
                    self._harden = False
                    self._flush_disk()
                if self._anchor is not None:
                    self._anchor.offer(self.log.head(GRAPH))
        finally:
            self._guard.release()
        if news and self.feed.wanted:
            self.feed.tell_after_commit()

    def tell_head(self) -> None:
        """Let the anchor know the head after this commit."""
        if self._anchor is not None:
            self._anchor.due = True

    def _flush_disk(self) -> None:
        # A synced commit flushes the whole write-ahead log, so one that changes nothing is enough.
        if self._db.begin(sync=True):
            self._forget()
        try:
            self._db.run(_CHANGE_NOTHING)
            self._db.commit()
        except BaseException:
            self._undo()
            raise

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
        self._harden = self._news = False
        self._failure = None
        # A verb that refused before it wrote has changed nothing that is remembered.
        stale = self._closed or self._db.wrote() or self.projection.is_ahead()
        try:
            self._db.rollback()
        except BaseException:
            stale = True
            raise
        finally:
            if stale:
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
        if cause is None and self._cause is not None:
            cause, self._cause = self._cause, None
        for draft in drafts:
            seq += 1
            body = _event_bytes(draft.body)
            at = self.now()
            row_id = self.ids.next("E")
            previous = row_hash(
                previous, GRAPH, seq, at, row_id, draft.type, actor, trust, cause, body, key=self._key
            )
            rows.append(Row(seq, at, row_id, draft.type, actor, trust, cause, body, previous))
            cause = None
        head, projection = self.log.extend(GRAPH, rows), self.projection
        for row, draft in zip(rows, drafts, strict=True):
            projection.apply(row, draft.body)
            if row.type == "NodeUpserted":
                self._touched_text = True
        projection.set_applied(head)
        self._news = True
        return rows

    def because(self, cause: str | None) -> None:
        """Let the next event have a cause, although the verb that records it was given none."""
        self._cause = cause

    def adopt(self, facts: Iterable[Adopted]) -> int:
        """Append events made elsewhere to the graph's stream, fold them, and return how many.

        Each is folded before the next one is asked for, so whoever yields them can check them
        against the graph as it then is. Memory does not grow with their number.

        Raises:
            VerbFailed: PayloadTooLarge for an event of more than 1 MiB.
        """
        seq, previous = self.log.head(GRAPH)
        rows: list[Row] = []
        count = size = 0
        for fact in facts:
            seq, count = seq + 1, count + 1
            body = _event_bytes(fact.body)
            columns = (fact.at, fact.id, fact.type, fact.actor, fact.trust, fact.cause, body)
            previous = row_hash(previous, GRAPH, seq, *columns, key=self._key)
            rows.append(Row(seq, *columns, previous))
            self.projection.apply(rows[-1], fact.body)
            size += len(body)
            if len(rows) == _BATCH or size > _BATCH_BYTES:
                self.log.extend(GRAPH, rows)
                rows, size = [], 0
        self.projection.set_applied(self.log.extend(GRAPH, rows))
        self._touched_text = self._touched_text or count > 0
        self._news = self._news or count > 0
        return count

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
            UnitFailed: The open unit has failed already.
        """
        if stream == GRAPH:
            raise ValueError("the stream 'graph' is written by verbs only")
        self.begin(sync=sync)
        try:
            if self._failure is not None:
                raise UnitFailed(*self._failure)
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
                page = list(islice(self.log.read(stream, after=after), _PAGE))
            finally:
                self.end_read()
            yield from page
            if len(page) < _PAGE:
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
        taken = self.snapshots.take(name, head, self.now())
        body = {"snapshotId": name, "seq": head.seq, "digest": taken.digest.hex()}
        self.record([Draft("SnapshotTaken", body)], actor=actor, trust=trust, cause=cause)
        self.projection.set_mark("snapshot", head.seq)
        self._snapshot_due = 0
        return taken

    def rebuild(self, upto: Head) -> Recovery:
        """Make the projection of an event again: newest good snapshot before it, then the rest.

        Raises:
            IntegrityBroken: It cannot be reached any more.
        """
        made = rebuilding.rebuild(self.log, self.projection, self.snapshots, upto)
        self.projection.set_mark("text", -1)
        return made

    def cut(self, to: Head, *, actor: str | None, trust: str | None, reason: str) -> int:
        """Return to an earlier event; later ones are set aside with who and why.

        If the record of a compaction is among them, a new one follows: the head is then one
        event further than ``to``.

        Raises:
            IntegrityBroken: The state of that event cannot be made any more.
        """
        log, start, record = self.log, self.log.start(GRAPH), self.log.start_record(GRAPH)
        count = log.head(GRAPH).seq - max(to.seq, start.seq)
        named = recorded.checkpoints(log, upto=to.seq)
        made = self.rebuild(to)
        no = log.abandon(GRAPH, to, at=self.now(), actor=actor, trust=trust, reason=reason)
        self.snapshots.drop_after(to.seq)
        # A name that had moved on since then returns to where it stood.
        for name, pin in recorded.missing(named, self.snapshots).items():
            self.snapshots.mark(name, pin.head, pin.snapshot, self.now())
        self.projection.set_mark("cut", no)
        newest = self.snapshots.before(to.seq)
        self.projection.set_mark("snapshot", newest[0].head.seq if newest else 0)
        if record > to.seq:
            start = min(start, to)
            log.set_start(GRAPH, start, record=0)
            base = next((taken for taken in newest if taken.id == made.snapshot_id), None)
            self._record_start(start, 0, base, actor=actor, trust=trust)
            self.snapshots.drop_before(start.seq)  # no event names them any more
        self._snapshot_due = 0
        self._news = True
        return count

    # ------------------------------------------------------------------ the whole graph

    def survey(self) -> Survey:
        """Return what answers questions about the whole live graph, of this moment."""
        self.projection.flush()
        return self._survey

    def flaws(self) -> list[Flaw]:
        """Return what cannot be right in the tables. Repeated without a change it costs the cursors."""
        return self.survey().flaws((self.projection.shape, self.projection.policies.shape))

    def broken(self) -> str | None:
        """Return why no write is taken any more, None if nothing is known to be damaged."""
        row = None if self._broken else self._db.one(_BROKEN)
        return self._broken if row is None else str(row[0])

    def _record_start(
        self, start: Head, count: int, base: Taken | None, *, actor: str | None, trust: str | None
    ) -> None:
        body = recorded.compaction_body(start, count, base, self.snapshots)
        (row,) = self.record([Draft("Compacted", body)], actor=actor, trust=trust)
        self.log.set_start(GRAPH, start, record=row.seq)

    def compact(self, retain: int, *, actor: str | None, trust: str | None, cause: str | None) -> Compaction:
        """Remove all but the newest events of the graph, after a snapshot and full verification.

        Raises:
            IntegrityBroken: Chain, snapshots or projection do not hold; nothing was removed.
        """
        log, start, head = self.log, self.log.start(GRAPH), self.log.head(GRAPH)
        last = head.seq - retain
        if last <= start.seq:
            return Compaction(pruned=0, seq=start.seq)
        self.projection.flush()
        report, _ = check_chains(log, self.projection.applied(), deep=True, streams=[GRAPH])
        if report.ok:
            report = verify_state(self._db, log, self.snapshots, report)
        if not report.ok:
            raise IntegrityBroken(f"nothing was removed, because the log does not hold: {report.detail}")
        new = Head(last, log.hash_at(GRAPH, last) or GENESIS)
        text = self.projection.mark("text")
        taken = self.snapshot(actor=actor, trust=trust, cause=cause)
        count = log.prune(GRAPH, new)
        self._record_start(new, count, taken, actor=actor, trust=trust)
        self.snapshots.drop_before(new.seq)
        self.projection.set_mark("text", text if text >= new.seq else -1)
        self.projection.flush()
        report, _ = check_chains(log, self.projection.applied(), deep=True, streams=[GRAPH])
        if not report.ok:
            raise IntegrityBroken(f"nothing was removed, because the rest would not hold: {report.detail}")
        log.set_verified(GRAPH, log.head(GRAPH))
        return Compaction(pruned=count, seq=new.seq, snapshot_id=taken.id)

    # ------------------------------------------------------------------ copies

    @property
    def writing(self) -> bool:
        """Say whether a unit is open: what is read now may never be committed."""
        return self._depth > 0

    def sibling(self, path: str) -> Store:
        """Open another file with the clock, the randomness and the durability of this one."""
        level: Durability = "power" if self.durability == "power" else "process"
        return Store.open(path, now=self.now, rand=self.rand, durability=level, key=self._key)

    def follows(self, before: Head, row: Row) -> bool:
        """Say whether a row of the graph's stream continues the chain after another one."""
        digest = row_hash(before.hash, GRAPH, *row[:8], key=self._key)
        return row.seq == before.seq + 1 and digest == row.hash

    @property
    def keyed(self) -> bool:
        """Say whether the graph's chain can be followed with its key only."""
        return self._key is not None

    def base(self, *, named: bool = False) -> Base | None:
        """Return the earliest state that leads with the rows after it to the head.

        None if the log begins with event 1: then the rows alone do.

        Args:
            named: It must be one that a row after it names, so that it can be proved elsewhere.

        Raises:
            VerbFailed: Conflict if there is no such row, since a rollback set it aside.
            IntegrityBroken: The log begins later, and no snapshot is there to begin with.
        """
        before = self.log.first(GRAPH) - 1
        if before <= 0:
            return None
        from graphstate.bundle import Base

        kept = [
            taken for taken in self.snapshots.before(self.log.head(GRAPH).seq) if taken.head.seq >= before
        ]
        # Of a checkpoint that was returned to, the row that names it was set aside.
        usable = [taken for taken in kept if not named or recorded.snapshot_is_named(self.log, taken)]
        if kept and not usable:
            message = f"since a rollback no event of {self.path} names a state that the others follow"
            raise VerbFailed(ErrorCode.CONFLICT, message, {"hint": "call snapshot, then export"})
        for taken in reversed(usable):
            state = self.snapshots.read(taken.id)
            if state is not None:
                digest = hashlib.sha256(state.encode()).hexdigest()
                return Base(taken.head, state, digest, self.snapshots.tables(state))
        raise IntegrityBroken(f"{self.path} begins at event {before + 1} without the state before it")

    def become_copy(self, source: Store) -> None:
        """Replace everything here by the graph of another store, as it is at one moment.

        Streams of runs are left out. The cost is that of copying the file.
        """
        source.begin_read()
        try:
            self._db.copy_from(source._db)
        finally:
            source.end_read()
        self._forget()
        self.full_text = source.full_text
        self.begin(sync=True)
        try:
            self.log.keep_only(GRAPH)
        except BaseException:
            self.rollback()
            raise
        self.commit()

    # ------------------------------------------------------------------ integrity

    def verify(self, *, deep: bool = False, expect_head: Head | None = None) -> IntegrityReport:
        """Check the chains from where they were last verified, or with ``deep`` everything.

        A break makes the store refuse writes from then on, here and after reopening. That an
        expected head is not there does not: who expects it may be wrong.
        """
        self.begin_read()
        try:
            report, moved = check_chains(self.log, self.projection.applied(), deep=deep)
            if report.ok and deep:
                report = verify_state(self._db, self.log, self.snapshots, report)
            problem = None if expect_head is None else head_problem(self.log, expect_head)
        finally:
            self.end_read()
        if not self.read_only and self._broken is None and (moved or not report.ok):
            self._note(report, moved)
        if report.ok and problem is not None and expect_head is not None:
            return structs.replace(
                report, ok=False, stream=GRAPH, first_break_seq=expect_head.seq, detail=problem
            )
        return report

    def _note(self, report: IntegrityReport, moved: Mapping[str, Head]) -> None:
        place = "" if report.first_break_seq is None else f" at event {report.first_break_seq}"
        said = f"{self.path} is damaged{place} of stream {report.stream!r}: {report.detail}"
        if not report.ok:
            self._broken = said
        try:
            self.begin(though_broken=True)
        except Busy:
            return  # what was found stands; only the file does not say so yet
        try:
            if report.ok:
                for stream, head in moved.items():
                    self.log.set_verified(stream, head)
            else:
                self._db.run(_MARK_BROKEN, (said,))
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
        if self._pid != _process or self._closed:
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
                if self._anchor is not None and not self._depth:
                    self._anchor.due = True
                    self._anchor.offer(self.head())
            except StoreError:
                pass  # the index catches up from the log, at the next text recall
            finally:
                self._closed = True
                self._db.close()
                if self._lock_file is not None:
                    self._lock_file.release()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._on_disk and self._pid == _process:
            warnings.warn(f"{self.path} was not closed; nothing is lost", ResourceWarning, 2, self)
