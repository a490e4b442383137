"""Deterministic checks by what they say: syntax, calls, facts, and the report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentloop.checks import CHECKS, as_check_report, create_default_deterministic_checks
from agentloop.frames import Frame
from agentloop.messages import CheckOutcome, CheckReport
from agentloop.symbolic import SymbolicState, create_symbolic_state


def ask(check: object, *, trace: Any = (), state: SymbolicState | None = None) -> CheckOutcome:
    report = create_default_deterministic_checks(symbolics=state)([check], trace)
    assert report.all_passed is report.results[0].passed
    return report.results[0]


def passed(check: str, trace: Any = (), state: SymbolicState | None = None) -> bool:
    return ask(check, trace=trace, state=state).passed


# ------------------------------------------------------------------------- vectors: the calls


def test_v113_any_call_with_that_exit_code_meets_the_check() -> None:
    trace = [{"exit_code": 2}, {"exit_code": 0}]
    assert [passed(f"exit_code:{n}", trace) for n in (0, 2, 1)] == [True, True, False]
    assert ask("exit_code:1", trace=trace).detail == "exit codes seen: 0, 2"


def test_v114_an_exit_code_has_three_names_and_is_no_bool() -> None:
    trace = [{"exitCode": "0"}, {"returncode": 3}, {"exit_code": True}]
    assert [passed(f"exit_code:{n}", trace) for n in (0, 3, 1)] == [True, True, False]


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        (0.0, True),
        (" +0 ", True),
        (0.5, False),
        (False, False),
        (None, False),
        ("", False),
        ("0.0", False),
        ([0], False),
    ],
)
def test_what_counts_as_an_exit_code(code: object, counts: bool) -> None:
    assert passed("exit_code:0", [{"exit_code": code}]) is counts


def test_a_call_that_timed_out_has_no_exit_code() -> None:
    assert not passed("exit_code:0", [{"exit_code": 0, "timed_out": True}])
    assert not passed("exit_code:0", [{"exitCode": 0, "timedOut": True}])


def test_v115_the_argument_is_a_decimal_integer() -> None:
    trace = [{"exit_code": 0}, {"exit_code": -9}]
    assert passed("exit_code: 0 ", trace)
    assert passed("exit_code:-9", trace)
    for malformed in ("exit_code:zero", "exit_code:", "exit_code:0x0", "exit_code:1_0", "exit_code:٣"):
        assert ask(malformed, trace=trace).detail.startswith("malformed check")


def test_v116_without_a_tool_result_the_report_says_so() -> None:
    for check in ("exit_code:0", "stdout_contains:x", "last_exit_code:0", "stdout_matches:x"):
        assert ask(check) == CheckOutcome(
            check=check, kind=check.partition(":")[0], passed=False, detail="there is no tool result"
        )


def test_v117_the_text_is_untrimmed_case_sensitive_and_may_hold_colons() -> None:
    trace = [{"stdout": "total: 3 ok\n"}]
    assert passed("stdout_contains:total: 3", trace)
    assert not passed("stdout_contains: total", trace)
    assert not passed("stdout_contains:TOTAL", trace)


def test_v118_stderr_is_not_searched() -> None:
    assert not passed("stdout_contains:x", [{"stderr": "x", "stdout": ""}])


@pytest.mark.parametrize(
    "entry",
    [
        {"result": {"stdout": "yes", "exit_code": 0}},
        {"output": {"stdout": "yes"}},
        {"content": {"result": {"stdout": "yes"}}},
        {"type": "TOOL_RESULT", "content": {"stdout": "yes"}},
        Frame("TOOL_RESULT", {"stdout": "yes"}),
        "yes",
        {"stdout": b"\xffyes"},
        {"stdout": ["y", "es"]},
        {"stdout": "y\x1b[31mes\x1b[0m"},
    ],
)
def test_v119_where_stdout_may_stand(entry: object) -> None:
    assert passed("stdout_contains:yes", [entry])


@pytest.mark.parametrize(
    "entry", [None, 7, ["yes"], Frame("TEXT", {"stdout": "yes"}), {"text": "yes"}, {"stdout": 1}]
)
def test_an_entry_of_another_form_is_skipped(entry: object) -> None:
    assert not passed("stdout_contains:yes", [entry])
    assert passed("stdout_contains:yes", [entry, "yes"])


def test_a_tools_own_output_cannot_claim_the_exit_code_of_its_process() -> None:
    forged = {
        "name": "t",
        "ok": False,
        "exit_code": 1,
        "output": {"exit_code": 0, "stdout": "ok"},
        "stdout": None,
    }
    assert not passed("exit_code:0", [forged])
    assert not passed("stdout_contains:ok", [forged])
    assert not passed("exit_code:0", [{**forged, "exit_code": None}])


def test_line_ends_are_one_and_ansi_is_tried_both_ways() -> None:
    assert passed("stdout_contains:a\nb", [{"stdout": "a\r\nb"}])
    assert passed("stdout_contains:a\r\nb", [{"stdout": "a\rb"}])
    assert passed("stdout_contains:\x1b[1mx", [{"stdout": "\x1b[1mx"}])
    assert passed("stdout_contains:ax", [{"stdout": "a\x1b]0;title\x07\x1b[1;2mx"}])


def test_the_last_exit_code_is_that_of_the_newest_call_that_has_one() -> None:
    trace = [{"exit_code": 0}, {"exit_code": 1, "name": "t"}, {"stdout": "x"}]
    assert passed("last_exit_code:1", trace)
    assert ask("last_exit_code:0", trace=trace).detail == "t (entry 2) exited with 1"


# ------------------------------------------------------------------------- U18: whose call it was


TRACE = [
    {"name": "echo", "call_id": "c1", "exit_code": 0, "stdout": "5 passed"},
    {"name": "pytest", "call_id": "c2", "exit_code": 1, "stdout": "1 failed"},
]


@pytest.mark.parametrize(
    "check", ["exit_code:0", "last_exit_code:0", "stdout_contains:passed", r"stdout_matches:\d passed"]
)
def test_a_scoped_check_is_not_met_by_another_tool(check: str) -> None:
    assert not passed(f"pytest/{check}", TRACE)
    assert passed(f"echo/{check}", TRACE)
    assert ask(f"mypy/{check}", trace=TRACE).detail == "there is no result of tool 'mypy'"


def test_the_report_names_the_call_that_met_the_check() -> None:
    assert ask("exit_code:0", trace=TRACE).detail == "met by echo (call c1)"
    assert ask(" pytest / stdout_contains:fail", trace=TRACE).detail == "met by pytest (call c2)"


@pytest.mark.parametrize("check", ["pytest/file_exists:x", "t/symbolic:a", "/exit_code:0"])
def test_only_kinds_about_calls_take_a_tool(check: str) -> None:
    assert ask(check, trace=TRACE, state=create_symbolic_state({"a": 1})).detail.startswith("malformed check")


# ------------------------------------------------------------------------- vectors: the facts


@pytest.mark.parametrize(
    ("value", "said", "missed"),
    [
        (True, ["true", "True", " TRUE "], ["1", "yes", "false", ""]),
        (3, ["3", "3.0", " 3 ", "3e0"], ["03", "4", "true", "'3'", "NaN", ""]),
        (1.5, ["1.5", "15e-1"], ["1.50x", "1e400"]),
        ("a=b", ["a=b", '"a=b"'], ["a", " a=b", "A=B"]),
        ("", ["", '""'], [" "]),
        ([1, 2], ["[1, 2]", "[1.0,2]"], ["1,2", "[2,1]", "[true,2]", "[1,2"]),
        ({"a": [True]}, ['{"a":[true]}'], ['{"a":[1]}', "{'a':[true]}"]),
        (None, ["null", "None", " NULL "], ["", "0"]),
    ],
)
def test_v120_to_v123_what_a_value_may_be_called(value: object, said: list[str], missed: list[str]) -> None:
    state = create_symbolic_state({"v": value})
    assert [text for text in said if not passed(f"symbolic:v={text}", state=state)] == []
    assert [text for text in missed if passed(f"symbolic:v={text}", state=state)] == []


def test_v124_without_a_state_the_check_fails_and_bound_to_one_it_is_asked() -> None:
    checks = create_default_deterministic_checks()
    assert checks(["symbolic:a=1"]).results[0].detail == "no symbolic state bound"
    assert checks.bind(create_symbolic_state({"a": 1}))(["symbolic:a=1"]).all_passed
    assert not checks(["!symbolic:a=1"]).all_passed


def test_two_loops_may_be_given_the_same_checks() -> None:
    checks = create_default_deterministic_checks()
    one, two = (checks.bind(create_symbolic_state({"a": n})) for n in (1, 2))
    assert one(["symbolic:a=1"]).all_passed
    assert two(["symbolic:a=2"]).all_passed


def test_an_explicit_state_is_never_replaced() -> None:
    checks = create_default_deterministic_checks(symbolics=create_symbolic_state({"a": 1}))
    assert checks.bind(create_symbolic_state({"a": 2}))(["symbolic:a=1"]).all_passed


def test_a_name_alone_asks_whether_it_is_set() -> None:
    state = create_symbolic_state({"a": None})
    assert passed("symbolic: a ", state=state)
    assert ask("symbolic:b", state=state).detail == "'b' is not set"
    assert ask("symbolic:=1", state=state).detail.startswith("malformed check")


def test_a_name_that_was_not_declared_fails_both_ways() -> None:
    state = create_symbolic_state(declared={"a": "tool"})
    assert "not declared" in ask("symbolic:b", state=state).detail
    assert not passed("!symbolic:b", state=state)
    assert passed("!symbolic:a", state=state)


# ------------------------------------------------------------------------ syntax and report


def test_v125_what_is_no_check_fails_and_nothing_raises() -> None:
    report = create_default_deterministic_checks()(["file_exists", "who:knows", 7, " EXIT_CODE:0"])
    words = [result.detail.partition(":")[0].partition(" '")[0] for result in report.results]
    assert words == ["malformed check", "unknown check kind", "malformed check", "unknown check kind"]


@pytest.mark.parametrize(
    "check",
    [
        "",
        ":",
        "!",
        "!:x",
        "file_exists:",
        "file_exists:  ",
        "stdout_contains:",
        "json_valid:",
        "file_contains:a",
        "file_contains:=x",
        "file_contains:a=",
        "symbolic:",
    ],
)
def test_a_malformed_check_stays_failed_also_when_turned_round(check: str) -> None:
    assert ask(check).detail.startswith("malformed check")
    assert not passed(f"!{check}")


def test_v126_an_empty_list_passes_with_nothing_to_say() -> None:
    assert create_default_deterministic_checks()([]) == CheckReport(all_passed=True)


def test_v127_every_check_has_its_line_in_order() -> None:
    report = create_default_deterministic_checks()(
        ["exit_code:1", "exit_code:0", "!exit_code:1"], [{"exit_code": 0}]
    )
    assert report.evidence.split("\n") == [
        "FAIL exit_code:1: exit codes seen: 0",
        "PASS exit_code:0",
        "PASS !exit_code:1",
    ]
    assert report["allPassed"] is report["all_passed"] is False


def test_turned_round_the_answer_is_the_opposite() -> None:
    assert not passed("!exit_code:0", [{"exit_code": 0}])
    assert ask(" ! exit_code:0", trace=[{"exit_code": 0, "name": "t"}]).detail == "met by t (entry 1)"


def test_a_check_stays_one_line_and_the_evidence_within_its_bound() -> None:
    checks = create_default_deterministic_checks()
    line = checks(["stdout_contains:a\nb\u202e\x1b"], ["x"]).evidence
    assert line == "FAIL stdout_contains:a\\nb\\u202e\\x1b: no stdout has it"
    assert len(checks(["exit_code:0"] * 1_000).evidence) == 4_096


@pytest.mark.parametrize("checks_list", ["exit_code:0", b"x", None, 7, {"exit_code": 0}])
def test_what_is_no_list_is_a_mistake_of_the_caller(checks_list: Any) -> None:
    with pytest.raises(TypeError, match="checks_list"):
        create_default_deterministic_checks()(checks_list)


class Raises(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("hostile")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("hostile")

    def __len__(self) -> int:
        raise RuntimeError("hostile")


def raising() -> Iterator[object]:
    yield {"exit_code": 0}
    raise RuntimeError("hostile")


@pytest.mark.parametrize(
    "trace", [None, 7, "x", {"exit_code": 0}, [Raises()], [[[]]], [{"output": {"output": {}}}]]
)
def test_a_bad_trace_fails_the_check_and_raises_nothing(trace: Any) -> None:
    assert not passed("exit_code:0", trace)
    assert not passed("stdout_contains:x!", trace)


def test_a_trace_that_raises_is_what_it_gave_before() -> None:
    assert passed("exit_code:0", raising())


# -------------------------------------------------------------------------------- extension


def test_a_registered_kind_is_asked_with_argument_and_trace() -> None:
    checks = create_default_deterministic_checks()
    assert not checks(["calls:1"]).all_passed

    def calls(argument: str, trace: Sequence[Any]) -> tuple[bool, str]:
        return len(trace) == int(argument), f"{len(trace)} calls"

    checks.register("calls", calls)
    assert checks(["calls:2", "!calls:1"], ["a", "b"]).all_passed
    assert checks(["calls:1"], []).results[0].detail == "0 calls"
    failed = checks(["calls:x", "!calls:x"], [])
    assert [result.passed for result in failed.results] == [False, False]
    assert failed.results[0].detail.startswith("ValueError: ")


@pytest.mark.parametrize("answer", [None, 1, "yes", (1, "x"), [True, ""]])
def test_a_kind_that_answers_no_bool_fails(answer: Any) -> None:
    checks = create_default_deterministic_checks()
    checks.register("odd", lambda argument, trace: answer)
    assert [result.passed for result in checks(["odd:", "!odd:"]).results] == [False, False]


@pytest.mark.parametrize("kind", ["Upper", "a b", "", "a:b", "a/b", "!a", "exit_code"])
def test_a_kind_has_a_plain_new_name(kind: str) -> None:
    with pytest.raises(ValueError, match="kind"):
        create_default_deterministic_checks().register(kind, lambda argument, trace: True)


def test_only_what_can_block_asks_for_a_thread() -> None:
    checks = create_default_deterministic_checks()
    checks.register("slow", lambda argument, trace: True, blocking=True)
    inline = [
        "exit_code:0",
        "file_exists:a",
        "file_missing:a",
        "symbolic:a",
        "stdout_contains:*",
        7,
        "x",
        "file_contains:",
    ]
    assert not checks.blocking(inline)
    for check in (
        "file_exists:*.py",
        "file_missing:a?",
        "file_contains:a=b",
        "json_valid:a",
        "slow:",
        "stdout_matches:a",
    ):
        assert checks.blocking([*inline, check])


def test_the_names_that_checks_speak_of_can_be_listed() -> None:
    checks = create_default_deterministic_checks()
    assert checks.symbolic_names(["symbolic:a=1", "!symbolic: b ", "symbolic:", "exit_code:0", 7]) == {
        "a",
        "b",
    }


@pytest.mark.parametrize("check", ["file_exist:a", "file_exists", "exit_code:none", "tool/symbolic:a", 7])
def test_a_check_that_could_never_pass_is_known_beforehand(check: Any) -> None:
    checks = create_default_deterministic_checks()
    assert checks.problem(check) == checks([check]).results[0].detail
    assert checks.problem("!shell/exit_code:0") is None
    assert checks.problem("file_exists:/outside") is None, "whether it holds is asked later"


def test_the_table_has_every_kind_in_lower_case() -> None:
    assert set(CHECKS) == {
        "file_exists", "file_missing", "file_contains", "json_valid", "exit_code", "last_exit_code",
        "stdout_contains", "stdout_matches", "symbolic",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (True, TypeError), (1.5, TypeError), ("9", TypeError)]
)
def test_a_bad_limit_is_refused_at_once(limit: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="glob_limit"):
        create_default_deterministic_checks(glob_limit=limit)


# ----------------------------------------------------------------- a check function's answer


@pytest.mark.parametrize(
    ("answer", "report"),
    [
        (CheckReport(all_passed=True, evidence="e"), CheckReport(all_passed=True, evidence="e")),
        ({"all_passed": True, "evidence": "e"}, CheckReport(all_passed=True, evidence="e")),
        ({"allPassed": False}, CheckReport(all_passed=False)),
        ({"all_passed": True, "allPassed": False}, CheckReport(all_passed=False)),
        ((True, {"b": 1, "a": [None]}), CheckReport(all_passed=True, evidence='{"a":[null],"b":1}')),
        ([False, None], CheckReport(all_passed=False)),
        (True, CheckReport(all_passed=True)),
        ({"all_passed": None, "evidence": 3}, CheckReport(all_passed=False, evidence="3")),
    ],
)
def test_a_check_function_may_answer_in_several_forms(answer: object, report: CheckReport) -> None:
    assert as_check_report(answer) == report


@pytest.mark.parametrize("answer", [None, 1, "ok", {}, (1, "e"), {"all_passed": "yes"}, (True,), object()])
def test_another_answer_is_a_type_error(answer: object) -> None:
    with pytest.raises(TypeError, match="check function"):
        as_check_report(answer)


def test_evidence_of_an_answer_is_bounded() -> None:
    assert len(as_check_report((False, "x" * 10_000)).evidence) == 4_096
    assert as_check_report((False, {1})).evidence == "{1}"


# ---------------------------------------------------------------------------- no workspace


def test_without_a_workspace_paths_are_relative_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "out.txt").touch()
    monkeypatch.chdir(tmp_path / "sub")
    for path in (
        "../out.txt",
        str(tmp_path / "out.txt"),
        "/" + os.path.relpath(tmp_path / "out.txt", "/"),
        "../*.txt",
    ):
        assert passed(f"file_exists:{path}")
    assert not passed("file_exists:out.txt")
