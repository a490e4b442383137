"""`adaptogen reembed`: a bar for people at a terminal, silence and one answer for everybody else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ("reembed",)


def reembed(graph: Any, *, as_json: bool, stale: bool = False, **given: Any) -> Any:
    """Run the verb and return its answer.

    Args:
        as_json: Show no bar, also on a terminal.
        stale: Only nodes that had a vector.
        given: What the verb is told besides.
    """
    with _bar(not as_json and sys.stderr is not None and sys.stderr.isatty()) as show:
        return graph.reembed(missing=not stale, progress=show, **given)


@contextmanager
def _bar(wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    if not wanted:
        yield None
        return
    from rich.console import Console  # only people at a terminal pay for it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("vectors"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("vectors", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
