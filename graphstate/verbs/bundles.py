"""Bundles and branches: write a graph out, take one in, try something apart, bring it back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from graphstate._canonical import decode
from graphstate.errors import ErrorCode, IntegrityBroken
from graphstate.events import GENESIS, GRAPH, Draft, Head, Row
from graphstate.model import Exported, Merged, OnConflict
from graphstate.results import Fail, Ok, Result
from graphstate.store import MEMORY, Store
from graphstate.store.placing import placed, translated
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.verb import Verbs, answer, query, verb

if TYPE_CHECKING:
    from graphstate.bundle import Base, Fact

__all__ = ("Bundles", "Target")

#: What a bundle is written to: a path, or a binary file that is open.
Target: TypeAlias = str | os.PathLike[str] | BinaryIO


class Bundles(Verbs):
    """export, branch, merge."""

    __slots__ = ()

    @answer
    def export(self, file: Target, *, overwrite: bool = False) -> Result[Exported]:
        """Write the graph as a bundle: lines of JSON that `import_state` reads.

        The bundle shows one moment, and equal logs give equal bytes. A file appears whole, on
        the disk and readable by its owner only, or not at all. Streams of runs, snapshots and
        checkpoints stay here. A keyed graph has no bundles. Memory does not grow with the log; other threads wait.

        Args:
            file: A path, or a binary file that is open for writing.
            overwrite: Replace a file that exists.
        """
        if self.store.writing:
            refuse("a unit is open: what it wrote may never be committed", ErrorCode.CONFLICT)
        if self.store.keyed:
            refuse("the graph is keyed: whoever reads a bundle of it could not follow its chain without the key",
                   hint="branch it, or copy the file")  # fmt: skip
        if not isinstance(file, (str, os.PathLike)):
            return Ok(_write(self.store, file))
        path = os.fspath(file)
        with placed(path, overwrite=overwrite) as draft, translated(path), open(draft, "wb") as out:
            return Ok(_write(self.store, out))

    @answer
    def branch(self, file: str | os.PathLike[str]) -> Result[Verbs]:
        """Return an independent copy of the graph that knows where it left this one.

        Changes in either are not seen in the other; `merge` brings the branch's back. Streams
        of runs stay here. The cost is that of copying the file.

        Args:
            file: Where the branch shall be; nothing may be there. Or ``:memory:``.
        """
        if self.store.writing:
            refuse("a unit is open: what it wrote may never be committed", ErrorCode.CONFLICT)
        path = os.fspath(file)
        if path == MEMORY:
            return Ok(_forked(self, path))
        with placed(path) as draft:
            _forked(self, draft).store.close()
        return Ok(_reopened(self, path))

    @query
    def fork(self) -> str | None:
        """Return where this graph left the one it is a branch of, as ``seq:hash``; None if it is none."""
        fork = self.store.projection.fork()
        return None if fork is None else str(fork[0])

    def merge(
        self: Verbs, branch: Verbs, *, on_conflict: OnConflict = "fail", actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Merged]:  # fmt: skip
        """Bring back what a branch of this graph did since it left, and say what that was.

        Ids, times and actors stay. Cursors here stay where they are: a move made in the branch
        counts for what it teaches. A second merge takes only what is new since, so nothing is
        rewarded twice; neither is a call (``cause``) that was made on both sides. The trust of
        each event is the lowest of its own and the caller's.

        What both sides changed (a node, edge, zone, setting), what would close a cycle, is too
        large or locked is a conflict. The failure lists them in ``details``, and nothing was
        written.

        Args:
            branch: The open branch; it is not changed.
            on_conflict: "ours" leaves such events out, "theirs" lets what both changed become
                the branch's; a cycle, or something too large or locked, it still refuses.
        """
        problem = _strangers(self.store, branch)
        if problem is not None:
            return Fail(
                ErrorCode.CONFLICT, problem, {"hint": "merge takes an open branch of this very graph"}
            )
        return _Merge._merge(self, branch, on_conflict=on_conflict, actor=actor, cause=cause)

    merge.__dict__["verb"] = "changes"


class _Merge(Verbs):
    # Asking the branch who it is comes before the transaction here: neither store may wait for
    # the other while it holds its own lock.
    __slots__ = ()

    @verb
    def _merge(
        self, branch: Verbs, *, on_conflict: OnConflict, actor: str | None, cause: str | None
    ) -> Result[Merged]:
        # Most processes never merge, and a command waits for every import.
        from graphstate.verbs.intake import STRATEGIES, Merging, changes, lowest, refused

        arguments.choice(on_conflict, "on_conflict", STRATEGIES)
        by = self.actor if actor is None else arguments.identifier(actor, "actor")
        store, other = self.store, branch.store
        fork, origin, head = _kinship(other)
        done = store.projection.taken_over(origin) or Head(fork[1], bytes.fromhex(origin))
        mark = f"merge/{origin[:32]}"
        merging = Merging(
            store, mark=mark, actor=branch.actor, trust=lowest(self.trust, branch.trust),
            own=changes(store, after=fork[0].seq, but=mark), on_conflict=on_conflict,
        )  # fmt: skip
        count = store.adopt(merging.admitted(_rows_of(other, done, head)))
        if merging.conflict_count and on_conflict == "fail":
            raise refused(merging, "the branch")
        merged = Merged(
            merged=count, left_out=merging.left_out, origin=origin, from_seq=done.seq + 1, to_seq=head.seq,
            conflicts=tuple(merging.conflicts),
        )  # fmt: skip
        if count or merging.left_out:
            body = {
                "origin": origin, "from": done.seq + 1, "to": head.seq, "head": str(head), "merged": count,
                "leftOut": merging.left_out,
            }  # fmt: skip
            store.record([Draft("Merged", body)], actor=by, trust=merging.lowest, cause=cause)
        _keep_answers(store, other, merging.causes)
        return Ok(merged)


# ------------------------------------------------------------------------------------ export


def _write(store: Store, file: BinaryIO) -> Exported:
    from graphstate.bundle import MAX_EVENTS, VERSION, BundleWriter, Header

    base, head = store.base(named=True), store.log.head(GRAPH)
    origin = Head(0, GENESIS) if base is None else base.head
    events, rows = head.seq - origin.seq, sum(1 for _ in _base_rows(store, base))
    if max(events, rows) > MAX_EVENTS:
        refuse(
            f"the log has {events} events after a state of {rows} rows, a bundle holds {MAX_EVENTS} of each"
        )
    writer = BundleWriter(file)
    tables = () if base is None else base.tables
    writer.header(Header(VERSION, head, origin, _time_of(store, head), events, rows, tables))
    for table, text in _base_rows(store, base):
        writer.base_row(table, text)
    for row in _proved_rows(store, base, origin):
        writer.event(row)
    digest = writer.trailer(head, events)
    return Exported(head=str(head), events=events, base_rows=rows, bytes=writer.bytes, digest=digest)


def _base_rows(store: Store, base: Base | None) -> Iterator[tuple[str, str]]:
    if base is not None:
        for table in base.tables:
            for text in store.snapshots.rows(base.state, table):
                yield table, text


def _proved_rows(store: Store, base: Base | None, origin: Head) -> Iterator[Row]:
    """Yield the rows after the base as long as the chain holds: what is written can be read."""
    from graphstate.bundle import records

    end, proved = origin, base is None
    for row in store.log.read(GRAPH, after=origin.seq):
        if not store.follows(end, row):
            raise IntegrityBroken(f"event {end.seq + 1} of {store.path} does not have its hash")
        if base is not None and not proved:
            proved = records(row.type, decode(row.body), base.head.seq, base.digest)
        end = Head(row.seq, row.hash)
        yield row
    if not proved:
        raise IntegrityBroken(f"no event of {store.path} recorded the state that its log begins with")


def _time_of(store: Store, head: Head) -> int | None:
    # The time of the last event, not of the export: equal logs give equal bundles.
    row = next(store.log.read(GRAPH, after=head.seq - 1), None) if head.seq else None
    return row.at if row is not None else None


# ------------------------------------------------------------------------------------ branch


def _reopened(graph: Verbs, path: str) -> Verbs:
    return type(graph)(graph.store.sibling(path), actor=graph.actor, trust=graph.trust)


def _forked(graph: Verbs, path: str) -> Verbs:
    head = graph.store.log.head(GRAPH)
    child = _reopened(graph, path)
    try:
        child.store.become_copy(graph.store)
        child.store.begin(sync=True)
        try:
            child.record(Draft("Forked", {"seq": head.seq, "hash": head.hash.hex()}))
        except BaseException:
            child.store.rollback()
            raise
        child.store.commit()
    except BaseException:
        child.store.close()
        raise
    return child


# ------------------------------------------------------------------------------------ merge


def _strangers(store: Store, branch: object) -> str | None:
    """Return why something cannot be merged into a store, None if it is a branch of it."""
    if not isinstance(branch, Verbs):
        return f"a branch is an open graph, not {type(branch).__name__}"
    if branch.store is store:
        return "a graph cannot be merged into itself"
    branch.store.begin_read()
    try:
        fork = branch.store.projection.fork()
        own = None if fork is None else branch.store.log.hash_at(GRAPH, fork[1])
    finally:
        branch.store.end_read()
    if fork is None:
        return f"{branch.store.path} is no branch"
    if own is None:
        return f"{branch.store.path} was compacted, what it did since it left is gone"
    left, at = fork
    store.begin_read()
    try:
        here, after = store.log.hash_at(GRAPH, left.seq), store.log.hash_at(GRAPH, at)
        reaches = store.log.first(GRAPH) <= left.seq + 1
    finally:
        store.end_read()
    if after == own:
        return f"{store.path} was itself made from {branch.store.path}"
    if here is None and not reaches:
        return f"the log of {store.path} does not reach back to event {left.seq}, where the branch left it"
    if here != left.hash:
        return (
            f"{branch.store.path} left another graph, or one that was rolled back since (at event {left.seq})"
        )
    return None


def _kinship(branch: Store) -> tuple[tuple[Head, int], str, Head]:
    """Return where a branch left, the hash of the event that says so, and where it ends."""
    branch.begin_read()
    try:
        fork, head = branch.projection.fork(), branch.log.head(GRAPH)
        own = None if fork is None else branch.log.hash_at(GRAPH, fork[1])
    finally:
        branch.end_read()
    if fork is None or own is None:
        refuse(f"{branch.path} is no branch any more", ErrorCode.CONFLICT)
    return fork, own.hex(), head


def _rows_of(branch: Store, done: Head, head: Head) -> Iterator[Fact]:
    """Yield the events of a branch after some that were merged, proved by its chain."""
    branch.begin_read()
    try:
        kept = branch.log.hash_at(GRAPH, done.seq)
    finally:
        branch.end_read()
    if kept != done.hash:
        reason = "rolled back behind it" if kept is not None or head.seq < done.seq else "compacted past it"
        refuse(
            f"event {done.seq} of {branch.path} was merged, and then the branch was {reason}",
            ErrorCode.CONFLICT,
        )
    from graphstate.bundle import Fact

    end = done
    for row in branch.read(GRAPH, after=done.seq):
        if end.seq == head.seq:
            break
        if not branch.follows(end, row):
            refuse(
                f"event {end.seq + 1} of {branch.path} does not have its hash: verify the branch",
                ErrorCode.INTEGRITY_BROKEN,
            )
        end = Head(row.seq, row.hash)
        yield Fact(row, decode(row.body))
    if end != head:
        refuse(f"{branch.path} changed while it was merged", ErrorCode.CONFLICT)


def _keep_answers(store: Store, branch: Store, causes: Iterable[str]) -> None:
    """Let a call that the branch answered be answered here in the same way."""
    for cause in causes:
        branch.begin_read()
        try:
            first = branch.log.first_result(GRAPH, cause)
        finally:
            branch.end_read()
        if first is not None and store.log.first_result(GRAPH, cause) is None:
            store.log.set_first_result(GRAPH, cause, *first)
