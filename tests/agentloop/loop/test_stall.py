"""F20: code that blocks the event loop is found and named; deadlines act as soon as they can."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from agentloop import Frame, create_agent_loop
from tests.agentloop.loop.scenes import loop_options, yes

pytestmark = pytest.mark.anyio


def block_here() -> None:
    time.sleep(0.25)


def _blocking(answer: Any) -> Callable[..., Any]:
    def callback(*arguments: Any) -> Any:
        block_here()
        return answer

    return callback


async def _agent_that_blocks_and_hangs(prompt: Any, ctx: Any) -> Any:
    block_here()
    await anyio.sleep_forever()
    yield Frame("TEXT", {"text": "never"})


async def _blocking_agent(prompt: Any, ctx: Any) -> Any:
    block_here()
    yield Frame("TEXT", {"text": "a"})


class _BlockingTap:
    fatal = False

    async def write(self, frame: Frame, /) -> None:
        block_here()


CALLBACKS: dict[str, dict[str, Any]] = {
    "build_agent_prompt": {"build_agent_prompt": _blocking("go")},
    "build_evaluator_prompt": {"build_evaluator_prompt": _blocking("judge")},
    "parse_evaluator_output": {"parse_evaluator_output": _blocking(("SUCCESS", "e"))},
    "deterministic_checks": {"deterministic_checks": _blocking((True, "e")), "checks_list": ["exit_code:0"]},
    "on_progress": {"on_progress": _blocking(None)},
    "adapter": {"agent_adapter": _blocking_agent},
    "tap": {"taps": [_BlockingTap()]},
}


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.WARNING, "agentloop.loop"):
        yield lambda: [record.getMessage() for record in caplog.records]


def _loop(**options: Any) -> Any:
    base = loop_options(lambda prompt, ctx: "a", lambda prompt, ctx: yes())
    return create_agent_loop(**{**base, "stall_after_ms": 40, **options})


@pytest.mark.parametrize("where", CALLBACKS)
async def test_what_blocks_the_event_loop_is_named_once(where: str, records: Callable[[], list[str]]) -> None:
    result = await _loop(**CALLBACKS[where]).run()

    assert result.status == "SUCCESS"
    told = [text for text in records() if "blocked" in text]
    assert len(told) == 1
    assert "block_here" in told[0]


async def test_a_deadline_that_passed_meanwhile_acts_as_soon_as_the_loop_is_free(
    records: Callable[[], list[str]],
) -> None:
    result = await _loop(agent_adapter=_agent_that_blocks_and_hangs, turn_timeout_ms=60).run()

    assert (result.status, result.reason) == ("FAILURE", "error")
    assert "TurnTimeout" in type(result.error).__name__
    assert [text for text in records() if "blocked" in text]


@pytest.mark.parametrize("options", [{}, {"stall_after_ms": None, "on_progress": _blocking(None)}])
async def test_nothing_is_said_where_nothing_blocks_or_nobody_looks(
    options: dict[str, Any], records: Callable[[], list[str]]
) -> None:
    await _loop(**{"stall_after_ms": 5_000, **options}).run()

    assert records() == []
