"""A client on the other end of two pipes: one line, one message.

Lines are read by the strict reader, and one that it refuses is answered instead of ignored. The
pipes are waited for by the event loop, so that ending never waits for a client. When the client
closes its end, what it has asked for is still answered.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from agentloop._canonical import Json, NotJson, decode

__all__ = ("MAX_MESSAGE", "refusal", "serve_stdio")

#: Bytes of a message.
MAX_MESSAGE: Final = 4 * 1024 * 1024
#: Requests that are at work or wait; more are not read before one of these is answered.
_MAX_OPEN: Final = 256
#: What a pipe that can be written to takes without blocking.
_PIECE: Final = 4_096
#: How long it may take until a client that has closed its end has been answered, and has read that.
_LEAVING_S: Final = 10
_LAST_WORDS_S: Final = 2


def refusal(code: int, message: str) -> types.JSONRPCError:
    """Return the answer to what cannot be read as a request."""
    return types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=message))


async def serve_stdio(server: Server[Any], *, reads: int = 0, writes: int = 1) -> None:
    """Serve one client until it closes its end.

    Args:
        reads: The descriptor that requests come from.
        writes: The one that answers go to.
    """
    ask, asked = anyio.create_memory_object_stream[SessionMessage | Exception]()
    answer, answers = anyio.create_memory_object_stream[SessionMessage]()
    line = _Line(reads, writes)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.read, ask, answer.clone())
        tasks.start_soon(line.write, answers)
        await server.run(asked, answer, server.create_initialization_options())
        with anyio.move_on_after(_LAST_WORDS_S):
            await line.silent.wait()
        tasks.cancel_scope.cancel()  # whoever does not read is not waited for


class _Line:
    """The two ends, and which requests have not been answered."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._open: set[types.RequestId] = set()
        self._settling = anyio.Event()
        #: Nothing more is written.
        self.silent = anyio.Event()

    async def read(
        self,
        ask: MemoryObjectSendStream[SessionMessage | Exception],
        answer: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        async with ask, answer:
            async for message in self._messages(answer):
                if isinstance(message, types.JSONRPCRequest):
                    await self._fewer_than(_MAX_OPEN)
                    self._open.add(message.id)
                elif isinstance(message, types.JSONRPCNotification):
                    self._forget_cancelled(message)
                await ask.send(SessionMessage(message))
            with anyio.move_on_after(_LEAVING_S):
                await self._fewer_than(1)

    async def _fewer_than(self, count: int) -> None:
        """Wait until so few requests are open, or nobody reads answers any more."""
        while len(self._open) >= count and not self.silent.is_set():
            self._settling = anyio.Event()
            await self._settling.wait()

    def _forget_cancelled(self, message: types.JSONRPCNotification) -> None:
        """A request that is cancelled gets no answer."""
        if message.method == "notifications/cancelled" and message.params:
            self._settled(message.params.get("requestId"))

    def _settled(self, id: Any) -> None:
        if isinstance(id, (int, str)):
            self._open.discard(id)
        self._settling.set()

    async def _messages(
        self, answer: MemoryObjectSendStream[SessionMessage]
    ) -> AsyncIterator[types.JSONRPCMessage]:
        async for line in _lines(self._reads):
            if not line.strip():
                continue
            try:
                if len(line) > MAX_MESSAGE:
                    raise NotJson(f"a message has more than the {MAX_MESSAGE} bytes allowed")
                value = decode(line, max_bytes=MAX_MESSAGE)
            except NotJson as error:
                await answer.send(SessionMessage(refusal(types.PARSE_ERROR, f"not JSON: {error}")))
                continue
            message = _message(value)
            if message is None:
                wrong = refusal(types.INVALID_REQUEST, "not a message of JSON-RPC 2.0")
                await answer.send(SessionMessage(wrong))
            else:
                yield message

    async def write(self, answers: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async for each in answers:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                if not await _written(self._writes, f"{text}\n".encode()):
                    break
                if isinstance(each.message, (types.JSONRPCResponse, types.JSONRPCError)):
                    self._settled(each.message.id)
        finally:
            answers.close()
            self.silent.set()
            self._settling.set()


def _message(value: Json) -> types.JSONRPCMessage | None:
    """Return the message that a value is, None if it is none."""
    try:
        message = types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        return None
    # The library takes a request whose id is no id for a notification, which nobody answers.
    return None if isinstance(message, types.JSONRPCNotification) and "id" in value else message


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    """Yield lines without their end; of one that is too long just so much that it is seen to be."""
    rest, too_long = bytearray(), False
    while True:
        await _until(anyio.wait_readable, descriptor)
        piece = os.read(descriptor, 65_536)
        if not piece:
            break
        *whole, last = piece.split(b"\n")
        for part in whole:
            yield bytes(rest) if too_long else bytes(rest + part)
            rest.clear()
            too_long = False
        if not too_long:
            rest += last
            too_long = len(rest) > MAX_MESSAGE
    if rest:
        yield bytes(rest)


async def _written(descriptor: int, data: bytes) -> bool:
    """Write, a piece at a time; False if nobody reads any more."""
    for start in range(0, len(data), _PIECE):
        piece = memoryview(data)[start : start + _PIECE]
        while piece:
            await _until(anyio.wait_writable, descriptor)
            try:
                piece = piece[os.write(descriptor, piece) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return False
    return True


async def _until(ready: Any, descriptor: int) -> None:
    try:
        await ready(descriptor)
    except PermissionError:  # a file, which never keeps anybody waiting
        await anyio.lowlevel.checkpoint()
