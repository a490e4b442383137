"""One search of the memory: seeds by meaning and by words, what they warm up, one score for each.

Everything is read in one moment. The arithmetic is that of `graphstate.activation`; here it is
decided what is asked of the tables, and what stands for what: a memory that was superseded or
set aside is left out, a suppressed source is represented by its consolidation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import cast

from msgspec import Struct

from graphstate._canonical import decode
from graphstate.activation.composite import composite, shares
from graphstate.activation.decay import factor
from graphstate.activation.spreading import MAX_DEPTH, Link, spread
from graphstate.errors import shown
from graphstate.model import Pulse, PulseHit, Spread, Trust
from graphstate.store import Store
from graphstate.store.activation import SUPERSEDED_BY
from graphstate.store.retrievals import GLOBAL, Retrieval, Shown
from graphstate.store.successions import CONSOLIDATED_FROM
from graphstate.store.surroundings import Direction, Fact
from graphstate.store.words import indexed, node_words, words
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse

__all__ = ("MAX_SEEDS", "SUPPRESSED", "Ask", "asked", "by_meaning", "by_words", "search", "warmed")

#: From this inhibition on a memory passes nothing on, and is not reinforced by being found.
SUPPRESSED = 0.5

#: Nodes of one level of spreading that a search looks at.
FRONTIER = 500

MAX_SEEDS = 1_000

#: Seeds of each kind that activation spreads from. Those that spread are not reached, and what else
#: resembles the query shall gain by its neighbours too.
ANCHORS = 5

#: Different words of a query that are searched for.
MAX_WORDS = 64

# Vectors of 32-bit floats do not tell cosines apart that are nearer to each other than this.
_NOISE = 1e-6

_DIRECTIONS = ("out", "in", "both")


class Ask(Struct, frozen=True, kw_only=True):
    """A search, checked."""

    text: str | None
    vector: Sequence[float] | None
    limit: int
    scope: str
    context: str | None
    seeds: int
    semantic_threshold: float
    threshold: float
    depth: int
    decay: float
    fan_beta: float
    #: None follows every edge but those to the sources of a consolidation
    gains: Mapping[str, float] | None
    direction: Direction
    include_superseded: bool
    as_of: int | None
    gamma: float
    normalise: bool


def asked(
    store: Store,
    query: str | Sequence[float],
    vector: Sequence[float] | None = None,
    *,
    limit: int | None = None,
    scope: str = GLOBAL,
    context: str | None = None,
    seeds: int = 50,
    semantic_threshold: float = 0.0,
    threshold: float | None = None,
    depth: int | None = None,
    decay: float | None = None,
    fan_beta: float = 0.5,
    edge_types: Iterable[str] | Mapping[str, float] | None = None,
    direction: Direction = "out",
    include_superseded: bool = False,
    as_of: int | None = None,
    gamma: float = 1.0,
    normalise: bool = True,
) -> Ask:
    """Check a search, and fill in the settings of the graph.

    Raises:
        VerbFailed: InvalidInput.
    """
    text = query if isinstance(query, str) else None
    if text is not None:
        arguments.text(text, "query", arguments.MAX_SEARCH)
    elif vector is not None:
        refuse("the query is a vector already, so vector must be absent")
    given = query if text is None else vector
    settings = store.projection.tunables()
    return Ask(
        text=text,
        vector=None if given is None and text is not None else arguments.embedding(given),
        limit=arguments.limit(limit, 20),
        scope=arguments.name(scope, "scope"),
        context=None if context is None else arguments.name(context, "context"),
        seeds=arguments.whole(seeds, "seeds", least=1, most=MAX_SEEDS),
        semantic_threshold=arguments.number(semantic_threshold, "semantic_threshold", least=-1, most=1),
        threshold=settings["pulseThreshold"] if threshold is None else arguments.number(threshold, "threshold"),
        depth=settings["spreadDepth"] if depth is None else arguments.whole(depth, "depth", least=0, most=MAX_DEPTH),
        decay=settings["spreadDecay"] if decay is None else arguments.number(decay, "decay", least=0, most=1),
        fan_beta=arguments.number(fan_beta, "fan_beta", least=0, most=1),
        gains=_gains(edge_types),
        direction=_DIRECTION[arguments.choice(direction, "direction", _DIRECTIONS)],
        include_superseded=include_superseded,
        as_of=None if as_of is None else arguments.whole(as_of, "as_of", least=-(2**53), most=2**53),
        gamma=arguments.number(gamma, "gamma", least=0, most=10),
        normalise=normalise,
    )  # fmt: skip


_DIRECTION: Mapping[str, Direction] = {"out": "out", "in": "in", "both": "both"}


def _gains(edge_types: Iterable[str] | Mapping[str, float] | None) -> Mapping[str, float] | None:
    if edge_types is None:
        return None
    if isinstance(edge_types, str) or not isinstance(edge_types, Iterable):
        refuse(f"edge_types must be a list of types, or an object of gains by type, not {shown(edge_types)}")
    gains = edge_types.items() if isinstance(edge_types, Mapping) else ((name, 1.0) for name in edge_types)
    return {
        arguments.text(name, "an edge type", arguments.MAX_LABEL): arguments.number(gain, "a gain", least=0, most=1)
        for name, gain in gains
    }  # fmt: skip


# ------------------------------------------------------------------------------ seeds


def by_meaning(store: Store, vector: Sequence[float] | None, limit: int, above: float) -> dict[str, float]:
    """Return the nearest nodes with their cosines, all above a threshold."""
    if vector is None:
        return {}
    try:
        hits = store.projection.vectors.search(vector, limit, above=above + _NOISE if above > 0 else 0.0)
    except ValueError as error:
        refuse(str(error))
    return {hit.id: min(1.0, hit.similarity) for hit in hits}


def by_words(store: Store, text: str | None, limit: int) -> dict[str, float]:
    """Return the nodes that share words with a text, each with a signal from 0 to 1.

    In the order of BM25; the best one's signal is its share of the words, and the others have
    theirs in proportion. Words that very many nodes have tell nothing apart, and are searched for
    only if there are no others. Without the index every node is read, and each has its share.
    """
    wanted = list(dict.fromkeys(words(text or "")))[:MAX_WORDS]
    if not wanted:
        return {}
    if not store.text_is_current():
        return _by_reading(store, set(wanted), limit)
    surroundings = store.projection.surroundings
    ranked = surroundings.matching([indexed(word) for word in wanted], limit)
    if not ranked:
        return {}
    best, top = ranked[0]
    ((_, label, payload, tags),) = surroundings.content([best])
    share = len(set(wanted).intersection(node_words(label, decode(payload), decode(tags)))) / len(wanted)
    return {node: share * (score / top if top > 0 else 1.0) for node, score in ranked}


def _by_reading(store: Store, wanted: Collection[str], limit: int) -> dict[str, float]:
    shares: list[tuple[float, str]] = []
    for node in store.projection.recall(id=None, kind=None, status=None, tag=None, limit=-1):
        common = len(set(wanted).intersection(node_words(node.label, node.payload, node.tags)))
        if common:
            shares.append((-common / len(wanted), node.id))
    return {node: -share for share, node in sorted(shares)[:limit]}


def _best(part: Mapping[str, float]) -> list[str]:
    return nsmallest(ANCHORS, part, key=lambda node: (-part[node], node))


# ------------------------------------------------------------------------------ the search


class _Search:
    """The state of one search."""

    def __init__(self, store: Store, ask: Ask, now: int) -> None:
        self._store, self._ask, self._now = store, ask, now
        projection = store.projection
        self._surroundings, self._curves = projection.surroundings, projection.activations.curves
        self.weights = projection.retrievals.weights(ask.scope)
        self._recency_ms = projection.tunables()["recencyHalfLifeMs"]
        self._facts: dict[str, Fact] = {}
        self._signals: dict[str, dict[str, float]] = {}
        # A query that is a vector has no words, and text without a vector has no meaning to compare.
        self._found_by = [
            name
            for name, there in (("semantic", ask.vector), ("lexical", ask.text), ("graph", ""))
            if there is not None
        ]
        self.truncated = False

    def _know(self, ids: Iterable[str]) -> None:
        new = [node for node in ids if node not in self._facts]
        if new:
            self._facts |= self._surroundings.facts(new, context=self._ask.context, as_of=self._ask.as_of)

    def _barred(self, node: str) -> bool:
        fact = self._facts.get(node)
        return fact is not None and (
            fact.superseded_by is not None or fact.inhibited(self._now, self._curves) >= SUPPRESSED
        )

    def _links(self, sources: Collection[str]) -> list[Link]:
        """Return what is passed on: by a suppressed or superseded node only to what took its place."""
        self._know(sources)
        barred = {node for node in sources if self._barred(node)}
        free = [node for node in sources if node not in barred]
        found = self._surroundings.links(free, direction=self._ask.direction, strength=self._strength)
        if barred and self._strength(SUPERSEDED_BY, 1.0):
            found += [
                Link(node, successor)
                for node in sorted(barred)
                if (successor := self._facts[node].superseded_by) is not None
            ]
        return found

    def _strength(self, edge_type: str, weight: float) -> float:
        # A weight above 1 makes a move likelier; an association it does not make stronger than itself.
        gains = self._ask.gains
        gain = float(edge_type != CONSOLIDATED_FROM) if gains is None else gains.get(edge_type, 0.0)
        return gain * min(1.0, max(0.0, weight))

    def around(self, seeds: Mapping[str, float]) -> Mapping[str, float]:
        """Return what some nodes of some strength warm up."""
        ask = self._ask
        found = spread(
            seeds, self._links, depth=ask.depth, decay=ask.decay, fan_beta=ask.fan_beta, frontier=FRONTIER
        )
        self.truncated = found.truncated
        return found.reached

    def hits(self) -> tuple[list[PulseHit], int, int]:
        """Return what is shown, best first, how many were found, and how many nodes it began at."""
        ask = self._ask
        semantic = by_meaning(self._store, ask.vector, ask.seeds, ask.semantic_threshold)
        lexical = by_words(self._store, ask.text, ask.seeds)
        strengths = {
            node: max(semantic.get(node, 0.0), lexical.get(node, 0.0)) for node in {**semantic, **lexical}
        }
        anchors = {node: strengths[node] for part in (semantic, lexical) for node in _best(part)}
        around = self.around(anchors)
        self._know([*strengths, *around])
        told: dict[str, dict[str, float]] = {}
        for name, part in (("semantic", semantic), ("lexical", lexical), ("graph", around)):
            for node, value in part.items():
                told.setdefault(node, {})[name] = min(1.0, value)
        stand_ins = self._folded(told)
        scored = [
            (-score, node)
            for node, found in told.items()
            if (score := self._score(node, found)) > ask.threshold
        ]
        scored.sort()
        shown = [self._hit(node, -score, stand_ins.get(node, ())) for score, node in scored[: ask.limit]]
        return shown, len(scored), len(strengths)

    def _folded(self, told: dict[str, dict[str, float]]) -> dict[str, tuple[str, ...]]:
        """Let consolidations take over what reached their suppressed sources."""
        stands_for: dict[str, tuple[str, ...]] = {}
        for _ in range(MAX_DEPTH):  # a consolidation may itself have been consolidated
            suppressed = [
                node
                for node in told
                if (fact := self._facts.get(node)) and fact.inhibited(self._now, self._curves) > 0
            ]
            summaries = self._surroundings.summaries(suppressed) if suppressed else {}
            if not summaries:
                break
            for source, summary in summaries.items():
                signals = told.setdefault(summary, {})
                for name, value in told.pop(source, {}).items():
                    signals[name] = max(value, signals.get(name, 0.0))
                stands_for[summary] = (*stands_for.get(summary, ()), source, *stands_for.pop(source, ()))
            self._know(told)
        return stands_for

    def _score(self, node: str, found: Mapping[str, float]) -> float:
        """Return the score of a node, and keep its signals; 0 if it is not to be shown."""
        fact, ask, now = self._facts.get(node), self._ask, self._now
        if fact is None or not fact.active or (ask.as_of is not None and fact.since > ask.as_of):
            return 0.0
        if fact.superseded_by is not None and not ask.include_superseded:
            return 0.0
        signals = self._signals[node] = {name: found.get(name, 0.0) for name in self._found_by}
        signals["recency"] = factor(now - fact.created_at, self._recency_ms)
        signals["usage"] = fact.usage(now, self._curves, lens=ask.context is not None)
        return composite(
            signals, self.weights, inhibition=fact.inhibited(now, self._curves), gamma=ask.gamma,
            confidence=1.0 if fact.confidence is None else fact.confidence, normalise=ask.normalise,
        )  # fmt: skip

    def _hit(self, node: str, score: float, stands_for: tuple[str, ...]) -> PulseHit:
        fact, signals = self._facts[node], self._signals[node]
        return PulseHit(
            id=node, score=score, kind=fact.kind, label=fact.label, signals=signals,
            shares=shares(signals, self.weights, normalise=self._ask.normalise), confidence=fact.confidence,
            source=fact.source, trust=cast(Trust, fact.trust), superseded_by=fact.superseded_by,
            inhibition=fact.inhibited(self._now, self._curves), stands_for=stands_for,
        )  # fmt: skip


def search(store: Store, ask: Ask, now: int) -> Pulse:
    """Search the memory. The answer is remembered for feedback as long as the graph is open."""
    running = _Search(store, ask, now)
    shown, found, seeds = running.hits()
    name = store.ids.next("R")
    store.projection.retrievals.remember(
        Retrieval(
            name,
            now,
            ask.scope,
            ask.text or "",
            tuple(Shown(hit.id, hit.score, hit.signals) for hit in shown),
        )
    )
    return Pulse(
        retrieval_id=name, at=now, scope=ask.scope, weights=running.weights, hits=tuple(shown), found=found,
        seeds=seeds, truncated=running.truncated,
    )  # fmt: skip


def warmed(store: Store, seeds: Mapping[str, float], ask: Ask) -> Spread:
    """Return what some nodes warm up, by edges alone. Nothing is remembered of it."""
    running = _Search(store, ask, store.now())
    found = sorted(running.around(seeds).items(), key=lambda item: (-item[1], item[0]))
    return Spread(reached=dict(found[: ask.limit]), found=len(found), truncated=running.truncated)
