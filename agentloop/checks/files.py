"""What a check may ask about files, and how it stays inside the workspace.

A path is walked one component at a time from an open directory handle, symbolic links are
resolved by hand, and the answer comes from the handle that was reached. So no swap of a
directory or a link during the walk can make the answer one about a file outside: names are
never looked up twice. What cannot be reached is an `Unreachable`, never an `OSError`.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

__all__ = ("MAX_FILE_BYTES", "OUTSIDE", "Unreachable", "Workspace", "has_magic")

#: Bytes that are read of one file, at most.
MAX_FILE_BYTES: Final = 1024 * 1024
OUTSIDE: Final = "outside workspace"
_MAX_LINKS: Final = 40
_MAX_DEPTH: Final = 256
#: Components opened for each entry a pattern may visit; a deep tree must not cost its square.
_OPENS_PER_VISIT: Final = 10

#: A handle to ask, which neither reads nor waits, whatever stands there.
_ASK: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC
_ASK_FOLLOWING: Final = _ASK & ~os.O_NOFOLLOW
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAGIC: Final = re.compile(r"[*?\[]")

_T = TypeVar("_T")


class Unreachable(Exception):
    """A path that gives no answer, and why.

    Attributes:
        reason: One line, for the report.
        missing: True if the reason is that nothing of that name is there.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.missing = reason, missing


def has_magic(path: str) -> bool:
    """Return whether a path could be a pattern."""
    return _MAGIC.search(path) is not None


def _why(error: Exception) -> Unreachable:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Unreachable("does not exist", missing=True)
    if isinstance(error, OSError) and error.errno is not None:
        return Unreachable(os.strerror(error.errno).lower())
    return Unreachable(f"the path cannot be a file name: {error}")


class _Place:
    """Where a walk stands: the handles from the workspace down, the last one asked already."""

    __slots__ = ("_opened", "handles", "name", "seen")

    def __init__(self, root: int) -> None:
        self.handles = [root]
        self._opened = [root]
        self.seen = os.fstat(root)
        #: Of the last handle, in the one before it.
        self.name = "."

    def close(self) -> None:
        for handle in self._opened:
            os.close(handle)

    def restart(self) -> None:
        del self.handles[1:]
        self.seen = os.fstat(self.handles[0])

    def up(self) -> bool:
        """Go back to the directory above; False at the top."""
        if len(self.handles) == 1:
            return False
        self.handles.pop()
        self.seen = os.fstat(self.handles[-1])
        return True

    def enter(self, name: str) -> str | None:
        """Go down to a name; if it is a symbolic link, stay and return what it points to."""
        if len(self._opened) > _MAX_DEPTH:  # links included: open handles are scarce
            raise Unreachable(f"the path is deeper than {_MAX_DEPTH}")
        handle = os.open(name, _ASK, dir_fd=self.handles[-1])
        self._opened.append(handle)
        seen = os.fstat(handle)
        if stat.S_ISLNK(seen.st_mode):
            return os.readlink("", dir_fd=handle)
        self.handles.append(handle)
        self.seen, self.name = seen, name
        return None

    def read(self, limit: int) -> bytes:
        """Return the content of the regular file that was reached."""
        if not stat.S_ISREG(self.seen.st_mode):
            raise Unreachable(_not_regular(self.seen.st_mode))
        handle = os.open(self.name, _READ, dir_fd=self.handles[-2])
        try:
            seen = os.fstat(handle)
            if (seen.st_dev, seen.st_ino) != (self.seen.st_dev, self.seen.st_ino):
                raise Unreachable("the file was replaced while it was read")
            return _read_all(handle, limit)
        finally:
            os.close(handle)


def _read_all(handle: int, limit: int) -> bytes:
    content = bytearray()
    while chunk := os.read(handle, min(limit + 1 - len(content), 256 * 1024)):
        content += chunk
        if len(content) > limit:
            raise Unreachable(f"the file is larger than {limit:,} bytes")
    return bytes(content)


def _not_regular(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "is a directory (a path that ends with / accepts one)"
    names = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"))
    word = next((word for test, word in names if test(mode)), "not an ordinary one")
    return f"is not a regular file: it is {word}"


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if path.endswith("/"):
        parts.append(".")  # what stands before it must be a directory
    return parts


class Workspace:
    """The directory that file checks speak about.

    Args:
        directory: Nothing outside it is looked at. None: paths are relative to the current
            directory and may lead anywhere.
    """

    __slots__ = ("_directory",)

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self._directory = None if directory is None else os.path.abspath(os.fspath(directory))

    @property
    def directory(self) -> str | None:
        """The absolute path of the workspace."""
        return self._directory

    def stat(self, path: str) -> os.stat_result:
        """Return what stands at a path, symbolic links followed.

        Raises:
            Unreachable: It does not exist, lies outside, or cannot be looked at.
        """
        return self._at(path, lambda place: place.seen)

    def read(self, path: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a regular file.

        Raises:
            Unreachable: As `stat`; also for what is no regular file, or larger than the limit.
        """
        return self._at(path, lambda place: place.read(limit))

    def in_directory(self, path: str, act: Callable[[int], _T]) -> _T:
        """Call a function with an open handle of the directory at a path; return what it gave.

        The handle is for calls that take a ``dir_fd``. What the function does relative to it
        happens in the directory that was reached, wherever its name leads by then.

        Raises:
            Unreachable: As `stat`; also for what is no directory, and for an OSError of the
                function.
        """

        def acted(place: _Place) -> _T:
            handle = os.open(".", _LIST, dir_fd=place.handles[-1])
            try:
                return act(handle)
            finally:
                os.close(handle)

        return self._at(path, acted)

    def glob(self, pattern: str, *, limit: int) -> Iterator[str]:
        """Yield the paths that match a pattern; they were listed, not yet looked at.

        ``**`` crosses directories but no symbolic links. Names that begin with a dot match
        only a part that begins with one; names that are no valid text match nothing.

        Raises:
            Unreachable: More than ``limit`` entries were visited, or the pattern leads outside.
        """
        start = "/" if pattern.startswith("/") else ""
        todo: list[tuple[str, list[str]]] = [(start, _parts(pattern))]
        visited = opened = 0
        while todo:
            prefix, parts = todo.pop()
            while parts and not has_magic(parts[0]):
                prefix, parts = prefix + parts[0] + "/", parts[1:]
            if not parts:
                yield prefix[:-1]
                continue
            here, rest = parts[0], parts[1:]
            if here == "**":
                while rest[:1] == ["**"]:
                    rest = rest[1:]
                todo.append((prefix, rest or ["*"]))
            matches = re.compile(fnmatch.translate("*" if here == "**" else here)).match
            opened += prefix.count("/") + 1
            for name, is_directory in self._list(prefix or ".", limit + 1):
                visited += 1
                if visited > limit or opened > limit * _OPENS_PER_VISIT:
                    raise Unreachable(f"pattern too broad: more than {limit:,} entries visited")
                if not matches(name) or (name[0] == "." and here[0] != "."):
                    continue
                if here == "**":
                    if is_directory:
                        todo.append((f"{prefix}{name}/", parts))
                elif not rest:
                    yield prefix + name
                else:
                    todo.append((f"{prefix}{name}/", rest))

    def _list(self, path: str, most: int) -> list[tuple[str, bool]]:
        """Return names and whether each is a directory; nothing for what cannot be listed."""

        def names(handle: int) -> list[tuple[str, bool]]:
            with os.scandir(handle) as entries:
                return sorted(
                    (entry.name, entry.is_dir(follow_symlinks=False))
                    for entry in islice(entries, most)
                    if _is_text(entry.name)
                )

        try:
            return self.in_directory(path, names)
        except Unreachable:
            return []

    def _at(self, path: str, ask: Callable[[_Place], _T]) -> _T:
        """Walk to a path, ask there, and close every handle again."""
        links = 0
        try:
            if not _is_text(path):
                raise Unreachable("the path is not valid text")
            if self._directory is None:
                path = os.path.join(os.getcwd(), path)
            place = _Place(os.open(self._directory or "/", _ASK_FOLLOWING))
            try:
                pending = self._inside(path)[::-1]
                while pending:
                    part = pending.pop()
                    if not stat.S_ISDIR(place.seen.st_mode):
                        raise NotADirectoryError(errno.ENOTDIR, "not a directory")
                    if part == ".":
                        continue
                    if part == "..":
                        if not place.up() and self._directory is not None:
                            raise Unreachable(OUTSIDE)
                        continue
                    target = place.enter(part)
                    if target is None:
                        continue
                    links += 1
                    if links > _MAX_LINKS:
                        raise Unreachable(f"more than {_MAX_LINKS} symbolic links on the way")
                    if target.startswith("/"):
                        place.restart()
                    pending.extend(self._inside(target)[::-1])
                return ask(place)
            finally:
                place.close()
        except (OSError, ValueError, RuntimeError) as error:
            raise _why(error) from None

    def _inside(self, path: str) -> list[str]:
        """Return the components below the workspace; of an absolute path, what follows its own."""
        parts = _parts(path)
        if self._directory is None or not path.startswith("/"):
            return parts
        for own in (self._directory, os.path.realpath(self._directory)):
            prefix = _parts(own)
            if parts[: len(prefix)] == prefix:
                return parts[len(prefix) :]
        raise Unreachable(OUTSIDE)


def _is_text(name: str) -> bool:
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
