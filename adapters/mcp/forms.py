"""From a typed function to what a client is told of it: a description and a JSON Schema.

The signature gives names and types, the docstring the words; nothing is said twice. A parameter
that may be left out may also be null. Of a union only the part that JSON can bring is offered.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from agentloop._canonical import Json

__all__ = ("arguments_schema", "description")

_PLAIN: Final[Mapping[Any, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_LISTS: Final = (list, tuple, Sequence, Iterable, Collection)
_OBJECTS: Final = (dict, Mapping)
_SECTION: Final = re.compile(r"^(Args|Returns|Raises|Example):$", re.MULTILINE)


def description(function: Callable[..., Any]) -> str:
    """Return the docstring up to its first section."""
    return _SECTION.split(inspect.getdoc(function) or "", maxsplit=1)[0].strip()


def arguments_schema(function: Callable[..., Any], *, hidden: Collection[str] = ()) -> dict[str, Any]:
    """Return the schema of a function's arguments; ``self`` and what is hidden are left out.

    Raises:
        TypeError: A parameter has no type, or one that JSON cannot bring.
    """
    hints, notes = get_type_hints(function), _notes(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "graph") or parameter.name in hidden:
            continue
        try:
            form = _form(hints[parameter.name])
        except (KeyError, TypeError) as error:
            raise TypeError(f"{function.__name__}: {parameter} has no type that JSON can bring") from error
        note = notes.get(parameter.name)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif isinstance(parameter.default, (bool, int, float, str)):
            form = {**form, "default": parameter.default}
        properties[parameter.name] = form if note is None else {**form, "description": note}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _form(hint: Any) -> dict[str, Json]:
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return _union([part for part in parts if part is not NoneType])
    if origin is Literal:
        return {"type": "string", "enum": list(parts)}
    if origin in _LISTS:
        return {"type": "array", "items": _form(parts[0])} if parts else {"type": "array"}
    if origin in _OBJECTS:
        return {"type": "object"}
    raise TypeError(f"{hint!r} is nothing that JSON can bring")


def _union(parts: Sequence[Any]) -> dict[str, Json]:
    """Return the form of the only part of a union that JSON can bring; Any is every one of them."""
    if Any in parts:
        return {}
    forms = [_form(part) for part in parts]
    if len(forms) != 1:
        raise TypeError("a union of several types")
    return forms[0]


def _notes(function: Callable[..., Any]) -> dict[str, str]:
    """Return what the section ``Args:`` says of each parameter; of several before one colon alike."""
    notes: dict[str, str] = {}
    named: list[str] = []
    lines = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].splitlines()
    for line in lines:
        if line and not line.startswith(" "):
            break
        begins = re.fullmatch(r" {4}(\w+(?:, \w+)*): *(.*)", line)
        if begins:
            named = begins[1].split(", ")
            notes.update(dict.fromkeys(named, begins[2].strip()))
        elif line.strip():
            for name in named:
                notes[name] = f"{notes[name]} {line.strip()}".strip()
    return notes
