"""Taking events over from a bundle or a branch: what is kept of them, left out, or contradicts.

Ids, times and actors stay those of the origin; numbers and hashes are this log's own, because
trust changes and some events stay behind. Each event is checked against the graph as it is when
its turn comes, inside the transaction of whoever calls: a failure anywhere keeps nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from graphstate._canonical import Json, decode
from graphstate.bundle import Fact
from graphstate.errors import ErrorCode, VerbFailed
from graphstate.events import GRAPH, Draft, Row
from graphstate.model import MergeConflict, OnConflict
from graphstate.policy import lowest
from graphstate.store import Store
from graphstate.store.store import Adopted
from graphstate.verbs import arguments
from graphstate.verbs.admission import LOCKS, OWN_AFFAIRS, Key, admit, touched
from graphstate.verbs.arguments import refuse
from graphstate.verbs.locks import refuse_locked
from graphstate.verbs.restoring import Order

__all__ = ("STRATEGIES", "Intake", "Merging", "changes", "refused")

STRATEGIES = ("fail", "ours", "theirs")

#: Conflicts that a report lists; the others are counted.
LISTED = 100

#: What a verb's refusal means for a merge that does not insist: the event is left out.
_KINDS = {
    "CycleRejected": "cycle",
    "PayloadTooLarge": "size",
    "Locked": "locked",
    "NotFound": "missing",
    "InvalidConfig": "tunable",
}
#: What tells of a move along an edge; without that edge it teaches nothing.
_ABOUT_EDGES = frozenset({"TransitionTaken", "TransitionMerged", "SoftViolation", "BlockedAttempt"})


class Intake:
    """Events of one origin on their way into an empty graph.

    Args:
        mark: Written with the event's number into the column ``cause`` of each event.
        actor: Whose they are where the origin does not say.
        trust: What is made elsewhere is trusted no more than this.
        order: The events may begin with the rows of a state.
    """

    def __init__(
        self, store: Store, *, mark: str, actor: str, trust: str, order: Order | None = None
    ) -> None:
        self._store, self.mark, self._actor, self.trust = store, mark, actor, trust
        self.left_out = 0
        # Rows of a state come first or not at all, as in the log of a graph that was imported.
        self._order = order
        #: the least trust of what was taken over
        self.lowest = trust

    def admitted(self, facts: Iterable[Fact]) -> Iterator[Adopted]:
        """Yield what is kept of each event, checked against the graph as it then is."""
        for fact in facts:
            kept = self._kept(fact)
            if kept is not None:
                yield kept
            elif fact.row.type not in OWN_AFFAIRS:
                self.left_out += 1

    def _kept(self, fact: Fact) -> Adopted | None:
        row, body = fact
        if row.type in OWN_AFFAIRS or row.type in LOCKS:
            return None
        self._check(row, body)
        if row.type != "StateRestored":
            self._order = None
        elif self._order is None:
            refuse("a row of a state must stand before all other events")
        else:
            self._order.check(body["table"], body["row"])
        return self._adopted(row, row.type, body)

    def _check(self, row: Row, body: dict[str, Json]) -> None:
        actor = row.actor or self._actor
        if row.id is not None:
            arguments.name(row.id, "the id of an event")
        admit(self._store, row.type, actor, body)
        draft, trust = Draft(row.type, body), lowest(row.trust, self.trust)
        refuse_locked(self._store.projection, [draft], actor=actor, trust=trust)

    def _adopted(self, row: Row, type: str, body: dict[str, Json]) -> Adopted:
        trust = lowest(row.trust, self.trust)
        self.lowest = lowest(trust, self.lowest)
        return Adopted(
            self._store.now() if row.id is None else row.at, row.id or self._store.ids.next("E"), type,
            row.actor or self._actor, trust, f"{self.mark}/{row.seq}", body,
        )  # fmt: skip


class Merging(Intake):
    """Events of one origin on their way into a graph that has some of its own.

    Cursors stay where they are; a move counts for what it teaches. What both sides changed is
    a conflict, and so is what this graph would refuse as a cycle, too large or locked. Unless
    "theirs" is wanted such an event is left out, with all later ones about the same thing.

    Args:
        own: What this side changed since the two parted.
        on_conflict: "theirs" lets the other side's version win.
    """

    def __init__(
        self, store: Store, *, mark: str, actor: str, trust: str, own: Collection[Key],
        on_conflict: OnConflict,
    ) -> None:  # fmt: skip
        super().__init__(store, mark=mark, actor=actor, trust=trust)
        self._own, self._insists = own, on_conflict == "theirs"
        self._left: set[Key] = set()
        self._repeated_reward_of: str | None = None
        self.conflicts: list[MergeConflict] = []
        self.conflict_count = 0
        #: calls of the origin that were taken over, by their causes
        self.causes: list[str] = []

    def _kept(self, fact: Fact) -> Adopted | None:
        row, body = fact
        key = touched(row.type, body)
        if row.type == "StateRestored":
            refuse(
                "what began with a state can only be imported into an empty graph",
                ErrorCode.CONFLICT,
                hint="import it into a new file",
            )
        if row.type in OWN_AFFAIRS or row.type == "CursorMoved" or self._is_repeated(row):
            return None
        if key in self._left or (row.type in _ABOUT_EDGES and not self._has_edge(body)):
            return None
        if key in self._own and not self._insists:
            self._leave(row, key, key[0] if key else "", "both sides changed it")
            return None
        try:
            self._check(row, body)
        except VerbFailed as error:
            kind = _KINDS.get(str(error.code))
            if self._insists or kind is None or (kind == "missing" and not self._left):
                raise
            self._leave(row, key, kind, error.message)
            return None
        if row.cause is not None:
            self.causes.append(row.cause)
        return self._adopted(row, "TransitionMerged" if row.type == "TransitionTaken" else row.type, body)

    def _leave(self, row: Row, key: Key | None, kind: str, reason: str) -> None:
        if key is not None:
            self._left.add(key)
        self.conflict_count += 1
        if len(self.conflicts) < LISTED:
            name = key[1] if key is not None else row.type
            self.conflicts.append(MergeConflict(kind=kind, id=name, seq=row.seq, reason=reason))

    def _has_edge(self, body: dict[str, Json]) -> bool:
        edge_id = body.get("edgeId")
        edge = self._store.projection.edge(edge_id) if isinstance(edge_id, str) else None
        if edge is None or edge.kind != "transition":
            return False
        return body.get("to", edge.dst) == edge.dst and body.get("from") in (None, edge.src)

    def _is_repeated(self, row: Row) -> bool:
        """Say whether the call that made this event was also answered on this side."""
        if row.cause is None:
            again = self._repeated_reward_of == row.actor and row.type == "RewardApplied"
            if row.type == "RewardApplied":
                self._repeated_reward_of = None
            return again
        self._repeated_reward_of = None
        first = self._store.log.first_result(GRAPH, row.cause)
        if first is None:
            return False
        # The cause stands on the first event of a call only; a step may have rewarded its move.
        if first[0] == "step" and decode(first[1])["value"].get("reward") is not None:
            self._repeated_reward_of = row.actor
        return True


def changes(store: Store, *, after: int, but: str = "") -> set[Key]:
    """Return what the events after a number changed, those of one origin left aside.

    Cost: one pass over these rows.

    Args:
        but: The mark of that origin.
    """
    found: set[Key] = set()
    base = store.base() if after == 0 else None
    if base is not None:
        for table in base.tables:
            for text in store.snapshots.rows(base.state, table):
                found.add(touched("StateRestored", {"table": table, "row": decode(text)}) or ("", ""))
        after = base.head.seq
    for row in store.log.read(GRAPH, after=after):
        if but and row.cause is not None and row.cause.startswith(f"{but}/"):
            continue
        key = touched(row.type, decode(row.body))
        if key is not None:
            found.add(key)
    return found


def refused(merging: Merging, what: str) -> VerbFailed:
    """Return the failure that reports all conflicts of a merge."""
    listed = "; ".join(f"{c.kind} {c.id}: {c.reason}" for c in merging.conflicts[:3])
    more = "" if merging.conflict_count <= 3 else f"; and {merging.conflict_count - 3} more"
    details = {
        "conflicts": [
            {"kind": c.kind, "id": c.id, "seq": c.seq, "reason": c.reason} for c in merging.conflicts
        ],
        "hint": "decide with on_conflict: ours leaves these events out, theirs lets them win",
    }
    return VerbFailed(
        ErrorCode.CONFLICT,
        f"{what} was not merged, {merging.conflict_count} conflicts: {listed}{more}",
        details,
    )
