"""Clients over HTTP, on this machine alone.

The protocol's library serves streamable HTTP and refuses foreign hosts and origins. Before it
sees a body, the strict reader has.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

import uvicorn
from mcp import types
from mcp.server.lowlevel import Server

from adapters.mcp.stdio import MAX_MESSAGE, refusal
from agentloop._canonical import NotJson, decode

__all__ = ("HOST", "PATH", "listen", "serve_http")

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
#: How long clients that are being served may take when the server is ended.
_GRACE_S: Final = 2

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_App: TypeAlias = Callable[[Any, _Receive, _Send], Awaitable[None]]


def listen(port: int) -> socket.socket:
    """Return a socket that listens on this machine; port 0 takes a free one.

    Raises:
        OSError: The port is taken or not allowed.
    """
    return socket.create_server((HOST, port))


async def serve_http(server: Server[Any], listening: socket.socket) -> None:
    """Serve clients until a signal ends the process; it is raised again when all is closed."""
    app = server.streamable_http_app(streamable_http_path=PATH, json_response=True, host=HOST)
    config = uvicorn.Config(
        _strict(app), log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_S, lifespan="on"
    )
    await uvicorn.Server(config).serve(sockets=[listening])


def _strict(app: Any) -> _App:
    """Let only bodies through that are JSON as the strict reader reads it."""

    async def checked(scope: Any, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        try:
            decode(body, max_bytes=MAX_MESSAGE)
        except NotJson as error:
            status = 413 if len(body) > MAX_MESSAGE else 400
            await _refuse(send, status, refusal(types.PARSE_ERROR, f"not JSON: {error}"))
            return
        await app(scope, _replayed(body, receive), send)

    return checked


async def _body(receive: _Receive) -> bytes | None:
    """Return the body, of one that is too long the beginning; None if the client left."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False) or len(body) > MAX_MESSAGE:
            return bytes(body)


def _replayed(body: bytes, receive: _Receive) -> _Receive:
    told = False

    async def replay() -> _Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: _Send, status: int, error: types.JSONRPCError) -> None:
    body = error.model_dump_json(by_alias=True, exclude_unset=True).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
