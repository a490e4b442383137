"""Transition tables: which event may follow in which phase, as data.

Loop and orchestrator both check every step against such a table, and their documentation is
drawn from it. A step without a row is a bug in a driver and raises.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from agentloop.errors import IllegalTransition

__all__ = ("TransitionTable",)

P = TypeVar("P", bound=str)


class TransitionTable(Generic[P]):
    """Phase and event to the phases that may follow; frozen.

    Args:
        rows: For each phase, its events and the phases each may lead to.
        anywhere: Events that are legal in every phase that is not terminal.
    """

    def __init__(
        self,
        rows: Mapping[P, Mapping[str, Collection[P]]],
        *,
        anywhere: Mapping[str, Collection[P]] = MappingProxyType({}),
    ) -> None:
        table: dict[P, Mapping[str, frozenset[P]]] = {}
        for phase, events in rows.items():
            merged = {**(anywhere if events else {}), **events}
            table[phase] = MappingProxyType({event: frozenset(after) for event, after in merged.items()})
        self.rows: Mapping[P, Mapping[str, frozenset[P]]] = MappingProxyType(table)
        #: The events that are legal in every phase that is not terminal.
        self.anywhere: tuple[str, ...] = tuple(anywhere)

    @property
    def events(self) -> tuple[str, ...]:
        """All events, sorted."""
        return tuple(sorted({event for events in self.rows.values() for event in events}))

    def allowed(self, phase: P) -> tuple[str, ...]:
        """Return the events that are legal in the phase, those legal anywhere first."""
        return tuple(self.rows[phase])

    def legal(self, before: P, event: str, after: P) -> bool:
        """Return whether the step has a row."""
        return after in self.rows[before].get(event, ())

    def terminal(self, phase: P) -> bool:
        """Return whether no event is legal in the phase."""
        return not self.rows[phase]

    def check(self, before: P, event: str, after: P) -> None:
        """Raise unless the step has a row.

        Raises:
            IllegalTransition: The event is not legal in ``before``, or does not lead to ``after``.
        """
        events = self.rows[before]
        if after not in events.get(event, ()):
            raise IllegalTransition(before, f"{event} -> {after}" if event in events else event, events)

    def to_mermaid(self, *, anywhere: bool = True) -> str:
        """Return the table as a Mermaid state diagram.

        Args:
            anywhere: Draw the events that are legal anywhere too.
        """
        lines = ["stateDiagram-v2"]
        for phase, events in self.rows.items():
            for event, following in events.items():
                if anywhere or event not in self.anywhere:
                    lines += [f"    {phase} --> {after}: {event}" for after in sorted(following)]
            if not events:
                lines.append(f"    {phase} --> [*]")
        return "\n".join(lines)

    def to_grid(self) -> list[list[str]]:
        """Return a head and a row for each phase: what each event, sorted, may lead to."""
        head = ["phase", *self.events]
        rows = (
            [str(phase), *(", ".join(sorted(events.get(event, ()))) or "·" for event in self.events)]
            for phase, events in self.rows.items()
        )
        return [head, *rows]
