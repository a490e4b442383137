"""Tools from typed functions: their schemas, their calls."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import msgspec
import pytest

from agentloop import (
    Err,
    ManualClock,
    Ok,
    Tool,
    ToolCall,
    ToolRegistry,
    ToolRun,
    create_tool_adapter_wrapper,
    tool,
)
from agentloop.outcome import correctable

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Place:
    x: int
    y: int = 0


@tool(read_only=True, timeout_ms=500)
async def search(
    query: Annotated[str, msgspec.Meta(min_length=1)],
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 5,
    scope: Literal["docs", "code"] = "docs",
    tags: list[str] | None = None,
) -> list[Any]:
    """Search the index.

    Finds at most ``limit`` passages.

    Args:
        query: What to look for,
            in plain words.
        limit (int): How many.

    Returns:
        Passages.
    """
    return [query, limit, scope, tags]


@tool
def move(to: Place, ctx: ToolRun, key: str) -> Place:
    """Move there."""
    assert isinstance(to, Place)
    assert (ctx.step_id, key) == ("tool-0001", "r/tool-0001")
    return Place(to.x + 1, to.y)


async def asked(made: Tool, arguments: dict[str, Any]) -> Any:
    run = ToolRun(run_id="r", step_id="tool-0001", clock=ManualClock())
    call = ToolCall(id="c", name=made.name, arguments=arguments, key="r/tool-0001")
    return await ToolRegistry([made]).invoke(call, run)


def test_the_signature_is_the_schema() -> None:
    assert (search.name, search.read_only, search.timeout_ms, search.accepts_key) == (
        "search",
        True,
        500,
        False,
    )
    assert search.description == "Search the index.\n\nFinds at most ``limit`` passages."
    properties = search.schema["properties"]
    assert properties["query"] == {
        "type": "string",
        "minLength": 1,
        "description": "What to look for, in plain words.",
    }
    assert properties["limit"] == {"type": "integer", "minimum": 1, "maximum": 50, "description": "How many."}
    assert sorted(properties["scope"]["enum"]) == ["code", "docs"]
    assert (search.schema["required"], search.schema["additionalProperties"]) == (["query"], False)
    assert "title" not in search.schema


async def test_calls_are_checked_and_typed() -> None:
    assert await asked(search, {"query": "x"}) == Ok(["x", 5, "docs", None])
    given = {"query": "x", "limit": 2.0, "scope": "code", "tags": ["a"]}
    assert await asked(search, given) == Ok(["x", 2, "code", ["a"]])
    for wrong in (
        {},
        {"query": ""},
        {"query": "x", "limit": 0},
        {"query": "x", "more": 1},
        {"query": "x", "scope": "?"},
    ):
        result = await asked(search, wrong)
        assert result.error.code == "tool.invalid_arguments", wrong


async def test_what_the_caller_gives_is_not_in_the_schema() -> None:
    assert move.accepts_key
    assert list(move.schema["properties"]) == ["to"]
    assert await asked(move, {"to": {"x": 1}}) == Ok({"x": 2, "y": 0})


async def test_a_tool_of_the_loop_is_the_same_tool() -> None:
    wrapper = create_tool_adapter_wrapper({"search": search})
    result = await wrapper.call(ToolCall(id="c", name="search", arguments={"query": "x"}))
    assert (result.ok, result.output) == (True, ["x", 5, "docs", None])


async def test_an_outcome_is_passed_on() -> None:
    @tool
    async def find(name: str) -> Any:
        return Ok(name) if name else Err(correctable("find.nothing", "name something"))

    assert await asked(find, {"name": "x"}) == Ok("x")
    assert (await asked(find, {"name": ""})).error.code == "find.nothing"


def test_what_cannot_be_a_tool() -> None:
    def untyped(x) -> None:  # type: ignore[no-untyped-def]
        pass

    def many(*x: int) -> None:
        pass

    def strange(x: Any) -> None:
        pass

    class Foreign:
        pass

    def foreign(x: Any) -> None:
        pass

    foreign.__annotations__["x"] = Foreign
    for target, says in ((untyped, "needs a type"), (many, "by name"), (foreign, "Foreign")):
        with pytest.raises(TypeError, match=says):
            tool(target)
    assert tool(name="other", description="d")(strange).name == "other"
