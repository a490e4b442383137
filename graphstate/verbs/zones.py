"""Zones: sets of nodes with a rule for moves inside and one for moves in or out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphstate import algorithms, guards
from graphstate.errors import ErrorCode, GuardError
from graphstate.events import Draft
from graphstate.model import Enforcement, Zone, ZoneProposal
from graphstate.results import Ok, Result
from graphstate.store import Store
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.judge import VERB_BUDGET, Judge, target_context
from graphstate.verbs.memory import expect, known
from graphstate.verbs.structure import MODES
from graphstate.verbs.verb import Verbs, answer, query, verb

__all__ = ("Zones", "known_zone")


class Zones(Verbs):
    """define_zone and its relatives."""

    __slots__ = ()

    @verb
    def define_zone(
        self,
        name: str,
        members: Iterable[str],
        *,
        intra: Enforcement = "soft",
        boundary: Enforcement = "hard",
        expect_version: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Zone]:
        """Define a zone, or define it anew, and return it.

        Zones may overlap. A move must satisfy every zone that it touches: the strictest
        decides. Defining anew replaces members and both modes, and resets what was learned.

        Args:
            intra: For moves between two members: off, soft or hard.
            boundary: For moves in or out.
            expect_version: Fail with Conflict unless the zone is at this version; 0 means
                that it must not exist.
            reason: Kept in the event.
        """
        zone = self.store.projection.policies.zone(arguments.identifier(name, "zone name"))
        expect(expect_version, zone.version if zone else 0, f"zone {name!r}")
        return _define(self, name, members, intra, boundary, reason, actor, cause)

    @verb
    def set_zone_enforcement(
        self,
        name: str,
        *,
        intra: Enforcement | None = None,
        boundary: Enforcement | None = None,
        expect_version: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Zone]:
        """Set one or both modes of a zone, reset what that rule had learned, return the zone.

        Args:
            expect_version: Fail with Conflict unless the zone is at this version.
            reason: Kept in the event.
        """
        zone = _expected(self.store, name, expect_version)
        modes = {"zone-intra": intra, "zone-boundary": boundary}
        drafts: list[Draft] = []
        for scope, mode in modes.items():
            if mode is not None:
                arguments.choice(mode, scope.removeprefix("zone-"), MODES)
                body = arguments.with_reason({"scope": scope, "id": zone.name, "mode": mode}, reason)
                drafts.append(Draft("EnforcementChanged", body))
        if not drafts:
            refuse("say which mode: intra, boundary or both")
        self.record(*drafts, actor=actor, cause=cause)
        return Ok(known_zone(self.store, name))

    @verb
    def add_to_zone(
        self,
        name: str,
        node: str,
        *,
        expect_version: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Zone]:
        """Make a node a member and return the zone; a member stays one.

        Args:
            expect_version: Fail with Conflict unless the zone is at this version.
            reason: Kept in the event.
        """
        zone = _expected(self.store, name, expect_version)
        body = {"zone": zone.name, "node": known(self.store, node), "op": "add"}
        self.record(Draft("ZoneMembership", arguments.with_reason(body, reason)), actor=actor, cause=cause)
        return Ok(known_zone(self.store, name))

    @verb
    def remove_from_zone(
        self,
        name: str,
        node: str,
        *,
        expect_version: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Zone]:
        """Take a node out and return the zone; one that is no member is left as it is.

        Args:
            expect_version: Fail with Conflict unless the zone is at this version.
            reason: Kept in the event.
        """
        zone = _expected(self.store, name, expect_version)
        body = {"zone": zone.name, "node": arguments.identifier(node, "node"), "op": "remove"}
        self.record(Draft("ZoneMembership", arguments.with_reason(body, reason)), actor=actor, cause=cause)
        return Ok(known_zone(self.store, name))

    @verb
    def delete_zone(
        self,
        name: str,
        *,
        expect_version: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[bool]:
        """Remove a zone; its nodes stay.

        Args:
            expect_version: Fail with Conflict unless the zone is at this version.
            reason: Kept in the event.
        """
        body: dict[str, Any] = {"name": _expected(self.store, name, expect_version).name}
        self.record(Draft("ZoneDeleted", arguments.with_reason(body, reason)), actor=actor, cause=cause)
        return Ok(True)

    @query
    def zones_of(self, node: str) -> list[str]:
        """Return the names of the zones a node is in, sorted."""
        policies = self.store.projection.policies
        return [fence.name for fence in policies.zones_of(node)] if isinstance(node, str) else []

    @query
    def zones(self) -> list[Zone]:
        """Return every zone with its members, sorted by name."""
        return self.store.projection.policies.zones()

    def derive_zone(
        self: Verbs,
        seed: str,
        predicate: str | None = None,
        *,
        ratify: bool = False,
        name: str | None = None,
        intra: Enforcement = "soft",
        boundary: Enforcement = "hard",
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[ZoneProposal]:
        """Find the active nodes at and behind a node that satisfy a predicate, sorted.

        The way to them may lead through nodes that do not. Nothing is written unless
        ``ratify`` is set. The predicate is a guard with the names of a guard on a move from
        the seed to the node in question; there is no edge, so ``edge`` and ``stat`` are
        missing. ``payload``, ``tags`` and ``kind`` are short for ``to``, ``toTags`` and ``toKind``.

        Args:
            predicate: None takes every node.
            ratify: Define the zone ``name`` over what was found.
            intra, boundary: The modes of that zone.
        """
        if not ratify:
            return _proposed(self, seed, predicate)
        return _ratified(
            self, seed, predicate, name=name, intra=intra, boundary=boundary, actor=actor, cause=cause
        )

    derive_zone.__dict__["verb"] = "changes"


@answer
def _proposed(graph: Verbs, seed: str, predicate: str | None) -> Result[ZoneProposal]:
    return Ok(ZoneProposal(members=_matching(graph, seed, predicate)))


def _derive_zone(
    graph: Verbs, seed: str, predicate: str | None, *, name: str | None, intra: str, boundary: str,
    actor: str | None, cause: str | None,
) -> Result[ZoneProposal]:  # fmt: skip
    members = _matching(graph, seed, predicate)
    defined = _define(graph, name, members, intra, boundary, None, actor, cause)
    return Ok(ZoneProposal(members=members, zone=defined.unwrap()))


_derive_zone.__name__ = "derive_zone"  # the verb that a cause belongs to
_ratified = verb(_derive_zone)


def known_zone(store: Store, name: object) -> Zone:
    """Return the zone with a name, or fail with ZoneNotFound."""
    zone = store.projection.policies.zone(arguments.identifier(name, "zone name"))
    if zone is None:
        refuse(f"there is no zone {name!r}", ErrorCode.ZONE_NOT_FOUND)
    return zone


def _expected(store: Store, name: object, version: int | None) -> Zone:
    zone = known_zone(store, name)
    expect(version, zone.version, f"zone {name!r}")
    return zone


def _define(
    graph: Verbs, name: object, members: Iterable[str], intra: str, boundary: str, reason: str | None,
    actor: str | None, cause: str | None,
) -> Result[Zone]:  # fmt: skip
    clean = arguments.identifier(name, "zone name")
    nodes = sorted({known(graph.store, node, "member") for node in arguments.identifiers(members, "members")})
    body: dict[str, Any] = {
        "name": clean,
        "members": nodes,
        "intra": arguments.choice(intra, "intra", MODES),
        "boundary": arguments.choice(boundary, "boundary", MODES),
    }
    graph.record(Draft("ZoneDefined", arguments.with_reason(body, reason)), actor=actor, cause=cause)
    return Ok(known_zone(graph.store, clean))


def _matching(graph: Verbs, seed: str, predicate: str | None) -> tuple[str, ...]:
    projection = graph.store.projection
    start = known(graph.store, seed, "seed")
    reached = algorithms.closure(start, lambda node: projection.out_ids(node, "transition"))
    nodes = sorted(node for node in {start, *reached} if projection.status(node) == "active")
    if predicate is None or predicate == "":
        return tuple(nodes)
    try:
        guards.compile_guard(predicate)
    except GuardError as error:
        refuse(f"predicate: {error}", ErrorCode.GUARD_PARSE_ERROR)
    judge, source = Judge(projection, None), projection.node(start)
    found: list[str] = []
    for node in nodes:
        report = judge.report(predicate, target_context(source, projection.node(node), {}))
        if report.passed:
            found.append(node)
        elif judge.exhausted:
            refuse(f"the predicate needs more than {VERB_BUDGET:,} units of work for {len(nodes)} nodes")
    return tuple(found)
