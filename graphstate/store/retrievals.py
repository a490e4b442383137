"""What searches showed, what was said about it, and the weights that learned from it.

Verdicts and weights are folded from the stream ``graph``: a part of the projection. The table
``retrieval`` is not: it remembers the newest searches that asked for it, so that a verdict need
not repeat the signals and `explain` can tell when a memory was shown. Losing it loses no truth,
for an event carries the signals it teaches by.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import NamedTuple

from msgspec import Struct, structs

from graphstate._canonical import Json, encode_text
from graphstate.activation.composite import DEFAULT_WEIGHTS, taught
from graphstate.activation.record import Activation
from graphstate.events import Row
from graphstate.store.activation import Activations, event_time
from graphstate.store.db import Database
from graphstate.store.stored import as_stored, stored_json

__all__ = ("GLOBAL", "KEPT", "Retrieval", "Retrievals", "Showing", "Shown")

#: The scope whose weights hold where a scope has none of its own.
GLOBAL = "global"

#: Searches that the table remembers.
KEPT = 1_000

# Searches of this open graph that are remembered without the table.
_RECENT = 64

# Libraries of mathematics differ in the last bits; every machine shall fold the same weights.
_DIGITS = 12

_WEIGHTS = "SELECT signal, weight FROM signal_weight WHERE scope = ?"
_SCOPES = "SELECT DISTINCT scope FROM signal_weight ORDER BY scope"
_PUT_WEIGHT = "INSERT OR REPLACE INTO signal_weight VALUES (?, ?, ?)"
_PUT_VERDICT = "INSERT OR IGNORE INTO verdict VALUES (?, ?, ?)"
_VERDICT = "SELECT useful FROM verdict WHERE retrieval = ? AND node = ?"
_PUT = "INSERT INTO retrieval VALUES (NULL, ?, ?, ?)"
_PRUNE = "DELETE FROM retrieval WHERE no <= (SELECT max(no) FROM retrieval) - ?"
_GET = "SELECT id, at, told FROM retrieval WHERE id = ?"
_SHOWING = """SELECT r.id, r.at, s.key + 1, s.value ->> '$.score', s.value ->> '$.signals', v.useful
FROM retrieval r, json_each(r.told, '$.hits') s LEFT JOIN verdict v ON v.retrieval = r.id AND v.node = ?1
WHERE s.value ->> '$.id' = ?1 ORDER BY r.no DESC LIMIT ?2"""


class Shown(Struct, frozen=True):
    """One memory that a search showed."""

    id: str
    score: float
    signals: Mapping[str, float]


class Retrieval(Struct, frozen=True):
    """One search and what it showed, best first."""

    id: str
    at: int
    scope: str
    #: the text that was searched for, empty for a vector
    query: str
    hits: tuple[Shown, ...]

    def before(self, node: str) -> dict[str, float]:
        """Return the mean signals of what was ranked before a memory, nothing if it was the first."""
        ahead = [hit.signals for hit in takewhile(lambda hit: hit.id != node, self.hits)]
        names = ahead[0] if ahead else ()
        return {name: math.fsum(signals.get(name, 0.0) for signals in ahead) / len(ahead) for name in names}


class Showing(NamedTuple):
    """That a search showed a certain memory."""

    retrieval: str
    at: int
    place: int
    score: float
    signals: Mapping[str, float]
    #: what was said about it, None if nothing was
    useful: bool | None


class Retrievals:
    """The tables of one database about searches."""

    def __init__(
        self, db: Database, activations: Activations, tunables: Callable[[], Mapping[str, Json]]
    ) -> None:
        self._db, self._activations, self._tunables = db, activations, tunables
        self.folds: Mapping[str, Callable[[Row, dict[str, Json]], None]] = {
            "memory.feedback": self._feedback,
            "memory.weights_set": self._weights_set,
        }
        self._recent: OrderedDict[str, Retrieval] = OrderedDict()
        self.forget()

    def forget(self) -> None:
        """Drop what is remembered of the tables. What this graph showed lately stays."""
        self._weights: dict[str, Mapping[str, float]] = {}

    # ------------------------------------------------------------------ folding

    def _feedback(self, row: Row, body: dict[str, Json]) -> None:
        # A verdict that came twice, as it may from a branch, teaches once.
        if self.verdict(body["retrieval_id"], body["id"]) is not None:
            return
        self._db.run(_PUT_VERDICT, (body["retrieval_id"], body["id"], int(body["useful"])))
        scope, signals = body["scope"], body["signals"]
        weights = taught(
            body["rule"], self.weights(scope), signals, useful=body["useful"], rate=body["lr"],
            others=body.get("others"),
        )  # fmt: skip
        self._put_weights(scope, {name: weights[name] for name in signals if name in weights})
        self._count(body["id"], useful=body["useful"], at=event_time(row, body))

    def _count(self, node: str, *, useful: bool, at: int) -> None:
        found = self._activations.find(node, contexts=False)
        if found is not None:
            record = found.record if found.recorded else Activation(anchor=at)
            counted = structs.replace(
                record, useful=record.useful + useful, harmful=record.harmful + (not useful)
            )
            self._activations.put(found, counted)

    def _weights_set(self, row: Row, body: dict[str, Json]) -> None:
        self._put_weights(body["scope"], body["weights"])

    def _put_weights(self, scope: str, weights: Mapping[str, float]) -> None:
        rows = [(scope, signal, round(float(weight), _DIGITS)) for signal, weight in sorted(weights.items())]
        self._db.many(_PUT_WEIGHT, rows)
        self._weights.pop(scope, None)

    # ------------------------------------------------------------------ reading

    def weights(self, scope: str) -> Mapping[str, float]:
        """Return the weights of a scope: its own, else those of ``global``, else the settings."""
        own = {} if scope == GLOBAL else self._own(scope)
        return {**DEFAULT_WEIGHTS, **self._tunables()["signalWeights"], **self._own(GLOBAL), **own}

    def _own(self, scope: str) -> Mapping[str, float]:
        found = self._weights.get(scope)
        if found is None:
            found = self._weights[scope] = dict(self._db.all(_WEIGHTS, (scope,)))
        return found

    def scopes(self) -> list[str]:
        """Return the scopes that have weights of their own."""
        return [scope for (scope,) in self._db.all(_SCOPES)]

    def verdict(self, retrieval: str, node: str) -> bool | None:
        """Return what was said about a memory that a search showed, None if nothing was."""
        row = self._db.one(_VERDICT, (retrieval, node))
        return None if row is None else bool(row[0])

    # ------------------------------------------------------------------ the side table

    def remember(self, retrieval: Retrieval) -> None:
        """Remember a search as long as this graph is open, at most the newest 64."""
        self._recent[retrieval.id] = retrieval
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def keep(self, id: str) -> None:
        """Write a search that is remembered to the file, where the newest 1,000 stay."""
        retrieval = self._recent[id]
        told = {
            "query": retrieval.query,
            "scope": retrieval.scope,
            "hits": [
                {"id": hit.id, "score": hit.score, "signals": dict(hit.signals)} for hit in retrieval.hits
            ],
        }
        self._db.run(_PUT, (retrieval.id, retrieval.at, encode_text(told)))
        self._db.run(_PRUNE, (KEPT,))

    def get(self, id: str) -> Retrieval | None:
        """Return a search that is still remembered, here or in the file."""
        recent = self._recent.get(id)
        if recent is not None:
            return recent
        row = self._db.one(_GET, (id,))
        if row is None:
            return None
        with as_stored(f"the search {id}"):
            told = stored_json(row[2])
            hits = tuple(Shown(hit["id"], hit["score"], hit["signals"]) for hit in told["hits"])
            return Retrieval(row[0], row[1], told["scope"], told["query"], hits)

    def showings(self, node: str, limit: int) -> list[Showing]:
        """Return the newest searches in the file that showed a memory, newest first."""
        return [
            Showing(search, at, place, score, stored_json(signals), None if useful is None else bool(useful))
            for search, at, place, score, signals, useful in self._db.all(_SHOWING, (node, limit))
        ]
