"""What a suite or a gate says, as text, Markdown and JSON. As XML and HTML it is in `pages`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agentloop.evals.gate import Finding, GateReport, Severity
from agentloop.evals.grades import Grade
from agentloop.evals.running import CaseResult, SuiteResult

if TYPE_CHECKING:
    from agentloop.evals.live import Interval, LiveResult, LiveRun

__all__ = (
    "bar",
    "failing",
    "finding_line",
    "gate_json",
    "live_report",
    "mark",
    "markdown",
    "suite_json",
    "text_report",
)


def bar(score: float, width: int) -> str:
    """Return a bar of that many cells; a score outside 0..1 is an empty or a full one."""
    filled = math.floor(min(1.0, max(0.0, score)) * width + 0.5)
    return "█" * filled + "░" * (width - filled)


# ------------------------------------------------------------------------------------- text


def text_report(result: SuiteResult) -> str:
    """Return the report for a terminal, several lines."""
    return "\n".join(_lines(result))


def _lines(result: SuiteResult) -> Iterator[str]:
    yield ""
    yield f"{result.suite_id} — {result.passed} passed, {result.failed} failed"
    for case in result.cases:
        yield f"  {mark(case):<6} {bar(case.score, 10)} {case.score:.3f}  {case.case_id}"
        if case.error is not None:
            yield f"         error: {case.error}"
        yield from (f"         ✗ {grade.grader_id}: {grade.reason}" for grade in failing(case))
    yield f"  score  {bar(result.score, 24)} {result.score:.3f}"
    if result.critical_failures:
        yield f"  critical failures: {', '.join(result.critical_failures)}"


def live_report(result: LiveResult) -> str:
    """Return the report of a live suite for a terminal, several lines."""
    lines = ["", f"{result.suite_id} — live, {result.total_tokens} tokens"]
    for case in result.cases:
        skipped = f", {case.skipped} not begun" if case.skipped else ""
        passed = f"{case.passed} of {len(case.runs)} passed{skipped}"
        lines.append(f"  {_interval(case.score)}  {case.case_id}: {passed}")
        for one in case.runs:
            told = (
                [f"error: {one.error}"]
                if one.error
                else [f"✗ {g.grader_id}: {g.reason}" for g in failing(one)]
            )
            lines += [f"         {one.seed}: {line}" for line in told]
    lines.append(f"  {_interval(result.score)}  of all cases; 95 % of draws lie between")
    return "\n".join(lines)


def _interval(score: Interval | None) -> str:
    return "—" if score is None else f"{score.mean:.3f} ({score.low:.3f} to {score.high:.3f})"


def mark(case: CaseResult) -> str:
    """Return the word for how a case came out; ``FAIL*`` is a critical one."""
    if case.passed:
        return "PASS"
    return "FAIL*" if case.critical else "FAIL"


def failing(case: CaseResult | LiveRun) -> list[Grade]:
    """Return the grades that are not acceptable."""
    return [grade for grade in case.grades if not grade.passed]


def finding_line(finding: Finding) -> str:
    """Return a finding in one line."""
    where = "" if finding.case_id is None else f" {finding.case_id}:"
    return f"{finding.severity} {finding.kind}:{where} {finding.message}"


# --------------------------------------------------------------------------------- Markdown

_HEADINGS: Final[Sequence[tuple[Severity, str]]] = (
    ("error", "Errors"),
    ("warning", "Warnings"),
    ("info", "Improvements"),
)
_REMARK: Final = (
    "The baseline moves on release branches only. If a change moves scores on purpose, say so there; "
    "do not re-record to go green."
)


def markdown(report: GateReport) -> str:
    """Return the report for a pull request. Its first words never change, so that it is found again."""
    return "\n".join(_sections(report)) + "\n"


def _sections(report: GateReport) -> Iterator[str]:
    result, baseline = report.result, report.baseline
    yield f"## Eval gate — {'passed' if report.ok else 'failed'}"
    yield ""
    yield (
        f"**{_cell(result.suite_id)}**: {result.passed} passed, {result.failed} failed, "
        f"score {result.score:.3f} (baseline {baseline.aggregate.score:.3f})"
    )
    for severity, heading in _HEADINGS:
        if found := report.of(severity):
            yield from ("", f"### {heading}", "")
            yield from (f"- **{one.kind}** {_cell(one.case_id or '')} {_cell(one.message)}" for one in found)
    yield from ("", "| | case | score | baseline | delta | steps | tools | tokens |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    yield from (_row(case, report) for case in result.cases)
    for case in result.cases:
        if not case.passed:
            yield from _details(case)
    yield from ("", f"_{_REMARK}_")


def _row(case: CaseResult, report: GateReport) -> str:
    recorded = report.baseline.cases.get(case.case_id)
    if recorded is None:
        before, delta = "—", "new"
    else:
        change = case.score - recorded.score
        before, delta = f"{recorded.score:.3f}", "·" if f"{change:.3f}" in _ZERO else f"{change:+.3f}"
    usage = case.usage
    cells = (
        "✅" if case.passed else "❌",
        _cell(case.case_id) + (" ⚠️" if case.critical else ""),
        f"{case.score:.3f}",
        before,
        delta,
        usage.model_calls,
        usage.tool_calls,
        usage.total_tokens,
    )
    return f"| {' | '.join(map(str, cells))} |"


_ZERO: Final = ("0.000", "-0.000")


def _details(case: CaseResult) -> Iterator[str]:
    yield from ("", f"<details><summary>{_cell(case.case_id)}</summary>", "")
    if case.error is not None:
        yield f"- error: {_cell(case.error)}"
    yield from (f"- {_cell(grade.grader_id)}: {_cell(grade.reason)}" for grade in failing(case))
    yield from ("", "</details>")


def _cell(text: str) -> str:
    """Return the text as one line that ends no cell and is no markup."""
    line = " ".join(text.split())
    return re.sub(r"[|`*_<>\[\]\\]", lambda found: f"&#{ord(found[0])};", line)


# ------------------------------------------------------------------------- for other programs


def _json(data: Any) -> str:
    return json.dumps(msgspec.to_builtins(data), indent=2, ensure_ascii=False) + "\n"


def suite_json(result: SuiteResult | LiveResult) -> str:
    """Return a result as JSON."""
    return _json(result)


def gate_json(report: GateReport) -> str:
    """Return what the gate says as JSON: ``{ok, findings, result}``."""
    return _json({"ok": report.ok, "findings": report.findings, "result": report.result})
