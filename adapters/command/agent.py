"""A command-line agent as a turn: one process for each turn.

The prompt is its standard input, a file rather than a pipe, so that a program which ignores
its input or talks before it reads cannot block. What it prints becomes frames as it comes.
"""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any, Final, Literal, cast

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process

from adapters.command.process import child_environment, end_group, kill_group, start_group
from agentloop._canonical import Json, NotJson, decode, encode
from agentloop.errors import AgentLoopConfigError, FrameError, TurnError
from agentloop.frames import CONTEXT, DONE, ERROR, REASONING, TEXT, TOOL_CALL, USAGE, Frame
from agentloop.models import AdapterContext, read_options
from agentloop.ports import FrameDuplex
from agentloop.streams.duplex import turn_duplex

__all__ = ("CommandAgent", "command_adapter", "create_command_adapter")

#: How often a silent process is looked at, to notice that it has gone and left its output open.
_LOOK_MS: Final = 250
_STDERR_TAIL: Final = 2_000


class CommandAgent:
    """A turn function: each call runs the command once.

    With ``output="text"`` whatever it prints is text of the agent. With ``"jsonl"`` each line
    is a frame as `Frame.to_dict` writes it; a line that is none is text. An exit code other
    than 0 is a failed turn. The process runs in a group of its own; when it ends, by itself or
    because the turn is aborted, cancelled or too long, the rest of its group is killed.

    Args:
        argv: The program and its arguments; no shell is involved.
        cwd: Its working directory.
        env: Variables to set.
        pass_env: Names of variables to take over; without, it gets PATH, HOME, the locale and
            little else, and no keys.
        output: How to read what it prints.
        stdin: ``"text"`` gives it the prompt's text, ``"json"`` one line with all prompt frames.
        timeout_ms: Longest turn; None leaves that to the loop.
        grace_ms: How long it may take to end after SIGTERM.
        max_output: Most bytes it may print in one turn.
        environ: Where variables are looked up; the process's environment if None.

    Raises:
        AgentLoopConfigError: An option that cannot be used.
    """

    def __init__(
        self,
        argv: Sequence[str | PathLike[str]],
        *,
        cwd: str | PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        output: Literal["text", "jsonl"] = "text",
        stdin: Literal["text", "json"] = "text",
        timeout_ms: int | None = None,
        grace_ms: int = 2_000,
        max_output: int = 16 * 1024 * 1024,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(argv, str) or not argv:
            raise AgentLoopConfigError(
                f"the command adapter needs 'argv', a list of the program and its arguments, not {argv!r}"
            )
        if output not in ("text", "jsonl"):
            raise AgentLoopConfigError(f"output must be 'text' or 'jsonl', not {output!r}")
        if stdin not in ("text", "json"):
            raise AgentLoopConfigError(f"stdin must be 'text' or 'json', not {stdin!r}")
        if timeout_ms is not None and timeout_ms <= 0:
            raise AgentLoopConfigError(f"timeout_ms must be above 0, or None for none, not {timeout_ms!r}")
        self.argv = tuple(os.fspath(part) for part in argv)
        self._cwd = cwd
        self._env = child_environment(os.environ if environ is None else environ, pass_env=pass_env, env=env)
        self._output, self._stdin = output, stdin
        self._timeout_ms, self._grace_ms = timeout_ms, grace_ms
        self._max_output = max_output

    def __repr__(self) -> str:
        return f"CommandAgent({[*self.argv]!r})"

    async def __call__(
        self, prompt: Sequence[Frame], ctx: object = None
    ) -> AsyncGenerator[Frame, Frame | list[Frame] | None]:
        """Yield the frames of one turn.

        Raises:
            TurnError: It could not be started, ran longer than `timeout_ms`, printed too much, or
                ended with an exit code other than 0.
        """
        printed = _Printed(self._output == "jsonl", self._max_output)
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(self._input(prompt))
            stdin.seek(0)
            process = await self._start(stdin, stderr)
            code = -1
            try:
                deadline = anyio.current_time() + (self._timeout_ms or 10**12) / 1000
                while (data := await self._next(process, deadline)) is not None:
                    for frame in printed.feed(data):
                        yield frame
                with self._until(deadline):
                    await process.wait()
            finally:
                code = await end_group(process, grace_ms=self._grace_ms)
            if code != 0:
                raise TurnError(self._failure(code, stderr))
        for frame in printed.end():
            yield frame
        yield printed.done

    def _input(self, prompt: Sequence[Frame]) -> bytes:
        if self._stdin == "json":
            return encode([frame.to_dict() for frame in prompt]) + b"\n"
        return "\n\n".join(frame.text for frame in prompt if frame.text).encode()

    async def _start(self, stdin: IO[bytes], stderr: IO[bytes]) -> Process:
        try:
            return await start_group(self.argv, stdin=stdin, stderr=stderr, cwd=self._cwd, env=self._env)
        except OSError as error:
            raise TurnError(
                f"the command {self.argv[0]!r} could not be started: {error.strerror}"
                + (f" (in {os.fspath(self._cwd)})" if self._cwd is not None else "")
            ) from error

    @contextmanager
    def _until(self, deadline: float) -> Iterator[None]:
        with anyio.CancelScope(deadline=deadline) as scope:
            yield
        if scope.cancelled_caught:
            raise TurnError(f"the command {self.argv[0]!r} ran longer than timeout_ms={self._timeout_ms}")

    async def _next(self, process: Process, deadline: float) -> bytes | None:
        """Return the next bytes it printed, or None when there are no more."""
        stdout = cast(ByteReceiveStream, process.stdout)
        gone = False
        while True:
            with anyio.move_on_after(_LOOK_MS / 1000), self._until(deadline):
                try:
                    return await stdout.receive()
                except anyio.EndOfStream:
                    return None
            if gone:
                return None
            # What it started and left running may hold its output open for ever.
            if process.returncode is not None:
                gone = True
                kill_group(process)

    def _failure(self, code: int, stderr: IO[bytes]) -> str:
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _STDERR_TAIL))
        said = stderr.read().decode("utf-8", "replace").strip()
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return f"the command {self.argv[0]!r} ended with {how}" + (
            f": {said}" if said else " and said nothing"
        )


#: What a command may say in JSON lines; any other line is text.
_FRAME_TYPES: Final = frozenset({TEXT, REASONING, USAGE, CONTEXT, ERROR, DONE})


class _Printed:
    """Turns what a command prints into frames."""

    def __init__(self, lines: bool, max_bytes: int) -> None:
        self._lines, self._max_bytes, self._bytes = lines, max_bytes, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = b""
        self.done = Frame(DONE, {"finish_reason": "end_turn"})

    def feed(self, data: bytes) -> list[Frame]:
        self._bytes += len(data)
        if self._bytes > self._max_bytes:
            raise TurnError(f"the command printed more than max_output={self._max_bytes} bytes")
        if not self._lines:
            text = self._decoder.decode(data)
            return [Frame(TEXT, {"text": text})] if text else []
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        return [frame for line in lines for frame in self._line(line)]

    def end(self) -> list[Frame]:
        if self._lines:
            return self._line(self._rest)
        text = self._decoder.decode(b"", final=True)
        return [Frame(TEXT, {"text": text})] if text else []

    def _line(self, line: bytes) -> list[Frame]:
        if not line.strip():
            return []
        try:
            value = decode(line, repair_surrogates=True)
            frame = Frame.from_dict(value) if isinstance(value, dict) else None
        except (NotJson, FrameError):
            frame = None
        if frame is None or frame.type not in (*_FRAME_TYPES, TOOL_CALL):
            return [Frame(TEXT, {"text": line.decode("utf-8", "replace") + "\n"})]
        if frame.type == TOOL_CALL:
            raise TurnError(
                f"the command asked for the tool {frame.content.get('name')!r}: its input has already ended, "
                "so it cannot be answered; let it run its own tools"
            )
        if frame.type == DONE:
            self.done = frame
            return []
        return [frame]


class _Options(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a task file may say about a command."""

    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] = {}
    pass_env: list[str] = []
    output: Literal["text", "jsonl"] = "text"
    stdin: Literal["text", "json"] = "text"
    timeout_ms: int | None = None
    grace_ms: int = 2_000
    max_output: int = 16 * 1024 * 1024


def create_command_adapter(argv: Sequence[str | PathLike[str]], **options: Any) -> FrameDuplex:
    """Return a duplex that runs a command for every turn; options as for `CommandAgent`.

    Raises:
        AgentLoopConfigError: An option that cannot be used.
    """
    return turn_duplex(CommandAgent(argv, **options))


def command_adapter(options: Mapping[str, Json], context: AdapterContext) -> FrameDuplex:
    """Return the duplex for the options of a task file: the entry point ``command``.

    The command runs in the workspace; ``cwd`` is relative to it. A program named with a
    relative path, as ``./agent``, stands beside the task file.

    Raises:
        AgentLoopConfigError: An option is missing, unknown or of the wrong type.
    """
    read = read_options("command", _Options, options)
    given = msgspec.structs.asdict(read)
    given["cwd"] = context.workspace / (read.cwd or "")
    argv = given.pop("argv")
    if argv and os.sep in argv[0]:
        argv = [str(context.base / argv[0]), *argv[1:]]
    return create_command_adapter(argv, environ=context.environ, **given)
