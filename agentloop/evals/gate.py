"""The gate: what came out against what was expected. A pure function, and a table of findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from agentloop.evals.baseline import BASELINE_VERSION, Baseline, BaselineCase, rounded
from agentloop.evals.grades import weighted_mean
from agentloop.evals.paths import word_diff
from agentloop.evals.running import CaseResult, SuiteResult

__all__ = ("Finding", "FindingKind", "GateReport", "Severity", "gate")

Severity: TypeAlias = Literal["error", "warning", "info"]
FindingKind: TypeAlias = Literal[
    "suite-mismatch",
    "missing-case",
    "critical-failure",
    "regression",
    "newly-failing",
    "improvement",
    "criticality-removed",
    "trajectory-drift",
    "nondeterministic",
    "asynchronous-grader",
    "new-case",
    "aggregate-regression",
]

#: What a sum of floats may be off by; scores are compared as they are kept, to six decimals.
EPSILON: Final = 1e-9


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One difference between what came out and what was expected."""

    kind: FindingKind
    #: Errors close the gate.
    severity: Severity
    case_id: str | None = None
    message: str


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says."""

    ok: bool
    findings: tuple[Finding, ...]
    result: SuiteResult
    baseline: Baseline

    def of(self, severity: Severity) -> list[Finding]:
        """Return the findings of that severity, in order."""
        return [finding for finding in self.findings if finding.severity == severity]


def gate(result: SuiteResult, baseline: Baseline, *, strict_trajectory: bool = False) -> GateReport:
    """Compare a result with its baseline.

    New cases never close the gate, unless they are critical and fail.

    Args:
        result: What came out.
        baseline: What was expected.
        strict_trajectory: A case that went another way is an error, not a warning.
    """
    current = {case.case_id: case for case in result.cases}
    findings = list(_suite(result, baseline))
    for name, recorded in baseline.cases.items():
        if name in current:
            findings += _known(current[name], recorded, baseline.tolerance, strict_trajectory)
        else:
            findings.append(_finding("missing-case", "error", name, "it was not run"))
    for case in result.cases:
        if case.case_id not in baseline.cases:
            findings += _new(case)
    findings += _aggregate(result, baseline)
    ok = all(finding.severity != "error" for finding in findings)
    return GateReport(ok=ok, findings=tuple(findings), result=result, baseline=baseline)


def _finding(kind: FindingKind, severity: Severity, case: str | None, message: str) -> Finding:
    return Finding(kind=kind, severity=severity, case_id=case, message=message)


def _suite(result: SuiteResult, baseline: Baseline) -> Iterator[Finding]:
    if baseline.version != BASELINE_VERSION:
        text = f"the baseline has version {baseline.version}, what is read here is {BASELINE_VERSION}"
        yield _finding("suite-mismatch", "error", None, text)
    if baseline.suite_id != result.suite_id:
        text = f"the baseline is of suite {baseline.suite_id!r}, what was run is {result.suite_id!r}"
        yield _finding("suite-mismatch", "error", None, text)


def _known(case: CaseResult, recorded: BaselineCase, tolerance: float, strict: bool) -> Iterator[Finding]:
    name, now, before = case.case_id, rounded(case.score), rounded(recorded.score)
    drop = before - now
    fell = drop > tolerance + EPSILON
    change = f"{before:.3f} → {now:.3f}"
    failing = (case.critical or recorded.critical) and not case.passed
    if failing:
        yield _finding("critical-failure", "error", name, f"a critical case fails ({change}){_why(case)}")
    if fell:
        yield _finding("regression", "error", name, f"its score fell: {change}{_why(case)}")
    elif recorded.passed and not case.passed and not failing:
        yield _finding("newly-failing", "error", name, f"it passed, and fails now ({change}){_why(case)}")
    if now > before + EPSILON:
        yield _finding("improvement", "info", name, f"its score rose: {change}")
    if recorded.critical and not case.critical:
        yield _finding("criticality-removed", "error", name, "it was critical, and is not any more")
    if not fell and (drift := _drift(case, recorded)):
        yield _finding("trajectory-drift", "error" if strict else "warning", name, drift)
    yield from _may_differ(case)


def _drift(case: CaseResult, recorded: BaselineCase) -> str | None:
    if case.fingerprint != recorded.fingerprint:
        text = f"it went another way: {recorded.fingerprint} → {case.fingerprint or 'none'}"
        if recorded.path and case.path:
            text += f": {word_diff(recorded.path.split(), case.path.split())}"
        return text
    if recorded.fingerprint2 is not None and case.fingerprint2 != recorded.fingerprint2:
        return f"its calls or its end came out otherwise: {recorded.fingerprint2} → {case.fingerprint2}"
    return None


def _new(case: CaseResult) -> Iterator[Finding]:
    yield _finding("new-case", "warning", case.case_id, f"it is not in the baseline ({case.score:.3f})")
    if case.critical and not case.passed:
        text = f"a critical case fails ({case.score:.3f}){_why(case)}"
        yield _finding("critical-failure", "error", case.case_id, text)
    yield from _may_differ(case)


def _may_differ(case: CaseResult) -> Iterator[Finding]:
    if case.deterministic is False:
        text = "a second run of it had another record"
        yield _finding("nondeterministic", "error", case.case_id, text)
    awaited = [grade.grader_id for grade in case.grades if grade.awaited]
    if awaited:
        text = f"{', '.join(awaited)} had to be waited for: a judge belongs in a live suite"
        yield _finding("asynchronous-grader", "error", case.case_id, text)


def _why(case: CaseResult) -> str:
    if case.error is not None:
        return f": {case.error}"
    failing = [f"{grade.grader_id}: {grade.reason}" for grade in case.grades if not grade.passed]
    return f": {'; '.join(failing)}" if failing else ""


def _aggregate(result: SuiteResult, baseline: Baseline) -> Iterator[Finding]:
    """Compare the means of the cases that are on both sides, with the weights they have now."""
    both = [case for case in result.cases if case.case_id in baseline.cases]
    now = weighted_mean([(rounded(case.score), case.weight) for case in both], empty=1)
    recorded = [(rounded(baseline.cases[case.case_id].score), case.weight) for case in both]
    before = weighted_mean(recorded, empty=1)
    given = baseline.aggregate_tolerance
    tolerance = baseline.tolerance if given is None else given
    if before - now > tolerance + EPSILON:
        text = f"the mean of {len(both)} cases fell: {before:.3f} → {now:.3f}, by more than {tolerance:g}"
        yield _finding("aggregate-regression", "error", None, text)
