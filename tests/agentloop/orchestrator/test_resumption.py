"""Replays, resumed and forked runs of the orchestrator: the record is enough to go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from agentloop import (
    Frame,
    LedgerConflict,
    ManualClock,
    MemoryLedgerStore,
    Mulberry32,
    Orchestrator,
    ResumeError,
    RunLedger,
    RunNotFound,
    RunResult,
    SequentialIds,
    Tool,
    fork,
    replay,
    replay_file,
    resume,
    run,
)
from agentloop.ledger.recorder import Recorder
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.providers import ChunkedProvider, ScriptedProvider
from agentloop.outcome import Err, transient
from tests.agentloop.orchestrator.scenes import A, F

pytestmark = pytest.mark.anyio

ONE: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class World:
    """Tools that count what they did, and fresh providers for the same script."""

    def __init__(self, turns: Sequence[Mapping[str, Any]], *, streamed: bool = False, **options: Any) -> None:
        self.turns, self.streamed, self.options = turns, streamed, options
        self.done: Counter[str] = Counter()
        self.flaky = 1
        self.clock = ManualClock()

    def tools(self) -> list[Tool]:
        async def write(n: int) -> str:
            self.done[f"write {n}"] += 1
            return f"wrote {n}"

        async def read(n: int) -> str:
            self.done[f"read {n}"] += 1
            return f"read {n}"

        async def keyed(n: int, key: str) -> str:
            self.done[f"keyed {n} {key}"] += 1
            return f"kept {n}"

        async def flaky(n: int) -> Any:
            self.flaky -= 1
            return Err(transient("net.down", "down")) if self.flaky >= 0 else f"read {n}"

        return [
            Tool(name="write", handler=write, schema=ONE),
            Tool(name="read", handler=read, schema=ONE, read_only=True),
            Tool(name="keyed", handler=keyed, schema=ONE, accepts_key=True),
            Tool(name="flaky", handler=flaky, schema=ONE, read_only=True),
        ]

    def provider(self) -> Any:
        provider = ScriptedProvider(self.turns, clock=self.clock)
        return ChunkedProvider(provider, characters=3) if self.streamed else provider

    async def run(self, store: MemoryLedgerStore) -> RunResult:
        given = {**self.given(), "deps": Deps(clock=self.clock, ids=SequentialIds()), "seed": "test"}
        return await run("the goal", ledger=store, run_id="r", config=self.options, **given)

    def given(self) -> dict[str, Any]:
        return {"provider": self.provider(), "tools": self.tools(), "deps": Deps(clock=self.clock, rng=None)}


def use(*calls: tuple[str, int], say: str = "") -> dict[str, Any]:
    return {"say": say, "callTools": [{"name": name, "args": {"n": n}} for name, n in calls]}


SCENES: dict[str, Callable[[], World]] = {
    "answer": lambda: World([A()]),
    "writes": lambda: World([use(("write", 1)), use(("write", 2), ("read", 3), ("keyed", 4)), A()]),
    "reads": lambda: World([use(("read", 1), ("read", 2)), A()]),
    "retries": lambda: World([F(), use(("read", 1)), F(), F(), A()]),
    "flaky": lambda: World([use(("flaky", 1)), F(), A()]),
    "repairs": lambda: World(
        [A(" "), F("correctable"), use(("nope", 1)), A()], budget={"maxConsecutiveFailures": 9}
    ),
    "streams": lambda: World(
        [use(("write", 1), say="let me look"), F(), A("an answer of some length")], streamed=True
    ),
    "halts": lambda: World([use(("read", 1)), use(("read", 2))], budget={"maxSteps": 2}),
    "fails": lambda: World([use(("write", 1)), F("fatal", "auth.invalid_key")]),
}


def copied(store: MemoryLedgerStore, entries: int) -> MemoryLedgerStore:
    """Return a store with the first entries of a run, as a crash would have left it."""
    cut = MemoryLedgerStore()
    kept = [entry for entry in store.read("r") if entry.seq <= entries]
    cut.append("r", kept, expected=0, sync=True, blobs=dict(store._blobs))
    return cut


async def driven(loop: object) -> RunResult:
    assert isinstance(loop, Orchestrator)
    return await loop.run()


def told(result: RunResult) -> Any:
    return result.outcome.to_wire(), result.ledger.fingerprint, result.transcript


@pytest.mark.parametrize("scene", SCENES)
async def test_every_prefix_goes_on_to_the_same_end(scene: str) -> None:
    store, world = MemoryLedgerStore(), SCENES[scene]()
    whole = await world.run(store)
    entries = [entry.kind for entry in RunLedger(store, "r").entries()]
    assert replay(store, "r").ok
    for length in range(1, len(entries) + 1):
        cut, again = copied(store, length), SCENES[scene]()
        started = _unanswered_writes(cut)
        again.done += world.done if length == len(entries) else _done(cut)
        if any(entry.kind == "fact.tool_result" for entry in RunLedger(cut, "r").entries()):
            again.flaky = 0
        result = await driven(resume(cut, "r", **again.given()))
        assert replay(cut, "r").ok, length
        assert replay_file(result.ledger).ok
        if not started:
            assert told(result) == told(whole), length
            assert again.done == world.done, length
        else:
            assert result.outcome.status == whole.outcome.status
            assert all(count == 1 for count in again.done.values())
            uses = {one.error_code for one in result.ledger.tool_calls}
            assert "tool.unknown_outcome" in uses


def _unanswered_writes(store: MemoryLedgerStore) -> set[str]:
    """Return the steps that were begun and whose outcome nobody knows."""
    begun = set[str]()
    for entry in RunLedger(store, "r").entries():
        if entry.kind == "fact.tool_started" and entry.data["call"]["name"] == "write":
            begun.add(entry.data["stepId"])
        elif entry.kind == "fact.tool_result":
            begun.discard(entry.data["step"])
    return begun


def _done(store: MemoryLedgerStore) -> Counter[str]:
    """Return what the calls on record had done; a write that was begun may have."""
    done = Counter[str]()
    results = {
        entry.data["step"]: entry.data["result"]
        for entry in RunLedger(store, "r").entries()
        if entry.kind == "fact.tool_result"
    }
    for step, result in results.items():
        name, n = result["call"]["name"], result["call"]["args"]["n"]
        if name == "keyed":
            done[f"keyed {n} r/{step}"] += 1
        elif name in ("write", "read"):
            done[f"{name} {n}"] += 1
    return done


async def test_p6_a_write_in_flight_has_an_unknown_outcome() -> None:
    store, world = MemoryLedgerStore(), SCENES["writes"]()
    await world.run(store)
    entries = [*RunLedger(store, "r").entries()]
    started = next(entry.seq for entry in entries if entry.kind == "fact.tool_started")
    again = SCENES["writes"]()
    result = await driven(resume(copied(store, started + 1), "r", **again.given()))
    assert again.done["write 1"] == 0
    first = result.ledger.tool_calls[0]
    assert (first.name, first.ok, first.error_code) == ("write", False, "tool.unknown_outcome")
    assert result.outcome.status == "completed"


async def test_a_call_with_a_key_is_made_again_under_the_same_key() -> None:
    store, world = MemoryLedgerStore(), World([use(("keyed", 1)), A()])
    await world.run(store)
    entries = [*RunLedger(store, "r").entries()]
    started = next(entry.seq for entry in entries if entry.kind == "fact.tool_started")
    again = World([use(("keyed", 1)), A()])
    result = await driven(resume(copied(store, started + 1), "r", **again.given()))
    assert again.done == {"keyed 1 r/tool-0001": 1}
    assert world.done == again.done
    assert result.outcome.status == "completed"


async def test_the_time_a_run_was_not_running_does_not_count() -> None:
    store, world = MemoryLedgerStore(), SCENES["retries"]()
    await world.run(store)
    again = SCENES["retries"]()
    again.clock = ManualClock(10**12)
    result = await driven(resume(copied(store, 9), "r", **again.given()))
    assert (result.outcome.status, result.ledger.elapsed_ms) == ("completed", world.clock.now_ms())


async def test_a_run_that_has_ended_gives_its_result() -> None:
    store, world = MemoryLedgerStore(), SCENES["writes"]()
    whole = await world.run(store)
    again = SCENES["writes"]()
    result = await driven(resume(store, "r", **again.given()))
    assert told(result) == told(whole)
    assert (again.done, result.head) == (Counter(), whole.head)


async def test_what_cannot_be_resumed() -> None:
    store, world = MemoryLedgerStore(), SCENES["answer"]()
    await world.run(store)
    with pytest.raises(RunNotFound):
        resume(store, "nope", **world.given())
    with pytest.raises(TypeError, match="goal"):
        resume(store, "r", goal="other", **world.given())
    recorder = Recorder(broken := MemoryLedgerStore(), "r", ManualClock())
    for entry in RunLedger(store, "r").entries():
        data = {**entry.data, "to": "tools"} if entry.kind == "step" and entry.data["n"] == 2 else entry.data
        recorder.record(entry.kind, data)
    recorder.flush(sync=True)
    with pytest.raises(ResumeError, match="does not replay"):
        resume(broken, "r", **world.given())
    report = replay(broken, "r")
    assert not report.ok
    assert report.divergence is not None
    assert (report.divergence.what, report.divergence.recorded, report.divergence.replayed) == (
        "to",
        "tools",
        "model",
    )


async def test_two_processes_cannot_drive_one_run() -> None:
    store, world = MemoryLedgerStore(), SCENES["writes"]()
    await world.run(store)
    cut = copied(store, 6)
    first, second = (resume(cut, "r", **SCENES["writes"]().given()) for _ in "ab")
    await driven(first)
    with pytest.raises(LedgerConflict):
        await driven(second)
    with pytest.raises(RuntimeError, match="once"):
        await driven(first)


@pytest.mark.parametrize("field", ["outcome", "usage", "finalPhase", "finishedAt"])
async def test_another_end_is_noticed(field: str) -> None:
    store, world = MemoryLedgerStore(), SCENES["answer"]()
    await world.run(store)
    recorder = Recorder(changed := MemoryLedgerStore(), "r", ManualClock())
    for entry in RunLedger(store, "r").entries():
        closed = entry.kind == "run.closed"
        recorder.record(entry.kind, {**entry.data, field: "other"} if closed else entry.data)
    recorder.flush(sync=True)
    divergence = replay(changed, "r").divergence
    assert divergence is not None
    assert (divergence.what, divergence.recorded) == (field, "other")


@pytest.mark.parametrize("scene", ["writes", "streams"])
async def test_a_replay_shows_what_was_said(scene: str) -> None:
    store, world = MemoryLedgerStore(), SCENES[scene]()
    await world.run(store)
    frames: list[Frame] = []
    report = replay(store, "r", on_frame=frames.append)
    assert (report.ok, report.closed, report.frames) == (True, True, len(frames))
    assert report.result is not None
    assert (report.result["status"], report.result["reason"]) == ("SUCCESS", "answered")
    text = "".join(frame.text for frame in frames if frame.type == "TEXT")
    assert text == {"writes": "the answer", "streams": "let me lookan answer of some length"}[scene]
    assert [frame.type for frame in frames].count("TOOL_RESULT") == {"writes": 4, "streams": 1}[scene]


# ------------------------------------------------------------------------------------- forks


async def test_a_fork_goes_another_way() -> None:
    store, world = MemoryLedgerStore(), SCENES["writes"]()
    whole = await world.run(store)
    at = next(
        entry.seq
        for entry in RunLedger(store, "r").entries()
        if entry.kind == "step" and entry.data["n"] == 5
    )
    other = World([A("unused"), A("another answer")])
    forked = fork(store, "r", at=at, run_id="f", config={"budget": {"maxSteps": 2}}, **other.given())
    result = await driven(forked)
    assert (result.run_id, result.outcome.output) == ("f", "another answer")
    assert result.ledger.config.budget.max_steps == 2
    assert replay(store, "f").ok
    assert replay(store, "r").ok
    assert told(await driven(resume(store, "r", **SCENES["writes"]().given()))) == told(whole)
    assert result.ledger.entries[:4] == whole.ledger.entries[:4]


async def test_a_fork_keeps_the_limits_unless_it_is_given_others() -> None:
    store, world = MemoryLedgerStore(), SCENES["halts"]()
    await world.run(store)
    again = await driven(fork(store, "r", at=4, run_id="a", **SCENES["halts"]().given()))
    assert again.outcome.error is not None
    assert again.outcome.error.code == "budget.steps"
    assert (await driven(fork(store, "r", at=4, **SCENES["halts"]().given()))).run_id > "0"


async def test_what_cannot_be_forked() -> None:
    store, world = MemoryLedgerStore(), SCENES["answer"]()
    whole = await world.run(store)
    for at in (0, 99):
        with pytest.raises(ValueError, match="none is number"):
            fork(store, "r", at=at, **world.given())
    with pytest.raises(ResumeError, match="ended"):
        fork(store, "r", at=whole.head[0], **world.given())
    with pytest.raises(LedgerConflict):
        fork(store, "r", at=3, run_id="r", **world.given())
    with pytest.raises(TypeError, match="seed"):
        fork(store, "r", at=3, seed="x", **world.given())
    assert [summary.run for summary in store.runs()] == ["r"]


async def test_chance_and_ids_given_by_the_caller_are_used() -> None:
    store, world = MemoryLedgerStore(), SCENES["retries"]()
    await world.run(store)
    ids = SequentialIds()
    given = {
        **SCENES["retries"]().given(),
        "deps": Deps(clock=ManualClock(), rng=Mulberry32("other"), ids=ids),
    }
    result = await driven(resume(copied(store, 3), "r", **given))
    assert ids.count("step") == 5
    assert result.outcome.status == "completed"
