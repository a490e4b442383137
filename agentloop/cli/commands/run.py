"""``agentloop run``: runs a task and shows it."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from agentloop.cli.places import go_on_with
from agentloop.cli.terminal import complain, shown_path
from agentloop.cli.view import JsonView, PlainView, View
from agentloop.errors import StreamFailed
from agentloop.messages import LoopResult
from agentloop.tasks import TaskRun, begin_task, load_task

__all__ = ("execute", "set_up", "watch")

_SIGNAL_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def execute(arguments: argparse.Namespace) -> int:
    """Run the task; return 0 on SUCCESS, 1 on FAILURE, 130 or 143 when a signal stopped it.

    Raises:
        OSError: What is shown could not be written: the run was aborted.
    """
    set_up(arguments.debug)
    task = load_task(Path(arguments.task), overrides=arguments.set)
    if arguments.db is not None:
        task = dataclasses.replace(task, state=Path(arguments.db).resolve())
    return watch(lambda view: begin_task(task, on_node=view.node), as_json=arguments.json)


def set_up(debug: bool) -> None:
    """Set up the log, and let a signal unwind what has been begun."""
    _set_up_log(debug)
    for signum in _SIGNAL_CODES:
        signal.signal(signum, _stop)


def watch(make: Callable[[View], TaskRun], *, as_json: bool) -> int:
    """Run what is made and show it; return the exit code.

    Raises:
        OSError: What is shown could not be written: the run was aborted.
    """
    view = _view(as_json)
    run = make(view)
    try:
        return anyio.run(_watch, run, view)
    finally:
        view.close()
        run.close()


def _stop(signum: int, frame: object) -> None:
    """Unwind what has been begun; a run that goes on has its own way, `_listen`."""
    raise SystemExit(_SIGNAL_CODES[signal.Signals(signum)])


def _set_up_log(debug: bool) -> None:
    # Without --debug what goes wrong is shown as frames; a log beside them would say it twice.
    logger = logging.getLogger("agentloop")
    logger.addHandler(logging.StreamHandler() if debug else logging.NullHandler())
    logger.propagate = False
    if debug:
        logger.setLevel(logging.DEBUG)


def _view(as_json: bool) -> View:
    if as_json:
        return JsonView()
    if not sys.stdout.isatty():
        return PlainView()
    from agentloop.cli.live import LiveView  # rich takes a while to import, and pipes do not need it

    return LiveView()


async def _watch(run: TaskRun, view: View) -> int:
    stopped: list[int] = []
    unseen: OSError | None = None
    try:
        async with run.loop as loop, anyio.create_task_group() as tasks:
            tasks.start_soon(_listen, loop, stopped)
            try:
                view.begin({"run": run.run_id, "task": run.task.name, "workspace": shown_path(run.workspace)})
                await loop.sink.write({"type": "TICK"})
                async for frame in loop.source:
                    view.frame(frame)
                    sys.stdout.flush()
            except OSError as error:
                # Nobody sees what the agent does any more, so it is not to do it.
                unseen = error
                loop.abort("output_aborted")
            tasks.cancel_scope.cancel()
    except StreamFailed as failure:
        complain(f"agentloop: {failure.__cause__ or failure}")
    finally:
        with anyio.move_on_after(5, shield=True):
            await run.aclose()
    if unseen is not None:
        raise unseen
    result = run.loop.result
    assert result is not None
    succeeded = run.succeeded(result)
    go_on = go_on_with(run.task.state, run=run.run_id, task=run.task.name)
    view.end(_facts(run, result, succeeded), run.memory.learned(), go_on)
    if stopped:
        return stopped[0]
    return 0 if succeeded else 1


async def _listen(loop: Any, stopped: list[int]) -> None:
    """Abort the run at the first signal, and kill what it has started at the second.

    A third one then finds the interpreter's own handling, which waits for nothing.
    """
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for signum in signals:
            if stopped:
                _kill_children()
                return
            stopped.append(_SIGNAL_CODES[signum])
            complain("stopping; once more to kill what still runs")
            loop.abort("interrupted")


def _kill_children() -> None:
    """Kill the processes the run has started, each with its group: they were asked before."""
    for thread in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread or a child that has just ended
            for pid in map(int, thread.read_text().split()):
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)


def _facts(run: TaskRun, result: LoopResult, succeeded: bool) -> dict[str, Any]:
    return {
        "run": run.run_id,
        "status": "SUCCESS" if succeeded else "FAILURE",
        "reason": result.reason,
        "evidence": result.evidence,
        "iterations": run.cycles(),
        "usage": run.usage(),
        "warnings": list(result.warnings),
        "workspace": str(run.workspace),
        "ledger": str(run.task.state),
    }
