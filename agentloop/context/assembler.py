"""The standard window: who the model is, its goal and tools, what is known, what happened so far.

What is looked up (passages, memories) comes from outside and is awaited; everything after that
is the packer's arithmetic. Texts of others stand between marks, as data.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from agentloop._canonical import Json, encode_text
from agentloop.context.boundaries import data_block, mark_for
from agentloop.context.memory import GIVES_INSTRUCTIONS, MemoryQuery, MemoryRecord, MemoryStore
from agentloop.context.packer import ContextBudget, Packed, pack
from agentloop.context.retrieval import Passage, Retriever
from agentloop.context.sections import Block, Item, Section, groups_of
from agentloop.context.tokens import PIECEWISE, CountedTexts, Tokenizer
from agentloop.errors import AgentLoopConfigError, ClassifiedError
from agentloop.messages import Message
from agentloop.outcome import Err
from agentloop.ports import AssemblyRequest, Context, ToolSpec
from agentloop.schemas import render_schema

__all__ = (
    "ContextAssembler",
    "ContextConfig",
    "Found",
    "HistoryOptions",
    "MemoryOptions",
    "RetrievalOptions",
    "create_assembler",
    "default_query",
    "standard_sections",
)

QueryOf = Callable[[AssemblyRequest], str]
SectionsOf = Callable[[AssemblyRequest], Sequence[Section] | Awaitable[Sequence[Section]]]

#: Standing instructions that are looked at for one window.
_INSTRUCTIONS: Final = 64


def default_query(request: AssemblyRequest) -> str:
    """Return what is looked for by default: the goal, and the last message if it says more."""
    said = [message for message in request.transcript if message.role != "system"]
    if not said or said[-1].content in ("", request.goal):
        return request.goal
    return f"{request.goal}\n{said[-1].content}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """What is recalled for every window."""

    #: Where from.
    store: MemoryStore
    #: Records at most, instructions not counted.
    limit: int = 8
    #: As of a `Section`.
    max_share: float = 0.15
    #: As of a `Section`.
    min_tokens: int = 0
    #: From a request to the words that are looked for.
    query: QueryOf = default_query
    #: Stands above them.
    header: str = "What you already know:"
    #: Instructions of this salience or more stand in a section of their own, whatever is asked.
    standing_salience: float = 0.8
    #: Rather no window than one without them.
    pin_instructions: bool = False
    #: Stands above those.
    instructions_header: str = "Standing instructions:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOptions:
    """What is looked up for every window."""

    #: Where from.
    retriever: Retriever
    #: Passages at most.
    k: int = 6
    #: As of a `Section`.
    max_share: float = 0.35
    #: As of a `Section`.
    min_tokens: int = 0
    #: From a request to the words that are looked for.
    query: QueryOf = default_query
    #: Stands above them.
    header: str = "Retrieved context:"
    #: The documents are the developer's own: shown as the system's words, without marks.
    trusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """How what happened so far is shown."""

    #: Messages that go before everything else that is not pinned.
    recent_messages: int = 4
    #: Of the room left, for those before them.
    older_max_share: float = 0.4
    #: Stands where a message was cut.
    cut_marker: str = " [cut]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextConfig:
    """Everything that can be said about the standard window.

    Raises:
        AgentLoopConfigError: A number that cannot be.
    """

    #: How much there is to fill.
    budget: ContextBudget
    #: Who the model is and how it works; always shown whole.
    system_prompt: str
    #: What texts cost.
    tokenizer: Tokenizer = PIECEWISE
    #: What is recalled; None for nothing.
    memory: MemoryOptions | None = None
    #: What is looked up; None for nothing.
    retrieval: RetrievalOptions | None = None
    #: How the past is shown.
    history: HistoryOptions = field(default_factory=HistoryOptions)
    #: Describe the tools in the window, unless the provider sends them by itself.
    include_tool_schemas: bool = True
    #: Further sections for a request; may be async.
    extra_sections: SectionsOf | None = None
    #: Show the bounds of arguments with the tools, as ``integer 1..50``.
    render_bounds: bool = False

    def __post_init__(self) -> None:
        counts = {"history.recent_messages": self.history.recent_messages}
        if self.memory is not None:
            counts["memory.limit"] = self.memory.limit
        if self.retrieval is not None:
            counts["retrieval.k"] = self.retrieval.k
        for name, value in counts.items():
            if value < 0:
                raise AgentLoopConfigError(f"{name} must be 0 or more, not {value!r}")


def create_assembler(config: ContextConfig) -> ContextAssembler:
    """Return the standard assembler; it may serve any number of runs, one after another."""
    return ContextAssembler(config)


class ContextAssembler:
    """Makes windows as its config says. Costs of texts are kept from one window to the next."""

    __slots__ = ("_counts", "config")

    def __init__(self, config: ContextConfig) -> None:
        self.config = config
        self._counts = CountedTexts(config.tokenizer)

    async def assemble(self, request: AssemblyRequest, /) -> Context:
        """Return the window for a request.

        Raises:
            ClassifiedError: It does not fit, or a section is unusable; source ``context``.
                What a retriever or a memory raises is passed on.
        """
        found = await self._look_up(request)
        sections = [*standard_sections(self.config, request, found), *await self._extra(request)]
        native = self._native_tokens(request)
        answer = pack(sections, self._budget(request, native), self._counts)
        if isinstance(answer, Err):
            raise ClassifiedError(msgspec.structs.replace(answer.error, source="context"))
        return self._context(answer.value, found, native)

    async def _look_up(self, request: AssemblyRequest) -> Found:
        memory, retrieval = self.config.memory, self.config.retrieval
        standing: list[MemoryRecord] = []
        memories: list[MemoryRecord] = []
        passages: Sequence[Passage] = ()
        if memory is not None:
            standing = await _standing(memory)
            shown = {record.id for record in standing}
            query = MemoryQuery(text=memory.query(request), limit=memory.limit + len(shown))
            memories = [record for record in await memory.store.recall(query) if record.id not in shown]
        if retrieval is not None:
            passages = await retrieval.retriever.retrieve(retrieval.query(request), limit=retrieval.k)
        most = 0 if memory is None else memory.limit
        return Found(standing=standing, memories=memories[:most], passages=passages)

    async def _extra(self, request: AssemblyRequest) -> Sequence[Section]:
        if self.config.extra_sections is None:
            return ()
        given = self.config.extra_sections(request)
        return await given if inspect.isawaitable(given) else given

    def _native_tokens(self, request: AssemblyRequest) -> int:
        """Return what the tools cost that the provider sends by itself."""
        if not request.native_tools or not request.tools:
            return 0
        schemas = [{"name": t.name, "description": t.description, "schema": t.schema} for t in request.tools]
        return self._counts.text(encode_text(schemas))

    def _budget(self, request: AssemblyRequest, native: int) -> ContextBudget:
        budget = self.config.budget
        return replace(
            budget,
            reserve_for_output=budget.reserve_for_output + native,
            shrink=budget.shrink * request.shrink,
        )

    def _context(self, packed: Packed, found: Found, native: int) -> Context:
        report = packed.report.to_json()
        report["reserveForOutput"] = self.config.budget.reserve_for_output
        report["notes"] = self._notes(found, native)
        return Context(
            messages=packed.messages,
            tokens=packed.tokens + native,
            report=report,
            max_output_tokens=self.config.budget.reserve_for_output or None,
            retrieval_ids=found.shown(packed),
        )

    def _notes(self, found: Found, native: int) -> dict[str, Json]:
        notes: dict[str, Json] = {}
        if native:
            notes["nativeToolTokens"] = native
        if self.config.retrieval is not None:
            notes["retriever"] = self.config.retrieval.retriever.name
            notes["scores"] = {passage.id: passage.score for passage in found.passages}
        if self.config.memory is not None:
            notes["memory"] = self.config.memory.store.name
        return notes


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


async def _standing(options: MemoryOptions) -> list[MemoryRecord]:
    """Return the instructions that are shown whatever is asked."""
    query = MemoryQuery(kinds=("instruction",), limit=_INSTRUCTIONS)
    return [
        record
        for record in await options.store.recall(query)
        if (record.salience or 0) >= options.standing_salience and record.trust in GIVES_INSTRUCTIONS
    ]


# -------------------------------------------------------------------------------- sections


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
