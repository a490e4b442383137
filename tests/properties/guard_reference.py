"""A second reader and a second evaluator of guards, written for clarity alone.

The reader is Lark with the grammar that the documentation shows. The evaluator walks its tree.
Neither shares code with what is shipped, and neither counts work.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import LarkError

from graphstate.guards import GRAMMAR

__all__ = ("evaluate", "read")

_LARK = Lark(GRAMMAR, start="guard", parser="lalr", lexer="basic")
_FORBIDDEN = {"__proto__", "prototype", "constructor"}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
MISSING = object()


class Written(list[Any]):
    """A list that stands in the guard."""


def read(text: str) -> Tree[Token] | None:
    """Return the tree of a guard; None if it is none."""
    try:
        tree = _LARK.parse(text) if len(text) <= 2_000 else None
    except LarkError:
        return None
    return tree if tree and _is_within_bounds(tree) else None


def _is_within_bounds(tree: Tree[Token]) -> bool:
    todo: list[tuple[Any, int]] = [(tree, -1)]  # guard, or, and, comparison, unary: 3
    while todo:
        node, depth = todo.pop()
        if isinstance(node, Token):
            if node.type == "NUMBER" and not _is_a_number(node):
                return False
            if node.type == "NAME" and set(node.split(".")) & _FORBIDDEN:
                return False
            continue
        if node.data == "unary" and depth > 64:
            return False
        if node.data not in ("path", "exists", "list"):  # these count with what is around them
            depth += 1
        todo += [(child, depth) for child in node.children if child is not None]
    return True


def _is_a_number(text: str) -> bool:
    if text.count(".") > 1:
        return True
    return len(text.split(".")[0].lstrip("-")) <= 1_000 and (text[-1] == "." or math.isfinite(float(text)))


def evaluate(tree: Tree[Token], context: Any) -> bool:
    """Return whether the context passes."""
    return true(value(tree, context))


def value(node: Any, context: Any) -> Any:
    if isinstance(node, Token):
        return literal(node)
    parts = [child for child in node.children if child is not None]
    match node.data:
        case "or" if len(parts) > 1:
            return any(true(value(part, context)) for part in parts)
        case "and" if len(parts) > 1:
            return all(true(value(part, context)) for part in parts)
        case "comparison" if len(parts) == 3:
            return compare(value(parts[0], context), str(parts[1]), value(parts[2], context))
        case "unary" if parts[0].data == "unary":
            return not true(value(parts[0], context))
        case "exists":
            asked = parts[-1].children[0] if isinstance(parts[-1], Tree) else parts[-1]
            return look_up(str(asked), context) is not MISSING
        case "path":
            return look_up(str(parts[0]), context)
        case "list":
            return Written(value(part, context) for part in parts)
    return value(parts[0], context)


def literal(token: Token) -> Any:
    if token.type == "NUMBER":
        whole, _, rest = token.partition(".")
        return math.nan if "." in rest else float(token) if rest else int(whole)
    if token.type == "TEXT":
        return re.sub(r"(?s)\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), token[1:-1])
    return {"TRUE": True, "FALSE": False, "NULL": None}[token.type]


def look_up(path: str, context: Any) -> Any:
    here = context
    for name in path.split("."):
        if isinstance(here, dict):
            here = here.get(name, MISSING)
        elif isinstance(here, (list, tuple)) and name == "length":
            here = len(here)
        elif isinstance(here, (list, tuple)) and name.isdigit() and str(int(name)) == name:
            here = here[int(name)] if int(name) < len(here) else MISSING
        else:
            return MISSING
    return here if is_json(here) else MISSING


def is_json(item: Any) -> bool:
    if isinstance(item, int):
        return abs(item) < 10**1_000
    if isinstance(item, float):
        return math.isfinite(item)
    return item is None or isinstance(item, (str, list, tuple, dict))


def is_number(item: Any) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def true(item: Any) -> bool:
    return item is not MISSING and (isinstance(item, (list, tuple, dict)) or bool(item))


def is_partial(item: Any) -> bool:
    return item is MISSING or (isinstance(item, Written) and any(is_partial(part) for part in item))


def compare(left: Any, sign: str, right: Any) -> bool:
    if left is MISSING or right is MISSING:
        return False
    if sign == "in":
        return isinstance(right, (list, tuple)) and any(is_found(left, item, right) for item in right)
    if sign == "has":
        if isinstance(left, (list, tuple)):
            return compare(right, "in", left)
        return isinstance(left, (str, dict)) and isinstance(right, str) and right in left
    if sign in ("==", "!="):
        partial = is_partial(left) or is_partial(right)
        return not partial and same(left, right) is (sign == "==")
    if not (is_number(left) and is_number(right)) and not (isinstance(left, str) and isinstance(right, str)):
        return False
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign])


def is_found(item: Any, other: Any, where: Any) -> bool:
    if isinstance(where, Written) and item != item and isinstance(other, float):
        return other != other
    return not is_partial(item) and not is_partial(other) and same(item, other)


def same(a: Any, b: Any) -> bool:
    if not is_json(a) or not is_json(b) or isinstance(a, bool) or isinstance(b, bool):
        return a is b and isinstance(a, bool)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(isinstance(key, str) and same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        both = isinstance(a, Written) and isinstance(b, Written)
        return not both and len(a) == len(b) and all(map(same, a, b))
    alike: list[Callable[[Any], bool]] = [
        is_number,
        lambda item: isinstance(item, str),
        lambda item: item is None,
    ]
    return any(is_one(a) and is_one(b) for is_one in alike) and bool(a == b)
