"""Cases as files: pure data, so that a run that happened can be kept as one and played again."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from agentloop._canonical import Json, NotJson, decode
from agentloop.errors import AgentLoopConfigError, ErrorValue, TaskError
from agentloop.evals.cases import EvalCase, EvalSuite
from agentloop.evals.graders import GRADERS
from agentloop.evals.grades import Grader
from agentloop.messages import ToolCall, ToolResult
from agentloop.orchestrator.registry import ToolRun
from agentloop.outcome import Err, Ok, Result, fatal, transient
from agentloop.ports import AssemblyRequest, Context, Summary, TokenUsage, ToolSpec
from agentloop.tools import Tool

__all__ = ("CaseFile", "GraderLine", "RecordedResult", "Window", "load_case", "load_cases", "read_case")

CASE_VERSION: Final = 1


class GraderLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A grader by its name in `GRADERS`, and what it is given."""

    grader: str
    args: tuple[Any, ...] = ()
    weight: float = 1

    def make(self) -> Grader:
        """Return the grader.

        Raises:
            TaskError: There is none of that name, or it cannot be given that.
        """
        if self.grader not in GRADERS:
            raise TaskError(f"no grader is called {self.grader!r}; there are {', '.join(GRADERS)}")
        try:
            made = GRADERS[self.grader](*self.args)
            return Grader(id=made.id, grade=made.grade, weight=self.weight)
        except (TypeError, ValueError) as error:  # of which a wrong option is one
            raise TaskError(f"{self.grader} cannot be given {[*self.args]!r:.200}: {error}") from error


class RecordedResult(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """What a call gave, once."""

    name: str
    args: dict[str, Any] | None = None
    #: Of an orchestrated run: the value as text, or the error's message.
    content: str = ""
    error: ErrorValue | None = None
    #: Codes of the failed attempts before it.
    attempts: tuple[str, ...] = ()
    #: How long it took.
    wait_ms: int = 0
    #: Of a loop: the content of its frame.
    frame: dict[str, Any] | None = None


class Window(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """What an assembler gave: a window, or a summary it had made first."""

    tokens: int = 0
    report: dict[str, Any] | None = None
    max_output_tokens: int | None = None
    summary: str | None = None
    usage: TokenUsage = TokenUsage()


class CaseFile(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """A case that names no code."""

    version: Literal[1]
    id: str
    goal: str
    graders: tuple[GraderLine, ...]
    script: tuple[dict[str, Any], ...]
    subject: Literal["orchestrator", "loop"] = "orchestrator"
    description: str = ""
    tags: tuple[str, ...] = ()
    critical: bool = False
    weight: float = 1
    #: As of `EvalCase`.
    config: dict[str, Any] = {}
    #: Tools that were offered; the value says whether they only read.
    tools: dict[str, bool] = {}
    results: tuple[RecordedResult, ...] = ()
    windows: tuple[Window, ...] = ()
    #: Of a loop.
    evaluator: tuple[dict[str, Any], ...] = ()
    #: Of a loop: what the checks answered, each time.
    checks: tuple[dict[str, Any], ...] | None = None

    def serialise(self) -> str:
        """Return the file: JSON with an indent of two."""
        return json.dumps(msgspec.to_builtins(self), indent=2, ensure_ascii=False) + "\n"

    def case(self) -> EvalCase:
        """Return the case that plays it.

        Raises:
            TaskError: A grader is unknown.
            AgentLoopConfigError: A weight cannot be.
        """
        more: dict[str, Any] = {}
        if self.windows:
            more["assembler"] = lambda: PlayedWindows(self.windows)
        if self.subject == "loop":
            more["tools"] = lambda: _loop_tools(self.tools, self.results)
            more["evaluator"] = self.evaluator
            if self.checks is not None:
                more |= {"checks": ("recorded",), "judge": lambda: _judge(self.checks or ())}
        else:
            more["tools"] = lambda: PlayedTools(self.tools, self.results)
        return EvalCase(
            id=self.id,
            goal=self.goal,
            script=self.script,
            graders=[line.make() for line in self.graders],
            subject=self.subject,
            description=self.description,
            tags=self.tags,
            critical=self.critical,
            weight=self.weight,
            config=self.config,
            **more,
        )


def read_case(data: bytes | str) -> CaseFile:
    """Read a case.

    Raises:
        TaskError: It is none.
    """
    try:
        return msgspec.convert(decode(data), CaseFile)
    except (NotJson, msgspec.ValidationError) as error:
        raise TaskError(f"it is no case: {error}") from error


def load_case(path: Path) -> EvalCase:
    """Return the case in a file.

    Raises:
        TaskError: It cannot be read, or is no case.
    """
    try:
        return read_case(path.read_bytes()).case()
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}") from error
    except (TaskError, AgentLoopConfigError) as error:
        raise TaskError(f"{path}: {error}") from error


def load_cases(folder: Path) -> EvalSuite:
    """Return the suite of the cases in a folder (``*.json``, by name); it is called as the folder.

    Raises:
        TaskError: One of them is no case, or there is none.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise TaskError(f"there are no cases (*.json) in {folder}")
    return EvalSuite(id=folder.absolute().name, cases=[load_case(path) for path in paths])


# --------------------------------------------------------------------------- what plays them


class _Results:
    """Results that are taken once: for the same arguments, else the next of that name."""

    def __init__(self, results: Sequence[RecordedResult]) -> None:
        self._left = deque(results)
        self._by_step: dict[str, RecordedResult] = {}

    def take(self, call: ToolCall, step_id: str) -> RecordedResult | None:
        """Return the result for a call; attempts at the same call have the same one."""
        if step_id in self._by_step:
            return self._by_step[step_id]
        named = [result for result in self._left if result.name == call.name]
        exact = [result for result in named if result.args == call.arguments]
        found = next(iter(exact or named), None)
        if found is not None:
            self._left.remove(found)
            self._by_step[step_id] = found
        return found


def _not_recorded(name: str) -> ErrorValue:
    return fatal("tool.not_recorded", f"{name} was not called so often when this was recorded")


class PlayedTools:
    """The tools of an orchestrated run, as they answered once."""

    def __init__(self, tools: Mapping[str, bool], results: Sequence[RecordedResult]) -> None:
        self._tools, self._results = tools, _Results(results)
        self.specs = tuple(ToolSpec(name=name, description="", schema={}) for name in tools)

    def read_only(self, name: str, /) -> bool:
        return self._tools.get(name, False)

    def accepts_key(self, name: str, /) -> bool:
        return False

    def timeout_ms(self, name: str, /) -> int | None:
        return None

    async def invoke(self, call: ToolCall, run: ToolRun, /) -> Result[Json]:
        """Answer as it was answered; with ``tool.not_recorded`` where it was not."""
        result = self._results.take(call, run.step_id)
        if result is None:
            return Err(_not_recorded(call.name))
        if run.attempt <= len(result.attempts):
            return Err(transient(result.attempts[run.attempt - 1], "it failed, and was tried again"))
        if result.wait_ms:
            await run.clock.sleep_ms(result.wait_ms)
        return Ok(result.content) if result.error is None else Err(result.error)


def _loop_tools(tools: Mapping[str, bool], results: Sequence[RecordedResult]) -> list[Tool]:
    left = _Results(results)

    async def play(call: ToolCall) -> ToolResult:
        result = left.take(call, call.step_id)
        if result is None or result.frame is None:
            error = _not_recorded(call.name)
            return ToolResult(id=call.id, name=call.name, ok=False, output=error.message, error=error)
        return msgspec.structs.replace(ToolResult.from_content(result.frame), id=call.id)

    return [Tool(name=name, handler=play, read_only=reads) for name, reads in tools.items()]


def _judge(reports: Sequence[Mapping[str, Any]]) -> Callable[..., Any]:
    left = deque(reports)

    def judge(names: object, trace: object) -> Mapping[str, Any]:
        if not left:
            return {
                "all_passed": False,
                "evidence": "the checks were not asked so often when this was recorded",
            }
        return left.popleft()

    return judge


class PlayedWindows:
    """The windows of a run as they were counted once; what is shown is the transcript."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._left = deque(windows)

    async def assemble(self, request: AssemblyRequest, /) -> Context | Summary:
        """Return the next window; beyond the last one, the transcript."""
        window = self._left.popleft() if self._left else Window()
        if window.summary is not None:
            return Summary(text=window.summary, usage=window.usage)
        return Context(
            messages=tuple(request.transcript),
            tokens=window.tokens,
            report=window.report,
            max_output_tokens=window.max_output_tokens,
        )
