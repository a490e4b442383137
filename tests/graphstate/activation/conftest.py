from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphstate import Adaptogen
from graphstate.activation.decay import DAY_MS, HOUR_MS
from tests.graphstate.conftest import Make

H, D = HOUR_MS, DAY_MS

#: Equal but for rounding.
near: Callable[..., Any] = pytest.approx

#: A graph whose nodes are named, on the clock of the test.
Remember = Callable[..., Adaptogen]


class Hands:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def graph_of(make: Make, clock: Hands) -> Remember:
    """Open a graph with these nodes; of a memory class if one is given as a keyword."""

    def build(*ids: str, memory_class: str | None = None, **options: Any) -> Adaptogen:
        graph = make(now=clock, **options)
        for node in ids:
            graph.remember(node, memory={"memory_class": memory_class} if memory_class else None).unwrap()
        return graph

    return build
