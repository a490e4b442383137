"""Grades: how far a run got, and whether that is acceptable. Two questions, two answers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from agentloop._numbers import check_amount
from agentloop.errors import AgentLoopConfigError
from agentloop.evals.views import RunView

__all__ = ("Grade", "Grader", "grade_run", "grader", "score_of", "weighted_mean")


class Grade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What one grader says of one run."""

    #: Filled in by whoever asks the grader.
    grader_id: str = ""
    #: 0..1: how far it got.
    score: float
    #: Whether it is acceptable.
    passed: bool
    reason: str
    #: Anything else worth keeping, as JSON.
    detail: Any = None
    #: The grader was waited for, so what it says may be otherwise next time. Filled in as above.
    awaited: bool = False


GradeOf: TypeAlias = Callable[[RunView], Grade | Awaitable[Grade]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grader:
    """Something that grades runs, and what its grade weighs.

    Raises:
        AgentLoopConfigError: The weight is not a finite number of at least 0.
    """

    id: str
    #: Gets the finished run. What it raises is a failing grade, not an error of the harness.
    grade: GradeOf
    weight: float = 1

    def __post_init__(self) -> None:
        check_weight(f"grader {self.id!r}", self.weight)

    @property
    def asynchronous(self) -> bool:
        """Whether it has to be waited for, as far as its function says; then no gate takes it."""
        return inspect.iscoroutinefunction(self.grade)


def grader(id: str, grade: GradeOf, *, weight: float = 1) -> Grader:
    """Return a grader that asks the function; it may be async."""
    return Grader(id=id, grade=grade, weight=weight)


def check_weight(owner: str, weight: float) -> None:
    """Raise unless the weight is a finite number of at least 0.

    Raises:
        AgentLoopConfigError: Names the owner.
    """
    try:
        check_amount(f"the weight of {owner}", weight)
    except (TypeError, ValueError) as error:
        raise AgentLoopConfigError(str(error)) from None


def weighted_mean(scored: Sequence[tuple[float, float]], *, empty: float) -> float:
    """Return the mean of scores with their weights; ``empty`` where nothing weighs anything."""
    total = math.fsum(weight for _, weight in scored)
    return math.fsum(score * weight for score, weight in scored) / total if total else empty


def score_of(graders: Sequence[Grader], grades: Sequence[Grade]) -> float:
    """Return the mean of the grades with the weights of their graders; 0 where nothing weighs anything."""
    scored = [(grade.score, one.weight) for grade, one in zip(grades, graders, strict=True)]
    return weighted_mean(scored, empty=0.0)


async def grade_run(graders: Sequence[Grader], view: RunView) -> tuple[Grade, ...]:
    """Ask the graders one after another, in order; ids that come twice get ``#2``, ``#3``, …"""
    grades: list[Grade] = []
    counts: dict[str, int] = {}
    for one in graders:
        counts[one.id] = count = counts.get(one.id, 0) + 1
        name = one.id if count == 1 else f"{one.id}#{count}"
        grades.append(msgspec.structs.replace(await _ask(one, view), grader_id=name))
    return tuple(grades)


async def _ask(one: Grader, view: RunView) -> Grade:
    awaited = False
    try:
        given = one.grade(view)
        awaited = inspect.isawaitable(given)
        grade = _checked(await given if inspect.isawaitable(given) else given)
    except Exception as error:
        grade = _broken(f"grader threw: {type(error).__name__}: {error!s:.500}")
    return msgspec.structs.replace(grade, awaited=awaited)


def _checked(grade: Any) -> Grade:
    if not isinstance(grade, Grade):
        return _broken(f"grader error: it answered {grade!r:.200}, which is no grade")
    score: Any = grade.score
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 1:
        return _broken(f"grader error: the score {score!r:.100} is not a number from 0 to 1")
    return grade


def _broken(reason: str) -> Grade:
    return Grade(score=0, passed=False, reason=reason)
