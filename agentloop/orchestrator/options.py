"""What a run is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from agentloop._canonical import Json
from agentloop.determinism import Clock, Mulberry32, PrefixedIds, Rng, RunIds, SequentialIds, SystemClock
from agentloop.errors import AgentLoopConfigError
from agentloop.orchestrator.assembly import PassthroughAssembler
from agentloop.orchestrator.config import RunConfig, read_config
from agentloop.orchestrator.registry import ToolHost, ToolRegistry
from agentloop.ports import Assembler, AssemblyRequest, LedgerStore, Provider, Sink
from agentloop.tools import Tool

if TYPE_CHECKING:
    from agentloop.redact import Redactor

__all__ = ("DEFAULT_SEED", "Deps", "Finalizer", "RunOptions", "read_options")

DEFAULT_SEED = "escapement"

#: Turns the draft into the output; may be async.
Finalizer: TypeAlias = Callable[[str, AssemblyRequest], str | Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """Time, chance and ids of a run; what is None is filled in when the run is made."""

    clock: Clock | None = None
    rng: Rng | None = None
    #: Also names the run ``run-0001``, unless it was given an id.
    ids: PrefixedIds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Everything a run is given, complete. `read_options` makes one."""

    goal: str
    provider: Provider
    tools: ToolHost
    assembler: Assembler
    finalizer: Finalizer
    config: RunConfig
    clock: Clock
    rng: Rng
    ids: PrefixedIds
    seed: str
    run_id: str
    signal: anyio.Event | None
    #: Told every decision, once it is on record; what it raises becomes a warning.
    on_entry: Callable[[Any], object] | None
    #: Written what the model says while it says it, once that is on record; it may wait.
    sink: Sink | None
    ledger: LedgerStore
    durability: Literal["power", "process"]
    redactor: Redactor | None
    labels: Mapping[str, Json] = field(default_factory=dict)


def strip(draft: str, request: AssemblyRequest) -> str:
    """Return the draft without white space around it."""
    return draft.strip()


def _host(tools: ToolHost | Iterable[Tool]) -> ToolHost:
    return tools if hasattr(tools, "invoke") else ToolRegistry(tools)  # type: ignore[return-value]


def read_options(
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
) -> RunOptions:
    """Return the options with every default filled in.

    Raises:
        AgentLoopConfigError: Something is missing or out of range.
        InvariantViolation: A tool is malformed.
    """
    if not isinstance(goal, str):
        raise AgentLoopConfigError(f"config.invalid: the goal is a text, not {goal!r:.200}")
    if durability not in ("power", "process"):
        raise AgentLoopConfigError(f"config.invalid: durability is 'power' or 'process', not {durability!r}")
    deps = deps or Deps()
    seed = DEFAULT_SEED if seed is None else seed
    clock = deps.clock or SystemClock()
    ids = deps.ids or SequentialIds()
    if run_id is None:
        run_id = RunIds(clock)() if deps.ids is None else ids.next("run")
    if ledger is None:
        from agentloop.ledger.memory import MemoryLedgerStore

        ledger = MemoryLedgerStore()
    elif redactor is None:
        # What is kept is kept for long: nothing that looks like a key gets there.
        from agentloop.redact import Redactor

        redactor = Redactor()
    return RunOptions(
        goal=goal,
        provider=provider,
        tools=_host(tools),
        assembler=assembler or PassthroughAssembler(),
        finalizer=finalizer or strip,
        config=read_config(config),
        clock=clock,
        rng=deps.rng or Mulberry32(seed),
        ids=ids,
        seed=seed,
        run_id=run_id,
        signal=signal,
        on_entry=on_entry,
        sink=sink,
        ledger=ledger,
        durability=durability,
        redactor=redactor,
        labels=dict(labels or {}),
    )
