"""The suite that gates this project: how an orchestrated run behaves, offline and to the digit.

``agentloop eval gate --suite tests/evals/suite.py --baseline tests/evals/baseline.json``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentloop.context.assembler import ContextAssembler
from agentloop.context.bm25 import Bm25Retriever, Document
from agentloop.context.config import ContextConfig, HistoryOptions, MemoryOptions, RetrievalOptions
from agentloop.context.memory import MemoryQuery, MemoryRecord
from agentloop.context.packer import ContextBudget
from agentloop.context.tokens import tokenizer_from
from agentloop.errors import ClassifiedError, ErrorValue
from agentloop.evals.cases import EvalCase, EvalSuite
from agentloop.evals.graders import (
    all_tool_calls_succeeded,
    calls_tools,
    context_invariant,
    context_within_budget,
    ends_as,
    fails_with,
    never_calls,
    output_contains,
    output_matches,
    replays_exactly,
    section_never_starved,
    trajectory_close_to,
    usage_equals,
    visits_phase,
    within_corrective_turns,
    within_retries,
    within_steps,
    within_tokens,
    within_tool_calls,
)
from agentloop.evals.grades import Grader
from agentloop.tools import Tool

QUERY = {
    "type": "object",
    "properties": {"q": {"type": "string"}},
    "required": ["q"],
    "additionalProperties": False,
}
TOKENIZER = tokenizer_from("four-characters", lambda text: -(-len(text) // 4))
DOCUMENTS = {
    "returns": "Returns are accepted within thirty days if the order number is given.",
    "shipping": "Orders ship on the next working day; express orders on the same day.",
    "warranty": "The warranty covers two years from the day of the order.",
    "contact": "Support answers mails on working days between nine and five.",
}
MEMORIES = (
    MemoryRecord(id="m1", text="The customer prefers short answers about an order.", salience=0.6),
    MemoryRecord(id="m2", text="The last order was delivered late.", kind="episode", salience=0.5),
)


class Memories:
    """Recalls the same two records for every window."""

    name = "fixed"

    async def remember(self, record: MemoryRecord, /) -> MemoryRecord:
        return record

    async def recall(self, query: MemoryQuery, /) -> list[MemoryRecord]:
        if query.kinds is not None:
            return [record for record in MEMORIES if record.kind in query.kinds]
        return [*MEMORIES[: query.limit]]

    async def all(self) -> list[MemoryRecord]:
        return [*MEMORIES]


def window(total: int = 4000, reserve: int = 512, repeat: int = 1) -> Callable[[], ContextAssembler]:
    documents = [Document(name, " ".join([text] * repeat)) for name, text in DOCUMENTS.items()]

    def make() -> ContextAssembler:
        return ContextAssembler(
            ContextConfig(
                budget=ContextBudget(total=total, reserve_for_output=reserve),
                system_prompt="You answer questions of customers. Use the tools; do not guess.",
                tokenizer=TOKENIZER,
                memory=MemoryOptions(store=Memories()),
                retrieval=RetrievalOptions(retriever=Bm25Retriever(documents=documents), k=3),
                history=HistoryOptions(recent_messages=4),
            )
        )

    return make


# ------------------------------------------------------------------------------------ tools


def failing(code: str, *, times: int, error_class: Any = "transient") -> Callable[..., Any]:
    """Make a handler that fails so often before it answers."""
    left = times

    async def handle(q: str) -> str:
        nonlocal left
        if left:
            left -= 1
            raise ClassifiedError(ErrorValue(error_class=error_class, code=code, message="not reachable"))
        return f"done: {q}"

    return handle


async def found(q: str) -> str:
    return f"found {q}"


def tool(name: str, handler: Callable[..., Any] = found, *, read_only: bool = True) -> Tool:
    return Tool(name=name, handler=handler, description=f"{name} for q.", schema=QUERY, read_only=read_only)


def tools() -> Iterable[Tool]:
    return [tool("search"), tool("lookup")]


# ----------------------------------------------------------------------------------- script

ANSWER: Mapping[str, Any] = {"say": "The order was sent on Monday."}
BLANK: Mapping[str, Any] = {"say": "  "}


def asks(*names: str, args: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    return {"say": "", "callTools": [{"name": name, "args": dict(args or {"q": "order"})} for name in names]}


def fails(error_class: str = "transient", code: str = "model.unavailable") -> Mapping[str, Any]:
    return {"failWith": {"class": error_class, "code": code, "message": "the model does not answer"}}


def case(id: str, script: Sequence[Mapping[str, Any]], *graders: Grader, **more: Any) -> EvalCase:
    given = {"goal": "Where is my order?", "tools": tools, "assembler": window(), **more}
    return EvalCase(id=id, script=script, graders=(*graders, replays_exactly()), **given)


def spent(model: int, tools: int, corrective: int, retries: int) -> Grader:
    return usage_equals(
        {"modelCalls": model, "toolCalls": tools, "correctiveTurns": corrective, "retries": retries}
    )


def squeezed(reports: Sequence[Mapping[str, Any]]) -> bool:
    """Each window was asked for more than it had."""
    return bool(reports) and all(
        sum(section["requested"] for section in report["sections"]) > report["usable"] for report in reports
    )


suite = EvalSuite(
    id="orchestrator",
    description="Answers, tools, repairs, retries, limits and windows of orchestrated runs.",
    cases=[
        case(
            "direct-answer",
            [ANSWER],
            ends_as("completed"),
            output_contains("Monday"),
            calls_tools([], "exact"),
            spent(1, 0, 0, 0),
            within_tokens(1000),
        ),
        case(
            "single-tool-then-answer",
            [asks("search"), ANSWER],
            ends_as("completed"),
            calls_tools(["search"], "exact"),
            all_tool_calls_succeeded(),
            spent(2, 1, 0, 0),
            within_steps(2),
        ),
        case(
            "parallel-readonly-tools",
            [asks("search", "lookup"), ANSWER],
            ends_as("completed"),
            calls_tools(["lookup", "search"], "set"),
            spent(2, 2, 0, 0),
            within_steps(2),
        ),
        case(
            "unknown-tool-recovery",
            [asks("serch"), asks("search"), ANSWER],
            ends_as("completed"),
            calls_tools(["search"]),
            spent(3, 2, 1, 0),
            within_corrective_turns(1),
        ),
        case(
            "bad-arguments-recovery",
            [asks("search", args={"query": 1}), asks("search"), ANSWER],
            ends_as("completed"),
            calls_tools(["search", "search"], "exact"),
            spent(3, 2, 1, 0),
            within_corrective_turns(1),
        ),
        case(
            "empty-response-repair",
            [BLANK, ANSWER],
            ends_as("completed"),
            visits_phase("tools", False),
            output_matches("^The order"),
            spent(2, 0, 1, 0),
            critical=True,
        ),
        case(
            "transient-retry",
            [fails(), ANSWER],
            ends_as("completed"),
            visits_phase("backoff"),
            within_retries(1),
            spent(1, 0, 0, 1),
        ),
        case(
            "retry-exhaustion",
            [fails()] * 4,
            ends_as("failed"),
            fails_with("model.retries_exhausted"),
            spent(0, 0, 0, 2),
            config={"budget": {"maxModelAttempts": 3}, "retry": {"baseDelayMs": 10}},
            critical=True,
        ),
        case(
            "readonly-tool-retried-by-runtime",
            [asks("flaky_read"), ANSWER],
            ends_as("completed"),
            all_tool_calls_succeeded(),
            spent(2, 1, 0, 1),
            tools=lambda: [tool("flaky_read", failing("index.unavailable", times=1))],
            config={"retry": {"baseDelayMs": 5}},
        ),
        case(
            "write-tool-never-retried",
            [asks("send_email"), ANSWER],
            ends_as("completed"),
            calls_tools(["send_email"], "exact"),
            within_retries(0),
            spent(2, 1, 1, 0),
            tools=lambda: [tool("send_email", failing("mail.unavailable", times=1), read_only=False)],
            critical=True,
        ),
        case(
            "fatal-not-retried",
            [fails("fatal", "auth.invalid_key"), ANSWER],
            ends_as("failed"),
            fails_with("auth.invalid_key"),
            visits_phase("backoff", False),
            spent(0, 0, 0, 0),
            critical=True,
        ),
        case(
            "step-budget-halts-a-loop",
            [asks("search")],
            ends_as("halted"),
            fails_with("budget.steps"),
            within_steps(4),
            spent(4, 4, 0, 0),
            on_exhausted="repeat-last",
            config={"budget": {"maxSteps": 4}},
            critical=True,
        ),
        case(
            "tool-budget-refuses-an-overrunning-batch",
            [asks("search", "lookup", "search"), ANSWER],
            ends_as("halted"),
            fails_with("budget.tool_calls"),
            never_calls("search", "lookup"),
            within_tool_calls(2),
            spent(1, 0, 0, 0),
            config={"budget": {"maxToolCalls": 2}},
            critical=True,
        ),
        case(
            "context-report-is-recorded",
            [asks("search"), ANSWER],
            ends_as("completed"),
            context_invariant("two-reports", lambda reports: len(reports) == 2, "a report for each window"),
            context_within_budget(),
            section_never_starved("retrieval"),
            section_never_starved("history.recent"),
            spent(2, 1, 0, 0),
        ),
        case(
            "context-under-pressure",
            [asks("search"), ANSWER],
            ends_as("completed"),
            context_within_budget(),
            context_invariant("squeezed", squeezed, "more was asked for than there was"),
            section_never_starved("history.recent"),
            spent(2, 1, 0, 0),
            assembler=window(700, 100, repeat=40),
            critical=True,
        ),
        case(
            "trajectory-shape-is-stable",
            [asks("search"), asks("lookup"), ANSWER],
            ends_as("completed"),
            trajectory_close_to(["search", "lookup"]),
            spent(3, 2, 0, 0),
        ),
    ],
)
