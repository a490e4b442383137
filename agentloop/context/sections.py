"""What a window is made of: sections of items, and how they are written out as messages.

`render` is the only place where items become messages, so that what is planned, what is
charged and what is sent are the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from agentloop._numbers import MAX_COUNT, check_count, check_finite
from agentloop.context.tokens import message_text
from agentloop.messages import Message

__all__ = ("Block", "Item", "Section", "groups_of", "render")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that may be shown."""

    #: For reports and feedback; need not be unique.
    id: str
    message: Message
    #: How well it matched, for whoever reads the section; decides nothing.
    score: float | None = None

    def __post_init__(self) -> None:
        if self.score is not None:
            check_finite("score", self.score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Items written as one message, a paragraph each."""

    role: Literal["system", "user"] = "system"
    header: str = ""
    #: Between two items.
    separator: str = "\n\n"
    footer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A named part of a window, and how it shares the room with the others."""

    #: Unique within a window.
    id: str
    #: Who is served first; the lowest wins.
    priority: float
    #: In the order they are shown.
    items: Sequence[Item] = ()
    #: Where it stands in the window; the priority if None.
    order: float | None = None
    #: Shown whole, or there is no window.
    pinned: bool = False
    #: 0..1: the part of the room that is left at its turn which it may take while others compete.
    max_share: float | None = None
    #: With less than this (or than it wants) it is left out.
    min_tokens: int = 0
    #: What happens to an item that does not fit: passed over, or cut, with nothing after it.
    overflow: Literal["drop", "truncate"] = "drop"
    #: Which end is tried first; the order shown stays.
    fill: Literal["first", "last"] = "first"
    #: None shows every item as a message of its own.
    block: Block | None = None
    #: From a number of items left out to the text that says so.
    elision_note: Callable[[int], str] | None = None
    #: Stands where something was cut.
    cut_marker: str = " [cut]"

    def __post_init__(self) -> None:
        check_finite("priority", self.priority)
        check_finite("order", self.order, optional=True)
        # Whether they can be used is for the packer to say, which names the section.
        check_finite("max_share", self.max_share, optional=True)
        check_count("min_tokens", self.min_tokens, -MAX_COUNT)


def render(section: Section, kept: Sequence[Message], note: str | None) -> tuple[Message, ...]:
    """Return the messages that show some of a section's items.

    Args:
        section: Says how.
        kept: Messages of the items shown, in order, as far as they were not cut.
        note: What is said about those left out. In a block it stands outside of header and
            footer; else it is a system message before the others.
    """
    block = section.block
    if block is None:
        return (Message(role="system", content=note), *kept) if note else tuple(kept)
    if not kept:
        return (Message(role=block.role, content=note),) if note else ()
    body = block.separator.join(map(message_text, kept))
    parts = [part for part in (block.header, body, block.footer, note) if part]
    return (Message(role=block.role, content="\n\n".join(parts)),)


def groups_of(messages: Sequence[Message]) -> list[list[int]]:
    """Return the numbers of messages that may only be shown together, by their first one.

    An assistant message with tool calls and the tool messages that answer it are one group;
    any other message is its own. An answer belongs to the newest call of its id before it.
    """
    groups: list[list[int]] = []
    waiting: dict[str, list[int]] = {}
    for number, message in enumerate(messages):
        if message.role == "tool" and (group := waiting.pop(message.call_id or "", None)) is not None:
            group.append(number)
            continue
        groups.append(group := [number])
        waiting.update((call.id, group) for call in message.tool_calls)
    return groups
