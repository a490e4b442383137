from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from graphstate._canonical import Json, decode
from graphstate.adaptogen import Adaptogen
from graphstate.cli import main
from graphstate.cli.commands import COMMANDS, help_text
from graphstate.cli.program import find_database
from graphstate.events import Draft
from tests.graphstate.cli.example_calls import EXAMPLES, sow

ROOT = Path(__file__).parents[3]

Run = Callable[..., tuple[int, Json, str]]


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    sow(tmp_path / "graph.db")
    return tmp_path / "graph.db"


@pytest.fixture
def run(path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: str) -> tuple[int, Json, str]:
        code = main([*argv, "--db", str(path)])
        out, err = capsys.readouterr()
        return code, decode(out) if out.startswith(("{", "[", '"', "null", "true", "0")) else out, err

    return call


def process(*argv: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    command = [sys.executable, "-m", "graphstate.cli", *argv]
    return subprocess.run(command, cwd=ROOT, timeout=30, **{"capture_output": True} | options)


# ------------------------------------------------------------------------------ every command


def test_every_command_has_an_example_that_uses_all_its_flags() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    for name, command in COMMANDS.items():
        used = {word for word in EXAMPLES[name] if word.startswith("--")}
        assert used | {"--guard", "--patch", "--like"} >= {f"--{flag.name}" for flag in command.all_flags}, (
            name
        )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_answers_with_json(name: str, path: Path, run: Run) -> None:
    code, value, err = run(name, *EXAMPLES[name], "--json")
    assert (code, err) == (0, "")
    assert not isinstance(value, str) or name in ("render", "graph", "dot")
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_changes_the_file_only_if_it_says_so(name: str, path: Path, run: Run) -> None:
    before = path.read_bytes()
    run(name, *EXAMPLES[name])
    changed = path.read_bytes() != before
    assert changed == (COMMANDS[name].opens not in ("reads", "nothing"))


@pytest.mark.parametrize(
    "name", [row.name for row in COMMANDS.values() if row.opens not in ("makes", "itself")]
)
def test_only_a_command_that_makes_things_makes_a_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "absent.db"
    code = main([name, *EXAMPLES[name], "--db", str(path)])
    assert not list(tmp_path.iterdir())
    if name != "describe":
        assert code == 1
        assert decode(capsys.readouterr().out)["code"] == "NotFound"


def test_the_cursor_without_ids_is_read_and_with_ids_is_set(path: Path, run: Run) -> None:
    before = path.read_bytes()
    assert run("cursor") == (0, ["a"], "")
    assert path.read_bytes() == before
    assert run("cursor", "b", "c") == (0, ["b", "c"], "")
    assert run("cursor") == (0, ["b", "c"], "")


def test_each_actor_has_a_cursor_and_events_tell_who_acted(path: Path, run: Run) -> None:
    assert run("cursor", "c", "--actor", "robot", "--trust", "model")[0] == 0
    assert run("cursor", "--actor", "robot")[1] == ["c"]
    assert run("cursor")[1] == ["a"]
    code, entries, _ = run("history", "1", "--json")
    assert (code, entries[0]["actor"]) == (0, "robot")
    with Adaptogen.open(path, seed=False, read_only=True) as graph:
        (*_, last) = graph.store.read("graph")
        assert last.trust == "model"


def test_a_repeated_cause_gets_the_first_answer(run: Run) -> None:
    first = run("step", "--reward", "1", "--cause", "once")
    assert run("step", "--reward", "1", "--cause", "once") == first
    assert len(run("history", "--type", "TransitionTaken", "--json")[1]) == 1


def test_a_patch_changes_the_payload_and_a_payload_replaces_it(run: Run) -> None:
    assert run("remember", "a", "--payload", '{"x": 1, "y": 2}')[1]["payload"] == {"x": 1, "y": 2}
    assert run("remember", "a", "--patch", '{"x": null, "z": 3}')[1]["payload"] == {"y": 2, "z": 3}
    assert run("remember", "a", "--label", "kept")[1]["payload"] == {"y": 2, "z": 3}


# ------------------------------------------------------------------------------ exit codes


def test_v145_a_missing_node_is_null_and_exit_code_1(run: Run) -> None:
    assert run("get", "nobody") == (1, None, "")


def test_v145_no_moves_is_exit_code_1(run: Run) -> None:
    assert run("step")[0] == 0
    code, value, err = run("step")
    assert (code, value["code"], err) == (1, "NoMoves", "")
    assert value["hint"]


def test_v145_a_bad_weight_is_exit_code_1_with_invalid_input_on_stdout(run: Run) -> None:
    code, value, err = run("link", "a", "b", "--weight", "-1")
    assert (code, value["code"], err) == (1, "InvalidInput", "")


def test_v145_a_missing_word_is_exit_code_2_and_one_line(run: Run) -> None:
    code, value, err = run("link", "a")
    assert (code, value) == (2, "")
    assert err.startswith("adaptogen: link needs DST; usage: adaptogen link SRC DST")
    assert err.count("\n") == 1


def test_v145_rollback_removes_later_nodes(run: Run) -> None:
    assert run("remember", "later")[0] == 0
    code, value, _ = run("rollback", "start")
    assert code == 0
    assert value["abandoned"] == 4
    assert run("get", "later")[0] == 1


def test_a_cycle_is_refused_with_its_path(run: Run) -> None:
    assert run("depend", "b", "a")[0] == 0
    code, value, _ = run("depend", "a", "b")
    assert (code, value["code"], value["details"]["cycle"]) == (1, "CycleRejected", ["b", "a", "b"])


def test_a_version_that_moved_on_is_a_conflict(run: Run) -> None:
    code, value, _ = run("remember", "a", "--expect-version", "7")
    assert (code, value["code"], value["details"]) == (1, "Conflict", {"current": 1})


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["remembr", "a"], "unknown command 'remembr'; did you mean remember?"),
        (["qqqqqq"], "see adaptogen help"),
        (["get", "a", "b"], "get does not take 'b'; usage: adaptogen get ID"),
        (["get", "a", "--label", "x"], "get has no flag --label"),
        (["remember", "a", "--payload", "{"], "--payload JSON: not JSON"),
        (["remember", "a", "--payload", "null"], "null is not a value"),
        (["remember", "a", "--embedding", '["1"]'], "a JSON array of numbers"),
        (["reward", "much"], "VALUE: a number is needed, not 'much'"),
        (["history", "1.5"], "LIMIT: a whole number"),
        (["status", "--db", ""], "--db needs the name of a file"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_changes_nothing(
    argv: list[str], said: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = path.read_bytes()
    assert main([*argv, *([] if "--db" in argv else ["--db", str(path)])]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert path.read_bytes() == before


def test_foreign_newer_and_locked_files_are_named_and_left_alone(
    tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign.db"
    foreign.write_bytes(b"this is a letter, not a database\n" * 40)
    before = foreign.read_bytes()
    assert main(["remember", "x", "--db", str(foreign)]) == 1
    assert decode(capsys.readouterr().out)["code"] == "ForeignDatabase"
    assert foreign.read_bytes() == before
    with Adaptogen.open(path, seed=False, lock="exclusive"):
        assert main(["remember", "x", "--db", str(path)]) == 1
        assert decode(capsys.readouterr().out)["code"] == "LockHeld"
        assert main(["get", "a", "--db", str(path)]) == 0


def test_an_unexpected_error_is_one_line_without_debug_and_raised_with_it(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object) -> None:
        raise RuntimeError("a bug\nin two lines")

    monkeypatch.setattr(Adaptogen, "metrics", broken)
    assert main(["metrics", "--db", str(path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "adaptogen: unexpected RuntimeError: a bug in two lines (--debug shows where it came from)\n",
    )
    with pytest.raises(RuntimeError, match="a bug"):
        main(["metrics", "--db", str(path), "--debug"])


# ------------------------------------------------------------------------------ help and files


def test_help_lists_every_command_and_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["help"], ["--help"], ["-h"]):
        assert main(argv) == 0
        assert capsys.readouterr().out == help_text(None) + "\n"
    for name, command in COMMANDS.items():
        assert f"\n  {name} " in help_text(None)
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert main(["help", name]) == 0
        assert capsys.readouterr().out == shown
        assert shown.startswith(f"usage: {command.usage}\n")
        assert all(flag.shown in shown for flag in command.all_flags)


def test_the_file_is_searched_upwards_and_else_stands_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "one" / "two"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert find_database() == "adaptogen.db"
    (tmp_path / ".agentloop").mkdir()
    state = tmp_path / ".agentloop" / "state.db"
    sow(state)
    assert find_database() == str(state)


# ------------------------------------------------------------------------------ what people see


def test_status_and_history_are_text_for_people_and_json_for_programs(run: Run) -> None:
    code, text, _ = run("status")
    assert code == 0
    assert text.startswith("cursor: a\nmoves (1):\n  -> b [off] score=0.00")
    status = run("status", "--json")[1]
    assert (status["cursor"], status["ready"], status["moves"][0]["edge_id"]) == (
        ["a"],
        ["a", "b", "c"],
        "ab",
    )
    code, text, _ = run("history", "2")
    assert [line.split("\t")[1] for line in text.splitlines()] == ["CheckpointCreated", "CursorMoved"]


def test_json_is_indented_for_people_and_one_line_for_programs(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "a", "--db", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith('{\n  "id": "a",\n')
    assert main(["get", "a", "--db", str(path), "--json"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert decode(line) == decode(shown)


def test_characters_that_steer_a_terminal_are_visible(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = "a\x1b]0;owned\x07\u202e\u200b\x9b31m\U000e0041\r\nb\u2028 ok 日本"
    assert main(["remember", "a", "--label", label, "--db", str(path)]) == 0
    out = capsys.readouterr().out
    assert not set("\x1b\x07\u202e\u200b\x9b\U000e0041\r\u2028") & set(out)
    assert "ok 日本" in out
    assert decode(out)["label"] == label
    assert main(["\x1b[31mred\n", "--db", str(path)]) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert err.count("\n") == 1


def test_output_in_an_ascii_locale_is_still_json(path: Path) -> None:
    label = "café 🦊"
    env = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = process("remember", "a", "--label", label, "--db", str(path), env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert decode(done.stdout)["label"] == label


# ------------------------------------------------------------------------------ pipes and signals


def test_a_closed_pipe_ends_quietly_and_the_change_is_made(path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = process(
        "remember", "a", "--label", "through", "--db", str(path),
        capture_output=False, stdout=writing, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    with Adaptogen.open(path, seed=False, read_only=True) as graph:
        node = graph.get_node("a")
    assert node is not None
    assert node.label == "through"


@pytest.mark.parametrize("argv", [("describe",), ("help",), ("get", "a"), ("status",)])
def test_a_full_disk_on_stdout_is_exit_code_1_with_a_message(argv: tuple[str, ...], path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = process(*argv, "--db", str(path), capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"adaptogen: standard output: No space left on device\n"


def test_a_closed_stdout_is_exit_code_1_with_a_message(path: Path) -> None:
    command = f'"{sys.executable}" -m graphstate.cli get a --db "{path}" >&-'
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, stderr=subprocess.PIPE, timeout=30)
    assert (done.returncode, done.stderr) == (1, b"adaptogen: standard output is closed\n")


@pytest.fixture
def waiting(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command while it reads its payload from an input that does not end."""
    command = [sys.executable, "-m", "graphstate.cli", "remember", "a", "--payload", "-", "--db", str(path)]
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run in the background
    )  # fmt: skip
    try:
        assert child.stdin is not None
        # More than a pipe holds: when it is written, the program is inside its read.
        child.stdin.write(b" " * 200_000)
        child.stdin.flush()
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_with_its_code_and_nothing_written(
    number: signal.Signals, code: int, waiting: subprocess.Popen[bytes], path: Path
) -> None:
    # A signal just before the read blocks is only seen at the next one: people press Ctrl-C again.
    while waiting.poll() is None:
        waiting.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            waiting.wait(timeout=2)
    assert waiting.returncode == code
    assert waiting.stderr is not None
    assert waiting.stderr.read() == b""
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.metrics().events == 10
        assert graph.verify_integrity(deep=True).ok


def test_a_call_imports_nothing_it_does_not_need(path: Path) -> None:
    code = (
        "import sys; from graphstate.cli import main; "
        f"main(['get', 'a', '--json', '--db', {str(path)!r}]); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=30, check=True)
    imported = {name.partition(".")[0] for name in done.stdout.decode().splitlines()[-1].split()}
    assert "apsw" in imported
    assert not imported & {
        "agentloop", "anyio", "argparse", "asyncio", "jsonschema", "networkx", "numpy", "openai", "rich",
        "difflib", "sqlite3", "subprocess", "urllib",
    }  # fmt: skip


# ------------------------------------------------------------------------------ evolving


def test_v140_status_render_and_orient_count_violations(path: Path, run: Run) -> None:
    assert run("status", "--json")[1]["violations"] == 0
    with Adaptogen.open(path, seed=False) as graph:
        graph.archive("a").unwrap()
    assert run("status", "--json")[1]["violations"] == 1
    for command in ("status", "render"):
        assert run(command)[1].splitlines()[-2] == "violations: 1"
    assert run("orient")[1]["violations"] == 1


def test_validate_and_repair_say_by_their_exit_code_whether_all_is_well(path: Path, run: Run) -> None:
    assert run("validate")[:2] == (0, {"ok": True, "violations": [], "warnings": []})
    with Adaptogen.open(path, seed=False) as graph:
        graph.archive("a").unwrap()
    code, report, _ = run("validate")
    assert (code, report["violations"][0]["kind"]) == (1, "CursorOnDeadNode")
    code, repair, _ = run("repair")
    assert (code, repair["ok"], len(repair["fixed"])) == (0, True, 1)
    assert run("validate")[0] == 0


def test_a_plan_is_given_as_text_or_file_and_makes_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, spec = tmp_path / "new.db", tmp_path / "plan.json"
    spec.write_text('{"nodes": ["a", "b"], "deps": [["b", "a"]], "cursor": ["a"]}')
    assert main(["plan", "--spec", f"@{spec}", "--db", str(path)]) == 0
    assert decode(capsys.readouterr().out)["nodes"] == ["a", "b"]
    assert main(["plan", "--spec", '{"deps": [["a", "b"]]}', "--db", str(path)]) == 1
    answer = decode(capsys.readouterr().out)
    assert (answer["code"], answer["details"]["item"]) == ("CycleRejected", "plan.deps[0]")
    for words in ([], ["--spec", "[]"], ["--spec", "{"]):
        assert main(["plan", *words, "--db", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", [("history", "1"), ("watch", "--limit", "1", "--after")])
def test_an_event_of_a_strange_type_is_one_line(
    command: tuple[str, ...], path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Adaptogen.open(path, seed=False) as graph, graph.unit():
        seq = graph.store.head().seq
        graph.store.record([Draft("Strange\n8\tForged\x1b[2J", {})], actor=None, trust=None)
    words = command if command[0] == "history" else (*command, str(seq))
    assert main([*words, "--db", str(path)]) == 0
    shown = "Strange\\u{a}8\\u{9}Forged\\u{1b}[2J"
    assert capsys.readouterr().out == f"{seq + 1}\t{shown}\t{shown}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_survives_a_reader_that_left(
    name: str, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as left:
        monkeypatch.setattr(sys, "stdout", left)
        assert main([name, *EXAMPLES[name], "--db", str(path)]) == 0
    assert capsys.readouterr().err == ""
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_tells_of_a_full_disk(
    name: str, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main([name, *EXAMPLES[name], "--db", str(path)]) == 1
    assert capsys.readouterr().err == "adaptogen: standard output: No space left on device\n"
    with Adaptogen.open(path, seed=False) as graph:
        assert graph.verify_integrity(deep=True).ok


def test_a_keyed_graph_needs_the_file_of_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, path = tmp_path / "key", str(tmp_path / "keyed.db")
    key.write_bytes(b"thirty-two bytes nobody may see!")
    assert main(["remember", "a", "--db", path, "--key-file", str(key)]) == 0
    assert main(["verify", "--deep", "--db", path, "--key-file", str(key)]) == 0
    capsys.readouterr()
    assert main(["get", "a", "--db", path]) == 1
    answer = decode(capsys.readouterr().out)
    assert (answer["code"], answer["hint"]) == ("WrongKey", "name its key with --key-file")
    key.write_bytes(b"another key of thirty-two bytes!")
    assert main(["get", "a", "--db", path, "--key-file", str(key)]) == 1
    key.write_bytes(b"short")
    assert main(["get", "a", "--db", path, "--key-file", str(key)]) == 2
    assert main(["get", "a", "--db", path, "--key-file", str(tmp_path / "missing")]) == 2
    out, err = capsys.readouterr()
    assert "nobody" not in out + err
    assert "a key has 16 to 4096 bytes" in err


def test_head_verify_and_compact_work_together(run: Run) -> None:
    code, head, _ = run("head", "--json")
    assert code == 0
    kept = f"{head['seq']}:{head['hash']}"
    assert run("head")[1] == f"{kept}\n"
    assert run("verify", "--expect-head", kept)[0] == 0
    assert run("compact", "0", "--json")[1]["pruned"] == head["seq"]
    assert run("compact", "0", "--json")[1]["pruned"] == 2
    code, report, _ = run("verify", "--expect-head", kept)
    assert (code, report["ok"]) == (1, False)
    assert "removed by a compaction" in report["detail"]


# ------------------------------------------------------------------------------ vectors


def test_texts_are_searched_by_meaning_with_the_model_of_the_graph(tmp_path: Path, run: Run) -> None:
    db = ("--db", str(tmp_path / "meanings.db"))

    def call(*argv: str) -> Json:
        assert main([*argv, *db]) == 0
        return None

    call("remember", "tea", "--label", "green tea is hot", "--embedder", "ngrams")
    call("remember", "sea", "--label", "the sea is cold")  # the same model without being told
    with Adaptogen.open(tmp_path / "meanings.db", embedder="stored") as graph:
        assert [node.id for node in graph.recall(like="hot teas")] == ["tea", "sea"]


def test_vectors_are_counted_unless_they_are_asked_for(run: Run) -> None:
    run("remember", "n", "--label", "words of a note", "--embedder", "hashing", "--embed")
    code, refused, _ = run("remember", "n", "--label", "words", "--embedder", "hashing", "--embed")
    assert (code, refused["code"]) == (1, "EmbeddingMismatch")
    assert run("reembed", "--embedder", "hashing")[1] == {"embedded": 3, "left": 0, "model": "hashing:1/384"}
    assert run("get", "a")[1]["embedding"] == "384 numbers"
    assert len(run("get", "a", "--vectors")[1]["embedding"]) == 384
    assert [node["id"] for node in run("recall", "--like", "alpha", "--limit", "1")[1]] == ["a"]


def test_reembedding_shows_a_bar_to_people_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("reembed", "--embedder", "hashing")[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, answer, shown = run("reembed", "--embedder", "ngrams")
    assert (code, answer["embedded"]) == (0, 3)
    assert "3/3" in shown
    assert run("reembed", "--embedder", "hashing", "--json")[2] == ""
