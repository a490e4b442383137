"""Evolution: what experience suggests to change, and the safe part of it applied.

Nothing here deletes a node or what an edge learned. A node that is set aside keeps its edges,
which sleep until `set_status(id, "active")`; the prior of an edge is the author's alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from graphstate import scoring
from graphstate.errors import ErrorCode
from graphstate.events import GRAPH, Draft
from graphstate.model import (
    Collected,
    Iteration,
    Node,
    Proposal,
    Reweighted,
    to_json,
)
from graphstate.results import Ok, Result
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.durability import Durability
from graphstate.verbs.reshaping import hardening, node_body, the_node
from graphstate.verbs.soundness import key, violations
from graphstate.verbs.verb import Verbs, query, synced_verb, verb

__all__ = ("Evolution",)

#: Events that a node must have been left alone before `self_iterate` sets it aside.
SETTLED = 200

#: Edges that one event reweights: with the longest ids it stays below the limit of an event.
_AT_ONCE = 4_000

#: Checkpoints of `self_iterate` that are kept.
_KEPT = 3
_OWN_CHECKPOINT = re.compile(r"self-iterate-\d+")
_MOST_AGE = 2**53


class Evolution(Verbs):
    """optimize, reweight, self_iterate, gc, pin, unpin."""

    __slots__ = ()

    @query
    def optimize(self, *, min_age: int = 0) -> list[Proposal]:
        """Return the edits that experience suggests, the most certain first. Changes nothing.

        Nodes are dead that are active states or tasks, were never visited or left, carry neither
        of the tags ``seed`` and ``pinned``, and to which nothing leads: no cursor of any actor,
        no visited node, no fact, over no kind of edge. While all cursors are empty none is.

        Args:
            min_age: Events that a dead node must have been left alone.

        Raises:
            VerbFailed: InvalidInput.
        """
        return _proposals(self, _age(min_age))

    @verb
    def reweight(self, *, actor: str | None = None, cause: str | None = None) -> Result[Reweighted]:
        """Let the learned weight of every transition edge follow its average reward.

        The learned weight becomes the prior times the average, at least -99 percent of the prior;
        the prior itself stays. Edges whose learned weight is right already are not touched, and
        if all are nothing is recorded.
        """
        weights = _weights(self)
        self.record(*_reweighting(weights), actor=actor, cause=cause)
        return Ok(Reweighted(reweighted=len(weights)))

    @verb
    def gc(
        self, *, min_age: int = 0, actor: str | None = None, cause: str | None = None
    ) -> Result[Collected]:
        """Set the dead nodes that `optimize` finds aside, as deprecated.

        Their edges are kept and sleep; ``set_status(id, "active")`` brings node and edges back.

        Args:
            min_age: Events that a node must have been left alone.
        """
        dead = [node for node, _ in _garbage(self, _age(min_age))]
        self.record(*_collecting(dead), actor=actor, cause=cause)
        return Ok(Collected(deprecated=tuple(dead), dormant_edges=self.store.survey().dormant(dead)))

    @synced_verb
    def self_iterate(
        self, *, min_age: int = SETTLED, actor: str | None = None, cause: str | None = None
    ) -> Result[Iteration]:
        """Learn once from experience, safely: reweight, then apply the safe proposals.

        Dead nodes are set aside, and guards that are violated too often harden as they would by
        themselves. If the edits bring about a violation that was not there before,
        nothing is kept and the answer is Conflict. If there is nothing to do, nothing is
        recorded. The state before is a checkpoint; the last three such checkpoints are kept.

        Args:
            min_age: Events that a node must have been left alone to be set aside.
        """
        before, weights = violations(self), _weights(self)
        chosen = [proposal for proposal in _proposals(self, _age(min_age)) if proposal.kind in _SAFE]
        if not weights and not chosen:
            return Ok(_iteration((), 0, None, len(before), len(before)))
        name = _own_checkpoint(self, actor, cause)
        applied = [draft for proposal in chosen for draft in _SAFE[proposal.kind](proposal)]
        self.record(*_reweighting(weights), *applied, actor=actor)
        after = violations(self)
        known_before = {key(violation) for violation in before}
        if fresh := [violation for violation in after if key(violation) not in known_before]:
            refuse(
                f"the edits would break the graph: {fresh[0].detail}"
                + (f", and {len(fresh) - 1} more" if len(fresh) > 1 else ""),
                ErrorCode.CONFLICT,
                violations=to_json(fresh),
                hint="nothing was kept: see optimize for the edits, and apply the harmless ones one by one",
            )
        return Ok(_iteration(tuple(chosen), len(weights), name, len(before), len(after)))

    @verb
    def pin(self, id: str, *, actor: str | None = None, cause: str | None = None) -> Result[Node]:
        """Keep a node, and what it is linked to, out of garbage collection: the tag ``pinned``."""
        return _tagged(self, id, True, actor, cause)

    @verb
    def unpin(self, id: str, *, actor: str | None = None, cause: str | None = None) -> Result[Node]:
        """Take the tag ``pinned`` from a node."""
        return _tagged(self, id, False, actor, cause)


# ------------------------------------------------------------------------------ proposals


def _age(value: object) -> int:
    return arguments.whole(value, "min_age", least=0, most=_MOST_AGE)


def _garbage(graph: Verbs, min_age: int) -> list[tuple[str, int]]:
    from graphstate import mining

    last = graph.store.log.head(GRAPH).seq - min_age
    return graph.store.survey().garbage(
        kinds=mining.COLLECTED_KINDS, pins=mining.PINS, changed_before=last
    )  # fmt: skip


def _proposals(graph: Verbs, min_age: int) -> list[Proposal]:
    from graphstate import mining

    survey = graph.store.survey()
    threshold = graph.store.projection.tunables()["escalationThreshold"]
    return mining.ranked(
        [
            *mining.dead_nodes(_garbage(graph, min_age), graph.store.log.head(GRAPH).seq),
            *mining.violated_edges(survey.violated_edges(threshold) if threshold else (), threshold),
            *mining.duplicate_edges(survey.duplicates()),
            *mining.blocked_nodes(survey.blocked()),
            *mining.losing_edges(survey.low_value(mining.LEAST_VISITS)),
            *mining.loose_zones(survey.zone_traffic(), threshold),
        ]
    )


def _collecting(nodes: Sequence[str]) -> list[Draft]:
    return [
        Draft("NodeStatusChanged", {"id": node, "status": "deprecated", "reason": "gc"}) for node in nodes
    ]


#: What `self_iterate` applies, and how. The others are for a person or a plan to decide.
_SAFE: Mapping[str, Callable[[Proposal], list[Draft]]] = {
    "gc-dead-node": lambda proposal: _collecting([proposal.target]),
    "promote-soft-to-hard": lambda proposal: hardening(proposal.target),
}


# ------------------------------------------------------------------------------ learning


def _weights(graph: Verbs) -> dict[str, float]:
    """Return the learned weights that are not what experience says now."""
    return {
        edge: learned
        for edge, prior, present, ema in graph.store.survey().learned()
        if (learned := scoring.learned(prior, ema)) != present
    }


def _reweighting(weights: Mapping[str, float]) -> list[Draft]:
    pairs = list(weights.items())
    return [
        Draft("EdgesReweighted", {"weights": dict(pairs[start : start + _AT_ONCE])})
        for start in range(0, len(pairs), _AT_ONCE)
    ]


def _own_checkpoint(graph: Verbs, actor: str | None, cause: str | None) -> str:
    """Name the present state, let go of the oldest of its kind, and return the name."""
    name = f"self-iterate-{graph.store.log.head(GRAPH).seq}"
    names = [checkpoint.name for checkpoint in Durability.list_checkpoints(graph)]
    for old in [known for known in names if _OWN_CHECKPOINT.fullmatch(known)][: 1 - _KEPT]:
        graph.store.snapshots.unmark(old)
    graph.store.because(cause)
    try:
        Durability.checkpoint(graph, name, actor=actor).unwrap()
    finally:
        graph.store.because(None)
    return name


def _iteration(
    applied: tuple[Proposal, ...], reweighted: int, checkpoint: str | None, before: int, after: int
) -> Iteration:
    return Iteration(
        applied=applied, reweighted=reweighted, checkpoint=checkpoint, valid=not after,
        violations_before=before, violations_after=after,
    )  # fmt: skip


# ------------------------------------------------------------------------------ pins


def _tagged(graph: Verbs, id: str, pinned: bool, actor: str | None, cause: str | None) -> Result[Node]:
    node = the_node(graph, id, "node")
    if ("pinned" in node.tags) == pinned:
        return Ok(node)
    tags = [*node.tags, "pinned"] if pinned else [tag for tag in node.tags if tag != "pinned"]
    body = node_body(node, tags=arguments.tags(tags))
    graph.record(Draft("NodeUpserted", body), actor=actor, cause=cause)
    return Ok(the_node(graph, node.id, "node"))
