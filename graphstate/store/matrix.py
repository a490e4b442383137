"""Vectors in one block of memory, and the search in it. Needs numpy, which is imported on use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from graphstate import similarity
from graphstate.events import Head
from graphstate.similarity import NOTHING, norm
from graphstate.store.clusters import Clusters

if TYPE_CHECKING:
    import numpy as np

__all__ = ("EXACT_UPTO", "Hit", "Matrix", "Stored", "blocks")

#: Up to so many vectors every search compares all of them.
EXACT_UPTO = 50_000

# When so many are in no group, all are grouped anew.
_LOOSE_SHARE = 0.1

# Vectors that are put in, or computed again, at once.
_BLOCK = 4_096

#: Number and id of a node, and the bytes of its vector.
Stored: TypeAlias = tuple[int, str, bytes]


class Hit(NamedTuple):
    """A node that was found, and its cosine with the query."""

    id: str
    similarity: float


def blocks(rows: Iterable[Stored]) -> Iterable[list[Stored]]:
    """Yield the rows in lists of a bounded length."""
    block: list[Stored] = []
    for row in rows:
        block.append(row)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


class Matrix:
    """The vectors of nodes as rows, the inverses of their lengths, and their clusters if they are many."""

    def __init__(self, dimensions: int) -> None:
        import numpy as np

        self.dimensions = dimensions
        #: the event up to which the log is in it
        self.head = Head(0, b"")
        self._rows: np.ndarray[Any, np.dtype[np.float32]] = np.empty((0, dimensions), np.float32)
        self._inverse: np.ndarray[Any, np.dtype[np.float32]] = np.empty(0, np.float32)
        self._ids: list[str] = []
        self._places: dict[int, int] = {}
        self._clusters: Clusters | None = None
        # Places whose vectors changed since they were grouped.
        self._loose: set[int] = set()
        # Where groups are copied to; memory that is asked for each time would have to be cleared.
        self._copied = self._rows
        # How far a 32-bit cosine can be from the true one.
        self._margin = dimensions * 6e-8 + 1e-6

    def __len__(self) -> int:
        return len(self._ids)

    def update(self, rows: Iterable[Stored]) -> None:
        """Put vectors in, or in place of older ones of the same nodes."""
        for block in blocks(rows):
            self._put(block)

    def _put(self, block: Sequence[Stored]) -> None:
        import numpy as np

        places = []
        for node, name, _ in block:
            place = self._places.setdefault(node, len(self._ids))
            if place == len(self._ids):
                self._ids.append(name)
            places.append(place)
        if len(self._ids) > len(self._rows):
            self._grow(max(len(self._ids), len(self._rows) * 3 // 2))
        told = np.frombuffer(b"".join(data for _, _, data in block), "<f4").reshape(-1, self._rows.shape[1])
        new = told.astype(np.float64)
        # Products of very long or very short vectors would leave 32 bits; a power of two changes no
        # cosine. A vector without length keeps its zeros.
        _, exponents = np.frexp(np.abs(new).max(axis=1))
        new = np.ldexp(new, -exponents[:, None])
        lengths = np.sqrt((new**2).sum(axis=1))
        self._rows[places] = new
        self._inverse[places] = 1 / np.where(lengths > 0, lengths, 1)
        if self._clusters is not None:
            self._loose.update(place for place in places if place < len(self._clusters))

    def _grow(self, room: int) -> None:
        import numpy as np

        rows = np.empty((room, self._rows.shape[1]), np.float32)
        rows[: len(self._rows)] = self._rows
        inverse = np.zeros(room, np.float32)
        inverse[: len(self._inverse)] = self._inverse
        self._rows, self._inverse = rows, inverse

    def nearest(
        self, query: Sequence[float], limit: int, above: float | None, among: Iterable[int] | None,
        *, exact: bool = True,
    ) -> list[Hit]:  # fmt: skip
        """Return at least the best, with their exact cosines, in any order.

        Args:
            exact: Compare all vectors, also if there are more than `EXACT_UPTO`.
        """
        import numpy as np

        count = len(self._ids)
        if among is not None:
            places = np.array(sorted(self._places[no] for no in among if no in self._places), np.intp)
            return self._compare(places, self._cosines(query, [places]), query, limit, above)
        if count > EXACT_UPTO and not exact:
            parts = self._near(query, limit)
            every = np.arange(count)
            places = np.concatenate([every[part] for part in parts])
            hits = self._compare(places, self._cosines(query, parts), query, limit, above)
            if len(hits) >= min(limit, count):
                return hits
        return self._compare(np.arange(count), self._cosines(query, [slice(count)]), query, limit, above)

    def _near(self, query: Sequence[float], limit: int) -> list[Any]:
        """Return the parts of the matrix to be read: groups near the query, and all that is in none."""
        import numpy as np

        count = len(self._ids)
        clusters = self._clusters
        if clusters is None or len(self._loose) + count - len(clusters) > _LOOSE_SHARE * count:
            clusters = self._group(count)
        parts: list[Any] = [*clusters.near(np.array(query, np.float32), 2 * limit)]
        grouped = {place for part in parts for place in self._loose if part.start <= place < part.stop}
        return [*parts, slice(len(clusters), count), np.array(sorted(self._loose - grouped), np.intp)]

    def _group(self, count: int) -> Clusters:
        """Lay the vectors so that near ones lie together: about 5 s for 100,000 of 384 numbers."""
        clusters = Clusters(self._rows[:count], self._inverse[:count])
        self._rows[:count] = self._rows[clusters.order]
        self._inverse[:count] = self._inverse[clusters.order]
        nodes = list(self._places)  # in the order of their places
        self._ids = [self._ids[place] for place in clusters.order]
        self._places = {nodes[place]: new for new, place in enumerate(clusters.order)}
        self._clusters = clusters
        self._loose.clear()
        return clusters

    def _cosines(self, query: Sequence[float], parts: Sequence[Any]) -> np.ndarray[Any, Any]:
        import numpy as np

        length = norm(query)
        scaled = (np.array(query, np.float64) * (1 / length if length else 0.0)).astype(np.float32)
        if len(parts) == 1:
            rows, inverse = self._rows[parts[0]], self._inverse[parts[0]]
        else:  # one product of a copy is faster than many small ones
            inverse = np.concatenate([self._inverse[part] for part in parts])
            if len(inverse) > len(self._copied):
                self._copied = np.empty((len(inverse) * 5 // 4, self._rows.shape[1]), np.float32)
            rows = self._copied[: len(inverse)]
            np.concatenate([self._rows[part] for part in parts], out=rows)
        cosines: np.ndarray[Any, Any] = (rows @ scaled) * inverse
        return cosines

    def _compare(
        self, places: np.ndarray[Any, Any], found: np.ndarray[Any, Any], query: Sequence[float], limit: int,
        above: float | None,
    ) -> list[Hit]:  # fmt: skip
        """Compute again what may be among the best, given about how near each vector is."""
        import numpy as np

        if not len(found):
            return []
        exact, length = np.array(query, np.float64), norm(query)
        floor = -2.0 if limit >= len(found) else float(np.partition(found, -limit)[-limit])
        floor -= 2 * self._margin
        if above is not None:
            least = NOTHING if 0 <= above < NOTHING else above
            floor = max(floor, least - self._margin)
        chosen = found >= floor
        places, found = places[chosen], found[chosen]
        # What is surely nothing needs no second look; there may be very many of these.
        noise = np.abs(found) < NOTHING - self._margin
        ids = self._ids
        hits = [Hit(ids[place], 0.0) for place in places[noise].tolist()]
        rest = places[~noise]
        for start in range(0, len(rest), _BLOCK):
            part = rest[start : start + _BLOCK]
            vectors = self._rows[part].astype(np.float64)
            lengths = np.sqrt((vectors**2).sum(axis=1)) * length
            hits += [
                Hit(ids[place], similarity.rounded(product / both) if both else 0.0)
                for place, product, both in zip(
                    part.tolist(), (vectors * exact).sum(axis=1).tolist(), lengths.tolist(), strict=True
                )
            ]
        return hits if above is None else [hit for hit in hits if hit.similarity > above]
