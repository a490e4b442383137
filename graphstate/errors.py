"""What can go wrong, as codes with hints and as exceptions.

A verb answers `Fail` with a code, because a model reads it. Opening a file, using a store
wrongly and finding damage raise. Each code's hint stands in one row of `HINTS`.

    GraphStateError
    ├── VerbFailed           a Fail was unwrapped, or a plain read could not answer
    ├── GuardError (ValueError)   a text is not a guard
    ├── StoreError           carries the code a verb would answer with
    │   ├── Busy             another process held the file longer than busy_timeout_ms
    │   ├── Conflict         the head or version is not the expected one
    │   ├── StorageFull      no space left
    │   ├── ReadOnly         the store or the medium cannot be written
    │   ├── LockHeld         an exclusive writer owns the file
    │   └── IntegrityBroken  the file or its chain is damaged; writes are refused
    ├── OpenError            the file was left as it was
    │   ├── ForeignDatabase  not a graphstate file
    │   ├── WrongKey         keyed with another key or none, or not keyed at all
    │   └── UnsupportedVersion
    └── Misuse               a bug in the calling program
        ├── ClosedStore
        ├── ForkedStore
        ├── SubscriberFailed a function that was subscribed raised; nothing was rolled back
        └── UnitFailed       a verb failed inside a unit; everything was rolled back
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

__all__ = (
    "HINTS",
    "Busy",
    "ClosedStore",
    "Conflict",
    "ErrorCode",
    "ForeignDatabase",
    "ForkedStore",
    "GraphStateError",
    "GuardError",
    "IntegrityBroken",
    "LockHeld",
    "Misuse",
    "OpenError",
    "ReadOnly",
    "StorageFull",
    "StoreError",
    "SubscriberFailed",
    "UnitFailed",
    "UnsupportedVersion",
    "VerbFailed",
    "WrongKey",
    "shown",
)


class ErrorCode(StrEnum):
    """Every code a `Fail` can carry."""

    NOT_FOUND = "NotFound"
    DUPLICATE_ID = "DuplicateId"
    INVALID_INPUT = "InvalidInput"
    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    CYCLE_REJECTED = "CycleRejected"
    ILLEGAL_TRANSITION = "IllegalTransition"
    GUARD_PARSE_ERROR = "GuardParseError"
    INTEGRITY_BROKEN = "IntegrityBroken"
    LOCK_HELD = "LockHeld"
    CONFLICT = "Conflict"
    CHECKPOINT_NOT_FOUND = "CheckpointNotFound"
    MIGRATION_ERROR = "MigrationError"
    INVALID_CONFIG = "InvalidConfig"
    NO_MOVES = "NoMoves"
    ZONE_NOT_FOUND = "ZoneNotFound"
    LOCKED = "Locked"
    #: never of a `Fail`: a denied move is Ok, and this is the code in its trace
    HARD_BLOCKED = "HardBlocked"
    BUSY = "Busy"
    STORAGE_FULL = "StorageFull"
    READ_ONLY = "ReadOnly"
    INVALID_BUNDLE = "InvalidBundle"
    EMBEDDING_MISMATCH = "EmbeddingMismatch"
    EMBEDDER_FAILED = "EmbedderFailed"


#: The recovery hint of each code, as `describe()` and every `Fail` show it.
HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.NOT_FOUND: "the id does not exist: create it with remember or link, or look it up with recall",
    ErrorCode.DUPLICATE_ID: "the id is taken: choose another one, or pass upsert=True to replace what it names",
    ErrorCode.INVALID_INPUT: "an argument is not acceptable: the message names it and the values that are",
    ErrorCode.PAYLOAD_TOO_LARGE: "shrink the payload, split it over several nodes, or raise maxPayloadBytes",
    ErrorCode.CYCLE_REJECTED: "details.cycle is the path the edge would close: reverse or unlink one edge on it",
    ErrorCode.ILLEGAL_TRANSITION: "no usable edge leads there from the cursor: see legal_moves or suggest",
    ErrorCode.GUARD_PARSE_ERROR: "the message names the offending token: see describe()['guardDSL'] for the grammar",
    ErrorCode.INTEGRITY_BROKEN: "nothing was deleted: open read-only, run verify_integrity, restore a backup",
    ErrorCode.LOCK_HELD: "close the exclusive writer (its process id is in the lock file), or open read-only",
    ErrorCode.CONFLICT: "somebody else was first: read again, then retry with the current version",
    ErrorCode.CHECKPOINT_NOT_FOUND: "see list_checkpoints for the names that exist",
    ErrorCode.MIGRATION_ERROR: "nothing was migrated: mend the function for the node that the message names",
    ErrorCode.INVALID_CONFIG: "see describe()['tunables'] for the keys and their ranges",
    ErrorCode.NO_MOVES: "link the cursor's node to another one, or move the cursor with set_cursor",
    ErrorCode.ZONE_NOT_FOUND: "see zones for the names that exist, or define it with define_zone",
    ErrorCode.LOCKED: "ask whoever locked it (see locks): a developer or person can change or unlock it",
    ErrorCode.HARD_BLOCKED: "trace.reasons says why: meet the guard, take another move, or have the rule changed",
    ErrorCode.BUSY: "another process is writing: retry, or open with a larger busy_timeout_ms",
    ErrorCode.STORAGE_FULL: "nothing was changed: free space on the disk, then retry",
    ErrorCode.READ_ONLY: "open the file without read_only, from a place that can be written",
    ErrorCode.INVALID_BUNDLE: "nothing was imported: details.line is the line at fault; ask for a fresh export",
    ErrorCode.EMBEDDING_MISMATCH: "vectors of two models cannot be compared: use the embedder that made them, or run reembed",
    ErrorCode.EMBEDDER_FAILED: "nothing was changed: retry, or pass embed=False and run reembed later",
}


def shown(value: object) -> str:
    """Return at most 80 characters that show a value in a message, whatever it is."""
    try:
        return repr(value)[:80]
    except Exception:  # a hostile repr, or an integer too long to write, still needs a message
        return f"a value of type {type(value).__name__}"


class GraphStateError(Exception):
    """Everything this package raises on purpose."""


class VerbFailed(GraphStateError):
    """A failure that was unwrapped, or that a plain read had no other way to report."""

    def __init__(self, code: ErrorCode, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message} ({HINTS[code]})")
        self.code, self.message, self.details = code, message, dict(details or {})
        self.hint: str = self.details.get("hint", HINTS[code])


class GuardError(GraphStateError, ValueError):
    """The text is not a guard. `position` is the character that is wrong, counted from 0."""

    def __init__(self, problem: str, *, position: int | None = None) -> None:
        super().__init__(problem if position is None else f"{problem} at position {position}")
        self.problem, self.position = problem, position


class StoreError(GraphStateError):
    """The store could not do it; nothing was changed. `code` is what a verb answers with."""

    code: ErrorCode
    details: Mapping[str, Any] = {}


class Busy(StoreError):
    """The file stayed locked by another process for the whole waiting time."""

    code = ErrorCode.BUSY


class Conflict(StoreError):
    """The stream's head is not the one the caller expected."""

    code = ErrorCode.CONFLICT

    def __init__(self, stream: str, expected: int, current: int) -> None:
        super().__init__(f"stream {stream!r} is at {current}, not at the expected {expected}")
        self.stream, self.expected, self.current = stream, expected, current
        self.details = {"stream": stream, "expected": expected, "current": current}


class StorageFull(StoreError):
    """The disk is full."""

    code = ErrorCode.STORAGE_FULL


class ReadOnly(StoreError):
    """The store was opened read-only, or the medium refuses to be written."""

    code = ErrorCode.READ_ONLY


class LockHeld(StoreError):
    """An exclusive writer owns the file."""

    code = ErrorCode.LOCK_HELD


class IntegrityBroken(StoreError):
    """Acknowledged data is damaged. Every byte was kept."""

    code = ErrorCode.INTEGRITY_BROKEN


class OpenError(GraphStateError):
    """The file cannot be used, and was left unchanged."""


class ForeignDatabase(OpenError):
    """The file is not one of ours."""


class WrongKey(OpenError):
    """The key that was given is not the one the file's chain is keyed with."""


class UnsupportedVersion(OpenError):
    """The file was written by a version this one does not read."""

    def __init__(self, path: str, found: int, supported: int) -> None:
        super().__init__(
            f"{path} has format version {found}, this program reads version {supported}: upgrade the program"
        )
        self.found, self.supported = found, supported


class Misuse(GraphStateError):
    """The calling program did something that is always a mistake."""


class ClosedStore(Misuse):
    """The store was used after `close`."""


class ForkedStore(Misuse):
    """The store was opened before a fork and used in the child. Open it again there."""


class SubscriberFailed(Misuse):
    """A function given to `subscribe` raised, so that its subscription ended. The events it was
    told of are committed all the same."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"a subscriber raised {type(error).__name__}: {shown(error)}; it was told nothing more"
        )


class UnitFailed(Misuse):
    """A verb failed inside a unit, so that none of the unit's changes were kept."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"the unit was rolled back because a verb in it failed with {code}: {message}")
        self.code, self.message = code, message
