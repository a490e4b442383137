"""What a suite or a gate says, as JUnit XML for CI servers and as a page for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from agentloop.evals.baseline import Baseline
from agentloop.evals.gate import Finding, GateReport
from agentloop.evals.reports import failing, finding_line, mark
from agentloop.evals.running import CaseResult, SuiteResult

__all__ = ("html_page", "junit_xml")

#: What XML cannot hold, and what would turn the text around it to run from right to left.
_NOT_XML: Final = re.compile(
    "[^\t\n\r\u0020-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


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
    told = [f"✗ {grade.grader_id}: {grade.reason}" for grade in failing(case)]
    told += [finding_line(finding) for finding in errors]
    if told:
        failure = ElementTree.SubElement(test, "failure", message=_xml(told[0]))
        failure.text = _xml("\n".join(told))


_STYLE: Final = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#1a1a1a}"
    "table{border-collapse:collapse;width:100%}th{border-bottom:2px solid #999}"
    "td,th{padding:.25em .7em;text-align:left;vertical-align:top}tr+tr td{border-top:1px solid #ddd}"
    "td,li,p,h1{overflow-wrap:anywhere;white-space:pre-wrap}td.plain{white-space:nowrap}"
    ".failed{color:#b00020}.passed{color:#1b6e2d}.why{font-size:.9em}meter{width:7em}"
)
#: The page runs nothing and loads nothing, whatever should get into it.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_COLUMNS: Final = ("", "case", "score", "", "baseline", "steps", "tools", "tokens", "what failed")


def html_page(report: GateReport) -> str:
    """Return the report as one page that needs nothing else: no script, no font, no network."""
    page = ElementTree.Element("html", lang="en")
    head, body = ElementTree.SubElement(page, "head"), ElementTree.SubElement(page, "body")
    ElementTree.SubElement(head, "meta", charset="utf-8")
    ElementTree.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY})
    result, word = report.result, "passed" if report.ok else "failed"
    _put(head, "title", f"Eval gate — {word}")
    _put(head, "style", _STYLE)
    _put(body, "h1", f"Eval gate — {word}", word)
    counts = f"{result.passed} passed, {result.failed} failed, score {result.score:.3f}"
    _put(body, "p", f"{result.suite_id}: {counts} (baseline {report.baseline.aggregate.score:.3f})")
    findings = ElementTree.SubElement(body, "ul")
    for finding in report.findings:
        _put(findings, "li", finding_line(finding), "failed" if finding.severity == "error" else "")
    table = ElementTree.SubElement(body, "table")
    heads = ElementTree.SubElement(table, "tr")
    for column in _COLUMNS:
        _put(heads, "th", column)
    for case in result.cases:
        _case_row(ElementTree.SubElement(table, "tr"), case, report.baseline)
    return "<!doctype html>\n" + ElementTree.tostring(page, encoding="unicode", method="html") + "\n"


def _case_row(row: ElementTree.Element, case: CaseResult, baseline: Baseline) -> None:
    recorded = baseline.cases.get(case.case_id)
    _put(row, "td", mark(case), "plain passed" if case.passed else "plain failed")
    _put(row, "td", case.case_id)
    _put(row, "td", f"{case.score:.3f}", "plain")
    ElementTree.SubElement(ElementTree.SubElement(row, "td"), "meter", value=f"{case.score:.3f}")
    _put(row, "td", "new" if recorded is None else f"{recorded.score:.3f}", "plain")
    for counted in (case.usage.model_calls, case.usage.tool_calls, case.usage.total_tokens):
        _put(row, "td", str(counted), "plain")
    told = [f"{grade.grader_id}: {grade.reason}" for grade in failing(case)]
    _put(row, "td", "\n".join([case.error] if case.error else told), "why")


def _put(parent: ElementTree.Element, tag: str, text: str, css: str = "") -> None:
    attributes = {"class": css} if css else {}
    ElementTree.SubElement(parent, tag, attributes).text = _xml(text)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
