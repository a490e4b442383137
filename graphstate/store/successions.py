"""Which node took the place of which, and of which ones one was made.

Both are edges of kind reference: from a node to its successor (``superseded_by``), and from a
node to each one it was made of (``consolidated_from``). A part of the projection, as its neighbour
`activation`. A node is superseded as long as such an edge leaves it, whoever drew it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from graphstate._canonical import Json, encode_text
from graphstate.activation.record import MAX_LENSES, Activation, Lens
from graphstate.events import Row
from graphstate.policy import lowest
from graphstate.store.activation import SUPERSEDED_BY, Activations, Found, event_time
from graphstate.store.db import Database
from graphstate.store.stored import as_stored, stored_json

__all__ = ("CONSOLIDATED_FROM", "INHERITED", "MOST_INHERITED", "Successions")

CONSOLIDATED_FROM = "consolidated_from"

#: Share of its predecessor's worth that a node has at least.
INHERITED = 0.5

#: What the sources of a node together give it at most.
MOST_INHERITED = 0.9

_OUT = "SELECT dst FROM edge WHERE src = ? AND kind = 'reference' AND label = ? ORDER BY no"
_IN = "SELECT src FROM edge WHERE dst = ? AND kind = 'reference' AND label = ? ORDER BY no"
_EDGES_OUT = "SELECT id, dst FROM edge WHERE src = ? AND kind = 'reference' AND label = ? ORDER BY no"
_AT_PUT = "INSERT OR REPLACE INTO succession SELECT no, ? FROM edge WHERE id = ?"
_AT_DROP = "DELETE FROM succession WHERE no = ?"
_TRUSTS = "SELECT trust FROM node WHERE id IN (SELECT value FROM json_each(?))"
_TRUST_PUT = "UPDATE node SET trust = ? WHERE id = ?"
_MADE_OF = "SELECT derived_from FROM provenance WHERE no = ?"
# Of a node of which nothing else is known a row is made.
_DERIVED_PUT = """INSERT INTO provenance VALUES (?1, NULL, NULL, NULL, NULL, ?2, NULL, '[]')
ON CONFLICT DO UPDATE SET derived_from = ?2"""
_SUPERSEDES_PUT = """INSERT INTO provenance VALUES (?1, NULL, NULL, NULL, NULL, '[]', ?2, '[]')
ON CONFLICT DO UPDATE SET supersedes = ?2"""
_SUPERSEDES_DROP = """UPDATE provenance SET supersedes = NULL
WHERE no = (SELECT no FROM node WHERE id = ?) AND supersedes = ?"""
_VALID_TO = f"""SELECT min(coalesce(p.observed_at, s.at, d.created_at)) FROM edge e JOIN node d ON d.id = e.dst
LEFT JOIN succession s ON s.no = e.no LEFT JOIN provenance p ON p.no = d.no
WHERE e.src = ? AND e.kind = 'reference' AND e.label = '{SUPERSEDED_BY}'"""


class Successions:
    """Supersession and consolidation of one database.

    Args:
        put_edge: Folds an edge as the event ``EdgeUpserted`` would.
    """

    def __init__(
        self, db: Database, activations: Activations, put_edge: Callable[[Row, dict[str, Json]], None]
    ) -> None:
        self._db, self._activations, self._put_edge = db, activations, put_edge
        self.folds: Mapping[str, Callable[[Row, dict[str, Json]], None]] = {
            "memory.superseded": self._superseded,
            "memory.consolidated": self._consolidated,
        }

    # ------------------------------------------------------------------ folding

    def _superseded(self, row: Row, body: dict[str, Json]) -> None:
        new, old, at = body["new"], body["old"], event_time(row, body)
        predecessor, successor = self._activations.find(old), self._activations.find(new)
        if predecessor is None or successor is None:
            return
        if predecessor.recorded:
            score = INHERITED * predecessor.record.effective(at, predecessor.half_lives)
            self._inherit(successor, Activation(score=score, anchor=at), at)
        self._link(row, body["edgeId"], old, new, SUPERSEDED_BY)
        self._db.run(_AT_PUT, (at, body["edgeId"]))
        self._db.run(_SUPERSEDES_PUT, (successor.no, old))

    def _consolidated(self, row: Row, body: dict[str, Json]) -> None:
        node, edges, at = body["id"], body["edges"], event_time(row, body)
        made = self._activations.find(node)
        sources = {found.id: found for found in self._activations.find_some(body["sources"])}
        if made is None:
            return
        present = [sources[source] for source in body["sources"] if source in sources]
        self._inherit(made, _combined(present, at), at)
        before = set(self.sources(node))
        for source, edge in zip(body["sources"], edges, strict=True):
            if source in sources and source not in before:
                self._link(row, edge, node, source, CONSOLIDATED_FROM)
                self._fade(sources[source], float(body["amount"]), at)
        self._derive(made.no, [found.id for found in present])
        levels = [level for (level,) in self._db.all(_TRUSTS, (encode_text([node, *sources]),))]
        self._db.run(_TRUST_PUT, (lowest(row.trust, *levels), node))

    def _inherit(self, found: Found, from_others: Activation, at: int) -> None:
        record = found.record if found.recorded else Activation(anchor=at)
        heir = record.merged(from_others, max(at, record.anchor), found.half_lives)
        self._activations.put(found, structs.replace(heir, reinforcement_count=record.reinforcement_count))

    def _fade(self, source: Found, amount: float, at: int) -> None:
        record = source.record if source.recorded else Activation(anchor=at)
        self._activations.put(source, record.suppressed(amount, at, source.half_lives))

    def _derive(self, no: int, sources: Sequence[str]) -> None:
        row = self._db.one(_MADE_OF, (no,))
        with as_stored("what a node was made of"):
            known = [] if row is None else list(stored_json(row[0]))
        self._db.run(_DERIVED_PUT, (no, encode_text([*dict.fromkeys([*known, *sources])])))

    def _link(self, row: Row, edge: str, src: str, dst: str, label: str) -> None:
        body: dict[str, Any] = {
            "id": edge, "src": src, "dst": dst, "kind": "reference", "label": label, "guard": None,
            "enforcement": None, "weight": 1,
        }  # fmt: skip
        self._put_edge(row, body)

    def edge_gone(self, no: int, src: str, dst: str, label: str) -> None:
        """Note that an edge was removed."""
        if label == SUPERSEDED_BY:
            self._db.run(_AT_DROP, (no,))
            self._db.run(_SUPERSEDES_DROP, (dst, src))
            self._activations.lane_changed(src)

    # ------------------------------------------------------------------ reading

    def successors(self, node: str) -> list[str]:
        """Return which nodes took a node's place, oldest first."""
        return [dst for (dst,) in self._db.all(_OUT, (node, SUPERSEDED_BY))]

    def predecessors(self, node: str) -> list[str]:
        """Return whose place a node took, oldest first."""
        return [src for (src,) in self._db.all(_IN, (node, SUPERSEDED_BY))]

    def edges_to_successors(self, node: str) -> list[tuple[str, str]]:
        """Return the edges to them, each with the node it leads to."""
        return self._db.all(_EDGES_OUT, (node, SUPERSEDED_BY))

    def path(self, src: str, dst: str) -> list[str] | None:
        """Return how one node was superseded by another in one or more steps, None if it was not."""
        came: dict[str, str] = {}
        frontier = [src]
        while frontier:
            node = frontier.pop()
            for successor in self.successors(node):
                if successor in came:
                    continue
                came[successor] = node
                if successor == dst:
                    path = [dst]
                    while path[-1] != src or len(path) == 1:
                        path.append(came[path[-1]])
                    return path[::-1]
                frontier.append(successor)
        return None

    def sources(self, node: str) -> list[str]:
        """Return the nodes that one was made of, in the order in which they were named."""
        return [dst for (dst,) in self._db.all(_OUT, (node, CONSOLIDATED_FROM))]

    def consolidations(self, node: str) -> list[str]:
        """Return the nodes that were made of one, oldest first."""
        return [src for (src,) in self._db.all(_IN, (node, CONSOLIDATED_FROM))]

    def valid_to(self, node: str) -> int | None:
        """Return when another node took a node's place, None if none did."""
        row = self._db.one(_VALID_TO, (node,))
        return None if row is None or row[0] is None else int(row[0])


def _combined(sources: Sequence[Found], at: int) -> Activation:
    """Return what the sources of a node give it: any of them being present makes it so."""
    absent, importance, contexts = 1.0, 0.0, dict[str, float]()
    for source in sources:
        if not source.recorded:
            continue
        view = source.record.decayed(at, source.half_lives)
        absent *= 1 - source.record.effective(at, source.half_lives)
        importance = max(importance, view.importance)
        for name, score in view.contexts.items():
            contexts[name] = max(contexts.get(name, 0.0), score)
    strongest = sorted(contexts, key=lambda name: (-contexts[name], name))[:MAX_LENSES]
    return Activation(
        score=min(MOST_INHERITED, 1 - absent), importance=importance, anchor=at,
        contexts={name: Lens(contexts[name], at) for name in strongest},
    )  # fmt: skip
