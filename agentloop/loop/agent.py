"""The driver of the agent-evaluator loop: it does what `cycle.decide` says.

One task a run. It waits for a TICK, performs one order after another, records every fact
before the decision that rests on it, and publishes what was decided once that is on record.
No rule about what follows what stands here; those are in `cycle`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from agentloop._canonical import Json
from agentloop.checks.default import DefaultChecks, as_check_report, create_default_deterministic_checks
from agentloop.checks.trace import ToolTrace
from agentloop.determinism import CounterIds, RunIds
from agentloop.errors import SymbolicRefused, TurnError, TurnTimeout
from agentloop.frames import (
    ABORT,
    CANCEL,
    INPUT,
    NODE_STARTED,
    SYMBOLIC_ASSERTED,
    TICK,
    TOOL_RESULT,
    Frame,
    Role,
)
from agentloop.ledger.chain import NO_ENTRIES
from agentloop.ledger.recorder import Recorder
from agentloop.loop.answers import must_wait
from agentloop.loop.complaints import Complaints
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
from agentloop.loop.failures import Failed, Stopped, message_of, signal_of
from agentloop.loop.history import turn_entry
from agentloop.loop.ingress import Ingress
from agentloop.loop.lifecycle import OneRun
from agentloop.loop.options import LoopOptions
from agentloop.loop.output import Output
from agentloop.loop.record import RunRecord
from agentloop.loop.resumption import OpenTurn, Resumption, set_facts, skip_turns
from agentloop.loop.stall import StallWatch
from agentloop.loop.turns import TurnFold
from agentloop.loop.turntaker import TurnTaker
from agentloop.loop.watch import Watchdog
from agentloop.messages import (
    EvaluatorResult,
    LoopResult,
    NodeStatus,
    RunOutcome,
    SymbolicUpdate,
)
from agentloop.streams.buffer import FrameBuffer
from agentloop.symbolic import SymbolicChange, SymbolicState
from agentloop.tools import ToolAdapterWrapper, tool_failure
from agentloop.verdict import as_evaluator_result

if TYPE_CHECKING:
    from agentloop.loop.memory import MemoryWriter

__all__ = ("AgentLoop", "cycle_config", "shown_forward")

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

    def __init__(self, options: LoopOptions, *, resumption: Resumption | None = None) -> None:
        buffer = FrameBuffer(
            options.max_buffered_output_frames,
            options.output_overflow_strategy,
            protect_terminal=options.protect_terminal,
        )
        super().__init__(buffer, raise_errors=options.raise_errors, grace_ms=options.cleanup_timeout_ms)
        buffer.sink.on_abort(lambda error: self.abort("output_aborted"))
        #: What sinks raised that were detached from the source, not told yet.
        self._detached: deque[Exception] = deque()
        buffer.source.on_detach(self._detached.append)
        self._options = options
        self.run_id = options.run_id or _new_run_id(options)
        runtime, given, node, extra = read_context(options.context)
        self.symbolics: SymbolicState = state_for(
            given if options.symbolics is None else options.symbolics,
            options.initial_symbolics,
            options.symbolic_names,
        )
        tools = ToolAdapterWrapper(
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
            tools=tools.specs,
            run_id=self.run_id,
        )
        self._tools = tools
        self._parse = _given(options.parse_evaluator_output)
        self._check_names = options.checks_list or ()
        self._checks = _checks(options, self.symbolics)
        self._config = cycle_config(options)
        if resumption is not None:
            resumption.check(self._config)
        self._state = self._before = CycleState()
        self._trace = ToolTrace(options.tool_trace_scope)
        ledger = options.ledger
        self._ingress = Ingress(options.redactor, kept=ledger is not None or options.graph is not None)
        head = NO_ENTRIES if resumption is None else resumption.head
        recorder = None if ledger is None else Recorder(ledger, self.run_id, options.clock, head=head)
        self._record = RunRecord(recorder, sync=options.durability == "power")
        self._complain = Complaints(
            self.run_id,
            lambda: self._state.iteration,
            ingress=self._ingress,
            record=self._record,
        )
        self._memory: MemoryWriter | None = None
        if options.graph is not None:
            from agentloop.loop.memory import MemoryWriter

            self._memory = MemoryWriter(
                options.graph,
                self.run_id,
                ledger=options.ledger,
                config=self._config,
                record=self._record,
                ingress=self._ingress,
                complain=self._complain,
                make_result=self._make_result,
            )
        self._output = self._complain.output = Output(
            buffer,
            self._record,
            taps=options.taps,
            fact=self._memory.write_fact if self._memory is not None else None,
            on_progress=options.on_progress,
            complain=self._complain,
        )
        self._watch = Watchdog(
            grace_ms=options.cleanup_timeout_ms, on_due=self._deadline_passed, on_overdue=self._abandon
        )
        self._turns = TurnTaker(
            options,
            self,
            context=self.context,
            tools=tools,
            ingress=self._ingress,
            record=self._record,
            output=self._output,
            watch=self._watch,
        )
        self._work: anyio.CancelScope | None = None
        self._cleanup: anyio.CancelScope | None = None
        self._winding = False
        self._failure: Failed | None = None
        self._turn_is_new = False
        self._inputs: deque[str] = deque()
        self.changes: deque[SymbolicChange] = deque()
        self._known_errors = self.symbolics.error_count
        self._unsubscribe: Callable[[], object] | None = None
        self._usage: dict[str, int] = {}
        self._retrievals: list[str] = []
        self._resumption = resumption
        if resumption is not None:
            self._take_up(resumption)

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

    # ------------------------------------------------------------------ what its turns ask for

    @property
    def cycle(self) -> int:
        """The current iteration."""
        return self._state.iteration

    def halted(self) -> bool:
        """Return whether nothing may begin any more; what comes too late is dropped."""
        return self._abort_reason is not None or self._failure is not None or self.result is not None

    def has_ended(self) -> bool:
        """Return whether the terminal frame has been decided."""
        return self._state.phase in (Phase.DONE, Phase.FAILED)

    async def settle_changes(self) -> None:
        """Publish the changes of facts that happened meanwhile."""
        self._note_changes()
        await self._settle()

    async def commit(self) -> None:
        """Put everything recorded so far on disk; what is not there has not happened."""
        self._turn_is_new = False
        try:
            await self._record.commit()
        except Exception as error:
            self._take_back()
            raise Failed("ledger", error) from error

    def _take_back(self) -> None:
        """Undo the last decision: it is not on record, so it is neither published nor true."""
        self._record.off()
        self._output.unstage()
        if self.has_ended():
            self._state = self._before

    def _note(self, frame: Frame) -> bool:
        self._inputs.append(self._entering(frame.text))
        return True

    def _entering(self, text: str) -> str:
        return self._ingress.text(text)

    async def _prepare(self) -> None:
        if self._options.own_adapters:
            given = (self._options.agent_adapter, self._options.evaluator_adapter)
            for adapter in {id(adapter): adapter for adapter in given}.values():
                if hasattr(adapter, "__aenter__"):
                    await self._stack.enter_async_context(cast(Any, adapter))

    def _deadline_passed(self) -> None:
        if self._watch.limit_passed:
            self.abort("timeout")
        elif (role := self._turns.role) is not None and self._work is not None:
            self._failure = Failed(role, TurnTimeout(role, self._options.turn_timeout_ms or 0))
            self._work.cancel()

    # --------------------------------------------------------------------------------- main

    async def _main(self, tasks: TaskGroup) -> None:
        """Live the run. Whatever happens, it ends with exactly one terminal frame."""
        tasks.start_soon(self._watch.run)
        stall = self._look_out()
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
                if stall is not None:
                    stall.stop()

    def _look_out(self) -> StallWatch | None:
        after_ms = self._options.stall_after_ms
        if after_ms is None:
            return None
        text = f"the event loop has been blocked for {after_ms:g} ms, and no deadline can act, by\n"
        return StallWatch(after_ms, lambda stack: self._complain.log(text + stack))

    async def _finish_up(self) -> None:
        if self._winding:  # it was abandoned, and has come back after all
            with anyio.CancelScope(shield=True):
                await self._turns.close(warn=self._complain.warn)
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
            self._complain.warn(f"{failed.phase}: {type(failed.error).__name__}: {message_of(failed.error)}")

    async def _live(self) -> None:
        assert self._woken is not None
        self._open_record()
        await self._woken.wait()
        if self._abort_reason is not None:
            raise Stopped
        self._unsubscribe = self.symbolics.subscribe(self.changes.append)
        limit_ms = self._options.run_timeout_ms
        if limit_ms is not None:
            self._watch.limit(limit_ms)
        order = self._begin() if self._resumption is None else await self._go_on_from(self._resumption)
        while True:
            await self._settle()
            if order is None:
                return
            if limit_ms is not None:
                self._enforce_limit()
            event = await self._perform(order)
            if limit_ms is not None:
                self._enforce_limit()
            if self.halted():
                raise Stopped
            self._note_changes()
            if self._stop_reason is not None and self._state.stop_reason is None:
                self._record.fact(
                    "input", {"type": CANCEL, "reason": self._stop_reason, "mode": "after_cycle"}
                )
                self._step(StopAsked(self._stop_reason))
            order = self._step(event)

    def _begin(self) -> Order | None:
        self._record.fact("input", {"type": TICK})
        return self._step(Ticked())

    def _enforce_limit(self) -> None:
        # The sleeper may not have had its turn yet, where something has blocked the event loop.
        if self._watch.limit_passed:
            self.abort("timeout")

    def _open_record(self) -> None:
        if self._resumption is not None:
            if self._resumption.closed:
                self._record.off()
            else:
                self._record.fact("resumed", {"after": self._resumption.head[0]})
        elif self._record.on:
            given = {
                "node": self.context.node,
                "labels": dict(self._options.labels),
                "symbolics": self.symbolics.get_all(),
            }
            shown = self._ingress.shown(Frame("", given)).content
            self._record.opened(self._config, forward=shown_forward(self._options), **shown)

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
            self._record.closed(self._make_result(self._state))
        return order

    async def _settle(self) -> None:
        """Commit what must be on record first, then publish what was staged."""
        for _ in range(_CHANGES_IN_A_ROW):
            if self._record.on and self._must_commit():
                await self.commit()
            await self._output.publish()
            if not self.changes:
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

    # ----------------------------------------------------------------------------- resuming

    def _take_up(self, run: Resumption) -> None:
        """Be where the recorded run was."""
        self._state = self._before = run.state
        self._record.go_on(run.steps, run.out)
        self._turns.go_on(run.turns, run.open_turn)
        self._usage, self._retrievals = dict(run.usage), list(run.retrieval_ids)
        self._inputs.extend(run.inbox)
        for role, count in run.finished.items():
            skip_turns(getattr(self._options, f"{role}_adapter"), count)
        for entry in run.trace:
            self._trace.append(entry)
        ctx = self.context
        for past in run.history:
            ctx.history.add(past)
        ctx.iteration, ctx.retry_count = run.state.iteration, run.state.retry_count
        ctx.check_retry_count, ctx.last_evidence = run.state.check_retry_count, run.state.last_evidence
        ctx.last_checks = run.last_checks
        set_facts(self.symbolics, run.facts)

    async def _go_on_from(self, run: Resumption) -> Order | None:
        """Settle what the recorded run had begun and return the order it had not done."""
        for frame in run.unpublished:
            self._output.again(frame)
        await self._output.publish()
        if self.has_ended():
            if not run.closed:
                self._record.closed(self._make_result(self._state))
            return None
        if run.stop_reason is not None:
            self._step(StopAsked(run.stop_reason))
        if run.event is None and run.order is None:
            return self._begin()
        if run.open_turn is not None:
            await self._report_unknown(run.open_turn)
        event = run.event
        if run.judging is not None:
            event = await self._judge(run.judging)
        else:
            self._apply_updates(run.updates)
        self._note_changes()
        return run.order if event is None else self._step(event)

    async def _report_unknown(self, turn: OpenTurn) -> None:
        """Answer the calls of which nobody knows whether they did what they were to do."""
        for known in turn.calls:
            if known.result is not None or known.read_only or self._tools.accepts_key(known.call.name):
                continue
            problem = "the run was interrupted during this call: whether it was carried out is not known"
            known.result = tool_failure(known.call, "unknown_outcome", problem).to_content()
            self._record.fact("tool_result", {"step": known.step, "result": known.result})
            self._turns.show_answer(Frame(TOOL_RESULT, known.result))
            self._complain.warn(f"tool {known.call.name!r} (step {known.step}): {problem}")

    # -------------------------------------------------------------------------------- turns

    async def _agent_turn(self) -> Event:
        self._refresh_context()
        fold, entries = await self._take_turn("agent", self.context)
        for entry in entries:
            self._trace.append(entry)
        self.context.history.add(turn_entry(self._state.iteration, fold, entries))
        return AgentEnded(fold.text)

    async def _take_turn(self, role: Role, *arguments: Any) -> tuple[TurnFold, list[dict[str, Any]]]:
        fold, entries = await self._turns.take(role, *arguments)
        self._turn_is_new = True
        for name, count in fold.usage.items():
            self._usage[name] = self._usage.get(name, 0) + count
        self._retrievals += fold.retrieval_ids
        return fold, entries

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
        fold, _ = await self._take_turn("evaluator", ctx, ctx.history)
        return await self._judge(fold.frames)

    async def _judge(self, frames: Sequence[Frame]) -> Event:
        ctx = self.context
        try:
            answer = self._parse(frames)
            if must_wait(answer):
                answer = await answer
            verdict = as_evaluator_result(answer)
            evidence = self._ingress.text(verdict.evidence)
            if evidence is not verdict.evidence:
                verdict = msgspec.structs.replace(verdict, evidence=evidence)
        except Exception as error:
            raise Failed("parse", error) from error
        self._record.fact("verdict", {"result": _verdict_data(verdict)})
        for rejected in verdict.rejected_updates:
            self._complain("symbolic_updates", ValueError(rejected.reason), once_per=rejected.reason)
        self._apply_updates(verdict.symbolic_updates)
        evaluation = {"status": verdict.status.value, "evidence": verdict.evidence}
        ctx.history.amend(evaluation=evaluation)
        return Judged(verdict.status, verdict.evidence, verdict.parse_error)

    def _apply_updates(self, updates: Sequence[SymbolicUpdate]) -> None:
        for update in updates:
            try:
                self.symbolics.apply_update(update, by="evaluator")
            except (SymbolicRefused, ValueError, TypeError) as error:
                self._complain("symbolic_updates", error, once_per=update.name)

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
        closing = self._state.closing
        assert closing is not None
        assert self._memory is not None
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
        event = await self._memory.write_outcome(self._state, outcome)
        self._failure = self._failure or self._memory.failure
        if self._memory.sealed:
            self.changes.clear()  # the record is closed: what changed meanwhile came too late
        return event

    # ----------------------------------------------------------------------------- symbolics

    def _note_changes(self) -> None:
        """Put on record what others did meanwhile, changes of facts above all, and stage its frames."""
        while self._detached:
            self._complain("sink", self._detached.popleft())
        if not self.changes:
            return
        while self.changes:
            change = self.changes.popleft()
            if self._output.ended:
                continue
            content: dict[str, Any] = {"name": change.name, "value": change.value, "op": change.op}
            if type(change.value) in (dict, list, str):
                content = self._ingress.shown(Frame(SYMBOLIC_ASSERTED, content)).content
            self._record.fact("symbolic", {**content, "by": change.by})
            self._output.stage(SYMBOLIC_ASSERTED, content)
            if self._memory is not None:
                self._memory.note_writer(self._record.out.count, change.by)
        raised = self.symbolics.error_count - self._known_errors
        if raised:
            self._known_errors += raised
            for error in self.symbolics.errors[-raised:]:
                self._complain("symbolic_subscriber", error, once_per=message_of(error))

    # --------------------------------------------------------------------------- winding down

    async def _abandon(self) -> None:
        """End the run although something of it refuses to stop."""
        if self.result is not None:
            return
        role = self._turns.role or "run"
        late, grace_ms = self._watch.late, self._options.cleanup_timeout_ms
        self._complain.log(f"the {late or role} did not stop within {grace_ms:g} ms and is abandoned")
        if self._winding:
            assert self._cleanup is not None
            self._cleanup.cancel()
        else:
            if late is not None and not self.halted():
                problem = f"the {late} went on for {grace_ms:g} ms after its deadline and is abandoned"
                self._failure = Failed(role, TurnError(problem))
            if self._work is not None:
                self._work.cancel()
            self._record.hurry()
            with anyio.move_on_after(grace_ms / 1000):
                await self._wind_down(abandoned=True)
        self._close()

    async def _wind_down(self, *, abandoned: bool = False) -> None:
        """Bring the run to its end, whatever state it is in."""
        self._winding = True
        self._output.hurry()
        error = self._failure.error if self._failure else None
        reason = self._abort_reason or (type(error).__name__ if error else "cancelled")
        await self._turns.cut(reason, self._failure, warn=self._complain.warn, close=not abandoned)
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
            if self.has_ended():
                return

    async def _end(self) -> None:
        self._note_changes()
        if not self.has_ended() and (self._state.phase is not Phase.RECORDING or self._failure is not None):
            self._step(self._ending())
        if self._state.phase is Phase.RECORDING:
            if self._memory is not None and self._memory.telling:
                return  # what was abandoned is at it: `_close` says that it came too late
            await self.commit()
            self._step(await self._record_outcome())
        await self._settle()

    def _ending(self) -> Event:
        failure = self._failure
        if failure is None:
            reason = self._abort_reason = self._abort_reason or "cancelled"
            self._record.fact("input", {"type": ABORT, "reason": reason})
            return Aborted(reason)
        content = self._complain.content(failure.phase, failure.error, fatal=True)
        self._complain.log(f"failed in phase {failure.phase}", failure.error)
        self._record.fact("callback_failed", {"phase": failure.phase, "error": content})
        return Faulted(failure.phase, content["error_type"], content["message"])

    def _close(self) -> None:
        """Set the result and end the stream. Never waits, never fails."""
        if self.result is not None:
            return
        if self._state.phase not in (Phase.RECORDING, Phase.DONE, Phase.FAILED):
            self._step(self._ending())
        if self._state.phase is Phase.RECORDING:
            self._complain.warnings.append("graph: the outcome was not written in time")
            self._record.fact("outcome_written", {"failure": "not in time"})
            self._step(OutcomeRecorded())
        try:
            self._record.commit_now()
        except Exception as error:
            self._complain.warn(f"ledger: {type(error).__name__}: {message_of(error)}")
            self._take_back()
            if self._abort_reason is None:
                self._failure = self._failure or Failed("ledger", error)
            self._step(self._ending())
        self._record.off()
        self._output.publish_now()
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._finish(self._make_result(self._state))

    def _make_result(self, state: CycleState) -> LoopResult:
        closing = state.closing
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
            warnings=tuple(self._complain.warnings),
            node=self.context.node,
            run_id=self.run_id,
        )


def cycle_config(options: LoopOptions) -> CycleConfig:
    """Return what the rules need of the options."""
    return CycleConfig(
        max_iterations=options.max_iterations,
        max_retries=options.max_retries,
        evaluator_parse_retries=options.evaluator_parse_retries,
        has_checks=bool(options.checks_list),
        has_memory=options.graph is not None,
        extra_frames=options.extra_frames,
    )


def shown_forward(options: LoopOptions) -> Json:
    """Return what a ledger says of the frames that are forwarded."""
    return "*" if options.forward_frames == "*" else sorted({*options.forward_frames})


def _new_run_id(options: LoopOptions) -> str:
    if options.ledger is None and options.graph is None:
        return "run"
    return RunIds(options.clock)()


def _given(option: Callable[..., Any] | None) -> Callable[..., Any]:
    assert option is not None, "LoopOptions has checked that it is there"
    return option


def _checks(options: LoopOptions, symbolics: SymbolicState) -> Callable[..., Any] | None:
    checks = options.deterministic_checks
    if checks is None and options.checks_list:
        checks = create_default_deterministic_checks()
    return checks.bind(symbolics) if isinstance(checks, DefaultChecks) else checks


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
