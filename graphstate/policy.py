"""The one place that decides whether a move may be taken. Pure.

Three things can object to a move: the edge's guard, the boundary of a zone that is left or
entered, and the policy inside a zone that holds both ends. Each objection has a mode:

    guard      learned hardening, else the edge's own mode, else ``defaultEnforcement``
    boundary   of every zone left or entered: learned hardening, else the zone's boundary
    intra      of every zone that holds both ends: learned hardening, else the zone's intra

``off`` allows and leaves a note, ``soft`` warns, ``hard`` denies; the strictest objection
decides, and on a tie guard before boundary before intra. A zone never softens another one,
and the order of zones means nothing.

An edge's mode does two things and no more: it is the mode of the edge's own guard, and ``off``
is the gate that lifts every objection of a zone to a move along it. ``soft`` and ``hard`` on an
edge neither soften nor harden a zone. A locked zone yields only to a gate that is locked too.
A guard that cannot be evaluated (it no longer compiles, or needs too much work) denies where a
failed guard would warn.

Soft rules that are violated often harden, hardened rules that run clean relax; `escalation` and
`settled` say when. A locked rule does neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, structs

from graphstate._canonical import Json, encode
from graphstate.model import Edge, Enforcement, Trace

__all__ = (
    "ALLOWED", "TRUST", "TRUSTED", "Counts", "Decision", "Fence", "GuardReport", "Rule", "crosses", "decide",
    "digest", "escalation", "lowest", "settled", "speaks", "written_trust",
)  # fmt: skip

#: Who may lock, unlock and change what is locked; everybody else is bound.
TRUSTED = ("developer", "person")

#: From the most trusted to the least.
TRUST = ("developer", "person", "model", "tool", "import")
_DISTRUST: Mapping[str | None, int] = {level: place for place, level in enumerate(TRUST)}

RuleScope: TypeAlias = Literal["edge", "zone-intra", "zone-boundary"]
_STRICTNESS: Mapping[Enforcement, int] = {"off": 0, "soft": 1, "hard": 2}
_DECISIONS: Mapping[Enforcement, Literal["allow", "warn", "deny"]] = {
    "off": "allow", "soft": "warn", "hard": "deny",
}  # fmt: skip


def lowest(*levels: str | None) -> str:
    """Return the least trusted level; one that nobody knows counts as the least of all."""
    return TRUST[max([_DISTRUST.get(level, len(TRUST) - 1) for level in levels])]


def written_trust(before: str | None, by: str | None, *, rewritten: bool) -> str:
    """Return how far a node is trusted that somebody wrote.

    Only who is trusted raises it, by writing all that the node says anew.

    Args:
        before: The node's trust until now, None for a new one.
        by: The writer's.
        rewritten: Nothing is left of the label and payload that it had.
    """
    if before is None or (rewritten and by in TRUSTED):
        return lowest(by)
    return lowest(before, by)


class Rule(NamedTuple):
    """What can be violated, harden and relax: an edge's guard, or one policy of a zone."""

    scope: RuleScope
    id: str


class Counts(NamedTuple):
    """What happened to a rule since it last changed."""

    violations: int = 0
    #: clean moves in a row
    clean: int = 0


class Fence(Struct, frozen=True, kw_only=True):
    """A zone as decisions see it."""

    name: str
    intra: Enforcement
    boundary: Enforcement
    #: what was learned on top, None or hard
    learned_intra: Literal["hard"] | None = None
    learned_boundary: Literal["hard"] | None = None
    locked: bool = False


class GuardReport(NamedTuple):
    """What came of a guard."""

    text: str
    passed: bool
    #: why it could not be evaluated
    problem: str | None = None


class Decision(NamedTuple):
    """A trace with what a transition needs to record about it."""

    trace: Trace
    #: the rules whose objection decided, and that may harden or relax
    objecting: tuple[Rule, ...] = ()
    #: hardened rules that had nothing to say against an allowed move
    clean: tuple[Rule, ...] = ()
    #: what was decided upon; None if no rule applied
    basis: Json = None


ALLOWED = Decision(Trace())


class _Objection(NamedTuple):
    mode: Enforcement
    source: Literal["edge", "zone", "global"]
    reason: str
    rules: tuple[tuple[Rule, Enforcement], ...]
    #: the gate lifted it
    gated: bool = False


def decide(
    edge: Edge,
    guard: GuardReport | None = None,
    source: Iterable[Fence] = (),
    target: Iterable[Fence] = (),
    *,
    default: Enforcement = "soft",
    locked: bool = False,
) -> Decision:
    """Return the decision about taking an edge now, with its reasons.

    Args:
        guard: What came of the edge's guard, None if it has none.
        source, target: The zones of the two ends, in any order.
        default: The mode of a failed guard on an edge without one.
        locked: The edge is locked.
    """
    left, entered, shared = _sides(source, target)
    if guard is None and not left and not entered and not any(map(speaks, shared)):
        return ALLOWED
    gate = edge.enforcement == "off"
    found: list[_Objection] = []
    if guard is not None and not guard.passed:
        found.append(_guard(edge, guard, default))
    crossed = [*left, *entered]
    opened = gate and bool(crossed) and all(_yields(fence, locked) for fence in crossed)
    if crossed:
        found.append(_boundary(left, entered, gate, locked, opened))
    if objection := _intra(shared, gate, locked):
        found.append(objection)
    mode, origin = _winner(found)
    decision = _DECISIONS[mode]
    learning = _learning(edge, (*crossed, *shared), locked)
    objecting = tuple(rule for item in found for rule, own in item.rules if own == mode != "off")
    clean = _clean(edge, left, entered, shared) if decision == "allow" else ()
    trace = Trace(
        decision=decision,
        enforcement_source=origin,
        effective_enforcement=mode,
        guard=_guard_shown(guard),
        boundary=_boundary_shown(left, entered, opened),
        reasons=tuple(item.reason for item in found),
        code="HardBlocked" if decision == "deny" else None,
    )
    basis: Json = {
        "edge": [edge.id, edge.guard, edge.enforcement, edge.learned_enforcement, locked],
        "default": default,
        "source": [list(structs.astuple(fence)) for fence in _named((*left, *shared))],
        "target": [list(structs.astuple(fence)) for fence in _named((*entered, *shared))],
    }
    return Decision(
        trace,
        tuple(rule for rule in objecting if rule in learning),
        tuple(rule for rule in clean if rule in learning),
        basis,
    )


def _learning(edge: Edge, fences: Iterable[Fence], locked: bool) -> set[Rule]:
    """Return the rules that may harden and relax: those that nobody locked."""
    rules = set() if locked else {Rule("edge", edge.id)}
    for fence in fences:
        if not fence.locked:
            rules |= {Rule("zone-intra", fence.name), Rule("zone-boundary", fence.name)}
    return rules


def speaks(fence: Fence) -> bool:
    """Say whether a zone has a say, or something to unlearn, in a move inside it."""
    return fence.intra != "off" or fence.learned_intra is not None or fence.learned_boundary is not None


def _sides(
    source: Iterable[Fence], target: Iterable[Fence]
) -> tuple[Sequence[Fence], Sequence[Fence], Sequence[Fence]]:
    before, after = {fence.name: fence for fence in source}, {fence.name: fence for fence in target}
    return (
        _named(fence for name, fence in before.items() if name not in after),
        _named(fence for name, fence in after.items() if name not in before),
        _named(fence for name, fence in before.items() if name in after),
    )


def _named(fences: Iterable[Fence]) -> list[Fence]:
    return sorted(fences, key=lambda fence: fence.name)


def _guard(edge: Edge, guard: GuardReport, default: Enforcement) -> _Objection:
    own = edge.learned_enforcement or edge.enforcement
    mode = own or default
    if guard.problem is None:
        reason = f"guard failed: {guard.text}"
    else:
        reason = f"{guard.problem}: {guard.text}"
        mode = "hard" if mode == "soft" else mode
    rule = (Rule("edge", edge.id), mode)
    return _Objection(mode, "global" if own is None else "edge", reason, (rule,), edge.enforcement == "off")


def _boundary(
    left: Sequence[Fence], entered: Sequence[Fence], gate: bool, locked: bool, opened: bool
) -> _Objection:
    crossed = [*left, *entered]
    modes = [_gated(fence, _boundary_of(fence), gate, locked) for fence in crossed]
    rules = [(Rule("zone-boundary", fence.name), mode) for fence, mode in zip(crossed, modes, strict=True)]
    reason = f"zone boundary crossing {_first(left) or '?'}->{_first(entered) or '?'}"
    note = " (gated)" if opened else " (locked)" if gate else ""
    lifted = opened and any(_boundary_of(fence) != "off" for fence in crossed)
    return _Objection(_strictest(modes), "zone", reason + note, tuple(rules), lifted)


def _intra(shared: Sequence[Fence], gate: bool, locked: bool) -> _Objection | None:
    strict = [fence for fence in shared if _intra_of(fence) != "off"]
    if not strict:
        return None
    modes = [_gated(fence, _intra_of(fence), gate, locked) for fence in strict]
    rules = [(Rule("zone-intra", fence.name), mode) for fence, mode in zip(strict, modes, strict=True)]
    named = _strictest([_intra_of(fence) for fence in strict])
    return _Objection(_strictest(modes), "zone", f"intra-zone policy {named}", tuple(rules), gate)


def _boundary_of(fence: Fence) -> Enforcement:
    return fence.learned_boundary or fence.boundary


def _intra_of(fence: Fence) -> Enforcement:
    return fence.learned_intra or fence.intra


def _yields(fence: Fence, locked: bool) -> bool:
    """Say whether a gate opens a zone: a locked zone only to a gate nobody bound can make."""
    return locked or not fence.locked


def _gated(fence: Fence, mode: Enforcement, gate: bool, locked: bool) -> Enforcement:
    return "off" if gate and _yields(fence, locked) else mode


def _strictest(modes: Sequence[Enforcement]) -> Enforcement:
    return max(modes, key=_STRICTNESS.__getitem__)


def _first(fences: Sequence[Fence]) -> str | None:
    """Return the zone to name: the strictest, the first by name of equals."""
    strictest = sorted(fences, key=lambda fence: (-_STRICTNESS[_boundary_of(fence)], fence.name))
    return strictest[0].name if strictest else None


def _winner(found: Sequence[_Objection]) -> tuple[Enforcement, Literal["edge", "zone", "global", "none"]]:
    mode: Enforcement = "off"
    origin: Literal["edge", "zone", "global", "none"] = "none"
    for item in found:
        if _STRICTNESS[item.mode] > _STRICTNESS[mode]:
            mode, origin = item.mode, item.source
    if mode == "off" and any(item.gated for item in found):
        origin = "edge"
    return mode, origin


def _clean(
    edge: Edge, left: Sequence[Fence], entered: Sequence[Fence], shared: Sequence[Fence]
) -> tuple[Rule, ...]:
    rules = [Rule("edge", edge.id)] if edge.learned_enforcement else []
    rules += [Rule("zone-boundary", fence.name) for fence in shared if fence.learned_boundary]
    rules += [Rule("zone-intra", fence.name) for fence in (*left, *entered) if fence.learned_intra]
    return tuple(rules)


def _guard_shown(guard: GuardReport | None) -> dict[str, Json]:
    if guard is None:
        return {"present": False, "passed": True}
    shown: dict[str, Json] = {"present": True, "passed": guard.passed}
    if not guard.passed:
        shown["reason"] = guard.text if guard.problem is None else guard.problem
    return shown


def _boundary_shown(left: Sequence[Fence], entered: Sequence[Fence], opened: bool) -> dict[str, Json]:
    shown: dict[str, Json] = {"crossing": bool(left or entered), "gated": opened}
    if left:
        shown["zone_from"] = _first(left)
    if entered:
        shown["zone_to"] = _first(entered)
    return shown


def escalation(
    decision: Decision, counts: Mapping[Rule, Counts], threshold: int
) -> tuple[Decision, tuple[Rule, ...]]:
    """Return the decision with its escalation in the trace, and the rules that this move hardens.

    A soft rule hardens with the violation that makes ``threshold`` of them since it last
    changed; that move itself is still applied. A threshold of 0 hardens nothing.
    """
    if decision.trace.decision != "warn":
        return decision, ()
    most = max([counts[rule].violations for rule in decision.objecting], default=0)
    hardened = tuple(
        rule for rule in decision.objecting if 0 < threshold <= counts[rule].violations + 1
    )  # fmt: skip
    shown: dict[str, Any] = {"soft_violations": most, "promoted": bool(hardened)}
    if hardened:
        shown["rules"] = [f"{rule.scope}:{rule.id}" for rule in hardened]
    return decision._replace(trace=structs.replace(decision.trace, escalation=shown)), hardened


def settled(decision: Decision, counts: Mapping[Rule, Counts], runs: int) -> tuple[Rule, ...]:
    """Return the hardened rules that relax with this clean move; ``runs`` 0 relaxes none."""
    return tuple(rule for rule in decision.clean if 0 < runs <= counts[rule].clean + 1)


def crosses(inside: Iterable[bool], after: Iterable[bool]) -> bool:
    """Say whether replacing a cursor carries it over the boundary of a zone.

    Both arguments say of each head whether it is in the zone, before and after. What counts
    is on which sides the cursor stands: the inside may neither appear nor vanish, and from
    wholly inside no head may appear outside.
    """
    old, new = set(inside), set(after)
    return (True in old) != (True in new) or (old == {True} and False in new)


def digest(value: Json) -> str:
    """Return 32 hexadecimal characters that stand for a JSON value."""
    return sha256(encode(value)).hexdigest()[:32]
