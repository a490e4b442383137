"""The plainest window: the whole transcript, every time."""

from __future__ import annotations

from agentloop.messages import Message
from agentloop.ports import AssemblyRequest, Context

__all__ = ("PassthroughAssembler",)


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
