"""Every exception this package raises.

AgentLoopError
├── AgentLoopConfigError (ValueError)     an option is missing or unusable
├── MissingExtra (ImportError)            an optional dependency is not installed
├── FrameError (TypeError)                something that cannot be a frame
├── BoundExceeded (ValueError)            something is larger than its bound; names it
├── SymbolicRefused (ValueError)          a fact that this writer may not write
├── InvariantViolation                    the program is wrong: nothing catches this to carry on
│   ├── IllegalTransition                 an event without a row: a bug in a driver
│   └── SchemaRefused                     a tool's schema whose check cannot be bounded
├── StreamError
│   ├── StreamEnded (anyio.ClosedResourceError)     written after the end
│   ├── StreamAborted (anyio.BrokenResourceError)   the reader has gone
│   ├── StreamBusy (anyio.BusyResourceError)        a second reader
│   └── StreamFailed                                the stream ended with an error
├── TurnError                             an adapter's turn did not end well
│   ├── TurnTimeout                       it took longer than its deadline
│   └── AdapterEnded                      its stream was over before the turn began
├── ClassifiedError                       carries an error value through plain functions
│   └── ModelError                        a model call failed, with class and code
├── ScriptExhausted                       a scripted adapter has no turn left
├── LedgerError
│   ├── LedgerConflict                    somebody else appended first
│   ├── LedgerUnavailable                 the disk refused: nothing is acknowledged
│   ├── DamagedLedger                     the chain or an entry does not hold
│   ├── UnsupportedVersion                written by a newer version
│   ├── ResumeError                       a run that cannot be gone on with
│   └── RunNotFound                       no run of that name
└── TaskError (ValueError)                a task folder that cannot be run
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import anyio
import msgspec

__all__ = (
    "AdapterEnded",
    "AgentLoopConfigError",
    "AgentLoopError",
    "BoundExceeded",
    "ClassifiedError",
    "DamagedLedger",
    "ErrorClass",
    "ErrorValue",
    "FrameError",
    "IllegalTransition",
    "InvariantViolation",
    "LedgerConflict",
    "LedgerError",
    "LedgerUnavailable",
    "MissingExtra",
    "ModelError",
    "ResumeError",
    "RunNotFound",
    "SchemaRefused",
    "ScriptExhausted",
    "StreamAborted",
    "StreamBusy",
    "StreamEnded",
    "StreamError",
    "StreamFailed",
    "SymbolicRefused",
    "TaskError",
    "TurnError",
    "TurnTimeout",
    "UnsupportedVersion",
)

#: Who can do something about a failure: the runtime by repeating, the model by reading it,
#: nobody, nobody because a limit was the point, the caller who already acted.
ErrorClass: TypeAlias = Literal["transient", "correctable", "fatal", "budget", "cancelled"]


class ErrorValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure as data: what a machine routes on, a model reads and a ledger keeps."""

    error_class: ErrorClass = msgspec.field(name="class")
    #: Dotted and stable, as ``tool.timeout``.
    code: str
    message: str
    #: JSON-safe particulars; left out when empty.
    detail: dict[str, Any] = {}
    #: The part it came from, as ``provider`` or ``tool:search``.
    source: str | None = None


class AgentLoopError(Exception):
    """Root of the package's exceptions."""


class AgentLoopConfigError(AgentLoopError, ValueError):
    """A required option is missing or two options contradict each other."""


class MissingExtra(AgentLoopError, ImportError):
    """An optional dependency is needed and not installed; the message names the extra."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}: install it with pip install 'loopwright[{extra}]'"
        )
        self.package, self.extra = package, extra


class FrameError(AgentLoopError, TypeError):
    """A value that cannot become a frame."""


class BoundExceeded(AgentLoopError, ValueError):
    """Something is larger than its bound."""

    def __init__(self, bound: str, limit: int, found: object) -> None:
        super().__init__(f"{bound}: at most {limit:,} allowed, found {found}")
        self.bound, self.limit, self.found = bound, limit, found


class SymbolicRefused(AgentLoopError, ValueError):
    """A writer wanted to change a fact that was not declared for it; nothing was changed."""

    def __init__(self, name: str, by: str, reason: str) -> None:
        super().__init__(f"{by} may not write the fact {name!r:.200}: {reason}")
        self.name, self.by, self.reason = name, by, reason


class InvariantViolation(AgentLoopError):
    """The program is wrong: a broken rule, a malformed definition. Nothing catches it to carry on.

    Attributes:
        detail: JSON-safe particulars.
        ledger: The record up to there, if a run was being driven.
    """

    def __init__(self, message: str, *, detail: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.detail, self.ledger = dict(detail), None  # type: tuple[dict[str, Any], Any]


class IllegalTransition(InvariantViolation):
    """An event arrived in a phase that has no row for it: a bug in the driver."""

    def __init__(self, phase: str, event: str, legal: Collection[str]) -> None:
        choices = ", ".join(sorted(legal)) or "none, the phase is terminal"
        super().__init__(
            f"event {event!r} is not legal in phase {phase!r} (legal: {choices})",
            detail={"from": str(phase), "event": event},
        )
        self.phase, self.event, self.legal = phase, event, tuple(sorted(legal))


class SchemaRefused(InvariantViolation):
    """A schema that is none, or whose evaluation could hang, fetch or never end."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the schema cannot be used: {problem}")
        self.problem = problem


class StreamError(AgentLoopError):
    """Root of what a source or a sink raises."""


class StreamEnded(StreamError, anyio.ClosedResourceError):
    """A frame was written after the sink had ended."""


class StreamAborted(StreamError, anyio.BrokenResourceError):
    """A frame was written although the reader had aborted; its error, if any, is the cause."""


class StreamFailed(StreamError):
    """The stream ended with an error, which is the ``__cause__``."""


class StreamBusy(StreamError, anyio.BusyResourceError):
    """A second reader or a second pipe wanted a source that already has one."""

    def __init__(self, action: str) -> None:
        super().__init__(action)


class TurnError(AgentLoopError):
    """An adapter ended its turn with an ERROR frame or an unusable answer."""


class TurnTimeout(TurnError):
    """A turn took longer than its deadline and was cut."""

    def __init__(self, role: str, timeout_ms: float) -> None:
        super().__init__(f"the {role}'s turn took longer than turn_timeout_ms={timeout_ms:g}")
        self.role, self.timeout_ms = role, timeout_ms


class AdapterEnded(TurnError):
    """A turn was asked of an adapter whose stream had already ended."""

    def __init__(self, role: str) -> None:
        super().__init__(f"the {role} adapter already ended: it cannot take another turn")
        self.role = role


class ClassifiedError(AgentLoopError):
    """Lets a plain function fail with a class and a code; `agentloop.outcome.to_error` unwraps it."""

    def __init__(self, error: ErrorValue) -> None:
        super().__init__(error.message)
        self._error = error

    @property
    def error(self) -> ErrorValue:
        """What is carried."""
        return self._error


class ModelError(ClassifiedError):
    """A model call failed.

    Attributes:
        error_class: Who can do something about it (`ErrorClass`).
        code: Dotted and stable, as ``model.rate_limited``.
        retry_after_ms: What the server asked for, if it did.
        detail: JSON-safe particulars; never headers, bodies or keys.
    """

    def __init__(
        self,
        message: str,
        *,
        error_class: ErrorClass = "fatal",
        code: str = "model.failed",
        retry_after_ms: int | None = None,
        detail: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(ErrorValue(error_class=error_class, code=code, message=message))
        self.error_class, self.code = error_class, code
        self.retry_after_ms, self.detail = retry_after_ms, dict(detail)

    @property
    def error(self) -> ErrorValue:
        """The same as data; ``retryAfterMs`` stands in the detail."""
        detail = dict(self.detail)
        if self.retry_after_ms is not None:
            detail["retryAfterMs"] = self.retry_after_ms
        return msgspec.structs.replace(self._error, detail=detail)


class ScriptExhausted(AgentLoopError):
    """A scripted adapter was asked for a turn beyond its script."""

    def __init__(self, turns: int, requested: int) -> None:
        super().__init__(
            f"turn {requested} was asked of a script of {turns} turns: add turns or lower the limits"
        )
        self.turns, self.requested = turns, requested


class LedgerError(AgentLoopError):
    """Root of what reading or writing a run ledger raises.

    Attributes:
        ledger: What the store has of the run, if one was being driven that can be read.
    """

    ledger: Any = None


class LedgerConflict(LedgerError):
    """An append expected another head than the run has: somebody else wrote first."""

    def __init__(self, run: str, expected: int, actual: int) -> None:
        super().__init__(
            f"run {run}: expected to append after entry {expected}, but the newest is {actual}; "
            "another process is writing this run"
        )
        self.run, self.expected, self.actual = run, expected, actual


class LedgerUnavailable(LedgerError):
    """The store could not read or write its medium; nothing of the failed call is acknowledged."""

    def __init__(self, run: str, problem: str) -> None:
        super().__init__(f"run {run}: its ledger cannot be reached: {problem}")
        self.run, self.problem = run, problem


class DamagedLedger(LedgerError):
    """An entry is unreadable or the hash chain is broken; nothing was changed."""

    def __init__(self, run: str, seq: int, problem: str) -> None:
        super().__init__(f"run {run} is damaged at entry {seq}: {problem}")
        self.run, self.seq, self.problem = run, seq, problem


class UnsupportedVersion(LedgerError):
    """The ledger was written by a version of this library that cannot be read."""

    def __init__(self, found: object, supported: int, *, oldest: int | None = None) -> None:
        oldest = supported if oldest is None else oldest
        readable = f"{supported}" if oldest == supported else f"{oldest} to {supported}"
        super().__init__(
            f"ledger version {found!r:.80} cannot be read here, only {readable}: "
            "read it with the version of this library that wrote it, or a newer one"
        )
        self.found, self.supported = found, supported


class RunNotFound(LedgerError):
    """No run has that name, or more than one begins with it."""

    def __init__(self, run: str, candidates: Collection[str] = ()) -> None:
        if candidates:
            message = f"{run!r} is not unique: it could be {', '.join(sorted(candidates)[:5])}"
        else:
            message = f"no run begins with {run!r}"
        super().__init__(message)
        self.run, self.candidates = run, tuple(sorted(candidates))


class ResumeError(LedgerError):
    """A run cannot be gone on with."""

    def __init__(self, run: str, problem: str) -> None:
        super().__init__(f"run {run} cannot be resumed: {problem}")
        self.run, self.problem = run, problem


class TaskError(AgentLoopError, ValueError):
    """A task folder or one of its settings cannot be used; the message names the key."""
