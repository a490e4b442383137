"""What a suite or a gate says, as text, Markdown, JSON and JUnit XML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from xml.etree import ElementTree

import msgspec

from agentloop.evals.gate import Finding, GateReport, Severity
from agentloop.evals.grades import Grade
from agentloop.evals.running import CaseResult, SuiteResult

__all__ = (
    "bar",
    "finding_line",
    "gate_json",
    "html_page",
    "junit_xml",
    "markdown",
    "suite_json",
    "text_report",
)

#: What XML cannot hold, whatever is done to it.
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
        yield f"  {_mark(case):<6} {bar(case.score, 10)} {case.score:.3f}  {case.case_id}"
        if case.error is not None:
            yield f"         error: {case.error}"
        yield from (f"         ✗ {grade.grader_id}: {grade.reason}" for grade in _failing(case))
    yield f"  score  {bar(result.score, 24)} {result.score:.3f}"
    if result.critical_failures:
        yield f"  critical failures: {', '.join(result.critical_failures)}"


def _mark(case: CaseResult) -> str:
    if case.passed:
        return "PASS"
    return "FAIL*" if case.critical else "FAIL"


def _failing(case: CaseResult) -> list[Grade]:
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
    yield from (f"- {_cell(grade.grader_id)}: {_cell(grade.reason)}" for grade in _failing(case))
    yield from ("", "</details>")


def _cell(text: str) -> str:
    """Return the text as one line that ends no cell and is no markup."""
    line = " ".join(text.split())
    return re.sub(r"[|`*_<>\[\]\\]", lambda found: f"&#{ord(found[0])};", line)


# ------------------------------------------------------------------------- for other programs


def _json(data: Any) -> str:
    return json.dumps(msgspec.to_builtins(data), indent=2, ensure_ascii=False) + "\n"


def suite_json(result: SuiteResult) -> str:
    """Return a result as JSON."""
    return _json(result)


def gate_json(report: GateReport) -> str:
    """Return what the gate says as JSON: ``{ok, findings, result}``."""
    return _json({"ok": report.ok, "findings": report.findings, "result": report.result})


def junit_xml(result: SuiteResult, findings: Sequence[Finding] = ()) -> str:
    """Return the result as a CI server reads tests: a suite, its cases, what failed and why.

    Args:
        result: What came out.
        findings: Of the gate; its errors fail the cases they are about, or one case of their own.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    known = {case.case_id for case in result.cases}
    elsewhere = [one for one in errors if one.case_id not in known]
    suite = ElementTree.Element("testsuite", name=_xml(result.suite_id))
    for case in result.cases:
        _test(suite, case, [one for one in errors if one.case_id == case.case_id])
    for one in elsewhere:
        test = ElementTree.SubElement(suite, "testcase", classname=_xml(result.suite_id), name=one.kind)
        ElementTree.SubElement(test, "failure", type=one.kind, message=_xml(finding_line(one)))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        suite.set(name, str(len([*suite.iter(tag)])))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _test(suite: ElementTree.Element, case: CaseResult, errors: Sequence[Finding]) -> None:
    classname = _xml(suite.get("name", ""))
    test = ElementTree.SubElement(suite, "testcase", classname=classname, name=_xml(case.case_id))
    if case.error is not None:
        ElementTree.SubElement(test, "error", message=_xml(case.error))
        return
    told = [f"✗ {grade.grader_id}: {grade.reason}" for grade in _failing(case)]
    told += [finding_line(finding) for finding in errors]
    if told:
        failure = ElementTree.SubElement(test, "failure", message=_xml(told[0]))
        failure.text = _xml("\n".join(told))


_STYLE: Final = (
    "body{font:15px system-ui;margin:2em;max-width:70em}td,th{padding:.2em .8em;text-align:left}"
    ".failed{color:#b00020}.passed{color:#1b6e2d}meter{width:8em}"
)


def html_page(report: GateReport) -> str:
    """Return the report as one page that needs nothing else: no script, no font, no network."""
    page = ElementTree.Element("html", lang="en")
    head, body = ElementTree.SubElement(page, "head"), ElementTree.SubElement(page, "body")
    ElementTree.SubElement(head, "meta", charset="utf-8")
    result, word = report.result, "passed" if report.ok else "failed"
    _put(head, "title", f"Eval gate — {word}")
    _put(head, "style", _STYLE)
    _put(body, "h1", f"Eval gate — {word}", word)
    _put(
        body,
        "p",
        f"{result.suite_id}: {result.passed} passed, {result.failed} failed, score {result.score:.3f}",
    )
    findings = ElementTree.SubElement(body, "ul")
    for finding in report.findings:
        _put(findings, "li", finding_line(finding), "failed" if finding.severity == "error" else "")
    table = ElementTree.SubElement(body, "table")
    for case in result.cases:
        row = ElementTree.SubElement(table, "tr")
        _put(row, "td", _mark(case), "passed" if case.passed else "failed")
        ElementTree.SubElement(ElementTree.SubElement(row, "td"), "meter", value=f"{case.score:.3f}")
        _put(row, "td", f"{case.score:.3f}")
        _put(row, "td", case.case_id)
        told = [f"{grade.grader_id}: {grade.reason}" for grade in _failing(case)]
        _put(row, "td", "; ".join([case.error] if case.error else told))
    return "<!doctype html>\n" + ElementTree.tostring(page, encoding="unicode", method="html") + "\n"


def _put(parent: ElementTree.Element, tag: str, text: str, css: str = "") -> None:
    attributes = {"class": css} if css else {}
    ElementTree.SubElement(parent, tag, attributes).text = _xml(text)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
