"""Every argument of every command replaced by values that nobody should pass.

A third of the calls by default, of each command another one; all with `RELIABILITY=full`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from graphstate._canonical import decode
from graphstate.adaptogen import Adaptogen
from graphstate.cli import main
from graphstate.cli.arguments import SWITCH
from graphstate.cli.commands import COMMANDS
from tests.graphstate.cli.example_calls import EXAMPLES, sow

EVERY = 1 if os.environ.get("RELIABILITY") == "full" else 3

HOSTILE = (
    "", " ", "-", "--", "--json", "@", "@/nowhere", "null", "NaN", "1e400", "-1", "1" * 30, "0.1.2", "{", "[]",
    "[" * 200, '{"a": 1, "a": 2}', '"\\ud800"', "\udcff", "a\nb\tc", "\x1b[31mred\x07", "\u202eabc\u2066\u200b",
    "\x00", "日本語 🦊", "x" * 5_000, "'; DROP TABLE node; --", '" OR "1"="1', "../../etc/passwd", "%s%n{0}",
)  # fmt: skip


def calls(name: str) -> Iterator[tuple[str, ...]]:
    """The example of a command with one word or value replaced, or one appended."""
    example = EXAMPLES[name]
    flags = {f"--{flag.name}" for flag in COMMANDS[name].flags}
    switches = {f"--{flag.name}" for flag in COMMANDS[name].flags if flag.kind is SWITCH}
    for value in HOSTILE:
        for place, word in enumerate(example):
            if word not in flags:
                yield (*example[:place], value, *example[place + 1 :])
        yield (*example, value)
        yield (*example, f"--{value}")
        for flag in sorted(switches):
            yield (*(word for word in example if word != flag), f"{flag}={value}")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_hostile_argument_is_refused_or_is_just_data(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.db"
    sow(path)
    monkeypatch.chdir(tmp_path)
    for call in islice(calls(name), list(COMMANDS).index(name) % EVERY, None, EVERY):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        with Adaptogen.open(path, seed=False, read_only=True) as graph:
            before = graph.head()
        code = main([name, *call, "--db", str(path)])
        out, err = capsys.readouterr()
        assert code in (0, 1, 2), call
        assert err.count("\n") == (1 if code == 2 else 0), (call, err)
        assert "unexpected" not in err, (call, err)
        if code == 2:
            assert not out, call
            with Adaptogen.open(path, seed=False, read_only=True) as graph:
                assert graph.head() == before, call
        elif code == 1 and name not in ("get", "verify"):
            assert {"code", "message", "hint"} <= decode(out).keys(), call
        assert "\x1b" not in out + err, call
        assert "\u202e" not in out + err, call
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.verify_integrity(deep=True).ok
        assert graph.remember("afterwards").ok


@pytest.mark.parametrize("value", [value for value in HOSTILE if "\x00" not in value])
def test_a_hostile_file_name_writes_nowhere_else(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    code = main(["remember", "a", "--db", value])
    out, err = capsys.readouterr()
    assert code in (0, 1, 2)
    assert "unexpected" not in err
    assert "\x1b" not in out + err
    assert {path.parent for path in tmp_path.rglob("*")} <= {tmp_path, inside.parent, inside}
    assert {path.name.removesuffix("-shm").removesuffix("-wal") for path in inside.iterdir()} <= {value}
