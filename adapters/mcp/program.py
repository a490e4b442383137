"""Serving until the client leaves or a signal comes: what `adaptogen mcp` does with an open graph."""

from __future__ import annotations

import logging
import signal
import sys
from typing import Any, Final

import anyio

from adapters.mcp.desk import Desk
from adapters.mcp.tools import FAMILIES, all_tools
from agentloop.errors import MissingExtra
from graphstate import Adaptogen, ErrorCode, VerbFailed
from graphstate.verbs import arguments

__all__ = ("serve",)

PORT: Final = 8765


def serve(
    graph: Adaptogen,
    *,
    read_only: bool = False,
    tools: str | None = None,
    http: bool = False,
    port: int | None = None,
    debug: bool = False,
) -> int:
    """Serve a graph and return the exit code: 0 when the client has left, else that of the signal.

    Args:
        graph: An open graph, which is not closed.
        read_only: Offer only what changes nothing.
        tools: Offer only this family, memory or graph.
        http: Streamable HTTP on this machine instead of standard input and output.
        port: Where; 0 takes a free one, which is told on standard error.
        debug: Let the server's libraries and unexpected errors tell what they met.

    Raises:
        MissingExtra: The protocol's package is not installed.
        VerbFailed: InvalidInput, if there is no such family or the port cannot be listened at.
    """
    try:
        import mcp.server.lowlevel as _library
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "mcp":
            raise
        raise MissingExtra("mcp", "mcp", "adaptogen mcp") from error
    assert _library
    from adapters.mcp.server import build_server

    if not debug:
        logging.disable(logging.CRITICAL)  # this process is the server's; nobody else logs in it
    if tools is not None:
        arguments.choice(tools, "tools", FAMILIES)
    offered = all_tools(read_only=read_only, family=tools)
    server = build_server(Desk(graph, offered, debug=debug))
    if http:
        return _over_http(server, PORT if port is None else port)
    return anyio.run(_over_pipes, server)


async def _over_pipes(server: Any) -> int:
    from adapters.mcp.stdio import serve_stdio

    code = 0

    async def heed_signals() -> None:
        nonlocal code
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                code = 128 + number
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heed_signals)
        await serve_stdio(server)
        tasks.cancel_scope.cancel()
    return code


def _over_http(server: Any, port: int) -> int:
    from adapters.mcp.http import HOST, PATH, listen, serve_http

    try:
        listening = listen(port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise VerbFailed(
            ErrorCode.INVALID_INPUT, f"port {port}: {reason}", {"hint": "name another --port"}
        ) from None
    with listening:
        sys.stderr.write(f"adaptogen: serving at http://{HOST}:{listening.getsockname()[1]}{PATH}\n")
        sys.stderr.flush()
        anyio.run(serve_http, server, listening)
    return 0
