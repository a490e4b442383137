"""What proved useful, and the weights of signals that learn from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphstate.activation.composite import DEFAULT_WEIGHTS, LEARNED, RULES, FeedbackRule
from graphstate.errors import ErrorCode, shown
from graphstate.events import Draft
from graphstate.model import Taught
from graphstate.results import Ok, Result
from graphstate.store import Store
from graphstate.store.retrievals import GLOBAL
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.memory import known
from graphstate.verbs.verb import Verbs, query, verb

__all__ = ("MAX_RATE", "MAX_WEIGHT", "Learning", "checked_signals", "checked_weights")

#: How fast weights may be taught.
MAX_RATE = 10.0
MAX_WEIGHT = 1e6


class Learning(Verbs):
    """feedback, and the weights it moves."""

    __slots__ = ()

    @verb
    def feedback(
        self,
        retrieval_id: str,
        id: str,
        useful: bool,
        *,
        rate: float = 0.05,
        rule: FeedbackRule = "centred",
        scope: str | None = None,
        signals: Mapping[str, float] | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Taught]:
        """Say whether a memory that a search showed was useful, and return the weights from now on.

        A second verdict on the same memory of the same search changes nothing and gets the first
        one, marked ``repeated``. The verdict is counted on the memory, which is neither reinforced
        nor suppressed by it. The event holds the signals, so a replay learns the same.

        Args:
            retrieval_id: As `pulse` or `working_memory` said it.
            rate: How far the weights move, 0 to 10.
            rule: ``centred`` measures each signal against their mean and keeps weights within 0.05
                to 3; ``contrast`` measures it against the memories ranked before a useful one, and
                learns nothing from a useless one; ``additive`` adds a share of each signal, without
                bound.
            scope: Whose weights; those the search was made with if absent.
            signals: As the search showed them, if it is not remembered any more: the graph
                remembers its last 64, the file the last 1,000 that were made with ``log``.
        """
        search, node = arguments.identifier(retrieval_id, "retrieval_id"), known(self.store, id)
        verdict = _flag(useful)
        retrievals = self.store.projection.retrievals
        remembered = retrievals.get(search)
        whose = arguments.name(scope or (remembered.scope if remembered else GLOBAL), "scope")
        before = retrievals.verdict(search, node)
        if before is not None:
            return Ok(_taught(self.store, search, node, before, whose), repeated=True)
        others = remembered.before(node) if remembered and signals is None else {}
        if signals is None:
            seen = {hit.id: hit.signals for hit in remembered.hits} if remembered else {}
            if node not in seen:
                refuse(
                    f"no search {search!r} is remembered that showed {node!r}",
                    ErrorCode.NOT_FOUND,
                    hint="pass signals=, as the search showed them, or search with log=True",
                )
            signals = seen[node]
        body = {
            "retrieval_id": search,
            "id": node,
            "useful": verdict,
            "lr": arguments.number(rate, "rate", least=0, most=MAX_RATE),
            "rule": arguments.choice(rule, "rule", RULES),
            "scope": whose,
            "signals": checked_signals(signals),
            "at": self.store.now(),
        }
        if rule == "contrast" and others:
            body["others"] = checked_signals(others)
        self.record(Draft("memory.feedback", body), actor=actor, cause=cause)
        return Ok(_taught(self.store, search, node, verdict, whose))

    @query
    def weights(self, *, scope: str = GLOBAL) -> dict[str, float]:
        """Return the weights of the signals in a scope; what it has none of its own for, that of all.

        Raises:
            VerbFailed: InvalidInput.
        """
        return dict(self.store.projection.retrievals.weights(arguments.name(scope, "scope")))

    @verb
    def set_weights(
        self,
        weights: Mapping[str, float],
        *,
        scope: str = GLOBAL,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[dict[str, Any]]:
        """Set weights of signals in a scope, and return all that hold there.

        Args:
            weights: By signal: semantic, lexical, graph, recency, usage, and inhibition, which is
                subtracted from the score; each from 0. What is not given stays.
        """
        name = arguments.name(scope, "scope")
        body = {"scope": name, "weights": checked_weights(weights), "at": self.store.now()}
        self.record(Draft("memory.weights_set", body), actor=actor, cause=cause)
        return Ok(dict(self.store.projection.retrievals.weights(name)))


def _taught(store: Store, search: str, node: str, useful: bool, scope: str) -> Taught:
    weights = store.projection.retrievals.weights(scope)
    return Taught(retrieval_id=search, id=node, useful=useful, scope=scope, weights=weights)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        refuse(f"useful must be true or false, not {shown(value)}")
    return value


def checked_signals(value: object) -> dict[str, float]:
    """The signals that a verdict teaches by."""
    return _numbers(value, "signals", LEARNED, 1.0)


def checked_weights(value: object) -> dict[str, float]:
    """Some weights of signals."""
    return _numbers(value, "weights", tuple(DEFAULT_WEIGHTS), MAX_WEIGHT)


def _numbers(value: object, what: str, names: tuple[str, ...], most: float) -> dict[str, float]:
    if not isinstance(value, Mapping) or not value or set(value) - set(names):
        refuse(f"{what} must be an object with any of {', '.join(names)}, not {shown(value)}")
    return {
        name: arguments.number(number, f"{what}.{name}", least=0, most=most) for name, number in value.items()
    }
