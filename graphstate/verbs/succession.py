"""Succession: a memory takes the place of another one, or is made of several.

Nothing is deleted and nothing has to fade: a node whose place was taken is left out of every rank
order as long as the edge ``superseded_by`` leaves it. Who contradicts whom is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphstate._canonical import Json
from graphstate.errors import ErrorCode
from graphstate.events import Draft, is_valid_id
from graphstate.model import Node, Superseded
from graphstate.results import Fail, Ok, Result
from graphstate.store import Store
from graphstate.verbs import arguments
from graphstate.verbs.activation import MAX_AMOUNT
from graphstate.verbs.arguments import refuse
from graphstate.verbs.memory import KEEP, Keep, Memory, known
from graphstate.verbs.provenance import MAX_REFERENCES
from graphstate.verbs.verb import Verbs, query, verb

__all__ = ("Succession", "refuse_circle")

_UNDO = "unsupersede one of them first"


class Succession(Verbs):
    """supersede, unsupersede, consolidate, expand."""

    __slots__ = ()

    @verb
    def supersede(
        self,
        new: str,
        old: str,
        *,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Superseded]:
        """Let a node take the place of another one, and return the edge between them.

        The old node stays, with what it is worth, and is ranked no more (`unsupersede` brings it
        back). It was valid up to the new one's ``observed_at``, or up to now. The new one has at
        least half its worth. Superseding again by the same node changes nothing.

        Args:
            reason: Kept in the event.
        """
        successor, predecessor = known(self.store, new), known(self.store, old)
        successions = self.store.projection.successions
        for edge, node in successions.edges_to_successors(predecessor):
            if node == successor:
                return Ok(_between(self, successor, predecessor, edge))
        refuse_circle(self.store, successor, predecessor)
        edge = self.store.ids.next("G")
        body: dict[str, Any] = {"new": successor, "old": predecessor, "edgeId": edge, "at": self.store.now()}
        body = arguments.with_reason(body, reason)
        self.record(Draft("memory.superseded", body), actor=actor, cause=cause)
        return Ok(_between(self, successor, predecessor, edge))

    @verb
    def unsupersede(
        self, old: str, *, by: str | None = None, reason: str | None = None, actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Node]:  # fmt: skip
        """Give a superseded node its place back, and return it. What others inherited they keep.

        Args:
            by: Only from this node; if absent from all that took its place.
            reason: Kept in the events.
        """
        node = known(self.store, old)
        taker = None if by is None else known(self.store, by)
        edges = [
            edge
            for edge, successor in self.store.projection.successions.edges_to_successors(node)
            if taker in (None, successor)
        ]
        if not edges:
            whom = "no node" if taker is None else repr(taker)
            refuse(f"{whom} has taken the place of {node!r}", ErrorCode.NOT_FOUND)
        drafts = [Draft("EdgeRemoved", arguments.with_reason({"id": edge}, reason)) for edge in edges]
        self.record(*drafts, actor=actor, cause=cause)
        return Ok(_node(self, node))

    @verb
    def consolidate(
        self,
        id: str,
        sources: Iterable[str],
        *,
        suppress: float = 0.6,
        kind: str | None = None,
        label: str | None = None,
        payload: Json | Keep = KEEP,
        tags: Sequence[str] | None = None,
        embedding: Sequence[float] | None = None,
        memory: Mapping[str, Json] | None = None,
        reason: str | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Node]:
        """Let one node stand for several, and return it.

        It is made if it does not exist, becomes about as present as all its sources together, and
        keeps what it had learned. The sources are held back and stay reachable by `expand`;
        those that are new are added to ``derived_from``. It is trusted no more than the least
        trusted source.

        Args:
            sources: The nodes it is made of: at least one, not itself.
            suppress: How much each new source is held back.
            kind, label, payload, tags, embedding, memory: As `remember` takes them.
            reason: Kept in the event.
        """
        made = arguments.identifier(id)
        named = list(dict.fromkeys(arguments.identifiers(sources, "sources")))
        if not 0 < len(named) <= MAX_REFERENCES:
            refuse(f"sources names {len(named)} nodes, it must name 1 to {MAX_REFERENCES}")
        if made in named:
            refuse(f"{made!r} cannot be made of itself")
        for source in named:
            known(self.store, source, "source")
        body: dict[str, Any] = {
            "id": made,
            "sources": named,
            "edges": [self.store.ids.next("G") for _ in named],
            "amount": arguments.number(suppress, "suppress", least=0, most=MAX_AMOUNT),
            "at": self.store.now(),
        }
        body = arguments.with_reason(body, reason)
        told: dict[str, Any] = {
            part: value
            for part, value in (
                ("kind", kind), ("label", label), ("tags", tags), ("embedding", embedding), ("memory", memory)
            )
            if value is not None
        }  # fmt: skip
        if not isinstance(payload, Keep):
            told["payload"] = payload
        if told or self.store.projection.status(made) is None:
            done = Memory.remember(self, made, actor=actor, **told)
            if isinstance(done, Fail):
                return done
        self.record(Draft("memory.consolidated", body), actor=actor, cause=cause)
        return Ok(_node(self, made))

    @query
    def expand(self, id: str) -> list[Node]:
        """Return the nodes that one was made of, in the order in which they were named."""
        if not is_valid_id(id):
            return []
        return [_node(self, source) for source in self.store.projection.successions.sources(id)]


def refuse_circle(store: Store, new: str, old: str) -> None:
    """Fail with CycleRejected if the new node was itself superseded by the old one."""
    successions = store.projection.successions
    path = [new] if new == old else successions.path(new, old)
    if path is not None:
        cycle = [old, *path]
        refuse(
            f"{new!r} cannot take the place of {old!r}: {' -> '.join(cycle)}", ErrorCode.CYCLE_REJECTED,
            cycle=cycle, hint=f"details.cycle is the path: {_UNDO}",
        )  # fmt: skip


def _between(graph: Verbs, new: str, old: str, edge: str) -> Superseded:
    valid_to = graph.store.projection.successions.valid_to(old)
    assert valid_to is not None
    return Superseded(new=new, old=old, edge_id=edge, valid_to=valid_to)


def _node(graph: Verbs, id: str) -> Node:
    node = graph.store.projection.node(id)
    assert node is not None
    return node
