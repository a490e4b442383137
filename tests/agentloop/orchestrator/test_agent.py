"""A run as the agent of a loop: the loop's tools, one record within the other, and crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from agentloop import AgentLoop, MemoryLedgerStore, RunLedger, Tool, read_run_file, replay, resume
from agentloop.orchestrator.agent import OrchestratedAgent
from agentloop.orchestrator.providers import ChunkedProvider, ScriptedProvider
from agentloop.redact import Redactor
from tests.agentloop.loop.scenes import loop_options, make_loop, more, play, yes
from tests.agentloop.orchestrator.scenes import A, F, T

pytestmark = pytest.mark.anyio


class World:
    """Tools that count, and an agent whose turns are runs."""

    def __init__(
        self, turns: Sequence[dict[str, Any]], verdicts: Sequence[Any], *, streamed: bool = False
    ) -> None:
        self.turns, self.verdicts, self.streamed = turns, verdicts, streamed
        self.done: Counter[str] = Counter()

    def options(self, store: MemoryLedgerStore | None, **more_options: Any) -> dict[str, Any]:
        async def write(q: str) -> str:
            self.done[f"write {q}"] += 1
            return f"wrote {q}"

        async def broken(q: str) -> str:
            raise RuntimeError("broken")

        provider: Any = ScriptedProvider(self.turns)
        if self.streamed:
            provider = ChunkedProvider(provider, characters=4)
        self.provider = provider
        agent = OrchestratedAgent(provider, ledger=store, redactor=Redactor())
        tools = {
            name: Tool(name=name, handler=handler) for name, handler in (("write", write), ("broken", broken))
        }
        return loop_options(
            agent,
            [*self.verdicts],
            tool_adapters=tools,
            forward_frames=("TEXT", "TOOL_RESULT"),
            **more_options,
        )

    async def run(self, store: MemoryLedgerStore | None, **more_options: Any) -> Any:
        given = self.options(store, **more_options)
        loop = make_loop(
            given.pop("agent_adapter"), given.pop("evaluator_adapter"), **given, ledger=store, run_id="r"
        )
        self.frames = await play(loop)
        assert loop.result is not None
        return loop


TURNS = [T("write", args={"q": "a"}, say="first "), A("one"), T("write", "broken", args={"q": "b"}), A("two")]


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_loop_makes_the_calls_and_keeps_the_record(streamed: bool) -> None:
    store = MemoryLedgerStore()
    world = World(TURNS, [more("go on"), yes()], streamed=streamed)
    loop = await world.run(store)
    result = loop.result
    assert (result.status, result.agent_text, result.iterations) == ("SUCCESS", "two", 2)
    assert world.done == {"write a": 1, "write b": 1}
    text = "".join(
        frame.text for frame in world.frames if frame.type == "TEXT" and frame.content["role"] == "agent"
    )
    assert text == "first onetwo"
    assert [frame.content["ok"] for frame in world.frames if frame.type == "TOOL_RESULT"] == [
        True,
        True,
        False,
    ]
    report = replay(store, "r")
    assert report.ok
    assert [(child.run, child.ok, child.closed) for child in report.children] == [
        ("r/1", True, True),
        ("r/2", True, True),
    ]
    first, second = (read_run_file(store, f"r/{turn}") for turn in (1, 2))
    assert first.tool_sequence == ["write"]
    assert [(use.name, use.ok, use.error_code) for use in second.tool_calls] == [
        ("write", True, None),
        ("broken", False, "tool.raised"),
    ]
    spent = first.usage.prompt_tokens + second.usage.prompt_tokens
    assert result.usage["input_tokens"] == spent


async def test_a_run_that_fails_fails_its_turn_and_one_that_halts_ends_it() -> None:
    loop = await World([F("fatal", "auth.invalid_key")], [yes()]).run(None)
    assert loop.result.reason == "error"
    assert "fatal failure" in str(loop.result.error)
    world = World([T("write", args={"q": "a"})] * 20, [yes("good enough")])
    loop = await world.run(store := MemoryLedgerStore())
    assert loop.result.status == "SUCCESS"
    file = read_run_file(store, "r/1")
    assert file.outcome is not None
    assert file.outcome.error is not None
    assert file.outcome.error.code == "budget.steps"
    assert world.done["write a"] == 12


async def test_an_aborted_loop_cancels_the_run() -> None:
    store = MemoryLedgerStore()
    loop: Any = None

    class Stopping(ScriptedProvider):
        async def generate(self, request: Any, call: Any, /) -> Any:
            loop.abort("enough")
            await anyio.sleep(5)

    agent = OrchestratedAgent(Stopping([]), ledger=store)
    loop = make_loop(agent, [yes()], ledger=store, run_id="r")
    await play(loop)
    assert loop.result.reason == "aborted"
    file = read_run_file(store, "r/1")
    assert file.outcome is not None
    assert file.outcome.error is not None
    assert file.outcome.error.code == "run.cancelled"
    assert replay(store, "r/1").ok


async def test_a_child_that_was_changed_is_noticed() -> None:
    store = MemoryLedgerStore()
    await World(TURNS, [more(), yes()]).run(store)
    other = MemoryLedgerStore()
    await World([A("else")], [yes()]).run(other)
    store._runs["r/1"] = other._runs["r/1"]
    divergence = replay(store, "r").divergence
    assert divergence is not None
    assert divergence.what == "child"
    del store._runs["r/1"]
    report = replay(store, "r")
    assert (report.ok, report.children[0].ok) == (False, False)


@pytest.mark.parametrize("streamed", [False, True])
async def test_every_prefix_of_both_records_goes_on_to_the_same_end(streamed: bool) -> None:
    turns = [T("write", args={"q": "a"}, say="first "), F(), T("write", args={"q": "b"}), A("one")]
    store = MemoryLedgerStore()
    order: list[tuple[str, int]] = []
    original = MemoryLedgerStore.append

    def append(self: MemoryLedgerStore, run: str, entries: Any, /, **options: Any) -> Any:
        head = original(self, run, entries, **options)
        order.extend((run, entry.seq) for entry in entries)
        return head

    world = World(turns, [yes()], streamed=streamed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryLedgerStore, "append", append)
        whole = (await world.run(store)).result
    assert len(order) > 30
    # A child whose loop is not on record yet is nobody's: it is never found again.
    first = next(place for place, (run, _) in enumerate(order, 1) if run == "r")
    for length in range(first, len(order)):
        cut = _copied(store, order[:length])
        again = World(turns, [yes()], streamed=streamed)
        begun = _unanswered(cut)
        given = again.options(cut)
        given.pop("forward_frames")
        loop = resume(cut, "r", **given)
        assert isinstance(loop, AgentLoop)
        await play(loop)
        assert loop.result is not None
        assert loop.result.status == "SUCCESS", (length, loop.result)
        assert replay(cut, "r").ok, length
        done = again.done + _done(cut, order[:length])
        if not begun:
            assert loop.result.agent_text == whole.agent_text, length
            assert loop.result.usage == whole.usage
        assert all(count == 1 for count in done.values()), (length, done)


def _copied(store: MemoryLedgerStore, entries: Sequence[tuple[str, int]]) -> MemoryLedgerStore:
    """Return a store with these entries, as a crash would have left it."""
    cut = MemoryLedgerStore()
    for run in dict.fromkeys(run for run, _ in entries):
        newest = max(seq for name, seq in entries if name == run)
        kept = [entry for entry in store.read(run) if entry.seq <= newest]
        cut.append(run, kept, expected=0, sync=True, blobs=dict(store._blobs))
    return cut


def _unanswered(store: MemoryLedgerStore) -> set[str]:
    begun = set[str]()
    for entry in RunLedger(store, "r").entries():
        if entry.kind == "fact.tool_started":
            begun.add(entry.data["step"])
        elif entry.kind == "fact.tool_result":
            begun.discard(entry.data["step"])
    return begun


def _done(store: MemoryLedgerStore, entries: Sequence[tuple[str, int]]) -> Counter[str]:
    """Return what had been written when the record was cut."""
    newest = max((seq for run, seq in entries if run == "r"), default=0)
    done = Counter[str]()
    for entry in RunLedger(store, "r").entries():
        if entry.seq <= newest and entry.kind == "fact.tool_result":
            done[str(entry.data["result"]["output"]).replace("wrote", "write")] += 1
    return done
