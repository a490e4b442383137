"""What is made again from a record: windows, outputs and readings, and what it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentloop import (
    Bm25Retriever,
    Context,
    ContextBudget,
    ContextConfig,
    Document,
    MemoryLedgerStore,
    PassthroughAssembler,
    RetrievalOptions,
    ScriptedProvider,
    Summary,
    TokenUsage,
    create_assembler,
    replay,
    replay_full,
)
from agentloop.determinism import SystemClock
from agentloop.ledger.reader import RunLedger
from agentloop.ledger.recorder import Recorder
from tests.agentloop.orchestrator.scenes import A, F, T, play, search

pytestmark = pytest.mark.anyio

RUN = "run-0001"
TURNS = [T(say="look"), F(), T("write", args={"q": "w"}), T("search", "nope"), A("  the answer ")]


class Counting:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def tools(self, found: str = "found") -> list[Any]:
        async def look(q: str) -> str:
            self.calls.append(f"look {q}")
            return f"{found} {q}" + "x" * 40_000

        async def write(q: str) -> str:
            self.calls.append(f"write {q}")
            return "written"

        return [search(handler=look), search("write", handler=write, read_only=False)]


def windows(*documents: str) -> Any:
    library = Bm25Retriever(documents=[Document(f"d{n}", text) for n, text in enumerate(documents)])
    return create_assembler(
        ContextConfig(
            budget=ContextBudget(total=60_000, reserve_for_output=100),
            system_prompt="SYSTEM",
            retrieval=RetrievalOptions(retriever=library),
        )
    )


async def recorded(**options: Any) -> MemoryLedgerStore:
    store = MemoryLedgerStore()
    given = {"tools": Counting().tools(), **options}
    result = await play(TURNS, ledger=store, **given)
    assert result.outcome.status == "completed"
    assert replay(store, RUN).ok
    return store


@pytest.mark.parametrize("assembler", [PassthroughAssembler, lambda: windows("the goal is here", "other")])
async def test_w26_a_run_that_is_made_again_is_the_same(assembler: Callable[[], Any]) -> None:
    store = await recorded(assembler=assembler())
    counting = Counting()
    report = await replay_full(store, RUN, assembler=assembler(), tools=counting.tools())
    assert report.differences == ()
    assert (report.ok, report.windows, report.outputs, report.readings) == (True, 4, 1, 2)
    assert counting.calls == ["look x", "look x"]  # nothing that writes is called again


async def test_w26_other_documents_are_another_window() -> None:
    store = await recorded(assembler=windows("the goal is here"))
    report = await replay_full(store, RUN, assembler=windows("the goal is there"), tools=Counting().tools())
    assert not report.ok
    assert {difference.what for difference in report.differences} == {"window"}
    assert len(report.differences) == report.windows == 4
    first = report.differences[0]
    assert len(str(first.recorded)) == len(str(first.replayed)) == 16


async def test_w26_a_tool_that_says_something_else_is_noticed() -> None:
    store = await recorded()
    report = await replay_full(store, RUN, tools=Counting().tools("not found"))
    assert [difference.what for difference in report.differences] == ["tool", "tool"]
    # The windows are made of what was recorded: one change is not told twice.
    assert str(report.differences[0].recorded).startswith("found x")


async def test_w26_other_tools_are_noticed_before_anything_else() -> None:
    store = await recorded()
    report = await replay_full(store, RUN, tools=[])
    assert report.differences[0].what == "tools"
    assert report.differences[0].recorded == ["search", "write"]


async def test_w26_another_output_is_noticed() -> None:
    def loud(draft: str, request: Any) -> str:
        return draft.strip().upper()

    store = await recorded(finalizer=loud)
    assert (await replay_full(store, RUN, finalizer=loud, tools=Counting().tools())).ok
    report = await replay_full(store, RUN, tools=Counting().tools())
    assert [(one.what, one.recorded, one.replayed) for one in report.differences] == [
        ("output", "THE ANSWER", "the answer")
    ]


async def test_w26_a_summary_is_made_again_too() -> None:
    class Summing:
        def __init__(self, text: str) -> None:
            self.text = text

        async def assemble(self, request: Any, /) -> Context | Summary:
            if request.step == 1 and not request.summaries:
                return Summary(text=self.text, usage=TokenUsage(prompt_tokens=5))
            return await PassthroughAssembler().assemble(request)

    store = await recorded(assembler=Summing("so far"))
    assert (await replay_full(store, RUN, assembler=Summing("so far"), tools=Counting().tools())).ok
    report = await replay_full(store, RUN, assembler=Summing("otherwise"), tools=Counting().tools())
    assert [(one.what, one.replayed) for one in report.differences] == [("summary", "otherwise")]


async def test_w26_whoever_raises_is_quoted() -> None:
    class Broken(PassthroughAssembler):
        async def assemble(self, request: Any, /) -> Context:
            raise ValueError("no window today")

    report = await replay_full(await recorded(), RUN, assembler=Broken(), tools=Counting().tools())
    assert report.differences[0].replayed == "ValueError: no window today"


async def test_w32_what_a_model_takes_is_asked_of_its_provider() -> None:
    class Leading(ScriptedProvider):
        mid_system = False

    store = await recorded(provider=Leading(TURNS), assembler=windows("the goal"))
    again = {"assembler": windows("the goal"), "tools": Counting().tools()}
    assert (await replay_full(store, RUN, provider=Leading([]), **again)).ok


async def test_w26_what_does_not_replay_is_a_difference_and_nothing_is_raised() -> None:
    store = await recorded()
    changed = MemoryLedgerStore()
    recorder = Recorder(changed, RUN, SystemClock())
    for entry in RunLedger(store, RUN).entries():
        data = entry.data
        if entry.kind == "step" and data["n"] == 4:
            data = {**data, "to": "observe"}
        recorder.record(entry.kind, data)
    recorder.flush(sync=False)
    report = await replay_full(changed, RUN, tools=Counting().tools())
    assert report.differences[-1].what == "to"
    missing = await replay_full(store, "no-such-run")
    assert (missing.ok, missing.differences[0].what) == (False, "form")
    assert "RunNotFound" in str(missing.differences[0].recorded)
