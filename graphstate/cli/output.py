"""What the program writes: JSON or text, with nothing in it that could steer a terminal.

Controls, escapes, bidirectional and invisible characters are shown as escapes, whether or not
a terminal reads them. The whole answer is written and flushed in one place, so that a reader
who left ends the program quietly and a full disk does not go unnoticed.
"""

from __future__ import annotations

import os
import re
import sys
from json import JSONEncoder
from typing import Any, TextIO

from graphstate._canonical import encode_text

__all__ = ("OutputFailed", "complain", "json_text", "visible", "without_vectors", "write")

# Everything but LF: C0, DEL, C1, soft hyphen, Arabic letter mark, Mongolian separator, zero width,
# line and paragraph separators, bidi controls, byte-order mark, annotations, surrogates, tags.
_STEERING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


_NOT_ASCII = re.compile("[^\x00-\x7f]")


class OutputFailed(Exception):
    """Standard output could not be written; what the verb did is done."""


#: Vectors of more numbers are only counted: nobody reads them, and a model would pay for each.
_FEW = 16


def without_vectors(value: Any) -> Any:
    """Return an answer with how many numbers a long vector has in the place of its numbers."""
    if isinstance(value, (list, tuple)):
        return [without_vectors(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"{len(item)} numbers"
        if key == "embedding" and isinstance(item, (list, tuple)) and len(item) > _FEW
        else without_vectors(item)
        for key, item in value.items()
    }


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:  # as JSON writes it
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def visible(text: str, *, tabs: bool = False) -> str:
    """Return the text with every character that steers a terminal escaped, line feeds kept.

    Args:
        tabs: Keep tabs too: they part the columns of a line.
    """
    if tabs:
        return "\t".join(visible(part) for part in text.split("\t"))
    return _STEERING.sub(_escape, text)


def json_text(value: Any, *, one_line: bool) -> str:
    """Return JSON in canonical form on one line, or indented by two in the order of the value."""
    if one_line:
        return visible(encode_text(value))
    return visible(JSONEncoder(indent=2, ensure_ascii=False, allow_nan=False).encode(value))


def write(text: str) -> bool:
    """Write an answer and its line end to standard output, flush it, and say whether anybody reads it.

    Raises:
        OutputFailed: The disk is full, or the output is closed. A reader who left is no failure.
    """
    if sys.stdout is None:
        raise OutputFailed("standard output is closed")
    try:
        sys.stdout.write(_encodable(text, sys.stdout) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _mute()
        return False
    except (OSError, ValueError) as error:
        _mute()
        raise OutputFailed(f"standard output: {getattr(error, 'strerror', None) or error}") from None
    return True


def _encodable(text: str, stream: TextIO) -> str:
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return _NOT_ASCII.sub(_escape, text)
    return text


def _mute() -> None:
    """Let the interpreter's own last flush go nowhere instead of failing a second time."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # replaced by something in memory
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def complain(message: str) -> None:
    """Write one line to standard error; if that fails too there is nobody left to tell."""
    if sys.stderr is None:
        return
    line = visible(" ".join(message.split("\n")))[:1000]
    try:
        sys.stderr.write(f"adaptogen: {_encodable(line, sys.stderr)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
