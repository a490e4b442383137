"""Durability: snapshots, checkpoints, return to them, compaction, settings, proof of the log."""

from __future__ import annotations

from typing import Any

from graphstate._canonical import Json
from graphstate.errors import ErrorCode
from graphstate.events import GRAPH, Draft
from graphstate.model import (
    Checkpoint,
    Compaction,
    Cut,
    IntegrityReport,
    Recovery,
    Rollback,
    Snapshot,
)
from graphstate.results import Fail, Ok, Result
from graphstate.store import recorded
from graphstate.tunables import refusal
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.fsm import settle_attempts
from graphstate.verbs.locks import Held
from graphstate.verbs.verb import Verbs, query, synced_verb, verb

__all__ = ("Durability",)


class Durability(Verbs):
    """snapshot, checkpoint, rollback, compaction, tunables, verification."""

    __slots__ = ()

    @verb
    def snapshot(self, *, actor: str | None = None, cause: str | None = None) -> Result[Snapshot]:
        """Keep the live state, for rebuilding from here, and return its place and digest.

        The file keeps the two newest snapshots and those of checkpoints. About 1 us a row.
        """
        taken = self.store.snapshot(actor=actor or self.actor, trust=self.trust, cause=cause)
        return Ok(Snapshot(id=taken.id, seq=taken.head.seq, digest=taken.digest.hex()))

    @synced_verb
    def checkpoint(
        self, name: str, *, actor: str | None = None, cause: str | None = None
    ) -> Result[Checkpoint]:
        """Name the present state and return its place in the log. Survives power loss.

        A name that exists moves here.
        """
        name = arguments.identifier(name, "checkpoint name")
        by = actor or self.actor
        settle_attempts(self)
        taken = self.store.snapshot(actor=by, trust=self.trust, cause=cause)
        body = {"name": name, "seq": taken.head.seq, "snapshotId": taken.id}
        self.record(Draft("CheckpointCreated", body), actor=by)
        self.store.snapshots.mark(name, taken.head, taken.id, self.store.now())
        self.store.tell_head()
        return Ok(Checkpoint(name=name, seq=taken.head.seq))

    @query
    def list_checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints in the order of the log."""
        pins = self.store.snapshots.checkpoints()
        return [Checkpoint(name=name, seq=pin.head.seq) for name, pin in pins.items()]

    @synced_verb
    def rollback(
        self, name: str, *, reason: str = "", actor: str | None = None, cause: str | None = None
    ) -> Result[Rollback]:
        """Return to a checkpoint: nodes, edges, cursors, statistics and tunables as they were.

        The later events of the graph are set aside with actor and reason, not deleted
        (table ``event_abandoned``), and so are their causes: a call repeated with one of
        them is carried out again. Streams of runs are never rolled back. A checkpoint whose
        events were compacted is reached through its snapshot.

        Refused with Locked, to everybody, if something was locked, or changed while locked,
        after the checkpoint; and to models, tools and imports if it would carry a cursor over
        the boundary of a locked zone.
        """
        log = self.store.log
        pin = self.store.snapshots.checkpoints().get(arguments.identifier(name, "checkpoint name"))
        if pin is None:
            refuse(f"there is no checkpoint {name!r}", ErrorCode.CHECKPOINT_NOT_FOUND)
        head = pin.head
        stands = log.hash_at(GRAPH, head.seq) == head.hash
        if not stands and (head.seq > log.start(GRAPH).seq or recorded.checkpoints(log).get(name) != pin):
            refuse(
                f"checkpoint {name!r} stands on event {head.seq}, which is another one now",
                ErrorCode.INTEGRITY_BROKEN,
            )
        text = arguments.text(reason, "reason", arguments.MAX_REASON) or f"rollback to {name}"
        held = Held(self.store.projection)
        count = self.store.cut(head, actor=actor or self.actor, trust=self.trust, reason=text)
        held.refuse_loss(trust=self.trust)
        self.store.tell_head()
        return Ok(Rollback(seq=head.seq, abandoned=count))

    @synced_verb
    def compact(
        self, *, retain: int | None = None, actor: str | None = None, cause: str | None = None
    ) -> Result[Compaction]:
        """Remove the oldest events of the graph for good, and return how many.

        Everything is verified first and the rest again afterwards, in the same transaction; a
        snapshot of the present state is what a replay begins with from now on. An event
        `Compacted` holds the number and hash of the last event removed, the snapshot's digest,
        and the checkpoints, which stay. Streams of runs are never compacted. The file does not
        shrink: freed pages are used again. About 20 us an event, and others wait.

        Args:
            retain: How many of the present events stay; the tunable ``retain`` if absent.
        """
        if retain is None:
            retain = self.store.projection.tunables()["retain"]
        keep = arguments.whole(retain, "retain", least=0, most=2**53)
        done = self.store.compact(keep, actor=actor or self.actor, trust=self.trust, cause=cause)
        self.store.tell_head()
        return Ok(done)

    @verb
    def rebuild(self, *, actor: str | None = None, cause: str | None = None) -> Result[Recovery]:
        """Make nodes, edges, cursors, statistics and tunables again from the log.

        The newest good snapshot is loaded and the events after it are folded. A damaged one is
        passed over for an older one, and at last everything is replayed.
        """
        return Ok(self.store.rebuild(self.store.log.head(GRAPH)))

    @query
    def cuts(self) -> list[Cut]:
        """Return what rollbacks and recoveries set aside, oldest first. Nothing of it is deleted."""
        return [
            Cut(
                no=cut.no, stream=cut.stream, at=cut.at, actor=cut.actor, trust=cut.trust, reason=cut.reason,
                left=str(cut.old), returned_to=str(cut.to), rows=cut.kept,
            )
            for cut in self.store.log.cuts()
        ]  # fmt: skip

    @verb
    def set_tunable(
        self,
        key: str,
        value: Json,
        *,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[dict[str, Any]]:
        """Store a setting in the file and return all of them."""
        problem = refusal(key, value)
        if problem is not None:
            return Fail(ErrorCode.INVALID_CONFIG, problem)
        body = arguments.with_reason({"key": key, "value": value}, reason)
        self.record(Draft("ConfigSet", body), actor=actor, cause=cause)
        return Ok(_settings(self))

    @query
    def get_tunables(self) -> dict[str, Any]:
        """Return all settings, stored ones over defaults."""
        return _settings(self)

    def verify_integrity(
        self: Verbs, *, deep: bool = False, expect_head: str | None = None
    ) -> IntegrityReport:
        """Check the hash chains and return what was found.

        Starts where the last check ended. With ``deep`` everything is checked from the start:
        every stream, the snapshots, SQLite's own structure, and the projection against a
        replay. After a break the store refuses writes; nothing is deleted.

        The chain shows changed, inserted, removed and swapped events. It does not show that
        the newest events were cut off together with the projection; without a key it does not
        show that a whole history was replaced by another valid one. A head kept elsewhere
        shows both.

        Args:
            expect_head: What `head` or an anchor once said. The report is not ok if that event
                is absent or another one; the store goes on taking writes.

        Raises:
            VerbFailed: InvalidInput if ``expect_head`` is no head.
        """
        expected = None if expect_head is None else arguments.head(expect_head, "expect_head")
        return self.store.verify(deep=deep, expect_head=expected)

    verify_integrity.__dict__["verb"] = "reads"


def _settings(graph: Verbs) -> dict[str, Any]:
    from copy import deepcopy  # most processes ask for no settings

    # Some are objects, which the caller may change.
    return deepcopy(dict(graph.store.projection.tunables()))
