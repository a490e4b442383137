"""Vectors of nodes: their table, of which model they are, and the search for the nearest.

All vectors of a graph are of one *space*: the model that made them and their number of
dimensions, fixed by the first one. When the model changes, every vector is emptied and waits to
be made again. With numpy the vectors are kept in one matrix, and only what changed since the
last search is read; without it every search reads them all. Both give the same answers: what
32-bit products single out is computed again with 64 bits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from graphstate import similarity
from graphstate._canonical import Json, encode_text
from graphstate.events import Head
from graphstate.similarity import NOTHING, cosine, norm, packed, unpacked
from graphstate.store.db import Database
from graphstate.store.schema import GRAPH_NO, SHIFT
from graphstate.store.stored import as_stored, stored_json

if TYPE_CHECKING:
    import numpy as np

__all__ = ("GIVEN", "Hit", "Space", "Vectors", "vector_bytes")

#: The provider of vectors that a caller gave without saying what made them.
GIVEN = "given"

#: Bytes of vectors that are kept in memory; more are read for each search.
KEPT_BYTES = 512 * 2**20

# Vectors that are read, or computed again, at once.
_BLOCK = 4_096

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


class Hit(NamedTuple):
    """A node that was found, and its cosine with the query."""

    id: str
    similarity: float


def vector_bytes(told: Json) -> bytes:
    """Return the bytes of a vector as an event holds it: base64, or a list in older logs."""
    return similarity.from_text(told) if isinstance(told, str) else packed(told)


def _order(hit: Hit) -> tuple[float, str]:
    return -hit.similarity, hit.id


class Vectors:
    """The vectors of one database. `put`, `drop` and `settle` are for the fold alone."""

    def __init__(self, db: Database, applied: Callable[[], Head]) -> None:
        self._db, self._applied = db, applied
        self._kept: _Matrix | None = None
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
        among: Iterable[int] | None = None,
    ) -> list[Hit]:  # fmt: skip
        """Return the nodes whose vectors are nearest to one: best first, equal ones by id.

        With numpy about one product of all vectors with the query, without it 15 us a vector.
        Cosines nearer to zero than 0.0001 count as zero; a vector without length has 0.

        Args:
            query: As many numbers as the vectors have.
            limit: At most so many.
            above: Leave out what is not strictly above this cosine.
            among: Only nodes with these numbers.

        Raises:
            ValueError: The query has another number of dimensions.
        """
        space = self.space()
        if space is None or limit <= 0:
            return []
        if len(query) != space.dimensions:
            raise ValueError(f"a query of {len(query)} dimensions cannot be compared with vectors of {space}")
        exact = unpacked(packed(query))
        if find_spec("numpy") is None:
            hits: Iterable[Hit] = _plainly(self._rows(among), exact, above)
        else:
            hits = self._by_matrix(exact, limit, above, among)
        return heapq.nsmallest(limit, hits, key=_order)

    def _rows(self, among: Iterable[int] | None) -> Iterable[tuple[int, str, bytes]]:
        if among is None:
            return self._db.each(_ALL)
        return self._db.all(_AMONG, (encode_text(list(among)),))

    def _by_matrix(
        self, query: Sequence[float], limit: int, above: float | None, among: Iterable[int] | None
    ) -> Iterable[Hit]:
        matrix = self._matrix(len(query))
        if matrix is not None:
            return matrix.nearest(query, limit, above, among)
        return _in_blocks(self._rows(among), query, limit, above)

    def _matrix(self, dimensions: int) -> _Matrix | None:
        """Return the matrix as of now, None if it would be too large."""
        head, kept = self._applied(), self._kept
        if kept is not None and kept.head == head:
            return kept
        self._kept = None
        count, _ = self.counts()
        if count * dimensions * 4 > KEPT_BYTES:
            return None
        # What it held at an event that is still in the chain is still right, but for what went away.
        if kept is None or kept.head.seq > head.seq or self._hash(kept.head.seq) != kept.head.hash:
            kept = _Matrix(dimensions)
        kept.update(self._db.each(_CHANGED, (kept.head.seq,)))
        if len(kept) != count:
            kept = _Matrix(dimensions)
            kept.update(self._db.each(_CHANGED, (0,)))
        kept.head, self._kept = head, kept
        return kept

    def _hash(self, seq: int) -> bytes | None:
        row = self._db.one(_HASH, ((GRAPH_NO << SHIFT) + seq,))
        return None if row is None else row[0]


def _plainly(
    rows: Iterable[tuple[int, str, bytes]], query: Sequence[float], above: float | None
) -> Iterator[Hit]:
    length = norm(query)
    for _, name, data in rows:
        vector = unpacked(data)
        found = cosine(query, vector, norms=length * norm(vector))
        if above is None or found > above:
            yield Hit(name, found)


def _in_blocks(
    rows: Iterable[tuple[int, str, bytes]], query: Sequence[float], limit: int, above: float | None
) -> Iterator[Hit]:
    """Search without keeping anything: block by block, each giving its best."""
    block: list[tuple[int, str, bytes]] = []

    def best() -> Iterable[Hit]:
        part = _Matrix(len(query))
        part.update(block)
        return part.nearest(query, limit, above, None)

    for row in rows:
        block.append(row)
        if len(block) == _BLOCK:
            yield from best()
            block = []
    if block:
        yield from best()


class _Matrix:
    """Vectors in one block of memory, with their lengths."""

    def __init__(self, dimensions: int) -> None:
        import numpy as np

        self.head = Head(0, b"")
        self._rows: np.ndarray[Any, np.dtype[np.float32]] = np.empty((0, dimensions), np.float32)
        self._inverse: np.ndarray[Any, np.dtype[np.float32]] = np.empty(0, np.float32)
        self._ids: list[str] = []
        self._places: dict[int, int] = {}
        # How far a 32-bit cosine can be from the true one.
        self._margin = dimensions * 6e-8 + 1e-6

    def __len__(self) -> int:
        return len(self._ids)

    def update(self, rows: Iterable[tuple[int, str, bytes]]) -> None:
        """Put vectors in, or in place of older ones of the same nodes."""
        block: list[tuple[int, str, bytes]] = []
        for row in rows:
            block.append(row)
            if len(block) == _BLOCK:
                self._put(block)
                block = []
        if block:
            self._put(block)

    def _put(self, block: Sequence[tuple[int, str, bytes]]) -> None:
        import numpy as np

        places = []
        for node, name, _ in block:
            place = self._places.setdefault(node, len(self._ids))
            if place == len(self._ids):
                self._ids.append(name)
            places.append(place)
        if len(self._ids) > len(self._rows):
            room = max(len(self._ids), len(self._rows) * 3 // 2)
            rows = np.empty((room, self._rows.shape[1]), np.float32)
            rows[: len(self._rows)] = self._rows
            inverse = np.zeros(room, np.float32)
            inverse[: len(self._inverse)] = self._inverse
            self._rows, self._inverse = rows, inverse
        new = np.frombuffer(b"".join(data for _, _, data in block), "<f4").reshape(-1, self._rows.shape[1])
        lengths = np.sqrt((new.astype(np.float64) ** 2).sum(axis=1))
        self._rows[places] = new
        with np.errstate(divide="ignore"):
            self._inverse[places] = np.where(lengths > 0, 1 / lengths, 0).astype(np.float32)

    def nearest(
        self, query: Sequence[float], limit: int, above: float | None, among: Iterable[int] | None
    ) -> Iterable[Hit]:
        """Return at least the best, with their exact cosines, in any order."""
        import numpy as np

        exact, length, count = np.array(query, np.float64), norm(query), len(self._ids)
        if among is None:
            chosen = None
            rows, inverse = self._rows[:count], self._inverse[:count]
        else:
            chosen = np.array(sorted(self._places[no] for no in among if no in self._places), np.intp)
            rows, inverse = self._rows[chosen], self._inverse[chosen]
        if not len(rows):
            return ()
        scale = 1 / length if length else 0.0
        found = (rows @ (exact * scale).astype(np.float32)) * inverse
        floor = -2.0 if limit >= len(found) else float(np.partition(found, -limit)[-limit])
        floor -= 2 * self._margin
        if above is not None:
            least = NOTHING if 0 <= above < NOTHING else above
            floor = max(floor, least - self._margin)
        places = np.flatnonzero(found >= floor)
        # What is surely nothing needs no second look; there may be very many of these.
        noise = np.abs(found[places]) < NOTHING - self._margin
        hits = [(int(place), 0.0) for place in places[noise]]
        rest = places[~noise]
        for start in range(0, len(rest), _BLOCK):
            part = rest[start : start + _BLOCK]
            vectors = rows[part].astype(np.float64)
            lengths = np.sqrt((vectors**2).sum(axis=1)) * length
            products = vectors @ exact
            hits += [
                (int(place), similarity.rounded(product / both) if both else 0.0)
                for place, product, both in zip(part, products.tolist(), lengths.tolist(), strict=True)
            ]
        ids = self._ids
        return (
            Hit(ids[place if chosen is None else int(chosen[place])], cosine)
            for place, cosine in hits
            if above is None or cosine > above
        )
