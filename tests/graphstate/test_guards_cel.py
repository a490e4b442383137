"""Guards beside the Common Expression Language: what both say alike, and every difference on purpose.

The expressions are written after the language's definition and the subjects of its conformance
tests (literals, fields, lists, logic, comparisons). Those of the first table mean the same there
and here, word by word.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from graphstate import GuardError, compile_guard, eval_guard
from graphstate._canonical import Json

CONTEXT: dict[str, Json] = {
    "i": 3, "d": 2.5, "s": "hello", "e": "", "t": True, "f": False, "n": None, "l": [1, 2, 3], "ls": ["a", "b"],
    "m": {"a": 1, "b": {"c": "deep"}, "list": [[1], [2]]}, "big": 9007199254740993,
}  # fmt: skip

SHARED: tuple[tuple[str, bool], ...] = (
    # literals
    ("true", True),
    ("false", False),
    ("null == null", True),
    ("0 == -0", True),
    ("-1 == -1", True),
    ("9223372036854775807 == 9223372036854775807", True),
    ("9223372036854775807 == 9223372036854775806", False),
    ("1.5 == 1.5", True),
    ("-0.5 < 0.0", True),
    ("'x' == \"x\"", True),
    ("'it\\'s' == \"it's\"", True),
    (r"'\n' == '\t'", False),
    (r"'\\' == '\\'", True),
    ("'' == ''", True),
    ("'é' == 'é'", True),
    # equality, by value and between kinds
    ("1 == 2", False),
    ("1 != 2", True),
    ("1 == 1.0", True),
    ("1.0 != 1.0", False),
    ("'a' == 'b'", False),
    ("'1' == 1", False),
    ("'1' != 1", True),
    ("true == 1", False),
    ("null == false", False),
    ("null != 0", True),
    ("n == null", True),
    ("i != null", True),
    ("l == [1, 2, 3]", True),
    ("l == [1.0, 2.0, 3.0]", True),
    ("l == [3, 2, 1]", False),
    ("l != [1, 2]", True),
    ("m.list == [[1], [2]]", True),
    ("m.b == m.b", True),
    ("m.b != m", True),
    # order
    ("1 < 2", True),
    ("2 <= 2", True),
    ("2 < 2.5", True),
    ("d >= 2.5", True),
    ("i > d", True),
    ("'a' < 'b'", True),
    ("'abc' <= 'abd'", True),
    ("'Z' > 'a'", False),
    ("'' < 'a'", True),
    ("'a' < 'aa'", True),
    ("big > 9007199254740992", True),
    ("9007199254740992 < big", True),
    # logic and its short cuts
    ("true && true", True),
    ("true && false", False),
    ("false || true", True),
    ("!false", True),
    ("!!true", True),
    ("false && nothing.here == 1", False),
    ("true || nothing.here == 1", True),
    ("nothing.here == 1 || true", True),
    ("nothing.here == 1 && false", False),
    ("true || false && false", True),
    ("(true || false) && false", False),
    ("!t || t", True),
    ("!(i == 3)", False),
    ("!(f && t) == true", True),
    ("i > 1 && i < 5 && i != 4", True),
    ("t == (i == 3)", True),
    # fields and lists
    ("m.a == 1", True),
    ("m.b.c == 'deep'", True),
    ("2 in l", True),
    ("4 in l", False),
    ("2.0 in l", True),
    ("'2' in l", False),
    ("'a' in ['a', 'b']", True),
    ("s in ['hi', s]", True),
    ("1 in []", False),
    ("[1] in m.list", True),
    ("null in [1, null]", True),
    ("i in [1, 2, 3] && !(i in [4])", True),
    ("((i)) == (((3)))", True),
    ("i == 3\t&&\r\n s == 'hello'", True),
)

REFUSED = None


class Difference(NamedTuple):
    """What CEL says (an answer, or None for an error), what a guard says (None: it is refused), and why."""

    text: str
    there: bool | None
    here: bool | None
    why: str
    #: the guard that says what the expression means there
    instead: str | None = None


DIFFERENT: tuple[Difference, ...] = (
    # a guard always answers
    Difference("m.missing == 1", None, False, "a missing path denies instead of failing"),
    Difference("m.missing != 1", None, False, "also for !="),
    Difference("!(m.missing == 1)", None, True, "a denied comparison is false, and its opposite true"),
    Difference("nothing", None, False, "a missing path is not true"),
    Difference("1 < 'a'", None, False, "values of different kinds have no order; that is an answer"),
    Difference("n < 1", None, False, "null has none either"),
    Difference("l < l", None, False, "nor have lists"),
    Difference("1 in s", None, False, "a text is no list"),
    Difference(
        "s && true", None, True, "any value can be true or not, as in the languages agents write most"
    ),
    Difference("e || i", None, True, "the same, and the answer is a boolean"),
    Difference("!i", None, False, "the same"),
    # a guard means something else
    Difference("[] == []", True, False, "two lists written in the guard are not data and never equal"),
    Difference("[1] == [1.0]", True, False, "the same"),
    Difference("false < true", True, False, "booleans have no order", "!f && t"),
    Difference("'a' in m", True, False, "keys are asked for from the other side", "m has 'a'"),
    # a guard has no such thing, by intention: no calls, no arithmetic, no construction
    Difference("has(m.a)", True, REFUSED, "has is an operator here", "exists m.a"),
    Difference("has(m.x)", False, REFUSED, "the same", "exists m.x"),
    Difference("size(l) == 3", True, REFUSED, "there are no calls", "l.length == 3"),
    Difference("l.size() == 3", True, REFUSED, "there are no methods", "l.length == 3"),
    Difference("s.contains('ell')", True, REFUSED, "there are no methods", "s has 'ell'"),
    Difference("s.startsWith('he')", True, REFUSED, "there are no methods"),
    Difference("s.matches('h.*')", True, REFUSED, "a pattern could take for ever"),
    Difference("l.exists(x, x > 2)", True, REFUSED, "there are no loops", "3 in l"),
    Difference("l.all(x, x > 0)", True, REFUSED, "there are no loops"),
    Difference("l[0] == 1", True, REFUSED, "an index is part of a path", "l.0 == 1"),
    Difference("m['a'] == 1", True, REFUSED, "a key is part of a path", "m.a == 1"),
    Difference("i + 1 == 4", True, REFUSED, "there is no arithmetic", "i == 3"),
    Difference("-i == -3", True, REFUSED, "a minus belongs to a number", "i == 3"),
    Difference("i % 2 == 1", True, REFUSED, "there is no arithmetic"),
    Difference("t ? true : false", True, REFUSED, "there is no choice between values", "t"),
    Difference("{'a': 1} == m", False, REFUSED, "there are no objects in a guard"),
    Difference("int('1') == 1", True, REFUSED, "there are no conversions"),
    Difference("type(i) == int", True, REFUSED, "there are no types"),
    # a guard is written differently
    Difference(
        "1 < 2 == true", True, REFUSED, "comparisons do not chain: nobody reads them alike", "(1 < 2) == true"
    ),
    Difference("1e3 == 1000.0", True, REFUSED, "numbers have no exponent", "1000 == 1000.0"),
    Difference("0x10 == 16", True, REFUSED, "numbers are decimal"),
    Difference("1u == 1", True, REFUSED, "there is one kind of number", "1 == 1"),
    Difference(".5 == 0.5", True, REFUSED, "a number begins with a digit", "0.5 == 0.5"),
    Difference("5. == 5", None, True, "a number may end with its point"),
    Difference("1.2.3 == 1.2.3", None, False, "it may hold several, and is then no number"),
    Difference(r"'\x41' == 'A'", True, REFUSED, "texts know five escapes only", "'A' == 'A'"),
    Difference(r"'\u0041' == 'A'", True, REFUSED, "the same", "'A' == 'A'"),
    Difference(r"r'\d' == '\\d'", True, REFUSED, "there are no raw texts", r"'\\d' == '\\d'"),
    Difference("b'a' == b'a'", True, REFUSED, "JSON has no bytes"),
    Difference("'''a''' == 'a'", True, REFUSED, "texts have one quote at each end", "'a' == 'a'"),
    Difference("2 in [1, 2,]", True, REFUSED, "a list does not end with a comma", "2 in [1, 2]"),
    Difference("true // as ever", True, REFUSED, "there are no comments", "true"),
    Difference("in == 1", None, False, "in, has and exists are words only where one is expected"),
    Difference(
        "m.constructor == 1", None, REFUSED, "names that other languages attach powers to are refused"
    ),
    Difference("l has 2", None, True, "has asks lists, objects and texts"),
    Difference("exists m.a", None, True, "exists is an operator"),
    Difference("l.0 == 1", None, True, "an index is part of a path"),
    Difference("l.length == 3", None, True, "so is the length of a list"),
)


@pytest.mark.parametrize(("text", "passes"), SHARED, ids=[text for text, _ in SHARED])
def test_u4_what_both_languages_have_means_the_same(text: str, passes: bool) -> None:
    assert eval_guard(text, CONTEXT) is passes


@pytest.mark.parametrize("row", DIFFERENT, ids=[row.text for row in DIFFERENT])
def test_u4_every_difference_is_on_purpose(row: Difference) -> None:
    assert row.why
    if row.here is REFUSED:
        with pytest.raises(GuardError):
            compile_guard(row.text)
    else:
        assert eval_guard(row.text, CONTEXT) is row.here
    if row.instead:
        assert eval_guard(row.instead, CONTEXT) is row.there
