"""OpenAI's Chat Completions, streamed, through the official client.

The client keeps transport, authentication and errors; its retries are off and its parsing is
passed by, because one parsed chunk costs ten times what its bytes cost to read. It runs on
asyncio and on trio.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from adapters.openai.faults import broken, rejected, unreachable
from adapters.openai.stream import MAX_BYTES, ChatStream
from agentloop._canonical import Json, encode_text
from agentloop._numbers import check_amount, check_count, check_duration
from agentloop.determinism import Clock
from agentloop.errors import AgentLoopConfigError, ModelError
from agentloop.frames import Frame
from agentloop.messages import Message, ToolCall
from agentloop.models import AdapterContext, Retry, as_duplex, read_options
from agentloop.ports import FrameDuplex, ModelRequest, ToolSpec
from agentloop.redact import Redactor, Secret

if TYPE_CHECKING:
    import openai

__all__ = ("OpenAIChat", "create_openai_adapter", "openai_adapter")

_OPENAI: Final = "https://api.openai.com/v1"
_MODEL_VARIABLE: Final = "OPENAI_MODEL"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class OpenAIChat:
    """A `ModelCore` over Chat Completions.

    The client is imported and made on the first call; `aclose` closes it, and the next call
    makes a new one.

    Args:
        model: The name the server knows the model by.
        base_url: Of a compatible server, up to and including ``/v1``; else the variable
            OPENAI_BASE_URL, else OpenAI itself.
        api_key: Else the variable `api_key_env`. A server on this machine needs none.
        api_key_env: The environment variable that holds the key.
        client: An ``openai.AsyncOpenAI`` of your own; it stays yours to close.
        temperature: Used where a request names none.
        max_output_tokens: Used where a request names none.
        extra_body: Put into every request as it is.
        timeout_ms: Longest silence of the server, before and within an answer.
        connect_timeout_ms: Longest wait for a connection.
        environ: Where the variables are read; the process's environment if None.

    Raises:
        AgentLoopConfigError: No model, no key, an address that is no http(s) URL, or a number
            out of range.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        client: openai.AsyncOpenAI | None = None,
        temperature: float | None = None,
        max_output_tokens: int | None = None,
        extra_body: Mapping[str, Json] | None = None,
        timeout_ms: int = 300_000,
        connect_timeout_ms: int = 10_000,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self.model = model
        own_address = base_url or environ.get("OPENAI_BASE_URL")
        self._base_url = own_address or _OPENAI
        self._server = _shown(self._base_url)
        self._given = client
        self._client: openai.AsyncOpenAI | None = None
        self._key = _find_key(api_key, api_key_env, environ, self._base_url) if client is None else Secret("")
        if not isinstance(model, str) or not model:
            raise AgentLoopConfigError(
                f"the openai adapter needs 'model', the name {self._server} knows the model by, not {model!r} "
                f"(a task file may leave it to the variable {_MODEL_VARIABLE})"
            )
        try:
            check_amount("temperature", temperature, optional=True)
            check_count("max_output_tokens", max_output_tokens, 1, optional=True)
            check_duration("timeout_ms", timeout_ms)
            check_duration("connect_timeout_ms", connect_timeout_ms)
        except (TypeError, ValueError) as error:
            raise AgentLoopConfigError(f"the openai adapter: {error}") from None
        self._redactor = Redactor([self._key.reveal()])
        self._temperature, self._max_output_tokens = temperature, max_output_tokens
        # OpenAI's own newer models refuse the older name, and many other servers know no other.
        self._limit_name = "max_tokens" if own_address else "max_completion_tokens"
        self._extra_body = dict(extra_body or {})
        self._timeout_ms, self._connect_timeout_ms = timeout_ms, connect_timeout_ms
        self._ask_for_usage = True

    def __repr__(self) -> str:
        return f"OpenAIChat(model={self.model!r}, server={self._server!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Frame, None]:
        """Yield TEXT and REASONING as they come, then TOOL_CALLs, USAGE and DONE.

        About 20 us of CPU for each streamed chunk.

        Raises:
            ModelError: Classified by `faults`; ``model.stream_broken`` after a first frame,
                ``model.filtered`` after the last one.
        """
        client = await self._open()
        while True:
            stream = ChatStream()
            # Raised outside of the except block, so that no error of the client, which knows the
            # request and its headers, stays attached to ours.
            failure: ModelError | None = None
            try:
                create = client.chat.completions.with_streaming_response.create
                async with (
                    create(**self._body(request)) as answer,
                    # Closed by us: the client's own iterator would leave the connection's open.
                    aclosing(answer.http_response.aiter_bytes()) as pieces,
                ):
                    if answer.headers.get("content-type", "").startswith("application/json"):
                        for frame in stream.whole(await _read_all(pieces)):
                            yield frame
                    else:
                        async for piece in pieces:
                            for frame in stream.feed(piece):
                                yield frame
                            if stream.ended:
                                await _drain(pieces)
                                break
            except ModelError:
                raise
            except Exception as error:
                if self._ask_for_usage and _refuses_usage(error):
                    self._ask_for_usage = False
                    continue
                failure = self._fault(error)
                if failure is None:
                    raise
            if failure is not None:
                raise failure
            break
        for frame in stream.end():
            yield frame

    async def aclose(self) -> None:
        """Close the client's connections, unless the client was given."""
        client, self._client = self._client, None
        if client is not None and self._given is None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _open(self) -> Any:
        if self._client is None:
            # In a thread, because the import alone takes a second.
            self._client = await anyio.to_thread.run_sync(self._connect)
        return self._client

    def _connect(self) -> openai.AsyncOpenAI:
        import openai

        if self._given is not None:
            return self._given.with_options(max_retries=0)
        timeout = openai.Timeout(self._timeout_ms / 1000, connect=self._connect_timeout_ms / 1000)
        return openai.AsyncOpenAI(
            api_key=self._key.reveal(), base_url=self._base_url, max_retries=0, timeout=timeout
        )

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [_wire_message(message) for message in request.messages],
            "stream": True,
        }
        if self._ask_for_usage:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = [_wire_tool(tool) for tool in request.tools]
        limit = request.max_output_tokens or self._max_output_tokens
        if limit is not None:
            body[self._limit_name] = limit
        temperature = self._temperature if request.temperature is None else request.temperature
        if temperature is not None:
            body["temperature"] = temperature
        if self._extra_body:
            body["extra_body"] = self._extra_body
        return body

    def _fault(self, error: Exception) -> ModelError | None:
        """Return what an error of the client or its transport means; None for any other."""
        import httpx2
        import openai

        if isinstance(error, openai.APIStatusError):
            return rejected(
                self._server,
                error.status_code,
                error.body,
                error.response.headers,
                self._redactor.redact_text,
            )
        if isinstance(error, openai.APIConnectionError):
            timed_out = isinstance(error, openai.APITimeoutError)
            return unreachable(self._server, timed_out=timed_out, kind=type(error.__cause__).__name__)
        if isinstance(error, httpx2.TimeoutException):
            return ModelError(
                f"{self._server} fell silent within its answer for {self._timeout_ms} ms",
                error_class="transient",
                code="model.timeout",
            )
        # The client's own list: TLS failures reach us unmapped.
        if isinstance(error, (httpx2.RequestError, ssl.SSLError, anyio.EndOfStream)):
            return broken(f"{self._server} broke the connection within its answer ({type(error).__name__})")
        if isinstance(error, openai.OpenAIError):
            text = self._redactor.redact_text(str(error))[:300]
            return ModelError(f"the openai client refused the call: {text}", code="provider.bad_request")
        return None


def _find_key(given: str | Secret | None, name: str, environ: Mapping[str, str], base_url: str) -> Secret:
    key = given.reveal() if isinstance(given, Secret) else given or environ.get(name)
    if key:
        return Secret(key)
    if urlsplit(base_url).hostname in _LOOPBACK:
        return Secret("none")
    raise AgentLoopConfigError(
        f"no key for {_shown(base_url)}: set the environment variable {name}, or use the scripted adapter, "
        "which needs none; a server on this machine (base_url) needs none either"
    )


def _shown(base_url: str) -> str:
    """Return the address without user info and query, or raise if it is none."""
    try:
        parts = urlsplit(base_url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        parts, port = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AgentLoopConfigError("base_url must be an http or https address, as http://127.0.0.1:8080/v1")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _refuses_usage(error: Exception) -> bool:
    """Whether a server does not know the option that asks it for the usage."""
    return getattr(error, "status_code", None) in (400, 422) and "stream_options" in str(
        getattr(error, "body", "")
    )


async def _read_all(pieces: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > MAX_BYTES:
            break
    return bytes(body)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of the answer so that the connection can be used again; but wait for no more."""
    with anyio.move_on_after(0.1):
        async for _ in pieces:
            pass


def _wire_message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        content = f"ERROR: {message.content}" if message.is_error else message.content
        return {"role": "tool", "tool_call_id": message.call_id, "content": content}
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": _wire_function(call)}
            for call in message.tool_calls
        ]
    return wire


def _wire_function(call: ToolCall) -> dict[str, str]:
    # Arguments that are no object go back as an empty one: servers refuse a conversation with
    # broken JSON in it, and the model reads what was wrong in the answer to the call.
    return {"name": call.name, "arguments": encode_text(call.arguments or {})}


def _wire_tool(tool: ToolSpec) -> dict[str, Any]:
    schema = dict(tool.schema) or {"type": "object"}
    if schema.get("type") == "object":
        schema.setdefault("properties", {})
    function = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", "function": function}


def create_openai_adapter(
    *,
    system: str | None = None,
    tools: Sequence[ToolSpec] = (),
    retry: Retry | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> FrameDuplex:
    """Return a duplex that talks to a chat model: `as_duplex` over an `OpenAIChat`.

    Args:
        system: As for `as_duplex`.
        tools: As for `as_duplex`.
        retry: As for `as_duplex`.
        clock: As for `as_duplex`.
        options: Those of `OpenAIChat`.

    Raises:
        AgentLoopConfigError: As `OpenAIChat`.
    """
    return as_duplex(OpenAIChat(**options), system=system, tools=tools, retry=retry, clock=clock)


class _Options(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a task file may say about a model. There is no option for the key itself."""

    model: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: float | None = None
    max_output_tokens: int | None = None
    extra_body: dict[str, Any] = {}
    timeout_ms: int = 300_000
    connect_timeout_ms: int = 10_000
    system: str | None = None


def openai_adapter(options: Mapping[str, Json], context: AdapterContext) -> FrameDuplex:
    """Return the duplex for the options of a task file: the entry point ``openai``.

    A task that names no model leaves it to the variable OPENAI_MODEL, as one without
    ``base_url`` leaves the address to OPENAI_BASE_URL.

    Raises:
        AgentLoopConfigError: As `OpenAIChat`, or for an option it does not have.
    """
    given = msgspec.structs.asdict(read_options("openai", _Options, options))
    system = given.pop("system")
    given["model"] = given["model"] or context.environ.get(_MODEL_VARIABLE, "")
    return create_openai_adapter(system=system, environ=context.environ, **given)
