"""A ledger store of plain files: one file a run, one entry a line.

A line is ``{"seq":…,"at":…,"kind":…,"data":…,"hash":…}``, its data byte for byte what was
hashed. The last line of an append ends in ``}`` and a line feed, the others in a blank more:
so a reader knows whole appends from the beginning of one that a crash cut off. What such a
crash left behind is ignored by readers and removed by the next writer.

A writer holds an advisory lock on the run's file from its first append until ``run.closed``
or `JsonLinesLedgerStore.close`; readers need no lock. Large texts of prompts lie in ``blobs/``.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Self
from urllib.parse import quote, unquote

from agentloop._canonical import MAX_BYTES, NotJson, decode
from agentloop.errors import DamagedLedger, LedgerConflict, LedgerError, LedgerUnavailable
from agentloop.ledger.chain import NO_ENTRIES, follow, kind_text
from agentloop.ledger.summaries import CLOSED, summarize
from agentloop.ports import Head, LedgerEntry, RunSummary

__all__ = ("JsonLinesLedgerStore",)

_LINE = re.compile(
    rb'\{"seq":([1-9][0-9]{0,17}),"at":(0|-?[1-9][0-9]{0,18}),"kind":("(?:[^"\\]|\\.)*"),'
    rb'"data":(.*),"hash":"([0-9a-f]{64})"\} ?',
    re.DOTALL,
)
_DIGEST = re.compile("[0-9a-f]{64}")
_SUFFIX = ".jsonl"
_LONGEST_LINE = MAX_BYTES + 4096
_WINDOW = 64 * 1024

_sync_data = getattr(os, "fdatasync", os.fsync)


@lru_cache(maxsize=256)
def _read_kind(text: bytes) -> str:
    kind = decode(text)
    if not isinstance(kind, str) or kind_text(kind) != text:
        raise NotJson("the kind is not written as this library writes it")
    return kind


def _line(entry: LedgerEntry) -> bytes:
    parts = (entry.seq, entry.at, kind_text(entry.kind), entry.body, entry.hash.hex().encode())
    return b'{"seq":%d,"at":%d,"kind":%b,"data":%b,"hash":"%b"}' % parts


def _parse(run: str, seq: int, line: bytes) -> LedgerEntry:
    """Read one line, without its line feed."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise DamagedLedger(run, seq, f"the line {line[:60]!r}… is not an entry")
    number, at, kind, body, digest = match.groups()
    try:
        name = _read_kind(kind)
    except NotJson as error:
        raise DamagedLedger(run, seq, str(error)) from error
    return LedgerEntry(seq=int(number), at=int(at), kind=name, body=body, hash=bytes.fromhex(digest.decode()))


def _check_cut_off(run: str, seq: int, rest: bytes) -> None:
    """Check that what follows the last whole append is the beginning of one.

    Anything else was changed after it had been written, perhaps after it was acknowledged.
    """
    *lines, rest = rest.split(b"\n")
    for line in lines:
        _parse(run, seq, line)
        seq += 1
    rest = rest.rstrip(b"\0")  # a size that reached the disk before its bytes did
    match = _LINE.match(rest)
    if match is not None and match.end() != len(rest):
        raise DamagedLedger(run, seq, f"{rest[match.end() :][:60]!r} stands where a line should end")


def _whole_lines(run: str, path: Path) -> Iterator[bytes]:
    """Yield the lines of whole appends, without their line feeds."""
    pending: list[bytes] = []
    seq = 1
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            pending.append(line)
            if line.endswith(b"}\n"):
                for whole in pending:
                    yield whole[:-1]
                seq += len(pending)
                pending.clear()
    _check_cut_off(run, seq, b"".join(pending))


def _find_end(run: str, file: int) -> tuple[LedgerEntry | None, int]:
    """Return the newest entry and the size of the whole appends, from the end of the file.

    Checks the entry against the one before it. Cost grows with these two only.
    """
    size = os.fstat(file).st_size
    window = _WINDOW
    while True:
        start = max(0, size - window)
        data = os.pread(file, size - start, start)
        end = data.rfind(b"}\n") + 2
        last = data.rfind(b"\n", 0, max(0, end - 1)) + 1
        before = data.rfind(b"\n", 0, max(0, last - 1)) + 1
        if start == 0 or before:
            break
        window *= 4
    if end == 1:
        _check_cut_off(run, 1, data)
        return None, 0
    newest = _parse(run, 0, data[last : end - 1])
    head = NO_ENTRIES
    if last:
        previous = _parse(run, newest.seq - 1, data[before : last - 1])
        head = previous.seq, previous.hash
    list(follow(run, [newest], head))
    _check_cut_off(run, newest.seq + 1, data[end:])
    return newest, start + end


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


class _Writer:
    """An open, locked run file, and where its last whole append ends."""

    __slots__ = ("file", "head", "listed", "size")

    def __init__(self, file: int, head: Head, size: int) -> None:
        self.file, self.head, self.size = file, head, size
        #: The file's name has reached the disk.
        self.listed = False


class JsonLinesLedgerStore:
    """Keeps each run in a file of its own, mode 0600. Also a `RunIndex`.

    An append costs the same however long the run is, and so does going on with an old one.

    Args:
        directory: Created by the first append.
    """

    blocking = True

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._blobs = self._directory / "blobs"
        self._writers: dict[str, _Writer] = {}
        self._loose_blobs: set[str] = set()
        self._durable_blobs: set[str] = set()
        self._failure = ""
        self._listed = False  # the directory's own name has reached the disk
        #: How many bytes of cut-off appends this store removed, by run.
        self.removed: dict[str, int] = {}

    # ------------------------------------------------------------------------------- writing

    def append(
        self,
        run: str,
        entries: Sequence[LedgerEntry],
        /,
        *,
        expected: int,
        sync: bool,
        blobs: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Head:
        if self._failure:
            raise LedgerUnavailable(run, self._failure)
        try:
            writer = self._writer(run, expected)
            if writer.head[0] != expected:
                raise LedgerConflict(run, expected, writer.head[0])
            checked = list(follow(run, entries, writer.head))
            for digest, blob in blobs.items():
                self._keep_blob(digest, blob)
            if checked:
                self._write(run, writer, checked)
            if sync:
                self._sync(writer)
        except OSError as error:
            raise LedgerUnavailable(run, f"{error.strerror} ({error.filename or self._path(run)})") from error
        if checked and checked[-1].kind == CLOSED:
            self._close(run)
        return writer.head

    def _path(self, run: str) -> Path:
        return self._directory / (quote(run, safe="") + _SUFFIX)

    def _writer(self, run: str, expected: int) -> _Writer:
        writer = self._writers.get(run)
        if writer is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path(run), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                writer = self._lock(run, file, expected)
            except BaseException:
                os.close(file)
                raise
            self._writers[run] = writer
        return writer

    def _lock(self, run: str, file: int, expected: int) -> _Writer:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            newest, _ = _find_end(run, file)
            raise LedgerConflict(run, expected, newest.seq if newest else 0) from None
        newest, size = _find_end(run, file)
        cut_off = os.fstat(file).st_size - size
        if cut_off:
            os.ftruncate(file, size)
            self.removed[run] = self.removed.get(run, 0) + cut_off
        return _Writer(file, (newest.seq, newest.hash) if newest else NO_ENTRIES, size)

    def _write(self, run: str, writer: _Writer, entries: Sequence[LedgerEntry]) -> None:
        if os.fstat(writer.file).st_nlink == 0:
            self._close(run)
            raise LedgerUnavailable(run, f"{self._path(run)} was deleted while it was open")
        data = b" \n".join(map(_line, entries)) + b"\n"
        try:
            _write_all(writer.file, data)
        except OSError:
            # Removed at once if possible, else by whoever opens the file next: it is a cut-off append.
            with suppress(OSError):
                os.ftruncate(writer.file, writer.size)
            self._close(run)
            raise
        writer.head = entries[-1].seq, entries[-1].hash
        writer.size += len(data)

    def _keep_blob(self, digest: str, blob: bytes) -> None:
        if digest in self._durable_blobs or digest in self._loose_blobs:
            return
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest[:80]!r} is not the hexadecimal SHA-256 of a blob")
        # Written in place: whoever writes the same blob at the same time writes the same bytes.
        self._blobs.mkdir(mode=0o700, exist_ok=True)
        file = os.open(self._blobs / digest, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size != len(blob):
                _write_all(file, blob)
                os.ftruncate(file, len(blob))
        finally:
            os.close(file)
        self._loose_blobs.add(digest)

    def _sync(self, writer: _Writer) -> None:
        try:
            for digest in self._loose_blobs:
                file = os.open(self._blobs / digest, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    _sync_data(file)
                finally:
                    os.close(file)
            if self._loose_blobs:
                _sync_directory(self._blobs)
            _sync_data(writer.file)
            if not writer.listed:
                _sync_directory(self._directory)
            if not self._listed:
                _sync_directory(self._directory.resolve().parent)
        except OSError as error:
            # The kernel may have dropped the pages it could not write: only a new look at the
            # file can say what it holds.
            self._failure = f"a sync failed ({error.strerror}); verify the run and open the store again"
            self.close()
            raise
        writer.listed = self._listed = True
        self._durable_blobs |= self._loose_blobs
        self._loose_blobs.clear()

    def _close(self, run: str) -> None:
        writer = self._writers.pop(run, None)
        if writer is not None:
            os.close(writer.file)

    def close(self) -> None:
        """Give up the locks. The store stays usable; a later append opens the file again."""
        for run in list(self._writers):
            self._close(run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------- reading

    def read(self, run: str, /, *, after: int = 0) -> Iterator[LedgerEntry]:
        lines = _whole_lines(run, self._path(run))
        try:
            for seq, line in enumerate(islice(lines, after, None), after + 1):
                yield _parse(run, seq, line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise LedgerUnavailable(run, f"{error.strerror} ({self._path(run)})") from error

    def blob(self, digest: str, /) -> bytes | None:
        if not _DIGEST.fullmatch(digest):
            return None
        try:
            return (self._blobs / digest).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"blob {digest} cannot be read: {error.strerror}") from error

    def runs(self, *, prefix: str = "", limit: int | None = None) -> Iterator[RunSummary]:
        found = sorted((run for run in self._names() if run.startswith(prefix)), reverse=True)
        return islice(filter(None, map(self._summary, found)), limit)

    def _names(self) -> Iterator[str]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise LedgerError(
                f"the ledgers in {self._directory} cannot be listed: {error.strerror}"
            ) from error
        for name in names:
            run = unquote(name.removesuffix(_SUFFIX))
            if self._path(run).name == name:
                yield run

    def _summary(self, run: str) -> RunSummary | None:
        return summarize(run, lambda: self._ends(run))

    def _ends(self, run: str) -> tuple[LedgerEntry, LedgerEntry] | None:
        first = next(self.read(run), None)
        if first is None:
            return None
        try:
            with self._path(run).open("rb") as file:
                newest, _ = _find_end(run, file.fileno())
        except OSError as error:
            raise LedgerUnavailable(run, f"{error.strerror} ({self._path(run)})") from error
        return first, newest or first
