"""Cases and suites: what is run, and what its run is measured by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agentloop.errors import AgentLoopConfigError
from agentloop.evals.grades import Grader, check_weight
from agentloop.orchestrator.assembly import PassthroughAssembler
from agentloop.orchestrator.providers import ScriptedTurn
from agentloop.orchestrator.registry import ToolHost
from agentloop.ports import Assembler
from agentloop.tools import Tool

__all__ = ("EvalCase", "EvalSuite", "check_cases")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCase:
    """A scripted run and the graders that look at it.

    What has a state of its own is made anew for every run: `tools` and `assembler` are functions.

    Raises:
        AgentLoopConfigError: The id is empty, or the weight is not a finite number of at least 0.
    """

    #: Unique within a suite; also the seed of chance, and names the run ``run-<id>``.
    id: str
    goal: str
    #: What the model, or the loop's agent, says, as a `ScriptedProvider` takes it.
    script: Sequence[ScriptedTurn]
    graders: Sequence[Grader]
    description: str = ""
    tags: Sequence[str] = ()
    #: After the last turn: the error ``scripted.exhausted``, or that turn again.
    on_exhausted: Literal["fail", "repeat-last"] = "fail"
    #: Makes the tools.
    tools: Callable[[], ToolHost | Iterable[Tool]] = tuple
    #: What is run: one model with its tools, or an agent and its evaluator.
    subject: Literal["orchestrator", "loop"] = "orchestrator"
    #: Of a loop: what its evaluator says.
    evaluator: Sequence[ScriptedTurn] = ()
    #: Of a loop: what is asked before the evaluator.
    checks: Sequence[str] | None = None
    #: Of a loop: makes what answers the checks; by default they are evaluated.
    judge: Callable[[], Callable[..., Any]] | None = None
    #: Makes what makes the windows.
    assembler: Callable[[], Assembler] = PassthroughAssembler
    #: ``budget``, ``retry`` and deadlines, as `agentloop.run` takes them; of a loop its limits.
    config: Mapping[str, Any] = field(default_factory=dict)
    #: A critical case that fails stops the gate, whatever was recorded.
    critical: bool = False
    weight: float = 1

    def __post_init__(self) -> None:
        if not self.id:
            raise AgentLoopConfigError("a case needs an id")
        check_weight(f"case {self.id!r}", self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSuite:
    """Cases that are run and gated together.

    Raises:
        AgentLoopConfigError: Two cases share an id, or a case has no graders: it would pass
            whatever happens.
    """

    id: str
    cases: Sequence[EvalCase]
    description: str = ""

    def __post_init__(self) -> None:
        check_cases(self.id, self.cases)


class GradedCase(Protocol):
    """What cases of every kind have."""

    @property
    def id(self) -> str: ...

    @property
    def graders(self) -> Sequence[Grader]: ...


def check_cases(suite_id: str, cases: Iterable[GradedCase]) -> None:
    """Raise unless every case has an id of its own and graders.

    Raises:
        AgentLoopConfigError: Names the case.
    """
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise AgentLoopConfigError(f"suite {suite_id!r} has two cases called {case.id!r}")
        if not case.graders:
            raise AgentLoopConfigError(f"case {case.id!r} has no graders: it would pass whatever happens")
        seen.add(case.id)
