"""``agentloop eval``: runs a suite, gates it, moves its baseline, makes cases of runs.

Exit codes: 0 ok, 1 a case or the gate failed, 2 usage or refusal, 3 the harness itself failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import anyio
import msgspec

from agentloop.cli.terminal import complain, say, visible
from agentloop.errors import AgentLoopError, TaskError
from agentloop.evals import reports
from agentloop.evals.baseline import Baseline, empty_baseline, read_baseline, to_baseline, write_baseline
from agentloop.evals.cases import EvalSuite
from agentloop.evals.gate import GateReport, gate
from agentloop.evals.running import CaseResult, SuiteResult, run_suite
from agentloop.evals.suites import load_live, load_suite

__all__ = ("execute",)

#: The harness failed: there is nothing that could have passed or failed.
HARNESS: Final = 3

#: Which flags mean something for which action; others are refused.
_FLAGS: Final = {
    "tolerance": ("baseline",),
    "aggregate_tolerance": ("baseline",),
    "force": ("baseline", "record"),
    "run": ("record",),
    "db": ("record",),
    "id": ("record",),
    "out": ("record",),
    "allow_failing": ("baseline",),
    "strict_trajectory": ("gate",),
    "strict": ("run", "gate", "baseline"),
    "md": ("run", "gate"),
    "html": ("run", "gate"),
    "junit": ("run", "gate"),
    "seeds": ("live",),
}


class _HarnessFailed(Exception):
    """A suite could not be loaded or run."""


class _Refused(Exception):
    """What is asked for is not done with such a suite."""


def execute(arguments: argparse.Namespace) -> int:
    """Do what is asked; return the exit code."""
    action: str = arguments.action
    for flag, actions in _FLAGS.items():
        if action not in actions and getattr(arguments, flag) not in (None, False):
            complain(f"agentloop eval {action}: --{flag.replace('_', '-')} is for eval {', '.join(actions)}")
            return 2
    try:
        return _ACTIONS[action](arguments)
    except (AgentLoopError, BrokenPipeError):
        raise  # the program tells them as those of any command
    except _Refused as refused:
        complain(f"agentloop eval {action}: {refused}")
        return 2
    except Exception as error:
        if arguments.debug:
            raise
        what = str(error) if isinstance(error, _HarnessFailed) else f"{type(error).__name__}: {error}"
        complain(f"agentloop eval: {what}")
        return HARNESS


# ----------------------------------------------------------------------------------- suites


def _played(arguments: argparse.Namespace, *, gated: bool = False) -> SuiteResult:
    """Run the suite; one that is gated, or recorded to be, has no graders that must be waited for."""
    try:
        suite = load_suite(Path(arguments.suite))
        if gated:
            _check_graders(suite)
        if arguments.strict:
            return _strictly(suite, arguments.parallel)
        return anyio.run(lambda: run_suite(suite, parallel=arguments.parallel))
    except TaskError as error:
        raise _HarnessFailed(str(error)) from error
    except (AgentLoopError, OSError, subprocess.SubprocessError) as error:
        raise _HarnessFailed(f"{type(error).__name__}: {error}") from error


def _check_graders(suite: EvalSuite) -> None:
    for case in suite.cases:
        for one in case.graders:
            if one.asynchronous:
                raise _Refused(
                    f"{case.id}: {one.id} is asynchronous, and what had to be waited for may be otherwise "
                    "next time: put it into a live suite ('agentloop eval live')"
                )


def _strictly(suite: EvalSuite, parallel: int) -> SuiteResult:
    """Run every case twice, and replay the first runs in a process of their own."""
    from agentloop.evals.fresh import replay_afresh
    from agentloop.ledger.jsonlines import JsonLinesLedgerStore

    with tempfile.TemporaryDirectory(prefix="agentloop-eval-") as folder:
        with JsonLinesLedgerStore(folder) as store:
            result = anyio.run(lambda: run_suite(suite, parallel=parallel, twice=True, store=store))
        wrong = replay_afresh(Path(folder))
    cases = [_told(case, wrong.get(f"run-{case.case_id}")) for case in result.cases]
    return SuiteResult.of(suite.id, cases)


def _told(case: CaseResult, problem: str | None) -> CaseResult:
    if problem is None:
        return case
    error = f"it does not replay in a fresh process: {problem}"
    return msgspec.structs.replace(case, deterministic=False, passed=False, error=error)


# ---------------------------------------------------------------------------------- actions


def _run(arguments: argparse.Namespace) -> int:
    recorded = _recorded(arguments)
    result = _played(arguments)
    _say(reports.text_report(result))
    _write(arguments.json, lambda: reports.suite_json(result))
    _write(arguments.junit, lambda: _pages().junit_xml(result))
    report = gate(result, recorded or empty_baseline(result.suite_id))
    _write(arguments.md, lambda: reports.markdown(report))
    _write(arguments.html, lambda: _pages().html_page(report))
    undecided = [case.case_id for case in result.cases if case.deterministic is False]
    for name in undecided:
        complain(f"agentloop eval: {name}: a second run of it had another record")
    return 1 if result.failed or undecided else 0


def _gate(arguments: argparse.Namespace) -> int:
    recorded = _recorded(arguments)
    result = _played(arguments, gated=True)
    _say(reports.text_report(result))
    if recorded is None:
        complain(
            f"agentloop eval: THERE IS NO BASELINE at {arguments.baseline}: only failing cases count until "
            "'agentloop eval baseline' has made one"
        )
    expected = recorded or empty_baseline(result.suite_id)
    report = gate(result, expected, strict_trajectory=arguments.strict_trajectory)
    ok = report.ok and (recorded is not None or not result.failed)
    for finding in report.findings:
        if finding.severity == "error":
            complain(reports.finding_line(finding))
        elif recorded is not None:
            _line(reports.finding_line(finding))
    _write(arguments.json, lambda: reports.gate_json(report))
    _write(arguments.junit, lambda: _pages().junit_xml(result, report.findings))
    _write(arguments.md, lambda: reports.markdown(report))
    _write(arguments.html, lambda: _pages().html_page(report))
    _summarise(report)
    say("PASS" if ok else "FAIL")
    return 0 if ok else 1


def _baseline(arguments: argparse.Namespace) -> int:
    path = Path(arguments.baseline)
    branch = _branch(path)
    moves = branch is not None and branch.startswith("release/")
    if not moves and not arguments.force:
        where = f"branch {branch!r}" if branch else "no branch"
        complain(
            f"agentloop eval baseline: this is {where}: the baseline moves on release/* only, or with --force"
        )
        return 2
    before = _recorded(arguments)
    result = _played(arguments, gated=True)
    _say(reports.text_report(result))
    if result.failed and not arguments.allow_failing:
        complain("agentloop eval baseline: cases fail: --allow-failing records them all the same")
        return 2
    write_baseline(path, _moved(arguments, before, result, branch, forced=not moves))
    say(f"wrote {path}")
    return 0


def _moved(
    arguments: argparse.Namespace,
    before: Baseline | None,
    result: SuiteResult,
    branch: str | None,
    *,
    forced: bool,
) -> Baseline:
    """Return the new baseline; tolerances that are not given stay as they were."""
    tolerance, aggregate = arguments.tolerance, arguments.aggregate_tolerance
    if before is not None:
        tolerance = before.tolerance if tolerance is None else tolerance
        aggregate = before.aggregate_tolerance if aggregate is None else aggregate
    return to_baseline(
        result,
        tolerance=tolerance or 0,
        aggregate_tolerance=aggregate,
        recorded_on=branch,
        forced=forced,
    )


def _recorded(arguments: argparse.Namespace) -> Baseline | None:
    try:
        return read_baseline(Path(arguments.baseline))
    except AgentLoopError as error:
        raise _HarnessFailed(str(error)) from error


def _branch(baseline: Path) -> str | None:
    """Return the branch that the baseline is on. What CI says of a pull request can only forbid."""
    asked = os.environ.get("GITHUB_HEAD_REF")
    if asked is not None and not asked.startswith("release/"):
        return asked
    folder = next(parent for parent in baseline.absolute().parents if parent.is_dir())
    try:
        done = subprocess.run(
            ["git", "symbolic-ref", "--quiet", "--short", "HEAD"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def _live(arguments: argparse.Namespace) -> int:
    """Measure; there is nothing to pass. 3 only if the suite cannot be loaded."""
    from agentloop.evals.live import run_live

    try:
        live = load_live(Path(arguments.suite))
    except TaskError as error:
        raise _HarnessFailed(str(error)) from error
    result = anyio.run(lambda: run_live(live, seeds=arguments.seeds, parallel=arguments.parallel))
    _say(reports.live_report(result))
    _write(arguments.json, lambda: reports.suite_json(result))
    return 0


def _record(arguments: argparse.Namespace) -> int:
    from agentloop.cli.places import find_state, pick_run
    from agentloop.evals.recording import case_of_run
    from agentloop.tasks import open_memory

    memory = open_memory(find_state(arguments.db), read_only=True)
    try:
        run = pick_run(memory.ledger, arguments.run)
        case = anyio.run(lambda: case_of_run(memory.ledger, run, id=arguments.id))
    finally:
        memory.close()
    path = Path(arguments.out or f"evals/cases/{case.id}.json")
    if path.exists() and not arguments.force:
        complain(f"agentloop eval record: {path} is there already: --force writes over it")
        return 2
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(case.serialise(), encoding="utf-8")
    say(f"wrote {path}: it goes the way of {run}, {len(case.script)} model calls")
    return 0


# ---------------------------------------------------------------------------------- outputs


def _say(text: str) -> None:
    for each in text.split("\n"):
        _line(each)


def _line(text: str) -> None:
    say(visible(text[:400]))


def _write(given: str | None, text: Callable[[], str]) -> None:
    if given is not None:
        path = Path(given)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(), encoding="utf-8")


def _pages() -> ModuleType:
    from agentloop.evals import pages  # slow to import, and seldom asked for

    return pages


def _summarise(report: GateReport) -> None:
    """Append the report to the page of the CI job, if there is one and it can be written."""
    given = os.environ.get("GITHUB_STEP_SUMMARY")
    if given:
        try:
            with open(given, "a", encoding="utf-8") as file:
                file.write(reports.markdown(report))
        except OSError:
            pass


def _help(arguments: argparse.Namespace) -> int:
    say(arguments.help_text().rstrip("\n"))
    return 0


_ACTIONS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "run": _run,
    "gate": _gate,
    "baseline": _baseline,
    "live": _live,
    "record": _record,
    "help": _help,
}
