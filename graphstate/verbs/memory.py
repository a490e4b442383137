"""Memory: nodes that hold what is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import structs

from graphstate._canonical import Json, decode
from graphstate.errors import ErrorCode
from graphstate.events import Draft, is_valid_id
from graphstate.model import Node, Status, Trust
from graphstate.policy import TRUST, lowest
from graphstate.results import Ok, Result
from graphstate.similarity import cosine
from graphstate.store import Store
from graphstate.store.words import indexed, node_words, words
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.embedding import query_vector, remembered_vector
from graphstate.verbs.provenance import provenance
from graphstate.verbs.verb import Verbs, catches_up_text, query, verb

__all__ = ("KEEP", "Keep", "Memory", "expect", "known")

#: How little one place more or less counts; 60 is the usual choice.
_FUSION = 60

STATUSES = ("active", "archived", "deprecated")


class Keep:
    """The type of `KEEP`: what is not given stays as it is."""

    def __repr__(self) -> str:
        return "KEEP"


#: Stands for "leave this as it is" where None is a value of its own.
KEEP = Keep()


def merge_patch(target: Json, patch: Json) -> Json:
    """Apply a JSON merge patch (RFC 7396): null removes a key, objects merge, the rest replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def expect(version: object, current: int, what: str) -> None:
    """Fail with Conflict unless a version is the current one; None accepts any."""
    if version is not None and arguments.whole(version, "expect_version", least=0, most=2**53) != current:
        refuse(f"{what} is at version {current}, not at {version}", ErrorCode.CONFLICT, current=current)


def known(store: Store, id: object, what: str = "node") -> str:
    """Return an id that names a node, or fail with NotFound."""
    clean = arguments.identifier(id, f"{what} id")
    if store.projection.status(clean) is None:
        refuse(f"there is no node {clean!r}", ErrorCode.NOT_FOUND)
    return clean


class Memory(Verbs):
    """remember, recall and the life of a node."""

    __slots__ = ()

    @verb
    def remember(
        self,
        id: str,
        *,
        kind: str | None = None,
        label: str | None = None,
        payload: Json | Keep = KEEP,
        patch: Mapping[str, Json] | None = None,
        tags: Sequence[str] | None = None,
        status: Status | None = None,
        embedding: Sequence[float] | None = None,
        embed: bool | None = None,
        memory: Mapping[str, Json] | None = None,
        expect_version: int | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Node]:
        """Create a node or change it, and return it as it is now.

        Whatever is not given keeps its value, the payload too; an archived node stays
        archived unless ``status`` is given.

        Args:
            payload: Replaces the payload; None is ``{}``.
            patch: Changes the payload instead: null removes a key, objects merge.
            embedding: Its vector, kept in 32 bits: as long as the others of the graph.
            embed: Make the vector from label and payload, if these changed; None does so if the
                graph was opened with an embedder.
            memory: What is known of where it comes from: any of memory_class (episodic, semantic,
                procedural, entity; None as its kind), confidence (0 to 1), source, observed_at
                (ms), derived_from, supersedes, contradicts. What is not given stays, None takes
                it away. A node derived from others is trusted no more than the least of them.
            expect_version: Fail with Conflict unless the node is at this version; 0 means
                that it must not exist.
        """
        known_id = arguments.identifier(id)
        old = self.store.projection.node(known_id)
        current = old.version if old else 0
        expect(expect_version, current, f"node {known_id!r}")
        base = old or Node(id=known_id, label=known_id)
        value = base.payload if isinstance(payload, Keep) else {} if payload is None else payload
        if patch is not None:
            arguments.json_bytes(patch, "patch")
            if not isinstance(payload, Keep) or not isinstance(patch, Mapping):
                refuse("patch must be an object, and given without payload")
            value = merge_patch(value, patch)
        if value is not base.payload:
            value = _stored_form(self.store, value)
        body: dict[str, Any] = {
            "id": known_id,
            "kind": base.kind if kind is None else arguments.name(kind, "kind"),
            "label": base.label if label is None else arguments.text(label, "label", arguments.MAX_LABEL),
            "payload": value,
            "tags": list(base.tags) if tags is None else arguments.tags(tags),
            "status": base.status if status is None else arguments.choice(status, "status", STATUSES),
        }
        if memory is not None:
            body["memory"] = provenance(base.memory, memory)
        if patch is not None and base.trust != TRUST[0]:
            body["trust"] = base.trust  # what is not patched is still somebody else's
        node = Node(
            id=known_id, kind=body["kind"], label=body["label"], payload=value, tags=tuple(body["tags"]),
            status=body["status"],
        )  # fmt: skip
        before, about_vector, vector = remembered_vector(self, node, old, embedding, embed)
        row = self.record(*before, Draft("NodeUpserted", body | about_vector), actor=actor, cause=cause)[-1]
        if old is not None or memory is not None:
            return Ok(_present(self.store, known_id))
        return Ok(
            structs.replace(
                node, created_seq=row.seq, updated_seq=row.seq, created_at=row.at, updated_at=row.at,
                embedding=vector, trust=cast(Trust, lowest(row.trust)),
            )
        )  # fmt: skip

    @query
    def get_node(self, id: str) -> Node | None:
        """Return a node, None if there is none."""
        return self.store.projection.node(id) if is_valid_id(id) else None

    @verb
    def set_status(
        self, id: str, status: Status, *, actor: str | None = None, cause: str | None = None
    ) -> Result[Node]:
        """Set a node's status and return the node. Its version stays."""
        return _with_status(self, id, status, actor, cause)

    @verb
    def archive(self, id: str, *, actor: str | None = None, cause: str | None = None) -> Result[Node]:
        """Put a node aside: it is no target of moves, and not ready; recall finds it."""
        return _with_status(self, id, "archived", actor, cause)

    @verb
    def deprecate(self, id: str, *, actor: str | None = None, cause: str | None = None) -> Result[Node]:
        """Mark a node as superseded; otherwise as archive."""
        return _with_status(self, id, "deprecated", actor, cause)

    @catches_up_text
    @query
    def recall(
        self,
        *,
        id: str | None = None,
        kind: str | None = None,
        tag: str | None = None,
        status: Status | None = None,
        text: str | None = None,
        embedding: Sequence[float] | None = None,
        like: str | None = None,
        as_of: int | None = None,
        limit: int | None = None,
    ) -> list[Node]:
        """Return the nodes that meet every condition given.

        Args:
            text: Every word must occur, whole and in any case, in label, payload or tags;
                best match first. No character has a special meaning. Text without a word
                finds nothing.
            embedding: Nearest first, by cosine, among the nodes that meet the other conditions and
                have a vector. If none of them has one the condition is left out. Given with
                ``text`` both orders count alike: a node's score is the sum of 1 / (60 + its
                place) in each of them, the smaller id first of equals.
            like: The same with the vector that the graph's embedder makes of this text.
            as_of: Only what was valid at this moment (ms): observed, or else remembered, by then,
                and not yet superseded.
            limit: 1 to 1,000, default 50; 0 counts as 1. Without text and embedding the
                result is sorted by id.

        Raises:
            VerbFailed: InvalidInput; EmbeddingMismatch if the vector is not like those of the graph,
                or these wait to be made again; EmbedderFailed.
        """
        most = max(1, arguments.limit(limit, 50))
        wanted: dict[str, Any] = {
            "id": None if id is None else arguments.text(id, "id", arguments.MAX_NAME),
            "kind": None if kind is None else arguments.text(kind, "kind", arguments.MAX_NAME),
            "tag": None if tag is None else arguments.text(tag, "tag", arguments.MAX_NAME),
            "status": None if status is None else arguments.choice(status, "status", STATUSES),
            "as_of": None if as_of is None else arguments.whole(as_of, "as_of", least=-(2**53), most=2**53),
        }
        found = None if text is None else arguments.text(text, "text", arguments.MAX_SEARCH)
        if embedding is None and like is None:
            return list(_recalled(self.store, found, wanted, most))
        vector = query_vector(self, like, embedding)
        if found is not None:
            return _hybrid(self.store, list(_recalled(self.store, found, wanted, -1)), vector)[:most]
        return _nearest(self.store, vector, wanted, most) or list(_recalled(self.store, None, wanted, most))

    @query
    def fts_enabled(self) -> bool:
        """Say whether text recall uses the full-text index."""
        return self.store.full_text


def _stored_form(store: Store, value: Json) -> Json:
    """Return a payload as it will be read back: what is folded now is what a replay folds."""
    data, most = arguments.json_bytes(value, "payload"), store.projection.tunables()["maxPayloadBytes"]
    if len(data) > most:
        refuse(f"the payload has {len(data)} bytes, maxPayloadBytes is {most}", ErrorCode.PAYLOAD_TOO_LARGE)
    return decode(data)


def _with_status(graph: Verbs, id: str, status: str, actor: str | None, cause: str | None) -> Result[Node]:
    node_id = known(graph.store, id)
    body = {"id": node_id, "status": arguments.choice(status, "status", STATUSES)}
    graph.record(Draft("NodeStatusChanged", body), actor=actor, cause=cause)
    return Ok(_present(graph.store, node_id))


def _present(store: Store, id: str) -> Node:
    node = store.projection.node(id)
    assert node is not None
    return node


def _recalled(store: Store, text: str | None, wanted: dict[str, Any], limit: int) -> Iterator[Node]:
    if text is None:
        return store.projection.recall(**wanted, limit=limit)
    return _by_text(store, text, wanted, limit)


def _nearest(store: Store, vector: Sequence[float], wanted: dict[str, Any], most: int) -> list[Node]:
    filtered = any(value is not None for value in wanted.values())
    among = store.projection.numbers(**wanted) if filtered else None
    return store.projection.nodes(
        hit.id for hit in store.projection.vectors.search(vector, most, among=among)
    )


def _hybrid(store: Store, matching: Sequence[Node], vector: Sequence[float]) -> list[Node]:
    """Fuse two orders by reciprocal rank: neither scale need be comparable with the other."""
    near = {node.id: cosine(vector, node.embedding) for node in matching if node.embedding is not None}
    by_text = [node for node in matching if not near or node.id in near]
    if not near:
        return by_text
    score = {node.id: 1 / (_FUSION + place) for place, node in enumerate(by_text, 1)}
    for place, name in enumerate(sorted(near, key=lambda name: (-near[name], name)), 1):
        score[name] += 1 / (_FUSION + place)
    return sorted(by_text, key=lambda node: (-score[node.id], node.id))


def _by_text(store: Store, text: str, wanted: dict[str, Any], limit: int) -> Iterator[Node]:
    wanted_words = set(words(text))
    if not wanted_words:
        return iter(())
    if store.text_is_current():
        match = " ".join(f'"{indexed(word)}"' for word in sorted(wanted_words))
        return store.projection.recall(**wanted, limit=limit, match=match)
    return _scan(store, wanted_words, wanted, limit)


def _scan(store: Store, wanted_words: set[str], wanted: dict[str, Any], limit: int) -> Iterator[Node]:
    """Without the index: read the nodes that meet the other conditions, shortest match first."""
    ranked: list[tuple[int, str, Node]] = []
    for node in store.projection.recall(**wanted, limit=-1):
        own = node_words(node.label, node.payload, node.tags)
        if wanted_words <= set(own):
            ranked.append((len(own), node.id, node))
    ranked.sort(key=lambda item: item[:2])
    return (node for _, _, node in (ranked if limit < 0 else ranked[:limit]))
