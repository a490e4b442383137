"""Activation: which memories are present now, and what makes them more or less so.

A reinforcement is one small event that holds what was done and when. What a memory is worth is
computed where it is asked for; asking changes nothing. Attention alone is of this process only,
until it has added up to a reinforcement.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from graphstate._canonical import Json
from graphstate.activation.decay import CLASSES, clamp, factor, log2
from graphstate.activation.record import Outcome
from graphstate.errors import shown
from graphstate.events import Draft, is_valid_id
from graphstate.model import ActivationState, Attended, Ranked, Reinforced
from graphstate.results import Ok, Result
from graphstate.store import Store
from graphstate.store.activation import Found, Order, Ranking
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.memory import known
from graphstate.verbs.verb import Verbs, answer, query, verb

__all__ = ("MAX_AMOUNT", "Activating", "amount_of", "context_of", "state_of")

#: Amounts are from minus this to this, so that no sum can overflow.
MAX_AMOUNT = 1e6

#: Reinforcements of one call.
MAX_ITEMS = 10_000

OUTCOMES = ("shown", "useful", "harmful")

_ITEM = ("id", "amount", "reason", "context", "outcome")
_MAX_MS = 2**53


def amount_of(value: object) -> float:
    """A finite amount."""
    return arguments.number(value, "amount", least=-MAX_AMOUNT, most=MAX_AMOUNT)


def context_of(value: object) -> str | None:
    """The name of a context, or None."""
    return None if value is None else arguments.name(value, "context")


class Activating(Verbs):
    """reinforce, suppress, attention, and what is present now."""

    __slots__ = ()

    @verb
    def reinforce(
        self,
        id: str,
        amount: float,
        *,
        reason: str | None = None,
        context: str | None = None,
        outcome: Outcome | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[ActivationState]:
        """Make a memory more present, and return how present it is now.

        The amount is added to the faded score, a share of it (``importanceGain``) to the importance.
        Sums are kept as they are and cut to 0..1 where they are read, so the order in which
        amounts arrive does not matter.

        Args:
            amount: From -1,000,000 to 1,000,000; a negative one makes it less present.
            context: It becomes more present there too; at most 32 contexts of a node are kept.
            outcome: Count that it was shown, useful or harmful; with amount 0 that alone.
        """
        body = _reinforcement(self.store, id, amount, reason, context, outcome)
        return _recorded(self, Draft("memory.reinforced", body), actor, cause)

    @verb
    def reinforce_all(
        self, items: Sequence[Mapping[str, Json]], *, actor: str | None = None, cause: str | None = None
    ) -> Result[Reinforced]:
        """Record several reinforcements, all of them or none.

        Args:
            items: Objects with ``id`` and ``amount`` and, if wanted, ``reason``, ``context`` and
                ``outcome``, each as `reinforce` takes it; at most 10,000.
        """
        if isinstance(items, (str, Mapping)) or not isinstance(items, Sequence):
            refuse(f"items must be a list of objects with id and amount, not {shown(items)}")
        if len(items) > MAX_ITEMS:
            refuse(f"{len(items)} items, more than the {MAX_ITEMS} allowed")
        drafts = [
            Draft("memory.reinforced", _item(self.store, item, index)) for index, item in enumerate(items)
        ]
        self.record(*drafts, actor=actor, cause=cause)
        return Ok(Reinforced(count=len(drafts)))

    @verb
    def suppress(
        self,
        id: str,
        amount: float,
        *,
        reason: str | None = None,
        context: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[ActivationState]:
        """Hold a memory back, and return how present it is now. Its score stays.

        A suppression fades by itself (``inhibitionHalfLifeMs``).

        Args:
            amount: Subtracted from the score where memories are ranked; a negative one releases.
            context: Hold it back there only.
        """
        return _suppressed(self, id, amount_of(amount), reason, context, actor, cause)

    @verb
    def release(
        self,
        id: str,
        *,
        amount: float | None = None,
        reason: str | None = None,
        context: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[ActivationState]:
        """Take a suppression back, and return how present the memory is now.

        Args:
            amount: How much of it; all of it if absent.
            context: The suppression that holds there only.
        """
        if amount is not None:
            taken = arguments.number(amount, "amount", least=0, most=MAX_AMOUNT)
        else:
            taken = _suppression(self.store, known(self.store, id), context_of(context))
        return _suppressed(self, id, -taken, reason, context, actor, cause)

    def bump_attention(
        self: Verbs, id: str, amount: float, *, actor: str | None = None, cause: str | None = None
    ) -> Result[Attended]:
        """Note that a memory was noticed; what adds up becomes a reinforcement.

        Attention is of this open graph only, halves within ``attentionHalfLifeMs`` and is in no
        file. Once it reaches ``minReinforceDelta`` all of it is recorded as a reinforcement with the
        reason "attention", which is what ``cause`` makes happen once.
        """
        noticed = _Noticing._notice(self, id, amount)
        if not isinstance(noticed, Ok) or not noticed.value.promoted:
            return noticed
        done = Activating.reinforce(
            self, id, noticed.value.attention, reason="attention", actor=actor, cause=cause
        )
        if not isinstance(done, Ok):
            return done
        self.store.attention.drop(id)
        return Ok(Attended(id=id, attention=0.0, promoted=True), repeated=done.repeated)

    bump_attention.__dict__["verb"] = "changes"

    @query
    def effective(
        self, id: str, *, context: str | None = None, include_superseded: bool = False, at: int | None = None
    ) -> float:
        """Return how present a memory is: score plus attention less inhibition, from 0 to 1.

        0 if there is no such node, or if another one took its place.

        Args:
            context: The score there instead; 0 if it was never reinforced there.
            include_superseded: Answer for a superseded node as if nothing had taken its place.
            at: The moment in ms; now if absent.

        Raises:
            VerbFailed: InvalidInput.
        """
        scope, now = context_of(context), _moment(self.store, at)
        found = self.store.projection.activations.find(id) if is_valid_id(id) else None
        if found is None or (found.superseded and not include_superseded):
            return 0.0
        attention = self.store.attention.of(found.id, now, _attention_ms(self.store))
        return found.record.effective(now, found.half_lives, attention=attention, context=scope)

    @query
    def activation(self, id: str, *, at: int | None = None) -> ActivationState | None:
        """Return how present a memory is, part by part; None if nothing was ever recorded of it.

        Args:
            at: The moment in ms; now if absent. What happened after it is not taken away again.

        Raises:
            VerbFailed: InvalidInput.
        """
        now = _moment(self.store, at)
        found = self.store.projection.activations.find(id) if is_valid_id(id) else None
        return _state(self.store, found, now) if found is not None and found.recorded else None

    @query
    def top_activated(
        self,
        *,
        limit: int | None = None,
        context: str | None = None,
        context_fallback: bool = False,
        min_score: float = 0.0,
        include_superseded: bool = False,
        at: int | None = None,
    ) -> list[Ranked]:
        """Return the most present memories, best first; the smaller id first of equals.

        Reads an index whose order holds at every moment: the cost depends on the limit and on
        how many suppressed memories would rank among them, not on the size of the graph. Nodes
        that are archived or deprecated are left out.

        Args:
            limit: 0 to 1,000, default 10.
            context: Rank by the scores there.
            context_fallback: Memories that were never reinforced there count with their score.
            min_score: Only what is more present than this.
            include_superseded: Also nodes whose place another one took, marked.
            at: The moment in ms; now if absent.

        Raises:
            VerbFailed: InvalidInput.
        """
        wanted = _Wanted(
            arguments.limit(limit, 10), context_of(context), context_fallback,
            arguments.number(min_score, "min_score"), include_superseded, _moment(self.store, at),
        )  # fmt: skip
        return _top(self.store, wanted) if wanted.limit else []

    @verb
    def register_memory_class(
        self, kind: str, memory_class: str | None, *, actor: str | None = None, cause: str | None = None
    ) -> Result[dict[str, Any]]:
        """Let nodes of a kind fade as a class does, and return the class of every kind.

        A node whose own ``memory_class`` is set keeps that. About 10 us for each memory.

        Args:
            memory_class: episodic, semantic, procedural or entity; None takes the kind out.
        """
        name = arguments.name(kind, "kind")
        classes = dict(self.store.projection.tunables()["memoryClasses"])
        classes.pop(name, None)
        if memory_class is not None:
            classes[name] = arguments.choice(memory_class, "memory_class", CLASSES)
        body = {"key": "memoryClasses", "value": classes}
        self.record(Draft("ConfigSet", body), actor=actor, cause=cause)
        return Ok(classes)


class _Noticing(Verbs):
    __slots__ = ()

    @answer
    def _notice(self, id: str, amount: float) -> Result[Attended]:
        store, node = self.store, known(self.store, id)
        value = store.attention.bump(
            node, arguments.number(amount, "amount", least=-1, most=1), store.now(), _attention_ms(store)
        )
        promoted = 0 < value >= store.projection.tunables()["minReinforceDelta"]
        return Ok(Attended(id=node, attention=value, promoted=promoted))


# ------------------------------------------------------------------------- what is recorded


def _reinforcement(
    store: Store, id: object, amount: object, reason: object, context: object, outcome: object
) -> dict[str, Any]:
    # The amount first: a number that is none is refused whatever the id.
    clean = amount_of(amount)
    body: dict[str, Any] = {"id": known(store, id), "amount": clean, "at": store.now()}
    if context is not None:
        body["context"] = context_of(context)
    if outcome is not None:
        body["outcome"] = arguments.choice(outcome, "outcome", OUTCOMES)
    return arguments.with_reason(body, reason)


def _item(store: Store, item: object, index: int) -> dict[str, Any]:
    if not isinstance(item, Mapping) or not {"id", "amount"} <= item.keys() or set(item) - set(_ITEM):
        refuse(
            f"items[{index}] must be an object with id and amount, {', '.join(_ITEM[2:])} if wanted, not {shown(item)}"
        )
    return _reinforcement(store, *(item.get(part) for part in _ITEM))


def _suppressed(
    graph: Verbs,
    id: object,
    amount: float,
    reason: object,
    context: object,
    actor: str | None,
    cause: str | None,
) -> Result[ActivationState]:
    store = graph.store
    body: dict[str, Any] = {"id": known(store, id), "amount": amount, "at": store.now()}
    if context is not None:
        body["context"] = context_of(context)
    draft = Draft("memory.suppressed", arguments.with_reason(body, reason))
    return _recorded(graph, draft, actor, cause)


def _recorded(graph: Verbs, draft: Draft, actor: str | None, cause: str | None) -> Result[ActivationState]:
    (row,) = graph.record(draft, actor=actor, cause=cause)
    found = graph.store.projection.activations.changed(row.seq)
    assert found is not None
    return Ok(_state(graph.store, found, graph.store.now()))


def _suppression(store: Store, id: str, context: str | None) -> float:
    """Return what has to be taken back so that nothing is held back."""
    found = store.projection.activations.find(id)
    assert found is not None
    subject = found.record if context is None else found.record.contexts.get(context)
    if subject is None or subject.inhibited_at is None:
        return 0.0
    return subject.inhibition * factor(store.now() - subject.inhibited_at, found.half_lives.inhibition_ms)


# ------------------------------------------------------------------------- what is read


def _moment(store: Store, at: object) -> int:
    return store.now() if at is None else arguments.whole(at, "at", least=-_MAX_MS, most=_MAX_MS)


def _attention_ms(store: Store) -> float:
    half_life: float = store.projection.tunables()["attentionHalfLifeMs"]
    return half_life


def state_of(store: Store, id: str, now: int) -> ActivationState:
    """Return how present a node is that exists."""
    found = store.projection.activations.find(id)
    assert found is not None
    return _state(store, found, now)


def _state(store: Store, found: Found, now: int) -> ActivationState:
    record, view = found.record, found.record.decayed(now, found.half_lives)
    attention = store.attention.of(found.id, now, _attention_ms(store))
    effective = 0.0 if found.superseded else clamp(view.score + attention - view.inhibition)
    return ActivationState(
        id=found.id, at=now, score=view.score, importance=view.importance, inhibition=view.inhibition,
        attention=attention, effective=effective, reinforcement_count=record.reinforcement_count,
        last_reinforced_at=record.last_reinforced_at, shown=record.shown, useful=record.useful,
        harmful=record.harmful, memory_class=found.memory_class, superseded=found.superseded,
        contexts=view.contexts, inhibitions=view.inhibitions,
    )  # fmt: skip


class _Wanted(NamedTuple):
    limit: int
    context: str | None
    fallback: bool
    least: float
    superseded: bool
    now: int


class _Place(NamedTuple):
    """What a node ranks by: itself, then what is behind a value that was cut, then its id."""

    less_effective: float
    #: less the base-2 logarithm of the faded sum
    less_strength: float
    id: str
    score: float
    superseded: bool


def _top(store: Store, wanted: _Wanted) -> list[Ranked]:
    """Return the first places.

    A row of a rank order says what its node is worth at most, since inhibition only takes away: so
    the walk ends where the next row could not be among the first even without one. What attention
    adds it adds to few nodes, which are looked at one by one.
    """
    attended = store.attention.attended(wanted.now, _attention_ms(store))
    depth = wanted.limit + 1 + min(len(attended), wanted.limit)
    best = None
    while best is None:
        orders = store.projection.activations.orders(
            depth, context=wanted.context, fallback=wanted.fallback, superseded=wanted.superseded
        )
        best = _first(orders, depth, _attended(store, wanted, attended), attended, wanted)
        depth *= 4
    return [Ranked(place.id, -place.less_effective, place.score, place.superseded) for place in best]


def _first(
    orders: Sequence[Order], depth: int, best: list[_Place], attended: Mapping[str, float], wanted: _Wanted
) -> list[_Place] | None:
    """Return the first places, or None if there may be better ones behind what was read."""
    rows, horizon = _merged(orders, depth, wanted.now)
    for entry in rows:
        if horizon is not None and entry > horizon:
            return None
        less_strength, node, row, order = entry
        if node in attended:
            continue
        score = clamp(row.score * factor(wanted.now - row.anchor, order.half_lives.score_ms))
        if score <= wanted.least:
            return best
        if len(best) == wanted.limit and (-score, less_strength, node) > best[-1]:
            return best
        effective = (
            score
            if row.inhibited_at is row.lens_inhibited_at is None
            else _held_back(row, score, order, wanted)
        )
        if effective > wanted.least:
            insort(best, _Place(-effective, less_strength, node, score, order.superseded))
            del best[wanted.limit :]
    return best if horizon is None else None


_Entry: TypeAlias = tuple[float, str, Ranking, Order]


def _merged(orders: Sequence[Order], depth: int, now: int) -> tuple[list[_Entry], _Entry | None]:
    """Return the rows of all orders as one, and the last one before which nothing is missing."""
    rows: list[_Entry] = []
    horizon: _Entry | None = None
    for order in orders:
        half_life = order.half_lives.score_ms
        faded = now / half_life if half_life > 0 else 0.0
        rows += [(row.place + faded, row.id, row, order) for row in order.rows[:depth]]
        cut = not order.complete or len(order.rows) > depth
        if cut and (horizon is None or rows[-1] < horizon):
            horizon = rows[-1]
    rows.sort()
    return rows, horizon


def _held_back(row: Ranking, score: float, order: Order, wanted: _Wanted) -> float:
    half_life, held = order.half_lives.inhibition_ms, 0.0
    for value, at in (
        (row.inhibition, row.inhibited_at), (row.lens_inhibition, row.lens_inhibited_at)
    ):  # fmt: skip
        if value is not None and at is not None:
            held += clamp(value * factor(wanted.now - at, half_life))
    return clamp(score - held)


def _attended(store: Store, wanted: _Wanted, attended: Mapping[str, float]) -> list[_Place]:
    places: list[_Place] = []
    for found in store.projection.activations.find_some([*attended]) if attended else ():
        if not found.active or (found.superseded and not wanted.superseded):
            continue
        record, half_life = found.record, found.half_lives.score_ms
        effective = record.effective(
            wanted.now, found.half_lives, attention=attended[found.id], context=wanted.context,
            fallback=wanted.fallback,
        )  # fmt: skip
        lens = None if wanted.context is None else record.contexts.get(wanted.context)
        value, anchor = (record.score, record.anchor) if lens is None else (lens.score, lens.anchor)
        if lens is None and wanted.context is not None and not wanted.fallback:
            value = 0.0
        score = value * factor(wanted.now - anchor, half_life)
        strength = log2(score) if score > 0 else -math.inf
        if effective > wanted.least:
            places.append(_Place(-effective, -strength, found.id, clamp(score), found.superseded))
    return sorted(places)[: wanted.limit]
