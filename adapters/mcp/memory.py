"""The tools ``memory_*``: remembering texts, on the verbs that rank, teach and succeed.

There is one ranking path: what `recall` finds is what `pulse` finds, and `context` is
`working_memory`. A memory is a node; its kind is its class, its text stands under ``text`` in the
payload, where a loop on the same file looks for it too. Each tool is one transaction, and every id
is checked by the verb that takes it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agentloop._canonical import Json, encode_text
from graphstate import Adaptogen, ErrorCode, Fail, Node, Ok, Result, VerbFailed, to_json
from graphstate.activation.tokens import estimate_text
from graphstate.model import MemoryClass, PulseHit
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.pulsing import SUPPRESSED

__all__ = ("MEMORY_KINDS", "MEMORY_TOOLS", "context", "recall")

#: Kinds of nodes that hold memories: each is the class by which it fades.
MEMORY_KINDS: Final = ("semantic", "episodic", "procedural", "entity")
#: The relationship that a conversation is made of.
REPLIES: Final = "RESPONDS_TO"
#: Relationships that verbs of their own make and take away.
_RESERVED: Final = {"superseded_by": "memory_supersede", "consolidated_from": "memory_consolidate"}
#: How much being stored, known already, or useful reinforces a memory, and being useless holds it back.
_STEP: Final = 0.1
_MAX_ITEMS: Final = 100
_MOST: Final = 1_000
_LOOK_UP: Final = "find the id with memory_recall"

_PATCHED: Final = ("context", "confidence", "source", "metadata")


# ------------------------------------------------------------------------------- keeping


def store(
    graph: Adaptogen,
    content: str,
    *,
    memory_class: MemoryClass = "semantic",
    context: str | None = None,
    confidence: float | None = None,
    source: str | None = None,
    metadata: Mapping[str, Json] | None = None,
    tags: Sequence[str] | None = None,
    id: str | None = None,
    cause: str | None = None,
) -> Result[Json]:
    """Keep a text as a memory, and return it with its id.

    A memory with the same text, context and metadata is not made twice: the one there is is
    reinforced and returned, with ``known`` true. What is about the same and says something else is
    listed under ``resembles``: if it is outdated now, call memory_supersede.

    Args:
        content: What is to be remembered; not blank.
        memory_class: How it fades: what happened (episodic), what is so (semantic), how something is
            done (procedural), or whom and what there is (entity).
        context: Where it matters, such as a project; without one it matters everywhere.
        confidence: 0 to 1; not tracked if absent, which ranks as 1.
        source: Where it comes from.
        metadata: Whatever else is to be kept with it.
        tags: What graph_recall can filter by.
        id: Of its own, which must not exist; made up if absent.
        cause: A text that makes the call happen once: repeated with it, it gets the first answer.
    """
    item = _Item(
        content=content, memory_class=memory_class, context=context, confidence=confidence, source=source,
        metadata=metadata, tags=tags, id=id,
    )  # fmt: skip
    item.check()
    with graph.unit():
        return item.keep(graph, cause)


def store_batch(
    graph: Adaptogen, items: Sequence[Mapping[str, Json]], *, cause: str | None = None
) -> Result[Json]:
    """Keep several texts, all of them or none, and return them in their order.

    Args:
        items: 1 to 100 objects, each with ``content`` and what else memory_store takes, but ``cause``.
        cause: A text that makes the call happen once: repeated with it, it gets the first answer.
    """
    if not 0 < len(items) <= _MAX_ITEMS:
        refuse(f"items holds {len(items)} memories, it must hold 1 to {_MAX_ITEMS}")
    checked = [_Item.read(item, f"items[{index}]") for index, item in enumerate(items)]
    kept: list[Ok[Json]] = []
    with graph.unit():
        for index, item in enumerate(checked):
            try:
                kept.append(item.keep(graph, None if cause is None else f"{cause}/{index}"))
            except VerbFailed as error:
                raise _placed(f"items[{index}]", error) from None
    return Ok({"items": [each.value for each in kept]}, repeated=all(each.repeated for each in kept))


def get(graph: Adaptogen, memory_id: str) -> Json:
    """Return a memory.

    Args:
        memory_id: Its id.
    """
    return _record(graph, _known(graph, memory_id))


def update(
    graph: Adaptogen,
    memory_id: str,
    patch: Mapping[str, Json],
    *,
    expected_revision: int | None = None,
    cause: str | None = None,
) -> Result[Json]:
    """Change what is known about a memory, and return it. Its text never changes: store another
    one and call memory_supersede.

    Args:
        memory_id: Its id.
        patch: An object with any of context, confidence, source and metadata; null takes a part
            away, and metadata are merged.
        expected_revision: Fail with Conflict unless the memory is at this revision.
        cause: A text that makes the call happen once: repeated with it, it gets the first answer.
    """
    if not patch or set(patch) - set(_PATCHED):
        refuse(f"patch must be an object with any of {', '.join(_PATCHED)}, not {encode_text(patch):.80}")
    told = {name: patch[name] for name in ("context", "metadata") if name in patch}
    known = {name: patch[name] for name in ("confidence", "source") if name in patch}
    _check_payload(told)
    with graph.unit():
        _known(graph, memory_id)
        done = graph.remember(
            memory_id, patch=told or None, memory=known or None, expect_version=expected_revision, cause=cause
        )
        node = done.unwrap()
        return Ok(_record(graph, node), repeated=done.ok and done.repeated)


def forget(
    graph: Adaptogen, memory_id: str, *, confirm: bool = False, expected_revision: int | None = None
) -> Result[Json]:
    """Put a memory aside: it is found no more. The log keeps it, and a person can bring it back.

    Args:
        memory_id: Its id.
        confirm: Must be true.
        expected_revision: Fail with Conflict unless the memory is at this revision.
    """
    if not confirm:
        refuse(f"forgetting {memory_id!r:.80} must be confirmed", hint="call it again with confirm true")
    with graph.unit():
        node = _known(graph, memory_id)
        if expected_revision is not None and expected_revision != node.version:
            refuse(
                f"memory {memory_id!r} is at revision {node.version}, not at {expected_revision}",
                ErrorCode.CONFLICT, current=node.version,
            )  # fmt: skip
        graph.archive(memory_id).unwrap()
    return Ok({"id": memory_id, "status": "archived"})


# ------------------------------------------------------------------------------- finding


def recall(
    graph: Adaptogen,
    query: str,
    *,
    context: str | None = None,
    strict_context: bool = False,
    limit: int = 10,
    token_budget: int | None = None,
    include_neighbors: bool = False,
    depth: int = 1,
    neighbor_limit: int = 5,
    edge_types: Sequence[str] | None = None,
    include_superseded: bool = False,
    include_suppressed: bool = False,
    as_of: int | None = None,
    scope: str | None = None,
) -> Json:
    """Search the memory, and return what was found, best first, with the parts of each score.

    Superseded memories and strongly suppressed ones are left out before anything is counted. An item
    that does not fit the budget is skipped, and the next one tried. Nothing is reinforced by it;
    tell with memory_feedback and the answer's ``retrieval_id`` what helped.

    Args:
        query: Words or a sentence; no character has a special meaning.
        context: Memories of another context are left out, and usage counts as far as it was here.
        strict_context: Leave out memories without a context too.
        limit: 1 to 100.
        token_budget: What the texts together may cost, by estimate; at least 1.
        include_neighbors: Also what is linked to what was found.
        depth: Links that a neighbor may be away, 1 to 3.
        neighbor_limit: Neighbors at most, 0 to 100.
        edge_types: Follow only these relationships.
        include_superseded: Show what was superseded too, and by what.
        include_suppressed: Show what is strongly suppressed too.
        as_of: Only what held at this time, in milliseconds since 1970.
        scope: Whose learned weights; the server's actor's if absent.
    """
    most = arguments.whole(limit, "limit", least=1, most=_MAX_ITEMS)
    reach = arguments.whole(depth, "depth", least=1, most=3) if include_neighbors else 0
    choice = _Choice(
        graph, context, strict=strict_context, limit=most, suppressed=include_suppressed,
        budget=None if token_budget is None else arguments.whole(token_budget, "token_budget", least=1, most=2**53),
        neighbors=arguments.whole(neighbor_limit, "neighbor_limit", least=0, most=_MAX_ITEMS),
    )  # fmt: skip
    depth_of_search = most
    while True:
        found = graph.pulse(
            query, limit=depth_of_search, scope=graph.actor if scope is None else scope, context=context, depth=reach,
            edge_types=edge_types, direction="both", include_superseded=include_superseded, as_of=as_of, log=True,
        )  # fmt: skip
        items = choice.of(found.hits)
        if len(items) >= most or depth_of_search >= min(found.found, _MOST):
            break
        depth_of_search = min(_MOST, 4 * depth_of_search)  # too many were left out: look further down
    return {
        "retrieval_id": found.retrieval_id,
        "items": items,
        "metadata": {
            "candidate_count": found.found,
            "excluded_count": choice.excluded,
            "matched_context": context is not None and any(item["context"] == context for item in items),
            "budget_requested": token_budget,
            "budget_used": choice.used,
            "neighbor_count": choice.near,
            "depth": reach,
            "scope": found.scope,
            "weights": dict(found.weights),
            "truncated": found.truncated,
        },
    }


def context(
    graph: Adaptogen,
    *,
    context: str | None = None,
    strict_context: bool = False,
    limit: int = 10,
    token_budget: int | None = None,
    diversity: float = 0.0,
    pinned: Sequence[str] = (),
) -> Json:
    """Return the memories that belong into a context window now, the most present first.

    It needs no question: what was stored, used and found useful lately is present, and fades. What
    does not fit the budget is skipped, and the next one tried.

    Args:
        context: As present as in this context.
        strict_context: Leave out what was never used there; else it counts as it does everywhere.
        limit: 1 to 100.
        token_budget: What the texts together may cost, by estimate; at least 1.
        diversity: 0 to 1: how much being unlike what was chosen before counts.
        pinned: These memories first, as far as they fit.
    """
    most = arguments.whole(limit, "limit", least=1, most=_MAX_ITEMS)
    if token_budget is not None:
        arguments.whole(token_budget, "token_budget", least=1, most=2**53)
    for each in pinned:
        _known(graph, each)
    window = graph.working_memory(
        limit=most, scope=graph.actor, context=context, context_fallback=not strict_context,
        token_budget=token_budget, cost_of=lambda node: estimate_text(_content(node)), diversity=diversity, pinned=pinned, log=True,
    )  # fmt: skip
    items = [
        {**_record(graph, item.node), "effective": item.effective, "decision": item.decision}
        for item in window.items
        if item.node is not None
    ]
    return {
        "retrieval_id": window.retrieval_id,
        "items": items,
        "skipped": [item.id for item in window.skipped],
        "budget_used": window.budget_used if token_budget is not None else None,
        "reason": "no_context_match" if context is not None and not items else None,
    }


def thread(graph: Adaptogen, start_id: str, *, max_depth: int = 10, relationship: str = REPLIES) -> Json:
    """Return the memories that a conversation is made of, oldest first.

    All that is linked to one of them, directly or through others, in either direction. Suppressed
    and forgotten ones are left out.

    Args:
        start_id: Any memory of it.
        max_depth: Links to follow, 1 to 100.
        relationship: What the links are called.
    """
    start = _known(graph, start_id)
    steps = arguments.whole(max_depth, "max_depth", least=1, most=100)
    found = {start.id: start}
    frontier = [start.id]
    for _ in range(steps):
        links = graph.store.projection.surroundings.links(
            frontier, direction="both", strength=lambda name, _: float(name == relationship)
        )
        new = dict.fromkeys(link.target for link in links if link.target not in found)
        frontier = [*new][: _MOST - len(found)]
        found |= {node.id: node for node in map(graph.get_node, frontier) if node is not None}
        if not frontier:
            break
    records = [_record(graph, node) for node in found.values() if node.status == "active"]
    records.sort(key=lambda record: (record["created_at"], record["id"]))
    return {"items": [record for record in records if not record["suppressed"]]}


def list_contexts(graph: Adaptogen) -> Json:
    """Return the contexts that memories have, how many have each, and how many have none.

    One pass over all memories.
    """
    recalled = graph.store.projection.recall
    counts = Counter(
        _part(node, "context")
        for kind in MEMORY_KINDS
        for node in recalled(id=None, kind=kind, status="active", tag=None, limit=-1)
    )
    unscoped = counts.pop(None, 0)
    return {"contexts": sorted(counts), "counts": dict(counts), "unscoped_count": unscoped}


def explain(graph: Adaptogen, memory_id: str) -> Json:
    """Return what a memory is worth now and why: its score and how it fades, what held it back, what it was
    made of, what took its place, which searches showed it.

    Args:
        memory_id: Its id.
    """
    _known(graph, memory_id)
    return to_json(graph.explain(memory_id))


# ------------------------------------------------------------------------------- learning


def feedback(
    graph: Adaptogen, retrieval_id: str, memory_id: str, useful: bool, *, cause: str | None = None
) -> Result[Json]:
    """Say whether a memory that was found helped, and return what that changed.

    The weights of what it was found by move, for the scope of that search. A useful memory becomes
    more present, a useless one is held back for a while. A second verdict on the same memory of the
    same search changes nothing.

    Args:
        retrieval_id: As memory_recall or memory_context said it.
        memory_id: A memory that was in that answer.
        useful: Whether it helped.
        cause: A text that makes the call happen once: repeated with it, it gets the first answer.
    """
    with graph.unit():
        _known(graph, memory_id)
        before = graph.effective(memory_id)
        remembered = graph.store.projection.retrievals.get(retrieval_id)
        weights = graph.weights(scope=remembered.scope) if remembered is not None else None
        done = graph.feedback(retrieval_id, memory_id, useful, cause=cause)
        taught = done.unwrap()
        repeated = done.ok and done.repeated
        if not repeated:
            if useful:
                graph.reinforce(memory_id, _step(graph, memory_id), reason="memory_feedback").unwrap()
            else:
                step = _room(graph, memory_id, _STEP, None)
                graph.suppress(memory_id, step, reason="memory_feedback").unwrap()
        after = dict(taught.weights)
        return Ok(
            {
                "id": memory_id,
                "useful": taught.useful,
                "scope": taught.scope,
                "activation_before": before,
                "activation_after": graph.effective(memory_id),
                "weights_before": weights,
                "weights_after": after,
                "weights_changed": not repeated and weights != after,
            },
            repeated=repeated,
        )


def suppress(
    graph: Adaptogen,
    memory_id: str,
    *,
    amount: float = 0.5,
    context: str | None = None,
    reason: str | None = None,
    cause: str | None = None,
) -> Result[Json]:
    """Hold a memory back for a while, and return it. What it was worth stays, and it comes back by itself.

    Args:
        memory_id: Its id.
        amount: 0 to 1, and no more than 1 together; from 0.5 on it is not found until that has faded.
        context: Only there.
        reason: Kept in the event.
        cause: A text that makes the call happen once: repeated with it, it gets the first answer.
    """
    wanted = arguments.number(amount, "amount", least=0, most=1)
    with graph.unit():
        _known(graph, memory_id)
        held = _room(graph, memory_id, wanted, context)
        done = graph.suppress(memory_id, held, context=context, reason=reason, cause=cause)
        done.unwrap()
        return _changed(graph, memory_id, done)


def release(
    graph: Adaptogen,
    memory_id: str,
    *,
    amount: float | None = None,
    context: str | None = None,
    reason: str | None = None,
    cause: str | None = None,
) -> Result[Json]:
    """Take a suppression back, and return the memory.

    Args:
        memory_id: Its id.
        amount: How much of it; all of it if absent.
        context: The suppression that holds there only.
        reason: Kept in the event.
        cause: A text that makes the call happen once: repeated with it, it gets the first answer.
    """
    return _changed(
        graph, memory_id, graph.release(memory_id, amount=amount, context=context, reason=reason, cause=cause)
    )


# ------------------------------------------------------------------------------- succession


def supersede(
    graph: Adaptogen,
    new_memory_id: str,
    old_memory_id: str,
    *,
    reason: str | None = None,
    cause: str | None = None,
) -> Result[Json]:
    """Let a memory take the place of an outdated one, for good: the old one is found no more.

    Args:
        new_memory_id: What holds now.
        old_memory_id: What held before.
        reason: Kept in the event.
        cause: A text that makes the call happen once: repeated with it, it gets the first answer.
    """
    done = graph.supersede(new_memory_id, old_memory_id, reason=reason, cause=cause)
    if isinstance(done, Fail):
        return done
    told = done.value
    return Ok({"superseded": told.old, "by": told.new, "valid_to": told.valid_to}, repeated=done.repeated)


def consolidate(
    graph: Adaptogen,
    source_ids: Sequence[str],
    content: str,
    *,
    memory_class: MemoryClass = "semantic",
    context: str | None = None,
    confidence: float | None = None,
    metadata: Mapping[str, Json] | None = None,
    id: str | None = None,
    cause: str | None = None,
) -> Result[Json]:
    """Let one memory stand for several, and return it. It is about as present as all of them together and
    trusted no more than the least of them; they are held back.

    Args:
        source_ids: The memories it is made of.
        content: What it says; not blank.
        memory_class: How it fades.
        context: Where it matters.
        confidence: 0 to 1; not tracked if absent.
        metadata: Whatever else is to be kept with it.
        id: An earlier consolidation that takes over more, or an id of its own; made up if absent.
        cause: A text that makes the call happen once: repeated with it, it gets the first answer.
    """
    item = _Item(
        content=content, memory_class=memory_class, context=context, confidence=confidence, metadata=metadata, id=id
    )  # fmt: skip
    item.check()
    made = item.id or graph.store.ids.next("M")
    done = graph.consolidate(
        made, source_ids, kind=item.memory_class, payload=item.payload(), memory=item.known(), cause=cause
    )  # fmt: skip
    if isinstance(done, Fail):
        return done
    return Ok(_record(graph, done.value), repeated=done.repeated)


def link(
    graph: Adaptogen,
    source: str,
    target: str,
    *,
    relationship: str = REPLIES,
) -> Result[Json]:
    """Link a memory to another one, and return the link. Linking again changes nothing.

    Args:
        source: Where the link starts, such as the answer.
        target: Where it leads, such as the question.
        relationship: What it is called.
    """
    _check_relationship(relationship)
    edge = _edge_id(source, target, relationship)
    with graph.unit():
        _known(graph, source)
        _known(graph, target)
        known = graph.get_edge(edge)
        if known is None:
            known = graph.link(source, target, id=edge, kind="reference", label=relationship).unwrap()
    return Ok({"id": known.id, "source": source, "target": target, "relationship": relationship})


def unlink(graph: Adaptogen, source: str, target: str, *, relationship: str | None = None) -> Result[Json]:
    """Take links of memory_link from one memory to another away, and return how many there were.

    Args:
        source: Where the link starts.
        target: Where it leads.
        relationship: Only the one that is called so; all of them if absent.
    """
    with graph.unit():
        _known(graph, source)
        _known(graph, target)
        names = [relationship] if relationship is not None else _relationships(graph, source, target)
        edges = [_edge_id(source, target, name) for name in names]
        gone = [edge for edge in edges if graph.get_edge(edge) is not None]
        for edge in gone:
            graph.unlink(edge).unwrap()
    return Ok({"removed": len(gone), "edges": gone})


#: Each tool with whether it only reads, and whether it may take away what was there.
MEMORY_TOOLS: Final[tuple[tuple[Callable[..., Any], bool, bool], ...]] = (
    (store, False, False),
    (store_batch, False, False),
    (recall, True, False),
    (context, True, False),
    (get, True, False),
    (update, False, True),
    (forget, False, True),
    (feedback, False, False),
    (suppress, False, False),
    (release, False, False),
    (supersede, False, True),
    (consolidate, False, False),
    (link, False, False),
    (unlink, False, True),
    (thread, True, False),
    (explain, True, False),
    (list_contexts, True, False),
)


# ------------------------------------------------------------------------------- what is kept


class _Item:
    """A memory that is to be kept."""

    def __init__(
        self,
        *,
        content: Json,
        memory_class: Json = "semantic",
        context: Json = None,
        confidence: Json = None,
        source: Json = None,
        metadata: Json = None,
        tags: Json = None,
        id: Json = None,
    ) -> None:
        self.content, self.memory_class, self.context = content, memory_class, context
        self.confidence, self.source, self.metadata = confidence, source, metadata
        self.tags, self.id = tags, id

    @classmethod
    def read(cls, item: object, place: str) -> _Item:
        names = ("content", "memory_class", "context", "confidence", "source", "metadata", "tags", "id")
        if not isinstance(item, Mapping) or "content" not in item or set(item) - set(names):
            refuse(
                f"{place} must be an object with content and, if wanted, {', '.join(names[1:])}", item=place
            )
        made = cls(**{name: value for name, value in item.items() if value is not None or name == "content"})
        try:
            made.check()
        except VerbFailed as error:
            raise _placed(place, error) from None
        return made

    def check(self) -> None:
        if not isinstance(self.content, str) or not self.content.strip():
            refuse("content must be text that is not blank")
        arguments.choice(self.memory_class, "memory_class", MEMORY_KINDS)
        _check_payload(self.payload())

    def payload(self) -> dict[str, Json]:
        told = {"text": self.content, "context": self.context, "metadata": self.metadata}
        return {name: value for name, value in told.items() if value is not None}

    def known(self) -> dict[str, Json]:
        told = {"memory_class": self.memory_class, "confidence": self.confidence, "source": self.source}
        return {name: value for name, value in told.items() if value is not None}

    def keep(self, graph: Adaptogen, cause: str | None) -> Ok[Json]:
        """Store it, or reinforce the memory that holds the same; called inside of a unit."""
        first = None if cause is None else graph.store.log.first_result("graph", cause)
        same, resembling = self._recognised(graph)
        if same is not None and (first is None or first[0] == "reinforce"):
            step = _step(graph, same)
            again = graph.reinforce(same, step, reason="memory_store", context=self.context, cause=cause)
            again.unwrap()
            told = _record(graph, _known(graph, same))
            return Ok({**told, "known": True, "resembles": []}, repeated=again.ok and again.repeated)
        done = graph.remember(
            self.id or graph.store.ids.next("M"), kind=self.memory_class, payload=self.payload(), tags=self.tags,
            memory=self.known(), expect_version=0, cause=cause,
        )  # fmt: skip
        node = done.unwrap()
        if not (repeated := done.ok and done.repeated):
            graph.reinforce(node.id, _STEP, reason="memory_store", context=self.context).unwrap()
        told = _record(graph, _known(graph, node.id))
        return Ok({**told, "known": False, "resembles": [] if repeated else resembling}, repeated=repeated)

    def _recognised(self, graph: Adaptogen) -> tuple[str | None, list[str]]:
        """Return the memory that holds the same, and those that may say something else about it.

        What only means nearly the same is kept apart: one number may be all that differs.
        """
        if self.id is not None:
            return None, []
        known = graph.recognise(self.payload(), kind=self.memory_class)
        if known.by == "content":
            return known.known_as, []
        near = [] if known.known_as is None else [known.known_as]
        return None, [*near, *(like.id for like in known.resembles)]


def _check_payload(payload: Mapping[str, Json]) -> None:
    if payload.get("context") is not None:
        arguments.name(payload["context"], "context")
    if not isinstance(payload.get("metadata") or {}, Mapping):
        refuse("metadata must be an object")


# ------------------------------------------------------------------------------- what is shown


def _known(graph: Adaptogen, id: str) -> Node:
    node = graph.get_node(id)
    if node is None:
        refuse(f"there is no memory {id!r:.150}", ErrorCode.NOT_FOUND, hint=_LOOK_UP)
    return node


def _part(node: Node, name: str) -> Json:
    return node.payload.get(name) if isinstance(node.payload, Mapping) else None


def _content(node: Node) -> str:
    """Return what a node says: its text, or of a node of another making its label and payload."""
    text = _part(node, "text")
    return text if isinstance(text, str) else f"{node.label}: {encode_text(node.payload)}"


def _record(graph: Adaptogen, node: Node) -> dict[str, Json]:
    state, known = graph.activation(node.id), node.memory
    content = _content(node)
    classes = graph.store.projection.tunables()["memoryClasses"]
    return {
        "id": node.id,
        "content": content,
        "class": (known.memory_class if known else None) or classes.get(node.kind),
        "context": _part(node, "context"),
        "confidence": known.confidence if known else None,
        "source": known.source if known else None,
        "trust": node.trust,
        "activation": state.effective if state else 0.0,
        "suppressed": state is not None and state.inhibition >= SUPPRESSED,
        "superseded_by": graph.store.projection.successions.successors(node.id),
        "derived_from": list(known.derived_from) if known else [],
        "created_at": node.created_at,
        "metadata": _part(node, "metadata") or {},
        "tags": list(node.tags),
        "status": node.status,
        "token_estimate": estimate_text(content),
        "revision": node.version,
    }


def _step(graph: Adaptogen, id: str) -> float:
    """Return by how much a memory is reinforced: however often it is said, it is worth no more than 1."""
    state = graph.activation(id)
    return _STEP if state is None else max(0.0, min(_STEP, 1 - state.score))


def _room(graph: Adaptogen, id: str, wanted: float, context: str | None) -> float:
    """Return by how much a memory is held back: not by more than 1, so that it soon comes back by itself."""
    state = graph.activation(id)
    if state is None:
        return wanted
    held = state.inhibition if context is None else state.inhibitions.get(context, 0.0)
    return max(0.0, min(wanted, 1 - held))


def _changed(graph: Adaptogen, memory_id: str, done: Result[Any]) -> Result[Json]:
    if isinstance(done, Fail):
        return done
    return Ok(_record(graph, _known(graph, memory_id)), repeated=done.repeated)


class _Choice:
    """What of a search is shown."""

    def __init__(
        self, graph: Adaptogen, context: str | None, *, strict: bool, limit: int, suppressed: bool,
        budget: int | None, neighbors: int,
    ) -> None:  # fmt: skip
        self._graph, self._context, self._strict, self._limit = graph, context, strict, limit
        self._suppressed, self._budget, self._neighbors = suppressed, budget, neighbors
        self.excluded = self.used = self.near = 0

    def of(self, hits: Sequence[PulseHit]) -> list[dict[str, Json]]:
        self.excluded = self.used = self.near = 0
        items: list[dict[str, Json]] = []
        for hit in hits:
            if len(items) == self._limit:
                break
            node = self._graph.get_node(hit.id)
            if node is None or not self._fits(node, hit):
                self.excluded += 1
                continue
            items.append(self._shown(node, hit))
        return items

    def _fits(self, node: Node, hit: PulseHit) -> bool:
        where = _part(node, "context")
        if self._context is not None and where != self._context and (self._strict or where is not None):
            return False
        if hit.inhibition >= SUPPRESSED and not self._suppressed:
            return False
        near = _is_neighbor(hit)
        if near and self.near >= self._neighbors:
            return False
        cost = estimate_text(_content(node))
        if self._budget is not None and self.used + cost > self._budget:
            return False
        self.used += cost
        self.near += near
        return True

    def _shown(self, node: Node, hit: PulseHit) -> dict[str, Json]:
        return {
            **_record(self._graph, node),
            "score": hit.score,
            "score_components": dict(hit.signals),
            "role": "neighbor" if _is_neighbor(hit) else "primary",
            "stands_for": list(hit.stands_for),
        }


def _is_neighbor(hit: PulseHit) -> bool:
    return not hit.signals.get("semantic") and not hit.signals.get("lexical")


# ------------------------------------------------------------------------------- links


def _edge_id(source: str, target: str, relationship: str) -> str:
    told = encode_text([source, target, relationship]).encode("utf-8", "surrogatepass")
    return f"ref:{hashlib.sha256(told).hexdigest()[:32]}"


def _check_relationship(name: str) -> None:
    arguments.name(name, "relationship")
    if name in _RESERVED:
        refuse(f"{name} is no link of your own", hint=f"call {_RESERVED[name]}")


def _relationships(graph: Adaptogen, source: str, target: str) -> list[str]:
    """Return what the references from one node to another are called."""
    names: list[str] = []

    def note(name: str, _: float) -> float:
        names.append(name)
        return 1.0

    links = graph.store.projection.surroundings.links([source], direction="out", strength=note)
    found = {name for link, name in zip(links, names, strict=True) if link.target == target}
    return sorted(found - _RESERVED.keys())


def _placed(place: str, error: VerbFailed) -> VerbFailed:
    return VerbFailed(error.code, f"{place}: {error.message}", {**error.details, "item": place})
