"""The scripted adapter: it says what it was told to say, and knows what it was told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentloop import Frame, ModelError, ScriptedAdapter, ScriptExhausted, TaskError
from agentloop.testing import Expect, Sleep, load_script, script_turns
from tests.agentloop.loop.scenes import call, only, play_out, yes


async def said_by(adapter: ScriptedAdapter, *answers: Any) -> list[Any]:
    """Play one turn, answering what it yields, and return what it yielded."""
    turn, yielded, left = adapter.turn([Frame("TEXT", {"text": "go"})]), [], [None, *answers]
    try:
        while True:
            yielded.append(await turn.asend(left.pop(0) if left else None))
    except StopAsyncIteration:
        return yielded
    finally:
        await turn.aclose()


@pytest.mark.anyio
async def test_turns_are_played_in_order_and_end_with_done() -> None:
    adapter = ScriptedAdapter(["one", ["two", {"type": "NOTE", "content": {"n": 1}}]])
    assert adapter.turns_left == 2
    assert await said_by(adapter) == [Frame("TEXT", {"text": "one"}), Frame("DONE", {})]
    assert await said_by(adapter) == [
        Frame("TEXT", {"text": "two"}),
        Frame("NOTE", {"n": 1}),
        Frame("DONE", {}),
    ]
    assert adapter.turns_left == 0
    assert [prompt[0].text for prompt in adapter.prompts] == ["go", "go"]


@pytest.mark.anyio
async def test_running_out_of_turns_is_an_error_that_counts() -> None:
    adapter = ScriptedAdapter(["one"])
    await said_by(adapter)
    with pytest.raises(ScriptExhausted, match=r"1.*2|2.*1"):
        await said_by(adapter)
    loop, frames = await play_out(ScriptedAdapter([]), [])
    assert only(frames, "ERROR")[0]["error_type"] == "ScriptExhausted"
    assert loop.result.reason == "error"


@pytest.mark.anyio
async def test_results_and_aborts_are_remembered() -> None:
    said: list[Any] = [call("t"), [call("t"), call("u", id="k2")], "end"]
    adapter = ScriptedAdapter([said])
    one, two, three = (Frame("TOOL_RESULT", {"id": str(n)}) for n in range(3))
    await said_by(adapter, one, [two, three])
    assert adapter.results == [one, two, three]
    assert (adapter.abort("why"), adapter.abort("again")) == (True, False)
    assert adapter.aborts == ["why", "again"]


@pytest.mark.anyio
async def test_an_expectation_holds_or_says_what_came_instead() -> None:
    result = Frame("TOOL_RESULT", {"id": "k1", "ok": True, "output": 3})
    good: list[Any] = [Expect("TEXT", {"text": "go"}), call("t"), Expect("TOOL_RESULT", {"ok": True})]
    await said_by(ScriptedAdapter([good]), result)
    for wrong in (Expect("TOOL_RESULT", {"ok": False}), Expect("NOTE")):
        with pytest.raises(AssertionError, match="the script expected"):
            await said_by(ScriptedAdapter([[call("t"), wrong]]), result)


@pytest.mark.anyio
async def test_exceptions_are_raised_and_sleeps_are_slept() -> None:
    problem = ConnectionError("gone")
    with pytest.raises(ConnectionError) as caught:
        await said_by(ScriptedAdapter([["half", problem]]))
    assert caught.value is problem
    began = anyio.current_time()
    await said_by(ScriptedAdapter([[Sleep(20), "late"]]))
    assert anyio.current_time() - began >= 0.015


@pytest.mark.anyio
async def test_the_same_script_gives_the_same_run() -> None:
    script: list[Any] = [["a", call("t", {"n": 1}), Frame("DONE", {"usage": {"input_tokens": 2}})]]
    runs = [await play_out(script, [yes()], tool_adapters={"t": lambda n: n}) for _ in range(2)]
    assert runs[0][1] == runs[1][1]
    assert runs[0][0].result.usage == runs[1][0].result.usage == {"input_tokens": 2}


CALLS: list[Any] = [
    {"say": "first", "callTools": [{"name": "t", "args": {"n": 1}}], "usage": {"promptTokens": 3}},
    {"say": "second", "stopReason": "max_tokens"},
    {"failWith": {"class": "transient", "code": "model.rate_limited", "message": "slow down"}},
]


def test_a_recorded_script_becomes_turns() -> None:
    turns = script_turns({"calls": CALLS})
    assert repr(turns) == repr(script_turns(CALLS))
    assert len(turns) == 2
    first: list[Any] = turns[0]
    assert first[0] == Frame("TEXT", {"text": "first"})
    assert first[1] == Frame("USAGE", {"input_tokens": 3})
    assert first[2] == [Frame("TOOL_CALL", {"id": "call-01-01", "name": "t", "arguments": {"n": 1}})]
    assert first[3:] == [Frame("TEXT", {"text": "second"}), Frame("DONE", {"finish_reason": "max_tokens"})]
    error = turns[1][0]
    assert isinstance(error, ModelError)
    assert (error.code, error.error_class, str(error)) == ("model.rate_limited", "transient", "slow down")


@pytest.mark.parametrize(
    "data",
    [
        5,
        {"turns": []},
        {"calls": {}},
        [5],
        [{}],
        [{"says": "typo"}],
        [{"callTools": [5]}],
        [{"callTools": [{"args": {}}]}],
        [{"callTools": 5}],
        [{"callTools": [{"name": "t", "args": 5}]}],
        [{"usage": 5}],
        [{"failWith": "text"}],
        [{"failWith": {"class": "nonsense"}}],
        [{"say": 5}],
        [{"stopReason": 5}],
    ],
    ids=str,
)
def test_what_is_no_script_is_refused(data: Any) -> None:
    with pytest.raises(TaskError):
        script_turns(data)


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(CALLS))
    assert len(load_script(path)) == 2
    path.write_text("{")
    with pytest.raises(TaskError, match=r"script\.json is not JSON"):
        load_script(path)
    path.write_text("[5]")
    with pytest.raises(TaskError, match=r"script\.json.*call 1"):
        load_script(path)
    with pytest.raises(TaskError, match="cannot be read"):
        load_script(tmp_path / "missing.json")
