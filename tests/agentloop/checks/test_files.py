"""Checks about files: what stands at a path, and that no path, link or race leads outside."""

from __future__ import annotations

import errno
import os
import random
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentloop.checks import create_default_deterministic_checks
from agentloop.checks.files import MAX_FILE_BYTES, OUTSIDE, Unreachable, Workspace
from agentloop.messages import CheckOutcome
from tests.work import calls_of

Ask = Callable[[str], CheckOutcome]


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """A directory with a workspace ``ws`` and things beside it that no check may speak of."""
    ws = tmp_path / "ws"
    (ws / "sub" / "deep").mkdir(parents=True)
    (ws / "a" / "b").mkdir(parents=True)
    (ws / "build").mkdir()
    (ws / ".hidden").mkdir()
    for name in ("out.txt", "sub/in.txt", "sub/deep/end.txt", "a/b/c.log", "[x].md", ".hidden/h.log", "größe.txt",
                 "with space.txt", "-dash", "a:b", "~", "$HOME", "x=y"):  # fmt: skip
        (ws / name).write_text("inside")
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "ws2").mkdir()
    (tmp_path / "ws2" / "out.txt").write_text("outside")
    links = {
        "to_file": "out.txt", "to_dir": "sub", "to_deep": "sub/deep/end.txt", "up_and_back": "../ws/out.txt",
        "absolute": f"{ws}/out.txt", "absolute_dir": f"{ws}/sub", "dangling": "nowhere", "loop": "loop",
        "loop_a": "loop_b", "loop_b": "loop_a", "out_file": "../secret.txt", "out_dir": "..",
        "out_absolute": f"{tmp_path}/secret.txt", "out_sibling": "../ws2/out.txt", "etc": "/etc/passwd", "root": "/",
        "self": ".", "sub/up": "..", "sub/up_up": "../..", "chain": "to_file", "via_dir": "to_dir/in.txt",
        "proc": "/proc/self/root",
    }  # fmt: skip
    for name, target in links.items():
        (ws / name).symlink_to(target)
    os.mkfifo(ws / "fifo")
    return tmp_path


@pytest.fixture
def ws(outer: Path) -> Path:
    return outer / "ws"


@pytest.fixture
def ask(ws: Path) -> Ask:
    checks = create_default_deterministic_checks(ws)
    return lambda check: checks([check]).results[0]


# ------------------------------------------------------------------------------------ vectors


def test_v105_a_file_that_is_there(ws: Path) -> None:
    report = create_default_deterministic_checks(workspace_dir=ws)(["file_exists:out.txt"])
    assert (report.all_passed, report.evidence) == (True, "PASS file_exists:out.txt")


def test_v106_a_file_that_is_not(tmp_path: Path) -> None:
    report = create_default_deterministic_checks(workspace_dir=tmp_path)(["file_exists:out.txt"])
    assert (report.all_passed, report.evidence) == (False, "FAIL file_exists:out.txt: does not exist")


def test_v107_an_absolute_path_counts_only_inside(outer: Path, ws: Path, ask: Ask) -> None:
    assert ask(f"file_exists:{ws}/out.txt").passed
    assert ask(f"file_exists:{outer}/secret.txt").detail == OUTSIDE
    assert ask(f"file_exists:{ws}2/out.txt").detail == OUTSIDE
    assert create_default_deterministic_checks()([f"file_exists:{outer}/secret.txt"]).all_passed


def test_v108_up_again_inside(ask: Ask) -> None:
    assert ask("file_exists:sub/../out.txt").passed


def test_v109_a_directory_needs_a_slash(ask: Ask) -> None:
    assert "end the path with /" in ask("file_exists:build").detail
    assert not ask("file_exists:build").passed
    assert ask("file_exists:build/").passed
    assert not ask("file_exists:out.txt/").passed


def test_v110_patterns(ask: Ask) -> None:
    assert ask("file_exists:a/**/*.log").passed
    assert not ask("file_exists:*.log").passed


def test_v111_a_literal_name_comes_before_the_pattern(ws: Path, ask: Ask) -> None:
    assert ask("file_exists:[x].md").passed
    (ws / "[x].md").unlink()
    assert not ask("file_exists:[x].md").passed
    (ws / "x.md").touch()
    assert ask("file_exists:[x].md").passed


def test_v112_links_inside_and_to_nothing(ask: Ask) -> None:
    assert ask("file_exists:to_file").passed
    assert not ask("file_exists:dangling").passed


# ----------------------------------------------------------------- U6: a table of spellings

PASS = (
    "out.txt", " out.txt ", "./out.txt", ".//out.txt", "././out.txt", "sub/../out.txt", "sub/deep/../../out.txt",
    "sub//in.txt", "to_file", "to_dir/in.txt", "to_dir/deep/end.txt", "to_deep", "absolute", "absolute_dir/in.txt",
    "chain", "via_dir", "self/out.txt", "self/self/self/out.txt", "sub/up/out.txt", "to_dir/../out.txt",
    "to_dir/deep/../in.txt", "sub/up/sub/up/out.txt", "[x].md", "größe.txt", "with space.txt", "-dash", "a:b", "~",
    "$HOME", "x=y", ".hidden/h.log", "sub/", "to_dir/", "build/", "./", ".//", "sub/..//", "self/", "absolute_dir/",
    "sub/deep/..//", "{ws}/out.txt", "{ws}//out.txt", "{ws}/./out.txt", "{ws}/sub/../out.txt", "//{ws}/out.txt",
    "{ws}/to_dir/in.txt", "{ws}/", "{ws}/sub/", "*.txt", "**/*.txt", "**/end.txt", "sub/*/end.txt", "su?/in.txt",
    "[a]/b/c.log", "[!b]/**/c.log", "to_d*/in.txt", "self/*.txt", "{ws}/*.txt", "sub/../*.txt", ".hid*/h.log", "buil*/",
    "**/deep/", "*/.././out.txt", "a/**",
)  # fmt: skip

MISSING = (
    "nope", "out.txt/", "out.txt/x", "out.txt/.", "out.txt/..", "out.txt/../out.txt", "sub/nope", "dangling",
    "dangling/", "to_dir/nope", "OUT.TXT", "out.txt\u200b", "sub/../nope", "*.nope", "sub/in.tx?x", "**/h.log",
    "**/nope", "{ws}/nope", "fifo/x", "~/out.txt", "$PWD/out.txt", "%2e%2e/out.txt", "..\\out.txt", "out.txt#",
    "file:out.txt", "[z].md",
)  # fmt: skip

REFUSED = (
    "..", "../", "../secret.txt", "../ws/out.txt", "sub/../../secret.txt", "sub/../../ws/out.txt", "to_dir/../../ws",
    "/", "//", "/etc/passwd", "/etc/", "{outer}/secret.txt", "{ws}2/out.txt", "{ws}/..", "{ws}/../secret.txt",
    "{ws}/../ws/out.txt", "/../{ws}/out.txt", "out_file", "out_dir", "out_dir/", "out_dir/secret.txt",
    "out_dir/ws/out.txt", "out_absolute", "out_sibling", "up_and_back", "etc", "root", "root/", "root/etc/passwd",
    "sub/up_up", "sub/up_up/secret.txt", "sub/up/../secret.txt", "self/../secret.txt", "proc", "proc/etc/passwd",
    "../*.txt", "out_dir/*.txt", "/etc/*", "/proc/self/root/etc/passwd", "/dev/stdin", "/proc/self/fd/0", "loop",
    "loop/x", "loop_a", "\0", "out.txt\0", "\ud800", "\udcff", "x" * 256, "self/" * 50 + "out.txt",
)  # fmt: skip


def spelled(path: str, ws: Path) -> str:
    return path.replace("{ws}", str(ws)).replace("{outer}", str(ws.parent))


@pytest.mark.parametrize("path", PASS)
def test_spellings_of_what_is_inside_pass(path: str, ws: Path, ask: Ask) -> None:
    path = spelled(path, ws)
    assert ask(f"file_exists:{path}").passed
    assert not ask(f"!file_exists:{path}").passed
    assert not ask(f"file_missing:{path}").passed


@pytest.mark.parametrize("path", MISSING)
def test_spellings_of_nothing_are_missing(path: str, ws: Path, ask: Ask) -> None:
    path = spelled(path, ws)
    assert not ask(f"file_exists:{path}").passed
    assert ask(f"!file_exists:{path}").passed
    assert ask(f"file_missing:{path}").passed


@pytest.mark.parametrize("path", REFUSED)
def test_spellings_that_lead_outside_or_nowhere_fail_every_check(path: str, ws: Path, ask: Ask) -> None:
    path = spelled(path, ws)
    for check in (f"file_exists:{path}", f"!file_exists:{path}", f"file_missing:{path}", f"json_valid:{path}",
                  f"!json_valid:{path}", f"file_contains:{path}=outside", f"!file_contains:{path}=nothing"):  # fmt: skip
        outcome = ask(check)
        assert not outcome.passed, check
        assert outcome.detail


def test_there_are_enough_spellings() -> None:
    assert len(PASS) + len(MISSING) + len(REFUSED) >= 120


# ------------------------------------------------------------------------- kinds of files


def test_what_is_no_regular_file_fails_at_once(ws: Path, ask: Ask) -> None:
    server = socket.socket(socket.AF_UNIX)
    try:
        here = os.open(".", os.O_RDONLY)
        os.chdir(ws)  # a socket's path is short
        try:
            server.bind("socket")
        finally:
            os.fchdir(here)
            os.close(here)
        for name in ("fifo", "socket"):
            assert ask(f"file_exists:{name}").detail == "is not a regular file"
            for kind in ("json_valid:{}", "!json_valid:{}", "file_contains:{}=x"):
                outcome = ask(kind.format(name))
                assert not outcome.passed
                assert "not a regular file" in outcome.detail
    finally:
        server.close()


def test_a_device_is_no_regular_file() -> None:
    checks = create_default_deterministic_checks()
    assert [
        result.passed for result in checks(["file_exists:/dev/null", "json_valid:/dev/zero"]).results
    ] == [False] * 2


def test_a_hard_link_passes_and_is_mentioned(outer: Path, ws: Path, ask: Ask) -> None:
    os.link(outer / "secret.txt", ws / "hard")
    outcome = ask("file_exists:hard")
    assert outcome.passed
    assert "2 hard links" in outcome.detail


def test_content_is_read_inside_only_and_up_to_the_bound(ws: Path, ask: Ask) -> None:
    (ws / "crlf.txt").write_bytes(b"a\r\nb=c\xff")
    assert ask("file_contains:crlf.txt=a\nb=c").passed
    assert not ask("file_contains:crlf.txt=d").passed
    assert ask("!file_contains:crlf.txt=d").passed
    (ws / "big").write_bytes(b"x" * MAX_FILE_BYTES)
    assert ask("file_contains:big=x").passed
    (ws / "big").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert "larger than 1,048,576" in ask("file_contains:big=x").detail
    assert not ask("!file_contains:big=y").passed


def test_json_is_judged_strictly(ws: Path, ask: Ask) -> None:
    for content, valid in (
        (b'{"a":1}', True),
        (b'{"a":1,"a":2}', False),
        (b"NaN", False),
        (b"", False),
        (b"\xff", False),
    ):
        (ws / "data.json").write_bytes(content)
        assert ask("json_valid:data.json").passed is valid
        assert ask("!json_valid:data.json").passed is not valid


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE, errno.ELOOP, errno.ESTALE])
def test_a_place_that_cannot_be_looked_at_fails_both_ways(
    number: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "in.txt":
            raise OSError(number, os.strerror(number))
        return really(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    for check in (
        "file_exists:sub/in.txt",
        "!file_exists:sub/in.txt",
        "file_missing:sub/in.txt",
        "json_valid:sub/in.txt",
    ):
        outcome = ask(check)
        assert (outcome.passed, outcome.detail) == (False, os.strerror(number).lower())


def test_a_workspace_that_is_gone_fails_and_one_that_came_back_counts(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    checks = create_default_deterministic_checks(ws)
    assert not checks(["file_exists:out.txt"]).all_passed
    for _ in range(2):
        ws.mkdir()
        (ws / "out.txt").touch()
        assert checks(["file_exists:out.txt"]).all_passed
        (ws / "out.txt").unlink()
        ws.rmdir()


def test_a_workspace_behind_a_link_is_known_by_both_names(outer: Path) -> None:
    (outer / "alias").symlink_to("ws")
    checks = create_default_deterministic_checks(outer / "alias")
    assert checks(
        [f"file_exists:{outer}/alias/out.txt", f"file_exists:{outer}/ws/out.txt", "file_exists:absolute"]
    ).all_passed


def test_no_handle_is_left_open(ws: Path, ask: Ask) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (*PASS, *MISSING, *REFUSED):
        for kind in ("file_exists:{}", "json_valid:{}"):
            ask(kind.format(spelled(path, ws)))
    assert len(os.listdir("/proc/self/fd")) == before


# ----------------------------------------------------------------------------------- patterns


def test_a_pattern_that_visits_too_much_fails_both_ways(ws: Path) -> None:
    for n in range(30):
        (ws / "build" / f"f{n}").touch()
    checks = create_default_deterministic_checks(ws, glob_limit=20)
    for check in ("file_exists:build/x*", "!file_exists:build/x*", "file_missing:build/x*"):
        outcome = checks([check]).results[0]
        assert not outcome.passed
        assert outcome.detail.startswith("pattern too broad")
    assert create_default_deterministic_checks(ws, glob_limit=30)(["file_missing:build/x*"]).all_passed


def test_a_deep_tree_ends_the_walk_instead_of_costing_its_square(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=handle)
        deeper = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(handle)
    checks = create_default_deterministic_checks(tmp_path)
    said = list[bool]()
    assert (
        calls_of(lambda: said.append(checks(["file_exists:**/nope"]).all_passed)) < 1_000_000
    )  # 3.7 million to the end of the tree
    assert said == [False]
    assert "deeper than 256" in checks(["file_exists:" + "d/" * 300]).results[0].detail


def test_a_pattern_never_matches_through_a_link_that_leads_outside(ask: Ask) -> None:
    for pattern in ("out_*/secret.txt", "out_f*", "root/e*/passwd", "r*t/etc/passwd", "et?", "**/secret.txt"):
        assert not ask(f"file_exists:{pattern}").passed


@pytest.mark.parametrize(
    "pattern", ["[", "[]", "[[]", "[[:alpha:]]*", "[z-a]", "[!]", "[a", "*[", "[&&b]", "[--b]", "[a||b]"]
)
def test_an_odd_pattern_is_no_error(pattern: str, ask: Ask) -> None:
    outcome = ask(f"file_exists:{pattern}")
    assert not outcome.passed
    assert "pattern" in outcome.detail or "is a directory" in outcome.detail


# --------------------------------------------------------------- random trees, and a race


def build(root: Path, source: random.Random) -> None:
    """Make a small tree of directories, files and links to all sorts of places."""
    names = ("a", "b", "c", "d")
    for _ in range(source.randrange(4, 14)):
        place = root.joinpath(*source.choices(names, k=source.randrange(3)))
        path = place / source.choice(names)
        if (
            not os.path.isdir(place)
            or os.path.lexists(path)
            or root not in (place.resolve(), *place.resolve().parents)
        ):
            continue
        what = source.randrange(4)
        if what == 0:
            path.mkdir()
        elif what == 1:
            path.write_text("inside")
        else:
            steps = source.choices((*names, "..", "."), k=source.randrange(1, 5))
            target = "/".join(steps)
            path.symlink_to(f"{root}/{target}" if source.random() < 0.2 else target)


@pytest.mark.parametrize("seed", range(60))
def test_in_random_trees_a_pass_is_a_file_that_resolves_inside(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    root = tmp_path.resolve() / "ws"
    root.mkdir()
    (root.parent / "a").write_text("outside")
    build(root, source)
    checks = create_default_deterministic_checks(root)
    for _ in range(60):
        path = "/".join(source.choices(("a", "b", "c", "d", "..", ".", "*", "**"), k=source.randrange(1, 6)))
        outcome = checks([f"file_exists:{path}"]).results[0]
        if "*" in path:
            path = outcome.detail.removeprefix("matched by ") if outcome.passed else path
        real = os.path.realpath(f"{root}/{path}")
        inside = real == str(root) or real.startswith(f"{root}/")
        try:
            is_file = stat.S_ISREG(os.stat(f"{root}/{path}").st_mode)
        except OSError:
            is_file = False
        assert not outcome.passed or (inside and is_file), path
        if not outcome.passed and "*" not in path and outcome.detail != OUTSIDE:
            assert not (inside and is_file), path


def test_no_race_makes_an_answer_come_from_outside(tmp_path: Path) -> None:
    ws, outside = tmp_path / "ws", tmp_path / "outside"
    (ws / "real").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (ws / "real" / "plain").write_text("plain")
    (ws / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for first, second in (("real", "dir"), ("link", "dir")):
                os.rename(ws / first, ws / second)
                os.rename(ws / second, ws / first)

    swapper = threading.Thread(target=swap)
    swapper.start()
    workspace, seen, until = Workspace(ws), set(), time.monotonic() + 2
    try:
        while time.monotonic() < until:
            for path in ("dir/secret", "dir/plain", "dir/../dir/secret"):
                try:
                    seen.add(workspace.read(path))
                except Unreachable as unreachable:
                    seen.add(unreachable.reason.encode())
            assert list(workspace.glob("d*/secret", limit=100)) in ([], ["dir/secret"])
    finally:
        stop.set()
        swapper.join()
    assert b"secret" not in seen
    assert {OUTSIDE.encode(), b"does not exist"} & seen
