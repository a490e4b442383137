"""Reports: bars, marks, deltas, and text that must not break out of its place."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.evals.baseline import empty_baseline, to_baseline
from agentloop.evals.gate import gate
from agentloop.evals.grades import Grade
from agentloop.evals.pages import html_page, junit_xml
from agentloop.evals.reports import bar, gate_json, markdown, suite_json, text_report
from agentloop.orchestrator.state import Usage
from tests.agentloop.evals.cases import result, suite_result

BAD = (Grade(grader_id="ends-as:completed", score=0, passed=False, reason="ended as failed"),)


@pytest.mark.parametrize(
    ("score", "width", "filled"),
    [(0.4, 10, 4), (0.75, 24, 18), (0.95, 10, 10), (0, 10, 0), (1, 10, 10), (1.7, 10, 10), (-1, 10, 0)],
)
def test_v173_a_bar_has_its_cells(score: float, width: int, filled: int) -> None:
    assert bar(score, width) == "█" * filled + "░" * (width - filled)


def test_v173_the_text_marks_critical_failures_and_says_why() -> None:
    whole = suite_result(
        result("good"), result("bad", 0, critical=True, grades=BAD), result("worse", 0, error="E")
    )
    lines = text_report(whole).split("\n")
    assert lines[:3] == ["", "suite — 1 passed, 2 failed", f"  PASS   {'█' * 10} 1.000  good"]
    assert lines[3] == f"  FAIL*  {'░' * 10} 0.000  bad"
    assert lines[4].strip() == "✗ ends-as:completed: ended as failed"
    assert lines[6].strip() == "error: E"
    assert lines[7] == f"  score  {'█' * 8}{'░' * 16} 0.333"
    assert lines[8] == "  critical failures: bad"


def test_v173_markdown_has_deltas_counters_and_the_remark() -> None:
    before = suite_result(result("fell"), result("same", 0.5), result("rose", 0.5))
    usage = Usage(model_calls=3, tool_calls=2, total_tokens=99)
    now = suite_result(
        result("fell", 0.4, grades=BAD, usage=usage), result("same", 0.5), result("rose"), result("new")
    )
    text = markdown(gate(now, to_baseline(before)))
    assert text.startswith("## Eval gate — failed\n")
    assert "| ❌ | fell | 0.400 | 1.000 | -0.600 | 3 | 2 | 99 |" in text
    assert "| same | 0.500 | 0.500 | · |" in text
    assert "| rose | 1.000 | 0.500 | +0.500 |" in text
    assert "| new | 1.000 | — | new |" in text
    for heading in ("### Errors", "### Warnings", "### Improvements"):
        assert heading in text
    assert "do not re-record to go green" in text
    assert "ends-as:completed: ended as failed" in text


def test_markdown_of_what_passes_has_no_empty_sections() -> None:
    whole = suite_result(result("a", critical=True))
    text = markdown(gate(whole, to_baseline(whole)))
    assert text.startswith("## Eval gate — passed\n")
    assert "###" not in text
    assert "| a ⚠️ |" in text


def test_json_is_what_the_gate_says() -> None:
    whole = suite_result(result("a", 0))
    told = json.loads(gate_json(gate(whole, empty_baseline("suite"))))
    assert set(told) == {"ok", "findings", "result"}
    assert told["findings"][0]["caseId"] == "a"
    assert json.loads(suite_json(whole))["cases"][0]["outcomeStatus"] == "completed"


def test_junit_counts_failures_errors_and_findings() -> None:
    before = suite_result(result("drop"), result("gone"), result("bad"))
    now = suite_result(
        result("good"), result("drop", 0.5, True), result("bad", 0, grades=BAD), result("no", 0, error="E")
    )
    report = gate(now, to_baseline(before))
    root = ElementTree.fromstring(junit_xml(now, report.findings))
    # Two findings are about no case that was run: the missing case, and the mean.
    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "6",
        "failures": "4",
        "errors": "1",
    }
    assert [case.get("name") for case in root if len(case) == 0] == ["good"]


@given(st.text(), st.text())
def test_no_text_breaks_out_of_its_place(name: str, reason: str) -> None:
    grade = Grade(grader_id=name, score=0, passed=False, reason=reason)
    whole = suite_result(result(name or "x", 0, grades=(grade,)))
    report = gate(whole, empty_baseline("suite"))
    root = ElementTree.fromstring(junit_xml(whole, report.findings))
    assert len(root) == 1
    (row,) = [line for line in markdown(report).split("\n") if line.startswith("| ❌")]
    assert row.count("|") == 9


def test_no_text_turns_the_text_around_it() -> None:
    whole = suite_result(result("\u202edesrever\u2066", 0))
    page = html_page(gate(whole, empty_baseline("suite")))
    assert not {*page} & {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
    assert "\ufffddesrever\ufffd" in page


class _Tags(HTMLParser):
    """Counts what a browser would take for elements."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags[tag] += 1


@given(st.text() | st.just("<script>x</script></td>"), st.text() | st.just("</table><img src=x>"))
def test_no_text_adds_an_element_to_the_page(name: str, reason: str) -> None:
    grade = Grade(grader_id=name, score=0, passed=False, reason=reason)
    whole = suite_result(result(name or "x", 0, grades=(grade,)), id=reason)
    page, parser = html_page(gate(whole, empty_baseline("suite"))), _Tags()
    parser.feed(page)
    assert page.startswith("<!doctype html>")
    assert parser.tags == {
        **dict.fromkeys(("html", "head", "body", "title", "style", "h1", "p", "ul", "table", "meter"), 1),
        "meta": 2,
        "li": 2,
        "tr": 2,
        "th": 9,
        "td": 9,
    }
