"""What the guard language is, as data: grammar, operators, context, bounds, examples.

Help for an agent and the reference page are made of these tables, and tests run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from graphstate._canonical import Json

__all__ = (
    "CONTEXT",
    "EXAMPLES",
    "GRAMMAR",
    "GUARD_BUDGET",
    "MAX_CACHED",
    "MAX_DEPTH",
    "MAX_LENGTH",
    "OPERATORS",
    "Example",
    "guide",
)

#: characters of a guard's text
MAX_LENGTH = 2_000
#: levels of the grammar: a parenthesis or a list takes five, a `!` one
MAX_DEPTH = 64
#: compiled guards, and refused texts, that are kept
MAX_CACHED = 1_024
#: units of work an evaluation may spend
GUARD_BUDGET = 5_000

#: In the notation of Lark, which the tests hand it to. The parser is another one.
GRAMMAR = r"""
guard: or
or: and ("||" and)*
and: comparison ("&&" comparison)*
comparison: unary ((SIGN | IN | HAS) unary)?
unary: "!" unary | primary
primary: NUMBER | TEXT | TRUE | FALSE | NULL | path | exists | list | "(" or ")"
list: "[" [or ("," or)*] "]"
path: NAME | IN | HAS | EXISTS
exists: EXISTS (NAME | EXISTS) | EXISTS "(" path ")"

SIGN: "==" | "!=" | "<=" | "<" | ">=" | ">"
IN: "in"
HAS: "has"
EXISTS: "exists"
TRUE: "true"
FALSE: "false"
NULL: "null"
NAME: /[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*/
NUMBER: /-?[0-9][0-9.]*/
TEXT: /"([^"\\]|\\[\\"'nrt])*"/ | /'([^'\\]|\\[\\"'nrt])*'/

%ignore /[ \t\r\n]+/
""".strip()

#: The operators, the one that binds least first, with what each answers.
OPERATORS: Mapping[str, str] = {
    "a || b": "either is true; b is not looked at if a is",
    "a && b": "both are true; b is not looked at if a is not",
    "a == b": "the same JSON value: by value, without coercion (`1 == '1'` and `1 == true` are false)",
    "a != b": "both are there and differ",
    "a < b, a <= b, a > b, a >= b": "two numbers, or two texts by code point; anything else is false",
    "a in b": "b is a list that holds a",
    "a has b": "a is a list that holds b, an object with the key b, or a text with the text b in it",
    "!a": "a is not true",
    "exists a.b": "the path leads to a value, null included",
}

#: The names a guard on a transition can use.
CONTEXT: Mapping[str, str] = {
    "from": "payload of the node the move leaves",
    "to": "payload of the node the move enters",
    "fromId": "id of the node the move leaves",
    "toId": "id of the node the move enters",
    "fromTags": "list of the tags of the node the move leaves",
    "toTags": "list of the tags of the node the move enters",
    "fromKind": "kind of the node the move leaves",
    "toKind": "kind of the node the move enters",
    "edge.id": "id of the edge that is decided",
    "edge.label": "label of the edge",
    "edge.weight": "the author's weight of the edge",
    "stat.visits": "moves over this edge before this one",
    "stat.emaReward": "moving average of its rewards",
    "stat.successes": "rewards above zero",
    "stat.failures": "rewards below zero",
    "payload": "the same as to: how the predicate of a zone speaks of a node",
    "tags": "the same as toTags",
    "kind": "the same as toKind",
    "vars": "the object that the caller passed as vars, {} if none",
}


class Example(NamedTuple):
    """A guard, a context for it, and whether it passes."""

    text: str
    context: Mapping[str, Json]
    passes: bool
    says: str


EXAMPLES: tuple[Example, ...] = (
    Example(
        "stat.failures == 0 && vars.approved == true",
        {"stat": {"failures": 0}, "vars": {"approved": True}},
        True,
        "never failed, and approved by the caller",
    ),
    Example("toTags has 'ready'", {"toTags": ["ready"]}, True, "the next node carries the tag"),
    Example("toKind in ['state', 'task']", {"toKind": "task"}, True, "one of several kinds"),
    Example("from.topic has 'cache'", {"from": {"topic": "caches"}}, True, "a text inside a text"),
    Example("toId != 'draft'", {"toId": "review"}, True, "any node but one"),
    Example("toTags.0 == 'safe' && toTags.length > 1", {"toTags": ["safe", "x"]}, True, "into lists"),
    Example("vars.tries < 3", {"vars": {}}, False, "a missing path makes any comparison false"),
    Example("vars.owner != 'me'", {"vars": {}}, False, "also !="),
    Example("!exists vars.owner || vars.owner != 'me'", {"vars": {}}, True, "so ask for it"),
    Example("vars.owner == null", {"vars": {"owner": None}}, True, "null is a value"),
    Example("vars.n >= 0", {"vars": {"n": None}}, False, "which has no order"),
    Example("vars.n > 9", {"vars": {"n": "10"}}, False, "a text is no number"),
)


def guide() -> dict[str, Any]:
    """Return the language as plain JSON, fresh for each call."""
    return {
        "summary": "A condition on a move, evaluated without running code; it always ends and never raises.",
        "grammar": GRAMMAR.splitlines(),
        "operators": dict(OPERATORS),
        "context": dict(CONTEXT),
        "missingKey": "a comparison in which a path leads nowhere is false, != too; exists asks for it",
        "truth": "false, null, 0, the empty text and what is missing are false, everything else is true",
        "bounds": {
            "characters": MAX_LENGTH,
            "nesting": MAX_DEPTH,
            "unitsPerEvaluation": GUARD_BUDGET,
        },
        "examples": [{"guard": e.text, "context": dict(e.context), "passes": e.passes} for e in EXAMPLES],
    }
