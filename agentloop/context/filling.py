"""Filling one section into its share: which items are shown, what is cut, what is said of the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from agentloop.context.reports import SectionReport
from agentloop.context.sections import Block, Section, groups_of, render
from agentloop.context.tokens import CountedTexts, message_text
from agentloop.messages import Message

__all__ = ("Filled", "Share")


class Filled:
    """A section as it is shown.

    Attributes:
        kept: Numbers of the items shown, cut ones included, in order.
        messages: What is shown.
        used: What that costs.
        truncated: Items that were cut.
        note: What is said about those left out.
        next_at: The least allocation that would show something else; infinite if none would.
    """

    __slots__ = ("kept", "messages", "next_at", "note", "truncated", "used")

    NOTHING: ClassVar[Filled]

    def __init__(
        self,
        kept: Sequence[int],
        messages: tuple[Message, ...],
        used: int,
        *,
        truncated: int = 0,
        note: str | None = None,
        next_at: float = math.inf,
    ) -> None:
        self.kept, self.messages, self.used = kept, messages, used
        self.truncated, self.note, self.next_at = truncated, note, next_at


Filled.NOTHING = Filled((), (), 0)


class Share:
    """A section while it is being packed.

    Attributes:
        want: What all of it would cost.
        allocated: What it may cost.
        slack_given: How much of that others left over.
        floored: It gets nothing, because it would get too little.
        filled: What is shown of it.
    """

    __slots__ = (
        "allocated", "costs", "counts", "filled", "floored", "messages", "section", "slack_given", "want",
    )  # fmt: skip

    def __init__(self, section: Section, counts: CountedTexts) -> None:
        self.section, self.counts = section, counts
        self.messages = messages = [item.message for item in section.items]
        #: Of each message that is shown if all are.
        self.costs = counts.messages(messages if section.block is None else render(section, messages, None))
        self.want = sum(self.costs)
        self.allocated = self.slack_given = 0
        self.floored = False
        self.filled = Filled.NOTHING

    def fill(self, allocation: int) -> Filled:
        """Return the section as it is shown within an allocation."""
        section, messages = self.section, self.messages
        if allocation >= self.want:
            shown = tuple(messages) if section.block is None else render(section, messages, None)
            return Filled(range(len(messages)), shown, self.want)
        usual = section.block is None and section.elision_note is None and section.overflow == "drop"
        if usual and not _any_calls(messages):
            return self._pass_over(allocation)
        return _Squeeze(self, allocation).filled()

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the items shown."""
        items = self.section.items
        return tuple([items[number].id for number in self.filled.kept])

    def report(self) -> SectionReport:
        """Return how the section fared."""
        section, filled = self.section, self.filled
        total, included = len(self.messages), len(filled.kept)
        return SectionReport(
            id=section.id,
            priority=section.priority,
            pinned=section.pinned,
            fill=section.fill,
            requested=self.want,
            allocated=self.allocated,
            used=filled.used,
            slack_given=self.slack_given,
            items_total=total,
            items_included=included,
            items_dropped=total - included,
            items_truncated=filled.truncated,
            starved=included == 0 and self.want > 0,
            note_shown=filled.note is not None,
        )

    def _pass_over(self, allocation: int) -> Filled:
        """Do the same as `_Squeeze` for the usual section: no groups, no note, nothing cut."""
        kept: list[int] = []
        used, next_at, costs = 0, self.want, self.costs
        backwards = self.section.fill == "last"
        for number in range(len(costs) - 1, -1, -1) if backwards else range(len(costs)):
            after = used + costs[number]
            if after <= allocation:
                kept.append(number)
                used = after
            elif after < next_at:
                next_at = after
        if backwards:
            kept.reverse()
        return Filled(kept, tuple([self.messages[number] for number in kept]), used, next_at=next_at)


def _any_calls(messages: Sequence[Message]) -> bool:
    for message in messages:  # noqa: SIM110 - a generator takes twice as long, and this is asked often
        if message.tool_calls or message.role == "tool":
            return True
    return False


class _Squeeze:
    """A section that does not fit as a whole."""

    __slots__ = (
        "_allocation",
        "_counts",
        "_kept",
        "_messages",
        "_meter",
        "_next_at",
        "_section",
        "_truncated",
    )

    def __init__(self, share: Share, allocation: int) -> None:
        self._section, self._counts, self._allocation = share.section, share.counts, allocation
        self._messages = share.messages[:]
        note = self._section.elision_note
        worst = note(len(self._messages)) if note else None
        self._meter = _meter(self._section, worst or None, self._counts)
        self._next_at: float = share.want
        self._kept: list[Sequence[int]] = []
        self._truncated = 0

    def filled(self) -> Filled:
        groups = groups_of(self._messages)
        for group in reversed(groups) if self._section.fill == "last" else groups:
            cost = self._meter.cost([self._messages[number] for number in group])
            if cost <= self._allocation:
                self._keep(group)
                continue
            self._next_at = min(self._next_at, cost)
            if self._section.overflow == "truncate":
                self._cut(group)
                break
        return self._finish()

    def _keep(self, group: Sequence[int]) -> None:
        self._meter.keep([self._messages[number] for number in group])
        self._kept.append(group)

    def _finish(self) -> Filled:
        section, total = self._section, len(self._messages)
        while True:
            kept = sorted([number for group in self._kept for number in group])
            shown = [self._messages[number] for number in kept]
            dropped = total - len(kept)
            note = section.elision_note(dropped) or None if section.elision_note and dropped else None
            messages = render(section, shown, note)
            used = self._cost_of(messages)
            if note and used > self._allocation:
                self._next_at = min(self._next_at, used)
                note, messages = None, render(section, shown, None)
                used = self._cost_of(messages)
            if used <= self._allocation or not kept:
                break
            self._kept.pop()  # the tokenizer charges less for more: what was kept last goes
        if used > self._allocation:
            return Filled((), (), 0, next_at=self._next_at)
        if self._truncated:
            self._next_at = used + 1
        return Filled(kept, messages, used, truncated=self._truncated, note=note, next_at=self._next_at)

    def _cost_of(self, messages: Sequence[Message]) -> int:
        return sum(self._counts.messages(messages))

    # ------------------------------------------------------------------------------ cutting

    def _cut(self, group: Sequence[int]) -> None:
        """Shorten a group until it fits and keep it; leave it out if it cannot."""
        whole = [self._messages[number] for number in group]
        alone = len(whole) == 1
        cut = 0
        for position in _cuttable(whole):
            shorter = self._shorten(whole, position)
            cut += 1
            if shorter is None:
                if alone:
                    return
                whole[position] = _with_content(whole[position], self._section.cut_marker)
                continue
            if alone and shorter.content == self._section.cut_marker:
                return
            whole[position] = shorter
            for number, message in zip(group, whole, strict=True):
                self._messages[number] = message
            self._truncated = cut
            self._keep(group)
            return

    def _shorten(self, group: Sequence[Message], position: int) -> Message | None:
        """Return the longest cut form of one message of a group that lets the group fit."""
        message, marker = group[position], self._section.cut_marker

        def with_prefix(prefix: str) -> tuple[Message, int]:
            cut = _with_content(message, prefix + marker)
            return cut, self._meter.cost([*group[:position], cut, *group[position + 1 :]])

        cut, cost = with_prefix("")
        if cost > self._allocation:
            return None
        room = self._allocation - cost
        while room > 0:
            longer, cost = with_prefix(self._counts.tokenizer.truncate(message.content, room))
            if cost <= self._allocation:
                return longer
            room -= cost - self._allocation
        return cut


def _cuttable(group: Sequence[Message]) -> list[int]:
    """Return which messages of a group may be cut, the first one first; calls never are."""
    if len(group) == 1:
        return [] if group[0].tool_calls else [0]
    tools = [number for number, message in enumerate(group) if message.role == "tool"]
    return sorted(tools, key=lambda number: (-len(group[number].content), number))


def _with_content(message: Message, content: str) -> Message:
    return msgspec.structs.replace(message, content=content)


# ---------------------------------------------------------------------------------- meters


def _meter(section: Section, note: str | None, counts: CountedTexts) -> _Sum | _Whole:
    if section.block is None:
        return _Sum(section, note, counts)
    if getattr(counts.tokenizer, "additive", False) and not section.block.separator.strip("\n"):
        return _Paragraphs(section, note, counts)
    return _Whole(section, note, counts)


class _Sum:
    """What messages cost one by one."""

    __slots__ = ("_counts", "_total")

    def __init__(self, section: Section, note: str | None, counts: CountedTexts) -> None:
        self._counts = counts
        self._total = counts.message(Message(role="system", content=note)) if note else 0

    def cost(self, group: Sequence[Message]) -> int:
        """Return what the section costs with the group, and with a note about all items."""
        return self._total + sum(self._counts.messages(group))

    def keep(self, group: Sequence[Message]) -> None:
        """Take the group in."""
        self._total = self.cost(group)


class _Paragraphs(_Sum):
    """What a block costs, never too little, where paragraphs may be counted one by one."""

    __slots__ = ("_between",)

    def __init__(self, section: Section, note: str | None, counts: CountedTexts) -> None:
        block = section.block or Block()
        self._counts = counts
        around = [part for part in (block.header, block.footer, note) if part]
        self._total = sum(map(counts.text, around)) + len(around) * counts.text("\n\n")
        self._between = counts.text(block.separator)
        self._total -= self._between  # the first paragraph has none before it

    def cost(self, group: Sequence[Message]) -> int:
        texts = sum([self._counts.text(message_text(message)) for message in group])
        return self._total + texts + len(group) * self._between


class _Whole:
    """What a block costs, counted as it would be written."""

    __slots__ = ("_counts", "_kept", "_note", "_section")

    def __init__(self, section: Section, note: str | None, counts: CountedTexts) -> None:
        self._section, self._note, self._counts = section, note, counts
        self._kept: list[Message] = []

    def cost(self, group: Sequence[Message]) -> int:
        return sum(map(self._counts.once, render(self._section, self._with(group), self._note)))

    def keep(self, group: Sequence[Message]) -> None:
        self._kept = self._with(group)

    def _with(self, group: Sequence[Message]) -> list[Message]:
        return [*group, *self._kept] if self._section.fill == "last" else [*self._kept, *group]
