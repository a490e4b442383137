"""Memory: nodes that hold what is known."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from graphstate._canonical import Json, decode
from graphstate.errors import ErrorCode
from graphstate.events import Draft, is_valid_id
from graphstate.model import Node, Status, Trust
from graphstate.policy import lowest
from graphstate.results import Ok, Result
from graphstate.store import Store
from graphstate.store.words import indexed, node_words, words
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
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


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    norms = math.hypot(*a) * math.hypot(*b)
    return math.sumprod(a, b) / norms if norms and hasattr(math, "sumprod") else _slow_cosine(a, b, norms)


def _slow_cosine(a: Sequence[float], b: Sequence[float], norms: float) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else 0.0


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
            "embedding": base.embedding if embedding is None else arguments.embedding(embedding),
        }
        if memory is not None:
            body["memory"] = provenance(base.memory, memory)
        (row,) = self.record(Draft("NodeUpserted", body), actor=actor, cause=cause)
        if old is not None or memory is not None:
            return Ok(_present(self.store, known_id))
        return Ok(
            Node(
                id=known_id, kind=body["kind"], label=body["label"], payload=value, tags=tuple(body["tags"]),
                status=body["status"], created_seq=row.seq, updated_seq=row.seq, created_at=row.at,
                updated_at=row.at, embedding=None if body["embedding"] is None else tuple(body["embedding"]),
                trust=cast(Trust, lowest(row.trust)),
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
        limit: int | None = None,
    ) -> list[Node]:
        """Return the nodes that meet every condition given.

        Args:
            text: Every word must occur, whole and in any case, in label, payload or tags;
                best match first. No character has a special meaning. Text without a word
                finds nothing.
            embedding: Nearest first, by cosine, among nodes with a vector of this length; one
                pass over the nodes that meet the other conditions. If none of them has a vector
                the condition is left out; if they have vectors of other lengths alone, it is
                refused. Given with ``text`` both orders count alike: a node's score is the sum
                of 1 / (60 + its place) in each of them, the smaller id first of equals.
            limit: 1 to 1,000, default 50; 0 counts as 1. Without text and embedding the
                result is sorted by id.

        Raises:
            VerbFailed: InvalidInput.
        """
        most = max(1, arguments.limit(limit, 50))
        wanted: dict[str, Any] = {
            "id": None if id is None else arguments.text(id, "id", arguments.MAX_NAME),
            "kind": None if kind is None else arguments.text(kind, "kind", arguments.MAX_NAME),
            "tag": None if tag is None else arguments.text(tag, "tag", arguments.MAX_NAME),
            "status": None if status is None else arguments.choice(status, "status", STATUSES),
        }
        vector = None if embedding is None else arguments.embedding(embedding)
        if text is not None:
            arguments.text(text, "text", arguments.MAX_SEARCH)
            matching = list(_by_text(self.store, text, wanted, most if vector is None else -1))
            return matching if vector is None else _hybrid(matching, vector)[:most]
        recalled = self.store.projection.recall
        if vector is None:
            return list(recalled(**wanted, limit=most))
        embedded = list(recalled(**wanted, limit=-1, embedded=True))
        if not embedded:
            return list(recalled(**wanted, limit=most))
        return _nearest(_comparable(embedded, vector), vector, most)

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


def _comparable(nodes: Sequence[Node], vector: Sequence[float]) -> list[Node]:
    """Return the nodes with a vector of this length, all of them if none has any vector."""
    lengths = {len(node.embedding) for node in nodes if node.embedding is not None}
    if lengths and len(vector) not in lengths:
        known_lengths = ", ".join(map(str, sorted(lengths)[:8]))
        refuse(
            f"embedding has {len(vector)} numbers, the vectors of the nodes in question have {known_lengths}",
            hint="use the model whose vectors are stored, or store vectors of this one",
        )
    return [n for n in nodes if not lengths or (n.embedding and len(n.embedding) == len(vector))]


def _nearest(nodes: Sequence[Node], vector: Sequence[float], most: int) -> list[Node]:
    return heapq.nsmallest(most, nodes, key=lambda n: (-_cosine(vector, n.embedding or ()), n.id))


def _hybrid(matching: Sequence[Node], vector: Sequence[float]) -> list[Node]:
    """Fuse two orders by reciprocal rank: neither scale need be comparable with the other."""
    by_text = _comparable(matching, vector)
    if not any(node.embedding for node in by_text):
        return by_text
    score = {node.id: 1 / (_FUSION + place) for place, node in enumerate(by_text, 1)}
    for place, node in enumerate(_nearest(by_text, vector, len(by_text)), 1):
        score[node.id] += 1 / (_FUSION + place)
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
