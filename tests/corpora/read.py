"""The public corpora as values; see README.md beside this file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from agentloop._canonical import Json, decode

__all__ = (
    "FOLDER",
    "NUMBER_LINES",
    "JsonFile",
    "json_files",
    "naughty_strings",
    "number_bits",
    "schema_files",
    "surrogates",
)

FOLDER = Path(__file__).parent

#: SHA-256 of the first lines of the ECMAScript number file, as published.
NUMBER_LINES = {
    1_000: "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687",
    10_000: "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892",
    100_000: "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7",
    1_000_000: "49415fee2c56c77864931bd3624faad425c3c577d6d74e89a83bc725506dad16",
}


class JsonFile(NamedTuple):
    """One file of a corpus of JSON."""

    #: in the parsing corpus it begins with y_ (to be accepted), n_ (to be refused) or i_ (left open)
    name: str
    data: bytes
    sha256: str


@cache
def json_files() -> tuple[JsonFile, ...]:
    """Return the 318 files of the JSON parsing corpus, sorted by name."""
    return _files("json_parsing")


@cache
def schema_files() -> tuple[JsonFile, ...]:
    """Return the 59 files of the JSON Schema test suite, sorted by name."""
    return _files("json_schema")


def _files(folder: str) -> tuple[JsonFile, ...]:
    rows = [decode(line) for line in (FOLDER / folder / "files.jsonl").read_bytes().split(b"\n") if line]
    return tuple(JsonFile(row["name"], _bytes(row), row["sha256"]) for row in rows)


def _bytes(row: dict[str, Json]) -> bytes:
    if "base64" in row:
        return base64.b64decode(row["base64"])
    text: str = row["text"] if "text" in row else row["unit"] * row["times"] + row["end"]
    return text.encode()


@cache
def naughty_strings() -> tuple[str, ...]:
    """Return the naughty strings, each once: the 515 and those that differ by white space."""
    folder = FOLDER / "naughty_strings"
    texts = [
        text for name in ("strings", "trimmed") for text in decode((folder / f"{name}.json").read_bytes())
    ]
    return tuple(dict.fromkeys(texts))


def surrogates() -> Iterator[str]:
    """Yield a text around each of the 2,048 lone surrogates."""
    return (f"a{chr(code)}b" for code in range(0xD800, 0xE000))


def number_bits(count: int) -> Iterator[int]:
    """Yield the bit patterns of the first lines of the ECMAScript number file."""
    return islice(_number_bits(), count)


def _number_bits() -> Iterator[int]:
    for line in (FOLDER / "numbers" / "bits.txt").read_text("ascii").split():
        yield int(line, 16)
    smallest_normal = 1 << 52
    yield from range(smallest_normal, smallest_normal + 2_000)
    block, exponent = bytes(32), 0x7FF << 52
    while True:
        block = hashlib.sha256(block).digest()
        for start in range(0, 32, 8):
            bits = int.from_bytes(block[start : start + 8], "little")
            if bits & exponent != exponent and bits & ~(1 << 63):
                yield bits
