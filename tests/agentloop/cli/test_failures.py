"""Runs in which something goes wrong: each ends with a message, its exit code, and sound records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.chat_server import breaks_after, chat_server, hangs_after, recording, refuses
from tests.agentloop.cli.command import (
    SHELL,
    WORKS,
    Children,
    agentloop,
    assert_sound,
    call,
    json_lines,
    say,
    state_of,
    write_task,
)

KEY = "sk-canary-5f0d9a7e31c24b68"


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    watched = Children(tmp_path)
    yield watched
    watched.close()


def result(out: str) -> dict[str, Any]:
    content: dict[str, Any] = json_lines(out)[-1]["content"]
    return content


def with_agent(folder: Path, agent: str, *, more: str = "") -> Path:
    """Make a task with the given ``[agent]`` table."""
    task = write_task(folder, (), more=more)
    text = (task / "task.toml").read_text("utf-8").replace('[agent]\nscripted = "agent.json"', agent)
    (task / "task.toml").write_text(text, "utf-8")
    return task


# --------------------------------------------------------------------------- nothing is begun

PARTS = {
    "adapter": ('[agent]\nadapter = "opnai"', "[agent] no adapter is called 'opnai': did you mean 'openai'?"),
    "adapter unlike any": (
        '[agent]\nadapter = "xyz"',
        "no adapter is called 'xyz': installed are command, openai",
    ),
    "option": (
        '[agent]\nadapter = "openai"\noptions = { temprature = 1 }',
        "[agent] openai has no option 'temprature': did you mean 'temperature'?",
    ),
    "option of a wrong type": (
        '[agent]\nadapter = "command"\noptions = { argv = "ls" }',
        "[agent] command: Expected `array`, got `str`",
    ),
    "no key": (
        '[agent]\nadapter = "openai"\nmodel = "m"',
        "no key for https://api.openai.com/v1: set the environment variable OPENAI_API_KEY, or use the scripted",
    ),
    "no script": ('[agent]\nscripted = "nope.json"', "nope.json cannot be read: No such file or directory"),
    "no module": ('[agent]\nadapter = "python:nope:make"', "'python:nope:make'"),
    "no factory": ('[agent]\nadapter = "python:json:nope"', "the module json has no 'nope'"),
    "half a name": ('[agent]\nadapter = "python:json"', "'python:json' must be python:module:factory"),
}


@pytest.mark.parametrize(("agent", "message"), PARTS.values(), ids=PARTS)
def test_a_part_that_is_not_there_is_told_before_anything_is_begun(
    tmp_path: Path, agent: str, message: str
) -> None:
    task = with_agent(tmp_path, agent)

    done = agentloop("run", task, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (task / ".agentloop").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[tools]\nshell = { max_output = 1 }", "tools.shell has options, but tools.allow_shell is not true"),
        (
            "[tools]\nallow_shell = true\nshell = { timout_ms = 1 }",
            "the shell tool has no option 'timout_ms': did you mean 'timeout_ms'?",
        ),
        (
            '[[nodes]]\nid = "a"\nafter = ["b"]\n[[nodes]]\nid = "b"\nafter = ["a"]',
            "nodes wait for each other: a -> b -> a",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_told(tmp_path: Path, more: str, message: str) -> None:
    done = agentloop("run", write_task(tmp_path, WORKS, more=more), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / ".agentloop" / "runs").exists()


def test_a_script_of_the_wrong_form_names_the_entry(tmp_path: Path) -> None:
    done = agentloop("run", write_task(tmp_path, ({"sya": "x"},)), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "agent.json: call 1 is an object with some of callTools" in done.stderr


def test_a_workspace_that_cannot_be_copied_leaves_nothing(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", WORKS)
    (task / "work").mkdir()
    (task / "work" / "pipe").touch()
    text = (task / "task.toml").read_text("utf-8").replace("[task]\n", '[task]\nworkspace = "work"\n')
    (task / "task.toml").write_text(text, "utf-8")
    (tmp_path / "runs").touch()  # the scratch folders cannot be made

    done = agentloop("run", task, "--db", "state.db", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "the workspace cannot be copied to " in done.stderr
    assert runs_at(tmp_path / "state.db") == []


def runs_at(database: Path) -> list[dict[str, Any]]:
    listed = agentloop("runs", "--json", "--db", database, cwd=database.parent)
    return json_lines(listed.stdout)


# -------------------------------------------------------------------------------- a server


def model_task(folder: Path, base_url: str, **limits: int) -> Path:
    options = json.dumps({"base_url": base_url}).replace(":", " =", 1).replace('"base_url"', "base_url")
    more = "[limits]\n" + "".join(f"{name} = {value}\n" for name, value in limits.items())
    return with_agent(folder, f'[agent]\nadapter = "openai"\nmodel = "m"\noptions = {options}', more=more)


def secret_free(task: Path, *texts: str) -> None:
    stored = b"".join(path.read_bytes() for path in task.rglob("*") if path.is_file())
    for haystack in (stored, *(text.encode() for text in texts)):
        assert KEY.encode() not in haystack
        assert KEY[3:].encode() not in haystack


def test_a_server_that_refuses_the_key_ends_the_run(tmp_path: Path) -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    with chat_server(refuses(401, body)) as server:
        task = model_task(tmp_path, server.base_url)
        done = agentloop("run", task, "--json", cwd=tmp_path, env={"OPENAI_API_KEY": KEY})

    assert (done.returncode, done.stderr) == (1, "")
    assert (result(done.stdout)["status"], result(done.stdout)["reason"]) == ("FAILURE", "error")
    assert "answered 401: the key was refused" in result(done.stdout)["evidence"]
    assert len(server.requests) == 1
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    secret_free(task, done.stdout)
    assert_sound(task)


def test_a_stream_that_breaks_after_its_first_token_is_not_asked_again(tmp_path: Path) -> None:
    first = recording("text.sse").split(b"\n\n")[0:3]
    with chat_server(breaks_after(b"\n\n".join(first) + b"\n\n")) as server:
        task = model_task(tmp_path, server.base_url)
        done = agentloop("run", task, "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert any(frame["type"] == "TEXT" for frame in json_lines(done.stdout))
    assert result(done.stdout)["reason"] == "error"
    assert "broke the connection within its answer" in result(done.stdout)["evidence"]
    assert len(server.requests) == 1
    assert_sound(task)


def test_a_server_that_hangs_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    with chat_server(hangs_after(b"")) as server:
        task = model_task(tmp_path, server.base_url, turn_timeout_ms=1500)
        done = agentloop("run", task, "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert "took longer than turn_timeout_ms=1500" in result(done.stdout)["evidence"]
    assert_sound(task)


# ------------------------------------------------------------------------ agents and judges


@pytest.mark.parametrize(
    ("judge", "evidence"),
    [
        ("Looks good to me, ship it!", "unparseable evaluator output: Looks good to me, ship it!"),
        ("", "the evaluator said nothing"),
        ('{"status": "success", "evidence": "fine"}', "fine"),
        ('{"status": "SUCCESS"} or rather {"status": "FAILURE"}', "SUCCESS"),
    ],
)
def test_a_judge_that_gives_no_verdict_decides_for_failure(tmp_path: Path, judge: str, evidence: str) -> None:
    task = write_task(tmp_path, WORKS, checks=(), evaluator=(say(judge),))

    done = agentloop("run", task, "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert (result(done.stdout)["status"], result(done.stdout)["reason"]) == ("FAILURE", "evaluator")
    assert evidence in (result(done.stdout)["evidence"] or "")
    assert_sound(task)


def test_a_script_that_is_over_says_so(tmp_path: Path) -> None:
    done = agentloop("run", write_task(tmp_path, (say("Done."),)), "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert "turn 2 was asked of a script of 1 turns" in result(done.stdout)["evidence"]
    assert_sound(tmp_path)


def test_a_tool_that_hangs_is_killed_and_the_run_goes_on(tmp_path: Path, children: Children) -> None:
    turns = (call("shell", command=children.hang()), call("fs__write", path="done.txt", content=""), say("."))
    task = write_task(tmp_path / "task", turns, more=f"{SHELL}timeout_ms = 700\n")

    done = agentloop("run", task, "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    hung = next(frame["content"] for frame in json_lines(done.stdout) if frame["type"] == "TOOL_RESULT")
    assert (hung["ok"], hung["timedOut"]) == (False, True)
    assert "the command ran longer than 700 ms and was killed" in hung["message"]
    children.wait()
    children.assert_gone()
    assert_sound(task)


def test_an_agent_that_hangs_is_killed_at_the_deadline(tmp_path: Path, children: Children) -> None:
    agent = (
        f'[agent]\nadapter = "command"\noptions = {{ argv = ["sh", "-c", {json.dumps(children.hang())}] }}'
    )
    task = with_agent(tmp_path / "task", agent, more="[limits]\nturn_timeout_ms = 700\n")

    done = agentloop("run", task, "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert "turn_timeout_ms=700" in result(done.stdout)["evidence"]
    children.wait()
    children.assert_gone()
    assert_sound(task)


def test_a_run_has_a_deadline_of_its_own(tmp_path: Path, children: Children) -> None:
    turns = (call("shell", command=children.hang()), say("."))
    task = write_task(tmp_path / "task", turns, more=f"{SHELL}[limits]\nrun_timeout_ms = 700\n")

    done = agentloop("run", task, "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert json_lines(done.stdout)[-2]["content"] == {"reason": "timeout"}
    children.wait()
    children.assert_gone()
    assert_sound(task)


COMMANDS: Mapping[str, tuple[str, str]] = {
    "not there": ("no-such-program", "could not be started: No such file or directory"),
    "a failure": ("false", "ended with exit code 1 and said nothing"),
}


@pytest.mark.parametrize(("program", "message"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_that_fails_ends_the_run(tmp_path: Path, program: str, message: str) -> None:
    task = with_agent(tmp_path, f'[agent]\nadapter = "command"\noptions = {{ argv = ["{program}"] }}')

    done = agentloop("run", task, "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert message in result(done.stdout)["evidence"]
    assert_sound(task)


def test_wrong_tool_calls_are_answers(tmp_path: Path) -> None:
    turns = (
        call("fs__wirte", path="a", content="b"),
        call("fs__write", path="a"),
        call("fs__write", path="../outside", content="b"),
        call("fs__write", path="/etc/outside", content="b"),
        *WORKS,
    )

    done = agentloop("run", write_task(tmp_path / "task", turns), "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    results = [frame["content"] for frame in json_lines(done.stdout) if frame["type"] == "TOOL_RESULT"]
    assert [answer["ok"] for answer in results] == [False, False, False, False, True]
    assert [path.name for path in tmp_path.iterdir()] == ["task"]
    assert not list((tmp_path / "task").rglob("outside"))


def test_the_limit_of_cycles_is_a_failure(tmp_path: Path) -> None:
    task = write_task(tmp_path, (say("one"), say("two"), say("three")), more="[limits]\nmax_iterations = 2\n")

    done = agentloop("run", task, cwd=tmp_path)
    overridden = agentloop("run", task, "--set", "limits.max_iterations=1", cwd=tmp_path)

    assert (done.returncode, overridden.returncode) == (1, 1)
    assert "FAILURE after 2 cycles (max_iterations): FAIL file_exists:done.txt: does not exist" in done.stdout
    assert "FAILURE after 1 cycle (max_iterations)" in overridden.stdout


def test_in_place_works_in_the_workspace_itself(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", WORKS)
    (task / "work").mkdir()
    text = (task / "task.toml").read_text("utf-8")
    text = text.replace("[task]\n", '[task]\nworkspace = "work"\nin_place = true\n')
    (task / "task.toml").write_text(text, "utf-8")

    assert agentloop("run", task, cwd=tmp_path).returncode == 0

    assert (task / "work" / "done.txt").read_text("utf-8") == "done\n"
    assert not (task / ".agentloop" / "runs").exists()


def test_what_is_kept_is_the_users_alone(tmp_path: Path) -> None:
    task = write_task(tmp_path, WORKS)
    assert agentloop("run", task, cwd=tmp_path).returncode == 0

    assert state_of(task).stat().st_mode & 0o777 == 0o600
