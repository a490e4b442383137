"""A guard ready to be evaluated, and the cache of those that were compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

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


@dataclass(frozen=True, slots=True)
class Guard:
    """A compiled guard. Equal to another one of the same text."""

    text: str
    _run: Condition = field(repr=False, compare=False)
    _nodes: int = field(repr=False, compare=False)

    def evaluate(self, context: Mapping[str, Json], *, budget: int = GUARD_BUDGET) -> Evaluation:
        """Return whether the context passes. Never raises; what cannot be evaluated does not pass.

        Args:
            context: JSON by name. What is not JSON in it is as if it were missing.
            budget: Units of work: one for each node of the guard, one for each member of a list or
                object that is compared, one for each 64 characters compared. If they do not
                suffice the guard does not pass.
        """
        meter = [budget - self._nodes]
        try:
            if meter[0] < 0:
                raise Exhausted
            known = context if isinstance(context, Mapping) else {}
            passed = _on_any_stack(lambda: self._run(known, meter))
        except Exhausted:
            return Evaluation(False, max(budget, 0), True)
        except Exception:  # a member that is not JSON refused even to be compared: closed
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
    raise GuardError(found.problem, found.position)


def eval_guard(text: str, context: Mapping[str, Json]) -> bool:
    """Return whether the context passes the guard; over the budget it does not.

    Raises:
        GuardError: The text is not a guard.
    """
    return compile_guard(text).evaluate(context).passed


@lru_cache(maxsize=MAX_CACHED)
def _compiled(text: str) -> Guard | GuardError:
    try:
        return Guard(text, *_on_any_stack(lambda: parse(text)))
    except GuardError as error:
        return error.with_traceback(None)


def _on_any_stack(work: Callable[[], _T]) -> _T:
    """Do the work, in a thread if the caller stands so deep that the stack does not suffice."""
    try:
        return work()
    except RecursionError:
        with ThreadPoolExecutor(1) as worker:
            return worker.submit(work).result()
