"""A fault between any two SQL statements: each verb happens as a whole or not at all.

A script runs every verb that changes something. Each of its steps is tried again and again, and
each time one statement later does not happen: SQLite reports that the disk failed, or an
interrupt arrives. What the files hold at that moment is set aside, as a process would leave
them that vanishes there, and opened afresh. Before, there or after: nothing else may be found, and
the next verb works. `RELIABILITY=full` takes every statement, both ways; otherwise it is a sample.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import apsw
import pytest

from graphstate import Adaptogen, Fail, GraphStateError, HashingEmbedder
from graphstate.events import IdGen
from graphstate.manifest import VERBS
from tests.graphstate.bundles import bundle_of, populate
from tests.integration.fault_script import Left, append_run, join, left
from tests.tally import tally

FULL = os.environ.get("RELIABILITY") == "full"
#: Every n-th statement of a verb is the one that fails.
EVERY = 1 if FULL else 11
CHUNKS = 4

Way: TypeAlias = Literal["disk", "interrupt"]
Step: TypeAlias = tuple[str, Callable[[Adaptogen, Path], Any]]

# ---------------------------------------------------------------------------------- the script


class Source:
    """Time, randomness and ids that can go back to where they were."""

    def __init__(self) -> None:
        self.ticks = 0

    def now(self) -> int:
        self.ticks += 1
        return 1_000_000 + self.ticks

    def rand(self) -> float:
        self.ticks += 1
        return self.ticks * 0.6180339887 % 1

    def ids(self) -> IdGen:
        return Ids(self)


class Ids(IdGen):
    __slots__ = ("_source",)

    def __init__(self, source: Source) -> None:
        super().__init__(source.now, source.rand)
        self._source = source

    def next(self, prefix: str) -> str:
        return f"{prefix}{self._source.now():020d}"


def opened(path: Path, source: Source) -> Adaptogen:
    return Adaptogen.open(
        path,
        seed=False,
        now=source.now,
        rand=source.rand,
        ids=source.ids(),
        embedder=HashingEmbedder(dimensions=2),
    )


def bundle() -> bytes:
    with Adaptogen.open(seed=False, now=lambda: 5) as graph:
        return bundle_of(populate(graph))


BUNDLE = bundle()


def branches(graph: Adaptogen, place: Path) -> None:
    graph.branch(place / "branch.db").unwrap().close()


def writes_in_the_branch(graph: Adaptogen, place: Path) -> None:
    with opened(place / "branch.db", Source()) as branch, branch.unit():
        branch.remember("elsewhere", payload={"x": 1}).unwrap()
        branch.link("a", "elsewhere", id="a-elsewhere").unwrap()


def merges(graph: Adaptogen, place: Path) -> None:
    with opened(place / "branch.db", Source()) as branch:
        graph.merge(branch).unwrap()


def imports(graph: Adaptogen, place: Path) -> None:
    source = Source()
    Adaptogen.import_state(
        place / "imported.db", io.BytesIO(BUNDLE), now=source.now, rand=source.rand, ids=source.ids()
    ).close()


def plans(graph: Adaptogen, place: Path) -> None:
    spec: Any = {
        "nodes": [{"id": "p1", "payload": {"n": 1}}, "p2"],
        "transitions": [["a", "p1", {"id": "a-p1"}], ["p1", "a", {"id": "p1-a"}]],
        "deps": [["p2", "p1"]],
        "cursor": ["a"],
    }
    graph.plan(spec).unwrap()


def strays(graph: Adaptogen, place: Path) -> None:
    """Let a cursor stand on a node that was set aside: `repair` has to mend that."""
    with graph.unit():
        graph.set_cursor(["d"], actor="robot").unwrap()
        graph.archive("d").unwrap()


def hardens(graph: Adaptogen, place: Path) -> None:
    with graph.unit():
        for _ in range(12):
            graph.set_cursor(["a"]).unwrap()
            graph.transition(edge_id="ab").unwrap()
        graph.set_cursor(["a"]).unwrap()
    assert graph.zones()[0].learned_intra == "hard"


def is_denied(graph: Adaptogen, place: Path) -> None:
    assert not graph.transition(edge_id="hard").unwrap().applied


def is_told(graph: Adaptogen, place: Path) -> None:
    graph.feedback("search", "u1", True, signals={"lexical": 0.5, "usage": 0.1}).unwrap()


def goes_round(graph: Adaptogen, place: Path) -> None:
    """Export what was added since, and take it in where it is known."""
    graph.import_deltas(graph.export_deltas(flush=True).unwrap()).unwrap()


#: In an order in which each has something to do; a step is named by its verb.
STEPS: tuple[Step, ...] = (
    ("remember", lambda g, _: g.remember("a", payload={"text": "x" * 3_000}, tags=["t"]).unwrap()),
    ("remember with a cause", lambda g, _: g.remember("b", embedding=[1, 2], cause="once").unwrap()),
    ("unit", lambda g, _: join(g)),
    ("remember c", lambda g, _: g.remember("c", kind="task").unwrap()),
    ("remember d", lambda g, _: g.remember("d").unwrap()),
    ("remember dead", lambda g, _: g.remember("dead").unwrap()),
    ("link", lambda g, _: g.link("a", "b", id="ab", guard="vars.ok == true").unwrap()),
    ("link back", lambda g, _: g.link("b", "a", id="ba").unwrap()),
    ("link over a boundary", lambda g, _: g.link("a", "c", id="hard").unwrap()),
    ("depend", lambda g, _: g.depend("c", "a", id="dep").unwrap()),
    ("set_cursor", lambda g, _: g.set_cursor(["a"], reason="begin").unwrap()),
    ("define_zone", lambda g, _: g.define_zone("z", ["a", "b"]).unwrap()),
    ("transition", lambda g, _: g.transition("b").unwrap()),
    ("step", lambda g, _: g.step(reward=1).unwrap()),
    ("transitions that harden", hardens),
    ("transition that is denied", is_denied),
    ("checkpoint", lambda g, _: g.checkpoint("cp").unwrap()),
    ("reward", lambda g, _: g.reward(0.5, trace=True).unwrap()),
    ("set_zone_enforcement", lambda g, _: g.set_zone_enforcement("z", intra="off").unwrap()),
    ("add_to_zone", lambda g, _: g.add_to_zone("z", "d").unwrap()),
    ("remove_from_zone", lambda g, _: g.remove_from_zone("z", "d").unwrap()),
    ("derive_zone", lambda g, _: g.derive_zone("a", ratify=True, name="y", boundary="off").unwrap()),
    ("delete_zone", lambda g, _: g.delete_zone("y").unwrap()),
    ("lock_policy", lambda g, _: g.lock_policy("edge", "ab", reason="kept").unwrap()),
    ("unlock_policy", lambda g, _: g.unlock_policy("edge", "ab").unwrap()),
    ("set_enforcement", lambda g, _: g.set_enforcement("ab", "soft").unwrap()),
    ("reinforce", lambda g, _: g.reinforce("a", 0.5, context="x", outcome="useful").unwrap()),
    ("suppress", lambda g, _: g.suppress("b", 0.5).unwrap()),
    ("release", lambda g, _: g.release("b").unwrap()),
    ("reinforce_all", lambda g, _: g.reinforce_all([{"id": n, "amount": 0.1} for n in "abc"]).unwrap()),
    ("bump_attention", lambda g, _: g.bump_attention("a", 1).unwrap()),
    ("register_memory_class", lambda g, _: g.register_memory_class("note", "episodic").unwrap()),
    ("remember with a vector", lambda g, _: g.remember("u1", payload={"text": "xxx"}, embed=True).unwrap()),
    ("reembed", lambda g, _: g.reembed().unwrap()),
    ("set_weights", lambda g, _: g.set_weights({"usage": 0.5}).unwrap()),
    ("absorb", lambda g, _: g.absorb("xxx").unwrap()),
    ("feedback", is_told),
    ("supersede", lambda g, _: g.supersede("u1", "u2").unwrap()),
    ("unsupersede", lambda g, _: g.unsupersede("u2").unwrap()),
    ("consolidate", lambda g, _: g.consolidate("sum", ["u1", "u2"], payload={"text": "both"}).unwrap()),
    ("export_deltas", lambda g, _: g.export_deltas().unwrap()),
    ("reinforce after it", lambda g, _: g.reinforce("a", 0.2).unwrap()),
    ("import_deltas", goes_round),
    ("recall", lambda g, _: g.recall(text="xxx")),
    ("plan", plans),
    ("set_status", lambda g, _: g.set_status("p2", "archived").unwrap()),
    ("deprecate", lambda g, _: g.deprecate("p2").unwrap()),
    ("archive and a cursor", strays),
    ("archive", lambda g, _: g.archive("u1").unwrap()),
    ("repair", lambda g, _: g.repair().unwrap()),
    ("set_tunable", lambda g, _: g.set_tunable("ucbC", 2).unwrap()),
    ("append", lambda g, _: append_run(g)),
    ("snapshot", lambda g, _: g.snapshot().unwrap()),
    ("pin", lambda g, _: g.pin("u2").unwrap()),
    ("unpin", lambda g, _: g.unpin("u2").unwrap()),
    ("reweight", lambda g, _: g.reweight().unwrap()),
    ("gc", lambda g, _: g.gc().unwrap()),
    ("reward again", lambda g, _: g.reward(-1).unwrap()),
    ("self_iterate", lambda g, _: g.self_iterate(min_age=0).unwrap()),
    ("split_state", lambda g, _: g.split_state("a", "a2", ["a-p1"]).unwrap()),
    ("merge_states", lambda g, _: g.merge_states("b", "c").unwrap()),
    ("migrate", lambda g, _: g.migrate("state", lambda payload: {**payload, "v": 2}).unwrap()),
    ("unlink", lambda g, _: g.unlink("dep").unwrap()),
    ("export", lambda g, place: g.export(place / "out.jsonl", overwrite=True).unwrap()),
    ("branch", branches),
    ("writing in the branch", writes_in_the_branch),
    ("merge", merges),
    ("import", imports),
    ("verify_integrity", lambda g, _: g.verify_integrity(deep=True)),
    ("compact", lambda g, _: g.compact(retain=3).unwrap()),
    ("rebuild", lambda g, _: g.rebuild().unwrap()),
    ("rollback", lambda g, _: g.rollback("cp", reason="a fault").unwrap()),
    ("remember after it", lambda g, _: g.remember("e", payload={"big": "y" * 20_000}).unwrap()),
    ("compact all", lambda g, _: g.compact(retain=0).unwrap()),
)


def test_the_script_runs_every_verb_that_changes_something() -> None:
    changing = {name for names in VERBS.values() for name in names}
    changing = {name for name in changing if getattr(Adaptogen, name).verb == "changes"}
    assert changing <= {name for name, _ in STEPS}


# ---------------------------------------------------------------------------------- the fault


class Faults:
    """Hears of every statement of every connection before it runs, and lets one of them fail."""

    def __init__(self) -> None:
        self.count = self.at = 0
        self.way: Way = "disk"
        self.fired = ""
        self.meanwhile: Callable[[], object] = lambda: None

    def arm(self, at: int, way: Way, meanwhile: Callable[[], object]) -> None:
        """Let the n-th statement from now on not happen."""
        self.count, self.at, self.way, self.fired, self.meanwhile = 0, at, way, "", meanwhile

    def disarm(self) -> None:
        self.at = 0

    def __call__(self, cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        self.count += 1
        if self.count == self.at:
            self.disarm()
            self.fired = sql
            self.meanwhile()
            # Undoing reaches no disk, and ends what an interrupt began: it is only looked at.
            if sql != "ROLLBACK":
                raise apsw.IOError("injected") if self.way == "disk" else KeyboardInterrupt
        return True


@contextmanager
def faults() -> Iterator[Faults]:
    found = Faults()

    def watch(connection: apsw.Connection) -> None:
        connection.set_exec_trace(found)

    apsw.connection_hooks.append(watch)
    try:
        yield found
    finally:
        apsw.connection_hooks.remove(watch)


def done(work: Callable[[], Any]) -> bool:
    """Say whether something was acknowledged."""
    try:
        return not isinstance(work(), Fail)
    except (GraphStateError, KeyboardInterrupt):
        return False


# ---------------------------------------------------------------------------------- what is left


def beside(place: Path) -> tuple[Left | None, ...]:
    """What the files hold that the script makes beside its own."""
    found: list[Left | None] = []
    for name in ("branch.db", "imported.db"):
        if (place / name).exists():
            with opened(place / name, Source()) as graph:
                assert graph.verify_integrity(deep=True).ok, name
                found.append(left(graph))
        else:
            found.append(None)
    return tuple(found)


def vanished(copy: Path) -> tuple[Left, tuple[Left | None, ...]]:
    """What is found where a process vanished; the next verb works there."""
    siblings = beside(copy)
    with opened(copy / "graph.db", Source()) as graph:
        assert graph.recovery.trimmed == 0
        report = graph.verify_integrity(deep=True)
        assert report.ok, report
        found = left(graph)
        assert graph.remember("afterwards").ok
        assert graph.step().ok or graph.set_cursor(["afterwards"]).ok
    shutil.rmtree(copy)
    return found, siblings


class Played:
    """The script up to a step, on one handle, with what each step leaves."""

    def __init__(self, place: Path) -> None:
        self.place, self.source = place, Source()
        self.graph = opened(place / "graph.db", self.source)

    def state(self) -> tuple[Left, tuple[Left | None, ...]]:
        return left(self.graph), beside(self.place)

    def reopen(self) -> None:
        self.graph.close()
        self.graph = opened(self.place / "graph.db", self.source)


def reference(place: Path) -> list[tuple[Left, tuple[Left | None, ...]]]:
    played, states = Played(place), []
    states.append(played.state())
    for _, step in STEPS:
        step(played.graph, place)
        states.append(played.state())
    played.graph.close()
    return states


@pytest.mark.timeout(1_200 if FULL else 120)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_fault_between_any_two_statements_leaves_a_verb_whole_or_undone(disk: Path, chunk: int) -> None:
    (disk / "reference").mkdir()
    (disk / "faulty").mkdir()
    with faults() as fault:
        expected = reference(disk / "reference")
        played = Played(disk / "faulty")
        tried = 0
        for number, (name, step) in enumerate(STEPS):
            allowed = expected[number : number + 2]
            if number % CHUNKS == chunk:
                tried += torment(played, name, step, fault, allowed)
            else:
                step(played.graph, played.place)
            assert played.state() == expected[number + 1], name
        played.graph.close()
    assert tried > 10
    tally("faults between statements", tried)


def torment(
    played: Played, name: str, step: Callable[[Adaptogen, Path], Any], fault: Faults, allowed: Any
) -> int:
    """Let each statement of a step fail once, until the step gets through; return how often it did not."""
    before, after = allowed
    ways: tuple[Way, ...] = ("disk", "interrupt")
    tried, ticks = 0, played.source.ticks
    for at in range(1 + (len(name) % EVERY), 100_000, EVERY):
        for way in ways if FULL else (ways[at % 2],):
            copy = played.place.parent / "copy"
            fault.arm(at, way, lambda copy=copy: shutil.copytree(played.place, copy))  # type: ignore[misc]  # bound at once
            acknowledged = done(lambda: step(played.graph, played.place))
            fault.disarm()
            if not fault.fired:
                assert acknowledged, name
                return tried
            tried += 1
            where = (name, at, way, fault.fired)
            there = vanished(copy)
            assert there in allowed, where
            now = played.state()
            assert now == (after if acknowledged else now), where
            assert now in allowed, where
            assert there == before or now == after, where
            if now == after != before:  # it was the very end, behind the commit
                played.reopen()
                return tried
            if played.graph.store.broken() is not None:
                played.reopen()
            played.source.ticks = ticks
    raise AssertionError(f"{name} has no end")
