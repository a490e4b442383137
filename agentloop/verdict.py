"""The evaluator's verdict: from whatever a model wrote to a status one may act on.

Reading is total and fails closed: every text gives an `EvaluatorResult`, and SUCCESS comes
only from an object that stands at the top level of the evaluator's own text. Nothing is
searched for inside an object, because what stands there may be quoted. All of it is linear
in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from agentloop._canonical import Json, NotJson, decode, encode_text, repair_text
from agentloop.frames import TEXT, Frame
from agentloop.messages import EvaluatorResult, NodeStatus, RejectedUpdate, SymbolicUpdate

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = (
    "MAX_TEXT",
    "MAX_UPDATES",
    "ConflictRule",
    "DefaultEvaluatorParser",
    "as_evaluator_result",
    "create_default_evaluator_parser",
)

#: Characters of a verdict, at most. A longer text is not read at all: its end alone cannot
#: tell an object at the top level from one inside another.
MAX_TEXT: Final = 1024 * 1024
#: Updates of one verdict, at most; the rest is rejected.
MAX_UPDATES: Final = 256
_MAX_EVIDENCE: Final = 4_096
_QUOTED: Final = 500

ConflictRule: TypeAlias = Literal["fail", "last", "first"]

_STATUSES: Final = {status.value: status for status in NodeStatus}
_VERDICTS: Final = {name: status for name, status in _STATUSES.items() if name != "PENDING"}


class _Found(NamedTuple):
    """An object that may be the verdict."""

    object: Mapping[str, Json]
    #: A key stands in it twice: it says two things.
    ambiguous: bool = False
    repaired: bool = False


def create_default_evaluator_parser(
    *,
    lenient_status: bool = False,
    conflict: ConflictRule = "fail",
    schema: Mapping[str, Any] | None = None,
) -> DefaultEvaluatorParser:
    """Return the default parser, ``(frames) -> EvaluatorResult``, which never raises on any text.

    Args:
        lenient_status: Accept the status in any case, as ``success``.
        conflict: What several objects with different statuses mean: a FAILURE, since one of
            them may be quoted, or what the ``last`` or the ``first`` says.
        schema: A JSON Schema (Draft 2020-12) for the whole verdict object, in addition.

    Raises:
        ValueError: Another ``conflict``, or the schema is none.
    """
    if conflict not in get_args(ConflictRule):
        raise ValueError(f"conflict is one of {get_args(ConflictRule)}, not {conflict!r}")
    return DefaultEvaluatorParser(lenient_status, conflict, None if schema is None else _validator(schema))


def _validator(schema: Mapping[str, Any]) -> Validator:
    from jsonschema import Draft202012Validator, SchemaError  # late: slower to import than all of this

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"the verdict schema is no JSON Schema: {error.message}") from None
    return Draft202012Validator(schema)


class DefaultEvaluatorParser:
    """Reads verdicts; made by `create_default_evaluator_parser`."""

    __slots__ = ("_conflict", "_lenient", "_validator")

    def __init__(self, lenient: bool, conflict: ConflictRule, validator: Validator | None) -> None:
        self._lenient, self._conflict, self._validator = lenient, conflict, validator

    def __call__(self, frames: Iterable[Frame | Mapping[str, Any] | str] | str) -> EvaluatorResult:
        """Return what the frames of an evaluator's turn say. Tens of microseconds for a usual one."""
        text, structured = _turn_text(frames)
        if structured:
            return self._decide(structured)
        text = repair_text(text).strip().lstrip("\ufeff").strip()
        if not text:
            return _failed("empty", "the evaluator said nothing")
        if len(text) > MAX_TEXT:
            return _failed("no_json", f"evaluator output of {len(text):,} characters, more than {MAX_TEXT:,}")
        found = list(_find(text))
        if not found:
            return _failed("no_json", f"unparseable evaluator output: {text[:_QUOTED]}")
        return self._decide(found)

    def _decide(self, found: Sequence[_Found]) -> EvaluatorResult:
        named = [self._status_key(each.object.get("status")) for each in found]
        if any(each.ambiguous for each in found):
            return _failed("conflict", "the evaluator's verdict has a key twice")
        if self._conflict == "fail" and len(set(named)) > 1:
            return _failed(
                "conflict", f"the evaluator gave different verdicts: {', '.join(sorted(set(named)))}"
            )
        return self._read(found[0 if self._conflict == "first" else -1])

    def _status_key(self, status: Json) -> str:
        if isinstance(status, str):
            return status.strip().upper() if self._lenient else status.strip()
        return f"{status!r:.80}"

    def _read(self, found: _Found) -> EvaluatorResult:
        verdict = found.object
        evidence = _evidence(verdict.get("evidence"))
        if self._validator is not None and (problem := _violation(self._validator, verdict)):
            return _failed("schema", f"the verdict does not fit its schema: {problem}")
        if "status" not in verdict:
            return _failed("missing_status", evidence or "the verdict has no status")
        raw = verdict["status"]
        status = _VERDICTS.get(self._status_key(raw)) if isinstance(raw, str) else None
        if status is None:
            return _failed("bad_status", evidence or f"the verdict has the status {raw!r:.80}")
        updates, rejected = _updates(verdict)
        return EvaluatorResult(
            status=status,
            evidence=evidence,
            symbolic_updates=updates,
            rejected_updates=rejected,
            repaired=found.repaired,
        )


def _failed(parse_error: str, evidence: str) -> EvaluatorResult:
    return EvaluatorResult(status=NodeStatus.FAILURE, evidence=_cut(evidence), parse_error=parse_error)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_EVIDENCE else f"{text[: _MAX_EVIDENCE - 1]}…"


def _violation(validator: Validator, verdict: Mapping[str, Json]) -> str:
    try:
        errors = sorted(validator.iter_errors(verdict), key=lambda error: error.json_path)
    except RecursionError:
        return "the schema refers to itself without an end"
    return f"{errors[0].json_path}: {errors[0].message:.200}" if errors else ""


# ------------------------------------------------------------------------------ which objects


def _turn_text(frames: Iterable[Frame | Mapping[str, Any] | str] | str) -> tuple[str, list[_Found]]:
    """Return the turn's text and the objects that came as data, without text."""
    parts: list[str] = []
    final: str | None = None
    structured: list[_Found] = []
    for frame in (frames,) if isinstance(frames, (str, Frame, Mapping)) else frames:
        if isinstance(frame, str):
            parts.append(frame)
            continue
        kind, content = (
            (frame.type, frame.content)
            if isinstance(frame, Frame)
            else (frame.get("type"), frame.get("content"))
            if isinstance(frame, Mapping)
            else (None, None)
        )
        if kind != TEXT or not isinstance(content, Mapping):
            continue
        data, text = content.get("data"), content.get("text")
        if isinstance(data, Mapping):
            structured.append(_structured(data))
        elif isinstance(text, str):
            parts.append(text)
            if content.get("final") is True:
                final = text
    return "".join(parts) if final is None else final, structured


def _structured(data: Mapping[str, Any]) -> _Found:
    verdict = dict(data)
    try:
        encode_text(verdict)
    except NotJson:
        return _Found({"evidence": "the verdict's data is not JSON"})
    return _Found(verdict)


#: The key as it can stand in JSON text, escapes included.
_SPEAKS_OF_STATUS: Final = r"status|\\u"


def _find(text: str) -> Iterator[_Found]:
    """Yield the objects that could be the verdict, by the first way of looking that finds any."""
    whole = _whole(text)
    if whole is not None:
        yield whole
        return
    if not re.search(_SPEAKS_OF_STATUS, text):
        return  # no verdict can be in it, so hostile text without one costs nothing more
    text = _without_thoughts(text)
    found, stopped = _scan(text)
    found = found or [each for block in _fenced(text, stopped) if (each := _whole(block)) is not None]
    if found:
        yield from found
    elif (repaired := _repaired(text)) is not None:
        yield repaired


def _object(text: str) -> _Found | Json:
    """Return the JSON value of a text, an object as `_Found`; None if it is no JSON."""
    try:
        value, ambiguous = decode(text, repair_surrogates=True), False
    except NotJson:
        try:
            value, ambiguous = decode(text, repair_surrogates=True, duplicate_keys=True), True
        except NotJson:
            return None
    return _Found(value, ambiguous) if isinstance(value, dict) else value


def _whole(text: str) -> _Found | None:
    """Read a whole text as an object, as a list of one, or as a string that holds one of these."""
    if text[:1] not in ("{", "[", '"'):
        return None
    value = _object(text)
    if isinstance(value, str):
        value = _object(value.strip())
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return _Found(value[0])
    return value if isinstance(value, _Found) else None


_THOUGHT: Final = r"(?i)<(/?)(think|thinking|reasoning|analysis)>"


def _without_thoughts(text: str) -> str:
    """Remove blocks of reasoning; one that is not closed takes the rest of the text with it."""
    kept: list[str] = []
    start, depth, name = 0, 0, ""
    for tag in re.finditer(_THOUGHT, text):
        closing, which = tag[1], tag[2].lower()
        if not depth and not closing:
            kept.append(text[start : tag.start()])
            depth, name = 1, which
        elif depth and which == name:
            depth += -1 if closing else 1
            start = tag.end()
    return "".join(kept) if depth else "".join(kept) + text[start:]


_BRACES_OR_QUOTE: Final = r'\{+|\}+|"'
_STRING_END: Final = r'(?s)[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OPENS_OBJECT: Final = r"""\{\s*["']"""


def _matching(text: str, start: int) -> int:
    """Return where the brace at ``start`` is closed, strings respected, or -1."""
    depth, position = 0, start
    braces_or_quote, string_end = re.compile(_BRACES_OR_QUOTE), re.compile(_STRING_END)
    while (token := braces_or_quote.search(text, position)) is not None:
        position = token.end()
        count = position - token.start()
        match text[token.start()]:
            case "{":
                depth += count
            case "}" if depth <= count:
                return token.start() + depth - 1
            case "}":
                depth -= count
            case _:
                string = string_end.match(text, position)
                if string is None:
                    return -1
                position = string.end()
    return -1


def _scan(text: str) -> tuple[list[_Found], int]:
    """Return the objects at the top level that have a status, and where the scan had to stop."""
    found: list[_Found] = []
    last = max(text.rfind("status"), text.rfind("\\u"))
    position = text.find("{")
    while 0 <= position < last:
        end = _matching(text, position)
        if end < 0:
            return found, position
        block = text[position : end + 1]
        if re.search(_SPEAKS_OF_STATUS, block):
            value = _object(block)
            if isinstance(value, _Found) and "status" in value.object:
                found.append(value)
        position = text.find("{", end + 1)
    return found, len(text)


def _fenced(text: str, stopped: int) -> Iterator[str]:
    """Yield the content of fenced blocks, without those inside an object that was cut off."""
    limit = stopped if re.compile(_OPENS_OBJECT).match(text, stopped) else len(text)
    position = 0
    for number, part in enumerate(text.split("```")[:-1]):
        if position > limit:
            return
        if number % 2:
            yield re.sub(_LANGUAGE, "", part, count=1).strip()
        position += len(part) + 3


_LANGUAGE: Final = r"^[A-Za-z0-9_+-]*\s*"

#: Double-quoted and single-quoted strings, Python's constants, and commas before a bracket.
_NOT_QUITE_JSON: Final = (
    r"""(?s)("(?:[^"\\]|\\.)*+")|'((?:[^'\\]|\\.)*+)'|\b(True|False|None)\b|,(?=\s*+[}\]])"""
)
_CONSTANTS: Final = {"True": "true", "False": "false", "None": "null"}


def _as_json(token: re.Match[str]) -> str:
    double, single, constant = token.groups()
    if double is not None:
        return str(double)
    if single is not None:
        return '"' + single.replace("\\'", "'").replace('\\"', '"').replace('"', '\\"') + '"'
    return _CONSTANTS[constant] if constant else ""


def _repaired(text: str) -> _Found | None:
    """Read what stands between the outermost braces as JSON with trailing commas, or as a Python dict."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    block = text[start : end + 1]
    fixed = re.sub(_NOT_QUITE_JSON, _as_json, block)
    value = _object(fixed)
    return value._replace(repaired=fixed != block) if isinstance(value, _Found) else None


# ------------------------------------------------------------------------- what it then says


def _evidence(value: Json) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _cut(value)
    try:
        return _cut(encode_text(value))
    except NotJson:
        return _cut(repr(value))


def _updates(
    verdict: Mapping[str, Json],
) -> tuple[tuple[SymbolicUpdate, ...], tuple[RejectedUpdate, ...]]:
    raw = verdict.get("symbolicUpdates")
    return _read_updates(verdict.get("symbolic_updates") if raw is None else raw)


def _read_updates(raw: Json) -> tuple[tuple[SymbolicUpdate, ...], tuple[RejectedUpdate, ...]]:
    """Split updates into those of the right form and the others, each with the reason."""
    if not raw and (raw is None or isinstance(raw, (list, tuple, Mapping))):
        return (), ()
    if isinstance(raw, Mapping):
        raw = [{"name": name, "value": value} for name, value in raw.items()]
    if not isinstance(raw, (list, tuple)):
        return (), (RejectedUpdate(update=raw, reason="symbolic updates are a list, or a mapping of names"),)
    kept: list[SymbolicUpdate] = []
    rejected: list[RejectedUpdate] = []
    for item in raw[:MAX_UPDATES]:
        reason = "" if isinstance(item, SymbolicUpdate) else _misfit(item)
        if reason:
            rejected.append(RejectedUpdate(update=item, reason=reason))
        elif isinstance(item, SymbolicUpdate):
            kept.append(item)
        else:
            kept.append(
                SymbolicUpdate(name=item["name"], value=item.get("value"), op=item.get("op", "assert"))
            )
    if len(raw) > MAX_UPDATES:
        more = len(raw) - MAX_UPDATES
        rejected.append(RejectedUpdate(update=None, reason=f"{more} more than the {MAX_UPDATES} allowed"))
    return tuple(kept), tuple(rejected)


def _misfit(item: Json) -> str:
    """Return why an item is no update, or nothing."""
    if not isinstance(item, Mapping):
        return "an update is an object"
    name, op = item.get("name"), item.get("op", "assert")
    if not isinstance(name, str) or not name:
        return "'name' is a non-empty string"
    if op not in ("assert", "set", "retract"):
        return "'op' is assert, set or retract"
    if op != "retract" and "value" not in item:
        return "'value' is missing"
    return ""


def as_evaluator_result(value: object) -> EvaluatorResult:
    """Return the verdict that a parser's answer stands for.

    An EvaluatorResult, a mapping (snake or camel keys), or a tuple ``(status, evidence)`` or
    ``(status, evidence, updates)``. A status that is not one of the four counts as FAILURE.

    Raises:
        TypeError: Anything else.
    """
    status: object
    evidence: object
    updates: object
    if isinstance(value, EvaluatorResult):
        status, evidence, updates = value.status, value.evidence, value.symbolic_updates
        if isinstance(status, NodeStatus):
            return value
    elif isinstance(value, Mapping):
        status, evidence = value.get("status"), value.get("evidence")
        updates = value.get("symbolic_updates")
        updates = value.get("symbolicUpdates") if updates is None else updates
    elif isinstance(value, tuple) and len(value) in (2, 3):
        status, evidence, updates = (*value, None)[:3]
    else:
        raise TypeError(
            "parse_evaluator_output returns an EvaluatorResult, a mapping with 'status', or a tuple "
            f"(status, evidence[, updates]), not {value!r:.200}"
        )
    known = _STATUSES.get(status) if isinstance(status, str) else None
    kept, rejected = _read_updates(updates)
    return EvaluatorResult(
        status=known or NodeStatus.FAILURE,
        evidence=_evidence(evidence),
        symbolic_updates=kept,
        parse_error=None if known else "bad_status",
        rejected_updates=rejected,
    )
