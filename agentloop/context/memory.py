"""What is known from earlier: the port, its rules of trust, and a store in the process.

A text keeps the trust of who wrote it. Only a developer or a person gives instructions; what a
model or a tool has said comes back as data, however often it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from agentloop._numbers import check_count, check_share
from agentloop.context.bm25 import Bm25Index, Document
from agentloop.context.words import WordRule

__all__ = (
    "GIVES_INSTRUCTIONS",
    "TRUST_LEVELS",
    "InProcessMemory",
    "MemoryKind",
    "MemoryQuery",
    "MemoryRecord",
    "MemoryStore",
    "Trust",
    "lowest_trust",
    "settled",
)

MemoryKind: TypeAlias = Literal["fact", "episode", "instruction"]
#: Who wrote something, the most trusted first.
Trust: TypeAlias = Literal["developer", "person", "model", "tool", "import"]
TRUST_LEVELS: Final[tuple[Trust, ...]] = get_args(Trust)
#: Whose instructions are instructions.
GIVES_INSTRUCTIONS: Final = frozenset[Trust]({"developer", "person"})


class MemoryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is remembered.

    Raises:
        ValueError: An instruction that its writer may not give, or a salience outside 0..1.
    """

    #: Unique within a store.
    id: str
    #: What is remembered.
    text: str
    #: What is so, what happened, or what is to be done.
    kind: MemoryKind = "fact"
    #: Milliseconds since 1970.
    created_at: int = 0
    #: 0..1: how much it matters.
    salience: float | None = None
    #: What it may be filtered by.
    tags: tuple[str, ...] = ()
    #: Whatever else is to be kept, as JSON; not shown.
    metadata: Mapping[str, Any] = {}
    #: Of who wrote the text, not of who passes it on.
    trust: Trust = "model"
    #: Where it came from, as ``run:01J…``; shown with it.
    source: str = ""
    #: Ids of records it was made from: it is trusted no more than any of them.
    derived_from: tuple[str, ...] = ()
    #: What feedback about it is given to; its id if None.
    retrieval_id: str | None = None

    def __post_init__(self) -> None:
        if self.kind == "instruction" and self.trust not in GIVES_INSTRUCTIONS:
            raise ValueError(
                f"memory {self.id!r}: a {self.trust} may not give instructions, only facts and episodes"
            )
        check_share(f"memory {self.id!r}: salience", self.salience, optional=True)
        check_count(f"memory {self.id!r}: created_at", self.created_at, 0)


class MemoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for."""

    #: Its words; None or blank asks for what matters most.
    text: str | None = None
    #: Only of these kinds; None for all.
    kinds: tuple[MemoryKind, ...] | None = None
    #: Only with at least one of these tags; none filters nothing.
    tags: tuple[str, ...] = ()
    limit: int = 8

    def __post_init__(self) -> None:
        check_count("limit", self.limit, 0)


class MemoryStore(Protocol):
    """Keeps records. Nothing is ever written unless somebody calls `remember`."""

    @property
    def name(self) -> str:
        """Which one this is: recorded with every window."""

    async def remember(self, record: MemoryRecord, /) -> MemoryRecord:
        """Keep a record, in place of one with its id, and return it as it is kept; see `settled`.

        Raises:
            ValueError: Trust forbids it; nothing was changed.
        """

    async def recall(self, query: MemoryQuery, /) -> Sequence[MemoryRecord]:
        """Return what matches, best first. Words that nothing has find nothing.

        By words, then salience, then newest, then id; without words by the latter three. A store
        that learns may have an order of its own, and show besides what it finds relevant.
        """

    async def all(self) -> Sequence[MemoryRecord]:
        """Return every record, by id."""


def lowest_trust(levels: Iterable[Trust]) -> Trust:
    """Return the least trusted of some levels; ``import`` of none."""
    return max(levels, key=TRUST_LEVELS.index, default="import")


def settled(record: MemoryRecord, known: Callable[[str], MemoryRecord | None]) -> MemoryRecord:
    """Return a record with the trust it deserves.

    Args:
        record: As somebody wants it kept.
        known: Finds what is kept by id. A source that is not there counts as imported.

    Raises:
        ValueError: It would replace what somebody more trusted has written, or is an
            instruction that was made from a text of somebody who gives none.
    """
    trust = record.trust
    if record.derived_from:
        sources = [known(source) for source in record.derived_from]
        trust = lowest_trust([trust, *("import" if source is None else source.trust for source in sources)])
    old = known(record.id)
    if old is not None and TRUST_LEVELS.index(trust) > TRUST_LEVELS.index(old.trust):
        raise ValueError(f"memory {record.id!r} was written by a {old.trust}: a {trust} may not replace it")
    return record if trust == record.trust else msgspec.structs.replace(record, trust=trust)


def by_weight(record: MemoryRecord) -> tuple[float, int, str]:
    """Return what orders records that match equally well."""
    return -(record.salience or 0.0), -record.created_at, record.id


def is_met(query: MemoryQuery, record: MemoryRecord) -> bool:
    """Return whether a record has a kind and a tag that are asked for."""
    if query.kinds is not None and record.kind not in query.kinds:
        return False
    return not query.tags or not set(query.tags).isdisjoint(record.tags)


def ranked(
    records: Iterable[MemoryRecord], query: MemoryQuery, *, words: WordRule | None = None
) -> list[MemoryRecord]:
    """Return the best of some records that meet a query's kinds and tags."""
    if not (query.text and query.text.strip()):
        return nsmallest(query.limit, records, key=by_weight)
    index, found = Bm25Index(words=words), dict[str, MemoryRecord]()
    for record in records:
        found[record.id] = record
        index.add(Document(record.id, record.text))
    return _best(index, query, found)


def _best(index: Bm25Index, query: MemoryQuery, records: Mapping[str, MemoryRecord]) -> list[MemoryRecord]:
    passages = index.search(
        query.text or "", query.limit, tie=lambda document: by_weight(records[document.id])
    )
    return [records[passage.id] for passage in passages]


class InProcessMemory:
    """Records in memory, found by the next query."""

    __slots__ = ("_index", "_records", "_words")

    name = "in-process"

    def __init__(self, *, words: WordRule | None = None) -> None:
        self._records: dict[str, MemoryRecord] = {}
        self._words = words
        self._index = Bm25Index(words=words)

    async def remember(self, record: MemoryRecord, /) -> MemoryRecord:
        kept = settled(record, self._records.get)
        self._records[kept.id] = kept
        self._index.add(Document(kept.id, kept.text))
        return kept

    async def recall(self, query: MemoryQuery, /) -> list[MemoryRecord]:
        if query.kinds is None and not query.tags and query.text and query.text.strip():
            return _best(self._index, query, self._records)
        return ranked(
            [record for record in self._records.values() if is_met(query, record)], query, words=self._words
        )

    async def all(self) -> list[MemoryRecord]:
        return [self._records[key] for key in sorted(self._records)]
