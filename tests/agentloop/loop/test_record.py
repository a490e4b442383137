"""What a run writes down: which facts, in which order, committed when; and that replay agrees."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from agentloop import (
    Frame,
    ManualClock,
    MemoryLedgerStore,
    Redactor,
    RunLedger,
    RunOutcome,
    ScriptedAdapter,
    Tool,
    create_looping_agent_loop,
)
from agentloop.replays import replay
from tests.agentloop.loop.scenes import (
    TICK,
    CountingStore,
    call,
    entries_of,
    kinds_of,
    loop_options,
    make_loop,
    more,
    no,
    only,
    play,
    play_out,
    story,
    yes,
)

pytestmark = pytest.mark.anyio


def facts(store: MemoryLedgerStore, kind: str, run: str = "r") -> list[Any]:
    return [entry.data for entry in entries_of(store, run) if entry.kind == kind]


def checked(store: MemoryLedgerStore, frames: list[Frame], run: str = "r") -> None:
    """Demand that the ledger holds, ends, and replays to these frames."""
    assert RunLedger(store, run).verify().ok
    assert kinds_of(store, run)[-1] == "run.closed"
    shown: list[Frame] = []
    report = replay(store, run, on_frame=shown.append)
    assert report.ok, report.divergence
    assert report.closed
    assert [(frame.type, frame.content) for frame in shown] == [
        (frame.type, frame.content) for frame in frames
    ]


async def test_the_facts_of_a_plain_run_in_order() -> None:
    store = MemoryLedgerStore()
    _, frames = await play_out(["a"], [yes("ok", [{"name": "n", "value": 1}])], ledger=store, run_id="r")
    assert kinds_of(store, "r") == [
        "run.opened",
        "fact.input",
        "step",
        "fact.prompt",
        "fact.turn_ended",
        "step",
        "fact.prompt",
        "fact.turn_ended",
        "fact.verdict",
        "fact.symbolic",
        "step",
        "run.closed",
    ]
    checked(store, frames)


async def test_what_the_facts_say() -> None:
    store = MemoryLedgerStore()
    tool = Tool(name="t", handler=lambda n: n, read_only=True)
    said = [
        ["a", call("t", {"n": 1}), Frame("DONE", {"finish_reason": "stop", "usage": {"input_tokens": 3}})]
    ]
    verdicts = [yes("ok", [{"name": "x", "value": 1}])]
    await play_out(
        said,
        verdicts,
        ledger=store,
        run_id="r",
        tool_adapters={"t": tool},
        labels={"task": "demo"},
        node="n1",
    )
    opened = facts(store, "run.opened")[0]
    assert (opened["driver"], opened["version"], opened["run"]) == ("agent_loop", 2, "r")
    assert (opened["labels"], opened["node"]) == ({"task": "demo"}, "n1")
    assert facts(store, "fact.input")[0]["type"] == "TICK"
    prompts = facts(store, "fact.prompt")
    assert [(prompt["turn"], prompt["role"]) for prompt in prompts] == [(1, "agent"), (2, "evaluator")]
    assert prompts[0]["frames"] == [["TEXT", {"text": "go"}]]
    started = facts(store, "fact.tool_started")[0]
    assert started == {
        "turn": 1,
        "step": "1.1",
        "read_only": True,
        "key": "r/1.1",
        "call": {"id": "k1", "name": "t", "arguments": {"n": 1}},
    }
    result = facts(store, "fact.tool_result")[0]
    assert (result["step"], result["result"]["output"]) == ("1.1", 1)
    ended = facts(store, "fact.turn_ended")[0]
    assert ended["frames"][-1] == ["DONE", {"finish_reason": "stop", "usage": {"input_tokens": 3}}]
    assert facts(store, "fact.symbolic") == [{"name": "x", "value": 1, "op": "assert", "by": "evaluator"}]
    assert facts(store, "fact.verdict")[0]["result"]["status"] == "SUCCESS"
    closed = facts(store, "run.closed")[0]
    assert (closed["status"], closed["reason"], closed["iterations"]) == ("SUCCESS", "evaluator", 1)
    assert closed["usage"] == {"input_tokens": 3}


async def test_prompts_may_be_recorded_by_digest() -> None:
    store = MemoryLedgerStore()
    _, frames = await play_out(["a"], [yes()], ledger=store, run_id="r", record_prompts="digest")
    prompt = facts(store, "fact.prompt")[0]
    assert "frames" not in prompt
    assert len(prompt["digest"]) == 64
    checked(store, frames)


async def test_checks_and_retries_are_on_record() -> None:
    store, passes = MemoryLedgerStore(), iter([False, True])
    _, frames = await play_out(
        ["a", "b"],
        [],
        ledger=store,
        run_id="r",
        checks_list=["c"],
        deterministic_checks=lambda names, trace: (next(passes), "why"),
    )
    assert [fact["report"] for fact in facts(store, "fact.checks")] == [
        {"all_passed": False, "evidence": "why"},
        {"all_passed": True, "evidence": "why"},
    ]
    steps = facts(store, "step")
    assert [step["n"] for step in steps] == list(range(1, len(steps) + 1))
    assert [step["event"] for step in steps] == [
        "tick",
        "agent.ended",
        "checks.failed",
        "agent.ended",
        "checks.passed",
    ]
    checked(store, frames)


def appended(store: CountingStore) -> list[str]:
    """Return the last entry of each append that carried any."""
    assert all(sync for _, sync in store.appends)
    return [kinds[-1] for kinds, _ in store.appends if kinds]


async def test_commit_points_by_turn() -> None:
    store = CountingStore()
    _, frames = await play_out(["a"], [yes()], ledger=store, run_id="r")
    assert appended(store) == ["step", "run.closed"]
    checked(store, frames)


async def test_commit_points_by_turn_with_a_writing_tool() -> None:
    store = CountingStore()
    said = [[call("w"), "a"]]
    await play_out(said, [yes()], ledger=store, run_id="r", tool_adapters={"w": lambda: "ok"})
    assert appended(store) == ["fact.tool_started", "fact.tool_result", "step", "run.closed"]


async def test_commit_points_by_turn_with_a_reading_tool() -> None:
    store = CountingStore()
    tool = Tool(name="r", handler=lambda: "ok", read_only=True)
    await play_out([[call("r"), "a"]], [yes()], ledger=store, run_id="r", tool_adapters={"r": tool})
    assert appended(store) == ["step", "run.closed"]


@pytest.mark.parametrize(("name", "commits"), [("w", 2), ("r", 0)])
async def test_commit_points_by_cycle(name: str, commits: int) -> None:
    store = CountingStore()
    tools = {"w": lambda: "ok", "r": Tool(name="r", handler=lambda: "ok", read_only=True)}
    await play_out(
        [[call(name), "a"], "b"],
        [more(), yes()],
        ledger=store,
        run_id="r",
        commit="cycle",
        tool_adapters=tools,
    )
    ends = appended(store)
    assert len(ends) == commits + 2
    assert ends[-2:] == ["step", "run.closed"]


async def test_an_evaluator_turn_that_is_asked_again_was_committed() -> None:
    store = CountingStore()
    await play_out(["a"], ["prose", yes()], ledger=store, run_id="r", evaluator_parse_retries=1)
    verdicts = [kinds.count("fact.verdict") for kinds, _ in store.appends]
    assert verdicts == [0, 1, 1]


@pytest.mark.parametrize("commit", ["turn", "cycle"])
async def test_nothing_decided_is_published_before_it_is_on_record(commit: str) -> None:
    store = MemoryLedgerStore()
    early: list[str] = []

    class Tap:
        fatal = False

        async def write(self, frame: Frame) -> None:
            on_record = [entry.data["effects"] for entry in entries_of(store, "r") if entry.kind == "step"]
            published = [effect for effects in on_record for effect in effects]
            if frame.type.startswith("agent_loop:node_") and commit == "turn":
                early.extend([frame.type] if frame.type not in published else [])
            if frame.type in ("agent_loop:node_retry", "agent_loop:node_completed"):
                early.extend([frame.type] if frame.type not in published else [])

    await play_out(["a", "b"], [more(), yes()], ledger=store, run_id="r", commit=commit, taps=[Tap()])
    assert early == []


@pytest.mark.parametrize("fail_at", [1, 2, 3, 4])
@pytest.mark.parametrize("commit", ["turn", "cycle"])
async def test_a_ledger_that_fails_ends_the_run(fail_at: int, commit: str) -> None:
    store = CountingStore(fail_at=fail_at)
    loop, frames = await play_out(
        [[call("w"), "a"]], [yes("fine")], ledger=store, run_id="r", commit=commit, tool_adapters={"w": print}
    )
    if commit == "cycle" and fail_at == 4:
        assert loop.result.status == "SUCCESS"
        return
    assert story(frames)[-2:] == ["ERROR", "tree_failed"]
    assert only(frames, "ERROR")[0]["phase"] == "ledger"
    assert "no space left" in only(frames, "ERROR")[0]["message"]
    assert loop.result.reason == "error"
    assert isinstance(loop.result.error, OSError)
    # No decision was published that is not on record.
    on_record = [
        effect
        for entry in (entries_of(store, "r") if store.appends else ())
        if entry.kind == "step"
        for effect in entry.data["effects"]
    ]
    early = ("node_started",) if commit == "cycle" else ()
    decided = [
        f"agent_loop:{kind}" for kind in story(frames) if kind.startswith("node_") and kind not in early
    ]
    assert all(kind in on_record for kind in decided)


class Bridge:
    """A memory that remembers what it was told, and fails where it is told to."""

    def __init__(
        self, *, strict: bool = False, fact_fails: bool = False, outcome_fails: bool = False
    ) -> None:
        self.strict, self._fact_fails, self._outcome_fails = strict, fact_fails, outcome_fails
        self.facts: list[tuple[str, Any, str, str, str]] = []
        self.outcomes: list[RunOutcome] = []

    async def fact(self, name: str, value: Any, /, *, op: str, by: str, iteration: int, cause: str) -> None:
        await checkpoint()
        if self._fact_fails:
            raise OSError("graph is locked")
        self.facts.append((name, value, op, by, cause))

    async def record_outcome(self, outcome: RunOutcome, /) -> Mapping[str, Any]:
        await checkpoint()
        if self._outcome_fails:
            raise OSError("graph is locked")
        self.outcomes.append(outcome)
        return {"reward": 1.0}


async def test_facts_and_outcome_reach_the_memory_before_the_end_is_told() -> None:
    store, bridge = MemoryLedgerStore(), Bridge()
    outcomes_at_the_end: list[int] = []

    class Tap:
        fatal = False

        async def write(self, frame: Frame) -> None:
            if frame.type == "agent_loop:node_completed":
                outcomes_at_the_end.append(len(bridge.outcomes))

    _, frames = await play_out(
        ["a"],
        [yes("ok", [{"name": "x", "value": 1}])],
        graph=bridge,
        ledger=store,
        run_id="r",
        taps=[Tap()],
        node="n1",
    )
    assert bridge.facts == [("x", 1, "assert", "evaluator", "r/4")]
    assert outcomes_at_the_end == [1]
    outcome = bridge.outcomes[0]
    assert (outcome.run_id, outcome.node, outcome.status, outcome.reason) == (
        "r",
        "n1",
        "SUCCESS",
        "evaluator",
    )
    assert facts(store, "fact.outcome_written")[0]["result"] == {"reward": 1.0}
    checked(store, frames)


async def test_the_memory_learns_what_the_agent_and_the_evaluator_were_shown() -> None:
    store, bridge = MemoryLedgerStore(), Bridge()

    def shown(*ids: str) -> Frame:
        return Frame("CONTEXT", {"report": {"tokens": 5}, "retrieval_ids": list(ids)})

    loop, frames = await play_out(
        [[shown("m1", "m2"), "a"], [shown("m3"), "b"]],
        [more(), [shown("m4"), yes()]],
        graph=bridge,
        ledger=store,
        run_id="r",
    )
    assert bridge.outcomes[0].retrieval_ids == ("m1", "m2", "m3", "m4")
    assert only(frames, "CONTEXT") == [], "not shown unless asked for"
    assert loop.result.agent_text == "b"
    checked(store, frames)


async def test_the_verdict_is_on_record_before_the_memory_is_told() -> None:
    store = MemoryLedgerStore()

    class Asking(Bridge):
        async def record_outcome(self, outcome: RunOutcome, /) -> Mapping[str, Any]:
            assert facts(store, "fact.verdict"), "the memory was told of a verdict that is not on record"
            return await super().record_outcome(outcome)

    loop, _ = await play_out(["a"], [yes()], graph=Asking(), ledger=store, run_id="r")
    assert loop.result.warnings == ()
    assert loop.result.status == "SUCCESS"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("where", ["fact", "outcome"])
async def test_a_memory_that_fails(strict: bool, where: str) -> None:
    store = MemoryLedgerStore()
    bridge = Bridge(strict=strict, fact_fails=where == "fact", outcome_fails=where == "outcome")
    loop, frames = await play_out(
        ["a"], [yes("ok", [{"name": "x", "value": 1}])], graph=bridge, ledger=store, run_id="r"
    )
    error = only(frames, "ERROR")[0]
    assert error["phase"] == "graph"
    assert error["fatal"] is strict
    assert "locked" in error["message"]
    assert story(frames)[-1] == ("tree_failed" if strict else "node_completed")
    assert loop.result.reason == ("error" if strict else "evaluator")
    assert story(frames).index("ERROR") < len(frames) - 1 + strict
    checked(store, frames)


@pytest.mark.parametrize("fail_at", [1, 2, 3])
async def test_a_ledger_that_fails_beside_a_memory_never_announces_a_success(fail_at: int) -> None:
    bridge = Bridge()
    loop, frames = await play_out(
        ["a"], [yes()], graph=bridge, ledger=CountingStore(fail_at=fail_at), run_id="r"
    )
    assert loop.result.reason == "error"
    assert story(frames)[-2:] == ["ERROR", "tree_failed"]
    assert "node_completed" not in story(frames)


async def test_cancel_after_the_cycle_while_the_outcome_is_written() -> None:
    class Cancelling(Bridge):
        async def record_outcome(self, outcome: RunOutcome, /) -> Mapping[str, Any]:
            loop.sink.write_nowait({"type": "CANCEL", "content": {"mode": "after_cycle"}})
            return await super().record_outcome(outcome)

    loop = make_loop(["a"], [yes()], graph=Cancelling())
    frames = await play(loop)
    assert story(frames)[-1] == "node_completed"


async def test_abort_while_the_outcome_is_written_comes_too_late() -> None:
    class Aborting(Bridge):
        async def record_outcome(self, outcome: RunOutcome, /) -> Mapping[str, Any]:
            if not self.outcomes:
                answers.append(loop.abort("late"))
            return await super().record_outcome(outcome)

    answers: list[bool] = []
    store = MemoryLedgerStore()
    loop = make_loop(["a"], [yes()], graph=Aborting(), ledger=store, run_id="r")
    frames = await play(loop)
    assert answers[0] is False
    assert story(frames)[-1] == "node_completed"
    checked(store, frames)


async def test_secrets_are_in_no_entry_no_frame_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    secret = "correct-horse-battery-staple"
    store = MemoryLedgerStore()

    def progress(kind: str, data: object) -> None:
        raise RuntimeError(f"observer saw {secret}")

    async def tool() -> str:
        loop.symbolics.assert_value("seen", f"value {secret}", by="tool")
        raise ValueError(secret)

    def options() -> dict[str, Any]:
        return {
            "redactor": Redactor([secret]),
            "ledger": store,
            "run_id": "r",
            "tool_adapters": {"t": tool},
            "on_progress": progress,
            "forward_frames": "*",
            "build_agent_prompt": lambda ctx: f"use {secret}",
            "node": {"key": secret},
            "labels": {"key": secret},
            "initial_symbolics": {"key": secret},
        }

    loop = make_loop(
        [["my key is correct-horse", "-battery-staple", call("t", {"key": secret})], ConnectionError(secret)],
        [more(secret)],
        **options(),
    )
    async with loop:
        await loop.sink.write({"type": "INPUT", "content": {"text": f"try {secret}"}})
        await loop.sink.write(TICK)
        frames = await loop.source.collect()
    stored = b"".join(entry.body for entry in store.read("r"))
    stored += b"".join(store._blobs.values())
    assert secret not in stored.decode()
    assert secret not in json.dumps([frame.to_dict() for frame in frames])
    assert loop.result is not None
    assert secret not in repr(loop.result.warnings)
    assert secret not in caplog.text
    checked(store, frames)


async def test_an_abort_reason_is_redacted() -> None:
    secret, store = "correct-horse-battery-staple", MemoryLedgerStore()
    loop = make_loop(["a"], [], redactor=Redactor([secret]), ledger=store, run_id="r")
    loop.abort(f"because {secret}")
    async with loop:
        frames = await loop.source.collect()
    assert secret not in repr(frames)
    checked(store, frames)


@pytest.mark.parametrize("forward", [("TEXT",), "*", ()])
@pytest.mark.parametrize("parallel", [False, True])
async def test_replay_gives_the_same_frames(forward: Any, parallel: bool) -> None:
    store = MemoryLedgerStore()

    async def tool(n: int) -> int:
        for _ in range(3 - n):
            await checkpoint()
        return n

    calls = [call("t", {"n": n}, id=f"k{n}") for n in range(3)]
    _, frames = await play_out(
        [["a", calls, "b"], ["c", *calls]],
        [more("m", [{"name": "x", "value": [1]}]), no("f")],
        ledger=store,
        run_id="r",
        forward_frames=forward,
        parallel_tool_calls=parallel,
        tool_adapters={"t": tool},
        on_progress=lambda kind, data: 1 / 0,
        extra_frames=True,
    )
    checked(store, frames)


async def test_replay_of_an_abort_an_error_and_a_cancel() -> None:
    store = MemoryLedgerStore()

    async def turn(prompt: object, ctx: Any) -> Any:
        yield "half"
        if ctx.run_id == "aborted":
            loop.abort("stop")
        elif ctx.run_id == "broken":
            raise ConnectionError("gone")
        else:
            loop.sink.write_nowait({"type": "CANCEL", "content": {"mode": "after_cycle"}})
        yield "more"

    for run in ("aborted", "broken", "cancelled"):
        loop = make_loop(turn, [more()], ledger=store, run_id=run)
        checked(store, await play(loop), run)


async def test_the_ledger_of_a_looping_run() -> None:
    store = MemoryLedgerStore()
    loop = create_looping_agent_loop(
        **loop_options(["a", "b"], [yes(), yes()]), ledger=store, run_id="r", node_provider=["n1", "n2"],
        should_continue=lambda result, index: True,
    )  # fmt: skip
    frames = await play(loop)
    assert kinds_of(store, "r")[0] == "run.opened"
    assert kinds_of(store, "r")[-1] == "run.closed"
    assert RunLedger(store, "r/1").verify().ok
    assert RunLedger(store, "r/2").verify().ok
    shown: list[Frame] = []
    report = replay(store, "r", on_frame=shown.append)
    assert report.ok, report.divergence
    assert [(frame.type, frame.content) for frame in shown] == [
        (frame.type, frame.content) for frame in frames
    ]


class FailingOuter(CountingStore):
    """Fails at the n-th append of the outer run."""

    def __init__(self, fail_at: int) -> None:
        super().__init__()
        self._left = fail_at

    def append(self, run: str, entries: Any, /, **options: Any) -> Any:
        if "/" not in run:
            self._left -= 1
            if self._left <= 0:
                raise OSError("no space left on device")
        return super().append(run, entries, **options)


@pytest.mark.parametrize("fail_at", [1, 2, 3])
async def test_a_ledger_that_fails_ends_a_looping_run(fail_at: int) -> None:
    loop = create_looping_agent_loop(**loop_options(["a"], [yes()]), ledger=FailingOuter(fail_at), run_id="r")
    frames = await play(loop)
    assert story(frames)[-2:] == ["ERROR", "tree_failed"]
    assert only(frames, "ERROR")[0]["phase"] == "ledger"
    assert loop.result is not None
    assert loop.result.reason == "error"


async def test_a_clock_dates_the_entries_and_nothing_else() -> None:
    store = MemoryLedgerStore()
    _, frames = await play_out(["a"], [yes()], ledger=store, run_id="r", clock=ManualClock(5_000))
    assert {entry.at for entry in entries_of(store, "r")} == {5_000}
    assert all(frame.meta == {} for frame in frames)


async def test_a_run_without_an_id_gets_one_that_sorts() -> None:
    store = MemoryLedgerStore()
    loop, _ = await play_out(["a"], [yes()], ledger=store)
    assert len(loop.run_id) == 26
    assert loop.result.run_id == loop.run_id
    assert RunLedger(store, loop.run_id).verify().ok


@pytest.mark.parametrize("depth", [10, 90, 96, 99, 100, 101, 150, 3_000])
@pytest.mark.parametrize("where", ["arguments", "output", "content"])
async def test_deep_values_are_answered_or_shown_and_never_end_the_run(depth: int, where: str) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    store = MemoryLedgerStore()
    said: dict[str, list[Any]] = {
        "arguments": [call("t", {"value": deep}), "a"],
        "output": [call("t", {"value": 1}), "a"],
        "content": [Frame("NOTE", {"value": deep}), "a"],
    }
    loop, frames = await play_out(
        [said[where]],
        [yes()],
        ledger=store,
        run_id="r",
        forward_frames="*",
        tool_adapters={"t": lambda value: deep if where == "output" else "ok"},
    )
    assert loop.result.status == "SUCCESS", only(frames, "ERROR")
    checked(store, frames)


@pytest.mark.parametrize(
    "value",
    [
        10**999,
        10**1000,
        10**5000,
        float("nan"),
        float("inf"),
        ["\ud800"],
        {"k": {"\ud800": 1}},
        "\ud800",
        b"\xff",
    ],
    ids=lambda value: type(value).__name__,
)
async def test_odd_values_of_a_tool_never_end_the_run(value: Any) -> None:
    store = MemoryLedgerStore()
    agent = ScriptedAdapter([[call("t"), "a"]])
    loop, frames = await play_out(
        agent, [yes()], ledger=store, run_id="r", tool_adapters={"t": lambda: value}
    )
    assert loop.result.status == "SUCCESS", only(frames, "ERROR")
    assert len(agent.results) == 1
    checked(store, frames)


async def test_a_prompt_that_is_not_json_is_recorded_as_it_looks() -> None:
    store, thing = MemoryLedgerStore(), object()
    agent = ScriptedAdapter(["a"])
    prompt = [Frame("TEXT", {"text": "half \ud800"}), Frame("THING", {"thing": thing})]
    loop, frames = await play_out(
        agent, [yes()], ledger=store, run_id="r", build_agent_prompt=lambda ctx: prompt
    )
    assert loop.result.status == "SUCCESS", only(frames, "ERROR")
    assert agent.prompts[0][1].content["thing"] is thing
    checked(store, frames)


async def test_odd_texts_of_callbacks_never_break_the_record() -> None:
    odd = "half \ud800"
    for options in (
        {"checks_list": ["c"], "deterministic_checks": lambda names, trace: (True, odd)},
        {"parse_evaluator_output": lambda frames: ("SUCCESS", odd)},
        {"parse_evaluator_output": lambda frames: ("FAILURE", odd, [{"name": "x", "value": odd}])},
        {"on_progress": lambda kind, data: (_ for _ in ()).throw(RuntimeError(odd))},
        {"build_agent_prompt": lambda ctx: (_ for _ in ()).throw(RuntimeError(odd))},
    ):
        store = MemoryLedgerStore()
        loop, frames = await play_out(["a"], [yes()], ledger=store, run_id="r", **options)
        assert loop.result is not None
        assert "internal" not in [error["phase"] for error in only(frames, "ERROR")]
        checked(store, frames)
        for frame in frames:
            json.dumps(frame.content).encode()


class Blocking(MemoryLedgerStore):
    """Remembers on which threads it was called, and what it was asked to sync."""

    blocking = True

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self.synced: set[bool] = set()

    def append(self, *arguments: Any, **options: Any) -> Any:
        self.threads.add(threading.get_ident())
        self.synced.add(options["sync"])
        return super().append(*arguments, **options)


async def test_a_blocking_store_is_called_in_a_worker() -> None:
    store = Blocking()
    _, frames = await play_out(["a"], [yes()], ledger=store, run_id="r")
    assert threading.get_ident() not in store.threads
    checked(store, frames)


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_looping_run_waits_for_no_disk_on_the_event_loop(durability: str) -> None:
    store = Blocking()
    loop = create_looping_agent_loop(
        **loop_options(["a"], [yes()]), ledger=store, run_id="r", durability=durability
    )
    await play(loop)
    assert replay(store, "r").ok
    assert store.synced == {durability == "power"}
    assert (threading.get_ident() in store.threads) is (durability == "process")


async def test_cancelling_during_a_commit_leaves_a_whole_ledger() -> None:
    import threading

    entered, go_on = threading.Event(), threading.Event()

    class Slow(MemoryLedgerStore):
        blocking = True

        def append(self, *arguments: Any, **options: Any) -> Any:
            entered.set()
            go_on.wait(5)
            return super().append(*arguments, **options)

    store = Slow()
    loop = make_loop(["a"], [yes()], ledger=store, run_id="r")
    async with loop:
        await loop.sink.write(TICK)
        await anyio.to_thread.run_sync(entered.wait, 5)
        loop.abort("stop")
        go_on.set()
        frames = await loop.source.collect()
    assert loop.result is not None
    assert loop.result.reason == "aborted"
    checked(store, frames)
