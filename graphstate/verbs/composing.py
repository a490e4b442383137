"""Composing: a whole workflow in one call, and everything about the moment in another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from graphstate._canonical import Json
from graphstate.errors import ErrorCode, VerbFailed, shown
from graphstate.events import GRAPH
from graphstate.model import Orientation, Planned
from graphstate.results import Fail, Ok, Result
from graphstate.verbs.arguments import refuse
from graphstate.verbs.fsm import Moving, checked_vars, denied, moving_actor
from graphstate.verbs.intuition import Intuition
from graphstate.verbs.memory import Memory
from graphstate.verbs.observe import Observation, ready_now
from graphstate.verbs.soundness import violations
from graphstate.verbs.structure import Structure
from graphstate.verbs.verb import Verbs, query, verb

__all__ = ("Composing",)

#: Nodes, transitions, dependencies and heads of one plan together.
MAX_ITEMS = 10_000

#: Events that `orient` shows.
RECENT = 5

_LISTS = ("nodes", "transitions", "deps", "cursor")
_NODE = (
    "id",
    "kind",
    "label",
    "payload",
    "patch",
    "tags",
    "status",
    "embedding",
    "expect_version",
)  # fmt: skip
_TRANSITION = (
    "from",
    "to",
    "id",
    "kind",
    "label",
    "guard",
    "enforcement",
    "weight",
    "upsert",
    "expect_version",
)  # fmt: skip
_DEP = ("node", "prereq", "id", "label")


class Composing(Verbs):
    """plan and orient."""

    __slots__ = ()

    @verb
    def plan(
        self, spec: Mapping[str, Json], *, actor: str | None = None, cause: str | None = None
    ) -> Result[Planned]:
        """Declare nodes, transitions, dependencies and the cursor together; all of it or nothing.

        Each item goes through the verb that would make it alone, so it is checked the same way,
        and what was declared earlier in the plan exists for it. The first item that is refused
        refuses the plan, and the message begins with its place, such as ``plan.deps[2]``.

        Args:
            spec: An object with any of these lists.
                nodes: An id, or an object with ``id`` and what `remember` takes. An existing
                node named by its id alone is left as it is.
                transitions: ``[from, to]``, ``[from, to, {...}]`` or ``{"from", "to", ...}`` with
                what `link` takes.
                deps: ``[node, prereq]`` or ``{"node", "prereq", ...}`` with what `depend` takes.
                cursor: Where the cursor shall stand; left alone if absent.
        """
        lists = _lists(spec)
        self.store.because(cause)
        try:
            nodes = [_declare(self, item, place, actor) for place, item in _nodes(lists["nodes"])]
            transitions = [_linked(self, *found, actor) for found in _transitions(lists["transitions"])]
            deps = [_depending(self, *found, actor) for found in _deps(lists["deps"])]
            heads = lists["cursor"]
            if heads is not None:
                _done("plan.cursor", Moving.set_cursor(self, heads, actor=actor))
        finally:
            self.store.because(None)
        cursor = None if heads is None else tuple(heads)
        return Ok(
            Planned(nodes=tuple(nodes), transitions=tuple(transitions), deps=tuple(deps), cursor=cursor)
        )  # fmt: skip

    @query
    def orient(self, *, vars: Mapping[str, Json] | None = None, actor: str | None = None) -> Orientation:
        """Return all that is needed to decide what to do next, of one moment.

        Reads no more of the log than its last five events. ``integrity_ok`` says that no damage
        is known; `validate` looks for it.

        Args:
            vars: What guards read.
            actor: Whose cursor.

        Raises:
            VerbFailed: InvalidInput.
        """
        who, store = moving_actor(self, actor), self.store
        moves = Moving.legal_moves(self, vars=vars, actor=who)
        wrong, head = len(violations(self)), store.log.head(GRAPH)
        return Orientation(
            cursor=store.projection.cursor(who).nodes,
            suggestions=tuple(Intuition.suggest(self, vars=vars, actor=who)),
            legal_moves=tuple(moves),
            blocked=tuple(denied(self, who, checked_vars(vars))),
            ready=tuple(ready_now(self)),
            violations=wrong,
            integrity_ok=not wrong and store.broken() is None and store.projection.applied() == head,
            verified_seq=store.log.verified(GRAPH).seq,
            recent=tuple(Observation.history(self, limit=RECENT)),
            seq=head.seq,
            fts_enabled=store.full_text,
            tunables=dict(store.projection.tunables()),
            done=not moves,
        )


# ------------------------------------------------------------------------------ reading a plan


def _refused(place: str, message: str, code: ErrorCode = ErrorCode.INVALID_INPUT) -> NoReturn:
    refuse(f"{place}: {message}", code, item=place)


def _lists(spec: object) -> dict[str, Any]:
    """Return the lists of a plan: absent ones are empty, an absent cursor is None."""
    if not isinstance(spec, Mapping):
        _refused("plan", f"must be an object with {', '.join(_LISTS)}, not {shown(spec)}")
    _known_keys("plan", spec, _LISTS)
    lists: dict[str, Any] = {"nodes": (), "transitions": (), "deps": (), "cursor": None}
    for name in _LISTS:
        if spec.get(name) is not None:
            if not isinstance(spec[name], (list, tuple)):
                _refused(f"plan.{name}", f"must be a list, not {shown(spec[name])}")
            lists[name] = spec[name]
    count = sum(len(listed or ()) for listed in lists.values())
    if count > MAX_ITEMS:
        _refused("plan", f"holds {count} items, more than the {MAX_ITEMS} allowed")
    return lists


def _known_keys(place: str, item: Mapping[Any, Any], keys: Sequence[str]) -> None:
    for key in item:
        if key not in keys:
            _refused(place, f"has no {shown(key)}; there are {', '.join(keys)}")


def _object(
    place: str, item: object, ends: tuple[str, str], keys: Sequence[str], *, options: bool
) -> dict[str, Any]:
    """Return an item with two ends as an object, whichever way it was written."""
    if isinstance(item, (list, tuple)) and len(item) in ((2, 3) if options else (2,)):
        given = item[2] if len(item) == 3 and item[2] is not None else {}
        if not isinstance(given, Mapping) or set(given) & set(ends):
            _refused(place, f"the third part must be an object of options, not {shown(given)}")
        item = {ends[0]: item[0], ends[1]: item[1], **given}
    if not isinstance(item, Mapping) or not set(ends) <= set(item):
        _refused(place, f"must name {ends[0]} and {ends[1]}, as a list or an object, not {shown(item)}")
    _known_keys(place, item, keys)
    return dict(item)


def _nodes(items: Sequence[object]) -> Iterator[tuple[str, dict[str, Any]]]:
    seen: dict[Any, str] = {}
    for index, item in enumerate(items):
        place = f"plan.nodes[{index}]"
        node = {"id": item} if isinstance(item, str) else item
        if not isinstance(node, Mapping) or not isinstance(node.get("id"), str):
            _refused(place, f"must be an id or an object with an id, not {shown(item)}")
        _known_keys(place, node, _NODE)
        if node["id"] in seen:
            _refused(place, f"declares {node['id']!r} again, see {seen[node['id']]}", ErrorCode.DUPLICATE_ID)
        seen[node["id"]] = place
        yield place, dict(node)


def _transitions(items: Sequence[object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, item in enumerate(items):
        place = f"plan.transitions[{index}]"
        yield place, _object(place, item, ("from", "to"), _TRANSITION, options=True)


def _deps(items: Sequence[object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, item in enumerate(items):
        place = f"plan.deps[{index}]"
        yield place, _object(place, item, ("node", "prereq"), _DEP, options=False)


# ------------------------------------------------------------------------------ carrying it out


def _done(place: str, result: Result[Any]) -> Any:
    if isinstance(result, Fail):
        raise VerbFailed(result.code, f"{place}: {result.message}", {**result.details, "item": place})
    return result.value


def _declare(graph: Verbs, node: dict[str, Any], place: str, actor: str | None) -> str:
    node_id: str = node.pop("id")
    if node or graph.store.projection.status(node_id) is None:
        _done(place, Memory.remember(graph, node_id, **node, actor=actor))
    return node_id


def _linked(graph: Verbs, place: str, edge: dict[str, Any], actor: str | None) -> str:
    src, dst = edge.pop("from"), edge.pop("to")
    made: str = _done(place, Structure.link(graph, src, dst, **edge, actor=actor)).id
    return made


def _depending(graph: Verbs, place: str, edge: dict[str, Any], actor: str | None) -> str:
    node, prereq = edge.pop("node"), edge.pop("prereq")
    made: str = _done(place, Structure.depend(graph, node, prereq, **edge, actor=actor)).id
    return made
