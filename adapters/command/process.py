"""Child processes that leave nothing behind: a group of their own, ended as a group.

Also the environment a child gets: what it is given by name, never what this process happens
to hold.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import Process

__all__ = ("BASIC_VARIABLES", "child_environment", "end_group", "kill_group", "start_group")

#: What every child gets from the surrounding environment, where it is set.
BASIC_VARIABLES: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TZ",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
)


def child_environment(
    environ: Mapping[str, str], *, pass_env: Iterable[str] = (), env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a child.

    Args:
        environ: Where variables are looked up.
        pass_env: Names to take over besides `BASIC_VARIABLES`; keys and tokens among them.
        env: Variables to set, over everything else.
    """
    names = (*BASIC_VARIABLES, *pass_env)
    return {name: environ[name] for name in names if name in environ} | dict(env or {})


async def start_group(argv: Sequence[str], **options: Any) -> Process:
    """Start a process in a group of its own; options as for ``anyio.open_process``.

    Nothing cancels this: the child may run before the call returns, and whoever is cancelled
    in between would not know which group to end.

    Raises:
        OSError: It cannot be started.
    """
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(argv, start_new_session=True, **options)
    return process  # noqa: RET504 - to mypy a scope may swallow what is raised in it


def kill_group(process: Process, signum: int = signal.SIGKILL) -> None:
    """Send a signal to whatever is left of the group that the process was started in."""
    # The group lives on while one of its members does, also when its leader has gone.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)


async def end_group(process: Process, *, grace_ms: int) -> int:
    """End the process and its group, and return its exit code.

    A process that still runs is asked first (SIGTERM) and has `grace_ms` to comply; then the
    whole group is killed. Nothing cancels this, so that no child is left behind.
    """
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            kill_group(process, signal.SIGTERM)
            with anyio.move_on_after(grace_ms / 1000):
                await process.wait()
        kill_group(process)
        code = await process.wait()
        await process.aclose()
    return code
