"""Making a recorded run's windows, outputs and readings again, and comparing them with the record.

A replay takes these from the record; here they are made anew from the same inputs, which shows
whether an assembler, a finalizer or a tool does today what it did then.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentloop._canonical import Json, encode
from agentloop.determinism import ManualClock
from agentloop.errors import LedgerError
from agentloop.ledger.reader import Entry, RunLedger
from agentloop.orchestrator.assembly import PassthroughAssembler, assembly_request, lead_with_system
from agentloop.orchestrator.events import (
    Assemble,
    ContextAssembled,
    OutputFinalized,
    SummaryRecorded,
    ToolExecution,
)
from agentloop.orchestrator.folding import Mismatch, RunFold
from agentloop.orchestrator.ingress import Ingress
from agentloop.orchestrator.options import Finalizer, strip
from agentloop.orchestrator.paging import PagedTools
from agentloop.orchestrator.registry import ToolHost, ToolRegistry, ToolRun, render_value
from agentloop.outcome import Ok
from agentloop.ports import Assembler, AssemblyRequest, Context, LedgerStore, Summary
from agentloop.redact import Redactor
from agentloop.tools import Tool

__all__ = ("Difference", "FullReplay", "replay_full")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was made again and came out otherwise."""

    #: Number of the entry.
    seq: int
    #: ``window``, ``summary``, ``output``, ``tool``, ``tools``, or what does not replay.
    what: str
    #: Both sides; of windows the first 16 digits of their SHA-256.
    recorded: Json
    replayed: Json


class FullReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What was made again, and what of it differs."""

    run: str
    ok: bool
    #: What was made again: windows, outputs, calls of tools that only read.
    windows: int = 0
    outputs: int = 0
    readings: int = 0
    differences: tuple[Difference, ...] = ()


async def replay_full(
    store: LedgerStore,
    run: str,
    /,
    *,
    assembler: Assembler | None = None,
    finalizer: Finalizer | None = None,
    tools: ToolHost | Iterable[Tool] = (),
    provider: object = None,
    redactor: Redactor | None = None,
) -> FullReplay:
    """Replay an orchestrated run, and make again what does not come from models and the world.

    Every window is assembled from the recorded transcript, every output finalized from the
    recorded draft, every successful call of a tool that only reads is made with the recorded
    arguments. Writing tools are not called. Never raises on account of what is stored.

    Args:
        store: Where the run is.
        run: Its id.
        assembler: As the run had it; by default the one of runs that are given none.
        finalizer: Likewise.
        tools: All of the run's tools, for windows describe them.
        provider: Is not asked anything; only whether it sends tools by itself, and takes late
            system messages.
        redactor: As the run had it; by default as runs that are kept have one.
    """
    ledger = RunLedger(store, run)
    seq = 0
    again: _Again | None = None
    differences: list[Difference] = []
    try:
        opened = ledger.opened
        again = _Again(RunFold(opened), assembler, finalizer, tools, provider, redactor or Redactor())
        named = [spec.name for spec in again.tools.specs]
        if opened.get("tools") != named:
            differences.append(
                Difference(seq=1, what="tools", recorded=opened.get("tools"), replayed=[*named])
            )
        for entry in ledger.entries():
            seq = entry.seq
            differences += await again.take(entry)
    except Mismatch as mismatch:
        differences.append(
            Difference(seq=seq, what=mismatch.what, recorded=mismatch.recorded, replayed=mismatch.replayed)
        )
    except (LedgerError, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        told = f"{type(error).__name__}: {error}"
        differences.append(Difference(seq=seq, what="form", recorded=told, replayed=None))
    made: Mapping[str, int] = {} if again is None else again.made
    return FullReplay(run=run, ok=not differences, differences=tuple(differences), **made)


class _Again:
    def __init__(
        self,
        fold: RunFold,
        assembler: Assembler | None,
        finalizer: Finalizer | None,
        tools: ToolHost | Iterable[Tool],
        provider: object,
        redactor: Redactor,
    ) -> None:
        host: Any = tools if hasattr(tools, "invoke") else ToolRegistry(tools)
        self.tools, self._host, self._fold = PagedTools(host, fold.config), host, fold
        self._assembler, self._finalizer = assembler or PassthroughAssembler(), finalizer or strip
        self._provider, self._redactor = provider, redactor
        self._ingress = Ingress(redactor if fold.opened.get("redacted") else None)
        self.made = Counter[str](windows=0, outputs=0, readings=0)

    async def take(self, entry: Entry) -> list[Difference]:
        """Take the next entry; return what came out otherwise."""
        fold = self._fold
        fold.take(entry)
        if entry.kind == "fact.tool_result":
            return await self._reading(entry, fold.reader.executions[entry.data["step"]])
        if entry.kind == "step":
            return []
        match fold.fact:
            case ContextAssembled() as event:
                return await self._window(entry, event)
            case SummaryRecorded() as event:
                made = await self._assembled()
                text = self._ingress.text(made.text) if isinstance(made, Summary) else str(made)
                return _compared(entry, "summary", event.text, text)
            case OutputFinalized() as event:
                return await self._output(entry, event)
        return []

    def _request(self) -> AssemblyRequest:
        fold = self._fold
        orders = [effect for effect in fold.effects if isinstance(effect, Assemble)]
        return assembly_request(
            fold.state, fold.config, self.tools.specs, provider=self._provider,
            effect=orders[-1] if orders else None,
        )  # fmt: skip

    async def _assembled(self) -> Context | Summary | str:
        try:
            return await self._assembler.assemble(self._request())
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    async def _window(self, entry: Entry, event: ContextAssembled) -> list[Difference]:
        self.made["windows"] += 1
        made = await self._assembled()
        if not isinstance(made, Context):
            return _compared(entry, "window", _digest(event.context), str(made))
        if not getattr(self._provider, "mid_system", True):
            made = lead_with_system(made)
        made = self._ingress.context(made, self._fold.state.transcript)
        return _compared(entry, "window", _digest(event.context), _digest(made))

    async def _output(self, entry: Entry, event: OutputFinalized) -> list[Difference]:
        self.made["outputs"] += 1
        draft = self._fold.state.draft
        assert draft is not None
        try:
            made: Any = self._finalizer(draft, self._request())
            made = self._ingress.text(await made if inspect.isawaitable(made) else made)
        except Exception as error:
            made = f"{type(error).__name__}: {error}"
        return _compared(entry, "output", event.output, made)

    async def _reading(self, entry: Entry, known: ToolExecution) -> list[Difference]:
        call = known.call
        self_paging = not any(spec.name == call.name for spec in self._host.specs)
        if not known.ok or self_paging or not self._host.read_only(call.name):
            self.tools.keep(known)
            return []
        self.made["readings"] += 1
        run = ToolRun(run_id=self._fold.run_id, step_id=known.step_id, clock=ManualClock(entry.at))
        try:
            result = await self._host.invoke(call, run)
            content = render_value(result.value) if isinstance(result, Ok) else result.error.message
        except Exception as error:
            content = f"{type(error).__name__}: {error}"
        self.tools.keep(known)
        return _compared(entry, "tool", known.content, self._ingress.text(content))


def _compared(entry: Entry, what: str, recorded: Json, replayed: Json) -> list[Difference]:
    if recorded == replayed:
        return []
    return [Difference(seq=entry.seq, what=what, recorded=recorded, replayed=replayed)]


def _digest(context: Context) -> str:
    report = {name: told for name, told in (context.report or {}).items() if name != "assemblyAttempts"}
    plain = msgspec.to_builtins(msgspec.structs.replace(context, report=report or None))
    return hashlib.sha256(encode(plain)).hexdigest()[:16]
