"""One script that uses every way to write, repeatable to the byte, and what it leaves after each step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from graphstate import GENESIS, Adaptogen, Row, row_hash
from graphstate.events import GRAPH
from graphstate.store.snapshot import state_bytes
from tests.graphstate.conftest import Clock, Golden

__all__ = ("STEPS", "Left", "folder", "left", "opened", "play")

Step = tuple[str, Callable[[Adaptogen], Any]]


def append_run(graph: Adaptogen) -> None:
    rows, previous = [], GENESIS
    for seq in range(1, 4):
        body = b'{"text":"%s"}' % (b"x" * 900)
        previous = row_hash(previous, "run:1", seq, 7, None, "fact.frames", None, None, None, body)
        rows.append(Row(seq, 7, None, "fact.frames", None, None, None, body, previous))
    graph.store.append("run:1", rows, expected=0, sync=True)


def join(graph: Adaptogen) -> None:
    with graph.unit(sync=True):
        graph.remember("u1", payload={"n": 1}).unwrap()
        graph.remember("u2", payload={"n": 1}).unwrap()


#: Each step is acknowledged as a whole.
STEPS: tuple[Step, ...] = (
    ("remember a", lambda g: g.remember("a", payload={"text": "x" * 3_000}, tags=["t"]).unwrap()),
    ("remember b", lambda g: g.remember("b", embedding=[1, 2], cause="once").unwrap()),
    ("remember c", lambda g: g.remember("c").unwrap()),
    ("link ab", lambda g: g.link("a", "b", id="ab").unwrap()),
    ("link bc", lambda g: g.link("b", "c", id="bc").unwrap()),
    ("link ca", lambda g: g.link("c", "a", id="ca").unwrap()),
    ("depend", lambda g: g.depend("c", "a", id="dep").unwrap()),
    ("set_cursor", lambda g: g.set_cursor(["a"]).unwrap()),
    ("transition", lambda g: g.transition("b").unwrap()),
    ("reward", lambda g: g.reward(1).unwrap()),
    ("checkpoint", lambda g: g.checkpoint("cp").unwrap()),
    ("step", lambda g: g.step(reward=-1).unwrap()),
    ("unlink", lambda g: g.unlink("ca").unwrap()),
    ("archive", lambda g: g.archive("b").unwrap()),
    ("set_status", lambda g: g.set_status("b", "active").unwrap()),
    ("deprecate", lambda g: g.deprecate("c").unwrap()),
    ("set_tunable", lambda g: g.set_tunable("ucbC", 2).unwrap()),
    ("recall text", lambda g: g.recall(text="xxx")),
    ("append", append_run),
    ("unit", join),
    ("snapshot", lambda g: g.snapshot().unwrap()),
    ("rebuild", lambda g: g.rebuild().unwrap()),
    ("rollback", lambda g: g.rollback("cp", reason="a fault").unwrap()),
    ("remember d", lambda g: g.remember("d", payload={"big": "y" * 20_000}).unwrap()),
    ("compact", lambda g: g.compact(retain=3).unwrap()),
    ("remember a again", lambda g: g.remember("a", payload={"text": "z"}).unwrap()),
    ("verify", lambda g: g.verify_integrity()),
    ("back over the compaction", lambda g: g.rollback("cp").unwrap()),
    ("compact all", lambda g: g.compact(retain=0).unwrap()),
    ("trace", lambda g: g.reward(0.5, trace=True).unwrap()),
)


class Left(NamedTuple):
    """What a file holds, to be compared."""

    head: str
    run: int
    state: bytes
    aside: int
    checkpoints: tuple[str, ...]
    rows: int


def left(graph: Adaptogen) -> Left:
    """Return what a graph holds now."""
    return Left(
        graph.head(),
        graph.store.head("run:1").seq,
        state_bytes(graph.store._db),
        sum(cut.rows for cut in graph.cuts()),
        tuple(c.name for c in graph.list_checkpoints()),
        sum(1 for _ in graph.store.read(GRAPH)),
    )


def opened(path: Path, **options: Any) -> Adaptogen:
    """Open the file with the script's clock and randomness."""
    chosen: dict[str, Any] = {"seed": False, "now": Clock(), "rand": Golden()} | options
    return Adaptogen.open(path, **chosen)


def play(path: Path, told: Callable[[int], object], **options: Any) -> None:
    """Run the whole script; ``told`` hears how many steps are acknowledged, -1 of them before opening."""
    graph = opened(path, **options)
    told(0)
    for number, (_, step) in enumerate(STEPS, 1):
        step(graph)
        told(number)
    graph.close()


def folder(disk: Path, number: int) -> Path:
    """Make a folder of its own for one fault."""
    place = disk / str(number)
    place.mkdir()
    return place
