"""What a client can call, each tool a row of a table: ``graph_*`` are verbs, ``memory_*`` see `memory`.

Of the graph's verbs those are offered that an agent at work needs. What sets policy, takes events
back or writes files is not: a person does that at the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapters.mcp.forms import arguments_schema, description
from adapters.mcp.memory import MEMORY_TOOLS
from agentloop._canonical import Json
from graphstate import Adaptogen

__all__ = ("FAMILIES", "GRAPH_VERBS", "Tool", "all_tools", "graph_tools", "memory_tools")

#: What the names of tools begin with.
FAMILIES: Final = ("memory", "graph")

#: The verbs in the order in which they are listed, with what a client does not see of each. Nobody
#: acts as another actor, and vectors are computed, not told.
GRAPH_VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "orient": ("actor",),
    "render": ("actor",),
    "recall": ("embedding",),
    "get_node": (),
    "remember": ("actor", "embedding", "embed"),
    "set_status": ("actor",),
    "link": ("actor",),
    "depend": ("actor",),
    "unlink": ("actor",),
    "get_edge": (),
    "plan": ("actor",),
    "ready": (),
    "cursor": ("actor",),
    "set_cursor": ("actor",),
    "suggest": ("actor",),
    "legal_moves": ("actor",),
    "explain_transition": ("actor",),
    "transition": ("actor",),
    "step": ("actor",),
    "reward": ("actor",),
    "get_stat": (),
    "zones": (),
    "locks": (),
    "history": (),
    "checkpoint": ("actor",),
    "list_checkpoints": (),
    "validate": (),
    "metrics": (),
}

#: These take away what was there; all others add to it or read.
_DESTRUCTIVE: Final = frozenset({"unlink", "remember", "set_status", "set_cursor"})

#: Said of a parameter where its verb's docstring takes it for granted.
_GENERAL: Final[Mapping[str, str]] = {
    "cause": "A text that makes the call happen once: repeated with it, it gets the first answer.",
    "id": "1 to 128 of A-Z a-z 0-9 . _ : - beginning with a letter or digit.",
    "reason": "Kept in the event.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One thing a client can call."""

    name: str
    description: str
    #: JSON Schema of the arguments
    schema: Mapping[str, Any]
    #: Changes nothing.
    reads: bool
    #: May take away or replace what was there.
    destructive: bool = False
    #: Called with the graph and checked arguments; answers `Ok`, `Fail` or a plain value.
    call: Callable[[Adaptogen, dict[str, Json]], Any]


def all_tools(*, read_only: bool = False, family: str | None = None) -> dict[str, Tool]:
    """Return every tool by its name, or only those that change nothing, or of one family."""
    tools = (*memory_tools(), *graph_tools())
    return {
        tool.name: tool
        for tool in tools
        if (tool.reads or not read_only) and family in (None, tool.name.partition("_")[0])
    }


def graph_tools() -> list[Tool]:
    """Return a tool for each verb that is offered."""
    return [_of_verb(name, hidden) for name, hidden in GRAPH_VERBS.items()]


def memory_tools() -> list[Tool]:
    """Return the tools of the memory."""
    return [
        Tool(
            name=f"memory_{function.__name__}",
            description=description(function),
            schema=arguments_schema(function),
            reads=reads,
            destructive=destructive,
            call=_of_function(function),
        )
        for function, reads, destructive in MEMORY_TOOLS
    ]


def _of_function(function: Callable[..., Any]) -> Callable[[Adaptogen, dict[str, Json]], Any]:
    return lambda graph, arguments: function(graph, **arguments)


def _of_verb(name: str, hidden: tuple[str, ...]) -> Tool:
    verb = getattr(Adaptogen, name)
    schema = arguments_schema(verb, hidden=hidden)
    for parameter, note in _GENERAL.items():
        form = schema["properties"].get(parameter)
        if form is not None and "description" not in form:
            schema["properties"][parameter] = {**form, "description": note}

    def call(graph: Adaptogen, arguments: dict[str, Json]) -> Any:
        return getattr(graph, name)(**arguments)

    return Tool(
        name=f"graph_{name}",
        description=description(verb),
        schema=schema,
        reads=verb.verb == "reads",
        destructive=name in _DESTRUCTIVE,
        call=call,
    )
