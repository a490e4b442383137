"""Servers of a graph that other packages bring, found by entry point, so that nothing here imports one."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from graphstate.cli.arguments import Usage

__all__ = ("GROUP", "find_server")

GROUP = "graphstate.servers"


def find_server(name: str) -> Callable[..., int]:
    """Return the function that serves an open graph and answers with an exit code.

    Raises:
        Usage: No installed package brings it, or a package that it needs is missing.
    """
    for point in entry_points(group=GROUP, name=name):
        try:
            serve: Callable[..., int] = point.load()
        except ImportError as error:
            raise Usage(f"{name}: {error}") from None
        return serve
    raise Usage(f"no server is called {name!r}: is the package installed?")
