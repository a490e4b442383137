"""Old versions of what was recorded: each is raised to the next, up to the one this library writes.

What is stored stays as it is; it is raised while it is read. A change of a recorded form takes
one row in a table here or in `orchestrator.ledger`, and a ledger of the old form in
``tests/ledgers``, which every later version has to replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from agentloop._canonical import Json
from agentloop.errors import UnsupportedVersion

__all__ = ("ENTRIES", "KindAndData", "Upcasts")

T = TypeVar("T")


class Upcasts(Generic[T]):
    """How each old version becomes the next one.

    Args:
        current: The version that is written.
        steps: From a version to what makes the next of it, without gaps up to ``current``.
    """

    def __init__(self, current: int, steps: Mapping[int, Callable[[T], T]]) -> None:
        self.current = current
        self._steps = dict(steps)
        assert [*sorted(self._steps), current] == [*range(current - len(self._steps), current + 1)]

    @property
    def oldest(self) -> int:
        """The oldest version that can be read."""
        return min(self._steps, default=self.current)

    def check(self, version: object) -> int:
        """Return the version if it can be read.

        Raises:
            UnsupportedVersion: It is no version, a newer or a forgotten one.
        """
        if type(version) is not int or not self.oldest <= version <= self.current:
            raise UnsupportedVersion(version, self.current, oldest=self.oldest)
        return version

    def raised(self, version: int, value: T) -> T:
        """Return a value of that version as this one would have recorded it."""
        for step in range(version, self.current):
            value = self._steps[step](value)
        return value


#: Kind and data of one entry.
KindAndData: TypeAlias = tuple[str, Json]

#: Entries of runs in a store; 2 is the first version that was released.
ENTRIES: Final[Upcasts[KindAndData]] = Upcasts(2, {})
