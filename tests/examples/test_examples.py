"""The examples do what they promise, each with the one command that its file names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentloop._canonical import decode
from agentloop.tasks import load_task
from tests.adapters.chat_server import chat_server
from tests.agentloop.cli.command import (
    agentloop,
    assert_sound,
    environment,
    json_lines,
    runs_of,
    state_of,
)
from tests.examples.answers import streamed

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """Return what gives an example in a folder of its own, without what was kept of other runs."""

    def copy(name: str) -> Path:
        kept = shutil.ignore_patterns(".agentloop", "__pycache__")
        for folder in {"fix-the-tests", name}:
            shutil.copytree(EXAMPLES / folder, tmp_path / folder, ignore=kept)
        return tmp_path / name

    return copy


def frames(out: str, *types: str) -> list[dict[str, Any]]:
    return [frame["content"] for frame in json_lines(out) if frame["type"] in types]


@pytest.mark.parametrize(
    "file", sorted(EXAMPLES.glob("*/*.toml")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_task_file_is_one(file: Path) -> None:
    load_task(file)


# ---------------------------------------------------------------------------- fix-the-tests


def test_fix_the_tests_retries_with_evidence_and_succeeds_by_checks(copied: Callable[[str], Path]) -> None:
    task = copied("fix-the-tests")

    done = agentloop("run", task, "--json", cwd=task.parent)

    assert (done.returncode, done.stderr) == (0, "")
    codes = [
        content["exitCode"] for content in frames(done.stdout, "TOOL_RESULT") if content["name"] == "shell"
    ]
    assert codes == [1, 1, 1, 0]
    (retry,) = frames(done.stdout, "agent_loop:node_retry")
    assert (retry["source"], retry["retryCount"]) == ("checks", 1)
    assert "FAIL shell/last_exit_code:0" in retry["evidence"]
    (result,) = frames(done.stdout, "result")
    assert (result["status"], result["reason"], result["iterations"]) == ("SUCCESS", "checks", 2)
    assert result["learned"] == ["start:fix-the-tests -> task:fix-the-tests: taken 1x, average reward +0.28"]
    assert {frame.get("role") for frame in frames(done.stdout, "TEXT")} == {"agent"}
    fixed = Path(result["workspace"]) / "invoice.py"
    assert "return [share + 1] * left" in fixed.read_text("utf-8")
    assert (task / "workspace" / "invoice.py").read_text("utf-8") != fixed.read_text("utf-8")
    assert_sound(task)


def test_fix_the_tests_is_worth_watching(copied: Callable[[str], Path]) -> None:
    task = copied("fix-the-tests")

    out = agentloop("run", task, cwd=task).stdout

    for shown in (
        "call      shell(command='python3 -m unittest')",
        "result    shell exit 1  FAILED (failures=3)",
        "result    shell exit 1  FAILED (failures=2)",
        "retry 1   (checks) FAIL shell/last_exit_code:0",
        "result    shell exit 0  OK",
        "passed    (checks) PASS shell/last_exit_code:0",
        "SUCCESS after 2 cycles (checks)",
        "used       10,323 input_tokens, 416 output_tokens",
        "learned    start:fix-the-tests -> task:fix-the-tests: taken 1x",
        "go on      agentloop show ",
        "agentloop replay ",
        "adaptogen status",
    ):
        assert shown in out
    assert agentloop("show", cwd=task).stdout.splitlines()[-2] == out.splitlines()[-6]


def test_a_second_run_knows_of_the_first(copied: Callable[[str], Path]) -> None:
    task = copied("fix-the-tests")

    first = frames(agentloop("run", task, "--json", cwd=task).stdout, "result")[0]["learned"]
    second = frames(agentloop("run", task, "--json", cwd=task).stdout, "result")[0]["learned"]

    assert "taken 1x, average reward +0.28" in first[0]
    assert "taken 2x, average reward +0.48" in second[0]
    assert [run["status"] for run in runs_of(task)] == ["SUCCESS", "SUCCESS"]


def test_the_evaluator_is_asked_when_the_check_cannot_decide(copied: Callable[[str], Path]) -> None:
    task = copied("fix-the-tests")

    done = agentloop("run", task / "disputed.toml", "--json", cwd=task)

    assert (done.returncode, done.stderr) == (0, "")
    retries = frames(done.stdout, "agent_loop:node_retry")
    assert [retry["source"] for retry in retries] == ["checks", "evaluator"]
    (result,) = frames(done.stdout, "result")
    assert (result["status"], result["reason"], result["iterations"]) == ("SUCCESS", "evaluator", 3)
    assert frames(done.stdout, "agent_loop:symbolic_asserted") == [
        {"name": "disputed_test", "value": "test_old_invoice.py", "op": "assert"}
    ]
    assert_sound(task)


# ---------------------------------------------------------------------------------- remember


def test_remember_finds_out_once_and_knows_it_in_the_next_run(copied: Callable[[str], Path]) -> None:
    task = copied("remember")
    words = [sys.executable, str(task / "run.py"), "--times", "3", "--db", str(state_of(task))]

    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    runs = re.findall(r"^run \d: (\d) cycles: (.+)$", done.stdout, re.MULTILINE)
    assert [cycles for cycles, _ in runs] == ["6", "1", "1"]
    assert "remember" not in runs[0][1]
    for _, said in runs[1:]:
        assert said == "I remember --fields semicolon --decimal comma. The sum is 25.50."
    assert "sales.txt is read with --fields semicolon --decimal comma. (useful 2x)" in done.stdout
    assert_sound(task)


# --------------------------------------------------------------------------- plan-and-build


def test_plan_and_build_takes_fewer_cycles_each_time_and_says_why(copied: Callable[[str], Path]) -> None:
    task = copied("plan-and-build")
    words = [sys.executable, str(task / "run.py"), "--db", str(state_of(task))]

    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^run \d: +(\d+) cycles", done.stdout, re.MULTILINE) == ["10", "6", "5"]
    last, why = done.stdout.split("\nrun 3:")[1].split("\n\nwhy ")
    assert last.split(": ")[1] == "layout, style, pages, index, archive"
    ranked = re.findall(r"^    (\d)\. \w+: ([+-]\d\.\d\d) = experience", why, re.MULTILINE)
    assert [place for place, _ in ranked].count("1") == 5
    for (_, better), (place, score) in pairwise(ranked):
        assert place == "1" or float(better) >= float(score)
    assert why.count("<- taken") == 5
    assert why.count("(waits for pages)") >= 1
    assert_sound(task)


def test_plan_and_build_builds_the_site(copied: Callable[[str], Path]) -> None:
    task = copied("plan-and-build")

    done = agentloop("run", task, "--json", cwd=task)

    (result,) = frames(done.stdout, "result")
    site = Path(result["workspace"]) / "site"
    assert [path.name for path in sorted(site.iterdir())] == [
        "heron.html",
        "index.html",
        "newt.html",
        "otter.html",
        "style.css",
    ]
    assert '<a href="otter.html">otter</a>' in (site / "index.html").read_text("utf-8")
    assert (site.parent / "site.zip").read_bytes()[:2] == b"PK"
    shown = agentloop("show", cwd=task).stdout
    assert shown.count("\nnode archive\n") == 5
    assert f"run {result['run']}/10" in shown
    inner = agentloop("show", f"{result['run'][:12]}", cwd=task)
    assert inner.returncode == 0
    assert "node       archive" in agentloop("show", f"{result['run']}/1", cwd=task).stdout
    assert agentloop("replay", f"{result['run']}/1", cwd=task).stdout.startswith(
        f"{result['run']}/1: reproduced"
    )


# -------------------------------------------------------------------------------- any-agent


def test_any_agent_and_any_judge_can_be_a_program(copied: Callable[[str], Path]) -> None:
    task = copied("any-agent")

    done = agentloop("run", task, "--json", cwd=task)

    assert (done.returncode, done.stderr) == (0, "")
    (result,) = frames(done.stdout, "result")
    assert (result["reason"], result["iterations"], result["evidence"]) == (
        "evaluator",
        2,
        "the whole suite passes",
    )
    assert result["usage"]["output_tokens"] == 60
    (retry,) = frames(done.stdout, "agent_loop:node_retry")
    assert retry["evidence"] == "still failing: test_no_cent_is_lost, test_nobody_pays_more_than_a_cent_more"
    assert_sound(task)


# -------------------------------------------------------------------------------- any-model


def test_any_model_fixes_the_tests_over_http(copied: Callable[[str], Path]) -> None:
    task = copied("any-model")
    script: Any = decode((EXAMPLES / "fix-the-tests" / "agent.json").read_bytes())
    with chat_server(*map(streamed, script["calls"])) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": "some-model"}
        done = agentloop("run", task, "--json", cwd=task, env=env)

    assert (done.returncode, done.stderr) == (0, "")
    (result,) = frames(done.stdout, "result")
    assert (result["status"], result["reason"], result["iterations"]) == ("SUCCESS", "checks", 2)
    assert len(server.requests) == len(script["calls"]) == 9
    first, last = server.requests[0], server.requests[-1]
    assert (first["model"], first["max_tokens"]) == ("some-model", 4096)
    offered = [tool["function"]["name"] for tool in first["tools"]]
    assert offered == ["fs__read", "fs__list", "fs__write", "fs__edit", "fs__delete", "shell"]
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert (
        "The last attempt was not good enough:\nFAIL shell/last_exit_code:0" in last["messages"][1]["content"]
    )
    assert last["messages"][-1]["role"] == "tool"
    assert "exit code: 0" in last["messages"][-1]["content"]
    assert result["usage"]["input_tokens"] == 90
    assert_sound(task)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({}, "set the environment variable OPENAI_API_KEY, or use the scripted adapter, which needs none"),
        (
            {"OPENAI_API_KEY": "sk-canary-0"},
            "needs 'model', the name https://api.openai.com/v1 knows the model by",
        ),
        ({"OPENAI_BASE_URL": "localhost"}, "base_url must be an http or https address"),
    ],
)
def test_any_model_says_what_it_needs(
    copied: Callable[[str], Path], env: dict[str, str], message: str
) -> None:
    task = copied("any-model")

    done = agentloop("run", task, cwd=task, env=env)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "canary" not in done.stderr
    assert not (task / ".agentloop").exists()
