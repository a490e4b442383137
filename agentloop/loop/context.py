"""What prompt builders and adapters are told about the run they work for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from agentloop.errors import AgentLoopConfigError
from agentloop.loop.history import History
from agentloop.messages import CheckReport
from agentloop.ports import ToolSpec
from agentloop.symbolic import SymbolicState, create_symbolic_state

__all__ = ("LoopContext", "Runtime", "read_context", "state_for")


class Runtime(Mapping[str, Any]):
    """The caller's own values: ``runtime.task`` and ``runtime["task"]`` are the same."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(sorted(self._values)) or "nothing"
            raise AttributeError(f"the runtime has no {name!r} (it has {known})") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Runtime({self._values!r})"


class LoopContext:
    """The live context of one run; every name works as an attribute and as a key.

    Attributes:
        symbolics: The facts of the run.
        runtime: The caller's own values.
        node: The node this run works on, as the caller gave it.
        iteration: The current cycle, from 1; 0 before the first.
        retry_count: Retries so far; ``check_retry_count`` of them because checks failed.
        last_evidence: What the newest checks or verdict said; None in the first cycle.
        last_checks: The newest check report, or None.
        history: Earlier cycles; see `History`.
        inbox: Notes that came in since the last agent prompt.
        parse_error: Why the last evaluator text could not be read, while it is asked again.
        tools: What the agent may call.
        extra: Whatever else the ``context`` option held.
        run_id: Of this run.
    """

    __slots__ = (
        "check_retry_count",
        "extra",
        "history",
        "inbox",
        "iteration",
        "last_checks",
        "last_evidence",
        "node",
        "parse_error",
        "retry_count",
        "run_id",
        "runtime",
        "symbolics",
        "tools",
    )

    def __init__(
        self,
        *,
        symbolics: SymbolicState,
        runtime: Runtime,
        node: Any,
        extra: dict[str, Any],
        tools: tuple[ToolSpec, ...],
        run_id: str,
    ) -> None:
        self.symbolics = symbolics
        self.runtime = runtime
        self.node = node
        self.extra = extra
        self.tools = tools
        self.run_id = run_id
        self.iteration = 0
        self.retry_count = 0
        self.check_retry_count = 0
        self.last_evidence: str | None = None
        self.last_checks: CheckReport | None = None
        self.history = History()
        self.inbox: tuple[str, ...] = ()
        self.parse_error: str | None = None

    def __getitem__(self, key: str) -> Any:
        if key in self.__slots__:
            return getattr(self, key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in self.__slots__

    def keys(self) -> tuple[str, ...]:
        """Return the names the context has."""
        return self.__slots__


def read_context(context: Mapping[str, Any] | None) -> tuple[Runtime, Any, Any, dict[str, Any]]:
    """Return (runtime, symbolics, node, extra) of a ``context`` option.

    With a key ``runtime``, that is the runtime and unknown keys are extra; without one, every
    key other than ``symbolics`` and ``node`` is the runtime.
    """
    rest = dict(context or {})
    symbolics, node = rest.pop("symbolics", None), rest.pop("node", None)
    if "runtime" not in rest:
        return Runtime(rest), symbolics, node, {}
    runtime = rest.pop("runtime")
    if not isinstance(runtime, Mapping):
        raise TypeError(f"context['runtime'] must be a mapping, not {type(runtime).__name__}")
    return Runtime(runtime), symbolics, node, rest


def state_for(given: Any, initial: Mapping[str, Any], declared: Mapping[str, str] | None) -> SymbolicState:
    """Return the state of a run: the given one completed, or a new one from a mapping or None.

    Raises:
        AgentLoopConfigError: Names are declared for a state that already exists.
    """
    if not isinstance(given, SymbolicState):
        return create_symbolic_state({**(given or {}), **initial}, declared=cast(Any, declared))
    if declared is not None:
        raise AgentLoopConfigError(
            "symbolic_names declares the names of a new state: for one that exists use "
            "create_symbolic_state(..., declared=...)"
        )
    for name, value in initial.items():
        if name not in given:
            given.assert_value(name, value)
    return given
