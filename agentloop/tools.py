"""Tools: what a model may ask for, and the one wrapper that answers every call.

A call is looked up, its arguments are read strictly and checked against the schema, the tool
runs under its own deadline, and whatever happens becomes exactly one `ToolResult`. Failures
are answers the model can read, never exceptions of the loop.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.to_thread
import msgspec

from agentloop._canonical import MAX_DEPTH, Json, NotJson, decode, encode, repair_text
from agentloop._numbers import check_count, check_duration
from agentloop.determinism import Clock, CounterIds, IdFactory, stands_still
from agentloop.errors import SchemaRefused, StreamError
from agentloop.frames import CANCEL, MAX_CONTENT_DEPTH, TOOL_CALL, TOOL_RESULT, Frame, clean
from agentloop.messages import TOOL_ERRORS, ToolCall, ToolError, ToolResult
from agentloop.ports import FrameDuplex, ToolSpec
from agentloop.schemas import ArgumentSchema

__all__ = (
    "HandlerThreads",
    "Tool",
    "ToolAdapter",
    "ToolAdapterWrapper",
    "as_tool",
    "bind_call",
    "create_tool_adapter_wrapper",
    "is_async",
    "read_result",
    "tool_failure",
)

DEFAULT_TIMEOUT_MS: Final = 30_000
MAX_OUTPUT: Final = 1024 * 1024
MAX_ARGUMENT_BYTES: Final = 256 * 1024
#: Threads of timed-out plain functions that may still be running before more are refused.
MAX_ABANDONED_THREADS: Final = 8

_ANY_OBJECT: Final[Mapping[str, Any]] = MappingProxyType({"type": "object"})


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A named function a model may call.

    Attributes:
        name: What the model calls it; letters, digits, ``_`` and ``-``.
        description: What the model is told it does.
        schema: JSON Schema of the arguments; without one, any object is accepted.
        handler: Async or plain. It gets the arguments as keywords, or the `ToolCall` if its
            only parameter is called ``call``. A plain one runs in a worker thread.
        read_only: Declares that calling it twice changes nothing.
        timeout_ms: Its own deadline; None means the wrapper's.
        accepts_key: It takes a keyword ``key`` that is the same when a call is repeated.
    """

    name: str
    handler: Callable[..., Any]
    description: str = ""
    schema: Mapping[str, Any] = msgspec.field(default_factory=lambda: dict(_ANY_OBJECT))
    read_only: bool = False
    timeout_ms: int | None = None
    accepts_key: bool = False

    def __post_init__(self) -> None:
        check_duration("timeout_ms", self.timeout_ms, optional=True)


#: What `tool_adapters` may hold under a name.
ToolAdapter: TypeAlias = Tool | FrameDuplex | Callable[..., Any]


def as_tool(name: str, adapter: Callable[..., Any] | Tool) -> Tool:
    """Return the tool a plain entry stands for: no schema, and not read-only."""
    if isinstance(adapter, Tool):
        return adapter
    return Tool(name=name, handler=adapter, description=inspect.getdoc(adapter) or "")


def tool_failure(call: ToolCall, word: str, message: str, **detail: Json) -> ToolResult:
    """Return the failed answer to a call; ``word`` is one of `TOOL_ERRORS`."""
    code, error_class = TOOL_ERRORS[word]
    message = repair_text(message[:2_000])
    error = ToolError(error_class=error_class, code=code, message=message, detail=detail)
    return ToolResult(
        id=call.id, name=call.name, ok=False, output=error.message, error=error, timed_out=word == "timeout"
    )


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:  # an exception whose own text raises is still only an answer
        return f"{type(error).__name__} (its text raised {type(broken).__name__})"


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = max(0, limit // 2 - 32)
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters cut …]\n{text[len(text) - half :]}"


def _text(value: object, limit: int) -> str | None:
    if value is None:
        return None
    if isinstance(value, list):
        value = "".join(map(str, value))  # given in chunks
    text = value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)
    return _cut(repair_text(text), limit)


_RESULT_KEYS: Final = frozenset({"ok", "output", "stdout", "stderr", "exit_code", "exitCode"})


def _from_mapping(call: ToolCall, value: Mapping[str, Any], limit: int) -> ToolResult:
    rest = {key: item for key, item in value.items() if key not in _RESULT_KEYS}
    exit_code = value.get("exit_code", value.get("exitCode"))
    if isinstance(exit_code, bool) or not isinstance(exit_code, int) or abs(exit_code) >= 1 << 63:
        exit_code = None
    stdout = _text(value.get("stdout"), limit)
    output = value.get("output", rest or (stdout if stdout is not None else ""))
    if isinstance(output, bytes):
        output = _text(output, limit)
    return _bounded(
        ToolResult(
            id=call.id,
            name=call.name,
            ok=bool(value.get("ok", True)),
            output=output,
            stdout=stdout,
            stderr=_text(value.get("stderr"), limit),
            exit_code=exit_code,
        ),
        limit,
    )


def _json_of(output: Json) -> tuple[Json, str]:
    """Return the value with its texts repaired, and as JSON; raise NotJson if a frame cannot hold it."""
    try:
        output = clean(output)
    except RecursionError:
        raise NotJson("a value that is nested too deep or contains itself") from None
    around, levels = output, MAX_DEPTH - MAX_CONTENT_DEPTH
    for _ in range(levels):  # what a ledger entry puts around it
        around = [around]
    return output, encode(around)[levels:-levels].decode()


def _bounded(result: ToolResult, limit: int) -> ToolResult:
    """Cut texts that are too long; raise NotJson if the output is no JSON value."""
    output = result.output
    if isinstance(output, str):
        output = _text(output, limit)
    elif output is not None and not isinstance(output, bool):
        output, encoded = _json_of(output)
        if len(encoded) > limit:
            output = _cut(encoded, limit)
    return msgspec.structs.replace(
        result, output=output, stdout=_text(result.stdout, limit), stderr=_text(result.stderr, limit)
    )


def read_result(call: ToolCall, value: object, limit: int) -> ToolResult:
    """Return the answer that what a tool returned stands for; texts are cut at the limit."""
    try:
        if isinstance(value, ToolResult):
            return _bounded(msgspec.structs.replace(value, id=call.id, name=call.name), limit)
        if isinstance(value, Mapping):
            return _from_mapping(call, value, limit)
        if isinstance(value, (str, bytes)):
            text = _text(value, limit)
            return ToolResult(id=call.id, name=call.name, ok=True, output=text, stdout=text)
        return _bounded(ToolResult(id=call.id, name=call.name, ok=True, output=cast(Json, value)), limit)
    except NotJson as error:
        return tool_failure(call, "bad_value", f"{call.name} returned {error}, which is not JSON")


# ---------------------------------------------------------------------------------- duplexes


class _DuplexTool:
    """Calls a tool that is a duplex; several calls may be open, one of them reads for all."""

    def __init__(self, duplex: FrameDuplex) -> None:
        self._duplex = duplex
        self._open: dict[str, Frame | None] = {}
        self._reading = False
        self._moved = anyio.Event()

    async def call(self, call: ToolCall) -> Mapping[str, Any]:
        key, repeated = call.id, 1
        while key in self._open:  # the model gave two open calls one id
            repeated += 1
            key = f"{call.id}#{repeated}"
        content: dict[str, Any] = {"id": key, "name": call.name, "arguments": dict(call.arguments or {})}
        if call.method is not None:
            content["method"] = call.method
        self._open[key] = None
        try:
            await self._duplex.sink.write(Frame(TOOL_CALL, content))
            while (answer := self._open[key]) is None:
                await self._read()
            return answer.content
        finally:
            answered = self._open.pop(key) is not None
            if not answered:
                self._cancel(key)

    def _cancel(self, key: str) -> None:
        try:
            self._duplex.sink.write_nowait(Frame(CANCEL, {"id": key}))
        except (anyio.WouldBlock, StreamError):
            self._duplex.abort("tool call cancelled")

    async def _read(self) -> None:
        if self._reading:
            await self._moved.wait()
            return
        self._reading = True
        try:
            frame = await self._duplex.source.receive()
        finally:
            self._reading = False
            self._moved.set()
            self._moved = anyio.Event()
        if frame.type == TOOL_RESULT:
            waiting = [key for key, answer in self._open.items() if answer is None]
            target = frame.content.get("id") or next(iter(waiting), None)
            if target in waiting:  # anything else came too late and is dropped
                self._open[target] = frame


# ----------------------------------------------------------------------------------- wrapper


class ToolAdapterWrapper:
    """Looks tools up by name and answers calls; see `create_tool_adapter_wrapper`."""

    def __init__(
        self,
        tool_adapters: Mapping[str, ToolAdapter],
        *,
        timeout_ms: float | None = DEFAULT_TIMEOUT_MS,
        id_factory: IdFactory | None = None,
        max_output: int = MAX_OUTPUT,
        clock: Clock | None = None,
    ) -> None:
        check_duration("timeout_ms", timeout_ms, optional=True)
        check_count("max_output", max_output, 1)
        self._timeout_ms = timeout_ms
        self._id_factory = id_factory or CounterIds()
        self._max_output = max_output
        self._clock = clock
        self._tools: dict[str, Tool] = {}
        self._duplexes: dict[str, _DuplexTool] = {}
        self._schemas: dict[str, ArgumentSchema] = {}
        self._threads = HandlerThreads()
        for name, adapter in tool_adapters.items():
            if isinstance(adapter, FrameDuplex):
                self._duplexes[name] = _DuplexTool(adapter)
            elif isinstance(adapter, Tool) or callable(adapter):
                self._tools[name] = as_tool(name, adapter)
            else:
                raise TypeError(
                    f"tool {name!r} must be a Tool, a function or a duplex, not {type(adapter).__name__}"
                )
        self.names: tuple[str, ...] = tuple(sorted([*self._tools, *self._duplexes]))
        #: What a model is told about the tools.
        self.specs: tuple[ToolSpec, ...] = tuple(
            ToolSpec(name=name, description=tool.description, schema=dict(tool.schema))
            for name, tool in self._tools.items()
        )

    def find(self, name: str) -> tuple[str, str | None] | None:
        """Return the tool's own name and the method behind it, or None if there is none."""
        if name in self._tools or name in self._duplexes:
            return name, None
        for separator in (".", ":", "__"):
            head, found, method = name.partition(separator)
            if found and method and (head in self._tools or head in self._duplexes):
                return head, method
        return None

    def accepts_key(self, name: str) -> bool:
        """Return whether a repeated call can be told from a new one by its key."""
        found = self.find(name)
        tool = self._tools.get(found[0]) if found else None
        return tool is not None and tool.accepts_key

    def read_only(self, name: str) -> bool:
        """Return whether calling this twice is declared to change nothing."""
        found = self.find(name)
        tool = self._tools.get(found[0]) if found else None
        return tool is not None and tool.read_only

    def timeout_ms(self, name: str) -> float | None:
        """Return the deadline of a call of this name; None if it has none or there is no such tool."""
        found = self.find(name)
        if found is None:
            return None
        tool = self._tools.get(found[0])
        return self._timeout_ms if tool is None or tool.timeout_ms is None else tool.timeout_ms

    def read_call(self, frame: Frame, *, step_id: str = "", key: str = "") -> ToolCall:
        """Return the call a TOOL_CALL frame stands for; one without an id is given one."""
        content = frame.content
        call_id, name, arguments = content.get("id"), content.get("name"), content.get("arguments")
        raw = content.get("raw_arguments")
        return ToolCall(
            id=call_id if isinstance(call_id, str) and call_id else self._id_factory(),
            name=name if isinstance(name, str) else repr(name),
            arguments=dict(arguments) if isinstance(arguments, Mapping) else None,
            raw_arguments=raw if isinstance(raw, str) else arguments if isinstance(arguments, str) else None,
            step_id=step_id,
            key=key,
        )

    async def call(self, tool_call: ToolCall | Frame) -> ToolResult:
        """Answer one call. Never raises for what the model or the tool did.

        Only cancellation, KeyboardInterrupt and SystemExit pass through; what the tool runs
        on the event loop has ended by then.
        """
        call = tool_call if isinstance(tool_call, ToolCall) else self.read_call(tool_call)
        found = self.find(call.name)
        if found is None:
            names = ", ".join(self.names) or "none"
            return tool_failure(
                call,
                "unknown_tool",
                f"no tool is called {call.name!r}; available: {names}",
                available=[*self.names],
            )
        name, method = found
        problem, arguments = self._read_arguments(call, self._tools.get(name))
        if problem is not None:
            return tool_failure(call, "invalid_arguments", f"{call.name}: {problem}")
        call = msgspec.structs.replace(call, arguments=arguments, method=method)
        return await self._run(name, call)

    def _read_arguments(self, call: ToolCall, tool: Tool | None) -> tuple[str | None, dict[str, Any]]:
        arguments: Any = call.arguments
        if arguments is None:
            text = call.raw_arguments or ""
            if not text.strip():
                arguments = {}
            else:
                try:
                    arguments = decode(text, max_bytes=MAX_ARGUMENT_BYTES, repair_surrogates=True)
                except NotJson as error:
                    return f"the arguments are not JSON: {error}", {}
        if not isinstance(arguments, dict):
            return f"the arguments must be a JSON object, not {type(arguments).__name__}", {}
        if tool is None or tool.schema == _ANY_OBJECT:
            return None, arguments
        try:
            return self._check(tool, arguments), arguments
        except SchemaRefused as error:
            return f"its schema cannot be used: {error.problem}", {}

    def _check(self, tool: Tool, arguments: dict[str, Any]) -> str | None:
        schema = self._schemas.get(tool.name)
        if schema is None:
            schema = self._schemas[tool.name] = ArgumentSchema(tool.schema)
        return "; ".join(map(str, schema.problems(arguments)[:8])) or None

    async def _run(self, name: str, call: ToolCall) -> ToolResult:
        tool, timeout_ms = self._tools.get(name), self.timeout_ms(name)
        started_ms = self._clock.monotonic_ms() if self._clock else 0
        with anyio.move_on_after(math.inf if timeout_ms is None else timeout_ms / 1000) as scope:
            try:
                if tool is None:
                    value: object = await self._duplexes[name].call(call)
                else:
                    value = await self._invoke(tool, call)
                result = read_result(call, value, self._max_output)
            except Exception as error:
                result = tool_failure(call, "tool_error", _describe(error))
        if scope.cancelled_caught:
            result = tool_failure(
                call, "timeout", f"{call.name} did not answer within {timeout_ms:g} ms", timeout_ms=timeout_ms
            )
        if self._clock is None:
            return result
        return msgspec.structs.replace(result, duration_ms=self._clock.monotonic_ms() - started_ms)

    async def _invoke(self, tool: Tool, call: ToolCall) -> object:
        return await self._threads.run(tool.handler, bind_call(tool, call), call)


class HandlerThreads:
    """Runs handlers: async ones where they are, plain ones in worker threads.

    A thread whose call was cancelled cannot be stopped; those that still run are counted, and
    beyond `MAX_ABANDONED_THREADS` plain calls are refused.
    """

    __slots__ = ("_abandoned",)

    def __init__(self) -> None:
        self._abandoned = 0

    async def run(
        self,
        handler: Callable[..., Any],
        bound: Callable[[], object],
        call: ToolCall,
        *,
        clock: Clock | None = None,
    ) -> object:
        """Return what the handler returned, or a `ToolResult` that refuses the call.

        Virtual time does not pass while a thread works.
        """
        if not is_async(handler):
            with stands_still(clock):
                return await self._in_thread(call, bound)
        value = bound()
        return await cast(Awaitable[object], value) if inspect.isawaitable(value) else value

    async def _in_thread(self, call: ToolCall, bound: Callable[[], object]) -> object:
        if self._abandoned >= MAX_ABANDONED_THREADS:
            return tool_failure(
                call,
                "tool_capacity",
                f"{self._abandoned} earlier calls of plain functions ignored their deadline and still run",
            )
        lock = threading.Lock()
        state = {"done": False, "abandoned": False}

        def work() -> tuple[object]:
            try:
                return (bound(),)  # in a tuple: trio refuses a coroutine that a thread gives back
            finally:
                with lock:
                    state["done"] = True
                    if state["abandoned"]:
                        self._abandoned -= 1

        try:
            (value,) = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            # A thread cannot be stopped: it is left to finish, counted, and its value discarded.
            with lock:
                if not state["done"]:
                    state["abandoned"] = True
                    self._abandoned += 1
            raise
        return await cast(Awaitable[object], value) if inspect.isawaitable(value) else value


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling this stays on the event loop, as far as can be told beforehand."""
    target = function.func if isinstance(function, partial) else function
    targets = [target] if inspect.isroutine(target) else [target, type(target).__call__]
    return any(inspect.iscoroutinefunction(item) or inspect.isasyncgenfunction(item) for item in targets)


def bind_call(tool: Tool, call: ToolCall, **offered: object) -> Callable[[], object]:
    """Return the handler with the call's arguments; what is offered too goes to who names it."""
    arguments = dict(call.arguments or {})
    parameters = _parameters(tool.handler)
    if len(parameters) == 1 and parameters[0] == "call":
        return partial(tool.handler, call)
    if call.method is not None:
        arguments["method"] = call.method
    if tool.accepts_key:
        arguments["key"] = call.key
    arguments |= {name: value for name, value in offered.items() if name in parameters}
    return partial(tool.handler, **arguments)


def _parameters(handler: Callable[..., Any]) -> Sequence[str]:
    try:
        return [*inspect.signature(handler).parameters]
    except (TypeError, ValueError):
        return ()


def create_tool_adapter_wrapper(
    tool_adapters: Mapping[str, ToolAdapter],
    *,
    timeout_ms: float | None = DEFAULT_TIMEOUT_MS,
    id_factory: IdFactory | None = None,
    max_output: int = MAX_OUTPUT,
    clock: Clock | None = None,
) -> ToolAdapterWrapper:
    """Return an object whose ``await wrapper.call(tool_call)`` answers any call.

    Args:
        tool_adapters: Name to `Tool`, function or duplex. ``fs.read``, ``fs:read`` and
            ``fs__read`` find a tool ``fs`` and pass ``read`` as the method.
        timeout_ms: Deadline of one call in milliseconds; None for no deadline.
        id_factory: Gives ids to calls that have none.
        max_output: Longer texts are cut in the middle with a visible mark.
        clock: If given, results carry ``duration_ms``.

    Raises:
        TypeError: An entry is neither a tool, a function nor a duplex, or a number is none.
        ValueError: A number is out of range.
    """
    return ToolAdapterWrapper(
        tool_adapters, timeout_ms=timeout_ms, id_factory=id_factory, max_output=max_output, clock=clock
    )
