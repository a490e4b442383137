from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from graphstate.adaptogen import Adaptogen

Make = Callable[..., Adaptogen]
Tamper = Callable[..., None]


class Clock:
    """Adds 1 before each reading; the first is 1,000,001."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        self.ms += 1
        return self.ms


class Golden:
    """Fractional parts of k * 0.6180339887."""

    def __init__(self) -> None:
        self.k = 0

    def __call__(self) -> float:
        self.k += 1
        return math.fmod(self.k * 0.6180339887, 1)


@pytest.fixture
def make() -> Iterator[Make]:
    """The fixture F of the vectors: a repeatable graph with the nodes that are named."""
    opened: list[Adaptogen] = []

    def open_graph(*ids: str, path: Path | str = ":memory:", **options: Any) -> Adaptogen:
        chosen: dict[str, Any] = {"seed": False, "now": Clock(), "rand": Golden()} | options
        graph = Adaptogen.open(path, **chosen)
        opened.append(graph)
        for node in ids:
            graph.remember(node).unwrap()
        return graph

    yield open_graph
    for graph in opened:
        graph.close()


@pytest.fixture
def tamper() -> Tamper:
    """Change a file behind our back, as any SQLite tool could."""

    def change(path: Path, sql: str, *values: Any) -> None:
        connection = apsw.Connection(str(path))
        connection.execute(sql, values)
        connection.close()

    return change
