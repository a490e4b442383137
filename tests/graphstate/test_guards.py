"""The vectors of the guard language, and what a guard does with values that are not what it expects."""

from __future__ import annotations

import pytest

from graphstate import compile_guard, eval_guard
from graphstate._canonical import Json
from graphstate.errors import GuardError

C: dict[str, Json] = {
    "from": {"topic": "caches", "n": 3},
    "to": {},
    "fromId": "a",
    "toId": "b",
    "fromTags": ["x"],
    "toTags": ["safe"],
    "fromKind": "state",
    "toKind": "state",
    "edge": {"id": "e1", "label": "go", "weight": 3},
    "stat": {"visits": 5, "emaReward": 0.5, "successes": 4, "failures": 0},
    "vars": {"x": 2, "s": "abc", "list": [1, "2"], "nul": None, "neg": -1},
}


@pytest.mark.parametrize(
    "text",
    [
        "vars.x == 2", "stat.visits >= 5 && vars.x == 2", "toTags has 'safe'", "1 in vars.list", "vars.s in ['abc']",
        "from.topic == 'caches'", "from has 'topic'", "vars has 'x'", "!(vars.x == 3)", "vars.neg == -1",
        "toTags.length > 0", "toTags.0 == 'safe'", "null == null", "5. == 5", "'x' == \"x\"", r"'it\'s' == 'it\'s'",
        "true && false || true", "!vars.missing",
    ],
)  # fmt: skip
def test_v80_what_passes(text: str) -> None:
    assert eval_guard(text, C) is True


@pytest.mark.parametrize(
    "text",
    [
        "vars.missing == 1", "vars.missing > 0", "vars.list has '1'", "'a' in vars.s", "stat.emaReward <= 0.4",
        "!vars.x == true", "'' || 0", "false || true && false", "hasOwnProperty == 1", "vars.s.length > 0", "[] == []",
        "in == 1",
    ],
)  # fmt: skip
def test_v81_what_does_not_pass(text: str) -> None:
    assert eval_guard(text, C) is False


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "\t\r\n", "vars.x >", "x ==", "1 == 1 == 1", "1e5 > 1", ".5 == 1", "- 1 == 1", "a-1 == 1", "a..b == 1",
        "a. == 1", "'abc", r"'\q' == 1", "a = 1", "a & b", "()", "[1,] has 1", "this is not valid ((", "é == 1",
        "a\u00a0== 1", "a | b", "(1", "1)", "[1", "a b", "!", "a ==== b", "exists", "exists 1", "exists (a", "exists ()",
        "exists true", "exists (a == 1)", "exists a.b.", "1 &&", "|| 1", "true false", "\0",
    ],
)  # fmt: skip
def test_v83_what_is_no_guard(text: str) -> None:
    if text == "exists":
        assert eval_guard(text, {"exists": 1}) is True  # the word alone is a path
        return
    with pytest.raises(GuardError):
        compile_guard(text)
