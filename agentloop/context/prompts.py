"""An assembler as a prompt builder of the agent loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from agentloop._canonical import Json, encode_text
from agentloop.context.sections import groups_of
from agentloop.context.tokens import message_text
from agentloop.errors import AgentLoopConfigError
from agentloop.frames import CONTEXT, TEXT, Frame
from agentloop.messages import Message, ToolCall
from agentloop.ports import Assembler, AssemblyRequest, Context, ToolSpec

__all__ = ("GoalOf", "context_prompt", "frames_of", "transcript_of")


class _LoopView(Protocol):
    """What is read of a `LoopContext`."""

    @property
    def node(self) -> Any: ...
    @property
    def run_id(self) -> str: ...
    @property
    def iteration(self) -> int: ...
    @property
    def history(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def inbox(self) -> Sequence[str]: ...
    @property
    def tools(self) -> Sequence[ToolSpec]: ...


GoalOf: TypeAlias = Callable[[Any], str]


def context_prompt(
    assembler: Assembler, *, goal: str | GoalOf | None = None, native_tools: bool = True
) -> Callable[[Any], Awaitable[list[Frame]]]:
    """Return a builder for ``build_agent_prompt`` of `create_agent_loop`.

    The earlier cycles become a transcript: what the agent called and was answered, what it said,
    and what checks or evaluator said about it. A CONTEXT frame before the prompt tells how the
    window was filled and which memories are shown; the loop records it with the turn and hands
    the memories to its bridge with the outcome.

    Args:
        assembler: Makes the window. A `Summary` it asks for cannot be made here.
        goal: A text, or a function of the `LoopContext`. By default the ``goal`` of the node.
        native_tools: The agent's adapter tells the model about the tools, as `as_duplex` does;
            False describes them in the window, as a command-line agent needs it.
    """

    async def build(ctx: _LoopView) -> list[Frame]:
        said = _goal(ctx, goal)
        window = await assembler.assemble(
            AssemblyRequest(
                run_id=ctx.run_id,
                step=max(0, ctx.iteration - 1),
                goal=said,
                transcript=transcript_of(said, ctx.history, inbox=ctx.inbox),
                tools=tuple(ctx.tools),
                native_tools=native_tools,
            )
        )
        if not isinstance(window, Context):
            raise AgentLoopConfigError(
                "this assembler wants a summary made, which only the orchestrator can do"
            )
        return frames_of(window)

    return build


def _goal(ctx: _LoopView, goal: str | GoalOf | None) -> str:
    if goal is not None:
        return goal if isinstance(goal, str) else goal(ctx)
    node = ctx.node
    if isinstance(node, Mapping) and isinstance(node.get("goal"), str):
        return str(node["goal"])
    raise AgentLoopConfigError(f"context_prompt needs goal=…: the run's node has none ({node!r:.80})")


# ------------------------------------------------------------------------------ transcript


def transcript_of(
    goal: str, history: Sequence[Mapping[str, Any]], *, inbox: Sequence[str] = ()
) -> list[Message]:
    """Return what happened in earlier cycles as a conversation, the goal first.

    Args:
        goal: What is to be reached.
        history: Entries as `LoopContext.history` has them.
        inbox: Notes that came in since.
    """
    said = [Message(role="user", content=goal)]
    for entry in history:
        said += _cycle(entry)
    said += [Message(role="user", content=f"A note from the person you work for: {note}") for note in inbox]
    return said


def _cycle(entry: Mapping[str, Any]) -> list[Message]:
    # Two cycles of a model may use the same ids; the cycle's number keeps their answers apart.
    number = entry["iteration"]
    said: list[Message] = []
    if entry["tool_calls"]:
        calls = tuple(
            [
                ToolCall(id=f"{number}.{call['id']}", name=call["name"], **_arguments(call["arguments"]))
                for call in entry["tool_calls"]
            ]
        )
        said.append(Message(role="assistant", tool_calls=calls))
        said += [_answer(result, number) for result in entry["tool_results"]]
    if entry["agent_text"]:
        said.append(Message(role="assistant", content=entry["agent_text"]))
    if feedback := _feedback(entry):
        said.append(Message(role="user", content=feedback))
    return said


def _arguments(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {"arguments": dict(value)}
    return {"raw_arguments": value if isinstance(value, str) else encode_text(value)}


def _answer(result: Mapping[str, Any], cycle: int) -> Message:
    output = result.get("output", "")
    parts = [output if isinstance(output, str) else encode_text(output)]
    parts += [
        f"{name}:\n{result[name]}"
        for name in ("stdout", "stderr")
        if result.get(name) not in (None, "", output)
    ]
    if result.get("exit_code") is not None:
        parts.append(f"exit code: {result['exit_code']}")
    return Message(
        role="tool",
        call_id=f"{cycle}.{result['call_id']}",
        name=result["name"],
        content="\n".join(part for part in parts if part),
        is_error=not result["ok"],
    )


def _feedback(entry: Mapping[str, Any]) -> str:
    lines = []
    checks, evaluation = entry["checks"], entry["evaluation"]
    if checks is not None and not checks["all_passed"]:
        lines.append(f"The checks did not pass:\n{checks['evidence']}")
    if evaluation is not None and evaluation["evidence"]:
        lines.append(f"The evaluator says ({evaluation['status']}): {evaluation['evidence']}")
    return "\n\n".join(lines)


# ---------------------------------------------------------------------------------- frames


def frames_of(window: Context) -> list[Frame]:
    """Return a window as the frames of a prompt: its report, then a frame for each message.

    Calls and their answers are one frame, for adapters that take messages (``messages``) and for
    those that take text.
    """
    report: dict[str, Json] = {"report": window.report, "retrieval_ids": list(window.retrieval_ids)}
    groups = groups_of(window.messages)
    messages = window.messages
    frames = [Frame(CONTEXT, report)]
    for number, group in sorted((group[0], group) for group in groups):
        if len(group) > 1 or messages[number].tool_calls or messages[number].role == "tool":
            frames.append(_exchange([messages[place] for place in group]))
        else:
            frames.append(Frame(TEXT, {"text": messages[number].content, "role": messages[number].role}))
    return frames


def _exchange(messages: Sequence[Message]) -> Frame:
    texts = [
        f"{message.name or 'tool'} answered{' with an error' if message.is_error else ''}: {message.content}"
        if message.role == "tool"
        else f"You called: {message_text(message)}"
        for message in messages
    ]
    return Frame(
        "MESSAGES", {"text": "\n".join(texts), "messages": cast("Json", msgspec.to_builtins(messages))}
    )
