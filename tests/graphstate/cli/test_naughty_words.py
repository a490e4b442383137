"""Every naughty string and every lone surrogate as a word of a command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphstate._canonical import Json, decode, encode_text
from graphstate.adaptogen import Adaptogen
from graphstate.cli import main
from graphstate.cli.arguments import TEXT
from graphstate.cli.commands import COMMANDS
from graphstate.cli.output import visible
from tests.corpora.read import naughty_strings, surrogates
from tests.graphstate.cli.example_calls import EXAMPLES, sow
from tests.tally import tally


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that becomes the name of a file shall make none here."""
    monkeypatch.chdir(tmp_path)


TEXTS = naughty_strings()
FULL = os.environ.get("RELIABILITY") == "full"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # some of the words name a file that is written
    sow(tmp_path / "graph.db")
    return tmp_path / "graph.db"


def test_what_is_remembered_is_shown_and_read_back_equal(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*argv: str) -> Json:
        assert main([*argv, "--db", str(path), "--json"]) == 0, argv
        out, err = capsys.readouterr()
        assert not err
        assert out.count("\n") == 1
        assert visible(out) == out, "nothing in it steers a terminal"
        return decode(out)

    # Each call commits for good, which takes its time: eight strings go through at once.
    for start in range(0, len(TEXTS), 1 if FULL else 8):
        text, *more = TEXTS[start : start + 8]
        written = encode_text({"text": text, "more": more, "at": {key: [key] for key in (text, *more)}})
        if start % 16:
            node = run("remember", "a", f"--label={text}", "--payload", written)
        else:
            node = run("remember", "a", "--label", text, f"--payload={written}")
        assert (node["label"], node["payload"]) == (text, decode(written))
        edge = run("link", "a", "b", "--id", "ab", "--upsert", "--label", more[-1] if more else text)
        assert edge["label"] == (more[-1] if more else text)
    node = run("get", "a")
    assert (node["label"], node["payload"]) == (text, decode(written))
    assert main(["history", "1000", "--db", str(path)]) == 0
    shown = capsys.readouterr().out
    assert visible(shown, tabs=True) == shown
    with Adaptogen.open(path, seed=False) as graph:
        assert len(shown.splitlines()) == min(1_000, graph.metrics().events), "one record is one line"
        assert graph.verify_integrity(deep=True).ok
    tally("naughty strings", len(TEXTS))


def texts_of(name: str) -> list[int]:
    """Return the places of the words and values in a command's example that are free text."""
    example = EXAMPLES[name]
    free = {f"--{flag.name}" for flag in COMMANDS[name].all_flags if flag.kind is TEXT}
    return [
        place
        for place, word in enumerate(example)
        if not word.startswith("--")
        and (not place or not example[place - 1].startswith("--") or example[place - 1] in free)
    ]


@pytest.mark.parametrize("name", [name for name in COMMANDS if EXAMPLES[name]])
def test_in_every_place_a_text_is_data_or_refused(
    name: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = texts_of(name)
    # Each string in some place of some command: all places of all would say little more.
    chosen = TEXTS[sorted(COMMANDS).index(name) :: len(COMMANDS)]
    for text in chosen:
        for place in places:
            words = [*EXAMPLES[name]]
            words[place] = text
            code = main([name, *words, "--db", str(path)])
            out, err = capsys.readouterr()
            assert code in (0, 1, 2), words
            assert err.count("\n") == (code == 2), (words, err)
            assert "unexpected" not in err, words
            assert visible(out + err, tabs=True) == out + err, words
            if code == 1 and name not in ("get", "verify"):
                assert {"code", "message", "hint"} <= decode(out).keys()
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.verify_integrity(deep=True).ok


def test_no_lone_surrogate_gets_past_the_command_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    for text in surrogates():
        for argv in (["remember", text], ["remember", "a", "--label", text], ["get", f"--db={text}"], [text]):
            assert main([*argv, "--db", str(path)]) == 2
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            err.encode("ascii")
        payload = f'"{chr(92)}u{ord(text[1]):04x}"'
        assert main(["remember", "a", "--payload", payload, "--db", str(path)]) == 2
        assert "lone surrogate" in capsys.readouterr().err
    assert path.read_bytes() == before
    tally("lone surrogates", 2_048)
