"""What is locked holds against models, tools and imports, whatever verb they use.

Every event passes `refuse_locked` before it is recorded, so a verb needs no check of its own.
Developers and persons may change what is locked; a rollback past it is refused to everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from graphstate._canonical import Json
from graphstate.errors import ErrorCode
from graphstate.events import Draft
from graphstate.model import Lock
from graphstate.policy import TRUSTED, crosses
from graphstate.store.projection import Projection
from graphstate.verbs.arguments import refuse

__all__ = ("Held", "refuse_locked")

Body = Mapping[str, Json]


def refuse_locked(projection: Projection, drafts: Sequence[Draft], *, actor: str, trust: str) -> None:
    """Fail with Locked if a governed party would change something locked."""
    for draft in drafts:
        if draft.type in ("PolicyLocked", "PolicyUnlocked"):
            refuse(f"only a developer or person locks and unlocks, not a {trust}", ErrorCode.LOCKED)
        check = _CHECKS.get(draft.type)
        if check is not None and projection.policies.locks():
            check(projection, draft.body, actor)


def _refuse(lock: Lock, what: str) -> NoReturn:
    refuse(
        f"{what}: locked by {lock.actor} ({lock.reason})",
        ErrorCode.LOCKED, scope=lock.scope, id=lock.id,
    )  # fmt: skip


def _free(projection: Projection, scope: str, id: str, what: str) -> None:
    lock = projection.policies.locks().get((scope, id))
    if lock is not None:
        _refuse(lock, what)


def _edge_upserted(projection: Projection, body: Body, actor: str) -> None:
    _free(projection, "edge", body["id"], f"edge {body['id']!r} cannot be replaced")
    if body["kind"] != "transition":
        return
    for other in projection.moves_out(body["src"]):
        lock = projection.policies.locks().get(("edge", other.id))
        if lock is not None and other.dst == body["dst"]:
            _refuse(lock, f"no other edge may go the way of edge {other.id!r}")


def _edge_removed(projection: Projection, body: Body, actor: str) -> None:
    _free(projection, "edge", body["id"], f"edge {body['id']!r} cannot be removed")


def _enforcement_changed(projection: Projection, body: Body, actor: str) -> None:
    scope = "edge" if body["scope"] == "edge" else "zone"
    _free(projection, scope, body["id"], f"the mode of {scope} {body['id']!r} cannot be set")


def _zone_changed(projection: Projection, body: Body, actor: str) -> None:
    name = body.get("zone", body.get("name"))
    _free(projection, "zone", name, f"zone {name!r} cannot be changed")


def _config_set(projection: Projection, body: Body, actor: str) -> None:
    _free(projection, "tunables", "*", f"{body['key']} cannot be set")


def _cursor_moved(projection: Projection, body: Body, actor: str) -> None:
    actor = body.get("cursor", actor)
    _free(projection, "cursor", actor, f"the cursor of {actor!r} cannot be set")
    _stay(projection, actor, projection.cursor(actor).nodes, body["set"])


def _stay(projection: Projection, actor: str, before: Sequence[str], after: Sequence[str]) -> None:
    policies = projection.policies
    for scope, name in policies.locks():
        if scope == "zone":
            inside = set(policies.members(name))
            if crosses([node in inside for node in before], [node in inside for node in after]):
                _refuse(
                    policies.locks()[scope, name],
                    f"the cursor of {actor!r} cannot be set across the boundary of zone {name!r}",
                )


_CHECKS: Mapping[str, Callable[[Projection, Body, str], None]] = {
    "EdgeUpserted": _edge_upserted,
    "EdgeRemoved": _edge_removed,
    "EnforcementChanged": _enforcement_changed,
    "ZoneDefined": _zone_changed,
    "ZoneMembership": _zone_changed,
    "ZoneDeleted": _zone_changed,
    "ConfigSet": _config_set,
    "CursorMoved": _cursor_moved,
}


class Held:
    """The locks and cursors of a moment, to compare a rollback with."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._locks = dict(projection.policies.locks())
        self._cursors = projection.cursors() if any(s == "zone" for s, _ in self._locks) else {}

    def refuse_loss(self, *, trust: str) -> None:
        """Fail with Locked if something locked is not as it was then.

        For a governed party a cursor must also stand on the same sides of locked zones.
        """
        now = self._projection.policies.locks()
        for key, lock in self._locks.items():
            if key not in now or now[key].seq != lock.seq:
                _refuse(lock, f"{lock.scope} {lock.id!r} was locked, or changed while locked, after that")
        if trust not in TRUSTED:
            after = self._projection.cursors()
            for actor, before in self._cursors.items():
                _stay(self._projection, actor, before, after.get(actor, ()))
