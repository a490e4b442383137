"""The graders that come with the harness: options outside, one pure function of the run inside."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Literal

from agentloop._canonical import Json
from agentloop._numbers import check_count, check_share
from agentloop.errors import AgentLoopConfigError
from agentloop.evals.grades import Grade, Grader, grader
from agentloop.evals.paths import word_diff
from agentloop.evals.views import RunStatus, RunView
from agentloop.orchestrator.state import Usage
from agentloop.patterns import Pattern

__all__ = (
    "GRADERS",
    "all_tool_calls_succeeded",
    "budget_score",
    "calls_tools",
    "context_invariant",
    "context_within_budget",
    "edit_distance",
    "ends_as",
    "fails_with",
    "never_calls",
    "output_contains",
    "output_matches",
    "replays_exactly",
    "section_never_starved",
    "trajectory_close_to",
    "usage_equals",
    "visits_phase",
    "within_corrective_turns",
    "within_retries",
    "within_steps",
    "within_tokens",
    "within_tool_calls",
)

Curve = Literal["linear", "hyperbolic"]


def _yes_or_no(holds: bool, reason: str, **more: Any) -> Grade:
    return Grade(score=1 if holds else 0, passed=holds, reason=reason, **more)


# ------------------------------------------------------------------------------ how it ended


def ends_as(status: RunStatus) -> Grader:
    """The run ended so."""

    def grade(run: RunView) -> Grade:
        return _yes_or_no(run.status == status, f"ended as {run.status}")

    return grader(f"ends-as:{status}", grade)


def fails_with(code: str) -> Grader:
    """The run ended with this error."""

    def grade(run: RunView) -> Grade:
        return _yes_or_no(run.error_code == code, f"error {run.error_code or 'none'}")

    return grader(f"fails-with:{code}", grade)


def output_contains(text: str) -> Grader:
    """The answer has the text in it. A run that was not completed has an empty answer."""

    def grade(run: RunView) -> Grade:
        return _yes_or_no(text in run.output, f"answered {run.output!r:.200}")

    return grader(f"output-contains:{text}", grade)


def output_matches(pattern: str) -> Grader:
    """The regular expression, one that runs in linear time, is found in the answer.

    Raises:
        AgentLoopConfigError: It is no such expression.
    """
    try:
        compiled = Pattern(pattern)
    except ValueError as error:
        raise AgentLoopConfigError(f"output-matches: {error}") from None

    def grade(run: RunView) -> Grade:
        return _yes_or_no(compiled.search(run.output), f"answered {run.output!r:.200}")

    return grader(f"output-matches:{pattern}", grade)


# --------------------------------------------------------------------------- which way it went

Order = Literal["exact", "set", "subsequence"]


def calls_tools(names: Sequence[str], order: Order = "subsequence") -> Grader:
    """These tools were called: exactly these, or all of them, or all in this order among others.

    Raises:
        AgentLoopConfigError: There is no such order.
    """
    if order not in _ORDERS:
        raise AgentLoopConfigError(f"calls-tools: the order is one of {', '.join(_ORDERS)}, not {order!r}")
    wanted, score_of = tuple(names), _ORDERS[order]

    def grade(run: RunView) -> Grade:
        score = score_of(wanted, run.tool_sequence)
        reason = f"called {_path(run.tool_sequence)}"
        if score < 1 and order != "set":
            reason += f": {word_diff(wanted, run.tool_sequence)}"
        return Grade(score=score, passed=score == 1, reason=reason)

    return grader(f"calls-tools:{order}:{'>'.join(wanted)}", grade)


def _path(names: Sequence[str]) -> str:
    return " > ".join(names) or "nothing"


def _exact(wanted: Sequence[str], called: Sequence[str]) -> float:
    return float([*wanted] == [*called])


def _as_set(wanted: Sequence[str], called: Sequence[str]) -> float:
    missing = sum(name not in called for name in wanted)
    return (len(wanted) - missing) / len(wanted) if wanted else 1.0


def _subsequence(wanted: Sequence[str], called: Sequence[str]) -> float:
    matched = 0
    for name in called:
        matched += matched < len(wanted) and name == wanted[matched]
    return matched / len(wanted) if wanted else 1.0


_ORDERS: Final = {"exact": _exact, "set": _as_set, "subsequence": _subsequence}


def never_calls(*names: str) -> Grader:
    """None of these tools was called."""

    def grade(run: RunView) -> Grade:
        called = [name for name in names if name in run.tool_sequence]
        return _yes_or_no(not called, f"called {_path(called)}")

    return grader(f"never-calls:{','.join(names)}", grade)


def visits_phase(phase: str, should: bool = True) -> Grader:
    """The run was in this phase; with ``should=False``, it never was."""

    def grade(run: RunView) -> Grade:
        return _yes_or_no((phase in run.phase_path) == should, f"went {_path(run.phase_path)}")

    return grader(f"{'visits' if should else 'avoids'}-phase:{phase}", grade)


def trajectory_close_to(reference: Sequence[str], threshold: float = 0.8) -> Grader:
    """The tools called are, by edit distance, close to these.

    Raises:
        TypeError: The threshold is no number.
        ValueError: It is not from 0 to 1.
    """
    check_share("threshold", threshold)
    wanted = [*reference]

    def grade(run: RunView) -> Grade:
        most = max(len(wanted), len(run.tool_sequence))
        distance = edit_distance(wanted, run.tool_sequence)
        score = 1 - distance / most if most else 1.0
        reason = f"distance {distance} of {most}: {word_diff(wanted, run.tool_sequence) or 'no tools'}"
        return Grade(score=score, passed=score >= threshold, reason=reason)

    return grader(f"trajectory-close-to:{len(wanted)}", grade)


def edit_distance(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """Return how many insertions, deletions and replacements lead from one to the other."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def all_tool_calls_succeeded() -> Grader:
    """No call failed."""

    def grade(run: RunView) -> Grade:
        failed = [use for use in run.tool_calls if not use.ok]
        score = 1 - len(failed) / len(run.tool_calls) if failed else 1.0
        told = ", ".join(f"{use.name} ({use.error_code})" for use in failed)
        return Grade(score=score, passed=not failed, reason=f"failed: {told or 'none'}")

    return grader("all-tool-calls-succeeded", grade)


# ------------------------------------------------------------------------------ what it spent


def budget_score(actual: float, limit: float, curve: Curve = "linear") -> float:
    """Return 1 within the limit, and beyond it less.

    Linear reaches 0 at twice the limit; hyperbolic is ``limit / actual`` and never gets there.
    """
    if actual <= limit:
        return 1.0
    if curve == "hyperbolic":
        return limit / actual
    return max(0.0, 1 - (actual - limit) / max(1, limit))


def _within(name: str, counter: str, limit: int, curve: Curve) -> Grader:
    if curve not in ("linear", "hyperbolic"):
        raise AgentLoopConfigError(f"{name}: the curve is 'linear' or 'hyperbolic', not {curve!r}")
    check_count("limit", limit, 0)

    def grade(run: RunView) -> Grade:
        actual = getattr(run.usage, counter)
        score = budget_score(actual, limit, curve)
        return Grade(score=score, passed=actual <= limit, reason=f"{actual} of at most {limit}")

    return grader(f"{name}:{limit}", grade)


def within_steps(limit: int, *, curve: Curve = "linear") -> Grader:
    """At most that many completed model calls."""
    return _within("within-steps", "model_calls", limit, curve)


def within_tool_calls(limit: int, *, curve: Curve = "linear") -> Grader:
    """At most that many tool calls."""
    return _within("within-tool-calls", "tool_calls", limit, curve)


def within_tokens(limit: int, *, curve: Curve = "linear") -> Grader:
    """At most that many tokens, prompts and completions together."""
    return _within("within-tokens", "total_tokens", limit, curve)


def within_corrective_turns(limit: int, *, curve: Curve = "linear") -> Grader:
    """At most that many turns in which something had to be put right."""
    return _within("within-corrective-turns", "corrective_turns", limit, curve)


def within_retries(limit: int, *, curve: Curve = "linear") -> Grader:
    """At most that many retries."""
    return _within("within-retries", "retries", limit, curve)


def usage_equals(counters: Mapping[str, int]) -> Grader:
    """Every named counter of the usage (``modelCalls``, ``toolCalls``, …) has this value.

    Raises:
        AgentLoopConfigError: There is no such counter.
    """
    fields = dict(zip(Usage.__struct_encode_fields__, Usage.__struct_fields__, strict=True))
    for name in counters:
        if name not in fields:
            raise AgentLoopConfigError(f"usage-equals: no counter {name!r}; there are {', '.join(fields)}")

    def grade(run: RunView) -> Grade:
        actual = {name: getattr(run.usage, fields[name]) for name in counters}
        return _yes_or_no(actual == dict(counters), f"spent {_pairs(actual)}")

    return grader(f"usage-equals:{_pairs(counters)}", grade)


def _pairs(counters: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in counters.items())


# -------------------------------------------------------------------------- what it was shown


def context_within_budget() -> Grader:
    """No window used more than it could; also if no window says."""

    def grade(run: RunView) -> Grade:
        over = [
            (report["used"], report["usable"])
            for report in run.context_reports
            if report["used"] > report["usable"]
        ]
        return _yes_or_no(not over, f"over: {over or 'none'} of {len(run.context_reports)} windows")

    return grader("context-within-budget", grade)


def section_never_starved(section: str) -> Grader:
    """The section was in a window, and whenever it was, something of it was shown."""

    def grade(run: RunView) -> Grade:
        starved = [
            bool(told["starved"])
            for report in run.context_reports
            for told in report["sections"]
            if told["id"] == section
        ]
        score = 1 - sum(starved) / len(starved) if starved else 0.0
        return Grade(score=score, passed=score == 1, reason=f"starved in {sum(starved)} of {len(starved)}")

    return grader(f"section-never-starved:{section}", grade)


def context_invariant(id: str, holds: Callable[[Sequence[Mapping[str, Json]]], bool], reason: str) -> Grader:
    """The function says so of the reports of all windows."""

    def grade(run: RunView) -> Grade:
        return _yes_or_no(bool(holds(run.context_reports)), reason)

    return grader(f"context:{id}", grade)


# ------------------------------------------------------------------------------ its record


def replays_exactly() -> Grader:
    """The record reproduces every decision of the run."""

    def grade(run: RunView) -> Grade:
        report = run.replayed
        if report.ok:
            return _yes_or_no(True, f"{report.entries} entries reproduced")
        return _yes_or_no(False, str(report.divergence), detail=str(report.divergence))

    return grader("replays-exactly", grade)


#: What a case that is data can name; the value is what it may be given.
GRADERS: Final[Mapping[str, Callable[..., Grader]]] = {
    "ends-as": ends_as,
    "fails-with": fails_with,
    "output-contains": output_contains,
    "output-matches": output_matches,
    "calls-tools": calls_tools,
    "never-calls": never_calls,
    "visits-phase": visits_phase,
    "trajectory-close-to": trajectory_close_to,
    "within-steps": within_steps,
    "within-tool-calls": within_tool_calls,
    "within-tokens": within_tokens,
    "within-corrective-turns": within_corrective_turns,
    "within-retries": within_retries,
    "usage-equals": usage_equals,
    "context-within-budget": context_within_budget,
    "section-never-starved": section_never_starved,
    "replays-exactly": replays_exactly,
    "all-tool-calls-succeeded": all_tool_calls_succeeded,
}
