"""The vectors of the guard language, its bounds, its messages, and what values mean to it."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from graphstate import Evaluation, GraphStateError, Guard, GuardError, compile_guard, eval_guard
from graphstate._canonical import Json, decode, encode
from graphstate.guards import CONTEXT, EXAMPLES, GRAMMAR, GUARD_BUDGET, guide
from graphstate.guards.guard import _compiled
from graphstate.guards.language import MAX_CACHED
from tests.strategies import deep_list

ROOT = Path(__file__).parents[2]

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
    ("text", "passes"),
    [
        ("vars.missing != 1", False),
        ("vars.missing != null", False),
        ("vars.missing == vars.other", False),
        ("vars.nul >= 0", False),
        ("true > 0", False),
        ("'10' > 9", False),
        ("[2] > 1", False),
        ("vars.missing == null", False),
        ("vars.s has 'a'", True),
        ("from == 'a'", False),
        ("fromId == 'a'", True),
        ("[]", True),
    ],
)
def test_v82_nothing_is_coerced_and_what_is_missing_compares_with_nothing(text: str, passes: bool) -> None:
    assert eval_guard(text, C) is passes


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "\t\r\n", "vars.x >", "x ==", "1 == 1 == 1", "1e5 > 1", ".5 == 1", "- 1 == 1", "a-1 == 1", "a..b == 1",
        "a. == 1", "'abc", r"'\q' == 1", "a = 1", "a & b", "()", "[1,] has 1", "this is not valid ((", "é == 1",
        "a\u00a0== 1", "a | b", "(1", "1)", "[1", "a b", "!", "a ==== b", "exists 1", "exists (a", "exists ()",
        "exists true", "exists (a == 1)", "exists a.b.", "1 &&", "|| 1", "true false", "\0", "a.0x..y", "'a' 'b'",
    ],
)  # fmt: skip
def test_v83_what_is_no_guard(text: str) -> None:
    with pytest.raises(GuardError):
        compile_guard(text)


@pytest.mark.parametrize(
    "text",
    [
        "constructor == 1", "__proto__ == 1", "a.__proto__ == 1", "a.prototype.x == 1", "exists a.constructor",
        "exists(__proto__)",
    ],
)  # fmt: skip
def test_v84_forbidden_parts_of_a_path(text: str) -> None:
    with pytest.raises(GuardError, match=r"forbidden part '(__proto__|prototype|constructor)'"):
        compile_guard(text)


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda n: "(" * n + "1" + ")" * n, 12),
        (lambda n: "[" * n + "1" + "]" * n, 12),
        (lambda n: "!" * n + "missing", 61),
        (lambda n: "a".ljust(n), 2_000),
        (lambda n: f"{'9' * n} > 1", 1_000),
        (lambda n: f"-{'9' * n} < 1", 1_000),
        (lambda n: f"{'9' * n}.0 > 1", 308),
    ],
    ids=["brackets", "lists", "bangs", "characters", "digits", "negative digits", "a float"],
)
def test_v85_bounds(make: Callable[[int], str], most: int) -> None:
    assert eval_guard(make(most), {"a": 1}) is True
    for over in (most + 1, 100 * most):
        with pytest.raises(GuardError):
            compile_guard(make(over))


def test_v86_a_number_with_two_dots_is_no_number() -> None:
    assert eval_guard("1.2.3 == 1.2.3", {}) is False
    assert eval_guard("1.2.3 != 1.2.3", {}) is True
    assert eval_guard("1.2.3 in [1.2.3]", {}) is True
    assert eval_guard("1.2.3 in [1, a]", {}) is False
    assert eval_guard("1.2.3 > 0 || 1.2.3 <= 0", {}) is False


def test_v87_a_guard_on_payload_statistics_weight_and_kind() -> None:
    guard = compile_guard("from.k == 1 && stat.visits < 2 && edge.weight >= 1 && toKind == 'state'")
    context: dict[str, Any] = {"from": {"k": 1}, "edge": {"weight": 1.0}, "toKind": "state"}
    passes = [guard.evaluate({**context, "stat": {"visits": n}}).passed for n in range(3)]
    assert passes == [True, True, False]


def test_v88_an_object_has_no_order_whatever_its_keys() -> None:
    assert eval_guard("from > 1", {"from": {"toString": 1, "valueOf": 1}}) is False
    assert eval_guard("from has 'toString' && !(from has '__class__')", {"from": {"toString": 1}}) is True


# --------------------------------------------------------------------------- missing


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">=", "in", "has"])
def test_d15_any_comparison_with_a_missing_path_is_false(sign: str) -> None:
    for other in ("1", "'a'", "null", "true", "[]", "[1]", "vars.other", "vars.missing", "vars.list", "vars"):
        assert eval_guard(f"vars.missing {sign} {other}", C) is False, other
        assert eval_guard(f"{other} {sign} vars.missing", C) is False, other


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_d15_there_is_no_order_between_kinds_nor_of_null_and_booleans(sign: str) -> None:
    values = ("1", "'1'", "null", "true", "[1]", "vars")
    for left in values:
        for right in values:
            if left != right or left in ("null", "true", "[1]", "vars"):
                assert eval_guard(f"{left} {sign} {right}", C) is False


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("exists vars.x", True),
        ("exists(vars.x)", True),
        ("exists vars.nul", True),
        ("exists vars.missing", False),
        ("exists vars.s.length", False),
        ("!exists vars.missing && !exists nothing.at.all", True),
        ("exists vars.x == true", True),
        ("exists vars.list.1 && !exists vars.list.2", True),
        ("exists vars.list.length", True),
        ("exists vars.list.01", False),
        ("exists", False),
        ("exists == 1", False),
        ("exists in [1]", False),
        ("exists has 'a'", False),
        ("exists exists", False),
        ("exists(in)", False),
    ],
)
def test_d15_exists_asks_whether_a_path_leads_somewhere(text: str, passes: bool) -> None:
    assert eval_guard(text, C) is passes


def test_exists_in_and_has_are_also_names() -> None:
    context = {"exists": ["a"], "in": ["in"], "has": "b"}
    for text in (
        "exists has 'a'",
        "'in' in in",
        "has has has",
        "exists exists && exists(in) && exists (has)",
        "has in ['b']",
    ):
        assert eval_guard(text, context) is True, text


# ------------------------------------------------------------------------- what is equal


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("a == 1", True),
        ("a == 1.0", True),
        ("a == true", False),
        ("t == 1", False),
        ("t == true", True),
        ("a != '1'", True),
        ("1 in l", True),
        ("true in l", False),
        ("l == m", True),
        ("l != m", False),
        ("l == [1, 'x', null]", True),
        ("[1, 'x', null] == l", True),
        ("l == [1, 'x']", False),
        ("l != [true, 'x', null]", True),
        ("l == [1, 'x', nothing]", False),
        ("l != [1, 'x', nothing]", False),
        ("l != [[nothing]]", False),
        ("1 != [nothing]", False),
        ("[[nothing]] != null", False),
        ("1 != [1]", True),
        ("l in [[1], m]", True),
        ("o == p", True),
        ("o != p", False),
        ("o == q", False),
        ("o == l", False),
        ("[l] == [l]", False),
        ("[] != []", True),
        ("[1] in [[1]]", False),
        ("[1] in n", True),
        ("1 in [nothing, 1]", True),
        ("big == bigger", False),
        ("big < bigger", True),
        ("big == 9007199254740992", True),
        ("f == 9007199254740993", False),
        ("0 == -0", True),
        ("'\\n' == \"\\n\"", True),
        ("wide > 'z'", True),
        ("'\uff5e' < wide", True),
    ],
)
def test_values_are_equal_as_json_is(text: str, passes: bool) -> None:
    context = {
        "a": 1, "t": True, "l": [1, "x", None], "m": (1.0, "x", None), "n": [[1]], "o": {"k": [1], "j": None},
        "p": {"j": None, "k": [1.0]}, "q": {"k": [True], "j": None}, "big": 2**53, "bigger": 2**53 + 1,
        "f": float(2**53), "wide": "\U0001f600",
    }  # fmt: skip
    assert eval_guard(text, context) is passes


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("s has 'ell'", True),
        ("s has ''", True),
        ("s has 'hello world'", False),
        ("s has 1", False),
        ("o has 'k'", True),
        ("o has 1", False),
        ("'k' in o", False),
        ("n has 1", False),
        ("1 in 1", False),
        ("has has 1", False),
    ],
)
def test_has_looks_into_texts_objects_and_lists(text: str, passes: bool) -> None:
    assert eval_guard(text, {"s": "hello", "o": {"k": 1, "1": 2}, "n": None}) is passes


@pytest.mark.parametrize("value", [1, -1, 0.5, "a", "0", True, [], {}, [0], {"a": 0}])
def test_what_is_true(value: Json) -> None:
    assert eval_guard("a", {"a": value}) is True
    assert eval_guard("!a", {"a": value}) is False
    assert eval_guard("a && true", {"a": value}) is eval_guard("false || a", {"a": value}) is True


@pytest.mark.parametrize("value", [0, 0.0, -0.0, "", False, None])
def test_what_is_false(value: Json) -> None:
    assert eval_guard("a", {"a": value}) is False
    assert eval_guard("!a && (a || !a)", {"a": value}) is True


# ----------------------------------------------------------------------- any context


class Hostile:
    """Raises whatever is done to it."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("no")

    __eq__ = __ne__ = __lt__ = __gt__ = __bool__ = __len__ = __iter__ = __repr__ = __getattribute__ = _refuse
    __getitem__ = __contains__ = __str__ = __int__ = __float__ = __index__ = _refuse
    __hash__ = object.__hash__


class Sly(dict[str, Any]):
    """An object that would rather not say what is in it."""

    def get(self, *_: object) -> Any:
        raise RuntimeError("no")

    __getitem__ = __contains__ = __len__ = __iter__ = get


class Colour(StrEnum):
    RED = "red"


ASKED = (
    "a", "!a", "a == 1", "a != 1", "a != b", "a < 1", "a >= a", "a in [1, 'x']", "1 in a", "'x' in a", "a in a",
    "a has 'x'", "a has a", "'x' has a", "a.x == 1", "a.0", "a.length > 0", "exists a.__class__", "exists a",
)  # fmt: skip


#: By name, as pytest would look into the values themselves.
NOT_JSON: dict[str, Any] = {
    "nan": float("nan"), "inf": float("inf"), "-inf": -float("inf"), "long": 10**1_000, "longer": -(10**5_000),
    "bytes": b"x", "set": {1, 2}, "object": object(), "hostile": Hostile(), "class": Hostile, "function": len,
    "complex": 1j, "range": range(3), "view": memoryview(b"x"), "iterator": iter([1]), "module": sys,
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_JSON)
def test_d16_what_is_not_json_is_as_if_it_were_missing(name: str) -> None:
    value = NOT_JSON[name]
    for text in ASKED:
        guard = compile_guard(text)
        assert guard.evaluate({"a": value, "b": 2}) == guard.evaluate({"b": 2}), text
    inside = {"a": [value], "b": {"x": value}}
    for text in ("1 in a", "'x' in a", "a == [1]", "b.x == 1", "exists b.x", "a == a", "b == b", "a.0 != 1"):
        assert eval_guard(text, inside) is False, text


def test_d16_evaluation_never_raises() -> None:
    odd = {Hostile(): 1, "a": {Hostile(): 1}}
    for context in ({"a": Sly(x=1)}, {"a": [Sly(x=1)], "b": [Sly(x=1)]}, odd, Sly(a=1), Hostile(), None):
        for text in ASKED:
            assert isinstance(compile_guard(text).evaluate(context), Evaluation)  # type: ignore[arg-type]


def test_values_of_a_subclass_are_what_they_hold() -> None:
    context = {"a": Colour.RED, "l": [Colour.RED], "o": {"k": Colour.RED}, "p": {"k": "red"}}
    for text in (
        "a == 'red'",
        "a in l",
        "'red' in l",
        "l == ['red']",
        "o == p",
        "a has 'ed'",
        "a < 'ree'",
        "l.0 == a",
    ):
        assert eval_guard(text, context) is True, text


def test_no_attribute_is_ever_read() -> None:
    for text in (
        "a.__class__",
        "a.keys",
        "a.length",
        "a.append",
        "vars.upper",
        "a.real",
        "__class__",
        "a.items.length",
    ):
        assert eval_guard(f"exists {text}", {"a": {}, "vars": "s"}) is False


def test_deep_and_circular_values_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    other: list[Any] = [[]]
    other[0].append(other)
    deep = {"a": deep_list(100_000), "b": deep_list(100_000), "l": loop, "o": other}
    assert compile_guard("a == b").evaluate(deep) == (False, GUARD_BUDGET, True)
    assert compile_guard("l == o").evaluate(deep) == (False, GUARD_BUDGET, True)
    assert eval_guard("a && l", deep) is True


def test_a_caller_near_the_end_of_its_stack_gets_the_same_answer() -> None:
    text = "!!" * 20 + "(" * 4 + "a == 1" + ")" * 4
    guard = compile_guard(text)
    fresh = text + " && b.c == [1]"

    def descend(depth: int) -> Any:
        if depth:
            return descend(depth - 1)
        return guard.evaluate({"a": 1}), eval_guard(fresh, {"a": 1, "b": {"c": [1]}})

    _compiled.cache_clear()
    used = len(list(iter_frames()))
    for left in (60, 80, 100):
        assert descend(sys.getrecursionlimit() - used - left) == (
            (True, guard.evaluate({"a": 1}).units, False),
            True,
        )


def iter_frames() -> Any:
    frame: Any = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back


# ------------------------------------------------------------------------------ work


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("true", 1),
        ("a == 1", 3),
        ("!(a == 1)", 4),
        ("exists a", 2),
        ("a || a || a", 5),
        ("[1, 2]", 3),
        ("9 in l", 3 + 100),
        ("0 in l", 3 + 1),
        ("l has 5", 3 + 6),
        ("l == m", 3 + 8 + 200),
        ("o == p", 3 + 8 + 8),
        ("s == t", 3 + 10),
        ("s < t", 3 + 10),
        ("s == 'x'", 3),
        ("s in [t, s]", 5 + 10 + 10 + 2),
        ("s has 'y'", 3 + 10),
        ("s has 'yyyyyyyy'", 3 + 10 + 5),
        ("o has s", 3 + 10),
        ("h == i", 3 + 5),
    ],
)
def test_u4_units_are_nodes_members_and_characters(text: str, units: int) -> None:
    ints = [0, 1, 2, 3, 4, 5, *[7] * 94]
    context = {
        "a": 1, "l": ints, "m": list(ints), "o": {"x": 1, "y": 2}, "p": {"y": 2, "x": 1}, "s": "x" * 640,
        "t": "x" * 639 + "y", "h": 10**900 + 1, "i": 10**900,
    }  # fmt: skip
    guard = compile_guard(text)
    for _ in range(3):
        found = guard.evaluate(context)
        assert (found.units, found.exhausted) == (units, False)
    assert guard.evaluate(context, budget=units) == found
    assert guard.evaluate(context, budget=units - 1) == (False, units - 1, True)


@pytest.mark.parametrize(
    "text",
    [
        "!(9 in l)", "l == m || true", " || ".join(["9 in short"] * 130), "s in n || true", "!(x has y)",
        "!(s == t) || true", "o == p || true", "w in n",
    ],
)  # fmt: skip
def test_u4_over_the_budget_is_denied(text: str) -> None:
    context = {
        "l": [1] * 60_000, "m": [1] * 60_000, "short": [1] * 100, "s": "x" * 400_000, "t": "x" * 399_999 + "y",
        "n": ["x" * 399_999 + "y"] * 20, "x": "a" * 29_000, "y": "a" * 150 + "b" + "a" * 150,
        "o": {str(i): i for i in range(5_000)}, "p": {str(i): i for i in range(5_000)}, "w": 3,
    }  # fmt: skip
    found = compile_guard(text).evaluate(context)
    assert found == ((False, 23, False) if text == "w in n" else (False, GUARD_BUDGET, True))


@pytest.mark.parametrize("budget", [0, -1, 2])
def test_u4_a_budget_below_the_nodes_of_the_guard_denies(budget: int) -> None:
    assert compile_guard("a == 1").evaluate({"a": 1}, budget=budget) == (False, max(budget, 0), True)


def test_u4_what_stands_early_in_a_long_list_is_found_within_the_budget() -> None:
    assert compile_guard("3 in l").evaluate({"l": list(range(100_000))}) == (True, 7, False)


# ------------------------------------------------------------------------ compiling


def test_d16_only_a_text_is_a_guard() -> None:
    for text in (None, 1, True, b"true", ["true"], {"a": 1}, object(), Hostile(), Hostile):
        with pytest.raises(GuardError, match="a guard is a text, not a value of type"):
            compile_guard(text)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a = 1", 2, "unexpected '=' at position 2"),
        ("x ==", 4, "unexpected the end, expected a value at position 4"),
        ("a b", 2, "unexpected 'b', expected an operator or the end at position 2"),
        ("(a", 2, "unexpected the end, expected ')' at position 2"),
        ("a == b == c", 7, "unexpected '==', expected && or ||, as comparisons do not chain at position 7"),
        ("a == 'bc", 5, "a text without its closing quote at position 5"),
        (
            r"'a\qb'",
            2,
            r"unknown escape: a backslash before 'q', expected \\, \', \", \n, \r or \t at position 2",
        ),
        ("a..b", 0, "an empty part in the path 'a..b' at position 0"),
        ("exists 1", 7, "unexpected '1', expected an operator or the end at position 7"),
        ("exists (1)", 8, "unexpected '1', expected a path at position 8"),
        ("\ud800 == 1", 0, r"unexpected '\ud800' at position 0"),
        ("a" * 2_001, None, "2001 characters, more than the 2000 allowed"),
    ],
)
def test_a_refusal_names_what_is_wrong_where_and_what_could_stand_there(
    text: str, position: int | None, message: str
) -> None:
    for _ in range(2):  # the second one comes from the cache
        with pytest.raises(GuardError) as caught:
            compile_guard(text)
        assert (str(caught.value), caught.value.position) == (message, position)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, GraphStateError)
        caught.value.args[0].encode()


def test_d16_guards_and_refusals_are_kept_within_a_bound() -> None:
    _compiled.cache_clear()
    assert compile_guard("a == 1") is compile_guard("a == 1")
    for n in range(2 * MAX_CACHED):
        compile_guard(f"a == {n}")
        with pytest.raises(GuardError):
            compile_guard(f"a = {n}")
    assert _compiled.cache_info().currsize == MAX_CACHED
    with pytest.raises(GuardError):
        compile_guard("a" * 100_000)
    assert _compiled.cache_info().currsize == MAX_CACHED


def test_a_guard_cannot_be_changed_and_can_be_copied() -> None:
    guard = compile_guard("a == 1")
    with pytest.raises(AttributeError):
        guard.text = "true"  # type: ignore[misc]
    assert isinstance(guard, Guard)
    assert repr(guard) == "compile_guard('a == 1')"
    for twin in (copy.copy(guard), copy.deepcopy(guard), pickle.loads(pickle.dumps(guard))):
        assert twin.evaluate({"a": 1}) == (True, 3, False)


def test_a_list_written_in_a_guard_is_the_same_each_time() -> None:
    guard = compile_guard("a in ['x', 'y'] && b == [1, 2]")
    context = {"a": "y", "b": [1, 2]}
    assert [guard.evaluate(context).passed for _ in range(3)] == [True] * 3
    assert context == {"a": "y", "b": [1, 2]}


def test_threads_share_a_guard() -> None:
    guard = compile_guard("n in l")
    answers: list[set[Evaluation]] = [set() for _ in range(4)]

    def work(n: int) -> None:
        for _ in range(300):
            answers[n].add(guard.evaluate({"n": n, "l": [0, 1, 2, 3]}))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{Evaluation(True, 3 + n + 1, False)} for n in range(4)]


# ------------------------------------------------------------------------- as data


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.text)
def test_d32_every_example_says_what_happens(example: Any) -> None:
    assert eval_guard(example.text, example.context) is example.passes


def test_d32_examples_use_the_names_of_the_context() -> None:
    known = {name.partition(".")[0] for name in CONTEXT}
    for example in EXAMPLES:
        assert set(example.context) <= known


def test_the_page_shows_what_its_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "reference" / "guards.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(program, {})  # our own documentation
    assert capsys.readouterr().out == printed
    assert GRAMMAR in page


def test_the_guide_is_fresh_json() -> None:
    assert decode(encode(guide())) == guide()
    guide()["context"].clear()
    assert guide()["context"] == CONTEXT
