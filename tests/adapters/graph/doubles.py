"""A graph that writes down what it was asked, for bridges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from graphstate import ErrorCode, Fail, Ok

__all__ = ("RecordingGraph",)


class RecordingGraph:
    """Has the verbs a bridge needs, and nothing else: no unit, no actors, no durability."""

    def __init__(self, *, nodes: tuple[str, ...] = (), failing: tuple[str, ...] = (), denied: bool = False):
        self.calls: list[tuple[str, Any]] = []
        self.options: list[dict[str, Any]] = []
        self._nodes, self._failing, self._denied = set(nodes), failing, denied

    def _did(self, verb: str, what: Any, options: dict[str, Any], value: Any = None) -> Any:
        if verb in self._failing:
            return Fail(ErrorCode.STORAGE_FULL, f"{verb} found no room")
        self.calls.append((verb, what))
        self.options.append(options)
        return Ok(value)

    def remember(self, id: str, **options: Any) -> Any:
        self._nodes.add(id)
        return self._did("remember", id, options)

    def archive(self, id: str, **options: Any) -> Any:
        return self._did("archive", id, options)

    def get_node(self, id: str) -> Any:
        return SimpleNamespace(id=id) if id in self._nodes else None

    def set_cursor(self, nodes: list[str], **options: Any) -> Any:
        return self._did("set_cursor", nodes, options)

    def transition(self, to: str, **options: Any) -> Any:
        trace = SimpleNamespace(reasons=("guard failed: ready",))
        taken = SimpleNamespace(applied=not self._denied, edge_id="E1", trace=trace)
        return self._did("transition", to, options, taken)

    def reward(self, value: float, **options: Any) -> Any:
        return self._did("reward", (value, options["edge_id"]), options)
