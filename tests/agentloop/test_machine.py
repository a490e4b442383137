"""Transition tables: what they allow, what they refuse, what they draw."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from agentloop import CYCLE, IllegalTransition
from agentloop.loop.cycle import Phase
from agentloop.loop.rounds import ROUNDS, RoundPhase
from agentloop.machine import TransitionTable

TABLE = TransitionTable[str](
    {"red": {"go": ("green",)}, "green": {"stop": ("red", "broken")}, "broken": {}},
    anywhere={"crash": ("broken",)},
)


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        ("red", "go", "green"),
        ("green", "stop", "red"),
        ("green", "stop", "broken"),
        ("red", "crash", "broken"),
    ],
)
def test_a_step_with_a_row_passes(before: str, event: str, after: str) -> None:
    TABLE.check(before, event, after)


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        ("red", "stop", "green"),
        ("red", "go", "red"),
        ("broken", "crash", "broken"),
        ("broken", "go", "green"),
    ],
)
def test_a_step_without_a_row_is_refused_and_named(before: str, event: str, after: str) -> None:
    with pytest.raises(IllegalTransition) as caught:
        TABLE.check(before, event, after)
    assert (caught.value.phase, event in caught.value.event) == (before, True)
    assert repr(before) in str(caught.value)


def test_only_a_phase_without_events_is_terminal() -> None:
    assert [phase for phase in TABLE.rows if TABLE.terminal(phase)] == ["broken"]


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TABLE.rows["red"]["go"] = frozenset()  # type: ignore[index]


def test_the_drawing_has_an_arrow_for_each_way() -> None:
    lines = TABLE.to_mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    red --> green: go" in lines
    assert "    green --> broken: stop" in lines
    assert "    broken --> [*]" in lines
    assert len(lines) == 1 + 2 + 3 + 1


@pytest.mark.parametrize(
    ("table", "phases", "first"),
    [(CYCLE, Phase, "idle"), (ROUNDS, RoundPhase, "idle")],
    ids=["cycle", "rounds"],
)
def test_every_phase_of_a_driver_can_be_reached_and_left(
    table: TransitionTable[Any], phases: type[StrEnum], first: str
) -> None:
    assert set(table.rows) == set(phases)
    reached, todo = {first}, [first]
    while todo:
        for after in table.rows[todo.pop()].values():
            todo += [phase for phase in after if phase not in reached]
            reached |= after
    assert reached == set(phases)
    assert {phase for phase in phases if table.terminal(phase)} == {"done", "failed"}
