"""What can be said about the standard window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from agentloop._numbers import check_count, check_share
from agentloop.context.memory import MemoryStore
from agentloop.context.packer import ContextBudget
from agentloop.context.retrieval import Retriever
from agentloop.context.sections import Section
from agentloop.context.tokens import PIECEWISE, Tokenizer
from agentloop.ports import AssemblyRequest

__all__ = ("ContextConfig", "HistoryOptions", "MemoryOptions", "RetrievalOptions", "default_query")

QueryOf = Callable[[AssemblyRequest], str]
SectionsOf = Callable[[AssemblyRequest], Sequence[Section] | Awaitable[Sequence[Section]]]


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

    def __post_init__(self) -> None:
        check_count("memory.limit", self.limit, 0)
        check_share("memory.max_share", self.max_share)
        check_count("memory.min_tokens", self.min_tokens, 0)
        check_share("memory.standing_salience", self.standing_salience)


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

    def __post_init__(self) -> None:
        check_count("retrieval.k", self.k, 0)
        check_share("retrieval.max_share", self.max_share)
        check_count("retrieval.min_tokens", self.min_tokens, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """How what happened so far is shown."""

    #: Messages that go before everything else that is not pinned.
    recent_messages: int = 4
    #: Of the room left, for those before them.
    older_max_share: float = 0.4
    #: Stands where a message was cut.
    cut_marker: str = " [cut]"

    def __post_init__(self) -> None:
        check_count("history.recent_messages", self.recent_messages, 0)
        check_share("history.older_max_share", self.older_max_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextConfig:
    """Everything that can be said about the standard window."""

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
    #: With a tokenizer that is not exact: keep back less, window by window, as the costs that the
    #: provider reports show that its counts are not too low; in runs of the orchestrator.
    calibrate: bool = False
