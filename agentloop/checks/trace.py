"""The tool trace: what was called and what came back, as checks see it.

`ToolTrace` keeps it during a run; `read_trace` makes sense of whatever a check function was
given, also by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from agentloop._canonical import Json, NotJson, encode_text
from agentloop.frames import TOOL_RESULT, Frame
from agentloop.messages import ToolResult

__all__ = ("Call", "ToolTrace", "TraceScope", "read_trace", "tool_trace_view", "trace_entry")

TraceScope: TypeAlias = Literal["latest", "all", "cycle"]
TraceEntry: TypeAlias = Mapping[str, Any]

_NESTS: Final = ("result", "output", "content")
_CODES: Final = ("exit_code", "exitCode", "returncode")
_OWN: Final = frozenset({*_CODES, "stdout", "ok"})
_MAX_NESTING: Final = 4


def trace_entry(result: ToolResult, *, cycle: int, index: int, arguments: Json = None) -> dict[str, Json]:
    """Return the entry of one tool result. Absent parts are None."""
    content = result.to_content()
    return {
        "cycle": cycle,
        "index": index,
        "call_id": result.id,
        "name": result.name,
        "arguments": arguments,
        "ok": result.ok,
        "output": result.output,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exit_code": result.exit_code,
        "error": content.get("error"),
        "timed_out": result.timed_out,
    }


class ToolTrace:
    """The entries of a run that its checks may see.

    Args:
        scope: ``latest``: of several calls with the same name and equal arguments only the
            newest, so that a stale pass does not outlive a newer failure. ``all``: every call.
            ``cycle``: only those of the cycle that is asked for.

    Entries are kept and handed out as they are; whoever appends one does not change it any
    more. What the scope has left behind is forgotten, so that `append` and `view` cost as
    much late in a run as early, as long as the calls repeat.
    """

    __slots__ = ("_entries", "_serial", "_view", "scope")

    def __init__(self, scope: TraceScope = "latest") -> None:
        if scope not in get_args(TraceScope):
            raise ValueError(f"tool_trace_scope is one of {get_args(TraceScope)}, not {scope!r}")
        self.scope = scope
        self._entries: dict[object, TraceEntry] = {}
        self._view: tuple[TraceEntry, ...] | None = ()
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: TraceEntry) -> None:
        """Add the newest entry, in the order in which the calls were made."""
        key = self._key(entry)
        self._entries.pop(key, None)  # so that the newest stands last
        self._entries[key] = entry
        self._view = None

    def view(self, cycle: int | None = None) -> tuple[TraceEntry, ...]:
        """Return the entries to be judged, oldest first; with scope ``cycle`` those of that cycle."""
        if self._view is None:
            self._view = tuple(self._entries.values())
        if self.scope == "cycle":
            return tuple(entry for entry in self._view if entry.get("cycle") == cycle)
        return self._view

    def _key(self, entry: TraceEntry) -> object:
        self._serial += 1
        if self.scope == "cycle" and self._entries:
            newest = next(reversed(self._entries.values()))
            if newest.get("cycle") != entry.get("cycle"):
                self._entries.clear()
        if self.scope != "latest":
            return self._serial
        try:
            return entry.get("name"), encode_text(entry.get("arguments"))
        except NotJson:
            return self._serial


def tool_trace_view(
    trace: Iterable[TraceEntry], scope: TraceScope = "latest", *, cycle: int | None = None
) -> tuple[TraceEntry, ...]:
    """Return what checks see of a whole trace. Linear; a run keeps a `ToolTrace` instead."""
    kept = ToolTrace(scope)
    for entry in trace:
        kept.append(entry)
    return kept.view(cycle)


# ---------------------------------------------------------------------------------- reading


class Call(NamedTuple):
    """What the built-in checks want to know of one entry."""

    #: Of the tool; empty if unknown.
    name: str
    #: The call's id, or its position in the trace.
    id: str | int
    exit_code: int | None
    stdout: str | None

    def __str__(self) -> str:
        which = f"call {self.id}" if isinstance(self.id, str) else f"entry {self.id}"
        return f"{self.name or 'a tool'} ({which})"


def read_trace(trace: object) -> list[Call]:
    """Return the calls of a trace, oldest first, leaving out what is no tool result.

    An entry is the mapping of `trace_entry`, the same with camelCase keys or nested under
    ``result``, ``output`` or ``content``, a TOOL_RESULT frame, or a str, which is stdout.
    Never raises.
    """
    if type(trace) is not tuple and (
        not isinstance(trace, Iterable) or isinstance(trace, (str, bytes, Mapping))
    ):
        return []
    calls: list[Call] = []
    try:
        for position, entry in enumerate(trace, 1):
            call = _read_entry(entry, position)
            if call is not None:
                calls.append(call)
    except Exception:
        return calls  # the trace itself raised: what it gave before is what is known
    return calls


def _read_entry(entry: object, position: int) -> Call | None:
    if type(entry) is not dict:  # what the loop hands over; asking for a Mapping is slow
        if isinstance(entry, str):
            return Call("", position, None, entry)
        if isinstance(entry, Frame):
            entry = entry.content if entry.type == TOOL_RESULT else None
        if not isinstance(entry, Mapping):
            return None
    try:
        return _read_mapping(entry, position)
    except Exception:
        return None  # a mapping that raises when it is read says nothing


def _read_mapping(entry: Mapping[str, Any], position: int) -> Call:
    # Whoever says any of these speaks for himself: nothing below counts then, or else a tool's
    # own output could claim the exit code that its process did not have.
    level, depth = entry, 0
    while "exit_code" not in level and depth < _MAX_NESTING and _OWN.isdisjoint(level):
        nested = next((level[key] for key in _NESTS if isinstance(level.get(key), Mapping)), None)
        if nested is None:
            break
        level, depth = nested, depth + 1
    name = entry.get("name", level.get("name"))
    code = level.get("exit_code")
    if level.get("timed_out") is True or level.get("timedOut") is True:
        code = None
    elif code is None:
        code = _code(next((level[key] for key in _CODES if level.get(key) is not None), None))
    elif type(code) is not int:
        code = _code(code)
    return Call(
        name if isinstance(name, str) else "",
        _first(entry, "call_id", "callId", "id") or position,
        code,
        _stdout(level.get("stdout")),
    )


def _first(entry: Mapping[str, Any], *keys: str) -> str | None:
    for key in keys:
        value = entry.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def _code(value: object) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        return read_integer(value)
    return None


def read_integer(text: str) -> int | None:
    """Return the decimal integer a text is, sign and surrounding blanks allowed, else None."""
    text = text.strip()
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        return None
    return int(text)


def _stdout(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)) and all(isinstance(chunk, str) for chunk in value):
        return "".join(value)
    return None
