"""The program: arguments in, exit code out. What each command does is in its own module.

Exit codes: 0 done, 1 a typed failure or FAILURE, 2 usage or refusal, 3 the harness of evals
failed, 130 and 143 signals.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from agentloop.cli import terminal

__all__ = ("COMMANDS", "Command", "main")

Add = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: its name, a line of help, its arguments, and the module that does it."""

    name: str
    help: str
    #: Module below `agentloop.cli.commands` with ``execute(arguments) -> int``; imported on use.
    module: str
    arguments: Add


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help="a task folder, or its task.toml")
    parser.add_argument("--db", help="keep runs and graph in this file instead of the task's own")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help='override a setting, as agent.model="gpt-5" or limits.max_iterations=3',
    )
    _json(parser, "print every frame as a JSON line")


def _new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the folder to make")


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=_count, default=20, help="how many, newest first (default 20)")
    parser.add_argument(
        "--clean", action="store_true", help="delete the scratch folders of runs that are over"
    )
    _db(parser)
    _json(parser, "print a JSON line for each run")


def _show(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument("--entries", action="store_true", help="show every entry of the ledger")
    _db(parser)
    _json(parser, "print a JSON line for each frame, or each entry")


def _replay(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument(
        "--recompute", action="store_true", help="also read every verdict anew, and tell differences"
    )
    _db(parser)
    _json(parser, "print the report as JSON")


def _resume(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    _where(parser)
    _json(parser, "print every frame as a JSON line")


def _fork(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run id, or the beginning of one")
    parser.add_argument(
        "--at",
        type=_count,
        required=True,
        metavar="SEQ",
        help="the last entry both runs share (show --entries)",
    )
    _where(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting of the task from there on",
    )
    _json(parser, "print every frame as a JSON line")


def _eval(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(help_text=parser.format_help)
    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "gate", "baseline", "live", "record", "help"),
        default="run",
        help="run the cases (default), compare them with the baseline, move the baseline, "
        "measure real models, make a case of a run",
    )
    parser.add_argument(
        "run", nargs="?", help="record: a run id, or the beginning of one (default: the newest)"
    )
    parser.add_argument("--id", help="record: the id of the case (default: the run's)")
    parser.add_argument("--out", metavar="FILE", help="record: the file (default: evals/cases/ID.json)")
    parser.add_argument("--db", help="record: the file of the run (default: as of show)")
    parser.add_argument(
        "--suite",
        default="evals/suite",
        help="a Python file with a suite, or a folder of cases (evals/suite)",
    )
    parser.add_argument("--baseline", default="evals/baseline.json", help="(default: evals/baseline.json)")
    for kind in ("json", "md", "html", "junit"):
        parser.add_argument(f"--{kind}", metavar="FILE", help=f"also write the report as {kind}")
    parser.add_argument("--seeds", type=_count, help="live: how often each case is run (default: as it says)")
    parser.add_argument("--parallel", type=_count, default=8, help="cases at the same time (default 8)")
    parser.add_argument(
        "--strict", action="store_true", help="run each case twice, and replay in a fresh process"
    )
    for words, text in _EVAL_SWITCHES.items():
        parser.add_argument(*words, action="store_true", help=text)
    for words, text in _EVAL_TOLERANCES.items():
        parser.add_argument(*words, type=_share, metavar="NUMBER", help=text)


_EVAL_SWITCHES: Final = {
    ("--strict-trajectory", "--strictTrajectory"): "gate: a case that went another way is an error",
    ("--force",): "baseline: move it although this is no release branch; record: write over a file",
    ("--allow-failing", "--allowFailing"): "baseline: record cases that fail",
}
_EVAL_TOLERANCES: Final = {
    ("--tolerance",): "baseline: by how much a case may fall (default: as before, or 0)",
    ("--aggregate-tolerance", "--aggregateTolerance"): "baseline: by how much the mean may fall",
}


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", help="the task folder (default: where it was when the run began)")
    parser.add_argument("--workspace", help="the run's workspace (default: where it was)")
    _db(parser)


def _which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", help="a run id, or the beginning of one (default: the newest run)")


def _db(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--db", help="the file (default: the nearest .agentloop/state.db, upwards from here)")


def _json(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--json", action="store_true", help=text)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


_count.__name__ = "number of at least 1"


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


_share.__name__ = "number from 0 to 1"

COMMANDS: Final = (
    Command(name="run", help="run a task and watch it", module="run", arguments=_run),
    Command(name="new", help="make a task folder to start from", module="new", arguments=_new),
    Command(name="runs", help="list the runs of a project", module="runs", arguments=_runs),
    Command(name="show", help="read a run again", module="show", arguments=_show),
    Command(
        name="replay",
        help="verify that a run is reproduced from its ledger",
        module="replay",
        arguments=_replay,
    ),
    Command(name="resume", help="go on with a run that was cut off", module="resume", arguments=_resume),
    Command(name="fork", help="begin a new run as another one had begun", module="resume", arguments=_fork),
    Command(name="eval", help="run, gate and record eval cases", module="evals", arguments=_eval),
)


class _Parser(argparse.ArgumentParser):
    """Reports a usage error in one line."""

    def error(self, message: str) -> NoReturn:
        terminal.complain(f"{self.prog}: {message} (see '{self.prog} --help')")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="agentloop",
        description="Run agents on tasks until checks or an evaluator say they are done.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--debug", action="store_true", help="show tracebacks and the log")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.help, description=command.help, allow_abbrev=False
        )
        command.arguments(sub)
        # Without a default: it would put back what was said before the command.
        sub.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks and the log"
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    terminal.fill_closed()
    names = [command.name for command in COMMANDS]
    if words and not words[0].startswith("-") and words[0] not in names:
        near = difflib.get_close_matches(words[0], names, 1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        terminal.complain(f"agentloop: no command {words[0]!r}: {hint}")
        return 2
    debug = "--debug" in words
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        terminal.hush()  # whoever read us has gone, and need not be told
        return 1
    except OSError as error:
        if debug:
            raise
        terminal.complain(f"agentloop: {error.strerror or error}")
        terminal.hush()
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        what = f"{type(error).__name__}: {error}"
        terminal.complain(f"agentloop: unexpected {what} (--debug shows where it came from)")
        return 1
    return code


def _dispatch(words: Sequence[str]) -> int:
    try:
        arguments = _parser().parse_args(words)
    except SystemExit as stop:  # after --help, or a complaint
        return int(stop.code or 0)
    if arguments.version:
        from importlib.metadata import version

        terminal.say(f"agentloop {version('loopwright')}")
        return 0
    if arguments.command is None:
        _parser().print_help()
        return 0
    import importlib

    from agentloop.errors import AgentLoopError, TaskError

    module = next(command.module for command in COMMANDS if command.name == arguments.command)
    execute: Callable[[argparse.Namespace], int] = importlib.import_module(
        f"agentloop.cli.commands.{module}"
    ).execute
    try:
        return execute(arguments)
    except AgentLoopError as error:
        if arguments.debug:
            raise
        terminal.complain(f"agentloop: {error}")
        return 2 if isinstance(error, (TaskError, ValueError)) else 1
