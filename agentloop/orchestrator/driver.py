"""The driver: queues of events and effects, and the record. It chooses nothing.

An event is reduced and put on record before anything that follows from it is done. What the
effects do is in `effects`; when they are cut short, in `runtime`.
"""

from __future__ import annotations

from collections import deque

from agentloop._canonical import Json
from agentloop.errors import InvariantViolation, LedgerError
from agentloop.ledger.chain import NO_ENTRIES
from agentloop.ledger.recorder import Recorder
from agentloop.orchestrator.events import (
    CallModel,
    Effect,
    Event,
    ModelFrames,
    RunCancelled,
    RunStarted,
    ToolStarted,
)
from agentloop.orchestrator.folding import RunFold
from agentloop.orchestrator.ingress import Ingress
from agentloop.orchestrator.ledger import FileEntry
from agentloop.orchestrator.options import RunOptions
from agentloop.orchestrator.phases import ORCHESTRATION, Phase
from agentloop.orchestrator.recording import FactReader, OrchestratorRecord, effect_kinds
from agentloop.orchestrator.reducer import reduce
from agentloop.orchestrator.state import RunState
from agentloop.ports import Head

__all__ = ("RunDriver",)


class RunDriver:
    """Drives one run.

    Args:
        options: What the run is given.
        standing: Where a recorded run stands that goes on.
        head: Its newest entry.
    """

    def __init__(
        self, options: RunOptions, *, standing: RunFold | None = None, head: Head = NO_ENTRIES
    ) -> None:
        self.options, self.config = options, options.config
        self.ingress = Ingress(options.redactor)
        reader = FactReader() if standing is None else standing.reader
        #: Results and intents of an interrupted batch of tool calls, by step id.
        self.before = reader
        recorder = Recorder(options.ledger, options.run_id, options.clock, head=head)
        self.record = OrchestratorRecord(recorder, sync=options.durability == "power", reader=reader)
        self._queue: deque[tuple[Event, bool]] = deque()
        self._effects: deque[Effect] = deque()
        self.warnings: list[str] = []
        #: What the reducer raised: the program is wrong, and nothing goes on.
        self.broken: InvariantViolation | None = None
        #: Why the record cannot be kept: nothing goes on without it.
        self.lost: LedgerError | None = None
        self._steps = 0
        self._closed = False
        #: Whether the run had begun before.
        self.resumed = standing is not None
        if standing is None:
            goal = self.ingress.text(options.goal)
            self.state = RunState.initial(options.run_id, goal, options.clock.now_ms())
        else:
            self._go_on(standing)
        # Durations by the clock that never goes back; the time a run was not running does not count.
        newest = self._queue[0][0].at if self._queue else self.state.now
        self._base = max(self.state.now, newest) - options.clock.monotonic_ms()

    def _go_on(self, standing: RunFold) -> None:
        self.state, self._steps = standing.state, standing.steps
        self._closed = standing.closed is not None
        if standing.fact is not None:
            self._queue.append((standing.fact, False))
        elif self.state.phase is Phase.INIT:
            self._begin()
        self._queue.extend((event, False) for event in standing.emitted)
        if standing.fact is None or isinstance(standing.fact, (ModelFrames, ToolStarted)):
            self._effects.extend(standing.effects)  # another fact is what answers the effect

    def begin(self) -> None:
        """Record the beginning of a new run."""
        options, state = self.options, self.state
        tools = [spec.name for spec in options.tools.specs]
        self.record.opened(
            state,
            self.config,
            seed=options.seed,
            tools=tools,
            labels=options.labels,
            redacted=options.redactor is not None,
        )
        self._begin()

    def _begin(self) -> None:
        self.queue(RunStarted(at=self.state.started_at, goal=self.state.goal))

    def now(self) -> int:
        """Return the run's time in milliseconds."""
        return self._base + self.options.clock.monotonic_ms()

    @property
    def ended(self) -> bool:
        """Whether nothing can happen any more."""
        return ORCHESTRATION.terminal(self.state.phase)

    def stopped(self) -> bool:
        """Whether the caller asked for the run to stop."""
        return self.options.signal is not None and self.options.signal.is_set()

    def queue(self, event: Event) -> None:
        """Put an event from outside behind those that wait."""
        self._queue.append((event, True))

    def next_effect(self) -> Effect | None:
        """Reduce what waits and return what is to be done next; None when the run has ended."""
        while not self.ended:
            if self._queue:
                self.take(*self._queue.popleft())
            elif self.stopped():
                self.queue(RunCancelled(at=self.now()))
            elif self._effects:
                return self._effects.popleft()
            else:
                raise InvariantViolation(
                    f"stuck in {self.state.phase}: nothing waits and nothing is to be done"
                )
        return None

    def take(self, event: Event, outside: bool = True, /, **beside: Json) -> None:
        """Reduce one event and record it.

        Args:
            event: What has happened.
            outside: False for one that follows from an event before, or is on record already.
            **beside: Recorded with it.
        """
        before = self.state
        try:
            after, effects, emit = reduce(before, event, self.config)
        except InvariantViolation as error:
            self.broken = error
            raise
        if outside:
            self.record.fact(event, **beside)
        self._steps += 1
        self.record.step(self._steps, before.phase, event, after.phase, effects)
        self.state = after
        self._queue.extend((one, False) for one in emit)
        self._effects.extend(effects)
        self._tell(before, event, effects)

    def _tell(self, before: RunState, event: Event, effects: tuple[Effect, ...]) -> None:
        if self.options.on_entry is None:
            return
        entry = FileEntry(
            seq=self._steps,
            at=event.at,
            from_phase=before.phase,
            to=self.state.phase,
            event=event,
            effects=tuple(effect_kinds(effects)),
        )
        try:
            self.options.on_entry(entry)
        except Exception as error:  # who looks on must not change what happens
            self.warnings.append(f"on_entry raised {type(error).__name__}: {error!s:.500}")

    async def commit(self, effect: Effect | None = None) -> None:
        """Hand what is recorded to the store, before an effect is performed or at the end."""
        try:
            if isinstance(effect, CallModel):
                # Losing a window costs nothing: what came before it was committed before it was built.
                self.record.recorder.flush(sync=False)
            else:
                await self.record.commits()
        except LedgerError as error:
            self.lost = error
            raise

    def close(self) -> None:
        """Record the end, once."""
        if not self._closed and self.ended:
            self._closed = True
            self.record.closed(self.state)

    def cancel(self, reason: str) -> None:
        """End the run at once because whoever drives it was cancelled."""
        if not self.ended:
            self._queue.clear()
            self.take(RunCancelled(at=self.now(), reason=reason))
        self.close()
