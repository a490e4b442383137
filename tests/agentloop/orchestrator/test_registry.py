"""The tools of a run: names, calls, values."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop import (
    ClassifiedError,
    Err,
    InvariantViolation,
    ManualClock,
    Ok,
    SchemaRefused,
    Tool,
    ToolCall,
    ToolRegistry,
    ToolResult,
    ToolRun,
    fatal,
    transient,
)
from tests.agentloop.orchestrator.scenes import SEARCH, search

pytestmark = pytest.mark.anyio

RUN = ToolRun(run_id="r", step_id="tool-0001", clock=ManualClock())


async def asked(
    tool: Tool | None, arguments: Any = None, *, name: str = "search", raw: str | None = None
) -> Any:
    call = ToolCall(id="c1", name=name, arguments=arguments, raw_arguments=raw)
    return await ToolRegistry([tool] if tool else []).invoke(call, RUN)


async def test_v089_names() -> None:
    for names in (["echo", "echo"], ["Echo-Tool"], ["1st"], [""], ["é"]):
        with pytest.raises(InvariantViolation):
            ToolRegistry([search(name) for name in names])
    registry = ToolRegistry([search("b"), search("a")])
    assert [spec.name for spec in registry.specs] == ["b", "a"]
    assert ("a" in registry, "c" in registry, len(registry)) == (True, False, 2)
    assert registry.get("a") is not None
    assert registry.get("c") is None


async def test_v090_a_tool_writes_unless_it_says_otherwise() -> None:
    registry = ToolRegistry([Tool(name="w", handler=print), Tool(name="r", handler=print, read_only=True)])
    assert [registry.read_only(name) for name in ("w", "r", "nope")] == [False, True, False]
    with pytest.raises(SchemaRefused):
        ToolRegistry([Tool(name="t", handler=print, schema={"$ref": "#"})])


async def test_v095_the_tools_as_a_prompt_lists_them() -> None:
    registry = ToolRegistry([search("b"), search("a", description="Another.")])
    assert registry.render() == "- b{ q: string }\n  Search the index.\n- a{ q: string }\n  Another."


async def test_v096_wrong_arguments_do_not_reach_the_handler() -> None:
    ran: list[Any] = []
    result = await asked(search(handler=ran.append), {"q": 1, "x": 2})
    assert isinstance(result, Err)
    error = result.error
    assert (ran, error.error_class, error.code) == ([], "correctable", "tool.invalid_arguments")
    assert error.detail == {
        "tool": "search",
        "problems": [
            {"path": "$.q", "message": "expected string, got number"},
            {"path": "$", "message": 'unexpected property "x"'},
        ],
    }
    assert "search" in error.message
    assert '$.q expected string, got number; $ unexpected property "x"' in error.message


@pytest.mark.parametrize("raw", ["{", "[1]", '{"q": NaN}', "5"])
async def test_arguments_that_cannot_be_read_are_put_right_by_the_model(raw: str) -> None:
    result = await asked(search(), raw=raw)
    assert isinstance(result, Err)
    assert (result.error.code, result.error.error_class) == ("tool.invalid_arguments", "correctable")
    assert await asked(search(), raw='{"q": "y"}') == Ok("found y")


async def test_v097_a_handler_is_taken_at_its_word() -> None:
    error = fatal("upstream.down", "down")

    async def returns(q: str) -> Any:
        return Err(error)

    async def carries(q: str) -> Any:
        raise ClassifiedError(transient("net.down", "down"))

    assert await asked(search(handler=returns), {"q": "x"}) == Err(error)
    carried = await asked(search(handler=carries), {"q": "x"})
    assert (carried.error.code, carried.error.source) == ("net.down", "tool:search")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        (Ok("text"), "text"),
        (Ok({"b": [1]}), {"b": [1]}),
        (5, 5),
        (b"\xff", "\ufffd"),
        ("a\ud800", "a\ufffd"),
        (None, None),
        ({"output": "o", "stderr": "e", "exit_code": 1}, "o\nstderr:\ne\nexit code: 1"),
        (ToolResult(id="", name="", ok=True, output={"x": 1}), {"x": 1}),
    ],
)
async def test_values(value: Any, expected: Any) -> None:
    async def handler(q: str) -> Any:
        return value

    assert await asked(search(handler=handler), {"q": "x"}) == Ok(expected)


async def test_a_value_that_says_it_failed_is_an_observation() -> None:
    async def handler(q: str) -> Any:
        return {"ok": False, "output": "no such file"}

    result = await asked(search(handler=handler), {"q": "x"})
    assert (result.error.code, result.error.error_class) == ("tool.failed", "correctable")
    assert "no such file" in result.error.message


async def test_a_handler_may_ask_which_call_it_serves() -> None:
    async def handler(q: str, ctx: ToolRun, key: str) -> Any:
        return [ctx.run_id, ctx.step_id, ctx.attempt, key]

    tool = search(handler=handler, accepts_key=True)
    call = ToolCall(id="c", name="search", arguments={"q": "x"}, key="r/tool-0001")
    assert await ToolRegistry([tool]).invoke(call, RUN) == Ok(["r", "tool-0001", 1, "r/tool-0001"])
    assert ToolRegistry([tool]).accepts_key("search")


async def test_an_unknown_name() -> None:
    result = await asked(None, {}, name="nope")
    assert (result.error.code, result.error.detail) == (
        "tool.unknown",
        {"requested": "nope", "available": []},
    )
    assert SEARCH["required"] == ["q"]
