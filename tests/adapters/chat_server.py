"""A chat server on the loopback interface that answers what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

from agentloop._canonical import decode

DATA = Path(__file__).parent / "data"

#: How one request is answered.
Answer: TypeAlias = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(decode(body))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.answers.pop(0)(self)

    def begin(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class ChatServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answers: Sequence[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        #: Set when a test is over, so that a hanging answer ends.
        self.over = threading.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that leaves early is part of some tests."""


@contextmanager
def chat_server(*answers: Answer) -> Iterator[ChatServer]:
    server = ChatServer(answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def recording(name: str) -> bytes:
    return (DATA / name).read_bytes()


def plays(data: bytes, *, size: int = 1 << 20) -> Answer:
    """Stream the data in pieces of that size, and end the answer."""

    def answer(handler: Handler) -> None:
        handler.begin()
        for start in range(0, len(data), size):
            handler.piece(data[start : start + size])
        handler.wfile.write(b"0\r\n\r\n")

    return answer


def breaks_after(data: bytes) -> Answer:
    """Stream the data, then close the connection in the middle of the answer."""

    def answer(handler: Handler) -> None:
        handler.begin()
        handler.piece(data)
        handler.close_connection = True

    return answer


def hangs_after(data: bytes) -> Answer:
    """Stream the data, then say nothing more and keep the connection open."""

    def answer(handler: Handler) -> None:
        handler.begin()
        if data:
            handler.piece(data)
        handler.server.over.wait(30)
        handler.close_connection = True

    return answer


def refuses(status: int, body: bytes = b"{}", headers: Mapping[str, str] | None = None) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def answers_whole(body: bytes) -> Answer:
    """Answer without streaming, as some servers do whatever they are asked."""
    return refuses(200, body)
