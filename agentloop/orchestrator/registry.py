"""The tools of a run: looked up, their arguments checked, called, their values made text.

A call always has a result: whatever the model or the handler did wrong is an error value with
a class. Whether and when a call is made is the reducer's and the driver's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from agentloop._canonical import Json, NotJson, decode
from agentloop.determinism import Clock
from agentloop.errors import InvariantViolation
from agentloop.messages import ToolCall, ToolResult
from agentloop.orchestrator.events import ChildRun
from agentloop.outcome import Err, Ok, Result, correctable, fatal, to_error
from agentloop.ports import LedgerStore, ToolSpec
from agentloop.redact import Redactor
from agentloop.schemas import ArgumentSchema, render_schema
from agentloop.tools import MAX_ARGUMENT_BYTES, MAX_OUTPUT, HandlerThreads, Tool, bind_call, read_result

__all__ = ("Allowance", "ToolHost", "ToolRegistry", "ToolRun", "render_value")

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What runs inside a call may spend at most, and where they are recorded."""

    ledger: LedgerStore
    durability: Literal["power", "process"]
    redactor: Redactor | None
    #: Tokens, tool calls and milliseconds that are left; None if there is no limit.
    tokens: int | None
    tool_calls: int | None
    time_ms: int | None


class ToolRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler with a parameter ``ctx`` is told of its call."""

    run_id: str
    #: Ours; attempts at the same call share it. (run id, step id) is the idempotency key.
    step_id: str
    clock: Clock
    #: 1, 2, …
    attempt: int = 1
    #: What a run that the call makes may spend.
    allowance: Allowance | None = None
    #: Where such a call puts down which runs it made.
    children: list[ChildRun] = msgspec.field(default_factory=list)


class ToolHost(Protocol):
    """Whatever answers a run's tool calls: a registry of its own, or the loop around it."""

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """What a model is told about the tools."""

    def read_only(self, name: str, /) -> bool:
        """Return whether calls may be repeated and made at the same time."""

    def accepts_key(self, name: str, /) -> bool:
        """Return whether a repeated call can be told from a new one by its key."""

    def timeout_ms(self, name: str, /) -> int | None:
        """Return the tool's own deadline; None if it has none."""

    async def invoke(self, call: ToolCall, run: ToolRun, /) -> Result[Json]:
        """Answer a call. Never raises for what the model or the tool did."""


class ToolRegistry:
    """Tools by name, in the order in which they were declared.

    Args:
        tools: Names are lower-case words with digits and underscores.

    Raises:
        InvariantViolation: A name is malformed or stands twice.
        SchemaRefused: The check of a tool's schema cannot be bounded.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, ArgumentSchema] = {}
        self._threads = HandlerThreads()
        for tool in tools:
            if not _NAME.fullmatch(tool.name):
                text = (
                    f"the tool name {tool.name!r:.200} is not made of a-z, 0-9 and _, beginning with a letter"
                )
                raise InvariantViolation(text)
            if tool.name in self._tools:
                raise InvariantViolation(f"two tools are called {tool.name!r}")
            self._tools[tool.name] = tool
            self._schemas[tool.name] = ArgumentSchema(tool.schema)
        self._specs = tuple(
            ToolSpec(name=name, description=tool.description, schema=dict(tool.schema))
            for name, tool in self._tools.items()
        )

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, if there is one."""
        return self._tools.get(name)

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """What a model is told about the tools, in the order of declaration."""
        return self._specs

    def render(self, *, bounds: bool = False) -> str:
        """Return the tools as a prompt lists them; with ``bounds`` the limits of arguments too."""
        return "\n".join(
            f"- {name}{render_schema(tool.schema, bounds=bounds)}\n  {tool.description}"
            for name, tool in self._tools.items()
        )

    def read_only(self, name: str, /) -> bool:
        tool = self._tools.get(name)
        return tool is not None and tool.read_only

    def accepts_key(self, name: str, /) -> bool:
        tool = self._tools.get(name)
        return tool is not None and tool.accepts_key

    def timeout_ms(self, name: str, /) -> int | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.timeout_ms

    async def invoke(self, call: ToolCall, run: ToolRun, /) -> Result[Json]:
        """Answer a call. Never raises for what the model or the handler did.

        An unknown name and arguments that do not fit are ``correctable``; a handler that raises
        is ``fatal`` with source ``tool:<name>``, unless it raises a `ClassifiedError`; one that
        returns `Ok` or `Err` is taken at its word.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return Err(self._unknown(call.name))
        arguments, problem = _arguments_of(call)
        if problem is None:
            found = self._schemas[tool.name].problems(arguments)
            if not found:
                return await self._call(tool, msgspec.structs.replace(call, arguments=arguments), run)
            problems: list[Json] = [{"path": one.path, "message": one.message} for one in found]
            problem = "; ".join(map(str, found))
        else:
            problems = [{"path": "$", "message": problem}]
        text = f"the arguments of {tool.name} do not fit: {problem}"
        return Err(
            correctable("tool.invalid_arguments", text, detail={"tool": tool.name, "problems": problems})
        )

    def _unknown(self, name: str) -> Any:
        names = [*self._tools]
        text = f"There is no tool {name!r}. Available tools: {', '.join(names) or 'none'}."
        return correctable("tool.unknown", text, detail={"requested": name, "available": names})

    async def _call(self, tool: Tool, call: ToolCall, run: ToolRun) -> Result[Json]:
        source = f"tool:{tool.name}"
        try:
            bound = bind_call(tool, call, ctx=run)
            value = await self._threads.run(tool.handler, bound, call, clock=run.clock)
        except Exception as error:
            return Err(to_error(error, source=source))
        if isinstance(value, Err):
            return value
        return read_value(call, value.value if isinstance(value, Ok) else value, source)


def _arguments_of(call: ToolCall) -> tuple[dict[str, Json], str | None]:
    arguments: Json = call.arguments
    if arguments is None:
        try:
            text = call.raw_arguments or ""
            arguments = (
                decode(text, max_bytes=MAX_ARGUMENT_BYTES, repair_surrogates=True) if text.strip() else {}
            )
        except NotJson as error:
            return {}, f"they are not JSON: {error}"
    if not isinstance(arguments, dict):
        return {}, f"expected object, got {type(arguments).__name__}"
    return arguments, None


def read_value(call: ToolCall, value: object, source: str | None = None) -> Result[Json]:
    """Return what a tool gave as a JSON value; texts are repaired, and cut at 1 MiB.

    What a tool says in the form of a `ToolResult` or of its mapping counts: ``ok``, ``output``,
    ``stdout``, ``stderr``, ``exit_code``.
    """
    result = read_result(call, value, MAX_OUTPUT)
    if result.error is not None and result.error.code == "tool.bad_value":
        return Err(fatal("tool.bad_value", result.error.message, source=source))
    if not result.ok:
        error = result.error
        if error is None:
            error = correctable("tool.failed", _told(result) or f"{call.name} failed", source=source)
        return Err(error)
    return Ok(_told(result))


def _told(result: ToolResult) -> Json:
    parts: Mapping[str, str | None] = {"stdout": result.stdout, "stderr": result.stderr}
    extra = [f"{name}:\n{text}" for name, text in parts.items() if text and text != result.output]
    if result.exit_code is not None:
        extra.append(f"exit code: {result.exit_code}")
    if not extra:
        return result.output
    return "\n".join(part for part in (render_value(result.output), *extra) if part)


def render_value(value: Json) -> str:
    """Return a JSON value as a model reads it: texts as they are, nothing for null, else JSON."""
    if isinstance(value, str):
        return value
    # In the order of insertion, which the value's author chose; the value is known to be JSON.
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
