"""The tool ``shell``: real processes in the workspace, bounded in time and in what they print."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, cast

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process

from adapters.command.process import child_environment, end_group, kill_group, start_group
from agentloop._canonical import Json
from agentloop.errors import AgentLoopConfigError
from agentloop.messages import ToolCall, ToolResult
from agentloop.models import ToolContext, read_options
from agentloop.tools import Tool, tool_failure

__all__ = ("shell", "shell_tool")

_GRACE_MS: Final = 300
#: How long the output of a finished command may still take to arrive.
_DRAIN_MS: Final = 1_000
_NOT_FOUND: Final = 127


class _Capture:
    """Keeps the beginning and the end of what a process prints."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._size = 0

    async def read(self, stream: ByteReceiveStream) -> None:
        async for data in stream:
            self.add(data)

    def add(self, data: bytes) -> None:
        self._size += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        tail = self._tail[-self._half :]
        cut = self._size - len(self._head) - len(tail)
        if not cut:
            return (self._head + tail).decode("utf-8", "replace")
        head, end = self._head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return f"{head}\n[… {cut} bytes cut …]\n{end}"


async def _watch(process: Process, stdout: _Capture, stderr: _Capture) -> None:
    """Return when the process has ended and what it printed has been read."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stdout.read, cast(ByteReceiveStream, process.stdout))
        tasks.start_soon(stderr.read, cast(ByteReceiveStream, process.stderr))
        await process.wait()
        # What it left running in the background would keep the pipes open.
        kill_group(process)
        tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_MS / 1000


def shell(
    workspace: str | PathLike[str],
    *,
    timeout_ms: int = 30_000,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    max_output: int = 256 * 1024,
    environ: Mapping[str, str] | None = None,
) -> Tool:
    """Return the tool that runs commands in the workspace.

    A command gets no input and a small environment without keys. It runs in a process group of
    its own; when it ends or its time is up, whatever is left of the group is killed. An exit
    code other than 0 is an answer, not a failure of the tool.

    The workspace is where commands start, not a cage: they can reach whatever the user can.

    Args:
        workspace: The working directory.
        timeout_ms: Longest run of one command; a call may ask for less.
        env: Variables to set.
        pass_env: Names of variables to take over.
        max_output: Bytes kept of each of stdout and stderr: of longer ones the beginning and
            the end, with a visible mark between.
        environ: Where variables are looked up; the process's environment if None.

    Raises:
        AgentLoopConfigError: A limit that is not above 0.
    """
    for name, value in (("timeout_ms", timeout_ms), ("max_output", max_output)):
        if type(value) is not int or value <= 0:
            raise AgentLoopConfigError(f"the shell tool's {name} must be an int above 0, not {value!r}")
    environment = child_environment(os.environ if environ is None else environ, pass_env=pass_env, env=env)

    directory = os.fspath(workspace)

    async def run(call: ToolCall) -> ToolResult:
        given = call.arguments or {}
        if ("command" in given) == ("argv" in given):
            return tool_failure(call, "invalid_arguments", "give either 'command' or 'argv'")
        argv = given["argv"] if "argv" in given else ["/bin/sh", "-c", given["command"]]
        limit_ms = min(timeout_ms, given.get("timeout_ms", timeout_ms))
        stdout, stderr = _Capture(max_output), _Capture(max_output)
        try:
            process = await start_group(argv, stdin=subprocess.DEVNULL, cwd=directory, env=environment)
        except (FileNotFoundError, PermissionError) as error:
            if error.filename == directory:
                raise
            stderr.add(f"{argv[0]}: {error.strerror}\n".encode())
            return _result(stdout, stderr, exit_code=_NOT_FOUND)
        code = -1
        try:
            with anyio.move_on_after(limit_ms / 1000) as scope:
                await _watch(process, stdout, stderr)
        finally:
            code = await end_group(process, grace_ms=_GRACE_MS)
        if scope.cancelled_caught:
            failure = tool_failure(
                call, "timeout", f"the command ran longer than {limit_ms} ms and was killed"
            )
            return msgspec.structs.replace(failure, stdout=stdout.text(), stderr=stderr.text())
        return _result(stdout, stderr, exit_code=code)

    return Tool(
        name="shell",
        description="Run a command in the workspace and return its exit code, stdout and stderr.",
        schema=_schema(timeout_ms),
        handler=run,
        # The command's own limit answers first, with what was printed by then.
        timeout_ms=timeout_ms + _GRACE_MS + _DRAIN_MS + 1_000,
    )


def _result(stdout: _Capture, stderr: _Capture, *, exit_code: int) -> ToolResult:
    text = stdout.text()
    return ToolResult(
        id="", name="", ok=True, output=text, stdout=text, stderr=stderr.text(), exit_code=exit_code
    )


def _schema(timeout_ms: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "Text for 'sh -c'."},
            "argv": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "A program and its arguments, run without a shell; instead of command.",
            },
            "timeout_ms": {"type": "integer", "minimum": 1, "maximum": timeout_ms},
        },
        "additionalProperties": False,
    }


class _Options(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a task file may say about the shell."""

    timeout_ms: int = 30_000
    env: dict[str, str] = {}
    pass_env: list[str] = []
    max_output: int = 256 * 1024


def shell_tool(options: Mapping[str, Json], context: ToolContext) -> Tool:
    """Return the tool for the options of a task file: the entry point ``shell``.

    Raises:
        AgentLoopConfigError: An option is unknown, of the wrong type, or not above 0.
    """
    given = msgspec.structs.asdict(read_options("the shell tool", _Options, options))
    return shell(context.workspace, environ=context.environ, **given)
