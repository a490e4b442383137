"""Durability: checkpoints, return to them, settings that are stored, proof of the log."""

from __future__ import annotations

from typing import Any

from graphstate._canonical import Json
from graphstate.errors import ErrorCode
from graphstate.events import GRAPH, Draft
from graphstate.model import Checkpoint, IntegrityReport, Rollback
from graphstate.results import Fail, Ok, Result
from graphstate.tunables import refusal
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.fsm import settle_attempts
from graphstate.verbs.locks import Held
from graphstate.verbs.verb import Verbs, query, synced_verb, verb

__all__ = ("Durability",)


class Durability(Verbs):
    """checkpoint, rollback, tunables, verification."""

    __slots__ = ()

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
        return Ok(Checkpoint(name=name, seq=taken.head.seq))

    @query
    def list_checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints in the order of the log."""
        return [Checkpoint(name=name, seq=seq) for name, seq in self.store.snapshots.checkpoints()]

    @synced_verb
    def rollback(
        self, name: str, *, reason: str = "", actor: str | None = None, cause: str | None = None
    ) -> Result[Rollback]:
        """Return to a checkpoint: nodes, edges, cursors, statistics and tunables as they were.

        The later events of the graph are set aside with actor and reason, not deleted
        (table ``event_abandoned``), and so are their causes: a call repeated with one of
        them is carried out again. Streams of runs are never rolled back.

        Refused with Locked, to everybody, if something was locked, or changed while locked,
        after the checkpoint; and to models, tools and imports if it would carry a cursor over
        the boundary of a locked zone.
        """
        head = self.store.snapshots.checkpoint(arguments.identifier(name, "checkpoint name"))
        if head is None:
            refuse(f"there is no checkpoint {name!r}", ErrorCode.CHECKPOINT_NOT_FOUND)
        if self.store.log.hash_at(GRAPH, head.seq) != head.hash:
            refuse(
                f"checkpoint {name!r} stands on event {head.seq}, which is another one now",
                ErrorCode.INTEGRITY_BROKEN,
            )
        text = arguments.text(reason, "reason", arguments.MAX_REASON) or f"rollback to {name}"
        held = Held(self.store.projection)
        count = self.store.cut(head, actor=actor or self.actor, trust=self.trust, reason=text)
        held.refuse_loss(trust=self.trust)
        return Ok(Rollback(seq=head.seq, abandoned=count))

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
        return Ok(dict(self.store.projection.tunables()))

    @query
    def get_tunables(self) -> dict[str, Any]:
        """Return all settings, stored ones over defaults."""
        return dict(self.store.projection.tunables())

    def verify_integrity(self: Verbs, *, deep: bool = False) -> IntegrityReport:
        """Check the hash chains and return what was found.

        Starts where the last check ended. With ``deep`` everything is checked from the start:
        every stream, the snapshots, SQLite's own structure, and the projection against a
        replay. After a break the store refuses writes; nothing is deleted.

        The chain shows changed, inserted, removed and swapped events. It does not show that
        the newest events were cut off together with the projection, or that a whole history
        was replaced by another valid one.
        """
        return self.store.verify(deep=deep)

    verify_integrity.__dict__["verb"] = "reads"
