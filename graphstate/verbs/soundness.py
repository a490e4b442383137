"""Soundness: what in the graph cannot be right, and how to mend it.

An edge to a node that was set aside is no violation: it is dormant, no move and no order uses
it, and it works again when the node comes back. A violation is a reference to what does not
exist, a cursor on a node that is not active, a cycle of dependencies, or a broken log.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from graphstate._canonical import encode_text
from graphstate.errors import StoreError
from graphstate.events import GRAPH, Draft
from graphstate.model import IntegrityReport, Repair, Validation, Violation, ViolationKind
from graphstate.results import Fail, Ok, Result
from graphstate.verbs.verb import Verbs, query, verb

__all__ = ("Soundness", "key", "violations")

#: Mending one thing may uncover another, but never for long.
_ROUNDS = 4

_UNFIXABLE = ("DagCycle", "HashChainBreak")

#: What no verb brings about: the tables were changed behind our back, or a log was imported as it was.
_FOREIGN = ("DanglingEdge", "OrphanStat", "DanglingZoneMember")


class Soundness(Verbs):
    """validate and repair."""

    __slots__ = ()

    def validate(self: Verbs) -> Validation:
        """Check the graph and its log, and return what is wrong.

        The log is read from where it was verified last; the graph costs one pass over nodes,
        edges and statistics. Edges to nodes that were set aside are no violation. Names of kinds,
        tags and zones that differ by case or by Unicode's forms alone are a warning.
        """
        chains = self.store.verify()
        found, names = _looked_at(self)
        found += _chain_break(chains)
        return Validation(ok=not found, violations=found, warnings=tuple(_lookalikes(names)))

    validate.__dict__["verb"] = "reads"

    def repair(self: Verbs, *, actor: str | None = None, cause: str | None = None) -> Result[Repair]:
        """Mend what can be mended, look again, and return what was fixed and what is left.

        The tables are made again from the log first, so that an edge is removed only if the log
        itself leads it into nothing. A cycle of dependencies, of which any edge may be the
        wrong one, and a broken log are left to a person.
        """
        try:
            broken = _chain_break(self.store.verify())
        except StoreError as error:
            return Fail(error.code, str(error), error.details)
        return Ok(Repair(ok=False, quarantined=broken)) if broken else repair(self, actor=actor, cause=cause)

    repair.__dict__["verb"] = "changes"


def violations(graph: Verbs) -> tuple[Violation, ...]:
    """Return what is wrong with the graph itself; the log is not read."""
    return tuple(
        Violation(
            kind=cast(ViolationKind, flaw.kind),
            locus=flaw.locus,
            detail=flaw.detail,
            fixable=flaw.kind not in _UNFIXABLE,
        )
        for flaw in graph.store.flaws()
    )


@query
def _looked_at(graph: Verbs) -> tuple[tuple[Violation, ...], Mapping[str, Sequence[str]]]:
    return violations(graph), graph.store.survey().names()


def _lookalikes(names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Names that differ are different; one warning for those a reader would take for one another."""
    for what, listed in names.items():
        alike: dict[str, list[str]] = {}
        for name in listed:
            alike.setdefault(unicodedata.normalize("NFKC", name).casefold(), []).append(name)
        for group in alike.values():
            if len(group) > 1:
                yield f"the {what} {' and '.join(map(ascii, group))} are different, and look alike"


def key(violation: Violation) -> tuple[str, str]:
    """Return what makes two violations the same one."""
    return violation.kind, encode_text(dict(violation.locus))


def _chain_break(report: IntegrityReport) -> tuple[Violation, ...]:
    if report.ok:
        return ()
    locus = {"stream": report.stream, "seq": report.first_break_seq}
    detail = report.detail or "the chain does not hold"
    return (Violation(kind="HashChainBreak", locus=locus, detail=detail, fixable=False),)


@verb
def repair(graph: Verbs, *, actor: str | None = None, cause: str | None = None) -> Result[Repair]:
    """Mend the tables and the graph, in one transaction."""
    first = left = violations(graph)
    if any(violation.kind in _FOREIGN for violation in left):
        graph.store.rebuild(graph.store.log.head(GRAPH))
        left = violations(graph)
    for _ in range(_ROUNDS):
        drafts = _remedies(graph, [violation for violation in left if violation.fixable])
        if not drafts:
            break
        graph.record(*drafts, actor=actor, cause=cause)
        cause = None
        left = violations(graph)
    remaining = {key(violation) for violation in left}
    return Ok(
        Repair(
            ok=not left,
            fixed=tuple(violation for violation in first if key(violation) not in remaining),
            quarantined=tuple(violation for violation in left if not violation.fixable),
            residue=tuple(violation for violation in left if violation.fixable),
        )
    )


def _remedies(graph: Verbs, found: Sequence[Violation]) -> list[Draft]:
    edges = [Draft("EdgeRemoved", {"id": v.locus["edge"]}) for v in found if v.kind == "DanglingEdge"]
    members = [
        Draft("ZoneMembership", {"zone": v.locus["zone"], "node": v.locus["node"], "op": "remove"})
        for v in found
        if v.kind == "DanglingZoneMember"
    ]
    return [*edges, *members, *_cursor_remedies(graph, [v for v in found if v.kind == "CursorOnDeadNode"])]


def _cursor_remedies(graph: Verbs, found: Iterable[Violation]) -> list[Draft]:
    """One move for each actor, however many of its heads are dead."""
    dead: dict[str, set[str]] = {}
    for violation in found:
        dead.setdefault(violation.locus["actor"], set()).add(violation.locus["node"])
    cursor = graph.store.projection.cursor
    return [
        Draft("CursorMoved", {"set": [n for n in cursor(actor).nodes if n not in nodes], "cursor": actor})
        for actor, nodes in dead.items()
    ]
