"""An orchestrated run as the agent of a loop: one run for each turn.

The loop runs the tools, so every call stands in its trace and is answered once; it keeps the
turn's deadline; its record names the run and the hash of its last entry. A turn that was cut
off by a crash goes on where its run was.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import anyio
import msgspec

from agentloop._canonical import Json
from agentloop.errors import ClassifiedError, InvariantViolation, RunNotFound
from agentloop.frames import CHILD_RUN, DONE, REASONING, TEXT, TOOL_CALL, USAGE, Frame
from agentloop.ledger.reader import RunLedger
from agentloop.messages import ToolCall, ToolResult
from agentloop.orchestrator import budgets
from agentloop.orchestrator.driver import RunDriver
from agentloop.orchestrator.effects import Effects
from agentloop.orchestrator.events import (
    BudgetExceeded,
    CallModel,
    Effect,
    Event,
    ExecuteTools,
    ModelFailed,
    ModelFrames,
    ModelSucceeded,
    ToolExecution,
    ToolRequest,
    ToolsCompleted,
)
from agentloop.orchestrator.folding import RunFold
from agentloop.orchestrator.options import read_options
from agentloop.orchestrator.recording import shown_frames
from agentloop.orchestrator.registry import ToolRun, read_value, render_value
from agentloop.orchestrator.resumption import read_standing
from agentloop.outcome import Result
from agentloop.ports import LedgerStore, Provider, StreamingProvider, ToolSpec

__all__ = ("OrchestratedAgent",)

#: What a turn yields, and what it is sent back for calls.
_Yielded = Frame | list[Frame]
_Sent = Frame | list[Frame] | None

_SHOWN: Final = (TEXT, REASONING)


class OrchestratedAgent:
    """An adapter whose turns are runs of a model with the loop's tools.

    The text of the prompt is the goal; what the model says is the turn's text. A run that is
    halted by a limit ends its turn with finish reason ``halted``, one that fails ends it with
    an error.

    Args:
        provider: The model.
        ledger: Where the runs are recorded, named ``<run of the loop>/<turn>``; it should be
            the loop's own store, so that replays find them. None records them nowhere.
        **options: As for `agentloop.run`: assembler, config, seed, redactor, durability.
    """

    def __init__(self, provider: Provider, *, ledger: LedgerStore | None = None, **options: Any) -> None:
        for name in ("goal", "tools", "run_id", "signal", "sink", "finalizer"):
            if name in options:
                raise TypeError(f"the loop gives {name}")
        self._provider, self._ledger, self._options = provider, ledger, options
        self._turns = 0

    def skip(self, turns: int) -> None:
        """Go on after that many turns, which were finished before the loop was resumed."""
        self._turns += turns

    async def turn(self, prompt: Sequence[Frame], ctx: Any = None) -> AsyncGenerator[_Yielded, _Sent]:
        """Yield the frames of one turn; calls are answered through ``asend``.

        Raises:
            ClassifiedError: The run failed.
        """
        self._turns += 1
        run_id = f"{getattr(ctx, 'run_id', None) or 'agent'}/{self._turns}"
        host = _LoopTools(getattr(ctx, "tools", ()))
        goal = "".join(frame.text for frame in prompt)
        run = self._begin(goal, host, run_id)
        try:
            async with aclosing(run.frames()) as frames:
                answers: _Sent = None
                while True:
                    try:
                        said = await frames.asend(answers)
                    except StopAsyncIteration:
                        break
                    answers = yield said
        except GeneratorExit:
            run.cut("the turn was cut off")
            raise
        except anyio.get_cancelled_exc_class():
            run.cut("the turn was cancelled")
            raise
        if self._ledger is not None:
            seq, digest = run.driver.record.recorder.head
            yield Frame(CHILD_RUN, {"run": run_id, "entries": seq, "hash": digest.hex()})
        outcome = run.driver.state.outcome
        assert outcome is not None
        if outcome.status == "failed" and outcome.error is not None:
            raise ClassifiedError(outcome.error)
        if outcome.error is not None:
            yield Frame(DONE, {"finish_reason": "halted", "code": outcome.error.code})
        else:
            yield Frame(DONE, {"finish_reason": "max_tokens" if outcome.truncated else "end_turn"})

    def _begin(self, goal: str, host: _LoopTools, run_id: str) -> _TurnRun:
        given = {"provider": self._provider, "tools": host, **self._options}
        if self._ledger is not None:
            resumable = {
                name: value for name, value in given.items() if name not in ("config", "seed", "labels")
            }
            try:
                options, fold, head = read_standing(self._ledger, run_id, **resumable)
            except RunNotFound:
                pass
            else:
                driver = RunDriver(options, standing=fold, head=head)
                return _TurnRun(driver, _story(self._ledger, run_id))
        options = read_options(goal, run_id=run_id, ledger=self._ledger, **given)
        return _TurnRun(RunDriver(options), ())


class _LoopTools:
    """The loop's tools as a run sees them; their calls go out as frames instead."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self.specs = tuple(specs)

    def read_only(self, name: str, /) -> bool:
        return False

    def accepts_key(self, name: str, /) -> bool:
        return False

    def timeout_ms(self, name: str, /) -> int | None:
        return None

    async def invoke(self, call: ToolCall, run: ToolRun, /) -> Result[Json]:
        raise InvariantViolation("the loop makes the calls of an agent")


def _story(store: LedgerStore, run: str) -> list[_Yielded]:
    """Return what a run that was cut off has shown so far; calls that are still open are left out."""
    ledger = RunLedger(store, run)
    fold, told = RunFold(ledger.opened), list[_Yielded]()
    calls: tuple[ToolCall, ...] = ()
    streamed = False
    # What an attempt said that was cut off is said again by the next one.
    attempt: list[_Yielded] = []

    def show(event: Event) -> None:
        if isinstance(event, ModelFrames):
            attempt.extend(frame for frame in shown_frames(event, streamed=True) if frame.type in _SHOWN)
            return
        if isinstance(event, (ModelSucceeded, ModelFailed)):
            told.extend(attempt)
            attempt.clear()
        if isinstance(event, ToolsCompleted):
            asked = _asked(calls)
            told.append(asked if len(asked) > 1 else asked[0])
            return
        told.extend(frame for frame in shown_frames(event, streamed=streamed) if frame.type in _SHOWN)
        if isinstance(event, ModelSucceeded):
            told.append(_usage(event))

    for entry in ledger.entries():
        streamed = fold.state.partial is not None
        event = fold.take(entry)
        if isinstance(event, ToolRequest):
            calls = event.calls
        elif event is not None:
            show(event)
    streamed = fold.state.partial is not None
    if fold.fact is not None:  # on record, and not decided upon yet
        show(fold.fact)
    return told


def _asked(calls: Sequence[ToolCall]) -> list[Frame]:
    frames = []
    for call in calls:
        content: dict[str, Any] = {"id": call.id, "name": call.name}
        if call.arguments is not None:
            content["arguments"] = call.arguments
        if call.raw_arguments is not None:
            content["raw_arguments"] = call.raw_arguments
        frames.append(Frame(TOOL_CALL, content))
    return frames


def _usage(event: ModelSucceeded) -> Frame:
    usage = event.usage
    return Frame(USAGE, {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens})


class _TurnRun:
    """One run, driven by whoever reads its frames."""

    def __init__(self, driver: RunDriver, story: Sequence[_Yielded]) -> None:
        self.driver, self._story = driver, story
        self._effects = Effects(driver)

    async def frames(self) -> AsyncGenerator[_Yielded, _Sent]:
        """Yield what the run says and asks for, and put it on record."""
        driver = self.driver
        if self._story:
            for told in self._story:
                yield told  # the loop answers calls it knows from its record
        elif not driver.resumed:
            driver.begin()
        while (effect := driver.next_effect()) is not None:
            await driver.commit(effect)
            if isinstance(effect, ExecuteTools):
                asked = _asked(effect.calls)
                answers = yield (asked if len(asked) > 1 else asked[0])
                event: Event = self._answered(effect, answers)
            elif isinstance(effect, CallModel) and isinstance(driver.options.provider, StreamingProvider):
                async with aclosing(self._effects.frames(effect)) as said:
                    async for item in said:
                        if not isinstance(item, Frame):
                            event = item
                        elif item.type in _SHOWN:
                            yield item
            else:
                event = await self._effects.perform(effect)
                for frame in shown_frames(event, streamed=False):
                    if frame.type in _SHOWN:
                        yield frame
            if isinstance(event, ModelSucceeded):
                yield _usage(event)
            self._tell(event, effect)
        driver.close()
        await driver.commit()

    def _tell(self, event: Event, effect: Effect) -> None:
        driver = self.driver
        driver.queue(event)
        late = budgets.wall_clock(driver.now() - driver.state.started_at, driver.config)
        if late is not None:
            driver.queue(BudgetExceeded(at=driver.now(), error=late))

    def _answered(self, effect: ExecuteTools, answers: _Sent) -> Event:
        driver = self.driver
        given = answers if isinstance(answers, list) else [answers] if answers is not None else []
        results = []
        for call, answer in zip(effect.calls, given, strict=True):
            step_id = driver.options.ids.next("tool")
            execution = driver.before.executions.get(step_id)
            if execution is None:
                execution = driver.ingress.struct(_execution(call, answer, step_id), "tool.bad_value")
                driver.record.result(execution)
            results.append(execution)
        return ToolsCompleted(at=driver.now(), results=tuple(results))

    def cut(self, reason: str) -> None:
        """End the run at once, on record."""
        self.driver.cancel(reason)
        self.driver.record.commits.now()


def _execution(call: ToolCall, answer: Frame, step_id: str) -> ToolExecution:
    given = ToolResult.from_content(answer.content)
    result = read_value(call, given)
    duration_ms = answer.content.get("duration_ms")
    if result.ok:
        content, error = render_value(result.value), None
    else:
        # In the loop whatever a tool does wrong is an answer; so it is for the model here.
        error = result.error
        if error.error_class == "fatal":
            error = msgspec.structs.replace(error, error_class="correctable")
        content = error.message
    return ToolExecution(
        call=call,
        ok=error is None,
        content=content,
        error=error,
        duration_ms=duration_ms if isinstance(duration_ms, int) else 0,
        step_id=step_id,
    )
