"""What can be configured about a loop, checked once at construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from agentloop._canonical import NotJson, encode
from agentloop._numbers import check_count, check_duration
from agentloop.determinism import Clock, IdFactory, SystemClock
from agentloop.errors import AgentLoopConfigError
from agentloop.frames import ABORT, ERROR
from agentloop.loop.turns import OWN_PREFIX, AdapterLike
from agentloop.ports import LedgerStore, OutcomeBridge, Tap
from agentloop.redact import Redactor
from agentloop.symbolic import SymbolicState
from agentloop.tools import ToolAdapter

__all__ = ("CommitMode", "LoopOptions", "OverflowStrategy", "options_from_camel")

OverflowStrategy = Literal["drop-oldest", "drop-newest", "block"]
CommitMode = Literal["turn", "cycle"]


class LoopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of `create_agent_loop`, each documented where it stands.

    Durations are milliseconds. The first five are required.
    """

    #: Who works: a duplex, an object with ``turn``, or a function ``(prompt, ctx)``; see `as_adapter`.
    agent_adapter: AdapterLike | None = None
    #: Who judges where checks do not decide.
    evaluator_adapter: AdapterLike | None = None
    #: ``(ctx)`` to a frame, a str, a mapping or a list of them; may be async.
    build_agent_prompt: Callable[..., Any] | None = None
    #: ``(ctx, history)`` to the same.
    build_evaluator_prompt: Callable[..., Any] | None = None
    #: ``(frames)`` to an `EvaluatorResult`, a mapping or ``(status, evidence, updates)``; may be async.
    parse_evaluator_output: Callable[..., Any] | None = None
    #: ``(checks_list, trace)`` to a `CheckReport`, a mapping, a pair or a bool; may be async. With
    #: a list and without this the default checks are asked.
    deterministic_checks: Callable[..., Any] | None = None
    #: Copied. Without any, the evaluator judges every cycle.
    checks_list: Sequence[str] | None = None
    #: Retries because checks failed, before the evaluator is asked; not refilled within a run.
    max_retries: int = 5
    #: Cycles of the run.
    max_iterations: int = 10
    #: Name to `Tool`, function or duplex: what the agent may call.
    tool_adapters: Mapping[str, ToolAdapter] = msgspec.field(default_factory=dict)
    #: Deadline of one call; None for none. A tool's own one goes first.
    tool_timeout_ms: float | None = 30_000
    #: First values of facts; copied.
    initial_symbolics: Mapping[str, Any] = msgspec.field(default_factory=dict)
    #: Who may write which fact; if given, every other write is refused and reported.
    symbolic_names: Mapping[str, str] | None = None
    #: What builders find as ``ctx.runtime`` and ``ctx.extra``; see `read_context`.
    context: Mapping[str, Any] | None = None
    #: ``(type, data)`` after each frame that tells a step; awaited if it can be.
    on_progress: Callable[[str, dict[str, Any]], Any] | None = None
    #: Frames that may wait for the reader; None for no limit.
    max_buffered_output_frames: int | None = None
    #: What happens beyond that limit; only ``block`` makes the run wait for its reader.
    output_overflow_strategy: OverflowStrategy = "drop-oldest"
    #: What the run works on: shown to builders, moved to in the graph.
    node: Any = None
    #: Facts to go on with instead of new ones.
    symbolics: SymbolicState | None = None
    #: What checks see: of equal calls the latest, all of the run, or those of the cycle.
    tool_trace_scope: Literal["latest", "all", "cycle"] = "latest"
    #: Run the calls that were asked for together at once.
    parallel_tool_calls: bool = False
    #: Calls of one turn that are answered.
    max_tool_calls: int = 128
    #: How often a cycle asks the evaluator again when its verdict cannot be read.
    evaluator_parse_retries: int = 0
    #: Longest turn, tool calls not counted; None for no limit.
    turn_timeout_ms: float | None = 600_000
    #: Longest run, from the TICK; None for no limit.
    run_timeout_ms: float | None = None
    #: Also tell the true start of each cycle.
    extra_frames: bool = False
    #: Types of adapters' frames that the reader sees; ``"*"`` for all of them.
    forward_frames: Sequence[str] | Literal["*"] = ("TEXT",)
    #: Enter and leave the adapters together with the run.
    own_adapters: bool = False
    #: Where overflow would lose the terminal frame, lose another one.
    protect_terminal: bool = False
    #: Characters of one tool result; longer ones are cut in the middle, visibly.
    max_tool_output: int = 1024 * 1024
    #: Longest wait for what is to stop; then the run ends without it.
    cleanup_timeout_ms: float = 5_000
    #: Code that blocks the event loop for longer is told to the log, with its stack; None: not looked for.
    stall_after_ms: float | None = 1_000
    #: ``run`` and ``wait`` raise what the run failed on, after the stream has ended.
    raise_errors: bool = False
    #: A memory that is told facts and outcomes, as `adapters.graph.GraphBridge`.
    graph: OutcomeBridge | None = None
    #: Ids of calls that came without one; by default a counter.
    id_factory: IdFactory | None = None
    #: Dates the entries of the ledger and new run ids; no frame carries a time.
    clock: Clock = msgspec.field(default_factory=SystemClock)
    #: Where the run is recorded; by default it is not.
    ledger: LedgerStore | None = None
    #: By default a new one that sorts by time.
    run_id: str | None = None
    #: JSON that the ledger's first entry keeps about the run.
    labels: Mapping[str, Any] = msgspec.field(default_factory=dict)
    #: When the run is on record: after every turn, or after every cycle.
    commit: CommitMode = "turn"
    #: Against what: a loss of power, or the death of the process.
    durability: Literal["power", "process"] = "power"
    #: What is recorded of prompts: their frames, or a digest.
    record_prompts: Literal["parts", "digest"] = "parts"
    #: Sinks that are awaited with every frame before the buffer has it.
    taps: Sequence[Tap] = ()
    #: Takes secrets out of everything that enters; a run that is recorded has one in any case.
    redactor: Redactor | None = None

    def __post_init__(self) -> None:
        for name, article in _REQUIRED:
            if getattr(self, name) is None:
                raise AgentLoopConfigError(f"create_agent_loop requires {article}{name}")
        for name in _CALLABLES:
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be callable, not {type(value).__name__}")
        for name, least in _COUNTS.items():
            check_count(name, getattr(self, name), least, optional=name in _OPTIONAL)
        for name in _DURATIONS:
            check_duration(name, getattr(self, name), optional=name in _OPTIONAL)
        for name, legal in _CHOICES.items():
            if getattr(self, name) not in legal:
                raise ValueError(f"{name} must be one of {', '.join(legal)}, not {getattr(self, name)!r}")
        for name in ("tool_adapters", "initial_symbolics", "labels"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"{name} must be a mapping, not {type(getattr(self, name)).__name__}")
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, not {getattr(self, name)!r:.80}")
        if isinstance(self.forward_frames, str) and self.forward_frames != "*":
            raise TypeError(
                f"forward_frames must be a list of frame types or '*', not {self.forward_frames!r}"
            )
        for name in self.forward_frames if self.forward_frames != "*" else ():
            if name in (ABORT, ERROR) or str(name).startswith(OWN_PREFIX):
                raise ValueError(f"forward_frames names {name!r}, which only the run itself can say")
        try:
            encode(dict(self.labels))
        except NotJson as error:
            raise TypeError(f"labels must be JSON: {error}") from error
        msgspec.structs.force_setattr(self, "checks_list", _check_list(self.checks_list))


_REQUIRED: Final = (
    ("agent_adapter", "an "),
    ("evaluator_adapter", "an "),
    ("build_agent_prompt", ""),
    ("build_evaluator_prompt", ""),
    ("parse_evaluator_output", ""),
)
_CALLABLES: Final = (
    "build_agent_prompt",
    "build_evaluator_prompt",
    "parse_evaluator_output",
    "deterministic_checks",
    "on_progress",
    "id_factory",
)
_COUNTS: Final = {
    "max_retries": 0,
    "max_iterations": 0,
    "max_buffered_output_frames": 1,
    "max_tool_calls": 0,
    "evaluator_parse_retries": 0,
    "max_tool_output": 1,
}
_DURATIONS: Final = (
    "tool_timeout_ms",
    "turn_timeout_ms",
    "run_timeout_ms",
    "cleanup_timeout_ms",
    "stall_after_ms",
)
_OPTIONAL: Final = frozenset(
    {"max_buffered_output_frames", "tool_timeout_ms", "turn_timeout_ms", "run_timeout_ms", "stall_after_ms"}
)
_FLAGS: Final = ("parallel_tool_calls", "extra_frames", "own_adapters", "protect_terminal", "raise_errors")
_CHOICES: Final = {
    "output_overflow_strategy": ("drop-oldest", "drop-newest", "block"),
    "tool_trace_scope": ("latest", "all", "cycle"),
    "commit": ("turn", "cycle"),
    "durability": ("power", "process"),
    "record_prompts": ("parts", "digest"),
}


def _check_list(checks: object) -> tuple[str, ...] | None:
    if checks is None:
        return None
    if isinstance(checks, str) or not isinstance(checks, Sequence):
        raise TypeError(f"checks_list must be a list of str, not {type(checks).__name__}: {checks!r:.80}")
    return tuple(checks)


def options_from_camel(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options given in camelCase under their Python names.

    Raises:
        TypeError: A name that is no option; unknown names are never passed over.
    """
    known = set(LoopOptions.__struct_fields__) | {
        "inner_loop_factory",
        "should_continue",
        "node_provider",
        "inner_max_iterations",
        "share_symbolics",
    }
    converted: dict[str, Any] = {}
    for name, value in options.items():
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        if snake not in known:
            raise TypeError(f"{name!r} is not an option of the loop")
        converted[snake] = value
    return converted
