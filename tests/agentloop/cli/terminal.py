"""The command on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from pathlib import Path

from tests.agentloop.cli.command import PROGRAM, environment


def on_a_terminal(
    *words: str, cwd: Path, columns: int = 120, typed: Callable[[bytes], bytes | None] | None = None
) -> tuple[int, bytes]:
    """Run the command on a terminal of its own; return its exit code and what was written to it.

    Args:
        typed: Asked with everything that was written so far what is typed now.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(PROGRAM[0], [*PROGRAM, *words], environment(TERM="xterm-256color"))
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        out = b""
        while True:
            try:
                data = os.read(terminal, 65_536)
            except OSError:  # how the end of a terminal is told on Linux
                break
            if not data:
                break
            out += data
            if typed is not None and (keys := typed(out)):
                os.write(terminal, keys)
    finally:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), out
