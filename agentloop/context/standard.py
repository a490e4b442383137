"""The sections of the standard window, from a request and what was looked up for it. Pure.

Texts of others stand between marks, as data; what developers and persons wrote may be the
system's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentloop.context.boundaries import data_block, mark_for
from agentloop.context.config import ContextConfig, HistoryOptions
from agentloop.context.memory import MemoryRecord
from agentloop.context.packer import Packed
from agentloop.context.retrieval import Passage
from agentloop.context.sections import Block, Item, Section, groups_of
from agentloop.messages import Message
from agentloop.ports import AssemblyRequest, ToolSpec
from agentloop.schemas import render_schema

__all__ = ("Found", "standard_sections")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was looked up for a window."""

    #: Instructions that are always shown.
    standing: Sequence[MemoryRecord] = ()
    memories: Sequence[MemoryRecord] = ()
    passages: Sequence[Passage] = ()

    def shown(self, packed: Packed) -> tuple[str, ...]:
        """Return what feedback goes to: memories that are shown, and passages that ask for it."""
        visible = {item for ids in packed.included.values() for item in ids}
        ids = [
            record.retrieval_id or record.id
            for record in (*self.standing, *self.memories)
            if _memory_item_id(record) in visible
        ]
        ids += [
            passage.retrieval_id
            for passage in self.passages
            if passage.retrieval_id is not None and f"doc:{passage.id}" in visible
        ]
        return tuple(ids)


def standard_sections(config: ContextConfig, request: AssemblyRequest, found: Found) -> list[Section]:
    """Return the sections of the standard window that have something to say. Pure."""
    blocks = {
        "memory": [_remembered(record) for record in found.memories],
        "retrieval": [f"[{passage.id}] {passage.text}" for passage in found.passages],
        "summaries": list(request.summaries),
    }
    mark = mark_for(request.run_id, [text for texts in blocks.values() for text in texts])
    sections = [
        _said("system", "system", config.system_prompt, priority=0, order=0),
        _said("goal", "user", request.goal, priority=1, order=4),
        _note(request),
        _tools(config, request),
        _instructions(config, found),
        *_history(config.history, request),
        _summaries(blocks["summaries"], mark),
        _retrieved(config, found, blocks["retrieval"], mark),
        _memories(config, found, blocks["memory"], mark),
    ]
    return [section for section in sections if section is not None and section.items]


def _said(id: str, role: Any, text: str, *, priority: float, order: float) -> Section:
    item = Item(id=id, message=Message(role=role, content=text))
    return Section(id=id, priority=priority, order=order, pinned=True, items=[item])


def _note(request: AssemblyRequest) -> Section | None:
    return _said("note", "system", request.note, priority=1.5, order=7) if request.note else None


def _tools(config: ContextConfig, request: AssemblyRequest) -> Section | None:
    if not config.include_tool_schemas or request.native_tools:
        return None
    return Section(
        id="tools",
        priority=2,
        order=1,
        pinned=True,
        items=[
            _text_item(f"tool:{tool.name}", _described(tool, config.render_bounds)) for tool in request.tools
        ],
        block=Block(header="Tools you may call:", separator="\n"),
    )


def _described(tool: ToolSpec, bounds: bool) -> str:
    return f"- {tool.name}{render_schema(tool.schema, bounds=bounds)}\n  {tool.description}"


def _instructions(config: ContextConfig, found: Found) -> Section | None:
    if config.memory is None:
        return None
    return Section(
        id="instructions",
        priority=2.5,
        order=1.5,
        pinned=config.memory.pin_instructions,
        items=[_text_item(_memory_item_id(record), record.text) for record in found.standing],
        block=Block(header=config.memory.instructions_header),
        elision_note=_left_out("standing instructions"),
    )


def _history(options: HistoryOptions, request: AssemblyRequest) -> list[Section]:
    past = request.transcript[1:]
    split = _split(past, options.recent_messages)
    return [
        Section(
            id="history.recent",
            priority=3,
            order=6,
            overflow="truncate",
            fill="last",
            items=[
                Item(id=f"recent:{number}", message=message) for number, message in enumerate(past[split:])
            ],
            elision_note=_left_out("recent messages"),
            cut_marker=options.cut_marker,
        ),
        Section(
            id="history.older",
            priority=6,
            order=5,
            max_share=options.older_max_share,
            fill="last",
            items=[
                Item(id=f"older:{number}", message=message) for number, message in enumerate(past[:split])
            ],
            elision_note=_left_out("earlier messages"),
        ),
    ]


def _split(past: Sequence[Message], recent: int) -> int:
    """Return where the recent messages begin: a call and its answers stay on one side."""
    split = max(0, len(past) - recent)
    for group in reversed(groups_of(past)):
        if group[0] < split <= group[-1]:
            split = group[0]
    return split


def _summaries(texts: Sequence[str], mark: str) -> Section:
    return Section(
        id="summaries",
        priority=3.5,
        order=4.5,
        overflow="truncate",
        fill="last",
        items=[_text_item(f"summary:{number}", text) for number, text in enumerate(texts)],
        block=data_block("Summary of what was done earlier:", mark),
        elision_note=_left_out("earlier summaries"),
    )


def _retrieved(config: ContextConfig, found: Found, texts: Sequence[str], mark: str) -> Section | None:
    options = config.retrieval
    if options is None:
        return None
    return Section(
        id="retrieval",
        priority=4,
        order=3,
        max_share=options.max_share,
        min_tokens=options.min_tokens,
        items=[
            _text_item(f"doc:{passage.id}", text, passage.score)
            for passage, text in zip(found.passages, texts, strict=True)
        ],
        block=Block(header=options.header) if options.trusted else data_block(options.header, mark),
        elision_note=_left_out("lower-ranked results"),
    )


def _memories(config: ContextConfig, found: Found, texts: Sequence[str], mark: str) -> Section | None:
    options = config.memory
    if options is None:
        return None
    return Section(
        id="memory",
        priority=5,
        order=2,
        max_share=options.max_share,
        min_tokens=options.min_tokens,
        items=[
            _text_item(_memory_item_id(record), text)
            for record, text in zip(found.memories, texts, strict=True)
        ],
        block=data_block(options.header, mark),
        elision_note=_left_out("memory items"),
    )


def _remembered(record: MemoryRecord) -> str:
    by = f"{record.trust}, {record.source}" if record.source else record.trust
    return f"({record.kind}, by {by}) {record.text}"


def _memory_item_id(record: MemoryRecord) -> str:
    return f"memory:{record.id}"


def _text_item(id: str, text: str, score: float | None = None) -> Item:
    return Item(id=id, message=Message(role="user", content=text), score=score)


def _left_out(what: str) -> Callable[[int], str]:
    return lambda count: f"({count} {what} left out)"
