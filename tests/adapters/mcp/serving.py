"""A graph being served: in this process, in one at the other end of two pipes, and over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, ReadResourceResult, TextContent, TextResourceContents

from adapters.mcp.desk import Desk
from adapters.mcp.server import build_server
from adapters.mcp.tools import all_tools
from agentloop._canonical import decode, encode
from graphstate import Adaptogen

ROOT = Path(__file__).parents[3]
PROGRAM = (sys.executable, "-m", "graphstate.cli", "mcp")
WAIT_S = 30
#: How clients greet that know the protocol of 2025.
GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def environment() -> dict[str, str]:
    places = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


@asynccontextmanager
async def inside(graph: Adaptogen, *, read_only: bool = False) -> AsyncIterator[Client]:
    """The official client on a server in this process."""
    async with Client(build_server(Desk(graph, all_tools(read_only=read_only)))) as client:
        yield client


def text_of(answer: CallToolResult | ReadResourceResult) -> str:
    """What a model reads."""
    (part,) = answer.content if isinstance(answer, CallToolResult) else answer.contents
    assert isinstance(part, (TextContent, TextResourceContents))
    return part.text


def piped(path: Path, *flags: str) -> StdioServerParameters:
    """The program, for the official client to start."""
    return StdioServerParameters(
        command=PROGRAM[0], args=[*PROGRAM[1:], "--db", str(path), *flags], env=environment()
    )


@contextmanager
def started(path: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program, its pipes in our hands; killed at the end if it still runs."""
    process = subprocess.Popen(
        [*PROGRAM, "--db", str(path), *flags],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def over_http(path: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The program on a free port, and its address."""
    with started(path, "--http", "--port", "0", *flags) as process:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert "http://127.0.0.1:" in said, said + process.stderr.read().decode()
        yield process, said.split()[-1]


class Line:
    """The client's side of the pipes, message by message."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._last = 0

    def send(self, data: bytes) -> None:
        self._in.write(data + b"\n")
        self._in.flush()

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        self._last += 1
        self.send(encode({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params or {}}))
        return self._last

    def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self.send(encode({"jsonrpc": "2.0", "method": method, "params": params or {}}))

    def hear(self) -> Any:
        return decode(self._out.readline())

    def rest(self) -> list[Any]:
        self._in.close()
        return [decode(line) for line in self._out.read().splitlines()]

    def greet(self) -> None:
        """Shake hands."""
        self.ask(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        )
        assert self.hear()["result"]["serverInfo"]["name"] == "adaptogen"
        self.tell("notifications/initialized")

    def call(self, name: str, **arguments: Any) -> int:
        return self.ask("tools/call", {"name": name, "arguments": arguments})
