"""Deltas: what was added to memories here, for other replicas of the graph, and theirs for this one.

A delta is the event itself, with its id and the moment it happened. Whoever receives it adds it as
of that moment, once. So all replicas that have received the same deltas hold the same values, in
whatever order and however often these came. Nodes, edges and texts travel in bundles.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from msgspec import ValidationError

from graphstate._canonical import Json, decode
from graphstate.errors import ErrorCode, shown
from graphstate.events import GRAPH, Draft, Row
from graphstate.model import Delta, DeltaPart, Deltas, DeltasImported, from_json
from graphstate.policy import lowest
from graphstate.results import Ok, Result
from graphstate.store import Store
from graphstate.store.replicas import DELTAS
from graphstate.store.store import Adopted
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.verb import Verbs, verb

__all__ = ("SYNC_THRESHOLD", "Replication")

#: Sums smaller than this wait until they have grown.
SYNC_THRESHOLD = 0.05

#: Events that one export looks at, and of these that wait at most.
_ROWS, _CARRIED = 10_000, 1_000

#: Parts of one import.
_PARTS = 100_000


class _Cursor(NamedTuple):
    """How far a replica has sent: rollbacks that were seen, the last event, and those that wait."""

    cut: int
    seq: int
    carried: tuple[int, ...]

    def __str__(self) -> str:
        waiting = ",".join(map(str, self.carried))
        return f"{self.cut}/{self.seq}" + (f"/{waiting}" if waiting else "")

    @classmethod
    def parse(cls, text: object) -> _Cursor:
        try:
            cut, seq, *rest = str(text).split("/")
            carried = tuple(map(int, rest[0].split(","))) if rest else ()
            cursor = cls(int(cut), int(seq), carried)
        except ValueError:
            refuse(f"since must be the cursor of an earlier export, not {shown(text)}")
        if len(rest) > 1 or len(carried) > _CARRIED or str(cursor) != text:
            refuse(f"since must be the cursor of an earlier export, not {shown(text)}")
        return cursor


class Replication(Verbs):
    """export_deltas and import_deltas."""

    __slots__ = ()

    @verb
    def export_deltas(
        self,
        *,
        since: str | None = None,
        threshold: float = SYNC_THRESHOLD,
        flush: bool = False,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Deltas]:
        """Return what was added to memories since an earlier export, here and by other replicas.

        The first call begins replication, which is an event: make the replicas (bundles, branches)
        after it. What was added to one memory in one way and is smaller than the threshold in
        sum waits for more; it is never lost.

        Args:
            since: `Deltas.cursor` of the export before; None for all since replication began.
                After a rollback everything is sent again, which adds nothing twice.
            threshold: From 0; sums smaller than this wait.
            flush: Nothing waits; for the last export before a connection ends.
        """
        least = arguments.number(threshold, "threshold", least=0)
        began = _begin(self, actor)
        cut = self.store.projection.mark("cut")
        cursor = _Cursor(cut, began, ()) if since is None else _Cursor.parse(since)
        if cursor.cut != cut:
            cursor = _Cursor(cut, began, ())
        rows = [
            *_carried(self.store, cursor, began),
            *islice(self.store.log.read(GRAPH, after=cursor.seq), _ROWS),
        ]
        seq = max((cursor.seq, *(row.seq for row in rows)))
        sums: dict[tuple[str, str, str | None], list[tuple[Row, dict[str, Any]]]] = {}
        for row in rows:
            if row.type in DELTAS:
                body = decode(row.body)
                sums.setdefault((body["id"], row.type, body.get("context")), []).append((row, body))
        waiting = {
            key: parts
            for key, parts in sums.items()
            if not flush
            and abs(sum(body["amount"] for _, body in parts)) < least
            and not any("outcome" in body for _, body in parts)
        }
        if sum(map(len, waiting.values())) > _CARRIED:
            waiting = {}
        carried = tuple(sorted(row.seq for parts in waiting.values() for row, _ in parts))
        return Ok(
            Deltas(
                ops=tuple(_delta(*key, parts) for key, parts in sums.items() if key not in waiting),
                cursor=str(_Cursor(cut, seq, carried)),
                carried=len(carried),
                more=seq < self.store.log.head(GRAPH).seq,
            )
        )

    @verb
    def import_deltas(
        self, deltas: Deltas | Mapping[str, Json], *, actor: str | None = None, cause: str | None = None
    ) -> Result[DeltasImported]:
        """Add what other replicas exported, each part once, as of the moment it happened there.

        Parts that are known are left out, and so are those of nodes that do not exist here; send
        these again when the nodes have come. Trust is the lower of the part's and the caller's.

        Args:
            deltas: What `export_deltas` returned, or its JSON.
        """
        told = _read(deltas)
        parts = {part.id: (delta, part) for delta in told.ops for part in delta.parts}
        if len(parts) > _PARTS:
            refuse(f"{len(parts)} parts, more than the {_PARTS} allowed", hint="import them in several calls")
        _begin(self, actor)
        store = self.store
        here = store.projection.replicas.known(parts.keys())
        unknown = sorted({d.node for d, _ in parts.values() if store.projection.status(d.node) is None})
        now = store.now()
        wanted = [
            (delta, part)
            for name, (delta, part) in parts.items()
            if name not in here and delta.node not in unknown
        ]
        count = store.adopt(_adopted(self, delta, part) for delta, part in wanted)
        return Ok(
            DeltasImported(
                applied=count,
                known=len(here),
                unknown=tuple(unknown),
                skew_ms=max((0, *(part.at - now for _, part in wanted))),
            )
        )


def _begin(graph: Verbs, actor: str | None) -> int:
    since = graph.store.projection.replicas.since()
    if since is not None:
        return since
    return graph.record(Draft("memory.replication_began", {}), actor=actor)[0].seq


def _carried(store: Store, cursor: _Cursor, began: int) -> list[Row]:
    """Return the events that still wait to be sent; the cursor is one of this graph."""
    log = store.log
    if min((cursor.seq + 1, *cursor.carried)) < log.first(GRAPH):
        refuse(
            "events that were not sent yet have been compacted",
            ErrorCode.CONFLICT,
            hint="send a bundle, then begin again with since=None",
        )
    rows = [log.row(GRAPH, seq) for seq in cursor.carried]
    known = [row for row in rows if row is not None and row.type in DELTAS and row.seq > began]
    if len(known) < len(rows) or not began <= cursor.seq <= log.head(GRAPH).seq:
        refuse("since is a cursor of another graph", hint="begin again with since=None")
    return known


def _adopted(graph: Verbs, delta: Delta, part: DeltaPart) -> Adopted:
    # Most processes take nothing over, and a command waits for every import.
    from graphstate.verbs.admission import admit

    body: dict[str, Json] = {"id": delta.node, "amount": part.amount, "at": part.at}
    if delta.context is not None:
        body["context"] = delta.context
    if part.outcome is not None:
        body["outcome"] = part.outcome
    body = arguments.with_reason(body, part.reason)
    actor = part.actor or graph.actor
    arguments.name(part.id, "the id of an event")
    arguments.whole(part.written_at, "written_at", least=-(2**53), most=2**53)
    admit(graph.store, f"memory.{delta.kind}", actor, body)
    return Adopted(
        part.written_at,
        part.id,
        f"memory.{delta.kind}",
        actor,
        lowest(part.trust, graph.trust),
        None,
        body,
    )


def _delta(node: str, type: str, context: str | None, rows: list[tuple[Row, dict[str, Any]]]) -> Delta:
    return Delta(
        node=node, kind="reinforced" if type == DELTAS[0] else "suppressed", context=context,
        amount=sum(body["amount"] for _, body in rows),
        parts=tuple(
            DeltaPart(
                id=row.id or "", at=body["at"], written_at=row.at, amount=body["amount"],
                reason=body.get("reason"), outcome=body.get("outcome"), actor=row.actor, trust=row.trust,
            )
            for row, body in rows
        ),
    )  # fmt: skip


def _read(deltas: Deltas | Mapping[str, Json]) -> Deltas:
    if isinstance(deltas, Deltas):
        return deltas
    if not isinstance(deltas, Mapping):
        refuse(f"deltas must be what export_deltas returned, or its JSON, not {shown(deltas)}")
    try:
        return from_json(Deltas, dict(deltas))
    except (ValidationError, TypeError, ValueError) as error:
        refuse(f"deltas are not what export_deltas returned: {error}")
