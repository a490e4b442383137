"""Tools: every call is looked up, checked, run within bounds, and answered once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from agentloop import Frame, ManualClock, Tool, ToolCall, ToolResult, create_tool_adapter_wrapper, duplex_pair
from agentloop.messages import TOOL_ERRORS
from agentloop.tools import MAX_ABANDONED_THREADS, MAX_ARGUMENT_BYTES, ToolAdapterWrapper

pytestmark = pytest.mark.anyio


def asked(name: str, arguments: Any = None, *, raw: str | None = None, id: str = "k1") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments, raw_arguments=raw)


def wrap(_timeout_ms: float | None = 5_000, /, **tools: Any) -> ToolAdapterWrapper:
    return create_tool_adapter_wrapper(tools, timeout_ms=_timeout_ms)


def word(result: ToolResult) -> object:
    """Return the short word of the result's error."""
    return result.to_content().get("error")


# ------------------------------------------------------------------------------------ lookup


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("fs", ("fs", None)),
        ("fs.read", ("fs", "read")),
        ("fs:read", ("fs", "read")),
        ("fs__read", ("fs", "read")),
        ("fs.read.all", ("fs", "read.all")),
        ("a.b", ("a.b", None)),
        ("fs.", None),
        ("FS", None),
        ("", None),
        (".read", None),
    ],
)
def test_names(name: str, found: tuple[str, str | None] | None) -> None:
    assert wrap(fs=print, **{"a.b": print}).find(name) == found


async def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    wrapper = wrap(b=print, a=print)
    assert wrapper.names == ("a", "b")
    result = await wrapper.call(asked("c"))
    assert (result.ok, word(result), result.id, result.name) == (False, "unknown_tool", "k1", "c")
    assert result.error is not None
    assert (result.error.code, result.error.error_class) == TOOL_ERRORS["unknown_tool"]
    assert "a, b" in str(result.output)
    assert "none" in str((await wrap().call(asked("c"))).output)


@pytest.mark.parametrize("adapter", [5, "tool", None, ["a"]])
def test_what_is_no_tool_is_refused(adapter: object) -> None:
    with pytest.raises(TypeError, match="'bad'"):
        wrap(bad=adapter)


# --------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "raw", "given"),
    [
        ({"a": 1}, None, {"a": 1}),
        (None, '{"a": 1}', {"a": 1}),
        (None, "", {}),
        (None, " \n", {}),
        (None, None, {}),
        (None, '{"a": "\\ud800"}', {"a": "\ufffd"}),
        ({"a": 1}, '{"a": 2}', {"a": 1}),
    ],
)
async def test_arguments_are_read_once(arguments: Any, raw: str | None, given: dict[str, Any]) -> None:
    seen: list[dict[str, Any]] = []
    result = await wrap(t=lambda **named: seen.append(named)).call(asked("t", arguments, raw=raw))
    assert result.ok
    assert seen == [given]


@pytest.mark.parametrize(
    "raw",
    [
        "[1]",
        "1",
        "null",
        '"text"',
        '{"a":',
        '{"a": 1,}',
        "{'a': 1}",
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": 1e400}',
        '{"a": ' + "[" * 200 + "]" * 200 + "}",
        '{"a": "' + "x" * MAX_ARGUMENT_BYTES + '"}',
        "not json",
    ],
    ids=lambda raw: raw[:16],
)
async def test_arguments_that_are_no_object_are_never_repaired(raw: str) -> None:
    ran: list[object] = []
    result = await wrap(t=lambda **named: ran.append(named)).call(asked("t", raw=raw))
    assert (result.ok, word(result)) == (False, "invalid_arguments")
    assert ran == []


SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "maxLength": 5}, "n": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "path"),
        ({"path": 5}, "$.path"),
        ({"path": "too long"}, "$.path"),
        ({"path": "a", "n": True}, "$.n"),
        ({"path": "a", "x": 1}, "x"),
    ],
)
async def test_arguments_are_checked_against_the_schema(arguments: dict[str, Any], says: str) -> None:
    ran: list[object] = []
    tool = Tool(name="t", handler=lambda **named: ran.append(named), schema=SCHEMA)
    result = await wrap(t=tool).call(asked("t", arguments))
    assert word(result) == "invalid_arguments"
    assert says in str(result.output)
    assert ran == []


async def test_arguments_that_fit_are_passed_on() -> None:
    tool = Tool(name="t", handler=lambda path, n=0: f"{path}{n}", schema=SCHEMA)
    wrapper = wrap(t=tool)
    assert [(await wrapper.call(asked("t", {"path": "a", "n": n}))).output for n in (1, 2)] == ["a1", "a2"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"$ref": "#"},
        {"$ref": "http://127.0.0.1:9/remote.json"},
        {"$ref": "#/nowhere"},
    ],
    ids=str,
)
async def test_a_schema_that_cannot_be_used_is_an_answer(schema: dict[str, Any]) -> None:
    ran: list[object] = []
    result = await wrap(t=Tool(name="t", handler=lambda: ran.append(1), schema=schema)).call(asked("t"))
    assert word(result) == "invalid_arguments"
    assert "schema" in str(result.output)
    assert ran == []


async def test_wrong_keywords_are_the_tools_error() -> None:
    result = await wrap(t=lambda a: a).call(asked("t", {"b": 1}))
    assert word(result) == "tool_error"
    assert "TypeError" in str(result.output)


# ----------------------------------------------------------------------------------- handlers


async def test_the_kinds_of_handlers() -> None:
    async def coroutine(a: int) -> int:
        await checkpoint()
        return a

    class Callable:
        async def __call__(self, a: int) -> int:
            await checkpoint()
            return a

    def gives_a_coroutine(a: int) -> Any:
        return coroutine(a)

    def takes_call(call: ToolCall) -> int:
        assert call.arguments is not None
        return int(call.arguments["a"])

    handlers = [
        coroutine,
        Callable(),
        gives_a_coroutine,
        takes_call,
        functools.partial(coroutine),
        lambda a: a,
    ]
    for handler in handlers:
        assert (await wrap(t=handler).call(asked("t", {"a": 7}))).output == 7


async def test_a_plain_function_runs_elsewhere_and_a_coroutine_here() -> None:
    threads: list[int] = []

    async def coroutine() -> None:
        threads.append(threading.get_ident())

    def plain() -> None:
        threads.append(threading.get_ident())

    wrapper = wrap(coroutine=coroutine, plain=plain)
    await wrapper.call(asked("coroutine"))
    await wrapper.call(asked("plain"))
    assert threads[0] == threading.get_ident() != threads[1]


async def test_method_and_key_are_handed_over() -> None:
    tool = Tool(name="fs", handler=lambda **named: named, accepts_key=True)
    call = ToolCall(id="k", name="fs.read", arguments={"path": "x"}, key="run/1.1")
    assert (await wrap(fs=tool).call(call)).output == {"path": "x", "method": "read", "key": "run/1.1"}


# ------------------------------------------------------------------------------------ results


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {"output": None}),
        ("text", {"output": "text", "stdout": "text"}),
        (b"by\xfftes", {"output": "by\ufffdtes", "stdout": "by\ufffdtes"}),
        (3, {"output": 3}),
        (True, {"output": True}),
        ([1, "\ud800"], {"output": [1, "\ufffd"]}),
        ((1, 2), {"output": (1, 2)}),
        ({"k": 1}, {"output": {"k": 1}}),
        ({"output": [1], "exit_code": 2}, {"output": [1], "exit_code": 2}),
        (
            {"stdout": "out", "stderr": "err", "exitCode": 1},
            {"output": "out", "stdout": "out", "stderr": "err"},
        ),
        ({"stdout": ["a", "b"]}, {"stdout": "ab"}),
        ({"exit_code": True}, {"exit_code": None}),
        ({"exit_code": 10**30}, {"exit_code": None}),
        ({"ok": False, "output": "no"}, {"output": "no", "ok": False}),
    ],
    ids=repr,
)
async def test_what_a_tool_may_return(value: Any, expected: dict[str, Any]) -> None:
    result = await wrap(t=lambda: value).call(asked("t"))
    assert {name: getattr(result, name) for name in expected} == expected
    assert result.ok is expected.get("ok", True)


async def test_a_result_of_its_own_keeps_everything_but_the_id() -> None:
    own = ToolResult(id="other", name="other", ok=True, output="o", exit_code=3, stderr="e")
    result = await wrap(t=lambda: own).call(asked("t"))
    assert (result.id, result.name, result.exit_code, result.stderr) == ("k1", "t", 3, "e")


class Hostile:
    """Every way of looking at it raises."""

    def _refuse(self, *arguments: object) -> Any:
        raise RuntimeError("do not look at me")

    __str__ = __repr__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = _refuse
    __class__ = property(_refuse)


def cyclic() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "make",
    [
        object,
        lambda: float("nan"),
        lambda: [float("inf")],
        lambda: 10**1001,
        lambda: 10**6000,
        lambda: (n for n in range(3)),
        lambda: {1: 2},
        lambda: {"k": {1, 2}},
        cyclic,
        lambda: {"k": cyclic()},
        lambda: deep(95),
        lambda: deep(100_000),
        lambda: {"output": deep(5_000)},
        lambda: {"\ud800": 1},
    ],
)
async def test_what_is_not_json_is_a_bad_value(make: Any) -> None:
    result = await wrap(t=make).call(asked("t"))
    assert (result.ok, word(result)) == (False, "bad_value")


@pytest.mark.parametrize(
    "make", [Hostile, lambda: [Hostile()], lambda: {"k": Hostile()}, lambda: {"stdout": Hostile()}]
)
async def test_hostile_objects_are_an_answer(make: Any) -> None:
    result = await wrap(t=make).call(asked("t"))
    assert result.ok is False
    assert word(result) in ("bad_value", "tool_error")


async def test_exceptions_are_answers_whatever_their_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    for error, text in [(ValueError("bad"), "ValueError: bad"), (Mute(), "Mute"), (OSError("\ud800"), "OSError: \ufffd"),
                        (ValueError("x" * 9_000), "ValueError: xxx")]:  # fmt: skip

        async def broken(error: Exception = error) -> None:
            raise error

        result = await wrap(t=broken).call(asked("t"))
        assert word(result) == "tool_error"
        assert str(result.output).startswith(text)
        assert len(str(result.output)) <= 2_000


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
async def test_interrupts_pass_through(interrupt: type[BaseException]) -> None:
    async def broken() -> None:
        raise interrupt

    with pytest.raises(interrupt):
        await wrap(t=broken).call(asked("t"))


@pytest.mark.parametrize(
    "value", ["x" * 5_000, {"stdout": "x" * 5_000}, {"output": ["x"] * 2_000}, b"x" * 5_000]
)
async def test_long_results_are_cut_visibly(value: Any) -> None:
    wrapper = create_tool_adapter_wrapper({"t": lambda: value}, max_output=1_000)
    result = await wrapper.call(asked("t"))
    texts = [text for text in (result.output, result.stdout) if isinstance(text, str)]
    assert texts
    assert all(len(text) <= 1_000 and "characters cut" in text for text in texts)


async def test_a_text_of_exactly_the_limit_is_left_alone() -> None:
    wrapper = create_tool_adapter_wrapper({"t": lambda n: "x" * n}, max_output=1_000)
    assert (await wrapper.call(asked("t", {"n": 1_000}))).output == "x" * 1_000
    assert "cut" in str((await wrapper.call(asked("t", {"n": 1_001}))).output)


# ----------------------------------------------------------------------------------- deadlines


async def test_a_tools_own_deadline_comes_first() -> None:
    tool = Tool(name="t", handler=anyio.sleep_forever, timeout_ms=15)
    wrapper = wrap(60_000, t=tool, u=anyio.sleep_forever)
    assert (wrapper.timeout_ms("t"), wrapper.timeout_ms("u"), wrapper.timeout_ms("x")) == (15, 60_000, None)
    with anyio.fail_after(4):
        result = await wrapper.call(asked("t"))
    assert (result.timed_out, word(result), result.exit_code) == (True, "timeout", None)
    assert "15 ms" in str(result.output)


async def test_a_timeout_of_the_tools_own_is_its_error() -> None:
    async def impatient() -> None:
        with anyio.fail_after(0.001):
            await anyio.sleep_forever()

    result = await wrap(t=impatient).call(asked("t"))
    assert (result.timed_out, word(result)) == (False, "tool_error")


async def test_no_more_than_so_many_threads_are_left_behind() -> None:
    release = threading.Event()
    wrapper = wrap(5, block=lambda: release.wait(10), quick=lambda: "ok")
    words = [word(await wrapper.call(asked("block"))) for _ in range(MAX_ABANDONED_THREADS + 2)]
    assert words == ["timeout"] * MAX_ABANDONED_THREADS + ["tool_capacity"] * 2
    release.set()
    with anyio.fail_after(5):
        while (await wrapper.call(asked("quick"))).output != "ok":
            await checkpoint()


async def test_a_cancelled_call_leaves_nothing_behind() -> None:
    cleaned: list[bool] = []

    async def tool() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)

    wrapper, before = wrap(t=tool), len(anyio.get_running_tasks())
    with anyio.move_on_after(0.01) as scope:
        await wrapper.call(asked("t"))
    assert scope.cancelled_caught
    assert cleaned == [True]
    assert len(anyio.get_running_tasks()) == before


async def test_a_clock_times_the_call() -> None:
    clock = ManualClock()

    async def tool() -> None:
        clock.advance(250)

    wrapper = create_tool_adapter_wrapper({"t": tool}, clock=clock)
    assert (await wrapper.call(asked("t"))).duration_ms == 250


# ------------------------------------------------------------------------------------ duplexes


class Server:
    """The other side of a duplex tool: answers as it is told."""

    def __init__(self) -> None:
        self.ours, self.theirs = duplex_pair()
        self.wrapper = wrap(30, d=self.ours)

    async def next_call(self) -> Mapping[str, Any]:
        frame = await self.theirs.source.receive()
        return {"type": frame.type, **frame.content}

    async def answer(self, output: object, id: str | None = None) -> None:
        content = {"ok": True, "output": output} | ({} if id is None else {"id": id})
        await self.theirs.sink.write(Frame("TOOL_RESULT", content))


async def test_a_duplex_answers_by_id_or_in_order() -> None:
    server, results = Server(), dict[str, Any]()

    async def ask(id: str) -> None:
        results[id] = (await server.wrapper.call(asked("d.m", {"n": 1}, id=id))).output

    async with anyio.create_task_group() as tasks:
        for name in ("a", "b", "c"):
            tasks.start_soon(ask, name)
            assert (await server.next_call())["id"] == name
        await server.answer("for c", "c")
        await server.answer("nobody's", "x")
        await server.theirs.sink.write("chatter")
        await server.answer("for the oldest")
        await server.answer("for b", "b")
    assert results == {"a": "for the oldest", "b": "for b", "c": "for c"}


async def test_a_duplex_is_told_of_a_timeout_and_its_late_answer_is_dropped() -> None:
    server = Server()
    result = await server.wrapper.call(asked("d", id="a"))
    assert word(result) == "timeout"
    assert (await server.next_call())["type"] == "TOOL_CALL"
    assert await server.next_call() == {"type": "CANCEL", "id": "a"}
    await server.answer("late", "a")
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            assert (await server.next_call())["id"] == "b"
            await server.answer("in time", "b")

        tasks.start_soon(serve)
        assert (await server.wrapper.call(asked("d", id="b"))).output == "in time"


async def test_a_duplex_that_ends_is_an_error_of_the_tool() -> None:
    server = Server()
    server.theirs.sink.end()
    assert word(await server.wrapper.call(asked("d"))) == "tool_error"
    server = Server()
    server.theirs.sink.end(OSError("gone"))
    assert word(await server.wrapper.call(asked("d"))) == "tool_error"
    server = Server()
    server.theirs.source.abort()
    assert word(await server.wrapper.call(asked("d"))) == "tool_error"


async def test_two_open_calls_of_one_id_are_both_answered() -> None:
    server, results = Server(), list[Any]()

    async def ask() -> None:
        results.append((await server.wrapper.call(asked("d", id="same"))).output)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        first = await server.next_call()
        tasks.start_soon(ask)
        second = await server.next_call()
        await server.answer("one", first["id"])
        await server.answer("two", second["id"])
    assert sorted(results) == ["one", "two"]


async def test_a_duplex_may_answer_with_an_error() -> None:
    server = Server()
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            asked_for = await server.next_call()
            content = {"id": asked_for["id"], "ok": False, "output": "no such file", "exit_code": 2}
            await server.theirs.sink.write(Frame("TOOL_RESULT", content))

        tasks.start_soon(serve)
        result = await server.wrapper.call(asked("d"))
    assert (result.ok, result.output, result.exit_code) == (False, "no such file", 2)


def test_what_a_model_is_told() -> None:
    def documented() -> None:
        """Do the thing."""

    wrapper = wrap(documented=documented, t=Tool(name="t", handler=print, description="d", schema=SCHEMA))
    assert [(spec.name, spec.description) for spec in wrapper.specs] == [
        ("documented", "Do the thing."),
        ("t", "d"),
    ]
    assert wrapper.specs[1].schema == SCHEMA
    assert wrapper.read_only("t") is False
    assert wrap(r=Tool(name="r", handler=print, read_only=True)).read_only("r.x") is True


async def test_a_frame_may_be_handed_over() -> None:
    wrapper = wrap(t=lambda a: a)
    result = await wrapper.call(Frame("TOOL_CALL", {"name": "t", "arguments": {"a": 1}}))
    assert (result.id, result.output) == ("c1", 1)
    result = await wrapper.call(Frame("TOOL_CALL", {"name": "t", "arguments": '{"a": 2}', "id": "x"}))
    assert (result.id, result.output) == ("x", 2)
    result = await wrapper.call(Frame("TOOL_CALL", {}))
    assert word(result) == "unknown_tool"
