"""`adaptogen mcp --http`: a real process on loopback, the official client, and worse ones."""

from __future__ import annotations

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from agentloop._canonical import decode, encode
from graphstate import Adaptogen
from tests.adapters.mcp.serving import GREETING, WAIT_S, over_http, started

pytestmark = pytest.mark.timeout(90)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2].partition("/")[0])


def post(address: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port_of(address), timeout=WAIT_S)
    try:
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection.request("POST", "/mcp", body, sent)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def initialize() -> bytes:
    return encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING})


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_two_official_clients_share_the_server(tmp_path: Path, mode: Any) -> None:
    path, count = tmp_path / "graph.db", 20

    async def write(client: Client, name: str) -> None:
        for number in range(count):
            answer = await client.call_tool("graph_remember", {"id": f"{name}{number}"})
            assert not answer.is_error, answer.structured_content

    with over_http(path) as (process, address):
        async with Client(address, mode=mode) as one, Client(address, mode=mode) as two:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write, one, "a")
                tasks.start_soon(write, two, "b")
            seen = await one.call_tool("graph_recall", {"limit": 1000})
            assert len(seen.structured_content["data"]) == 2 * count
            assert (await two.read_resource("graphstate://stats")).contents
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 143
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.verify_integrity(deep=True).ok
        assert {row.trust for row in graph.store.log.read("graph")} == {"model"}


def test_it_listens_on_this_machine_alone_and_refuses_foreign_hosts_and_origins(tmp_path: Path) -> None:
    with over_http(tmp_path / "graph.db") as (_, address):
        assert address.startswith("http://127.0.0.1:")
        assert post(address, initialize())[0] == 200
        assert post(address, initialize(), Host="evil.example")[0] == 421
        assert post(address, initialize(), Origin="https://evil.example")[0] == 403


def test_a_body_that_is_no_json_is_refused_and_the_next_one_served(tmp_path: Path) -> None:
    bodies = {
        b"": 400,
        b"{": 400,
        b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}': 400,
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": 1e999}}': 400,
        b"[" * 500 + b"]" * 500: 400,
        b"\xff": 400,
        b'"' + b"x" * (4 * 1024 * 1024) + b'"': 413,
        b"[]": 400,
        b'{"jsonrpc": "2.0"}': 400,
    }
    with over_http(tmp_path / "graph.db") as (process, address):
        for body, status in bodies.items():
            got, answer = post(address, body)
            assert got == status, body[:60]
            assert b"Traceback" not in answer
            assert decode(answer)["error"]["code"] in (-32700, -32600, -32602), body[:60]
        assert post(address, initialize(), Content_Type="text/plain")[0] == 400
        assert post(address, initialize())[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_client_that_hangs_up_in_the_middle_leaves_whole_calls_and_a_serving_server(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, seed=False) as other, over_http(path) as (_, address):
        spec = {"nodes": ["x", "y"], "deps": [["y", "x"]]}
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": "graph_plan", "arguments": {"spec": spec}, "_meta": meta}
        body = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port_of(address)}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            "Mcp-Method: tools/call\r\nMcp-Name: graph_plan\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        with other.unit():
            other.remember("theirs").unwrap()
            with socket.create_connection(("127.0.0.1", port_of(address)), timeout=WAIT_S) as hasty:
                hasty.sendall(head + body)
            with socket.create_connection(("127.0.0.1", port_of(address)), timeout=WAIT_S) as half:
                half.sendall(head + body[:20])
        assert post(address, initialize())[0] == 200
        assert {node.id for node in other.recall()} - {"theirs"} in (set(), {"x", "y"})
        assert other.verify_integrity(deep=True).ok


def test_a_port_that_is_taken_is_a_failure_with_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with started(tmp_path / "graph.db", "--http", "--port", port) as process:
            assert process.wait(WAIT_S) == 1
            assert process.stdout is not None
            answer = decode(process.stdout.read())
    assert answer["code"] == "InvalidInput"
    assert "--port" in answer["hint"]


class Session:
    """A session of the protocol of 2025, request by request."""

    def __init__(self, address: str) -> None:
        self._port = port_of(address)
        status, headers, _ = self._post(initialize(), {})
        assert status == 200
        self._headers = {"Mcp-Session-Id": headers["mcp-session-id"]}
        self.send({"method": "notifications/initialized"})

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=WAIT_S)
        try:
            accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            connection.request("POST", "/mcp", body, {**accepted, **headers})
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, told, answer.read()
        finally:
            connection.close()

    def send(self, message: dict[str, Any]) -> bytes:
        return self._post(encode({"jsonrpc": "2.0", **message}), self._headers)[2]

    def call(self, number: int, name: str, **arguments: Any) -> bytes:
        params = {"name": name, "arguments": arguments}
        return self.send({"id": number, "method": "tools/call", "params": params})

    def listen(self) -> socket.socket:
        """Hold the stream open on which a server tells news."""
        stream = socket.create_connection(("127.0.0.1", self._port), timeout=WAIT_S)
        head = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAccept: text/event-stream\r\n"
        stream.sendall(f"{head}Mcp-Session-Id: {self._headers['Mcp-Session-Id']}\r\n\r\n".encode())
        assert stream.recv(12) == b"HTTP/1.1 200"
        return stream


def read_by_the_server(session: Session) -> None:
    """Wait until the server has read what was sent before: it serves connections in turn."""
    for number in range(5):
        assert decode(session.send({"id": f"p{number}", "method": "ping"}))["result"] == {}


def test_a_call_that_is_cancelled_while_it_waits_never_begins(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with (
        Adaptogen.open(path, seed=False) as other,
        over_http(path) as (_, address),
        ThreadPoolExecutor(2) as pool,
    ):
        session = Session(address)
        with other.unit():
            other.remember("theirs").unwrap()
            first = pool.submit(session.call, 7, "graph_remember", id="ours")
            read_by_the_server(session)
            late = pool.submit(session.call, 8, "graph_remember", id="late")
            read_by_the_server(session)
            session.send({"method": "notifications/cancelled", "params": {"requestId": 8}})
            assert "result" not in decode(late.result(WAIT_S))
            assert other.get_node("ours") is None
        assert decode(first.result(WAIT_S))["result"]["isError"] is False
        assert other.get_node("ours") is not None
        assert other.get_node("late") is None


def test_killed_while_a_call_waits_nothing_of_it_is_left(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with (
        Adaptogen.open(path, seed=False) as other,
        over_http(path) as (process, address),
        ThreadPoolExecutor(1) as pool,
    ):
        session = Session(address)
        session.call(1, "graph_remember", id="before")
        with other.unit():
            other.remember("theirs").unwrap()
            spec = {"nodes": ["x", "y"], "deps": [["y", "x"]]}
            waiting = pool.submit(session.call, 2, "graph_plan", spec=spec)
            read_by_the_server(session)
            process.kill()
            process.wait(WAIT_S)
            with pytest.raises((OSError, HTTPException)):
                waiting.result(WAIT_S)
        assert {node.id for node in other.recall()} == {"before", "theirs"}
        assert other.verify_integrity(deep=True).ok


def test_a_signal_ends_it_though_a_client_listens(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with over_http(path) as (process, address):
        session = Session(address)
        session.call(1, "graph_remember", id="a")
        with session.listen():
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 143
    assert not path.with_name("graph.db-wal").exists()
