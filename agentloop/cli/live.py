"""The view for people at a terminal: the same lines in colour, and a line that moves below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from agentloop.cli.terminal import visible
from agentloop.cli.view import PlainView
from agentloop.frames import CYCLE_STARTED, NODE_STARTED, TEXT, TOOL_CALL, TOOL_RESULT, Frame

__all__ = ("LiveView",)

_STYLES: Final = {
    "dim": "dim",
    "text": "",
    "node": "bold magenta",
    "cycle": "bold",
    "tool": "cyan",
    "retry": "yellow",
    "fact": "blue",
    "good": "bold green",
    "bad": "bold red",
}


#: Characters of the text being said that are shown.
_TAIL: Final = 60


class LiveView:
    """Shows a run on a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._lines = PlainView(self._put)
        self._status = Spinner("dots", text="starting")
        self._live = Live(self._status, console=self._console, transient=True, refresh_per_second=12)
        self._cycle = 0
        self._said = ""

    def _put(self, style: str, text: str) -> None:
        # Text, not markup: what an agent says must not be read as instructions for the screen.
        self._console.print(Text(text, style=_STYLES[style]), soft_wrap=True)

    def begin(self, facts: Mapping[str, str]) -> None:
        self._lines.begin(facts)
        self._live.start()

    def frame(self, frame: Frame) -> None:
        self._lines.frame(frame)
        if frame.type == TEXT:
            # What is being said right now; its line above follows when it is complete.
            self._said = f"{self._said}{frame.text}"
            said = " ".join(self._said[-_TAIL:].split())
            self._say(f"{frame.content.get('role', '')} {'…' * (len(self._said) > _TAIL)}{said}")
            return
        self._said = ""
        if frame.type == CYCLE_STARTED:
            self._cycle = int(frame.content["iteration"])
            self._say("the agent works")
        elif frame.type == TOOL_CALL:
            self._say(f"{frame.content.get('name')} runs")
        elif frame.type == TOOL_RESULT:
            self._say("the agent works")
        elif frame.type == NODE_STARTED:
            self._say("judging")

    def _say(self, text: str) -> None:
        self._status.update(text=Text(f"cycle {self._cycle}: {visible(text)}", style="dim", no_wrap=True))

    def node(self, node_id: str, why: Sequence[str]) -> None:
        self._lines.node(node_id, why)

    def end(self, facts: Mapping[str, Any], learned: Sequence[str], go_on: Sequence[str]) -> None:
        self.close()
        self._lines.end(facts, learned, go_on)

    def close(self) -> None:
        self._live.stop()
