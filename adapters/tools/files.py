"""The tools ``fs__…``: files of the workspace, and nothing outside it.

Every path is walked from the workspace's open handle (`agentloop.checks.files`), and every
change is made relative to the handle of the directory that was reached: no link, no ``..`` and
no swap of a directory meanwhile leads outside. A write replaces the file in one step.
"""

from __future__ import annotations

import glob
import itertools
import os
import posixpath
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from os import PathLike
from typing import Any, Final

import msgspec

from agentloop._canonical import Json
from agentloop.checks.files import Unreachable, Workspace
from agentloop.messages import ToolError, ToolResult
from agentloop.models import ToolContext, read_options
from agentloop.tools import Tool

__all__ = ("files", "files_tools")

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
MAX_TEXT: Final = 256 * 1024
MAX_ENTRIES: Final = 1_000
_GLOB_LIMIT: Final = 20_000
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_numbers = itertools.count(1)


class _Files:
    """What the tools do; each method returns the text the model reads."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read(self, path: str, first_line: int = 1, lines: int | None = None) -> str:
        text = self._text(path)
        if first_line == 1 and lines is None and len(text) <= MAX_TEXT:
            return text
        every = text.splitlines(keepends=True)
        last = len(every) if lines is None else min(len(every), first_line - 1 + lines)
        shown = "".join(every[first_line - 1 : last])
        if len(shown) <= MAX_TEXT:
            return shown
        return (
            f"{shown[:MAX_TEXT]}\n[… cut: {len(shown) - MAX_TEXT} of {len(shown)} characters, "
            f"lines {first_line} to {last} of {len(every)}; ask for fewer lines …]"
        )

    def list(self, path: str = ".", pattern: str | None = None) -> str:
        if pattern is None:
            names = self._workspace.in_directory(path, _entries)
        else:
            start = "" if _lexical(path) == "." else glob.escape(_lexical(path)) + "/"
            found = self._workspace.glob(start + pattern, limit=_GLOB_LIMIT)
            names = sorted(itertools.islice(found, MAX_ENTRIES + 1))
        more = [f"[… cut at {MAX_ENTRIES} entries …]"] if len(names) > MAX_ENTRIES else []
        return "\n".join([*names[:MAX_ENTRIES], *more])

    def write(self, path: str, content: str) -> str:
        data = content.encode()
        _check_size(len(data))
        directory, name = _split(path)
        self._make(directory)
        self._workspace.in_directory(directory, lambda handle: _replace(handle, name, data))
        return f"wrote {len(data)} bytes to {path}"

    def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> str:
        text = self._text(path)
        count = text.count(old)
        if count == 0:
            raise Unreachable(f"the text to replace does not occur in it: {old[:80]!r}")
        if count > 1 and not replace_all:
            raise Unreachable(
                f"the text to replace occurs {count} times: give more of its surroundings, or replace_all"
            )
        self.write(path, text.replace(old, new))
        return f"replaced {count} occurrence{'s' * (count > 1)} in {path}"

    def delete(self, path: str) -> str:
        directory, name = _split(path)
        self._workspace.in_directory(directory, lambda handle: _remove(handle, name))
        return f"deleted {path}"

    def _text(self, path: str) -> str:
        try:
            return self._workspace.read(path, limit=MAX_FILE_BYTES).decode()
        except UnicodeDecodeError as error:
            raise Unreachable(f"is not UTF-8 text (byte {error.start})") from None

    def _make(self, directory: str) -> None:
        """Make a directory, and those above it, if it is not there."""
        try:
            self._workspace.in_directory(directory, lambda handle: None)
        except Unreachable as problem:
            if not problem.missing:
                raise
            above, name = _split(directory)
            self._make(above)
            self._workspace.in_directory(above, lambda handle: os.mkdir(name, dir_fd=handle))


def _lexical(path: str) -> str:
    return posixpath.normpath(path or ".")


def _split(path: str) -> tuple[str, str]:
    directory, name = posixpath.split(_lexical(path))
    if name in ("", ".", ".."):
        raise Unreachable("is not the name of a file")
    return directory or ".", name


def _check_size(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise Unreachable(f"{size:,} bytes are more than the {MAX_FILE_BYTES:,} a file may have")


def _entries(handle: int) -> list[str]:
    with os.scandir(handle) as entries:
        return sorted(
            entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
            for entry in itertools.islice(entries, _GLOB_LIMIT)
        )


def _mode_of(handle: int, name: str) -> int | None:
    try:
        seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(seen.st_mode):
        raise Unreachable("is a symbolic link: name the file it points to")
    if not stat.S_ISREG(seen.st_mode):
        raise Unreachable("is not a regular file")
    return stat.S_IMODE(seen.st_mode)


def _replace(handle: int, name: str, data: bytes) -> None:
    """Give a file new content in one step: readers see the old one or the new one."""
    mode = _mode_of(handle, name)
    temporary = f".agentloop-{os.getpid()}-{next(_numbers)}.tmp"
    try:
        with open(os.open(temporary, _NEW_FILE, 0o666, dir_fd=handle), "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(temporary, name, src_dir_fd=handle, dst_dir_fd=handle)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=handle)
        raise


def _remove(handle: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=handle)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=handle)


def _answering(action: Callable[..., str]) -> Callable[..., ToolResult]:
    """Make an answer of what a file action returns or refuses."""

    @wraps(action)
    def answer(**arguments: Any) -> ToolResult:
        try:
            return ToolResult(id="", name="", ok=True, output=action(**arguments))
        except Unreachable as problem:
            message = f"{arguments.get('path', '.')!r}: {problem.reason}"
            code = "files.missing" if problem.missing else "files.refused"
            error = ToolError(error_class="correctable", code=code, message=message)
            return ToolResult(id="", name="", ok=False, output=message, error=error)

    return answer


_PATH: Final = {"type": "string", "minLength": 1, "description": "Relative to the workspace."}
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 1}

#: Method, description, properties of its arguments, how many of them are required.
_TOOLS: Final = (
    (
        "read",
        "Read a text file, or some of its lines.",
        {"path": _PATH, "first_line": _COUNT, "lines": _COUNT},
        1,
    ),
    (
        "list",
        "List a directory, or the files that match a pattern such as '**/*.py' below it.",
        {"path": _PATH, "pattern": {"type": "string", "minLength": 1}},
        0,
    ),
    ("write", "Write a whole text file; directories are made.", {"path": _PATH, "content": _TEXT}, 2),
    (
        "edit",
        "Replace a text that occurs exactly once in a file, or with replace_all every time.",
        {"path": _PATH, "old": {**_TEXT, "minLength": 1}, "new": _TEXT, "replace_all": {"type": "boolean"}},
        3,
    ),
    ("delete", "Delete a file or an empty directory.", {"path": _PATH}, 1),
)
_READ_ONLY: Final = frozenset({"read", "list"})


def files(workspace: str | PathLike[str], *, read_only: bool = False) -> list[Tool]:
    """Return the tools ``fs__read``, ``fs__list``, ``fs__write``, ``fs__edit`` and ``fs__delete``.

    Files are UTF-8 text of at most 8 MiB; a reading shows at most 256 Ki characters of one.
    What cannot be done is an answer the model can read, with code ``files.missing`` or
    ``files.refused``.

    Args:
        workspace: No path leads outside this directory.
        read_only: Only the first two.
    """
    actions = _Files(Workspace(workspace))
    return [
        Tool(
            name=f"fs__{method}",
            description=description,
            schema={
                "type": "object",
                "properties": properties,
                "required": [*properties][:required],
                "additionalProperties": False,
            },
            handler=_answering(getattr(actions, method)),
            read_only=method in _READ_ONLY,
        )
        for method, description, properties, required in _TOOLS
        if method in _READ_ONLY or not read_only
    ]


class _Options(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a task file may say about the file tools."""

    read_only: bool = False


def files_tools(options: Mapping[str, Json], context: ToolContext) -> list[Tool]:
    """Return the tools for the options of a task file: the entry point ``files``.

    Raises:
        AgentLoopConfigError: An option is unknown or of the wrong type.
    """
    return files(context.workspace, read_only=read_options("the file tools", _Options, options).read_only)
