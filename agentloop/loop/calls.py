"""The tool calls of one turn: each is recorded, run, and answered exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from agentloop.checks.trace import trace_entry
from agentloop.errors import TurnError
from agentloop.frames import TOOL_RESULT, Frame, Role
from agentloop.loop.ingress import Ingress
from agentloop.loop.record import RunRecord
from agentloop.loop.resumption import OpenTurn, RecordedCall
from agentloop.loop.watch import Watchdog
from agentloop.messages import ToolCall, ToolResult
from agentloop.tools import ToolAdapterWrapper, tool_failure

__all__ = ("TurnCalls",)

#: Calls refused for being too many, in one turn, before the agent is given up.
_REFUSALS: Final = 8


class TurnCalls:
    """Runs the calls of one turn.

    Attributes:
        entries: For the trace, by number of the call; in call order once sorted.
    """

    __slots__ = (
        "_again",
        "_commit",
        "_ids",
        "_ingress",
        "_limit",
        "_open",
        "_record",
        "_role",
        "_run_id",
        "_stage",
        "_time_left_ms",
        "_tools",
        "_turn",
        "_watch",
        "count",
        "entries",
    )

    def __init__(
        self,
        role: Role,
        turn: int,
        *,
        run_id: str,
        tools: ToolAdapterWrapper,
        limit: int,
        record: RunRecord,
        commit: Callable[[], Awaitable[None]],
        stage: Callable[[Frame], object],
        ingress: Ingress,
        watch: Watchdog,
        again: OpenTurn | None = None,
    ) -> None:
        self._again = again
        self._role, self._turn, self._run_id = role, turn, run_id
        self._tools, self._limit = tools, limit
        self._record, self._commit, self._stage = record, commit, stage
        self._ingress, self._watch = ingress, watch
        self._open, self._time_left_ms = 0, 0.0
        self._ids: dict[str, int] = {}
        self.count = 0
        self.entries: dict[int, dict[str, Any]] = {}

    def number(self) -> int:
        """Return the number of the next call of this turn."""
        self.count += 1
        return self.count

    async def answer(self, frame: Frame, number: int, cycle: int) -> Frame:
        """Run the call a TOOL_CALL frame asks for and return its TOOL_RESULT frame.

        Raises:
            TurnError: The agent goes on asking for more calls than are answered.
        """
        step = f"{self._turn}.{number}"
        call = self._tools.read_call(frame, step_id=step, key=f"{self._run_id}/{step}")
        seen = self._ids[call.id] = self._ids.get(call.id, 0) + 1
        refusal = self._refusal(call, number)
        known = None if self._again is None or refusal is not None else self._again.take(call)
        ran = refusal is None and (known is None or known.result is None)
        result = refusal or await self._answer(call, known)
        content = self._ingress.redact(result.to_content())
        answer = Frame(TOOL_RESULT, content)
        self._record.fact("tool_result", {"step": step, "result": content})
        self._stage(answer)  # at once: results that overlap are published as they are recorded
        if ran and self._record.on and not self._tools.read_only(call.name):
            await self._commit()
        if self._role == "agent":
            shown = msgspec.structs.replace(
                result,
                id=call.id if seen == 1 else f"{call.id}#{seen}",
                output=content["output"],
                stdout=content.get("stdout"),
                stderr=content.get("stderr"),
            )
            arguments = call.arguments if call.arguments is not None else (call.raw_arguments or {})
            self.entries[number] = trace_entry(shown, cycle=cycle, index=number - 1, arguments=arguments)
        return answer

    async def _answer(self, call: ToolCall, known: RecordedCall | None) -> ToolResult:
        """Run the call, unless it was run before the turn was interrupted."""
        if known is None:
            return await self._run(call)
        if known.result is None:  # the same call, not another one
            return await self._run(msgspec.structs.replace(call, key=known.call.key))
        return msgspec.structs.replace(ToolResult.from_content(known.result), id=call.id)

    def _refusal(self, call: ToolCall, number: int) -> ToolResult | None:
        if number >= self._limit + _REFUSALS:
            raise TurnError(
                f"{number} tool calls in one turn, {_REFUSALS} more than max_tool_calls={self._limit}"
            )
        if self._role == "evaluator":
            return tool_failure(
                call, "tools_not_available", "the evaluator has no tools: judge what is there"
            )
        if number <= self._limit:
            return None
        return tool_failure(
            call, "tool_call_limit", f"at most {self._limit} tool calls are answered in one turn"
        )

    async def _run(self, call: ToolCall) -> ToolResult:
        if self._record.on:
            await self._record_start(call)
        if self._open == 0:
            # The turn's clock stands still while a tool runs: that one has a deadline of its own.
            self._time_left_ms = self._watch.pause()
        self._open += 1
        timeout_ms = self._tools.timeout_ms(call.name)
        if timeout_ms is not None:
            self._watch.expect(call.step_id, f"tool {call.name!r}", timeout_ms)
        try:
            return await self._tools.call(call)
        finally:
            self._watch.arrived(call.step_id)
            self._open -= 1
            if self._open == 0:
                self._watch.allow(self._time_left_ms)

    async def _record_start(self, call: ToolCall) -> None:
        read_only = self._tools.read_only(call.name)
        asked = {"id": call.id, "name": call.name, "arguments": call.arguments, "raw": call.raw_arguments}
        self._record.fact(
            "tool_started",
            {
                "turn": self._turn,
                "step": call.step_id,
                "read_only": read_only,
                "key": call.key,
                "call": {name: value for name, value in asked.items() if value is not None},
            },
        )
        if not read_only:
            # On record before it changes anything: after a crash it is known to have been begun.
            await self._commit()
