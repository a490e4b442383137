"""The commands as a table: one row each, read by the program, its help, the reference and the tests.

A command names a verb of the facade and hands it the words and flags that were given under the
verb's own parameter names. The few that show something else than a verb's answer have a
function of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from graphstate.cli.arguments import (
    COUNT,
    JSON,
    NAMES,
    NUMBER,
    NUMBERS,
    OBJECT,
    SWITCH,
    TEXT,
    Flag,
    Word,
)

__all__ = ("COMMANDS", "EVERYWHERE", "FLAGS", "Command", "Opens", "Shown", "help_text")

#: Whether the file is opened to be read, to be written, or not at all.
Opens: TypeAlias = Literal["read", "write", "nothing"]


class Shown(NamedTuple):
    """What a command prints if its verb's answer alone is not it."""

    value: Any
    #: what a person sees instead of the JSON
    text: str | None = None
    exit_code: int = 0


class Command(NamedTuple):
    """One row of the table."""

    name: str
    help: str
    words: tuple[Word, ...] = ()
    flags: tuple[Flag, ...] = ()
    opens: Opens = "write"
    #: the verb, if it is not the name in snake_case
    verb: str = ""
    #: instead of the verb; `graph` is None if nothing is opened
    run: Callable[[Any, dict[str, Any]], Any] | None = None

    @property
    def usage(self) -> str:
        shown = [word.shown for word in self.words] + [f"[{flag.shown}]" for flag in self.flags]
        return " ".join(("adaptogen", self.name, *shown))

    def call(self, graph: Any, values: dict[str, Any]) -> Any:
        """Run the command; the answer is a `Result`, a plain value or a `Shown`."""
        if self.run is not None:
            return self.run(graph, values)
        given = dict(values)
        words = [given.pop(word.name) for word in self.words if word.name in given]
        return getattr(graph, self.verb or self.name.replace("-", "_"))(*words, **given)


# -------------------------------------------------------------- commands that are more than a verb


def _get(graph: Any, values: dict[str, Any]) -> Shown:
    node = graph.get_node(values["id"])
    return Shown(node, exit_code=0 if node is not None else 1)


def _cursor(graph: Any, values: dict[str, Any]) -> Any:
    return graph.cursor()


def _history(graph: Any, values: dict[str, Any]) -> Shown:
    from graphstate.cli.output import visible

    entries = graph.history(**values)
    lines = ("\t".join((str(e.seq), e.type, visible(e.summary))) for e in entries)
    return Shown(entries, "\n".join(lines))


def _render(graph: Any, values: dict[str, Any]) -> Shown:
    text = graph.render()
    return Shown(text, text)


def _status(graph: Any, values: dict[str, Any]) -> Shown:
    value = {
        "cursor": graph.cursor(),
        "moves": graph.suggest(),
        "ready": graph.ready(),
        "seq": graph.head().seq,
    }
    return Shown(value, graph.render())


def _verify(graph: Any, values: dict[str, Any]) -> Shown:
    report = graph.verify_integrity(**values)
    return Shown(report, exit_code=0 if report.ok else 1)


def _describe(graph: Any, values: dict[str, Any]) -> Any:
    from graphstate.manifest import describe

    return describe()


# ------------------------------------------------------------------------------------- the table

_ID = Word("id", "the node", TEXT)
_TO = Word("to", "the node to move to", TEXT)
_VARS = Flag("vars", "an object that guards read as vars", OBJECT)
_EDGE = Flag("edge-id", "the edge", TEXT)
_CAUSE = Flag("cause", "a text of your own; a second call with it changes nothing", TEXT)
_LIMIT = Flag("limit", "at most this many", COUNT)

_ROWS = (
    Command("status", "the cursor, its ranked moves, what is ready", opens="read", run=_status),
    Command("render", "the same as text only", opens="read", run=_render),
    Command("describe", "verbs, errors and tunables for a program", opens="nothing", run=_describe),
    Command("suggest", "the legal moves, best first, with reasons", (), (_VARS,), opens="read"),
    Command(
        "explain",
        "how a move would be decided",
        (_TO,),
        (_VARS,),
        opens="read",
        verb="explain_transition",
    ),
    Command("legal-moves", "the moves that are not denied", (), (_VARS,), opens="read"),
    Command("ready", "nodes whose prerequisites are done", (Word("done", "finished nodes", TEXT, many=True),), opens="read"),
    Command("topo", "all nodes, prerequisites first", opens="read"),
)

COMMANDS: Mapping[str, Command] = {row.name: row for row in _ROWS}
EVERYWHERE = ()
FLAGS: Mapping[str, Flag] = {}


def help_text(command: Command | None) -> str:
    return ""
