"""The baseline: what a suite's cases scored when somebody decided that this is how it should be."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from agentloop._canonical import NotJson, decode
from agentloop._numbers import check_amount, check_count
from agentloop.errors import AgentLoopConfigError, TaskError
from agentloop.evals.running import CaseResult, SuiteResult

__all__ = (
    "BASELINE_VERSION",
    "Aggregate",
    "Baseline",
    "BaselineCase",
    "empty_baseline",
    "read_baseline",
    "rounded",
    "to_baseline",
    "write_baseline",
)

BASELINE_VERSION: Final = 1


def rounded(score: float) -> float:
    """Return the score to six decimals, halves upwards: as it is kept and as it is compared."""
    return math.floor(score * 1_000_000 + 0.5) / 1_000_000


def _check_tolerance(name: str, value: float | None, *, optional: bool = False) -> None:
    try:
        check_amount(name, value, optional=optional)
    except (TypeError, ValueError) as error:
        raise AgentLoopConfigError(str(error)) from None


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """The whole suite."""

    score: float
    passed: int
    failed: int


class BaselineCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One case; absent parts were not known when it was recorded."""

    score: float
    passed: bool
    critical: bool
    fingerprint: str
    fingerprint2: str | None = None
    path: str | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is expected of a suite.

    Raises:
        AgentLoopConfigError: A tolerance is not a finite number of at least 0.
        TypeError: The version is not an int.
        ValueError: It is below 1.
    """

    version: int
    suite_id: str
    #: By how much the score of a case may fall.
    tolerance: float
    #: By how much the mean of the cases may fall; `tolerance` if absent.
    aggregate_tolerance: float | None = None
    #: The branch it was recorded on.
    recorded_on: str | None = None
    #: It was recorded where it should not have been.
    forced: bool = False
    aggregate: Aggregate
    cases: Mapping[str, BaselineCase]

    def __post_init__(self) -> None:
        _check_tolerance("tolerance", self.tolerance)
        _check_tolerance("aggregateTolerance", self.aggregate_tolerance, optional=True)
        check_count("version", self.version, 1)

    def serialise(self) -> str:
        """Return the file: JSON with an indent of two, the cases by name."""
        return json.dumps(msgspec.to_builtins(self), indent=2, ensure_ascii=False) + "\n"


def empty_baseline(suite_id: str) -> Baseline:
    """Return the baseline that expects nothing."""
    return Baseline(
        version=BASELINE_VERSION,
        suite_id=suite_id,
        tolerance=0,
        aggregate=Aggregate(score=0, passed=0, failed=0),
        cases={},
    )


def to_baseline(
    result: SuiteResult,
    *,
    tolerance: float = 0,
    aggregate_tolerance: float | None = None,
    recorded_on: str | None = None,
    forced: bool = False,
) -> Baseline:
    """Return the baseline that expects this result.

    Args:
        result: What came out.
        tolerance: By how much the score of a case may fall.
        aggregate_tolerance: By how much the mean may fall; by default as much as a case.
        recorded_on: The branch.
        forced: Whether it was recorded against the rule.

    Raises:
        AgentLoopConfigError: A tolerance is not a finite number of at least 0.
    """
    cases = sorted(result.cases, key=lambda case: case.case_id)
    return Baseline(
        version=BASELINE_VERSION,
        suite_id=result.suite_id,
        tolerance=tolerance,
        aggregate_tolerance=tolerance if aggregate_tolerance is None else aggregate_tolerance,
        recorded_on=recorded_on,
        forced=forced,
        aggregate=Aggregate(score=rounded(result.score), passed=result.passed, failed=result.failed),
        cases={case.case_id: _expected(case) for case in cases},
    )


def _expected(case: CaseResult) -> BaselineCase:
    return BaselineCase(
        score=rounded(case.score),
        passed=case.passed,
        critical=case.critical,
        fingerprint=case.fingerprint,
        fingerprint2=case.fingerprint2 or None,
        path=case.path or None,
    )


def read_baseline(path: Path) -> Baseline | None:
    """Return the baseline in a file; None if there is no file.

    Raises:
        TaskError: The file is no baseline.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.convert(decode(data), Baseline)
    except (NotJson, msgspec.ValidationError) as error:
        raise TaskError(f"{path}: it is no baseline: {error}") from error


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial.write_text(baseline.serialise(), encoding="utf-8")
    partial.replace(path)
