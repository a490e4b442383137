"""What holds of every run, whatever is said, asked, checked, dropped or stopped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentloop import Frame, IllegalTransition, MemoryLedgerStore, NodeStatus, RunLedger
from agentloop._canonical import encode_text
from agentloop.loop.cycle import (
    CYCLE,
    Aborted,
    AgentEnded,
    ChecksReported,
    CycleConfig,
    CycleState,
    Emit,
    Event,
    Faulted,
    Judged,
    OutcomeRecorded,
    Phase,
    StopAsked,
    Ticked,
    decide,
)
from agentloop.replays import replay
from tests.agentloop.loop.scenes import TICK, call, make_loop, only, serving, story, verdict
from tests.agentloop.loop.scenes import RealDuplex as Duplex
from tests.strategies import json_values
from tests.tally import tally

TERMINAL = ("node_completed", "node_failed", "tree_failed")
FULL = os.environ.get("RELIABILITY") == "full"
_SETTINGS = settings(
    max_examples=1_000 if FULL else 200, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

texts = st.text(st.characters(codec="utf-8") | st.sampled_from("\ud83d\ude00"), max_size=6)
tool_calls = st.builds(
    call,
    st.sampled_from(["good", "bad", "slow", "nope"]),
    st.dictionaries(st.sampled_from("nm"), st.integers(0, 3), max_size=1),
    id=st.sampled_from([None, "x", "y"]),
)
#: What a model may ask for: any name, any JSON as arguments, cut anywhere, ids that repeat.
hostile_calls = st.builds(
    lambda name, raw, cut, call_id: call(name, id=call_id, raw_arguments=raw[:cut]),
    st.sampled_from(["good", "bad", "nope"]) | texts,
    json_values(6).map(encode_text)
    | st.dictionaries(st.text(max_size=3), json_values(3)).map(encode_text)
    | texts,
    st.none() | st.integers(0, 30),
    st.sampled_from([None, "", "x", "y"]) | texts,
)
crowds = st.integers(20, 200).map(
    lambda count: [call("good", {"n": n}, id=f"x{n % 7}") for n in range(count)]
)
said = st.one_of(
    texts.map(lambda text: Frame("TEXT", {"text": text})),
    texts.map(lambda text: Frame("TEXT", {"text": text, "final": True})),
    texts.map(lambda text: Frame("REASONING", {"text": text})),
    st.just(Frame("USAGE", {"input_tokens": 2})),
    tool_calls,
    st.lists(tool_calls, min_size=1, max_size=3),
    hostile_calls,
    st.lists(hostile_calls, min_size=1, max_size=3),
    st.integers(0, 5).flatmap(lambda rare: tool_calls if rare else crowds),
)
ends = st.sampled_from([Frame("DONE", {}), Frame("ERROR", {"message": "broken"}), ConnectionError("gone")])
agent_turns = st.lists(st.tuples(st.lists(said, max_size=4), st.none() | ends).map(lambda turn: (*turn[0], turn[1])),
                       min_size=1, max_size=4)  # fmt: skip
updates = st.none() | st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["a", "b", ""]), "value": st.integers(0, 2)}), max_size=2
)
verdicts = st.lists(
    st.builds(verdict, st.sampled_from(["SUCCESS", "FAILURE", "RUNNING", "running"]), texts, updates)
    | st.just("prose"),
    min_size=1,
    max_size=5,
)
options = st.fixed_dictionaries(
    {
        "max_iterations": st.sampled_from([2, 1, 3, 4, 0]),
        "max_retries": st.integers(0, 2),
        "evaluator_parse_retries": st.integers(0, 1),
        "max_tool_calls": st.integers(0, 4) | st.just(128),
        "parallel_tool_calls": st.booleans(),
        "extra_frames": st.booleans(),
        "protect_terminal": st.booleans(),
        "max_buffered_output_frames": st.none() | st.integers(1, 4),
        "output_overflow_strategy": st.sampled_from(["drop-oldest", "drop-newest", "block"]),
        "forward_frames": st.sampled_from([("TEXT",), (), "*"]),
        "commit": st.sampled_from(["turn", "cycle"]),
        "tool_trace_scope": st.sampled_from(["latest", "all", "cycle"]),
    }
)


@dataclass
class Trial:
    """One generated run and what was observed of it."""

    agent: list[Any]
    verdicts: list[str]
    checks: list[bool] | None
    options: dict[str, Any]
    stop_after: int | None
    how: str
    duplex: bool
    frames: list[Frame] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    answers: list[Frame] = field(default_factory=list)
    aborted: bool | None = None
    loop: Any = None
    store: MemoryLedgerStore = field(default_factory=MemoryLedgerStore)

    async def _agent(self, prompt: object, ctx: Any) -> AsyncIterator[Any]:
        self.asked["agent"] += 1
        for item in self.agent[(self.asked["agent"] - 1) % len(self.agent)]:
            if isinstance(item, Exception):
                raise item
            if item is not None:
                answer = yield item
                self.answers += answer if isinstance(answer, list) else [answer] if answer is not None else []
                await self._step()

    async def _evaluator(self, prompt: object, ctx: Any) -> AsyncIterator[str]:
        self.asked["evaluator"] += 1
        text = self.verdicts[(self.asked["evaluator"] - 1) % len(self.verdicts)]
        yield text[:5]
        await self._step()
        yield text[5:]

    def _check(self, names: object, trace: object) -> bool:
        assert self.checks
        self.asked["checks"] += 1
        return self.checks[(self.asked["checks"] - 1) % len(self.checks)]

    async def _step(self) -> None:
        if self.stop_after is not None:
            self.stop_after -= 1
            if self.stop_after == 0 and self.how == "abort":
                self.aborted = self.loop.abort("stop")
            elif self.stop_after == 0:
                self.aborted = self.loop.sink.write_nowait({"type": self.how})
        await checkpoint()

    async def play(self) -> None:
        async def slow(n: int = 0, m: int = 0) -> int:
            for _ in range(n + m):
                await self._step()
            return n

        def bad(**arguments: int) -> None:
            raise ValueError("bad")

        agent: Any = Duplex(self._agent) if self.duplex else self._agent
        if self.checks is not None:
            self.options |= {"checks_list": ["c"], "deterministic_checks": self._check}
        self.loop = make_loop(
            agent,
            self._evaluator,
            tool_adapters={"good": lambda **named: named, "bad": bad, "slow": slow},
            ledger=self.store,
            run_id="r",
            **self.options,
        )
        before = len(anyio.get_running_tasks())
        with anyio.fail_after(10):
            async with serving(agent), self.loop as loop:
                await loop.sink.write(TICK)
                async for frame in loop.source:
                    self.frames.append(frame)
                    await checkpoint()
        assert len(anyio.get_running_tasks()) == before


trials = st.builds(
    Trial,
    agent=agent_turns,
    verdicts=verdicts,
    checks=st.none() | st.lists(st.booleans(), min_size=1, max_size=4),
    options=options,
    stop_after=st.none() | st.integers(1, 25),
    how=st.sampled_from(["abort", "CANCEL", "ABORT"]),
    duplex=st.booleans(),
)


def check_frames(trial: Trial) -> None:
    """I1, I2: numbers, and exactly one end."""
    result, frames, told = trial.loop.result, trial.frames, story(trial.frames)
    numbers = [frame.seq or 0 for frame in frames]
    assert all(one < two for one, two in pairwise(numbers))
    if result.dropped_frames == 0:
        assert numbers == list(range(1, len(numbers) + 1))
        assert [kind for kind in told if kind in TERMINAL] == told[-2 if "ABORT" in told else -1 :][:1]
        assert told.count("ABORT") == (result.reason == "aborted")
    if trial.aborted is not None:
        assert trial.aborted is (result.reason == "aborted")
    stats = trial.loop.source.statistics()
    assert stats.written == stats.read + stats.dropped + stats.buffered + stats.discarded
    limit = trial.options["max_buffered_output_frames"]
    if limit is None or trial.options["output_overflow_strategy"] == "block":
        assert stats.dropped == 0


def check_counters(trial: Trial) -> None:
    """I3, I4, I5: who was asked how often."""
    result, limits, asked = trial.loop.result, trial.options, trial.asked
    assert result.iterations <= limits["max_iterations"]
    assert asked["agent"] <= limits["max_iterations"]
    assert result.retry_count <= max(0, limits["max_iterations"] - 1)
    if result.dropped_frames == 0:
        retries = only(trial.frames, "node_retry")
        assert len(retries) == result.retry_count
        assert sum(retry["source"] == "checks" for retry in retries) <= limits["max_retries"]
        started = len(only(trial.frames, "node_started"))
        assert started <= asked["agent"]
        if result.reason in ("evaluator", "checks", "max_iterations"):
            assert started == asked["agent"] == result.iterations
    if trial.checks is not None and asked["evaluator"]:
        assert asked["checks"] > limits["max_retries"]
        assert not all(trial.checks[: asked["checks"]])


def check_answers(trial: Trial) -> None:
    """I13: what was asked for is answered once, unless the turn was cut."""
    kept = list(trial.loop.context.history)
    assert all(len(entry["tool_calls"]) == len(entry["tool_results"]) for entry in kept)
    for entry in kept:
        ids = [answer["call_id"] for answer in entry["tool_results"]]
        assert len(ids) == len(set(ids))
    if trial.loop.result.reason in ("evaluator", "checks", "max_iterations"):
        called = sum(
            len(item) if isinstance(item, list) else isinstance(item, Frame) and item.type == "TOOL_CALL"
            for number in range(trial.asked["agent"])
            for item in trial.agent[number % len(trial.agent)]
        )
        assert len(trial.answers) == called


def check_ledger(trial: Trial) -> None:
    report = RunLedger(trial.store, "r").verify()
    assert report.ok, report.problem
    shown: list[Frame] = []
    replayed = replay(trial.store, "r", on_frame=shown.append)
    assert replayed.ok, replayed.divergence
    assert replayed.closed
    if trial.loop.result.dropped_frames == 0:
        assert [(frame.type, frame.content) for frame in shown] == [
            (frame.type, frame.content) for frame in trial.frames
        ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@_SETTINGS
@given(trial=trials)
def test_every_run(backend: str, trial: Trial) -> None:
    anyio.run(trial.play, backend=backend)
    result = trial.loop.result
    assert result is not None
    assert trial.loop.status == result.status in (NodeStatus.SUCCESS, NodeStatus.FAILURE)
    check_frames(trial)
    check_counters(trial)
    check_answers(trial)
    check_ledger(trial)
    tally("generated runs")
    tally("generated turns", trial.asked["agent"])


EVENTS = st.one_of(
    st.just(Ticked()),
    st.builds(AgentEnded, texts),
    st.builds(ChecksReported, st.booleans(), texts),
    st.builds(Judged, st.sampled_from(NodeStatus), texts, st.none() | st.just("no_json")),
    st.builds(OutcomeRecorded, st.none() | st.just("locked")),
    st.builds(Aborted, texts),
    st.builds(StopAsked, texts),
    st.builds(Faulted, st.just("agent"), st.just("OSError"), texts),
)
CONFIGS = st.builds(
    CycleConfig,
    max_iterations=st.integers(0, 4),
    max_retries=st.integers(0, 3),
    evaluator_parse_retries=st.integers(0, 2),
    has_checks=st.booleans(),
    has_memory=st.booleans(),
    extra_frames=st.booleans(),
)


@settings(max_examples=400, deadline=None)
@given(events=st.lists(EVENTS, max_size=40), config=CONFIGS)
def test_the_rules_end_every_run_once_within_its_limits(events: list[Event], config: CycleConfig) -> None:
    state, told, orders = CycleState(), [], []
    for event in events:
        before = state
        try:
            state, effects = decide(state, event, config)
        except IllegalTransition:
            assert state is before
            continue
        assert not CYCLE.terminal(before.phase)
        told += [effect.type.removeprefix("agent_loop:") for effect in effects if isinstance(effect, Emit)]
        orders += [effect for effect in effects if not isinstance(effect, Emit)]
        assert len([effect for effect in effects if not isinstance(effect, Emit)]) <= 1
        assert decide(before, event, config) == (state, effects), "the rules are a function"
    ended = state.phase in (Phase.DONE, Phase.FAILED)
    assert len([kind for kind in told if kind in TERMINAL]) == ended
    assert told.count("ABORT") == (ended and state.closing is not None and state.closing.reason == "aborted")
    assert state.iteration <= config.max_iterations
    assert state.retry_count == told.count("node_retry") <= max(0, config.max_iterations - 1)
    assert state.check_retry_count <= config.max_retries
    assert orders.count("call_agent") == state.iteration
    if ended:
        assert told[-1] == ("ABORT" if "ABORT" in told else told[-1])
        assert (state.closing is not None) is True
