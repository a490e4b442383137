"""export, import, branch and merge as commands."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from graphstate._canonical import Json, decode
from graphstate.adaptogen import Adaptogen
from graphstate.cli import main
from tests.graphstate.bundles import live
from tests.graphstate.cli.example_calls import sow


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sow(tmp_path / "graph.db")


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main([*argv])
    return code, *capsys.readouterr()


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Json]:
    code, out, err = run(capsys, *argv, "--json")
    assert err == ""
    return code, decode(out)


def state(path: str) -> Json:
    """The live state without its locks, which bind nobody elsewhere."""
    with Adaptogen.open(path, seed=False, read_only=True) as graph:
        return live(graph) | {"policy_lock": []}


def test_a_graph_moves_through_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "export", "out.jsonl", "--db", "graph.db")
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith("out.jsonl: 10 events, ")
    head = out.split()[-1]
    code, out, _ = run(capsys, "import", "out.jsonl", "--db", "copy.db")
    assert (code, out) == (0, f"copy.db: 7 events from {head} (unpinned), 1 left out\n")
    code, out, _ = run(capsys, "import", "out.jsonl", "--db", "third.db", "--expect-head", head)
    assert (code, out) == (0, f"third.db: 7 events from {head}, 1 left out\n")
    assert state("graph.db") == state("copy.db") == state("third.db")
    code, value = answer(capsys, "export", "out.jsonl", "--db", "graph.db")
    assert (code, value["code"]) == (1, "Conflict")
    code, value = answer(capsys, "export", "out.jsonl", "--overwrite", "--db", "graph.db")
    assert (code, value["head"]) == (0, head)
    code, value = answer(capsys, "import", "out.jsonl", "--db", "copy.db")
    assert (code, value["code"]) == (1, "Conflict")


def test_a_graph_moves_through_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "graphstate.cli"]
    for file in ((), ("-",)):
        bundle = subprocess.run(
            [*command, "export", *file, "--db", "graph.db"], capture_output=True, check=True
        ).stdout
        assert bundle.endswith(b"\n")
        target = f"copy{len(file)}.db"
        done = subprocess.run(
            [*command, "import", "-", "--db", target, "--json"], input=bundle, capture_output=True, check=True
        )
        assert decode(done.stdout)["imported"] == 7
        assert state(target) == state("graph.db")


def test_a_bundle_is_not_written_to_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(["export", "--db", "graph.db"]) == 2
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["export", "--db", "graph.db"]) == 2
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["import", "-", "--db", "new.db"]) == 2
    assert not Path("new.db").exists()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"schema_version": 1}', '{"schema_version": 2, "events": []}', "[]", "no JSON"]
)
def test_a_file_that_is_no_bundle_is_exit_code_1_and_makes_nothing(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.json").write_text(text)
    code, value = answer(capsys, "import", "bad.json", "--db", "new.db")
    assert (code, value["code"]) == (1, "InvalidBundle")
    assert value["hint"]
    assert not list(Path().glob("*new.db*"))


def test_a_missing_bundle_is_exit_code_1_and_a_missing_word_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "import", "nowhere", "--db", "new.db")[0] == 1
    assert run(capsys, "import", "--db", "new.db")[0] == 2
    assert run(capsys, "branch", "--db", "graph.db")[0] == 2
    assert run(capsys, "merge", "--db", "graph.db")[0] == 2
    assert run(capsys, "export", "a", "b", "--db", "graph.db")[0] == 2
    assert not list(Path().glob("*new.db*"))


def test_a_branch_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    code, value = answer(capsys, "branch", "idea.db", "--db", "graph.db")
    assert (code, value["file"]) == (0, "idea.db")
    assert answer(capsys, "branch", "idea.db", "--db", "graph.db")[1]["code"] == "Conflict"
    run(capsys, "remember", "a", "--label", "theirs", "--db", "idea.db")
    run(capsys, "remember", "new", "--db", "idea.db")
    run(capsys, "remember", "a", "--label", "ours", "--db", "graph.db")
    code, value = answer(capsys, "merge", "idea.db", "--db", "graph.db")
    assert (code, value["code"]) == (1, "Conflict")
    assert [(c["kind"], c["id"]) for c in value["details"]["conflicts"]] == [("node", "a")]
    code, value = answer(capsys, "merge", "idea.db", "--on-conflict", "both", "--db", "graph.db")
    assert (code, value["code"]) == (1, "InvalidInput")
    code, value = answer(capsys, "merge", "idea.db", "--on-conflict", "ours", "--db", "graph.db")
    assert (code, value["merged"], value["left_out"]) == (0, 1, 1)
    assert answer(capsys, "get", "a", "--db", "graph.db")[1]["label"] == "ours"
    assert answer(capsys, "merge", "graph.db", "--db", "graph.db")[1]["code"] == "Conflict"
    assert answer(capsys, "merge", "nowhere.db", "--db", "graph.db")[0] == 1
