"""The plainest window, and what every window is fitted to before it is sent."""

from __future__ import annotations

import msgspec

from agentloop.messages import Message
from agentloop.ports import AssemblyRequest, Context

__all__ = ("PassthroughAssembler", "lead_with_system")


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
