"""Recollection: what comes to mind for a question, and what belongs into a window now."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from operator import mul
from typing import Any, Concatenate, ParamSpec, TypeVar

from graphstate._canonical import Json, encode
from graphstate.activation.base_level import base_level, retention
from graphstate.activation.decay import clamp, factor
from graphstate.activation.embedding import node_text
from graphstate.activation.selection import SMALL, Choice, Selection, pool_size, select
from graphstate.activation.tokens import estimate_node
from graphstate.errors import StoreError
from graphstate.events import Draft
from graphstate.model import (
    Absorbed,
    ActivationState,
    Explanation,
    Likeness,
    Node,
    Pulse,
    PulseHit,
    Ranked,
    Recognition,
    Showing,
    Spread,
    Window,
    WindowItem,
)
from graphstate.results import Ok, Result
from graphstate.similarity import norm
from graphstate.store import Store
from graphstate.store.retrievals import GLOBAL, Retrieval, Shown
from graphstate.store.surroundings import Direction, Fact
from graphstate.store.words import words
from graphstate.verbs import arguments
from graphstate.verbs.activation import Activating, context_of, state_of
from graphstate.verbs.arguments import refuse
from graphstate.verbs.embedding import awaited_vector, query_vector
from graphstate.verbs.memory import known
from graphstate.verbs.pulsing import MAX_SEEDS, SUPPRESSED, Ask, asked, by_meaning, by_words, search, warmed
from graphstate.verbs.verb import Verbs, query, verb

__all__ = ("Recollection",)

P = ParamSpec("P")
Found = TypeVar("Found", Pulse, Window)

#: Memories that one `absorb` reinforces.
ABSORBED = 20

#: Searches that `explain` lists.
SHOWINGS = 10

#: From this likeness on two memories say the same.
SAME = 0.97

#: From this cosine, or this share of words in common, two memories are about the same.
ALIKE, ALIKE_WORDS = 0.6, 0.5

# Nodes that are compared with what is to be recognised, by meaning and by words.
_CANDIDATES = 50


def _searches(method: Callable[Concatenate[Any, P], Found]) -> Callable[Concatenate[Any, P], Found]:
    """Let a search find text that is new, and remember it in the file if it was given ``log=True``."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Found:
        if isinstance(args[0] if args else kwargs.get("query"), str):
            self.store.catch_up_text()
        found = method(self, *args, **kwargs)
        if kwargs.get("log") and not self.store.read_only:
            _keep(self.store, found.retrieval_id)
        return found

    return call


def _keep(store: Store, retrieval: str) -> None:
    try:
        store.begin()
    except StoreError:
        return  # somebody else is writing; this graph remembers the search all the same
    try:
        store.projection.retrievals.keep(retrieval)
    except BaseException:
        store.rollback()
        raise
    store.commit()


class Recollection(Verbs):
    """pulse, absorb, spread, working_memory, recognise, explain."""

    __slots__ = ()

    @_searches
    @query
    def pulse(
        self,
        query: str | Sequence[float],
        *,
        vector: Sequence[float] | None = None,
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
        log: bool = False,
    ) -> Pulse:
        """Search the memory, and return what was found, best first; equal scores by id.

        What resembles the query are the seeds; from them activation spreads over edges. A score is
        the weighted mean of the signals that the query can have: semantic, lexical, graph,
        recency, usage; times confidence, less inhibition where it has a weight. Of a
        superseded memory only its successor is found, of a suppressed source its consolidation,
        and nothing that is archived or deprecated. Nothing is reinforced by it. `apulse` does the same
        with an embedder that has to be awaited.

        Args:
            query: Text, which is searched for by words and, if the graph has an embedder, by
                meaning; or a vector.
            vector: The vector of the text, if the caller has it.
            limit: 0 to 1,000, default 20.
            scope: Whose weights: of an agent, a task, or of all.
            context: The usage in it instead of the usage everywhere.
            seeds: So many of each kind at most.
            semantic_threshold: What is not nearer than this is no seed.
            threshold: Scores must be above; default the tunable ``pulseThreshold``.
            depth: Edges a walk may have, 0 to 8; default the tunable ``spreadDepth``.
            decay: What one edge leaves; default the tunable ``spreadDecay``.
            fan_beta: How far neighbours share what they are passed: 0 not at all, 1 wholly.
            edge_types: Follow these alone: kinds of edges, and labels of references; or an object
                of a gain from 0 to 1 for each. Default all but ``consolidated_from``.
            direction: out, in or both.
            include_superseded: Show what was superseded too, and by what.
            as_of: Only what held at this time, in milliseconds.
            gamma: The power of the confidence; 0 ignores it.
            normalise: False makes a score the sum of the weighted signals.
            log: Remember the search in the file, if it can be written, for feedback later.

        Raises:
            VerbFailed: InvalidInput; EmbedderFailed or EmbeddingMismatch.
        """
        ask = _asked(
            self, query, vector, limit=limit, scope=scope, context=context, seeds=seeds,
            semantic_threshold=semantic_threshold, threshold=threshold, depth=depth, decay=decay,
            fan_beta=fan_beta, edge_types=edge_types, direction=direction,
            include_superseded=include_superseded, as_of=as_of, gamma=gamma, normalise=normalise,
        )  # fmt: skip
        return search(self.store, ask, self.store.now())

    async def apulse(self: Verbs, query: str, **options: Any) -> Pulse:
        """Do the same as `pulse` with an embedder that has to be awaited; the search itself is not.

        Raises:
            EmbedderError: The embedder failed.
            VerbFailed: As for `pulse`.
        """
        if self.embedder is not None and query:
            options["vector"] = await awaited_vector(self, query)
        return Recollection.pulse(self, query, **options)

    @verb
    def absorb(
        self,
        query: str | Sequence[float],
        *,
        vector: Sequence[float] | None = None,
        limit: int = ABSORBED,
        scope: str = GLOBAL,
        context: str | None = None,
        threshold: float | None = None,
        gain: float | None = None,
        min_match: float = 0.2,
        min_graph: float = 0.25,
        most: float = 1.0,
        habituate: bool = False,
        seeds: int = 50,
        semantic_threshold: float = 0.0,
        depth: int | None = None,
        decay: float | None = None,
        fan_beta: float = 0.5,
        edge_types: Iterable[str] | Mapping[str, float] | None = None,
        direction: Direction = "out",
        gamma: float = 1.0,
        normalise: bool = True,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Absorbed]:
        """Search the memory and reinforce what was found, each by ``gain`` times its score.

        Only what scores at least ``threshold``, resembles the query itself or is tied closely to
        what does, and is not suppressed. Scores are those before.

        Args:
            limit: Memories that are reinforced, the best first; 0 to 1,000.
            context: They are reinforced there too.
            threshold: Default the tunable ``absorbThreshold``.
            gain: Default the tunable ``absorbGain``.
            min_match: Enough of a semantic or lexical signal.
            min_graph: Or of a graph signal.
            most: What all of them are reinforced by together; beyond it each gets less.
            habituate: A memory gains less the more present it is, so that being found again and
                again does not make it ever more present.
            seeds: This and what follows as in `pulse`.
        """
        settings = self.store.projection.tunables()
        least = settings["absorbThreshold"] if threshold is None else arguments.number(threshold, "threshold")
        share = settings["absorbGain"] if gain is None else arguments.number(gain, "gain", least=0, most=1)
        bounds = [
            arguments.number(value, name, least=0)
            for value, name in ((min_match, "min_match"), (min_graph, "min_graph"), (most, "most"))
        ]
        ask = _asked(
            self, query, vector, limit=arguments.MAX_RESULTS, scope=scope, context=context, seeds=seeds,
            semantic_threshold=semantic_threshold, depth=depth, decay=decay, fan_beta=fan_beta,
            edge_types=edge_types, direction=direction, gamma=gamma, normalise=normalise,
        )  # fmt: skip
        if ask.text is not None:
            self.store.refresh_text()
        now = self.store.now()
        found = search(self.store, ask, now)
        chosen = [hit for hit in found.hits if hit.score >= least and _matches(hit, *bounds[:2])]
        amounts = {hit.id: clamp(share * hit.score) for hit in chosen[: arguments.limit(limit, ABSORBED)]}
        if habituate:
            amounts = _habituated(self.store, amounts, share, now)
        together = math.fsum(amounts.values())
        if together > bounds[2]:
            amounts = {node: amount * bounds[2] / together for node, amount in amounts.items()}
        where = {} if ask.context is None else {"context": ask.context}
        drafts = [
            Draft("memory.reinforced", {"id": node, "amount": amount, "at": now, "reason": "pulse", **where})
            for node, amount in amounts.items()
            if amount
        ]
        self.record(*drafts, actor=actor, cause=cause)
        return Ok(Absorbed(pulse=found, amounts=amounts))

    @query
    def spread(
        self,
        seeds: Iterable[str] | Mapping[str, float],
        *,
        limit: int | None = None,
        depth: int | None = None,
        decay: float | None = None,
        fan_beta: float = 0.5,
        edge_types: Iterable[str] | Mapping[str, float] | None = None,
        direction: Direction = "out",
    ) -> Spread:
        """Return what some nodes warm up around them, summed over all ways there.

        A seed that is no node warms nothing up. What is suppressed or superseded is reached and
        passes nothing on, but to its successor. Nothing is remembered or reinforced.

        Args:
            seeds: Ids, or an object of a strength from 0 to 1 for each; at most 1,000.
            limit: The warmest so many, 0 to 1,000, default 20.
            depth: Edges a way may have, 0 to 8; default the tunable ``spreadDepth``.
            decay: This and what follows as in `pulse`.

        Raises:
            VerbFailed: InvalidInput.
        """
        strengths = seeds.values() if isinstance(seeds, Mapping) else None
        ids = arguments.identifiers(seeds, "seeds")
        if len(ids) > MAX_SEEDS:
            refuse(f"{len(ids)} seeds, more than the {MAX_SEEDS} allowed")
        ask = asked(
            self.store, "", limit=limit, depth=depth, decay=decay, fan_beta=fan_beta, edge_types=edge_types,
            direction=direction,
        )  # fmt: skip
        given = [1.0] * len(ids) if strengths is None else strengths
        begins = {
            node: arguments.number(strength, f"the strength of {node}", least=0, most=1)
            for node, strength in zip(ids, given, strict=True)
            if self.store.projection.status(node) is not None
        }
        return warmed(self.store, begins, ask)

    @_searches
    @query
    def working_memory(
        self,
        *,
        limit: int | None = None,
        min_score: float = 0.0,
        scope: str = GLOBAL,
        context: str | None = None,
        context_fallback: bool = False,
        token_budget: float | None = None,
        cost_of: Callable[[Node], float] | None = None,
        diversity: float = 0.0,
        similarity_of: Callable[[Node, Node], float] | None = None,
        pinned: Sequence[str] = (),
        density: bool = False,
        include_superseded: bool = False,
        log: bool = False,
    ) -> Window:
        """Return the memories that belong into a context window now, and why each of them does.

        The most present ones first, or with ``diversity`` those that are present and unlike what
        was chosen before them. What does not fit the budget is skipped and reported, and the next
        one tried. Looks at all memories if there are at most 512, else at four for each place
        and at least 64.

        Args:
            limit: 0 to 1,000, default 10.
            min_score: Only what is more present than this.
            scope: Whose weights a verdict on the window moves. It is ranked without weights.
            context: As present as in this context.
            context_fallback: What was never seen in it counts as present as it is everywhere.
            token_budget: What all costs together may not exceed.
            cost_of: The tokens of a node; an estimate from its JSON if absent.
            diversity: 0 to 1.
            similarity_of: How alike two nodes are, -1 to 1; the cosine of their vectors if absent.
            pinned: These first, however present they are, as far as they fit.
            density: Prefer what is present for few tokens.
            include_superseded: Also memories whose place another one took.
            log: Remember the window in the file, if it can be written, for feedback later.

        Raises:
            VerbFailed: InvalidInput.
        """
        places, pins = arguments.limit(limit, 10), arguments.identifiers(pinned, "pinned")
        budget = None if token_budget is None else arguments.number(token_budget, "token_budget", least=0)
        share = arguments.number(diversity, "diversity", least=0, most=1)
        arguments.function(cost_of, "cost_of")
        arguments.function(similarity_of, "similarity_of")
        where, depth = context_of(context), places
        if budget is not None or share or density:
            most = self.store.projection.surroundings.present(SMALL + 1, where, fallback=context_fallback)
            depth = pool_size(places, most)
        present = _Present(self.store, where, context_fallback, arguments.name(scope, "scope"))
        ranked = Activating.top_activated(
            self, limit=min(arguments.MAX_RESULTS, depth + len(pins)), context=context,
            context_fallback=context_fallback, min_score=min_score, include_superseded=include_superseded,
        )  # fmt: skip
        scores = present.scores(ranked, pins)
        try:
            chosen = select(
                scores, limit=places, budget=budget, diversity=share, pinned=pins, density=density,
                ties={row.id: -float(place) for place, row in enumerate(ranked)},
                cost_of=lambda name: (cost_of or _tokens)(present.node(name)),
                similarity=present.likeness(scores, similarity_of) if share else _unlike,
            )  # fmt: skip
        except ValueError as error:
            refuse(str(error))
        return present.window(chosen)

    @query
    def recognise(
        self,
        payload: Json,
        *,
        kind: str | None = None,
        label: str = "",
        vector: Sequence[float] | None = None,
        same: float = SAME,
        limit: int | None = None,
    ) -> Recognition:
        """Say whether something is known already, and what it might contradict. Nothing changes.

        Known is what has the same payload, or a meaning as near as ``same``. What resembles it and
        says something else is listed, for the caller to decide whether it is outdated and to be
        superseded. Reads the index of words and of vectors, not the nodes.

        Args:
            payload: What would be remembered.
            kind: Only nodes of this kind.
            label: The label it would have; part of what a model is given.
            vector: Its vector; made by the graph's embedder if absent, and if there is one.
            same: A cosine from 0 to 1.
            limit: Nodes that are listed, 0 to 1,000, default 5.

        Raises:
            VerbFailed: InvalidInput; EmbedderFailed or EmbeddingMismatch.
        """
        content = arguments.json_bytes(payload, "payload")
        wanted = None if kind is None else arguments.name(kind, "kind")
        least, most = arguments.number(same, "same", least=0, most=1), arguments.limit(limit, 5)
        said = node_text("", arguments.text(label, "label", arguments.MAX_LABEL), payload)
        if vector is not None:
            vector = query_vector(self, None, vector)
        elif self.embedder is not None and said:
            vector = query_vector(self, arguments.shortened(said, arguments.MAX_SEARCH), None)
        meant = by_meaning(self.store, vector, _CANDIDATES, 0.0)
        own = set(words(said))
        worded = by_words(self.store, arguments.shortened(said, arguments.MAX_SEARCH), _CANDIDATES)
        nodes = [
            node
            for node in map(self.store.projection.node, {**meant, **worded})
            if node is not None and node.status == "active" and wanted in (None, node.kind)
        ]
        facts = self.store.projection.surroundings.facts(
            [node.id for node in nodes], context=None, as_of=None
        )
        nodes = sorted(
            (node for node in nodes if facts[node.id].superseded_by is None), key=lambda node: node.id
        )
        for node in nodes:
            if encode(node.payload) == content:
                return Recognition(known_as=node.id, by="content", similarity=1.0, resembles=())
        nearest = max(nodes, key=lambda node: meant.get(node.id, 0.0), default=None)
        likeness = 0.0 if nearest is None else meant.get(nearest.id, 0.0)
        if nearest is not None and likeness and likeness >= least:
            return Recognition(known_as=nearest.id, by="meaning", similarity=likeness, resembles=())
        alike = [_likeness(node, meant.get(node.id, 0.0), own) for node in nodes]
        found = sorted(
            (like for like in alike if like is not None), key=lambda like: (-like.similarity, like.id)
        )
        return Recognition(known_as=None, by=None, similarity=0.0, resembles=tuple(found[:most]))

    @query
    def explain(self, id: str) -> Explanation:
        """Return what a memory is worth now, where that comes from, and which searches showed it.

        Reads at most the newest 1,000 searches of the file.

        Raises:
            VerbFailed: InvalidInput, NotFound.
        """
        store = self.store
        node = store.projection.node(known(store, id))
        assert node is not None
        now = store.now()
        state, curves = state_of(store, node.id, now), store.projection.activations.curves
        half_lives = curves.half_lives(state.memory_class)
        successions = store.projection.successions
        return Explanation(
            state=state,
            score_half_life_ms=half_lives.score_ms,
            importance_half_life_ms=half_lives.importance_ms,
            retention=_retention(node, state, now),
            memory=node.memory,
            trust=node.trust,
            superseded_by=tuple(successions.successors(node.id)),
            valid_to=successions.valid_to(node.id),
            sources=tuple(successions.sources(node.id)),
            consolidated_into=tuple(successions.consolidations(node.id)),
            showings=tuple(
                Showing(
                    retrieval_id=shown.retrieval, at=shown.at, place=shown.place, score=shown.score,
                    signals=shown.signals, useful=shown.useful,
                )
                for shown in store.projection.retrievals.showings(node.id, SHOWINGS)
            ),
        )  # fmt: skip


# ------------------------------------------------------------------------------ the parts of it


def _asked(graph: Verbs, query: str | Sequence[float], vector: Sequence[float] | None, **options: Any) -> Ask:
    if not isinstance(query, str):
        query = query_vector(graph, None, query)
    elif vector is not None:
        vector = query_vector(graph, None, vector)
    elif graph.embedder is not None and query:
        vector = query_vector(graph, query, None)
    return asked(graph.store, query, vector, **options)


def _habituated(store: Store, amounts: Mapping[str, float], gain: float, now: int) -> dict[str, float]:
    # A score is what a memory gained and still has, so it tells how often that was lately.
    if not gain:
        return dict(amounts)
    facts = store.projection.surroundings.facts(amounts, context=None, as_of=None)
    curves = store.projection.activations.curves
    return {node: amount / (1 + facts[node].presence(now, curves) / gain) for node, amount in amounts.items()}


def _matches(hit: PulseHit, least: float, least_graph: float) -> bool:
    """Say whether a hit is close enough to the query to be reinforced by it."""
    signals = hit.signals
    match = max(signals.get("semantic", 0.0), signals.get("lexical", 0.0))
    return hit.inhibition < SUPPRESSED and (match >= least or signals["graph"] >= least_graph)


def _tokens(node: Node) -> float:
    return estimate_node(node.id, node.kind, node.payload, label=node.label)


def _unlike(one: str, other: str) -> float:
    return 0.0


def _likeness(node: Node, meant: float, own: Collection[str]) -> Likeness | None:
    """Return how a node resembles a text that it does not say, None if it is about something else."""
    if meant >= ALIKE:
        return Likeness(id=node.id, similarity=meant, by="meaning")
    theirs = set(words(node_text(node.id, node.label, node.payload)))
    both = theirs | set(own)
    shared = len(theirs.intersection(own)) / len(both) if both else 0.0
    return Likeness(id=node.id, similarity=shared, by="words") if shared >= ALIKE_WORDS else None


def _retention(node: Node, state: ActivationState, now: int) -> float:
    """Return how well it is kept if every use fades by a power of its age, and making it was one."""
    last = node.created_at if state.last_reinforced_at is None else state.last_reinforced_at
    level = base_level(
        1 + state.reinforcement_count, first_ms=now - min(node.created_at, last), last_ms=now - last
    )
    return retention(level)


class _Present:
    """What is present at one moment, as a window is put together from it."""

    def __init__(self, store: Store, context: str | None, fallback: bool, scope: str) -> None:
        self._store, self._context, self._fallback, self._scope = store, context, fallback, scope
        self._now = store.now()
        self._nodes: dict[str, Node] = {}

    def node(self, id: str) -> Node:
        if id not in self._nodes:
            found = self._store.projection.node(id)
            assert found is not None
            self._nodes[id] = found
        return self._nodes[id]

    def scores(self, ranked: Iterable[Ranked], pins: Iterable[str]) -> dict[str, float]:
        """Return how present each candidate is; pins need not be present at all."""
        scores = {row.id: row.effective for row in ranked}
        missing = [pin for pin in pins if pin not in scores]
        attention_ms = self._store.projection.tunables()["attentionHalfLifeMs"]
        for found in self._store.projection.activations.find_some(missing):
            scores[found.id] = found.record.effective(
                self._now, found.half_lives, context=self._context, fallback=self._fallback,
                attention=self._store.attention.of(found.id, self._now, attention_ms),
            )  # fmt: skip
        return scores

    def likeness(
        self, ids: Collection[str], similarity_of: Callable[[Node, Node], float] | None
    ) -> Callable[[str, str], float]:
        """Return how alike two candidates are."""
        if similarity_of is not None:
            return lambda one, other: similarity_of(self.node(one), self.node(other))
        vectors = self._store.projection.vectors.of_all(ids)
        lengths = {name: norm(vector) for name, vector in vectors.items()}

        def alike(one: str, other: str) -> float:
            both = lengths.get(one, 0.0) * lengths.get(other, 0.0)
            return sum(map(mul, vectors[one], vectors[other])) / both if both else 0.0

        return alike

    def window(self, chosen: Selection) -> Window:
        """Return what was chosen, with the reasons, and let it be known for feedback."""
        store, now = self._store, self._now
        looked = [choice.id for choice in (*chosen.chosen, *chosen.skipped)]
        facts = store.projection.surroundings.facts(looked, context=self._context, as_of=None)
        items, skipped = (
            tuple(self._item(choice, facts[choice.id]) for choice in choices)
            for choices in (chosen.chosen, chosen.skipped)
        )
        name, curves = store.ids.next("R"), store.projection.activations.curves
        recency_ms = store.projection.tunables()["recencyHalfLifeMs"]
        shown = tuple(
            Shown(
                item.id,
                item.effective,
                {
                    "recency": factor(now - facts[item.id].created_at, recency_ms),
                    "usage": facts[item.id].usage(now, curves, lens=self._context is not None),
                },
            )
            for item in items
        )
        store.projection.retrievals.remember(Retrieval(name, now, self._scope, "", shown))
        return Window(
            retrieval_id=name, at=now, items=items, skipped=skipped, budget_used=chosen.budget_used,
            looked_at=chosen.looked_at,
        )  # fmt: skip

    def _item(self, choice: Choice, fact: Fact) -> WindowItem:
        store, now = self._store, self._now
        curves, settings = store.projection.activations.curves, store.projection.tunables()
        return WindowItem(
            id=choice.id, effective=choice.score,
            base=fact.presence(now, curves, lens=self._context is not None, fallback=self._fallback),
            attention=store.attention.of(choice.id, now, settings["attentionHalfLifeMs"]),
            inhibition=fact.inhibited(now, curves), max_similarity=choice.max_similarity, value=choice.value,
            cost=choice.cost, decision=choice.decision, superseded=fact.superseded_by is not None,
            node=None if choice.decision == "too dear" else self.node(choice.id),
        )  # fmt: skip
