"""Resuming: a run that is cut off after any entry goes on to the same end, and repeats nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from agentloop import (
    AgentLoop,
    Frame,
    LedgerConflict,
    LedgerEntry,
    LoopingAgentLoop,
    LoopResult,
    ManualClock,
    MemoryLedgerStore,
    ResumeError,
    RunLedger,
    RunNotFound,
    ScriptedAdapter,
    Tool,
    create_agent_loop,
    create_looping_agent_loop,
    fork,
    replay,
    resume,
)
from agentloop.ledger.recorder import Recorder
from tests.agentloop.loop.scenes import call, loop_options, more, no, play, yes

pytestmark = pytest.mark.anyio


class World:
    """Tools that count what they did, and fresh adapters for the same script."""

    def __init__(self, agent: Sequence[Any], evaluator: Sequence[Any], **options: Any) -> None:
        self.verdicts, self.options = evaluator, options
        self.done: Counter[str] = Counter()
        self.agent = ScriptedAdapter(agent)

    def tools(self) -> dict[str, Tool]:
        async def write(n: int) -> str:
            self.done[f"write {n}"] += 1
            return f"wrote {n}"

        async def read(n: int) -> str:
            self.done[f"read {n}"] += 1
            return f"read {n}"

        async def keyed(n: int, key: str) -> str:
            self.done[f"keyed {n} {key}"] += 1
            return f"kept {n}"

        return {
            "write": Tool(name="write", handler=write),
            "read": Tool(name="read", handler=read, read_only=True),
            "keyed": Tool(name="keyed", handler=keyed, accepts_key=True),
        }

    def given(self) -> dict[str, Any]:
        return loop_options(
            self.agent,
            ScriptedAdapter(self.verdicts),
            tool_adapters=self.tools(),
            **self.options,
        )


def copied(store: MemoryLedgerStore, entries: int, run: str = "r") -> MemoryLedgerStore:
    """Return a store with the first entries of a run, as a crash would have left it."""
    cut = MemoryLedgerStore()
    kept = [entry for entry in store.read(run) if entry.seq <= entries]
    blobs = dict(store._blobs)
    cut.append(run, kept, expected=0, sync=True, blobs=blobs)
    return cut


def told(result: LoopResult) -> dict[str, Any]:
    names = ("status", "reason", "evidence", "iterations", "retry_count", "agent_text", "symbolics")
    return {name: getattr(result, name) for name in names}


SUCCESS_UPDATE = [{"name": "done", "value": True}, {"name": "old", "op": "retract"}]

SCENES: dict[str, Callable[[], World]] = {
    "evaluator": lambda: World(["one", "two"], [more("not yet"), yes("good")]),
    "fails": lambda: World(["one"], [no("bad")]),
    "limit": lambda: World(["one", "two", "three"], [more(), more(), more()], max_iterations=3),
    "facts": lambda: World(
        ["one", "two"],
        [more("a", [{"name": "seen", "value": [1, "x"]}]), yes("b", SUCCESS_UPDATE)],
        initial_symbolics={"old": 1, "kept": "k"},
    ),
    "tools": lambda: World(
        [
            [call("write", {"n": 1}), "wrote", call("read", {"n": 1}, id="k2")],
            [[call("write", {"n": 2}), call("keyed", {"n": 3}, id="k9")], "done"],
            [call("nothing", {}), "third"],
        ],
        [more(), more(), yes()],
        forward_frames=("TEXT", "TOOL_RESULT"),
    ),
    "checks": lambda: World(
        ["one", "two", "three"],
        [more("judged")],
        checks_list=["symbolic:ready"],
        deterministic_checks=lambda names, trace: (False, "not ready"),
        max_retries=1,
        max_iterations=2,
    ),
    "parse again": lambda: World(["one"], ["prose", yes()], evaluator_parse_retries=1),
}


RECORDED = ("max_iterations", "max_retries", "evaluator_parse_retries", "forward_frames", "initial_symbolics")


def resumable(world: World) -> dict[str, Any]:
    """Return the options that resume takes: the record has the others."""
    return {name: value for name, value in world.given().items() if name not in RECORDED}


def go_on(store: MemoryLedgerStore, world: World) -> AgentLoop:
    loop = resume(store, "r", **resumable(world))
    assert isinstance(loop, AgentLoop)
    return loop


async def recorded(world: World, **options: Any) -> tuple[Any, list[Frame], MemoryLedgerStore]:
    store = MemoryLedgerStore()
    loop = create_agent_loop(**{**world.given(), **options}, ledger=store, run_id="r", cleanup_timeout_ms=100)
    frames = await play(loop)
    assert loop.result is not None
    return loop, frames, store


def kinds(store: MemoryLedgerStore) -> list[str]:
    return [entry.kind for entry in RunLedger(store, "r").entries()]


@pytest.mark.parametrize("scene", SCENES)
async def test_every_prefix_resumes_to_the_same_end(scene: str) -> None:
    loop, frames, store = await recorded(SCENES[scene]())
    entries = kinds(store)
    assert len(entries) > 6
    for cut_at in range(1, len(entries) + 1):
        where = f"after {cut_at}, {entries[cut_at - 1]}"
        cut, world = copied(store, cut_at), SCENES[scene]()
        resumed = go_on(cut, world)
        with anyio.fail_after(5):
            more_frames = await play(resumed)
        assert resumed.result is not None
        assert told(resumed.result) == told(loop.result), where
        assert more_frames[-1] == frames[-1], where
        report = replay(cut, "r")
        assert report.ok, (where, report.divergence)
        assert report.closed
        for past, first in zip(resumed.context.history, loop.context.history, strict=True):
            assert past["agent_text"] == first["agent_text"], where
            assert past["checks"] == first["checks"], where
            assert past["evaluation"] == first["evaluation"], where
            assert len(past["tool_results"]) == len(first["tool_results"]), where


async def test_a_cut_off_run_repeats_no_call_that_was_answered() -> None:
    _, _, store = await recorded(SCENES["tools"]())
    entries = list(RunLedger(store, "r").entries())
    for cut_at in range(1, len(entries) + 1):
        begun = {e.data["step"]: e.data["call"] for e in entries[:cut_at] if e.kind == "fact.tool_started"}
        answered = {e.data["step"] for e in entries[:cut_at] if e.kind == "fact.tool_result"}
        cut, world = copied(store, cut_at), SCENES["tools"]()
        resumed = go_on(cut, world)
        with anyio.fail_after(5):
            await play(resumed)
        done = {name.split(" r/")[0] for name in world.done}
        assert set(world.done.values()) <= {1}
        for step, asked in begun.items():
            name = f"{asked['name']} {asked['arguments'].get('n')}"
            if step in answered:
                assert name not in done, (cut_at, name)
            elif asked["name"] == "write":
                assert name not in done, (cut_at, name)
                assert resumed.result is not None
                assert any(
                    "'write'" in warning and "not known" in warning for warning in resumed.result.warnings
                )
                results = [one for past in resumed.context.history for one in past["tool_results"]]
                assert [one["error"] for one in results if one.get("error") == "unknown_outcome"]
            elif asked["name"] != "nothing":
                assert name in done, (cut_at, name)
                if asked["name"] == "keyed":  # the same key, so that it can know the call again
                    assert f"keyed 3 r/{step}" in world.done
        not_begun = {"write 1", "write 2"} - {
            f"write {asked['arguments'].get('n')}" for asked in begun.values()
        }
        assert not_begun <= done, cut_at


async def test_a_run_that_is_cut_off_twice_repeats_nothing_either() -> None:
    loop, _, store = await recorded(SCENES["tools"]())
    first_life = list(RunLedger(store, "r").entries())
    begun = [entry.seq for entry in first_life if entry.kind in ("fact.tool_started", "fact.tool_result")]
    for cut_at in begun:
        once, world = copied(store, cut_at), SCENES["tools"]()
        with anyio.fail_after(5):
            await play(go_on(once, world))
        entries = list(RunLedger(once, "r").entries())
        (resumed_at,) = [entry.seq for entry in entries if entry.kind == "fact.resumed"]
        for again_at in range(resumed_at, len(entries)):
            answered = Counter(
                f"{entry.data['call']['name']} {entry.data['call']['arguments'].get('n')}"
                for entry in entries[:again_at]
                if entry.kind == "fact.tool_started" and not entry.data["read_only"]
            )
            twice, world = copied(once, again_at), SCENES["tools"]()
            last = go_on(twice, world)
            with anyio.fail_after(5):
                await play(last)
            assert last.result is not None
            assert told(last.result) == told(loop.result), (cut_at, again_at)
            done = {name.split(" r/")[0] for name in world.done}
            for name in answered:
                if name.startswith("write"):
                    assert name not in done, (cut_at, again_at, name)
            report = replay(twice, "r")
            assert report.ok, (cut_at, again_at, report.divergence)


async def test_the_agent_is_told_what_its_interrupted_turn_had_called() -> None:
    _, _, store = await recorded(SCENES["tools"]())
    cut_at = 1 + kinds(store).index("fact.tool_started")
    cut, world = copied(store, cut_at), SCENES["tools"]()
    resumed = go_on(cut, world)
    await play(resumed)
    agent = world.agent
    (prompt,) = agent.prompts[0]
    assert prompt.text.startswith("go\n\n[This turn was interrupted")
    assert 'write({"n":1}): outcome unknown' in prompt.text
    assert "interrupted" not in agent.prompts[1][0].text


async def test_an_ended_run_gives_its_result_again_and_records_nothing() -> None:
    loop, frames, store = await recorded(SCENES["evaluator"]())
    before = kinds(store)
    resumed = resume(store, "r", **resumable(World([], [])))
    again = await play(resumed)
    assert resumed.result is not None
    assert told(resumed.result) == told(loop.result)
    assert again == frames[-1:]
    assert kinds(store) == before


async def test_an_aborted_turn_and_notes_are_taken_up() -> None:
    world = World(["one", "two"], [more(), yes()])
    notes: list[tuple[str, ...]] = []

    def prompt(ctx: Any) -> str:
        notes.append(ctx.inbox)
        return "go"

    loop = create_agent_loop(
        **{**world.given(), "build_agent_prompt": prompt},
        ledger=(store := MemoryLedgerStore()), run_id="r", record_prompts="digest",
    )  # fmt: skip
    async with loop:
        loop.sink.write_nowait(Frame("INPUT", {"text": "mind the gap"}))
        loop.sink.write_nowait({"type": "TICK"})
        async for _ in loop.source:
            pass
    assert notes == [("mind the gap",), ()]
    cut = copied(store, 1 + kinds(store).index("fact.prompt"))
    world = World(["one", "two"], [more(), yes()])
    resumed = resume(cut, "r", **{**resumable(world), "build_agent_prompt": prompt})
    await play(resumed)
    assert notes[2:] == [("mind the gap",), ()]


@pytest.mark.parametrize("name", ["max_iterations", "node", "run_id", "initial_symbolics", "ledger"])
async def test_what_the_record_decides_cannot_be_given(name: str) -> None:
    _, _, store = await recorded(SCENES["evaluator"]())
    with pytest.raises(TypeError, match=f"recorded {name}"):
        resume(store, "r", **{**resumable(SCENES["evaluator"]()), name: 3})


async def test_a_run_that_cannot_be_resumed_says_why() -> None:
    _, _, store = await recorded(SCENES["evaluator"]())
    with pytest.raises(RunNotFound):
        resume(store, "x", **resumable(SCENES["evaluator"]()))
    with pytest.raises(ResumeError, match="begun without checks_list"):
        resume(store, "r", **resumable(SCENES["evaluator"]()), checks_list=["exit_code:0"])
    changed = MemoryLedgerStore()
    recorder = Recorder(changed, "r", ManualClock())
    for entry in RunLedger(store, "r").entries():
        data = {**entry.data, "to": "checks"} if entry.kind == "step" and entry.data["n"] == 2 else entry.data
        recorder.record(entry.kind, data)
    recorder.flush(sync=True)
    with pytest.raises(ResumeError, match="does not replay, at entry"):
        resume(changed, "r", **resumable(SCENES["evaluator"]()))


async def test_two_who_resume_the_same_run_do_not_both_go_on() -> None:
    _, _, store = await recorded(SCENES["evaluator"]())
    cut = copied(store, 5)
    first = resume(cut, "r", **resumable(SCENES["evaluator"]()))
    second = resume(cut, "r", **resumable(SCENES["evaluator"]()))
    await play(first)
    await play(second)
    assert first.result is not None
    assert first.result.status == "SUCCESS"
    assert second.result is not None
    assert isinstance(second.result.error, LedgerConflict)


# --------------------------------------------------------------------------------------- fork


@pytest.mark.parametrize("scene", SCENES)
async def test_a_fork_from_any_entry_comes_to_the_same_end_if_nothing_is_changed(scene: str) -> None:
    loop, _, store = await recorded(SCENES[scene]())
    before = [(entry.seq, entry.hash) for entry in store.read("r")]
    for at in range(1, len(before)):
        forked = fork(store, "r", at=at, run_id=f"f{at}", **resumable(SCENES[scene]()))
        with anyio.fail_after(5):
            await play(forked)
        assert forked.result is not None
        assert told(forked.result) == told(loop.result), at
        report = replay(store, f"f{at}")
        assert report.ok, (at, report.divergence)
        # The fork is a run like any other: it can be cut off and resumed too.
        cut = copied(store, at + 2, f"f{at}")
        resumed = resume(cut, f"f{at}", **resumable(SCENES[scene]()))
        await play(resumed)
        assert resumed.result is not None
        assert told(resumed.result) == told(loop.result), at
    assert [(entry.seq, entry.hash) for entry in store.read("r")] == before


async def test_a_fork_may_have_other_limits_models_and_frames() -> None:
    _, _, store = await recorded(SCENES["limit"]())
    steps = [entry.seq for entry in RunLedger(store, "r").entries() if entry.kind == "step"]
    second_cycle = steps[2]
    # An adapter that has a script leaves out the turns that are shared.
    agent = ScriptedAdapter(["shared", "another way", "and on", "and on"])
    options = loop_options(agent, [more(), more(), more(), yes("at last")], max_iterations=6)
    forked = fork(store, "r", at=second_cycle, run_id="f", forward_frames=(), **options)
    frames = await play(forked)
    assert forked.result is not None
    assert (forked.result.status, forked.result.evidence) == ("SUCCESS", "at last")
    assert [past["agent_text"] for past in forked.context.history] == [
        "one",
        "another way",
        "and on",
        "and on",
    ]
    assert not [frame for frame in frames if frame.type == "TEXT"]
    report = replay(store, "f")
    assert report.ok, report.divergence
    (said,) = [entry.data for entry in RunLedger(store, "f").entries() if entry.kind == "fact.forked"]
    assert (said["run"], said["at"], said["config"]["max_iterations"]) == ("r", second_cycle, 6)


async def test_a_fork_that_cannot_be_says_why() -> None:
    _, _, store = await recorded(SCENES["evaluator"]())
    end = len(kinds(store))
    options = resumable(SCENES["evaluator"]())
    with pytest.raises(ResumeError, match=f"ended at entry {end}"):
        fork(store, "r", at=end, **options)
    for at in (0, -1, end + 1):
        with pytest.raises(ValueError, match=f"entries 1 to {end}, and none is number {at}"):
            fork(store, "r", at=at, **options)
    with pytest.raises(LedgerConflict):
        fork(store, "r", at=3, run_id="r", **options)
    with pytest.raises(TypeError, match="recorded ledger"):
        fork(store, "r", at=3, ledger=store, **options)
    assert [summary.run for summary in store.runs()] == ["r"]


# ------------------------------------------------------------------------------------ looping


class OrderedStore(MemoryLedgerStore):
    """Remembers in which order entries of several runs came."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[str, LedgerEntry]] = []

    def append(self, run: str, entries: Any, /, **options: Any) -> Any:
        head = super().append(run, entries, **options)
        self.order += [(run, entry) for entry in entries]
        return head

    def first(self, count: int) -> MemoryLedgerStore:
        """Return a store that holds what was there after that many entries."""
        cut = MemoryLedgerStore()
        for run, entry in self.order[:count]:
            cut.append(run, [entry], expected=entry.seq - 1, sync=True)
        return cut


NODES = [{"id": "a"}, {"id": "b"}, {"id": "c"}]
AGENT = ["a1", "a2", "b1", "c1"]
VERDICTS = [
    more("a", [{"name": "n", "value": 1}]),
    yes("a"),
    no("b", [{"name": "n", "value": 2}]),
    yes("c", [{"name": "m", "value": 3}]),
]


class TakesUp:
    """A provider of a function, which has to be told what happened before."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.asked: list[int] = []

    def __call__(self, index: int) -> Any:
        self.asked.append(index)
        return NODES[index] if index < len(NODES) else None

    def take_up(self, results: Sequence[LoopResult], node: Any) -> None:
        self.told.append(([result.status.value for result in results], node))


def outer_options(form: str) -> dict[str, Any]:
    provider: Any = list(NODES) if form == "list" else TakesUp()
    return {
        **loop_options(AGENT, VERDICTS),
        "node_provider": provider,
        "should_continue": lambda result, index: True,
        "inner_max_iterations": 3,
    }


@pytest.mark.parametrize("form", ["list", "function"])
async def test_every_prefix_of_a_looping_run_resumes_to_the_same_end(form: str) -> None:
    store = OrderedStore()
    loop = create_looping_agent_loop(**outer_options(form), max_iterations=5, ledger=store, run_id="r")
    await play(loop)
    assert loop.result is not None
    assert [result.status.value for result in loop.results] == ["SUCCESS", "FAILURE", "SUCCESS"]
    for cut_at in range(1, len(store.order) + 1):
        run, entry = store.order[cut_at - 1]
        where = f"after {run} {entry.seq} {entry.kind}"
        cut = store.first(cut_at)
        if not any(run == "r" for run, _ in store.order[:cut_at]):
            continue
        resumed = resume(cut, "r", **outer_options(form))
        assert isinstance(resumed, LoopingAgentLoop)
        with anyio.fail_after(5):
            await play(resumed)
        assert resumed.result is not None
        assert told(resumed.result) == told(loop.result), where
        assert [told(result) for result in resumed.results] == [told(result) for result in loop.results], (
            where
        )
        assert [result.node for result in resumed.results] == NODES, where
        assert resumed.symbolics.get_all() == {"n": 2, "m": 3}, where
        report = replay(cut, "r")
        assert report.ok, (where, report)
        assert report.closed


async def test_a_provider_is_told_how_the_nodes_so_far_ended() -> None:
    store = OrderedStore()
    await play(
        create_looping_agent_loop(**outer_options("function"), max_iterations=5, ledger=store, run_id="r")
    )
    place = next(n for n, (run, entry) in enumerate(store.order, 1) if run == "r/2" and entry.kind == "step")
    options = outer_options("function")
    resumed = resume(store.first(place), "r", **options)
    await play(resumed)
    provider = options["node_provider"]
    assert provider.told == [(["SUCCESS"], {"id": "b"})]
    assert provider.asked == [2, 3]
