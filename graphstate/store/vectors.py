"""Vectors of nodes: their table, of which model they are, and the search for the nearest.

All vectors of a graph are of one *space*: the model that made them and their number of
dimensions, fixed by the first one. When the model changes, every vector is emptied and waits to
be made again. With numpy the vectors are kept in one matrix, and only what changed since the
last search is read; without it every search reads them all. Both give the same answers: what
32-bit products single out is computed again with 64 bits. Above `EXACT_UPTO` vectors a search
with numpy reads the clusters near the query only, unless it is asked for more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from graphstate import similarity
from graphstate._canonical import Json, encode_text
from graphstate.events import Head
from graphstate.similarity import cosine, norm, packed, unpacked
from graphstate.store.db import Database
from graphstate.store.matrix import EXACT_UPTO, Hit, Matrix, Stored, blocks
from graphstate.store.schema import GRAPH_NO, SHIFT
from graphstate.store.stored import as_stored, stored_json

__all__ = ("EXACT_UPTO", "GIVEN", "Hit", "Space", "Vectors", "vector_bytes")

#: The provider of vectors that a caller gave without saying what made them.
GIVEN = "given"

#: Bytes of vectors that are kept in memory; more are read for each search.
KEPT_BYTES = 512 * 2**20

_PUT = "INSERT OR REPLACE INTO vector VALUES (?, ?, ?)"
_DROP = "DELETE FROM vector WHERE no = ?"
_EMPTY = "UPDATE vector SET data = NULL, seq = ? WHERE data IS NOT NULL"
_ONE = "SELECT v.data FROM node n JOIN vector v ON v.no = n.no WHERE n.id = ?"
_SOME = "SELECT n.id, v.data FROM node n JOIN vector v ON v.no = n.no WHERE n.id IN (SELECT value FROM json_each(?))"
_SPACE = "SELECT value FROM state WHERE key = 'embedder'"
_PUT_SPACE = "INSERT OR REPLACE INTO state VALUES ('embedder', ?)"
_WAITING = "SELECT 1 FROM vector WHERE data IS NULL LIMIT 1"
_COUNT = "SELECT count(*) FILTER (WHERE data IS NOT NULL), count(*) FILTER (WHERE data IS NULL) FROM vector"
_ALL = "SELECT v.no, n.id, v.data FROM vector v JOIN node n ON n.no = v.no WHERE v.data IS NOT NULL"
_AMONG = f"{_ALL} AND v.no IN (SELECT value FROM json_each(?))"
_CHANGED = f"{_ALL} AND v.seq > ?"
_HASH = "SELECT hash FROM event WHERE no = ?"
#: Nodes that have no vector of the present space; without the second condition, those that had one.
_TODO = """SELECT n.id, n.label, n.payload, n.no FROM node n LEFT JOIN vector v ON v.no = n.no
WHERE n.no > ?1 AND v.data IS NULL AND (?2 OR v.no IS NOT NULL) ORDER BY n.no LIMIT ?3"""
_TEXTS = """SELECT n.id, n.label, n.payload, v.data FROM node n LEFT JOIN vector v ON v.no = n.no
WHERE n.id IN (SELECT value FROM json_each(?))"""
_TODO_COUNT = """SELECT count(*) FROM node n LEFT JOIN vector v ON v.no = n.no
WHERE v.data IS NULL AND (?1 OR v.no IS NOT NULL)"""


class Space(NamedTuple):
    """What makes vectors comparable: the model they are of, and how long they are."""

    provider: str
    model: str
    dimensions: int
    version: str

    def __str__(self) -> str:
        name = ":".join(part for part in (self.provider, self.model, self.version) if part)
        return f"{name}/{self.dimensions}"


def vector_bytes(told: Json) -> bytes:
    """Return the bytes of a vector as an event holds it: base64, or a list in older logs."""
    return similarity.from_text(told) if isinstance(told, str) else packed(told)


def _order(hit: Hit) -> tuple[float, str]:
    return -hit.similarity, hit.id


class Vectors:
    """The vectors of one database. `put`, `drop` and `settle` are for the fold alone."""

    def __init__(self, db: Database, applied: Callable[[], Head]) -> None:
        self._db, self._applied = db, applied
        self._kept: Matrix | None = None
        self._space: Space | None = None
        self._space_known = False

    def forget(self) -> None:
        """Drop what is remembered of small things; the matrix proves itself against the log."""
        self._space_known = False

    # ------------------------------------------------------------------ folding

    def put(self, node: int, told: Json, seq: int, *, model: str | None = None) -> None:
        """Keep the vector of a node; None takes it away. One of another model leaves the node waiting.

        Args:
            model: Which space it is of; None for one that a caller gave.
        """
        if told is None:
            self._db.run(_DROP, (node,))
            return
        data, space = vector_bytes(told), self.space()
        if space is None and model is None:
            space = Space(GIVEN, "", len(data) // 4, "")
            self._set(space)
        fits = space is not None and model in (None, str(space)) and len(data) == 4 * space.dimensions
        self._db.run(_PUT, (node, seq, data if fits else None))

    def settle(self, space: Space, seq: int) -> None:
        """Let vectors be of a model from now on; those of another one are emptied."""
        old = self.space()
        self._set(space)
        if old is not None and old != space:
            self._db.run(_EMPTY, (seq,))

    def _set(self, space: Space) -> None:
        self._db.run(_PUT_SPACE, (encode_text(space._asdict()),))
        self._space, self._space_known = space, True

    # ------------------------------------------------------------------ reading

    def space(self) -> Space | None:
        """Return the model that the vectors are of, None before the first one."""
        if not self._space_known:
            row = self._db.one(_SPACE)
            with as_stored("the model of the vectors"):
                self._space = None if row is None else Space(**stored_json(row[0]))
            self._space_known = True
        return self._space

    def waiting(self) -> bool:
        """Say whether any vector is to be made again, so that a search would miss some."""
        return self._db.one(_WAITING) is not None

    def counts(self) -> tuple[int, int]:
        """Return how many nodes have a vector, and how many wait for theirs."""
        made, waiting = self._db.one(_COUNT) or (0, 0)
        return made, waiting

    def of(self, id: str) -> tuple[float, ...] | None:
        """Return the vector of a node, None if it has none."""
        row = self._db.one(_ONE, (id,))
        return None if row is None or row[0] is None else unpacked(row[0])

    def of_all(self, ids: Iterable[str]) -> dict[str, tuple[float, ...]]:
        """Return the vectors of those of the nodes that have one, by id."""
        rows = self._db.all(_SOME, (encode_text(list(ids)),))
        return {name: unpacked(data) for name, data in rows if data is not None}

    def todo(self, *, missing: bool, after: int, limit: int) -> list[tuple[str, str, str, int]]:
        """Return id, label, payload and number of the next nodes whose vectors are to be made.

        Args:
            missing: Nodes that never had a vector too.
            after: The number of the last node that was returned before.
        """
        return self._db.all(_TODO, (after, missing, limit))

    def todo_count(self, *, missing: bool) -> int:
        """Return how many nodes these are."""
        row = self._db.one(_TODO_COUNT, (missing,))
        return int(row[0]) if row else 0

    def unchanged(self, read: Mapping[str, tuple[str, str]]) -> list[str]:
        """Return those nodes whose label and payload still are what was read, and that have no vector."""
        rows = self._db.all(_TEXTS, (encode_text(list(read)),))
        return [name for name, *texts, data in rows if data is None and tuple(texts) == read[name]]

    # ------------------------------------------------------------------ searching

    def search(
        self, query: Sequence[float], limit: int, *, above: float | None = None,
        among: Iterable[int] | None = None, exact: bool = False,
    ) -> list[Hit]:  # fmt: skip
        """Return the nodes whose vectors are nearest to one: best first, equal ones by id.

        With numpy about one product of all vectors with the query, without it 15 us a vector.
        Above 50,000 vectors, with numpy, a tenth of them is read: the answer is as long as ever,
        and nearly always the same.
        Cosines nearer to zero than 0.0001 count as zero; a vector without length has 0.

        Args:
            query: As many numbers as the vectors have.
            limit: At most so many.
            above: Leave out what is not strictly above this cosine.
            among: Only nodes with these numbers; these are compared one and all.
            exact: Compare all vectors, however many there are.

        Raises:
            ValueError: The query has another number of dimensions.
        """
        space = self.space()
        if space is None or limit <= 0:
            return []
        if len(query) != space.dimensions:
            raise ValueError(f"a query of {len(query)} dimensions cannot be compared with vectors of {space}")
        stored = unpacked(packed(query))
        hits: Iterable[Hit]
        if find_spec("numpy") is None:
            hits = _plainly(self._rows(among), stored, above)
        elif (matrix := self._matrix(len(query))) is not None:
            hits = matrix.nearest(stored, limit, above, among, exact=exact)
        else:
            hits = _in_blocks(self._rows(among), stored, limit, above)
        return heapq.nsmallest(limit, hits, key=_order)

    def _rows(self, among: Iterable[int] | None) -> Iterable[Stored]:
        if among is None:
            return self._db.each(_ALL)
        return self._db.all(_AMONG, (encode_text(list(among)),))

    def _matrix(self, dimensions: int) -> Matrix | None:
        """Return the matrix as of now, None if it would be too large."""
        head, kept = self._applied(), self._kept
        if kept is not None and kept.head == head:
            return kept
        self._kept = None
        count, _ = self.counts()
        if count * dimensions * 4 > KEPT_BYTES:
            return None
        # What it held at an event that is still in the chain is still right, but for what went away.
        of_another_model = kept is not None and kept.dimensions != dimensions
        if (
            kept is None or of_another_model or kept.head.seq > head.seq
            or self._hash(kept.head.seq) != kept.head.hash
        ):  # fmt: skip
            kept = Matrix(dimensions)
        kept.update(self._db.each(_CHANGED, (kept.head.seq,)))
        if len(kept) != count:
            kept = Matrix(dimensions)
            kept.update(self._db.each(_CHANGED, (0,)))
        kept.head, self._kept = head, kept
        return kept

    def _hash(self, seq: int) -> bytes | None:
        row = self._db.one(_HASH, ((GRAPH_NO << SHIFT) + seq,))
        return None if row is None else row[0]


def _plainly(rows: Iterable[Stored], query: Sequence[float], above: float | None) -> Iterator[Hit]:
    length = norm(query)
    for _, name, data in rows:
        vector = unpacked(data)
        found = cosine(query, vector, norms=length * norm(vector))
        if above is None or found > above:
            yield Hit(name, found)


def _in_blocks(
    rows: Iterable[Stored], query: Sequence[float], limit: int, above: float | None
) -> Iterator[Hit]:
    """Search without keeping anything: block by block, each giving its best."""
    for block in blocks(rows):
        part = Matrix(len(query))
        part.update(block)
        yield from part.nearest(query, limit, above, None)
