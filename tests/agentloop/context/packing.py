"""Sections, tokenizers and windows as the vectors write them down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentloop.context.packer import ContextBudget, Packed, pack
from agentloop.context.reports import SectionReport
from agentloop.context.sections import Item, Section
from agentloop.context.tokens import Tokenizer, tokenizer_from
from agentloop.errors import ErrorValue
from agentloop.messages import Message
from agentloop.outcome import Err, expect

CHARS = tokenizer_from("chars", len)


def texts(*contents: str, role: Any = "system") -> list[Item]:
    return [
        Item(id=f"i{number}", message=Message(role=role, content=text))
        for number, text in enumerate(contents)
    ]


def section(id: str = "s", *, size: int = 0, count: int = 0, priority: float = 1, **options: Any) -> Section:
    """``count`` items of ``size`` characters, unless other items are given."""
    options.setdefault("items", texts(*["x" * size] * count))
    options.setdefault("cut_marker", "")
    return Section(id=id, priority=priority, **options)


def note(word: str) -> Callable[[int], str]:
    return lambda count: f"({count} {word})"


def packed(sections: Sequence[Section], total: int, *, tokenizer: Tokenizer = CHARS, **budget: Any) -> Packed:
    return expect(pack(sections, ContextBudget(total=total, **budget), tokenizer))


def refused(
    sections: Sequence[Section], total: int, *, tokenizer: Tokenizer = CHARS, **budget: Any
) -> ErrorValue:
    answer = pack(sections, ContextBudget(total=total, **budget), tokenizer)
    assert isinstance(answer, Err)
    return answer.error


def rows(window: Packed) -> dict[str, SectionReport]:
    return {row.id: row for row in window.report.sections}


def contents(window: Packed) -> list[str]:
    return [message.content for message in window.messages]
