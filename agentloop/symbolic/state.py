"""Symbolic state: the named facts of a run, who may write them, and who hears of a change.

Values are JSON. What is not JSON, not finite or too large is refused where it enters, so
whoever records, prints or compares a fact never meets one that cannot be written. What a
change makes the loop do is the business of `loop`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentloop._canonical import Json, encode
from agentloop.errors import BoundExceeded, SymbolicRefused
from agentloop.messages import SymbolicUpdate
from agentloop.symbolic.values import check_name, copied, same_value

__all__ = (
    "MAX_NAMES",
    "SymbolicChange",
    "SymbolicState",
    "Writer",
    "create_symbolic_state",
)

#: Names in one state, at most.
MAX_NAMES: Final = 10_000
_MAX_QUEUED: Final = 1_000
_KEPT_ERRORS: Final = 100
_WRITERS: Final = ("any", "agent", "evaluator", "tool", "developer")

#: Who changes a fact.
Writer: TypeAlias = Literal["agent", "evaluator", "tool", "developer"]
Operation: TypeAlias = Literal["assert", "retract"]

_log = logging.getLogger(__name__)


class SymbolicChange(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that changed."""

    op: Operation
    name: str
    #: None for a retract.
    value: Json
    metadata: dict[str, Json] | None
    #: The old value; None if there was none.
    previous: Json
    by: Writer


Subscriber: TypeAlias = Callable[[SymbolicChange], object]


def _read_update(update: Mapping[str, Any] | SymbolicUpdate) -> tuple[Operation, str, Json]:
    """Return the operation, name and copied value of an update."""
    if isinstance(update, SymbolicUpdate):
        update = {"name": update.name, "value": update.value, "op": update.op}
    if not isinstance(update, Mapping):
        raise TypeError(f"an update is a mapping or a SymbolicUpdate, not {type(update).__name__}")
    name = check_name(update.get("name"))
    match update.get("op", "assert"):
        case "retract":
            return "retract", name, None
        case "assert" | "set":
            if "value" not in update:
                raise ValueError(f"the update of {name!r} asserts nothing: it has no 'value'")
            return "assert", name, copied(update["value"])
        case other:
            raise ValueError(f"the update of {name!r} has op {other!r:.80}: use assert, set or retract")


def create_symbolic_state(
    initial: Mapping[str, Json] | None = None, *, declared: Mapping[str, str] | None = None
) -> SymbolicState:
    """Return a state that holds deep copies of the initial values.

    Args:
        initial: Name to JSON value.
        declared: Name to who may write it: ``any``, ``agent``, ``evaluator``, ``tool`` or
            ``developer``. Without it everybody may write every name; with it all other
            writes are refused. Initial values need a declared name and nothing else.

    Raises:
        TypeError: A name is no str, or a value no JSON.
        ValueError: A name is empty, a number is not finite, a bound is exceeded, a writer is unknown.
        SymbolicRefused: An initial name is not declared.
    """
    return SymbolicState(initial, declared=declared)


class SymbolicState:
    """A small reactive store of facts: name to JSON value.

    What it hands out is the stored value itself; treat it as read-only. May be changed from
    any thread; subscribers are called one at a time, in the order of the changes, by whoever
    made the change or by whoever is already delivering an earlier one.
    """

    __slots__ = (
        "_declared",
        "_delivering",
        "_error_count",
        "_errors",
        "_lock",
        "_metadata",
        "_queue",
        "_queued",
        "_runaway",
        "_subscribers",
        "_values",
    )

    def __init__(
        self, initial: Mapping[str, Json] | None = None, *, declared: Mapping[str, str] | None = None
    ) -> None:
        for name, writer in (declared or {}).items():
            if check_name(name) and writer not in _WRITERS:
                raise ValueError(f"{name!r} is declared for {writer!r}: use one of {_WRITERS}")
        self._declared = None if declared is None else MappingProxyType(dict(declared))
        self._values: dict[str, Json] = self._check_all(initial or {})
        self._metadata: dict[str, dict[str, Json]] = {}
        self._subscribers: dict[object, Subscriber] = {}
        self._queue: deque[SymbolicChange] = deque()
        self._queued = 0
        self._delivering = False
        self._runaway = False
        self._errors: deque[Exception] = deque(maxlen=_KEPT_ERRORS)
        self._error_count = 0
        self._lock = Lock()

    # reading

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._values))

    def __repr__(self) -> str:
        return f"SymbolicState({len(self._values)} names)"

    @property
    def declared(self) -> Mapping[str, str] | None:
        """Who may write which name, or None if nothing was declared."""
        return self._declared

    @property
    def errors(self) -> tuple[Exception, ...]:
        """What subscribers raised, the newest 100."""
        return tuple(self._errors)

    @property
    def error_count(self) -> int:
        """How often a subscriber raised; grows by one with each entry of `errors`."""
        return self._error_count

    def get_value(self, name: str, default: Json = None) -> Json:
        """Return the value of a name, or the default if it is absent."""
        return self._values.get(name, default)

    def get_metadata(self, name: str) -> Mapping[str, Json] | None:
        """Return what the last assert of a name said about it."""
        return self._metadata.get(name)

    def get_all(self) -> dict[str, Json]:
        """Return a new dict of all names and values."""
        return dict(self._values)

    def snapshot(self) -> dict[str, Json]:
        """Return a deep copy of all names and values, JSON-safe, for `restore`."""
        return {name: copied(value) for name, value in self.get_all().items()}

    def to_json(self) -> str:
        """Return all names and values as canonical JSON text.

        Raises:
            NotJson: Somebody changed a stored value into one that is not JSON; names its path.
        """
        return encode(self.get_all()).decode()

    def refusal(self, name: str, by: Writer) -> str | None:
        """Return why that writer may not write that name, or None if it may."""
        if self._declared is None:
            return None
        writer = self._declared.get(name)
        if writer is None:
            return "the name is not declared"
        return None if writer in ("any", by) else f"only {writer} may write it"

    # writing

    def assert_value(
        self, name: str, value: Json, metadata: Mapping[str, Json] | None = None, *, by: Writer = "developer"
    ) -> bool:
        """Make a fact true and return whether that changed anything.

        An unchanged value notifies nobody but replaces the metadata. A few microseconds for a
        scalar, linear in the size of a container, which is copied.

        Raises:
            TypeError: The name is no str, or the value no JSON.
            ValueError: The name is empty or has control characters, or a number is not finite.
            BoundExceeded: More than `MAX_NAMES` names, or a value above `MAX_VALUE_BYTES`.
            SymbolicRefused: The name is not declared, or declared for somebody else.
            RuntimeError: Subscribers answer each change with another one, without an end.
        """
        self._check_write(name, by)
        about = None if metadata is None else copied(dict(metadata))
        return self._assert(name, copied(value), about, by)

    def retract_value(self, name: str, *, by: Writer = "developer") -> bool:
        """Remove a fact and return whether it was there.

        Raises:
            TypeError, ValueError, SymbolicRefused, RuntimeError: As `assert_value`.
        """
        self._check_write(name, by)
        return self._retract(name, by)

    def apply_update(self, update: Mapping[str, Any] | SymbolicUpdate, *, by: Writer = "developer") -> bool:
        """Assert or retract as a ``{name, value, op}`` says and return whether anything changed.

        ``op`` is ``assert`` (the default), ``set`` (the same) or ``retract`` (ignores the value).

        Raises:
            TypeError, ValueError, SymbolicRefused, RuntimeError: As `assert_value`; ValueError also
                for another op and for an assert without value.
        """
        op, name, value = _read_update(update)
        self._check_write(name, by)
        return self._assert(name, value, None, by) if op == "assert" else self._retract(name, by)

    def apply_updates(
        self, updates: Iterable[Mapping[str, Any] | SymbolicUpdate], *, by: Writer = "developer"
    ) -> int:
        """Apply all updates in order, or none if one is invalid; return how many changed something.

        Raises:
            TypeError, ValueError, SymbolicRefused, RuntimeError: As `apply_update`.
        """
        read = [_read_update(update) for update in updates]
        names = set(self._values)
        for op, name, _ in read:
            self._check_write(name, by)
            if op == "assert":
                names.add(name)
        if len(names) > MAX_NAMES:
            raise BoundExceeded("symbolic names", MAX_NAMES, len(names))
        return sum(
            self._assert(name, value, None, by) if op == "assert" else self._retract(name, by)
            for op, name, value in read
        )

    def restore(self, data: Mapping[str, Json], *, by: Writer = "developer") -> int:
        """Make the state what `snapshot` gave and return how many facts changed.

        Names that are not in the data are retracted; subscribers hear of every change. Whom a
        name is declared for does not matter, since nothing new is claimed.

        Raises:
            TypeError, ValueError, SymbolicRefused: As `create_symbolic_state`; nothing was changed.
        """
        values = self._check_all(data)
        changed = sum(self._retract(name, by) for name in self if name not in values)
        return changed + sum(self._assert(name, value, None, by) for name, value in values.items())

    def subscribe(self, fn: Subscriber) -> Callable[[], None]:
        """Call a function with every `SymbolicChange` from now on; return what ends that.

        The function must not block. What it raises is kept in `errors` and disturbs nobody. A
        change it makes is delivered after everybody saw the current one.
        """
        token = object()
        self._subscribers[token] = fn

        def unsubscribe() -> None:
            self._subscribers.pop(token, None)

        return unsubscribe

    # inside

    def _check_all(self, data: Mapping[str, Json]) -> dict[str, Json]:
        if len(data) > MAX_NAMES:
            raise BoundExceeded("symbolic names", MAX_NAMES, len(data))
        for name in data:
            check_name(name)
            if self._declared is not None and name not in self._declared:
                raise SymbolicRefused(name, "developer", "the name is not declared")
        return {name: copied(value) for name, value in data.items()}

    def _check_write(self, name: str, by: Writer) -> None:
        if name not in self._values:
            check_name(name)
        reason = self.refusal(name, by)
        if reason is not None:
            raise SymbolicRefused(name, by, reason)

    def _assert(self, name: str, value: Json, metadata: dict[str, Json] | None, by: Writer) -> bool:
        with self._lock:
            values = self._values
            previous = values.get(name)
            known = previous is not None or name in values
            changed = not (known and same_value(previous, value))
            if changed:
                if not known and len(values) >= MAX_NAMES:
                    raise BoundExceeded("symbolic names", MAX_NAMES, len(values) + 1)
                self._refuse_feedback(name)
                values[name] = value
            if metadata is not None:
                self._metadata[name] = metadata
            elif self._metadata:
                self._metadata.pop(name, None)
            if not changed:
                return False
            deliver = self._enqueue("assert", name, value, metadata, previous, by)
        if deliver:
            self._deliver()
        return True

    def _retract(self, name: str, by: Writer) -> bool:
        with self._lock:
            if name not in self._values:
                return False
            self._refuse_feedback(name)
            previous = self._values.pop(name)
            metadata = self._metadata.pop(name, None)
            deliver = self._enqueue("retract", name, None, metadata, previous, by)
        if deliver:
            self._deliver()
        return True

    def _refuse_feedback(self, name: str) -> None:
        # Refused before the value changes, so that subscribers have seen every change there was.
        if self._delivering:
            self._queued += 1
            if self._queued > _MAX_QUEUED:
                self._runaway = True
                raise RuntimeError(_feedback(name))

    def _enqueue(
        self,
        op: Operation,
        name: str,
        value: Json,
        metadata: dict[str, Json] | None,
        previous: Json,
        by: Writer,
    ) -> bool:
        """Queue a change if somebody listens; True if the caller is the one to deliver."""
        if not self._subscribers:
            return False
        self._queue.append(
            SymbolicChange(op=op, name=name, value=value, metadata=metadata, previous=previous, by=by)
        )
        if self._delivering:
            return False
        self._delivering = True
        self._queued = 0
        return True

    def _next(self) -> SymbolicChange | None:
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._delivering = False
            return None

    def _deliver(self) -> None:
        name = ""
        try:
            while (change := self._next()) is not None:
                name = change.name
                for token, fn in tuple(self._subscribers.items()):
                    if token in self._subscribers:
                        self._notify(fn, change)
        except BaseException:
            self._delivering = False  # what is still queued goes out with the next change
            raise
        if self._runaway:
            self._runaway = False
            raise RuntimeError(_feedback(name))

    def _notify(self, fn: Subscriber, change: SymbolicChange) -> None:
        try:
            fn(change)
        except Exception as error:  # kept: a listener's fault must not undo or hide the change
            self._errors.append(error)
            self._error_count += 1
            _log.warning("a subscriber of %r raised %s", change.name, type(error).__name__, exc_info=error)


def _feedback(name: str) -> str:
    return (
        f"a feedback loop: more than {_MAX_QUEUED} changes were made while one was delivered, "
        f"the last of {name!r}; a subscriber must not answer every change with another"
    )
