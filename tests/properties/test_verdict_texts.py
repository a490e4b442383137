"""Many random texts: SUCCESS only where an object that says so stands at the top level.

The second opinion is a slow reader that tries every pair of braces. Each text comes from its
number, so a failing one is made again by that number alone.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
from collections.abc import Iterator
from contextlib import suppress

from agentloop.verdict import create_default_evaluator_parser
from tests.corpora.read import naughty_strings
from tests.tally import tally

COUNT = 100_000 if os.environ.get("RELIABILITY") == "full" else 10_000

PIECES = (
    *(
        '{"status":"SUCCESS"}',
        '{"status":"FAILURE"}',
        "{'status':'SUCCESS'}",
        '{"status": "SUCCESS", "evidence": "',
    ),
    *(
        '"status"',
        '"SUCCESS"',
        "'status'",
        "'SUCCESS'",
        ":",
        ":",
        ",",
        "{",
        "{",
        "}",
        "}",
        "[",
        "]",
        '"',
        "'",
        "\\",
    ),
    *(
        "```",
        "```json\n",
        "<think>",
        "</think>",
        '"\\u0073tatus"',
        '"st\\u0061tus":"SUCCESS"',
        " ",
        "\n",
        "prose",
    ),
    *(
        '"evidence":"',
        '"verdict":{"status":"SUCCESS"}',
        "True",
        "null",
        "1",
        "\ufeff",
        "SUCCESS",
        "status: SUCCESS",
    ),
)


def text_of(number: int) -> str:
    rng = random.Random(number)
    pieces = [rng.choice(PIECES) for _ in range(rng.randrange(12))]
    if rng.random() < 0.2:
        pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(naughty_strings()))
    text = "".join(pieces)
    if rng.random() < 0.1:
        text = json.dumps(text)
    if rng.random() < 0.1:
        text = text[rng.randrange(len(text) + 1) :]
    return text


def without_thoughts(text: str) -> str:
    inner = re.compile(r"<think>(?:(?!</?think>).)*</think>", re.DOTALL)
    while inner.search(text):
        text = inner.sub("", text)
    return text.partition("<think>")[0]


def readings(block: str) -> Iterator[object]:
    """Yield what a block can be read as, by the readers that Python has."""
    with suppress(ValueError, RecursionError):
        yield json.loads(block)
    names = {"true": "True", "false": "False", "null": "None"}
    for python in (block, re.sub(r"\b(true|false|null)\b", lambda match: names[match[0]], block)):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            yield ast.literal_eval(python)


def objects(text: str) -> Iterator[tuple[int, int, dict[object, object]]]:
    """Yield each part of the text that reads as an object, and where it stands."""
    starts = [match.start() for match in re.finditer(r"\{", text)]
    ends = [match.end() for match in re.finditer(r"\}", text)]
    for start in starts:
        for end in ends:
            for value in readings(text[start:end]) if end > start else ():
                if isinstance(value, dict):
                    yield start, end, value


def says_success(text: str) -> bool:
    """Say whether an object with that status stands in the text, and in no other object."""
    found = list(objects(text))
    return any(
        str(value.get("status")).strip() == "SUCCESS"
        for start, end, value in found
        if not any((a < start and end <= b) or (a <= start and end < b) for a, b, _ in found)
    )


def versions(text: str) -> Iterator[str]:
    """Yield the text, without its thoughts, and what it says as a JSON string."""
    yield text
    yield without_thoughts(text)
    try:
        inner = json.loads(text.strip().lstrip("\ufeff").strip())
    except (ValueError, RecursionError):
        return
    if isinstance(inner, str):
        yield inner


def test_success_stands_at_the_top_level_of_the_text() -> None:
    parse = create_default_evaluator_parser()
    successes = 0
    for number in range(COUNT):
        text = text_of(number)
        result = parse([text])
        assert result.status in ("SUCCESS", "FAILURE", "RUNNING"), number
        if result.status == "SUCCESS":
            successes += 1
            assert any(map(says_success, versions(text))), (number, text)
    assert COUNT / 100 < successes < COUNT / 2
    tally("random verdict texts", COUNT)


def test_the_second_opinion_tells_them_apart() -> None:
    assert says_success('so {"status": "SUCCESS"}')
    assert says_success("{'status': ' SUCCESS', 'ok': True,}")
    assert not says_success('{"quoted": {"status": "SUCCESS"}}')
    assert not says_success('{"status": "FAILURE"} SUCCESS')
    assert not says_success('{"status": "SUCCESS"')
