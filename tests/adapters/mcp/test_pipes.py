"""`adaptogen mcp` at the other end of two pipes: a real process, the official client, and worse ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from adapters.mcp import stdio
from adapters.mcp.desk import Desk
from adapters.mcp.server import build_server
from adapters.mcp.tools import all_tools
from agentloop._canonical import decode, encode
from graphstate import Adaptogen
from graphstate.cli import main
from tests.adapters.mcp.serving import GREETING, WAIT_S, Line, environment, piped, started

pytestmark = pytest.mark.timeout(90)

PARSE_ERROR, INVALID_REQUEST = -32700, -32600


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_works_with_a_file(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "graph.db"
    async with Client(piped(path), mode=mode) as client:
        assert "graph_remember" in {tool.name for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("graph_remember", {"id": "a", "label": "ä\u2028\u202e"})
        assert answer.structured_content["data"]["version"] == 1
        assert (await client.read_resource("graphstate://stats")).contents
    with Adaptogen.open(path, seed=False) as graph:
        node = graph.get_node("a")
        assert node is not None
        assert node.label == "ä\u2028\u202e"
        (row,) = graph.store.log.read("graph")
        assert (row.actor, row.trust) == ("mcp", "model")


@pytest.mark.asyncio
async def test_two_clients_write_into_one_file_at_once(tmp_path: Path) -> None:
    path, count = tmp_path / "graph.db", 25

    async def write(client: Client, name: str) -> None:
        for number in range(count):
            answer = await client.call_tool("graph_remember", {"id": f"{name}{number}"})
            assert not answer.is_error, answer.structured_content

    async with Client(piped(path)) as one, Client(piped(path, "--actor", "second")) as two:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, one, "a")
            tasks.start_soon(write, two, "b")
        seen = await one.call_tool("graph_recall", {"limit": 1000})
        assert len(seen.structured_content["data"]) == 2 * count
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.verify_integrity(deep=True).ok
        assert {row.actor for row in graph.store.log.read("graph")} == {"mcp", "second"}


MALFORMED = {
    "no JSON": (b"{", PARSE_ERROR),
    "a key twice": (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "id": 8}', PARSE_ERROR),
    "not finite": (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"x": NaN}}', PARSE_ERROR),
    "too deep": (b"[" * 500 + b"]" * 500, PARSE_ERROR),
    "half a character": (b'{"jsonrpc": "2.0", "id": 7, "method": "\xc3"}', PARSE_ERROR),
    "a lone surrogate": (b'{"jsonrpc": "2.0", "id": 7, "method": "\\ud800"}', PARSE_ERROR),
    "too long": (b'"' + b"x" * (5 * 1024 * 1024) + b'"', PARSE_ERROR),
    "a list": (b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]', INVALID_REQUEST),
    "another protocol": (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', INVALID_REQUEST),
    "no method": (b'{"jsonrpc": "2.0", "id": 7}', INVALID_REQUEST),
    "an object for an id": (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', INVALID_REQUEST),
    "no id at all": (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', INVALID_REQUEST),
}


def test_what_is_no_request_is_answered_and_the_next_one_served(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with started(path) as process:
        line = Line(process)
        line.greet()
        for what, (data, code) in MALFORMED.items():
            line.send(data)
            answer = line.hear()
            assert answer["error"]["code"] == code, what
            assert answer["id"] is None
            assert len(encode(answer)) < 1_000
        for params in ({"name": 5}, {"name": "graph_metrics", "arguments": [1]}, {}, [1]):
            line.send(encode({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}))
            assert "error" in line.hear()
        line.ask("no/such/method")
        assert line.hear()["error"]["code"] == -32601
        line.send(b"")
        line.call("graph_metrics")
        assert line.hear()["result"]["structuredContent"]["data"]["events"] == 0
        assert line.rest() == []
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_client_that_leaves_gets_what_it_has_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with started(path) as process:
        line = Line(process)
        line.greet()
        asked = {line.call("graph_remember", id=f"n{number}") for number in range(20)}
        answers = line.rest()
        assert {answer["id"] for answer in answers if not answer["result"]["isError"]} == asked
        assert process.wait(WAIT_S) == 0
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.metrics().nodes["total"] == 20


def test_a_client_that_reads_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """It never reads the answers, which are more than a pipe holds, and closes both ends."""
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, seed=False) as graph:
        graph.remember("big", payload={"text": "x" * 60_000}).unwrap()
    with started(path) as process:
        line = Line(process)
        line.greet()
        for _ in range(10):
            line.call("graph_get_node", id="big")
        line.call("graph_remember", id="last")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_however_much_is_asked_at_once_all_of_it_is_answered(tmp_path: Path) -> None:
    with started(tmp_path / "graph.db") as process:
        line = Line(process)
        line.greet()
        asked = {line.call("graph_cursor") for _ in range(600)}
        assert {answer["id"] for answer in line.rest()} == asked
        assert process.wait(WAIT_S) == 0


@pytest.mark.asyncio
async def test_a_client_that_leaves_its_end_open_and_reads_nothing_is_not_waited_for_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_LEAVING_S", 0.2)
    monkeypatch.setattr(stdio, "_LAST_WORDS_S", 0.2)
    with Adaptogen.open(":memory:", seed=False) as graph:
        graph.remember("big", payload={"text": "x" * 60_000}).unwrap()
        server = build_server(Desk(graph, all_tools()))
        reads, asks = os.pipe()
        hears, writes = os.pipe()
        params = {"name": "graph_get_node", "arguments": {"id": "big"}}
        for message in (
            {"id": 1, "method": "initialize", "params": GREETING},
            {"id": 2, "method": "tools/call", "params": params},
            {"id": 3, "method": "tools/call", "params": params},
        ):
            os.write(asks, encode({"jsonrpc": "2.0", **message}) + b"\n")
        os.close(asks)
        try:
            with anyio.fail_after(20):
                await stdio.serve_stdio(server, reads=reads, writes=writes)
        finally:
            for end in (reads, hears, writes):
                os.close(end)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_though_the_client_stays(tmp_path: Path, number: int, code: int) -> None:
    path = tmp_path / "graph.db"
    with started(path) as process:
        line = Line(process)
        line.greet()
        line.call("graph_remember", id="a")
        assert not line.hear()["result"]["isError"]
        process.send_signal(number)
        assert process.wait(WAIT_S) == code
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert not path.with_name("graph.db-wal").exists()  # it was closed, not left


def test_a_call_that_is_cancelled_is_not_answered_and_not_begun_if_it_waited(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, seed=False) as other, started(path) as process:
        line = Line(process)
        line.greet()
        with other.unit():
            other.remember("theirs").unwrap()
            first = line.call("graph_remember", id="first")
            second = line.call("graph_remember", id="second")
            line.tell("notifications/cancelled", {"requestId": second})
            line.ask("ping")
            assert line.hear()["result"] == {}  # so the cancellation has been read
        assert line.hear()["id"] == first
        assert line.rest() == []
        assert process.wait(WAIT_S) == 0
        assert other.get_node("first") is not None
        assert other.get_node("second") is None


def test_killed_while_a_call_waits_nothing_of_it_is_left(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, seed=False) as other, started(path) as process:
        line = Line(process)
        line.greet()
        line.call("graph_remember", id="before")
        assert not line.hear()["result"]["isError"]
        with other.unit():
            other.remember("theirs").unwrap()
            line.call("graph_plan", spec={"nodes": ["x", "y"], "transitions": [["x", "y"]]})
            line.ask("ping")
            line.hear()
            process.kill()
            process.wait(WAIT_S)
        assert {node.id for node in other.recall()} == {"before", "theirs"}
        assert other.verify_integrity(deep=True).ok


def test_killed_in_a_burst_of_calls_whatever_was_answered_is_there_and_nothing_is_half_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "graph.db"
    with started(path) as process:
        line = Line(process)
        line.greet()
        asked = {
            line.call("graph_plan", spec={"nodes": [f"x{n}", f"y{n}"], "deps": [[f"y{n}", f"x{n}"]]}): n
            for n in range(60)
        }
        answered = [asked[line.hear()["id"]] for _ in range(20)]
        process.kill()
        process.wait(WAIT_S)
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.verify_integrity(deep=True).ok
        nodes = {node.id for node in graph.recall(limit=1_000)}
        assert nodes >= {f"{end}{n}" for n in answered for end in "xy"}
        whole = {n for n in range(60) if f"x{n}" in nodes}
        assert nodes == {f"{end}{n}" for n in whole for end in "xy"}
        assert graph.metrics().edges["dependency"] == len(whole)


# ------------------------------------------------------------------------ the command line


def test_without_the_extra_one_line_names_it(tmp_path: Path) -> None:
    path = str(tmp_path / "graph.db")
    code = (
        "import sys; sys.modules['mcp'] = None\n"
        f"from graphstate.cli import main; sys.exit(main(['mcp', '--db', {path!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
        timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().splitlines() == [
        "adaptogen: adaptogen mcp needs the package 'mcp': install it with pip install 'loopwright[mcp]'"
    ]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--port", "1"], 2, "--port goes with --http"),
        (["extra"], 2, "does not take"),
        (["--trust", "nobody"], 1, "trust must be one of"),
        (["--read-only"], 1, "does not exist"),
        (["--http", "--port", "99999"], 1, "port must be an integer from 0 to 65535"),
        (["--tools", "memry"], 1, "tools must be one of memory, graph"),
        (["--embedder", "hashed"], 1, "did you mean 'hashing'"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    tmp_path: Path, words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "--db", str(tmp_path / "graph.db"), *words]) == code
    out, err = capsys.readouterr()
    assert says in (out if code == 1 else err)
    assert err.count("\n") == (code == 2)
    assert code == 2 or {"code", "message", "hint"} <= decode(out).keys()


def test_without_a_client_there_is_nobody_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["mcp", "--db", str(tmp_path / "graph.db")]) == 2
    assert "nobody to serve" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_read_only_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, seed=False) as graph:
        graph.remember("a").unwrap()
    before = path.read_bytes()
    with started(path, "--read-only") as process:
        line = Line(process)
        line.greet()
        line.call("graph_remember", id="b")
        assert "no tool" in line.hear()["error"]["message"]
        line.call("graph_get_node", id="a")
        assert line.hear()["result"]["structuredContent"]["data"]["id"] == "a"
        assert line.rest() == []
        assert process.wait(WAIT_S) == 0
    assert path.read_bytes() == before


def test_one_family_can_be_offered_alone_and_texts_get_vectors(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    for flags in (
        ("--embedder", "hashing"),
        (),
    ):  # the second time it is the one that the file's vectors are of
        with started(path, "--tools", "memory", *flags) as process:
            line = Line(process)
            line.greet()
            line.ask("tools/list")
            assert {tool["name"].partition("_")[0] for tool in line.hear()["result"]["tools"]} == {"memory"}
            line.call("memory_store", content="the build uses ninja")
            assert not line.hear()["result"]["isError"]
            line.call("memory_recall", query="build")
            (item,) = line.hear()["result"]["structuredContent"]["data"]["items"]
            assert item["score_components"]["semantic"] > 0
            assert line.rest() == []
            assert process.wait(WAIT_S) == 0


def test_the_trust_is_what_the_command_line_says(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with started(path, "--trust", "tool", "--actor", "scraper") as process:
        line = Line(process)
        line.greet()
        line.call("graph_remember", id="a")
        line.hear()
        line.rest()
        process.wait(WAIT_S)
    with Adaptogen.open(path, seed=False) as graph:
        (row,) = graph.store.log.read("graph")
        assert (row.actor, row.trust) == ("scraper", "tool")
