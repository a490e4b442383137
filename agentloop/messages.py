"""The values that pass between loop, tools, checks and evaluator.

Nouns only: what a tool call, its result, a check report and a verdict are. What is done
with them is said in `tools`, `checks`, `verdict` and `loop`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentloop._canonical import Json
from agentloop.errors import ErrorClass, ErrorValue

__all__ = (
    "TOOL_ERRORS",
    "CheckOutcome",
    "CheckReport",
    "EvaluatorResult",
    "LoopResult",
    "Message",
    "NodeStatus",
    "RejectedUpdate",
    "ResultReason",
    "RunOutcome",
    "SymbolicUpdate",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Verdict",
)


class NodeStatus(StrEnum):
    """How a node of a behaviour tree stands. Each member equals its own name."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


# ------------------------------------------------------------------------------------ tools

#: The short word a TOOL_RESULT frame carries in ``error``, its stable code and its class.
TOOL_ERRORS: Final[Mapping[str, tuple[str, ErrorClass]]] = MappingProxyType(
    {
        "unknown_tool": ("tool.unknown", "correctable"),
        "invalid_arguments": ("tool.invalid_arguments", "correctable"),
        "bad_value": ("tool.bad_value", "fatal"),
        "tool_error": ("tool.raised", "fatal"),
        "timeout": ("tool.timeout", "transient"),
        "tools_not_available": ("tool.not_available", "correctable"),
        "tool_call_limit": ("tool.call_limit", "budget"),
        "tool_capacity": ("tool.capacity", "transient"),
        "unknown_outcome": ("tool.unknown_outcome", "correctable"),
        "cancelled": ("tool.cancelled", "cancelled"),
    }
)


_CALL_WIRE: Final = {"arguments": "args", "raw_arguments": "raw", "step_id": "stepId"}


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_CALL_WIRE):
    """What the model asked for."""

    #: The model's own id; the answer carries it.
    id: str
    name: str
    #: The decoded arguments, or None if only ``raw_arguments`` is there.
    arguments: dict[str, Any] | None = None
    #: The argument text as the model wrote it, if it was not decoded yet.
    raw_arguments: str | None = None
    #: The part of the name after the tool's own name, as ``read`` in ``fs__read``.
    method: str | None = None
    #: Unique within the run and ours, never the model's; part of the idempotency key.
    step_id: str = ""
    #: (run id, step id): a tool that accepts it can recognise a repeated call.
    key: str = ""


#: Why a tool call failed.
ToolError = ErrorValue


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer to one call."""

    id: str
    name: str
    ok: bool
    #: JSON-safe; text of an error when not ok.
    output: Json = ""
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    error: ToolError | None = None
    timed_out: bool = False
    attempts: int = 1
    duration_ms: int | None = None

    def to_content(self) -> dict[str, Json]:
        """Return the content of the TOOL_RESULT frame; absent parts are left out."""
        content: dict[str, Json] = {"id": self.id, "name": self.name, "ok": self.ok, "output": self.output}
        if self.stdout is not None:
            content["stdout"] = self.stdout
        if self.stderr is not None:
            content["stderr"] = self.stderr
        if self.exit_code is not None:
            content["exit_code"] = self.exit_code
        if self.error is not None:
            content["error"] = _SHORT_WORDS.get(self.error.code, self.error.code)
            content["message"] = self.error.message
        if self.timed_out:
            content["timed_out"] = True
        return content

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> ToolResult:
        """Return the result whose content this is, as far as it says."""
        word = content.get("error")
        error = None
        if word is not None:
            code, error_class = TOOL_ERRORS.get(word, (word, "fatal"))
            error = ToolError(error_class=error_class, code=code, message=content.get("message", ""))
        names = ("id", "name", "ok", "output", "stdout", "stderr", "exit_code", "timed_out")
        return cls(error=error, **{name: content[name] for name in names if name in content})


_SHORT_WORDS: Final = {code: word for word, (code, _) in TOOL_ERRORS.items()}


# ----------------------------------------------------------------------------------- checks


class CheckOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one check of the list came out."""

    check: str
    kind: str
    passed: bool
    #: Why it failed, or which call satisfied it.
    detail: str = ""


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the whole list of checks came out. ``report["allPassed"]`` works too."""

    all_passed: bool
    #: One line a check, in list order.
    evidence: str = ""
    results: tuple[CheckOutcome, ...] = ()

    def __getitem__(self, key: str) -> Any:
        name = {"allPassed": "all_passed"}.get(key, key)
        if name not in ("all_passed", "evidence", "results"):
            raise KeyError(key)
        return getattr(self, name)


# ---------------------------------------------------------------------------------- verdict


class SymbolicUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One change the evaluator asks for."""

    name: str
    value: Json = None
    op: Literal["assert", "set", "retract"] = "assert"


class RejectedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update that was left out, and why."""

    update: Json
    reason: str


class EvaluatorResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the evaluator decided about one cycle."""

    status: NodeStatus
    evidence: str = ""
    #: Applied in order; a later update to the same name wins.
    symbolic_updates: tuple[SymbolicUpdate, ...] = ()
    #: ``empty``, ``no_json``, ``missing_status``, ``bad_status``, ``conflict`` or ``schema``.
    parse_error: str | None = None
    rejected_updates: tuple[RejectedUpdate, ...] = ()
    #: The text was not quite JSON and was read anyway.
    repaired: bool = False


#: The field's word for the same thing.
Verdict = EvaluatorResult


# ------------------------------------------------------------------------------------- runs

ResultReason: TypeAlias = Literal[
    "evaluator", "checks", "max_iterations", "aborted", "error", "no_nodes", "tree"
]


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished run is about to say, for whoever writes it down before it is said."""

    run_id: str
    node: Any
    status: NodeStatus
    reason: ResultReason
    evidence: str | None
    iterations: int
    retry_count: int
    #: Ids of the retrievals that were shown to the agent, in order.
    retrieval_ids: tuple[str, ...] = ()


class LoopResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. Set before the stream ends, so it survives every frame loss."""

    status: NodeStatus
    reason: ResultReason
    evidence: str | None = None
    #: Cycles begun.
    iterations: int = 0
    retry_count: int = 0
    #: The text of the last agent turn that ended.
    agent_text: str = ""
    #: A snapshot of the symbolic state.
    symbolics: Mapping[str, Json] = msgspec.field(default_factory=dict)
    #: Sums over the run, as ``input_tokens``.
    usage: Mapping[str, int] = msgspec.field(default_factory=dict)
    dropped_frames: int = 0
    #: The original exception when the reason is ``error``.
    error: BaseException | None = None
    #: Failures that did not change the end and could not be shown as frames any more.
    warnings: tuple[str, ...] = ()
    node: Any = None
    run_id: str = ""


# ----------------------------------------------------------------------------------- models


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One message of a conversation with a model."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = msgspec.field(default_factory=str)  # a factory, so that it is written even if empty
    #: What an assistant message asked for.
    tool_calls: tuple[ToolCall, ...] = ()
    #: Which call a tool message answers.
    call_id: str | None = None
    name: str | None = None
    is_error: bool = False
