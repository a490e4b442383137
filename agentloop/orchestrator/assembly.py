"""The plainest window, and what every window is fitted to before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from agentloop.messages import Message
from agentloop.orchestrator import budgets
from agentloop.orchestrator.config import RunConfig
from agentloop.orchestrator.events import Assemble
from agentloop.orchestrator.state import RunState
from agentloop.ports import AssemblyRequest, Context, ToolSpec

__all__ = ("PassthroughAssembler", "assembly_request", "lead_with_system")

_NO_TOOLS: Final = "No more tools can be called in this run: answer with what is known."


class PassthroughAssembler:
    """Shows the model everything, after one system message that lists the tools, if there are any.

    Counts a token for each four characters of content. The cost of a run's windows grows with
    the square of its turns, so it is for short runs and tests.
    """

    async def assemble(self, request: AssemblyRequest, /) -> Context:
        lines = []
        if request.tools and not request.native_tools:
            lines = ["You can call the following tools by name:"]
            lines += [f"- {tool.name}: {tool.description}" for tool in request.tools]
        lines += [note for note in (request.note, *request.summaries) if note]
        head = (Message(role="system", content="\n".join(lines)),) if lines else ()
        messages = (*head, *request.transcript)
        characters = sum(len(message.content) for message in messages)
        return Context(messages=messages, tokens=-(-characters // 4))


def lead_with_system(context: Context) -> Context:
    """Return a window for models that take system messages at its beginning only.

    Later ones are joined to the leading one, in order; the report says how many were.
    """
    messages = context.messages
    head = next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))
    late = [message.content for message in messages[head:] if message.role == "system"]
    if not late and head <= 1:
        return context
    texts = [*(message.content for message in messages[:head]), *late]
    leading = Message(role="system", content="\n\n".join(text for text in texts if text))
    rest = [message for message in messages[head:] if message.role != "system"]
    report = {**(context.report or {}), "systemJoined": len(texts) - 1}
    return msgspec.structs.replace(context, messages=(leading, *rest), report=report)


def assembly_request(
    state: RunState,
    config: RunConfig,
    specs: Sequence[ToolSpec],
    *,
    provider: object,
    effect: Assemble | None = None,
) -> AssemblyRequest:
    """Return what a window is made from, where the run stands. Pure.

    Args:
        specs: The run's tools.
        provider: Only asked what it can do.
        effect: The order to assemble; None where something else is told where the run stands.
    """
    offered = budgets.offers_tools(state.usage, config)
    return AssemblyRequest(
        run_id=state.run_id,
        step=state.step,
        goal=state.goal,
        transcript=state.transcript,
        tools=tuple(specs) if offered else (),
        note=_NO_TOOLS if specs and not offered and state.usage.tool_calls else None,
        native_tools=bool(getattr(provider, "native_tools", False)),
        mid_system=bool(getattr(provider, "mid_system", True)),
        shrink=1.0 if effect is None else effect.shrink,
        tokens_left=budgets.output_room(state, 0, config),
        summaries=state.summaries,
        estimates=state.estimates,
    )
