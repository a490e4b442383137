"""Observation: history, counts and a picture in text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphstate._canonical import decode
from graphstate.events import GRAPH
from graphstate.model import HistoryEntry, Metrics
from graphstate.rendering import picture, summary
from graphstate.verbs import arguments
from graphstate.verbs.fsm import moving_actor
from graphstate.verbs.intuition import Intuition
from graphstate.verbs.verb import Verbs, query

__all__ = ("Observation",)


class Observation(Verbs):
    """history, metrics, render, head."""

    __slots__ = ()

    @query
    def history(
        self,
        *,
        type: str | None = None,
        node: str | None = None,
        edge: str | None = None,
        from_seq: int = 1,
        limit: int | None = None,
    ) -> list[HistoryEntry]:
        """Return the newest events that meet every condition, oldest first.

        Args:
            node, edge: Events about this node or edge.
            limit: 0 to 1,000, default 100.

        Raises:
            VerbFailed: InvalidInput.
        """
        most = arguments.limit(limit, 100)
        first = arguments.whole(from_seq, "from_seq", least=1, most=2**53)
        words = {"type": type, "node": node, "edge": edge}
        filters = {
            key: None if value is None else arguments.text(value, key, arguments.MAX_NAME)
            for key, value in words.items()
        }
        rows = self.store.log.recent(GRAPH, from_seq=first, limit=most, **filters)
        entries: list[HistoryEntry] = []
        for row in rows:
            body = decode(row.body)
            entries.append(
                HistoryEntry(
                    seq=row.seq, at=row.at, type=row.type, summary=summary(row.type, body),
                    actor=row.actor, payload=body,
                )
            )  # fmt: skip
        return entries

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
        """Return a picture in text: cursor, ranked moves, what is ready, the last rewards.

        Ready are the nodes whose prerequisites have all been visited, less the visited ones.
        """
        projection, log = self.store.projection, self.store.log
        return picture(
            projection.cursor(moving_actor(self, actor)).nodes,
            Intuition.suggest(self, actor=actor),
            projection.ready(projection.visited()),
            projection.rewards(),
            log.head(GRAPH).seq,
        )

    @query
    def head(self) -> str:
        """Return the end of the graph's log as ``seq:hash``, short enough to keep elsewhere."""
        return str(self.store.log.head(GRAPH))
