"""What makes a method a verb: one transaction, typed failures, idempotent causes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from graphstate._canonical import encode_text
from graphstate.activation.embedding import Embedder
from graphstate.errors import ErrorCode, StoreError, VerbFailed, shown
from graphstate.events import GRAPH, Draft, Row
from graphstate.model import (
    Absorbed,
    ActivationState,
    Attended,
    Checkpoint,
    Collected,
    Compaction,
    Deltas,
    DeltasImported,
    Edge,
    Iteration,
    Lock,
    Merged,
    MergedStates,
    Migrated,
    Node,
    Outcome,
    Planned,
    Recovery,
    Reembedded,
    Reinforced,
    Repair,
    Rewarded,
    Reweighted,
    Rollback,
    Snapshot,
    Split,
    Step,
    Superseded,
    Taught,
    Zone,
    ZoneProposal,
    from_json,
    to_json,
)
from graphstate.policy import TRUSTED
from graphstate.results import Fail, Ok, Result
from graphstate.store import Store
from graphstate.store.stored import as_stored, stored_json
from graphstate.verbs.arguments import identifier
from graphstate.verbs.locks import refuse_locked

__all__ = ("Verbs", "answer", "catches_up_text", "checked_cause", "query", "synced_verb", "verb")

P = ParamSpec("P")
T = TypeVar("T")

_RESULTS: Mapping[str, type] = {
    cls.__name__: cls
    for cls in (
        Node,
        Edge,
        Outcome,
        Rewarded,
        Step,
        Checkpoint,
        Rollback,
        Snapshot,
        Compaction,
        Recovery,
        Merged,
        Zone,
        ZoneProposal,
        Lock,
        Planned,
        Repair,
        Reweighted,
        Collected,
        Iteration,
        Split,
        MergedStates,
        Migrated,
        ActivationState,
        Attended,
        Reinforced,
        Superseded,
        Absorbed,
        Taught,
        Reembedded,
        Deltas,
        DeltasImported,
    )
}

MAX_CAUSE_BYTES = 256


class Verbs:
    """What every family works with.

    Attributes:
        store: The open store.
        actor: Who acts, and whose cursor moves, where a call does not say.
        trust: How far what this actor says may be trusted.
        embedder: What makes vectors of texts, if anything does.
    """

    __slots__ = ("actor", "embedder", "store", "trust")

    def __init__(self, store: Store, *, actor: str, trust: str, embedder: Embedder | None = None) -> None:
        self.store, self.actor, self.trust, self.embedder = store, actor, trust, embedder

    def record(self, *drafts: Draft, actor: str | None = None, cause: str | None = None) -> list[Row]:
        """Write events as this actor, or as another one with the same trust.

        Raises:
            VerbFailed: Locked, if they would change what is locked and the trust is too low.
        """
        if not drafts:
            return []
        if self.trust not in TRUSTED:
            refuse_locked(self.store.projection, drafts, actor=actor or self.actor, trust=self.trust)
        return self.store.record(drafts, actor=actor or self.actor, trust=self.trust, cause=cause)


def checked_cause(cause: object) -> str:
    """Return a cause, or fail with InvalidInput."""
    if (
        not isinstance(cause, str)
        or not cause.isprintable()
        or not 0 < len(cause.encode()) <= MAX_CAUSE_BYTES
    ):
        raise VerbFailed(
            ErrorCode.INVALID_INPUT,
            f"cause must be 1 to {MAX_CAUSE_BYTES} bytes of printable characters, not {shown(cause)}",
        )
    return cause


def _answered_before(store: Store, name: str, cause: object) -> Result[Any] | None:
    """Return what the first call with this cause answered, None if this is the first."""
    if store.failed is not None:
        code, message = store.failed
        return Fail(ErrorCode.CONFLICT, f"the unit has failed already and keeps nothing: {code}, {message}")
    if cause is None:
        return None
    first = store.log.first_result(GRAPH, checked_cause(cause))
    if first is None:
        return None
    verb_name, text = first
    if verb_name != name:
        raise VerbFailed(
            ErrorCode.CONFLICT, f"the cause {cause!r} was used by {verb_name}, {name} needs one of its own"
        )
    with as_stored(f"the answer to the cause {cause!r}"):
        answer = stored_json(text)
        cls = _RESULTS.get(answer["type"])
        return Ok(answer["value"] if cls is None else from_json(cls, answer["value"]), repeated=True)


def _keep_answer(store: Store, name: str, cause: str, value: Any) -> None:
    answer = {"type": type(value).__name__, "value": to_json(value)}
    store.log.set_first_result(GRAPH, cause, name, encode_text(answer))


def verb(
    method: Callable[Concatenate[Any, P], Result[T]],
) -> Callable[Concatenate[Any, P], Result[T]]:
    """Make a method a verb that changes the graph; see `_make`."""
    return _make(method, sync=False)


def synced_verb(
    method: Callable[Concatenate[Any, P], Result[T]],
) -> Callable[Concatenate[Any, P], Result[T]]:
    """Make a method a verb whose commit survives power loss, whatever the store's durability."""
    return _make(method, sync=True)


def _make(
    method: Callable[Concatenate[Any, P], Result[T]], *, sync: bool
) -> Callable[Concatenate[Any, P], Result[T]]:
    """Make a method a verb that changes the graph.

    It runs in one transaction, or in the unit that is open. A `VerbFailed` or `StoreError`
    inside becomes a `Fail`, and nothing is kept. With ``cause=`` a second call changes
    nothing and gets the first answer, marked ``repeated``.
    """
    name = method.__name__.lstrip("_")

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        store: Store = self.store
        try:
            store.begin(sync=sync)
        except StoreError as error:
            return Fail(error.code, str(error), error.details)
        try:
            cause, head = kwargs.get("cause"), store.log.head(GRAPH)
            if kwargs.get("actor") is not None:
                identifier(kwargs["actor"], "actor")
            if cause is None and store.failed is None:
                result = method(self, *args, **kwargs)
            else:
                result = _answered_before(store, name, cause) or method(self, *args, **kwargs)
            if isinstance(result, Ok) and not result.repeated:
                if cause is not None:
                    _keep_answer(store, name, str(cause), result.value)
                if store.log.head(GRAPH) != head:  # who found nothing to do leaves the log as it is
                    store.snapshot_if_due(actor=self.actor, trust=self.trust)
        except (VerbFailed, StoreError) as error:
            message = error.message if isinstance(error, VerbFailed) else str(error)
            result = Fail(error.code, message, error.details)
        except BaseException as error:
            store.fail(ErrorCode.CONFLICT, f"{name} was left by {type(error).__name__}: {error}")
            store.rollback()
            raise
        if isinstance(result, Fail):
            store.fail(result.code, result.message)
            store.rollback()
            return result
        try:
            store.commit()
        except StoreError as error:
            return Fail(error.code, str(error), error.details)
        return result

    call.__dict__["verb"] = "changes"
    return call


def query(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method a verb that only reads, all of it from one moment.

    It answers with plain values. What cannot be answered raises `VerbFailed` with the code
    and hint that a `Fail` would carry, or a `StoreError`.
    """

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        store = self.store
        store.begin_read()
        try:
            return method(self, *args, **kwargs)
        finally:
            store.end_read()

    call.__dict__["verb"] = "reads"
    return call


def answer(method: Callable[Concatenate[Any, P], Result[T]]) -> Callable[Concatenate[Any, P], Result[T]]:
    """Make a method a verb that only reads and still answers with `Ok` or `Fail`."""
    read = query(method)

    @wraps(read)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        try:
            return read(self, *args, **kwargs)
        except VerbFailed as error:
            return Fail(error.code, error.message, error.details)
        except StoreError as error:
            return Fail(error.code, str(error), error.details)

    return call


def catches_up_text(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Let a query refresh the full-text index first, if it was called with ``text=``."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs.get("text") is not None:
            self.store.catch_up_text()
        return method(self, *args, **kwargs)

    return call
