"""Writing to a terminal or a pipe: one record is one line, and data never moves the cursor."""

from __future__ import annotations

import os
import sys
import unicodedata
from pathlib import Path

__all__ = ("complain", "fill_closed", "hush", "line", "say", "shown_path", "visible")

#: Controls, format characters (bidi, zero-width, tags), surrogates, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """Return the text with every character that could act on a terminal as a visible escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if unicodedata.category(character) not in _HIDDEN else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or f"\\u{{{ord(character):x}}}"


def line(text: str, limit: int = 200) -> str:
    """Return the text as one visible line of at most that many characters."""
    short = " ".join(text.split())
    return visible(short if len(short) <= limit else f"{short[: limit - 1]}…")


def shown_path(path: Path) -> str:
    """Return a path as it is typed in the current folder, if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def say(text: str = "") -> None:
    """Print a line to standard output."""
    sys.stdout.write(f"{text}\n")


def complain(text: str) -> None:
    """Print one line to standard error."""
    sys.stderr.write(f"{line(text, 1_000)}\n")


def fill_closed() -> None:
    """Put something in the place of an output that we were started without."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the program ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def hush() -> None:
    """Let what is still to be written to standard output vanish: it cannot be written.

    Otherwise the interpreter would complain about it while it closes.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
