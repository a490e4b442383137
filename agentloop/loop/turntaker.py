"""Taking a turn: the prompt is built, the adapter is asked, its frames are read, its calls answered.

What a turn means for the cycle is decided elsewhere; whether the run still goes on is asked of
the driver at every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from agentloop.errors import TurnError, TurnTimeout
from agentloop.frames import CONTEXT, DONE, ERROR, TEXT, TOOL_CALL, Frame, Role
from agentloop.loop.answers import must_wait
from agentloop.loop.calls import TurnCalls
from agentloop.loop.context import LoopContext
from agentloop.loop.failures import Failed, Stopped, message_of, signal_of
from agentloop.loop.ingress import Ingress
from agentloop.loop.options import LoopOptions
from agentloop.loop.output import Output
from agentloop.loop.record import RunRecord
from agentloop.loop.resumption import OpenTurn, continued
from agentloop.loop.turns import Adapter, Prompt, Turn, TurnFold, as_adapter, is_forwarded
from agentloop.loop.watch import Watchdog
from agentloop.symbolic import SymbolicChange
from agentloop.tools import ToolAdapterWrapper

__all__ = ("RunSide", "TurnTaker")


class RunSide(Protocol):
    """What a turn asks of the run it belongs to."""

    #: Changes of facts that wait to be published.
    changes: deque[SymbolicChange]

    @property
    def cycle(self) -> int:
        """The current iteration."""

    def halted(self) -> bool:
        """Return whether nothing may begin any more; what comes too late is dropped."""

    def has_ended(self) -> bool:
        """Return whether the terminal frame has been decided."""

    async def settle_changes(self) -> None:
        """Publish the changes that wait."""

    async def commit(self) -> None:
        """Put everything recorded so far on disk."""


class TurnTaker:
    """Takes the turns of one run, one after another.

    Attributes:
        role: Whose turn is open; None between turns.
    """

    def __init__(
        self,
        options: LoopOptions,
        run: RunSide,
        *,
        context: LoopContext,
        tools: ToolAdapterWrapper,
        ingress: Ingress,
        record: RunRecord,
        output: Output,
        watch: Watchdog,
    ) -> None:
        self._options, self._run, self._context, self._tools = options, run, context, tools
        self._ingress, self._record, self._output, self._watch = ingress, record, output, watch
        self._adapters: dict[Role, Adapter] = {
            "agent": as_adapter(options.agent_adapter),
            "evaluator": as_adapter(options.evaluator_adapter),
        }
        self._builders: dict[Role, Callable[..., Any] | None] = {
            "agent": options.build_agent_prompt,
            "evaluator": options.build_evaluator_prompt,
        }
        forward = options.forward_frames
        self.forward: frozenset[str] | None = None if forward == "*" else frozenset(forward)
        self._number = 0
        #: A turn that was cut off before the run was resumed.
        self._again: OpenTurn | None = None
        self.role: Role | None = None
        self._turn: Turn | None = None

    async def take(self, role: Role, *arguments: Any) -> tuple[TurnFold, list[dict[str, Any]]]:
        """Ask an adapter for a turn and read it to its end; return its fold and tool results.

        Raises:
            Failed: The turn, or the building of its prompt, did not end well.
            Stopped: The run was stopped meanwhile.
        """
        again, self._again = self._again, None
        prompt = await self._build_prompt(role, again, *arguments)
        about: list[Frame] = []
        for frame in prompt:  # most prompts have none, and this is asked every turn
            if frame.type == CONTEXT:
                prompt, about = self._parted(prompt)
                break
        self._number += 1
        if self._record.on:
            whole = self._options.record_prompts == "parts"
            frames = self._ingress.prompt(prompt)
            self._record.turn_begun(self._number, role, frames, whole=whole, about=about)
        work = _TurnWork(TurnFold(role), partial(self._calls, again=again))
        for frame in about:  # what the prompt was made of: for the run and its reader, not for the adapter
            work.fold.feed(frame)
            self._stage(frame, role)
        try:
            self.role = role
            self._watch.allow(self._options.turn_timeout_ms)
            turn = self._turn = await self._adapters[role].begin(prompt, self._context, role)
            if self._options.parallel_tool_calls and turn.concurrent:
                async with anyio.create_task_group() as work.tasks:
                    await self._read(turn, work)
            else:
                await self._read(turn, work)
            await turn.close()
            self._go_on()
        except (Stopped, Failed):
            raise
        except Exception as error:
            # A run's own signals come back in groups from calls that overlapped.
            raise signal_of(error) or Failed(role, error) from error
        self._watch.release()
        self.role = self._turn = None
        self._record.turn_ended()
        return work.fold, work.entries()

    def _parted(self, prompt: Prompt) -> tuple[Prompt, list[Frame]]:
        """Return what the adapter is given, and what is kept of the frames about it."""
        about = self._ingress.prompt(frame for frame in prompt if frame.type == CONTEXT)
        return Prompt(frame for frame in prompt if frame.type != CONTEXT), about

    def _go_on(self) -> None:
        if self._run.halted():
            raise Stopped

    def go_on(self, turns: int, again: OpenTurn | None) -> None:
        """Go on after that many turns, the last of which may have to be taken again."""
        self._number, self._again = turns, again

    def _calls(self, role: Role, again: OpenTurn | None) -> TurnCalls:
        return TurnCalls(
            role,
            self._number,
            run_id=self._context.run_id,
            tools=self._tools,
            limit=self._options.max_tool_calls,
            record=self._record,
            commit=self._run.commit,
            stage=self.show_answer,
            ingress=self._ingress,
            watch=self._watch,
            again=again,
        )

    async def _build_prompt(self, role: Role, again: OpenTurn | None, *arguments: Any) -> Prompt:
        if again is not None and again.prompt is not None:
            return Prompt(continued(again.prompt, again.calls))
        build = self._builders[role]
        assert build is not None, "LoopOptions has checked that it is there"
        try:
            value = build(*arguments)
            if must_wait(value):
                value = await value
            frames = value if isinstance(value, (list, tuple)) else [value]
            if value is None or not frames:
                raise TypeError(f"the prompt builder returned {value!r}: a frame, a str, a mapping or a list")
            prompt = Prompt(Frame.of(frame) for frame in frames)
            if again is not None:
                prompt = Prompt(continued(prompt, again.calls))
        except Exception as error:
            raise Failed(f"build_{role}_prompt", error) from error
        self._go_on()
        return prompt

    # ------------------------------------------------------------------------------ reading

    async def _read(self, turn: Turn, work: _TurnWork) -> None:
        ingress, halted, changes = self._ingress, self._run.halted, self._run.changes
        ingress.begin()
        while (got := await turn.next()) is not None:
            if halted():
                raise Stopped
            if isinstance(got, list):
                if await self._answer_calls(turn, got, work):
                    return
            else:
                for frame in ingress.take(got):
                    if await self._take_frame(frame, turn, work):
                        return
            if changes:
                await self._run.settle_changes()
            if self._output.blocks:
                await self._output.room()
        for frame in ingress.rest():
            await self._take_frame(frame, turn, work)

    async def _take_frame(self, frame: Frame, turn: Turn, work: _TurnWork) -> bool:
        """Take one frame of a turn; True if it was the last."""
        if self._note(frame, work.fold):
            await self._output.publish()
        if frame.type == TOOL_CALL:
            number = work.calls.number()
            if work.tasks is None:
                await self._call_and_answer(turn, frame, number, work)
            else:
                work.tasks.start_soon(self._call_and_answer, turn, frame, number, work)
        return frame.type == DONE

    def _note(self, frame: Frame, fold: TurnFold) -> bool:
        """Add a frame to the turn's sum and the record; True if it is shown to the reader."""
        fold.feed(frame)
        self._record.frame(frame)
        if frame.type == ERROR:
            raise _reported(frame)
        return self._stage(frame, fold.role)

    def _stage(self, frame: Frame, role: Role) -> bool:
        if not is_forwarded(frame.type, self.forward):
            return False
        content = {**frame.content, "role": role} if frame.type == TEXT else frame.content
        self._output.stage(frame.type, content)
        return True

    # -------------------------------------------------------------------------------- calls

    async def _answer_calls(self, turn: Turn, frames: list[Frame], work: _TurnWork) -> bool:
        """Answer calls that were asked for at once, in their order; True if the turn has ended."""
        said = [frame for given in frames for frame in self._ingress.take(given)]
        for frame in said:
            self._note(frame, work.fold)
        await self._output.publish()
        calls = [(work.calls.number(), frame) for frame in said if frame.type == TOOL_CALL]
        answers: dict[int, Frame] = {}

        async def call(number: int, frame: Frame) -> None:
            answers[number] = await self._call(frame, number, work)

        if self._options.parallel_tool_calls and len(calls) > 1:
            async with anyio.create_task_group() as tasks:
                for number, frame in calls:
                    tasks.start_soon(call, number, frame)
        else:
            for number, frame in calls:
                await call(number, frame)
        await turn.answer([answers[number] for number, _ in calls])
        return any(frame.type == DONE for frame in said)

    async def _call_and_answer(self, turn: Turn, frame: Frame, number: int, work: _TurnWork) -> None:
        await turn.answer([await self._call(frame, number, work)])

    async def _call(self, frame: Frame, number: int, work: _TurnWork) -> Frame:
        answer = await work.calls.answer(frame, number, self._run.cycle)
        self._go_on()
        await self._output.publish()
        return answer

    def show_answer(self, answer: Frame) -> None:
        """Show the reader an answer, if it wants to see answers."""
        if not self._run.has_ended():
            self._stage(answer, "agent")

    # ------------------------------------------------------------------------------ cutting

    async def cut(
        self, reason: str, failure: Failed | None, *, warn: Callable[[str], None], close: bool
    ) -> None:
        """End the open turn, if there is one: put that on record, tell its adapter, close it.

        Args:
            reason: What the adapter is told.
            failure: Why the run ends, if it failed; an adapter that failed itself is not told.
            warn: Takes what goes wrong here.
            close: Wait for the turn to let go.
        """
        if self.role is None:
            return
        error = failure.error if failure else None
        message = self._ingress.redact_text(message_of(error)) if error else reason
        cut = {"error_type": type(error).__name__ if error else "Cut", "message": message}
        self._record.turn_ended(error=cut)
        if failure is None or failure.phase != self.role or isinstance(error, TurnTimeout):
            try:
                self._adapters[self.role].abort(reason)
            except Exception as broken:
                warn(f"{self.role}: abort raised {type(broken).__name__}: {message_of(broken)}")
        if close:
            await self.close(warn=warn)

    async def close(self, *, warn: Callable[[str], None]) -> None:
        """Let go of the open turn, if there is one."""
        if self.role is None:
            return
        try:
            if self._turn is not None:
                await self._turn.close()
        except Exception as broken:
            warn(f"{self.role}: close raised {type(broken).__name__}: {message_of(broken)}")
        self.role = self._turn = None


class _TurnWork:
    """What one turn gathers: its frames' sum, its calls, and where calls may overlap their tasks."""

    __slots__ = ("_calls", "_make_calls", "fold", "tasks")

    def __init__(self, fold: TurnFold, make_calls: Callable[[Role], TurnCalls]) -> None:
        self.fold, self._make_calls = fold, make_calls
        self._calls: TurnCalls | None = None
        self.tasks: TaskGroup | None = None

    @property
    def calls(self) -> TurnCalls:
        """The calls of this turn; most turns have none."""
        if self._calls is None:
            self._calls = self._make_calls(self.fold.role)
        return self._calls

    def entries(self) -> list[dict[str, Any]]:
        """The tool results in the order of their calls."""
        found = {} if self._calls is None else self._calls.entries
        return [found[number] for number in sorted(found)]


def _reported(frame: Frame) -> Exception:
    """Return the error an ERROR frame of an adapter tells of: the original, if it came along."""
    original = frame.meta.get("exception")
    if isinstance(original, Exception):
        return original
    return TurnError(str(frame.content.get("message") or "the adapter reported an error"))
