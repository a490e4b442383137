"""Servers of a graph that other packages bring, found by entry point, so that nothing here imports one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import entry_points

from graphstate.adaptogen import Adaptogen
from graphstate.cli.arguments import Usage
from graphstate.cli.commands import Place

__all__ = ("GROUP", "serve")

GROUP = "graphstate.servers"


def serve(
    name: str,
    place: Place,
    *,
    http: bool = False,
    port: int | None = None,
    read_only: bool = False,
    tools: str | None = None,
    embedder: str = "stored",
) -> int:
    """Open a graph, let a server work with it until the server ends, and return the exit code.

    Raises:
        Usage: No installed package brings the server, a package that it needs is missing, or there
            is nobody to serve.
    """
    server = _found(name)
    if port is not None and not http:
        raise Usage("--port goes with --http")
    if not http and (sys.stdin is None or sys.stdout is None):
        raise Usage("standard input or output is closed, there is nobody to serve; see --http")
    with Adaptogen.open(
        place.path, seed=False, actor=place.actor, trust=place.trust, durability="power", read_only=read_only,
        key=place.key, embedder=embedder,
    ) as graph:  # fmt: skip
        try:
            return server(graph, read_only=read_only, tools=tools, http=http, port=port, debug=place.debug)
        except ImportError as error:
            raise Usage(str(error)) from None


def _found(name: str) -> Callable[..., int]:
    for point in entry_points(group=GROUP, name=name):
        try:
            server: Callable[..., int] = point.load()
        except ImportError as error:
            raise Usage(f"{name}: {error}") from None
        return server
    raise Usage(f"no server is called {name!r}: is the package installed?")
