"""From the words of a command line to values: words, flags, kinds of values, and what is wrong.

The grammar is the published one: `--name value` or `--name=value` anywhere, the other words in
order, `--` ends the flags, a value may begin with `-`. No file of the graph is opened here.
Written by hand because argparse refuses a flag's value that begins with `-`, and on Python 3.11
loses a word that is `--` itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from graphstate._canonical import MAX_BYTES, NotJson, decode

__all__ = (
    "COUNT",
    "TRUTH",
    "JSON",
    "MAX_ARGUMENT",
    "NAMES",
    "NUMBER",
    "NUMBERS",
    "OBJECT",
    "SWITCH",
    "TEXT",
    "Flag",
    "Kind",
    "Usage",
    "Word",
    "nearest",
    "split",
)

#: Bytes of JSON in an argument; a file or standard input may hold `MAX_BYTES`.
MAX_ARGUMENT = 1024 * 1024


class Usage(Exception):
    """The words cannot be understood: one line for the person, exit code 2, nothing written."""


class Kind(NamedTuple):
    """One way of reading a word as a value; `read` raises `Usage`."""

    metavar: str
    read: Callable[[str], Any]


class Word(NamedTuple):
    """A positional argument. `many` takes all the words that are left."""

    name: str
    help: str
    kind: Kind
    optional: bool = False
    many: bool = False

    @property
    def shown(self) -> str:
        name = self.name.upper() + ("..." if self.many else "")
        return f"[{name}]" if self.optional or self.many else name


class Flag(NamedTuple):
    """An option, named in kebab-case; the camelCase and snake_case spellings are accepted too."""

    name: str
    help: str
    kind: Kind
    #: the verb's parameter, if it is not the name in snake_case
    parameter: str = ""

    @property
    def shown(self) -> str:
        return f"--{self.name}" + (f" {self.kind.metavar}" if self.kind.metavar else "")


# ------------------------------------------------------------------------------ kinds of values


def _text(word: str) -> str:
    return word


def _names(word: str) -> list[str]:
    return [name for name in (part.strip() for part in word.split(",")) if name]


def _source(word: str) -> bytes | str:
    """The text itself, or what `@file` and `-` point to: at most one byte more than allowed."""
    if word == "-":
        if sys.stdin is None:
            raise Usage("standard input is closed, there is nothing to read for -")
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    if word.startswith("@"):
        try:
            with open(word[1:], "rb") as file:
                return file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Usage(f"cannot read {word[1:]!r:.200}: {reason}") from None
    return word


def _json(word: str) -> Any:
    source = _source(word)
    try:
        value = decode(source, max_bytes=MAX_ARGUMENT if source is word else MAX_BYTES)
    except NotJson as error:
        raise Usage(f"not JSON: {error}") from None
    if value is None:
        raise Usage("null is not a value here; leave the argument away")
    return value


def _object(word: str) -> dict[str, Any]:
    value = _json(word)
    if not isinstance(value, dict):
        raise Usage(f"a JSON object is needed, not {_named(value)}")
    return value


def _numbers(word: str) -> list[float]:
    value = _json(word)
    if not isinstance(value, list) or not all(_is_number(item) for item in value):
        raise Usage("a JSON array of numbers is needed")
    return value


def _number(word: str) -> float:
    try:
        value: Any = decode(word, max_bytes=MAX_ARGUMENT)
    except NotJson:
        value = None
    if not _is_number(value):
        raise Usage(f"a number is needed, not {word!r:.80}")
    number: float = value
    return number


def _count(word: str) -> int:
    value = _number(word)
    if not isinstance(value, int) or value < 0:
        raise Usage(f"a whole number from 0 is needed, not {word!r:.80}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _named(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "an array" if isinstance(value, list) else "a text" if isinstance(value, str) else "a number"


def _flag_value(word: str) -> bool:
    if word not in ("true", "false"):
        raise Usage(f"true or false is needed, not {word!r:.80}")
    return word == "true"


TEXT = Kind("TEXT", _text)
TRUTH = Kind("true|false", _flag_value)
#: Comma-separated; blanks around a name are dropped, empty names left out.
NAMES = Kind("A,B", _names)
JSON = Kind("JSON", _json)
OBJECT = Kind("JSON", _object)
NUMBERS = Kind("JSON", _numbers)
NUMBER = Kind("NUMBER", _number)
COUNT = Kind("N", _count)
#: Takes no value.
SWITCH = Kind("", _text)


# ------------------------------------------------------------------------------ words and flags


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?``, or nothing if no known word is near."""
    from difflib import get_close_matches  # only a mistake pays for it

    close = get_close_matches(word[:100], list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def split(argv: Sequence[str], flags: Mapping[str, Flag]) -> tuple[list[str], dict[str, str]]:
    """Part a command line into its words and its flags with their unread values.

    Raises:
        Usage: An unknown flag, one given twice or without its value, bytes that are not UTF-8.
    """
    for word in argv:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise Usage(f"an argument is not UTF-8: {word!a:.80}") from None
    words: list[str] = []
    given: dict[str, str] = {}
    rest = iter(argv)
    for word in rest:
        if word == "--":
            words.extend(rest)
        elif word.startswith("-") and word != "-" and not word[1:2].isdigit():
            name, equals, value = word.partition("=")
            flag = _flag(name, flags)
            if flag.name in given:
                raise Usage(f"--{flag.name} is given twice")
            if flag.kind is SWITCH:
                if equals:
                    raise Usage(f"--{flag.name} takes no value")
            elif not equals:
                following = next(rest, None)
                if following is None:
                    raise Usage(f"--{flag.name} needs a value ({flag.kind.metavar})")
                value = following
            given[flag.name] = value
        else:
            words.append(word)
    return words, given


def _flag(word: str, flags: Mapping[str, Flag]) -> Flag:
    if word == "-h":
        return flags["help"]
    if not word.startswith("--"):
        raise Usage(f"unknown flag {word!r:.80}; put -- before a word that begins with -")
    name = "".join(f"-{c.lower()}" if c.isupper() else "-" if c == "_" else c for c in word[2:])
    if name not in flags:
        raise Usage(f"unknown flag {word!r:.80}{nearest(word, [f'--{known}' for known in flags])}")
    return flags[name]
