"""Importing: one bundle on its way into a graph, in one transaction.

An empty graph becomes what the bundle's origin was. One that holds something gets what is new,
as far as it does not contradict what is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import BinaryIO, TypeAlias

from graphstate.bundle import Bundle, Fact, refuse_bundle
from graphstate.errors import ErrorCode, VerbFailed
from graphstate.events import GENESIS, GRAPH, Draft, Head
from graphstate.model import Imported, OnConflict
from graphstate.store.store import Adopted
from graphstate.verbs import arguments
from graphstate.verbs.admission import LOCKS, admit
from graphstate.verbs.arguments import refuse
from graphstate.verbs.intake import STRATEGIES, Intake, Merging, changes, refused
from graphstate.verbs.restoring import STATE_LEFT_OUT, Order
from graphstate.verbs.verb import Verbs

__all__ = ("Source", "readable", "take_in")

#: What a bundle is read from: a path, or a binary file that is open.
Source: TypeAlias = str | os.PathLike[str] | BinaryIO

#: Who takes over what a bundle holds, and how far that is trusted.
IMPORT = "import"

#: State of this file that means nothing in another one.
_OWN_STATE = "origin/fork"


def take_in(
    graph: Verbs, file: BinaryIO, *, merge: bool, on_conflict: OnConflict, expect_head: str | None
) -> Imported:
    """Take a bundle over, in one transaction that survives power loss.

    Raises:
        VerbFailed: InvalidBundle, or what a verb would answer to the event at fault; Conflict.
    """
    arguments.choice(on_conflict, "on_conflict", STRATEGIES)
    store = graph.store
    store.begin(sync=True)
    try:
        report = _Import(graph, Bundle(file), merge, on_conflict, expect_head).run()
        store.snapshot_if_due(actor=IMPORT, trust=IMPORT)
    except BaseException as error:
        store.fail(getattr(error, "code", ErrorCode.CONFLICT), str(error))
        store.rollback()
        raise
    store.commit()
    return report


@contextmanager
def readable(source: Source) -> Iterator[BinaryIO]:
    """Open a bundle for reading, if it is not open already.

    Raises:
        VerbFailed: InvalidBundle if there is no such file or it cannot be read.
    """
    if not isinstance(source, (str, os.PathLike)):
        yield source
        return
    try:
        file = open(source, "rb")  # noqa: SIM115 - closed below, where only opening is translated
    except (OSError, ValueError) as error:
        refuse_bundle(f"{os.fspath(source)} cannot be read: {getattr(error, 'strerror', None) or error}")
    with file:
        yield file


class _Import:
    """One bundle on its way into a graph."""

    def __init__(
        self, graph: Verbs, bundle: Bundle, merge: bool, on_conflict: OnConflict, expect_head: str | None
    ) -> None:
        self._graph, self._store, self._bundle = graph, graph.store, bundle
        self._on_conflict, self._pinned = on_conflict, expect_head is not None
        head = str(bundle.header.head)
        if expect_head is not None and (expect_head != head or bundle.header.version == 1):
            shown = head if bundle.header.version > 1 else "unknown, because version 1 does not tell"
            refuse(f"the bundle's head is {shown}, not the expected {expect_head!r:.90}", ErrorCode.CONFLICT)
        self._merging = self._store.log.head(GRAPH).seq > 0
        if self._merging and not merge:
            refuse(
                f"{self._store.path} is not empty: it holds {self._store.log.head(GRAPH).seq} events",
                ErrorCode.CONFLICT,
                hint="name a file that does not exist, or merge=True",
            )
        if self._merging and bundle.header.tables:
            refuse(
                "a bundle of a compacted log begins with a state and can only be imported into an empty graph",
                ErrorCode.CONFLICT,
                hint="import it into a new file",
            )
        self.origin = bundle.digest
        self._done = Head(0, GENESIS)
        self._intake: Intake | None = None

    def run(self) -> Imported:
        try:
            count = self._store.adopt(chain(self._restored(), self._admitted()))
        except VerbFailed as error:
            if "line" in error.details:
                raise
            number = self._bundle.number
            message = f"line {number} of the bundle: {error.message}"
            raise VerbFailed(error.code, message, {"line": number} | error.details) from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # Keys that no check knows are for other versions; a value there that cannot be folded.
            refuse_bundle(f"cannot be folded: {type(error).__name__}: {error}", line=self._bundle.number)
        return self._report(count)

    def _report(self, count: int) -> Imported:
        intake, header, bundle = self._intake, self._bundle.header, self._bundle
        merging = intake if isinstance(intake, Merging) else None
        if merging is not None and merging.conflict_count and self._on_conflict == "fail":
            raise refused(merging, "the bundle")
        left_out = 0 if intake is None else intake.left_out
        if count or left_out:
            body = {
                "origin": self.origin, "from": self._done.seq + 1, "to": header.head.seq,
                "head": str(header.head), "digest": bundle.digest, "version": header.version,
                "imported": count, "leftOut": left_out, "pinned": self._pinned,
            }  # fmt: skip
            self._store.record([Draft("Imported", body)], actor=IMPORT, trust=IMPORT)
        return Imported(
            imported=count, left_out=left_out, origin=self.origin, head=str(header.head), digest=bundle.digest,
            version=header.version, pinned=self._pinned,
            conflicts=() if merging is None else tuple(merging.conflicts),
        )  # fmt: skip

    def _restored(self) -> Iterator[Adopted]:
        """Yield the rows of the base as events that put them where they were."""
        header, store = self._bundle.header, self._store
        if header.tables:
            self.origin = header.origin.hash.hex()
        order = Order()
        for number, (table, row) in enumerate(self._bundle.base_rows(), 1):
            if table in STATE_LEFT_OUT or (table == "state" and row[:1] == [_OWN_STATE]):
                continue
            body = {"table": table, "row": row, "id": row[1] if table == "node" and len(row) > 1 else None}
            admit(store, "StateRestored", IMPORT, body)
            order.check(table, row)
            at, cause = header.at or 0, f"import/{self.origin[:32]}/base-{number}"
            yield Adopted(at, store.ids.next("E"), "StateRestored", IMPORT, IMPORT, cause, body)

    def _admitted(self) -> Iterator[Adopted]:
        facts = self._bundle.facts()
        first = next(facts, None)
        if first is None:
            return
        if not self.origin:
            self.origin = first.row.hash.hex()
        self._intake = intake = self._prepared()
        yield from intake.admitted(self._new(chain((first,), facts)))

    def _prepared(self) -> Intake:
        mark = f"import/{self.origin[:32]}"
        if not self._merging:
            order = None if self._bundle.header.tables else Order()
            return Intake(self._store, mark=mark, actor=self._graph.actor, trust=IMPORT, order=order)
        self._done = self._store.projection.taken_over(self.origin) or self._done
        own = changes(self._store, after=0, but=mark)
        return _Foreign(
            self._store, mark=mark, actor=self._graph.actor, trust=IMPORT, own=own,
            on_conflict=self._on_conflict,
        )  # fmt: skip

    def _new(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """Yield the events that were not taken over before."""
        seq, digest = self._done
        for fact in facts:
            if fact.row.seq == seq and fact.row.hash != digest:
                refuse(f"event {seq} is not the one that was imported before", ErrorCode.CONFLICT)
            if fact.row.seq > seq:
                yield fact


class _Foreign(Merging):
    """Events of a bundle on their way into a graph that is not empty."""

    def _kept(self, fact: Fact) -> Adopted | None:
        return None if fact.row.type in LOCKS else super()._kept(fact)
