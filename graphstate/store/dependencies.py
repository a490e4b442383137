"""Which dependencies there are, and whether one more would close a circle.

A question is answered from the tables by a search from both ends: an edge at the rim of a large
graph costs a few look-ups, and a process that adds one edge reads nothing else. Once these
look-ups have cost about as much as reading every dependency, an order of them is kept in memory
and follows the events until it is forgotten.
"""

from __future__ import annotations

from graphstate.algorithms import find_path
from graphstate.model import Edge
from graphstate.ordering import Ordering
from graphstate.store.db import Database

__all__ = ("Dependencies",)

KIND = "dependency"

# Look-ups before the question is asked, and how many edges a scan reads in the time of one.
_FIRST_LOOKUPS = 64
_EDGES_A_LOOKUP = 4

_OUT = "SELECT dst FROM edge WHERE src = ? AND kind = ? ORDER BY no"
_IN = "SELECT src FROM edge WHERE dst = ? AND kind = ? ORDER BY no"
_ALL = "SELECT src, dst FROM edge WHERE kind = ? ORDER BY no"
_HIGHEST = "SELECT coalesce(max(no), 0) FROM edge"


class Dependencies:
    """Edges of all kinds by their ends, and the order of one kind."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.forget()

    def forget(self) -> None:
        """Drop what is remembered of the tables."""
        self._ordering: Ordering | None = None
        self._lookups, self._bound = 0, _FIRST_LOOKUPS
        self._round = False

    @property
    def ordering(self) -> Ordering | None:
        """The order in memory; None while questions are answered from the tables."""
        return self._ordering

    def out_ids(self, node: str, kind: str) -> list[str]:
        """Return where the edges of a kind lead from a node."""
        return [dst for (dst,) in self._db.all(_OUT, (node, kind))]

    def in_ids(self, node: str, kind: str) -> list[str]:
        """Return where the edges of a kind come from."""
        return [src for (src,) in self._db.all(_IN, (node, kind))]

    def edges(self, kind: str) -> list[tuple[str, str]]:
        """Return (src, dst) of all edges of a kind."""
        return self._db.all(_ALL, (kind,))

    def path(self, start: str, goal: str, *, without: Edge | None = None) -> list[str] | None:
        """Return the nodes of a path along dependencies, None if there is none.

        Args:
            without: An edge that does not count.
        """
        if without is not None and without.kind == KIND:
            return self._search(start, goal, (without.src, without.dst))
        if self._ordering is None and self._lookups > self._bound and not self._round:
            self._load_if_due()
        if self._ordering is None:
            return self._search(start, goal, None)
        return self._ordering.path(start, goal)

    def _load_if_due(self) -> None:
        (highest,) = self._db.one(_HIGHEST) or (0,)
        self._bound = highest // _EDGES_A_LOOKUP
        if self._lookups > self._bound:
            self.load()

    def load(self) -> None:
        """Read every dependency and keep an order of them, if there is one."""
        self._ordering = Ordering.of(self.edges(KIND))
        self._round = self._ordering is None

    def _search(self, start: str, goal: str, without: tuple[str, str] | None) -> list[str] | None:
        def ahead(node: str) -> list[str]:
            self._lookups += 1
            others = self.out_ids(node, KIND)
            if without is not None and node == without[0]:
                others.remove(without[1])
            return others

        def behind(node: str) -> list[str]:
            self._lookups += 1
            others = self.in_ids(node, KIND)
            if without is not None and node == without[1]:
                others.remove(without[0])
            return others

        return find_path(start, goal, ahead, behind)

    def added(self, src: str, dst: str, kind: str) -> None:
        """Follow an edge that was added."""
        if kind == KIND and self._ordering is not None and not self._ordering.add(src, dst):
            self._ordering, self._round = None, True

    def removed(self, src: str, dst: str, kind: str) -> None:
        """Follow an edge that was removed."""
        if kind != KIND:
            return
        self._round = False
        if self._ordering is not None:
            self._ordering.remove(src, dst)
