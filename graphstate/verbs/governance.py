"""Governance: modes of edges, and locks that bind models, tools and imports."""

from __future__ import annotations

from typing import Any

from graphstate.errors import ErrorCode
from graphstate.events import Draft
from graphstate.model import Edge, Enforcement, Lock, LockScope
from graphstate.results import Ok, Result
from graphstate.store import Store
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.memory import expect
from graphstate.verbs.structure import MODES, known_edge
from graphstate.verbs.verb import Verbs, query, verb
from graphstate.verbs.zones import known_zone

__all__ = ("Governance",)

SCOPES = ("edge", "zone", "tunables", "cursor")


class Governance(Verbs):
    """set_enforcement, lock_policy, unlock_policy, locks."""

    __slots__ = ()

    @verb
    def set_enforcement(
        self,
        edge_id: str,
        mode: Enforcement | None,
        *,
        expect_version: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Edge]:
        """Set the mode of an edge's guard and return the edge; what it had learned is reset.

        ``off`` also opens the edge through the zones it crosses.

        Args:
            mode: off, soft or hard; None inherits ``defaultEnforcement``.
            expect_version: Fail with Conflict unless the edge is at this version.
            reason: Kept in the event.
        """
        edge = known_edge(self.store, edge_id)
        expect(expect_version, edge.version, f"edge {edge_id!r}")
        if mode is not None:
            arguments.choice(mode, "mode", MODES)
        body = arguments.with_reason({"scope": "edge", "id": edge.id, "mode": mode}, reason)
        self.record(Draft("EnforcementChanged", body), actor=actor, cause=cause)
        return Ok(known_edge(self.store, edge_id))

    @verb
    def lock_policy(
        self,
        scope: LockScope,
        id: str | None = None,
        *,
        reason: str = "",
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Lock]:
        """Bind models, tools and imports to a piece of policy, and return the lock.

        What is locked they can neither change nor remove nor replace, by whatever verb, and
        they cannot roll back to before it. It neither hardens nor relaxes by itself. Only a
        developer or person locks, changes what is locked, and unlocks.

        edge: its guard, mode and ends; nor may another edge go the same way.
        zone: its members and modes; cursors cannot be set across its boundary, and no edge is
        a gate through it unless that edge is locked too.
        tunables: all settings. cursor: where an actor stands, except by moves.

        Guards read payloads and ``vars``, which are not policy: a rule that shall bind must
        not rest on what the bound party writes.

        Args:
            id: The edge, the zone, or the actor whose cursor it is; none for tunables.
            reason: Shown to whoever is refused.
        """
        key = _place(self.store, scope, id)
        body = {"scope": scope, "id": key, "reason": arguments.text(reason, "reason", arguments.MAX_REASON)}
        self.record(Draft("PolicyLocked", body), actor=actor, cause=cause)
        return Ok(self.store.projection.policies.locks()[scope, key])

    @verb
    def unlock_policy(
        self,
        scope: LockScope,
        id: str | None = None,
        *,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[bool]:
        """Take a lock away. Only a developer or person can."""
        key = _place(self.store, scope, id)
        if (scope, key) not in self.store.projection.policies.locks():
            refuse(f"{scope} {key!r} is not locked", ErrorCode.NOT_FOUND, hint="see locks")
        body: dict[str, Any] = arguments.with_reason({"scope": scope, "id": key}, reason)
        self.record(Draft("PolicyUnlocked", body), actor=actor, cause=cause)
        return Ok(True)

    @query
    def locks(self) -> list[Lock]:
        """Return what is locked, by whom and why, sorted by scope and id."""
        return list(self.store.projection.policies.locks().values())


def _place(store: Store, scope: str, id: str | None) -> str:
    arguments.choice(scope, "scope", SCOPES)
    if scope == "tunables":
        if id not in (None, "*"):
            refuse(f"tunables are locked as a whole, leave the id {id!r:.80} away")
        return "*"
    if scope == "edge":
        return known_edge(store, id).id
    if scope == "zone":
        return known_zone(store, id).name
    return arguments.identifier(id, "actor")
