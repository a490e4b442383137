"""The driver of the agent-evaluator loop: it does what `cycle.decide` says.

One task a run. It waits for a TICK, performs one order after another, records every fact
before the decision that rests on it, and publishes what was decided once that is on record.
No rule about what follows what stands here; those are in `cycle`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from agentloop.checks import DefaultChecks, as_check_report, create_default_deterministic_checks
from agentloop.checks.trace import ToolTrace
from agentloop.determinism import CounterIds, RunIds
from agentloop.errors import SymbolicRefused, TurnError, TurnTimeout
from agentloop.frames import (
    ABORT,
    CANCEL,
    DONE,
    ERROR,
    INPUT,
    NODE_STARTED,
    SYMBOLIC_ASSERTED,
    TEXT,
    TICK,
    TOOL_CALL,
    Frame,
    Role,
)
from agentloop.ledger.recorder import Recorder
from agentloop.loop.answers import must_wait
from agentloop.loop.calls import TurnCalls
from agentloop.loop.context import LoopContext, read_context, state_for
from agentloop.loop.cycle import (
    CALL_AGENT,
    CALL_EVALUATOR,
    RUN_CHECKS,
    Aborted,
    AgentEnded,
    ChecksReported,
    CycleConfig,
    CycleState,
    Emit,
    Event,
    Faulted,
    Judged,
    Order,
    OutcomeRecorded,
    Phase,
    StopAsked,
    Ticked,
    decide,
)
from agentloop.loop.failures import Failed, Stopped, error_content, message_of, signal_of
from agentloop.loop.ingress import Ingress
from agentloop.loop.lifecycle import OneRun
from agentloop.loop.options import LoopOptions
from agentloop.loop.output import Output
from agentloop.loop.record import RunRecord
from agentloop.loop.turns import Adapter, Prompt, Turn, TurnFold, as_adapter, is_forwarded
from agentloop.loop.watch import Watchdog
from agentloop.messages import EvaluatorResult, LoopResult, NodeStatus, RunOutcome
from agentloop.streams.buffer import FrameBuffer
from agentloop.symbolic import SymbolicChange, SymbolicState
from agentloop.tools import ToolAdapterWrapper
from agentloop.verdict import as_evaluator_result

if TYPE_CHECKING:
    from agentloop.redact import Redactor

__all__ = ("AgentLoop",)

_log = logging.getLogger("agentloop.loop")
#: Phases of what must not fail, not even while a run is stopped.
_RECORDS: Final = ("ledger", "sink", "graph")
#: How often the end of a run is begun anew because something failed while it was written.
_ATTEMPTS: Final = 16
#: An observer that answers every change of a fact with another one is stopped there.
_CHANGES_IN_A_ROW: Final = 1_000


class AgentLoop(OneRun):
    """One run of the agent-evaluator loop, as a duplex; see `create_agent_loop`.

    Attributes:
        source: The Out frames. One reader or one pipe.
        sink: Takes TICK, CANCEL, ABORT and INPUT.
        symbolics: The facts of the run.
        context: The live context that builders receive.
        run_id: Names the run in the ledger and the memory.
        result: None until the run has ended.
    """

    def __init__(self, options: LoopOptions) -> None:
        buffer = FrameBuffer(
            options.max_buffered_output_frames,
            options.output_overflow_strategy,
            protect_terminal=options.protect_terminal,
        )
        super().__init__(buffer, raise_errors=options.raise_errors, grace_ms=options.cleanup_timeout_ms)
        buffer.sink.on_abort(lambda error: self.abort("output_aborted"))
        self._options = options
        self.run_id = options.run_id or _new_run_id(options)
        self._adapters: dict[Role, Adapter] = {
            "agent": as_adapter(options.agent_adapter),
            "evaluator": as_adapter(options.evaluator_adapter),
        }
        runtime, given, node, extra = read_context(options.context)
        self.symbolics: SymbolicState = state_for(
            given if options.symbolics is None else options.symbolics,
            options.initial_symbolics,
            options.symbolic_names,
        )
        self._tools = ToolAdapterWrapper(
            options.tool_adapters,
            timeout_ms=options.tool_timeout_ms,
            id_factory=options.id_factory or CounterIds(),
            max_output=options.max_tool_output,
        )
        self.context = LoopContext(
            symbolics=self.symbolics,
            runtime=runtime,
            node=node if options.node is None else options.node,
            extra=extra,
            tools=self._tools.specs,
            run_id=self.run_id,
        )
        self._builders: dict[Role, Callable[..., Any]] = {
            "agent": _given(options.build_agent_prompt),
            "evaluator": _given(options.build_evaluator_prompt),
        }
        self._parse = _given(options.parse_evaluator_output)
        self._check_names = options.checks_list or ()
        self._checks = _checks(options, self.symbolics)
        self._config = CycleConfig(
            max_iterations=options.max_iterations,
            max_retries=options.max_retries,
            evaluator_parse_retries=options.evaluator_parse_retries,
            has_checks=bool(options.checks_list),
            has_memory=options.graph is not None,
            extra_frames=options.extra_frames,
        )
        self._state = self._before = CycleState()
        self._trace = ToolTrace(options.tool_trace_scope)
        self._ingress = Ingress(_redactor(options))
        ledger = options.ledger
        recorder = None if ledger is None else Recorder(ledger, self.run_id, options.clock)
        self._record = RunRecord(recorder, sync=options.durability == "power")
        self._output = Output(
            buffer,
            self._record,
            taps=options.taps,
            fact=self._write_fact if options.graph is not None else None,
            on_progress=options.on_progress,
            complain=self._complain,
        )
        forward = options.forward_frames
        self._forward: frozenset[str] | None = None if forward == "*" else frozenset(forward)
        self._watch = Watchdog(
            grace_ms=options.cleanup_timeout_ms, on_due=self._deadline_passed, on_overdue=self._abandon
        )
        self._work: anyio.CancelScope | None = None
        self._cleanup: anyio.CancelScope | None = None
        self._winding = False
        self._failure: Failed | None = None
        self._turn_number = 0
        self._turn_is_new = False
        self._telling_memory = False
        self._open_turn: tuple[Role, Turn | None] | None = None
        self._inputs: deque[str] = deque()
        self._changes: deque[SymbolicChange] = deque()
        self._known_errors = self.symbolics.error_count
        self._unsubscribe: Callable[[], object] | None = None
        self._writers: dict[int, str] = {}
        self._usage: dict[str, int] = {}
        self._retrievals: list[str] = []
        self._warnings: list[str] = []
        self._complaints: set[tuple[str, str, str]] = set()

    # ------------------------------------------------------------------------------ outside

    @property
    def status(self) -> NodeStatus:
        """PENDING before the TICK, RUNNING until the terminal frame, then SUCCESS or FAILURE."""
        phase = self._state.phase
        if phase is Phase.DONE:
            return NodeStatus.SUCCESS
        if phase is Phase.FAILED:
            return NodeStatus.FAILURE
        return NodeStatus.RUNNING if self._ticked else NodeStatus.PENDING

    def _cut(self) -> None:
        if self._work is not None:  # else it has not begun, and will see for itself
            self._work.cancel()
            self._watch.cut()

    def _decided(self) -> bool:
        return self._state.closing is not None or self._failure is not None

    def _has_ended(self) -> bool:
        return self._state.phase in (Phase.DONE, Phase.FAILED)

    def _note(self, frame: Frame) -> bool:
        self._inputs.append(self._entering(frame.text))
        return True

    def _entering(self, text: str) -> str:
        return self._ingress.text(text)

    def _halted(self) -> bool:
        """Return whether nothing may begin any more; what comes too late is dropped."""
        return self._abort_reason is not None or self._failure is not None or self.result is not None

    async def _prepare(self) -> None:
        if self._options.own_adapters:
            given = (self._options.agent_adapter, self._options.evaluator_adapter)
            for adapter in {id(adapter): adapter for adapter in given}.values():
                if hasattr(adapter, "__aenter__"):
                    await self._stack.enter_async_context(cast(Any, adapter))

    def _deadline_passed(self) -> None:
        if self._watch.limit_passed:
            self.abort("timeout")
        elif self._open_turn is not None and self._work is not None:
            role = self._open_turn[0]
            self._failure = Failed(role, TurnTimeout(role, self._options.turn_timeout_ms or 0))
            self._work.cancel()

    # --------------------------------------------------------------------------------- main

    async def _main(self, tasks: TaskGroup) -> None:
        """Live the run. Whatever happens, it ends with exactly one terminal frame."""
        tasks.start_soon(self._watch.run)
        try:
            # Outside the scope, which takes its own cancellation out of what overlapping calls raise.
            with anyio.CancelScope() as self._work:
                await self._live()
        except Exception as error:
            self._fail(error)
        except BaseExceptionGroup as group:
            ours, others = group.split(Exception)
            if ours is not None:
                self._fail(ours)
            if others is not None:
                raise others from None
        finally:
            try:
                await self._finish_up()
            finally:
                self._watch.stop()

    async def _finish_up(self) -> None:
        if self._winding:  # it was abandoned, and has come back after all
            with anyio.CancelScope(shield=True):
                await self._close_turn()
            return
        self._watch.cut()
        try:
            with anyio.CancelScope(shield=True) as self._cleanup:
                await self._wind_down()
        finally:
            self._close()

    def _fail(self, error: Exception) -> None:
        """Note why the run cannot go on.

        What goes wrong in something that is being stopped does not hide why it is stopped,
        unless it is the record itself.
        """
        signal = signal_of(error)
        if isinstance(signal, Stopped):
            return
        failed = signal or Failed("internal", error)
        if self._abort_reason is None or failed.phase in _RECORDS:
            self._failure = self._failure or failed
        else:
            self._warn(f"{failed.phase}: {type(failed.error).__name__}: {message_of(failed.error)}")

    def _warn(self, text: str) -> None:
        self._warnings.append(self._ingress.redact_text(text))

    async def _live(self) -> None:
        assert self._woken is not None
        self._open_record()
        await self._woken.wait()
        if self._abort_reason is not None:
            raise Stopped
        self._unsubscribe = self.symbolics.subscribe(self._changes.append)
        self._record.fact("input", {"type": TICK})
        if self._options.run_timeout_ms is not None:
            self._watch.limit(self._options.run_timeout_ms)
        order = self._step(Ticked())
        while True:
            await self._settle()
            if order is None:
                return
            event = await self._perform(order)
            if self._halted():
                raise Stopped
            self._note_changes()
            if self._stop_reason is not None and self._state.stop_reason is None:
                self._record.fact(
                    "input", {"type": CANCEL, "reason": self._stop_reason, "mode": "after_cycle"}
                )
                self._step(StopAsked(self._stop_reason))
            order = self._step(event)

    def _open_record(self) -> None:
        if self._record.on:
            given = {
                "node": self.context.node,
                "labels": dict(self._options.labels),
                "symbolics": self.symbolics.get_all(),
            }
            shown = self._ingress.shown(Frame("", given)).content
            forward = "*" if self._forward is None else sorted(self._forward)
            self._record.opened(self._config, forward=forward, **shown)

    def _step(self, event: Event) -> Order | None:
        """Decide, put the decision on record, stage its frames; return the order it gave."""
        before = self._before = self._state
        after, effects = decide(before, event, self._config)
        self._record.step(before, event, after, effects)
        self._state = after
        order: Order | None = None
        for effect in effects:
            if isinstance(effect, Emit):
                self._output.stage(effect.type, effect.content)
            else:
                order = effect
        if after.phase in (Phase.DONE, Phase.FAILED):
            self._record.closed(self._make_result())
        return order

    async def _settle(self) -> None:
        """Commit what must be on record first, then publish what was staged."""
        for _ in range(_CHANGES_IN_A_ROW):
            if self._record.on and self._must_commit():
                await self._commit()
            await self._output.publish()
            if not self._changes:
                return
            self._note_changes()
        problem = f"{_CHANGES_IN_A_ROW:,} changes in a row, each made while the one before was told"
        raise Failed("internal", RuntimeError(problem))

    def _must_commit(self) -> bool:
        frames = self._output.staged
        if self._state.phase is Phase.RECORDING:
            return True  # a memory is told only what is on record
        if self._options.commit == "turn":
            return self._turn_is_new or bool(frames)
        return any(frame.type not in (NODE_STARTED, SYMBOLIC_ASSERTED) for frame in frames)

    async def _commit(self) -> None:
        self._turn_is_new = False
        try:
            await self._record.commit()
        except Exception as error:
            # What was decided is not on record, so it is neither published nor true.
            self._record.off()
            self._output.unstage()
            if self._has_ended():
                self._state = self._before
            raise Failed("ledger", error) from error

    async def _perform(self, order: Order) -> Event:
        if self._abort_reason is not None:
            raise Stopped
        if order == CALL_AGENT:
            # The one point of every cycle at which others get their turn, however fast it is.
            await checkpoint()
            return await self._agent_turn()
        if order == RUN_CHECKS:
            return await self._run_checks()
        if order == CALL_EVALUATOR:
            return await self._evaluator_turn()
        return await self._record_outcome()

    # -------------------------------------------------------------------------------- turns

    async def _agent_turn(self) -> Event:
        self._refresh_context()
        fold, entries = await self._turn("agent", self.context)
        for entry in entries:
            self._trace.append(entry)
        calls = [
            {"id": entry["call_id"], "name": entry["name"], "arguments": entry["arguments"]}
            for entry in entries
        ]
        self.context.history.add(
            {
                "iteration": self._state.iteration,
                "agent_text": fold.text,
                "tool_calls": calls,
                "tool_results": [_shown(entry) for entry in entries],
                "empty": fold.empty,
                "truncated": fold.truncated,
                "checks": None,
                "evaluation": None,
            }
        )
        return AgentEnded(fold.text)

    def _refresh_context(self) -> None:
        ctx, state = self.context, self._state
        ctx.iteration, ctx.retry_count = state.iteration, state.retry_count
        ctx.check_retry_count, ctx.last_evidence = state.check_retry_count, state.last_evidence
        ctx.parse_error = None
        notes = [self._inputs.popleft() for _ in range(len(self._inputs))]
        for text in notes:
            self._record.fact("input", {"type": INPUT, "text": text})
        ctx.inbox = tuple(notes)

    async def _evaluator_turn(self) -> Event:
        ctx = self.context
        ctx.parse_error, ctx.last_evidence = self._state.parse_error, self._state.last_evidence
        fold, _ = await self._turn("evaluator", ctx, ctx.history)
        try:
            answer = self._parse(fold.frames)
            if must_wait(answer):
                answer = await answer
            verdict = as_evaluator_result(answer)
            evidence = self._ingress.text(verdict.evidence)
            if evidence is not verdict.evidence:
                verdict = msgspec.structs.replace(verdict, evidence=evidence)
        except Exception as error:
            raise Failed("parse", error) from error
        self._record.fact("verdict", {"result": _verdict_data(verdict)})
        self._apply_updates(verdict)
        evaluation = {"status": verdict.status.value, "evidence": verdict.evidence}
        ctx.history.amend(evaluation=evaluation)
        return Judged(verdict.status, verdict.evidence, verdict.parse_error)

    def _apply_updates(self, verdict: EvaluatorResult) -> None:
        for rejected in verdict.rejected_updates:
            self._complain("symbolic_updates", ValueError(rejected.reason), once_per=rejected.reason)
        for update in verdict.symbolic_updates:
            try:
                self.symbolics.apply_update(update, by="evaluator")
            except (SymbolicRefused, ValueError, TypeError) as error:
                self._complain("symbolic_updates", error, once_per=update.name)

    async def _turn(self, role: Role, *arguments: Any) -> tuple[TurnFold, list[dict[str, Any]]]:
        """Ask an adapter for a turn and read it to its end; return its fold and tool results."""
        prompt = await self._build_prompt(role, *arguments)
        self._turn_number += 1
        whole = self._options.record_prompts == "parts"
        if self._record.on:
            self._record.turn_begun(self._turn_number, role, self._ingress.prompt(prompt), whole=whole)
        work = _TurnWork(TurnFold(role), self._turn_calls)
        try:
            self._open_turn = (role, None)
            self._watch.allow(self._options.turn_timeout_ms)
            turn = await self._adapters[role].begin(prompt, self.context, role)
            self._open_turn = (role, turn)
            if self._options.parallel_tool_calls and turn.concurrent:
                async with anyio.create_task_group() as work.tasks:
                    await self._read_turn(turn, work)
            else:
                await self._read_turn(turn, work)
            await turn.close()
            if self._halted():
                raise Stopped
        except (Stopped, Failed):
            raise
        except Exception as error:
            raise self._turn_failure(role, error) from error
        self._watch.release()
        self._open_turn = None
        self._record.turn_ended()
        self._turn_is_new = True
        fold = work.fold
        for name, count in fold.usage.items():
            self._usage[name] = self._usage.get(name, 0) + count
        self._retrievals += fold.retrieval_ids
        return fold, work.entries()

    def _turn_calls(self, role: Role) -> TurnCalls:
        return TurnCalls(
            role,
            self._turn_number,
            run_id=self.run_id,
            tools=self._tools,
            limit=self._options.max_tool_calls,
            record=self._record,
            commit=self._commit,
            stage=self._stage_answer,
            ingress=self._ingress,
            watch=self._watch,
        )

    def _turn_failure(self, role: Role, error: Exception) -> Exception:
        """Return what an exception of a turn means; a run's own signals come back in groups."""
        return signal_of(error) or Failed(role, error)

    async def _build_prompt(self, role: Role, *arguments: Any) -> Prompt:
        try:
            value = self._builders[role](*arguments)
            if must_wait(value):
                value = await value
            frames = value if isinstance(value, (list, tuple)) else [value]
            if value is None or not frames:
                raise TypeError(f"the prompt builder returned {value!r}: a frame, a str, a mapping or a list")
            prompt = Prompt(Frame.of(frame) for frame in frames)
        except Exception as error:
            raise Failed(f"build_{role}_prompt", error) from error
        if self._abort_reason is not None:
            raise Stopped
        return prompt

    async def _read_turn(self, turn: Turn, work: _TurnWork) -> None:
        ingress = self._ingress
        ingress.begin()
        while (got := await turn.next()) is not None:
            if self._halted():
                raise Stopped
            if isinstance(got, list):
                if await self._answer_calls(turn, got, work):
                    return
            else:
                for frame in ingress.take(got):
                    if await self._take_frame(frame, turn, work):
                        return
            if self._changes:
                self._note_changes()
                await self._settle()
            if self._halted():
                raise Stopped
        for frame in ingress.rest():
            await self._take_frame(frame, turn, work)

    async def _take_frame(self, frame: Frame, turn: Turn, work: _TurnWork) -> bool:
        """Take one frame of a turn; True if it was the last."""
        work.fold.feed(frame)
        self._record.frame(frame)
        kind = frame.type
        if kind == ERROR:
            raise _reported(frame)
        if self._stage_forwarded(frame, work.fold.role):
            await self._output.publish()
        if kind == TOOL_CALL:
            number = work.calls.number()
            if work.tasks is None:
                await self._call_and_answer(turn, frame, number, work)
            else:
                work.tasks.start_soon(self._call_and_answer, turn, frame, number, work)
        return kind == DONE

    def _stage_forwarded(self, frame: Frame, role: Role) -> bool:
        if not is_forwarded(frame.type, self._forward):
            return False
        content = {**frame.content, "role": role} if frame.type == TEXT else frame.content
        self._output.stage(frame.type, content)
        return True

    # -------------------------------------------------------------------------------- tools

    async def _answer_calls(self, turn: Turn, frames: list[Frame], work: _TurnWork) -> bool:
        """Answer calls that were asked for at once, in their order; True if the turn has ended."""
        taken: list[Frame] = []
        ended = False
        for said in frames:
            for frame in self._ingress.take(said):
                work.fold.feed(frame)
                self._record.frame(frame)
                if frame.type == ERROR:
                    raise _reported(frame)
                self._stage_forwarded(frame, work.fold.role)
                ended = ended or frame.type == DONE
                if frame.type == TOOL_CALL:
                    taken.append(frame)
        await self._output.publish()
        numbers = [work.calls.number() for _ in taken]
        answers: dict[int, Frame] = {}

        async def call(number: int, frame: Frame) -> None:
            answers[number] = await self._call(frame, number, work)

        if self._options.parallel_tool_calls and len(taken) > 1:
            async with anyio.create_task_group() as tasks:
                for number, frame in zip(numbers, taken, strict=True):
                    tasks.start_soon(call, number, frame)
        else:
            for number, frame in zip(numbers, taken, strict=True):
                await call(number, frame)
        await turn.answer([answers[number] for number in numbers])
        return ended

    async def _call_and_answer(self, turn: Turn, frame: Frame, number: int, work: _TurnWork) -> None:
        await turn.answer([await self._call(frame, number, work)])

    async def _call(self, frame: Frame, number: int, work: _TurnWork) -> Frame:
        answer = await work.calls.answer(frame, number, self._state.iteration)
        if self._halted():
            raise Stopped
        await self._output.publish()
        return answer

    def _stage_answer(self, answer: Frame) -> None:
        if not self._has_ended():
            self._stage_forwarded(answer, "agent")

    # ----------------------------------------------------------------------- checks, outcome

    async def _run_checks(self) -> Event:
        checks, names = self._checks, [*self._check_names]
        assert checks is not None
        view = self._trace.view(self._state.iteration)
        blocking = getattr(checks, "blocking", None)
        try:
            if blocking is not None and blocking(names):
                answer = await anyio.to_thread.run_sync(checks, names, view)
            else:
                answer = checks(names, view)
                if must_wait(answer):
                    answer = await answer
            report = as_check_report(answer)
            evidence = self._ingress.text(report.evidence)
            if evidence is not report.evidence:
                report = msgspec.structs.replace(report, evidence=evidence)
        except Exception as error:
            raise Failed("deterministic_checks", error) from error
        seen = {"all_passed": report.all_passed, "evidence": report.evidence}
        self._record.fact("checks", {"report": seen})
        self.context.last_checks = report
        self.context.history.amend(checks=seen)
        return ChecksReported(report.all_passed, report.evidence)

    async def _record_outcome(self) -> Event:
        closing, graph = self._state.closing, self._options.graph
        assert closing is not None
        assert graph is not None
        outcome = RunOutcome(
            run_id=self.run_id,
            node=self.context.node,
            status=closing.status,
            reason=closing.reason,
            evidence=closing.evidence,
            iterations=self._state.iteration,
            retry_count=self._state.retry_count,
            retrieval_ids=tuple(self._retrievals),
        )
        self._telling_memory = True
        try:
            done = await graph.record_outcome(outcome)
        except Exception as error:
            fatal = graph.strict and closing.reason != "aborted"
            text = self._ingress.redact_text(message_of(error))
            self._record.fact("outcome_written", {"failure": text, "fatal": fatal})
            if fatal:
                self._failure = self._failure or Failed("graph", error)
                return OutcomeRecorded(text)
            self._complain("graph", error)
            return OutcomeRecorded()
        finally:
            self._telling_memory = False
        self._record.fact("outcome_written", {"result": dict(done)})
        if problem := done.get("problem"):
            self._complain("graph", RuntimeError(str(problem)))
        return OutcomeRecorded()

    async def _write_fact(self, frame: Frame) -> None:
        graph = self._options.graph
        assert graph is not None
        assert frame.seq is not None
        content = frame.content
        try:
            await graph.fact(
                content["name"],
                content["value"],
                op=content["op"],
                by=self._writers.get(frame.seq, "developer"),
                iteration=self._state.iteration,
                cause=f"{self.run_id}/{frame.seq}",
            )
        except Exception as error:
            if graph.strict:
                self._output.forget_memory()
            self._complain("graph", error, fatal=graph.strict, once_per=str(content["name"]))
        self._writers.pop(frame.seq, None)

    # ----------------------------------------------------------------------------- symbolics

    def _note_changes(self) -> None:
        """Put the changes of facts so far on record and stage their frames."""
        while self._changes:
            change = self._changes.popleft()
            if self._output.ended:
                continue
            content: dict[str, Any] = {"name": change.name, "value": change.value, "op": change.op}
            if type(change.value) in (dict, list, str):
                content = self._ingress.shown(Frame(SYMBOLIC_ASSERTED, content)).content
            self._record.fact("symbolic", {**content, "by": change.by})
            self._output.stage(SYMBOLIC_ASSERTED, content)
            if self._options.graph is not None:
                self._writers[self._record.out.count] = change.by
        raised = self.symbolics.error_count - self._known_errors
        if raised:
            self._known_errors += raised
            for error in self.symbolics.errors[-raised:]:
                self._complain("symbolic_subscriber", error, once_per=message_of(error))

    # ------------------------------------------------------------------------------ failures

    def _complain(self, phase: str, error: Exception, *, fatal: bool = False, once_per: str = "") -> None:
        """Take note of a failure; show it as an ERROR frame while that is still possible.

        Raises:
            Failed: It is fatal.
        """
        if fatal and not self._output.ended:
            raise Failed(phase, error) from error
        text = self._ingress.redact_text(f"{phase}: {type(error).__name__}: {message_of(error)}")
        key = (phase, once_per, text)
        if key in self._complaints:
            return
        self._complaints.add(key)
        self._log(text, error)
        if self._output.ended:
            self._warnings.append(text)
            return
        content = self._error_content(phase, error, fatal=False)
        self._record.fact("callback_failed", {"phase": phase, "error": content})
        self._output.stage(ERROR, content)

    def _log(self, text: str, error: BaseException) -> None:
        # A traceback may quote a secret, so where there are any it is left out.
        shown = error if self._options.redactor is None else None
        with suppress(Exception):  # a log handler that is broken breaks nothing else
            _log.warning("run %s: %s", self.run_id, text, exc_info=shown)

    def _error_content(self, phase: str, error: BaseException, *, fatal: bool) -> dict[str, Any]:
        content = error_content(phase, error, fatal=fatal, iteration=self._state.iteration)
        return {**content, "message": self._ingress.redact_text(content["message"])}

    # --------------------------------------------------------------------------- winding down

    async def _abandon(self) -> None:
        """End the run although something of it refuses to stop."""
        if self.result is not None:
            return
        role = self._open_turn[0] if self._open_turn else "run"
        late, grace_ms = self._watch.late, self._options.cleanup_timeout_ms
        with suppress(Exception):
            _log.warning(
                "run %s: the %s did not stop within %g ms and is abandoned",
                self.run_id,
                late or role,
                grace_ms,
            )
        if self._winding:
            assert self._cleanup is not None
            self._cleanup.cancel()
        else:
            if late is not None and not self._halted():
                problem = f"the {late} went on for {grace_ms:g} ms after its deadline and is abandoned"
                self._failure = Failed(role, TurnError(problem))
            if self._work is not None:
                self._work.cancel()
            with anyio.move_on_after(grace_ms / 1000):
                await self._wind_down(abandoned=True)
        self._close()

    async def _wind_down(self, *, abandoned: bool = False) -> None:
        """Bring the run to its end, whatever state it is in."""
        self._winding = True
        self._output.hurry()
        await self._cut_turn(abandoned)
        for _ in range(_ATTEMPTS):
            try:
                await self._end()
                return
            except Failed as failed:
                # The ledger, a memory or a tap failed while the end was written. It is not asked
                # again.
                self._failure = failed
            except Exception as error:
                self._record.off()  # it could not be written
                self._failure = Failed("internal", error)
            if self._has_ended():
                return

    async def _cut_turn(self, abandoned: bool) -> None:
        if self._open_turn is None:
            return
        role = self._open_turn[0]
        failure = self._failure
        error = failure.error if failure else None
        reason = self._abort_reason or (type(error).__name__ if error else "cancelled")
        message = self._ingress.redact_text(message_of(error)) if error else reason
        self._record.turn_ended(
            error={"error_type": type(error).__name__ if error else "Cut", "message": message}
        )
        if failure is None or failure.phase != role or isinstance(error, TurnTimeout):
            try:
                self._adapters[role].abort(reason)
            except Exception as broken:
                self._warn(f"{role}: abort raised {type(broken).__name__}: {message_of(broken)}")
        if not abandoned:
            await self._close_turn()

    async def _close_turn(self) -> None:
        if self._open_turn is None:
            return
        role, turn = self._open_turn
        try:
            if turn is not None:
                await turn.close()
        except Exception as broken:
            self._warn(f"{role}: close raised {type(broken).__name__}: {message_of(broken)}")
        self._open_turn = None

    async def _end(self) -> None:
        self._note_changes()
        if not self._has_ended() and (self._state.phase is not Phase.RECORDING or self._failure is not None):
            self._step(self._ending())
        if self._state.phase is Phase.RECORDING:
            if self._telling_memory:
                return  # what was abandoned is at it: `_close` says that it came too late
            await self._commit()
            self._step(await self._record_outcome())
        await self._settle()

    def _ending(self) -> Event:
        failure = self._failure
        if failure is None:
            reason = self._abort_reason = self._abort_reason or "cancelled"
            self._record.fact("input", {"type": ABORT, "reason": reason})
            return Aborted(reason)
        content = self._error_content(failure.phase, failure.error, fatal=True)
        self._log(f"failed in phase {failure.phase}", failure.error)
        self._record.fact("callback_failed", {"phase": failure.phase, "error": content})
        return Faulted(failure.phase, content["error_type"], content["message"])

    def _close(self) -> None:
        """Set the result and end the stream. Never waits, never fails."""
        if self.result is not None:
            return
        if self._state.phase not in (Phase.RECORDING, Phase.DONE, Phase.FAILED):
            self._step(self._ending())
        if self._state.phase is Phase.RECORDING:
            self._warnings.append("graph: the outcome was not written in time")
            self._record.fact("outcome_written", {"failure": "not in time"})
            self._step(OutcomeRecorded())
        try:
            self._record.commit_now()
        except Exception as error:
            self._warn(f"ledger: {type(error).__name__}: {message_of(error)}")
        self._record.off()
        self._output.publish_now()
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._finish(self._make_result())

    def _make_result(self) -> LoopResult:
        state, closing = self._state, self._state.closing
        assert closing is not None
        return LoopResult(
            status=closing.status,
            reason=closing.reason,
            evidence=closing.evidence,
            iterations=state.iteration,
            retry_count=state.retry_count,
            agent_text=state.agent_text,
            symbolics=self.symbolics.get_all(),
            usage=dict(self._usage),
            dropped_frames=self._buffer.statistics().dropped + self._output.lost,
            error=self._failure.error if self._failure and closing.reason == "error" else None,
            warnings=tuple(self._warnings),
            node=self.context.node,
            run_id=self.run_id,
        )


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


def _new_run_id(options: LoopOptions) -> str:
    if options.ledger is None and options.graph is None:
        return "run"
    return RunIds(options.clock)()


def _given(option: Callable[..., Any] | None) -> Callable[..., Any]:
    assert option is not None, "LoopOptions has checked that it is there"
    return option


def _redactor(options: LoopOptions) -> Redactor | None:
    if options.redactor is None and (options.ledger is not None or options.graph is not None):
        # What is kept is kept for long: by default nothing that looks like a key gets there.
        from agentloop.redact import Redactor

        return Redactor()
    return options.redactor


def _checks(options: LoopOptions, symbolics: SymbolicState) -> Callable[..., Any] | None:
    checks = options.deterministic_checks
    if checks is None and options.checks_list:
        checks = create_default_deterministic_checks()
    return checks.bind(symbolics) if isinstance(checks, DefaultChecks) else checks


def _reported(frame: Frame) -> Exception:
    """Return the error an ERROR frame of an adapter tells of: the original, if it came along."""
    original = frame.meta.get("exception")
    if isinstance(original, Exception):
        return original
    return TurnError(str(frame.content.get("message") or "the adapter reported an error"))


def _verdict_data(verdict: EvaluatorResult) -> dict[str, Any]:
    data: dict[str, Any] = {"status": verdict.status.value, "evidence": verdict.evidence}
    if verdict.symbolic_updates:
        updates = [
            {"name": update.name, "op": update.op, "value": update.value}
            for update in verdict.symbolic_updates
        ]
        data["symbolic_updates"] = Frame("", {"updates": updates}).to_dict()["content"]["updates"]
    if verdict.parse_error is not None:
        data["parse_error"] = verdict.parse_error
    return data


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    names = ("call_id", "name", "ok", "output", "stdout", "stderr", "exit_code", "error")
    shown = {name: entry[name] for name in names if entry[name] is not None}
    return {**shown, "timed_out": True} if entry["timed_out"] else shown
