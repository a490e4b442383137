"""The live view: a picture that follows the graph on a terminal, a line for each event elsewhere.

Or what is followed is the working memory: which memories are present now, the most present first.

It reads the file and changes no byte of it. It ends when it is interrupted, when whoever reads its
output has left, or after a number of events.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from graphstate._canonical import encode_text
from graphstate.cli.output import OutputFailed, json_text, write
from graphstate.errors import Busy
from graphstate.model import HistoryEntry, Window, WindowItem, to_json
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
    present: bool = False,
    context: str | None = None,
    after: int | None = None,
    interval_ms: int = 500,
    limit: int | None = None,
) -> None:
    """Show events as they are committed, by whichever process.

    Args:
        as_json: A line of JSON for each event, also on a terminal.
        present: Show the working memory instead, whenever other memories are in it or an event
            changed what one is worth.
        context: As present as in this context; used with ``present``.
        after: Begin behind this event; None begins with the next one.
        interval_ms: How often the file is looked at, 10 to 60,000.
        limit: End after so many events.
    """
    arguments.whole(interval_ms, "interval_ms", least=10, most=60_000)
    if context is not None and not present:
        arguments.refuse("context says where memories are present, and goes with present")
    left = None if limit is None else arguments.whole(limit, "limit", least=0, most=2**53)
    if sys.stdout is None:
        raise OutputFailed("standard output is closed")
    news: list[_News] = []
    with (
        graph.subscribe(news.append, after=after, on_rollback=news.append) as subscription,
        _view(graph, as_json, _Present(graph, context) if present else None) as view,
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
def _view(graph: Any, as_json: bool, present: _Present | None) -> Iterator[_View]:
    if as_json or not sys.stdout.isatty():
        yield _Lines(as_json) if present is None else _MemoryLines(present, as_json)
        return
    from rich.live import Live  # only people at a terminal pay for it

    with Live(auto_refresh=False, transient=False) as live:
        yield _Picture(graph.render if present is None else present.table, live, moves=present is not None)


class _Present:
    """The working memory, read anew each time: it changes by fading alone, too."""

    def __init__(self, graph: Any, context: str | None) -> None:
        self._graph, self._context = graph, context

    def window(self) -> Window:
        found: Window = self._graph.working_memory(
            context=self._context, context_fallback=self._context is not None
        )
        return found

    def table(self) -> str:
        rows = [f"{item.effective:.3f}  {item.id}{_label(item)}" for item in self.window().items]
        return "\n".join(["present now", *(rows or ["(nothing)"])])


def _label(item: WindowItem) -> str:
    label = item.node.label if item.node is not None else item.id
    return "" if label in ("", item.id) else f"  {visible(label)}"


class _MemoryLines:
    """One line for each working memory that differs from the one before."""

    def __init__(self, present: _Present, as_json: bool) -> None:
        self._present, self._as_json = present, as_json
        self._ids: list[str] | None = None
        self._told = ""

    def show(self, news: Sequence[_News]) -> bool:
        window = self._present.window()
        worth = {item.id: round(item.effective, 3) for item in window.items}
        ids = list(worth)
        told = encode_text([[node, worth[node]] for node in ids])
        if ids == self._ids and (not news or told == self._told):
            return True
        self._ids, self._told = ids, told
        if self._as_json:
            present = [{"effective": worth[node], "id": node} for node in ids]
            return write(json_text({"at": window.at, "present": present}, one_line=True))
        return write("\t".join(f"{node} {worth[node]:.3f}" for node in ids) or "(nothing)")


class _Lines:
    """One line for each event."""

    def __init__(self, as_json: bool) -> None:
        self._line = _json_line if as_json else _text_line

    def show(self, news: Sequence[_News]) -> bool:
        return not news or write("\n".join(map(self._line, news)))


class _Picture:
    """The state of the moment, and the last events below it.

    Args:
        picture: Draws it.
        moves: It changes without events too.
    """

    def __init__(self, picture: Callable[[], str], live: Any, *, moves: bool) -> None:
        self._picture, self._live, self._moves = picture, live, moves
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._drawn = ""

    def show(self, news: Sequence[_News]) -> bool:
        from rich.text import Text

        self._recent.extend(map(_text_line, news))
        if news or self._moves or not self._drawn:
            lines = "\n".join(line.replace("\t", "  ") for line in self._recent)
            shown = f"{self._picture()}\n\n{lines}"
            if shown != self._drawn:
                # Text, not markup: what the graph holds must not be read as instructions.
                self._live.update(Text(shown), refresh=True)
                self._drawn = shown
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
