"""A file system for SQLite that counts what is written and fails when it is told to.

`FaultySystem` becomes the default for every connection opened while it is entered. Writing is a
write, a sync, a truncation or a deletion; they are numbered from 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

import apsw

__all__ = ("Calls", "FaultySystem", "Kind")

Kind = Literal["write", "sync", "truncate", "delete"]

#: Told number, kind and file of a call that writes; may raise, or end the process.
Calls = Callable[[int, Kind, str], None]


class _File(apsw.VFSFile):
    def __init__(self, system: FaultySystem, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._system = system
        self._name = name if isinstance(name, str) else name.filename() if name is not None else ""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._system.torn == self._system.count + 1:
            super().xWrite(data[: len(data) // 2], offset)
        self._system.call("write", self._name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._system.call("sync", self._name)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._system.call("truncate", self._name)
        super().xTruncate(newsize)


class FaultySystem(apsw.VFS):
    """The shim; calls what it is given before each call that writes.

    Args:
        on_call: Decides what happens.
        torn: The number of a write of which half is done before ``on_call`` hears of it.
    """

    def __init__(self, on_call: Calls, *, torn: int = 0) -> None:
        self.count, self.torn = 0, torn
        self._on_call = on_call
        super().__init__("faulty", "unix", makedefault=True)

    def call(self, kind: Kind, name: str) -> None:
        self.count += 1
        self._on_call(self.count, kind, os.path.basename(name))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.call("delete", filename)
        super().xDelete(filename, syncdir)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        apsw.set_default_vfs("unix")
        self.unregister()
