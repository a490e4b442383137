"""The looping driver: one agent-evaluator loop after another, over the nodes of a provider.

What follows what is decided in `rounds`; here it is done, recorded and passed on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, cast

import anyio
import msgspec
from anyio.abc import TaskGroup

from agentloop.determinism import Clock, RunIds, SystemClock
from agentloop.errors import LedgerUnavailable, StreamAborted, StreamBusy, TurnError
from agentloop.frames import PROGRESS_TYPES, TICK, Frame
from agentloop.ledger.chain import NO_ENTRIES
from agentloop.ledger.commits import Commits
from agentloop.ledger.recorder import LEDGER_VERSION, Recorder
from agentloop.loop.answers import must_wait
from agentloop.loop.context import read_context, state_for
from agentloop.loop.cycle import Emit, Faulted
from agentloop.loop.failures import Failed, Stopped, message_of
from agentloop.loop.ingress import Ingress
from agentloop.loop.lifecycle import OneRun
from agentloop.loop.options import OverflowStrategy
from agentloop.loop.output import deliver_now
from agentloop.loop.record import effect_names
from agentloop.loop.resumption import OuterResumption, set_facts, skip_turns
from agentloop.loop.rounds import (
    ASK_AGAIN,
    ASK_NODE,
    Answered,
    Began,
    InnerEnded,
    NodeGiven,
    OuterAborted,
    Round,
    RoundEvent,
    RoundOrder,
    RoundPhase,
    RoundsConfig,
    next_round,
)
from agentloop.loop.watch import Watchdog
from agentloop.messages import LoopResult, NodeStatus
from agentloop.ports import LedgerStore, Sink, Source
from agentloop.streams.buffer import FrameBuffer
from agentloop.symbolic import SymbolicState

__all__ = ("OUTER_DRIVER", "InnerLoop", "LoopingAgentLoop", "LoopingOptions")

#: What ``run.opened`` calls this driver.
OUTER_DRIVER: Final = "looping_agent_loop"
_log = logging.getLogger("agentloop.loop")
_ENDED: Final = (RoundPhase.DONE, RoundPhase.FAILED)


class InnerLoop(Protocol):
    """What an inner loop factory must give; `create_agent_loop` does."""

    @property
    def source(self) -> Source: ...
    @property
    def sink(self) -> Sink: ...
    @property
    def result(self) -> LoopResult | None: ...
    def abort(self, reason: str | None = ..., /) -> bool: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *exc_info: Any) -> bool | None: ...


class LoopingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The outer options of `create_looping_agent_loop`, which documents them."""

    inner_loop_factory: Callable[..., InnerLoop]
    inner_options: Mapping[str, Any]
    should_continue: Callable[[LoopResult, int], Any] | None = None
    node_provider: Callable[[int], Any] | Iterable[Any] | AsyncIterator[Any] | None = None
    max_iterations: int = 10
    on_progress: Callable[[str, dict[str, Any]], Any] | None = None
    share_symbolics: bool = True
    max_buffered_output_frames: int | None = None
    output_overflow_strategy: OverflowStrategy = "drop-oldest"
    protect_terminal: bool = False
    raise_errors: bool = False
    ledger: LedgerStore | None = None
    run_id: str | None = None
    labels: Mapping[str, Any] | None = None
    clock: Clock | None = None

    def __post_init__(self) -> None:
        for name in ("inner_loop_factory", "should_continue", "on_progress"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be callable, not {type(value).__name__}")


class LoopingAgentLoop(OneRun):
    """Inner loops one after another, as one duplex; see `create_looping_agent_loop`.

    Attributes:
        source: The frames of every inner loop, unchanged but for ``meta["outer_iteration"]``.
        sink: Takes TICK, CANCEL, ABORT and INPUT.
        symbolics: Shared by the inner loops, unless ``share_symbolics`` is off.
        results: The inner results in order.
        run_id: Names the run in a ledger; inner runs are ``<run_id>/1``, ``<run_id>/2``, ….
    """

    def __init__(self, options: LoopingOptions, *, resumption: OuterResumption | None = None) -> None:
        buffer = FrameBuffer(
            options.max_buffered_output_frames,
            options.output_overflow_strategy,
            protect_terminal=options.protect_terminal,
            reserve=6,  # the last frames of an inner loop, and then our own
        )
        inner = self._inner_options = dict(options.inner_options)
        grace_ms = inner.get("cleanup_timeout_ms", 5_000)
        super().__init__(buffer, raise_errors=options.raise_errors, grace_ms=grace_ms)
        buffer.sink.on_abort(lambda error: self.abort("output_aborted"))
        self._options = options
        clock = options.clock or SystemClock()
        self.symbolics: SymbolicState = _shared_state(inner)
        self.run_id = options.run_id or RunIds(clock)()
        kept = options.ledger is not None or inner.get("graph") is not None
        self._ingress = Ingress(inner.get("redactor"), kept=kept)
        head = NO_ENTRIES if resumption is None else resumption.head
        self._recorder = Recorder(options.ledger, self.run_id, clock, head=head)
        self._commits = Commits(self._recorder, sync=inner.get("durability", "power") == "power")
        self._steps = 0
        self._nodes = _Nodes(options.node_provider)
        self._config = RoundsConfig(
            max_iterations=options.max_iterations, has_provider=options.node_provider is not None
        )
        self._state = Round()
        #: What is being put on record.
        self._next: Round | None = None
        self._node: Any = None
        self.results: list[LoopResult] = []
        self._inner: InnerLoop | None = None
        self._inputs: deque[Frame] = deque()
        self._failure: Failed | None = None
        self._lost = 0
        self._warnings: list[str] = []
        self._work: anyio.CancelScope | None = None
        self._waiting: anyio.CancelScope | None = None
        # An inner loop gives up what refuses to stop after one grace; what then remains is ours.
        self._watch = Watchdog(grace_ms=2 * self._grace_ms, on_due=self._cut, on_overdue=self._abandon)
        self._abandoned = False
        self._resumption = resumption
        if resumption is not None:
            self._take_up(resumption)

    @property
    def status(self) -> NodeStatus:
        """PENDING before the TICK, RUNNING until the end, then SUCCESS or FAILURE."""
        if self.result is not None:
            return self.result.status
        return NodeStatus.RUNNING if self._ticked else NodeStatus.PENDING

    def _decided(self) -> bool:
        return (self._next or self._state).ending is not None or self._failure is not None

    def _cut(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self._inner is not None:
            self._inner.abort(self._abort_reason)
        elif self._work is not None:
            self._work.cancel()
        if self._work is not None:
            self._watch.cut()

    def _note(self, frame: Frame) -> bool:
        if self._inner is not None:
            return self._inner.sink.write_nowait(frame)
        self._inputs.append(frame)
        return True

    def _stop_after_cycle(self, reason: str) -> bool:
        if not super()._stop_after_cycle(reason):
            return False
        if self._inner is not None:
            self._inner.sink.write_nowait(Frame("CANCEL", {"reason": reason, "mode": "after_cycle"}))
        return True

    # --------------------------------------------------------------------------------- main

    async def _main(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._watch.run)
        try:
            with anyio.CancelScope() as self._work:
                try:
                    await self._live()
                except Stopped:
                    pass
                except Failed as failed:
                    self._failure = failed
                except Exception as error:
                    self._failure = Failed("internal", error)
        finally:
            self._watch.stop()
            if not self._abandoned:
                await self._end()

    async def _live(self) -> None:
        assert self._woken is not None
        self._open_record()
        await self._woken.wait()
        if self._abort_reason is not None:
            raise Stopped
        if self._resumption is None:
            order = await self._begin()
        else:
            order = await self._go_on_from(self._resumption)
        while order is not None:
            if self._abort_reason is not None:
                raise Stopped
            event = await self._perform(order)
            order = await self._step(event)

    async def _begin(self) -> RoundOrder | None:
        self._record("fact.input", {"type": TICK})
        return await self._step(Began())

    def _take_up(self, run: OuterResumption) -> None:
        """Be where the recorded run was."""
        self._state, self._steps, self._node = run.state, run.steps, run.node
        self.results += run.results
        if run.results and self._options.share_symbolics:
            set_facts(self.symbolics, run.facts)
        for role, count in run.finished.items():
            skip_turns(self._inner_options.get(f"{role}_adapter"), count)
        self._nodes.take_up(run)

    async def _go_on_from(self, run: OuterResumption) -> RoundOrder | None:
        """Return the order that the recorded run had not done."""
        for frame in run.unpublished:
            self._forward_now(frame, self._state.index)
        if self._has_ended():
            if not run.closed:
                self._record_end(self._make_result(self._state))
                await self._commit()
            return None
        if run.event is not None:
            return await self._step(run.event)
        return run.order if run.order is not None else await self._begin()

    async def _perform(self, order: RoundOrder) -> RoundEvent:
        index = self._state.index
        if order == ASK_NODE:
            try:
                self._node = await self._nodes.at(index)
            except Exception as error:
                raise Failed("node_provider", error) from error
            self._record("fact.node", {"index": index, **self._shown({"node": self._node})})
            return NodeGiven(self._node is not None)
        if order == ASK_AGAIN:
            return await self._ask_again(index)
        result = await self._run_inner(index)
        return InnerEnded(result.status, result.reason)

    async def _ask_again(self, index: int) -> RoundEvent:
        ask = self._options.should_continue
        stopped = self._stop_reason is not None
        try:
            answer = False if ask is None or stopped else ask(self.results[-1], index)
            again = bool(await answer if must_wait(answer) else answer)
        except Exception as error:
            raise Failed("should_continue", error) from error
        self._record("fact.again", {"index": index, "again": again})
        return Answered(again)

    async def _run_inner(self, index: int) -> LoopResult:
        options = dict(self._inner_options)
        if self._options.share_symbolics:
            options["symbolics"] = self.symbolics
            options.pop("symbolic_names", None)  # the shared state has them
        if self._options.on_progress is not None:
            options["on_progress"] = self._options.on_progress
        if self._options.ledger is not None or options.get("graph") is not None:
            options |= {"ledger": self._options.ledger, "run_id": f"{self.run_id}/{index + 1}"}
        if self._options.clock is not None:
            options["clock"] = self._options.clock
        options["node"] = self._node
        resumption, self._resumption = self._resumption, None
        try:
            begun = None if resumption is None else resumption.inner(f"{self.run_id}/{index + 1}")
            if begun is not None:
                options["resumption"] = begun
            inner = self._inner = self._options.inner_loop_factory(**options)
        except Exception as error:
            raise Failed("inner_loop_factory", error) from error
        try:
            async with inner:
                while self._inputs:
                    inner.sink.write_nowait(self._inputs.popleft())
                inner.sink.write_nowait(Frame(TICK, {}))
                async for frame in inner.source:
                    await self._forward(frame, index)
                self._watch.expect("inner", f"inner loop {index}", 0)
        finally:
            self._watch.arrived("inner")
            self._inner = None
            if not self._abandoned:
                self._take_rest(inner, index)
        assert inner.result is not None
        return inner.result

    def _take_rest(self, inner: InnerLoop, index: int) -> None:
        """Pass on what an inner loop has left behind, and take note of how it ended."""
        # Busy: whoever reads it is about to, and finds the stream at its end.
        with suppress(anyio.WouldBlock, anyio.EndOfStream, StreamBusy):
            while True:
                self._forward_now(inner.source.receive_nowait(), index)
        if inner.result is not None:
            self._note_result(inner.result, index)

    async def _abandon(self) -> None:
        """End the run although something of it refuses to stop."""
        if self.result is not None:
            return
        self._abandoned = True
        what = self._watch.late or f"step {self._state.phase.value!r}"
        problem = f"the {what} did not stop in time and is abandoned"
        with suppress(Exception):
            _log.warning("run %s: %s", self.run_id, problem)
        if self._inner is not None:
            self._take_rest(self._inner, self._state.index)
        if self._abort_reason is None and self._failure is None:
            self._failure = Failed("internal", TurnError(problem))
        await self._end()

    async def _end(self) -> None:
        """Bring the run to its end in time: with what its ledger answers, or without it."""
        self._commits.may_give_up = True
        for _ in range(2):
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + self._grace_ms / 1000):
                await self._wind_down()
            if self._has_ended():
                break
            problem = "the store did not answer in time"
            self._warnings.append(f"ledger: {problem}")
            self._failure = self._failure or Failed("ledger", LedgerUnavailable(self.run_id, problem))
            self._stop_recording()
        self._finish(self._make_result(self._state))

    def _has_ended(self) -> bool:
        return self._state.phase in _ENDED

    def _note_result(self, result: LoopResult, index: int) -> None:
        self.results.append(result)
        ended = {"run": result.run_id, "status": result.status.value, "reason": result.reason}
        self._record("fact.child", {"index": index, **ended})

    # -------------------------------------------------------------------------------- frames

    async def _forward(self, frame: Frame, index: int) -> None:
        if self._abort_reason is not None or not self._buffer.paused:
            self._forward_now(frame, index)
            return
        delivered = False
        try:
            with anyio.CancelScope() as self._waiting:
                await self._buffer.put(_with_index(frame, index))
                delivered = True
        except StreamAborted:
            """The reader has left, and has aborted the run by that."""
        finally:
            self._waiting = None
            if not delivered:
                self._forward_now(frame, index)

    def _forward_now(self, frame: Frame, index: int) -> None:
        self._lost += not deliver_now(self._buffer, _with_index(frame, index))

    async def _step(self, event: RoundEvent) -> RoundOrder | None:
        """Decide, put the decision on record, emit its frames; return the order it gave."""
        before = self._state
        after, effects = next_round(before, event, self._config)
        self._steps += 1
        self._record(
            "step",
            {
                "n": self._steps,
                "from": before.phase.value,
                "to": after.phase.value,
                "event": str(event.__struct_config__.tag),
                "effects": effect_names(effects),
            },
        )
        if after.phase in _ENDED:
            self._record_end(self._make_result(after))
        self._next = after
        try:
            await self._commit()
        finally:
            self._next = None
        if self.result is not None:
            raise Stopped
        self._state = after  # what is not on record is neither published nor true
        order: RoundOrder | None = None
        for effect in effects:
            if isinstance(effect, Emit):
                await self._emit(effect)
            else:
                order = effect
        return order

    async def _emit(self, effect: Emit) -> None:
        self._forward_now(Frame(effect.type, effect.content), self._state.index)
        progress = self._options.on_progress
        if progress is None or effect.type not in PROGRESS_TYPES:
            return
        try:
            answer = progress(effect.type, dict(effect.content))
            if must_wait(answer):
                await answer
        except Exception as error:
            text = self._ingress.redact_text(f"on_progress: {type(error).__name__}: {message_of(error)}")
            with suppress(Exception):  # a log handler that is broken breaks nothing else
                _log.warning("run %s: %s", self.run_id, text)
            self._warnings.append(text)

    async def _wind_down(self) -> None:
        """Bring the run to its end, whatever state it is in."""
        while not self._has_ended():
            try:
                await self._step(self._ending())
            except Failed as failed:
                self._failure = failed

    def _ending(self) -> RoundEvent:
        if self._failure is not None:
            phase, error = self._failure.phase, self._failure.error
            message = self._ingress.redact_text(message_of(error))
            content = {"phase": phase, "error_type": type(error).__name__, "message": message}
            self._record("fact.callback_failed", {"phase": phase, "error": content})
            return Faulted(phase, content["error_type"], content["message"])
        if self._state.phase is RoundPhase.INNER and len(self.results) > self._state.index:
            last = self.results[-1]
            return InnerEnded(last.status, last.reason)
        reason = self._abort_reason = self._abort_reason or "cancelled"
        self._record("fact.input", {"type": "ABORT", "reason": reason})
        return OuterAborted(reason)

    # -------------------------------------------------------------------------------- record

    def _entering(self, text: str) -> str:
        return self._ingress.text(text)

    def _shown(self, content: dict[str, Any]) -> dict[str, Any]:
        return self._ingress.shown(Frame("", content)).content

    def _record_end(self, result: LoopResult) -> None:
        closed = {"status": result.status.value, "reason": result.reason, "iterations": len(self.results)}
        self._record("run.closed", closed)

    def _open_record(self) -> None:
        if self._resumption is not None:
            if self._resumption.closed:
                self._stop_recording()
            else:
                self._record("fact.resumed", {"after": self._resumption.head[0]})
            return
        opened = {
            "version": LEDGER_VERSION,
            "driver": OUTER_DRIVER,
            "run": self.run_id,
            "config": msgspec.structs.asdict(self._config),
            **self._shown({"labels": dict(self._options.labels or {})}),
        }
        self._record("run.opened", opened)

    def _record(self, kind: str, data: Mapping[str, Any]) -> None:
        self._recorder.record(kind, data)

    async def _commit(self) -> None:
        try:
            await self._commits()
        except Exception as error:
            self._stop_recording()
            raise Failed("ledger", error) from error

    def _stop_recording(self) -> None:
        self._recorder = Recorder(None, self.run_id, SystemClock())
        self._commits = Commits(self._recorder, sync=False)

    def _make_result(self, state: Round) -> LoopResult:
        ending = state.ending
        dropped = self._buffer.statistics().dropped + self._lost
        if ending == "inner" and self.results:
            return msgspec.structs.replace(self.results[-1], dropped_frames=dropped)
        failure = self._failure
        return LoopResult(
            status=NodeStatus.SUCCESS if state.phase is RoundPhase.DONE else NodeStatus.FAILURE,
            reason=cast(Any, ending) or "aborted",
            evidence=self._ingress.redact_text(f"{failure.phase}: {message_of(failure.error)}")
            if failure
            else None,
            iterations=len(self.results),
            symbolics=self.symbolics.get_all(),
            dropped_frames=dropped,
            error=failure.error if failure else None,
            warnings=tuple(self._warnings),
            run_id=self.run_id,
        )


def _shared_state(inner_options: dict[str, Any]) -> SymbolicState:
    given = inner_options.pop("symbolics", None)
    if given is None:
        given = read_context(inner_options.get("context"))[1]
    initial = inner_options.get("initial_symbolics") or {}
    return state_for(given, initial, inner_options.get("symbolic_names"))


def _with_index(frame: Frame, index: int) -> Frame:
    return msgspec.structs.replace(frame, meta={**frame.meta, "outer_iteration": index})


class _Nodes:
    """Asks a provider, whichever form it has, for the node of an index; None when it has no more."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._iterator: Any = None
        self._left_out = 0
        if provider is not None and not callable(provider):
            is_async = hasattr(provider, "__aiter__")
            self._iterator = aiter(provider) if is_async else iter(provider)

    def take_up(self, run: OuterResumption) -> None:
        """Be where the provider was when the run was cut off."""
        tell = getattr(self._provider, "take_up", None)
        if tell is not None:
            tell(run.results, run.node)
        # What an iterator gave before is on record; it is begun anew, so that much is left out.
        self._left_out = 0 if self._iterator is None else run.nodes

    async def at(self, index: int) -> Any:
        while self._left_out:
            self._left_out -= 1
            await self._next()
        return await self._next(index)

    async def _next(self, index: int = 0) -> Any:
        if self._iterator is None:
            node = self._provider(index)
            return await node if must_wait(node) else node
        try:
            if hasattr(self._iterator, "__anext__"):
                return await anext(self._iterator)
            return next(self._iterator)
        except (StopIteration, StopAsyncIteration):
            return None
