"""What the tests of bundles share: a graph with a bit of everything, its live state, its lines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphstate import GENESIS, GRAPH, Adaptogen, Head, Row, row_hash
from graphstate._canonical import decode, encode, encode_text
from graphstate.bundle import BundleWriter, Header
from graphstate.events import first_break
from graphstate.store.snapshot import state_bytes

__all__ = ("bundle_of", "invariants", "live", "populate", "prune", "rechained", "rows_of", "taken_in")


def populate(graph: Adaptogen) -> Adaptogen:
    """Let every verb that writes have its say."""
    graph.remember("a", label="alpha", payload={"x": [1, 2.5, None, "é"]}, tags=["p", "q"]).unwrap()
    graph.remember("b", kind="task", embedding=[1, 0.25]).unwrap()
    graph.remember("c").unwrap()
    graph.link("a", "b", id="ab", weight=2).unwrap()
    graph.link("b", "a", id="ba", enforcement="soft", label="back").unwrap()
    graph.link("a", "c", id="ac").unwrap()
    graph.depend("c", "a", id="dep").unwrap()
    graph.unlink("ac").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.checkpoint("middle").unwrap()
    graph.step("b", reward=0.5).unwrap()
    graph.transition("a").unwrap()
    graph.archive("c").unwrap()
    graph.reward(-1, trace=True).unwrap()
    graph.set_tunable("explore", "greedy").unwrap()
    graph.as_actor("robot", trust="model").set_cursor(["b"]).unwrap()
    return graph


def bundle_of(graph: Adaptogen) -> bytes:
    file = io.BytesIO()
    graph.export(file).unwrap()
    return file.getvalue()


#: Columns of the tables in a state that number events of the log.
_SEQS = {"vector": (1,), "node": (8, 9), "edge": (11, 12), "experience": (7,), "zone": (7, 8)}


def live(graph: Adaptogen) -> dict[str, Any]:
    """The live state, but for the numbers of events and for what tells where it came from.

    How far nodes are trusted is left out too: what is taken over is trusted less.
    """
    graph.store.begin_read()
    try:
        state: dict[str, Any] = decode(state_bytes(graph.store._db))
    finally:
        graph.store.end_read()
    for table, columns in _SEQS.items():
        for row in state.get(table, ()):
            for column in columns:
                row[column] = row[column] > 0
    for row in state["node"]:
        del row[12]
    state["state"] = [
        [key, encode_text([value for _, value in decode(text)]) if key == "rewards" else text]
        for key, text in state["state"]
        if not key.startswith("origin/")
    ]
    return state


def invariants(graph: Adaptogen) -> None:
    """What must hold in any graph, wherever its events came from."""
    report = graph.verify_integrity(deep=True)
    assert report.ok, report
    assert not graph.topo().cyclic
    assert all(entry.summary for entry in graph.history(limit=1_000))
    assert graph.render()
    state = live(graph)
    nodes = {row[1] for row in state["node"]}
    assert all({row[2], row[3]} <= nodes for row in state["edge"])
    for key, value in state["state"]:
        if key.startswith("cursor/"):
            assert set(decode(value)["nodes"]) <= nodes


def prune(graph: Adaptogen, name: str = "pruned") -> int:
    """Remove the events up to a checkpoint made now, and return how many."""
    graph.checkpoint(name).unwrap()
    return graph.compact(retain=0).unwrap().pruned


def rows_of(bundle: bytes) -> list[Row]:
    """The events of a bundle that begins with event 1."""
    rows = []
    for line in bundle.splitlines()[1:-1]:
        found = decode(line)
        rows.append(
            Row(
                found["seq"], found["at"], found["id"], found["type"], found["actor"], found["trust"],
                found["cause"], encode(found["payload"]), bytes.fromhex(found["hash"]),
            )
        )  # fmt: skip
    assert first_break(GRAPH, Head(0, GENESIS), rows) is None
    return rows


def rechained(rows: Sequence[Row]) -> bytes:
    """A bundle of any events, with a chain, a header and a trailer that fit them."""
    previous, chained = GENESIS, []
    for seq, row in enumerate(rows, 1):
        previous = row_hash(previous, GRAPH, seq, *row[1:8])
        chained.append(row._replace(seq=seq, hash=previous))
    file, head = io.BytesIO(), Head(len(rows), previous)
    writer = BundleWriter(file)
    at = chained[-1].at if chained else None
    writer.header(Header(2, head, Head(0, GENESIS), at, len(rows), 0, ()))
    for row in chained:
        writer.event(row)
    writer.trailer(head, len(rows))
    return file.getvalue()


def taken_in(bundle: bytes, path: Path | str = ":memory:", **options: Any) -> Adaptogen:
    """The graph that a bundle makes."""
    return Adaptogen.import_state(path, io.BytesIO(bundle), **options)
