"""The gate: each kind of regression closes it, each harmless change does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.errors import AgentLoopConfigError, TaskError
from agentloop.evals.baseline import (
    Baseline,
    empty_baseline,
    read_baseline,
    rounded,
    to_baseline,
    write_baseline,
)
from agentloop.evals.cases import EvalSuite
from agentloop.evals.gate import FindingKind, GateReport, gate
from agentloop.evals.graders import calls_tools, ends_as
from agentloop.evals.grades import Grade, grader
from agentloop.evals.running import CaseResult, SuiteResult, run_case, run_suite
from agentloop.tools import Tool
from tests.agentloop.evals.cases import case, gives, result, suite_result


def kinds(report: GateReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def against(before: CaseResult, now: CaseResult, *, strict: bool = False, tolerance: float = 0) -> GateReport:
    return gate(
        suite_result(now), to_baseline(suite_result(before), tolerance=tolerance), strict_trajectory=strict
    )


def test_v158_an_unchanged_suite_has_no_findings() -> None:
    whole = suite_result(result("a"), result("b", 0.5), result("c", 0, critical=False))
    report = gate(whole, to_baseline(whole))
    assert (report.ok, report.findings) == (True, ())


def test_v159_a_score_that_fell_is_a_regression() -> None:
    report = against(result(), result(score=0.8))
    assert not report.ok
    assert kinds(report) == ["regression", "aggregate-regression"]
    assert "1.000 → 0.800" in report.findings[0].message


def test_v160_within_the_tolerance_nothing_happened() -> None:
    report = against(result(), result(score=0.95, passed=True), tolerance=0.1)
    assert (report.ok, report.findings) == (True, ())


def test_v161_a_critical_case_may_not_fail_even_as_it_did_before() -> None:
    failing = result(score=0.5, critical=True)
    report = against(failing, failing)
    assert (report.ok, kinds(report)) == (False, ["critical-failure"])


def test_v162_a_case_that_was_not_run() -> None:
    report = gate(suite_result(result("a")), to_baseline(suite_result(result("a"), result("b"))))
    assert (report.ok, kinds(report)) == (False, ["missing-case"])
    assert report.findings[0].case_id == "b"


def test_v163_the_mean_has_a_tolerance_of_its_own() -> None:
    before = suite_result(result("a"), result("b"))
    now = suite_result(result("a", 0.9, True), result("b", 0.9, True))
    tight = gate(now, to_baseline(before, tolerance=0.15, aggregate_tolerance=0.05))
    assert (tight.ok, kinds(tight)) == (False, ["aggregate-regression"])
    loose = gate(now, to_baseline(before, tolerance=0.15, aggregate_tolerance=0.15))
    assert (loose.ok, loose.findings) == (True, ())
    absent = msgspec.structs.replace(to_baseline(before, tolerance=0.05), aggregate_tolerance=None)
    assert kinds(gate(now, absent)) == ["regression", "regression", "aggregate-regression"]


@pytest.mark.parametrize("score", [1, 0.5])
def test_v164_a_new_case_never_closes_the_gate(score: float) -> None:
    report = gate(suite_result(result("a"), result("b", score)), to_baseline(suite_result(result("a"))))
    assert (report.ok, kinds(report)) == (True, ["new-case"])


def test_v165_unless_it_is_critical_and_fails() -> None:
    report = gate(suite_result(result(score=0, critical=True)), empty_baseline("suite"))
    assert (report.ok, kinds(report)) == (False, ["new-case", "critical-failure"])


def test_v166_another_way_is_a_warning_or_an_error() -> None:
    before, now = result(fingerprint="00000001"), result(fingerprint="00000002")
    assert against(before, now).ok
    assert kinds(against(before, now)) == ["trajectory-drift"]
    strict = against(before, now, strict=True)
    assert (strict.ok, kinds(strict)) == (False, ["trajectory-drift"])


def test_w45_the_same_way_with_another_end_is_a_drift_too() -> None:
    before, now = result(fingerprint2="1" * 16), result(fingerprint2="2" * 16)
    assert kinds(against(before, now)) == ["trajectory-drift"]
    older = to_baseline(suite_result(result(fingerprint2="")))
    assert gate(suite_result(now), older).findings == ()


def test_v167_sums_of_floats_are_no_change() -> None:
    assert against(result(score=0.3), result(score=0.1 + 0.2)).findings == ()
    assert against(result(score=0.1 + 0.2), result(score=0.3)).findings == ()


@pytest.mark.parametrize("score", [2 / 3, 1 / 3, 1 / 7, 5 / 11])
def test_v168_w38_a_score_is_compared_as_it_is_kept(score: float) -> None:
    report = against(result(score=score), result(score=score))
    assert (report.ok, report.findings) == (True, ())


def test_v169_a_case_that_passed_and_fails_at_the_same_score() -> None:
    report = against(result(score=0.9, passed=True), result(score=0.9, passed=False))
    assert (report.ok, kinds(report)) == (False, ["newly-failing"])


def test_v171_a_baseline_is_sorted_and_rounded() -> None:
    baseline = to_baseline(suite_result(result("b", 1 / 3), result("a")), tolerance=0.1)
    assert list(baseline.cases) == ["a", "b"]
    assert baseline.cases["b"].score == 0.333333
    assert (baseline.tolerance, baseline.aggregate_tolerance) == (0.1, 0.1)
    assert baseline.serialise().startswith('{\n  "version": 1,\n  "suiteId": "suite",\n  "tolerance": 0.1,\n')
    assert baseline.serialise().endswith("}\n")
    assert rounded(0.0000005) == 0.000001


def test_w39_a_case_that_is_not_critical_any_more() -> None:
    report = against(result(critical=True), result(critical=False))
    assert (report.ok, kinds(report)) == (False, ["criticality-removed"])
    failing = against(result(critical=True), result(score=1, passed=False))
    assert "critical-failure" in kinds(failing)


def test_w39_a_baseline_of_something_else() -> None:
    baseline = to_baseline(suite_result(result()))
    other = gate(suite_result(result(), id="other"), baseline)
    assert (other.ok, kinds(other)) == (False, ["suite-mismatch"])
    newer = gate(suite_result(result()), msgspec.structs.replace(baseline, version=2))
    assert (newer.ok, kinds(newer)) == (False, ["suite-mismatch"])


def test_w44_a_case_that_is_not_the_same_twice() -> None:
    report = against(result(), result(deterministic=False))
    assert (report.ok, kinds(report)) == (False, ["nondeterministic"])
    new = gate(suite_result(result(deterministic=False)), empty_baseline("suite"))
    assert kinds(new) == ["new-case", "nondeterministic"]
    assert against(result(), result(deterministic=True)).findings == ()


def test_a_grader_that_had_to_be_waited_for_closes_the_gate() -> None:
    judge = Grade(grader_id="judge", score=1, passed=True, reason="good", awaited=True)
    report = against(result(), result(grades=(judge,)))
    assert (report.ok, kinds(report)) == (False, ["asynchronous-grader"])
    assert "judge had to be waited for" in report.findings[0].message
    new = gate(suite_result(result(grades=(judge,))), empty_baseline("suite"))
    assert (new.ok, kinds(new)) == (False, ["new-case", "asynchronous-grader"])


@pytest.mark.anyio
async def test_it_is_told_of_any_function_that_gives_something_to_wait_for() -> None:
    async def answer(run: object) -> Grade:
        return Grade(score=1, passed=True, reason="good")

    plain, hidden = grader("judge", answer), grader("judge", lambda run: answer(run))
    assert (plain.asynchronous, hidden.asynchronous, gives(1).asynchronous) == (True, False, False)
    found = await run_case(case("one", plain, hidden, gives(1)))
    assert [grade.awaited for grade in found.grades] == [True, True, False]


def test_a_score_that_rose_is_told_and_harmless() -> None:
    report = against(result(score=0.5), result())
    assert (report.ok, kinds(report)) == (True, ["improvement"])


@pytest.mark.anyio
async def test_deliberate_regressions_of_a_real_suite_are_caught() -> None:
    ask, answer = {"say": "", "callTools": [{"name": "search", "args": {}}]}, {"say": "the answer"}

    def search() -> list[Any]:
        async def found() -> str:
            return "found"

        return [Tool(name="search", handler=found)]

    def suite(id: str = "s", extra: Any = (), **change: Any) -> EvalSuite:
        graders = (ends_as("completed"), calls_tools(["search"], "exact"))
        base: dict[str, Any] = {"script": [ask, answer], "tools": search, "critical": True}
        bare = case("plain", ends_as("completed"))
        return EvalSuite(id=id, cases=[case("tool", *graders, **(base | change)), bare, *extra])

    baseline = to_baseline(await run_suite(suite()))

    async def found(*, strict: bool = False, **change: Any) -> tuple[bool, set[str]]:
        report = gate(await run_suite(suite(**change)), baseline, strict_trajectory=strict)
        return report.ok, set(kinds(report))

    assert await found() == (True, set())
    # Harmless: other words, other arguments' order, a new case that passes, a new name of a tag.
    assert await found(script=[ask, {"say": "another answer"}]) == (True, set())
    assert await found(tags=["new"], description="told anew") == (True, set())
    assert await found(extra=[case("new", gives(0.5))]) == (True, {"new-case"})
    # One regression of each kind.
    assert await found(script=[answer]) == (False, {"critical-failure", "regression", "aggregate-regression"})
    assert await found(script=[ask, ask, answer]) == (
        False,
        {"critical-failure", "regression", "aggregate-regression"},
    )
    assert await found(critical=False) == (False, {"criticality-removed"})
    assert await found(script=[ask, {"say": " "}, answer]) == (True, {"trajectory-drift"})
    assert await found(strict=True, script=[ask, {"say": " "}, answer]) == (False, {"trajectory-drift"})
    assert await found(tools=tuple) == (True, {"trajectory-drift"})  # the tool is unknown now
    assert await found(id="other") == (False, {"suite-mismatch"})
    shrunk = EvalSuite(id="s", cases=suite().cases[:1])
    assert set(kinds(gate(await run_suite(shrunk), baseline))) == {"missing-case"}
    broken = await found(config={"budget": {"maxSteps": 0}})
    assert not broken[0]
    assert "critical-failure" in broken[1]


# ------------------------------------------------------------------------------ properties

SCORES = st.floats(0, 1)
CASES = st.builds(
    result,
    score=SCORES,
    passed=st.booleans(),
    critical=st.booleans(),
    weight=st.sampled_from([0, 1, 3]),
    fingerprint=st.sampled_from(["a", "b"]),
)


@st.composite
def suites(draw: st.DrawFn, prefix: str = "c") -> SuiteResult:
    drawn = draw(st.lists(CASES, max_size=6))
    return suite_result(
        *(msgspec.structs.replace(case, case_id=f"{prefix}{n}") for n, case in enumerate(drawn))
    )


@given(suites(), st.booleans())
def test_property_10_a_result_against_itself_has_only_failing_critical_cases(
    whole: SuiteResult, strict: bool
) -> None:
    report = gate(whole, to_baseline(whole), strict_trajectory=strict)
    assert set(kinds(report)) <= {"critical-failure"}
    assert {finding.case_id for finding in report.findings} == set(whole.critical_failures)


@given(suites(), st.data(), st.floats(0, 0.5))
def test_property_10_a_score_that_falls_by_more_than_the_tolerance_is_an_error(
    whole: SuiteResult, data: st.DataObject, tolerance: float
) -> None:
    low = [n for n, case in enumerate(whole.cases) if case.score > tolerance + 1e-5]
    if not low:
        return
    place = data.draw(st.sampled_from(low))
    score = data.draw(st.floats(0, whole.cases[place].score - tolerance - 1e-5))
    cases = [*whole.cases]
    cases[place] = msgspec.structs.replace(cases[place], score=score)
    report = gate(suite_result(*cases), to_baseline(whole, tolerance=tolerance))
    assert not report.ok
    assert cases[place].case_id in {f.case_id for f in report.findings if f.kind == "regression"}


@given(suites(), suites("new"))
def test_property_10_more_cases_are_an_error_only_if_critical_and_failing(
    old: SuiteResult, new: SuiteResult
) -> None:
    before = gate(old, to_baseline(old))
    after = gate(suite_result(*old.cases, *new.cases), to_baseline(old))
    added = [f for f in after.of("error") if f not in before.of("error")]
    assert [f.case_id for f in added] == [c.case_id for c in new.cases if c.critical and not c.passed]


# ----------------------------------------------------------------------------------- files


@given(suites(), st.floats(0, 1), st.none() | st.floats(0, 1))
def test_a_baseline_is_read_as_it_was_written(whole: SuiteResult, one: float, all: float | None) -> None:
    baseline = to_baseline(
        whole, tolerance=one, aggregate_tolerance=all, recorded_on="release/1", forced=True
    )
    assert msgspec.json.decode(baseline.serialise(), type=Baseline) == baseline


def test_a_baseline_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "baseline.json"
    assert read_baseline(path) is None
    baseline = to_baseline(suite_result(result()))
    write_baseline(path, baseline)
    assert read_baseline(path) == baseline
    assert [file.name for file in path.parent.iterdir()] == ["baseline.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"a": 1, "a": 2}'])
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(TaskError, match="no baseline"):
        read_baseline(path)
    assert path.read_text() == text


@pytest.mark.parametrize("tolerance", [float("nan"), float("inf"), -0.1])
def test_w42_a_tolerance_that_cannot_be(tolerance: float) -> None:
    with pytest.raises(AgentLoopConfigError, match="tolerance"):
        to_baseline(suite_result(result()), tolerance=tolerance)
    with pytest.raises(AgentLoopConfigError, match="aggregateTolerance"):
        to_baseline(suite_result(result()), aggregate_tolerance=tolerance)


def test_every_kind_of_finding_is_tested_above() -> None:
    text = Path(__file__).read_text("utf-8")
    assert [kind for kind in get_args(FindingKind) if f'"{kind}"' not in text] == []
