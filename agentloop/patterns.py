"""Regular expressions that cannot hang: matched by an automaton in linear time.

The standard engine backtracks: on some patterns a page of hostile text takes it hours, and
neither a timeout nor a thread can stop it. Which patterns those are is hard to say and easy
to get wrong (two plain ``.*`` are enough), so none is guessed at here. The pattern is read by
the standard parser, made into an automaton (Thompson's construction), and run as a
deterministic one whose states are made when they are first needed. Look-around and
back-references have no automaton and are refused.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final, NamedTuple

__all__ = ("MAX_PATTERN", "MAX_SUBJECT", "Pattern", "PatternRefused")

#: Characters of a pattern, at most.
MAX_PATTERN: Final = 256
#: Characters of a subject that are searched: the last ones, where tools put their summaries.
MAX_SUBJECT: Final = 64 * 1024
_MAX_NODES: Final = 512
_MAX_STATES: Final = 1_000

# The parser of `re` is importable under this name in every supported version, but not typed.
_parser: Final[Any] = importlib.import_module("re._parser")

_CHAR: Final = "char"
_SPLIT: Final = "split"
_AT: Final = "at"
_ACCEPT: Final = "accept"

_CLASSES: Final = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_REFUSED: Final = {
    "ASSERT": "look-ahead or look-behind",
    "ASSERT_NOT": "look-ahead or look-behind",
    "GROUPREF": "a back-reference",
    "GROUPREF_IGNORE": "a back-reference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}
_CHAR_FLAGS: Final = re.IGNORECASE | re.DOTALL | re.ASCII
_WORD: Final = re.compile(r"\w")


class PatternRefused(ValueError):
    """A pattern that is no regular expression, or one that has no bounded automaton."""


class _Kind(NamedTuple):
    """All an automaton needs to know of a character."""

    #: Which of the pattern's one-character tests it passes.
    passes: frozenset[int]
    newline: bool
    word: bool
    ascii_word: bool


class _Node(NamedTuple):
    op: str
    arg: Any
    next: int


class _State(dict[str, "_State"]):
    """A state of the deterministic automaton: the next state for each character met so far."""

    __slots__ = ("before", "by_kind", "nodes")

    def __init__(self, nodes: frozenset[int], before: _Kind | None) -> None:
        super().__init__()
        self.nodes, self.before = nodes, before
        self.by_kind: dict[tuple[_Kind | None, bool], _State] = {}


_MATCH: Final = _State(frozenset(), None)
#: Stand for the end of the text and for a newline that ends it, which ``$`` can tell apart.
_END: Final = ""
_LAST_NEWLINE: Final = "\n$"


class Pattern:
    """A regular expression that answers one question: does the text have a match?

    Args:
        text: In the syntax of `re`, without look-around, back-references, atomic groups and
            possessive repeats. Captures and greediness make no difference to the answer.

    Raises:
        PatternRefused: It cannot be read, needs one of those, is longer than `MAX_PATTERN`, or
            its counted repeats make it too large.
    """

    __slots__ = ("_kinds", "_nodes", "_start", "_states", "_tests", "text")

    def __init__(self, text: str) -> None:
        if not text:
            raise PatternRefused("the pattern is empty")
        if len(text) > MAX_PATTERN:
            raise PatternRefused(f"the pattern has {len(text)} characters, more than {MAX_PATTERN}")
        self.text = text
        self._nodes: list[_Node] = [_Node(_ACCEPT, None, 0)]
        self._tests: dict[tuple[str, int], tuple[int, re.Pattern[str]]] = {}
        self._kinds: dict[str, _Kind] = {}
        self._states: dict[tuple[frozenset[int], _Kind | None], _State] = {}
        try:
            tree = _parser.parse(text)
            first = self._sequence(tree, 0, tree.state.flags)
        except PatternRefused:
            raise
        except (re.error, RecursionError, OverflowError, Warning) as error:
            raise PatternRefused(f"the pattern cannot be read: {error}") from None
        self._start = frozenset({first})

    def search(self, text: str) -> bool:
        """Return whether the last `MAX_SUBJECT` characters have a match. Linear in their number."""
        text = text[-MAX_SUBJECT:]
        state = self._state(self._start, None)
        last = text[-1:]
        tail = (_LAST_NEWLINE if last == "\n" else last, _END) if last else (_END,)
        for symbol in chain(text[:-1], tail):
            following = state.get(symbol)
            state = self._step(state, symbol) if following is None else following
            if state is _MATCH:
                return True
        return False

    # the deterministic automaton, made as it is needed

    def _state(self, nodes: frozenset[int], before: _Kind | None) -> _State:
        found = self._states.get((nodes, before))
        if found is None:
            if len(self._states) >= _MAX_STATES:
                for state in self._states.values():
                    state.clear()
                    state.by_kind.clear()
                self._states.clear()
            found = self._states[nodes, before] = _State(nodes, before)
        return found

    def _step(self, state: _State, symbol: str) -> _State:
        kind = self._kind(symbol[0]) if symbol else None
        ends = symbol in (_END, _LAST_NEWLINE)
        found = state.by_kind.get((kind, ends))
        if found is None:
            found = self._move(state, kind, ends)
            state.by_kind[kind, ends] = found
        if len(state) > _MAX_STATES:
            state.clear()
        state[symbol] = found
        return found

    def _move(self, state: _State, kind: _Kind | None, ends: bool) -> _State:
        following: set[int] = set(self._start)
        todo, seen = list(state.nodes), set(state.nodes)
        while todo:
            node = self._nodes[todo.pop()]
            reached: Iterable[int] = ()
            if node.op is _ACCEPT:
                return _MATCH
            if node.op is _CHAR:
                if kind is not None and node.arg in kind.passes:
                    following.add(node.next)
            elif node.op is _SPLIT:
                reached = node.arg
            elif _holds(node.arg, state.before, kind, ends):
                reached = (node.next,)
            for index in reached:
                if index not in seen:
                    seen.add(index)
                    todo.append(index)
        return self._state(frozenset(following), kind)

    def _kind(self, character: str) -> _Kind:
        found = self._kinds.get(character)
        if found is None:
            word = _WORD.match(character) is not None
            found = _Kind(
                frozenset(index for index, test in self._tests.values() if test.match(character)),
                character == "\n",
                word,
                word and character.isascii(),
            )
            if len(self._kinds) >= 4 * _MAX_STATES:
                self._kinds.clear()
            self._kinds[character] = found
        return found

    # from the parse tree to the automaton, back to front

    def _add(self, op: str, arg: Any, following: int = 0) -> int:
        if len(self._nodes) >= _MAX_NODES:
            raise PatternRefused(f"the pattern unfolds to more than {_MAX_NODES} steps: use smaller repeats")
        self._nodes.append(_Node(op, arg, following))
        return len(self._nodes) - 1

    def _sequence(self, items: Any, following: int, flags: int) -> int:
        for op, arg in reversed(list(items)):
            following = self._item(str(op), arg, following, flags)
        return following

    def _item(self, op: str, arg: Any, following: int, flags: int) -> int:
        if op in _REFUSED:
            raise PatternRefused(f"the pattern has {_REFUSED[op]}, which has no automaton")
        if op == "BRANCH":
            return self._add(_SPLIT, tuple(self._sequence(each, following, flags) for each in arg[1]))
        if op == "SUBPATTERN":
            _, added, removed, inner = arg
            return self._sequence(inner, following, (flags | added) & ~removed)
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeat(arg, following, flags)
        if op == "AT":
            code = str(arg)
            multiline = bool(flags & re.MULTILINE)
            return self._add(_AT, (code, multiline, bool(flags & re.ASCII)), following)
        return self._add(_CHAR, self._test(_one_character(op, arg), flags), following)

    def _repeat(self, arg: Any, following: int, flags: int) -> int:
        low, high, inner = arg
        entry = following
        if high == _parser.MAXREPEAT:
            entry = self._add(_SPLIT, ())
            body = self._sequence(inner, entry, flags)
            self._nodes[entry] = _Node(_SPLIT, (body, following), 0)
        else:
            for _ in range(high - low):
                entry = self._add(_SPLIT, (self._sequence(inner, entry, flags), following))
        for _ in range(low):
            before = entry
            entry = self._sequence(inner, entry, flags)
            if entry == before:  # nothing to repeat, as in (?:){9999}
                break
        return entry

    def _test(self, text: str, flags: int) -> int:
        key = (text, flags & _CHAR_FLAGS)
        if key not in self._tests:
            self._tests[key] = (len(self._tests), re.compile(text, key[1]))
        return self._tests[key][0]


def _one_character(op: str, arg: Any) -> str:
    """Return the pattern text of an item that takes exactly one character."""
    match op:
        case "LITERAL":
            return f"[{_escaped(arg)}]"
        case "NOT_LITERAL":
            return f"[^{_escaped(arg)}]"
        case "ANY":
            return "."
        case "IN":
            return "[" + "".join(_member(str(each), value) for each, value in arg) + "]"
    raise PatternRefused(f"the pattern has {op.lower()}, which is not known here")


def _member(op: str, arg: Any) -> str:
    match op:
        case "NEGATE":
            return "^"
        case "LITERAL":
            return _escaped(arg)
        case "RANGE":
            return f"{_escaped(arg[0])}-{_escaped(arg[1])}"
        case "CATEGORY" if str(arg) in _CLASSES:
            return _CLASSES[str(arg)]
    raise PatternRefused(f"the pattern has {op.lower()} {arg}, which is not known here")


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


def _holds(at: tuple[str, bool, bool], before: _Kind | None, after: _Kind | None, ends: bool) -> bool:
    code, multiline, ascii_only = at
    match code:
        case "AT_BEGINNING":
            return before is None or (multiline and before.newline)
        case "AT_BEGINNING_STRING":
            return before is None
        case "AT_END":
            return ends or (multiline and after is not None and after.newline)
        case "AT_END_STRING":
            return after is None
    boundary = _is_word(before, ascii_only) != _is_word(after, ascii_only)
    return boundary if code == "AT_BOUNDARY" else not boundary


def _is_word(kind: _Kind | None, ascii_only: bool) -> bool:
    return kind is not None and (kind.ascii_word if ascii_only else kind.word)
