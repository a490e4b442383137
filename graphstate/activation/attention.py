"""Attention: what an open graph has noticed and not yet thought worth remembering.

It is of this moment and this process only. What adds up becomes a reinforcement; the rest fades
within minutes. No clock here: whoever asks brings the time.
"""

from __future__ import annotations

from graphstate.activation.decay import clamp, factor

__all__ = ("MAX_ATTENDED", "Attention")

#: Nodes that are attended to at once; the one that was noticed longest ago makes room.
MAX_ATTENDED = 10_000

#: What has faded below this is dropped.
_NEGLIGIBLE = 1e-6


class Attention:
    """Values from 0 to 1 by node, each with the moment at which it is right."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, tuple[float, int]] = {}

    def bump(self, id: str, amount: float, now: int, half_life_ms: float) -> float:
        """Add to a node's attention and return it."""
        value = clamp(self.of(id, now, half_life_ms) + amount)
        self._values.pop(id, None)
        self._values[id] = (value, now)
        if len(self._values) > MAX_ATTENDED:
            del self._values[next(iter(self._values))]
        return value

    def of(self, id: str, now: int, half_life_ms: float) -> float:
        """Return a node's attention."""
        found = self._values.get(id)
        if found is None:
            return 0.0
        value = found[0] * factor(now - found[1], half_life_ms)
        if value >= _NEGLIGIBLE or now < found[1]:
            return value
        del self._values[id]
        return 0.0

    def attended(self, now: int, half_life_ms: float) -> dict[str, float]:
        """Return every node that is attended to, with how much."""
        values = {node: self.of(node, now, half_life_ms) for node in list(self._values)}
        return {node: value for node, value in values.items() if value > 0}

    def drop(self, id: str) -> None:
        """Forget a node, since it was promoted."""
        self._values.pop(id, None)
