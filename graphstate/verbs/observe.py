"""Observation: history, news, counts, a picture in text and diagrams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from graphstate.errors import Misuse, shown
from graphstate.events import GRAPH, Row
from graphstate.model import Changes, HistoryEntry, Metrics
from graphstate.store import Subscription
from graphstate.store.stored import stored_json
from graphstate.verbs import arguments
from graphstate.verbs.fsm import moving_actor
from graphstate.verbs.intuition import Intuition
from graphstate.verbs.soundness import violations
from graphstate.verbs.verb import Verbs, query

if TYPE_CHECKING:
    from graphstate.diagrams import Arrow, Box

__all__ = ("Observation", "ready_now")

_MAX_SEQ = 2**53


def _entry(row: Row) -> HistoryEntry:
    from graphstate.rendering import summary

    body = stored_json(row.body)
    return HistoryEntry(
        seq=row.seq, at=row.at, type=row.type, summary=summary(row.type, body), actor=row.actor, payload=body
    )


def _parts(graph: Verbs) -> tuple[list[Box], list[Arrow], list[tuple[str, Sequence[str]]]]:
    """What diagrams are made of; a node of several zones is drawn in the smallest."""
    from graphstate.diagrams import Arrow, Box

    projection = graph.store.projection
    zones = sorted(projection.policies.zones(), key=lambda zone: len(zone.members))
    return (
        [Box(*row) for row in projection.node_labels()],
        [Arrow(*row) for row in projection.edge_labels()],
        [(zone.name, zone.members) for zone in zones],
    )


class Observation(Verbs):
    """history, changes, subscribe, metrics, render, diagrams, head."""

    __slots__ = ()

    @query
    def history(
        self,
        *,
        type: str | None = None,
        node: str | None = None,
        edge: str | None = None,
        actor: str | None = None,
        from_seq: int = 1,
        limit: int | None = None,
    ) -> list[HistoryEntry]:
        """Return the newest events that meet every condition, oldest first.

        Without a condition the cost is the limit; a condition that few events meet reads back
        through the whole log.

        Args:
            type: Events of this type.
            node, edge: Events about this node or edge.
            actor: Events by this actor.
            from_seq: Events from this one on.
            limit: 0 to 1,000, default 100.

        Raises:
            VerbFailed: InvalidInput.
        """
        most = arguments.limit(limit, 100)
        first = arguments.whole(from_seq, "from_seq", least=1, most=_MAX_SEQ)
        words = {"type": type, "node": node, "edge": edge, "actor": actor}
        filters = {
            key: None if value is None else arguments.text(value, key, arguments.MAX_NAME)
            for key, value in words.items()
        }
        rows = self.store.log.recent(GRAPH, from_seq=first, limit=most, **filters)
        return [_entry(row) for row in rows]

    @query
    def changes(self, *, after: int = 0, cuts: int | None = None, limit: int | None = None) -> Changes:
        """Return the events behind one, oldest first: what is new to somebody who read up to there.

        The answer holds what to ask with the next time. After a rollback numbers are given
        again; who hands in ``cuts`` is told of that and gets the events from there on.

        Args:
            after: The last event that is known; 0 for none.
            cuts: `Changes.cuts` of the answer before; None ignores rollbacks.
            limit: 0 to 1,000, default 100.

        Raises:
            VerbFailed: InvalidInput.
        """
        known = arguments.whole(after, "after", least=0, most=_MAX_SEQ)
        most = arguments.limit(limit, 100)
        seen = None if cuts is None else arguments.whole(cuts, "cuts", least=0, most=_MAX_SEQ)
        log = self.store.log
        newest, back = log.cuts_after(GRAPH, 0 if seen is None else seen)
        if seen is None or back is None or back >= known:
            back = None
        else:
            known = back
        events = [_entry(row) for row in islice(log.read(GRAPH, after=known), most)]
        return Changes(
            events=tuple(events), seq=events[-1].seq if events else known, cuts=newest, back_to=back
        )

    def subscribe(
        self: Verbs,
        fn: Callable[[HistoryEntry], object],
        *,
        after: int | None = None,
        on_rollback: Callable[[int], object] | None = None,
    ) -> Subscription:
        """Let a function be told of every committed event, once and in the order of the log.

        It is called after the commit, outside of any transaction, in the thread that commits or
        polls; one call at a time for the whole store. It may call verbs: what they commit is told
        after what is being told. Events of other processes are told with the next own commit or
        `Subscription.poll`, each in its place. Up to 1,000 events are told at once, the rest the
        next time. Events of a unit come when it has committed, those of a failed one never.

        If the function raises, the commit stands, other subscribers are told, and the
        subscription ends; the next `poll` or `close` raises `SubscriberFailed` once.

        Args:
            fn: Called with each event.
            after: Begin behind this event, with the next commit or poll; None begins at the end.
            on_rollback: Called with the event a rollback led back to, if later ones had been told.
                Events that follow take their numbers.

        Raises:
            Misuse: It is no function, or 64 subscriptions are open.
            VerbFailed: InvalidInput.
        """
        for function in (fn, on_rollback):
            if function is not None and not callable(function):
                raise Misuse(f"a function is needed to subscribe, not {shown(function)}")
        behind = None if after is None else arguments.whole(after, "after", least=0, most=_MAX_SEQ)
        return self.store.feed.add(self.store, lambda row: fn(_entry(row)), on_rollback, behind)

    subscribe.__dict__["verb"] = "reads"

    @query
    def metrics(self) -> Metrics:
        """Return counts of the whole graph; one pass over nodes, edges and statistics."""
        projection, head = self.store.projection, self.store.log.head(GRAPH)
        by_status, by_kind = projection.counts()
        blocks, softs, mean, hot = projection.stat_summary()
        nodes: Mapping[str, Any] = {"total": sum(by_status.values())} | {
            status: by_status.get(status, 0) for status in ("active", "archived", "deprecated")
        }
        return Metrics(
            nodes=nodes,
            edges={"transition": 0, "dependency": 0} | by_kind,
            events=head.seq,
            hot_transitions=tuple(hot),
            blocks=blocks,
            soft_violations=softs,
            mean_reward=mean,
            estimated_replay_cost=head.seq - projection.mark("snapshot"),
            fts_enabled=self.store.full_text,
            durability=self.store.durability,
            cuts=projection.mark("cut"),
        )

    @query
    def render(self, *, actor: str | None = None) -> str:
        """Return a picture in text: cursor, ranked moves, what is ready, the last rewards, violations.

        Ready are the nodes whose prerequisites have all been visited, less the visited ones.
        """
        from graphstate.rendering import picture

        projection, log = self.store.projection, self.store.log
        return picture(
            projection.cursor(moving_actor(self, actor)).nodes,
            Intuition.suggest(self, actor=actor),
            ready_now(self),
            projection.rewards(),
            len(violations(self)),
            log.head(GRAPH).seq,
        )

    @query
    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, pure ASCII.

        Nodes are named n1, n2, … in the order in which they were made and carry their label, or
        their id if that is empty. Nodes that are not active are shown, dashed, where an edge joins
        them to an active one. Zones are frames; a node of several is drawn in the smallest. Cost:
        one pass over nodes and edges.
        """
        from graphstate import diagrams

        return diagrams.mermaid(*_parts(self))

    @query
    def to_dot(self) -> str:
        """Return the graph as a digraph for Graphviz, in UTF-8; it shows what `to_mermaid` shows."""
        from graphstate import diagrams

        return diagrams.dot(*_parts(self))

    @query
    def head(self) -> str:
        """Return the end of the graph's log as ``seq:hash``, short enough to keep elsewhere."""
        return str(self.store.log.head(GRAPH))


def ready_now(graph: Verbs) -> list[str]:
    """Return the nodes whose prerequisites have all been visited, less the visited ones."""
    projection = graph.store.projection
    return projection.ready(projection.visited())
