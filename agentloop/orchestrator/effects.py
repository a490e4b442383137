"""Doing what the reducer ordered: each effect becomes the one event that answers it.

Nothing here raises for what a model, a tool, an assembler or a finalizer did; that becomes an
event of its class. Deadlines of single calls are kept here, those of the run by `runtime`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import cast

import anyio
import msgspec

from agentloop._canonical import Json
from agentloop.errors import ClassifiedError, ErrorValue
from agentloop.frames import Frame
from agentloop.messages import ToolCall
from agentloop.orchestrator import budgets
from agentloop.orchestrator.assembly import assembly_request, lead_with_system
from agentloop.orchestrator.driver import RunDriver
from agentloop.orchestrator.events import (
    Assemble,
    Attempt,
    BackoffElapsed,
    BudgetExceeded,
    CallModel,
    ChildRun,
    ContextAssembled,
    Effect,
    Event,
    ExecuteTools,
    Fault,
    Finalize,
    ModelFailed,
    ModelFrames,
    ModelSucceeded,
    OutputFinalized,
    RunCancelled,
    SummaryRecorded,
    ToolExecution,
    ToolsCompleted,
    ToolStarted,
    Wait,
)
from agentloop.orchestrator.paging import PagedTools
from agentloop.orchestrator.reducer import MAX_SUMMARIES
from agentloop.orchestrator.registry import Allowance, ToolRun, render_value
from agentloop.orchestrator.streaming import Batcher, Partial, wire_frame
from agentloop.orchestrator.timing import TimeLimits
from agentloop.outcome import (
    Err,
    Ok,
    Result,
    budget_exceeded,
    correctable,
    fatal,
    to_error,
    transient,
)
from agentloop.ports import (
    AssemblyRequest,
    Context,
    ModelCall,
    ModelReply,
    ModelRequest,
    StreamingProvider,
    Summary,
)

__all__ = ("Effects",)


class Effects:
    """Performs the effects of one run."""

    def __init__(self, driver: RunDriver) -> None:
        self._driver, self._options = driver, driver.options
        self._sink = driver.options.sink
        self._tools = PagedTools(driver.options.tools, driver.config)
        for execution in driver.before.executions.values():
            self._tools.keep(execution)
        self._limiter: anyio.CapacityLimiter | None = None
        self.limits = TimeLimits(driver.options.clock)
        # As `isinstance` of the protocol would say, which is slower than a whole model call of a script.
        self._streams = hasattr(driver.options.provider, "stream")
        #: Runs made by the calls of the batch so far, which its event will account for.
        self._children: list[ChildRun] = []

    async def perform(self, effect: Effect) -> Event:
        """Return the event that answers the effect."""
        match effect:
            case Assemble():
                return await self._assemble(effect)
            case CallModel():
                return await self._call_model(effect)
            case ExecuteTools():
                return await self._execute_tools(effect)
            case Wait():
                return await self._wait(effect)
        return await self._finalize(effect)

    # ---------------------------------------------------------------------------- the window

    def _request(self, effect: Assemble | None = None) -> AssemblyRequest:
        options = self._options
        return assembly_request(
            self._driver.state, options.config, self._tools.specs, provider=options.provider, effect=effect
        )

    async def _assemble(self, effect: Assemble) -> Event:
        driver, request = self._driver, self._request(effect)
        made, attempts = await self._trying("assembler", lambda: self._options.assembler.assemble(request))
        at = driver.now()
        if isinstance(made, ErrorValue):
            return _failure(made, at)
        try:
            if isinstance(made, Summary):
                if len(driver.state.summaries) >= MAX_SUMMARIES:
                    text = f"the assembler had more than {MAX_SUMMARIES} summaries made"
                    return Fault(at=at, error=fatal("context.too_many_summaries", text, source="assembler"))
                return SummaryRecorded(at=at, text=driver.ingress.text(made.text), usage=made.usage)
            if not isinstance(made, Context):
                text = f"the assembler returned {type(made).__name__}, not a Context"
                return Fault(at=at, error=fatal("context.bad_value", text, source="assembler"))
            if attempts > 1:
                report = {**(made.report or {}), "assemblyAttempts": attempts}
                made = msgspec.structs.replace(made, report=report)
            if not request.mid_system:
                made = lead_with_system(made)
            context = driver.ingress.context(made, driver.state.transcript)
        except ClassifiedError as error:
            return Fault(at=at, error=to_error(error, source="assembler"))
        return ContextAssembled(at=at, context=context)

    async def _trying(self, source: str, make: Callable[[], object]) -> tuple[object, int]:
        """Call what a user gave, again while its failure is transient; return also the attempts."""
        attempt = 0
        while True:
            attempt += 1
            try:
                made = make()
                return (await made if inspect.isawaitable(made) else made), attempt
            except Exception as error:
                value = self._driver.ingress.error(to_error(error, source=source))
            if value.error_class != "transient" or attempt >= self._options.config.budget.max_tool_attempts:
                return value, attempt
            await self._pause(attempt, value)

    async def _pause(self, attempt: int, error: ErrorValue) -> int:
        """Wait before something is tried again; return how long."""
        retry = self._options.config.retry
        delay_ms, asked_ms = retry.delay_ms(attempt), error.detail.get("retryAfterMs")
        if isinstance(asked_ms, int):
            delay_ms = max(delay_ms, min(asked_ms, retry.max_delay_ms))
        waited_ms = retry.jittered_ms(delay_ms, self._options.rng.next())
        await self._options.clock.sleep_ms(waited_ms)
        return waited_ms

    async def _wait(self, effect: Wait) -> Event:
        waited_ms = self._options.config.retry.jittered_ms(effect.ms, self._options.rng.next())
        await self._options.clock.sleep_ms(waited_ms)
        return BackoffElapsed(at=self._driver.now(), waited_ms=waited_ms)

    async def _finalize(self, effect: Finalize) -> Event:
        request = self._request()
        made, _ = await self._trying("finalizer", lambda: self._options.finalizer(effect.draft, request))
        at = self._driver.now()
        if isinstance(made, ErrorValue):
            return _failure(made, at)
        if not isinstance(made, str):
            text = f"the finalizer returned {type(made).__name__}, not a text"
            return Fault(at=at, error=fatal("output.bad_value", text, source="finalizer"))
        return OutputFinalized(at=at, output=self._driver.ingress.text(made))

    # ----------------------------------------------------------------------------- the model

    def model_call(self, effect: CallModel) -> tuple[ModelRequest, ModelCall]:
        """Return what the provider is asked."""
        driver, options = self._driver, self._options
        offered = budgets.offers_tools(driver.state.usage, options.config)
        request = ModelRequest(
            messages=effect.context.messages,
            tools=tuple(self._tools.specs) if offered else (),
            max_output_tokens=effect.max_output_tokens,
        )
        step_id = options.ids.next("step")
        return request, ModelCall(run_id=options.run_id, step_id=step_id, attempt=effect.attempt)

    async def _call_model(self, effect: CallModel) -> Event:
        timeout_ms = self._options.config.model_timeout_ms
        answer = await self.limits.within(timeout_ms, self._ask(effect))
        if answer is None:
            text = f"the model did not answer within {timeout_ms} ms"
            error = transient("model.timeout", text, detail={"timeoutMs": timeout_ms}, source="provider")
            return ModelFailed(at=self._driver.now(), error=error)
        return answer

    async def _ask(self, effect: CallModel) -> Event:
        provider = self._options.provider
        if self._streams:
            event: Event | None = None
            async with aclosing(self.frames(effect)) as said:
                async for item in said:
                    if isinstance(item, Frame):
                        await self._publish(item)
                    else:
                        event = item
            assert event is not None
            return event
        request, call = self.model_call(effect)
        try:
            result = await provider.generate(request, call)
        except Exception as error:
            return self._raised(error)
        return self._answered(result)

    def _raised(self, error: Exception) -> Event:
        at = self._driver.now()
        value = self._driver.ingress.error(to_error(error, source="provider"))
        if self._driver.broken is not None:
            raise error
        if isinstance(error, ClassifiedError):
            return ModelFailed(at=at, error=value)
        return Fault(at=at, error=value)

    def _answered(self, result: object) -> Event:
        at, ingress = self._driver.now(), self._driver.ingress
        if isinstance(result, Err):
            error = to_error(ClassifiedError(result.error), source="provider")
            return ModelFailed(at=at, error=ingress.error(error))
        if not isinstance(result, Ok) or not isinstance(result.value, ModelReply):
            text = f"the provider returned {type(result).__name__}, not Ok of a reply or Err"
            return Fault(at=at, error=fatal("provider.bad_value", text, source="provider"))
        try:
            reply = ingress.struct(result.value, "provider.bad_value")
        except ClassifiedError as refused:
            return Fault(at=at, error=to_error(refused, source="provider"))
        return _succeeded(reply, at)

    async def frames(self, effect: CallModel) -> AsyncGenerator[Frame | Event, None]:
        """Yield what a streaming provider says, recorded, and last the event that answers."""
        driver = self._driver
        request, call = self.model_call(effect)
        said = _Said(driver, effect)
        provider = cast(StreamingProvider, self._options.provider)
        try:
            async with aclosing(provider.stream(request, call)) as frames:
                async for frame in frames:
                    for shown in said.take(frame):
                        yield shown
                    if (breach := said.too_much()) is not None:
                        yield BudgetExceeded(at=driver.now(), error=breach)
                        return
            for shown in said.rest():
                yield shown
        except Exception as error:
            said.flush()
            yield self._raised(error)
            return
        partial = driver.state.partial or Partial()
        yield _succeeded(partial.reply(), driver.now())

    async def _publish(self, frame: Frame) -> None:
        if self._sink is None:
            return
        try:
            await self._sink.write(frame)
        except Exception as error:  # who looks on must not change what happens
            self._sink = None
            self._driver.warnings.append(f"the sink raised {type(error).__name__}: {error!s:.500}")

    # ----------------------------------------------------------------------------- the tools

    async def _execute_tools(self, effect: ExecuteTools) -> Event:
        calls = effect.calls
        self._children = []
        steps = [self._options.ids.next("tool") for _ in calls]
        results: dict[int, ToolExecution] = {}
        for group in self._groups(calls):
            if len(group) == 1:
                results[group[0]] = await self._execute(calls[group[0]], steps[group[0]])
            else:
                await self._together(group, calls, steps, results)
            if any(_ends_run(results[place]) for place in group):
                break
        done = [results[place] for place in sorted(results)]
        skipped = tuple(call.id for place, call in enumerate(calls) if place not in results)
        return ToolsCompleted(at=self._driver.now(), results=tuple(done), skipped=skipped)

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[int]]:
        """Return the places of the calls: neighbours that only read together, others alone."""
        groups: list[list[int]] = []
        reading = False
        for place, call in enumerate(calls):
            reads = self._tools.read_only(call.name)
            if reads and reading:
                groups[-1].append(place)
            else:
                groups.append([place])
            reading = reads
        return groups

    async def _together(
        self,
        group: Sequence[int],
        calls: Sequence[ToolCall],
        steps: Sequence[str],
        results: dict[int, ToolExecution],
    ) -> None:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._options.config.max_concurrent_tools)
        limiter = self._limiter

        async def run(place: int) -> None:
            async with limiter:
                results[place] = await self._execute(calls[place], steps[place])

        async with anyio.create_task_group() as tasks:
            for place in group:
                tasks.start_soon(run, place)

    async def _execute(self, call: ToolCall, step_id: str) -> ToolExecution:
        driver, tools = self._driver, self._tools
        known = driver.before.executions.get(step_id)
        if known is not None:
            self._children += known.children
            return known
        # What does not exist changes nothing either.
        read_only = tools.read_only(call.name) or all(spec.name != call.name for spec in tools.specs)
        keyed = tools.accepts_key(call.name)
        begun_before = step_id in driver.before.started
        if begun_before and not (read_only or keyed):
            execution = _unknown(call, step_id)
        else:
            if not read_only and not begun_before:
                started = ToolStarted(at=driver.now(), call=call, step_id=step_id)
                driver.take(started, True, key=f"{self._options.run_id}/{step_id}")
                # On record before it changes anything: after a crash it is known to have been begun.
                await driver.commit()
            execution = await self._attempts(call, step_id, read_only)
        driver.record.result(execution)
        self._children += execution.children
        self._tools.keep(execution)
        if not read_only:
            await driver.commit()
        return execution

    async def _attempts(self, call: ToolCall, step_id: str, read_only: bool) -> ToolExecution:
        clock, budget = self._options.clock, self._options.config.budget
        began_ms, log = clock.monotonic_ms(), list[Attempt]()
        most = max(1, budget.max_tool_attempts) if read_only else 1
        children: list[ChildRun] = []
        while True:
            attempt = len(log) + 1
            result = await self._invoke(call, step_id, attempt, children)
            if isinstance(result, Ok) or result.error.error_class != "transient" or attempt >= most:
                break
            at = self._driver.now()
            waited_ms = await self._pause(attempt, result.error)
            log.append(Attempt(at=at, code=result.error.code, waited_ms=waited_ms))
        execution = ToolExecution(
            call=call,
            ok=isinstance(result, Ok),
            content=render_value(result.value) if isinstance(result, Ok) else result.error.message,
            error=None if isinstance(result, Ok) else result.error,
            duration_ms=clock.monotonic_ms() - began_ms,
            attempts=attempt,
            attempts_log=tuple(log),
            step_id=step_id,
            children=tuple(children),
        )
        return self._driver.ingress.struct(execution, "tool.bad_value")

    def _allowance(self) -> Allowance:
        """Return what is left of the run's budget for runs inside a call."""
        driver, options = self._driver, self._options
        state, budget, made = driver.state, options.config.budget, self._children
        tokens, calls = budgets.output_room(state, 0, options.config), budget.max_tool_calls
        if tokens is not None:
            tokens -= sum(child.usage.prompt_tokens + child.usage.completion_tokens for child in made)
        if calls is not None:
            calls -= state.usage.tool_calls + len(state.pending_calls) + sum(one.tool_calls for one in made)
        time_ms = budget.max_wall_clock_ms
        return Allowance(
            ledger=options.ledger,
            durability=options.durability,
            redactor=options.redactor,
            tokens=tokens,
            tool_calls=None if calls is None else max(0, calls),
            time_ms=None if time_ms is None else time_ms - (driver.now() - state.started_at),
        )

    async def _invoke(
        self, call: ToolCall, step_id: str, attempt: int, children: list[ChildRun]
    ) -> Result[Json]:
        options = self._options
        own_ms = self._tools.timeout_ms(call.name)
        timeout_ms = options.config.tool_timeout_ms if own_ms is None else own_ms
        keyed = msgspec.structs.replace(call, step_id=step_id, key=f"{options.run_id}/{step_id}")
        run = ToolRun(
            run_id=options.run_id,
            step_id=step_id,
            clock=options.clock,
            attempt=attempt,
            allowance=self._allowance(),
            children=children,
        )
        result = await self.limits.within(timeout_ms, self._answer(keyed, run))
        if result is None:
            text = f"{call.name} did not answer within {timeout_ms} ms"
            detail = {"timeoutMs": timeout_ms}
            return Err(transient("tool.timeout", text, detail=detail, source=f"tool:{call.name}"))
        return result if isinstance(result, Ok) else Err(self._driver.ingress.error(result.error))

    async def _answer(self, call: ToolCall, run: ToolRun) -> Result[Json]:
        try:
            return await self._tools.invoke(call, run)
        except Exception as error:
            return Err(to_error(error, source=f"tool:{call.name}"))


class _Said:
    """What a reply has said so far: let in, gathered in batches, put on record."""

    def __init__(self, driver: RunDriver, effect: CallModel) -> None:
        self._driver, self._attempt, self._room = driver, effect.attempt, effect.max_output_tokens
        self._ingress, self._batcher = driver.ingress.stream(), Batcher()
        self._number = self._calls = self._characters = 0
        self._waiting: list[Frame] = []

    def take(self, frame: Frame) -> list[Frame]:
        """Return the frames that are on record now."""
        shown: list[Frame] = []
        for visible in self._ingress.take(frame):
            shown += self._add(visible)
        return shown

    def rest(self) -> list[Frame]:
        """Return the last frames, on record."""
        for visible in self._ingress.rest():
            self._add(visible)
        return self.flush()

    def _add(self, frame: Frame) -> list[Frame]:
        wired = wire_frame(self._number + 1, frame, self._calls)
        if wired is None:
            return []
        self._number += 1
        self._calls += wired["kind"] == "tool"
        self._characters += len(wired.get("delta", ""))
        self._waiting.append(frame)
        return self.flush() if self._batcher.add(wired, self._driver.now()) else []

    def flush(self) -> list[Frame]:
        """Put the batch on record and return its frames."""
        frames, batch = self._waiting, self._batcher.take()
        self._waiting = []
        if batch:
            self._driver.take(ModelFrames(at=self._driver.now(), attempt=self._attempt, frames=batch))
        return frames

    def too_much(self) -> ErrorValue | None:
        """Return the limit of tokens, if what was said cannot be within it by any count."""
        if self._room is None or self._characters // 8 <= self._room:
            return None
        self.flush()
        detail = {"streamedCharacters": self._characters, "limit": self._room}
        return budget_exceeded(
            "budget.tokens", f"the answer goes on after {self._room} tokens", detail=detail
        )


def _succeeded(reply: ModelReply, at: int) -> Event:
    if reply.stop_reason == "content_filter":
        error = correctable("model.filtered", "the answer was withheld by the server's filter")
        return ModelFailed(at=at, error=error, usage=reply.usage)
    return ModelSucceeded(at=at, message=reply.message, usage=reply.usage, stop_reason=reply.stop_reason)


def _failure(error: ErrorValue, at: int) -> Event:
    """Return the event of a failure of the user's own parts, by its class."""
    match error.error_class:
        case "budget":
            return BudgetExceeded(at=at, error=error)
        case "cancelled":
            return RunCancelled(at=at, reason=error.message)
    return Fault(at=at, error=error)


def _ends_run(execution: ToolExecution) -> bool:
    return execution.error is not None and execution.error.error_class in ("fatal", "cancelled")


def _unknown(call: ToolCall, step_id: str) -> ToolExecution:
    text = (
        f"{call.name} was begun before the run was interrupted, and whether it had its effect is not "
        "known: find out before calling it again"
    )
    error = correctable("tool.unknown_outcome", text, source=f"tool:{call.name}")
    return ToolExecution(call=call, ok=False, content=text, error=error, step_id=step_id)
