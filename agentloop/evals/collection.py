"""Eval cases as items of pytest. See `plugin`, which registers this once a suite is named."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import anyio
import pytest

from agentloop.errors import AgentLoopError
from agentloop.evals.baseline import Baseline, read_baseline
from agentloop.evals.cases import EvalCase
from agentloop.evals.files import load_case
from agentloop.evals.gate import Finding, gate
from agentloop.evals.reports import failing, finding_line
from agentloop.evals.running import CaseResult, SuiteResult, run_case
from agentloop.evals.suites import load_suite, suite_file

__all__ = ("CaseCollection", "EvalWarning")


class EvalWarning(UserWarning):
    """A case passes, and the gate would warn: it went another way, or is not in the baseline."""


class CaseFailed(Exception):
    """A case did not pass, or the baseline expects more of it."""

    def __init__(self, suite_id: str, result: CaseResult, findings: Sequence[Finding]) -> None:
        super().__init__(result.case_id)
        self.suite_id, self.result, self.findings = suite_id, result, findings

    def report(self) -> str:
        """Return what a person wants to know, several lines."""
        case = self.result
        lines = [f"{case.case_id} of {self.suite_id}: score {case.score:.3f}, {case.outcome_status}"]
        if case.error is not None:
            lines.append(f"  error: {case.error}")
        lines += [f"  ✗ {grade.grader_id}: {grade.reason}" for grade in failing(case)]
        lines += [f"  {finding_line(finding)}" for finding in self.findings]
        if case.path:
            lines.append(f"  path: {case.path}")
        return "\n".join(lines)


class CaseCollection:
    """Collects the cases of suites.

    Args:
        suites: Python files, whose ending may be left out, and folders of case files.
        baseline: A file that says what is expected of the cases.

    Raises:
        pytest.UsageError: There is no such baseline, or it is none.
    """

    def __init__(self, suites: Iterable[Path], baseline: Path | None) -> None:
        self._suites = set(self.paths(suites))
        self.baseline: Baseline | None = None
        if baseline is not None:
            try:
                self.baseline = read_baseline(baseline)
            except AgentLoopError as error:
                raise pytest.UsageError(str(error)) from error
            if self.baseline is None:
                raise pytest.UsageError(f"there is no baseline {baseline}")

    @staticmethod
    def paths(suites: Iterable[Path]) -> list[Path]:
        """Return the suites as pytest writes their paths."""
        return [Path(os.path.abspath(suite_file(path))) for path in suites]

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        # A wrapper, because pytest takes any file that was typed for a module of tests.
        found = yield
        in_folder = file_path.suffix == ".json" and file_path.parent in self._suites
        if in_folder or file_path in self._suites:
            collector = CaseFileCollector.from_parent(parent, path=file_path)
            collector.baseline = self.baseline
            return [collector]
        return found


class CaseFileCollector(pytest.File):
    """A Python file with a suite, or the file of one case."""

    baseline: Baseline | None

    def collect(self) -> Iterable[CaseItem]:
        try:
            if self.path.suffix == ".json":
                suite_id, cases = self.path.parent.name, [load_case(self.path)]
            else:
                suite = load_suite(self.path)
                suite_id, cases = suite.id, [*suite.cases]
        except AgentLoopError as error:
            raise self.CollectError(str(error)) from error
        for case in cases:
            item = CaseItem.from_parent(self, name=case.id)
            item.case, item.suite_id, item.baseline = case, suite_id, self.baseline
            item.extra_keyword_matches.update(case.tags)
            yield item


class CaseItem(pytest.Item):
    """One case. Its tags can be selected with ``-k``."""

    case: EvalCase
    suite_id: str
    baseline: Baseline | None

    def runtest(self) -> None:
        """Run the case and compare it with the baseline, if there is one."""
        result = anyio.run(run_case, self.case)
        findings = self._findings(result)
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors or not result.passed:
            raise CaseFailed(self.suite_id, result, findings)
        for finding in findings:
            if finding.severity == "warning":
                self.warn(EvalWarning(finding_line(finding)))

    def _findings(self, result: CaseResult) -> list[Finding]:
        """Return what the gate says of this case; the rest is for who sees the whole suite."""
        if self.baseline is None:
            return []
        report = gate(SuiteResult.of(self.suite_id, [result]), self.baseline)
        return [
            one for one in report.findings if one.case_id == result.case_id or one.kind == "suite-mismatch"
        ]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """Return the report of a failure."""
        if isinstance(excinfo.value, CaseFailed):
            return excinfo.value.report()
        if isinstance(excinfo.value, EvalWarning):  # where warnings are errors
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the case is, as pytest heads its failures."""
        return self.path, 0, f"eval case {self.name}"
