from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.tools import files, files_tools
from agentloop.errors import AgentLoopConfigError
from agentloop.messages import ToolCall, ToolResult
from agentloop.models import ToolContext
from agentloop.tools import create_tool_adapter_wrapper


class Disk:
    """A workspace beside a folder that must never be touched."""

    def __init__(self, root: Path) -> None:
        self.workspace, self.outside = root / "ws", root / "outside"
        self.workspace.mkdir()
        self.outside.mkdir()
        (self.outside / "treasure.txt").write_text("secret")
        (self.outside / "canary").touch()
        self.tools = {tool.name: tool for tool in files(self.workspace)}

    def __call__(self, method: str, **arguments: Any) -> ToolResult:
        result = self.tools[f"fs__{method}"].handler(**arguments)
        assert isinstance(result, ToolResult)
        return result

    def untouched(self) -> bool:
        content = (self.outside / "treasure.txt").read_text()
        return sorted(os.listdir(self.outside)) == ["canary", "treasure.txt"] and content == "secret"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    assert disk.untouched()


def refused(result: ToolResult, reason: str) -> bool:
    return (
        not result.ok
        and result.error is not None
        and result.error.error_class == "correctable"
        and reason in result.error.message
    )


def test_what_is_written_can_be_read(disk: Disk) -> None:
    assert disk("write", path="a/b/ä.txt", content="zwei\nZeilen\n").output == "wrote 12 bytes to a/b/ä.txt"
    assert (disk.workspace / "a/b/ä.txt").read_text() == "zwei\nZeilen\n"
    assert disk("read", path="a/b/ä.txt").output == "zwei\nZeilen\n"
    assert disk("read", path=str(disk.workspace / "a/b/ä.txt")).ok


def test_a_reading_is_no_standard_output(disk: Disk) -> None:
    disk("write", path="a", content="PASSED")

    assert disk("read", path="a").stdout is None


def test_some_lines_can_be_read(disk: Disk) -> None:
    disk("write", path="a", content="1\n2\n3\n4\n")

    assert disk("read", path="a", first_line=2, lines=2).output == "2\n3\n"
    assert disk("read", path="a", first_line=4).output == "4\n"
    assert disk("read", path="a", first_line=9).output == ""


def test_a_long_reading_is_cut_with_a_visible_mark(disk: Disk) -> None:
    (disk.workspace / "long").write_text("x" * 300_000)

    output = disk("read", path="long").output
    assert "[… cut: 37856 of 300000 characters, lines 1 to 1 of 1" in output


def test_a_file_is_replaced_in_one_step_and_keeps_its_mode(disk: Disk) -> None:
    file = disk.workspace / "run.sh"
    file.write_text("old")
    file.chmod(0o750)
    with file.open() as before:
        disk("write", path="run.sh", content="new")
        assert before.read() == "old"

    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o750
    assert os.listdir(disk.workspace) == ["run.sh"]


def test_a_hard_link_to_a_file_outside_is_cut_by_a_write(disk: Disk) -> None:
    os.link(disk.outside / "treasure.txt", disk.workspace / "link")

    assert disk("write", path="link", content="mine").ok


def test_a_failed_write_leaves_nothing_behind(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk("write", path="a", content="old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert refused(disk("write", path="a", content="new"), "no space left on device")
    assert os.listdir(disk.workspace) == ["a"]
    assert (disk.workspace / "a").read_text() == "old"


def test_an_edit_replaces_text_that_occurs_once(disk: Disk) -> None:
    disk("write", path="a.py", content="x = 1\r\ny = 1\r\n")

    assert disk("edit", path="a.py", old="x = 1", new="x = 2").output == "replaced 1 occurrence in a.py"
    assert (disk.workspace / "a.py").read_bytes() == b"x = 2\r\ny = 1\r\n"


def test_an_edit_of_text_that_is_not_there_or_not_unique_is_refused(disk: Disk) -> None:
    disk("write", path="a", content="one one")

    assert refused(disk("edit", path="a", old="two", new="x"), "does not occur in it")
    assert refused(disk("edit", path="a", old="one", new="x"), "occurs 2 times")
    assert (disk.workspace / "a").read_text() == "one one"
    assert disk("edit", path="a", old="one", new="x", replace_all=True).ok
    assert (disk.workspace / "a").read_text() == "x x"


def test_a_directory_is_listed(disk: Disk) -> None:
    disk("write", path="b/c.txt", content="")
    disk("write", path=".hidden", content="")

    assert disk("list").output == ".hidden\nb/"
    assert disk("list", path="b").output == "c.txt"
    assert disk("list", path=".", pattern="**/*.txt").output == "b/c.txt"
    assert disk("list", path="b", pattern="*").output == "b/c.txt"


def test_a_long_list_is_cut_with_a_visible_mark(disk: Disk) -> None:
    for number in range(1_005):
        (disk.workspace / f"{number:04}").touch()

    lines = disk("list").output.split("\n")
    assert (len(lines), lines[-1]) == (1_001, "[… cut at 1000 entries …]")


def test_files_and_empty_directories_can_be_deleted(disk: Disk) -> None:
    disk("write", path="d/a", content="")

    assert refused(disk("delete", path="d"), "not empty")
    assert disk("delete", path="d/a").ok
    assert disk("delete", path="d").ok
    assert os.listdir(disk.workspace) == []


@pytest.mark.parametrize("method", ["read", "delete", "edit"])
def test_what_is_not_there_is_an_answer_of_its_own(disk: Disk, method: str) -> None:
    more = {"old": "a", "new": "b"} if method == "edit" else {}
    result = disk(method, path="no/such", **more)

    assert refused(result, "does not exist")
    assert result.error is not None
    assert result.error.code == "files.missing"


# ------------------------------------------------------------------------------------- escapes


def attempts(disk: Disk, path: str) -> list[ToolResult]:
    return [
        disk("read", path=path),
        disk("write", path=path, content="overwritten"),
        disk("edit", path=path, old="secret", new="public"),
        disk("delete", path=path),
        disk("list", path=path),
        disk("list", path=path, pattern="*"),
    ]


@pytest.mark.parametrize(
    "path",
    ["../outside/treasure.txt", "a/../../outside/treasure.txt", "/etc/passwd", "..", "/", "../ws/../outside"],
)
def test_no_path_leads_outside(disk: Disk, path: str) -> None:
    for result in attempts(disk, path):
        assert not result.ok or result.output == ""


@pytest.mark.parametrize("target", ["absolute", "relative", "chain"])
def test_no_symbolic_link_leads_outside(disk: Disk, target: str) -> None:
    link = disk.workspace / "link"
    if target == "absolute":
        link.symlink_to(disk.outside)
    elif target == "relative":
        link.symlink_to("../outside")
    else:
        (disk.workspace / "other").symlink_to("../outside")
        link.symlink_to("other")

    for result in [*attempts(disk, "link/treasure.txt"), *attempts(disk, "link/new/deep")]:
        assert not result.ok or result.output == ""
    assert refused(disk("write", path="link", content="x"), "symbolic link")


def test_a_link_is_not_written_through_and_deleting_it_spares_its_target(disk: Disk) -> None:
    (disk.workspace / "link").symlink_to(disk.outside / "treasure.txt")

    assert not disk("read", path="link").ok
    assert not disk("write", path="link", content="x").ok
    assert disk("delete", path="link").ok


def test_a_link_that_stays_inside_may_be_read(disk: Disk) -> None:
    disk("write", path="d/a", content="inside")
    (disk.workspace / "link").symlink_to("d")

    assert disk("read", path="link/a").output == "inside"
    assert disk("write", path="link/b", content="too").ok
    assert (disk.workspace / "d/b").read_text() == "too"


def test_a_link_that_turns_meanwhile_leads_nowhere(disk: Disk) -> None:
    """One thread turns a link between inside and outside, the other uses paths through it."""
    inside, door = disk.workspace / "real", disk.workspace / "door"
    inside.mkdir()
    (inside / "treasure.txt").write_text("inside")
    door.symlink_to(inside)
    over = threading.Event()

    def turn() -> None:
        while not over.is_set():
            for target in (disk.outside, inside):
                (disk.workspace / "next").symlink_to(target)
                os.replace(disk.workspace / "next", door)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        read = {str(disk("read", path="door/treasure.txt").output) for _ in range(300)}
        for _ in range(300):
            disk("write", path="door/new.txt", content="x")
            disk("delete", path="door/new.txt")
    finally:
        over.set()
        thread.join()

    assert read <= {"inside", "'door/treasure.txt': outside workspace"}


def test_what_is_no_regular_file_is_not_opened(disk: Disk) -> None:
    os.mkfifo(disk.workspace / "pipe")

    assert refused(disk("read", path="pipe"), "not a regular file")
    assert refused(disk("write", path="pipe", content=""), "not a regular file")


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "\ud800", "d/" * 400 + "x"])
def test_a_path_that_cannot_be_one_is_refused(disk: Disk, path: str) -> None:
    assert not disk("read", path=path).ok
    assert not disk("write", path=path, content="").ok


@pytest.mark.parametrize("path", [".", "a/..", "./"])
def test_the_workspace_itself_is_no_file(disk: Disk, path: str) -> None:
    assert not disk("write", path=path, content="").ok
    assert not disk("delete", path=path).ok
    assert disk.workspace.is_dir()


def test_binary_and_oversized_files_are_refused(disk: Disk) -> None:
    (disk.workspace / "bin").write_bytes(b"ab\xff")
    with (disk.workspace / "big").open("wb") as file:
        file.truncate(8 * 1024 * 1024 + 1)

    assert refused(disk("read", path="bin"), "not UTF-8 text (byte 2)")
    assert refused(disk("read", path="big"), "larger than")
    assert refused(disk("write", path="new", content="x" * (8 * 1024 * 1024 + 1)), "more than")
    assert not (disk.workspace / "new").exists()


PARTS = st.sampled_from(["a", "b", "link", "up", "..", ".", "", "treasure.txt", "outside"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(parts=st.lists(PARTS, min_size=1, max_size=6), absolute=st.booleans())
def test_whatever_the_path_nothing_outside_is_read_or_changed(
    disk: Disk, parts: list[str], absolute: bool
) -> None:
    for name, target in (("link", disk.outside), ("up", "..")):
        if not (disk.workspace / name).is_symlink():
            (disk.workspace / name).unlink(missing_ok=True)
            (disk.workspace / name).symlink_to(target)
    path = ("/" if absolute else "") + "/".join(parts)
    for result in attempts(disk, path):
        assert result.output != "secret"
        assert "canary" not in str(result.output)
    assert disk.untouched()


# ------------------------------------------------------------------------------------ the tools


def test_read_only_leaves_out_what_changes_files(tmp_path: Path) -> None:
    assert [tool.name for tool in files(tmp_path, read_only=True)] == ["fs__read", "fs__list"]
    assert [tool.name for tool in files(tmp_path) if tool.read_only] == ["fs__read", "fs__list"]


def test_options_of_a_task_file_are_checked(tmp_path: Path) -> None:
    context = ToolContext(workspace=tmp_path, base=tmp_path)

    assert len(files_tools({"read_only": True}, context)) == 2
    with pytest.raises(AgentLoopConfigError, match="did you mean 'read_only'"):
        files_tools({"readonly": True}, context)


@pytest.mark.anyio
async def test_a_loop_calls_the_tools_through_its_wrapper(tmp_path: Path) -> None:
    wrapper = create_tool_adapter_wrapper({tool.name: tool for tool in files(tmp_path)})

    written = await wrapper.call(ToolCall(id="1", name="fs__write", arguments={"path": "a", "content": "x"}))
    missing = await wrapper.call(ToolCall(id="2", name="fs__read", arguments={}))
    unknown = await wrapper.call(ToolCall(id="3", name="fs__read", arguments={"path": "a", "mode": 1}))

    assert (written.id, written.name, written.ok) == ("1", "fs__write", True)
    assert [result.error and result.error.code for result in (missing, unknown)] == [
        "tool.invalid_arguments"
    ] * 2
