"""What holds of cases made of runs, whatever models and tools did."""

from __future__ import annotations

from typing import Any

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentloop import ManualClock, MemoryLedgerStore, Mulberry32, SequentialIds, run
from agentloop.errors import TaskError
from agentloop.evals.files import read_case
from agentloop.evals.recording import case_of_run, view_run
from agentloop.evals.running import play_case
from agentloop.orchestrator.options import Deps
from agentloop.orchestrator.providers import ChunkedProvider, ScriptedProvider
from tests.properties.test_orchestrator import tools
from tests.strategies import model_scripts

_SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LIMITS = {"budget": {"maxSteps": 5, "maxToolCalls": 6, "maxWallClockMs": None}, "modelTimeoutMs": 1_500}


@_SETTINGS
@given(script=model_scripts(), characters=st.none() | st.integers(1, 40))
def test_a_run_becomes_a_case_that_goes_the_same_way(
    script: list[dict[str, Any]], characters: int | None
) -> None:
    store, clock = MemoryLedgerStore(), ManualClock()
    provider: Any = ScriptedProvider(script, clock=clock)
    if characters is not None:
        provider = ChunkedProvider(provider, characters=characters)
    deps = Deps(clock=clock, rng=Mulberry32("p"), ids=SequentialIds())

    async def main() -> None:
        await run(
            "goal", provider=provider, tools=tools(clock), config=LIMITS, deps=deps, ledger=store, run_id="r"
        )
        first = view_run(store, "r")
        try:
            made = await case_of_run(store, "r")
        except TaskError:
            assert first.error_code == "run.cancelled"
            return
        second = await play_case(read_case(made.serialise()).case())
        assert (second.fingerprint, second.fingerprint2) == (first.fingerprint, first.fingerprint2)
        assert (second.usage, second.output) == (first.usage, first.output)
        assert [(use.name, use.ok, use.content) for use in second.tool_calls] == [
            (use.name, use.ok, use.content) for use in first.tool_calls
        ]
        assert second.replayed.ok

    anyio.run(main)
