"""Frames: the one kind of thing that travels through streams.

Here are the frame itself, the names of all kinds, and the names models use for why a turn
stopped. How frames travel is the business of `streams`; what they make the loop do, of `loop`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentloop._canonical import Json, repair_text
from agentloop.errors import FrameError

__all__ = (
    "ABORT",
    "CANCEL",
    "CHILD_RUN",
    "CONTEXT",
    "CYCLE_STARTED",
    "DONE",
    "ERROR",
    "INPUT",
    "MAX_CONTENT_DEPTH",
    "NODE_COMPLETED",
    "NODE_FAILED",
    "NODE_RETRY",
    "NODE_STARTED",
    "PROGRESS_TYPES",
    "REASONING",
    "STOP_REASONS",
    "SYMBOLIC_ASSERTED",
    "TERMINAL_TYPES",
    "TEXT",
    "TICK",
    "TOOL_CALL",
    "TOOL_RESULT",
    "TREE_FAILED",
    "USAGE",
    "Frame",
    "FrameLike",
    "Role",
    "clean",
)

TICK: Final = "TICK"
CANCEL: Final = "CANCEL"
ABORT: Final = "ABORT"
INPUT: Final = "INPUT"
TEXT: Final = "TEXT"
REASONING: Final = "REASONING"
TOOL_CALL: Final = "TOOL_CALL"
TOOL_RESULT: Final = "TOOL_RESULT"
USAGE: Final = "USAGE"
CONTEXT: Final = "CONTEXT"
#: An agent that is a run of its own says which: ``{run, entries, hash}``.
CHILD_RUN: Final = "CHILD_RUN"
DONE: Final = "DONE"
ERROR: Final = "ERROR"
NODE_STARTED: Final = "agent_loop:node_started"
NODE_COMPLETED: Final = "agent_loop:node_completed"
NODE_RETRY: Final = "agent_loop:node_retry"
NODE_FAILED: Final = "agent_loop:node_failed"
TREE_FAILED: Final = "agent_loop:tree_failed"
SYMBOLIC_ASSERTED: Final = "agent_loop:symbolic_asserted"
CYCLE_STARTED: Final = "agent_loop:cycle_started"

#: The kinds `on_progress` is told about.
PROGRESS_TYPES: Final = frozenset(
    {NODE_STARTED, NODE_COMPLETED, NODE_RETRY, NODE_FAILED, TREE_FAILED, SYMBOLIC_ASSERTED}
)
#: Exactly one of these ends a run; nothing but ABORT follows it.
TERMINAL_TYPES: Final = frozenset({NODE_COMPLETED, NODE_FAILED, TREE_FAILED})

Role: TypeAlias = Literal["agent", "evaluator"]

#: What a model server calls the end of its turn, and what this library calls it.
STOP_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stop": "end_turn",
        "end_turn": "end_turn",
        "tool_calls": "tool_use",
        "function_call": "tool_use",
        "tool_use": "tool_use",
        "length": "max_tokens",
        "max_tokens": "max_tokens",
        "stop_sequence": "stop_sequence",
        "content_filter": "content_filter",
    }
)

_NAMES: Final = (
    "agent_text",
    "retry_count",
    "finish_reason",
    "raw_arguments",
    "exit_code",
    "timed_out",
    "input_tokens",
    "output_tokens",
    "error_type",
    "call_id",
    "symbolic_updates",
    "retrieval_ids",
)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


_TO_WIRE: Final = {name: _camel(name) for name in _NAMES}
_FROM_WIRE: Final = {wire: name for name, wire in _TO_WIRE.items()}
_REPR_LIMIT = 1_000
#: Levels of nesting in what a frame shows; leaves room for what a ledger entry puts around it.
MAX_CONTENT_DEPTH: Final = 90


def clean(value: Any) -> Any:
    """Repair the text inside a value: lone surrogates become U+FFFD, bytes become text.

    Containers are rebuilt only where something in them changed; other values pass unchanged.
    """
    if type(value) is str:
        return value if value.isascii() else repair_text(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if type(value) is dict:
        changed = {key: new for key, old in value.items() if (new := clean(old)) is not old}
        return {**value, **changed} if changed else value
    if type(value) is list:
        new_items = [clean(item) for item in value]
        return new_items if any(a is not b for a, b in zip(new_items, value, strict=True)) else value
    return value


def _plain(value: Any, depth: int = 0) -> Json:
    """Return JSON-safe data: what JSON cannot say becomes ``{"__repr__": …}`` or null."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return repair_text(str(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if depth < MAX_CONTENT_DEPTH:
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {repair_text(key): _plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [_plain(item, depth + 1) for item in value]
    try:
        text = repr(value)
    except Exception as error:  # a hostile __repr__ must not break whoever looks at a frame
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return {"__repr__": repair_text(text[:_REPR_LIMIT])}


class _TypeAndContent(msgspec.Struct, frozen=True, eq=False):
    """The positional part of `Frame`."""

    #: One of the names above, or a name of the user's own.
    type: str
    #: Nobody changes it once the frame exists; `Frame.of` copies it on the way in.
    content: dict[str, Any] = {}


class Frame(_TypeAndContent, frozen=True, eq=False, kw_only=True):
    """One message: a type, its content, and where it stands in its stream.

    Two frames are equal when their type and content are; id, seq and meta do not count, so
    tests may compare frames without them. A frame whose content cannot be hashed raises
    TypeError from ``hash()``.
    """

    id: str | None = None
    #: Given by the loop that emits the frame: 1, 2, 3, … without gaps, dropped ones included.
    seq: int | None = None
    meta: dict[str, Any] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frame):
            return NotImplemented
        return self.type == other.type and self.content == other.content

    def __hash__(self) -> int:
        return hash((self.type, tuple(sorted(self.content.items()))))

    @property
    def text(self) -> str:
        """The content's ``text`` if it is a string, else the empty string."""
        text = self.content.get("text")
        return text if isinstance(text, str) else ""

    @classmethod
    def of(cls, value: FrameLike) -> Frame:
        """Return the frame a value stands for.

        A frame stands for itself, a mapping with a ``type`` for that frame (keys other than
        type, content, id, seq and meta go to meta), a string for a TEXT.

        Raises:
            FrameError: Anything else.
        """
        if isinstance(value, Frame):
            return value
        if isinstance(value, str):
            return cls(TEXT, {"text": clean(str(value))})
        if isinstance(value, Mapping):
            return cls._of_mapping(value)
        raise FrameError(
            f"a frame is a Frame, a mapping with a 'type' or a str, not {type(value).__name__}: {value!r:.200}"
        )

    @classmethod
    def _of_mapping(cls, value: Mapping[str, Any]) -> Frame:
        type_ = value.get("type")
        if not isinstance(type_, str) or not type_:
            raise FrameError(f"a frame's 'type' is a non-empty str, not {type_!r:.200}")
        content = value.get("content")
        if content is None:
            content = {}
        if not isinstance(content, Mapping):
            raise FrameError(
                f"a frame's 'content' is a mapping, not {type(content).__name__} (type {type_!r})"
            )
        known = {"type", "content", "id", "seq", "meta"}
        meta = dict(value.get("meta") or {}) | {key: item for key, item in value.items() if key not in known}
        return cls(type_, clean(dict(content)), id=value.get("id"), seq=value.get("seq"), meta=meta)

    def to_dict(self) -> dict[str, Json]:
        """Return plain JSON-safe data with snake_case keys; absent parts are left out."""
        data: dict[str, Json] = {"type": self.type, "content": _plain(self.content)}
        if self.id is not None:
            data["id"] = self.id
        if self.seq is not None:
            data["seq"] = self.seq
        if self.meta:
            data["meta"] = _plain(self.meta)
        return data

    def to_wire(self) -> dict[str, Json]:
        """Return the same as `to_dict` with the camelCase content keys of the wire."""
        data = self.to_dict()
        data["content"] = {_TO_WIRE.get(key, key): item for key, item in data["content"].items()}
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Frame:
        """Read what `to_dict` or `to_wire` gave.

        Raises:
            FrameError: Not of that form.
        """
        frame = cls.of(data)
        content = {_FROM_WIRE.get(key, key): item for key, item in frame.content.items()}
        return cls(frame.type, content, id=frame.id, seq=frame.seq, meta=frame.meta)


#: What every public entry that takes a frame accepts.
FrameLike: TypeAlias = Frame | Mapping[str, Any] | str
