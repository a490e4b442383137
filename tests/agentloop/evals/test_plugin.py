"""The pytest plugin: a case is a test, its failure can be read, and who does not use it pays nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import agentloop.evals.collection  # loaded before a run within this process, which would undo the import
from agentloop.evals import plugin
from agentloop.evals.baseline import Baseline, to_baseline, write_baseline
from agentloop.evals.files import CaseFile, GraderLine
from agentloop.evals.running import CaseResult, SuiteResult
from tests.agentloop.evals.cases import result, suite_result

pytest_plugins = ("pytester",)

SUITE = """
from agentloop import EvalCase, EvalSuite, Tool, calls_tools, ends_as, replays_exactly

async def search():
    return "found"

def case(id, wanted, *tools, **more):
    asks = [{"say": "", "callTools": [{"name": name, "args": {}}]} for name in tools]
    graders = [ends_as("completed"), calls_tools(wanted, "exact"), replays_exactly()]
    return EvalCase(
        id=id, goal="go", script=[*asks, {"say": "done"}], graders=graders,
        tools=lambda: [Tool(name="search", handler=search), Tool(name="look", handler=search)], **more
    )

suite = EvalSuite(id="mine", cases=[
    case("works", ["search"], "search", tags=["billing"]),
    case("strays", ["search", "search"], "search", "look"),
])
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests load the plugin themselves, whether or not the package is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def collected(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(
        *("-p", "agentloop.evals.plugin", "-W", "default", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
        *words,
    )


def write(pytester: pytest.Pytester, text: str = SUITE) -> Path:
    path = pytester.path / "evals" / "suite.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def expect(pytester: pytest.Pytester, *cases: CaseResult) -> None:
    write_baseline(pytester.path / "evals" / "baseline.json", to_baseline(suite_result(*cases, id="mine")))


def test_each_case_of_a_suite_is_a_test_beside_the_others(pytester: pytest.Pytester) -> None:
    write(pytester)
    pytester.makepyfile(test_other="def test_it(): pass")
    run = collected(pytester, "--agentloop-suite", "evals/suite", "-v")
    run.assert_outcomes(passed=2, failed=1)
    run.stdout.fnmatch_lines(["evals/suite.py::works PASSED*", "evals/suite.py::strays FAILED*"])


def test_a_failure_says_what_was_expected_and_which_way_it_went(pytester: pytest.Pytester) -> None:
    write(pytester)
    run = collected(pytester, "--agentloop-suite", "evals/suite.py")
    text = run.stdout.str()
    assert "strays of mine: score 0.667, completed" in text
    assert "✗ calls-tools:exact:search>search: called search > look: search [-search-] {+look+}" in text
    assert "path: init assemble model route tools observe assemble" in text
    assert "finalize done | search look" in text
    assert "Traceback" not in text


def test_suites_of_the_ini_file_are_chosen_as_tests_are(pytester: pytest.Pytester) -> None:
    write(pytester)
    pytester.makeini("[pytest]\nagentloop_suites = evals/suite.py\ntestpaths = tests")
    (pytester.path / "tests").mkdir()
    (pytester.path / "tests" / "test_other.py").write_text("def test_it(): pass")
    collected(pytester).assert_outcomes(passed=2, failed=1)
    collected(pytester, "tests").assert_outcomes(passed=1)
    collected(pytester, "evals").assert_outcomes(passed=1, failed=1)
    collected(pytester, "evals/suite.py::works").assert_outcomes(passed=1)
    collected(pytester, "-k", "billing").assert_outcomes(passed=1, deselected=2)


def test_every_case_file_of_a_folder_is_a_test(pytester: pytest.Pytester) -> None:
    folder = pytester.path / "cases"
    folder.mkdir()
    for name, status in (("good", "completed"), ("bad", "failed")):
        grader = GraderLine(grader="ends-as", args=(status,))
        case = CaseFile(version=1, id=name, goal="go", graders=(grader,), script=({"say": "done"},))
        (folder / f"{name}.json").write_text(case.serialise())
    (folder / "broken.json").write_text("{}")
    (pytester.path / "elsewhere.json").write_text("{}")
    run = collected(pytester, "--agentloop-suite", "cases")
    run.assert_outcomes(errors=1)
    run.stdout.fnmatch_lines(["*broken.json: it is no case*"])
    (folder / "broken.json").unlink()
    run = collected(pytester, "--agentloop-suite", "cases", "-v")
    run.assert_outcomes(passed=1, failed=1)
    run.stdout.fnmatch_lines(["cases/bad.json::bad FAILED*", "cases/good.json::good PASSED*"])


def test_a_baseline_fails_what_got_worse_and_warns_of_what_went_another_way(
    pytester: pytest.Pytester,
) -> None:
    write(
        pytester,
        SUITE.replace('"search", "search"], "search", "look"', '"search", "look"], "search", "look"'),
    )
    expect(
        pytester,
        result("works", path="init assemble model route finalize done"),
        result("strays", critical=True),
    )
    words = ("--agentloop-suite", "evals/suite.py", "--agentloop-baseline", "evals/baseline.json")
    run = collected(pytester, *words)
    run.assert_outcomes(passed=1, failed=1, warnings=1)
    text = run.stdout.str()
    assert "error criticality-removed: strays: it was critical" in text
    drift = "warning trajectory-drift: works: it went another way: 00000000 → b8979d4d: init {+assemble model"
    assert drift in text
    strict = collected(pytester, *words, "-W", "error::agentloop.evals.collection.EvalWarning")
    strict.assert_outcomes(failed=2)
    assert f"\n{drift}" in strict.stdout.str()


def test_a_baseline_of_another_suite_fails_every_case(pytester: pytest.Pytester) -> None:
    write(pytester)
    pytester.makeini("[pytest]\nagentloop_suites = evals/suite.py\nagentloop_baseline = evals/baseline.json")
    other: Baseline = to_baseline(SuiteResult.of("other", []))
    write_baseline(pytester.path / "evals" / "baseline.json", other)
    run = collected(pytester)
    run.assert_outcomes(failed=2)
    run.stdout.fnmatch_lines(["*error suite-mismatch: the baseline is of suite 'other'*"])


def test_suites_and_baselines_that_are_none_are_told_without_a_traceback(pytester: pytest.Pytester) -> None:
    write(pytester, "suite = 1")
    run = collected(pytester, "--agentloop-suite", "evals/suite.py")
    run.assert_outcomes(errors=1)
    run.stdout.fnmatch_lines(["*it has no EvalSuite called 'suite'*"])
    missing = collected(pytester, "--agentloop-suite", "evals/suite.py", "--agentloop-baseline", "none.json")
    assert missing.ret == pytest.ExitCode.USAGE_ERROR
    assert "there is no baseline" in missing.stderr.str()
    nowhere = collected(pytester, "--agentloop-suite", "nowhere.py")
    assert nowhere.ret == pytest.ExitCode.USAGE_ERROR


def test_a_case_that_cannot_be_run_fails_with_its_error(pytester: pytest.Pytester) -> None:
    write(pytester, SUITE.replace("lambda: [", "lambda: 1 / 0 or ["))
    run = collected(pytester, "--agentloop-suite", "evals/suite.py")
    run.assert_outcomes(failed=2)
    run.stdout.fnmatch_lines(["*error: ZeroDivisionError: division by zero"])


def test_without_a_suite_nothing_is_collected_or_registered(pytester: pytest.Pytester) -> None:
    write(pytester)
    pytester.makepyfile(
        """
        def test_it(pytestconfig):
            assert not pytestconfig.pluginmanager.has_plugin("agentloop-cases")
        """
    )
    collected(pytester).assert_outcomes(passed=1)


def test_a_pytest_that_does_not_use_it_imports_nothing_of_the_harness() -> None:
    code = """
import sys, pytest
before = set(sys.modules)
import agentloop.evals.plugin
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    names = ["agentloop", "agentloop._lazy", "agentloop.evals", "agentloop.evals.plugin"]
    assert done.stdout.strip() == repr(names)


def test_the_entry_point_names_the_plugin() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8")
    _, _, rest = text.partition("[project.entry-points.pytest11]\n")
    name, _, value = rest.split("\n", 1)[0].partition(" = ")
    point = EntryPoint(name=name, value=value.strip('"'), group="pytest11")
    assert point.load() is plugin
    assert agentloop.evals.collection is not None
