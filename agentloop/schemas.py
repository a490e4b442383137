"""Checking arguments against a JSON Schema, once prepared, within bounds.

Schemas of the common kind (types, enums, bounds, required and additional properties) are
compiled to plain functions, about ten times faster than the library. Everything else in JSON
Schema 2020-12 goes through the library with one kept validator. What could hang or fetch is
refused when the schema is prepared: foreign references, references that lead in a circle,
patterns without a linear automaton.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from agentloop._canonical import Json, NotJson, encode_text
from agentloop.errors import SchemaRefused
from agentloop.patterns import Pattern, PatternRefused

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = ("ArgumentSchema", "Problem", "render_schema")

#: Bytes of a schema, items that are compared for being unique, characters a pattern reads,
#: keywords evaluated for one value.
MAX_SCHEMA_BYTES: Final = 256 * 1024
MAX_UNIQUE_ITEMS: Final = 256
MAX_PATTERN_SUBJECT: Final = 4_096
MAX_WORK: Final = 50_000


class Problem(NamedTuple):
    """One thing that is wrong with a value, and where."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


_Check: TypeAlias = Callable[[Json, str, list[Problem]], None]


class ArgumentSchema:
    """A schema, prepared.

    Args:
        schema: Of draft 2020-12.

    Raises:
        SchemaRefused: It is no schema, or one whose evaluation cannot be bounded.
    """

    __slots__ = ("_check", "_validator", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)
        self._validator: Validator | None = None
        try:
            size = len(encode_text(self.schema).encode("utf-8", "surrogatepass"))
        except NotJson as error:
            raise SchemaRefused(str(error)) from None
        if size > MAX_SCHEMA_BYTES:
            raise SchemaRefused(f"it has {size} bytes, more than {MAX_SCHEMA_BYTES}")
        self._check = _compiled(self.schema)
        if self._check is None:
            self._validator = _prepared(self.schema)

    @property
    def compiled(self) -> bool:
        """Whether the schema is of the common kind."""
        return self._check is not None

    def problems(self, value: Json) -> list[Problem]:
        """Return everything that is wrong with a JSON value, in a fixed order; empty if nothing.

        A schema of the common kind takes a few microseconds, another one around a hundred.
        """
        if self._check is None:
            return _library_problems(self._validator, value)
        found: list[Problem] = []
        self._check(value, "$", found)
        return found


# ------------------------------------------------------------------------------ common kind

_COMMON: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"enum", "minLength", "maxLength"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
_NOTES: Final = frozenset({"type", "description", "title", "default", "examples", "$schema", "$comment"})
_BOUNDS: Final = ("minLength", "maxLength", "minItems", "maxItems")


def type_name(value: Json) -> str:
    """Return what a value is called in a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def _compiled(schema: Json) -> _Check | None:
    """Return the check of a schema of the common kind, None for another one."""
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    allowed = _COMMON.get(kind) if isinstance(kind, str) else None
    if allowed is None or not schema.keys() <= allowed | _NOTES or not _well_formed(schema):
        return None
    match kind:
        case "string":
            return _string(schema)
        case "number" | "integer":
            return _number(schema, whole=kind == "integer")
        case "boolean":
            return _boolean
        case "array":
            return _array(schema)
    return _object(schema)


def _well_formed(schema: Mapping[str, Any]) -> bool:
    for name in _BOUNDS:
        bound = schema.get(name, 0)
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
            return False
    for name in ("minimum", "maximum"):
        bound = schema.get(name, 0)
        if isinstance(bound, bool) or not isinstance(bound, (int, float)):
            return False
    enum, required = schema.get("enum", ["-"]), schema.get("required", [])
    return (
        isinstance(enum, list)
        and bool(enum)
        and all(isinstance(word, str) for word in enum)
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and len({*required}) == len(required)
        and isinstance(schema.get("additionalProperties", True), bool)
        and isinstance(schema.get("properties", {}), Mapping)
        and isinstance(schema.get("description", ""), str)
        and isinstance(schema.get("title", ""), str)
        and isinstance(schema.get("examples", []), list)
        and isinstance(schema.get("$comment", ""), str)
        and isinstance(schema.get("$schema", ""), str)
        and not _own_dialect(schema)
    )


def _own_dialect(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is written in a language of its author's; older drafts are read as this one."""
    dialect = schema.get("$schema", "")
    return isinstance(dialect, str) and dialect.partition("://")[2].partition("/")[0] not in (
        "",
        "json-schema.org",
    )


def _wrong_type(expected: str, value: Json, path: str) -> Problem:
    return Problem(path, f"expected {expected}, got {type_name(value)}")


def _one_of(words: list[str]) -> str:
    return f"expected one of {', '.join(encode_text(word) for word in words)}"


def _string(schema: Mapping[str, Any]) -> _Check:
    enum, least, most = schema.get("enum"), schema.get("minLength", 0), schema.get("maxLength")
    words = frozenset(enum or ())
    wrong = _one_of(enum or [])

    def check(value: Json, path: str, found: list[Problem]) -> None:
        if not isinstance(value, str):
            found.append(_wrong_type("string", value, path))
            return
        if enum is not None and value not in words:
            found.append(Problem(path, wrong))
        if len(value) < least:
            found.append(Problem(path, f"shorter than minLength {least}"))
        if most is not None and len(value) > most:
            found.append(Problem(path, f"longer than maxLength {most}"))

    return check


def _number(schema: Mapping[str, Any], *, whole: bool) -> _Check:
    expected = "integer" if whole else "number"
    least, most = schema.get("minimum"), schema.get("maximum")

    def check(value: Json, path: str, found: list[Problem]) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            found.append(_wrong_type(expected, value, path))
            return
        if whole and isinstance(value, float) and not value.is_integer():
            found.append(Problem(path, "expected an integer"))
        if least is not None and value < least:
            found.append(Problem(path, f"below minimum {encode_text(least)}"))
        if most is not None and value > most:
            found.append(Problem(path, f"above maximum {encode_text(most)}"))

    return check


def _boolean(value: Json, path: str, found: list[Problem]) -> None:
    if not isinstance(value, bool):
        found.append(_wrong_type("boolean", value, path))


def _anything(value: Json, path: str, found: list[Problem]) -> None:
    pass


def _array(schema: Mapping[str, Any]) -> _Check | None:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    item = _compiled(schema["items"]) if "items" in schema else _anything
    if item is None:
        return None

    def check(value: Json, path: str, found: list[Problem]) -> None:
        if not isinstance(value, (list, tuple)):
            found.append(_wrong_type("array", value, path))
            return
        if len(value) < least:
            found.append(Problem(path, f"fewer than minItems {least}"))
        if most is not None and len(value) > most:
            found.append(Problem(path, f"more than maxItems {most}"))
        if item is not _anything:
            for index, member in enumerate(value):
                item(member, f"{path}[{index}]", found)

    return check


def _object(schema: Mapping[str, Any]) -> _Check | None:
    declared: dict[str, _Check] = {}
    for name, inner in schema.get("properties", {}).items():
        check_inner = _compiled(inner)
        if check_inner is None:
            return None
        declared[name] = check_inner
    required = schema.get("required", [])
    closed = schema.get("additionalProperties", True) is False

    def check(value: Json, path: str, found: list[Problem]) -> None:
        if not isinstance(value, Mapping):
            found.append(_wrong_type("object", value, path))
            return
        for name in required:
            if name not in value:
                found.append(Problem(path, f"missing required property {encode_text(name)}"))
        for name, inner in declared.items():
            if name in value:
                inner(value[name], f"{path}.{name}", found)
        if closed:
            for name in value:
                if name not in declared:
                    found.append(Problem(path, f"unexpected property {encode_text(name)}"))

    return check


# ---------------------------------------------------------------------------------- library

#: Keywords whose value is a schema that the same value has to pass, or a list of such.
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")


def _prepared(schema: Mapping[str, Any]) -> Validator:
    # Imported on use: it is slow to import, and the common kind never needs it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from referencing import Registry

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise SchemaRefused(f"{error.json_path}: {error.message:.200}") from None
    except RecursionError:
        raise SchemaRefused("it is nested too deep") from None
    _check_bounds(schema)
    # An empty registry fetches nothing: a reference leads within the schema or nowhere.
    validator: Validator = _bounded_class()(schema, registry=Registry())
    return validator


def _members(schema: Json) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a schema; what only looks like a schema does no harm."""
    todo = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, Mapping):
            yield item
            todo.extend(value for name, value in item.items() if name not in ("enum", "const", "default"))
        elif isinstance(item, list):
            todo.extend(item)


def _check_bounds(schema: Mapping[str, Any]) -> None:
    for member in _members(schema):
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in member:
                raise SchemaRefused(f"{keyword} is not supported")
        if _own_dialect(member):
            raise SchemaRefused(f"$schema {member['$schema']!r:.200} is not a draft of json-schema.org")
        if "patternProperties" in member and "unevaluatedProperties" in member:
            raise SchemaRefused("patternProperties beside unevaluatedProperties is not supported")
        patterns = [member["pattern"]] if isinstance(member.get("pattern"), str) else []
        if isinstance(member.get("patternProperties"), Mapping):
            patterns += member["patternProperties"]
        for pattern in patterns:
            _pattern(pattern)
    _check_references(schema)


def _check_references(root: Mapping[str, Any]) -> None:
    """Refuse foreign references, and those that lead back to themselves in place."""
    done: set[int] = set()
    for member in _members(root):
        _follow(root, member, [], done)


def _follow(root: Mapping[str, Any], schema: Json, above: list[int], done: set[int]) -> None:
    if not isinstance(schema, Mapping) or id(schema) in done:
        return
    if id(schema) in above:
        raise SchemaRefused("a reference leads back to itself: its check would never end")
    above.append(id(schema))
    reference = schema.get("$ref")
    if isinstance(reference, str):
        _follow(root, _target(root, reference), above, done)
    for keyword in _IN_PLACE:
        inner = schema.get(keyword)
        for each in inner if isinstance(inner, list) else [inner]:
            _follow(root, each, above, done)
    above.pop()
    done.add(id(schema))


def _target(root: Mapping[str, Any], reference: str) -> Json:
    if not reference.startswith("#"):
        raise SchemaRefused(
            f"the reference {reference!r:.200} leads out of the schema; only '#/…' is followed"
        )
    target: Any = root
    from urllib.parse import unquote

    for part in unquote(reference[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            target = target[int(name)] if isinstance(target, list) else target[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise SchemaRefused(f"the reference {reference!r:.200} leads nowhere") from None
    if reference != "#" and not reference.startswith("#/"):
        raise SchemaRefused(f"the reference {reference!r:.200} names an anchor; only '#/…' is followed")
    return target


_patterns: dict[str, Pattern] = {}


def _pattern(text: str) -> Pattern:
    found = _patterns.get(text)
    if found is None:
        try:
            found = Pattern(text)
        except PatternRefused as error:
            raise SchemaRefused(f"the pattern {text!r:.200} is refused: {error}") from None
        if len(_patterns) >= 1_000:
            _patterns.clear()
        _patterns[text] = found
    return found


class _TooMuchWork(Exception):
    pass


class _Work(threading.local):
    left = 0


_work: Final = _Work()
_bounded: list[Any] = []


def _bounded_class() -> Any:
    """Return the library's validator with every keyword counted and its traps replaced."""
    if not _bounded:
        from jsonschema import Draft202012Validator, validators

        extend: Any = validators.extend
        replaced: dict[str, Callable[..., Any]] = {
            "pattern": _check_pattern,
            "patternProperties": _check_pattern_properties,
            "additionalProperties": _check_additional,
            "uniqueItems": _check_unique,
            "enum": _check_enum,
            "const": _check_const,
        }
        counted = {
            keyword: _counted(replaced.get(keyword, cast(Any, check)))
            for keyword, check in Draft202012Validator.VALIDATORS.items()
        }
        _bounded.append(extend(Draft202012Validator, counted))
    return _bounded[0]


def _spend(steps: int) -> None:
    _work.left -= steps
    if _work.left < 0:
        raise _TooMuchWork


def _counted(check: Callable[..., Any]) -> Callable[..., Any]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _spend(1)
        for error in check(validator, value, instance, schema) or ():
            # The library quotes the whole value in each of its messages, needed or not.
            _spend(len(error.message) // 1024)
            yield error

    return counted


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str):
        if len(instance) > MAX_PATTERN_SUBJECT:
            yield _error(f"longer than the {MAX_PATTERN_SUBJECT} characters a pattern reads")
        elif not _pattern(pattern).search(instance):
            yield _error(f"does not match {pattern}")


def _matches(pattern: str, name: str) -> bool:
    return len(name) <= MAX_PATTERN_SUBJECT and _pattern(pattern).search(name)


def _check_pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, inner in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _extras(instance: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    declared, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return [
        name
        for name in instance
        if name not in declared and not any(_matches(pattern, name) for pattern in patterns)
    ]


def _check_additional(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for name in _extras(instance, schema):
            if inner is False:
                yield _error(f"unexpected property {encode_text(name)}")
            else:
                yield from validator.descend(instance[name], inner, path=name)


def _text(value: Json) -> str:
    """Return what equal values share: as canonical JSON 1 and 1.0 are equal, 1 and true are not."""
    text = encode_text(value)
    _spend(len(text) // 64)
    return text


def _check_unique(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
    if wanted and isinstance(instance, list):
        if len(instance) > MAX_UNIQUE_ITEMS:
            yield _error(f"more than {MAX_UNIQUE_ITEMS} items, which all have to differ")
        elif len({_text(item) for item in instance}) != len(instance):
            yield _error("has an item twice")


#: The texts of lists of values; a list is kept with them, so that its id stays its own.
_enums: dict[int, tuple[list[Json], frozenset[str]]] = {}


def _check_enum(validator: Any, values: list[Json], instance: Any, schema: Any) -> Iterator[Any]:
    known = _enums.get(id(values))
    if known is None:
        if len(_enums) >= 1_000:
            _enums.clear()
        known = _enums[id(values)] = values, frozenset(map(encode_text, values))
    if _text(instance) not in known[1]:
        yield _error("none of the values that are allowed")


def _check_const(validator: Any, wanted: Json, instance: Any, schema: Any) -> Iterator[Any]:
    if _text(instance) != _text(wanted):
        yield _error(f"{encode_text(wanted):.200} was expected")


def _library_problems(validator: Any, value: Json) -> list[Problem]:
    _work.left = MAX_WORK
    try:
        errors = sorted(
            validator.iter_errors(value),
            key=lambda error: (len(error.absolute_path), error.json_path, str(error.validator)),
        )
    except _TooMuchWork:
        return [Problem("$", f"takes more than {MAX_WORK} steps to check: send something smaller")]
    except RecursionError:
        return [Problem("$", "is nested too deep to be checked")]
    found: dict[Problem, None] = {}
    for error in errors:
        path = "$" + "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
        )
        for text in _texts(error):
            found[Problem(path, text)] = None
    # A value of the wrong type has no other problem worth telling.
    mistyped = {one.path for one in found if one.message.startswith("expected ") and ", got " in one.message}
    return [one for one in found if one.path not in mistyped or ", got " in one.message]


def _texts(error: Any) -> list[str]:
    """Return the texts of a problem: this library's where it has its own."""
    value, instance = error.validator_value, error.instance
    match error.validator:
        case "type":
            if value == "integer" and isinstance(instance, float):
                return ["expected an integer"]
            expected = value if isinstance(value, str) else " or ".join(value)
            return [f"expected {expected}, got {type_name(instance)}"]
        case "enum":
            return [_one_of(value)]
        case "minLength":
            return [f"shorter than minLength {value}"]
        case "maxLength":
            return [f"longer than maxLength {value}"]
        case "minimum":
            return [f"below minimum {encode_text(value)}"]
        case "maximum":
            return [f"above maximum {encode_text(value)}"]
        case "minItems":
            return [f"fewer than minItems {value}"]
        case "maxItems":
            return [f"more than maxItems {value}"]
        case "required":
            return [
                f"missing required property {encode_text(name)}" for name in value if name not in instance
            ]
    return [f"{error.message:.200}"]


# --------------------------------------------------------------------------------- rendering


def render_schema(schema: Json, *, bounds: bool = False) -> str:
    """Return a schema as a model reads it: ``{ query: string — what; limit?: integer }``.

    Args:
        bounds: Show limits too, as ``integer 1..50`` and ``string ≤ 80``, and put brackets
            around the words of an enum in an array.
    """
    if not isinstance(schema, Mapping):
        return "any"
    kind = schema.get("type")
    if kind == "object" or (kind is None and "properties" in schema):
        return _render_object(schema, bounds)
    if kind == "array":
        inner = render_schema(schema.get("items", {}), bounds=bounds)
        return f"({inner})[]" if bounds and "|" in inner else f"{inner}[]"
    enum = schema.get("enum")
    if isinstance(enum, list) and enum:
        return "|".join(encode_text(word) for word in enum)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            return "|".join(render_schema(each, bounds=bounds) for each in schema[keyword])
    name = "|".join(kind) if isinstance(kind, list) else str(kind or "any")
    return f"{name}{_render_bounds(schema)}" if bounds else name


def _render_object(schema: Mapping[str, Any], bounds: bool) -> str:
    fields, required = [], schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        mark = "" if name in required else "?"
        described = inner.get("description") if isinstance(inner, Mapping) else None
        note = f" — {described}" if described else ""
        fields.append(f"{name}{mark}: {render_schema(inner, bounds=bounds)}{note}")
    return f"{{ {'; '.join(fields)} }}"


def _render_bounds(schema: Mapping[str, Any]) -> str:
    for low, high in (("minimum", "maximum"), ("minLength", "maxLength")):
        least, most = schema.get(low), schema.get(high)
        if least is not None and most is not None:
            return f" {encode_text(least)}..{encode_text(most)}"
        if least is not None:
            return f" ≥ {encode_text(least)}"
        if most is not None:
            return f" ≤ {encode_text(most)}"
    return ""
