"""The standard assembler: it looks up what could be shown, and lets the packer decide what is.

What is looked up (passages, memories) comes from outside and is awaited; everything after that
is arithmetic.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from agentloop._canonical import Json, encode_text
from agentloop.context.config import ContextConfig, MemoryOptions
from agentloop.context.memory import GIVES_INSTRUCTIONS, MemoryQuery, MemoryRecord
from agentloop.context.packer import ContextBudget, Packed, pack
from agentloop.context.retrieval import Passage
from agentloop.context.sections import Section
from agentloop.context.standard import Found, standard_sections
from agentloop.context.tokens import CountedTexts
from agentloop.errors import ClassifiedError
from agentloop.outcome import Err
from agentloop.ports import AssemblyRequest, Context

__all__ = ("ContextAssembler", "create_assembler")

#: Standing instructions that are looked at for one window.
_INSTRUCTIONS: Final = 64


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
        if self.config.calibrate:
            margin = request.estimates.margin(budget.margin(self.config.tokenizer))
            budget = replace(budget, safety_margin=margin)
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


async def _standing(options: MemoryOptions) -> list[MemoryRecord]:
    """Return the instructions that are shown whatever is asked."""
    query = MemoryQuery(kinds=("instruction",), limit=_INSTRUCTIONS)
    return [
        record
        for record in await options.store.recall(query)
        if (record.salience or 0) >= options.standing_salience and record.trust in GIVES_INSTRUCTIONS
    ]
