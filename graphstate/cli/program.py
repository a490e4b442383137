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
from typing import Any, NoReturn

from graphstate._canonical import Json
from graphstate.cli.arguments import SWITCH, Flag, Usage, Word, nearest, split
from graphstate.cli.commands import COMMANDS, EVERYWHERE, FLAGS, Command, Place, Shown, help_text
from graphstate.cli.output import OutputFailed, complain, json_text, visible, without_vectors, write

__all__ = ("find_database", "main")


class Terminated(BaseException):
    """SIGTERM arrived; unwinding closes the store."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Nothing is raised, unless ``--debug`` is given."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with _terminable():
            return _run(words)
    except Usage as error:
        complain(str(error))
        return 2
    except OutputFailed as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    except Terminated:
        return 143
    except Exception as error:
        if "--debug" in words:
            raise
        complain(f"unexpected {type(error).__name__}: {error} (--debug shows where it came from)")
        return 1


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that an open store is closed."""

    def terminate(number: int, frame: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(argv: Sequence[str]) -> int:
    words, given = split(argv, FLAGS)
    name, *rest = words or ["help"]
    if name == "help" or "help" in given:
        asked = name if name != "help" else rest[0] if rest else None
        write(help_text(None if asked is None else _command(asked)))
        return 0
    command = _command(name)
    answer = _answer(command, _values(command, rest, given), given)
    if answer.printed:
        return answer.exit_code
    if "vectors" not in given:
        answer = answer._replace(value=without_vectors(answer.value))
    if answer.text is not None and "json" not in given:
        write(visible(answer.text, tabs=True))
    else:
        write(json_text(answer.value, one_line="json" in given))
    return answer.exit_code


def _command(name: str) -> Command:
    command = COMMANDS.get(name)
    if command is None:
        raise Usage(f"unknown command {name!r:.80}{nearest(name, COMMANDS) or '; see adaptogen help'}")
    return command


def _values(command: Command, words: Sequence[str], given: dict[str, str]) -> dict[str, Any]:
    """Read words and flags as the parameters of the command's verb."""
    values: dict[str, Any] = {}
    left = list(words)
    for word in command.words:
        if word.many:
            values[word.name] = [_value(word, text) for text in left]
            left = []
        elif left:
            values[word.name] = _value(word, left.pop(0))
        elif not word.optional:
            raise Usage(f"{command.name} needs {word.shown}; usage: {command.usage}")
    if left:
        raise Usage(f"{command.name} does not take {left[0]!r:.80}; usage: {command.usage}")
    own = {flag.name: flag for flag in command.all_flags}
    everywhere = {flag.name for flag in EVERYWHERE}
    for name in given:
        if name in everywhere:
            continue
        if name not in own:
            raise Usage(f"{command.name} has no flag --{name}; usage: {command.usage}")
        flag = own[name]
        values[flag.parameter or name.replace("-", "_")] = flag.kind is SWITCH or _value(flag, given[name])
    return values


def _value(place: Word | Flag, text: str) -> Any:
    try:
        return place.kind.read(text)
    except Usage as error:
        raise Usage(f"{place.shown.strip('[]')}: {error}") from None


def find_database() -> str:
    """Return the project's ``.agentloop/state.db``, here or above, else ``adaptogen.db`` here."""
    folder = os.getcwd()
    while True:
        candidate = os.path.join(folder, ".agentloop", "state.db")
        if os.path.isfile(candidate):
            return candidate
        above = os.path.dirname(folder)
        if above == folder:
            return "adaptogen.db"
        folder = above


def _answer(command: Command, values: dict[str, Any], given: dict[str, str]) -> Shown:
    """Run the command on its file. What the verb or the file refuses becomes JSON and code 1."""
    from graphstate.adaptogen import DEFAULT_ACTOR, Adaptogen
    from graphstate.errors import OpenError, StoreError, VerbFailed, WrongKey
    from graphstate.model import to_json
    from graphstate.results import Fail, Ok

    if command.opens == "nothing":
        return Shown(command.call(None, values))
    path = given["db"] if "db" in given else find_database()
    if not path:
        raise Usage("--db needs the name of a file")
    reads = (
        command.opens == "reads"
        or (command.opens == "changes with words" and not any(values.values()))
        or (command.opens == "changes with --log" and "log" not in values)
    )
    if command.opens not in ("makes", "itself") and path != ":memory:" and not os.path.exists(path):
        hint = "create it with remember, or name another file with --db"
        return _failed("NotFound", f"there is no graph {path}", hint)
    embedder = values.pop("embedder", "stored") if command.embeds else None
    actor, trust = given.get("actor", DEFAULT_ACTOR), given.get("trust", "person")
    try:
        if command.opens == "itself":
            answer = command.call(Place(path, actor, trust), values)
        else:
            with Adaptogen.open(
                path,
                seed=False,
                actor=actor,
                trust=trust,
                read_only=reads,
                durability="power",
                key=_key(given),
                embedder=embedder,
            ) as graph:
                if command.live:
                    values["as_json"] = "json" in given
                answer = command.call(graph, values)
    except VerbFailed as error:
        return _failed(str(error.code), error.message, error.hint, error.details)
    except StoreError as error:
        return _failed(str(error.code), str(error), Fail(error.code, "").hint, dict(error.details))
    except OpenError as error:
        hint = (
            "name its key with --key-file" if isinstance(error, WrongKey) else "name another file with --db"
        )
        return _failed(type(error).__name__, str(error), hint)
    if isinstance(answer, Fail):
        return Shown(answer.to_json(), exit_code=1)
    if isinstance(answer, Shown):
        return answer._replace(value=to_json(answer.value))
    return Shown(to_json(answer.value if isinstance(answer, Ok) else answer))


def _key(given: dict[str, str]) -> bytes | None:
    """Read the key, whose bytes never stand on a command line."""
    if "key-file" not in given:
        return None
    from graphstate.store.opening import MIN_KEY

    try:
        with open(given["key-file"], "rb") as file:
            key = file.read(4_097)
    except OSError as error:
        raise Usage(f"--key-file: {given['key-file']} cannot be read: {error.strerror}") from None
    if not MIN_KEY <= len(key) <= 4_096:
        raise Usage(f"--key-file: a key has {MIN_KEY} to 4096 bytes")
    return key


def _failed(code: str, message: str, hint: str, details: Json = None) -> Shown:
    value = {"code": code, "message": message, "hint": hint}
    return Shown(value | {"details": details} if details else value, exit_code=1)
