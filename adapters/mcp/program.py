"""Serving until the client leaves or a signal comes: what `adaptogen mcp` does with an open graph."""

from __future__ import annotations

import logging
import signal
from typing import Any, Final

import anyio

from adapters.mcp.desk import Desk
from adapters.mcp.tools import FAMILIES, all_tools
from agentloop.errors import MissingExtra
from graphstate import Adaptogen, ErrorCode, VerbFailed
from graphstate.cli.output import complain
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
        from adapters.mcp.server import build_server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "mcp":
            raise
        raise MissingExtra("mcp", "mcp", "adaptogen mcp") from error

    if tools is not None:
        arguments.choice(tools, "tools", FAMILIES)
    server = build_server(Desk(graph, all_tools(read_only=read_only, family=tools), debug=debug))
    if http:
        return _over_http(server, PORT if port is None else port, debug)
    _quieten(debug)
    return anyio.run(_over_pipes, server)


def _quieten(debug: bool) -> None:
    """Keep what the libraries log, tracebacks among it, from standard error: this process is the server's."""
    if not debug:
        logging.disable(logging.CRITICAL)


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


def _over_http(server: Any, port: int, debug: bool) -> int:
    from adapters.mcp.http import HOST, PATH, listen, serve_http

    try:
        listening = listen(arguments.whole(port, "port", least=0, most=65_535))
    except OSError as error:
        refusal = f"port {port}: {error.strerror or error}"
        raise VerbFailed(ErrorCode.INVALID_INPUT, refusal, {"hint": "name another --port"}) from None
    with listening:
        _quieten(debug)
        complain(f"serving at http://{HOST}:{listening.getsockname()[1]}{PATH}")
        anyio.run(serve_http, server, listening)
    return 0
