"""A unit: several verbs and appends in one transaction."""

from __future__ import annotations

from typing import Protocol

from graphstate.errors import ErrorCode, UnitFailed

__all__ = ("Unit",)


class _Transactions(Protocol):
    @property
    def failed(self) -> tuple[ErrorCode, str] | None: ...
    def begin(self, *, sync: bool) -> None: ...
    def settle_text(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def fail(self, code: ErrorCode, message: str) -> None: ...


class Unit:
    """Several verbs in one transaction. Leaving it commits; an exception or a failed verb
    keeps nothing.

    Raises:
        UnitFailed: On leaving, if a verb inside failed.
    """

    def __init__(self, store: _Transactions, sync: bool) -> None:
        self._store, self._sync = store, sync

    def __enter__(self) -> Unit:
        self._store.begin(sync=self._sync)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        store = self._store
        failed = store.failed
        if kind is None and failed is None:
            try:
                store.settle_text()
            except BaseException:
                store.rollback()
                raise
            store.commit()
            return
        if kind is not None:
            store.fail(ErrorCode.CONFLICT, f"the unit was left by {kind.__name__}: {error}")
        store.rollback()
        if kind is None and failed is not None:
            raise UnitFailed(*failed)
