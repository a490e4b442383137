"""``agentloop eval``: exit codes, files, the branch rule."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.agentloop.cli.command import WORKS, agentloop, write_task

SUITE = """
from agentloop.evals.cases import EvalCase, EvalSuite
from agentloop.evals.graders import ends_as, output_contains, replays_exactly

def case(id, text, **more):
    graders = [ends_as("completed"), output_contains(text), replays_exactly()]
    return EvalCase(id=id, goal="go", script=[{"say": "the answer"}], graders=graders, **more)

suite = EvalSuite(id="mine", cases=[case("one", "answer"), case("two", "WORD", critical=CRITICAL)])
"""


def write_suite(folder: Path, word: str = "the", *, critical: bool = False) -> Path:
    path = folder / "evals" / "suite.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SUITE.replace("WORD", word).replace("CRITICAL", str(critical)))
    return path


def on_branch(folder: Path, name: str) -> None:
    subprocess.run(["git", "init", "-q", "-b", name, str(folder)], check=True, timeout=30)


def test_v172_run_exits_with_0_or_1(tmp_path: Path) -> None:
    write_suite(tmp_path)
    done = agentloop("eval", "run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mine — 2 passed, 0 failed" in done.stdout
    assert agentloop("eval", cwd=tmp_path).stdout == done.stdout
    write_suite(tmp_path, "other", critical=True)
    failed = agentloop("eval", "run", "--suite", "evals/suite.py", cwd=tmp_path)
    assert failed.returncode == 1
    assert "FAIL*" in failed.stdout
    assert "✗ output-contains:other: answered 'the answer'" in failed.stdout


def test_v172_gate_exits_with_0_or_1(tmp_path: Path) -> None:
    on_branch(tmp_path, "release/1")
    write_suite(tmp_path)
    alone = agentloop("eval", "gate", cwd=tmp_path)
    assert (alone.returncode, alone.stdout.split("\n")[-2]) == (0, "PASS")
    assert "THERE IS NO BASELINE" in alone.stderr
    assert agentloop("eval", "baseline", cwd=tmp_path).returncode == 0

    page = tmp_path / "page.md"
    passed = agentloop("eval", "gate", cwd=tmp_path, env={"GITHUB_STEP_SUMMARY": str(page)})
    assert (passed.returncode, passed.stderr, passed.stdout.split("\n")[-2]) == (0, "", "PASS")
    assert page.read_text().startswith("## Eval gate — passed")

    write_suite(tmp_path, "other")
    words = ("eval", "gate", "--json", "out/gate.json", "--md", "out/gate.md", "--junit", "out/gate.xml")
    failed = agentloop(*words, cwd=tmp_path)
    assert (failed.returncode, failed.stdout.split("\n")[-2]) == (1, "FAIL")
    assert "error regression: two: its score fell: 1.000 → 0.667" in failed.stderr
    assert json.loads((tmp_path / "out/gate.json").read_text())["ok"] is False
    assert (tmp_path / "out/gate.md").read_text().startswith("## Eval gate — failed")
    assert ElementTree.parse(tmp_path / "out/gate.xml").getroot().get("failures") == "2"

    (tmp_path / "evals/baseline.json").unlink()
    assert agentloop("eval", "gate", cwd=tmp_path).returncode == 1


def test_v172_the_baseline_moves_on_release_branches_or_by_force(tmp_path: Path) -> None:
    on_branch(tmp_path, "feature/x")
    write_suite(tmp_path)
    path = tmp_path / "evals/baseline.json"
    refused = agentloop("eval", "baseline", cwd=tmp_path)
    assert (refused.returncode, path.exists()) == (2, False)
    assert "'feature/x'" in refused.stderr
    assert agentloop("eval", "baseline", "--force", cwd=tmp_path).returncode == 0
    told = json.loads(path.read_text())
    assert (told["recordedOn"], told["forced"]) == ("feature/x", True)


def test_w42_the_environment_cannot_open_the_branch_rule(tmp_path: Path) -> None:
    on_branch(tmp_path, "feature/x")
    write_suite(tmp_path)
    for env in ({"GITHUB_HEAD_REF": "release/1"}, {"ESCAPEMENT_BRANCH": "release/1"}):
        assert agentloop("eval", "baseline", cwd=tmp_path, env=env).returncode == 2
    subprocess.run(["git", "-C", str(tmp_path), "checkout", "-q", "-b", "release/1"], check=True, timeout=30)
    for name in ("feature/x", ""):
        assert agentloop("eval", "baseline", cwd=tmp_path, env={"GITHUB_HEAD_REF": name}).returncode == 2
    assert agentloop("eval", "baseline", cwd=tmp_path).returncode == 0
    assert "forced" not in json.loads((tmp_path / "evals/baseline.json").read_text())


def test_w42_tolerances_are_carried_over_and_failing_suites_refused(tmp_path: Path) -> None:
    on_branch(tmp_path, "release/1")
    write_suite(tmp_path)
    path = tmp_path / "evals/baseline.json"
    words = ("eval", "baseline", "--tolerance", "0.1", "--aggregate-tolerance", "0.05")
    assert agentloop(*words, cwd=tmp_path).returncode == 0
    write_suite(tmp_path, "other")
    before = path.read_bytes()
    refused = agentloop("eval", "baseline", cwd=tmp_path)
    assert (refused.returncode, path.read_bytes()) == (2, before)
    assert "--allow-failing" in refused.stderr
    assert agentloop("eval", "baseline", "--allow-failing", cwd=tmp_path).returncode == 0
    told = json.loads(path.read_text())
    assert (told["tolerance"], told["aggregateTolerance"], told["aggregate"]["failed"]) == (0.1, 0.05, 1)


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "gates"),
        ("eval", "baseline", "--tolerance", "nan"),
        ("eval", "baseline", "--tolerance", "-1"),
        ("eval", "run", "--force"),
        ("eval", "gate", "--tolerance", "0.1"),
        ("eval", "run", "--strict-trajectory"),
        ("eval", "gate", "--parallel", "0"),
    ],
)
def test_v172_words_that_mean_nothing_exit_with_2_before_anything_is_run(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    write_suite(tmp_path)
    done = agentloop(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_v172_help_exits_with_0(tmp_path: Path) -> None:
    done = agentloop("eval", "help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == agentloop("eval", "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "text",
    [None, "raise RuntimeError('broken')", "suite = 1", "from nowhere import x", "raise SystemExit(0)"],
)
def test_w42_a_suite_that_cannot_be_loaded_exits_with_3(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "evals").mkdir()
        (tmp_path / "evals/suite.py").write_text(text)
    for action in ("run", "gate"):
        done = agentloop("eval", action, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (3, "")


def test_a_report_that_cannot_be_written_exits_with_3(tmp_path: Path) -> None:
    write_suite(tmp_path)
    done = agentloop("eval", "run", "--json", "evals/suite.py/report.json", cwd=tmp_path)
    assert done.returncode == 3
    assert "agentloop eval: " in done.stderr


def test_a_damaged_baseline_exits_with_3(tmp_path: Path) -> None:
    write_suite(tmp_path)
    (tmp_path / "evals/baseline.json").write_text("{")
    assert agentloop("eval", "gate", cwd=tmp_path).returncode == 3


LIVE = """
from agentloop import EvalCase, EvalSuite, Grade, LiveCase, LiveSuite, ScriptedProvider, grader

async def judge(run):
    return Grade(score=0.5, passed=False, reason="so-so")

script = [{"say": "the answer"}]
graders = [grader("judge", judge)]
live = LiveSuite(
    id="models", seeds=2,
    cases=[LiveCase(id="one", goal="go", provider=lambda seed: ScriptedProvider(script), graders=graders)],
)
"""
JUDGED = (
    LIVE
    + """
suite = EvalSuite(id="judged", cases=[EvalCase(id="one", goal="go", script=script, graders=graders)])
"""
)


def test_a_live_suite_is_measured_and_never_gated(tmp_path: Path) -> None:
    path = write_suite(tmp_path)
    path.write_text(LIVE)
    done = agentloop("eval", "live", "--json", "live.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.500 (0.500 to 0.500)  one: 0 of 2 passed" in done.stdout
    assert len(json.loads((tmp_path / "live.json").read_text())["cases"][0]["runs"]) == 2
    assert "0 of 3 passed" in agentloop("eval", "live", "--seeds", "3", cwd=tmp_path).stdout
    gated = agentloop("eval", "gate", cwd=tmp_path)
    assert (gated.returncode, gated.stdout) == (3, "")
    assert "only a live one, which no gate asks" in gated.stderr
    write_suite(tmp_path)
    assert agentloop("eval", "live", cwd=tmp_path).returncode == 3
    assert agentloop("eval", "live", "--strict", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("words", [("gate",), ("baseline", "--force")])
def test_graders_that_must_be_waited_for_are_refused_before_anything_is_run(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = write_suite(tmp_path)
    path.write_text(JUDGED)
    done = agentloop("eval", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "one: judge is asynchronous" in done.stderr
    path.write_text(JUDGED.replace('"judge", judge)', '"judge", lambda run: judge(run))'))
    hidden = agentloop("eval", "gate", cwd=tmp_path)
    assert hidden.returncode == 1
    assert "error asynchronous-grader: one: judge had to be waited for" in hidden.stderr
    assert agentloop("eval", "run", cwd=tmp_path).returncode == 1


COUNTING = """
from agentloop.evals.cases import EvalCase, EvalSuite
from agentloop.evals.graders import ends_as
from agentloop.tools import Tool

count = 0

async def step():
    global count
    count += 1
    return count

script = [{"say": "", "callTools": [{"name": "step", "args": {}}]}, {"say": "done"}]
tools = lambda: [Tool(name="step", handler=step)]
suite = EvalSuite(
    id="counting",
    cases=[EvalCase(id="one", goal="go", script=script, tools=tools, graders=[ends_as("completed")])],
)
"""


def test_w43_w44_strict_runs_twice_and_replays_in_a_fresh_process(tmp_path: Path) -> None:
    write_suite(tmp_path)
    assert agentloop("eval", "gate", "--strict", cwd=tmp_path).returncode == 0
    (tmp_path / "evals/suite.py").write_text(COUNTING)
    assert agentloop("eval", "run", cwd=tmp_path).returncode == 0
    strict = agentloop("eval", "run", "--strict", cwd=tmp_path)
    assert strict.returncode == 1
    assert "had another record" in strict.stderr


BENDING = """
import msgspec
from agentloop import EvalCase, EvalSuite, ends_as, replays_exactly
from agentloop.orchestrator import driver, folding

reduce = driver.reduce

def stingy(state, event, config):
    budget = msgspec.structs.replace(config.budget, max_steps=1)
    return reduce(state, event, msgspec.structs.replace(config, budget=budget))

# What this file does to the library holds in this process only.
driver.reduce = folding.reduce = stingy
script = [{"say": ""}, {"say": "done"}]
suite = EvalSuite(
    id="bending",
    cases=[EvalCase(id="one", goal="go", script=script, graders=[ends_as("halted"), replays_exactly()])],
)
"""


def test_w43_strict_finds_a_case_that_fails_in_the_fresh_process_only(tmp_path: Path) -> None:
    write_suite(tmp_path).write_text(BENDING)
    assert agentloop("eval", "run", cwd=tmp_path).returncode == 0
    words = ("eval", "gate", "--strict", "--junit", "gate.xml")
    strict = agentloop(*words, cwd=tmp_path)
    assert strict.returncode == 1
    assert "bending — 0 passed, 1 failed" in strict.stdout
    assert "error: it does not replay in a fresh process: entry " in strict.stdout
    assert "error nondeterministic: one: " in strict.stderr
    assert "does not replay in a fresh process" in (tmp_path / "gate.xml").read_text()


def test_a_run_of_a_task_becomes_a_case_that_gates(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    assert agentloop("run", task, cwd=task).returncode == 0
    recorded = agentloop("eval", "record", "--id", "writes", cwd=task)
    assert (recorded.returncode, recorded.stderr) == (0, "")
    assert json.loads((task / "evals/cases/writes.json").read_text())["subject"] == "loop"
    again = agentloop("eval", "record", "--id", "writes", cwd=task)
    assert (again.returncode, again.stdout) == (2, "")

    words = ("--suite", "evals/cases", "--baseline", "evals/baseline.json")
    assert agentloop("eval", "baseline", "--force", *words, cwd=task).returncode == 0
    assert agentloop("eval", "gate", "--strict", *words, cwd=task).returncode == 0

    assert agentloop("eval", "record", "nothing", cwd=task).returncode == 1
