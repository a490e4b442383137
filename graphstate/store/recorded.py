"""What the log itself says about snapshots, checkpoints and compactions.

Snapshots and checkpoints stand in tables of their own, which anybody could edit. Each is
believed only as far as an event of the chain names it: `SnapshotTaken` with the digest,
`CheckpointCreated` with the place, and `Compacted`, which repeats both for what lost its events.
A rollback sets aside the events of the checkpoint it returns to, so rows that were set aside
count too. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphstate._canonical import NotJson, decode
from graphstate.events import GRAPH, Head
from graphstate.store.log import Log
from graphstate.store.snapshot import Pin, Snapshots, Taken

__all__ = (
    "checkpoints",
    "compaction",
    "compaction_body",
    "damage",
    "missing",
    "snapshot_is_named",
    "snapshot_is_recorded",
    "start_problem",
)


def _object(body: bytes | None) -> Mapping[str, Any]:
    try:
        value = None if body is None else decode(body)
    except NotJson:
        value = None
    return value if isinstance(value, dict) else {}


def compaction(log: Log) -> Mapping[str, Any]:
    """Return the record of where the log begins; empty if nothing was ever removed."""
    seq = log.start_record(GRAPH)
    row = log.row(GRAPH, seq) if seq else None
    return _object(row.body if row is not None and row.type == "Compacted" else None)


def compaction_body(start: Head, count: int, base: Taken | None, snapshots: Snapshots) -> dict[str, Any]:
    """Return what a compaction writes into the log: where it begins now, and what to believe.

    ``base`` is what a replay begins with; None at the very beginning, where nothing is needed.
    """
    digests = {taken.id: taken.digest for taken in snapshots.before(2**53)}
    kept = [
        {"name": name, "seq": pin.head.seq, "hash": pin.head.hash.hex(), "snapshotId": pin.snapshot,
         "digest": digests[pin.snapshot].hex() if pin.snapshot in digests else None}
        for name, pin in snapshots.checkpoints().items()
    ]  # fmt: skip
    return {
        "seq": start.seq, "hash": start.hash.hex(), "count": count,
        "snapshotId": base and base.id, "snapshotSeq": base and base.head.seq,
        "digest": base and base.digest.hex(), "checkpoints": kept,
    }  # fmt: skip


def start_problem(log: Log) -> str | None:
    """Return why the log may not begin where it does, None if it may."""
    start = log.start(GRAPH)
    if start.seq == 0 and log.start_record(GRAPH) == 0:
        return None
    record = compaction(log)
    if (record.get("seq"), record.get("hash")) == (start.seq, start.hash.hex()):
        return None
    return f"the log begins after event {start.seq}, and no event of it says that this was a compaction"


def snapshot_is_recorded(log: Log, taken: Taken) -> bool:
    """Say whether an event names this snapshot with this digest."""
    wanted = taken.id, taken.digest.hex()
    record = compaction(log)
    at = taken.head.seq + 1
    row = log.row(GRAPH, at)
    kept = [row.body] if row is not None and row.type == "SnapshotTaken" else []
    bodies = map(_object, (*kept, *log.set_aside(GRAPH, at, "SnapshotTaken")))
    return any(
        (body.get("snapshotId"), body.get("digest")) == wanted
        for body in (*bodies, record, *record.get("checkpoints", ()))
    )


def snapshot_is_named(log: Log, taken: Taken) -> bool:
    """Say whether an event after this snapshot, and not set aside, names it: a bundle carries its proof."""
    wanted, record, row = (taken.id, taken.digest.hex()), compaction(log), log.row(GRAPH, taken.head.seq + 1)
    own = _object(row.body) if row is not None and row.type == "SnapshotTaken" else {}
    return any((body.get("snapshotId"), body.get("digest")) == wanted for body in (own, record))


def _named(log: Log) -> Iterator[tuple[int, str, Pin | None]]:
    """Yield (number, name, pin) of each `CheckpointCreated` that is kept or that a record repeats.

    The number is that of the event itself, two after the one that the checkpoint stands on.
    """
    for kept in compaction(log).get("checkpoints", ()):
        place = Head(kept["seq"], bytes.fromhex(kept["hash"]))
        yield kept["seq"] + 2, kept["name"], Pin(place, kept["snapshotId"])
    for seq, text in log.of_type(GRAPH, "CheckpointCreated"):
        body = _object(text)
        digest = log.hash_at(GRAPH, body.get("seq", -1))
        pin = Pin(Head(body["seq"], digest), body["snapshotId"]) if digest is not None else None
        yield seq, body.get("name", ""), pin


def checkpoints(log: Log, upto: int = 2**53) -> dict[str, Pin]:
    """Return where the checkpoints stood at an event, as the kept events name them."""
    found: dict[str, Pin] = {}
    for number, name, pin in sorted(_named(log), key=lambda named: named[0]):
        if pin is not None and number <= upto:
            found[name] = pin
    return found


def _was_recorded(log: Log, name: str, pin: Pin) -> bool:
    """Say whether a rollback to this checkpoint set its events aside."""
    wanted = name, pin.head.seq, pin.snapshot
    bodies = map(_object, log.set_aside(GRAPH, pin.head.seq + 2, "CheckpointCreated"))
    named = any((body.get("name"), body.get("seq"), body.get("snapshotId")) == wanted for body in bodies)
    return named and log.hash_at(GRAPH, pin.head.seq) == pin.head.hash


def missing(named: Mapping[str, Pin], snapshots: Snapshots) -> dict[str, Pin]:
    """Return the named checkpoints that are not there although their snapshots are."""
    present, kept = snapshots.checkpoints(), {taken.id for taken in snapshots.before(2**53)}
    return {
        name: pin for name, pin in named.items() if name not in present and pin.snapshot in kept
    }  # fmt: skip


def damage(log: Log, snapshots: Snapshots) -> tuple[dict[str, Pin], list[str], list[str]]:
    """Compare the checkpoints and snapshots in the tables with what the events say.

    Returns:
        The checkpoints that are missing or differ, as the events have them; the names of those
        that no event knows; the ids of the snapshots whose bytes or digest are not the recorded.
    """
    named, unknown = checkpoints(log), []
    wrong = missing(named, snapshots)
    for name, pin in snapshots.checkpoints().items():
        if named.get(name) == pin or _was_recorded(log, name, pin):
            continue
        if name in named:
            wrong[name] = named[name]
        else:
            unknown.append(name)
    bad = [
        taken.id for taken in snapshots.before(2**53)
        if snapshots.read(taken.id) is None or not snapshot_is_recorded(log, taken)
    ]  # fmt: skip
    return wrong, unknown, bad
