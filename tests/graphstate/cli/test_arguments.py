from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from graphstate.cli.arguments import COUNT, JSON, NAMES, NUMBER, NUMBERS, OBJECT, Kind, Usage, split
from graphstate.cli.commands import FLAGS


@pytest.mark.parametrize("spelling", ["--edge-id", "--edgeId", "--edge_id"])
@pytest.mark.parametrize("joined", [True, False])
def test_a_flag_has_three_spellings_and_two_forms(spelling: str, joined: bool) -> None:
    argv = [f"{spelling}=e1"] if joined else [spelling, "e1"]
    assert split([*argv, "reward", "1"], FLAGS) == (["reward", "1"], {"edge-id": "e1"})


def test_flags_may_stand_anywhere_and_values_may_begin_with_a_dash() -> None:
    words, given = split(["--db", "-x", "link", "a", "--label", "--", "b", "--weight", "-1"], FLAGS)
    assert words == ["link", "a", "b"]
    assert given == {"db": "-x", "label": "--", "weight": "-1"}


def test_two_dashes_end_the_flags() -> None:
    assert split(["get", "--", "--json", "--"], FLAGS) == (["get", "--json", "--"], {})


def test_a_negative_number_and_a_single_dash_are_words() -> None:
    assert split(["reward", "-1", "-"], FLAGS) == (["reward", "-1", "-"], {})


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--edge-idd", "x"], "did you mean --edge-id?"),
        (["-x"], "put -- before a word"),
        (["--label"], "--label needs a value"),
        (["--label", "a", "--label", "b"], "given twice"),
        (["--json=1"], "takes no value"),
        (["get", "\udcff"], "not UTF-8"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(argv: list[str], said: str) -> None:
    with pytest.raises(Usage, match=said):
        split(argv, FLAGS)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (NAMES, " a, b,,c ", ["a", "b", "c"]),
        (NUMBER, "-0.5", -0.5),
        (COUNT, "12", 12),
        (JSON, '"text"', "text"),
        (OBJECT, '{"a": [1, 2.5]}', {"a": [1, 2.5]}),
        (NUMBERS, "[1, 2.5]", [1, 2.5]),
    ],
)
def test_a_kind_reads_its_values(kind: Kind, text: str, value: object) -> None:
    assert kind.read(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (JSON, "null"),
        (JSON, "{"),
        (JSON, '{"a": 1, "a": 2}'),
        (JSON, "[" * 101 + "]" * 101),
        (JSON, "NaN"),
        (JSON, "1e400"),
        (JSON, '"\\ud800"'),
        (JSON, f'"{"x" * 1024 * 1024}"'),
        (JSON, "@/nowhere/at/all"),
        (JSON, "@."),
        (JSON, "@"),
        (OBJECT, "[]"),
        (NUMBERS, '[1, "2"]'),
        (NUMBERS, "[true]"),
        (NUMBER, "true"),
        (NUMBER, "Infinity"),
        (NUMBER, "abc"),
        (COUNT, "-1"),
        (COUNT, "1.5"),
    ],
)
def test_a_kind_refuses_what_it_is_not(kind: Kind, text: str) -> None:
    with pytest.raises(Usage) as caught:
        kind.read(text)
    assert "\n" not in str(caught.value)


def test_json_is_read_from_a_file_and_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "value.json"
    file.write_bytes(b'{"from": "file"}')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"from": "input"}')))
    assert JSON.read(f"@{file}") == {"from": "file"}
    assert JSON.read("-") == {"from": "input"}


def test_an_endless_file_is_refused_after_the_limit() -> None:
    with pytest.raises(Usage, match="bytes of JSON, more than"):
        JSON.read("@/dev/zero")
