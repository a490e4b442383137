"""The kinds of checks: how each reads its argument and how it answers.

A kind never raises for anything the world did; it answers yes, no, or that it cannot tell,
and why. Not being able to tell fails the check, also under ``!``.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from agentloop._canonical import NotJson, decode
from agentloop.checks.files import Unreachable, Workspace, has_magic
from agentloop.checks.trace import Call, read_integer, read_trace
from agentloop.symbolic import SymbolicState, same_value

if TYPE_CHECKING:
    from agentloop.patterns import Pattern

__all__ = ("CHECKS", "Answer", "Check", "Malformed", "Scene")

_MAX_SEEN: Final = 10


class Malformed(ValueError):
    """An argument that its kind cannot read; the message says why."""


class Answer(NamedTuple):
    """What a kind says: True, False, or None for 'cannot tell'."""

    passed: bool | None
    detail: str = ""


class Scene:
    """What checks look at: one moment of the workspace, the facts and the trace."""

    __slots__ = ("_calls", "glob_limit", "symbolics", "trace", "workspace")

    def __init__(
        self, workspace: Workspace, symbolics: SymbolicState | None, trace: Any, glob_limit: int
    ) -> None:
        self.workspace, self.symbolics, self.trace = workspace, symbolics, trace
        self.glob_limit = glob_limit
        self._calls: list[Call] | None = None

    def calls(self, tool: str | None) -> list[Call]:
        """Return the calls of one tool, or of all."""
        if self._calls is None:
            self._calls = read_trace(self.trace)
        return self._calls if tool is None else [call for call in self._calls if call.name == tool]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of check, a row of `CHECKS`."""

    #: Reads the argument once; raises `Malformed`.
    read: Callable[[str], Any]
    #: Answers; gets what `read` gave, the scene, and the tool of the scope.
    ask: Callable[[Any, Scene, str | None], Answer]
    #: Whether ``tool/`` may stand before the kind.
    scoped: bool = False
    #: Whether asking can take long enough to belong in a worker thread.
    blocking: Callable[[Any], bool] = lambda argument: False


# -------------------------------------------------------------------------------- arguments


def _text(argument: str) -> str:
    if not argument:
        raise Malformed("the argument is empty")
    return argument


def _lines(argument: str) -> str:
    return _newlines(_text(argument))


def _path(argument: str) -> str:
    return _text(argument.strip())


def _integer(argument: str) -> int:
    number = read_integer(argument)
    if number is None:
        raise Malformed(f"{argument.strip()!r:.80} is not a decimal integer")
    return number


def _path_and_text(argument: str) -> tuple[str, str]:
    path, equals, text = argument.partition("=")
    if not equals:
        raise Malformed("it needs the form path=text")
    return _path(path), _lines(text)


def _name_and_value(argument: str) -> tuple[str, str | None]:
    name, equals, value = argument.partition("=")
    return _text(name.strip()), value if equals else None


# ------------------------------------------------------------------------------------ files


def _judge(path: str, found: Any) -> Answer:
    mode = found.st_mode
    if path.endswith("/"):
        return Answer(True) if stat.S_ISDIR(mode) else Answer(False, "is not a directory")
    if stat.S_ISDIR(mode):
        return Answer(False, "is a directory: end the path with / to accept one")
    if not stat.S_ISREG(mode):
        return Answer(False, "is not a regular file")
    if found.st_nlink > 1:
        return Answer(True, f"the file has {found.st_nlink} hard links, so it may also stand elsewhere")
    return Answer(True)


def _exists(path: str, scene: Scene, _: str | None) -> Answer:
    try:
        return _judge(path, scene.workspace.stat(path))
    except Unreachable as unreachable:
        if not (unreachable.missing and has_magic(path)):
            return Answer(False if unreachable.missing else None, unreachable.reason)
    return _matches(path, scene)


def _matches(path: str, scene: Scene) -> Answer:
    why = "no file matches the pattern"
    try:
        for match in scene.workspace.glob(path, limit=scene.glob_limit):
            try:
                answer = _judge(path, scene.workspace.stat(match))
            except Unreachable as unreachable:
                answer = Answer(None, unreachable.reason)
            if answer.passed:
                return Answer(True, f"matched by {match}" + (answer.detail and f"; {answer.detail}"))
            why = f"{match}: {answer.detail}"
    except Unreachable as unreachable:
        return Answer(None, unreachable.reason)
    return Answer(False, why)


def _missing(path: str, scene: Scene, _: str | None) -> Answer:
    try:
        scene.workspace.stat(path)
        return Answer(False, "it exists")
    except Unreachable as unreachable:
        if not (unreachable.missing and has_magic(path)):
            return Answer(True if unreachable.missing else None, unreachable.reason)
    try:
        for match in scene.workspace.glob(path, limit=scene.glob_limit):
            try:
                scene.workspace.stat(match)
                return Answer(False, f"{match} exists")
            except Unreachable as lost:
                if not lost.missing:
                    return Answer(None, f"{match}: {lost.reason}")
    except Unreachable as broad:
        return Answer(None, broad.reason)
    return Answer(True)


def _file_contains(argument: tuple[str, str], scene: Scene, _: str | None) -> Answer:
    path, text = argument
    try:
        content = scene.workspace.read(path)
    except Unreachable as unreachable:
        return Answer(None, unreachable.reason)
    found = text in _newlines(content.decode("utf-8", "replace"))
    return Answer(True) if found else Answer(False, "the file does not contain the text")


def _json_valid(path: str, scene: Scene, _: str | None) -> Answer:
    try:
        decode(scene.workspace.read(path))
    except Unreachable as unreachable:
        return Answer(None, unreachable.reason)
    except NotJson as error:
        return Answer(False, f"not JSON: {error}")
    return Answer(True)


# ------------------------------------------------------------------------------------ calls

_ANSI: Final = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _no_call(tool: str | None) -> Answer:
    return Answer(
        False, "there is no tool result" if tool is None else f"there is no result of tool {tool!r}"
    )


def _exit_code(code: int, scene: Scene, tool: str | None) -> Answer:
    calls = scene.calls(tool)
    seen: dict[int, None] = {}
    for call in reversed(calls):
        if call.exit_code == code:
            return Answer(True, f"met by {call}")
        if call.exit_code is not None and len(seen) < _MAX_SEEN:
            seen[call.exit_code] = None
    if not calls:
        return _no_call(tool)
    if not seen:
        return Answer(False, "no tool result has an exit code")
    return Answer(False, f"exit codes seen: {', '.join(map(str, seen))}")


def _last_exit_code(code: int, scene: Scene, tool: str | None) -> Answer:
    calls = scene.calls(tool)
    for call in reversed(calls):
        if call.exit_code is not None:
            return Answer(call.exit_code == code, f"{call} exited with {call.exit_code}")
    return Answer(False, "no tool result has an exit code") if calls else _no_call(tool)


def _in_stdout(found: Callable[[str], bool], scene: Scene, tool: str | None) -> Answer:
    calls = scene.calls(tool)
    for call in reversed(calls):
        if call.stdout is None:
            continue
        stdout = _newlines(call.stdout)
        if found(stdout) or ("\x1b" in stdout and found(re.sub(_ANSI, "", stdout))):
            return Answer(True, f"met by {call}")
    return Answer(False, "no stdout has it") if calls else _no_call(tool)


def _stdout_contains(text: str, scene: Scene, tool: str | None) -> Answer:
    return _in_stdout(lambda stdout: text in stdout, scene, tool)


def _pattern(argument: str) -> Pattern:
    from agentloop.patterns import Pattern  # few lists have one, and it takes a while to import

    return Pattern(argument)


def _stdout_matches(pattern: Pattern, scene: Scene, tool: str | None) -> Answer:
    return _in_stdout(pattern.search, scene, tool)


# ------------------------------------------------------------------------------------ facts


def _symbolic(argument: tuple[str, str | None], scene: Scene, _: str | None) -> Answer:
    name, wanted = argument
    state = scene.symbolics
    if state is None:
        return Answer(None, "no symbolic state bound")
    if state.declared is not None and name not in state.declared:
        return Answer(None, f"the symbolic name {name!r} is not declared")
    if name not in state:
        return Answer(False, f"{name!r} is not set")
    value = state.get_value(name)
    if wanted is None or _means(value, wanted):
        return Answer(True)
    return Answer(False, f"it is {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _means(value: Any, text: str) -> bool:
    """Return whether the text of a check says that value; what it means follows the value's type."""
    if isinstance(value, str):
        return text == value or (text[:1] == '"' and _says(text, value))
    text = text.strip()
    if isinstance(value, bool):
        return text.lower() == ("true" if value else "false")
    if value is None:
        return text.lower() in ("null", "none")
    return _says(text, value)


def _says(text: str, value: Any) -> bool:
    try:
        return same_value(decode(text), value)
    except NotJson:
        return False


#: Every kind that is always there.
CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "file_exists": Check(read=_path, ask=_exists, blocking=has_magic),
        "file_missing": Check(read=_path, ask=_missing, blocking=has_magic),
        "file_contains": Check(read=_path_and_text, ask=_file_contains, blocking=lambda _: True),
        "json_valid": Check(read=_path, ask=_json_valid, blocking=lambda _: True),
        "exit_code": Check(read=_integer, ask=_exit_code, scoped=True),
        "last_exit_code": Check(read=_integer, ask=_last_exit_code, scoped=True),
        "stdout_contains": Check(read=_lines, ask=_stdout_contains, scoped=True),
        "stdout_matches": Check(read=_pattern, ask=_stdout_matches, scoped=True, blocking=lambda _: True),
        "symbolic": Check(read=_name_and_value, ask=_symbolic),
    }
)
