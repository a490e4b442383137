"""Tools from typed functions: the signature is the schema, the docstring what the model is told.

What a call brings is checked against the schema by whoever runs the tool; here it is turned
into the declared types.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints, overload

import msgspec

from agentloop._canonical import decode, encode
from agentloop.errors import ClassifiedError
from agentloop.outcome import correctable
from agentloop.tools import Tool, is_async

__all__ = ("tool",)

#: Parameters that the caller gives, not the model.
_GIVEN: Final = ("ctx", "key")


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    timeout_ms: int | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    timeout_ms: int | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Return a tool made of a typed function; use it as ``@tool`` or ``@tool(read_only=True)``.

    Every parameter needs a type: a plain one, ``Literal``, a list or dict of such, a dataclass, a
    struct, or ``Annotated[int, msgspec.Meta(ge=1)]``. Without a default it is required. Lines of
    the docstring's ``Args:`` describe them. A parameter ``key`` gets what is the same when the
    call is repeated, ``ctx`` what an orchestrator says of the call; the model sees neither.

    Args:
        function: Async, or plain and then run in a thread.
        name: By default the function's.
        description: By default the docstring up to ``Args:``.
        read_only: Declares that calling it twice changes nothing.
        timeout_ms: Its own deadline.

    Raises:
        TypeError: A parameter has no type, or one that JSON cannot bring.
    """

    def make(target: Callable[..., Any]) -> Tool:
        called = name or target.__name__
        told, notes = _docstring(target)
        form = _form(target, called)
        return Tool(
            name=called,
            description=told if description is None else description,
            schema=_schema(form, notes),
            handler=_handler(target, form, called),
            read_only=read_only,
            timeout_ms=timeout_ms,
            accepts_key="key" in inspect.signature(target).parameters,
        )

    return make if function is None else make(function)


def _form(target: Callable[..., Any], name: str) -> type[msgspec.Struct]:
    """Return a struct with one field for each argument the model brings."""
    hints = get_type_hints(target, include_extras=True)
    fields: list[Any] = []
    for parameter in inspect.signature(target).parameters.values():
        if parameter.name in _GIVEN:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"tool {name!r}: {parameter} cannot be given by name")
        if parameter.name not in hints:
            raise TypeError(f"tool {name!r}: parameter {parameter.name!r} needs a type")
        hint = hints[parameter.name]
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            # Only said to be absent: the function's own default is used.
            fields.append((parameter.name, hint | msgspec.UnsetType, msgspec.UNSET))
    try:
        form = msgspec.defstruct(
            _NOT_A_LETTER.sub("_", name), fields, kw_only=True, forbid_unknown_fields=True
        )
        msgspec.json.schema(form)
    except (TypeError, ValueError) as error:
        raise TypeError(f"tool {name!r}: {error}") from error
    return form


_NOT_A_LETTER: Final = re.compile(r"\W")


def _schema(form: type[msgspec.Struct], notes: Mapping[str, str]) -> dict[str, Any]:
    _, parts = msgspec.json.schema_components([form], ref_template="#/$defs/{name}")
    schema = {key: value for key, value in parts.pop(form.__name__).items() if key != "title"}
    for name, inner in schema["properties"].items():
        if name in notes and "description" not in inner:
            inner["description"] = notes[name]
    return {**schema, "$defs": parts} if parts else schema


def _handler(target: Callable[..., Any], form: type[msgspec.Struct], name: str) -> Callable[..., Any]:
    def typed(arguments: dict[str, Any]) -> dict[str, Any]:
        given = {key: arguments.pop(key) for key in _GIVEN if key in arguments}
        try:
            # Through canonical JSON, where 2.0 is the whole number it is for a schema.
            read = msgspec.convert(decode(encode(arguments)), form)
        except msgspec.ValidationError as error:
            text = f"the arguments of {name} do not fit: {error}"
            raise ClassifiedError(correctable("tool.invalid_arguments", text)) from error
        values = {key: getattr(read, key) for key in form.__struct_fields__}
        return {key: value for key, value in values.items() if value is not msgspec.UNSET} | given

    if is_async(target):

        @functools.wraps(target)
        async def handler(**arguments: Any) -> Any:
            return _plain(await target(**typed(arguments)))

        return handler

    @functools.wraps(target)
    def plain_handler(**arguments: Any) -> Any:
        return _plain(target(**typed(arguments)))

    return plain_handler


def _plain(value: Any) -> Any:
    """Return a dataclass or struct as JSON data; anything else as it is."""
    if isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        # The answers of ports, Ok and Err, are dataclasses too; they are read elsewhere.
        return value if type(value).__module__.startswith("agentloop.") else msgspec.to_builtins(value)
    return value


def _docstring(target: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the text up to ``Args:`` and what is said there of each parameter."""
    told, _, rest = (inspect.getdoc(target) or "").partition("\nArgs:\n")
    notes: dict[str, str] = {}
    newest = ""
    for line in rest.splitlines():
        if line and not line.startswith(" "):
            break
        found = re.fullmatch(r" {1,4}(\w+)(?: \([^)]*\))?: *(.*)", line)
        if found:
            newest = found[1]
            notes[newest] = found[2].strip()
        elif newest and line.strip():
            notes[newest] = f"{notes[newest]} {line.strip()}".strip()
    return told.partition("\nReturns:")[0].partition("\nRaises:")[0].strip(), notes
