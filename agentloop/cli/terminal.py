"""Writing to a terminal or a pipe: one record is one line, and data never moves the cursor."""

from __future__ import annotations

import sys
import unicodedata

__all__ = ("complain", "line", "say", "visible")

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


def say(text: str = "") -> None:
    """Print a line to standard output."""
    sys.stdout.write(f"{text}\n")


def complain(text: str) -> None:
    """Print one line to standard error."""
    sys.stderr.write(f"{line(text, 1_000)}\n")
