"""Chat models behind OpenAI's Chat Completions interface, at OpenAI or at any compatible server."""

from __future__ import annotations

from adapters.openai.chat import OpenAIChat, create_openai_adapter, openai_adapter
from adapters.openai.recorded import RecordedChat
from adapters.openai.stream import ChatStream

__all__ = ("ChatStream", "OpenAIChat", "RecordedChat", "create_openai_adapter", "openai_adapter")
