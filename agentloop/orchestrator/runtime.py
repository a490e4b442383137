"""Running: the driver is asked what to do, it is done within the run's limits, and told.

Here are the deadline of the whole run, the caller's signal, and cancellation from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import anyio

from agentloop._canonical import Json
from agentloop.errors import InvariantViolation, LedgerError
from agentloop.ledger.chain import NO_ENTRIES
from agentloop.messages import Message
from agentloop.orchestrator import budgets
from agentloop.orchestrator.config import RunConfig
from agentloop.orchestrator.driver import RunDriver
from agentloop.orchestrator.effects import Effects
from agentloop.orchestrator.events import BudgetExceeded, Effect, Event, Fault, RunCancelled
from agentloop.orchestrator.folding import RunFold
from agentloop.orchestrator.ledger import RunFile, read_run_file
from agentloop.orchestrator.options import Deps, Finalizer, RunOptions, read_options
from agentloop.orchestrator.registry import ToolHost
from agentloop.orchestrator.state import Outcome, RunState
from agentloop.outcome import to_error
from agentloop.ports import Assembler, Head, LedgerStore, Provider, Sink
from agentloop.tools import Tool

if TYPE_CHECKING:
    from agentloop.redact import Redactor

__all__ = ("Orchestrator", "RunResult", "run")


class RunResult:
    """How a run ended, and where its record is."""

    def __init__(self, state: RunState, store: LedgerStore, head: Head, warnings: Iterable[str]) -> None:
        assert state.outcome is not None
        self.run_id = state.run_id
        self.outcome: Outcome = state.outcome
        self.state = state
        #: Where the run is recorded.
        self.store = store
        #: Number and hash of the record's last entry.
        self.head = head
        #: Failures that did not change the end.
        self.warnings = tuple(warnings)

    @property
    def transcript(self) -> list[Message]:
        """The messages of the run."""
        return [*self.state.transcript]

    @cached_property
    def ledger(self) -> RunFile:
        """The record as one file; read from the store on first use."""
        return read_run_file(self.store, self.run_id)

    def __repr__(self) -> str:
        return f"RunResult({self.run_id!r}, {self.outcome!r})"


class Orchestrator:
    """One run of a model with its tools: `run` begins it, or goes on with it."""

    def __init__(
        self, options: RunOptions, *, standing: RunFold | None = None, head: Head = NO_ENTRIES
    ) -> None:
        self.options = options
        self._driver = RunDriver(options, standing=standing, head=head)
        self._effects = Effects(self._driver)
        self._scope: anyio.CancelScope | None = None
        self._started = False

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.options.run_id

    @property
    def state(self) -> RunState:
        """Where the run stands."""
        return self._driver.state

    @property
    def head(self) -> Head:
        """Number and hash of its newest entry."""
        return self._driver.record.recorder.head

    async def run(self) -> RunResult:
        """Run to the end and return how it ended. Once.

        Cancelling the caller ends the run as cancelled, on record, and is passed on.

        Raises:
            InvariantViolation: The program is wrong; ``ledger`` is the record up to there.
            LedgerError: The record cannot be kept; nothing goes on without it. ``ledger`` is what
                the store has of it.
        """
        if self._started:
            raise RuntimeError("a run is driven once: make another Orchestrator")
        self._started = True
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            self._effects.limits.tasks = tasks
            if self.options.signal is not None:
                tasks.start_soon(self._watch, self.options.signal)
            try:
                await self._drive()
            except anyio.get_cancelled_exc_class():
                await self._cut_off()
                raise
            except Exception as error:
                failure = error
            if self.options.signal is not None:
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise self._with_record(failure)
        driver = self._driver
        return RunResult(driver.state, self.options.ledger, driver.record.recorder.head, driver.warnings)

    async def _drive(self) -> None:
        driver = self._driver
        if not driver.resumed:
            driver.begin()
        while (effect := driver.next_effect()) is not None:
            await driver.commit(effect)
            for event in await self._perform(effect):
                driver.queue(event)
        driver.close()
        await driver.commit()

    async def _perform(self, effect: Effect) -> list[Event]:
        """Return the event that answers the effect, and the limit that was reached meanwhile."""
        driver, config = self._driver, self.options.config
        most = config.budget.max_wall_clock_ms
        left_ms = None if most is None else most - (driver.now() - driver.state.started_at)
        self._scope = anyio.CancelScope()
        if driver.stopped():
            self._scope.cancel()
        answer = await self._effects.limits.within(left_ms, self._answer(effect), scope=self._scope)
        self._scope = None
        if (problem := driver.broken or driver.lost) is not None:
            raise problem
        if answer is None and driver.stopped():
            return [RunCancelled(at=driver.now())]
        events = [] if answer is None else [answer]
        late = budgets.wall_clock(driver.now() - driver.state.started_at, config)
        if late is not None:
            events.append(BudgetExceeded(at=driver.now(), error=late))
        return events

    async def _answer(self, effect: Effect) -> Event:
        try:
            return await self._effects.perform(effect)
        except Exception as error:
            value = self._driver.ingress.error(to_error(error, source="runtime"))
            return Fault(at=self._driver.now(), error=value)

    async def _watch(self, signal: anyio.Event) -> None:
        await signal.wait()
        if self._scope is not None:
            self._scope.cancel()

    async def _cut_off(self) -> None:
        """End the run on record although its caller was cancelled."""
        self._driver.cancel("the task that drove the run was cancelled")
        with anyio.CancelScope(shield=True):
            await self._driver.commit()

    def _with_record(self, failure: BaseException) -> BaseException:
        if isinstance(failure, (InvariantViolation, LedgerError)):
            try:
                if isinstance(failure, InvariantViolation):
                    self._driver.record.commits.now()
                failure.ledger = read_run_file(self.options.ledger, self.run_id)
            except Exception as error:
                failure.add_note(f"its record cannot be read: {error!s:.500}")
        return failure


async def run(
    goal: str,
    *,
    provider: Provider,
    tools: ToolHost | Iterable[Tool] = (),
    assembler: Assembler | None = None,
    finalizer: Finalizer | None = None,
    config: RunConfig | Mapping[str, Any] | None = None,
    deps: Deps | None = None,
    seed: str | None = None,
    run_id: str | None = None,
    signal: anyio.Event | None = None,
    on_entry: Callable[[Any], object] | None = None,
    sink: Sink | None = None,
    ledger: LedgerStore | None = None,
    durability: Literal["power", "process"] = "power",
    redactor: Redactor | None = None,
    labels: Mapping[str, Json] | None = None,
) -> RunResult:
    """Work on a goal with a model and its tools until it is answered, given up or a limit is reached.

    Every decision is made by a pure function and put on record before anything follows from it,
    so the run replays exactly, and resumes elsewhere if it is cut off.

    Args:
        goal: What to do; the first user message.
        provider: The model; `as_provider` makes one of a model core.
        tools: What the model may call.
        assembler: Makes the window of each model call; by default the whole transcript.
        finalizer: Turns the draft into the output; by default white space around it is removed.
        config: Limits, retries and deadlines, merged over the defaults key by key.
        deps: Clock, chance and ids; by default the system's clock, chance from the seed.
        seed: Where chance begins.
        run_id: By default one that sorts by time.
        signal: Setting it ends the run as cancelled; what runs is cancelled at once.
        on_entry: Told every decision, once it is on record.
        sink: Written the frames of a streaming provider, once they are on record.
        ledger: Where the run is recorded; by default in memory.
        durability: What a committed entry survives: a loss of power, or the end of the process.
        redactor: Finds what must not be kept or shown.
        labels: Kept with the record.

    Raises:
        AgentLoopConfigError: An option is missing or out of range.
        InvariantViolation: A tool is malformed, or the program is wrong.
        LedgerError: The record cannot be kept.
    """
    options = read_options(
        goal,
        provider=provider,
        tools=tools,
        assembler=assembler,
        finalizer=finalizer,
        config=config,
        deps=deps,
        seed=seed,
        run_id=run_id,
        signal=signal,
        on_entry=on_entry,
        sink=sink,
        ledger=ledger,
        durability=durability,
        redactor=redactor,
        labels=labels,
    )
    return await Orchestrator(options).run()
