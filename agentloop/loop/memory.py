"""The loop's way into a memory: facts as they are published, the outcome before it is announced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentloop._canonical import Json
from agentloop.frames import ERROR, Frame
from agentloop.loop.complaints import Complaints
from agentloop.loop.cycle import CycleConfig, CycleState, Emit, OutcomeRecorded, decide
from agentloop.loop.failures import Failed, message_of
from agentloop.loop.ingress import Ingress
from agentloop.loop.record import RunRecord
from agentloop.messages import LoopResult, RunOutcome
from agentloop.ports import JoiningBridge, LedgerStore, OutcomeBridge

__all__ = ("MemoryWriter",)


class MemoryWriter:
    """Tells a bridge what one run found out.

    Attributes:
        telling: The bridge is at the outcome and has not answered.
        sealed: The end of the ledger is on record together with the outcome.
        failure: A bridge that is strict could not write the outcome.
    """

    def __init__(
        self,
        bridge: OutcomeBridge,
        run_id: str,
        *,
        ledger: LedgerStore | None,
        config: CycleConfig,
        record: RunRecord,
        ingress: Ingress,
        complain: Complaints,
        make_result: Callable[[CycleState], LoopResult],
    ) -> None:
        self._bridge, self._run_id, self._ledger, self._config = bridge, run_id, ledger, config
        self._record, self._ingress, self._complain = record, ingress, complain
        self._make_result = make_result
        self._writers: dict[int, str] = {}
        self.telling = self.sealed = False
        self.failure: Failed | None = None

    # -------------------------------------------------------------------------------- facts

    def note_writer(self, seq: int, by: str) -> None:
        """Keep who changed the fact that the frame of that number tells."""
        self._writers[seq] = by

    async def write_fact(self, frame: Frame) -> None:
        """Write the fact a ``symbolic_asserted`` frame tells."""
        assert frame.seq is not None
        content, bridge = frame.content, self._bridge
        try:
            await bridge.fact(
                content["name"],
                content["value"],
                op=content["op"],
                by=self._writers.get(frame.seq, "developer"),
                iteration=self._complain.cycle(),
                cause=f"{self._run_id}/{frame.seq}",
            )
        except Exception as error:
            if bridge.strict and self._complain.output is not None:
                self._complain.output.forget_memory()
            self._complain("graph", error, fatal=bridge.strict, once_per=str(content["name"]))
        self._writers.pop(frame.seq, None)

    # ------------------------------------------------------------------------------ outcome

    async def write_outcome(self, state: CycleState, outcome: RunOutcome) -> OutcomeRecorded:
        """Write how the run ends, and put on record what came of that.

        Where ledger and memory are one file, the outcome and the end of the ledger are one
        transaction, and the record is closed when this returns.
        """
        bridge, ledger = self._bridge, self._ledger
        joins = isinstance(bridge, JoiningBridge) and self._record.on and bridge.shares(ledger)
        self.telling = True
        try:
            if joins and isinstance(bridge, JoiningBridge):
                done = await bridge.record_outcome(outcome, seal=lambda done: self._seal(state, done))
            else:
                done = await bridge.record_outcome(outcome)
        except Exception as error:
            return self._not_written(error, aborted=outcome.reason == "aborted")
        finally:
            self.telling = False
        if joins:
            self.sealed = True
            self._record.off()  # what follows is on record already, `run.closed` too
        self._record.fact("outcome_written", {"result": dict(done)})
        if problem := done.get("problem"):
            self._complain("graph", RuntimeError(str(problem)))
        return OutcomeRecorded()

    def _not_written(self, error: Exception, *, aborted: bool) -> OutcomeRecorded:
        fatal = self._bridge.strict and not aborted
        text = self._ingress.redact_text(message_of(error))
        self._record.fact("outcome_written", {"failure": text, "fatal": fatal})
        if fatal:
            self.failure = Failed("graph", error)
            return OutcomeRecorded(text)
        self._complain("graph", error)
        return OutcomeRecorded()

    def _seal(self, state: CycleState, done: Mapping[str, Json]) -> None:
        """Put the end on record within the memory's transaction, as it is about to be decided.

        On a copy: if the transaction fails, nothing has to be taken back. May run on another
        thread, and more than once.
        """
        record = self._record.copy()
        record.fact("outcome_written", {"result": dict(done)})
        if problem := done.get("problem"):
            content: dict[str, Any] = self._complain.content("graph", RuntimeError(str(problem)), fatal=False)
            record.fact("callback_failed", {"phase": "graph", "error": content})
            record.out.add(ERROR, content)
        after, effects = decide(state, OutcomeRecorded(), self._config)
        record.step(state, OutcomeRecorded(), after, effects)
        for effect in effects:
            if isinstance(effect, Emit):
                record.out.add(effect.type, effect.content)
        record.closed(self._make_result(after))
        record.commit_now()
