from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.tools import shell, shell_tool
from agentloop.errors import AgentLoopConfigError
from agentloop.messages import ToolCall, ToolResult
from agentloop.models import ToolContext
from agentloop.tools import create_tool_adapter_wrapper
from tests.adapters.alive import watch

pytestmark = pytest.mark.anyio


async def run(workspace: Path, arguments: dict[str, Any], **options: Any) -> ToolResult:
    wrapper = create_tool_adapter_wrapper({"shell": shell(workspace, **options)}, timeout_ms=100)
    with anyio.fail_after(20):
        return await wrapper.call(ToolCall(id="1", name="shell", arguments=arguments))


async def test_a_command_runs_in_the_workspace_and_tells_all_it_said(tmp_path: Path) -> None:
    (tmp_path / "here").touch()

    result = await run(tmp_path, {"command": "ls; echo oops >&2; exit 3"})

    assert (result.ok, result.exit_code, result.stdout, result.stderr, result.output) == (
        True,
        3,
        "here\n",
        "oops\n",
        "here\n",
    )


async def test_arguments_are_passed_without_a_shell(tmp_path: Path) -> None:
    result = await run(tmp_path, {"argv": ["printf", "%s|", "$HOME", "a b", ";"]})

    assert result.stdout == "$HOME|a b|;|"


async def test_a_program_that_is_not_there_has_exit_code_127(tmp_path: Path) -> None:
    result = await run(tmp_path, {"argv": ["no-such-program-here"]})

    assert (result.ok, result.exit_code) == (True, 127)
    assert result.stderr == "no-such-program-here: No such file or directory\n"


async def test_a_workspace_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    result = await run(tmp_path / "gone", {"command": "true"})

    assert not result.ok
    assert "gone" in str(result.output)


async def test_a_signal_is_a_negative_exit_code(tmp_path: Path) -> None:
    assert (await run(tmp_path, {"command": "kill -9 $$"})).exit_code == -9


async def test_a_command_has_no_input(tmp_path: Path) -> None:
    assert (await run(tmp_path, {"command": "cat; echo end"})).stdout == "end\n"


@pytest.mark.parametrize("by", ["call", "tool"])
async def test_a_command_that_takes_too_long_is_killed_with_its_family(tmp_path: Path, by: str) -> None:
    with watch(tmp_path) as alive:
        command = f"exec 3>{alive.path}; echo begun; trap '' TERM; (sleep 60) & sleep 60; echo never"
        arguments: dict[str, Any] = {"command": command}
        options: dict[str, Any] = {}
        if by == "call":
            arguments["timeout_ms"] = 300
        else:
            options["timeout_ms"] = 300
        result = await run(tmp_path, arguments, **options)
        await alive.all_gone()

    assert (result.ok, result.timed_out, result.exit_code, result.stdout) == (False, True, None, "begun\n")
    assert result.error is not None
    assert result.error.code == "tool.timeout"
    assert "300 ms" in result.error.message


async def test_a_call_cannot_ask_for_more_time_than_the_tool_has(tmp_path: Path) -> None:
    result = await run(tmp_path, {"command": "true", "timeout_ms": 5_001}, timeout_ms=5_000)

    assert result.error is not None
    assert result.error.code == "tool.invalid_arguments"


async def test_cancelling_a_call_kills_the_family(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    tool = shell(tmp_path)
    with watch(tmp_path) as alive:
        command = f"exec 3>{alive.path}; (sleep 60) & echo > {started}; sleep 60"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tool.handler, ToolCall(id="1", name="shell", arguments={"command": command}))
            await anyio.to_thread.run_sync(started.read_text)
            tasks.cancel_scope.cancel()
        await alive.all_gone()


async def test_what_runs_in_the_background_does_not_outlive_the_command(tmp_path: Path) -> None:
    with watch(tmp_path) as alive:
        result = await run(tmp_path, {"command": f"exec 3>{alive.path}; (sleep 60) & echo done"})
        await alive.all_gone()

    assert (result.ok, result.exit_code, result.stdout) == (True, 0, "done\n")


async def test_of_long_output_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    result = await run(tmp_path, {"command": "seq 100000; seq 100000 >&2"}, max_output=1_000)

    for text in (result.stdout, result.stderr):
        assert text is not None
        assert text.startswith("1\n2\n3\n")
        assert "bytes cut …]" in text
        assert text.endswith("99999\n100000\n")
        assert len(text) < 1_100


async def test_endless_output_is_bounded(tmp_path: Path) -> None:
    result = await run(tmp_path, {"command": "yes", "timeout_ms": 200}, max_output=1_000)

    assert result.timed_out
    assert result.stdout is not None
    assert len(result.stdout) < 1_100


async def test_output_that_is_no_utf8_is_replaced(tmp_path: Path) -> None:
    assert (await run(tmp_path, {"command": r"printf 'a\377b'"})).stdout == "a\ufffdb"


@pytest.mark.parametrize("arguments", [{}, {"command": "ls", "argv": ["ls"]}, {"argv": []}, {"command": ""}])
async def test_neither_and_both_forms_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    result = await run(tmp_path, arguments)

    assert result.error is not None
    assert result.error.code == "tool.invalid_arguments"


async def test_keys_of_the_environment_are_not_passed_on(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "canary", "NAMED": "yes"}

    result = await run(tmp_path, {"command": "env"}, environ=environ, pass_env=["NAMED"], env={"MINE": "1"})

    assert result.stdout is not None
    assert {"NAMED=yes", "MINE=1"} <= set(result.stdout.split("\n"))
    assert "canary" not in result.stdout


async def test_calls_leave_no_descriptor_open(tmp_path: Path) -> None:
    await run(tmp_path, {"command": "echo x"})
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        await run(tmp_path, {"command": "echo x"})

    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("options", [{"timeout_ms": 0}, {"max_output": -1}, {"timeout_ms": True}])
def test_limits_that_are_none_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(AgentLoopConfigError, match="above 0"):
        shell(tmp_path, **options)


def test_options_of_a_task_file_are_checked(tmp_path: Path) -> None:
    context = ToolContext(workspace=tmp_path, base=tmp_path)

    assert shell_tool({"timeout_ms": 5}, context).name == "shell"
    with pytest.raises(AgentLoopConfigError, match="did you mean 'timeout_ms'"):
        shell_tool({"timeout": 5}, context)
