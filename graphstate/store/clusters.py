"""Vectors in clusters, so that a search reads those near the query instead of all.

An inverted file: the vectors are grouped around centres (spherical k-means over an evenly spaced
sample), the groups lie one after the other, and a query reads those whose centres are nearest.
It is made in seconds, the same each time, and takes no memory beside the vectors. What is found
is compared exactly; what lies in groups that were not read is missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

__all__ = ("READ_SHARE", "Clusters")

#: The share of all vectors that a search reads: the price of finding nearly all that is near.
READ_SHARE = 0.15

# Vectors of a sample for each centre, and rounds in which the centres move.
_SAMPLE, _ROUNDS = 50, 6

# Vectors that are compared with all centres at once.
_BLOCK = 4_096

_Array: TypeAlias = "np.ndarray[Any, Any]"


class Clusters:
    """The groups of a matrix, given its rows and one over the length of each, 0 if it has none.

    Attributes:
        order: How the rows have to be laid so that each group lies together.
    """

    def __init__(self, rows: _Array, inverse: _Array) -> None:
        import numpy as np

        count = len(rows)
        centres = max(1, int(1.5 * count**0.5))
        sample = np.linspace(0, count - 1, min(count, centres * _SAMPLE)).astype(np.intp)
        vectors = rows[sample] * inverse[sample, None]
        self._centres = vectors[:: max(1, len(vectors) // centres)][:centres].copy()
        for _ in range(_ROUNDS):
            self._move(vectors)
        group = self._nearest(rows)
        self.order: _Array = np.argsort(group, kind="stable")
        self._bounds = np.searchsorted(group[self.order], np.arange(len(self._centres) + 1))

    def _move(self, vectors: _Array) -> None:
        import numpy as np

        group = self._nearest(vectors)
        order = np.argsort(group, kind="stable")
        filled, starts = np.unique(group[order], return_index=True)
        sums = np.add.reduceat(vectors[order], starts)
        lengths = np.sqrt((sums * sums).sum(axis=1, keepdims=True))
        self._centres[filled] = sums / np.where(lengths > 0, lengths, 1)

    def _nearest(self, rows: _Array) -> _Array:
        import numpy as np

        starts = range(0, len(rows), _BLOCK)
        return np.concatenate(
            [(rows[start : start + _BLOCK] @ self._centres.T).argmax(axis=1) for start in starts]
        )

    def __len__(self) -> int:
        return len(self.order)

    def near(self, query: _Array, least: int) -> list[slice]:
        """Return where the groups nearest to a query lie: at least so many vectors, and `READ_SHARE`."""
        import numpy as np

        groups = np.argsort(-(self._centres @ query), kind="stable")
        sizes = (self._bounds[1:] - self._bounds[:-1])[groups]
        wanted = max(least, int(READ_SHARE * len(self)))
        last = int(np.searchsorted(np.cumsum(sizes), wanted))
        return [slice(int(self._bounds[group]), int(self._bounds[group + 1])) for group in groups[: last + 1]]
