"""One run in which agent, tool and evaluator say every naughty string and every lone surrogate."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop import Frame, MemoryLedgerStore, RunLedger, ScriptedAdapter, ToolResult
from agentloop._canonical import encode, repair_text
from agentloop.messages import ToolCall
from agentloop.replays import replay
from agentloop.tools import create_tool_adapter_wrapper
from tests.agentloop.loop.scenes import call, more, play_out, yes
from tests.corpora.read import naughty_strings, surrogates
from tests.tally import tally

pytestmark = pytest.mark.anyio

TEXTS = naughty_strings()
LONE = tuple(surrogates())
#: Lone surrogates at the ends of their ranges; a run with all of them says nothing more.
FEW = tuple(f"a{chr(code)}b" for code in (0xD800, 0xDBFF, 0xDC00, 0xDFFF))


async def test_a_run_says_hears_and_keeps_every_text() -> None:
    texts = (*TEXTS, *FEW)
    heard: list[str] = []

    async def echo(text: str, way: int) -> Any:
        heard.append(text)
        if way == 3:
            raise ValueError(text)
        return (text, {"stdout": text, "exit_code": 0}, {text: [text]})[way]

    calls = [
        call("echo", {"text": text, "way": number % 4}, id=text if number % 3 else None)
        for number, text in enumerate(texts)
    ]
    unknown = [call(text, {text: text}) for text in texts[::4]]
    store = MemoryLedgerStore()
    agent = ScriptedAdapter([[*texts, *calls, *unknown], ["done"]])
    evaluator = [more("".join(texts)[:4_000]), yes("".join(FEW))]
    loop, frames = await play_out(
        agent, evaluator, tool_adapters={"echo": echo}, ledger=store, run_id="r", max_tool_calls=1_000
    )
    assert loop.result.status == "SUCCESS", loop.result
    said = [frame.content["text"] for frame in frames if frame.type == "TEXT"]
    assert said[: len(texts)] == [repair_text(text) for text in texts]
    assert heard == [repair_text(text) for text in texts]
    assert len(agent.results) == len(calls) + len(unknown)
    assert RunLedger(store, "r").verify().ok
    report = replay(store, "r")
    assert report.ok, report.divergence
    tally("naughty strings", len(TEXTS))


async def test_a_tool_may_answer_with_any_text() -> None:
    answers: list[Any] = []

    async def tool() -> Any:
        answer = answers[-1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    tools = create_tool_adapter_wrapper({"t": tool})
    for text in (*TEXTS, *LONE):
        repaired = repair_text(text)
        for answer in (
            text,
            {"stdout": text},
            {"output": {"k": text}},
            [text],
            text.encode("utf-8", "replace"),
        ):
            answers.append(answer)
            result = await tools.call(ToolCall(id="1", name="t", arguments={}))
            lone = text != repaired
            if result.ok:
                assert holds(
                    result.output,
                    text.encode("utf-8", "replace").decode() if isinstance(answer, bytes) else repaired,
                )
            else:
                assert lone
                assert result.error is not None
                assert result.error.code == "tool.bad_value"
            encode(result_data(result))
        answers.append(ValueError(text))
        failed = await tools.call(ToolCall(id="1", name="t", arguments={}))
        assert failed.output == f"ValueError: {repaired}"
        encode(result_data(failed))
    tally("naughty strings", len(TEXTS))
    tally("lone surrogates", len(LONE))


def holds(value: Any, text: str) -> bool:
    while isinstance(value, (dict, list)):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return bool(value == text)


def result_data(result: ToolResult) -> dict[str, Any]:
    """What of a result is written."""
    return Frame(
        "TOOL_RESULT", {"output": result.output, "stdout": result.stdout, "stderr": result.stderr}
    ).to_dict()
