"""The live view: a picture that follows the graph on a terminal, a line for each event elsewhere.

It reads the file and changes no byte of it. It ends when it is interrupted, when whoever reads its
output has left, or after a number of events.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from graphstate.cli.output import OutputFailed, json_text, write
from graphstate.errors import Busy
from graphstate.model import HistoryEntry, to_json
from graphstate.rendering import visible
from graphstate.verbs import arguments

__all__ = ("watch",)

#: Events below the picture.
_RECENT = 10

#: What is new: an event, or the number of the event that a rollback led back to.
_News = HistoryEntry | int


class _View(Protocol):
    def show(self, news: Sequence[_News]) -> bool:
        """Show what is new, and say whether anybody is still reading."""


def watch(
    graph: Any,
    *,
    as_json: bool,
    after: int | None = None,
    interval_ms: int = 500,
    limit: int | None = None,
) -> None:
    """Show events as they are committed, by whichever process.

    Args:
        as_json: A line of JSON for each event, also on a terminal.
        after: Begin behind this event; None begins with the next one.
        interval_ms: How often the file is looked at, 10 to 60,000.
        limit: End after so many events.
    """
    arguments.whole(interval_ms, "interval_ms", least=10, most=60_000)
    left = None if limit is None else arguments.whole(limit, "limit", least=0, most=2**53)
    if sys.stdout is None:
        raise OutputFailed("standard output is closed")
    news: list[_News] = []
    with (
        graph.subscribe(news.append, after=after, on_rollback=news.append) as subscription,
        _view(graph, as_json) as view,
    ):
        while left is None or left > 0:
            with suppress(Busy):  # the next look is soon
                subscription.poll()
            told = news if left is None else news[:left]
            left = None if left is None else left - len(told)
            if not view.show(told) or (left != 0 and _reader_leaves_within(interval_ms)):
                return
            news.clear()


@contextmanager
def _view(graph: Any, as_json: bool) -> Iterator[_View]:
    if as_json or not sys.stdout.isatty():
        yield _Lines(as_json)
        return
    from rich.live import Live  # only people at a terminal pay for it

    with Live(auto_refresh=False, transient=False) as live:
        yield _Picture(graph, live)


class _Lines:
    """One line for each event."""

    def __init__(self, as_json: bool) -> None:
        self._line = _json_line if as_json else _text_line

    def show(self, news: Sequence[_News]) -> bool:
        return not news or write("\n".join(map(self._line, news)))


class _Picture:
    """The state of the moment, and the last events below it."""

    def __init__(self, graph: Any, live: Any) -> None:
        self._graph, self._live = graph, live
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._drawn = False

    def show(self, news: Sequence[_News]) -> bool:
        from rich.text import Text

        self._recent.extend(map(_text_line, news))
        if news or not self._drawn:
            # Text, not markup: what the graph holds must not be read as instructions.
            lines = "\n".join(line.replace("\t", "  ") for line in self._recent)
            self._live.update(Text(f"{self._graph.render()}\n\n{lines}"), refresh=True)
            self._drawn = True
        return True


def _text_line(news: _News) -> str:
    if isinstance(news, int):
        return f"{news}\trollback\tback to event {news}"
    return f"{news.seq}\t{visible(news.type)}\t{news.summary}"


def _json_line(news: _News) -> str:
    return json_text({"back_to": news} if isinstance(news, int) else to_json(news), one_line=True)


def _reader_leaves_within(ms: int) -> bool:
    """Wait, at most so long, for whoever reads the output to leave; say whether that happened."""
    from select import poll

    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # replaced by something in memory
        time.sleep(ms / 1_000)
        return False
    output = poll()
    output.register(descriptor, 0)  # errors and hang-ups are always told
    return bool(output.poll(ms))
