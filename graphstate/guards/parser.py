"""From the text of a guard to closures: tokens, then a Pratt parser. Nothing here knows Python code.

A closure takes the context and the meter and returns a value. What most guards are made of, a
path compared with a constant, becomes one closure without a charge of its own: the nodes of a
guard are charged together when it is evaluated.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from graphstate._canonical import MAX_INT_DIGITS, Json
from graphstate.errors import GuardError, shown
from graphstate.guards.language import MAX_DEPTH
from graphstate.guards.values import (
    CHARACTERS_PER_UNIT,
    MISSING,
    Listed,
    Meter,
    contains,
    equal,
    is_partial,
    member,
    ordered,
    settled,
    truth,
)

__all__ = ("Condition", "parse")

Context: TypeAlias = Mapping[str, Json]
Run: TypeAlias = Callable[[Context, Meter], Json]
Condition: TypeAlias = Callable[[Context, Meter], bool]

# Compiled by `re` itself on first use: a command that evaluates no guard does not wait for it.
_TOKENS = r"""(?sx)
    (?P<space> [\ \t\r\n]+ )
  | (?P<number> -?[0-9][0-9.]* )
  | (?P<name> [A-Za-z_][A-Za-z0-9_.]* )
  | (?P<text> "[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*' )
  | (?P<sign> && | \|\| | [=!<>]= | [<>!()\[\],] )
  | (?P<wrong> . )
"""
_ESCAPE = r"(?s)\\(.)"
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: Mapping[str, Json] = {"true": True, "false": False, "null": None}
_FORBIDDEN = frozenset({"__proto__", "prototype", "constructor"})

_OR, _AND, _COMPARISON = 1, 2, 3
_POWERS: Mapping[str, int] = {
    "||": _OR, "&&": _AND, "==": _COMPARISON, "!=": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON,
    ">": _COMPARISON, ">=": _COMPARISON, "in": _COMPARISON, "has": _COMPARISON,
}  # fmt: skip
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TURNED: Mapping[str, str] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: levels of the grammar from `or` down to `unary`, and those that a bracket adds
_UNARY, _BRACKET = 3, 5


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Node(NamedTuple):
    run: Run
    #: the closure answers True or False and nothing else
    boolean: bool = False
    #: a scalar is written here; `run` answers it
    constant: bool = False


def parse(text: str) -> tuple[Condition, int]:
    """Return a guard's closure and how many nodes it has.

    Raises:
        GuardError: Not a guard; says what stands where, and what could.
    """
    parser = _Parser(text)
    node = parser.expression(_UNARY)
    parser.expect_end()
    return _test(node), parser.nodes


def _tokens(text: str) -> Iterator[_Token]:
    for match in re.finditer(_TOKENS, text):
        kind, found = match.lastgroup or "wrong", match[0]
        if kind == "wrong":
            problem = "a text without its closing quote" if found in "\"'" else f"unexpected {shown(found)}"
            raise GuardError(problem, position=match.start())
        if kind != "space":
            yield _Token(kind, found, match.start())
    yield _Token("end", "", len(text))


class _Parser:
    def __init__(self, text: str) -> None:
        self._rest = _tokens(text)
        self._now = next(self._rest)
        self.nodes = 0

    def _take(self) -> _Token:
        token = self._now
        if token.kind != "end":
            self._now = next(self._rest)
        return token

    def _takes(self, sign: str) -> bool:
        """Take the sign if it comes next. Texts keep their quotes here, so none looks like one."""
        found = self._now.text == sign
        if found:
            self._take()
        return found

    def _unexpected(self, wanted: str) -> GuardError:
        found = "the end" if self._now.kind == "end" else shown(self._now.text)
        return GuardError(f"unexpected {found}, expected {wanted}", position=self._now.at)

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._unexpected(repr(sign))

    def expect_end(self) -> None:
        if self._now.kind != "end":
            raise self._unexpected("an operator or the end")

    def expression(self, depth: int, above: int = 0) -> _Node:
        """Parse what binds stronger than `above`; `depth` is that of the operands."""
        left = self._unary(depth)
        while (power := _POWERS.get(self._now.text, 0)) > above:
            if power == _COMPARISON:
                sign = self._take().text
                left = self._counted(_comparison(sign, left, self.expression(depth, power)))
                if _POWERS.get(self._now.text) == _COMPARISON:
                    raise self._unexpected("&& or ||, as comparisons do not chain")
            else:
                left = self._chain(left, depth, power)
        return left

    def _chain(self, first: _Node, depth: int, power: int) -> _Node:
        """Parse all that one && or || joins, so that a long chain is no deeper than a short one."""
        sign, tests = self._now.text, [_test(first)]
        while self._takes(sign):
            tests.append(_test(self.expression(depth, power)))
            self.nodes += 1
        return _Node(_joined(_either if power == _OR else _both, tests), boolean=True)

    def _counted(self, node: _Node) -> _Node:
        self.nodes += 1
        return node

    def _unary(self, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise GuardError(f"nested deeper than {MAX_DEPTH} levels", position=self._now.at)
        if self._takes("!"):
            return self._counted(_Node(_not(_test(self._unary(depth + 1))), boolean=True))
        return self._primary(depth)

    def _primary(self, depth: int) -> _Node:
        kind, text, at = self._now
        if self._takes("("):
            node = self.expression(depth + _BRACKET)
            self._expect(")")
            return node._replace(constant=False)
        if self._takes("["):
            return self._counted(self._list(depth + _BRACKET))
        if kind in ("sign", "end"):
            raise self._unexpected("a value")
        self._take()
        self.nodes += 1
        if kind == "number":
            return _constant(_number(text, at))
        if kind == "text":
            return _constant(_text(text, at))
        if text in _LITERALS:
            return _constant(_LITERALS[text])
        if text == "exists" and self._asks():
            return self._counted(self._exists())
        return _Node(_path(_segments(text, at)))

    def _list(self, depth: int) -> _Node:
        members: list[_Node] = []
        if self._takes("]"):
            return _Node(_list(members))
        members.append(self.expression(depth))
        while self._takes(","):
            members.append(self.expression(depth))
        self._expect("]")
        return _Node(_list(members))

    def _asks(self) -> bool:
        """Whether the word `exists` just taken is a question, and not the name of a path."""
        kind, text, _ = self._now
        return (kind == "name" and text not in ("in", "has")) or (kind == "sign" and text == "(")

    def _exists(self) -> _Node:
        bracket = self._takes("(")
        if self._now.kind != "name" or self._now.text in _LITERALS:
            raise self._unexpected("a path")
        path = _path(_segments(self._now.text, self._now.at))
        self._take()
        if bracket:
            self._expect(")")
        return _Node(lambda context, meter: path(context, meter) is not MISSING, boolean=True)


# ------------------------------------------------------------------------------- operands


def _number(text: str, at: int) -> int | float:
    whole, _, rest = text.partition(".")
    if "." in rest:
        return math.nan
    if len(whole) > MAX_INT_DIGITS + whole.startswith("-"):
        raise GuardError(f"a number of more than {MAX_INT_DIGITS} digits", position=at)
    if not rest:
        return int(whole)
    value = float(text)
    if not math.isfinite(value):
        raise GuardError(f"the number {shown(text)} is too large", position=at)
    return value


def _text(quoted: str, at: int) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            problem = f"unknown escape: a backslash before {shown(match[1])}"
            raise GuardError(
                f"{problem}, expected \\\\, \\', \\\", \\n, \\r or \\t", position=at + 1 + match.start()
            )
        return _ESCAPES[match[1]]

    return re.sub(_ESCAPE, plain, quoted[1:-1]) if "\\" in quoted else quoted[1:-1]


def _segments(text: str, at: int) -> list[str]:
    segments = text.split(".")
    for segment in segments:
        if not segment:
            raise GuardError(f"an empty part in the path {shown(text)}", position=at)
        if segment in _FORBIDDEN:
            raise GuardError(f"the path {shown(text)} has the forbidden part {segment!r}", position=at)
    return segments


def _constant(value: Json) -> _Node:
    return _Node(lambda context, meter: value, boolean=isinstance(value, bool), constant=True)


def _path(segments: list[str]) -> Run:
    first, *rest = segments
    steps = [(segment, _index(segment)) for segment in rest]

    def run(context: Context, meter: Meter) -> Json:
        value = context.get(first, MISSING)
        for segment, index in steps:
            if type(value) is dict:
                value = value.get(segment, MISSING)
            else:
                value = _step(value, segment, index)
        return settled(value)

    return run


def _index(segment: str) -> int | None:
    return int(segment) if segment == "0" or (segment.isdigit() and segment[0] != "0") else None


def _step(value: Json, segment: str, index: int | None) -> Json:
    kind = type(value)
    if issubclass(kind, dict):
        return dict.get(value, segment, MISSING)
    if not issubclass(kind, (list, tuple)):
        return MISSING
    if segment == "length":
        return len(value)
    return value[index] if index is not None and index < len(value) else MISSING


def _list(members: list[_Node]) -> Run:
    runs = [node.run for node in members]
    if all(node.constant for node in members):
        fixed = Listed([run({}, []) for run in runs])
        return lambda context, meter: fixed
    return lambda context, meter: Listed([run(context, meter) for run in runs])


# ------------------------------------------------------------------------------ operators


def _test(node: _Node) -> Condition:
    run = node.run
    return run if node.boolean else lambda context, meter: truth(run(context, meter))


def _not(test: Condition) -> Condition:
    return lambda context, meter: not test(context, meter)


def _joined(join: Callable[[Condition, Condition], Condition], tests: list[Condition]) -> Condition:
    """Join by halves, so that a chain of hundreds is ten deep."""
    if len(tests) == 1:
        return tests[0]
    middle = len(tests) // 2
    return join(_joined(join, tests[:middle]), _joined(join, tests[middle:]))


def _both(first: Condition, second: Condition) -> Condition:
    return lambda context, meter: first(context, meter) and second(context, meter)


def _either(first: Condition, second: Condition) -> Condition:
    return lambda context, meter: first(context, meter) or second(context, meter)


def _comparison(sign: str, left: _Node, right: _Node) -> _Node:
    if left.constant and not right.constant and sign in _TURNED:
        sign, left, right = _TURNED[sign], right, left
    if right.constant and sign in _TURNED:
        value = right.run({}, [])
        if not isinstance(value, str) or len(value) < CHARACTERS_PER_UNIT:
            return _Node(_with_constant(sign, left.run, value), boolean=True)
    return _Node(_general(sign, left.run, right.run), boolean=True)


def _general(sign: str, left: Run, right: Run) -> Condition:
    if sign in _ORDER:
        order = _ORDER[sign]
        return lambda context, meter: ordered(order, left(context, meter), right(context, meter), meter)
    if sign == "==":
        return lambda context, meter: equal(left(context, meter), right(context, meter), meter) is True
    if sign == "!=":
        return lambda context, meter: equal(left(context, meter), right(context, meter), meter) is False
    if sign == "in":
        return lambda context, meter: member(left(context, meter), right(context, meter), meter)
    return lambda context, meter: contains(left(context, meter), right(context, meter), meter)


def _with_constant(sign: str, left: Run, value: Json) -> Condition:
    """A comparison with a number, a short text, true, false or null, none of which costs extra."""
    kinds: tuple[type, ...] = (int, float) if type(value) in (int, float) else (type(value),)
    if sign in _ORDER:
        order = _ORDER[sign]
        comparable = kinds if type(value) in (int, float, str) else ()

        def is_ordered(context: Context, meter: Meter) -> bool:
            found = left(context, meter)
            return type(found) in comparable and order(found, value)

        return is_ordered

    def is_same(context: Context, meter: Meter) -> bool:
        found = left(context, meter)
        return type(found) in kinds and found == value

    def differs(context: Context, meter: Meter) -> bool:
        found = left(context, meter)
        if type(found) in kinds:
            return bool(found != value)
        return not is_partial(found)

    return is_same if sign == "==" else differs
