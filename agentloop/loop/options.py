"""What can be configured about a loop, checked once at construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from agentloop._canonical import NotJson, encode
from agentloop.determinism import Clock, IdFactory, SystemClock
from agentloop.errors import AgentLoopConfigError
from agentloop.frames import ABORT, ERROR
from agentloop.loop.turns import OWN_PREFIX, AdapterLike
from agentloop.ports import LedgerStore, OutcomeBridge, Tap
from agentloop.symbolic import SymbolicState
from agentloop.tools import ToolAdapter

if TYPE_CHECKING:
    from agentloop.redact import Redactor

__all__ = ("CommitMode", "LoopOptions", "OverflowStrategy", "check_count", "options_from_camel")

OverflowStrategy = Literal["drop-oldest", "drop-newest", "block"]
CommitMode = Literal["turn", "cycle"]


class LoopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of `create_agent_loop`, which documents them."""

    agent_adapter: AdapterLike | None = None
    evaluator_adapter: AdapterLike | None = None
    build_agent_prompt: Callable[..., Any] | None = None
    build_evaluator_prompt: Callable[..., Any] | None = None
    parse_evaluator_output: Callable[..., Any] | None = None
    deterministic_checks: Callable[..., Any] | None = None
    checks_list: Sequence[str] | None = None
    max_retries: int = 5
    max_iterations: int = 10
    tool_adapters: Mapping[str, ToolAdapter] = msgspec.field(default_factory=dict)
    tool_timeout_ms: float | None = 30_000
    initial_symbolics: Mapping[str, Any] = msgspec.field(default_factory=dict)
    symbolic_names: Mapping[str, str] | None = None
    context: Mapping[str, Any] | None = None
    on_progress: Callable[[str, dict[str, Any]], Any] | None = None
    max_buffered_output_frames: int | None = None
    output_overflow_strategy: OverflowStrategy = "drop-oldest"
    node: Any = None
    symbolics: SymbolicState | None = None
    tool_trace_scope: Literal["latest", "all", "cycle"] = "latest"
    parallel_tool_calls: bool = False
    max_tool_calls: int = 128
    evaluator_parse_retries: int = 0
    turn_timeout_ms: float | None = 600_000
    run_timeout_ms: float | None = None
    extra_frames: bool = False
    forward_frames: Sequence[str] | Literal["*"] = ("TEXT",)
    own_adapters: bool = False
    protect_terminal: bool = False
    max_tool_output: int = 1024 * 1024
    cleanup_timeout_ms: float = 5_000
    raise_errors: bool = False
    graph: OutcomeBridge | None = None
    id_factory: IdFactory | None = None
    clock: Clock = msgspec.field(default_factory=SystemClock)
    ledger: LedgerStore | None = None
    run_id: str | None = None
    labels: Mapping[str, Any] = msgspec.field(default_factory=dict)
    commit: CommitMode = "turn"
    durability: Literal["power", "process"] = "power"
    record_prompts: Literal["parts", "digest"] = "parts"
    taps: Sequence[Tap] = ()
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
            check_count(name, getattr(self, name), least)
        for name in _DURATIONS:
            _check_duration(name, getattr(self, name))
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
_DURATIONS: Final = ("tool_timeout_ms", "turn_timeout_ms", "run_timeout_ms", "cleanup_timeout_ms")
_FLAGS: Final = ("parallel_tool_calls", "extra_frames", "own_adapters", "protect_terminal", "raise_errors")
_CHOICES: Final = {
    "output_overflow_strategy": ("drop-oldest", "drop-newest", "block"),
    "tool_trace_scope": ("latest", "all", "cycle"),
    "commit": ("turn", "cycle"),
    "durability": ("power", "process"),
    "record_prompts": ("parts", "digest"),
}


def check_count(name: str, value: object, least: int) -> None:
    if value is None and name == "max_buffered_output_frames":
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}: {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def _check_duration(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of milliseconds, not {type(value).__name__}: {value!r}")
    if not value > 0 or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number above 0 (None for no limit), not {value!r}")


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
