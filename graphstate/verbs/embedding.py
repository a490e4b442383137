"""Vectors of nodes: made when a node is remembered, compared, and made again for another model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphstate._canonical import Json, decode
from graphstate.activation.embedding import Embedder, EmbedderError, aembed, embed, node_text
from graphstate.errors import ErrorCode, VerbFailed
from graphstate.events import GRAPH, Draft
from graphstate.model import Node, Reembedded
from graphstate.results import Fail, Ok, Result
from graphstate.similarity import packed, to_text, unpacked
from graphstate.store import Store
from graphstate.store.vectors import GIVEN, Space
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.verb import Verbs, checked_cause, query, verb

__all__ = (
    "Embedding", "awaited_vector", "copied_vector", "outdated", "query_vector", "remembered_vector", "space_of", "vectors_of",
)  # fmt: skip

#: Bytes of vectors in one event; with their ids and base64 they stay below its limit.
_EVENT_BYTES = 500_000
_MAX_BATCH = 1_000


def space_of(embedder: Embedder) -> Space:
    """Return the space that an embedder's vectors are of."""
    told = embedder.descriptor()
    return Space(told.provider, told.model, told.dimensions, told.version)


def vectors_of(embedder: Embedder, texts: Sequence[str]) -> list[list[float]]:
    """Return checked vectors of some texts.

    Raises:
        VerbFailed: EmbedderFailed, whatever the embedder raised.
    """
    try:
        return embed(embedder, texts)
    except EmbedderError as error:
        refuse(str(error), ErrorCode.EMBEDDER_FAILED)
    except Exception as error:  # a model may fail in ways of its own; none of them is a bug here
        refuse(
            f"the embedder {embedder.descriptor().provider!r} failed with {type(error).__name__}: {error}",
            ErrorCode.EMBEDDER_FAILED,
        )


def query_vector(graph: Verbs, text: str | None, vector: Sequence[float] | None) -> list[float]:
    """Return the vector to search with: the one given, or that of a text. It fits the graph's vectors.

    Raises:
        VerbFailed: InvalidInput, EmbedderFailed or EmbeddingMismatch, also while vectors wait to be
            made again.
    """
    if (text is None) == (vector is None):
        refuse("give either a text or a vector")
    if vector is None:
        embedder = _embedder(graph, "searching by meaning")
        _refuse_other_model(graph.store, space_of(embedder))
        (found,) = vectors_of(embedder, [arguments.text(text, "text", arguments.MAX_SEARCH)])
    else:
        found = arguments.embedding(vector)
        _refuse_length(graph, len(found))
    _refuse_waiting(graph.store)
    return found


async def awaited_vector(graph: Verbs, text: str) -> list[float]:
    """Return the vector of a text from an embedder that may have to be awaited.

    Raises:
        EmbedderError: The embedder failed.
        VerbFailed: InvalidInput, or EmbeddingMismatch before the embedder is asked.
    """
    embedder = _embedder(graph, "searching by meaning")
    _refuse_other_model(graph.store, space_of(embedder))
    (found,) = await aembed(embedder, [arguments.text(text, "text", arguments.MAX_SEARCH)])
    return found


def remembered_vector(
    graph: Verbs, node: Node, old: Node | None, vector: Sequence[float] | None, wanted: bool | None
) -> tuple[list[Draft], dict[str, Json], tuple[float, ...] | None]:
    """Decide about the vector of a node that is being remembered.

    Args:
        node: The node as it will be, its vector aside.
        vector: The one that was given.
        wanted: Make it from the text; None does so if the graph has an embedder.

    Returns:
        Events that must come before, what the node's event says, and the vector as it is kept.
    """
    before = old.embedding if old is not None else None
    if vector is not None:
        told = arguments.embedding(vector)
        _refuse_length(graph, len(told))
    elif wanted or (wanted is None and graph.embedder is not None):
        embedder = _embedder(graph, "embed=True")
        _refuse_other_model(graph.store, space_of(embedder))
        text = node_text(node.id, node.label, node.payload)
        if old is not None and before and text == node_text(old.id, old.label, old.payload):
            return [], {}, before
        (told,) = vectors_of(embedder, [text])
    else:
        if old is None or outdated(graph.store, old, node):
            return [], {"embedding": None}, None
        return [], {}, before
    drafts: list[Draft] = []
    space = graph.store.projection.vectors.space()
    if space is None and graph.embedder is not None:
        space = space_of(graph.embedder)
        drafts.append(_settled(space))
    return drafts, _told(told, space), unpacked(packed(told))


def outdated(store: Store, old: Node, new: Node) -> bool:
    """Say whether a model made the vector of a node from another text than it now has."""
    space = store.projection.vectors.space()
    if old.embedding is None or space is None or space.provider == GIVEN:
        return False
    return node_text(old.id, old.label, old.payload) != node_text(new.id, new.label, new.payload)


def copied_vector(store: Store, vector: Sequence[float] | None) -> dict[str, Json]:
    """Return what an event says about a vector that another node already has."""
    return {"embedding": None} if vector is None else _told(vector, store.projection.vectors.space())


def _told(vector: Sequence[float], space: Space | None) -> dict[str, Json]:
    body: dict[str, Json] = {"embedding": to_text(packed(vector))}
    return body if space is None or space.provider == GIVEN else {**body, "model": str(space)}


def _settled(space: Space) -> Draft:
    return Draft("memory.embedder_set", dict(space._asdict()))


def _embedder(graph: Verbs, why: str) -> Embedder:
    if graph.embedder is None:
        refuse(
            f"{why} needs an embedder, and the graph was opened without one",
            hint="pass embedder= to Adaptogen.open, such as embedder='hashing'",
        )
    return graph.embedder


def _refuse_other_model(store: Store, wanted: Space) -> None:
    space = store.projection.vectors.space()
    if space is not None and space != wanted:
        refuse(
            f"the vectors of this graph are of {space}, the embedder makes {wanted}",
            ErrorCode.EMBEDDING_MISMATCH,
            stored=str(space),
            embedder=str(wanted),
        )


def _refuse_length(graph: Verbs, length: int) -> None:
    space = graph.store.projection.vectors.space()
    if space is None and graph.embedder is not None:
        space = space_of(graph.embedder)
    if space is not None and length != space.dimensions:
        refuse(
            f"embedding has {length} numbers, the vectors of this graph have {space.dimensions} ({space})",
            ErrorCode.EMBEDDING_MISMATCH,
            stored=str(space),
            given=length,
        )


def _refuse_waiting(store: Store) -> None:
    if store.projection.vectors.waiting():
        _, waiting = store.projection.vectors.counts()
        refuse(
            f"{waiting} vectors are to be made again for {store.projection.vectors.space()}",
            ErrorCode.EMBEDDING_MISMATCH,
            hint="run reembed; it goes on where it was interrupted",
            waiting=waiting,
        )


class Embedding(Verbs):
    """reembed."""

    __slots__ = ()

    def reembed(
        self: Verbs,
        *,
        missing: bool = True,
        batch: int = 64,
        limit: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Reembedded]:
        """Make the vectors of all nodes that have none of the graph's embedder, and say how many.

        If the vectors are of another model they are emptied first; until all are made again a
        search by vector fails. Each batch is a transaction of its own, so that what is
        interrupted goes on where it was. The model works outside of transactions, and a node
        that is changed meanwhile keeps what its own change gave it.

        Args:
            missing: Nodes that never had a vector too; False makes only those that had one.
            batch: Texts the embedder is given at once, 1 to 1,000.
            limit: Stop after so many nodes.
            progress: Called with how many are done and how many there are, after each batch.
        """
        try:
            embedder = _embedder(self, "reembed")
            size = arguments.whole(batch, "batch", least=1, most=_MAX_BATCH)
            most = None if limit is None else arguments.whole(limit, "limit", least=0, most=2**53)
            arguments.function(progress, "progress")
            work = _Reembedding(self, embedder, bool(missing), actor)
            done = 0 if cause is not None and work.is_repeated(cause) else work.run(size, most, progress)
            return work._reembed(done, actor=actor, cause=cause)
        except VerbFailed as error:
            return Fail(error.code, error.message, error.details)

    reembed.__dict__["verb"] = "changes"


class _Reembedding(Verbs):
    # The transactions of one call of reembed; the model works between them.
    __slots__ = ("_by", "_missing", "_model", "_space")

    def __init__(self, graph: Verbs, embedder: Embedder, missing: bool, actor: str | None) -> None:
        super().__init__(graph.store, actor=graph.actor, trust=graph.trust, embedder=embedder)
        self._model, self._missing, self._by = embedder, missing, actor
        self._space = space_of(embedder)

    @query
    def is_repeated(self, cause: str) -> bool:
        return self.store.log.first_result(GRAPH, checked_cause(cause)) is not None

    def run(self, batch: int, limit: int | None, progress: Callable[[int, int], object] | None) -> int:
        self._settle(actor=self._by).unwrap()
        total, done, after = self._left(), 0, 0
        total = total if limit is None else min(total, limit)
        while done < total and (rows := self._next(after, min(batch, total - done))):
            after, done = rows[-1][3], done + len(rows)
            texts = [node_text(name, label, decode(payload)) for name, label, payload, _ in rows]
            vectors = map(packed, vectors_of(self._model, texts))
            made = {row[0]: (vector, row[1:3]) for row, vector in zip(rows, vectors, strict=True)}
            self._keep(made, actor=self._by).unwrap()
            if progress is not None:
                progress(done, total)
        return done

    @verb
    def _settle(self, *, actor: str | None) -> Result[bool]:
        if self.store.projection.vectors.space() != self._space:
            self.record(_settled(self._space), actor=actor)
        return Ok(True)

    @query
    def _left(self) -> int:
        return self.store.projection.vectors.todo_count(missing=self._missing)

    @query
    def _next(self, after: int, limit: int) -> list[tuple[str, str, str, int]]:
        return self.store.projection.vectors.todo(missing=self._missing, after=after, limit=limit)

    @verb
    def _keep(self, made: Mapping[str, tuple[bytes, tuple[str, str]]], *, actor: str | None) -> Result[bool]:
        vectors = self.store.projection.vectors
        if vectors.space() != self._space:
            refuse(f"the graph's vectors became ones of {vectors.space()} meanwhile", ErrorCode.CONFLICT)
        names = vectors.unchanged({name: read for name, (_, read) in made.items()})
        at_once = max(1, _EVENT_BYTES // (4 * self._space.dimensions))
        for start in range(0, len(names), at_once):
            told: dict[str, Json] = {name: to_text(made[name][0]) for name in names[start : start + at_once]}
            body = {"model": str(self._space), "vectors": told}
            self.record(Draft("memory.embedded", body), actor=actor)
        return Ok(True)

    @verb
    def _reembed(self, done: int, *, actor: str | None, cause: str | None) -> Result[Reembedded]:
        return Ok(Reembedded(embedded=done, left=self._left(), model=str(self._space)))
