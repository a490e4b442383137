"""A guard ready to be evaluated, and the cache of those that were compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from graphstate._canonical import Json
from graphstate.errors import GuardError
from graphstate.guards.language import GUARD_BUDGET, MAX_CACHED, MAX_LENGTH
from graphstate.guards.parser import Condition, parse
from graphstate.guards.values import Exhausted

__all__ = ("Evaluation", "Guard", "compile_guard", "eval_guard")

_T = TypeVar("_T")


class Evaluation(NamedTuple):
    """What a guard said and what it cost."""

    passed: bool
    #: work that was done; the whole budget if it did not suffice
    units: int
    #: the budget did not suffice; then the guard did not pass
    exhausted: bool


class Guard(Struct, frozen=True, eq=False):
    """A compiled guard. Made by `compile_guard`; unchangeable, so that threads may share it."""

    text: str
    _run: Condition
    _nodes: int

    def __repr__(self) -> str:
        return f"compile_guard({self.text!r})"

    def evaluate(self, context: Mapping[str, Json], *, budget: int = GUARD_BUDGET) -> Evaluation:
        """Return whether the context passes. Never raises; what cannot be evaluated does not pass.

        Args:
            context: JSON by name. What is not JSON in it is as if it were missing.
            budget: Units of work: one for each node of the guard, one for each member of a list or
                object that is compared, one for each 64 characters compared. If they do not
                suffice the guard does not pass.
        """
        try:
            return self._evaluate(context, budget)
        except RecursionError:  # the caller stands deep, which must not change the answer
            pass
        try:
            return _on_own_stack(lambda: self._evaluate(context, budget))
        except Exception:  # not even a thread can be started: closed
            return Evaluation(False, 0, False)

    def _evaluate(self, context: Any, budget: int) -> Evaluation:
        meter = [budget - self._nodes]
        if meter[0] < 0:
            return Evaluation(False, max(budget, 0), True)
        try:
            known = context if type(context) is dict or isinstance(context, Mapping) else {}
            passed = self._run(known, meter)
        except Exhausted:
            return Evaluation(False, max(budget, 0), True)
        except RecursionError:
            raise
        except Exception:  # a value that is not JSON refused to be looked at: closed
            return Evaluation(False, budget - meter[0], False)
        return Evaluation(passed, budget - meter[0], False)

    def __reduce__(self) -> tuple[object, ...]:
        return compile_guard, (self.text,)


def compile_guard(text: object) -> Guard:
    """Return the guard that a text writes down. Known texts are looked up.

    Raises:
        GuardError: Not a text, too long, too deep, or not in the language; names the place.
    """
    if not issubclass(type(text), str):
        raise GuardError(f"a guard is a text, not a value of type {type(text).__name__}")
    plain = str.__str__(text)
    if len(plain) > MAX_LENGTH:
        raise GuardError(f"{len(plain)} characters, more than the {MAX_LENGTH} allowed")
    found = _compiled(plain)
    if isinstance(found, Guard):
        return found
    raise GuardError(found.problem, position=found.position)


def eval_guard(text: str, context: Mapping[str, Json]) -> bool:
    """Return whether the context passes the guard; over the budget it does not.

    Raises:
        GuardError: The text is not a guard.
    """
    return compile_guard(text).evaluate(context).passed


@lru_cache(maxsize=MAX_CACHED)
def _compiled(text: str) -> Guard | GuardError:
    try:
        return _parsed(text)
    except RecursionError:
        return _on_own_stack(lambda: _parsed(text))


def _parsed(text: str) -> Guard | GuardError:
    try:
        return Guard(text, *parse(text))
    except GuardError as error:
        return error.with_traceback(None)


def _on_own_stack(work: Callable[[], _T]) -> _T:
    """Do in a thread what may not depend on how deep the caller stands."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as worker:
        return worker.submit(work).result()
