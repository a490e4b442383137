"""The default check function: reads check strings, asks the kinds, writes the report.

Syntax of a check: ``[!][tool/]kind:argument``. ``!`` turns the answer round; ``tool/`` makes
a check about calls speak of that tool alone.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from agentloop._canonical import NotJson, encode_text
from agentloop.checks.files import Workspace
from agentloop.checks.kinds import CHECKS, Answer, Check, Scene
from agentloop.messages import CheckOutcome, CheckReport
from agentloop.symbolic import SymbolicState

__all__ = ("MAX_EVIDENCE", "DefaultChecks", "as_check_report", "create_default_deterministic_checks")

#: Characters of the evidence of a report, at most.
MAX_EVIDENCE: Final = 4_096
_KEPT_PARSED: Final = 1_024
_KIND: Final = re.compile(r"[a-z][a-z0-9_]*")

#: What `DefaultChecks.register` takes: argument and trace to whether it passed, and why.
CheckFunction = Callable[[str, Sequence[Any]], "bool | tuple[bool, str]"]


class _Parsed(msgspec.Struct, frozen=True):
    """One check string, read once."""

    text: str
    #: The text on one line.
    shown: str
    kind: str = ""
    argument: Any = None
    negated: bool = False
    tool: str | None = None
    row: Check | None = None
    #: Why it cannot be asked; then there is no row.
    problem: str = ""


def create_default_deterministic_checks(
    workspace_dir: str | os.PathLike[str] | None = None,
    symbolics: SymbolicState | None = None,
    *,
    glob_limit: int = 10_000,
) -> DefaultChecks:
    """Return the default check function, ``(checks_list, tool_trace) -> CheckReport``.

    Args:
        workspace_dir: Nothing outside it is looked at, symbolic links included. None: paths
            are relative to the current directory and lead anywhere.
        symbolics: What ``symbolic:`` checks ask. None: the state of the loop that uses this.
        glob_limit: Directory entries a pattern may visit.

    Raises:
        TypeError: ``glob_limit`` is no int.
        ValueError: ``glob_limit`` is below 1.
    """
    if not isinstance(glob_limit, int) or isinstance(glob_limit, bool):
        raise TypeError(f"glob_limit is an int, not {type(glob_limit).__name__}")
    if glob_limit < 1:
        raise ValueError(f"glob_limit is at least 1, not {glob_limit}")
    return DefaultChecks(Workspace(workspace_dir), symbolics, glob_limit)


class DefaultChecks:
    """Asks check strings and reports; made by `create_default_deterministic_checks`.

    A check proves what was reported, not what is true: ``exit_code:0`` is met by any call of
    any tool that exited with 0, ``pytest/exit_code:0`` only by one of ``pytest``.
    """

    __slots__ = ("_glob_limit", "_kinds", "_parsed", "_symbolics", "_workspace")

    def __init__(self, workspace: Workspace, symbolics: SymbolicState | None, glob_limit: int) -> None:
        self._workspace, self._symbolics, self._glob_limit = workspace, symbolics, glob_limit
        self._kinds: dict[str, Check] = dict(CHECKS)
        self._parsed: dict[str, _Parsed] = {}

    def bind(self, state: SymbolicState) -> DefaultChecks:
        """Return the same checks with that state for ``symbolic:``; themselves if they have one.

        A new object, so that several loops may be given the same checks.
        """
        if self._symbolics is not None:
            return self
        bound = DefaultChecks(self._workspace, state, self._glob_limit)
        bound._kinds, bound._parsed = self._kinds, self._parsed
        return bound

    def register(self, kind: str, fn: CheckFunction, *, blocking: bool = False) -> None:
        """Add a kind of check.

        Args:
            kind: Lower-case letters, digits and underscores.
            fn: ``(argument, tool_trace)`` to a bool, or to a bool and a detail. What it raises
                fails the check.
            blocking: Whether it can take long, as anything that reads files or waits.

        Raises:
            ValueError: The name cannot be a kind, or is one already.
        """
        if not _KIND.fullmatch(kind):
            raise ValueError(f"a kind is lower-case letters, digits and underscores, not {kind!r:.80}")
        if kind in self._kinds:
            raise ValueError(f"there is already a kind of check named {kind!r}")
        self._kinds[kind] = Check(read=str, ask=_registered(fn), scoped=False, blocking=lambda _: blocking)
        self._parsed.clear()

    def blocking(self, checks_list: Iterable[object]) -> bool:
        """Return whether asking these can take long enough to belong in a worker thread."""
        return any(
            parsed.row is not None and parsed.row.blocking(parsed.argument)
            for parsed in map(self._parse, checks_list)
        )

    def symbolic_names(self, checks_list: Iterable[object]) -> frozenset[str]:
        """Return the names that ``symbolic:`` checks of the list speak of."""
        return frozenset(
            parsed.argument[0]
            for parsed in map(self._parse, checks_list)
            if parsed.row is not None and parsed.kind == "symbolic"
        )

    def problem(self, check: object) -> str | None:
        """Return why a check can never pass, whatever happens, or None: it can be asked."""
        parsed = self._parse(check)
        return parsed.problem if parsed.row is None else None

    def __call__(self, checks_list: Sequence[object], tool_trace: Sequence[Any] = ()) -> CheckReport:
        """Ask every check and return the report. A failing check never raises.

        Raises:
            TypeError: The list is no list.
        """
        if type(checks_list) is not list and (
            isinstance(checks_list, (str, bytes, Mapping)) or not isinstance(checks_list, Iterable)
        ):
            raise TypeError(f"checks_list is a list of str, not {type(checks_list).__name__}")
        scene = Scene(self._workspace, self._symbolics, tool_trace, self._glob_limit)
        results: list[CheckOutcome] = []
        lines: list[str] = []
        all_passed = True
        for check in checks_list:
            parsed = self._parse(check)
            outcome = self._outcome(parsed, scene)
            results.append(outcome)
            if outcome.passed:
                lines.append(f"PASS {parsed.shown}")
            else:
                all_passed = False
                lines.append(f"FAIL {parsed.shown}: {_visible(outcome.detail)}")
        return CheckReport(all_passed=all_passed, evidence=_cut("\n".join(lines)), results=tuple(results))

    def _parse(self, check: object) -> _Parsed:
        if not isinstance(check, str):
            text = f"{check!r:.200}"
            return _Parsed(text, _visible(text), problem="malformed check: not a str")
        parsed = self._parsed.get(check)
        if parsed is None:
            if len(self._parsed) >= _KEPT_PARSED:
                self._parsed.clear()
            parsed = self._parsed[check] = self._read(check)
        return parsed

    def _read(self, check: str) -> _Parsed:
        shown = _visible(check)
        head, colon, argument = check.partition(":")
        head = head.strip()
        negated = head.startswith("!")
        tool, slash, kind = head.removeprefix("!").rpartition("/")
        tool, kind = tool.strip(), kind.strip()
        if not colon or not kind:
            return _Parsed(check, shown, kind, problem="malformed check: it needs the form kind:argument")
        row = self._kinds.get(kind)
        if row is None:
            known = ", ".join(sorted(self._kinds))
            return _Parsed(check, shown, kind, problem=f"unknown check kind {kind!r:.80} (known: {known})")
        if slash and not (row.scoped and tool):
            return _Parsed(check, shown, kind, problem=f"malformed check: {kind} takes no tool before it")
        try:
            read = row.read(argument)
        except ValueError as error:
            return _Parsed(check, shown, kind, problem=f"malformed check: {error}")
        return _Parsed(check, shown, kind, read, negated, tool or None, row)

    def _outcome(self, parsed: _Parsed, scene: Scene) -> CheckOutcome:
        if parsed.row is None:
            return CheckOutcome(check=parsed.text, kind=parsed.kind, passed=False, detail=parsed.problem)
        answer = parsed.row.ask(parsed.argument, scene, parsed.tool)
        passed, detail = answer.passed is True, answer.detail
        if parsed.negated and answer.passed is not None:
            passed = not passed
            detail = "" if passed else detail or "it holds"
        return CheckOutcome(check=parsed.text, kind=parsed.kind, passed=passed, detail=detail)


def _registered(fn: CheckFunction) -> Callable[[Any, Scene, str | None], Answer]:
    def ask(argument: str, scene: Scene, _: str | None) -> Answer:
        try:
            answer: object = fn(argument, scene.trace)
        except Exception as error:
            return Answer(None, f"{type(error).__name__}: {error}")
        passed, detail = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
        if not isinstance(passed, bool):
            return Answer(None, f"the check function returned {answer!r:.80}, not a bool")
        return Answer(passed, str(detail))

    return ask


# ----------------------------------------------------------------------------------- report


def _cut(text: str) -> str:
    return text if len(text) <= MAX_EVIDENCE else f"{text[: MAX_EVIDENCE - 1]}…"


def _visible(text: str) -> str:
    """Return the text on one line: controls, bidi marks and the like as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else character
        for character in text
    )


def as_check_report(value: object) -> CheckReport:
    """Return the report that a check function's answer stands for.

    A CheckReport, a mapping with ``all_passed`` or ``allPassed`` and ``evidence``, a pair of
    the two, or a bool. Evidence that is no str becomes its JSON text.

    Raises:
        TypeError: Anything else, or an ``all_passed`` that is true-ish but no bool.
    """
    if isinstance(value, CheckReport):
        return value
    results: object = ()
    if isinstance(value, Mapping):
        verdicts = [value[key] for key in ("all_passed", "allPassed") if key in value]
        if not verdicts:
            raise TypeError("a check function's mapping needs 'all_passed'")
        passed, evidence = next((item for item in verdicts if item is not True), True), value.get("evidence")
        results = value.get("results")
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        passed, evidence = value
    elif isinstance(value, bool):
        passed, evidence = value, None
    else:
        raise TypeError(
            f"a check function returns a CheckReport, a mapping, a pair or a bool, not {value!r:.200}"
        )
    if passed and passed is not True:
        raise TypeError(f"a check function's all_passed is a bool, not {passed!r:.200}")
    return CheckReport(
        all_passed=passed is True,
        evidence=_cut(_evidence_text(evidence)),
        results=tuple(item for item in results if isinstance(item, CheckOutcome))
        if isinstance(results, (tuple, list))
        else (),
    )


def _evidence_text(evidence: object) -> str:
    if evidence is None:
        return ""
    if isinstance(evidence, str):
        return evidence
    try:
        return encode_text(evidence)
    except NotJson:
        return f"{evidence!r:.1000}"
