"""The corpora are what they say they are."""

from __future__ import annotations

import hashlib
import os
import struct
from collections import Counter

from agentloop._canonical import decode, encode_text
from tests.corpora.read import (
    FOLDER,
    NUMBER_LINES,
    json_files,
    naughty_strings,
    number_bits,
    schema_files,
    surrogates,
)
from tests.tally import tally

COUNT = 1_000_000 if os.environ.get("RELIABILITY") == "full" else 100_000
DATA = {
    line.split()[1]: line.split()[0] for line in (FOLDER / "checksums.txt").read_text("utf-8").splitlines()
}


def test_every_data_file_has_its_checksum() -> None:
    assert {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in DATA} == DATA


def test_every_corpus_names_its_origin_and_licence_and_all_are_small() -> None:
    folders = [path for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert {path.name for path in folders} == {name.partition("/")[0] for name in DATA}
    for folder in folders:
        names = {path.name for path in folder.iterdir()}
        assert names - {name.partition("/")[2] for name in DATA} == {"LICENSE", "README.md"}
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 5_000_000


def test_the_json_files_are_all_there_byte_for_byte() -> None:
    files = json_files()
    assert Counter(file.name[:2] for file in files) == {"y_": 95, "n_": 188, "i_": 35}
    assert all(hashlib.sha256(file.data).hexdigest() == file.sha256 for file in files)


def test_the_schema_files_are_all_there_byte_for_byte() -> None:
    files = schema_files()
    assert len(files) == 59
    assert all(hashlib.sha256(file.data).hexdigest() == file.sha256 for file in files)


def test_the_strings_are_all_there() -> None:
    assert len(decode((FOLDER / "naughty_strings" / "strings.json").read_bytes())) == 515
    assert len(naughty_strings()) == 520
    assert len(set(surrogates())) == 2_048


def test_numbers_have_the_text_that_ecmascript_gives_them() -> None:
    lines = hashlib.sha256()
    for number, bits in enumerate(number_bits(COUNT), 1):
        (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
        lines.update(f"{bits:x},{encode_text(value)}\n".encode())
        if number in NUMBER_LINES:
            assert lines.hexdigest() == NUMBER_LINES[number], f"one of the first {number} differs"
    tally("number texts", COUNT)
