"""The `adaptogen` program: one command line in, one answer out, one exit code.

0 done, 1 a typed failure (its JSON on standard output), 2 the command line is wrong (one line
on standard error, nothing written), 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from graphstate.cli.arguments import Usage, nearest, split
from graphstate.cli.commands import COMMANDS, FLAGS, Command, Shown, help_text
from graphstate.cli.output import OutputFailed, complain, json_text, visible, write

if TYPE_CHECKING:
    from graphstate.adaptogen import Adaptogen

__all__ = ("find_database", "main")


class Terminated(BaseException):
    """SIGTERM arrived; unwinding closes the store."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with _terminable():
            return _run(words)
    except Usage as error:
        complain(f"{error}")
        return 2
    except OutputFailed as error:
        complain(f"{error}")
        return 1
    except KeyboardInterrupt:
        return 130
    except Terminated:
        return 143
    except Exception as error:
        if "--debug" in words:
            raise
        complain(f"unexpected {type(error).__name__}: {error} (--debug shows where)")
        return 1


def _run(words: Sequence[str]) -> int:
    positional, given = split(words, FLAGS)
    name, *rest = positional or ["help"]
    if name == "help" or "help" in given:
        asked = rest[0] if name == "help" and rest else name
        write(help_text(None if asked == "help" else _command(asked)))
        return 0
    command = _command(name)
    values = _read(command, rest, given)
    answer, code = _answer(command, values, given.get("db"))
    if isinstance(answer, Shown):
        code = answer.exit_code
        if answer.text is not None and "json" not in given:
            write(visible(answer.text, tabs=True))
            return code
        answer = answer.value
    write(json_text(answer, one_line="json" in given))
    return code


def _command(name: str) -> Command:
    command = COMMANDS.get(name)
    if command is None:
        raise Usage(f"unknown command {name!r:.80}{nearest(name, COMMANDS) or '; see adaptogen help'}")
    return command


def _read(command: Command, words: Sequence[str], given: dict[str, str]) -> dict[str, Any]:
    """Turn words and flags into the parameters of the command's verb."""
    values: dict[str, Any] = {}
    left = list(words)
    for word in command.words:
        if word.many:
            values[word.name] = [_value(word.name.upper(), word.kind.read, text) for text in left]
            left = []
        elif left:
            values[word.name] = _value(word.name.upper(), word.kind.read, left.pop(0))
        elif not word.optional:
            raise Usage(f"{command.name} needs {word.name.upper()}; usage: {command.usage}")
    if left:
        raise Usage(f"{command.name} does not take {left[0]!r:.80}; usage: {command.usage}")
    for name, text in given.items():
        flag = command.flag(name)
        if flag is None:
            raise Usage(f"{command.name} has no flag --{name}; usage: {command.usage}")
        if flag.parameter:
            values[flag.parameter] = _value(f"--{name}", flag.kind.read, text)
    return values


def _value(name: str, read: Any, text: str) -> Any:
    try:
        return read(text)
    except Usage as error:
        raise Usage(f"{name}: {error}") from None


def find_database(start: str = ".") -> str:
    """Return the project's file, `.agentloop/state.db` upwards from here, else `adaptogen.db` here."""
    folder = os.path.abspath(start)
    while True:
        candidate = os.path.join(folder, ".agentloop", "state.db")
        if os.path.isfile(candidate):
            return candidate
        above = os.path.dirname(folder)
        if above == folder:
            return os.path.join(start, "adaptogen.db")
        folder = above


def _answer(command: Command, values: dict[str, Any], path: str | None) -> tuple[Any, int]:
    """Run the command on its file; a failure of the verb or of opening becomes its JSON."""
    from graphstate.errors import OpenError, StoreError, VerbFailed
    from graphstate.model import to_json
    from graphstate.results import Fail, Ok

    try:
        if command.opens == "nothing":
            return command.call(None, values), 0
        with _opened(command, path or find_database(), values) as graph:
            answer = command.call(graph, values)
    except (StoreError, VerbFailed, OpenError) as error:
        ...
    if isinstance(answer, Fail):
        return answer.to_json(), 1
    return to_json(answer.value if isinstance(answer, Ok) else answer), 0


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception while the store may be open."""

    def terminate(number: int, frame: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
